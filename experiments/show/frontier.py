"""Throughput against interactivity: the layout of the paper's Figure 7."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ..analysis.frontier import Line, frontier
from ..analysis.roles import Roles
from .arm_lines import NOTHING, draw_bands, draw_curve, draw_legend, lines_of
from .canvas import canvas, say_empty
from .figure_input import FigureInput
from .styles import styles

_ROOM = 1.03
"""How far beyond the largest value an axis goes at least."""

Points = set[tuple[str, float]]


def of_run(run: FigureInput) -> Figure:
    """Return the figure ``frontier`` of a run."""
    return frontier_figure(run.points, run.experiment.sla.anchors or (), run.cast, run.load, run.title)


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
    lines = lines_of(points, cast)
    if not lines:
        say_empty(axes, NOTHING)
        return figure
    look = styles(cast)
    draw_bands(axes, lines, cast, look, against_load=False)
    best = set(frontier([lines[arm] for arm in cast.contenders if arm in lines]).select("arm", "load").rows())
    for arm, each in lines.items():
        if arm in look:
            filled = np.array([(arm, at) in best for at in each.loads.tolist()], np.bool_)
            draw_curve(axes, (each.interactivity, each.throughput), each.eager, filled, look[arm])
    _mark_anchors(axes, anchors)
    _number_loads(axes, lines, best)
    whole_markers(axes)
    draw_legend(axes, cast, lines, look, _notes(lines, best, load))
    return figure


def whole_markers(axes: Axes) -> None:
    """Begin both axes at 0 and end them far enough beyond the data that no marker is cut."""
    (_, right), (_, top) = axes.get_xlim(), axes.get_ylim()
    axes.set_xlim(0.0, max(right, _ROOM * float(axes.dataLim.x1)))
    axes.set_ylim(0.0, max(top, _ROOM * float(axes.dataLim.y1)))


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


def _notes(lines: dict[str, Line], best: Points, load: str) -> list[Line2D]:
    """Return legend entries for what markers and dots mean, as far as they occur."""
    grey: dict[str, Any] = {"color": "#555555", "markersize": 5, "linestyle": "none", "marker": "o"}
    notes = [Line2D([], [], **grey, label=f"on the frontier (numbers: {load})")]
    if any((arm, at) not in best for arm, each in lines.items() for at in each.loads.tolist()):
        notes.append(Line2D([], [], **grey, markerfacecolor="white", label="not on the frontier"))
    if any((each.eager[1:] != each.eager[:-1]).any() for each in lines.values()):
        notes.append(Line2D([], [], color="#555555", linestyle=":", linewidth=1.0, label="across the capture limit"))
    return notes
