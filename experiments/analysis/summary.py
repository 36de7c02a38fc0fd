"""What a run says: throughput at the SLA anchors, and speed-up per user at matched throughput.

The points table is reduced to a plain dictionary (``summary.json``); ``docs/metrics.md`` defines every entry.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from ...sim.metrics import INTERACTIVITY, THROUGHPUT
from ..config.schema import Experiment, band_names, expanded_arms
from ..sweep.plan import Cell, Plan
from . import effects
from .frontier import (
    Line,
    Matched,
    frontier,
    line,
    reference_points,
    seed_lines,
    speedup_at_matched,
    throughput_at_anchor,
    usable,
)
from .intervals import LEAST_SEEDS, Interval, mean_interval, ratio_interval
from .roles import Roles, roles

Summary = dict[str, Any]

INTERVALS = f"95 %, Student t over seeds (at least {LEAST_SEEDS})"


def summarize(points: pl.DataFrame, experiment: Experiment) -> Summary:
    """Return the summary of a run's points, ready for JSON."""
    cast = cast_of(points, experiment)
    summary = summarize_points(points, experiment.sla.anchors or (), load_name(experiment), cast)
    bounds = bounds_of(experiment)
    return summary | ({"goodput": _goodput(points, cast, bounds)} if bounds else {})


def bounds_of(experiment: Experiment) -> dict[str, float]:
    """Return the bounds of goodput that apply, seconds: there is no TTFT without a prefill stage."""
    ttft = experiment.sla.ttft_s if experiment.with_prefill else None
    bounds = {"TTFT": ttft, "TPOT": experiment.sla.tpot_s}
    return {name: bound for name, bound in bounds.items() if bound is not None}


def _goodput(points: pl.DataFrame, cast: Roles, bounds: Mapping[str, float]) -> Summary:
    """Return goodput by arm and load, requests/s, means over seeds (None where a point is missing)."""
    loads = points["load"].unique().sort().to_list()
    means = {
        (arm, load): math.fsum(part["goodput_req_s"]) / len(part)
        for (arm, load), part in points.drop_nulls("goodput_req_s").group_by("arm", "load", maintain_order=True)
    }
    arms = [
        {"arm": arm, "label": cast.label(arm), "by_load": [means.get((arm, load)) for load in loads]}
        for arm in cast.arms
    ]
    return {"bounds": dict(bounds), "loads": loads, "arms": arms}


def summarize_plan(points: pl.DataFrame, plan: Plan) -> Summary:
    """Return the summary of a plan's points: that of `summarize`, or with axes the arms of every combination."""
    if not plan.base.sweep.axes:
        named = plan.base.output.effects
        return summarize(points, plan.base) | ({"effects": effects.effects_of(points, plan)} if named else {})
    return {
        "load": load_name(plan.base),
        "seeds": plan.base.seeds,
        "intervals": INTERVALS,
        "points": len(points),
        "axes": {axis: list(dict.fromkeys(cell.values[axis] for cell in plan.cells)) for axis in plan.base.sweep.axes},
        "cells": [_cell(part, cell) for cell, part in cells_of(points, plan)],
        "effects": effects.effects_of(points, plan),
    }


def cells_of(points: pl.DataFrame, plan: Plan) -> Iterator[tuple[Cell, pl.DataFrame]]:
    """Yield each combination of the axes that has points, with these."""
    axes = list(plan.base.sweep.axes)
    for cell in plan.cells:
        part = points.filter(*(pl.col(axis) == cell.values[axis] for axis in axes)).drop(axes)
        if len(part):
            yield cell, part


def _cell(points: pl.DataFrame, cell: Cell) -> Summary:
    experiment = cell.experiment
    cast, kept = cast_of(points, experiment), usable(points)
    anchors = experiment.sla.anchors or ()
    lines = {arm: line(kept, arm) for arm in cast.arms}
    return {
        "values": dict(cell.values),
        "points_left_out": len(points) - len(kept),
        "anchors": list(anchors),
        "arms": [_arm(kept, lines[arm], cast, anchors) for arm in cast.arms],
    }


def cast_of(points: pl.DataFrame, experiment: Experiment) -> Roles:
    """Return the roles of an experiment's arms, in the order of its file."""
    return roles(points, list(expanded_arms(experiment)), {name: band_names(name) for name in experiment.arms})


def load_name(experiment: Experiment) -> str:
    """Return what a load of this experiment is: concurrency (closed loop) or requests/s (open loop)."""
    return "concurrency" if experiment.workload.mode == "closed" else "requests/s"


def summarize_points(
    points: pl.DataFrame, anchors: Sequence[float], load: str = "concurrency", cast: Roles | None = None
) -> Summary:
    """Return the summary of a points table.

    Args:
        points: needs ``arm, load, seed``, both coordinates, ``eager_fraction``, ``safety`` and ``bound``.
        anchors: interactivities, tokens per second per user.
        load: what a load is called.
        cast: roles of the arms; by default those that the table and the arms' names tell.
    """
    kept, cast = usable(points), cast or roles(points)
    lines = {arm: line(kept, arm) for arm in cast.arms}
    return {
        "load": load,
        "seeds": kept["seed"].unique().sort().to_list(),
        "intervals": INTERVALS,
        "points": len(points),
        "points_left_out": len(points) - len(kept),
        "anchors": list(anchors),
        "arms": [_arm(kept, lines[arm], cast, anchors) for arm in cast.arms],
        "best_static_at_anchor": [_best(anchor, [lines[arm] for arm in cast.statics]) for anchor in anchors],
        "frontier": _frontier([lines[arm] for arm in cast.contenders]),
        "speedup": {
            "mtp": _speedups(kept, cast, () if cast.mtp is None else (cast.mtp,)),
            "best_static": _speedups(kept, cast, cast.statics),
        },
    }


