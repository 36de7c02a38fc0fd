"""Run the points of a sweep, in this process, in several or on a cluster, and collect them in a fixed order.

Which process computes a point, and when, leaves no trace in the results.
"""

from __future__ import annotations

import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from ...sim.requests import SimulationError
from ..config.errors import PointError, known_errors
from ..config.schema import Experiment, expanded_arms
from . import store
from .executors import Site
from .identity import identity, point_key
from .points import PointResult, run_point
from .store import Point

RunPoint = Callable[[Experiment, str, float, int], PointResult]
Advance = Callable[[], None]


OTHER_INPUTS = (
    "a worker of the cluster has other code or files than this machine: a module of yours, the trace, the profile, "
    "recorded drafts, or the version of Python, NumPy or Polars; make them the same there, restart the workers and "
    "--resume"
)


CHANGED = "a module of yours has changed since this worker of the cluster loaded it; restart the workers and --resume"

_LOADED: dict[str, str] = {}
"""Hashes of code, of users' modules too, when this process first met them."""


@dataclass(frozen=True)
class Task:
    """A point and what computing it needs.

    Attributes:
        experiment: resolved.
        point: what is computed.
        run_point: computes it.
        elsewhere: whether it is computed with files that may differ from those here, so that its key is checked.
        lenient: whether the others go on if it cannot be simulated.
    """

    experiment: Experiment
    point: Point
    run_point: RunPoint
    elsewhere: bool = False
    lenient: bool = False

    def goes_on(self, failure: Failure) -> bool:
        """Return whether the other points go on after this one has failed so."""
        return failure.killed or (self.lenient and failure.simulation)


@dataclass(frozen=True)
class Failure:
    """Why a point could not be computed.

    Attributes:
        point: its name.
        message: what went wrong.
        trace: text of the traceback; None if the message says all there is to say.
        killed: whether its worker was killed, so that the other points go on.
        simulation: whether the simulation itself could not be made, which other points need not share.
    """

    point: str
    message: str
    trace: str | None = None
    killed: bool = False
    simulation: bool = False

    def error(self) -> PointError:
        """Return the error to raise."""
        return PointError(f"{self.point}: {self.message}", self.trace)


Outcome = PointResult | Failure
Outcomes = Generator[tuple[Task, Outcome], None, None]


@dataclass(frozen=True)
class Sweep:
    """What came of a sweep.

    Attributes:
        table: a row a point that was computed.
        failures: points that killed their workers.
    """

    table: pl.DataFrame
    failures: tuple[Failure, ...] = ()


def sweep_points(
    experiment: Experiment, whole: dict[str, Any], cell: int = 0, values: Iterable[tuple[str, Any]] = ()
) -> list[Point]:
    """Return all points of a resolved experiment whose `identity` is ``whole``; ``cell`` and ``values`` name it."""
    shown = tuple(values)
    return [
        Point(arm, load, seed, point_key(whole, experiment, arm, load, seed), cell, shown)
        for arm in expanded_arms(experiment)
        for load in experiment.sweep.load
        for seed in experiment.seeds
    ]


def run_points(
    experiments: Sequence[Experiment],
    points: Sequence[Point],
    folder: Path,
    site: Site,
    advance: Advance = lambda: None,
    run: RunPoint = run_point,
    lenient: bool = False,
) -> Sweep:
    """Compute the points that ``folder`` lacks and return the table of all.

    A point that several cells share is computed once. If a worker is killed, its points are computed again, each in a
    worker of its own; one that is killed there too is left out of the table.

    Args:
        experiments: the resolved experiment of each cell.
        points: their points.
        folder: the run folder; each finished point is in it before the next call of ``advance``.
        site: where they are computed; 1 worker is this process.
        advance: called once for each point computed.
        run: computes a point.
        lenient: whether a point that cannot be simulated is left out like one that kills its worker.

    Raises:
        PointError: if a point fails by an exception; points under way are finished and kept, no others are begun.
        KeyboardInterrupt: on SIGINT; workers are ended, finished points stay.
    """
    records = experiments[0].output.records
    todo = missing(points, folder, records)
    tasks = [Task(experiments[point.cell], point, run, site.elsewhere, lenient) for point in todo]
    tasks = longest_first(tasks)
    outcomes = _run_here(tasks) if site.workers == 1 and not site.elsewhere else _run_on(site, tasks)
    failures = []
    with closing(outcomes):
        for task, outcome in outcomes:
            if isinstance(outcome, PointResult):
                store.save(folder, task.point, outcome)
                advance()
            elif task.goes_on(outcome):
                failures.append(outcome)
            else:
                raise outcome.error()
    results = ((point, store.load(folder, point, records)) for point in points)
    table = store.points_table((point, metrics) for point, metrics in results if metrics is not None)
    return Sweep(table, tuple(failures))


