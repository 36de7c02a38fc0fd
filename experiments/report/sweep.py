"""The sections of a report that tell of a sweep with axes: effects, combinations, and some of them in full."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl
from markupsafe import Markup

from ...sim.metrics import INTERACTIVITY, THROUGHPUT
from ..analysis.effects import effect_table
from ..analysis.summary import cast_of, cells_of
from ..config.text import load_text
from ..show.effect import effect_figure
from ..show.terminal import number
from ..show.terminal_sweep import ARMS_TITLE, arm_columns, effect_columns, effect_notes, effect_title
from ..sweep.finished import Run
from ..sweep.plan import Cell
from .html import Column, beside, join, notes, section, table
from .parts import WIDTH, Part, further_parts, sections, sizes_part
from .svg import inline_figure, reflow
from .waste import PARTS, waste_table

MOST_CELLS = 4
"""Combinations shown in full; a sweep with more has tables only."""

MOST_DRAWN = 12
"""Combinations whose further figures, such as `transient`, are shown all the same."""


def sweep_sections(run: Run, prefix: str) -> Iterator[Markup]:
    """Yield the sections of a run with axes."""
    summary = dict(run.summary)
    yield from effect_sections(run, prefix)
    if not summary["effects"]:
        yield notes(["The experiment names no effects; output.effects says what to compare along an axis."])
    yield section("Throughput at the anchors", *_anchors(summary), level=3)
    yield section("Budget and waste of every combination", _everything(run), level=3)
    yield from _in_full(run, prefix)


def effect_sections(run: Run, prefix: str) -> Iterator[Markup]:
    """Yield a section for each effect of a run."""
    for index, effect in enumerate(run.summary.get("effects", ())):
        yield section(f"Effect {index + 1}", _effect(run, index, effect, f"{prefix}-effect{index + 1}"), level=3)


def _effect(run: Run, index: int, effect: Mapping[str, Any], prefix: str) -> Markup:
    asked = run.plan.base.output.effects[index]
    values = effect_table(run.points, asked, run.plan)
    figure = effect_figure(values, asked)
    panels = len(figure.axes)
    figure.axes[0].set_ylabel("change, %")  # the caption says of what, against what
    drawn = inline_figure(reflow(figure, min(2, panels), WIDTH, 3.1), prefix, effect_title(dict(effect)))
    columns = effect_columns(dict(effect))
    columns.append(("pairs a seed", [str(row["pairs"] // max(1, row["seeds"])) for row in effect["rows"]]))
    columns.append(("seeds", [str(row["seeds"]) for row in effect["rows"]]))
    words = sum(effect[name] is not None for name in ("panels", "lines", "along"))
    return beside(drawn, table(columns, effect_title(dict(effect)), words), notes(effect_notes(dict(effect))))


def _anchors(summary: Mapping[str, Any]) -> Iterator[Markup]:
    columns = arm_columns(dict(summary), " ±")
    if len(columns) == len(summary["axes"]) + 1:
        yield notes(["No interactivity anchors: set sla.anchors to compare arms at them."])
    else:
        yield table(columns, ARMS_TITLE, len(summary["axes"]) + 1)


def _everything(run: Run) -> Markup:
    axes = list(run.plan.base.sweep.axes)
    rows = [
        (cell.values, share, part)
        for cell, part in cells_of(run.points, run.plan)
        for share in waste_table(part, cast_of(part, cell.experiment).arms).rows(named=True)
    ]
    columns: list[Column] = [(axis, [str(values[axis]) for values, _, _ in rows]) for axis in axes]
    columns.append(("arm", [share["arm"] for _, share, _ in rows]))
    columns.append(("load", [load_text(share["load"]) for _, share, _ in rows]))
    for name, title in ((INTERACTIVITY, "tok/s/user"), (THROUGHPUT, "tok/s/GPU"), ("verify_budget", "verify budget")):
        columns.append((title, [_mean(part, share, name) for _, share, part in rows]))
    columns += [(f"{name}, %", [f"{100 * share[name]:.1f}" for _, share, _ in rows]) for name in PARTS]
    whole = table(columns, "Mean over seeds; anchors to padded: parts of the executed tokens", len(axes) + 1)
    return join([whole, notes(["Load: requests that run (closed loop) or requests/s (open loop)."])])


def _mean(part: pl.DataFrame, at: Mapping[str, Any], name: str) -> str:
    values = part.filter(pl.col("arm") == at["arm"], pl.col("load") == at["load"]).sort("seed")[name].drop_nulls()
    return number(math.fsum(values) / len(values)) if len(values) else "-"


def _in_full(run: Run, prefix: str) -> Iterator[Markup]:
    """Yield each combination's own sections if they are few, else the step cost of each machine and what was drawn."""
    cells = list(cells_of(run.points, run.plan))
    parts = [_part(run, index, *cell, prefix) for index, cell in enumerate(cells, start=1)]
    names = [f"Combination {index}: {cell.name}" for index, (cell, _) in enumerate(cells, start=1)]
    if len(cells) <= MOST_CELLS:
        for name, part in zip(names, parts, strict=True):
            yield section(name, *sections(part, level=4), level=3)
        return
    folder = "the figures of each are in the run's folder cells/"
    yield notes([f"{len(cells)} combinations; at most {MOST_CELLS} are shown here one by one: {folder}."])
    yield from _machines(run, cells, prefix)
    for name, part in zip(names, parts[:MOST_DRAWN], strict=False):
        further = list(further_parts(part))
        if further:
            yield section(name, *(section(title, made, level=4) for title, made in further), level=3)


def _part(run: Run, index: int, cell: Cell, points: pl.DataFrame, prefix: str) -> Part:
    drawn = run.folder / "cells" / str(index)
    return Part(cell.experiment, points, f"{prefix}-cell{index}", run.folder, drawn, True, _digest(run, cell))


def _machines(run: Run, cells: Sequence[tuple[Cell, pl.DataFrame]], prefix: str) -> Iterator[Markup]:
    """Yield the step cost of each machine that differs in it, with the sizes chosen in all its combinations."""
    machines: dict[str, list[tuple[Cell, pl.DataFrame]]] = {}
    for cell, points in cells:
        known = cell.experiment.hardware.model_dump(exclude={"noise_cv", "max_num_seqs"}, exclude_none=True)
        name = ", ".join(f"{key} {value}" for key, value in known.items())
        machines.setdefault(name, []).append((cell, points))
    for index, (name, those) in enumerate(machines.items(), start=1):
        cell, points = those[0][0], pl.concat([points for _, points in those])
        place = f"{prefix}-machine{index}"
        part = Part(cell.experiment, points, place, run.folder, run.folder, True, _digest(run, cell))
        together = notes([f"{len(those)} combinations together: {name}."])
        yield section("Step cost and the batch sizes chosen", together, sizes_part(part), level=3)


def _digest(run: Run, cell: Cell) -> str | None:
    """Return the hash of a combination's profile; the manifest knows that of the base experiment's alone."""
    known = run.manifest.get("files", {}).get("hardware.profile", {})
    return known.get("sha256") if cell.experiment.hardware.profile == known.get("name") else None
