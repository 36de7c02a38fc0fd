"""The figures of a run, drawn from its points; the same points give the same bytes.

A figure is a file of this room with a function ``of_run``. `output.figures` names the file, and `config/schema.py` has
the names that may be said there.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path

import polars as pl
from matplotlib.figure import Figure

from ..analysis.effects import effect_table
from ..analysis.summary import cells_of
from ..config.schema import Effect, Experiment
from ..sweep.plan import Cell, Plan
from .canvas import save
from .effect import effect_figure
from .figure_input import FigureInput


def draw_plan(points: pl.DataFrame, plan: Plan, folder: Path) -> list[Path]:
    """Draw the figures of a plan; with axes those of each combination, numbered, and those of `output.effects`.

    Raises:
        OSError: if the folder cannot be written.
    """
    drawn = []
    if not plan.base.sweep.axes:
        drawn += _draw_cell(points, Cell({}, plan.base), folder, folder)
    for number, (cell, part) in enumerate(cells_of(points, plan) if plan.base.sweep.axes else (), start=1):
        drawn += _draw_cell(part, cell, folder / "cells" / str(number), folder)
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


def draw(points: pl.DataFrame, experiment: Experiment, folder: Path) -> list[Path]:
    """Draw the figures that `output.figures` names, each as ``.svg`` and ``.png``; returns the paths.

    Args:
        points: the points table.
        experiment: what they are of.
        folder: the run folder, where the figures go too.

    Raises:
        OSError: if the folder cannot be written, or the records for the figure ``transient`` are missing.
    """
    return _draw_cell(points, Cell({}, experiment), folder, folder)


def _draw_cell(points: pl.DataFrame, cell: Cell, folder: Path, run: Path) -> list[Path]:
    experiment = cell.experiment
    title = f"{experiment.hardware.profile}, {experiment.workload.mode} loop" + (f"; {cell.name}" if cell.name else "")
    given = FigureInput(points, experiment, folder, run, tuple(cell.values.items()), title)
    return [path for name in experiment.output.figures for path in save(figure_of(name)(given), folder / name)]


def figure_of(name: str) -> Callable[[FigureInput], Figure]:
    """Return what draws the figure of a name in `output.figures`: ``of_run`` in the file of this room called so."""
    draws: Callable[[FigureInput], Figure] = importlib.import_module(f".{name}", __package__).of_run
    return draws
