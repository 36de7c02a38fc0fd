"""Accepted and rejected tokens a step against the confidence threshold: the layout of the paper's Figure 5."""

from __future__ import annotations

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..analysis.threshold import threshold_table
from .canvas import canvas, say_empty
from .figure_input import FigureInput

ACCEPTED, REJECTED, RATE = "#2171b5", "#cfcfcf", "#D55E00"


def of_run(run: FigureInput) -> Figure:
    """Return the figure ``threshold`` of a run."""
    return threshold_figure(threshold_table(run.points, run.experiment), run.title)


def threshold_figure(table: pl.DataFrame, title: str = "") -> Figure:
    """Return a panel a benchmark: accepted and rejected tokens stacked, and accepted over verified as a line.

    Args:
        table: as `threshold_table` returns it.
        title: heading.
    """
    parts = table.partition_by("benchmark", maintain_order=True)
    figure, axes = canvas(1.2 + 3.6 * max(1, len(parts)), 4.2, max(1, len(parts)), share_y=True)
    figure.suptitle(title)
    if not parts:
        say_empty(axes[0], "no arm has a threshold and points")
        return figure
    rates = [_panel(each, part) for each, part in zip(axes, parts, strict=True)]
    axes[0].set_ylabel("tokens per step (anchor included)")
    rates[-1].set_ylabel("accepted / verified, %", color=RATE)
    handles = [*axes[0].get_legend_handles_labels()[0], *rates[0].get_legend_handles_labels()[0]]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    return figure


def _panel(axes: Axes, part: pl.DataFrame) -> Axes:
    """Draw one benchmark; returns the axes of its rate, in per cent."""
    threshold, accepted = part["threshold"].to_numpy(), part["accepted"].to_numpy()
    verified = part["verified"].to_numpy()
    width = 0.75 * np.diff(np.unique(threshold)).min(initial=0.1)
    axes.bar(threshold, accepted, width, color=ACCEPTED, label="accepted")
    axes.bar(threshold, verified - accepted, width, bottom=accepted, color=REJECTED, label="rejected")
    axes.set(title=part["benchmark"][0], xlabel="confidence threshold")
    rate = axes.twinx()
    rate.plot(threshold, 100 * accepted / verified, color=RATE, marker="o", markersize=4, label="rate (right axis)")
    rate.set_ylim(0, 105)
    rate.tick_params(axis="y", colors=RATE)
    rate.spines["top"].set_visible(False)
    return rate
