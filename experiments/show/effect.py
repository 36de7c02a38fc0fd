"""The change of a metric along an axis, in per cent, with intervals."""

from __future__ import annotations

import textwrap
from itertools import cycle
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..config.schema import AgainstArm, Effect
from ..config.text import value_text
from .canvas import canvas, say_empty
from .styles import COLOURS, MARKERS

MOST_LETTERS = 30
"""Letters of all values on an x axis that fit side by side."""


def effect_figure(table: pl.DataFrame, effect: Effect, title: str = "") -> Figure:
    """Return a panel for each value of ``effect.panels`` and in it a line for each of ``effect.lines``.

    Args:
        table: as `effect_table` returns it.
        effect: what it is of.
        title: heading.
    """
    parts = table.partition_by("panel", maintain_order=True) if len(table) else []
    figure, axes = canvas(1.0 + 3.4 * max(1, len(parts)), 4.0, max(1, len(parts)), share_y=True)
    figure.suptitle(title)
    if not parts:
        say_empty(axes[0], "no pair of points to compare")
        return figure
    against = (
        effect.against.arm if isinstance(effect.against, AgainstArm) else f"{effect.along} {value_text(effect.against)}"
    )
    axes[0].set_ylabel(_broken(f"{effect.metric}, change against {against}, %"))
    for each, part in zip(axes, parts, strict=True):
        _panel(each, part, effect)
    handles, labels = axes[0].get_legend_handles_labels()
    if effect.lines:
        figure.legend(
            handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=9, title=effect.lines
        )
    return figure


def _broken(label: str) -> str:
    """Return a label over as many lines as it needs beside an axis."""
    return "\n".join(textwrap.wrap(label, MOST_LETTERS + 6, break_long_words=True, break_on_hyphens=False))


def _panel(axes: Axes, part: pl.DataFrame, effect: Effect) -> None:
    places = list(dict.fromkeys(part["x"].to_list()))
    axes.axhline(0.0, color="#888888", linewidth=0.8)
    lines = part.partition_by("line", maintain_order=True)
    for number, (line, colour, marker) in enumerate(zip(lines, cycle(COLOURS), cycle(MARKERS), strict=False)):
        shift = 0.12 * (number - (len(lines) - 1) / 2)
        x = np.array([places.index(value) for value in line["x"]]) + shift
        y, low, high = (100.0 * (_floats(line[name]) - 1.0) for name in ("ratio", "low", "high"))
        axes.plot(x, y, color=colour, marker=marker, markersize=4, linewidth=1.2, label=str(line["line"][0]))
        axes.vlines(x, low, high, color=colour, linewidth=1.2)
    crowded = sum(map(len, places)) > MOST_LETTERS
    turned: dict[str, Any] = {"rotation": 35, "ha": "right", "rotation_mode": "anchor"} if crowded else {}
    axes.set_xticks(range(len(places)), places, **turned)
    axes.set_xlabel(effect.along)
    if effect.panels:
        whole = f"{effect.panels} {part['panel'][0]}"
        axes.set_title(whole if len(whole) <= MOST_LETTERS else whole.replace(" ", "\n", 1), fontsize=9)


def _floats(values: pl.Series) -> Any:
    return values.cast(pl.Float64).to_numpy()
