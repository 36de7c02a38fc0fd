"""What a run does: read, check, compute, summarize, draw.

Nothing is printed but progress, where it is asked for: what a run came to is printed by the command.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from multiprocessing import current_process
from pathlib import Path
from typing import Any

from rich.console import Console

from .analysis import summary
from .config.errors import ConfigError, ExperimentWarning, PointError, known_errors
from .config.given import Given, find_config
from .config.schema import Experiment
from .config.working_directory import make_working_directory_importable
from .show import figures
from .sweep import store
from .sweep.course import Facts, begun, under_way
from .sweep.executors import Site, site_of
from .sweep.finished import Run, read_finished
from .sweep.identity import identity
from .sweep.manifest import open_folder, write_run
from .sweep.plan import Plan, load_plan, plan_identity
from .sweep.points import check_points
from .sweep.progress import show_progress
from .sweep.runner import Failure, Sweep, missing, run_points, sweep_points


class IncompleteError(PointError):
    """Points are missing because their workers were killed.

    Attributes:
        run: what the others gave.
    """

    def __init__(self, message: str, run: Run) -> None:
        super().__init__(message)
        self.run = run


def run_experiment(
    experiment: Given,
    output: Path | str | None = None,
    *,
    settings: Sequence[str] = (),
    workers: int | None = None,
    seed: int | None = None,
    resume: bool = False,
    cluster: str | None = None,
    progress: bool = False,
) -> Run:
    """Run an experiment into a folder, as ``specsched run`` does, and return what is in it.

    Several workers are processes that import the calling script anew: its call must stand under
    ``if __name__ == "__main__":``. One worker is this process.

    Args:
        experiment: a path, the name of a shipped experiment, or a mapping as YAML would give it.
        output: the folder; by default ``runs/NAME`` after the file. A mapping has no name and needs one.
        settings: as the command's ``--set``: ``a.b=value``, the value in YAML.
        workers: processes; by default one a processor.
        seed: this seed instead of ``seeds``.
        resume: go on in a folder that holds part of this run.
        cluster: compute on a Dask cluster, such as ``tcp://host:8786``.
        progress: say on standard error how far it is.

    Raises:
        ConfigError, TraceError, PolicyError, ProfileError, DraftError, SimulationError: before anything is computed.
        PointError: if a point fails; finished points stay.
        IncompleteError: if workers were killed; all other points are in the folder.
        Interrupted: on SIGINT or SIGTERM; finished points stay.

    Warns:
        ExperimentWarning: for what can run and is probably not meant.
    """
    _check_main()
    make_working_directory_importable()
    plan = load_plan(experiment, settings, seed)
    folder = _folder_of(experiment, output)
    identities = [identity(cell.experiment) for cell in plan.cells]
    whole = plan_identity(plan, identities)
    open_folder(folder, whole, resume)
    for text in _checked(plan, identities):
        warnings.warn(text, ExperimentWarning, stacklevel=2)
    with site_of(workers, cluster) as site:
        facts = begun(_name_of(experiment, folder), settings, site, cluster)
        write_run(folder, plan, whole, status="running", **facts)
        sweep = _compute(plan, identities, whole, folder, facts, progress, site)
    return _finished(sweep, plan, folder)


def _check_main() -> None:
    """Refuse to run in a worker that is still importing the script which started it.

    Raises:
        ConfigError: then; the parent would only see that the worker has died.
    """
    if getattr(current_process(), "_inheriting", False):
        raise ConfigError(
            "`run_experiment` is called where a worker imports this script; put the call under "
            '`if __name__ == "__main__":`, or give `workers=1`'
        )


def _folder_of(experiment: Given, output: Path | str | None) -> Path:
    if output is not None:
        return Path(output)
    if isinstance(experiment, str | Path):
        return Path("runs") / find_config(str(experiment)).stem
    raise ConfigError("an experiment given as a mapping has no name to call its folder after; give `output`")


def _name_of(experiment: Given, folder: Path) -> str:
    """Return what to run to get the same again; of a mapping, that is the file which the run writes."""
    return str(experiment) if isinstance(experiment, str | Path) else str(folder / "config.yaml")


def _checked(plan: Plan, identities: Sequence[dict[str, Any]]) -> list[str]:
    """Build every arm that differs from those before it, without running it; returns warnings.

    Raises:
        ConfigError, TraceError, PolicyError, ProfileError, DraftError, SimulationError: what a point would fail with.
    """
    seen: set[str] = set()
    found: dict[str, None] = {}
    for number, (cell, known) in enumerate(zip(plan.cells, identities, strict=True)):
        arms: dict[str, str] = {}
        for point in sweep_points(cell.experiment, known):
            arms.setdefault(point.arm, point.key)
        new = [arm for arm, key in arms.items() if key not in seen]
        seen.update(arms.values())
        try:
            found |= dict.fromkeys(check_points(cell.experiment, new) if new else ())
        except known_errors() as error:
            if plan.blame is None:
                raise
            raise plan.blame(number, str(error)) from error
    return list(found)


def _compute(
    plan: Plan,
    identities: Sequence[dict[str, Any]],
    whole: dict[str, Any],
    folder: Path,
    facts: Facts,
    progress: bool,
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
        with show_progress(todo, not progress, Console(stderr=True)) as advance:
            sweep = run_points([cell.experiment for cell in plan.cells], points, folder, site, advance)
        store.write_parquet(folder / "points.parquet", sweep.table)
        facts["failed"] = [f"{failure.point}: {failure.message}" for failure in sweep.failures]
    return sweep


def _finished(sweep: Sweep, plan: Plan, folder: Path) -> Run:
    """Write the summary and the figures, and return the run as `read_run` would.

    Raises:
        IncompleteError: if points are missing.
    """
    store.write_json(folder / "summary.json", summary.summarize_plan(sweep.table, plan))
    figures.draw_plan(sweep.table, plan, folder)
    run = Run(**vars(read_finished(folder)), points=sweep.table, plan=_as_read(plan))
    if sweep.failures:
        raise IncompleteError(_failed(sweep.failures, len(sweep.table), folder), run)
    return run


def _as_read(plan: Plan) -> Plan:
    """Return a plan as ``config.yaml`` has it: with axes, defaults that may depend on them stay open."""
    base = Experiment.model_validate(plan.config) if plan.base.sweep.axes else plan.base
    return replace(plan, base=base, blame=None)


def _failed(failures: Sequence[Failure], computed: int, folder: Path) -> str:
    first = f"{failures[0].point}: {failures[0].message}"
    more = f" (and {len(failures) - 1} more, see {folder / 'manifest.json'})" if len(failures) > 1 else ""
    return f"{first}{more}; the {computed} others are in {folder}, and --resume tries again"
