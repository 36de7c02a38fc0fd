"""What ``specsched run`` does: read, check, compute, summarize, draw."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
from rich.console import Console

from .analysis import summary
from .config.errors import PointError, known_errors
from .config.given import find_config
from .config.working_directory import make_working_directory_importable
from .show import figures
from .show.terminal import print_summary, say
from .show.terminal_sweep import print_cells, print_effects
from .sweep import store
from .sweep.course import Facts, begun, under_way
from .sweep.executors import Site, site_of
from .sweep.identity import identity
from .sweep.manifest import open_folder, write_run
from .sweep.plan import Plan, load_plan, plan_identity
from .sweep.points import check_points
from .sweep.progress import print_warnings, show_progress
from .sweep.runner import Failure, Sweep, missing, run_points, sweep_points


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
    with site_of(workers, scheduler) as site:
        facts = begun(config, settings, site, scheduler)
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
    print_warnings(warnings)


def _compute(
    plan: Plan,
    identities: Sequence[dict[str, Any]],
    whole: dict[str, Any],
    folder: Path,
    facts: Facts,
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
    todo, distinct = len(missing(points, folder, records)), len({point.key for point in points})

    def finished() -> str:
        return f"{distinct - len(missing(points, folder, records))} of {distinct} points"

    with under_way(folder, facts, partial(write_run, folder, plan, whole), finished, computed=todo):
        with show_progress(todo, quiet, Console(stderr=True)) as advance:
            sweep = run_points([cell.experiment for cell in plan.cells], points, folder, site, advance)
        store.write_parquet(folder / "points.parquet", sweep.table)
        facts["failed"] = [f"{failure.point}: {failure.message}" for failure in sweep.failures]
    return sweep


def _failed(failures: Sequence[Failure], computed: int, folder: Path) -> str:
    first = f"{failures[0].point}: {failures[0].message}"
    more = f" (and {len(failures) - 1} more, see {folder / 'manifest.json'})" if len(failures) > 1 else ""
    return f"{first}{more}; the {computed} others are in {folder}, and --resume tries again"


def _report(points: pl.DataFrame, plan: Plan, folder: Path) -> None:
    """Write the summary and the figures, print the summary and where the figures are."""
    outcome = summary.summarize_plan(points, plan)
    store.write_json(folder / "summary.json", outcome)
    drawn = figures.draw_plan(points, plan, folder)
    console = Console(soft_wrap=True)
    if plan.base.sweep.axes:
        print_cells(outcome, console)
    else:
        print_effects(outcome, console)
        print_summary(outcome, console)
    say([f"figure: {file}" for file in drawn], console)
