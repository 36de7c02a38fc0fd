"""Algorithm 1 of the DSpark paper: greedy admission that stops at the first candidate that does not pay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from .admission import admit
from .arrays import Floats, Ints
from .interface import Policy, Safety, View


def early_stop(ranked: list[float] | Floats, rows: int, seconds: Floats) -> int:
    """Return how many candidates Algorithm 1 admits.

    Args:
        ranked: survivals of the candidates, descending; those of survival 0 are no candidates.
        rows: ``R``, the tokens emitted when nothing is admitted.
        seconds: float64, step time by number admitted, at least one entry more than candidates.
    """
    tau = float(rows)
    best = tau / float(seconds[0])
    for admitted, gain in enumerate(ranked):
        tau += float(gain)
        theta = tau / float(seconds[admitted + 1])
        if gain <= 0.0 or not theta > best:
            return admitted
        best = theta
    return len(ranked)


@dataclass(frozen=True)
class GreedyEarlyStop(Policy):
    """Admit this step's drafts by survival while expected tokens per second strictly rise; stop where they do not.

    The stop makes the decision non-anticipating, and blind: on a jagged curve it halts in front of the first riser.
    """

    kind: ClassVar[str] = "greedy_early_stop"
    safety: ClassVar[Safety] = "safe"

    def plan(self, view: View, state: Any) -> tuple[Ints, Any]:
        """Run Algorithm 1 on this step's survivals."""
        ranked = view.generation.ranked[: view.drafted]
        budget = early_stop(ranked, view.rows, view.seconds(view.drafted))
        return admit(view.generation, view.available, budget, drafted=view.drafted), state
