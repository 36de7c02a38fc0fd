"""Outputs between canaries: a kernel that writes beside its output, or leaves part of it unwritten, is found out."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

CANARY = 64
"""Elements on either side of an output."""

POISON_ID = -7777


def _poison(dtype: torch.dtype) -> float | int:
    return float("nan") if dtype.is_floating_point else POISON_ID


@dataclass
class Guards:
    """Buffers handed out, each with canaries on both sides."""

    buffers: list[tuple[str, torch.Tensor, torch.Tensor]] = field(default_factory=list)

    def empty(self, name: str, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """A poisoned output of a shape, in the middle of a buffer full of canaries."""
        count = 1
        for each in shape:
            count *= each
        canary = 12345.0 if dtype.is_floating_point else 123456789
        buffer = torch.full((count + 2 * CANARY,), canary, dtype=dtype)
        buffer[CANARY : CANARY + count] = _poison(dtype)
        middle = buffer[CANARY : CANARY + count].view(*shape)
        self.buffers.append((name, buffer, middle))
        return middle

    def check(self, unwritten: tuple[str, ...] = ()) -> None:
        """Fail if a canary changed, or an output still holds poison (save those that may stay unwritten)."""
        for name, buffer, middle in self.buffers:
            canary = 12345.0 if buffer.dtype.is_floating_point else 123456789
            beside = torch.cat((buffer[:CANARY], buffer[CANARY + middle.numel() :]))
            assert bool((beside == canary).all()), f"a kernel wrote beside `{name}`"
            if name not in unwritten:
                poisoned = middle.isnan() if middle.dtype.is_floating_point else middle == POISON_ID
                assert not bool(poisoned.any()), f"a kernel left {int(poisoned.sum())} elements of `{name}` unwritten"


def relative_error(found: torch.Tensor, expected: torch.Tensor) -> float:
    """The relative L2 distance from a float64 reference."""
    reference = expected.double()
    return float((found.double() - reference).norm() / reference.norm().clamp_min(1e-300))
