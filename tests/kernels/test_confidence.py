from __future__ import annotations

import mmap
import os
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specsched.kernels import confidence as module
from specsched.kernels.common import KernelError
from specsched.kernels.confidence import Confidence, confidence, confidence_kernel, survival
from specsched.kernels.confidence_reference import confidence_reference, survival_reference
from specsched.policies.calibration import STS

from .guards import Guards, relative_error

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
LAST = float(np.nextafter(np.float32(1.0), np.float32(0.0)))


def batch(
    rows: int = 5, gamma: int = 4, width: int = 96, rank: int = 24, vocabulary: int = 257,
    dtype: torch.dtype = torch.float32, seed: int = 0,
) -> dict[str, Any]:  # fmt: skip
    """Arguments of `confidence` whose logits spread over a few units, every kind of row length among them."""
    rng = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=rng)

    return {
        "hidden": normal(rows, gamma, width).to(dtype),
        "w1": normal(vocabulary, rank).to(dtype),
        "previous": torch.randint(0, vocabulary, (rows, gamma), generator=rng, dtype=torch.int32),
        "weight": (normal(width + rank) * 2.0 / (width + rank) ** 0.5).to(dtype),
        "bias": torch.tensor([0.5]).to(dtype),
        "inv_temperature": torch.linspace(0.6, 1.5, gamma),
        "available": torch.arange(rows) % (gamma + 1),
    }


def guarded(guards: Guards, arguments: dict[str, Any]) -> Confidence:
    shape = arguments["hidden"].shape[:2]
    return Confidence(guards.empty("c", *shape), guards.empty("a", *shape))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("rows", "gamma", "width", "rank"),
    [(5, 4, 96, 24), (3, 16, 513, 1), (9, 5, 40, 33), (1, 1, 1, 1), (2, 7, 7168, 256)],
)
def test_matches_float64(dtype: torch.dtype, rows: int, gamma: int, width: int, rank: int) -> None:
    arguments = batch(rows, gamma, width, rank, dtype=dtype)
    arguments["available"][0] = gamma
    guards = Guards()
    found = confidence(**arguments, out=guarded(guards, arguments))
    guards.check()
    expected = confidence_reference(**arguments)
    # Inputs are exact in both, so the kernel's float32 sums are held to the float32 bound whatever the inputs.
    assert relative_error(found.c, expected.c) < 1e-6
    assert relative_error(found.a, expected.a) < 1e-6
    assert float((found.a.double() - expected.a).abs().max()) < 1e-6


@pytest.mark.parametrize("optional", ["bias", "available"])
def test_what_may_be_left_out(optional: str) -> None:
    arguments = batch() | {optional: None}
    assert relative_error(confidence(**arguments).c, confidence_reference(**arguments).c) < 1e-6


@pytest.mark.parametrize("ids", [torch.int32, torch.int64])
def test_types_may_be_mixed(ids: torch.dtype) -> None:
    arguments = batch()
    arguments |= {"weight": arguments["weight"].bfloat16(), "w1": arguments["w1"].half()}
    arguments |= {"previous": arguments["previous"].to(ids), "available": arguments["available"].to(ids)}
    assert relative_error(confidence(**arguments).a, confidence_reference(**arguments).a) < 1e-6


def test_temperatures_are_those_of_sts() -> None:
    """`STS.apply` divides the logit by the temperature, and so do we, up to and past saturation."""
    arguments = batch(rows=33, seed=3) | {"available": None}
    arguments["hidden"] = arguments["hidden"] * torch.linspace(0.1, 12.0, 33)[:, None, None]
    temperatures = (0.5, 1.0, 1.75, 4.0)
    raw = confidence_reference(**arguments | {"inv_temperature": torch.ones(4)}).c.numpy()
    arguments["inv_temperature"] = 1.0 / torch.tensor(temperatures)
    found = confidence(**arguments).c.double().numpy()
    assert np.abs(found - confidence_reference(**arguments).c.numpy()).max() < 1e-6
    # The logit of a confidence within 1e-9 of 1 is lost in float64 already, to STS alone.
    clear = raw < 1 - 1e-9
    assert ((raw < 1e-3) & clear).sum() > 10
    assert ((raw > 1 - 1e-3) & clear).sum() > 10
    assert np.abs(found - STS(temperatures).apply(raw))[clear].max() < 1e-6


def test_raw_confidences_of_the_kernel_agree_with_sts_too() -> None:
    arguments = batch(rows=17, seed=4) | {"available": None}
    raw = confidence(**arguments | {"inv_temperature": torch.ones(4)}).c.double().numpy()
    found = confidence(**arguments | {"inv_temperature": torch.tensor([2.0, 1.0, 0.8, 0.5])}).c.double().numpy()
    assert np.abs(found - STS((0.5, 1.0, 1.25, 2.0)).apply(raw)).max() < 1e-6