def missing(points: Sequence[Point], folder: Path, records: Sequence[str]) -> list[Point]:
    """Return the points that a folder lacks, those of equal keys once."""
    distinct = {point.key: point for point in reversed(points)}
    return [point for point in reversed(distinct.values()) if store.load(folder, point, records) is None]


def longest_first(tasks: Sequence[Task]) -> list[Task]:
    """Return the tasks in the order of their expected cost, so that no worker is left with a long one at the end.

    A closed loop follows more requests at higher concurrency; an open loop runs the same requests in more, smaller
    steps at a lower rate.
    """
    return sorted(tasks, key=lambda task: task.point.load * (-1 if task.experiment.workload.mode == "closed" else 1))


def _work(task: Task) -> Outcome:
    """Compute one point; an exception comes back as data, since not every exception survives pickling."""
    point = task.point
    try:
        other = _other_inputs(task) if task.elsewhere else None
        if other is not None:
            return Failure(point.name, other)
        return task.run_point(task.experiment, point.arm, point.load, point.seed)
    except known_errors() as error:
        return Failure(point.name, str(error), simulation=isinstance(error, SimulationError))
    except Exception as error:  # noqa: BLE001  (the parent raises it)
        return Failure(point.name, f"{type(error).__name__}: {error}", traceback.format_exc())


def _other_inputs(task: Task) -> str | None:
    """Return what is wrong if a point has another key in this process, or a user's module has changed under it."""
    point, experiment = task.point, task.experiment
    whole = identity(experiment)
    if any(_LOADED.setdefault(name, found) != found for name, found in whole["code"].items()):
        return CHANGED
    same = point_key(whole, experiment, point.arm, point.load, point.seed) == point.key
    return None if same else OTHER_INPUTS


def _run_here(tasks: Sequence[Task]) -> Outcomes:
    for task in tasks:
        yield task, _work(task)


def _run_on(site: Site, tasks: Sequence[Task]) -> Outcomes:
    """Yield outcomes as they come. After a broken pool, what was under way is computed again, each point alone."""
    left = deque(tasks)
    while left:
        workers = min(site.workers, len(left))
        with site.open(workers) as executor:
            suspects = yield from _until_broken(executor, left, workers)
        for task in suspects:
            yield task, _alone(site, task)


def _until_broken(
    executor: Executor, left: deque[Task], workers: int
) -> Generator[tuple[Task, Outcome], None, list[Task]]:
    """Compute tasks, taking them from ``left``, until none is left or a worker is killed; returns those it had then.

    After a failure no task is begun, and it is yielded when those under way have ended.
    """
    under_way: dict[Future[Outcome], Task] = {}
    failed: tuple[Task, Failure] | None = None
    while under_way or (left and failed is None):
        while left and failed is None and len(under_way) < workers:
            try:
                under_way[executor.submit(_work, left[0])] = left[0]
            except BrokenProcessPool:
                return list(under_way.values())
            left.popleft()
        done, _ = wait(under_way, return_when=FIRST_COMPLETED)
        for future in done:
            try:
                outcome = future.result()
            except BrokenProcessPool:
                return list(under_way.values())
            task = under_way.pop(future)
            if isinstance(outcome, PointResult) or task.goes_on(outcome):
                yield task, outcome
            elif failed is None:
                failed = task, outcome
    if failed is not None:
        yield failed
    return []


def _alone(site: Site, task: Task) -> Outcome:
    """Compute a point that was under way when a worker was killed."""
    with site.open(1) as executor:
        try:
            return executor.submit(_work, task).result()
        except BrokenProcessPool:
            return Failure(task.point.name, site.killed, killed=True)