def _arm(points: pl.DataFrame, mean: Line, cast: Roles, anchors: Sequence[float]) -> Summary:
    by_seed = {seed: lines[mean.arm] for seed, lines in seed_lines(points, [mean.arm]).items()}
    return {
        "arm": mean.arm,
        "label": cast.label(mean.arm),
        "loads": mean.loads.tolist(),
        "at_anchor": [_at_anchor(mean, by_seed, anchor) for anchor in anchors],
    }


def _at_anchor(mean: Line, by_seed: Mapping[int, Line], anchor: float) -> Summary:
    """Return the mean line's value with the interval of the seeds' lines, which needs them to agree on the status."""
    found = throughput_at_anchor(mean, anchor)
    seeds = {seed: throughput_at_anchor(each, anchor) for seed, each in by_seed.items()}
    agree = sum(each.status == found.status for each in seeds.values())
    values = [each.throughput for each in seeds.values() if each.throughput is not None]
    interval = mean_interval(values) if agree == len(values) == len(seeds) else None
    return {
        "anchor": anchor,
        "status": found.status,
        THROUGHPUT: found.throughput,
        "low": interval and interval.low,
        "high": interval and interval.high,
        "between_loads": found.loads and list(found.loads),
        "highest_load": float(mean.loads[-1]) if len(mean.loads) else None,
        "at_capture_limit": found.at_capture_limit,
        "seeds": len(seeds),
        "seeds_of_this_status": agree,
    }


def _best(anchor: float, lines: Sequence[Line]) -> Summary:
    """Return the arm with the largest throughput at an anchor."""
    found = [(at.throughput, each.arm) for each in lines if (at := throughput_at_anchor(each, anchor)).throughput]
    throughput, arm = max(found, key=lambda pair: pair[0] or 0.0, default=(None, None))
    return {"anchor": anchor, "arm": arm, THROUGHPUT: throughput}


def _frontier(lines: Sequence[Line]) -> list[Summary]:
    return frontier(lines).to_dicts()


def _speedups(points: pl.DataFrame, cast: Roles, reference: Sequence[str]) -> Summary | None:
    """Return the speed-up of every other arm over a reference, or None without one."""
    if not reference:
        return None
    others = [arm for arm in cast.arms if arm not in {*reference, *cast.band_ends}]
    ends = cast.bands.get(reference[0], ()) if len(reference) == 1 else ()
    return {
        "reference": list(reference),
        "reference_points": len(reference_points([line(points, arm) for arm in reference])),
        "arms": [
            {
                "arm": arm,
                "label": cast.label(arm),
                **_speedup(points, arm, reference),
                "over_band_ends": [_speedup(points, arm, [end])["geometric_mean"] for end in ends],
            }
            for arm in others
        ],
    }


def _speedup(points: pl.DataFrame, arm: str, reference: Sequence[str]) -> Summary:
    """Return the speed-up of one arm at every throughput that lies inside both ranges, for the mean and all seeds."""
    mean = speedup_at_matched(line(points, arm), [line(points, each) for each in reference])
    seeds = [
        {
            each.key: each
            for each in speedup_at_matched(lines[arm], [lines[r] for r in reference], [m.key for m in mean])
        }
        for lines in seed_lines(points, [arm, *reference]).values()
    ]
    inside = [each for each in mean if all(each.key in seed for seed in seeds)]
    matched = [_matched(each, [seed[each.key] for seed in seeds]) for each in inside]
    logs = [_mean_log([seed[each.key] for each in inside]) for seed in seeds if inside]
    return {
        "geometric_mean": math.exp(_mean_log(inside)) if inside else None,
        **_bounds(ratio_interval(logs)),
        "least": min(matched, key=lambda each: each["speedup"], default=None),
        "most": max(matched, key=lambda each: each["speedup"], default=None),
        "seeds": len(seeds),
        "matched": matched,
    }


def _matched(mean: Matched, seeds: Sequence[Matched]) -> Summary:
    return {
        "reference_arm": mean.arm,
        "load": mean.load,
        THROUGHPUT: mean.throughput,
        INTERACTIVITY: mean.interactivity,
        "reference_" + INTERACTIVITY: mean.reference,
        "speedup": mean.speedup,
        **_bounds(ratio_interval([math.log(each.speedup) for each in seeds])),
    }


def _mean_log(matched: Sequence[Matched]) -> float:
    return math.fsum(math.log(each.speedup) for each in matched) / len(matched)


def _bounds(interval: Interval | None) -> Summary:
    return {"low": interval and interval.low, "high": interval and interval.high}
