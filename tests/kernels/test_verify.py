"""Verification against float64, on ragged batches with everything that may go wrong in a row."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch

from specsched.kernels import verify
from specsched.kernels.common import KernelError
from specsched.kernels.verify import BLOCK, Verified, VerifyWorkspace, verify_chain
from specsched.kernels.verify_reference import VerifiedReference, verify_chain_reference
from tests.kernels.guards import POISON_ID, Guards

CLEAR = 1e-4
"""A uniform nearer to a breakpoint than this may fall on either side of it in float32."""

Batch = dict[str, Any]

# The interpreter computes with NumPy, which warns of the infinities and NaN that some tests put in on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:triton")


def batch(lengths: list[int], gamma: int, vocabulary: int, seed: int, dtype: torch.dtype = torch.float32) -> Batch:
    """A ragged batch whose drafts come from laws that resemble the target's, so that most outcomes occur."""
    draw = torch.Generator().manual_seed(seed)
    rows = len(lengths)
    counts = torch.tensor(lengths)
    offsets = torch.cat((torch.zeros(1, dtype=torch.int64), (counts + 1).cumsum(0)))
    target = (3 * torch.randn(int(offsets[-1]) + 2, vocabulary, generator=draw)).to(dtype)
    logits = 3 * torch.randn(rows, gamma, vocabulary, generator=draw)
    for row, length in enumerate(lengths):
        first = int(offsets[row])
        logits[row, :length] = target[first : first + length] + 0.7 * logits[row, :length] / 3
    temperature = torch.rand(rows, generator=draw) + 0.5
    logits = logits.to(dtype)
    laws = torch.softmax(logits.double() / temperature.double()[:, None, None], 2)
    drafts = torch.multinomial(laws.view(-1, vocabulary), 1, generator=draw).view(rows, gamma)
    return {
        "target_logits": target,
        "draft_tokens": drafts.int(),
        "p_draft": laws.gather(2, drafts[:, :, None])[:, :, 0].float(),
        "draft_logits": logits,
        "lengths": counts.int(),
        "offsets": offsets.int(),
        "temperature": temperature,
        "accept": torch.rand(rows, gamma, generator=draw),
        "residual": torch.rand(rows, generator=draw),
        "bonus": torch.rand(rows, generator=draw),
    }


def run(given: Batch, **options: Any) -> Verified:
    """Verify between canaries, outputs and workspace poisoned, and check that all of the output is written."""
    rows, gamma = given["draft_tokens"].shape
    guards = Guards()
    shapes = {"n_accepted": (rows,), "next_token": (rows,), "tokens": (rows, gamma + 1)}
    out = Verified(**{name: guards.empty(name, *shape, dtype=torch.int32) for name, shape in shapes.items()})
    outputs = len(guards.buffers)
    room = VerifyWorkspace.allocate(rows, gamma, given["target_logits"].shape[1])
    held = {name: guards.empty(name, *like.shape, dtype=like.dtype) for name, like in vars(room).items()}
    assert verify_chain(**given, out=out, workspace=VerifyWorkspace(**held), **options) is out
    guards.check(unwritten=tuple(name for name, _, _ in guards.buffers[outputs:]))
    vocabulary = given["target_logits"].shape[1]
    for ids in (out.next_token, out.tokens):
        assert int(ids.min()) >= -1
        assert int(ids.max()) < vocabulary
    return out


def same(found: Verified, expected: Verified | VerifiedReference, rows: Any = slice(None)) -> None:
    for name in ("n_accepted", "next_token", "tokens"):
        assert getattr(found, name)[rows].tolist() == getattr(expected, name)[rows].tolist(), name


def agree(found: Verified, expected: VerifiedReference) -> int:
    """Check the rows whose uniforms are clear of every breakpoint; return how many those are."""
    clear = expected.gap >= CLEAR
    same(found, expected, clear)
    return int(clear.sum())


