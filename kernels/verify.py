"""Which drafts leave, and the token that follows them: rejection sampling over a flattened batch of prefixes.

Four launches. *Sums*: one pass over the logits of every verified token, cut into blocks of `BLOCK` entries, gives the
maximum and the sum of exponentials of each block. *Accept*: one program a row walks its drafts. *Residual*: for rows
that rejected a draft, the blocks' sums of ``max(p_t - p_d, 0)``. *Draw*: one program a row finds the block in which the
CDF passes the uniform, and within it the token. A block is the unit of every sum, so the number of blocks that a
program takes changes no bit of the result. Nothing is drawn that has no mass, whatever rounding does.

What it reads: ``B * V`` target logits once, and of each rejecting row one more row of target and of draft logits.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import torch
import triton

from .common import FLOATS, IDS, MAX_GAMMA, KernelError, check_tensor, tiles
from .markov_kernels import BLOCK as GROUP
from .registry import Configuration, Kernel
from .verify_kernels import accept_kernel, draw_kernel, residual_kernel, sums_kernel

BLOCK = 2048
"""Entries of the vocabulary that are summed at a time."""

# `accept_kernel` holds a number for each block of a token at once.
MAX_BLOCKS = 1024


@dataclass(frozen=True)
class Verified:
    """What `verify_chain` returns, and where it can be told to put it.

    Attributes:
        n_accepted: int32 ``[R]``, leading drafts that leave.
        next_token: int32 ``[R]``, the token that follows them, the next anchor; -1 where there is no law to draw it
            from (see `verify_chain`).
        tokens: int32 ``[R, g + 1]``, all that leaves: accepted drafts, ``next_token``, then -1.
    """

    n_accepted: torch.Tensor
    next_token: torch.Tensor
    tokens: torch.Tensor

    @classmethod
    def allocate(cls, rows: int, gamma: int, device: torch.device | str = "cpu") -> Verified:
        """Return room for a batch, contents undefined."""
        count, token = (torch.empty(rows, dtype=torch.int32, device=device) for _ in range(2))
        return cls(count, token, torch.empty(rows, gamma + 1, dtype=torch.int32, device=device))


@dataclass(frozen=True)
class VerifyWorkspace:
    """What the launches hand on to each other; ``N`` blocks cover the vocabulary.

    Attributes:
        tops: float32 ``[R, g + 1, N]``, largest logit of each block of a row's verified tokens.
        sums: float32 ``[R, g + 1, N]``, sum of ``exp((logit - top) / temperature)``.
        best: int32 ``[R, g + 1, N]``, where the largest logit is.
        kind: int32 ``[R]``, how the last token is drawn.
        top: float32 ``[R]``, largest logit of the law it is drawn from.
        total: float32 ``[R]``, sum of that law's exponentials.
        residual: float32 ``[R, N]``, residual mass of each block.
    """

    tops: torch.Tensor
    sums: torch.Tensor
    best: torch.Tensor
    kind: torch.Tensor
    top: torch.Tensor
    total: torch.Tensor
    residual: torch.Tensor

    @classmethod
    def allocate(cls, rows: int, gamma: int, vocabulary: int, device: torch.device | str = "cpu") -> VerifyWorkspace:
        """Return room for a batch, contents undefined: ``12 R (g + 1) N`` bytes and little else."""
        blocks = tiles(vocabulary, BLOCK)
        shape = rows, gamma + 1, blocks
        tops, sums = (torch.empty(shape, device=device) for _ in range(2))
        best = torch.empty(shape, dtype=torch.int32, device=device)
        kind = torch.empty(rows, dtype=torch.int32, device=device)
        top, total = (torch.empty(rows, device=device) for _ in range(2))
        return cls(tops, sums, best, kind, top, total, torch.empty(rows, blocks, device=device))


def verify_chain(
    target_logits: torch.Tensor,
    draft_tokens: torch.Tensor,
    p_draft: torch.Tensor,
    draft_logits: torch.Tensor,
    lengths: torch.Tensor,
    offsets: torch.Tensor,
    temperature: torch.Tensor,
    accept: torch.Tensor,
    residual: torch.Tensor,
    bonus: torch.Tensor,
    draft_temperature: torch.Tensor | None = None,
    tile: int = 4 * BLOCK,
    out: Verified | None = None,
    workspace: VerifyWorkspace | None = None,
) -> Verified:
    """Return how many drafts of each row leave, and the token that follows them.

    Section 2 of the DSpark paper (arXiv 2607.05147; Leviathan et al. 2023), in float32. Draft ``x`` of a row leaves iff
    ``u < p_t(x) / p_d(x)``; the first that does not ends the row, and its token is redrawn from
    ``normalize(max(p_t - p_d, 0))``. Where all verified drafts leave, one more token is drawn from ``p_t`` behind the
    last of them (behind the anchor where none is verified). Draws are by inverse CDF, ids ascending. ``p_t`` is
    ``softmax(logits / temperature)``; at temperature 0 a draft leaves iff it is the lowest id of the largest logit, and
    that id is the token that follows.

    *The draft's law* must be the one the draft was drawn from, or the output is biased. It is taken from the logits as
    they were sampled (base logits plus the Markov head's bias, rounded as they were), by ``p_d(v) = p_draft *
    exp((draft_logits[v] - draft_logits[x]) / draft_temperature)``: no normalizer is needed, and a rejected draft is
    the only one whose logits are read. Keeping them costs ``R g V`` elements (R = 256, g = 5, V = 129,280: 662 MB in
    float32) written by the drafter. The other way, not taken here, is to recompute the bias ``W1[x_{k-1}] W2`` of
    rejected positions, at most one a row: the work of one Markov position of ``draft_block``, and products that must
    round as they did there.

    *Uniforms* come from three streams that share nothing with each other nor with the drafter's: with accept and
    draft, draft and residual, or accept and residual in common the output is biased. (Residual and bonus exclude each
    other, so these two would do no harm in one step.) They lie in [0, 1).

    *What has no law.* A draft whose id is outside ``0..V-1`` or whose ``p_draft`` is NaN or negative is rejected, and
    its token drawn from ``p_t`` with the residual's uniform; so is the token of a rejected draft if the residual has no
    mass, or NaN. Where the walk meets a target whose logits hold NaN or +inf or nothing above -inf, the drafts before
    it leave and ``next_token`` is -1. A row with a length outside ``0..g``, without ``1 + length`` tokens inside the
    batch, or with a temperature that is NaN, negative or infinite gets 0 and -1. Other rows never notice. No id outside
    ``0..V-1`` but -1 is ever returned.

    Nothing is allocated when ``out`` and ``workspace`` are given; nothing waits for the device.

    Args:
        target_logits: ``[B, V]`` logits of the flattened batch, float32, float16 or bfloat16; token
            ``offsets[r] + j`` judges draft ``j`` of row ``r`` (0 is its anchor) and follows draft ``j - 1``.
        draft_tokens: int32 or int64 ``[R, g]``, g at most 16.
        p_draft: float32 ``[R, g]``, ``p_d`` of each drafted token.
        draft_logits: ``[R, g, V]``, any of these types.
        lengths: int32 or int64 ``[R]``, drafts to verify, as from ``admit``.
        offsets: int32 or int64 ``[R + 1]``, as from ``admit``; B may be larger than the last.
        temperature: float32 ``[R]``.
        accept: float32 ``[R, g]``, uniforms of acceptance.
        residual: float32 ``[R]``, uniforms of redrawn tokens.
        bonus: float32 ``[R]``, uniforms of bonus tokens.
        draft_temperature: float32 ``[R]``, if the drafter's differs; 0 means that drafts were the likeliest token, so
            that ``p_d`` is 1 there and 0 elsewhere.
        tile: vocabulary entries of a program, a multiple of `BLOCK`; it changes nothing but speed.
        out: where to put the result.
        workspace: from ``VerifyWorkspace.allocate``.

    Raises:
        KernelError: if an argument has a shape, type, device or stride that does not do, or uniforms are shared.
    """
    logits = draft_tokens, p_draft, draft_logits, target_logits
    rows, gamma, vocabulary = _check_logits(*logits, tile)
    if draft_temperature is None:
        draft_temperature = temperature
    _check_rows(rows, target_logits.device, lengths, offsets, temperature, draft_temperature)
    _check_uniforms(rows, gamma, target_logits.device, accept, residual, bonus)
    out = out or Verified.allocate(rows, gamma, target_logits.device)
    work = workspace or VerifyWorkspace.allocate(rows, gamma, vocabulary, target_logits.device)
    _check_out(out, work, (rows, gamma, vocabulary), target_logits.device)
    blocks = tiles(vocabulary, BLOCK)
    # Programs take whole blocks, the unit of every sum: so `tile` moves work about and changes no bit.
    steps = min(tile // BLOCK, blocks)
    parts = tiles(blocks, steps)
    ragged = lengths, offsets, temperature
    target = target_logits, target_logits.stride(0), target_logits.shape[0], vocabulary
    drafts = draft_tokens, draft_tokens.stride(0), p_draft, p_draft.stride(0)
    law = draft_logits, draft_logits.stride(0), draft_logits.stride(1), draft_temperature
    span = _span(blocks)
    width = triton.next_power_of_2(gamma + 1)
    # All g + 1 places of every row, since how far a walk comes is known after the sums; places past the length end at
    # once.
    sums_kernel[(rows, gamma + 1, parts)](
        *target, *ragged, work.tops, work.sums, work.best, blocks,
        GAMMA=gamma, BLOCK=BLOCK, STEPS=steps,
    )  # fmt: skip
    # One program a row: a rejection throws the rest of the block away, so acceptance has an order (section 2).
    accept_kernel[(rows,)](
        *target, *ragged, *drafts, draft_temperature, accept, accept.stride(0), work.tops, work.sums, work.best, blocks,
        out.n_accepted, out.next_token, out.tokens, out.tokens.stride(0), work.kind, work.top, work.total,
        GAMMA=gamma, SPAN=span, WIDTH=width,
    )  # fmt: skip
    # Launched for all rows, though only those that rejected do anything: which they are the host must not wait to hear.
    residual_kernel[(rows, parts)](
        *target, offsets, temperature, *drafts, *law, out.n_accepted, work.kind, work.top, work.total, work.residual,
        blocks, BLOCK=BLOCK, STEPS=steps,
    )  # fmt: skip
    # Last, for only now it is settled which law the token behind the accepted drafts comes from.
    draw_kernel[(rows,)](
        *target, offsets, temperature, *drafts, *law, residual, bonus, work.tops, work.sums, work.residual, blocks,
        out.n_accepted, out.next_token, out.tokens, out.tokens.stride(0), work.kind, work.top, work.total,
        GAMMA=gamma, BLOCK=BLOCK, SPAN=span,
    )  # fmt: skip
    return out


def _span(blocks: int) -> int:
    """Return room for blocks: a power of two, whole groups."""
    return max(int(GROUP.value), int(triton.next_power_of_2(blocks)))


def _check_logits(
    draft_tokens: torch.Tensor,
    p_draft: torch.Tensor,
    draft_logits: torch.Tensor,
    target_logits: torch.Tensor,
    tile: int,
) -> tuple[int, int, int]:
    check_tensor("target_logits", target_logits, (None, None), FLOATS)
    device = target_logits.device
    check_tensor("draft_tokens", draft_tokens, (None, None), IDS, device)
    rows, gamma = draft_tokens.shape
    batch, vocabulary = target_logits.shape
    if rows < 1 or not 1 <= gamma <= MAX_GAMMA:
        raise KernelError(f"`draft_tokens` must have at least 1 row and 1..{MAX_GAMMA} drafts, got {rows} and {gamma}")
    if batch < 1 or not 1 <= vocabulary <= MAX_BLOCKS * BLOCK:
        raise KernelError(
            f"`target_logits` must have at least 1 token and a vocabulary of 1..{MAX_BLOCKS * BLOCK}, "
            f"got {batch} and {vocabulary}"
        )
    check_tensor("p_draft", p_draft, (rows, gamma), (torch.float32,), device)
    check_tensor("draft_logits", draft_logits, (rows, gamma, vocabulary), FLOATS, device)
    if not isinstance(tile, int) or tile < BLOCK or tile % BLOCK:
        raise KernelError(f"`tile` must be a multiple of {BLOCK}, got {tile!r}")
    return rows, gamma, vocabulary


def _check_rows(
    rows: int,
    device: torch.device,
    lengths: torch.Tensor,
    offsets: torch.Tensor,
    temperature: torch.Tensor,
    draft_temperature: torch.Tensor,
) -> None:
    check_tensor("lengths", lengths, (rows,), IDS, device)
    check_tensor("offsets", offsets, (rows + 1,), IDS, device)
    check_tensor("temperature", temperature, (rows,), (torch.float32,), device)
    check_tensor("draft_temperature", draft_temperature, (rows,), (torch.float32,), device)


def _check_uniforms(
    rows: int, gamma: int, device: torch.device, accept: torch.Tensor, residual: torch.Tensor, bonus: torch.Tensor
) -> None:
    check_tensor("accept", accept, (rows, gamma), (torch.float32,), device)
    check_tensor("residual", residual, (rows,), (torch.float32,), device)
    check_tensor("bonus", bonus, (rows,), (torch.float32,), device)
    # The one mistake with uniforms that can be seen without reading them. That the drafter's are others is for the
    # caller.
    if len({each.data_ptr() for each in (accept, residual, bonus)}) < 3:
        raise KernelError(
            "`accept`, `residual` and `bonus` must be draws of their own, got one tensor twice; draw more"
        )


def _check_out(out: Verified, work: VerifyWorkspace, sizes: tuple[int, int, int], device: torch.device) -> None:
    rows, gamma, vocabulary = sizes
    ids = (torch.int32,)
    check_tensor("out.n_accepted", out.n_accepted, (rows,), ids, device)
    check_tensor("out.next_token", out.next_token, (rows,), ids, device)
    check_tensor("out.tokens", out.tokens, (rows, gamma + 1), ids, device)
    # Shapes and types from `allocate` itself, on a device that takes no memory, so that the two cannot drift apart.
    expected = VerifyWorkspace.allocate(rows, gamma, vocabulary, "meta")
    for name, like in vars(expected).items():
        tensor = check_tensor(f"workspace.{name}", getattr(work, name), tuple(like.shape), (like.dtype,), device)
        if not tensor.is_contiguous():
            raise KernelError(f"`workspace.{name}` must be contiguous; take what `VerifyWorkspace.allocate` returns")


# Pointers to int32; those not named here are logits or float32 (`_type`).
IDS_IN = ("lengths", "offsets", "drafts", "best", "n_accepted", "next_token", "tokens", "kinds")


def _form(function: Any, logits: str, vocabulary: int, gamma: int, strides: str) -> Configuration:
    """Return a compiled form of one of the four kernels, from the names of its arguments."""
    known = {
        "GAMMA": gamma,
        "BLOCK": BLOCK,
        "STEPS": 4,
        "SPAN": _span(tiles(vocabulary, BLOCK)),
        "WIDTH": triton.next_power_of_2(gamma + 1),
    }
    # By name, since the four share their arguments: a form says what is constant, all else gets its type by `_type`.
    names = list(inspect.signature(function.fn).parameters)
    signature = {name: _type(name, logits, strides) for name in names if name not in known}
    constants = {name: known[name] for name in names if name in known}
    return Configuration(f"{logits} V={vocabulary} g={gamma} strides {strides}", signature, constants)


def _type(name: str, logits: str, strides: str) -> str:
    if name.startswith("stride_"):
        return strides
    if name in ("batch", "vocabulary", "blocks"):
        return "i32"
    if name in ("target", "draft"):
        return f"*{logits}"
    return "*i32" if name in IDS_IN else "*fp32"


KERNELS = tuple(
    Kernel(
        op="verify",
        name=f"verify_{name}",
        function=function,
        configurations=(
            _form(function, "bf16", 129_280, 5, "i32"),
            _form(function, "fp16", 151_936, 16, "i32"),
            _form(function, "fp32", 129_280, 7, "i64"),
        ),
    )
    for name, function in (
        ("sums", sums_kernel),
        ("accept", accept_kernel),
        ("residual", residual_kernel),
        ("draw", draw_kernel),
    )
)
