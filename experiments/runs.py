"""What ``specsched run`` does: read, check, compute, summarize, draw."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import polars as pl
from rich.console import Console

from .analysis import summary
from .config.errors import PointError, known_errors
from .config.resolve import find_config
from .config.working_directory import make_working_directory_importable
from .show import figures
from .show.terminal import print_summary
from .show.terminal_sweep import print_cells, print_effects
from .sweep import store
from .sweep.executors import Site, cluster, processes
from .sweep.identity import identity
from .sweep.manifest import now, open_folder, write_run
from .sweep.plan import Plan, load_plan, plan_identity
from .sweep.points import check_points
from .sweep.progress import show_progress
from .sweep.runner import Failure, Sweep, missing, run_points, sweep_points


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
    scheduler: str | None = None,
) -> Path:
    """Run an experiment into a folder and print its summary; returns the folder. Arguments as the command's.

    Raises:
        ConfigError, TraceError, PolicyError, ProfileError, DraftError, SimulationError: before anything is computed.
        PointError: if a point fails; finished points stay.
        Interrupted: on SIGINT or SIGTERM; finished points stay.
    """
    make_working_directory_importable()
    file = find_config(config)
    plan = load_plan(file, settings, seed)
    folder = output or Path("runs") / file.stem
    identities = [identity(cell.experiment) for cell in plan.cells]
    whole = plan_identity(plan, identities)
    open_folder(folder, whole, resume)
    _check(plan, identities)
    facts: dict[str, Any] = {"config": config, "settings": list(settings), "started": now()}
    with ExitStack() as stack:
        site = stack.enter_context(cluster(scheduler)) if scheduler is not None else processes(workers or processors())
        facts |= {"workers": site.workers, **({"cluster": scheduler} if scheduler else {})}
        write_run(folder, plan, whole, status="running", **facts)
        sweep = _compute(plan, identities, whole, folder, facts, quiet, site)
    _report(sweep.table, plan, folder)
    if sweep.failures:
        raise PointError(_failed(sweep.failures, len(sweep.table), folder), None)
    return folder


def _check(plan: Plan, identities: Sequence[dict[str, Any]]) -> None:
    """Build every arm that differs from those before it, without running it, and print warnings.

    Raises:
        ConfigError, TraceError, PolicyError, ProfileError, DraftError, SimulationError: what a point would fail with.
    """
    seen: set[str] = set()
    warnings: dict[str, None] = {}
    for number, (cell, known) in enumerate(zip(plan.cells, identities, strict=True)):
        arms: dict[str, str] = {}
        for point in sweep_points(cell.experiment, known):
            arms.setdefault(point.arm, point.key)
        new = [arm for arm, key in arms.items() if key not in seen]
        seen.update(arms.values())
        try:
            warnings |= dict.fromkeys(check_points(cell.experiment, new) if new else ())
        except known_errors() as error:
            if plan.blame is None:
                raise
            raise plan.blame(number, str(error)) from error
    errors = Console(stderr=True, soft_wrap=True)
    for warning in warnings:
        errors.print(f"warning: {warning}", markup=False, highlight=False)


def _compute(
    plan: Plan,
    identities: Sequence[dict[str, Any]],
    whole: dict[str, Any],
    folder: Path,
    facts: dict[str, Any],
    quiet: bool,
    site: Site,
) -> Sweep:
    """Compute the points and write ``points.parquet`` and how the run went."""
    records = plan.base.output.records
    points = [
        point
        for number, (cell, known) in enumerate(zip(plan.cells, identities, strict=True))
        for point in sweep_points(cell.experiment, known, number, cell.values.items())
    ]
    todo = missing(points, folder, records)
    began, status = time.monotonic(), "failed"
    try:
        with stop_on_signals(), show_progress(len(todo), quiet, Console(stderr=True)) as advance:
            sweep = run_points([cell.experiment for cell in plan.cells], points, folder, site, advance)
        store.write_parquet(folder / "points.parquet", sweep.table)
        status = "complete" if not sweep.failures else "incomplete"
        facts["failed"] = [f"{failure.point}: {failure.message}" for failure in sweep.failures]
    except KeyboardInterrupt:
        status = "interrupted"
        distinct = len({point.key for point in points})
        done = distinct - len(missing(points, folder, records))
        raise Interrupted(
            f"stopped with {done} of {distinct} points finished; to go on, repeat the command with -o {folder} --resume"
        ) from None
    finally:
        seconds = round(time.monotonic() - began, 3)
        facts |= {"status": status, "ended": now(), "wall_seconds": seconds, "computed": len(todo)}
        write_run(folder, plan, whole, **facts)
    return sweep


def _failed(failures: Sequence[Failure], computed: int, folder: Path) -> str:
    first = f"{failures[0].point}: {failures[0].message}"
    more = f" (and {len(failures) - 1} more, see {folder / 'manifest.json'})" if len(failures) > 1 else ""
    return f"{first}{more}; the {computed} others are in {folder}, and --resume tries again"


def _report(points: pl.DataFrame, plan: Plan, folder: Path) -> None:
    """Write the summary and the figures, print the summary and where the figures are."""
    outcome = summary.summarize_plan(points, plan)
    store.write_whole(folder / "summary.json", (json.dumps(outcome, indent=1, allow_nan=False) + "\n").encode())
    drawn = figures.draw_plan(points, plan, folder)
    console = Console(soft_wrap=True)
    if plan.base.sweep.axes:
        print_cells(outcome, console)
    else:
        print_effects(outcome, console)
        print_summary(outcome, console)
    for file in drawn:
        console.print(f"figure: {file}", markup=False, highlight=False)


def processors() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def stop_on_signals() -> Iterator[None]:
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
