"""What ``specsched run`` does: read, check, compute, summarize, draw."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import polars as pl
from rich.console import Console

from . import figures, store, summary
from .identity import identity
from .manifest import now, open_folder, write_run
from .points import check_points
from .progress import show_progress
from .resolve import find_config, load_experiment
from .runner import run_points, sweep_points
from .schema import Experiment
from .working_directory import make_working_directory_importable


class Interrupted(Exception):
    """The run was stopped by a signal; the message says how to go on."""


def run_experiment(
    config: str,
    settings: Sequence[str] = (),
    output: Path | None = None,
    workers: int | None = None,
    seed: int | None = None,
    resume: bool = False,
    quiet: bool = False,
) -> Path:
    """Run an experiment into a folder and print its summary; returns the folder. Arguments as the command's.

    Raises:
        ConfigError, TraceError, PolicyError, ProfileError, DraftError, SimulationError: before anything is computed.
        PointError: if a point fails; finished points stay.
        Interrupted: on SIGINT or SIGTERM; finished points stay.
    """
    make_working_directory_importable()
    file = find_config(config)
    experiment = load_experiment(file, settings, seed)
    folder = output or Path("runs") / file.stem
    whole = identity(experiment)
    open_folder(folder, whole, resume)
    errors = Console(stderr=True, soft_wrap=True)
    for warning in check_points(experiment):
        errors.print(f"warning: {warning}", markup=False, highlight=False)
    facts: dict[str, Any] = {"config": config, "settings": list(settings), "started": now()}
    facts["workers"] = workers or _processors()
    write_run(folder, experiment, whole, status="running", **facts)
    points = _compute(experiment, whole, folder, facts, quiet)
    _report(points, experiment, folder)
    return folder


def _compute(
    experiment: Experiment, whole: dict[str, Any], folder: Path, facts: dict[str, Any], quiet: bool
) -> pl.DataFrame:
    """Compute the points and write ``points.parquet`` and how the run went."""
    todo = sweep_points(experiment, whole)
    missing = [point for point in todo if store.load(folder, point, experiment.output.records) is None]
    began, status = time.monotonic(), "failed"
    try:
        with _stop_on_signals(), show_progress(len(missing), quiet, Console(stderr=True)) as advance:
            table = run_points(experiment, todo, folder, facts["workers"], advance)
        store.write_parquet(folder / "points.parquet", table)
        status = "complete"
    except KeyboardInterrupt:
        status = "interrupted"
        done = sum(store.load(folder, point, experiment.output.records) is not None for point in todo)
        raise Interrupted(
            f"stopped with {done} of {len(todo)} points finished; to go on, repeat the command with "
            f"-o {folder} --resume"
        ) from None
    finally:
        seconds = round(time.monotonic() - began, 3)
        facts |= {"status": status, "ended": now(), "wall_seconds": seconds, "computed": len(missing)}
        write_run(folder, experiment, whole, **facts)
    return table


def _report(points: pl.DataFrame, experiment: Experiment, folder: Path) -> None:
    """Write the summary and the figures, print the summary and where the figures are."""
    outcome = summary.summarize(points, experiment)
    store.write_whole(folder / "summary.json", (json.dumps(outcome, indent=1, allow_nan=False) + "\n").encode())
    drawn = figures.draw(points, experiment, folder)
    console = Console(soft_wrap=True)
    summary.print_summary(outcome, console)
    for file in drawn:
        console.print(f"figure: {file}", markup=False, highlight=False)


def _processors() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def _stop_on_signals() -> Iterator[None]:
    """Stop cleanly on SIGINT, even where a shell started the command in the background, and on SIGTERM."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Python delivers signals to the main thread alone
        return
    before = {number: signal.signal(number, _interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
