"""Run the points of a sweep, in this process or in several, and collect them in a fixed order.

Which process computes a point, and when, leaves no trace in the results.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from . import store
from .errors import PointError, known_errors
from .identity import point_key
from .points import PointResult, run_point
from .schema import Experiment, expanded_arms
from .store import Point

RunPoint = Callable[[Experiment, str, float, int], PointResult]
Advance = Callable[[], None]
Outcomes = Generator["Failure | None", None, None]

ONE_THREAD = {"POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""Set in workers: there are as many of them as processors."""


@dataclass(frozen=True)
class Task:
    """A point and what computing it needs."""

    experiment: Experiment
    point: Point
    folder: Path
    run_point: RunPoint


@dataclass(frozen=True)
class Failure:
    """Why a point could not be computed. ``trace`` is None if the message says all there is to say."""

    point: str
    message: str
    trace: str | None

    def error(self) -> PointError:
        """Return the error to raise."""
        return PointError(f"{self.point}: {self.message}", self.trace)


def sweep_points(experiment: Experiment, whole: dict[str, Any]) -> list[Point]:
    """Return all points of an experiment whose `identity` is ``whole``."""
    return [
        Point(arm, load, seed, point_key(whole, experiment, arm, load, seed))
        for arm in expanded_arms(experiment)
        for load in experiment.sweep.load
        for seed in experiment.seeds
    ]


def run_points(
    experiment: Experiment,
    points: Sequence[Point],
    folder: Path,
    workers: int,
    advance: Advance = lambda: None,
    run: RunPoint = run_point,
) -> pl.DataFrame:
    """Compute the points that ``folder`` lacks and return the table of all.

    Args:
        experiment: the resolved experiment.
        points: its points.
        folder: the run folder; each finished point is in it before the next call of ``advance``.
        workers: processes; 1 computes in this one.
        advance: called once for each point computed.
        run: computes a point.

    Raises:
        PointError: if a point fails; points under way are finished and kept, no others are begun.
        KeyboardInterrupt: on SIGINT; workers are ended, finished points stay.
    """
    records = experiment.output.records
    todo = [point for point in points if store.load(folder, point, records) is None]
    tasks = [Task(experiment, point, folder, run) for point in longest_first(todo, experiment.workload.mode)]
    results = _run_here(tasks) if min(workers, len(tasks)) <= 1 else _run_in_pool(tasks, workers)
    with closing(results):
        for failure in results:
            if failure is not None:
                raise failure.error()
            advance()
    entries = [store.load(folder, point, records) for point in points]
    return store.points_table(entry for entry in entries if entry is not None)


def longest_first(points: Sequence[Point], mode: str) -> list[Point]:
    """Return the points in the order of their expected cost, so that no worker is left with a long one at the end.

    A closed loop follows more requests at higher concurrency; an open loop runs the same requests in more, smaller
    steps at a lower rate.
    """
    return sorted(points, key=lambda point: -point.load if mode == "closed" else point.load)


def _work(task: Task) -> Failure | None:
    """Compute and save one point; an exception comes back as data, since not every exception survives pickling."""
    point = task.point
    try:
        result = task.run_point(task.experiment, point.arm, point.load, point.seed)
        store.save(task.folder, point, result)
    except known_errors() as error:
        return Failure(point.name, str(error), None)
    except Exception as error:  # noqa: BLE001  (the parent raises it)
        return Failure(point.name, f"{type(error).__name__}: {error}", traceback.format_exc())
    return None


def _run_here(tasks: Sequence[Task]) -> Outcomes:
    for task in tasks:
        yield _work(task)


def _run_in_pool(tasks: Sequence[Task], workers: int) -> Outcomes:
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(min(workers, len(tasks)), mp_context=context, initializer=_start_worker)
    others = multiprocessing.active_children()
    try:
        with _worker_environment():
            futures = [pool.submit(_work, task) for task in tasks]
        yield from _outcomes(futures)
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in multiprocessing.active_children():
            if child not in others:
                child.terminate()
        raise
    finally:
        pool.shutdown(wait=True)


def _outcomes(futures: Sequence[Future[Failure | None]]) -> Outcomes:
    """Yield outcomes as they come, a failure last: after it only points already under way are finished."""
    failed = None
    for future in as_completed(futures):
        if future.cancelled():
            continue
        outcome = _outcome(future)
        if outcome is None:
            yield None
        elif failed is None:
            failed = outcome
            for other in futures:
                other.cancel()
    if failed is not None:
        yield failed


def _outcome(future: Future[Failure | None]) -> Failure | None:
    try:
        return future.result()
    except BrokenProcessPool:
        reason = "it was ended from outside, perhaps for want of memory; try fewer workers and --resume"
        return Failure("a worker process died", reason, None)


@contextmanager
def _worker_environment() -> Iterator[None]:
    """Start processes with one thread each and deaf to Ctrl-C, which the terminal sends to them as well."""
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ.update(ONE_THREAD)
    blockable = hasattr(signal, "pthread_sigmask")
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}) if blockable else None
    try:
        yield
    finally:
        if mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def _start_worker() -> None:
    """End this worker if the process that started it is gone."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: Any) -> None:
    parent.join()
    os._exit(1)
