"""What attention must read, write and multiply, for a roofline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .attention_checks import VARIANTS, listed, require
from .common import tiles


@dataclass(frozen=True)
class AttentionWork:
    """What a call must do, for a roofline.

    Attributes:
        read: bytes of keys, values, queries and indices, each program's reading counted once.
        written: bytes of results.
        between: bytes of parts, written by one kernel and read by the next.
        flops: multiplications and additions of the pairs of query and key that see each other.
    """

    read: int
    written: int
    between: int
    flops: int

    @property
    def bytes(self) -> int:
        """All bytes moved."""
        return self.read + self.written + self.between


def attention_work(
    tokens: Sequence[int],
    contexts: Sequence[int],
    *,
    query_heads: int,
    kv_heads: int,
    head_size: int,
    element_bytes: int,
    variant: str = "packed",
    window: int | None = None,
    split_kv: int = 1,
    page_size: int = 64,
    row_tile: int = 64,
) -> AttentionWork:
    """Return bytes and flops of one call.

    `token` reads a key once for every token that sees it, `packed` once for every tile of a row that does. Reading
    again may be served by a cache: with one tile a row, `packed` is the least that any kernel must read.

    Args:
        tokens: tokens of each row in this step.
        contexts: keys before the first of them, by row.
        query_heads: HQ.
        kv_heads: HKV.
        head_size: D.
        element_bytes: of queries, keys and values.
        variant: `token` or `packed`.
        window: keys a token sees, itself included.
        split_kv: parts of a context.
        page_size: keys of a page, for what is read of the table.
        row_tile: `AttentionTiles.rows`, which says how many tiles a row of `packed` takes.

    Raises:
        KernelError: if the two sequences differ in length, or the variant is unknown.
    """
    require(len(tokens) == len(contexts), "contexts", f"{len(tokens)} long, as `tokens`", len(contexts), "pair them")
    require(variant in VARIANTS, "variant", listed(VARIANTS), repr(variant), "choose one")
    group = query_heads // kv_heads
    rows = list(zip(tokens, contexts, strict=True))
    # Flops are of the pairs that see each other; bytes are of what is read for them, which the variant decides.
    seen = sum(_span(context + j, 1, window) for count, context in rows for j in range(count))
    keys = seen
    if variant == "packed":
        keys = sum(
            _span(context + j, n, window) for count, context in rows for j, n in _tiles_of(count, group, row_tile)
        )
    batch = sum(tokens)
    cells = batch * query_heads
    # Keys and values, and 4 bytes of the table a page, by every key/value head's programs.
    cached = keys * kv_heads * (2 * head_size * element_bytes) + 4 * kv_heads * tiles(keys, page_size)
    return AttentionWork(
        read=cached + cells * head_size * element_bytes + 4 * (2 * batch + len(rows) + 1),
        written=cells * (head_size * element_bytes + 4),
        # Written once and read once: D sums, the top and the total of each part.
        between=2 * split_kv * cells * 4 * (head_size + 2),
        # Two products, q k^T and weights times v, of a multiplication and an addition in each of D places.
        flops=4 * head_size * query_heads * seen,
    )


def _span(position: int, tokens: int, window: int | None) -> int:
    """Return how many keys are seen by one or other of some tokens, the first of them at a position."""
    # A union: the first token sees its window, each further one adds a single key in front.
    return tokens + (position if window is None else min(position, window - 1))


def _tiles_of(count: int, group: int, row_tile: int) -> list[tuple[int, int]]:
    """Return first token and number of tokens of each tile of a row."""
    edges = [
        (tile * row_tile, min((tile + 1) * row_tile, count * group)) for tile in range(tiles(count * group, row_tile))
    ]
    return [(low // group, tiles(high, group) - low // group) for low, high in edges]
