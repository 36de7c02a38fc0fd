"""The four kernels of verification, launched by `verify_chain`: sums, acceptance, residual mass, last token."""

from __future__ import annotations

import triton
import triton.language as tl

from .markov_kernels import BLOCK as GROUP
from .markov_kernels import LOG2E, draw_block

HUGE = tl.constexpr(3.0e38)
NOWHERE = tl.constexpr(2147483647)

# How a row's last token comes about: it is known already, or drawn from p_t behind all verified drafts, from the
# residual of a rejected draft, or from p_t in the place of a draft that has no law.
DONE = tl.constexpr(0)
BONUS = tl.constexpr(1)
RESIDUAL = tl.constexpr(2)
REPLACED = tl.constexpr(3)


@triton.jit
def place(row, lengths, offsets, batch, GAMMA: tl.constexpr):
    """Return a row's first token, its length, and whether that many tokens are there."""
    first = tl.load(offsets + row).to(tl.int64)
    after = tl.load(offsets + row + 1).to(tl.int64)
    length = tl.load(lengths + row).to(tl.int64)
    # Offsets and lengths are the device's: a row that contradicts itself gets no address and gives 0 and -1.
    there = (length >= 0) & (length <= GAMMA) & (first >= 0) & (after <= batch) & (after - first == length + 1)
    return first, length, there


@triton.jit
def inverse(temperature):
    """Return log2(e) / temperature, finite and above 0 for any temperature that is not negative."""
    # No tl.minimum: the interpreter of Triton 3.8 cannot take a constant there.
    scale = LOG2E / tl.where(temperature > 0.0, temperature, 1.0)
    return tl.where(scale < HUGE, scale, HUGE)


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
                # No exponentials for a greedy row: it needs the lowest id of the greatest logit, and to know of a NaN.
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
            # u < p_t / p_d without the division, which p_d = 0 would spoil. Strictly: at u = 0 a token without mass
            # must not leave.
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
        # Masked unless this row rejected: in others the workspace still holds an earlier step's masses.
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
