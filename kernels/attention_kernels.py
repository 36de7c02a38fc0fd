"""Device side of attention: one kernel for a part of the context, one that adds up the parts."""

from __future__ import annotations

import math

import triton
import triton.language as tl

from .common import dot

FAR = tl.constexpr(1 << 30)
"""Above any position."""

_LN2 = tl.constexpr(math.log(2.0))


@triton.jit
def _step(
    acc, top, total, q, k_cache, v_cache, table, pages, k_page, k_slot, v_page, v_slot, place, low, start, begin, end,
    scale_log2, HEAD: tl.constexpr, PAGE: tl.constexpr, KEYS: tl.constexpr, EDGE: tl.constexpr, SHARED: tl.constexpr,
    INTERPRETING: tl.constexpr,
):  # fmt: skip
    """Take `KEYS` keys from `start` on into the online softmax; under EDGE some may be out of a token's sight."""
    keys = start + tl.arange(0, KEYS)
    column = tl.arange(0, HEAD)
    wanted = (keys >= begin) & (keys < end)
    if PAGE % KEYS == 0:
        # One page holds the step, and the loop takes no step without a wanted key: one look into the table.
        page = tl.load(table + start // PAGE) + tl.full([KEYS], 0, tl.int32)
    else:
        page = tl.load(table + keys // PAGE, mask=wanted, other=0)
    known = (page >= 0) & (page < pages)
    held = known & wanted if EDGE else known
    # Strides come in sixteenths, so that the compiler sees rows aligned; pages can lie beyond 2^31 elements.
    page_index = page.to(tl.int64)
    slot = keys % PAGE
    k_row = page_index * k_page * 16 + slot.to(tl.int64) * k_slot * 16
    v_row = page_index * v_page * 16 + slot.to(tl.int64) * v_slot * 16
    k = tl.load(k_cache + k_row[:, None] + column[None, :], mask=held[:, None], other=0.0)
    v = tl.load(v_cache + v_row[:, None] + column[None, :], mask=held[:, None], other=0.0)
    scores = tl.where(known[None, :], dot(q, tl.trans(k), INTERPRETING), float("nan"))
    if EDGE:
        seen = (keys[None, :] <= place[:, None]) & (keys[None, :] >= low[:, None])
        scores = tl.where(seen, scores, float("-inf"))
    # A row that has seen nothing keeps a top of -inf; its exponents are taken from 0, or they would be NaN.
    new_top = tl.maximum(top, tl.max(scores, axis=1))
    reference = tl.where(new_top == float("-inf"), 0.0, new_top)
    # Subtracted first, scaled then: no exponent is above 0 however large the scores, and nothing can be fused that an
    # edge step, which selects in between, would round differently.
    weights = tl.exp2((scores - reference[:, None]) * scale_log2)
    shrink = tl.exp2((top - reference) * scale_log2)
    # Spelled out as fma, so that no compiler chooses between one rounding and two.
    total = tl.fma(total, shrink, tl.sum(weights, axis=1))
    if EDGE and SHARED:
        # A weight of 0 does not silence an infinite value: a token that cannot see it must not meet it.
        finite = tl.abs(v.to(tl.float32)) < float("inf")
        spoilt = tl.max((~finite).to(tl.int32), axis=1) > 0
        weights = tl.where(seen & spoilt[None, :], float("nan"), weights)
        v = tl.where(finite, v, 0.0)
    # A product's operands have one type, so weights are rounded to that of the values; their sum above is of full ones.
    acc = acc * shrink[:, None] + dot(weights.to(v.dtype), v, INTERPRETING)
    return acc, new_top, total


@triton.jit
def _scan(
    acc, top, total, q, k_cache, v_cache, table, pages, k_page, k_slot, v_page, v_slot, place, low, begin, end,
    scale_log2, HEAD: tl.constexpr, PAGE: tl.constexpr, KEYS: tl.constexpr, TURN: tl.constexpr, EDGE: tl.constexpr,
    SHARED: tl.constexpr, INTERPRETING: tl.constexpr,
):  # fmt: skip
    """Take the keys from `begin` to `end` in steps of KEYS that start at its multiples, TURN keys a turn."""
    for first in range(begin // KEYS * KEYS, end, TURN):
        for step in tl.static_range(TURN // KEYS):
            acc, top, total = _step(
                acc, top, total, q, k_cache, v_cache, table, pages, k_page, k_slot, v_page, v_slot, place, low,
                first + step * KEYS, begin, end, scale_log2, HEAD, PAGE, KEYS, EDGE, SHARED, INTERPRETING,
            )  # fmt: skip
    return acc, top, total


@triton.jit
def _bounds(place, low, live, share, split, KEYS: tl.constexpr, TURN: tl.constexpr):
    """Return where a part of the context begins and ends, and the stretch in it that every token sees whole.

    The first token's own context is cut into `split` parts of whole steps; what lies beyond it, the drafts, goes to the
    part it falls in, the last one at the latest. So no cut depends on how many drafts there are.
    """
    highest = tl.max(tl.where(live, place, -1)) + 1
    nearest = tl.maximum(tl.minimum(tl.min(tl.where(live, place, FAR)) + 1, highest), 0)
    oldest = tl.minimum(tl.min(tl.where(live, low, FAR)), highest)
    newest_low = tl.max(tl.where(live, low, 0))
    base = oldest // KEYS * KEYS
    steps = (tl.maximum(nearest - base, 0) + KEYS - 1) // KEYS
    size = (steps + split - 1) // split * KEYS
    # Every cut is a multiple of KEYS; a part that lies beyond the context has its begin after its end.
    cut = base + share * size
    end = tl.where(share == split - 1, highest, tl.minimum(cut + size, highest))
    inner = tl.maximum((newest_low + KEYS - 1) // KEYS * KEYS, cut)
    outer = tl.maximum(tl.minimum(nearest // KEYS * KEYS, end), inner)
    return tl.maximum(cut, oldest), inner, inner + (outer - inner) // TURN * TURN, end


@triton.jit(
    do_not_specialize=[
        "pages", "k_page", "k_slot", "k_head", "v_page", "v_slot", "v_head", "q_token", "q_head", "requests", "width",
        "table_row", "batch", "window", "split",
    ]
)  # fmt: skip
def attention_parts(
    q_ptr, k_cache, v_cache, block_table, request, position, offsets, parts, tops, totals, pages, k_page, k_slot,
    k_head, v_page, v_slot, v_head, q_token, q_head, requests, width, table_row, batch, window, split, scale_log2,
    PACKED: tl.constexpr, WINDOWED: tl.constexpr, GROUP: tl.constexpr, HEADS: tl.constexpr, HEAD: tl.constexpr,
    PAGE: tl.constexpr, TOKENS: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, TURN: tl.constexpr,
    INTERPRETING: tl.constexpr,
):  # fmt: skip
    """One tile of pairs of token and query head, one key/value head, one part of the context; grid in that order."""
    TILES: tl.constexpr = (TOKENS * GROUP + ROWS - 1) // ROWS
    unit = tl.program_id(0) // TILES
    kv_head = tl.program_id(1)
    share = tl.program_id(2)
    if PACKED:
        row = unit
        first = tl.load(offsets + unit)
        count = tl.minimum(tl.load(offsets + unit + 1) - first, TOKENS)
    else:
        row = tl.load(request + unit)
        first = unit
        count = 1
    line = tl.program_id(0) % TILES * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, HEAD)
    token = first + line // GROUP
    here = (line // GROUP < count) & (token >= 0) & (token < batch)
    marker = tl.load(request + token, mask=here, other=-1)
    real = here & (marker >= 0)
    place = tl.load(position + token, mask=real, other=-1)
    # Offsets only find tokens; what a token sees is for its markers to say. One of another row is not served here.
    live = real & (marker == row) & (marker < requests) & (place < width * PAGE)
    place = tl.where(live, place, -1)
    low = tl.full([ROWS], 0, tl.int32)
    if WINDOWED:
        low = tl.maximum(place - window + 1, low)
    begin, inner, outer, end = _bounds(place, low, live, share, split, KEYS, TURN)
    query = token.to(tl.int64) * q_token * 16 + (kv_head * GROUP + line % GROUP).to(tl.int64) * q_head * 16
    q = tl.load(q_ptr + query[:, None] + column[None, :], mask=live[:, None], other=0.0)
    k_base = k_cache + kv_head.to(tl.int64) * k_head * 16
    v_base = v_cache + kv_head.to(tl.int64) * v_head * 16
    table = block_table + row.to(tl.int64) * table_row
    top = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.full([ROWS], 0.0, tl.float32)
    acc = tl.full([ROWS, HEAD], 0.0, tl.float32)
    # Three stretches: where windows begin, what all tokens see whole (no masks), and where the tokens themselves end.
    if WINDOWED:
        acc, top, total = _scan(
            acc, top, total, q, k_base, v_base, table, pages, k_page, k_slot, v_page, v_slot, place, low, begin,
            tl.minimum(inner, end), scale_log2, HEAD, PAGE, KEYS, KEYS, True, TOKENS > 1, INTERPRETING,
        )  # fmt: skip
    acc, top, total = _scan(
        acc, top, total, q, k_base, v_base, table, pages, k_page, k_slot, v_page, v_slot, place, low, inner, outer,
        scale_log2, HEAD, PAGE, KEYS, TURN, False, TOKENS > 1, INTERPRETING,
    )  # fmt: skip
    acc, top, total = _scan(
        acc, top, total, q, k_base, v_base, table, pages, k_page, k_slot, v_page, v_slot, place, low, outer, end,
        scale_log2, HEAD, PAGE, KEYS, KEYS, True, TOKENS > 1, INTERPRETING,
    )  # fmt: skip
    # A token whose marker or position the table cannot serve has no context; it must not pass for an empty one.
    total = tl.where(live, total, float("nan"))
    cell = (share.to(tl.int64) * batch + token) * HEADS + kv_head * GROUP + line % GROUP
    tl.store(parts + (cell * HEAD)[:, None] + column[None, :], acc, mask=real[:, None])
    tl.store(tops + cell, top, mask=real)
    tl.store(totals + cell, total, mask=real)


@triton.jit(do_not_specialize=["requests", "batch", "split"])
def attention_combine(
    request, offsets, parts, tops, totals, o, lse, requests, batch, split, scale_log2,
    PACKED: tl.constexpr, TOKENS: tl.constexpr, HEADS: tl.constexpr, HEAD: tl.constexpr, LINES: tl.constexpr,
):  # fmt: skip
    """Add up the parts of one token and `LINES` of its query heads, first part first."""
    token = tl.program_id(0)
    head = tl.program_id(1) * LINES + tl.arange(0, LINES)
    column = tl.arange(0, HEAD)
    marker = tl.load(request + token)
    held = marker >= 0
    if PACKED:
        # Cells that no program has written are never read: a token outside its row's offsets has no result.
        known = held & (marker < requests)
        first = tl.load(offsets + marker, mask=known, other=0)
        beyond = tl.minimum(tl.load(offsets + marker + 1, mask=known, other=0), first + TOKENS)
        held = known & (token >= first) & (token < beyond)
    # Padding has no part at all: its sums stay 0, which gives o = 0 and lse = -inf below.
    count = tl.where(held, split, 0)
    inside = head < HEADS
    out = token.to(tl.int64) * HEADS + head
    top = tl.full([LINES], float("-inf"), tl.float32)
    cell = out
    for _ in range(count):
        top = tl.maximum(top, tl.load(tops + cell, mask=inside, other=0.0))
        cell += batch * HEADS
    reference = tl.where(top == float("-inf"), 0.0, top)
    total = tl.full([LINES], 0.0, tl.float32) + tl.where((marker >= 0) & (count == 0), float("nan"), 0.0)
    acc = tl.full([LINES, HEAD], 0.0, tl.float32)
    cell = out
    for _ in range(count):
        weight = tl.exp2((tl.load(tops + cell, mask=inside, other=0.0) - reference) * scale_log2)
        total = tl.fma(tl.load(totals + cell, mask=inside, other=0.0), weight, total)
        part = tl.load(parts + (cell * HEAD)[:, None] + column[None, :], mask=inside[:, None], other=0.0)
        acc = tl.fma(part, weight[:, None], acc)
        cell += batch * HEADS
    # Nothing was seen: 0 over 1, not NaN.
    whole = tl.where(total == 0.0, 1.0, total)
    result = (acc / whole[:, None]).to(o.dtype.element_ty)
    tl.store(o + (out * HEAD)[:, None] + column[None, :], result, mask=inside[:, None])
    tl.store(lse + out, tl.where(total == 0.0, float("-inf"), (top * scale_log2 + tl.log2(whole)) * _LN2), mask=inside)
