"""docs/metrics.md has every column of a point."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl

from specsched.experiments.analysis.summary import summarize_points
from specsched.experiments.config.columns import METRICS, OTHERS
from specsched.sim.cost import StepCost
from specsched.sim.metrics import Sla, point_metrics
from specsched.sim.profile import load_profile
from specsched.sim.records import STEP_COLUMNS, RequestLog
from specsched.sim.scenario import Result

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")


def documented() -> set[str]:
    """Names in the first column of the tables; ``_p50`` after ``interactivity_mean`` is ``interactivity_p50``."""
    names: set[str] = set()
    for row in re.findall(r"^\| (`.*?) \|", TEXT, flags=re.MULTILINE):
        first, *others = re.findall(r"`(\w+)`", row)
        names |= {first, *(first.rsplit("_", 1)[0] + other if other.startswith("_") else other for other in others)}
    return names


def test_every_column_of_a_point_is_explained() -> None:
    steps = pl.DataFrame({name: [1.0 if name.endswith(("_s", "_seconds")) else 1] for name in STEP_COLUMNS})
    one = {"cohort": True, "prompt_tokens": 1, "output_tokens": 3, "domain": "chat"}
    times = {"arrival_s": 0.0, "ready_s": 0.5, "admitted_s": 1.0, "first_token_s": 1.0, "last_token_s": 2.0}
    requests = pl.DataFrame([{name: one.get(name, times.get(name, 0)) for name in RequestLog.SCHEMA}])
    result = Result(steps=steps, requests=requests, rows=None, window_s=(0.0, 2.0), gpus=1, with_prefill=True)
    cost = StepCost(load_profile("llama31-8b-h100"))
    columns = point_metrics(result, cost, Sla(ttft_s=1.0), with_regret=True)
    assert columns.keys() | {*OTHERS} <= documented()
    assert columns.keys() == {*METRICS}
    assert len(set(METRICS)) == len(METRICS)


def test_every_status_and_reference_of_a_summary_is_explained() -> None:
    point = {"arm": "a", "load": 1, "seed": 0, "interactivity_tok_s_user": 9.0, "throughput_tok_s_gpu": 9.0}
    summary = summarize_points(pl.DataFrame([point | {"eager_fraction": 0.0, "safety": "safe", "bound": False}]), [5.0])
    assert {"met", "at_least", "not_met"} <= documented()
    for name in (*summary["speedup"], "points_left_out", "best_static_at_anchor", "between_loads"):
        assert f"`{name}`" in TEXT
