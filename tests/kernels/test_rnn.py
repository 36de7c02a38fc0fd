"""The RNN head against float64: one step, and blocks made of such steps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

from specsched.kernels.common import KernelError
from specsched.kernels.markov import DraftBlock, draft_block, sampler
from specsched.kernels.rnn import RnnStep, RnnWeights, rnn_draft_block, rnn_step
from specsched.kernels.rnn_reference import rnn_draft_block_reference, rnn_step_reference
from tests.kernels.far import far
from tests.kernels.guards import Guards, relative_error

TOLERANCE = {torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}
CLEAR = 1e-4

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:triton")


@dataclass(frozen=True)
class Case:
    """Arguments of a step."""

    state: torch.Tensor | None
    previous: torch.Tensor
    h: torch.Tensor
    weights: RnnWeights


def case(rows: int, vocabulary: int, rank: int, width: int, dtype: torch.dtype = torch.float32) -> Case:
    """Gates neither open nor shut."""
    draw = torch.Generator().manual_seed(rank * 100 + width)
    layer = torch.randn(3 * rank, 2 * rank + width, generator=draw) / (2 * rank + width) ** 0.5
    weights = RnnWeights(
        torch.randn(vocabulary, rank, generator=draw).to(dtype),
        layer.to(dtype),
        torch.randn(3 * rank, generator=draw).to(dtype),
    )
    return Case(
        torch.tanh(torch.randn(rows, rank, generator=draw)),
        torch.randint(0, vocabulary, (rows,), generator=draw),
        torch.randn(rows, width, generator=draw).to(dtype),
        weights,
    )


def run(given: Case, unwritten: tuple[str, ...] = ()) -> RnnStep:
    """Step between canaries, outputs poisoned, and check that all is written."""
    guards = Guards()
    rows, rank = len(given.h), given.weights.W1.shape[1]
    out = RnnStep(guards.empty("state", rows, rank), guards.empty("hidden", rows, rank, dtype=given.h.dtype))
    found = rnn_step(given.state, given.previous, given.h, given.weights, out=out)
    assert found is out
    guards.check(unwritten)
    return found


def check(given: Case, found: RnnStep) -> None:
    """State and hidden vector close to float64's."""
    state, hidden = rnn_step_reference(given.state, given.previous, given.h, given.weights)
    assert relative_error(found.state, state) < TOLERANCE[given.h.dtype]
    assert relative_error(found.hidden, hidden) < TOLERANCE[given.h.dtype]


def same(one: RnnStep, other: RnnStep) -> bool:
    """Bit for bit."""
    return torch.equal(one.state, other.state) and torch.equal(one.hidden, other.hidden)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("rows", "rank", "width"), [(5, 24, 50), (17, 70, 130), (1, 16, 64)])
def test_step_agrees_with_float64(rows: int, rank: int, width: int, dtype: torch.dtype) -> None:
    given = case(rows, 40, rank, width, dtype)
    check(given, run(given))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_large_tiles(dtype: torch.dtype) -> None:
    """More than 64 rows go to the tensor-core shape."""
    given = case(65, 40, 70, 50, dtype)
    check(given, run(given))


def test_first_step_starts_from_zero() -> None:
    given = case(3, 40, 24, 50)
    first = run(replace(given, state=None))
    check(replace(given, state=None), first)
    assert same(first, run(replace(given, state=torch.zeros(3, 24))))


def test_no_bias() -> None:
    given = case(3, 40, 24, 50)
    given = replace(given, weights=replace(given.weights, bias=None))
    check(given, run(given))


@pytest.mark.parametrize("size", [1e3, 1e30])
def test_saturated_gates_keep_or_replace_the_state(size: float) -> None:
    """An open gate keeps the state to the bit, a shut one forgets it; nothing overflows."""
    given = case(4, 40, 24, 50)
    bias = torch.zeros(72)
    bias[:12], bias[12:24] = size, -size
    bias[24:48] = size
    bias[48:60], bias[60:] = size, -size
    found = run(replace(given, weights=replace(given.weights, bias=bias)))
    assert given.state is not None
    assert torch.equal(found.state[:, :12], given.state[:, :12])
    assert bool((found.state[:, 12:] == 1).all())
    assert bool((found.hidden[:, :12] == 1).all())
    assert bool((found.hidden[:, 12:] == -1).all())


def test_ids_out_of_range_embed_to_zero() -> None:
    given = case(4, 40, 24, 50)
    previous = torch.tensor([-1, 40, 1 << 30, 3], dtype=torch.int32)
    given = replace(given, previous=previous)
    check(given, run(given))


