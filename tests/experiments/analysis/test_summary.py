"""The summary of a run's points, and how it prints."""

from __future__ import annotations

import io
import json
import math
from typing import Any

import numpy as np
import polars as pl
import pytest
from rich.console import Console
from scipy import stats

from specsched.experiments.analysis.roles import roles
from specsched.experiments.analysis.summary import summarize, summarize_points
from specsched.experiments.config.schema import Experiment
from specsched.experiments.show.terminal import print_summary

LOADS = (1, 4, 16, 64)


def arm(
    name: str,
    speed: float,
    seeds: int = 5,
    noise: float = 0.0,
    shared_noise: float = 0.0,
    safety: str = "safe",
    bound: bool = False,
    eager_from: int = 1000,
) -> pl.DataFrame:
    """Points on the curve throughput = load * interactivity / 4, with interactivity = speed / (1 + load / 32)."""
    own = np.random.default_rng(list(name.encode()))
    shared = np.random.default_rng(7).standard_normal((seeds, len(LOADS)))
    rows: list[dict[str, Any]] = []
    for seed in range(seeds):
        for i, load in enumerate(LOADS):
            error = math.exp(noise * own.standard_normal() + shared_noise * shared[seed, i])
            x = speed / (1 + load / 32) * error
            rows.append(
                {
                    "arm": name,
                    "load": load,
                    "seed": seed,
                    "interactivity_tok_s_user": x,
                    "throughput_tok_s_gpu": load * x / 4,
                    "eager_fraction": 1.0 if load >= eager_from else 0.0,
                    "safety": safety,
                    "bound": bound,
                }
            )
    return pl.DataFrame(rows)


def at(summary: dict[str, Any], name: str, anchor: float) -> dict[str, Any]:
    entry = next(each for each in summary["arms"] if each["arm"] == name)
    return next(each for each in entry["at_anchor"] if each["anchor"] == anchor)


def over(summary: dict[str, Any], reference: str, name: str) -> dict[str, Any]:
    return next(each for each in summary["speedup"][reference]["arms"] if each["arm"] == name)


def printed(summary: dict[str, Any], width: int = 80, encoding: str = "utf-8") -> str:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding)
    print_summary(summary, Console(file=file, width=width))
    file.flush()
    return raw.getvalue().decode(encoding)


def test_throughput_at_an_anchor_by_hand() -> None:
    summary = summarize_points(arm("async", 330.0), [160.0, 400.0, 50.0])
    # Loads 16 and 64 lie at (220, 880) and (110, 1760): 160 is 60/110 of the way.
    met = at(summary, "async", 160.0)
    assert met["status"] == "met"
    assert met["throughput_tok_s_gpu"] == pytest.approx(880 + 60 / 110 * 880)
    assert met["between_loads"] == [16.0, 64.0]
    assert at(summary, "async", 400.0)["status"] == "not_met"
    assert at(summary, "async", 50.0)["status"] == "at_least"
    assert at(summary, "async", 50.0)["highest_load"] == 64.0


def test_anchor_interval_is_student_t_over_the_seeds_own_lines() -> None:
    points = arm("async", 330.0, seeds=6, noise=0.02)
    alone = [
        at(summarize_points(points.filter(pl.col("seed") == seed), [160.0]), "async", 160.0)["throughput_tok_s_gpu"]
        for seed in range(6)
    ]
    found = at(summarize_points(points, [160.0]), "async", 160.0)
    low, high = stats.t.interval(0.95, 5, loc=np.mean(alone), scale=stats.sem(alone))
    assert (found["low"], found["high"]) == pytest.approx((low, high), rel=1e-9)
    assert low < found["throughput_tok_s_gpu"] < high


def test_four_seeds_give_no_interval_and_say_so() -> None:
    summary = summarize_points(arm("async", 330.0, seeds=4, noise=0.02), [160.0])
    assert at(summary, "async", 160.0)["low"] is None
    assert "No intervals: 4 seeds, at least 5 are needed." in printed(summary)


