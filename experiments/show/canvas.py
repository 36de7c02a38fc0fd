"""Empty figures and files of them, alike for every figure of a run."""

from __future__ import annotations

from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ..sweep.finished import FIGURE_FILES


def canvas(width: float, height: float, panels: int, share_y: bool = False) -> tuple[Figure, list[Axes]]:
    """Return a figure of `panels` axes in a row; width and height in inches."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = list(figure.subplots(1, panels, squeeze=False, sharey=share_y)[0])
    for each in axes:
        each.spines[["top", "right"]].set_visible(False)
        each.grid(color="#e8e8e8", linewidth=0.7)
        each.set_axisbelow(True)
    return figure, axes


def say_empty(axes: Axes, reason: str) -> None:
    """Write in place of a curve why there is none."""
    axes.text(0.5, 0.5, reason, transform=axes.transAxes, ha="center", va="center", color="#666666")
    axes.set_xticks([])
    axes.set_yticks([])


def save(figure: Figure, stem: Path) -> list[Path]:
    """Write ``<stem>.svg`` and ``<stem>.png`` without date or version, so that equal figures are equal bytes.

    Raises:
        OSError: if the folder cannot be written.
    """
    stem.parent.mkdir(parents=True, exist_ok=True)
    paths = [stem.with_name(stem.name + ending) for ending in FIGURE_FILES]
    # Identifiers inside an SVG are hashes; a fixed salt makes them the same in every process.
    with matplotlib.rc_context({"svg.hashsalt": "specsched"}):
        figure.savefig(paths[0], metadata={"Date": None, "Creator": None})
        figure.savefig(paths[1], dpi=140, metadata={"Software": None})
    return paths
