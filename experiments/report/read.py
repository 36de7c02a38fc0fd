"""Run folders as a report reads them. Only what is in the folder counts: nothing is looked up or computed again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
from pydantic import ValidationError

from ..config.document import load_document
from ..config.errors import ConfigError
from ..config.problems import to_config_error
from ..config.schema import Experiment
from ..sweep.plan import Cell, Plan

COMPLETE = "complete"
_UNFINISHED = {
    "running": "is still running, or was killed",
    "interrupted": "was stopped",
    "failed": "has failed",
    "incomplete": "lacks points whose workers were killed",
}


@dataclass(frozen=True)
class Source:
    """A finished folder.

    Attributes:
        name: what the page calls it; no other folder of the page has the same.
        folder: where it is.
        manifest, summary: its files of these names.
        config: the text of its experiment file.
    """

    name: str
    folder: Path
    manifest: Mapping[str, Any]
    summary: Mapping[str, Any]
    config: str


@dataclass(frozen=True)
class ReportRun(Source):
    """A finished run.

    Attributes:
        plan: what was run.
        points: its ``points.parquet``.
    """

    plan: Plan
    points: pl.DataFrame


@dataclass(frozen=True)
class TuneRun(Source):
    """A finished tuning.

    Attributes:
        base: the experiment that was tuned.
    """

    base: Experiment


def read_runs(folders: Sequence[Path]) -> list[Source]:
    """Return the contents of finished run and tune folders, under names that differ.

    Raises:
        ConfigError: for a folder that is none, or the same folder twice.
    """
    seen: set[Path] = set()
    for folder in folders:
        if folder.resolve() in seen:
            raise ConfigError(f"{folder} is given twice; give each run once")
        seen.add(folder.resolve())
    last = [folder.resolve().name for folder in folders]
    alone = len(set(last)) == len(last)
    return [read_run(folder, name if alone else str(folder)) for folder, name in zip(folders, last, strict=True)]


def read_run(folder: Path, name: str | None = None) -> Source:
    """Return the contents of a finished run or tune folder.

    Raises:
        ConfigError: if it is none; says what it is instead and what to do.
    """
    manifest = _manifest(folder)
    _must_be_complete(manifest, folder)
    summary, config = _json(folder / "summary.json", folder), _text(folder / "config.yaml", folder)
    common = (name or folder.resolve().name, folder, manifest, summary, config)
    if summary.get("kind") == "tune":
        return TuneRun(*common, base=_plan(folder / "config.yaml", folder).base)
    return ReportRun(*common, plan=_plan(folder / "config.yaml", folder), points=_points(folder))


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


def _must_be_complete(manifest: Mapping[str, Any], folder: Path) -> None:
    status = manifest.get("status")
    if status != COMPLETE:
        state = _UNFINISHED.get(str(status), f"has the status {status!r}")
        config = manifest.get("config") or "CONFIG"
        raise ConfigError(
            f"{folder}: the run in it {state}, and a report needs a finished one; repeat its command "
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


def _plan(config: Path, folder: Path) -> Plan:
    """Return the plan of a run from its files alone: a trace or a policy that has gone is no reason not to report."""
    document = load_document(config)
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