def test_seeds_that_disagree_give_no_interval_and_are_counted() -> None:
    # The highest load runs at 110 on average; at anchor 110 some seeds still meet it there.
    summary = summarize_points(arm("async", 330.0, seeds=5, noise=0.02), [110.0])
    found = at(summary, "async", 110.0)
    assert 0 < found["seeds_of_this_status"] < 5
    assert found["low"] is None
    assert f"{found['seeds_of_this_status']}/5" in printed(summary)


def test_a_seed_that_lacks_a_load_takes_no_part_in_the_interval() -> None:
    points = arm("async", 330.0, seeds=6, noise=0.02)
    short = points.filter((pl.col("seed") != 2) | (pl.col("load") != 4))
    assert at(summarize_points(short, [160.0]), "async", 160.0)["seeds"] == 5


def test_speed_up_over_mtp_is_the_ratio_of_the_curves() -> None:
    points = pl.concat([arm("mtp-1", 200.0), arm("async", 330.0)])
    found = over(summarize_points(points, []), "mtp", "async")
    # At matched throughput the faster arm runs at a lower load of its own line, so the gain exceeds 330 / 200.
    own = [each["interactivity_tok_s_user"] / each["reference_interactivity_tok_s_user"] for each in found["matched"]]
    assert found["geometric_mean"] == pytest.approx(float(stats.gmean(own)))
    assert found["most"]["speedup"] == max(own)
    assert found["least"]["speedup"] == min(own)
    assert [each["load"] for each in found["matched"]] == [4.0, 16.0, 64.0]
    for each in found["matched"]:
        throughput = each["load"] / 4 * 200 / (1 + each["load"] / 32)
        assert each["throughput_tok_s_gpu"] == pytest.approx(throughput)


def test_pairing_by_seed_removes_the_noise_both_arms_share() -> None:
    shared = [arm(name, speed, shared_noise=0.05) for name, speed in (("mtp-1", 200.0), ("async", 330.0))]
    separate = [arm(name, speed, noise=0.05) for name, speed in (("mtp-1", 200.0), ("async", 330.0))]
    paired = over(summarize_points(pl.concat(shared), []), "mtp", "async")
    unpaired = over(summarize_points(pl.concat(separate), []), "mtp", "async")
    assert paired["high"] / paired["low"] - 1 < 0.5 * (unpaired["high"] / unpaired["low"] - 1)


def test_speed_up_interval_is_student_t_on_paired_logs() -> None:
    points = pl.concat([arm("mtp-1", 200.0, noise=0.01), arm("async", 330.0, noise=0.01)])
    whole = over(summarize_points(points, []), "mtp", "async")
    alone = [
        over(summarize_points(points.filter(pl.col("seed") == seed), []), "mtp", "async")["matched"]
        for seed in range(5)
    ]
    kept = {each["load"] for each in whole["matched"]}
    logs = [np.mean([math.log(each["speedup"]) for each in seed if each["load"] in kept]) for seed in alone]
    low, high = stats.t.interval(0.95, 4, loc=np.mean(logs), scale=stats.sem(logs))
    assert (whole["low"], whole["high"]) == pytest.approx((math.exp(low), math.exp(high)), rel=1e-9)


def test_best_static_is_the_fastest_of_the_static_arms_at_each_anchor_and_throughput() -> None:
    # static-7 is faster until it crosses the capture limit at load 64, where it collapses.
    deep = arm("static-7", 300.0, eager_from=64).with_columns(
        pl.when(pl.col("load") == 64)
        .then(pl.col("interactivity_tok_s_user", "throughput_tok_s_gpu") / 4)
        .otherwise(pl.col("interactivity_tok_s_user", "throughput_tok_s_gpu"))
    )
    points = pl.concat([arm("static-1", 240.0), deep, arm("async", 330.0)])
    summary = summarize_points(points, [80.0, 200.0, 500.0])
    assert [each["arm"] for each in summary["best_static_at_anchor"]] == ["static-1", "static-7", None]
    found = over(summary, "best_static", "async")
    assert {each["reference_arm"] for each in found["matched"]} == {"static-1", "static-7"}
    assert found["least"]["speedup"] > 1.0
    assert at(summary, "static-7", 80.0)["at_capture_limit"]


def test_runs_without_references_say_so() -> None:
    summary = summarize_points(arm("async", 330.0), [160.0])
    assert summary["speedup"] == {"mtp": None, "best_static": None}
    assert "No speed-up over the MTP-1 arm: the run has no such arm." in printed(summary)


