"""The throughput-interactivity frontier: pure functions over the points table.

A point is one (arm, load, seed). The *line* of an arm joins its neighbouring loads, each the mean over seeds, in the
plane of interactivity (tokens a second a user sees) and throughput (tokens a second a GPU emits). A segment between
two loads stands for the loads between them, so it is used only where that is plausible: not across the capture limit,
past which steps run without captured graphs and lose speed at a stroke. Curves need not be monotone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl

from ...policies import Bools, Floats
from ...sim.metrics import INTERACTIVITY, THROUGHPUT

Status = Literal["met", "at_least", "not_met"]


@dataclass(frozen=True)
class Line:
    """One arm's curve, by ascending load; all arrays have one entry a load.

    Attributes:
        arm: the arm's name.
        loads: float64, concurrency (closed loop) or requests per second (open loop).
        interactivity: float64, tokens per second per user.
        throughput: float64, tokens per second per GPU.
        eager: bool, whether any seed ran a step beyond the capture limit at this load. It is a property of the arm
            and the load, the same for every seed's line, so that seeds differ by noise and not by rule.
    """

    arm: str
    loads: Floats
    interactivity: Floats
    throughput: Floats
    eager: Bools


@dataclass(frozen=True, slots=True)
class AtAnchor:
    """Largest throughput of a line at or above an interactivity anchor.

    Attributes:
        status: ``met`` inside the line; ``at_least`` if the highest load still meets the anchor, so that more load
            may give more; ``not_met`` if no load meets it.
        throughput: tokens per second per GPU; None if not met.
        loads: the two neighbouring loads between which the value was interpolated, or the same load twice.
        at_capture_limit: whether the value is a load whose neighbour lies across the capture limit and misses the
            anchor, so that it was taken as it is.
    """

    status: Status
    throughput: float | None = None
    loads: tuple[float, float] | None = None
    at_capture_limit: bool = False


@dataclass(frozen=True, slots=True)
class Matched:
    """An arm beside a reference at one throughput.

    Attributes:
        arm: reference arm whose point fixes the throughput.
        load: that point's load.
        throughput: the matched throughput, tokens per second per GPU.
        interactivity: largest interactivity of the arm at this throughput or more, tokens per second per user.
        reference: the same of the reference.
    """

    arm: str
    load: float
    throughput: float
    interactivity: float
    reference: float

    @property
    def key(self) -> tuple[str, float]:
        """The reference point: (arm, load)."""
        return self.arm, self.load

    @property
    def speedup(self) -> float:
        """Interactivity of the arm over that of the reference."""
        return self.interactivity / self.reference


def usable(points: pl.DataFrame) -> pl.DataFrame:
    """Return the points that have both coordinates, finite and positive (a cohort may have no second token)."""
    both = [pl.col(name).is_finite() & (pl.col(name) > 0) for name in (INTERACTIVITY, THROUGHPUT)]
    return points.with_columns(pl.col(INTERACTIVITY, THROUGHPUT).cast(pl.Float64)).filter(*both)


def line(points: pl.DataFrame, arm: str, seed: int | None = None) -> Line:
    """Return the line of an arm: of one seed, or the mean over the seeds of each load.

    Args:
        points: the points table, as `usable` returns it.
        arm: its name.
        seed: a seed, or None for the mean.
    """
    # Sums run in row order (numpy on sorted rows), so that the same points give the same bytes.
    mine = points.filter(pl.col("arm") == arm).sort("load", "seed")
    loads, eager = mine["load"].to_numpy(), mine["eager_fraction"].fill_null(0.0).to_numpy() > 0
    kept = np.ones(len(mine), bool) if seed is None else mine["seed"].to_numpy() == seed
    values = {name: mine[name].to_numpy() for name in (INTERACTIVITY, THROUGHPUT)}
    at = [(kept & (loads == load), loads == load) for load in np.unique(loads[kept])]
    return Line(
        arm,
        np.unique(loads[kept]).astype(np.float64),
        np.array([values[INTERACTIVITY][own].mean() for own, _ in at], np.float64),
        np.array([values[THROUGHPUT][own].mean() for own, _ in at], np.float64),
        np.array([eager[every].any() for _, every in at], np.bool_),
    )


def non_dominated(interactivity: Floats, throughput: Floats) -> Bools:
    """Return bool ``[n]``: the points that no other point equals or beats in both coordinates and beats in one.

    Args:
        interactivity: float64 ``[n]``, tokens per second per user.
        throughput: float64 ``[n]``, tokens per second per GPU.
    """
    x, y = interactivity, throughput
    no_worse = (x[:, None] >= x) & (y[:, None] >= y)
    better = (x[:, None] > x) | (y[:, None] > y)
    return np.asarray(~(no_worse & better).any(axis=0))


def frontier(lines: Sequence[Line]) -> pl.DataFrame:
    """Return the non-dominated points of all lines, by ascending interactivity: ``arm, load`` and both coordinates."""
    table = pl.DataFrame(
        {
            "arm": [each.arm for each in lines for _ in each.loads],
            "load": np.concatenate([each.loads for each in lines] or [np.empty(0)]),
            INTERACTIVITY: np.concatenate([each.interactivity for each in lines] or [np.empty(0)]),
            THROUGHPUT: np.concatenate([each.throughput for each in lines] or [np.empty(0)]),
        },
        schema_overrides={"arm": pl.String},
    )
    best = non_dominated(table[INTERACTIVITY].to_numpy(), table[THROUGHPUT].to_numpy())
    return table.filter(pl.Series(best, dtype=pl.Boolean)).sort(INTERACTIVITY, "arm", "load")


def throughput_at_anchor(curve: Line, anchor: float) -> AtAnchor:
    """Return the largest throughput on a line with interactivity of at least `anchor` tokens per second per user.

    Values between two neighbouring loads are linear; a segment with one end beyond the capture limit and the other
    within it counts by its ends alone.
    """
    found = _largest(curve.throughput, curve.interactivity, curve.eager, anchor)
    if found is None:
        return AtAnchor("not_met")
    value, first, last = found
    loads = float(curve.loads[first]), float(curve.loads[last])
    status: Status = "at_least" if curve.interactivity[-1] >= anchor else "met"
    return AtAnchor(status, value, loads, first == last and _stopped_by_limit(curve, first, anchor))


def interactivity_at_throughput(curve: Line, throughput: float) -> float | None:
    """Return the largest interactivity on a line with at least this throughput (tokens per second per GPU), or None."""
    found = _largest(curve.interactivity, curve.throughput, curve.eager, throughput)
    return None if found is None else found[0]


def speedup_at_matched(
    curve: Line, reference: Sequence[Line], at: Sequence[tuple[str, float]] | None = None
) -> list[Matched]:
    """Compare an arm with a reference at the throughputs of the reference's own points.

    The reference is one line, or several of which the best is taken at every throughput (hindsight picks it).
    Throughputs outside the arm's own range are left out, so that nothing is extrapolated on either side.

    Args:
        curve: the arm's line.
        reference: one line or more, of distinct arms.
        at: the reference points that fix the throughputs, as (arm, load), each a point of `reference`; by default
            its non-dominated points, by ascending throughput.

    Returns:
        one entry a matched throughput, in the order of the reference points.
    """
    points = reference_points(reference) if at is None else at
    matched = []
    for arm, load in points if len(curve.loads) else ():
        throughput = _throughput_of(reference, arm, load)
        mine = interactivity_at_throughput(curve, throughput)
        theirs = [interactivity_at_throughput(each, throughput) for each in reference]
        if mine is not None and throughput >= curve.throughput.min():
            matched.append(Matched(arm, load, throughput, mine, max(each for each in theirs if each is not None)))
    return matched


def reference_points(reference: Sequence[Line]) -> list[tuple[str, float]]:
    """Return the non-dominated points of the lines as (arm, load), by ascending throughput."""
    return frontier(reference).sort(THROUGHPUT, "arm", "load").select("arm", "load").rows()


def _throughput_of(reference: Sequence[Line], arm: str, load: float) -> float:
    theirs = next(each for each in reference if each.arm == arm)
    return float(theirs.throughput[np.flatnonzero(theirs.loads == load)[0]])


def seed_lines(points: pl.DataFrame, arms: Collection[str]) -> dict[int, Mapping[str, Line]]:
    """Return the lines of these arms by seed, for the seeds in which every one of them has all of its loads."""
    whole = {arm: len(line(points, arm).loads) for arm in arms}
    every: dict[int, Mapping[str, Line]] = {}
    for seed in points["seed"].unique().sort().to_list():
        lines = {arm: line(points, arm, seed) for arm in arms}
        if all(len(lines[arm].loads) == count for arm, count in whole.items()):
            every[seed] = lines
    return every


def _largest(goal: Floats, held: Floats, eager: Bools, bound: float) -> tuple[float, int, int] | None:
    """Return the largest `goal` with `held` >= `bound` and the two load indices it lies between, or None.

    On a linear segment the part that holds the bound ends at a load or where `held` crosses the bound, and `goal`
    is largest at an end; so loads and crossings are all there is to look at.
    """
    points = [(float(goal[i]), int(i), int(i)) for i in np.flatnonzero(held >= bound)]
    return max([*points, *_crossings(goal, held, eager, bound)], key=lambda found: found[0], default=None)


def _crossings(goal: Floats, held: Floats, eager: Bools, bound: float) -> Iterator[tuple[float, int, int]]:
    for i in range(len(held) - 1):
        low, high = float(held[i]), float(held[i + 1])
        if eager[i] == eager[i + 1] and min(low, high) < bound < max(low, high):
            share = (bound - low) / (high - low)
            yield float(goal[i] + share * (goal[i + 1] - goal[i])), i, i + 1


def _stopped_by_limit(curve: Line, index: int, anchor: float) -> bool:
    neighbours = [i for i in (index - 1, index + 1) if 0 <= i < len(curve.loads)]
    return any(curve.eager[i] != curve.eager[index] and curve.interactivity[i] < anchor for i in neighbours)
