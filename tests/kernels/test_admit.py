from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specsched.kernels import admit as module
from specsched.kernels.admit import Admission, Layout, admit, layout
from specsched.kernels.admit_reference import admit_reference, layout_reference
from specsched.kernels.common import KernelError
from specsched.policies import admit_top_k

from .guards import POISON_ID, Guards
from .test_confidence import LAST, virtual

Batch = tuple[torch.Tensor, torch.Tensor, int, int]
TIES = [0.0, 1e-40, 0.25, 0.5, 0.75, LAST, 1.0]


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    """Survivals full of ties, availabilities, a floor and a budget that it allows."""
    rows, gamma = draw(st.sampled_from([1, 3, 4, 6, 8, 9, 33])), draw(st.sampled_from([1, 2, 3, 4, 5, 7, 8, 16]))
    any_survival = st.sampled_from(TIES) | st.floats(0.0, 1.0, width=32)
    values = draw(st.lists(any_survival, min_size=4, max_size=12))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    a = np.sort(rng.choice(np.array(values, np.float32), (rows, gamma)), axis=1)[:, ::-1].copy()
    available = rng.integers(0, gamma + 1, rows) * rng.choice([0, 1], rows, p=[0.2, 0.8])
    if draw(st.booleans()):
        available[:] = gamma
    min_len = draw(st.sampled_from([0, 0, 1, 2, gamma]))
    floor, drafts = int(np.minimum(available, min_len).sum()), int(available.sum())
    middle = (floor + drafts) // 2
    budget = draw(st.sampled_from([floor, drafts, middle, middle]) | st.integers(floor, drafts))
    return torch.from_numpy(a), torch.from_numpy(available), budget, min_len