def test_the_table_ends_where_it_says_even_if_memory_goes_on() -> None:
    given = case(3, 40, 24, 50)
    weights = replace(given.weights, W1=given.weights.W1[:-1])
    given = replace(given, weights=weights, previous=torch.tensor([39, 38, 0], dtype=torch.int32))
    check(given, run(given))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_state_is_not_rounded_to_the_weights_type(dtype: torch.dtype) -> None:
    """An open gate keeps every bit of a float32 state."""
    given = case(4, 40, 24, 50, dtype)
    assert given.state is not None
    assert not torch.equal(given.state, given.state.to(dtype).float())
    bias = torch.cat((torch.full((24,), 1e4), torch.zeros(48))).to(dtype)
    found = run(replace(given, weights=replace(given.weights, bias=bias)))
    assert torch.equal(found.state, given.state)


def test_a_nan_stays_in_its_row() -> None:
    given = case(3, 40, 24, 50)
    healthy = run(given)
    h = given.h.clone()
    h[1, 7] = torch.nan
    found = run(replace(given, h=h), unwritten=("state", "hidden"))
    assert bool(found.state[1].isnan().all())
    others = [RnnStep(step.state[[0, 2]], step.hidden[[0, 2]]) for step in (healthy, found)]
    assert same(*others)


def test_two_runs_are_equal_bit_for_bit() -> None:
    given = case(5, 40, 24, 50)
    assert same(run(given), run(given))


def test_no_rows() -> None:
    given = case(0, 40, 24, 50)
    assert rnn_step(None, given.previous, given.h, given.weights).state.shape == (0, 24)


def test_offsets_beyond_32_bits() -> None:
    given = case(3, 40, 16, 50, torch.float16)
    given = replace(given, previous=torch.tensor([39, 38, 0]))
    wide = replace(
        given,
        h=far(given.h, (1 << 30) + 8, 1),
        weights=replace(
            given.weights,
            W1=far(given.weights.W1, (1 << 26) - (1 << 22), 1),
            layer=far(given.weights.layer, (1 << 26) - (1 << 23), 1),
        ),
    )
    assert same(run(wide), run(given))


@dataclass(frozen=True)
class BlockCase:
    """Arguments of a block."""

    U: torch.Tensor
    weights: RnnWeights
    W2T: torch.Tensor
    h: torch.Tensor
    x0: torch.Tensor
    temperature: torch.Tensor
    uniforms: torch.Tensor

    def arguments(self) -> tuple[Any, ...]:
        """Those that are given by position."""
        return (self.U, self.weights, self.W2T, self.h, self.x0, self.temperature, self.uniforms)


def block_case(rows: int, gamma: int, dtype: torch.dtype = torch.float32) -> BlockCase:
    """A vocabulary of 130, rank 24, a backbone of width 50."""
    step, draw = case(rows, 130, 24, 50, dtype), torch.Generator().manual_seed(5)
    return BlockCase(
        torch.randn(rows, gamma, 130, generator=draw).to(dtype),
        step.weights,
        (torch.randn(130, 24, generator=draw) / 2).to(dtype),
        torch.randn(rows, gamma, 50, generator=draw).to(dtype),
        step.previous,
        torch.tensor([1.0, 0.0, 0.7, 2.0])[:rows].contiguous(),
        torch.rand(rows, gamma, generator=draw),
    )


@pytest.mark.parametrize("method", ["inverse_cdf", "gumbel", "greedy"])
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_block_agrees_with_float64(method: str, dtype: torch.dtype) -> None:
    """16-bit hidden vectors move the law itself by up to the tolerance, so a draw is clear where its gap is above."""
    given = block_case(3, 3, dtype)
    found = rnn_draft_block(*given.arguments(), method, seed=4)
    expected = rnn_draft_block_reference(*given.arguments(), method, seed=4, follow=found.tokens)
    clear = expected.gap >= max(CLEAR, 2 * TOLERANCE[dtype])
    assert clear.double().mean() > 0.5
    assert torch.equal(found.tokens.long()[clear], expected.tokens[clear])
    of_drawn = expected.law.gather(2, found.tokens.long()[:, :, None])[:, :, 0]
    assert relative_error(found.p_draft, of_drawn) < TOLERANCE[dtype]
    assert relative_error(found.lse, expected.lse) < TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_block_is_steps_and_sampling_in_turn(dtype: torch.dtype) -> None:
    given = block_case(2, 2, dtype)
    found = rnn_draft_block(*given.arguments())
    block = sampler(given.U, given.W2T, given.x0, given.temperature, given.uniforms)
    state = None
    for position in range(2):
        step = rnn_step(state, block.previous(position).contiguous(), given.h[:, position], given.weights)
        block.sample(position, step.hidden, gather=False)
        state = step.state
    assert torch.equal(block.out.tokens, found.tokens)
    assert torch.equal(block.out.p_draft, found.p_draft)
    assert torch.equal(block.out.lse, found.lse)


