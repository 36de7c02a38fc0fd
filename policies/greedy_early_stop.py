"""Algorithm 1 of the DSpark paper: greedy admission that stops at the first candidate that does not pay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from .admission import admit_top_k
from .interface import Floats, Ints, Policy, Safety, Search, View


def early_stop(gains: Floats, rows: int, seconds: Floats) -> int:
    """Return how many candidates Algorithm 1 admits.

    Args:
        gains: float64 ``[n]``, survivals of the candidates, descending, all above 0.
        rows: ``R``, the tokens emitted when nothing is admitted.
        seconds: float64 ``[n + 1]``, step time by number admitted.
    """
    theta = np.concatenate(([float(rows)], gains)).cumsum() / seconds
    stops = np.flatnonzero(theta[1:] <= theta[:-1])
    return int(stops[0]) if len(stops) else len(gains)


@dataclass(frozen=True)
class GreedyEarlyStop(Policy):
    """Admit this step's drafts by survival while expected tokens per second strictly rise; stop where they do not.

    The stop makes the decision non-anticipating, and blind: on a jagged curve it halts in front of the first riser.
    """

    kind: ClassVar[str] = "greedy_early_stop"
    search: ClassVar[Search] = "prefix"
    safety: ClassVar[Safety] = "safe"

    def plan(self, view: View, state: Any) -> tuple[Ints, Any]:
        """Run Algorithm 1 on this step's survivals."""
        gains = -np.sort(-view.survival, axis=None)
        gains = gains[: int(np.count_nonzero(gains))]
        budget = early_stop(gains, view.rows, view.seconds(len(gains)))
        return admit_top_k(view.survival, view.available, budget), state
