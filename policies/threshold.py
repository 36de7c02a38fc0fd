"""Verify while confidence lasts: the paper's Figure 5 and the released code's static threshold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from .arrays import Ints
from .interface import Policy, Safety, View
from .parameters import one_of, within


@dataclass(frozen=True)
class Threshold(Policy):
    """Verify the longest prefix whose signal stays at or above ``t``.

    Attributes:
        t: threshold in [0, 1].
        signal: ``conditional`` compares each ``c[r, j]`` (Figure 5, released code), ``survival`` each ``a[r, j]``.
    """

    kind: ClassVar[str] = "threshold"
    safety: ClassVar[Safety] = "safe"
    t: float
    signal: Literal["conditional", "survival"] = "conditional"

    def __post_init__(self) -> None:
        within("threshold", "t", self.t, 0.0, 1.0)
        one_of("threshold", "signal", self.signal, ("conditional", "survival"))

    def plan(self, view: View, state: Any) -> tuple[Ints, Any]:
        """Return the length of the leading run of drafts at or above the threshold."""
        signal = view.confidence if self.signal == "conditional" else view.survival
        passed = np.logical_and.accumulate(signal >= self.t, axis=1).sum(axis=1)
        return np.minimum(passed, view.available), state
