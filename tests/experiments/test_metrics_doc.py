"""A metric is computed, has its entry in the table of `sim.metrics`, and is explained in docs/metrics.md."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import polars as pl
import pytest

from specsched.experiments.analysis.summary import summarize_points
from specsched.experiments.config import columns
from specsched.sim.cost import StepCost
from specsched.sim.metrics import LEADING, METRICS, Metric, Need, Sla, point_metrics
from specsched.sim.profile import load_profile
from specsched.sim.records import REQUEST_COLUMNS, STEP_COLUMNS
from specsched.sim.scenario import Result

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")


COLUMNS = TEXT[TEXT.index("\n## `points.parquet`\n") : TEXT.index("\n## The line of an arm\n")]


def documented(text: str = TEXT) -> dict[str, tuple[str, str]]:
    """Units and meanings by name in the first column of the tables.

    ``_p50`` after ``interactivity_mean`` is ``interactivity_p50``; names of a row share a unit or have one each.
    """
    found: dict[str, tuple[str, str]] = {}
    for cell, unit, meaning in re.findall(r"^\| (`.*?) \| (.*?) \| (.*?) \|$", text, flags=re.MULTILINE):
        first, *others = re.findall(r"`(\w+)`", cell)
        names = [first, *(first.rsplit("_", 1)[0] + other if other.startswith("_") else other for other in others)]
        units = unit.split(", ") if ", " in unit else [unit] * len(names)
        found |= {name: (each, meaning) for name, each in zip(names, units, strict=True)}
    return found


def computed() -> list[str]:
    """Return the names of the metrics of a little run, in their order."""
    steps = pl.DataFrame({name: [1.0 if name.endswith(("_s", "_seconds")) else 1] for name in STEP_COLUMNS})
    one = {"cohort": True, "prompt_tokens": 1, "output_tokens": 3, "domain": "chat"}
    times = {"arrival_s": 0.0, "ready_s": 0.5, "admitted_s": 1.0, "first_token_s": 1.0, "last_token_s": 2.0}
    requests = pl.DataFrame([{name: one.get(name, times.get(name, 0)) for name in REQUEST_COLUMNS}])
    result = Result(steps=steps, requests=requests, rows=None, window_s=(0.0, 2.0), gpus=1, with_prefill=True)
    cost = StepCost(load_profile("llama31-8b-h100"))
    return list(point_metrics(result, cost, Sla(ttft_s=1.0), with_regret=True))


def test_the_table_has_what_is_computed_in_its_order() -> None:
    assert [each.name for each in METRICS] == computed()
    assert set(LEADING) <= set(computed())
    assert len(set(LEADING)) == len(LEADING)


def test_what_may_be_compared_or_bounded_is_what_is_computed() -> None:
    assert sorted(columns.METRICS) == sorted(computed())
    assert set(columns.SHARES) == {each.name for each in METRICS if each.share}
    assert not {*columns.OTHERS} & {*columns.METRICS}
    assert {*columns.OTHERS, *columns.METRICS} == documented(COLUMNS).keys()


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_every_metric_is_explained_with_its_unit_and_when_it_is_null(metric: Metric) -> None:
    unit, meaning = documented()[metric.name]
    assert unit == metric.unit
    wants = re.findall(r"null without (.*?)(?:[;,.]|$)", meaning)
    assert wants == ([] if metric.null_without is None else [metric.null_without])


def test_every_need_is_somebodys() -> None:
    assert {each.null_without for each in METRICS} == {None, *get_args(Need)}


def test_a_share_has_no_unit() -> None:
    assert {each.unit for each in METRICS if each.share} == {"-"}


def test_every_status_and_reference_of_a_summary_is_explained() -> None:
    point = {"arm": "a", "load": 1, "seed": 0, "interactivity_tok_s_user": 9.0, "throughput_tok_s_gpu": 9.0}
    summary = summarize_points(pl.DataFrame([point | {"eager_fraction": 0.0, "safety": "safe", "bound": False}]), [5.0])
    assert {"met", "at_least", "not_met"} <= documented().keys()
    for name in (*summary["speedup"], "points_left_out", "best_static_at_anchor", "between_loads"):
        assert f"`{name}`" in TEXT
