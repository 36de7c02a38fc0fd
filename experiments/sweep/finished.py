"""Finished folders, read back. Only what is in the folder counts: nothing is looked up or computed again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
from pydantic import ValidationError

from ..config.document import load_document
from ..config.errors import ConfigError
from ..config.problems import to_config_error
from ..config.schema import Experiment
from .plan import Cell, Plan

COMPLETE = "complete"

FIGURE_FILES = (".svg", ".png")
"""Endings of the files of a figure, in the order in which they are written."""

_UNFINISHED = {
    "running": "is still running, or was killed",
    "interrupted": "was stopped",
    "failed": "has failed",
    "incomplete": "lacks points whose workers were killed",
}


@dataclass(frozen=True, eq=False)
class Finished:
    """What every finished folder has, of a run or of a study.

    Attributes:
        name: what messages and reports call it: the name of the folder.
        folder: where it is.
        summary, manifest: its files of these names.
        config: the text of its experiment file.
    """

    name: str
    folder: Path
    summary: dict[str, Any] = field(repr=False)
    manifest: dict[str, Any] = field(repr=False)
    config: str = field(repr=False)

    @property
    def is_study(self) -> bool:
        """Whether it is a study of ``specsched tune``."""
        return self.summary.get("kind") == "tune"


@dataclass(frozen=True, eq=False)
class Run(Finished):
    """A finished run: its folder, its points, its summary and what was run.

    Attributes:
        points: ``points.parquet``, a row for each arm, load and seed (docs/metrics.md has the columns).
        plan: the experiment and, in ``plan.cells``, every combination of its axes as an experiment of its own.
    """

    points: pl.DataFrame
    plan: Plan = field(repr=False)

    @property
    def experiment(self) -> Experiment:
        """What was run, as ``config.yaml`` has it; with axes, all defaults stand in ``plan.cells`` only."""
        return self.plan.base

    @property
    def figures(self) -> list[Path]:
        """Files of the figures it has drawn; with axes those of each combination, then those of its effects."""
        cells = [self.folder]
        if self.experiment.sweep.axes:
            cells = [self.folder / "cells" / str(number) for number in range(1, 1 + len(self.plan.cells))]
        output = self.experiment.output
        stems = [cell / name for cell in cells for name in output.figures]
        stems += [self.folder / f"effect-{number}" for number in range(1, 1 + len(output.effects))]
        files = [stem.with_name(stem.name + ending) for stem in stems for ending in FIGURE_FILES]
        return [file for file in files if file.is_file()]


def read_run(folder: Path | str) -> Run:
    """Return what a finished run has left in its folder.

    Raises:
        ConfigError: if the folder holds no finished run; says what it holds instead and what to do.
    """
    found = read_finished(Path(folder), "`read_run`")
    if found.is_study:
        trials = found.folder / "trials.parquet"
        raise ConfigError(f"{folder} holds a study of `specsched tune` and no run; its trials are in {trials}")
    return run_of(found)


def read_finished(folder: Path, reader: str | None = None) -> Finished:
    """Return what a finished run and a finished study have in common.

    Args:
        folder: where it is.
        reader: who needs a complete one, for messages; None takes one that lacks points.

    Raises:
        ConfigError: if it is neither.
    """
    manifest = _manifest(folder)
    if reader is not None:
        _must_be_complete(manifest, folder, reader)
    summary, config = _json(folder / "summary.json", folder), _text(folder / "config.yaml", folder)
    return Finished(folder.resolve().name, folder, summary, manifest, config)


def run_of(found: Finished) -> Run:
    """Return the run in a finished folder that holds no study.

    Raises:
        ConfigError: if its points or its plan are damaged.
    """
    return Run(**vars(found), plan=plan_of(found.folder), points=_points(found.folder))


def plan_of(folder: Path) -> Plan:
    """Return the plan of a folder from its files alone: a trace or a policy that has gone is no reason not to read it.

    Raises:
        ConfigError: if its ``config.yaml`` is no experiment or ``cells.json`` is damaged.
    """
    document = load_document(folder / "config.yaml")
    try:
        base = Experiment.model_validate(document.data)
    except ValidationError as error:
        raise to_config_error(error, document) from None
    if not base.sweep.axes:
        return Plan(base, (Cell({}, base),), document.data)
    try:
        cells = [
            Cell(each["values"], Experiment.model_validate(each["config"]))
            for each in _json(folder / "cells.json", folder)
        ]
    except (ValidationError, KeyError, TypeError):
        raise _damaged(folder / "cells.json", folder) from None
    return Plan(base, tuple(cells), document.data)


def _manifest(folder: Path) -> dict[str, Any]:
    if not folder.exists():
        raise ConfigError(f"{folder}: no such folder; name the folder of a finished run, such as runs/frontier")
    if not folder.is_dir():
        raise ConfigError(f"{folder} is a file; name the folder of a finished run, such as runs/frontier")
    if not (folder / "manifest.json").is_file():
        inside = sorted(str(file.parent) for file in folder.glob("*/manifest.json"))
        hint = f"the runs in it are {', '.join(inside)}" if inside else "name what -o of `specsched run` named"
        raise ConfigError(f"{folder} holds no manifest.json, so it is no run folder; {hint}")
    return dict(_json(folder / "manifest.json", folder))


def _must_be_complete(manifest: Mapping[str, Any], folder: Path, reader: str) -> None:
    status = manifest.get("status")
    if status != COMPLETE:
        state = _UNFINISHED.get(str(status), f"has the status {status!r}")
        config = manifest.get("config") or "CONFIG"
        raise ConfigError(
            f"{folder}: the run in it {state}, and {reader} needs a finished one; repeat its command "
            f"(`specsched {_command(folder)} {config} ..`) with -o {folder} --resume"
        )


def _command(folder: Path) -> str:
    return "tune" if (folder / "journal.log").is_file() else "run"


def _json(file: Path, folder: Path) -> Any:
    try:
        return json.loads(_text(file, folder))
    except ValueError:
        raise _damaged(file, folder) from None


def _text(file: Path, folder: Path) -> str:
    if not file.is_file():
        raise _damaged(file, folder)
    return file.read_text(encoding="utf-8")


def _damaged(file: Path, folder: Path) -> ConfigError:
    return ConfigError(f"{file} is missing or damaged; repeat the run's command with -o {folder} --resume to write it")


def _points(folder: Path) -> pl.DataFrame:
    try:
        return pl.read_parquet(folder / "points.parquet")
    except (OSError, pl.exceptions.PolarsError):
        raise _damaged(folder / "points.parquet", folder) from None