def test_hidden_vectors_take_the_place_of_embeddings() -> None:
    """A head that ignores all but the output's bias gives every row the same hidden vector: a Markov head's."""
    given = block_case(3, 2)
    weights = RnnWeights(given.weights.W1, torch.zeros(72, 98), given.weights.bias)
    found = rnn_draft_block(*replace(given, weights=weights).arguments())
    assert weights.bias is not None
    W1 = rnn_step(None, given.x0, given.h[:, 0], weights).hidden[:1].expand(130, 24).contiguous()
    markov = draft_block(given.U, W1, given.W2T, given.x0, given.temperature, given.uniforms)
    assert torch.equal(found.tokens, markov.tokens)
    assert torch.equal(found.lse, markov.lse)


def test_a_row_without_an_anchor_is_marked_and_alone() -> None:
    given = block_case(3, 2)
    found = rnn_draft_block(*replace(given, x0=torch.tensor([4, -1, 130])).arguments())
    healthy = rnn_draft_block(*replace(given, x0=torch.tensor([4, 5, 6])).arguments())
    assert found.tokens[1:].tolist() == [[-1, -1], [-1, -1]]
    assert torch.equal(found.tokens[0], healthy.tokens[0])


def test_places_given_are_used() -> None:
    given = block_case(1, 3)
    steps = (RnnStep.allocate(1, 24, torch.float32, "cpu"), RnnStep.allocate(1, 24, torch.float32, "cpu"))
    out = DraftBlock.allocate(1, 3, "cpu")
    assert rnn_draft_block(*given.arguments(), out=out, steps=steps) is out
    assert torch.equal(out.tokens, rnn_draft_block(*given.arguments()).tokens)


def _wrong() -> dict[str, tuple[dict[str, Any], str]]:
    W1, layer, bias = torch.zeros(40, 24), torch.zeros(72, 98), torch.zeros(72)
    narrow = RnnStep(torch.zeros(3, 24), torch.zeros(3, 16))
    return {
        "h of three axes": ({"h": torch.zeros(3, 1, 50)}, r"`h` must have shape \[any, any\], got \[3, 1, 50\]"),
        "h of another type": ({"h": torch.zeros(3, 50).half()}, "`W1` must be of type float16, got float32"),
        "layer of another width": (
            {"weights": RnnWeights(W1, torch.zeros(72, 90), bias)},
            r"`layer` must have shape \[72, 98\], got \[72, 90\]",
        ),
        "layer unsplit": ({"weights": RnnWeights(W1, torch.zeros(24, 98), bias)}, r"got \[24, 98\]"),
        "bias of one part": ({"weights": RnnWeights(W1, layer, torch.zeros(24))}, r"`bias` must have shape \[72\]"),
        "no rank": ({"weights": RnnWeights(torch.zeros(40, 0), layer)}, "`W1` must have a vocabulary and a rank"),
        "too few tokens": ({"previous": torch.zeros(2, dtype=torch.int32)}, r"`previous` must have shape \[3\]"),
        "state in float16": ({"state": torch.zeros(3, 24).half()}, "`state` must be of type float32, got float16"),
        "state of a view": ({"state": torch.zeros(3, 48)[:, :24]}, "`state` must be contiguous"),
        "output too narrow": ({"out": narrow}, r"`out.hidden` must have shape \[3, 24\], got \[3, 16\]"),
    }


@pytest.mark.parametrize(("changed", "message"), _wrong().values(), ids=_wrong())
def test_wrong_arguments(changed: dict[str, Any], message: str) -> None:
    given = case(3, 40, 24, 50)
    arguments = {"state": given.state, "previous": given.previous, "h": given.h, "weights": given.weights} | changed
    with pytest.raises(KernelError, match=message):
        rnn_step(**arguments)


def test_a_state_is_not_written_while_it_is_read() -> None:
    given = case(3, 40, 24, 50)
    assert given.state is not None
    out = RnnStep(given.state, torch.empty(3, 24))
    with pytest.raises(KernelError, match="must not write the state that it reads"):
        rnn_step(given.state, given.previous, given.h, given.weights, out=out)


def test_a_processor_needs_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    given = case(1, 40, 24, 50)
    with pytest.raises(KernelError, match="`h` must be on a GPU, got cpu"):
        rnn_step(given.state, given.previous, given.h, given.weights)