RAGGED = [0, 3, 1, 2, 3, 1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("vocabulary", [257, 2 * BLOCK + 7])
def test_agrees_with_float64(vocabulary: int, dtype: torch.dtype) -> None:
    given = batch(RAGGED, 3, vocabulary, 6, dtype)
    expected = verify_chain_reference(**given)
    assert agree(run(given), expected) == len(RAGGED)
    assert set(expected.n_accepted.tolist()) >= {0, 1, 2}


def test_many_rows_of_a_small_vocabulary() -> None:
    lengths = [row % 5 for row in range(25)]
    given = batch(lengths, 4, 5, 14)
    expected = verify_chain_reference(**given)
    assert agree(run(given), expected) == 25
    ends = set(zip(lengths, expected.n_accepted.tolist(), strict=True))
    assert {(0, 0), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2), (3, 0), (3, 1), (3, 2), (3, 3), (4, 2), (4, 4)} == ends


def test_sums_of_exponentials_match_float64() -> None:
    given = batch([1, 0], 1, 2 * BLOCK + 7, 2)
    work = VerifyWorkspace.allocate(2, 1, 2 * BLOCK + 7)
    verify_chain(**given, workspace=work)
    heat = given["temperature"].double()[[0, 0, 1], None]
    expected = torch.logsumexp(given["target_logits"][:3].double() / heat, 1)
    # Two slots of row 0, one of row 1; its second is not verified and keeps no meaning.
    tops, sums = work.tops.view(4, -1)[:3].double(), work.sums.view(4, -1)[:3].double()
    found = torch.logsumexp(tops / heat + sums.log(), 1)
    assert float((found - expected).abs().max()) < 1e-6


def test_an_equal_run_gives_equal_bits_and_tiles_change_none() -> None:
    given = batch([2, 0, 1, 2], 2, 3 * BLOCK + 5, 8)
    tiles = (BLOCK, BLOCK, 2 * BLOCK, 8 * BLOCK)
    works = [VerifyWorkspace.allocate(4, 2, 3 * BLOCK + 5) for _ in tiles]
    for work in works:
        for each in vars(work).values():
            each.zero_()  # what is never written must compare equal
    found = [verify_chain(**given, tile=tile, workspace=work) for tile, work in zip(tiles, works, strict=True)]
    assert int(works[0].residual.count_nonzero()) > 0
    for other, work in zip(found[1:], works[1:], strict=True):
        same(other, found[0])
        for name, value in vars(work).items():
            assert torch.equal(value, getattr(works[0], name)), name


def test_a_row_does_not_depend_on_the_others() -> None:
    given = batch(RAGGED, 3, 300, 4)
    whole = run(given)
    for row in (0, 1, 5):
        first, after = given["offsets"][row : row + 2].tolist()
        alone = {name: value[row : row + 1] for name, value in given.items() if len(value) == len(RAGGED)}
        alone["target_logits"] = given["target_logits"][first:after]
        alone["offsets"] = torch.tensor([0, after - first])
        found = run(alone)
        same(found, Verified(*(getattr(whole, each.name)[row : row + 1] for each in dataclasses.fields(Verified))))


def test_int64_ids_and_strides() -> None:
    given = batch([2, 1, 0], 2, 300, 6)
    expected = run(given)
    wide = dict(given)
    for name in ("draft_tokens", "lengths", "offsets"):
        wide[name] = given[name].long()
    wide["draft_logits"] = torch.full((2, 3, 320), math.nan)[:, :, :300].transpose(0, 1)
    wide["draft_logits"].copy_(given["draft_logits"])
    wide["target_logits"] = torch.full((len(given["target_logits"]), 310), math.nan)[:, :300]
    wide["target_logits"].copy_(given["target_logits"])
    same(run(wide), expected)


