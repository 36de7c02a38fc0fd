"""The same verify length for every row: what engines do without a verification scheduler."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from .arrays import Ints
from .interface import Policy, PolicyError, Safety, View
from .parameters import at_least


@dataclass(frozen=True)
class Static(Policy):
    """Verify the first ``k`` drafts of every row.

    The drafter still produces, and is charged for, its whole block; a drafter of ``gamma = k`` is another arm.

    Attributes:
        k: drafts verified per row, at least 0.
    """

    kind: ClassVar[str] = "static"
    lag = None
    safety: ClassVar[Safety] = "safe"
    k: int

    def __post_init__(self) -> None:
        at_least("static", "k", self.k, 0)

    def plan(self, view: View, state: Any) -> tuple[Ints, Any]:
        """Return ``min(k, available)``."""
        return np.minimum(view.available, self.k), state

    def longest(self, gamma: int) -> int:
        """Return ``k``; raises PolicyError if a block holds fewer drafts."""
        if self.k > gamma:
            raise PolicyError(f"`k` of policy `static` must be within the block of {gamma} drafts, got {self.k}")
        return self.k
