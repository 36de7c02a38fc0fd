"""Figures of a run, drawn from its points; the same points give the same bytes.

Layouts: the frontier (the paper's Figure 7), throughput and verify budget against load (Figure 8), accepted and
rejected tokens against the confidence threshold (Figure 5, in figure_threshold.py), and the steps after a wave of joins
(`transient.py`, which reads the step records as well).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from ...policies import Bools, Floats
from ..analysis.effects import effect_table
from ..analysis.frontier import Line, frontier, line, usable
from ..analysis.roles import Roles
from ..analysis.summary import cast_of, cells_of, load_name
from ..analysis.threshold import threshold_table
from ..analysis.transient import transient_table
from ..sweep.identity import identity
from ..sweep.plan import Cell
from ..sweep.runner import sweep_points
from ..sweep.store import write_parquet
from .canvas import canvas, save, say_empty
from .effect import effect_figure
from .styles import Style, styles
from .threshold import threshold_figure
from .transient import transient_figure

if TYPE_CHECKING:
    from ..config.schema import Effect, Experiment
    from ..sweep.plan import Plan

BUDGET = "verify_budget"
BAND_ALPHA = 0.22
_ROOM = 1.03
"""How far beyond the largest value an axis goes at least."""

Points = set[tuple[str, float]]


def draw_plan(points: pl.DataFrame, plan: Plan, folder: Path) -> list[Path]:
    """Draw the figures of a plan; with axes those of each combination, numbered, and those of `output.effects`.

    Raises:
        OSError: if the folder cannot be written.
    """
    drawn = []
    if not plan.base.sweep.axes:
        drawn += draw(points, plan.base, folder, transients=partial(_transients, plan.cells[0], folder))
    for number, (cell, part) in enumerate(cells_of(points, plan) if plan.base.sweep.axes else (), start=1):
        place, transients = folder / "cells" / str(number), partial(_transients, cell, folder)
        drawn += draw(part, cell.experiment, place, cell.name, transients)
    for number, effect in enumerate(plan.base.output.effects, start=1):
        figure = effect_figure(effect_table(points, effect, plan), effect, _effect_title(effect, plan))
        drawn += save(figure, folder / f"effect-{number}")
    return drawn


def _effect_title(effect: Effect, plan: Plan) -> str:
    """Return what all points of an effect have in common: the machine, and single values it is restricted to."""
    machines = {cell.experiment.hardware.profile for cell in plan.cells}
    shared = [*machines] if len(machines) == 1 else []
    shared += [f"{name} {values[0]}" for name, values in effect.where.items() if len(values) == 1]
    return ", ".join(shared)


def _transients(cell: Cell, folder: Path) -> pl.DataFrame:
    experiment = cell.experiment
    return transient_table(
        sweep_points(experiment, identity(experiment), values=cell.values.items()), experiment, folder
    )


def draw(
    points: pl.DataFrame,
    experiment: Experiment,
    folder: Path,
    name: str = "",
    transients: Callable[[], pl.DataFrame] | None = None,
) -> list[Path]:
    """Draw the figures that `output.figures` names, each as ``.svg`` and ``.png``; returns the paths.

    Args:
        points: the points table.
        experiment: what they are of.
        folder: where to.
        name: the combination of axes, for the title.
        transients: makes the `transient_table`, which is kept beside its figure; None takes the records from
            ``folder``.

    Raises:
        OSError: if the folder cannot be written, or the records for the figure ``transient`` are missing.
    """
    cast, load = cast_of(points, experiment), load_name(experiment)
    title = f"{experiment.hardware.profile}, {experiment.workload.mode} loop" + (f"; {name}" if name else "")

    def transient() -> Figure:
        table = transients() if transients else _transients(Cell({}, experiment), folder)
        write_parquet(folder / "transient.parquet", table)
        return transient_figure(table, title)

    figures = {
        "frontier": lambda: frontier_figure(points, experiment.sla.anchors or (), cast, load, title),
        "load": lambda: load_figure(points, cast, load, title),
        "threshold": lambda: threshold_figure(threshold_table(points, experiment), title),
        "transient": transient,
    }
    return [path for name in experiment.output.figures for path in save(figures[name](), folder / name)]


def frontier_figure(
    points: pl.DataFrame, anchors: Sequence[float], cast: Roles, load: str = "concurrency", title: str = ""
) -> Figure:
    """Return throughput against interactivity: a line an arm, a marker a load, filled where no other arm is better.

    Args:
        points: the points table.
        anchors: interactivities to mark, tokens per second per user.
        cast: roles of the arms.
        load: what a load is called.
        title: heading.
    """
    figure, (axes,) = canvas(9.6, 6.0, 1)
    axes.set(xlabel="interactivity, tok/s/user", ylabel="throughput, tok/s/GPU", title=title)
    lines = _lines(points, cast)
    if not lines:
        say_empty(axes, "no point has an interactivity and a throughput")
        return figure
    look = styles(cast)
    _bands(axes, lines, cast, look, against_load=False)
    best = set(frontier([lines[arm] for arm in cast.contenders if arm in lines]).select("arm", "load").rows())
    for arm, each in lines.items():
        if arm in look:
            filled = np.array([(arm, at) in best for at in each.loads.tolist()], np.bool_)
            _curve(axes, (each.interactivity, each.throughput), each.eager, filled, look[arm])
    _mark_anchors(axes, anchors)
    _number_loads(axes, lines, best)
    whole_markers(axes)
    _legend(axes, cast, lines, look, _notes(lines, best, load))
    return figure


def whole_markers(axes: Axes) -> None:
    """Begin both axes at 0 and end them far enough beyond the data that no marker is cut."""
    (_, right), (_, top) = axes.get_xlim(), axes.get_ylim()
    axes.set_xlim(0.0, max(right, _ROOM * float(axes.dataLim.x1)))
    axes.set_ylim(0.0, max(top, _ROOM * float(axes.dataLim.y1)))


def load_figure(points: pl.DataFrame, cast: Roles, load: str = "concurrency", title: str = "") -> Figure:
    """Return two panels against load: throughput, and verify budget per request with the anchor (Figure 8's layout)."""
    figure, (left, right) = canvas(11.0, 4.6, 2)
    figure.suptitle(title)
    left.set(xlabel=load, ylabel="throughput, tok/s/GPU")
    right.set(xlabel=load, ylabel="verify budget per request (anchor included)")
    lines, look = _lines(points, cast), styles(cast)
    _bands(left, lines, cast, look, against_load=True)
    for arm, each in lines.items():
        if arm in look:
            filled = np.ones(len(each.loads), np.bool_)
            _curve(left, (each.loads, each.throughput), each.eager, filled, look[arm])
            _curve(right, (each.loads, _budget(points, each)), each.eager, filled, look[arm])
    for axes in (left, right):
        if lines:
            _load_axis(axes, lines)
            axes.set_ylim(bottom=0)
        else:
            say_empty(axes, "no point has an interactivity and a throughput")
    if lines:
        _legend(right, cast, lines, look, ())
    return figure


def _lines(points: pl.DataFrame, cast: Roles) -> dict[str, Line]:
    kept = usable(points)
    lines = {arm: line(kept, arm) for arm in cast.arms}
    return {arm: each for arm, each in lines.items() if len(each.loads)}


def _budget(points: pl.DataFrame, each: Line) -> Floats:
    """Return the verify budget at each load of a line, float64, mean over seeds; NaN where no seed has one."""
    table = points.filter(pl.col("arm") == each.arm).sort("load", "seed").with_columns(pl.col(BUDGET).cast(pl.Float64))
    at = [table.filter(pl.col("load") == load)[BUDGET].drop_nulls().to_numpy() for load in each.loads]
    return np.array([values.mean() if len(values) else np.nan for values in at], np.float64)


def _curve(axes: Axes, at: tuple[Floats, Floats], eager: Bools, filled: Bools, style: Style) -> None:
    """Join the loads, thin and dotted across the capture limit, and mark each of them."""
    x, y = at
    across = np.flatnonzero(eager[1:] != eager[:-1])
    for run in np.split(np.arange(len(x)), across + 1):
        axes.plot(x[run], y[run], **style.drawn)
    for i in across:
        axes.plot(x[i : i + 2], y[i : i + 2], color=style.colour, linestyle=":", linewidth=1.0)
    axes.plot(x[filled], y[filled], linestyle="none", **style.marked())
    axes.plot(x[~filled], y[~filled], linestyle="none", **style.marked(filled=False))


def _bands(axes: Axes, lines: dict[str, Line], cast: Roles, look: dict[str, Style], against_load: bool) -> None:
    """Fill between the low and the high end of every draft cost band that has both."""
    for arm, ends in cast.bands.items():
        if lines.keys() >= set(ends):
            low, high = (lines[end] for end in ends)
            x = [each.loads if against_load else each.interactivity for each in (low, high)]
            there = np.concatenate([x[0], x[1][::-1]]), np.concatenate([low.throughput, high.throughput[::-1]])
            axes.fill(*there, color=look[arm].colour, alpha=BAND_ALPHA, linewidth=0)


def _mark_anchors(axes: Axes, anchors: Sequence[float]) -> None:
    for anchor in anchors:
        axes.axvline(anchor, color="#555555", linestyle=(0, (4, 3)), linewidth=0.9, zorder=0.5)
        axes.annotate(
            f"{anchor:g}",
            (anchor, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(3, -2),
            textcoords="offset points",
            va="top",
            fontsize=8,
            color="#555555",
        )


def _number_loads(axes: Axes, lines: dict[str, Line], best: Points) -> None:
    """Write the loads beside the markers of the arm that has most of the frontier."""
    arms = [arm for arm, _ in best]
    guide = max(lines, key=arms.count)
    for load, x, y in zip(lines[guide].loads, lines[guide].interactivity, lines[guide].throughput, strict=True):
        axes.annotate(f"{load:g}", (x, y), xytext=(5, 4), textcoords="offset points", fontsize=7.5, color="#333333")


def _load_axis(axes: Axes, lines: dict[str, Line]) -> None:
    loads = np.unique(np.concatenate([each.loads for each in lines.values()]))
    if len(loads) == 1:
        axes.set_xticks(loads, [f"{loads[0]:g}"])
    # Doubling loads crowd at the left of a linear axis.
    if loads[-1] > 8 * loads[0]:
        axes.set_xscale("log", base=2)
        ticks = [loads[0]]
        for load in loads[1:]:
            if load >= 1.6 * ticks[-1]:
                ticks.append(load)
        axes.set_xticks(ticks, [f"{load:g}" for load in ticks])
        axes.minorticks_off()


def _notes(lines: dict[str, Line], best: Points, load: str) -> list[Line2D]:
    """Return legend entries for what markers and dots mean, as far as they occur."""
    grey: dict[str, Any] = {"color": "#555555", "markersize": 5, "linestyle": "none", "marker": "o"}
    notes = [Line2D([], [], **grey, label=f"on the frontier (numbers: {load})")]
    if any((arm, at) not in best for arm, each in lines.items() for at in each.loads.tolist()):
        notes.append(Line2D([], [], **grey, markerfacecolor="white", label="not on the frontier"))
    if any((each.eager[1:] != each.eager[:-1]).any() for each in lines.values()):
        notes.append(Line2D([], [], color="#555555", linestyle=":", linewidth=1.0, label="across the capture limit"))
    return notes


def _legend(axes: Axes, cast: Roles, lines: dict[str, Line], look: dict[str, Style], notes: Sequence[Artist]) -> None:
    arms: list[Artist] = []
    for arm in (arm for arm in lines if arm in look):
        arms.append(Line2D([], [], **look[arm].drawn, **look[arm].marked(), label=cast.label(arm)))
        if arm in cast.bands:
            arms.append(Patch(facecolor=look[arm].colour, alpha=BAND_ALPHA, label=f"{arm}, draft cost band"))
    axes.legend(handles=[*arms, *notes], loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, fontsize=9)
