"""What an axis of a sweep does to a metric: paired ratios, with an interval over seeds.

Points that differ in nothing but the axis (or the arm) share their texts and arrivals, so each is divided by its
partner of the same seed, and only then averaged: the geometric mean over whatever the effect does not name, seed by
seed, then the mean over seeds with Student's t interval.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import polars as pl

from ..config.errors import ConfigError
from ..config.schema import AgainstArm, Effect
from ..config.text import value_text
from ..sweep.plan import Plan
from .intervals import ratio_interval
from .roles import roles

VALUE, REFERENCE, RATIO = "_value", "_reference", "_ratio"
"""Columns of pairs; no axis can be called so."""


def effects_of(points: pl.DataFrame, plan: Plan) -> list[dict[str, Any]]:
    """Return every effect of `output.effects` with its table, ready for JSON."""
    return [
        {
            **effect.model_dump(),
            "averaged_over": _averaged(points, effect, plan),
            "rows": effect_table(points, effect, plan).to_dicts(),
        }
        for effect in plan.base.output.effects
    ]


def effect_table(points: pl.DataFrame, effect: Effect, plan: Plan) -> pl.DataFrame:
    """Return how a metric changes along an axis.

    Args:
        points: the points table of the plan.
        effect: one of its `output.effects`.
        plan: what was run.

    Returns:
        ``panel, line, x, ratio, low, high, seeds, pairs, left_out``: ratio to the reference and its 95 % interval
        (null under five seeds), seeds, pairs of points of each seed, and pairs left out because either point is
        missing or has no positive metric. In the order of the axes' values.

    Raises:
        ConfigError: if the metric is no number of the table, or no point has the reference.
    """
    axes = list(plan.base.sweep.axes)
    if effect.metric not in points.columns or not points[effect.metric].dtype.is_numeric():
        raise ConfigError(
            f"output.effects: {effect.metric!r} is no numeric column of points.parquet; see docs/metrics.md"
        )
    points = _taking_part(points, effect)
    chosen = _subjects(points, effect)
    reference, keys = _reference(points, effect, axes)
    if not len(reference):
        raise ConfigError(f"output.effects: no point has {effect.along} {effect.against!r}; name a value of that axis")
    pairs = chosen.join(reference, on=keys, how="left", maintain_order="left")
    rows = [_row(*named) for named in _groups(pairs, effect, plan)]
    return pl.DataFrame(
        rows, schema_overrides={"low": pl.Float64, "high": pl.Float64, "ratio": pl.Float64}, strict=False
    )


def _taking_part(points: pl.DataFrame, effect: Effect) -> pl.DataFrame:
    """Return the points that `where` leaves."""
    kept = [
        pl.Series([value in chosen for value in points[name].to_list()], dtype=pl.Boolean)
        for name, chosen in effect.where.items()
    ]
    return points.filter(*kept) if kept else points


def _subjects(points: pl.DataFrame, effect: Effect) -> pl.DataFrame:
    """Return the points that are compared, their metric in the column `VALUE`."""
    other = effect.against.arm if isinstance(effect.against, AgainstArm) else None
    arms = effect.arms or [arm for arm in roles(points).contenders if arm != other]
    return points.filter(pl.col("arm").is_in(arms)).with_columns(pl.col(effect.metric).cast(pl.Float64).alias(VALUE))


def _reference(points: pl.DataFrame, effect: Effect, axes: list[str]) -> tuple[pl.DataFrame, list[str]]:
    """Return the points compared with, their metric in the column `REFERENCE`, and what a pair has in common."""
    by_arm = isinstance(effect.against, AgainstArm)
    column = "arm" if by_arm else effect.along
    wanted = effect.against.arm if isinstance(effect.against, AgainstArm) else effect.against
    keys = [key for key in ("arm", "load", "seed", *axes) if key != column]
    values = points[column]
    found = points.filter(pl.Series([value == wanted for value in values.to_list()], dtype=pl.Boolean))
    return found.select(*keys, pl.col(effect.metric).cast(pl.Float64).alias(REFERENCE)), keys


def _averaged(points: pl.DataFrame, effect: Effect, plan: Plan) -> list[str]:
    """Return what an effect does not tell apart although several values of it take part."""
    compared = _subjects(_taking_part(points, effect), effect)
    rest = (name for name in ("arm", "load", *plan.base.sweep.axes) if name not in effect.named)
    return [name for name in rest if compared[name].n_unique() > 1]


def _groups(pairs: pl.DataFrame, effect: Effect, plan: Plan) -> Iterator[tuple[Any, Any, Any, pl.DataFrame]]:
    names = [effect.panels, effect.lines, effect.along]
    for panel in _values(pairs, names[0], plan):
        for line in _values(pairs, names[1], plan):
            for x in _values(pairs, names[2], plan):
                wanted = zip(names, (panel, line, x), strict=True)
                part = pairs.filter(*(pl.col(name) == value for name, value in wanted if name is not None))
                if len(part):
                    yield panel, line, x, part


def _values(pairs: pl.DataFrame, name: str | None, plan: Plan) -> list[Any]:
    """Return the values of an axis in the order of the file; those of load and arm in that of the table."""
    if name is None:
        return [None]
    if name in plan.base.sweep.axes:
        return list(dict.fromkeys(cell.values[name] for cell in plan.cells))
    return pairs[name].unique(maintain_order=True).to_list()


def _row(panel: Any, line: Any, x: Any, part: pl.DataFrame) -> dict[str, Any]:
    sound = part.filter((pl.col(VALUE) > 0) & (pl.col(REFERENCE) > 0))
    sound = sound.with_columns((pl.col(VALUE) / pl.col(REFERENCE)).alias(RATIO))
    seeds = [each[RATIO].to_list() for _, each in sound.group_by("seed", maintain_order=True)]
    logs = [math.fsum(map(math.log, ratios)) / len(ratios) for ratios in seeds]
    interval = ratio_interval(logs)
    return {
        "panel": None if panel is None else value_text(panel),
        "line": None if line is None else value_text(line),
        "x": value_text(x),
        "ratio": math.exp(math.fsum(logs) / len(logs)) if logs else None,
        "low": interval and interval.low,
        "high": interval and interval.high,
        "seeds": len(logs),
        "pairs": len(sound),
        "left_out": len(part) - len(sound),
    }
