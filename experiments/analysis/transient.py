"""What the steps around a wave of joins look like: waves aligned, averaged over waves and then over seeds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from ...policies import Floats
from ..config.schema import Experiment, WaveArrivals
from ..sweep.store import Point
from .intervals import mean_interval

BEFORE, AFTER = 4, 16
"""Steps shown on either side of the one in which a wave is admitted."""

QUANTITIES = {
    "budget": "drafts verified per row that has some",
    "batch_tokens": "batch tokens asked for",
    "step_ms": "step time, ms",
    "padding": "padded tokens",
    "tokens_per_s": "tokens emitted per second",
}

_SCHEMA = {
    "arm": pl.String,
    "load": pl.Float64,
    "quantity": pl.String,
    "offset": pl.Int64,
    "mean": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "seeds": pl.Int64,
    "waves": pl.Int64,
}


def transient_table(points: Sequence[Point], experiment: Experiment, folder: Path) -> pl.DataFrame:
    """Return the steps around the waves of an experiment whose arrivals are waves; no rows for other arrivals.

    A wave is a step in which at least half of `workload.arrivals.size` rows are new. Step 0 admits it; its rows have
    their first drafts in step 1. Waves that lack steps on either side, or meet another one, are left out.

    Args:
        points: those of the experiment.
        experiment: resolved, with ``steps`` in `output.records`.
        folder: the run folder.

    Returns:
        ``arm, load, quantity, offset, mean, low, high, seeds, waves``: the mean over the waves of a seed, then over
        seeds, with Student's 95 % interval (null under five seeds), of each of `QUANTITIES` at each offset.

    Raises:
        OSError: if the records of a point are missing.
    """
    arrivals = experiment.workload.arrivals
    rows: list[tuple[Any, ...]] = []
    if isinstance(arrivals, WaveArrivals):
        for arm, load in dict.fromkeys((point.arm, point.load) for point in points):
            mine = [point for point in points if (point.arm, point.load) == (arm, load)]
            seeds = [_waves(pl.read_parquet(folder / "steps" / point.file), arrivals.size) for point in mine]
            rows += [(arm, load, *row) for row in _averages([seed for seed in seeds if len(seed)])]
    return pl.DataFrame(rows, schema=_SCHEMA, orient="row")


def _waves(steps: pl.DataFrame, size: int) -> Floats:
    """Return float64 ``[waves, quantities, offsets]``."""
    joined = (steps["rows"] - steps["drafting_rows"]).to_numpy()
    starts = np.flatnonzero(2 * joined >= size)
    starts = starts[(starts >= BEFORE) & (starts + AFTER < len(steps))]
    alone = np.array([not ((starts > start) & (starts <= start + AFTER)).any() for start in starts], np.bool_)
    values = _quantities(steps)
    around = np.arange(-BEFORE, AFTER + 1)
    return values[:, starts[alone][:, None] + around].transpose(1, 0, 2)


def _quantities(steps: pl.DataFrame) -> Floats:
    """Return float64 ``[quantities, steps]``; a budget without drafts is 0."""
    seconds = steps["step_seconds"].to_numpy()
    drafting = np.maximum(steps["drafting_rows"].to_numpy(), 1)
    by_name = {
        "budget": steps["verified"].to_numpy() / drafting,
        "batch_tokens": steps["batch_tokens"].to_numpy(),
        "step_ms": 1000.0 * seconds,
        "padding": (steps["executed_tokens"] - steps["batch_tokens"]).to_numpy(),
        "tokens_per_s": steps["emitted"].to_numpy() / seconds,
    }
    return np.array([by_name[name] for name in QUANTITIES], np.float64)


def _averages(seeds: Sequence[Floats]) -> Iterator[tuple[Any, ...]]:
    if not seeds:
        return
    means = np.array([waves.mean(axis=0) for waves in seeds])
    waves = sum(len(seed) for seed in seeds)
    for at, name in enumerate(QUANTITIES):
        for place in range(means.shape[2]):
            values = means[:, at, place].tolist()
            interval = mean_interval(values)
            ends = (interval.low, interval.high) if interval else (None, None)
            yield name, place - BEFORE, float(np.mean(values)), *ends, len(seeds), waves
