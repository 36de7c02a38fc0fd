"""The steps around a wave of joins, a panel a quantity."""

from __future__ import annotations

from itertools import cycle

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..analysis.transient import QUANTITIES, transient_table
from ..config.text import load_text
from ..sweep.identity import identity
from ..sweep.runner import sweep_points
from ..sweep.store import write_parquet
from .canvas import canvas, say_empty
from .figure_input import FigureInput
from .styles import COLOURS, MARKERS


def of_run(run: FigureInput) -> Figure:
    """Return the figure ``transient`` of a run, and leave its table beside it.

    Raises:
        OSError: if the step records of a point are missing, or the table cannot be written.
    """
    points = sweep_points(run.experiment, identity(run.experiment), values=run.values)
    table = transient_table(points, run.experiment, run.run)
    write_parquet(run.folder / "transient.parquet", table)
    return transient_figure(table, run.title)


def transient_figure(table: pl.DataFrame, title: str = "") -> Figure:
    """Return a panel for each quantity and in it a line for each arm, step by step around the wave.

    Args:
        table: as `transient_table` returns it.
        title: heading.
    """
    figure, axes = canvas(3.2 * len(QUANTITIES), 4.0, len(QUANTITIES))
    figure.suptitle(title)
    if not len(table):
        say_empty(axes[0], "no wave of joins")
        return figure
    for each, (name, label) in zip(axes, QUANTITIES.items(), strict=True):
        _panel(each, table.filter(pl.col("quantity") == name), label)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=8, frameon=False, fontsize=9)
    return figure


def _panel(axes: Axes, part: pl.DataFrame, label: str) -> None:
    loads = part["load"].n_unique()
    lines = part.partition_by("arm", "load", maintain_order=True)
    for line, colour, marker in zip(lines, cycle(COLOURS), cycle(MARKERS), strict=False):
        arm, load = line["arm"][0], line["load"][0]
        name = arm if loads == 1 else f"{arm} at {load_text(load)}"
        x, y = line["offset"].to_numpy(), line["mean"].to_numpy()
        axes.plot(x, y, color=colour, marker=marker, markersize=3, linewidth=1.1, label=name)
        known = line.drop_nulls("low")
        axes.fill_between(known["offset"], known["low"], known["high"], color=colour, alpha=0.12, linewidth=0)
    axes.axvline(0, color="#888888", linewidth=0.8, linestyle=":")
    axes.set_title(label, fontsize=10)
    axes.set_xlabel("steps after the wave was admitted")
