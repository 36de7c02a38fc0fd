"""Lines of arms with a marker a load, as the frontier and the load figure draw them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from ...policies import Bools, Floats
from ..analysis.frontier import Line, line, usable
from ..analysis.roles import Roles
from .styles import Style

BAND_ALPHA = 0.22

NOTHING = "no point has an interactivity and a throughput"
"""What a figure says that has no line to draw."""


def lines_of(points: pl.DataFrame, cast: Roles) -> dict[str, Line]:
    """Return the line of every arm that has points with both coordinates."""
    kept = usable(points)
    lines = {arm: line(kept, arm) for arm in cast.arms}
    return {arm: each for arm, each in lines.items() if len(each.loads)}


def draw_curve(axes: Axes, at: tuple[Floats, Floats], eager: Bools, filled: Bools, style: Style) -> None:
    """Join the loads, thin and dotted across the capture limit, and mark each of them."""
    x, y = at
    across = np.flatnonzero(eager[1:] != eager[:-1])
    for run in np.split(np.arange(len(x)), across + 1):
        axes.plot(x[run], y[run], **style.drawn)
    for i in across:
        axes.plot(x[i : i + 2], y[i : i + 2], color=style.colour, linestyle=":", linewidth=1.0)
    axes.plot(x[filled], y[filled], linestyle="none", **style.marked())
    axes.plot(x[~filled], y[~filled], linestyle="none", **style.marked(filled=False))


def draw_bands(axes: Axes, lines: dict[str, Line], cast: Roles, look: dict[str, Style], against_load: bool) -> None:
    """Fill between the low and the high end of every draft cost band that has both."""
    for arm, ends in cast.bands.items():
        if lines.keys() >= set(ends):
            low, high = (lines[end] for end in ends)
            x = [each.loads if against_load else each.interactivity for each in (low, high)]
            there = np.concatenate([x[0], x[1][::-1]]), np.concatenate([low.throughput, high.throughput[::-1]])
            axes.fill(*there, color=look[arm].colour, alpha=BAND_ALPHA, linewidth=0)


def draw_legend(
    axes: Axes, cast: Roles, lines: dict[str, Line], look: dict[str, Style], notes: Sequence[Artist]
) -> None:
    """Name the arms beside the axes, their cost bands after them, then what else there is to say."""
    arms: list[Artist] = []
    for arm in (arm for arm in lines if arm in look):
        arms.append(Line2D([], [], **look[arm].drawn, **look[arm].marked(), label=cast.label(arm)))
        if arm in cast.bands:
            arms.append(Patch(facecolor=look[arm].colour, alpha=BAND_ALPHA, label=f"{arm}, draft cost band"))
    axes.legend(handles=[*arms, *notes], loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, fontsize=9)
