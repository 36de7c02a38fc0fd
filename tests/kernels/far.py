"""Tensors whose elements lie so far apart that 32-bit offsets to them overflow."""

from __future__ import annotations

import mmap

import torch

BEYOND = 1 << 31

_NORESERVE = 0x4000
"""Linux's MAP_NORESERVE, which the standard library names from Python 3.13 on."""


def far(values: torch.Tensor, *strides: int) -> torch.Tensor:
    """Return a float16 tensor of these values and strides, with room before it for offsets that wrap to below 0.

    Only pages that are touched take memory. An overflow reads zeros there, and fails a comparison instead of the run.
    """
    reach = sum((size - 1) * stride for size, stride in zip(values.shape, strides, strict=True)) + 1
    assert BEYOND < reach < 1.5 * BEYOND
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE
    room = torch.frombuffer(mmap.mmap(-1, 2 * (BEYOND + reach), flags), dtype=torch.float16)
    placed = room.as_strided(values.shape, strides, BEYOND)
    placed.copy_(values)
    return placed