def test_greedy_rows_take_the_lowest_of_the_largest() -> None:
    given = batch([2, 2, 2, 0], 2, 2 * BLOCK + 9, 7)
    given["temperature"] = torch.tensor([0.0, 0.0, 0.9, 0.0])
    target = given["target_logits"]
    # Ties within a block and across blocks; the lowest id wins.
    for token, ties in ((0, (3, 5)), (1, (BLOCK + 2, 2 * BLOCK + 8)), (2, (2 * BLOCK + 1,)), (3, (17, BLOCK))):
        target[token, list(ties)] = 40.0
    given["draft_tokens"][0] = torch.tensor([3, BLOCK + 2])
    given["draft_tokens"][1] = torch.tensor([BLOCK, 5])
    given["accept"][0] = 0.9999  # irrelevant
    found = run(given)
    agree(found, verify_chain_reference(**given))
    assert found.tokens[0].tolist() == [3, BLOCK + 2, 2 * BLOCK + 1]
    assert found.tokens[1].tolist() == [17, -1, -1]


def test_a_low_temperature_is_nearly_greedy() -> None:
    given = batch([1, 0, 1], 1, 200, 9)
    given["temperature"] = torch.tensor([1e-30, 1e-38, 1e-3])
    given["draft_temperature"] = torch.ones(3)
    given["draft_tokens"][:, 0] = given["target_logits"][[0, 2, 3]].argmax(1)
    given["p_draft"] = torch.softmax(given["draft_logits"], 2).gather(2, given["draft_tokens"].long()[:, :, None])[
        ..., 0
    ]
    found = run(given)
    assert agree(found, verify_chain_reference(**given)) == 3
    assert found.next_token.tolist() == given["target_logits"][[1, 2, 4]].argmax(1).tolist()


def test_drafts_of_another_temperature() -> None:
    given = batch(RAGGED, 3, 60, 10)
    heat = torch.full((len(RAGGED),), 0.4)
    heat[3:] = 2.0
    given["draft_temperature"] = heat
    laws = torch.softmax(given["draft_logits"] / heat[:, None, None], 2)
    given["p_draft"] = laws.gather(2, given["draft_tokens"].long()[:, :, None])[:, :, 0]
    expected = verify_chain_reference(**given)
    assert agree(run(given), expected) == len(RAGGED)
    plain = verify_chain_reference(**{**given, "draft_temperature": given["temperature"]})
    assert expected.tokens.tolist() != plain.tokens.tolist()


@pytest.mark.parametrize("heat", [0.4, 2.0])
def test_the_residual_takes_the_drafts_temperature(heat: float) -> None:
    """Rows that reject, their residual's CDF looked at from end to end."""
    given = batch([1] * 24, 1, 6, 12)
    given["draft_temperature"] = torch.full((24,), heat)
    laws = torch.softmax(given["draft_logits"] / heat, 2)
    judges = given["target_logits"][given["offsets"][:-1].long()] / given["temperature"][:, None]
    overrated = (laws[:, 0] - torch.softmax(judges, 1)).argmax(1, keepdim=True)
    given["draft_tokens"], given["p_draft"] = overrated.int(), laws[:, 0].gather(1, overrated)
    given["accept"].fill_(0.9999)
    given["residual"] = (torch.arange(24) + 0.5) / 24
    expected = verify_chain_reference(**given)
    assert agree(run(given), expected) >= 20
    # The target's own temperature would redraw other tokens.
    confused = verify_chain_reference(**{**given, "draft_temperature": given["temperature"]})
    rejected = (expected.n_accepted == 0) & (confused.n_accepted == 0) & (expected.gap >= CLEAR)
    assert int((expected.next_token != confused.next_token)[rejected].sum()) >= 2


