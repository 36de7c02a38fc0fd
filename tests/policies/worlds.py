"""Batches for policy tests: hand-made step costs and ragged survivals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from specsched.policies import Floats, Generation, Ints, View


@dataclass
class TableCost:
    """A step cost given as seconds by batch tokens; ``sizes`` are the captured ones, none meaning no padding."""

    seconds: Floats
    sizes: tuple[int, ...] = ()

    def table(self, rows: int) -> Floats:
        return self.seconds

    def listed(self, rows: int, first: int, most: int) -> tuple[float, ...]:
        return tuple(self.seconds[first : first + most + 1].tolist())

    def padded(self, tokens: int) -> int:
        return next((size for size in self.sizes if size >= tokens), tokens)


def staircase(sizes: tuple[int, ...], seconds: tuple[float, ...], most: int) -> TableCost:
    """Seconds of the next size up; the last one beyond."""
    at = np.minimum(np.searchsorted(sizes, np.arange(most + 1)), len(sizes) - 1)
    return TableCost(np.array(seconds)[at], sizes)


def view(
    confidence: npt.ArrayLike,
    cost: TableCost | None = None,
    lagged: npt.ArrayLike | None = None,
    known: npt.ArrayLike | None = None,
    available: npt.ArrayLike | None = None,
    requests: npt.ArrayLike | None = None,
    outcomes: npt.ArrayLike | None = None,
    step: int = 0,
) -> View:
    """A view whose survivals are the products of ``confidence`` and whose lagged survivals are given."""
    c = np.asarray(confidence, np.float64)
    rows, gamma = c.shape
    has = np.full(rows, gamma) if available is None else np.asarray(available, np.int64)
    c = np.where(np.arange(gamma) < has[:, None], c, 0.0)
    past = None
    if lagged is not None:
        seen = np.ones(rows, np.bool_) if known is None else np.asarray(known, np.bool_)
        survival = np.where(seen[:, None], np.asarray(lagged, np.float64), 0.0)
        past = Generation(survival, survival, seen, bool(seen.all()))
    return View(
        step=step,
        requests=np.arange(rows) if requests is None else np.asarray(requests, np.int64),
        available=has,
        drafted=int(has.sum()),
        cost=cost or TableCost(np.linspace(1.0, 2.0, rows * (gamma + 1) + 1)),
        lagged_drafts=past,
        generation=Generation(c, np.multiply.accumulate(c, axis=1), has > 0, bool((has > 0).all())),
        outcomes=None if outcomes is None else np.asarray(outcomes, np.int64),
    )


@st.composite
def ragged_batches(draw: st.DrawFn, most_rows: int = 8, most_gamma: int = 7) -> tuple[Floats, Ints, TableCost]:
    """Confidences, availability and a jagged cost.

    Rows differ in difficulty by construction, so that admitted lengths differ too; confidences tie, vanish and
    saturate on purpose.
    """
    rows = draw(st.integers(2, most_rows))
    gamma = draw(st.integers(2, most_gamma))
    levels = draw(st.permutations([0.99, 0.9, 0.8, 0.65, 0.5, 0.35, 0.2, 0.05]))
    level = np.array([levels[row % len(levels)] for row in range(rows)])
    special = draw(st.lists(st.sampled_from([0.0, 0.5, 1.0]), max_size=3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    c = np.clip(level[:, None] + rng.uniform(-0.05, 0.05, (rows, gamma)), 0.0, 1.0)
    for value in special:
        c[rng.integers(rows), rng.integers(gamma)] = value
    available = np.full(rows, gamma)
    available[rng.integers(rows)] = draw(st.integers(0, gamma))
    most = rows * (gamma + 1)
    risers = np.sort(rng.choice(most, size=draw(st.integers(0, 4)), replace=True))
    slope = draw(st.sampled_from([0.0, 0.002, 0.02, 0.2]))
    seconds = 1.0 + slope * np.arange(most + 1)
    for riser in risers:
        seconds[riser:] += draw(st.sampled_from([0.1, 0.5, 2.0]))
    return c, available, TableCost(seconds)
