"""Run folders as a report reads them: runs and studies, each under a name of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..config.errors import ConfigError
from ..config.schema import Experiment
from ..sweep.finished import Finished, plan_of, read_finished, run_of


@dataclass(frozen=True, eq=False)
class TuneRun(Finished):
    """A finished tuning.

    Attributes:
        base: the experiment that was tuned.
    """

    base: Experiment


def read_runs(folders: Sequence[Path]) -> list[Finished]:
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
    return [read(folder, name if alone else str(folder)) for folder, name in zip(folders, last, strict=True)]


def read(folder: Path, name: str) -> Finished:
    """Return the contents of a finished run or tune folder under a name, as a `Run` or a `TuneRun`.

    Raises:
        ConfigError: if it is neither; says what it is instead and what to do.
    """
    found = replace(read_finished(folder, "a report"), name=name)
    return TuneRun(**vars(found), base=plan_of(folder).base) if found.is_study else run_of(found)