def test_argmax_drafts_are_judged_by_the_target_alone() -> None:
    given = batch([1] * 12, 1, 4, 11)
    given["draft_temperature"] = torch.zeros(12)
    given["draft_tokens"] = given["draft_logits"].argmax(2).int()
    given["p_draft"].fill_(0.3)  # a softmax's value for them, which is not what they were drawn with
    expected = verify_chain_reference(**given)
    found = run(given)
    assert agree(found, expected) == 12
    rejected = expected.n_accepted == 0
    assert 0 < int(rejected.sum()) < 12
    assert not bool((found.next_token == given["draft_tokens"][:, 0])[rejected].any())


def coarse(rows: int, length: int) -> Batch:
    """Four tokens of probability 1/4 in target and draft: float32 has no rounding here."""
    given = batch([length] * rows, length, 4, 0)
    given["target_logits"].zero_()
    given["draft_logits"].zero_()
    given["p_draft"].fill_(0.25)
    given["temperature"].fill_(1.0)
    return given


def test_a_residual_without_mass_samples_the_target() -> None:
    given = coarse(4, 1)
    given["accept"].fill_(1.0)  # rounded up by a careless generator: never under the ratio, which is 1
    given["residual"] = torch.tensor([0.0, 0.3, 0.6, 0.9])
    found = run(given)
    assert found.n_accepted.tolist() == [0] * 4
    assert found.next_token.tolist() == [0, 1, 2, 3]


def test_a_ratio_of_one_accepts_every_uniform() -> None:
    given = coarse(3, 2)
    given["accept"].fill_(1.0 - 2.0**-24)
    assert run(given).n_accepted.tolist() == [2] * 3


def test_edges_of_the_cdf() -> None:
    """Exact edges belong to the token above; 0 to the first with mass; past the end to the last with mass."""
    given = coarse(6, 1)
    given["lengths"].zero_()
    given["offsets"] = torch.arange(7)
    given["target_logits"] = torch.zeros(6, 4)
    given["target_logits"][4:, [0, 3]] = -math.inf
    given["bonus"] = torch.tensor([0.0, 0.25, 0.5, 1.0 - 2.0**-24, 0.0, 1.0])
    assert run(given).next_token.tolist() == [0, 1, 2, 3, 1, 2]


def test_tokens_without_mass_never_leave() -> None:
    """Masked logits, whole blocks of them, in target and draft."""
    vocabulary = 3 * BLOCK
    given = batch([1] * 8, 1, vocabulary, 12)
    target = given["target_logits"]
    target[:, : BLOCK + 5] = -math.inf
    target[:, 2 * BLOCK - 3 :] = -math.inf
    given["draft_logits"][:, :, BLOCK : BLOCK + 3] = -math.inf
    given["bonus"][:4], given["residual"][:4] = 0.0, 0.0
    given["bonus"][4:6], given["residual"][4:6] = 1.0, 1.0
    found = run(given)
    for row, token in enumerate(found.next_token.tolist()):
        assert BLOCK + 5 <= token < 2 * BLOCK - 3, row
    assert found.n_accepted.tolist() == verify_chain_reference(**given).n_accepted.tolist()


@pytest.mark.parametrize("bad", [-1, 300, 2**31 - 1, -(2**31)])
def test_ids_out_of_range_are_rejected(bad: int) -> None:
    given = batch([3, 3, 3], 3, 300, 13)
    given["accept"].zero_()  # all that can be accepted is
    given["draft_tokens"][1, 1] = bad
    given["draft_tokens"][2, 0] = bad
    given["temperature"][2] = 0.0
    expected = verify_chain_reference(**given)
    found = run(given)
    same(found, expected)
    assert found.n_accepted.tolist() == [3, 1, 0]
    # The target's own token, by the uniform of the residual.
    law = torch.softmax(
        given["target_logits"][int(given["offsets"][1]) + 1].double() / float(given["temperature"][1]), 0
    )
    assert found.next_token[1] == int((law.cumsum(0) > float(given["residual"][1])).to(torch.int8).argmax())


