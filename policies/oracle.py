"""A bound, not a scheduler: it knows which drafts the target will accept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from .admission import admit_top_k
from .arrays import Ints
from .interface import Policy, PolicyError, Safety, View


def outcomes_of(view: View) -> Ints:
    """Return the acceptable drafts of each row, int64 ``[R]``.

    Raises:
        PolicyError: if the view does not hold them.
    """
    if view.outcomes is None:
        raise PolicyError("`view.outcomes` is empty; only a policy that declares `needs_outcomes` gets it")
    return view.outcomes


def admit_accepted(view: View, outcomes: Ints, count: int) -> Ints:
    """Return lengths that verify ``count`` acceptable drafts: earlier positions, then earlier rows, first."""
    accepted = (np.arange(view.survival.shape[1]) < outcomes[:, None]).astype(np.float64)
    return admit_top_k(accepted, outcomes, count)


@dataclass(frozen=True)
class Oracle(Policy):
    """Verify the number n of acceptable drafts that maximizes this step's (R + n) / T(R + n)."""

    kind: ClassVar[str] = "oracle"
    needs_outcomes: ClassVar[bool] = True
    safety: ClassVar[Safety] = "unsafe"

    def plan(self, view: View, state: Any) -> tuple[Ints, Any]:
        """Return the step's best achievable lengths, the fewest drafts on ties."""
        outcomes = outcomes_of(view)
        most = int(outcomes.sum())
        theta = (view.rows + np.arange(most + 1)) / view.seconds(most)
        return admit_accepted(view, outcomes, int(theta.argmax())), state


@dataclass(frozen=True)
class OracleRate(Policy):
    """Verify the n acceptable drafts that maximize tokens - rate * seconds, rate being the run's own tokens per second.

    Maximizing each step's ratio is not maximizing the run's: a short step that emits little may pay for itself
    only at a low overall rate. At the fixed point (Dinkelbach 1967) ``rate`` is the run's tokens over its seconds;
    the state tracks both, so that the rate converges as the run proceeds.

    Attributes:
        rate: tokens per second to price time at; None follows the run.
    """

    kind: ClassVar[str] = "oracle_rate"
    needs_outcomes: ClassVar[bool] = True
    safety: ClassVar[Safety] = "unsafe"
    rate: float | None = None

    def __post_init__(self) -> None:
        if self.rate is not None and not self.rate > 0.0:
            raise PolicyError(f"`rate` of policy `{self.kind}` must be above 0 tokens per second, got {self.rate!r}")

    def start(self) -> tuple[float, float]:
        """Return (tokens, seconds) so far: none."""
        return 0.0, 0.0

    def plan(self, view: View, state: Any) -> tuple[Ints, Any]:
        """Return lengths that maximize tokens less the price of the seconds they take."""
        tokens, seconds = state
        outcomes = outcomes_of(view)
        most = int(outcomes.sum())
        emitted = view.rows + np.arange(most + 1)
        taken = view.seconds(most)
        rate = self.rate if self.rate is not None else tokens / seconds if seconds else float((emitted / taken).max())
        count = int((emitted - rate * taken).argmax())
        state = (tokens + float(emitted[count]), seconds + float(taken[count]))
        return admit_accepted(view, outcomes, count), state
