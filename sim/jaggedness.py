"""How jagged a cost curve is, and what that does to a search for the best number of drafts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..policies import Floats
from .cost import StepCost


@dataclass(frozen=True, slots=True)
class Riser:
    """One more token, and the steps per second fall.

    Attributes:
        tokens: last batch size before the riser.
        before_seconds: step time there.
        after_seconds: step time of one token more.
    """

    tokens: int
    before_seconds: float
    after_seconds: float

    @property
    def drop(self) -> float:
        """Share of the steps per second that the one token costs."""
        return 1 - self.before_seconds / self.after_seconds


@dataclass(frozen=True, slots=True)
class Jaggedness:
    """A curve's steps, counted between neighbouring batch sizes.

    Attributes:
        drops_over_2pct: falls of the steps per second by more than 2 %.
        drops_over_5pct: falls by more than 5 %.
        rises_over_2pct: rises by more than 2 % (a running maximum has none).
        biggest: the largest fall; None if the steps per second never fall.
    """

    drops_over_2pct: int
    drops_over_5pct: int
    rises_over_2pct: int
    biggest: Riser | None


@dataclass(frozen=True, slots=True)
class GreedyGap:
    """The greedy early stop against the global search, on the same survivals.

    Attributes:
        greedy_budget: drafts admitted before the first that does not raise the objective (Algorithm 1).
        argmax_budget: the fewest drafts that reach the maximum.
        greedy_theta: expected tokens per second of the first.
        argmax_theta: expected tokens per second of the second.
    """

    greedy_budget: int
    argmax_budget: int
    greedy_theta: float
    argmax_theta: float

    @property
    def loss(self) -> float:
        """Share of the best objective that the early stop gives away."""
        return 1 - self.greedy_theta / self.argmax_theta


def risers(seconds: Floats, threshold: float = 0.02) -> list[Riser]:
    """Return where one more token costs more than ``threshold`` of the steps per second, by batch size.

    Args:
        seconds: float64 ``[N + 1]`` step seconds by batch tokens as in `StepCost.table`; entry 0 is not read.
        threshold: least fall, as a share.
    """
    # From entry 1 on: entry 0 is there for the index alone.
    after, before = seconds[2:], seconds[1:-1]
    steep = np.flatnonzero(1 - before / after > threshold)
    return [Riser(int(i) + 1, float(before[i]), float(after[i])) for i in steep]


def jaggedness(seconds: Floats) -> Jaggedness:
    """Count the steps of a curve given as for `risers`."""
    drops = risers(seconds, 0.0)
    rises = seconds[1:-1] / seconds[2:] - 1 > 0.02
    return Jaggedness(
        drops_over_2pct=sum(riser.drop > 0.02 for riser in drops),
        drops_over_5pct=sum(riser.drop > 0.05 for riser in drops),
        rises_over_2pct=int(rises.sum()),
        biggest=max(drops, key=lambda riser: riser.drop, default=None),
    )


def is_multimodal(theta: Floats) -> bool:
    """Return whether ``theta`` rises again after it has fallen, so that a search which stops early can be stuck."""
    steps = np.sign(np.diff(theta))
    falls = np.flatnonzero(steps < 0)
    return bool(len(falls)) and bool((steps[falls[0] :] > 0).any())


def theta(cost: StepCost, rows: int, survivals: Floats) -> Floats:
    """Return float64 ``[M + 1]``: expected tokens per second if the best 0, 1, .., M drafts are admitted.

    ``theta[K] = (rows + sum of the K largest survivals) / T(rows + K)``, the objective of the paper's Algorithm 1.

    Args:
        cost: prices.
        rows: requests in the step.
        survivals: any shape; the M entries over 0 are candidates.

    Raises:
        ProfileError: if a step of ``rows + M`` tokens has no price.
    """
    candidates = np.sort(survivals[survivals > 0])[::-1]
    most = rows + len(candidates)
    cost.require(most, rows)
    expected = rows + np.concatenate([[0.0], np.cumsum(candidates)])
    return np.asarray(expected / cost.table(rows)[rows : most + 1])


def greedy_gap(cost: StepCost, rows: int, survivals: Floats) -> GreedyGap:
    """Compare the greedy early stop (Algorithm 1) with the argmax on the given survivals.

    Args and errors are those of `theta`.
    """
    values = theta(cost, rows, survivals)
    # Algorithm 1 goes on only while the objective rises, so a tie stops it as well.
    stuck = np.flatnonzero(np.diff(values) <= 0)
    greedy = int(stuck[0]) if len(stuck) else len(values) - 1
    # The first of equals, which is the fewest drafts, as `async_topk` decides it.
    best = int(np.argmax(values))
    return GreedyGap(greedy, best, float(values[greedy]), float(values[best]))