def one(value: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
    return torch.tensor([value], dtype=dtype)


def by_policy(a: torch.Tensor, available: torch.Tensor, budget: int, min_len: int = 0) -> list[int]:
    """The lengths of the simulator's policies on the same survivals."""
    exists = np.arange(a.shape[1]) < available.numpy()[:, None]
    survivals = np.where(exists, a.numpy(), 0.0).astype(np.float64)
    return admit_top_k(survivals, available.numpy().astype(np.int64), budget, min_len).tolist()


def guarded(guards: Guards, rows: int) -> Admission:
    return Admission(
        guards.empty("lengths", rows, dtype=torch.int32), guards.empty("offsets", rows + 1, dtype=torch.int32)
    )


@given(batches())
@settings(max_examples=80, deadline=None)
def test_equals_the_policies(batch: Batch) -> None:
    a, available, budget, min_len = batch
    guards = Guards()
    found = admit(a, one(budget), available, min_len, guarded(guards, len(a)), check=True)
    guards.check()
    assert found.lengths.tolist() == by_policy(a, available, budget, min_len)
    assert found.offsets.tolist() == [0, *np.cumsum(1 + found.lengths.numpy()).tolist()]
    expected = admit_reference(a, budget, available, min_len)
    assert torch.equal(found.lengths, expected.lengths)
    assert torch.equal(found.offsets, expected.offsets)


def test_generated_batches_are_what_they_should_be() -> None:
    """Of 300 batches, shares that have ties at the cut, unequal lengths, a floor, no budget, or all of it."""
    seen: list[tuple[bool, ...]] = []

    @given(batches())
    @settings(max_examples=300, deadline=None, derandomize=True, database=None)
    def collect(batch: Batch) -> None:
        a, available, budget, min_len = batch
        exists = np.arange(a.shape[1]) < available.numpy()[:, None]
        ranked = np.sort(a.numpy()[exists])[::-1]
        tie = 0 < budget < len(ranked) and ranked[budget - 1] == ranked[budget]
        lengths = by_policy(a, available, budget, min_len)
        seen.append((tie, len(set(lengths)) > 1, min_len > 0, budget == 0, budget == len(ranked) > 0))

    collect()
    assert len(seen) >= 300
    ties, ragged, floors, none, full = np.mean(seen, 0)
    assert min(ties, floors) > 0.2
    assert ragged > 0.3
    assert min(none, full) > 0.05


def test_every_budget_of_one_batch() -> None:
    a = torch.tensor([[0.5, 0.5, 0.25], [0.5, 0.5, 0.25], [1.0, LAST, 0.0]])
    available = torch.tensor([3, 3, 3])
    lengths = [admit(a, one(k)).lengths.tolist() for k in range(10)]
    assert lengths == [by_policy(a, available, k) for k in range(10)]
    assert lengths[3:6] == [[1, 0, 2], [1, 1, 2], [2, 1, 2]]


def test_the_largest_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """256 rows of 16, and 1,024 of 2; in tiles that take the interpreter a second, not a minute."""
    monkeypatch.setattr(module, "CANDIDATES", 512)
    monkeypatch.setattr(module, "OTHERS", 1024)
    for rows, gamma in ((256, 16), (1024, 2)):
        a = torch.rand(rows, gamma, generator=torch.Generator().manual_seed(5)).cumprod(1)
        budget = rows * gamma // 3
        guards = Guards()
        found = admit(a, one(budget), out=guarded(guards, rows))
        guards.check()
        assert found.lengths.tolist() == by_policy(a, torch.full((rows,), gamma), budget)
        assert int(found.offsets[-1]) == rows + budget


@pytest.mark.parametrize(("candidates", "others"), [(16, 16), (32, 64), (64, 512)])
def test_tiles_change_nothing(candidates: int, others: int, monkeypatch: pytest.MonkeyPatch) -> None:
    a = torch.from_numpy(np.random.default_rng(0).choice(np.array(TIES, np.float32), (19, 5))).sort(1, True).values
    expected = admit(a, one(40))
    monkeypatch.setattr(module, "CANDIDATES", candidates)
    monkeypatch.setattr(module, "OTHERS", others)
    assert torch.equal(admit(a, one(40)).lengths, expected.lengths)


def test_survivals_of_drafts_that_do_not_exist_are_ignored() -> None:
    a = torch.tensor([[0.5, float("nan"), 9.0], [0.4, 0.3, float("inf")]])
    assert admit(a, one(2), torch.tensor([1, 2])).lengths.tolist() == [1, 1]
    assert admit(a, one(3), torch.tensor([1, 2])).lengths.tolist() == [1, 2]


def test_out_of_range_budgets_and_availabilities_without_a_check() -> None:
    a = torch.tensor([[0.5, 0.4], [0.6, 0.1]])
    for budget, lengths in ((-1, [0, 0]), (-(2**31), [0, 0]), (5, [2, 2]), (2**31 - 1, [2, 2])):
        assert admit(a, one(budget)).lengths.tolist() == lengths
    assert admit(a, one(2**40, torch.int64)).lengths.tolist() == [2, 2]
    assert admit(a, one(4), torch.tensor([-3, 77])).lengths.tolist() == [0, 2]
    # A budget under the floor takes the floor's drafts in order.
    assert admit(a, one(1), min_len=1).lengths.tolist() == [1, 0]
    assert admit(a, one(3), min_len=99).lengths.tolist() == [2, 1]


@given(st.integers(0, 2**32 - 1), st.data())
@settings(max_examples=40, deadline=None)
def test_survivals_that_rise_still_give_lengths(seed: int, data: st.DataObject) -> None:
    """Drafts are counted, as the policies count them: lengths that exist and fill the budget."""
    rng = np.random.default_rng(seed)
    a = torch.from_numpy(rng.choice(np.array(TIES, np.float32), (6, 4)))
    available = torch.from_numpy(rng.integers(0, 5, 6))
    budget = data.draw(st.integers(0, int(available.sum())))
    lengths = admit(a, one(budget), available).lengths
    assert bool((lengths <= available).all())
    assert int(lengths.sum()) == budget
    assert torch.equal(lengths, admit_reference(a, budget, available).lengths)


def test_nan_and_negative_survivals_rank_as_zero() -> None:
    a = torch.tensor([[0.5, float("nan")], [-0.0, -1.0], [0.0, 0.0], [1e-45, 0.0]])
    lengths = [admit(a, one(k)).lengths.tolist() for k in range(9)]
    zeros = torch.where(a > 0, a, 0.0)
    assert lengths == [by_policy(zeros, torch.full((4,), 2), k) for k in range(9)]


def test_a_row_that_ends_by_a_bad_token_gives_up_its_budget() -> None:
    """What `confidence` writes for a bad token, 0 from there on, ranks last."""
    a = torch.tensor([[0.9, 0.0, 0.0], [0.2, 0.1, 0.05]])
    assert admit(a, one(4)).lengths.tolist() == [1, 3]


@pytest.mark.parametrize("ids", [torch.int32, torch.int64])
def test_id_types(ids: torch.dtype) -> None:
    a = torch.tensor([[0.5, 0.4], [0.6, 0.1]])
    assert admit(a, one(3, ids), torch.tensor([1, 2], dtype=ids)).lengths.tolist() == [1, 2]


def test_strided_survivals_and_rows_beyond_int32() -> None:
    a = torch.tensor([[0.5, 0.4], [0.6, 0.1], [0.3, 0.2]])
    wide = torch.rand(3, 7)
    wide[:, 2:4] = a
    assert torch.equal(admit(wide[:, 2:4], one(4)).lengths, admit(a, one(4)).lengths)
    for far in (2**30 + 4, 2**31 + 4):
        apart = virtual(2 * far + 2, torch.float32).as_strided((3, 2), (far, 1))
        apart.copy_(a)
        assert torch.equal(admit(apart, one(4)).lengths, admit(a, one(4)).lengths)


def test_what_check_refuses() -> None:
    a = torch.tensor([[0.5, 0.4], [0.6, 0.1]])
    with pytest.raises(KernelError, match=r"`budget` must be within 0\.\.4 .*got 5"):
        admit(a, one(5), check=True)
    with pytest.raises(KernelError, match=r"`budget` must be within 2\.\.4 \(min_len 1, .*got 1"):
        admit(a, one(1), min_len=1, check=True)
    with pytest.raises(KernelError, match=r"`available\[1\]` must be within 0\.\.2, got 3"):
        admit(a, one(1), torch.tensor([0, 3]), check=True)
    with pytest.raises(KernelError, match=r"`a\[1, 1\]` must be within 0\.\.0\.5"):
        admit(torch.tensor([[0.5, 0.5], [0.5, 0.75]]), one(1), check=True)
    with pytest.raises(KernelError, match=r"`a\[0, 0\]` must be within 0\.\.1\.0 .*got nan"):
        admit(torch.tensor([[float("nan"), 0.5]]), one(1), check=True)
    assert admit(torch.tensor([[0.5, 0.75]]), one(1), torch.tensor([1]), check=True).lengths.tolist() == [1]


A = torch.tensor([[0.5, 0.4], [0.6, 0.1]])
WRONG: dict[str, tuple[str, Callable[[], Any]]] = {
    "rank": (r"`a` must have shape \[any, any\], got \[2\]", lambda: admit(A[0], one(1))),
    "type": ("`a` must be of type float32, got float64", lambda: admit(A.double(), one(1))),
    "positions": (r"1\.\.16 positions, got 17", lambda: admit(torch.zeros(2, 17), one(1))),
    "rows": (r"1\.\.1024 rows, got 1025", lambda: admit(torch.zeros(1025, 1), one(1))),
    "no rows": (r"1\.\.1024 rows, got 0", lambda: layout(torch.zeros(0, dtype=torch.int32), one(1)[:0], 4)),
    "budget": ("`budget` must be a tensor, got int", lambda: admit(A, 1)),  # type: ignore[arg-type]
    "budget shape": (r"`budget` must have shape \[1\], got \[\]", lambda: admit(A, torch.tensor(1))),
    "available": (r"`available` must have shape \[2\], got \[1\]", lambda: admit(A, one(1), one(1))),
    "min_len": ("`min_len` must be at least 0, got -1", lambda: admit(A, one(1), min_len=-1)),
    "out": (r"`out.offsets` must have shape \[3\]", lambda: admit(A, one(1), out=Admission(*[one(1).repeat(2)] * 2))),
    "device": ("`budget` must be on cpu, got meta", lambda: admit(A, torch.empty(1, dtype=torch.int32, device="meta"))),
    "size": ("`size` must be at least 1, got 0", lambda: layout(one(1), one(1), 0)),
    "context": (r"`context` must have shape \[1\], got \[2\]", lambda: layout(one(1), one(1).repeat(2), 4)),
    "layout out": (r"`out.request` must have shape \[5\]", lambda: layout(one(1), one(1), 5, Layout.allocate(4))),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments_are_refused(name: str) -> None:
    message, call = WRONG[name]
    with pytest.raises(KernelError, match=message):
        call()


def room(guards: Guards, size: int) -> Layout:
    request, position = (guards.empty(name, size, dtype=torch.int32) for name in ("request", "position"))
    return Layout(request, position, guards.empty("overflow", 1, dtype=torch.int64))


@given(st.lists(st.tuples(st.integers(0, 16), st.integers(0, 2**20)), min_size=1, max_size=40), st.integers(0, 40))
@settings(max_examples=50, deadline=None)
def test_layout_equals_the_reference(rows: list[tuple[int, int]], padding: int) -> None:
    lengths, context = (torch.tensor(each, dtype=torch.int32) for each in zip(*rows, strict=True))
    size = int((1 + lengths).sum()) + padding
    guards = Guards()
    found = layout(lengths, context, size, room(guards, size), check=True)
    guards.check()
    expected = layout_reference(lengths, context, size)
    assert torch.equal(found.request, expected.request)
    assert torch.equal(found.position, expected.position)
    assert found.overflow.tolist() == [0]


def test_a_layout_by_hand() -> None:
    found = layout(torch.tensor([2, 0, 1]), torch.tensor([10, 0, 7]), 8)
    assert found.request.tolist() == [0, 0, 0, 1, 2, 2, -1, -1]
    assert found.position.tolist() == [10, 11, 12, 0, 7, 8, -1, -1]


@pytest.mark.parametrize("size", [1, 3, 4, 6, 7, 100])
def test_what_does_not_fit_is_left_out_and_counted(size: int) -> None:
    lengths, context = torch.tensor([2, -5, 2]), torch.tensor([5, 6, 7])
    guards = Guards()
    found = layout(lengths, context, size, room(guards, size))
    guards.check()
    expected = layout_reference(lengths, context, size)
    assert torch.equal(found.request, expected.request)
    assert torch.equal(found.position, expected.position)
    assert found.overflow.tolist() == [max(7 - size, 0)]


def test_garbage_lengths_write_nothing_outside() -> None:
    for lengths in ([2**31 - 1, 2**31 - 1, 2**31 - 1], [POISON_ID] * 3, [-(2**31), 2**31 - 1, 0]):
        guards = Guards()
        found = layout(torch.tensor(lengths, dtype=torch.int32), torch.tensor([0, 1, 2]), 8, room(guards, 8))
        guards.check()
        assert bool(((found.request >= -1) & (found.request < 3)).all())
        assert int(found.overflow) == max(sum(1 + max(each, 0) for each in lengths) - 8, 0)


def test_check_refuses_what_does_not_fit() -> None:
    with pytest.raises(KernelError, match="`size` must hold all 7 tokens, got 6; pad to a larger captured size"):
        layout(torch.tensor([2, 2, 0]), torch.tensor([0, 0, 0]), 6, check=True)
    with pytest.raises(KernelError, match=r"`lengths\[1\]` must be at least 0, got -1"):
        layout(torch.tensor([2, -1]), torch.tensor([0, 0]), 6, check=True)


@pytest.mark.parametrize("pairs", [64, 512, 4096])
def test_tokens_of_a_program_change_nothing(pairs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths, context = torch.arange(9) % 4, torch.arange(9) * 100
    expected = layout(lengths, context, 30)
    monkeypatch.setattr(module, "PAIRS", pairs)
    assert torch.equal(layout(lengths, context, 30).position, expected.position)


def test_admission_and_layout_agree() -> None:
    a = torch.rand(9, 5, generator=torch.Generator().manual_seed(1)).cumprod(1)
    admission = admit(a, one(20))
    found = layout(admission.lengths, torch.zeros(9, dtype=torch.int64), 40)
    starts = torch.nonzero(found.position == 0).flatten()
    assert torch.equal(starts.int(), admission.offsets[:-1])
    assert int((found.request >= 0).sum()) == int(admission.offsets[-1]) == 29


def test_nothing_is_allocated_or_awaited_when_room_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    admission, place = Admission.allocate(2), Layout.allocate(6)
    budget, context = one(2), torch.tensor([3, 4])

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("allocated, or waited for the device")

    for owner, name in ((torch, "empty"), *((torch.Tensor, name) for name in ("item", "tolist", "cpu", "__int__"))):
        monkeypatch.setattr(owner, name, refuse)
    assert admit(A, budget, out=admission) is admission
    assert layout(admission.lengths, context, 6, place) is place
    monkeypatch.undo()
    assert place.position.tolist() == [3, 4, 4, 5, -1, -1]


def test_the_gate_knows_every_argument() -> None:
    for kernel in module.KERNELS:
        for form in kernel.configurations:
            assert [*form.signature, *form.constants] == list(kernel.function.arg_names), kernel.name
