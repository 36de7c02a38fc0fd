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
import triton.language as tl

from .common import FLOATS, IDS, KernelError, check_tensor, tiles
from .markov_kernels import BLOCK as GROUP
from .markov_kernels import draw_block
from .registry import Configuration, Kernel

BLOCK = 2048
"""Entries of the vocabulary that are summed at a time."""

MAX_GAMMA = 16

MAX_BLOCKS = 1024

LOG2_E = tl.constexpr(1.4426950408889634)
HUGE = tl.constexpr(3.0e38)
NOWHERE = tl.constexpr(2147483647)

# How a row's last token comes about: it is known already, or drawn from p_t behind all verified drafts, from the
# residual of a rejected draft, or from p_t in the place of a draft that has no law.
DONE = tl.constexpr(0)
BONUS = tl.constexpr(1)
RESIDUAL = tl.constexpr(2)
REPLACED = tl.constexpr(3)


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
    steps = min(tile // BLOCK, blocks)
    parts = tiles(blocks, steps)
    ragged = lengths, offsets, temperature
    target = target_logits, target_logits.stride(0), target_logits.shape[0], vocabulary
    drafts = draft_tokens, draft_tokens.stride(0), p_draft, p_draft.stride(0)
    law = draft_logits, draft_logits.stride(0), draft_logits.stride(1), draft_temperature
    span = _span(blocks)
    width = triton.next_power_of_2(gamma + 1)
    sums_kernel[(rows, gamma + 1, parts)](
        *target, *ragged, work.tops, work.sums, work.best, blocks,
        GAMMA=gamma, BLOCK=BLOCK, STEPS=steps,
    )  # fmt: skip
    accept_kernel[(rows,)](
        *target, *ragged, *drafts, draft_temperature, accept, accept.stride(0), work.tops, work.sums, work.best, blocks,
        out.n_accepted, out.next_token, out.tokens, out.tokens.stride(0), work.kind, work.top, work.total,
        GAMMA=gamma, SPAN=span, WIDTH=width,
    )  # fmt: skip
    residual_kernel[(rows, parts)](
        *target, offsets, temperature, *drafts, *law, out.n_accepted, work.kind, work.top, work.total, work.residual,
        blocks, BLOCK=BLOCK, STEPS=steps,
    )  # fmt: skip
    draw_kernel[(rows,)](
        *target, offsets, temperature, *drafts, *law, residual, bonus, work.tops, work.sums, work.residual, blocks,
        out.n_accepted, out.next_token, out.tokens, out.tokens.stride(0), work.kind, work.top, work.total,
        GAMMA=gamma, BLOCK=BLOCK, SPAN=span,
    )  # fmt: skip
    return out


@triton.jit
def place(row, lengths, offsets, batch, GAMMA: tl.constexpr):
    """Return a row's first token, its length, and whether that many tokens are there."""
    first = tl.load(offsets + row).to(tl.int64)
    after = tl.load(offsets + row + 1).to(tl.int64)
    length = tl.load(lengths + row).to(tl.int64)
    there = (length >= 0) & (length <= GAMMA) & (first >= 0) & (after <= batch) & (after - first == length + 1)
    return first, length, there


@triton.jit
def inverse(temperature):
    """Return log2(e) / temperature, finite and above 0 for any temperature that is not negative."""
    return tl.minimum(LOG2_E / tl.where(temperature > 0.0, temperature, 1.0), HUGE)


@triton.jit
def residual_weights(target, draft, column, vocabulary, drafted, top, scale, total, anchor, draft_scale, p, certain):
    """Return max(p_t - p_d, 0) of some columns; NaN where the draft's law is none."""
    inside = column < vocabulary
    logit = tl.load(target + column, mask=inside, other=float("-inf")).to(tl.float32)
    p_t = tl.exp2((logit - top) * scale) / total
    logit = tl.load(draft + column, mask=inside, other=float("-inf")).to(tl.float32)
    p_d = p * tl.exp2((logit - anchor) * draft_scale)
    p_d = tl.where(certain, tl.where(column == drafted, 1.0, 0.0), p_d)
    # A maximum would drop NaN on a GPU and keep it in the interpreter.
    return tl.where(p_d == p_d, tl.where(p_d < p_t, p_t - p_d, 0.0), p_d)


@triton.jit
def sums_kernel(
    target, stride_target, batch, vocabulary, lengths, offsets, temperature, tops, sums, best, blocks,
    GAMMA: tl.constexpr, BLOCK: tl.constexpr, STEPS: tl.constexpr,
):  # fmt: skip
    """Maximum and sum of exponentials of each block; grid ``(R, g + 1, tiles(V, tile))``."""
    row = tl.program_id(0).to(tl.int64)
    position = tl.program_id(1)
    first, length, there = place(row, lengths, offsets, batch, GAMMA)
    if there & (position <= length):
        heat = tl.load(temperature + row)
        scale = inverse(heat)
        # Offsets can pass 2^31 elements: tokens are multiplied by strides in int64.
        logits = target + (first + position) * stride_target
        slots = (row * (GAMMA + 1) + position) * blocks
        for step in range(STEPS):
            block = tl.program_id(2) * STEPS + step
            column = block * BLOCK + tl.arange(0, BLOCK)
            logit = tl.load(logits + column, mask=column < vocabulary, other=float("-inf")).to(tl.float32)
            clean = tl.where(logit == logit, logit, float("-inf"))
            top = tl.max(clean, axis=0)
            if heat == 0.0:
                highest = tl.min(tl.where(clean == top, column, NOWHERE), axis=0)
                tl.store(best + slots + block, highest, mask=block < blocks)
                numbers = tl.min((logit == logit).to(tl.int32), axis=0)
                total = tl.where(numbers == 1, 1.0, float("nan"))
            else:
                # A block of -inf alone sums to 0, which takes a finite maximum; NaN and +inf make the sum NaN.
                finite = tl.where(top == float("-inf"), 0.0, top)
                total = tl.sum(tl.exp2((logit - finite) * scale), axis=0)
            tl.store(tops + slots + block, top, mask=block < blocks)
            tl.store(sums + slots + block, total, mask=block < blocks)


@triton.jit
def accept_kernel(
    target, stride_target, batch, vocabulary, lengths, offsets, temperature, drafts, stride_drafts, p_draft,
    stride_p, draft_temperature, accept, stride_accept, tops, sums, best, blocks, n_accepted, next_token, tokens,
    stride_tokens, kinds, row_top, row_total,
    GAMMA: tl.constexpr, SPAN: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Walk of a row along its drafts; grid ``(R,)``."""
    row = tl.program_id(0).to(tl.int64)
    first, length, there = place(row, lengths, offsets, batch, GAMMA)
    heat = tl.load(temperature + row)
    greedy = heat == 0.0
    sampled = (heat > 0.0) & (heat < float("inf"))
    scale = inverse(heat)
    certain = tl.load(draft_temperature + row) == 0.0
    walking = there & (greedy | sampled)
    accepted = tl.full((), 0, tl.int32)
    kind = tl.full((), 0, tl.int32)
    token = tl.full((), -1, tl.int32)
    last_top = tl.full((), 0.0, tl.float32)
    last_total = tl.full((), 1.0, tl.float32)
    block = tl.arange(0, SPAN)
    for position in range(GAMMA + 1):
        if walking:
            slots = (row * (GAMMA + 1) + position) * blocks
            block_tops = tl.load(tops + slots + block, mask=block < blocks, other=float("-inf"))
            block_sums = tl.load(sums + slots + block, mask=block < blocks, other=0.0)
            top = tl.max(block_tops, axis=0)
            finite = tl.where((top > float("-inf")) & (top < float("inf")), top, 0.0)
            total = tl.sum(block_sums * tl.exp2((block_tops - finite) * scale), axis=0)
            lawful = (total == total) & (top == finite)
            at = tl.min(tl.where(block_tops == top, block, NOWHERE), axis=0)
            highest = tl.load(best + slots + at, mask=greedy & lawful, other=-1)

            judged = position < length
            drafted = tl.load(drafts + row * stride_drafts + position, mask=judged, other=-1).to(tl.int64)
            p_d = tl.load(p_draft + row * stride_p + position, mask=judged, other=0.0)
            uniform = tl.load(accept + row * stride_accept + position, mask=judged, other=1.0)
            known = (drafted >= 0) & (drafted < vocabulary)
            here = target + (first + position) * stride_target + drafted
            logit = tl.load(here, mask=known, other=float("-inf")).to(tl.float32)
            p_t = tl.exp2((logit - finite) * scale) / total
            proper = p_d >= 0.0  # not NaN
            passes = proper & (uniform * tl.where(certain, 1.0, p_d) < p_t)
            leaves = lawful & known & ((greedy & (drafted == highest)) | (sampled & passes))
            if leaves:
                accepted += 1
            elif lawful:
                how = tl.where(known & proper, RESIDUAL, REPLACED)
                kind = tl.where(greedy, DONE, tl.where(judged, how, BONUS))
                token = highest
                last_top = top
                last_total = total
            walking = leaves
    tl.store(n_accepted + row, accepted)
    tl.store(next_token + row, token)
    tl.store(kinds + row, kind)
    tl.store(row_top + row, last_top)
    tl.store(row_total + row, last_total)
    position = tl.arange(0, WIDTH)
    kept = tl.load(drafts + row * stride_drafts + position, mask=position < accepted, other=-1).to(tl.int32)
    kept = tl.where(position == accepted, token, kept)
    tl.store(tokens + row * stride_tokens + position, kept, mask=position <= GAMMA)


@triton.jit
def residual_kernel(
    target, stride_target, batch, vocabulary, offsets, temperature, drafts, stride_drafts, p_draft, stride_p, draft,
    stride_row, stride_position, draft_temperature, n_accepted, kinds, row_top, row_total, residual, blocks,
    BLOCK: tl.constexpr, STEPS: tl.constexpr,
):  # fmt: skip
    """Residual mass of each block of a row that rejected a draft; grid ``(R, tiles(V, tile))``."""
    row = tl.program_id(0).to(tl.int64)
    if tl.load(kinds + row) == RESIDUAL:
        rejected = tl.load(n_accepted + row).to(tl.int64)
        drafted = tl.load(drafts + row * stride_drafts + rejected).to(tl.int64)
        logits = target + (tl.load(offsets + row).to(tl.int64) + rejected) * stride_target
        law = draft + row * stride_row + rejected * stride_position
        p_d = tl.load(p_draft + row * stride_p + rejected)
        anchor = tl.load(law + drafted).to(tl.float32)
        scale = inverse(tl.load(temperature + row))
        heat = tl.load(draft_temperature + row)
        draft_scale = inverse(heat)
        top = tl.load(row_top + row)
        total = tl.load(row_total + row)
        for step in range(STEPS):
            block = tl.program_id(1) * STEPS + step
            column = block * BLOCK + tl.arange(0, BLOCK)
            weights = residual_weights(
                logits, law, column, vocabulary, drafted, top, scale, total, anchor, draft_scale, p_d, heat == 0.0
            )
            tl.store(residual + row * blocks + block, tl.sum(weights, axis=0), mask=block < blocks)


@triton.jit
def draw_kernel(
    target, stride_target, batch, vocabulary, offsets, temperature, drafts, stride_drafts, p_draft, stride_p, draft,
    stride_row, stride_position, draft_temperature, residual_uniform, bonus_uniform, tops, sums, residual, blocks,
    n_accepted, next_token, tokens, stride_tokens, kinds, row_top, row_total,
    GAMMA: tl.constexpr, BLOCK: tl.constexpr, SPAN: tl.constexpr,
):  # fmt: skip
    """Last token of a row, by inverse CDF: the block, then the token in it; grid ``(R,)``."""
    row = tl.program_id(0).to(tl.int64)
    kind = tl.load(kinds + row)
    if kind != DONE:
        accepted = tl.load(n_accepted + row).to(tl.int64)
        logits = target + (tl.load(offsets + row).to(tl.int64) + accepted) * stride_target
        scale = inverse(tl.load(temperature + row))
        top = tl.load(row_top + row)
        total = tl.load(row_total + row)

        # Groups of GROUP, since prefix sums are taken in squares; see `draw_block`.
        member = tl.arange(0, GROUP)[None, :]
        block = tl.arange(0, SPAN // GROUP)[:, None] * GROUP + member
        slots = (row * (GAMMA + 1) + accepted) * blocks + block
        block_tops = tl.load(tops + slots, mask=block < blocks, other=float("-inf"))
        masses = tl.load(sums + slots, mask=block < blocks, other=0.0) * tl.exp2((block_tops - top) * scale)
        over = tl.load(residual + row * blocks + block, mask=block < tl.where(kind == RESIDUAL, blocks, 0), other=0.0)
        from_residual = tl.sum(over) > 0.0  # neither 0 nor NaN
        masses = tl.where(from_residual, over, masses)
        uniform = tl.load(residual_uniform + row)
        if kind == BONUS:
            uniform = tl.load(bonus_uniform + row)
        chosen, share = draw_block(masses, uniform, SPAN // GROUP)

        place_in_block = tl.arange(0, BLOCK // GROUP)[:, None] * GROUP + member
        column = chosen * BLOCK + place_in_block
        logit = tl.load(logits + column, mask=column < vocabulary, other=float("-inf")).to(tl.float32)
        weights = tl.exp2((logit - top) * scale)
        likeliest = tl.min(tl.where(logit == tl.max(logit), place_in_block, NOWHERE))
        if from_residual:
            drafted = tl.load(drafts + row * stride_drafts + accepted).to(tl.int64)
            law = draft + row * stride_row + accepted * stride_position
            anchor = tl.load(law + drafted).to(tl.float32)
            p_d = tl.load(p_draft + row * stride_p + accepted)
            heat = tl.load(draft_temperature + row)
            weights = residual_weights(
                logits, law, column, vocabulary, drafted, top, scale, total, anchor, inverse(heat), p_d, heat == 0.0
            )
        drawn, share = draw_block(weights, share, BLOCK // GROUP)
        # Weights that were an ulp above 0 when they were summed may have been contracted otherwise here.
        drawn = tl.where(tl.sum(weights) > 0.0, drawn, likeliest)
        token = (chosen * BLOCK + drawn).to(tl.int32)
        tl.store(next_token + row, token)
        tl.store(tokens + row * stride_tokens + accepted, token)


def _span(blocks: int) -> int:
    """Return room for blocks: a power of two, whole groups."""
    return max(int(GROUP.value), 1 << (blocks - 1).bit_length())


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
    expected = VerifyWorkspace.allocate(rows, gamma, vocabulary, "meta")
    for name, like in vars(expected).items():
        tensor = check_tensor(f"workspace.{name}", getattr(work, name), tuple(like.shape), (like.dtype,), device)
        if not tensor.is_contiguous():
            raise KernelError(f"`workspace.{name}` must be contiguous; take what `VerifyWorkspace.allocate` returns")


IDS_IN = ("lengths", "offsets", "drafts", "best", "n_accepted", "next_token", "tokens", "kinds")


def _form(function: Any, logits: str, vocabulary: int, gamma: int, strides: str) -> Configuration:
    """Return a compiled form of one of the kernels above, from the names of its arguments."""
    known = {
        "GAMMA": gamma,
        "BLOCK": BLOCK,
        "STEPS": 4,
        "SPAN": _span(tiles(vocabulary, BLOCK)),
        "WIDTH": triton.next_power_of_2(gamma + 1),
    }
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
