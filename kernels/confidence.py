"""How likely drafts are to survive: the confidence head, its temperatures and the product along a block."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from .common import FLOATS, IDS, MAX_GAMMA, KernelError, check_tensor, tiles
from .registry import Configuration, Kernel

# The order of a float32 sum is part of the result, so the shape that a program works on is fixed.
POSITIONS = 4
WIDTH = 512
SURVIVAL_ROWS = 32


@dataclass(frozen=True)
class Confidence:
    """What `confidence` returns, and where it can be told to put it.

    Attributes:
        c: float32 ``[R, g]``, probability that a draft survives given that those before it did.
        a: float32 ``[R, g]``, product of ``c`` from the first draft on: it never rises along a row.
    """

    c: torch.Tensor
    a: torch.Tensor

    @classmethod
    def allocate(cls, rows: int, gamma: int, device: torch.device | str = "cpu") -> Confidence:
        """Return room for a batch, contents undefined."""
        return cls(torch.empty(rows, gamma, device=device), torch.empty(rows, gamma, device=device))


def confidence(
    hidden: torch.Tensor,
    w1: torch.Tensor,
    previous: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    inv_temperature: torch.Tensor,
    available: torch.Tensor | None = None,
    out: Confidence | None = None,
) -> Confidence:
    """Return the confidence of every draft and the survival of every prefix.

    Equation 7 of the DSpark paper (arXiv 2607.05147) and its sequential temperature scaling, in float32: ``c_k =
    sigmoid(inv_temperature_k * (w . [h_k ; W1[x_{k-1}]] + bias))`` and ``a_k = c_1 * .. * c_k`` multiplied from left to
    right. Nothing is allocated when ``out`` is given; nothing waits for the device.

    A position of no use has ``c = 0``, and so does every survival from there on: a position at or past
    ``available``, one whose previous token is outside ``0..V-1``, whose logit is NaN, or whose inverse temperature is
    not above 0. What ``available`` leaves out is not read.

    Args:
        hidden: ``[R, g, D]`` hidden states of the draft positions; float32, float16 or bfloat16, g at most 16.
        w1: ``[V, r]`` embedding of the Markov head, any of these types.
        previous: int32 or int64 ``[R, g]``, token before each position: the anchor, then the drafts but the last.
        weight: ``[D + r]``, of any of these types.
        bias: ``[1]``, of any of these types; None for none, as in the paper.
        inv_temperature: float32 ``[g]``, 1 / temperature of each position; ones leave the confidences raw.
        available: int32 or int64 ``[R]``, drafts that a row has (under 0 is taken as 0, over g as g); None for g.
        out: where to put the result.

    Raises:
        KernelError: if a tensor has a shape, type, device or stride that does not do.
    """
    rows, gamma, width = _check_inputs(hidden, w1, previous, weight, bias, inv_temperature, available)
    if out is None:
        out = Confidence.allocate(rows, gamma, hidden.device)
    _check_block("out.c", out.c, (rows, gamma), hidden.device)
    _check_block("out.a", out.a, (rows, gamma), hidden.device)
    strides = hidden.stride(0), hidden.stride(1), w1.stride(0), previous.stride(0), out.c.stride(0)
    confidence_kernel[(rows, tiles(gamma, POSITIONS))](
        hidden, w1, previous, weight, bias, inv_temperature, available, out.c, w1.shape[0], width, w1.shape[1],
        *strides, GAMMA=gamma, POSITIONS=POSITIONS, WIDTH=WIDTH, RANK=triton.next_power_of_2(w1.shape[1]),
    )  # fmt: skip
    # A launch of its own: positions of a row are spread over programs above, and their product must be taken in order.
    survival(out.c, available, out.a)
    return out


def survival(c: torch.Tensor, available: torch.Tensor | None = None, out: torch.Tensor | None = None) -> torch.Tensor:
    """Return the product of confidences from left to right, float32 ``[R, g]``; it never rises along a row.

    The factors are multiplied one after the other. A parallel scan of float32 values can rise where confidences are
    near 1, and a draft that outranks the one before it breaks the prefixes that lossless verification rests on.

    Args:
        c: float32 ``[R, g]``, g at most 16; a value that is NaN or outside [0, 1] is taken as 0.
        available: int32 or int64 ``[R]`` as in `confidence`; survivals past it are 0. None for g.
        out: float32 ``[R, g]``, where to put the result; may be ``c`` itself.

    Raises:
        KernelError: if a tensor has a shape, type, device or stride that does not do.
    """
    check_tensor("c", c, (None, None), (torch.float32,))
    rows, gamma = _check_gamma(*c.shape)
    if available is not None:
        check_tensor("available", available, (rows,), IDS, c.device)
    if out is None:
        out = torch.empty(rows, gamma, device=c.device)
    _check_block("out", out, (rows, gamma), c.device)
    survival_kernel[(tiles(rows, SURVIVAL_ROWS),)](
        c, available, out, rows, c.stride(0), out.stride(0), GAMMA=gamma, ROWS=SURVIVAL_ROWS
    )
    return out


@triton.jit
def confidence_kernel(
    hidden, w1, previous, weight, bias, inv_temperature, available, c, vocabulary, width, rank,
    stride_row, stride_position, stride_token, stride_previous, stride_c,
    GAMMA: tl.constexpr, POSITIONS: tl.constexpr, WIDTH: tl.constexpr, RANK: tl.constexpr,
):  # fmt: skip
    """Confidences of a few positions of one row (Eq. 7); grid ``(R, tiles(g, POSITIONS))``."""
    row = tl.program_id(0).to(tl.int64)
    position = tl.program_id(1) * POSITIONS + tl.arange(0, POSITIONS)
    exists = position < GAMMA
    useful = exists
    if available is not None:
        useful = useful & (position < tl.load(available + row))
    token = tl.load(previous + row * stride_previous + position, mask=useful, other=-1).to(tl.int64)
    # Before anything is loaded by it: an unknown id must not become an address.
    useful = useful & (token >= 0) & (token < vocabulary)

    # Offsets can pass 2^31 elements: rows, positions and tokens are multiplied by strides in int64.
    states = hidden + row * stride_row + position.to(tl.int64)[:, None] * stride_position
    # A sum for each column until the end, then one tree of additions: the order is the same whatever a launch looks
    # like.
    products = tl.zeros((POSITIONS, WIDTH), tl.float32)
    for start in range(0, width, WIDTH):
        column = start + tl.arange(0, WIDTH)
        inside = column < width
        state = tl.load(states + column[None, :], mask=useful[:, None] & inside[None, :], other=0.0).to(tl.float32)
        factor = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
        products += state * factor[None, :]
    column = tl.arange(0, RANK)
    inside = column < rank
    embeddings = w1 + token[:, None] * stride_token + column[None, :]
    embedding = tl.load(embeddings, mask=useful[:, None] & inside[None, :], other=0.0).to(tl.float32)
    factor = tl.load(weight + width + column, mask=inside, other=0.0).to(tl.float32)
    logit = tl.sum(products, 1) + tl.sum(embedding * factor[None, :], 1)
    if bias is not None:
        logit += tl.load(bias).to(tl.float32)

    # STS divides the whole logit of Eq. 7, bias included, by its position's temperature.
    scale = tl.load(inv_temperature + position, mask=exists, other=1.0)
    scaled = logit * scale
    # NaN fails its own comparison; a maximum would drop it on a GPU and keep it in the interpreter.
    useful = useful & (scaled == scaled) & (scale > 0.0)
    # Division must round to nearest: an approximate one may give more than 1, and survivals would rise.
    sigmoid = tl.div_rn(1.0, 1.0 + tl.exp(-scaled))
    tl.store(c + row * stride_c + position, tl.where(useful, sigmoid, 0.0), mask=exists)


@triton.jit
def survival_kernel(c, available, a, rows, stride_c, stride_a, GAMMA: tl.constexpr, ROWS: tl.constexpr):
    """Products of a few rows, one position after the other; grid ``(tiles(R, ROWS),)``."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = row < rows
    length = tl.full((ROWS,), GAMMA, tl.int32)
    if available is not None:
        length = tl.load(available + row, mask=inside, other=0)
    product = tl.full((ROWS,), 1.0, tl.float32)
    # In order. `tl.cumprod` scans in parallel and can rise by an ulp near c = 1: a draft would outrank the one before
    # it, and its confidence decide about a draft that it shows.
    for position in tl.static_range(GAMMA):
        # 0 for a draft that is not there ends the row. Read before its own place is written: `a` may be `c`.
        factor = tl.load(c + row * stride_c + position, mask=inside & (position < length), other=0.0)
        # NaN fails both comparisons.
        factor = tl.where((factor >= 0.0) & (factor <= 1.0), factor, 0.0)
        product = product * factor
        tl.store(a + row * stride_a + position, product, mask=inside)


