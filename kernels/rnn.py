"""The RNN head (Eq. 6): one step of its recurrence, and a draft block made of such steps.

With ``z = [s; W1[x]; h]`` of ``2r + d`` and one linear layer split in three,

    gate = sig(W_g z),  s' = gate * s + (1 - gate) * tanh(W_c z),  hidden = tanh(W_o z),  B = W2^T hidden.

The bias ``B`` has the form of the Markov head's, with ``hidden`` in the place of ``W1[x]``, so sampling is the same two
kernels (`markov.Sampler.sample` with ``gather=False``) after one launch of `rnn_cell`.

The state stays in float32 between steps; only as an operand of the product is it rounded to the type of the weights.
``hidden`` comes in that type, for it is the next product's operand.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from .common import FLOATS, IDS, KernelError, check_tensor, check_whole, dot, interpreting, tiles
from .markov import DraftBlock, MarkovWorkspace, Tiles, sampler
from .markov_kernels import hidden_chunk, hidden_rows
from .registry import Configuration, Kernel

_CHUNK = 64
"""Of ``z``, multiplied at a time; part of the order of additions, hence one for all shapes."""


@triton.jit
def tanh(x):
    """Return tanh, of float32 precision relative to 1; exp never overflows."""
    # Of the absolute value: exp goes to 0, never to infinity, and tanh comes out odd to the bit.
    tail = tl.exp(-2.0 * tl.abs(x))
    size = (1.0 - tail) / (1.0 + tail)
    return tl.where(x < 0, -size, size)


@triton.jit
def add_products(
    gate, candidate, output, weights, third, known, left, right, stop, CHUNK: tl.constexpr,
    INTERPRETING: tl.constexpr,
):  # fmt: skip
    """Add the three products of one chunk of ``z``: ``weights`` points at its columns in the gate's rows."""
    # One operand, three products: a chunk of z is read once for gate, candidate and output.
    mask = known[:, None] & (left < stop)[None, :]
    gate += dot(tl.load(weights, mask=mask, other=0.0), right, INTERPRETING)
    candidate += dot(tl.load(weights + third, mask=mask, other=0.0), right, INTERPRETING)
    output += dot(tl.load(weights + 2 * third, mask=mask, other=0.0), right, INTERPRETING)
    return gate, candidate, output