@pytest.mark.parametrize("bad", [math.nan, -0.5])
def test_drafts_without_a_probability_are_rejected(bad: float) -> None:
    given = batch([2, 2], 2, 300, 14)
    given["accept"].zero_()
    given["p_draft"][1, 1] = bad
    found = run(given)
    same(found, verify_chain_reference(**given))
    assert found.n_accepted.tolist() == [2, 1]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_draft_law_of_no_numbers_falls_back_on_the_target(bad: float) -> None:
    given = batch([1, 1], 1, 300, 15)
    given["accept"].fill_(0.999999)
    given["p_draft"].fill_(1.0)
    token = int(given["draft_tokens"][1, 0])
    given["draft_logits"][1, 0, token if bad == math.inf else (token + 1) % 300] = bad
    found = run(given)
    assert found.n_accepted.tolist() == [0, 0]
    if math.isnan(bad):
        law = torch.softmax(given["target_logits"][2].double() / float(given["temperature"][1]), 0)
        assert found.next_token[1] == int((law.cumsum(0) > float(given["residual"][1])).to(torch.int8).argmax())


@pytest.mark.parametrize("bad", ["nan", "inf", "-inf"])
@pytest.mark.parametrize("heat", [0.0, 0.8])
def test_targets_without_a_law_stop_their_row_alone(bad: str, heat: float) -> None:
    given = batch([2, 2, 2, 2], 2, 2 * BLOCK, 16)
    given["accept"].zero_()
    given["temperature"].fill_(heat)
    if heat == 0.0:
        given["draft_tokens"] = torch.stack([given["target_logits"][[3 * r, 3 * r + 1]].argmax(1) for r in range(4)])
    clean = run(given)
    target = given["target_logits"]
    assert clean.n_accepted.tolist() == [2] * 4
    for row, position in ((0, 0), (1, 1), (3, 2)):
        spot = slice(None) if bad == "-inf" else BLOCK + 3
        target[3 * row + position, spot] = float(bad)
    found = run(given)
    assert found.n_accepted.tolist() == [0, 1, 2, 2]
    assert found.next_token.tolist() == [-1, -1, int(clean.next_token[2]), -1]
    assert found.tokens[1].tolist() == [int(given["draft_tokens"][1, 0]), -1, -1]
    same(found, verify_chain_reference(**given))


def test_a_bad_target_behind_a_rejection_does_no_harm() -> None:
    given = batch([2, 1], 2, 50, 17)
    given["accept"].fill_(1.0)
    clean = run(given)
    given["target_logits"][1:3] = math.nan
    same(run(given), clean)
    assert clean.n_accepted.tolist() == [0, 0]
    assert int(clean.next_token.min()) >= 0


@pytest.mark.parametrize("bad", [math.nan, -1.0, math.inf, -math.inf])
def test_temperatures_that_are_none_give_no_token(bad: float) -> None:
    given = batch([1, 1], 1, 50, 18)
    clean = run(given)
    given["temperature"][0] = bad
    given["draft_temperature"] = torch.ones(2)
    found = run(given)
    assert found.tokens[0].tolist() == [-1, -1]
    assert int(found.n_accepted[0]) == 0
    given["temperature"][0], given["draft_temperature"] = 1.0, given["temperature"].clone()
    assert run(given).tokens[1].tolist() == clean.tokens[1].tolist()


@pytest.mark.parametrize(
    ("lengths", "offsets"),
    [
        ([-1, 1, 1], [0, 0, 2, 4]),  # negative
        ([3, 1, 1], [0, 4, 6, 8]),  # over gamma
        ([1, 1, 1], [0, 3, 5, 7]),  # another size than offsets say
        ([1, 1, 1], [-2, 0, 2, 4]),  # before the batch
        ([1, 1, 1], [2**31 - 4, 2**31 - 2, 2, 4]),  # behind it
    ],
)
def test_rows_outside_the_batch_give_no_token(lengths: list[int], offsets: list[int]) -> None:
    given = batch([1, 1, 1], 2, 50, 19)
    given["lengths"], given["offsets"] = torch.tensor(lengths), torch.tensor(offsets)
    found = run(given)
    assert found.tokens[0].tolist() == [-1, -1, -1]
    assert int(found.n_accepted[0]) == 0
    same(found, verify_chain_reference(**given))
    assert int(found.next_token[2]) >= 0