def test_bounds_biased_arms_and_band_ends_stay_off_the_frontier() -> None:
    points = pl.concat(
        [
            arm("mtp-1", 200.0),
            arm("mtp-1-low", 220.0),
            arm("mtp-1-high", 180.0),
            arm("async", 210.0, safety="unknown"),
            arm("retrospective", 900.0, safety="unsafe"),
            arm("oracle", 990.0, safety="unsafe", bound=True),
        ]
    )
    cast = roles(points, bands={"mtp-1": ("mtp-1-low", "mtp-1-high")})
    summary = summarize_points(points, [100.0], cast=cast)
    assert {each["arm"] for each in summary["frontier"]} == {"async"}
    text = printed(summary)
    for label in ("oracle (bound)", "retrospective (biased)", "async (rule-checked)", "mtp-1-low", "cost band"):
        assert label in text
    low, high = over(summary, "mtp", "async")["over_band_ends"]
    assert low < over(summary, "mtp", "async")["geometric_mean"] < high


def test_points_without_interactivity_are_counted() -> None:
    points = arm("async", 330.0).with_columns(
        pl.when(pl.col("load") == 1)
        .then(None)
        .otherwise(pl.col("interactivity_tok_s_user"))
        .alias("interactivity_tok_s_user")
    )
    summary = summarize_points(points, [160.0])
    assert summary["points_left_out"] == 5
    assert "5 of 20 points have no interactivity and are left out." in printed(summary)


def test_all_null_points_give_a_summary() -> None:
    points = arm("async", 330.0).with_columns(
        pl.lit(None).alias(name) for name in ("interactivity_tok_s_user", "throughput_tok_s_gpu", "eager_fraction")
    )
    summary = summarize_points(points, [160.0])
    json.dumps(summary, allow_nan=False)
    assert at(summary, "async", 160.0)["status"] == "not_met"
    assert "20 of 20 points" in printed(summary)


def wide_run() -> dict[str, Any]:
    arms = [arm(f"static-{k}", 200.0 + 20 * k, noise=0.01) for k in (1, 3, 5, 7)]
    arms += [arm("mtp-1", 210.0, noise=0.01), arm("greedy", 300.0, eager_from=16), arm("async-lag2", 900.0, noise=0.01)]
    return summarize_points(pl.concat(arms), [80.0, 100.0, 120.0, 200.0, 250.0, 300.0])


@pytest.mark.parametrize("width", [80, 120])
def test_tables_fit_the_window(width: int) -> None:
    summary = wide_run()
    text = printed(summary, width)
    assert max(len(line) for line in text.splitlines()) <= width
    assert "…" not in text
    for cell in ("not met", ">= ", "@64", "*"):
        assert cell in text


def test_an_ascii_stream_is_enough() -> None:
    text = printed(wide_run(), encoding="ascii")
    assert " +-" in text


def test_summary_of_an_experiment_takes_anchors_order_and_bands_from_it() -> None:
    experiment = Experiment.model_validate(
        {
            "hardware": {"profile": "llama31-8b-h100"},
            "drafts": {"kind": "constant", "acceptance": 0.8},
            "arms": {
                "static-3": {"policy": {"kind": "static", "k": 3}},
                "mtp-1": {"policy": {"kind": "static", "k": 1}, "draft_cost": {"scale": 0.3, "band": [0.2, 0.5]}},
                "async-lag2": {"policy": {"kind": "async_topk", "lag": 2}},
            },
            "sweep": {"load": [1.0, 4.0, 16.0, 64.0]},
            "sla": {"anchors": [150.0]},
        }
    )
    names = ["async-lag2", "mtp-1", "mtp-1-low", "mtp-1-high", "static-3"]
    summary = summarize(pl.concat([arm(name, 300.0) for name in names]), experiment)
    assert [each["arm"] for each in summary["arms"]] == ["static-3", "mtp-1", "mtp-1-low", "mtp-1-high", "async-lag2"]
    assert summary["anchors"] == [150.0]
    assert summary["load"] == "concurrency"
    assert len(over(summary, "mtp", "async-lag2")["over_band_ends"]) == 2