@triton.jit
def rnn_cell(
    state, W1, w1_stride: tl.constexpr, previous, previous_stride, h, h_stride: tl.constexpr, weight,
    weight_stride: tl.constexpr, bias, state_out, hidden, R, V: tl.constexpr, RANK: tl.constexpr,
    WIDTH: tl.constexpr, FIRST: tl.constexpr, BIASED: tl.constexpr, ROWS: tl.constexpr, FEATURES: tl.constexpr,
    CHUNK: tl.constexpr, INTERPRETING: tl.constexpr,
):  # fmt: skip
    """``FEATURES`` of the state and of the hidden vector for ``ROWS`` rows; features are the M axis of the products."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = rows < R
    place = rows.to(tl.int64)
    features = tl.program_id(1) * FEATURES + tl.arange(0, FEATURES)
    known = features < RANK
    columns = tl.arange(0, CHUNK)
    lines = weight + features.to(tl.int64)[:, None] * weight_stride + columns[None, :]
    # One layer holds gate, candidate and output below each other, and the columns of s, W1[x] and h side by side.
    third = RANK * weight_stride
    gate = tl.zeros([FEATURES, ROWS], tl.float32)
    candidate = tl.zeros([FEATURES, ROWS], tl.float32)
    output = tl.zeros([FEATURES, ROWS], tl.float32)
    if not FIRST:
        for start in range(0, RANK, CHUNK):
            # Rounded as an operand alone; the state itself is carried in float32, or a block would pile up roundings.
            s = hidden_chunk(state, RANK, place, inside, start, RANK, CHUNK).to(weight.dtype.element_ty)
            gate, candidate, output = add_products(
                gate, candidate, output, lines + start, third, known, start + columns, s, RANK, CHUNK, INTERPRETING
            )
    # An unknown id embeds to zero; that its row has no law is for the sampler to say.
    origin, there = hidden_rows(previous, previous_stride, rows, inside, V, True)
    for start in range(0, RANK, CHUNK):
        x = hidden_chunk(W1, w1_stride, origin, there, start, RANK, CHUNK)
        gate, candidate, output = add_products(
            gate, candidate, output, lines + RANK + start, third, known, start + columns, x, RANK, CHUNK, INTERPRETING
        )
    for start in range(0, WIDTH, CHUNK):
        y = hidden_chunk(h, h_stride, place, inside, start, WIDTH, CHUNK)
        gate, candidate, output = add_products(
            gate, candidate, output, lines + 2 * RANK + start, third, known, start + columns, y, WIDTH, CHUNK,
            INTERPRETING,
        )  # fmt: skip
    if BIASED:
        gate += tl.load(bias + features, mask=known, other=0.0).to(tl.float32)[:, None]
        candidate += tl.load(bias + RANK + features, mask=known, other=0.0).to(tl.float32)[:, None]
        output += tl.load(bias + 2 * RANK + features, mask=known, other=0.0).to(tl.float32)[:, None]
    cell = place[None, :] * RANK + features[:, None]
    stored = known[:, None] & inside[None, :]
    opening = tl.sigmoid(gate)
    # With s_0 = 0 the gate's part is 0 times what the state's memory happens to hold, NaN perhaps: it is left out.
    new = (1.0 - opening) * tanh(candidate)
    if not FIRST:
        new += opening * tl.load(state + cell, mask=stored, other=0.0)
    tl.store(state_out + cell, new, mask=stored)
    tl.store(hidden + cell, tanh(output).to(hidden.dtype.element_ty), mask=stored)


@dataclass(frozen=True)
class RnnStep:
    """What a step of the recurrence gives.

    Attributes:
        state: ``[R, r]`` float32, ``s_k``.
        hidden: ``[R, r]``, ``tanh(W_o z_k)`` in the type of the weights: what multiplies W2 in the place of ``W1[x]``.
    """

    state: torch.Tensor
    hidden: torch.Tensor

    @classmethod
    def allocate(cls, rows: int, rank: int, dtype: torch.dtype, device: torch.device | str) -> RnnStep:
        """Return uninitialised outputs."""
        return cls(
            torch.empty(rows, rank, dtype=torch.float32, device=device),
            torch.empty(rows, rank, dtype=dtype, device=device),
        )


@dataclass(frozen=True)
class RnnWeights:
    """The head's weights, all of one type.

    Attributes:
        W1: embeddings ``[V, r]``.
        layer: ``[3r, 2r + d]``: the rows of the gate, the candidate and the output; the columns of state, embedding and
            backbone.
        bias: ``[3r]`` or None.
    """

    W1: torch.Tensor
    layer: torch.Tensor
    bias: torch.Tensor | None = None


def rnn_step(
    state: torch.Tensor | None,
    previous: torch.Tensor,
    h: torch.Tensor,
    weights: RnnWeights,
    *,
    out: RnnStep | None = None,
) -> RnnStep:
    """Step the recurrence of Eq. 6 once.

    Args:
        state: ``s_{k-1}``, ``[R, r]`` float32 and contiguous; None is ``s_0 = 0``.
        previous: tokens ``x_{k-1}``, ``[R]`` int32 or int64; ids outside the vocabulary embed to zero (sampling then
            gives such rows token -1).
        h: the backbone's output at position k, ``[R, d]``, of the type of the weights.
        weights: of the head.
        out: outputs to write to; its state must not be the one that is read.

    Raises:
        KernelError: naming the argument, the rule, what was given and the remedy.
    """
    rows, rank = _check_weights(h, weights)
    check_tensor("previous", previous, (rows,), IDS, h.device)
    out = out or RnnStep.allocate(rows, rank, h.dtype, h.device)
    _check_step("out", out, rows, rank, h)
    if state is not None:
        check_whole("state", state, (rows, rank), torch.float32, h.device, _REMEDY)
        _check_apart(state, out.state)
    if rows:
        _launch(state, previous, h, weights, out)
    return out


def rnn_draft_block(
    U: torch.Tensor,
    weights: RnnWeights,
    W2T: torch.Tensor,
    h: torch.Tensor,
    x0: torch.Tensor,
    temperature: torch.Tensor | None,
    uniforms: torch.Tensor | None,
    method: str = "inverse_cdf",
    *,
    seed: torch.Tensor | int | None = None,
    tiles: Tiles | None = None,
    out: DraftBlock | None = None,
    workspace: MarkovWorkspace | None = None,
    steps: tuple[RnnStep, RnnStep] | None = None,
) -> DraftBlock:
    """Draft a block with the RNN head (Eq. 4, 6); as `markov.draft_block` where not said otherwise.

    Args:
        U: base logits ``[R, g, V]``.
        weights: of the head.
        W2T: ``[V, r]``, of the type of the weights.
        h: the backbone's outputs ``[R, g, d]``, of that type too.
        x0: anchor tokens ``[R]``.
        temperature: ``[R]``.
        uniforms: ``[R, g]``.
        method: how tokens are drawn.
        seed: of ``gumbel``.
        tiles: of sampling.
        out: outputs to write to.
        workspace: of sampling.
        steps: two places for states and hidden vectors, used in turn.

    Raises:
        KernelError: naming the argument, the rule, what was given and the remedy.
    """
    block = sampler(
        U, W2T, x0, temperature, uniforms, method, seed=seed, tiles=tiles, out=out, workspace=workspace
    )  # fmt: skip
    rows, gamma, vocabulary = U.shape
    check_tensor("h", h, (rows, gamma, None), (W2T.dtype,), U.device)
    rank = _check_weights(h[:, 0], weights)[1]
    check_tensor("W1", weights.W1, (vocabulary, W2T.shape[1]), (W2T.dtype,), U.device)
    # Two, used in turn: while one program writes its features of s, others still read all of the old s.
    one, other = steps or (RnnStep.allocate(rows, rank, h.dtype, h.device) for _ in range(2))
    for number, step in enumerate((one, other)):
        _check_step(f"steps[{number}]", step, rows, rank, h)
    _check_apart(one.state, other.state)
    # s_0 = 0 is not a tensor of zeros: the first step is compiled without its products.
    state = None
    for position in range(gamma if rows else 0):
        _launch(state, block.previous(position), h[:, position], weights, one)
        block.sample(position, one.hidden, gather=False)
        state, one, other = one.state, other, one
    return block.out


def _launch(
    state: torch.Tensor | None, previous: torch.Tensor, h: torch.Tensor, weights: RnnWeights, out: RnnStep
) -> None:
    (rows, rank), layer = out.hidden.shape, weights.layer
    features, across = (16, 16) if rows <= 64 or h.dtype == torch.float32 else (64, 32)
    rnn_cell[(tiles(rows, across), tiles(rank, features))](
        # The first step reads neither; its pointers need some tensor.
        out.state if state is None else state, weights.W1, weights.W1.stride(0), previous, previous.stride(0),
        h, h.stride(0), layer, layer.stride(0), layer if weights.bias is None else weights.bias, out.state, out.hidden,
        rows, len(weights.W1), RANK=rank, WIDTH=h.shape[1], FIRST=state is None, BIASED=weights.bias is not None,
        ROWS=across, FEATURES=features, CHUNK=_CHUNK, INTERPRETING=interpreting(), num_warps=4, num_stages=3,
    )  # fmt: skip


def _check_weights(h: torch.Tensor, weights: RnnWeights) -> tuple[int, int]:
    check_tensor("h", h, (None, None), FLOATS)
    check_tensor("W1", weights.W1, (None, None), (h.dtype,), h.device)
    rank = weights.W1.shape[1]
    if h.device.type == "cpu" and not interpreting():
        raise KernelError("`h` must be on a GPU, got cpu; move it there, or set TRITON_INTERPRET=1 before the import")
    if not rank or not len(weights.W1):
        raise KernelError(f"`W1` must have a vocabulary and a rank of at least 1, got {list(weights.W1.shape)}")
    check_tensor("layer", weights.layer, (3 * rank, 2 * rank + h.shape[1]), (h.dtype,), h.device)
    if weights.bias is not None:
        check_tensor("bias", weights.bias, (3 * rank,), (h.dtype,), h.device)
    return len(h), rank


_REMEDY = "call .contiguous()"


def _check_step(name: str, step: RnnStep, rows: int, rank: int, h: torch.Tensor) -> None:
    check_whole(f"{name}.state", step.state, (rows, rank), torch.float32, h.device, _REMEDY)
    check_whole(f"{name}.hidden", step.hidden, (rows, rank), h.dtype, h.device, _REMEDY)


def _check_apart(read: torch.Tensor, written: torch.Tensor) -> None:
    if len(read) and read.data_ptr() == written.data_ptr():
        raise KernelError(
            "a step must not write the state that it reads, other programs still do; alternate between two"
        )


def _configuration(dtype: str, features: int, rows: int, first: bool = False) -> Configuration:
    """Return the cell of a model of width 4,096, rank 256 and V 129,280."""
    signature = {
        "state": "*fp32", "W1": f"*{dtype}", "previous": "*i32", "previous_stride": "i32", "h": f"*{dtype}",
        "weight": f"*{dtype}", "bias": f"*{dtype}", "state_out": "*fp32", "hidden": f"*{dtype}", "R": "i32",
    }  # fmt: skip
    constants = {
        "w1_stride": 256, "h_stride": 7 * 4096, "weight_stride": 2 * 256 + 4096, "V": 129280,
        "RANK": 256, "WIDTH": 4096, "FIRST": first, "BIASED": True, "ROWS": rows, "FEATURES": features,
        "CHUNK": _CHUNK, "INTERPRETING": False,
    }  # fmt: skip
    # 64 features are the M of a warp-group product; smaller tiles have no such instruction to look for.
    label = f"{dtype} rows {rows} features {features}{' first' if first else ''}"
    return Configuration(label, signature, constants, 4, 3, dtype != "fp32" and features >= 64, unaligned=("previous",))


KERNELS = (
    Kernel(
        "rnn",
        "rnn_cell",
        rnn_cell,
        (
            _configuration("bf16", 16, 16),
            _configuration("bf16", 16, 16, first=True),
            _configuration("bf16", 64, 32),
            _configuration("fp16", 64, 32),
            _configuration("fp32", 16, 16),
        ),
    ),
)
