"""Several runs on one page: what differs in their files, their frontiers on one plane, points they share."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle
from typing import Any

import polars as pl
from markupsafe import Markup
from matplotlib.figure import Figure

from ...sim.metrics import INTERACTIVITY, THROUGHPUT
from ..analysis.frontier import frontier, line, usable
from ..analysis.intervals import ratio_interval
from ..analysis.summary import cast_of
from ..config.text import load_text
from ..show.canvas import canvas, say_empty
from ..show.frontier import whole_markers
from ..show.styles import COLOURS, MARKERS
from ..show.terminal import anchor_cell, number
from ..sweep.finished import Run
from ..sweep.plan import Plan
from .html import Column, beside, join, notes, section, table
from .svg import inline_figure

LONGEST = 120
"""Characters of a value in the table of differences."""


def comparison(runs: Sequence[Run]) -> Markup:
    """Return what several runs have in common and where they differ."""
    plain = [run for run in runs if not run.plan.base.sweep.axes]
    parts = [section("What differs in their experiment files", _differences_part(runs), level=3)]
    if len(plain) >= 2:
        parts.append(section("Their frontiers", _frontiers_part(plain), level=3))
        parts.append(section("Throughput at the anchors", _anchors_part(plain), level=3))
    parts.append(section("The same points in both", *_ratios_part(runs), level=3))
    if len(plain) < len(runs):
        parts.append(notes(["Runs with axes have no frontier of their own and are left out of the frontiers."]))
    return join(parts)


def differences(runs: Sequence[Run]) -> list[tuple[str, list[str]]]:
    """Return every key in which the experiments differ, defaults written out, with its value in each run.

    Of a sweep with axes, a key that its combinations do not share has all of its values.
    """
    flat = [_keys(run.plan) for run in runs]
    keys = dict.fromkeys(key for each in flat for key in each)
    rows = [(key, [each.get(key, "-") for each in flat]) for key in keys]
    return [(key, values) for key, values in rows if len(set(values)) > 1]


def _keys(plan: Plan) -> dict[str, str]:
    """Return what every key of a plan has, over all of its combinations."""
    found: dict[str, dict[str, None]] = {}
    for cell in plan.cells:
        for key, text in _flat(cell.experiment.model_dump()):
            found.setdefault(key, {})[text] = None
    shared = {"sweep": {"axes": plan.base.sweep.axes}, "output": {"effects": _effects(plan)}}
    return {key: _cut(", ".join(texts)) for key, texts in found.items()} | dict(_flat(shared))


def _effects(plan: Plan) -> list[Any]:
    return [effect.model_dump() for effect in plan.base.output.effects]


def _flat(data: Any, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(data, Mapping) and data:
        for key, value in data.items():
            yield from _flat(value, f"{path}.{key}" if path else str(key))
    else:
        yield path, _cut(data if isinstance(data, str) else json.dumps(data))


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 2] + ".."


def _differences_part(runs: Sequence[Run]) -> Markup:
    rows = differences(runs)
    if not rows:
        return notes(["Nothing: their files are the same."])
    columns: list[Column] = [("key", [key for key, _ in rows])]
    columns += [(run.name, [values[i] for _, values in rows]) for i, run in enumerate(runs)]
    return table(columns, "Keys with different values", len(columns))


def _frontiers_part(runs: Sequence[Run]) -> Markup:
    fronts = [_front(run) for run in runs]
    caption = "The frontier of each run: points that no other arm of the same run equals or beats in both coordinates"
    rows = [(run.name, row) for run, front in zip(runs, fronts, strict=True) for row in front.rows(named=True)]
    columns: list[Column] = [
        ("run", [name for name, _ in rows]),
        ("arm", [row["arm"] for _, row in rows]),
        ("load", [load_text(row["load"]) for _, row in rows]),
        ("tok/s/user", [number(row[INTERACTIVITY]) for _, row in rows]),
        ("tok/s/GPU", [number(row[THROUGHPUT]) for _, row in rows]),
    ]
    drawn = inline_figure(frontiers_figure([run.name for run in runs], fronts), "compare-frontier", caption)
    return beside(drawn, table(columns, "Points of the frontiers", 2))


def _front(run: Run) -> pl.DataFrame:
    kept = usable(run.points)
    return frontier([line(kept, arm) for arm in cast_of(run.points, run.plan.base).contenders])


def frontiers_figure(names: Sequence[str], fronts: Sequence[pl.DataFrame]) -> Figure:
    """Return the frontiers of runs on one plane, joined by thin lines that only guide the eye."""
    figure, (axes,) = canvas(5.6, 4.2, 1)
    axes.set(xlabel="interactivity, tok/s/user", ylabel="throughput, tok/s/GPU")
    if not any(len(front) for front in fronts):
        say_empty(axes, "no run has a frontier")
    for name, front, colour, marker in zip(names, fronts, cycle(COLOURS), cycle(MARKERS), strict=False):
        if len(front):
            ordered = front.sort(INTERACTIVITY)
            x, y = (ordered[column].to_numpy() for column in (INTERACTIVITY, THROUGHPUT))
            axes.plot(x, y, color=colour, marker=marker, markersize=5, linewidth=0.8, label=name)
    whole_markers(axes)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    return figure


def _anchors_part(runs: Sequence[Run]) -> Markup:
    common = [anchor for anchor in runs[0].summary["anchors"] if all(anchor in r.summary["anchors"] for r in runs)]
    if not common:
        return notes(["The runs have no SLA anchor in common; --set sla.anchors=[..] gives them some."])
    found = [{arm["label"]: arm["at_anchor"] for arm in run.summary["arms"]} for run in runs]
    labels = list(dict.fromkeys(label for each in found for label in each))
    columns: list[Column] = [("arm", labels)]
    for anchor in common:
        for run, arms in zip(runs, found, strict=True):
            place = run.summary["anchors"].index(anchor)
            cells = [anchor_cell(arms[label][place], " ±") if label in arms else "-" for label in labels]
            columns.append((f"at {number(anchor)}, {run.name}", cells))
    return table(columns, "Throughput, tok/s/GPU, at an interactivity of at least so many tok/s/user")


def _ratios_part(runs: Sequence[Run]) -> Iterator[Markup]:
    first, *others = runs
    for other in others:
        rows = ratios(first, other)
        if not rows:
            yield notes([f"{other.name} has no point (arm, load, seed, axes) in common with {first.name}."])
            continue
        columns: list[Column] = [
            ("arm", [row["arm"] for row in rows]),
            ("loads", [str(row["loads"]) for row in rows]),
            ("seeds", [str(row["seeds"]) for row in rows]),
        ]
        for name in (INTERACTIVITY, THROUGHPUT):
            columns.append((name, [_change(row[name]) for row in rows]))
            columns.append(("95 %", [_between(row[f"{name}_interval"]) for row in rows]))
        yield table(columns, f"{other.name} against {first.name}: change at points of the same arm, load and seed")
    yield notes(["Change: geometric mean over loads, paired by seed; intervals: Student t over seeds, from five on."])


def ratios(first: Run, other: Run) -> list[dict[str, Any]]:
    """Return for each arm of both runs the ratio of the other's metrics to the first's at the points they share.

    Returns:
        ``arm, loads, seeds`` and for each metric its ratio and ``_interval`` (None under five seeds). Empty if they
        share no point; points of sweeps also need the same axes.
    """
    axes = [list(run.plan.base.sweep.axes) for run in (first, other)]
    if set(axes[0]) != set(axes[1]) or any(first.points[a].dtype != other.points[a].dtype for a in axes[0]):
        return []
    keys = ["arm", "load", "seed", *axes[0]]
    pairs = usable(first.points).join(usable(other.points), on=keys, maintain_order="left", suffix="_other")
    return [_ratio(arm, pairs.filter(pl.col("arm") == arm)) for arm in pairs["arm"].unique(maintain_order=True)]


def _ratio(arm: str, pairs: pl.DataFrame) -> dict[str, Any]:
    row: dict[str, Any] = {"arm": arm, "loads": pairs["load"].n_unique(), "seeds": pairs["seed"].n_unique()}
    for name in (INTERACTIVITY, THROUGHPUT):
        by_seed = pairs.select("seed", (pl.col(f"{name}_other") / pl.col(name)).log().alias("log"))
        logs = [_average(part["log"]) for _, part in by_seed.group_by("seed", maintain_order=True)]
        row[name] = math.exp(math.fsum(logs) / len(logs))
        row[f"{name}_interval"] = ratio_interval(logs)
    return row


def _average(values: pl.Series) -> float:
    return math.fsum(values) / len(values)


def _change(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.2f} %"


def _between(interval: Any) -> str:
    return "-" if interval is None else f"{_change(interval.low)} .. {_change(interval.high)}"