@pytest.mark.parametrize("uniform", [0.0, 1.0], ids=["accepted", "rejected"])
def test_offsets_past_two_to_the_31(uniform: float) -> None:
    """Tokens and rows lie 2^30 elements apart, so that the third begins at 2^31; untouched memory costs nothing."""
    given = batch([0, 0, 1], 1, 40, 20, torch.float16)
    given["accept"].fill_(uniform)
    expected = run(given)
    assert expected.n_accepted.tolist() == [0, 0, 1 - int(uniform)]
    stride = 2**30
    for name in ("target_logits", "draft_logits"):
        value = given[name][:4]
        room = torch.empty((len(value) - 1) * stride + 64, dtype=value.dtype)
        far = room.as_strided(value.shape, (stride,) * (value.dim() - 1) + (1,))
        far.copy_(value)
        same(run({**given, name: far}), expected)


def test_without_buffers_the_result_is_the_same() -> None:
    given = batch([1, 0, 2], 2, 70, 21)
    same(verify_chain(**given), run(given))


REFUSED = {
    "shape of p_draft": ({"p_draft": torch.zeros(3, 3)}, "`p_draft` must have shape"),
    "type of ids": ({"draft_tokens": torch.zeros(3, 2)}, "`draft_tokens` must be of type int32, int64"),
    "type of uniforms": ({"bonus": torch.zeros(3, dtype=torch.float64)}, "`bonus` must be of type float32"),
    "strides": ({"draft_logits": torch.zeros(50, 3, 2).permute(1, 2, 0)}, "contiguous along its last axis"),
    "no drafts": ({"draft_tokens": torch.zeros(3, 0, dtype=torch.int32)}, "1..16 drafts, got 3 and 0"),
    "no tokens": ({"target_logits": torch.zeros(0, 50)}, "at least 1 token"),
    "offsets": ({"offsets": torch.zeros(3, dtype=torch.int32)}, "`offsets` must have shape"),
    "tile": ({"tile": 1000}, "`tile` must be a multiple of 2048, got 1000"),
    "out": ({"out": Verified.allocate(3, 3)}, "`out.tokens` must have shape"),
    "workspace": ({"workspace": VerifyWorkspace.allocate(3, 2, 4000)}, "`workspace.tops` must have shape"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refuses(name: str) -> None:
    change, message = REFUSED[name]
    with pytest.raises(KernelError, match=message.replace("[", r"\[")):
        verify_chain(**{**batch([1, 2, 0], 2, 50, 22), **change})


def test_refuses_shared_uniforms() -> None:
    given = batch([1, 1], 1, 50, 23)
    for change in (
        {"residual": given["bonus"]},
        {"residual": given["accept"][:, 0]},
        {"bonus": given["accept"].view(-1)},
    ):
        with pytest.raises(KernelError, match="draws of their own"):
            verify_chain(**{**given, **change})


def test_refuses_a_workspace_with_gaps() -> None:
    room = VerifyWorkspace.allocate(2, 1, 50)
    gaps = dataclasses.replace(room, residual=torch.zeros(2, 2)[:, :1])
    with pytest.raises(KernelError, match=r"`workspace\.residual` must be contiguous"):
        verify_chain(**batch([1, 1], 1, 50, 24), workspace=gaps)


def test_every_launch_is_registered() -> None:
    names = {kernel.function.fn.__name__ for kernel in verify.KERNELS}
    assert names == {"sums_kernel", "accept_kernel", "residual_kernel", "draw_kernel"}
    assert POISON_ID < -1  # the poison is no answer
