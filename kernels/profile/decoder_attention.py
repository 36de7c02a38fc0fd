"""Batches of the synthetic decoder, and its attention over a paged cache: the lab's kernel, or plain torch on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

import torch
import torch.nn.functional as F

from ..attention import varlen_attention
from ..common import KernelError, tiles

HOST_BYTES = 1 << 26
"""Keys and values that the CPU path gathers at a time."""

PARTS_FOR = 264
"""Programs of attention to aim at: two for each of the 132 multiprocessors of an H100 or H200."""


@dataclass(frozen=True)
class Batch:
    """The flattened tokens of a step, and where their keys go.

    Attributes:
        tokens: [B] int64, ids.
        request: [B] int32, row of a token; -1 for padding.
        position: [B] int32, tokens before it in its row; -1 for padding.
        offsets: [R + 1] int32, first token of each row.
        slots: [B] int64, where its key lies in the flattened cache; padding writes to page 0.
        block_table: [R, P] int32, pages of each row.
        max_tokens: most tokens of a row.
        context: tokens of a row before this step.
    """

    tokens: torch.Tensor
    request: torch.Tensor
    position: torch.Tensor
    offsets: torch.Tensor
    slots: torch.Tensor
    block_table: torch.Tensor
    max_tokens: int
    context: int

    @property
    def rows(self) -> int:
        """Rows of the block table."""
        return len(self.block_table)

    def load(self, other: Batch) -> None:
        """Take over the tensors of a batch of the same sizes, in place: a captured graph reads them where they are."""
        for each in fields(self):
            mine = getattr(self, each.name)
            if isinstance(mine, torch.Tensor):
                mine.copy_(getattr(other, each.name))


Attend = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, Batch], torch.Tensor]
"""(q [B, HQ, D], keys [pages, page, HKV, D], values, batch) -> [B, HQ, D]."""


@dataclass(frozen=True)
class Pool:
    """Pages that batches share out: every row gets its own, in random order. Page 0 is for padding.

    Attributes:
        order: [pages - 1] int64 on the CPU, a permutation of pages 1..
        page: keys of a page.
        vocabulary: ids are below.
        generator: of ids, on the CPU.
        device: of the batches.
    """

    order: torch.Tensor
    page: int
    vocabulary: int
    generator: torch.Generator
    device: torch.device

    @classmethod
    def make(cls, pages: int, page: int, vocabulary: int, seed: int, device: torch.device) -> Pool:
        """Return a pool of a number of pages, page 0 among them."""
        generator = torch.Generator().manual_seed(seed)
        return cls(1 + torch.randperm(pages - 1, generator=generator), page, vocabulary, generator, device)

    def batch(
        self, tokens: int, rows: int, context: int, max_tokens: int, size: int | None = None, table: int | None = None
    ) -> Batch:
        """Return a batch of ``tokens`` tokens in ``rows`` rows of equal context, as equal in tokens as can be.

        Args:
            tokens: of all rows together.
            rows: with tokens.
            context: of each row, before this step.
            max_tokens: most tokens that a row of a batch of this form may have.
            size: tokens with padding; by default there is none.
            table: rows of the table; by default ``rows``.

        Raises:
            KernelError: if the pool holds too few pages, or a row would get more than ``max_tokens``.
        """
        size, table = size or tokens, table or rows
        if tiles(tokens, rows) > max_tokens:
            raise KernelError(f"`max_tokens` must be at least {tiles(tokens, rows)} for {tokens} tokens in {rows} rows")
        width = tiles(context + max_tokens, self.page)
        if table * width > len(self.order):
            raise KernelError(
                f"{table} rows of {width} pages do not fit into a pool of {len(self.order)}; make a larger pool"
            )
        pages = self.order[: table * width].view(table, width)
        lengths = torch.full((table,), tokens // rows) + (torch.arange(table) < tokens % rows)
        # A captured form has a fixed number of rows: those without a token keep their pages and do nothing.
        lengths[rows:] = 0
        return self._placed(lengths, pages, size, context, max_tokens)

    def _placed(self, lengths: torch.Tensor, pages: torch.Tensor, size: int, context: int, max_tokens: int) -> Batch:
        offsets = F.pad(lengths.cumsum(0), (1, 0))
        tokens = int(offsets[-1])
        request = torch.full((size,), -1)
        # What padding writes must land somewhere: on page 0, which belongs to no row.
        position, slots = request.clone(), torch.arange(size) % self.page
        request[:tokens] = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
        rows = request[:tokens]
        position[:tokens] = context + torch.arange(tokens) - offsets[rows]
        places = position[:tokens]
        slots[:tokens] = pages[rows, places // self.page] * self.page + places % self.page
        ids = torch.randint(self.vocabulary, (size,), generator=self.generator)
        return Batch(
            tokens=ids.to(self.device),
            request=request.to(self.device, torch.int32),
            position=position.to(self.device, torch.int32),
            offsets=offsets.to(self.device, torch.int32),
            slots=slots.to(self.device),
            block_table=pages.to(self.device, torch.int32),
            max_tokens=max_tokens,
            context=context,
        )


def device_attention(q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Attend with the lab's kernel, all tokens of a row sharing one reading of its keys; see `varlen_attention`."""
    return varlen_attention(
        q,
        keys,
        values,
        batch.block_table,
        batch.request,
        batch.position,
        batch.offsets,
        variant="packed",
        max_tokens=batch.max_tokens,
        # Programs before any split: packed attention gives one at least to each row and key/value head.
        split_kv=parts(batch.rows * keys.shape[2], batch.context),
    ).o


