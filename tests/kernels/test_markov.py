"""The Markov head's draft block against float64, and everything that may go wrong in a row."""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from specsched.kernels import markov
from specsched.kernels.common import KernelError
from specsched.kernels.markov import DraftBlock, MarkovWorkspace, Tiles, draft_block
from specsched.kernels.markov_kernels import first_above, markov_scan
from specsched.kernels.markov_reference import draft_block_reference, gumbel_reference
from specsched.policies.lossless.sampled import assert_law
from tests.kernels.far import far
from tests.kernels.guards import Guards, relative_error

CLEAR = 1e-4
"""A draw nearer to another token than this may fall on either side in float32."""

TOLERANCE = {torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}
LAST = 1 - 2**-24
"""The greatest uniform."""

# The interpreter computes with NumPy, which warns of the infinities and NaN that some tests put in on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:triton")


@dataclass(frozen=True)
class Case:
    """Arguments of a block."""

    U: torch.Tensor
    W1: torch.Tensor
    W2T: torch.Tensor
    x0: torch.Tensor
    temperature: torch.Tensor
    uniforms: torch.Tensor
    method: str = "inverse_cdf"
    seed: int = 11

    def arguments(self) -> tuple[Any, ...]:
        """Those that are given by position."""
        return (self.U, self.W1, self.W2T, self.x0, self.temperature, self.uniforms, self.method)


def case(
    rows: int, gamma: int, vocabulary: int, rank: int, method: str = "inverse_cdf", dtype: torch.dtype = torch.float32
) -> Case:
    """Logits of a few units, temperatures 0, 0.3, 1 and 2 in turn."""
    draw = torch.Generator().manual_seed(rows * 1000 + vocabulary)
    return Case(
        (2 * torch.randn(rows, gamma, vocabulary, generator=draw)).to(dtype),
        (0.5 * torch.randn(vocabulary, rank, generator=draw)).to(dtype),
        (torch.randn(vocabulary, rank, generator=draw) / rank**0.5).to(dtype),
        torch.randint(0, vocabulary, (rows,), generator=draw),
        torch.tensor([1.0, 0.3, 0.0, 2.0]).repeat(rows)[:rows].contiguous(),
        torch.rand(rows, gamma, generator=draw),
        method,
    )


def plain(logits: torch.Tensor, uniforms: torch.Tensor, temperature: float = 1.0, method: str = "inverse_cdf") -> Case:
    """One position whose logits are those given, ``[R, V]``: the head adds nothing."""
    rows, vocabulary = logits.shape
    return Case(
        logits[:, None].contiguous(),
        torch.zeros(vocabulary, 16),
        torch.zeros(vocabulary, 16),
        torch.zeros(rows, dtype=torch.int32),
        torch.full((rows,), temperature),
        uniforms[:, None].contiguous(),
        method,
    )


