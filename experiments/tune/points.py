"""From candidates to their points: every candidate of a batch with the same seeds, in one sweep."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from ..sweep.executors import Site
from ..sweep.identity import identity, point_key
from ..sweep.points import run_point
from ..sweep.runner import Advance, RunPoint, Sweep, run_points
from ..sweep.store import Point
from .space import Candidate


@dataclass(frozen=True)
class Evaluator:
    """Computes the points of an arm in many experiments and keeps them in a folder.

    Attributes:
        folder: where finished points are kept by their keys, so that none is computed twice.
        arm: the arm.
        site: where points are computed.
        run: computes a point.
    """

    folder: Path
    arm: str
    site: Site
    run: RunPoint = run_point

    def tables(
        self, candidates: Sequence[Candidate], seeds: Sequence[int], advance: Advance = lambda: None
    ) -> list[pl.DataFrame | str]:
        """Return the points table of each candidate; for one that killed its worker or cannot be simulated, why.

        Raises:
            PointError: if a point fails by an exception; it names the candidate.
        """
        points = [
            point for cell, candidate in enumerate(candidates) for point in self.points(candidate, seeds, cell=cell)
        ]
        experiments = [candidate.experiment for candidate in candidates]
        sweep = run_points(experiments, points, self.folder, self.site, advance, self.run, lenient=True)
        return [self._whole(sweep, candidate, points) for candidate in candidates]

    def points(self, candidate: Candidate, seeds: Sequence[int], cell: int = 0) -> list[Point]:
        """Return the points of a candidate."""
        experiment = candidate.experiment
        whole = identity(experiment)
        return [
            Point(
                self.arm,
                load,
                seed,
                point_key(whole, experiment, self.arm, load, seed),
                cell,
                (("trial", candidate.number),),
            )
            for load in experiment.sweep.load
            for seed in seeds
        ]

    def _whole(self, sweep: Sweep, candidate: Candidate, points: Sequence[Point]) -> pl.DataFrame | str:
        mine = [point for point in points if point.values == (("trial", candidate.number),)]
        failed = {failure.point: failure.message for failure in sweep.failures}
        # Of candidates that share a point, the first one's name stands in its failure.
        lost = {point.key: failed[point.name] for point in points if point.name in failed}
        reason = next((lost[point.key] for point in mine if point.key in lost), None)
        if reason is not None:
            return reason
        return sweep.table.filter(pl.col("trial") == candidate.number).drop("trial")


@contextmanager
def kept_open(site: Site) -> Iterator[Site]:
    """Yield a site whose executor stays open from sweep to sweep: processes take seconds to start.

    An executor that lost a worker is replaced when it is next asked for.
    """
    with ExitStack() as stack:
        held: list[Executor] = []

        @contextmanager
        def opened(_: int) -> Iterator[Executor]:
            if not held or not _alive(held[0]):
                held[:] = [stack.enter_context(site.open(site.workers))]
            yield held[0]

        yield dataclasses.replace(site, open=opened)


def _alive(executor: Executor) -> bool:
    try:
        executor.submit(int)
    except BrokenProcessPool:
        return False
    return True
