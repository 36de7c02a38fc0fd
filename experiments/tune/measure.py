"""From the points of a candidate to its objectives and constraints."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from ...policies.nearest import suggestion
from ..analysis.frontier import Line, line, seed_lines, throughput_at_anchor, usable
from ..config.errors import ConfigError
from ..config.schema_tune import Tune

BySeed = tuple[float | None, ...]


@dataclass(frozen=True)
class Measured:
    """What a candidate's points say. Objectives and constraints stand in the order of the file.

    Attributes:
        values: each objective, a mean over seeds.
        violations: by how much each constraint is broken, as a fraction of its bound; at most 0 where it holds. An
            anchor is a constraint too.
        load: the load at which metrics without a load of their own are read.
        objectives: each objective seed by seed, in the order of ``seeds``; None where a seed has no value.
        constrained: the metric of each constraint seed by seed; for an anchor only where there is a single load.
        seeds: the seeds.
        at_least: whether an objective is only a lower bound, because the highest load still meets the anchor.
    """

    values: tuple[float, ...]
    violations: Mapping[str, float]
    load: float | None
    objectives: Mapping[str, BySeed]
    constrained: Mapping[str, BySeed]
    seeds: tuple[int, ...]
    at_least: bool = False

    @property
    def feasible(self) -> bool:
        """Whether every constraint holds."""
        return all(violation <= 0.0 for violation in self.violations.values())


class NoValueError(ValueError):
    """A metric is null in a seed of a candidate."""


@dataclass(frozen=True)
class _Read:
    """One objective or constraint: its value over all seeds and in each."""

    value: float
    by_seed: BySeed


@dataclass(frozen=True)
class _Anchored:
    """An anchor on the line of a candidate; with a single load, ``speeds`` is each seed's interactivity there."""

    read: _Read
    violation: float
    load: float
    at_least: bool
    speeds: BySeed | None


def measure(table: pl.DataFrame, tune: Tune, margin: float = 0.0, planning: bool = True) -> Measured:
    """Return the objectives and constraints of one candidate.

    Args:
        table: its points, one arm, every load with every seed.
        tune: the study.
        margin: searched; every anchor is read this fraction higher than it is.
        planning: whether constraints are tightened by their margins, as on the tuning seeds.

    Raises:
        ConfigError: if a metric is no number of the table.
        NoValueError: if one is null in a seed.
    """
    seeds = tuple(table["seed"].unique().sort().to_list())
    anchored = {
        objective.name: _at_anchor(table, objective.anchor, (1.0 + margin) * (1.0 + objective.margin), planning, seeds)
        for objective in tune.objectives
        if objective.anchor is not None
    }
    load = next((found.load for found in anchored.values()), None)
    if load is None and table["load"].n_unique() == 1:
        load = float(table["load"][0])
    reads = {
        each.name: anchored[each.name].read if each.name in anchored else _metric(table, each.metric, each.load or load)
        for each in tune.objectives
    }
    bounds = {each.name: (each, _metric(table, each.metric, each.load or load)) for each in tune.constraints}
    violations = {each.condition: anchored[each.name].violation for each in tune.objectives if each.condition}
    speeds = {
        each.condition: found.speeds
        for each in tune.objectives
        if each.condition and (found := anchored[each.name]).speeds is not None
    }
    return Measured(
        values=tuple(read.value for read in reads.values()),
        violations=violations
        | {name: each.violation(read.value, each.margin * planning) for name, (each, read) in bounds.items()},
        load=load,
        objectives={name: read.by_seed for name, read in reads.items()},
        constrained={**speeds, **{name: read.by_seed for name, (_, read) in bounds.items()}},
        seeds=seeds,
        at_least=any(found.at_least for found in anchored.values()),
    )


def _at_anchor(table: pl.DataFrame, anchor: float, headroom: float, planning: bool, seeds: Sequence[int]) -> _Anchored:
    """Read throughput at an anchor off the mean line, and off each seed's own where there are several loads.

    Where the loads are one, a seed's value is its throughput: whether the anchor is met is a matter of the mean.
    """
    points = usable(table)
    (arm,) = table["arm"].unique().to_list()
    mean, lines = line(points, arm), {seed: each[arm] for seed, each in seed_lines(points, [arm]).items()}
    planned = anchor * headroom
    found = throughput_at_anchor(mean, planned)
    single = len(mean.loads) == 1
    by_seed = tuple(_of_seed(lines.get(seed), planned, single) for seed in seeds)
    fastest = float(mean.interactivity.max()) if len(mean.loads) else 0.0
    loads = found.loads or (float(table["load"].min()),)  # type: ignore[arg-type]
    return _Anchored(
        _Read(found.throughput or 0.0, by_seed),
        violation=((planned if planning else anchor) - fastest) / anchor,
        load=min(loads),  # of the two loads that a value lies between, the one that meets the anchor
        at_least=found.status == "at_least" and not single,
        speeds=tuple(float(lines[seed].interactivity[0]) for seed in seeds)
        if single and len(lines) == len(seeds)
        else None,
    )


def _of_seed(curve: Line | None, anchor: float, single: bool) -> float | None:
    if curve is None:
        return None
    return float(curve.throughput[0]) if single else throughput_at_anchor(curve, anchor).throughput


def _metric(table: pl.DataFrame, metric: str, load: float | None) -> _Read:
    """Return a column at a load, in the order of the seeds."""
    if metric not in table.columns or not table[metric].dtype.is_numeric():
        numbers = [name for name in table.columns if table[name].dtype.is_numeric()]
        raise ConfigError(
            f"tune: {metric!r} is no numeric column of points.parquet; {suggestion(metric, numbers)} (docs/metrics.md)"
        )
    values = table.filter(pl.col("load") == load).sort("seed")[metric].cast(pl.Float64).to_list()
    if any(value is None or not math.isfinite(value) for value in values):
        raise NoValueError(f"{metric} has no value in every seed (docs/metrics.md says when it is null)")
    return _Read(math.fsum(values) / len(values), tuple(values))
