"""The committed picture's points: complete, and consistent with the closed-loop identity."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from specsched.experiments.analysis.intervals import t_quantile
from specsched.experiments.config.resolve import load_experiment
from specsched.experiments.config.schema import expanded_arms

ROOT = Path(__file__).resolve().parents[2]
GPUS = 4


@pytest.fixture(scope="module")
def points() -> pl.DataFrame:
    return pl.read_parquet(ROOT / "docs" / "frontier" / "points.parquet")


def test_every_point_of_the_shipped_experiment_is_there(points: pl.DataFrame) -> None:
    experiment = load_experiment(ROOT / "experiments" / "frontier.yaml")
    wanted = {
        (arm, load, seed)
        for arm in expanded_arms(experiment)
        for load in experiment.sweep.load
        for seed in experiment.seeds
    }
    assert set(points.select("arm", "load", "seed").iter_rows()) == wanted


def test_throughput_is_rows_times_interactivity(points: pl.DataFrame) -> None:
    """Section 7: the two sides differ by the window's ends only.

    For each arm and load the mean over seeds of the log ratio lies within its interval, Student t at 99 % for all 108
    pairs together (Bonferroni), and within 1.5 % whatever the interval.
    """
    rows_side = pl.col("mean_rows") * pl.col("interactivity_tok_s_user")
    ratio = (pl.col("throughput_tok_s_gpu") * GPUS / rows_side).log()
    by_point = (
        points.with_columns(ratio=ratio)
        .group_by("arm", "load")
        .agg(pl.col("ratio").mean().alias("mean"), pl.col("ratio").std().alias("spread"), pl.len().alias("seeds"))
    )
    assert len(by_point) == 108
    assert (by_point["seeds"] == 5).all()
    critical = t_quantile(1 - 0.01 / 2 / len(by_point), 4)
    half = critical * by_point["spread"] / 5**0.5
    # Arms that emit one token a row and step have no spread; their two sides agree to rounding.
    assert (by_point["mean"].abs() <= half + 1e-9).all()
    assert by_point["mean"].abs().max() < 0.015


def test_closed_loops_hold_their_rows(points: pl.DataFrame) -> None:
    assert ((points["mean_rows"] / points["load"] - 1).abs() < 1e-9).all()


def test_regret_lies_between_none_and_all(points: pl.DataFrame) -> None:
    drafting = points.filter(pl.col("arm") != "autoregressive")
    assert drafting["regret"].is_between(0.0, 1.0).all()
    assert (drafting.filter(pl.col("arm") == "oracle")["regret"] == 0.0).all()
    assert points.filter(pl.col("arm") == "autoregressive")["regret"].is_null().all()
