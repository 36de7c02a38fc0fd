"""The two kernels of the Markov head's draft block; what they do, and why so, is told in `markov`.

Sizes and strides of the model are compiled in: they don't change, and loads are only as wide as what divides them.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .common import dot

BLOCK = tl.constexpr(64)
"""Tokens of a reduction block, and blocks of a group."""

INVERSE_CDF = tl.constexpr(0)
GUMBEL = tl.constexpr(1)
GREEDY = tl.constexpr(2)

# Outside of these a temperature is taken for a caller's mistake; 0 alone means greedy.
COLDEST = tl.constexpr(1e-6)
HOTTEST = tl.constexpr(1e6)

LOG2E = tl.constexpr(1.4426950408889634)
_FLOOR = tl.constexpr(-86.5617024533378)
"""``log2(exp(-60))``."""


@triton.jit
def hidden_rows(previous, previous_stride, rows, inside, V: tl.constexpr, GATHER: tl.constexpr):
    """Return which row of ``source`` multiplies W2 in each row, and whether there is one."""
    place = rows.to(tl.int64)
    if GATHER:
        ids = tl.load(previous + place * previous_stride, mask=inside, other=0)
        inside = inside & (ids >= 0) & (ids < V)
        # Row 0 in the place of an unknown id, and never read: no address outside the table is formed.
        place = tl.where(inside, ids, 0).to(tl.int64)
    return place, inside


@triton.jit
def hidden_chunk(source, source_stride: tl.constexpr, place, there, start, RANK: tl.constexpr, CHUNK: tl.constexpr):
    """Return ``CHUNK`` of the rank, ``[CHUNK, rows]``; zeros where there is no row."""
    rank = start + tl.arange(0, CHUNK)
    mask = (rank < RANK)[:, None] & there[None, :]
    # Turned as it is loaded: hidden vectors are the right operand, [rank, rows], of W2's [tokens, rank].
    return tl.load(source + place[None, :] * source_stride + rank[:, None], mask=mask, other=0.0)


@triton.jit
def block_logits(
    U, u_stride: tl.constexpr, hidden, source, source_stride: tl.constexpr, place, there, W2T,
    w_stride: tl.constexpr, tokens, rows, inside, V: tl.constexpr, RANK: tl.constexpr, CHUNK: tl.constexpr,
    INTERPRETING: tl.constexpr,
):  # fmt: skip
    """Return the logits ``[BLOCK, rows]`` of one block in float32; -inf past the vocabulary.

    The first chunk of the rank is the caller's, who keeps it for many blocks; 16-bit types have no other up to 256.
    """
    known = tokens < V
    rank = tl.arange(0, CHUNK)
    weights = W2T + tokens.to(tl.int64)[:, None] * w_stride + rank[None, :]
    product = dot(tl.load(weights, mask=known[:, None] & (rank < RANK)[None, :], other=0.0), hidden, INTERPRETING)
    for start in range(CHUNK, RANK, CHUNK):
        more = tl.load(weights + start, mask=known[:, None] & (start + rank < RANK)[None, :], other=0.0)
        chunk = hidden_chunk(source, source_stride, place, there, start, RANK, CHUNK)
        product += dot(more, chunk, INTERPRETING)
    # Widened before the sum: a logit of Eq. 4 is U + B, and bf16 would round it to 8 bits before anything is drawn.
    base = tl.load(
        U + rows.to(tl.int64)[None, :] * u_stride + tokens[:, None], mask=known[:, None] & inside[None, :], other=0.0
    ).to(tl.float32)
    return tl.where(known[:, None], base + product, float("-inf"))


@triton.jit
def row_logits(
    U, hidden, length, W2T, w_stride: tl.constexpr, tokens, V: tl.constexpr, RANK: tl.constexpr,
    CHUNK: tl.constexpr,
):  # fmt: skip
    """Return the logits ``[BLOCK]`` of one block in one row, given by pointers; ``hidden`` counts up to ``length``.

    In float32 without tensor cores: one row would leave them idle but for a sixteenth. The order of additions is not
    phase 1's, so logits may differ from those in the last bits.
    """
    known = tokens < V
    rank = tl.arange(0, CHUNK)
    weights = W2T + tokens.to(tl.int64)[:, None] * w_stride + rank[None, :]
    # No `dot`, whose form of this phase also crashes Triton 3.7.1 for sm_100 (docs/LOG.md).
    product = tl.zeros([BLOCK], tl.float32)
    for start in range(0, RANK, CHUNK):
        each = tl.load(hidden + start + rank, mask=start + rank < length, other=0.0).to(tl.float32)
        mask = known[:, None] & (start + rank < RANK)[None, :]
        product += tl.sum(tl.load(weights + start, mask=mask, other=0.0).to(tl.float32) * each[None, :], 1)
    base = tl.load(U + tokens, mask=known, other=0.0).to(tl.float32)
    return tl.where(known, base + product, float("-inf"))


@triton.jit
def usable(temperature):
    """Return the temperature where it divides logits, and 0 where it does not (greedy, or no temperature)."""
    return tl.where((temperature >= COLDEST) & (temperature <= HOTTEST), temperature, 0.0)


@triton.jit
def log2_scale(temperature):
    """Return what turns differences of logits into powers of two; temperature 1 stands in for 0."""
    return LOG2E / tl.where(temperature > 0, temperature, 1.0)


@triton.jit
def gumbel_noise(seed, tokens, rows, position):
    """Return standard Gumbel noise ``[tokens, rows]``, keyed by seed, row, position and token.

    It is ``-log(E)`` for an exponential ``E = -log(1 - u)``. The winner among many tokens has a small ``E``, so this
    end gets the resolution: ``u`` has a spacing of 2^-32 there, and a series replaces the logarithm of nearly 1.
    """
    bits, _, _, _ = tl.philox(seed, tokens[:, None], rows[None, :], position, 0)
    # Half a spacing up, so that u is never 0; 1 - 2^-24 at most, so that 1 - u is never 0 in float32.
    u = tl.minimum((bits.to(tl.float32) + 0.5) * 2.3283064365386963e-10, 0.99999994)
    series = u * (1.0 + u * (0.5 + u * (0.33333334 + u * 0.25)))
    exponential = tl.where(u < 0.01, series, -tl.log(1.0 - u))
    return -tl.log(exponential)


# Triton would compile anew for values of 1 and for multiples of 16: no position of a block needs code of its own.
@triton.jit(do_not_specialize=["position"])
def markov_scan(
    U, u_stride: tl.constexpr, source, source_stride: tl.constexpr, W2T, w_stride: tl.constexpr, previous,
    previous_stride, temperature, maxima, sums, best, best_tokens, seed, position, R, V: tl.constexpr, blocks,
    RANK: tl.constexpr, CHUNK: tl.constexpr, METHOD: tl.constexpr, GATHER: tl.constexpr, ROWS: tl.constexpr,
    STEPS: tl.constexpr, INTERPRETING: tl.constexpr,
):  # fmt: skip
    """Phase 1: ``STEPS`` blocks of the vocabulary for ``ROWS`` rows; row tiles vary fastest, so W2 is read from cache.

    The vocabulary is the M axis of the product: it is always 64 wide, however few rows there are.
    """
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = rows < R
    place, there = hidden_rows(previous, previous_stride, rows, inside, V, GATHER)
    hidden = hidden_chunk(source, source_stride, place, there, 0, RANK, CHUNK)
    # 0 stands for greedy here: no scale is taken from it (`log2_scale`), and it adds no noise.
    heat = tl.zeros([ROWS], tl.float32)
    if METHOD != GREEDY:
        heat = usable(tl.load(temperature + rows, mask=inside, other=0.0))
    scale = log2_scale(heat)
    # Hidden vectors stay on chip while W2 streams by, once for all of these rows.
    for step in range(STEPS):
        block = tl.program_id(1) * STEPS + step
        tokens = block * BLOCK + tl.arange(0, BLOCK)
        logits = block_logits(
            U, u_stride, hidden, source, source_stride, place, there, W2T, w_stride, tokens, rows, inside, V,
            RANK, CHUNK, INTERPRETING,
        )  # fmt: skip
        top = tl.max(logits, 0)
        # A block of -inf alone has no top to subtract: -inf minus -inf is NaN, and tokens ruled out would take the
        # row's law along.
        reference = tl.where(top == float("-inf"), 0.0, top)
        # Subtracted first, scaled then: no exponent is above 0, however cold the row.
        mass = tl.sum(tl.exp2((logits - reference[None, :]) * scale[None, :]), 0)
        cell = rows.to(tl.int64) * blocks + block
        stored = inside & (rows * 0 + block < blocks)
        tl.store(maxima + cell, top, mask=stored)
        tl.store(sums + cell, mass, mask=stored)
        if METHOD == GUMBEL:
            # Whether a maximum keeps NaN depends on the backend. Here it never wins; phase 2 finds it in the sums.
            clean = tl.where(logits == logits, logits, float("-inf"))
            noisy = clean + heat[None, :] * gumbel_noise(tl.load(seed), tokens, rows, position)
            # Ties go left in the block here and between blocks in phase 2: together the leftmost token of all.
            highest, where = tl.max(noisy, 0, return_indices=True, return_indices_tie_break_left=True)
            tl.store(best + cell, highest, mask=stored)
            tl.store(best_tokens + cell, block * BLOCK + where, mask=stored)


@triton.jit
def first_above(mass, share, N: tl.constexpr):
    """Return the first place whose prefix sum is above a share of the total, and how far into its mass the share is.

    Prefix sums are monotone, and level where there is no mass, so it never is a place without mass; where rounding has
    put the target past the end, it is the last with mass.
    """
    place = tl.arange(0, N)
    # A square of additions instead of a scan: each prefix is one tree with leaves set to 0, so prefixes cannot fall.
    upto = tl.sum(tl.where(place[None, :] <= place[:, None], mass[None, :], 0.0), 1)
    target = share * tl.max(upto, 0)
    # Above, not at: a token's share is closed below and open above, as uniforms lie in [0, 1).
    found = tl.min(tl.where((upto > target) & (mass > 0), place, N), 0)
    found = tl.minimum(found, tl.max(tl.where(mass > 0, place, 0), 0))
    # Monotone prefixes make the greatest of those before the last of them.
    before = tl.max(tl.where(place < found, upto, 0.0), 0)
    own = tl.sum(tl.where(place == found, mass, 0.0), 0)
    return found, tl.maximum(target - before, 0.0) / tl.maximum(own, 1e-37)


@triton.jit
def draw_block(mass, uniform, GROUPS: tl.constexpr):
    """Return the block that a uniform falls in, and how far into its mass (0 to 1)."""
    # One uniform for both levels: given the group, how far into its mass the uniform lies is uniform again. The same
    # uniform twice would not be.
    group, share = first_above(tl.sum(mass, 1), uniform, GROUPS)
    members = tl.sum(tl.where(tl.arange(0, GROUPS)[:, None] == group, mass, 0.0), 0)
    member, share = first_above(members, share, BLOCK)
    return group * BLOCK + member, share


@triton.jit
def leftmost(values, top, index, none):
    """Return the smallest index at which values are at the top, or ``none``."""
    return tl.min(tl.where(values == top, index, none))


@triton.jit
def place_in_block(logits, power, share, heat, METHOD: tl.constexpr):
    """Return the place of the token in its block: the leftmost of the greatest, or where a share of the mass falls."""
    where = leftmost(logits, tl.max(logits, 0), tl.arange(0, BLOCK), BLOCK)
    if METHOD == INVERSE_CDF:
        # One power of two lower than for blocks: a block that was kept for its best token keeps that token here,
        # although its logit is computed again and may round lower.
        drawn, _ = first_above(tl.where(power >= _FLOOR - 1.0, tl.exp2(power), 0.0), share, BLOCK)
        where = tl.where(heat == 0, where, drawn)
    return where


@triton.jit
def markov_pick(
    U, u_stride: tl.constexpr, source, source_stride: tl.constexpr, W2T, w_stride: tl.constexpr, previous,
    previous_stride, temperature, uniforms, uniform_stride, maxima, sums, best, best_tokens, tokens_out, p_out,
    lse_out, out_stride, V: tl.constexpr, blocks, RANK: tl.constexpr, CHUNK: tl.constexpr, METHOD: tl.constexpr,
    GATHER: tl.constexpr, GROUPS: tl.constexpr,
):  # fmt: skip
    """Phase 2: one row: its block, the logits of that block again, the token, its probability and the row's lse."""
    row = tl.program_id(0).to(tl.int64)
    identity = tl.load(previous + row * previous_stride)
    known = (identity >= 0) & (identity < V)
    lawful = known
    heat = tl.full((), 0.0, tl.float32)
    uniform = tl.full((), 0.0, tl.float32)
    if METHOD != GREEDY:
        given = tl.load(temperature + row)
        heat = usable(given)
        # A temperature that `usable` replaced is none.
        lawful = lawful & (heat == given)
    if METHOD == INVERSE_CDF:
        uniform = tl.load(uniforms + row * uniform_stride)
        lawful = lawful & (uniform >= 0) & (uniform < 1)
    scale = log2_scale(heat)
    index = tl.arange(0, GROUPS)[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    # Every number of the row at once, [GROUPS, BLOCK]: which block is drawn depends on all of them.
    there = index < blocks
    tops = tl.load(maxima + row * blocks + index, mask=there, other=float("-inf"))
    parts = tl.load(sums + row * blocks + index, mask=there, other=0.0)
    top = tl.max(tops)
    # NaN and +inf among logits show as NaN in their block's sum; a row of -inf alone by its top.
    lawful = lawful & (tl.sum(tl.where(parts == parts, 0, 1)) == 0) & (top > float("-inf"))
    reference = tl.where(lawful, top, 0.0)
    power = tl.where(lawful, (tops - reference) * scale, 0.0)
    mass = tl.where(power >= _FLOOR, parts * tl.exp2(power), 0.0)
    total = tl.sum(mass)
    share = uniform
    if METHOD == GUMBEL:
        noisy = tl.load(best + row * blocks + index, mask=there, other=float("-inf"))
        block = leftmost(noisy, tl.max(noisy), index, blocks)
    else:
        block = leftmost(tops, top, index, blocks)
    if METHOD == INVERSE_CDF:
        drawn, share = draw_block(mass, uniform, GROUPS)
        block = tl.where(heat == 0, block, drawn)
    # Rows without a law are carried to the end with addresses that exist, and overwritten there.
    block = tl.where(lawful, block, 0)

    place = tl.arange(0, BLOCK)
    origin = row
    if GATHER:
        origin = tl.where(known, identity, 0).to(tl.int64)
    column = row_logits(
        # Length 0 for an unknown id: of a row that is not there nothing is read.
        U + row * u_stride, source + origin * source_stride, tl.where(known, RANK, 0), W2T, w_stride,
        block * BLOCK + place, V, RANK, CHUNK,
    )  # fmt: skip
    power = tl.where(lawful, (column - reference) * scale, 0.0)
    if METHOD == GUMBEL:
        where = tl.load(best_tokens + row * blocks + block) - block * BLOCK
    else:
        where = place_in_block(column, power, share, heat, METHOD)
    picked = tl.sum(tl.where(place == where, power, 0.0), 0)
    # The logit was computed again and may round above the total it is part of.
    p = tl.minimum(tl.exp2(picked) / total, 1.0)
    lse = reference / tl.where(heat > 0, heat, 1.0) + tl.log(total)
    tl.store(tokens_out + row * out_stride, tl.where(lawful, block * BLOCK + where, -1))
    tl.store(p_out + row * out_stride, tl.where(lawful, tl.where(heat == 0, 1.0, p), 0.0))
    tl.store(lse_out + row * out_stride, tl.where(lawful, lse, float("nan")))
