"""Throughput and verify budget against load: the layout of the paper's Figure 8."""

from __future__ import annotations

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ...policies import Floats
from ..analysis.frontier import Line
from ..analysis.roles import Roles
from .arm_lines import NOTHING, draw_bands, draw_curve, draw_legend, lines_of
from .canvas import canvas, say_empty
from .figure_input import FigureInput
from .styles import styles

BUDGET = "verify_budget"


def of_run(run: FigureInput) -> Figure:
    """Return the figure ``load`` of a run."""
    return load_figure(run.points, run.cast, run.load, run.title)


def load_figure(points: pl.DataFrame, cast: Roles, load: str = "concurrency", title: str = "") -> Figure:
    """Return two panels against load: throughput, and verify budget per request with the anchor (Figure 8's layout)."""
    figure, (left, right) = canvas(11.0, 4.6, 2)
    figure.suptitle(title)
    left.set(xlabel=load, ylabel="throughput, tok/s/GPU")
    right.set(xlabel=load, ylabel="verify budget per request (anchor included)")
    lines, look = lines_of(points, cast), styles(cast)
    draw_bands(left, lines, cast, look, against_load=True)
    for arm, each in lines.items():
        if arm in look:
            filled = np.ones(len(each.loads), np.bool_)
            draw_curve(left, (each.loads, each.throughput), each.eager, filled, look[arm])
            draw_curve(right, (each.loads, _budget(points, each)), each.eager, filled, look[arm])
    for axes in (left, right):
        if lines:
            _load_axis(axes, lines)
            axes.set_ylim(bottom=0)
        else:
            say_empty(axes, NOTHING)
    if lines:
        draw_legend(right, cast, lines, look, ())
    return figure


def _budget(points: pl.DataFrame, each: Line) -> Floats:
    """Return the verify budget at each load of a line, float64, mean over seeds; NaN where no seed has one."""
    table = points.filter(pl.col("arm") == each.arm).sort("load", "seed").with_columns(pl.col(BUDGET).cast(pl.Float64))
    at = [table.filter(pl.col("load") == load)[BUDGET].drop_nulls().to_numpy() for load in each.loads]
    return np.array([values.mean() if len(values) else np.nan for values in at], np.float64)


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
