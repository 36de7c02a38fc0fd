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

from .executors import Site
from .identity import identity, point_key
from .points import run_point
from .runner import Advance, RunPoint, run_points
from .store import Point
from .tune_space import Candidate


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
    ) -> list[pl.DataFrame | None]:
        """Return the points table of each candidate; None for one that killed its worker twice.

        Raises:
            PointError: if a point fails by an exception; it names the candidate.
        """
        points = [
            point for cell, candidate in enumerate(candidates) for point in self.points(candidate, seeds, cell=cell)
        ]
        experiments = [candidate.experiment for candidate in candidates]
        table = run_points(experiments, points, self.folder, self.site, advance, self.run).table
        return [self._whole(table, candidate, len(seeds)) for candidate in candidates]

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

    def _whole(self, table: pl.DataFrame, candidate: Candidate, seeds: int) -> pl.DataFrame | None:
        if "trial" not in table.columns:
            return None
        mine = table.filter(pl.col("trial") == candidate.number).drop("trial")
        return mine if len(mine) == seeds * len(candidate.experiment.sweep.load) else None


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