@pytest.mark.filterwarnings("ignore:overflow encountered in exp:RuntimeWarning")
@pytest.mark.parametrize("dtype", DTYPES)
def test_saturated_logits(dtype: torch.dtype) -> None:
    """Logits up to 1e4 and infinite ones: exactly 0 and 1, never above, never NaN."""
    arguments = batch(rows=9, width=16, rank=4, dtype=dtype) | {"available": None}
    arguments["hidden"][:] = 0.0
    arguments["weight"][:] = 0.0
    arguments["weight"][0] = 1.0
    arguments["bias"][:] = 0.0
    arguments["inv_temperature"][:] = 1.0
    logits = [-float("inf"), -1e4, -100.0, -20.0, 0.0, 20.0, 100.0, 1e4, float("inf")]
    arguments["hidden"][:, :, 0] = torch.tensor(logits)[:, None]
    found = confidence(**arguments)
    assert found.c[[0, 1, 4, 6, 7, 8], 0].tolist() == [0.0, 0.0, 0.5, 1.0, 1.0, 1.0]
    assert bool(((found.c >= 0) & (found.c <= 1)).all())
    assert relative_error(found.a, confidence_reference(**arguments).a) < 1e-6


@given(st.lists(st.lists(st.sampled_from([0.0, 1e-30, 0.3, 0.9999999, LAST, 1.0]), min_size=7, max_size=7), min_size=1))
@settings(max_examples=60, deadline=None)
def test_survival_is_numpys_product_and_never_rises(values: list[list[float]]) -> None:
    c = np.array(values, np.float32)
    a = survival(torch.from_numpy(c)).numpy()
    assert a.tobytes() == np.multiply.accumulate(c, axis=1, dtype=np.float32).tobytes()
    assert (a[:, 1:] <= a[:, :-1]).all()


