"""Where the executed tokens of a run went: anchors, accepted drafts, rejected drafts, padding."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..analysis.roles import Roles
from ..config.text import load_text
from ..show.canvas import canvas

PARTS = {
    "anchors": ("#0072B2", ""),
    "accepted": ("#56B4E9", ""),
    "rejected": ("#E69F00", "////"),
    "padded": ("#c4c4c4", "...."),
}
"""Colour and hatch of each part, told apart in grey as well."""

_NEEDED = ("verify_budget", "accepted_per_verified", "padded_fraction")
_SCHEMA = {"arm": pl.String, "load": pl.Float64} | dict.fromkeys(PARTS, pl.Float64)


def waste_table(points: pl.DataFrame, arms: Sequence[str]) -> pl.DataFrame:
    """Return which share of the tokens that steps executed was what, mean over seeds.

    A row verifies its anchor and ``verify_budget`` - 1 drafts, of which ``accepted_per_verified`` pass; of all that
    was executed, ``padded_fraction`` was padding. Points without a verify budget or a padded fraction are left out.

    Args:
        points: the points table.
        arms: whose, in this order.

    Returns:
        ``arm, load, anchors, accepted, rejected, padded``; the parts add up to 1.
    """
    numbers = points.with_columns(pl.col(name).cast(pl.Float64) for name in _NEEDED)
    sound = numbers.drop_nulls(["verify_budget", "padded_fraction"]).sort("load", "seed")
    rows = []
    for arm in arms:
        for (load,), part in sound.filter(pl.col("arm") == arm).group_by("load", maintain_order=True):
            shares = _shares(part)
            rows.append((arm, load, *(float(share.mean()) for share in shares)))
    return pl.DataFrame(rows, schema=_SCHEMA, orient="row")


def _shares(part: pl.DataFrame) -> Sequence[np.ndarray[tuple[int], np.dtype[np.float64]]]:
    budget, padded = part["verify_budget"].to_numpy(), part["padded_fraction"].to_numpy()
    passed = part["accepted_per_verified"].fill_null(0.0).to_numpy()  # null where nothing was verified
    asked, drafts = 1.0 - padded, (budget - 1.0) / budget
    return asked / budget, asked * drafts * passed, asked * drafts * (1.0 - passed), padded


def waste_figure(table: pl.DataFrame, cast: Roles) -> Figure:
    """Return a panel an arm: the parts of the executed tokens, stacked, at each load.

    Args:
        table: as `waste_table` returns it.
        cast: roles of the arms.
    """
    parts = table.partition_by("arm", maintain_order=True)
    figure, axes = canvas(3.0 * max(1, len(parts)), 2.0, max(1, len(parts)), share_y=True)
    for each, part in zip(axes, parts, strict=False):
        _panel(each, part)
        each.set_title(cast.label(part["arm"][0]), fontsize=10)
    figure.supylabel("share of executed tokens, %", fontsize=10)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(PARTS), frameon=False, fontsize=9)
    return figure


def _panel(axes: Axes, part: pl.DataFrame) -> None:
    places, below = np.arange(len(part)), np.zeros(len(part))
    for name, (colour, hatch) in PARTS.items():
        height = 100.0 * part[name].to_numpy()
        axes.bar(places, height, 0.8, bottom=below, color=colour, hatch=hatch, edgecolor="#ffffff", label=name)
        below = below + height
    axes.set_xticks(places, [load_text(load) for load in part["load"]], fontsize=8)
    axes.set_ylim(0, 100)
