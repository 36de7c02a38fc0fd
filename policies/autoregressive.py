"""Plain autoregressive decoding: nothing is drafted, nothing is verified."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from .arrays import Ints
from .interface import Policy, Safety, View


@dataclass(frozen=True)
class Autoregressive(Policy):
    """Verify nothing and draft nothing: one token per row and step, no draft cost."""

    kind: ClassVar[str] = "autoregressive"
    lag = None
    safety: ClassVar[Safety] = "safe"
    drafts: ClassVar[bool] = False

    def plan(self, view: View, state: Any) -> tuple[Ints, Any]:
        """Return zeros."""
        return np.zeros(view.rows, np.int64), state

    def longest(self, gamma: int) -> int:
        """Return 0."""
        return 0