def parts(programs: int, context: int) -> int:
    """Return in how many parts a context is read: enough to fill the device, none shorter than 256 keys, 16 at most."""
    return max(1, min(tiles(PARTS_FOR, programs), context // 256, 16))


def host_attention(q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Attend in plain torch: the same cache, the same markers, some rows at a time.

    Padding gives 0. Unlike the kernel it multiplies keys that a token does not see by 0, so they must be finite.
    """
    out = torch.zeros_like(q)
    gathered = 2 * keys.element_size() * keys[0].numel() * batch.block_table.shape[1]
    # Gathering copies a row's whole context, so only as many rows as fit are gathered together.
    step = max(1, HOST_BYTES // gathered)
    bounds = batch.offsets.tolist()
    for first in range(0, batch.rows, step):
        last = min(first + step, batch.rows)
        part = slice(bounds[first], bounds[last])
        if part.stop > part.start:
            out[part] = _some_rows(q[part], keys, values, batch, part, (first, last))
    return out


def _some_rows(
    q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, batch: Batch, part: slice, rows: tuple[int, int]
) -> torch.Tensor:
    """Return the result of the tokens of rows ``rows[0] .. rows[1] - 1``."""
    first, last = rows
    request = batch.request[part].long() - first
    within = torch.arange(part.start, part.stop) - batch.offsets[first + request]
    count, (heads, size), shared = last - first, q.shape[1:], keys.shape[2]
    # Rows as long as the longest allowed, so that one batched product serves ragged ones; empty places see nothing.
    queries = q.new_zeros(count, batch.max_tokens, heads, size)
    queries[request, within] = q
    seen = torch.full((count, batch.max_tokens), -1)
    seen[request, within] = batch.position[part].long()
    k, v = (each[batch.block_table[first:last]].flatten(1, 2).transpose(1, 2) for each in (keys, values))
    # Query heads of a group stand side by side with the tokens: one product for each key/value head.
    grouped = queries.unflatten(2, (shared, -1)).permute(0, 2, 1, 3, 4).flatten(2, 3)
    group = heads // shared
    visible = torch.arange(k.shape[2]) <= seen.repeat_interleave(group, 1)[:, None, :, None]
    visible[..., 0] = True  # A place without a token must not be NaN; it is not read.
    attended = F.scaled_dot_product_attention(grouped, k, v, attn_mask=visible)
    ungrouped: torch.Tensor = attended.unflatten(2, (-1, group)).permute(0, 2, 1, 3, 4).flatten(2, 3)
    return ungrouped[request, within]
