"""Attention of flattened queries over a paged cache: the tokens of a verification step, whatever request they are of.

Section 5 of the paper: the tokens of all requests are flattened and treated alike, and what a token may see comes from
a marker tensor. Here the markers are `request` and `position`: the token at position p of row r sees keys 0..p of row
r, or p-window+1..p under a sliding window. Keys and values of the step's own tokens are in the cache already.

One kernel in two variants. `token`: a program takes one token, one key/value head, one part of the context. `packed`: a
program takes all tokens of a request, which so share one reading of the keys. A second kernel adds up the parts.

The order of summation is fixed. Keys are taken in steps of `KEYS`, aligned to the start of the row, in ascending order;
parts follow each other in ascending order, and where they begin depends on the first token of a program, its window and
the number of parts. So, bit by bit:

- two calls agree;
- keys taken a turn (`AttentionTiles.turn`), page size and which pages a row owns change nothing;
- a token does not feel other rows, padding, its place in the batch, nor (`packed`) how many drafts come after it.

The number of parts changes the order, and so do the variant and `AttentionTiles.rows`, which selects another
tensor-core instruction: these agree to rounding only. The interpreter shows all of this; on a GPU it rests on the
compiler taking one instruction for equal shapes; expressions are written so that it has nothing to fuse at will.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from .attention_checks import (
    FAR,
    MAX_TOKENS,
    Sizes,
    check_dense,
    check_markers,
    check_numbers,
    check_sizes,
    listed,
    require,
)
from .attention_kernels import attention_combine, attention_parts
from .common import interpreting
from .common import tiles as covering
from .registry import Configuration, Kernel

KEYS = 32
"""Keys in one step of the online softmax; the unit of the order of summation."""

COMBINED_HEADS = 8
"""Query heads of one token whose parts a program adds up."""

ROW_TILES = (16, 32, 64)
# Whole steps: a turn only says how many are taken between two looks at the loop's bound.
TURNS = (KEYS, 2 * KEYS, 4 * KEYS)


class Attention(NamedTuple):
    """What attention returns.

    Attributes:
        o: [B, HQ, D], of the queries' type.
        lse: [B, HQ] float32, natural logarithm of the sum of exp(scaled score).
    """

    o: torch.Tensor
    lse: torch.Tensor


@dataclass(frozen=True)
class AttentionTiles:
    """How the work of a program is cut.

    Attributes:
        rows: pairs of token and query head in a program; 64 selects the warp-group instructions of sm_90.
        turn: keys a turn of the inner loop, a multiple of `KEYS`; changes no bit of the result.
        num_warps: warps of a program.
        num_stages: depth of software pipelining.
    """

    rows: int
    turn: int = KEYS
    num_warps: int = 4
    num_stages: int = 4

    @classmethod
    def choose(cls, group: int, max_tokens: int) -> AttentionTiles:
        """Return tiles that hold the pairs of `group` query heads and `max_tokens` tokens, 64 of them at most."""
        # The smallest tile that holds them, since lines without a pair are masked but multiplied all the same.
        wanted = group * max_tokens
        return cls(rows=next((rows for rows in ROW_TILES if rows >= wanted), ROW_TILES[-1]))


@dataclass(frozen=True)
class AttentionWorkspace:
    """Partial results between the two kernels, float32.

    Attributes:
        parts: [split_kv, B, HQ, D], sums of exp(scale (score - top)) v.
        tops: [split_kv, B, HQ], highest score of the part, not scaled.
        totals: [split_kv, B, HQ], sums of exp(scale (score - top)).
    """

    parts: torch.Tensor
    tops: torch.Tensor
    totals: torch.Tensor

    @classmethod
    def allocate(
        cls, split_kv: int, batch: int, query_heads: int, head_size: int, device: torch.device | str = "cpu"
    ) -> AttentionWorkspace:
        """Return a workspace for calls of these sizes."""
        sizes = (split_kv, batch, query_heads)
        # Parts outermost: the second kernel goes from part to part of a cell by one stride.
        parts = torch.empty(*sizes, head_size, dtype=torch.float32, device=device)
        return cls(parts, parts.new_empty(sizes), parts.new_empty(sizes))


def varlen_attention(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    block_table: torch.Tensor,
    request: torch.Tensor,
    position: torch.Tensor,
    offsets: torch.Tensor | None = None,
    *,
    window: int | None = None,
    split_kv: int = 1,
    variant: str = "token",
    scale: float | None = None,
    max_tokens: int = MAX_TOKENS,
    tiles: AttentionTiles | None = None,
    workspace: AttentionWorkspace | None = None,
    out: Attention | None = None,
) -> Attention:
    """Let every token attend to the keys of its own request up to itself.

    softmax(scale q k^T) v over keys 0..p of row r, or p-window+1..p, for the token with `request` r and `position` p.
    Nothing is allocated or waited for when `workspace` and `out` are given. A table entry is read only where a token
    sees a key of its page, and a page only if the entry names one.

    Args:
        q: [B, HQ, D] float32, float16 or bfloat16; D 16, 32, 64 or 128; strides multiples of 16.
        k_cache: [pages, page_size, HKV, D] of q's type; page_size 16, 32 or 64; HQ a multiple of HKV.
        v_cache: as `k_cache`.
        block_table: [R, P] int32, page of keys i * page_size .. of a row at column i; entries not needed may be
            anything.
        request: [B] int32, row of a token; negative for padding.
        position: [B] int32, tokens before it in its request; negative for an empty context.
        offsets: [R + 1] int32, first token of each row in the batch; `packed` needs it to find the tokens of a row,
            and takes from `request` and `position` alone what they see.
        window: keys a token sees, itself included; None for all.
        split_kv: parts of a context that run side by side.
        variant: `token` or `packed`.
        scale: positive factor of the scores; 1 / sqrt(D) by default.
        max_tokens: most tokens of a row in `packed`, 1 to 17; sizes the launch.
        tiles: how a program is cut; chosen from the sizes by default.
        workspace: of these sizes, for the parts.
        out: where to write the result.

    Returns:
        The result. Padding and an empty context give o = 0 and lse = -inf. NaN marks a token that cannot be served: its
        request is no row of the table, its position lies beyond the table, a page it sees does not exist, or (`packed`)
        it lies outside its row's offsets or beyond `max_tokens`.

    Raises:
        KernelError: naming the argument, the rule, what was given and the remedy.
    """
    sizes = check_sizes(q, k_cache, v_cache, block_table)
    check_markers(sizes, request, position, offsets, variant, q.device)
    check_numbers(window, split_kv, scale, max_tokens)
    packed = variant == "packed"
    sizes = replace(sizes, packed=packed, tokens=max_tokens if packed else 1, split=split_kv)
    tiles = _checked_tiles(tiles or AttentionTiles.choose(sizes.group, sizes.tokens))
    workspace = _checked_workspace(workspace, sizes, q.device)
    out = _checked_out(out, sizes, q)
    if sizes.batch:
        # A kernel's pointer needs a tensor, read or not: `token` takes `request` in the place of offsets it never
        # loads.
        first_token = request if offsets is None else offsets
        tensors = (q, k_cache, v_cache, block_table, request, position, first_token)
        cells = (workspace.parts, workspace.tops, workspace.totals)
        # exp(x) = 2^(x log2 e): the exponential that GPUs have is to the base 2, so both factors become one.
        scale_log2 = (sizes.head**-0.5 if scale is None else scale) * math.log2(math.e)
        _launch_parts(tensors, sizes, window, scale_log2, tiles, cells)
        _launch_combine(request, first_token, sizes, scale_log2, cells, out)
    return out


def _checked_tiles(tiles: AttentionTiles) -> AttentionTiles:
    require(tiles.rows in ROW_TILES, "tiles.rows", listed(ROW_TILES), tiles.rows, "choose one")
    require(tiles.turn in TURNS, "tiles.turn", listed(TURNS), tiles.turn, "choose one")
    return tiles


def _checked_workspace(given: AttentionWorkspace | None, sizes: Sizes, device: torch.device) -> AttentionWorkspace:
    if given is None:
        return AttentionWorkspace.allocate(sizes.split, sizes.batch, sizes.query_heads, sizes.head, device)
    cells = (sizes.split, sizes.batch, sizes.query_heads)
    check_dense("workspace.parts", given.parts, (*cells, sizes.head), torch.float32, device)
    check_dense("workspace.tops", given.tops, cells, torch.float32, device)
    check_dense("workspace.totals", given.totals, cells, torch.float32, device)
    return given


def _checked_out(given: Attention | None, sizes: Sizes, q: torch.Tensor) -> Attention:
    cells = (sizes.batch, sizes.query_heads)
    if given is None:
        return Attention(torch.empty(q.shape, dtype=q.dtype, device=q.device), q.new_empty(cells, dtype=torch.float32))
    check_dense("out.o", given.o, q.shape, q.dtype, q.device)
    check_dense("out.lse", given.lse, cells, torch.float32, q.device)
    return given


def _launch_parts(
    tensors: Sequence[torch.Tensor],
    sizes: Sizes,
    window: int | None,
    scale_log2: float,
    tiles: AttentionTiles,
    cells: Sequence[torch.Tensor],
) -> None:
    q, k_cache, v_cache, block_table, *_ = tensors
    # In sixteenths, and times 16 again in the kernel: so the compiler sees every row aligned, whatever the number is.
    strides = [stride // 16 for tensor in (k_cache, v_cache, q) for stride in tensor.stride()[:-1]]
    units = sizes.requests if sizes.packed else sizes.batch
    if not units:
        return
    grid = (units * covering(sizes.tokens * sizes.group, tiles.rows), sizes.kv_heads, sizes.split)
    # Without a window the number is not looked at, but it must fit into int32.
    numbers = (sizes.requests, sizes.width, block_table.stride(0), sizes.batch, min(window or FAR, FAR), sizes.split)
    constants = _constants(sizes, tiles, windowed=window is not None, interpreted=interpreting())
    form = {"num_warps": tiles.num_warps, "num_stages": tiles.num_stages}
    attention_parts[grid](*tensors, *cells, sizes.pages, *strides, *numbers, scale_log2, **constants, **form)


# Compiled in is what a served model keeps: its sizes, the variant, the most tokens. Numbers of rows, pages and tokens
# change from step to step and stay arguments.
def _constants(sizes: Sizes, tiles: AttentionTiles, windowed: bool, interpreted: bool) -> dict[str, int]:
    """Return what the first kernel is compiled for."""
    return {
        "PACKED": sizes.packed, "WINDOWED": windowed, "GROUP": sizes.group, "HEADS": sizes.query_heads,
        "HEAD": sizes.head, "PAGE": sizes.page, "TOKENS": sizes.tokens, "ROWS": tiles.rows, "KEYS": KEYS,
        "TURN": tiles.turn, "INTERPRETING": interpreted,
    }  # fmt: skip


# Also launched for a single part: parts are neither normalized nor of the output's type.
def _launch_combine(
    request: torch.Tensor,
    offsets: torch.Tensor,
    sizes: Sizes,
    scale_log2: float,
    cells: Sequence[torch.Tensor],
    out: Attention,
) -> None:
    numbers = (sizes.requests, sizes.batch, sizes.split)
    grid = (sizes.batch, covering(sizes.query_heads, COMBINED_HEADS))
    constants = _combine_constants(sizes)
    attention_combine[grid](request, offsets, *cells, *out, *numbers, scale_log2, **constants, num_warps=4)


def _combine_constants(sizes: Sizes) -> dict[str, int]:
    """Return what the second kernel is compiled for."""
    return {
        "PACKED": sizes.packed, "TOKENS": sizes.tokens, "HEADS": sizes.query_heads, "HEAD": sizes.head,
        "LINES": COMBINED_HEADS,
    }  # fmt: skip


def _shipped(
    label: str, dtype: str, *, group: int, head: int, page: int, tokens: int, rows: int, windowed: bool = False
) -> Configuration:
    """Return a form of the first kernel, of 8 key/value heads."""
    names = attention_parts.arg_names
    pointers = dict.fromkeys(("q_ptr", "k_cache", "v_cache"), f"*{dtype}")
    pointers |= dict.fromkeys(("block_table", "request", "position", "offsets"), "*i32")
    pointers |= dict.fromkeys(("parts", "tops", "totals"), "*fp32")
    numbers = dict.fromkeys(names[names.index("pages") : names.index("scale_log2")], "i32")
    tiles = AttentionTiles(rows)
    # 0 for what no compiled form depends on.
    sizes = Sizes(0, 8 * group, 8, head, page, 0, 0, 0, packed=tokens > 1, tokens=tokens)
    return Configuration(
        label=label,
        signature=pointers | numbers | {"scale_log2": "fp32"},
        constants=_constants(sizes, tiles, windowed, interpreted=False),
        num_warps=tiles.num_warps,
        num_stages=tiles.num_stages,
        # The warp-group products of sm_90 have 64 rows; smaller tiles cannot show them.
        tensor_core=rows >= 64,
    )


_COMBINED = Configuration(
    label="bf16 D128 HQ32",
    signature={
        **dict.fromkeys(("request", "offsets"), "*i32"), **dict.fromkeys(("parts", "tops", "totals"), "*fp32"),
        "o": "*bf16", "lse": "*fp32", **dict.fromkeys(("requests", "batch", "split"), "i32"), "scale_log2": "fp32",
    },
    constants=_combine_constants(Sizes(0, 32, 8, 128, 64, 0, 0, 0, packed=True, tokens=6)),
)  # fmt: skip


def _shipped_wide(label: str, dtype: str, *, head: int, page: int, windowed: bool = False) -> Configuration:
    """Return a form with 8 tokens of 8 query heads, which fill the tile of 64."""
    return _shipped(label, dtype, group=8, head=head, page=page, tokens=8, rows=64, windowed=windowed)


KERNELS = (
    Kernel(
        "attention",
        "attention_parts",
        attention_parts,
        (
            _shipped("token bf16 D128 GQA4 page64 M16", "bf16", group=4, head=128, page=64, tokens=1, rows=16),
            _shipped("packed bf16 D128 GQA4 page64 M32", "bf16", group=4, head=128, page=64, tokens=6, rows=32),
            _shipped_wide("packed bf16 D128 GQA8 page64 M64", "bf16", head=128, page=64),
            _shipped_wide("packed bf16 D128 GQA8 page16 M64", "bf16", head=128, page=16),
            _shipped_wide("packed bf16 D128 GQA8 page64 M64 window", "bf16", head=128, page=64, windowed=True),
            _shipped_wide("packed fp16 D64 GQA8 page16 M64", "fp16", head=64, page=16),
        ),
    ),
    Kernel("attention", "attention_combine", attention_combine, (_COMBINED,)),
)
