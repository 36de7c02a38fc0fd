"""Figures of a study: how it went, what mattered, each parameter by itself, and the trade-off of two objectives."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..config.schema_tune import Objective, Range, Tune
from ..show.canvas import canvas, save
from ..show.styles import COLOURS
from .space import column_value, label_of

BLUE, RED, GREY = COLOURS[0], COLOURS[1], "#9a9a9a"
_WIDE = 4
"""Panels of a figure; further parameters go into further figures."""


def draw_study(
    trials: pl.DataFrame, tune: Tune, weights: Mapping[str, float] | None, chosen: list[int], folder: Path
) -> list[Path]:
    """Draw a study into ``folder`` and return the files; a figure without anything to show is not drawn.

    Args:
        trials: as `trials_table` gives it.
        tune: the study.
        weights: importance of each parameter; None if there is none.
        chosen: the trials that no other beats.
        folder: where figures go.
    """
    if not trials["feasible"].sum():
        return []
    drawn = save(_history(trials, tune, chosen), folder / "history")
    drawn += save(_importance(weights), folder / "importance") if weights is not None else []
    keys = list(tune.space)
    for start in range(0, len(keys), _WIDE):
        name = "slices" if start == 0 else f"slices-{start // _WIDE + 1}"
        drawn += save(_slices(trials, tune, keys[start : start + _WIDE], chosen), folder / name)
    if len(tune.objectives) > 1:
        drawn += save(_trade_off(trials, tune, chosen), folder / "pareto")
    return drawn


def _history(trials: pl.DataFrame, tune: Tune, chosen: list[int]) -> Figure:
    figure, axes = canvas(3.6 + 3.2 * len(tune.objectives), 3.6, len(tune.objectives))
    for each, objective in zip(axes, tune.objectives, strict=True):
        _points(each, trials, "trial", objective.name, chosen)
        each.set_xlabel("trial")
        each.xaxis.set_major_locator(MaxNLocator(integer=True))
        each.set_ylabel(_label(objective))
        best = _best_so_far(trials, objective)
        if len(tune.objectives) == 1 and len(best):
            each.step(*zip(*best, strict=True), where="post", color=BLUE, linewidth=1.3, label="best so far")
        _legend(each)
    return figure


def _best_so_far(trials: pl.DataFrame, objective: Objective) -> list[tuple[int, float]]:
    fine = trials.filter(pl.col("feasible").fill_null(value=False)).sort("trial")
    values = fine[objective.name].cum_max() if objective.maximize else fine[objective.name].cum_min()
    return list(zip(fine["trial"].to_list(), values.to_list(), strict=True))


def _importance(weights: Mapping[str, float]) -> Figure:
    figure, (axes,) = canvas(7.0, 1.2 + 0.4 * max(2, len(weights)), 1)
    names = list(weights)[::-1]
    bars = axes.barh(names, [100 * weights[name] for name in names], color=BLUE, height=0.6)
    axes.bar_label(bars, fmt="%.0f %%", padding=3, fontsize=9)
    axes.set_xlim(0, 112)
    axes.set_xlabel("share of what decides whether a trial is among the best tenth, %")
    return figure


def _slices(trials: pl.DataFrame, tune: Tune, keys: list[str], chosen: list[int]) -> Figure:
    objective = tune.objectives[0]
    figure, axes = canvas(max(4.5, 3.0 * len(keys)), 3.4, len(keys), share_y=True)
    axes[0].set_ylabel(_label(objective))
    for each, key in zip(axes, keys, strict=True):
        dimension = tune.space[key]
        shown = trials
        if not isinstance(dimension, Range):
            labels = [label_of(choice) for choice in dimension]
            held = [column_value(label, labels) for label in labels]
            shown = trials.with_columns(pl.Series(key, [held.index(value) for value in trials[key].to_list()]))
            names = [label if isinstance(label, str) else json.dumps(label) for label in labels]
            each.set_xticks(range(len(names)), names, fontsize=8)
            each.set_xlim(-0.5, len(names) - 0.5)
        elif dimension.log:
            each.set_xscale("log")
        _points(each, shown, key, objective.name, chosen)
        each.set_xlabel(key.split(".", 2)[-1] if key.startswith("arms.") else key, fontsize=9)
    _legend(axes[-1])
    return figure


def _trade_off(trials: pl.DataFrame, tune: Tune, chosen: list[int]) -> Figure:
    first, *others = tune.objectives
    figure, axes = canvas(3.6 + 3.2 * len(others), 3.8, len(others))
    for each, other in zip(axes, others, strict=True):
        _points(each, trials, first.name, other.name, chosen, edge=False)
        each.set_xlabel(_label(first))
        each.set_ylabel(_label(other))
        _legend(each)
    return figure


def _points(axes: Axes, trials: pl.DataFrame, x: str, y: str, chosen: list[int], edge: bool = True) -> None:
    """Scatter trials that keep the constraints, stars for the chosen; with ``edge`` the others as ticks on the x axis.

    What breaks a constraint has no place on the y axis: an objective read at an anchor that is missed is 0.
    """
    complete = trials.filter(pl.col("state") == "complete")
    fine = complete["feasible"].cast(pl.Boolean).to_numpy().astype(bool)
    star = np.isin(complete["trial"].to_numpy(), chosen)
    at, value = (complete[name].cast(pl.Float64).to_numpy() for name in (x, y))
    axes.scatter(at[fine & ~star], value[fine & ~star], s=22, color=BLUE, label="keeps the constraints")
    label = "chosen" if len(chosen) == 1 else "no other beats it"
    axes.scatter(at[star], value[star], marker="*", s=130, color=RED, zorder=3, label=label)
    if edge and not fine.all():
        bottom = np.full(int((~fine).sum()), 0.02)
        at_bottom = axes.get_xaxis_transform()
        axes.plot(at[~fine], bottom, "|", color=GREY, transform=at_bottom, label="breaks one")


def _legend(axes: Axes) -> None:
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, fontsize=8)


def _label(objective: Objective) -> str:
    return f"{objective.name}\n({'higher' if objective.maximize else 'lower'} is better)"
