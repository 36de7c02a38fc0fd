"""Admission and layout in plain Python: sort the drafts, write the tokens down one after the other."""

from __future__ import annotations

import torch

from .admit import Admission, Layout


def admit_reference(a: torch.Tensor, budget: int, available: torch.Tensor | None = None, min_len: int = 0) -> Admission:
    """Return what `specsched.kernels.admit.admit` does, for survivals in [0, 1].

    Drafts are sorted by (floor first, survival descending, position, row), the first ``budget`` of them admitted.
    """
    rows, gamma = a.shape
    drafts = [gamma] * rows if available is None else [min(int(each), gamma) for each in available]
    # False sorts first, hence the floor; of equal survivals the earlier position, then the earlier row.
    order = sorted(
        (position >= min_len, -float(a[row, position]), position, row)
        for row in range(rows)
        for position in range(drafts[row])
    )
    lengths = [0] * rows
    # Counts, as in the kernel: that they are prefixes is for survivals to ensure, not for this to assume.
    for *_, row in order[: max(budget, 0)]:
        lengths[row] += 1
    offsets = [0]
    for length in lengths:
        offsets.append(offsets[-1] + 1 + length)
    return Admission(torch.tensor(lengths, dtype=torch.int32), torch.tensor(offsets, dtype=torch.int32))


def layout_reference(lengths: torch.Tensor, context: torch.Tensor, size: int) -> Layout:
    """Return what `specsched.kernels.admit.layout` does."""
    tokens = [
        (row, before + place)
        for row, (length, before) in enumerate(zip(lengths.tolist(), context.tolist(), strict=True))
        for place in range(1 + max(length, 0))
    ]
    padded = (tokens + [(-1, -1)] * size)[:size]
    request, position = torch.tensor(padded, dtype=torch.int32).T.contiguous()
    return Layout(request, position, torch.tensor([max(len(tokens) - size, 0)]))