def run(given: Case, tiles: Tiles | None = None, unwritten: tuple[str, ...] = ()) -> DraftBlock:
    """Draft between canaries, outputs and workspace poisoned, and check that all is written."""
    guards = Guards()
    rows, gamma, vocabulary = given.U.shape
    out = DraftBlock(
        guards.empty("tokens", rows, gamma, dtype=torch.int32),
        guards.empty("p_draft", rows, gamma),
        guards.empty("lse", rows, gamma),
    )
    blocks = -(-vocabulary // 64)
    noisy = blocks if given.method == "gumbel" else 0
    workspace = MarkovWorkspace(
        guards.empty("maxima", rows, blocks),
        guards.empty("sums", rows, blocks),
        guards.empty("best", rows, noisy),
        guards.empty("best_tokens", rows, noisy, dtype=torch.int32),
    )
    found = draft_block(*given.arguments(), seed=given.seed, tiles=tiles, out=out, workspace=workspace)
    assert found is out
    guards.check(unwritten)
    return found


def check(given: Case, found: DraftBlock) -> None:
    """Tokens equal wherever the draw is clear, which nearly all are; probabilities and lse close."""
    expected = draft_block_reference(*given.arguments(), seed=given.seed, follow=found.tokens)
    clear = expected.gap >= CLEAR
    assert (~clear).sum() <= max(1, clear.numel() // 20)
    assert torch.equal(found.tokens.long()[clear], expected.tokens[clear])
    assert bool(((found.tokens >= 0) & (found.tokens < given.U.shape[2])).all())
    of_drawn = expected.law.gather(2, found.tokens.long()[:, :, None])[:, :, 0]
    tolerance = TOLERANCE[given.U.dtype]
    assert relative_error(found.p_draft, of_drawn) < tolerance
    assert relative_error(found.lse, expected.lse) < tolerance


def same(one: DraftBlock, other: DraftBlock) -> bool:
    """Bit for bit, NaN included."""
    pairs = ((one.tokens, other.tokens), (one.p_draft, other.p_draft), (one.lse, other.lse))
    return all(torch.equal(a.view(torch.int32), b.view(torch.int32)) for a, b in pairs)


@pytest.mark.parametrize("method", markov.METHODS)
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_block_agrees_with_float64(method: str, dtype: torch.dtype) -> None:
    given = case(7, 2, 523, 40, method, dtype)
    check(given, run(given))


@pytest.mark.parametrize("gamma", [1, 2, 3, 4])
def test_every_length_of_a_block(gamma: int) -> None:
    given = case(3, gamma, 257, 17)
    check(given, run(given))


def test_vocabulary_of_many_groups_and_a_rank_of_many_chunks() -> None:
    given = case(2, 1, 4096 + 130, 64)
    check(given, run(given))


def test_rank_past_one_chunk_of_a_16_bit_type() -> None:
    given = case(2, 1, 70, 300, dtype=torch.bfloat16)
    check(given, run(given))


@pytest.mark.parametrize("vocabulary", [1, 2, 63, 64, 65])
def test_small_vocabularies(vocabulary: int) -> None:
    given = replace(case(2, 1, vocabulary, 16), uniforms=torch.full((2, 1), 0.98))
    check(given, run(given))


def test_rows_that_fill_no_tile() -> None:
    given = case(33, 1, 130, 16)
    check(given, run(given))


def test_no_rows() -> None:
    found = draft_block(*case(0, 2, 70, 16).arguments())
    assert found.tokens.shape == (0, 2)


def test_two_runs_are_equal_bit_for_bit() -> None:
    given = case(5, 2, 300, 24)
    assert same(run(given), run(given))


@pytest.mark.parametrize("method", ["inverse_cdf", "gumbel"])
def test_tiles_change_no_bit(method: str) -> None:
    """Of what phase 1 leaves for phase 2, nor of what is drawn."""
    given = case(17, 1, 450, 24, method)
    rows, _, vocabulary = given.U.shape

    def kept(tiles: Tiles) -> tuple[torch.Tensor, ...]:
        space = MarkovWorkspace.allocate(rows, vocabulary, "cpu", method)
        found = draft_block(*given.arguments(), seed=3, tiles=tiles, workspace=space)
        bits = (space.maxima, space.sums, space.best, space.best_tokens, found.tokens, found.p_draft, found.lse)
        return tuple(each.view(torch.int32) for each in bits)

    first = kept(Tiles(16, 1))
    for other in (Tiles(16, 5), Tiles(64, 3)):
        assert all(torch.equal(one, two) for one, two in zip(first, kept(other), strict=True))


def test_greedy_is_temperature_zero() -> None:
    given = case(4, 2, 130, 16)
    cold = run(replace(given, temperature=torch.zeros(4)))
    assert same(cold, run(replace(given, method="greedy")))
    assert bool((cold.p_draft == 1).all())
    noisy = run(replace(given, temperature=torch.zeros(4), method="gumbel"))
    assert torch.equal(cold.tokens, noisy.tokens)


@pytest.mark.parametrize("method", markov.METHODS)
def test_ties_go_left(method: str) -> None:
    """Within a block, across blocks and across groups of blocks."""
    logits = torch.zeros(3, 4200)
    for row, places in enumerate(((70, 71, 100), (60, 64, 128), (4100, 4150, 4199))):
        logits[row, list(places)] = 3.0
    found = run(plain(logits, torch.full((3,), 0.5), 0.0, method))
    assert found.tokens[:, 0].tolist() == [70, 60, 4100]


@pytest.mark.parametrize("uniform", [0.0, 0.5, LAST])
@pytest.mark.parametrize("method", markov.METHODS)
def test_one_hot_rows(method: str, uniform: float) -> None:
    places = [0, 63, 64, 129]
    logits = torch.full((4, 130), -torch.inf)
    logits[range(4), places] = torch.tensor([5.0, -100.0, 100.0, 0.0])
    found = run(plain(logits, torch.full((4,), uniform), 1.0, method))
    assert found.tokens[:, 0].tolist() == places
    assert found.p_draft[:, 0].tolist() == [1.0] * 4
    assert found.lse[:, 0].tolist() == [5.0, -100.0, 100.0, 0.0]


def test_ends_of_the_uniform_never_reach_a_token_of_probability_0() -> None:
    logits = torch.zeros(4, 200)
    logits[:, :70] = -torch.inf
    logits[:, 150:] = -torch.inf
    logits[2:, 70:100] = -200.0
    logits[2:, 120:150] = -200.0
    found = run(plain(logits, torch.tensor([0.0, LAST, 0.0, LAST])))
    assert found.tokens[:, 0].tolist() == [70, 149, 100, 119]
    assert torch.allclose(found.p_draft[:, 0], torch.tensor([1 / 80, 1 / 80, 1 / 20, 1 / 20]), rtol=1e-6)


def test_unlikely_tokens_have_a_probability_that_is_no_subnormal() -> None:
    """Between exp(-60) and underflow lies what could be drawn by a uniform of 0 and then be divided by."""
    logits = torch.linspace(-150.0, 0.0, 300)[None].repeat(2, 1)
    found = run(plain(logits, torch.tensor([0.0, LAST])))
    assert bool((found.p_draft >= 1e-30).all())
    assert -61 < logits[0, found.tokens[0, 0]] < -59


@triton.jit
def probe(mass, share, found, part):
    """Look up one share."""
    place, within = first_above(tl.load(mass + tl.arange(0, 64)), share, 64)
    tl.store(found, place)
    tl.store(part, within)


@pytest.mark.parametrize(("share", "expected"), [(0.0, 3), (0.24, 3), (0.25, 5), (0.99, 5), (1.0, 5), (1.0001, 5)])
def test_a_share_past_the_end_is_the_last_with_mass(share: float, expected: int) -> None:
    """Rounding takes a share there when what is left of a uniform is handed from groups to blocks to tokens."""
    mass = torch.zeros(64)
    mass[3], mass[5] = 0.5, 1.5
    found, part = torch.full((1,), -1), torch.full((1,), -1.0)
    probe[(1,)](mass, share, found, part)
    assert found.item() == expected
    assert part.item() >= 0


def test_equal_logits_are_drawn_by_id() -> None:
    uniforms = (torch.arange(16) + 0.5) / 16
    found = run(plain(torch.zeros(16, 4096), uniforms, 1.0))
    assert torch.equal(found.tokens[:, 0], (uniforms * 4096).int())
    assert torch.allclose(found.p_draft, torch.tensor(1 / 4096), rtol=1e-6)


@pytest.mark.parametrize("shift", [-1000.0, -100.0, 100.0, 1000.0])
def test_shifted_logits(shift: float) -> None:
    """A power of two apart, so that shifting rounds nothing."""
    logits = torch.randint(-16, 16, (3, 130), generator=torch.Generator().manual_seed(1)) / 8.0
    uniforms = torch.tensor([0.2, 0.5, 0.8])
    found, shifted = run(plain(logits, uniforms)), run(plain(logits + shift, uniforms))
    assert torch.equal(found.tokens, shifted.tokens)
    assert torch.equal(found.p_draft, shifted.p_draft)
    assert torch.allclose(found.lse + shift, shifted.lse, rtol=1e-6)


def test_logits_too_far_apart_for_float32_squares() -> None:
    logits = torch.tensor([[3e38, -3e38, 0.0], [-3e38, 3e38, 3e38]])
    found = run(plain(logits, torch.tensor([LAST, 0.0]), 0.5), unwritten=("lse",))
    assert found.tokens[:, 0].tolist() == [0, 1]
    assert found.p_draft[:, 0].tolist() == [1.0, 0.5]


BAD = {
    "anchor -1": ("x0", -1),
    "anchor past the vocabulary": ("x0", 130),
    "a NaN": ("U", torch.nan),
    "an infinity": ("U", torch.inf),
    "nothing but -inf": ("all", -torch.inf),
    "nothing but NaN": ("all", torch.nan),
    "embedding NaN": ("W1", torch.nan),
    "cold": ("temperature", 1e-7),
    "below zero": ("temperature", -1.0),
    "hot": ("temperature", torch.inf),
    "temperature NaN": ("temperature", torch.nan),
    "uniform 1": ("uniforms", 1.0),
    "uniform below zero": ("uniforms", -1e-9),
    "uniform NaN": ("uniforms", torch.nan),
}


@functools.cache
def healthy_block() -> tuple[Case, DraftBlock]:
    """A block in which nothing is wrong, and what it gives."""
    given = replace(case(3, 2, 130, 16), x0=torch.tensor([5, 7, 9]))
    return given, run(given)


def rows_of(block: DraftBlock, rows: list[int]) -> DraftBlock:
    """Some rows of a block."""
    return DraftBlock(*(each[rows] for each in (block.tokens, block.p_draft, block.lse)))


@pytest.mark.parametrize(("field", "value"), BAD.values(), ids=BAD)
def test_a_row_without_a_law_is_marked_and_alone(field: str, value: float) -> None:
    given, healthy = healthy_block()
    broken = {name: getattr(given, name).clone() for name in ("U", "W1", "x0", "temperature", "uniforms")}
    if field == "all":
        broken["U"][1, 0] = value
    else:
        place = {"U": (1, 0, 77), "W1": (7, 3), "uniforms": (1, 0)}.get(field, 1)
        broken[field][place] = value
    found = run(replace(given, **broken), unwritten=("lse", "maxima", "sums"))
    assert found.tokens[1].tolist() == [-1, -1]
    assert found.p_draft[1].tolist() == [0.0, 0.0]
    assert bool(found.lse[1].isnan().all())
    assert same(*(rows_of(block, [0, 2]) for block in (healthy, found)))


@pytest.mark.parametrize("method", ["gumbel", "greedy"])
def test_rows_without_a_law_by_the_other_methods(method: str) -> None:
    given = case(4, 1, 130, 16, method)
    logits = given.U.clone()
    logits[0, 0, 70] = torch.nan
    logits[1, 0] = torch.nan
    logits[2, 0, 3] = torch.inf
    found = run(replace(given, U=logits), unwritten=("lse", "maxima", "sums", "best"))
    assert found.tokens[:3, 0].tolist() == [-1] * 3
    assert found.tokens[3] == run(given).tokens[3]


def test_a_break_halfway_keeps_what_was_drawn() -> None:
    given = case(2, 3, 130, 16)
    logits = given.U.clone()
    logits[0, 1, 5] = torch.nan
    found = run(replace(given, U=logits), unwritten=("lse", "maxima", "sums"))
    healthy = run(given)
    assert found.tokens[0].tolist() == [healthy.tokens[0, 0], -1, -1]
    assert torch.equal(found.tokens[1], healthy.tokens[1])


def test_noise_is_philox() -> None:
    """Keyed by seed (64 bits), row, position and token, and by nothing else."""
    tokens = {}
    for seed in (5, 5 + (1 << 40)):
        given = replace(plain(torch.zeros(2, 70), torch.zeros(2), 1.0, "gumbel"), seed=seed)
        given = replace(given, U=given.U.expand(2, 2, 70).contiguous(), uniforms=torch.zeros(2, 2))
        tokens[seed] = run(given).tokens.tolist()
        noise = torch.stack([gumbel_reference(seed, 2, position, 70) for position in range(2)], 1)
        assert tokens[seed] == noise.argmax(2).tolist()
    assert len({token for block in tokens.values() for row in block for token in row}) > 4


def test_seed_on_the_device() -> None:
    given = case(3, 1, 130, 16, "gumbel")
    seed = torch.tensor([given.seed])
    assert same(run(given), draft_block(*given.arguments(), seed=seed))


def law_of(weights: list[float]) -> tuple[torch.Tensor, dict[int, float]]:
    """Logits over 130 tokens of which a few can occur, in three blocks, and their law."""
    places = [3, 60, 64, 100, 128][: len(weights)]
    logits = torch.full((130,), -torch.inf)
    logits[places] = torch.tensor(weights).log()
    return logits, dict(zip(places, weights, strict=True))


@pytest.mark.parametrize("method", ["inverse_cdf", "gumbel"])
def test_law(method: str) -> None:
    """Few draws, as the interpreter is slow: a total variation of 0.3 is caught with probability 0.99."""
    logits, law = law_of([0.1, 0.2, 0.4, 0.15, 0.15])

    def sample(draws: int, seed: int) -> Counter[int]:
        uniforms = torch.rand(draws, generator=torch.Generator().manual_seed(seed))
        given = plain(logits.expand(draws, 130), uniforms, 1.0, method)
        return Counter(draft_block(*given.arguments(), seed=seed).tokens[:, 0].tolist())

    assert_law(sample, law, total_variation=0.3, minimum_expected=10.0)


def test_law_of_the_noise() -> None:
    """Phase 1 alone decides within a block, many rows at a time: a total variation of 0.03 is caught."""
    law = {token: float(weight) / 36 for token, weight in enumerate(range(1, 9))}
    temperature = 2.0

    def sample(draws: int, seed: int) -> Counter[int]:
        weights = torch.tensor(list(law.values()))
        logits = (temperature * weights.log()).expand(draws, len(law)).contiguous()
        given = plain(logits, torch.zeros(draws), temperature, "gumbel")
        block = markov.sampler(*given.arguments()[:1], *given.arguments()[2:], seed=seed, tiles=Tiles(256, 1))
        scanned = block.workspace
        markov_scan[(-(-draws // 256), 1)](
            given.U, len(law), given.W1, 16, given.W2T, 16, given.x0, 1, given.temperature, scanned.maxima,
            scanned.sums, scanned.best, scanned.best_tokens, block.seed, 0, draws, len(law), 1,
            RANK=16, CHUNK=16, METHOD=1, GATHER=True, ROWS=256, STEPS=1, INTERPRETING=True,
        )  # fmt: skip
        return Counter(scanned.best_tokens[:, 0].tolist())

    assert_law(sample, law, total_variation=0.03)


def test_offsets_of_logits_beyond_32_bits() -> None:
    given = case(3, 2, 130, 16, dtype=torch.float16)
    wide = far(given.U, (1 << 30) + 8, 1 << 10, 1)
    assert same(run(replace(given, U=wide)), run(given))


def test_offsets_of_weights_beyond_32_bits() -> None:
    given = case(3, 2, 130, 16, dtype=torch.float16)
    given = replace(given, x0=torch.tensor([129, 128, 1]))
    W1, W2T = (far(each, (1 << 24) + (1 << 18), 1) for each in (given.W1, given.W2T))
    assert same(run(replace(given, W1=W1, W2T=W2T)), run(given))


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "logits of two axes": ({"U": torch.zeros(2, 130)}, r"`U` must have shape \[any, any, any\], got \[2, 130\]"),
    "no positions": ({"U": torch.zeros(2, 0, 130)}, "`U` must hold at least one position"),
    "no vocabulary": ({"U": torch.zeros(2, 2, 0), "W2T": torch.zeros(0, 16)}, "must hold 1 to 262144 tokens, got 0"),
    "integers": ({"U": torch.zeros(2, 2, 130, dtype=torch.int32)}, "`U` must be of type float32, .*got int32"),
    "W1 of another rank": ({"W1": torch.zeros(130, 8)}, r"`W1` must have shape \[130, 16\], got \[130, 8\]"),
    "W1 of another type": ({"W1": torch.zeros(130, 16).half()}, "`W1` must be of type float32, got float16"),
    "W2 not transposed": ({"W2T": torch.zeros(16, 130)}, r"`W2T` must have shape \[130, any\], got \[16, 130\]"),
    "W2 transposed by a view": ({"W2T": torch.zeros(16, 130).T}, "`W2T` must be contiguous along its last axis"),
    "rank 0": ({"W2T": torch.zeros(130, 0)}, "the rank of `W2T` must be at least 1"),
    "too few anchors": ({"x0": torch.zeros(1, dtype=torch.int32)}, r"`x0` must have shape \[2\], got \[1\]"),
    "anchors of floats": ({"x0": torch.zeros(2)}, "`x0` must be of type int32, int64, got float32"),
    "no temperature": ({"temperature": None}, "`temperature` must be given for method inverse_cdf, got None"),
    "temperature in float64": ({"temperature": torch.ones(2).double()}, "`temperature` must be of type float32"),
    "no uniforms": ({"uniforms": None}, "`uniforms` must be given for method inverse_cdf"),
    "uniforms of one position": ({"uniforms": torch.zeros(2, 1)}, r"`uniforms` must have shape \[2, 2\], got \[2, 1\]"),
    "unknown method": ({"method": "top_k"}, "`method` must be one of inverse_cdf, gumbel, greedy, got 'top_k'"),
    "no seed": ({"method": "gumbel", "seed": None}, "`seed` must be given for method gumbel, got None"),
    "seed in int32": ({"method": "gumbel", "seed": torch.zeros(1, dtype=torch.int32)}, "`seed` must be of type int64"),
    "outputs of another size": ({"out": DraftBlock.allocate(2, 3, "cpu")}, r"`out.tokens` must have shape \[2, 2\]"),
    "workspace without noise": (
        {"method": "gumbel", "workspace": MarkovWorkspace.allocate(2, 130, "cpu")},
        r"`workspace.best` must have shape \[2, 3\], got \[2, 0\]",
    ),
    "workspace of a smaller vocabulary": (
        {"workspace": MarkovWorkspace.allocate(2, 100, "cpu")},
        r"`workspace.maxima` must have shape \[2, 3\], got \[2, 2\]",
    ),
    "outputs apart": (
        {"out": DraftBlock(torch.zeros(2, 4, dtype=torch.int32)[:, :2], torch.zeros(2, 2), torch.zeros(2, 2))},
        "`out.tokens` must be contiguous",
    ),
}


@pytest.mark.parametrize(("changed", "message"), WRONG.values(), ids=WRONG)
def test_wrong_arguments(changed: dict[str, Any], message: str) -> None:
    given = case(2, 2, 130, 16)
    names = ("U", "W1", "W2T", "x0", "temperature", "uniforms", "method")
    arguments = dict(zip(names, given.arguments(), strict=True)) | {"seed": 1} | changed
    with pytest.raises(KernelError, match=message):
        draft_block(**arguments)


@pytest.mark.parametrize(("rows", "steps"), [(8, 1), (24, 1), (16, 0)])
def test_wrong_tiles(rows: int, steps: int) -> None:
    with pytest.raises(KernelError, match="of tiles must be"):
        Tiles(rows, steps)


def test_a_processor_needs_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    with pytest.raises(KernelError, match="`U` must be on a GPU, got cpu"):
        draft_block(*case(1, 1, 70, 16).arguments())


def test_reference_noise_has_the_mean_of_gumbel() -> None:
    """Euler's constant; 10,000 draws, so 0.05 is four standard errors."""
    noise = gumbel_reference(0, 10, 0, 1000)
    assert abs(float(noise.mean()) - np.euler_gamma) < 0.05