def saturated(gamma: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Rows of confidences of which many are 1 or one ulp under it."""
    rng = np.random.default_rng(7)
    return rng.choice([0.7, 0.9, 0.99, 1.0, LAST, LAST], (400, gamma)).astype(np.float32)


@pytest.mark.parametrize("gamma", [1, 5, 16])
def test_survival_near_one(gamma: int) -> None:
    c = saturated(gamma)
    a = survival(torch.from_numpy(c)).numpy()
    assert a.tobytes() == np.multiply.accumulate(c, axis=1, dtype=np.float32).tobytes()
    assert (a[:, 1:] <= a[:, :-1]).all()


def test_a_parallel_scan_would_rise() -> None:
    """Why the product is sequential: on the rows above, the scan that warps do (distances 1, 2, 4, 8) rises in some."""
    c = saturated(16)
    for step in (1, 2, 4, 8):
        c = np.concatenate((c[:, :step], c[:, step:] * c[:, :-step]), axis=1)
    assert 100 < (c[:, 1:] > c[:, :-1]).any(1).sum() < 300


def test_survival_follows_from_the_confidences() -> None:
    found = confidence(**batch(rows=9, gamma=16) | {"available": None})
    assert found.a.numpy().tobytes() == np.multiply.accumulate(found.c.numpy(), axis=1, dtype=np.float32).tobytes()


def test_confidences_that_are_none_end_a_row() -> None:
    bad = [float("nan"), float("inf"), -0.1, 1.0 + 2**-22]
    c = torch.tensor([[0.5, each, 1.0] for each in bad])
    assert survival(c).tolist() == [[0.5, 0.0, 0.0]] * len(bad)


def test_survival_in_place_and_ragged() -> None:
    c = torch.tensor([[0.5, 0.5, 0.5]] * 5)
    assert survival(c, torch.tensor([0, 1, 3, 9, -2]), out=c) is c
    assert c.tolist() == [[0.0] * 3, [0.5, 0.0, 0.0], [0.5, 0.25, 0.125], [0.5, 0.25, 0.125], [0.0] * 3]
    assert survival_reference(torch.tensor([[0.5, 0.5]])).tolist() == [[0.5, 0.25]]


@pytest.mark.parametrize("token", [-1, -7777, 257, 2**31 - 1, 2**40])
def test_ids_out_of_range(token: int) -> None:
    arguments = batch() | {"available": None}
    arguments["previous"] = arguments["previous"].long()
    before = confidence(**arguments)
    arguments["previous"][2, 1] = token
    guards = Guards()
    found = confidence(**arguments, out=guarded(guards, arguments))
    guards.check()
    assert found.c[2, 1] == 0.0
    assert found.a[2, 1:].tolist() == [0.0, 0.0, 0.0]
    keep = torch.ones(5, 4, dtype=torch.bool)
    keep[2, 1] = False
    assert torch.equal(found.c[keep], before.c[keep])


def test_the_table_ends_where_it_says_even_if_memory_goes_on() -> None:
    """A table that is part of a larger one: whoever reads past it finds numbers, and not whatever lies there."""
    arguments = batch() | {"available": None}
    arguments["w1"], arguments["previous"] = arguments["w1"][:-1], arguments["previous"].clamp(max=255)
    arguments["previous"][2, 1] = len(arguments["w1"])
    found = confidence(**arguments)
    assert torch.equal(found.c == 0.0, arguments["previous"] == 256)


@pytest.mark.parametrize("where", ["hidden", "w1", "weight", "bias"])
def test_nan_ends_a_row(where: str) -> None:
    arguments = batch() | {"available": None}
    if where == "w1":
        arguments["w1"][arguments["previous"][1, 2].item()] = float("nan")
        hit = arguments["previous"] == arguments["previous"][1, 2]
    else:
        hit = torch.ones(5, 4, dtype=torch.bool)
        if where == "hidden":
            hit[:] = False
            hit[1, 2] = True
            arguments["hidden"][1, 2, -1] = float("nan")
        else:
            arguments[where][-1] = float("nan")
    guards = Guards()
    found = confidence(**arguments, out=guarded(guards, arguments))
    guards.check()
    assert torch.equal(found.c == 0.0, hit)
    assert torch.equal(found.a == 0.0, hit.cummax(1).values)


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan")])
def test_temperatures_that_are_none(scale: float) -> None:
    arguments = batch() | {"available": None}
    arguments["inv_temperature"][1] = scale
    found = confidence(**arguments)
    assert bool((found.c[:, 1] == 0.0).all())
    assert bool((found.c[:, [0, 2, 3]] > 0.0).all())


def test_drafts_that_do_not_exist_are_not_read() -> None:
    arguments = batch(rows=6)
    arguments["available"] = torch.tensor([0, 1, 2, 4, 99, -3])
    gone = torch.arange(4) >= arguments["available"][:, None]
    arguments["hidden"][gone] = float("nan")
    arguments["previous"][gone] = -7777
    guards = Guards()
    found = confidence(**arguments, out=guarded(guards, arguments))
    guards.check()
    assert bool((found.c[gone] == 0.0).all())
    assert bool((found.a[gone] == 0.0).all())
    assert bool((found.a[~gone] > 0.0).all())


def test_a_row_does_not_depend_on_the_batch() -> None:
    arguments = batch(rows=7) | {"available": None}
    together = confidence(**arguments)
    for row in range(7):
        alone = confidence(**arguments | {name: arguments[name][row : row + 1] for name in ("hidden", "previous")})
        assert torch.equal(alone.c[0], together.c[row])


@pytest.mark.parametrize("positions", [1, 2, 16])
def test_positions_of_a_program_change_nothing(positions: int, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = batch(rows=3, gamma=7, width=1100)
    expected = confidence(**arguments)
    monkeypatch.setattr(module, "POSITIONS", positions)
    monkeypatch.setattr(module, "SURVIVAL_ROWS", positions)
    found = confidence(**arguments)
    assert torch.equal(found.c, expected.c)
    assert torch.equal(found.a, expected.a)


def test_two_runs_are_the_same() -> None:
    arguments = batch()
    assert torch.equal(confidence(**arguments).a, confidence(**arguments).a)


def test_strided_inputs() -> None:
    arguments = batch(rows=6)
    expected = confidence(**arguments)
    wide = torch.randn(6, 5, 3, 96)
    wide[:, :4, 1] = arguments["hidden"]
    table = torch.randn(257, 40)
    table[:, 7:31] = arguments["w1"]
    ids = torch.full((6, 9), -1, dtype=torch.int32)
    ids[:, 2:6] = arguments["previous"]
    views = {"hidden": wide[:, :4, 1], "w1": table[:, 7:31], "previous": ids[:, 2:6]}
    out = Confidence(torch.full((6, 8), -5.0)[:, :4], torch.full((6, 8), -5.0)[:, 2:6])
    found = confidence(**arguments | views, out=out)
    assert torch.equal(found.c, expected.c)
    assert torch.equal(found.a, expected.a)
    assert out.c._base is not None
    assert out.a._base is not None
    assert bool((out.c._base[:, 4:] == -5.0).all())
    assert bool((out.a._base[:, [0, 1, 6, 7]] == -5.0).all())


def virtual(count: int, dtype: torch.dtype) -> torch.Tensor:
    """A tensor of zeros that takes no memory until it is written to.

    There is room on both sides for offsets that wrap around 2^32, so that they fail a comparison and not the process.
    """
    size = (count + 2**32) * torch.empty(0, dtype=dtype).element_size()
    no_reserve = 0x4000
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | no_reserve
    return torch.frombuffer(mmap.mmap(-1, size, flags=flags), dtype=dtype)[2**31 :]


@pytest.mark.parametrize("far", [2**29 + 8, 2**31 + 8])
@pytest.mark.parametrize("where", ["row", "position", "token"])
def test_offsets_beyond_int32(where: str, far: int) -> None:
    """Rows, positions or embeddings far apart are found, also where the stride fits int32 and its multiples do not."""
    arguments = batch(rows=5, gamma=5, width=4, rank=8, vocabulary=5, dtype=torch.float16) | {"available": None}
    arguments["previous"] = (torch.arange(5)[:, None] + torch.arange(5)).int() % 5
    expected = confidence(**arguments)
    name = "w1" if where == "token" else "hidden"
    strides = {"row": (far, 4, 1), "position": (4, far, 1), "token": (far, 1)}[where]
    apart = virtual(4 * far + 32, torch.float16).as_strided(arguments[name].shape, strides)
    apart.copy_(arguments[name])
    assert torch.equal(confidence(**arguments | {name: apart}).c, expected.c)


WRONG: dict[str, tuple[str, Callable[[dict[str, Any]], Any]]] = {
    "hidden": (r"`hidden` must have shape \[any, any, any\], got \[20, 96\]", lambda b: b["hidden"].view(20, 96)),
    "w1": ("`w1` must be of type float32, float16, bfloat16, got float64", lambda b: b["w1"].double()),
    "previous": (r"`previous` must have shape \[5, 4\], got \[5, 3\]", lambda b: b["previous"][:, :3]),
    "weight": (r"`weight` must have shape \[120\], got \[119\]", lambda b: b["weight"][:-1]),
    "bias": (r"`bias` must have shape \[1\], got \[\]", lambda b: b["bias"][0]),
    "inv_temperature": (
        "`inv_temperature` must be of type float32, got float16",
        lambda b: b["inv_temperature"].half(),
    ),
    "available": (r"`available` must have shape \[5\], got \[4\]", lambda b: b["available"][:4]),
    "out": (r"`out.c` must have shape \[5, 4\], got \[5, 3\]", lambda b: Confidence.allocate(5, 3)),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments_are_refused(name: str) -> None:
    message, change = WRONG[name]
    arguments = batch()
    with pytest.raises(KernelError, match=message):
        confidence(**arguments | {name: change(arguments)})


def test_wrong_sizes_and_places_are_refused() -> None:
    with pytest.raises(KernelError, match=r"1\.\.16 positions, got 2 and 17"):
        survival(torch.zeros(2, 17))
    with pytest.raises(KernelError, match="at least 1 row"):
        survival(torch.zeros(0, 4))
    with pytest.raises(KernelError, match="must hold something"):
        confidence(**batch() | {"w1": torch.zeros(0, 24)})
    with pytest.raises(KernelError, match="must be contiguous along its last axis"):
        confidence(**batch() | {"hidden": batch(width=192)["hidden"][..., ::2]})
    with pytest.raises(KernelError, match="must be on cpu, got meta; move it there"):
        confidence(**batch() | {"w1": torch.zeros(257, 24, device="meta")})
    with pytest.raises(KernelError, match="`c` must be a tensor, got list"):
        survival([[0.5]])  # type: ignore[arg-type]


def test_nothing_is_allocated_or_awaited_when_room_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = batch()
    out = Confidence.allocate(5, 4)

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("allocated, or waited for the device")

    for owner, name in ((torch, "empty"), *((torch.Tensor, name) for name in ("item", "tolist", "cpu", "__int__"))):
        monkeypatch.setattr(owner, name, refuse)
    assert confidence(**arguments, out=out) is out


def test_the_gate_knows_every_argument() -> None:
    for kernel in module.KERNELS:
        for form in kernel.configurations:
            assert [*form.signature, *form.constants] == list(kernel.function.arg_names), kernel.name
    assert confidence_kernel is module.KERNELS[0].function


PTX = """
import triton
from specsched.kernels import gate
from specsched.kernels.confidence import KERNELS
source = gate._source(KERNELS[0], KERNELS[0].configurations[0])
print(triton.compile(source, target=gate.ARCHITECTURES["sm_90"].target).asm["ptx"])
"""


def test_confidences_are_divided_to_the_nearest() -> None:
    """An approximate quotient may exceed 1. The interpreter knows none, so the compiled code is looked at."""
    compiled = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, "-c", PTX], env=compiled, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert set(re.findall(r"\bdiv\.\w+\.f32|\brcp\.\w+\.\S+", done.stdout)) == {"div.rn.f32"}