def _check_inputs(
    hidden: torch.Tensor,
    w1: torch.Tensor,
    previous: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    inv_temperature: torch.Tensor,
    available: torch.Tensor | None,
) -> tuple[int, int, int]:
    check_tensor("hidden", hidden, (None, None, None), FLOATS)
    rows, gamma = _check_gamma(*hidden.shape[:2])
    width = hidden.shape[2]
    device = hidden.device
    check_tensor("w1", w1, (None, None), FLOATS, device)
    if width < 1 or min(w1.shape) < 1:
        raise KernelError(f"`hidden` and `w1` must hold something, got {list(hidden.shape)} and {list(w1.shape)}")
    check_tensor("previous", previous, (rows, gamma), IDS, device)
    check_tensor("weight", weight, (width + w1.shape[1],), FLOATS, device)
    if bias is not None:
        check_tensor("bias", bias, (1,), FLOATS, device)
    check_tensor("inv_temperature", inv_temperature, (gamma,), (torch.float32,), device)
    if available is not None:
        check_tensor("available", available, (rows,), IDS, device)
    return rows, gamma, width


def _check_gamma(rows: int, gamma: int) -> tuple[int, int]:
    if rows < 1 or not 1 <= gamma <= MAX_GAMMA:
        raise KernelError(f"a batch must have at least 1 row and 1..{MAX_GAMMA} positions, got {rows} and {gamma}")
    return rows, gamma


