"""Attention of flattened queries, token by token in float64."""

from __future__ import annotations

import torch

from .common import KernelError


def visible_keys(position: int, window: int | None) -> range:
    """Return the keys that a token at a position sees, itself included."""
    return range(0 if window is None else max(0, position - window + 1), position + 1)


def paged_rows(cache: torch.Tensor, table: torch.Tensor, keys: range) -> torch.Tensor:
    """Return a row's cached vectors [len(keys), HKV, D] in float64.

    Raises:
        KernelError: if a page is not in the cache.
    """
    page_size = cache.shape[1]
    # Only the pages of visible keys are looked up, as in the kernel: all other entries may be anything.
    pages = [int(table[key // page_size]) for key in keys]
    missing = [page for page in pages if not 0 <= page < cache.shape[0]]
    if missing:
        raise KernelError(f"`block_table` must name pages 0 to {cache.shape[0] - 1}, got {missing[0]}; allocate it")
    slots = [key % page_size for key in keys]
    return cache[pages, slots].double()


def varlen_attention_reference(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    block_table: torch.Tensor,
    request: torch.Tensor,
    position: torch.Tensor,
    *,
    window: int | None = None,
    scale: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return softmax(scale q k^T) v and log sum exp(scale q k^T) over what each token sees, float64.

    Arguments as in `varlen_attention`; o is [B, HQ, D], lse [B, HQ]. Padding and empty contexts give 0 and -inf.

    Raises:
        KernelError: if a token sees a page that is not in the cache.
    """
    group = q.shape[1] // k_cache.shape[2]
    factor = q.shape[2] ** -0.5 if scale is None else scale
    o = torch.zeros(q.shape, dtype=torch.float64)
    lse = torch.full(q.shape[:2], -torch.inf, dtype=torch.float64)
    for token, (row, place) in enumerate(zip(request.tolist(), position.tolist(), strict=True)):
        if row < 0 or place < 0:
            continue
        keys = visible_keys(place, window)
        # Query heads that share a key/value head lie side by side.
        k = paged_rows(k_cache, block_table[row], keys).repeat_interleave(group, dim=1)
        v = paged_rows(v_cache, block_table[row], keys).repeat_interleave(group, dim=1)
        scores = factor * torch.einsum("hd,nhd->hn", q[token].double(), k)
        o[token] = torch.einsum("hn,nhd->hd", scores.softmax(dim=1), v)
        lse[token] = scores.logsumexp(dim=1)
    return o, lse