def _check_block(name: str, tensor: torch.Tensor, shape: tuple[int | None, int | None], device: torch.device) -> None:
    check_tensor(name, tensor, shape, (torch.float32,), device)


def _confidence_form(states: str, gamma: int, rank: int, strides: str = "i32") -> Configuration:
    integers = ("vocabulary", "width", "rank")
    varying = ("stride_row", "stride_position", "stride_token", "stride_previous", "stride_c")
    return Configuration(
        label=f"{states} g={gamma} r={rank} strides {strides}",
        signature={
            "hidden": f"*{states}",
            "w1": f"*{states}",
            "previous": "*i32",
            "weight": f"*{states}",
            "bias": f"*{states}",
            "inv_temperature": "*fp32",
            "available": "*i32",
            "c": "*fp32",
            **dict.fromkeys(integers, "i32"),
            **dict.fromkeys(varying, strides),
        },
        constants={"GAMMA": gamma, "POSITIONS": POSITIONS, "WIDTH": WIDTH, "RANK": rank},
    )


KERNELS = (
    Kernel(
        op="confidence",
        name="confidence",
        function=confidence_kernel,
        configurations=(
            _confidence_form("bf16", 5, 256),
            _confidence_form("bf16", 16, 256),
            _confidence_form("fp16", 7, 256),
            _confidence_form("fp32", 5, 256, strides="i64"),
        ),
    ),
    Kernel(
        op="confidence",
        name="survival",
        function=survival_kernel,
        configurations=tuple(
            Configuration(
                label=f"g={gamma}",
                signature={
                    "c": "*fp32",
                    "available": "*i32",
                    "a": "*fp32",
                    "rows": "i32",
                    "stride_c": "i32",
                    "stride_a": "i32",
                },
                constants={"GAMMA": gamma, "ROWS": SURVIVAL_ROWS},
                num_warps=1,
            )
            for gamma in (5, 16)
        ),
    ),
)
