"""Axes, repetitions, effects, killed workers and clusters."""

from __future__ import annotations

import dataclasses
import io
import json
import math
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import psutil
import pytest
from distributed import KilledWorker, LocalCluster
from rich.console import Console

from specsched.experiments import run_experiment
from specsched.experiments.analysis import effects
from specsched.experiments.cli.run import print_run, run_and_print
from specsched.experiments.config.document import dump
from specsched.experiments.config.errors import ConfigError, PointError
from specsched.experiments.config.resolve import repeated
from specsched.experiments.config.schema import Experiment
from specsched.experiments.report.page import write_report
from specsched.experiments.show.terminal import print_table
from specsched.experiments.sweep import executors
from specsched.experiments.sweep.executors import (
    KILLED_ON_CLUSTER,
    Site,
    _cluster_executor,
    _pass_on,
    cluster,
    processes,
)
from specsched.experiments.sweep.identity import identity
from specsched.experiments.sweep.plan import load_plan
from specsched.experiments.sweep.points import PointResult, build_scenario, run_point
from specsched.experiments.sweep.runner import CHANGED, OTHER_INPUTS, missing, run_points, sweep_points
from specsched.experiments.tune.run import run_tuning
from tests.experiments.commands import command, contents, run_command, wait_until
from tests.experiments.lag_sweep import TEXT, effect_points, plan_of


def points_of(plan: Any) -> list[Any]:
    return [
        point
        for number, cell in enumerate(plan.cells)
        for point in sweep_points(cell.experiment, identity(cell.experiment), number, cell.values.items())
    ]


def test_every_combination_is_an_experiment_with_its_settings(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    found = [
        (
            *cell.values.values(),
            cell.experiment.arms["async"].policy["lag"],
            cell.experiment.hardware.noise_cv,
            cell.experiment.workload.cohort,
        )
        for cell in plan.cells
    ]
    assert found == [(1, "none", 1, 0, 40), (1, "some", 1, 0.1, 50), (2, "none", 2, 0, 40), (2, "some", 2, 0.1, 50)]
    assert all(cell.experiment.sweep.axes == {} for cell in plan.cells)


def test_the_resolved_file_gives_the_same_cells(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,10,5\n1.0,10,20\n")
    text = TEXT.replace("hardware.noise_cv: 0.1,", "workload.path: t.csv,")
    first = plan_of(tmp_path, text, "sweep.repetitions=2")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "config.yaml").write_text(dump(first.config))
    again = load_plan(elsewhere / "config.yaml")
    assert [(dict(a.values), a.experiment) for a in again.cells] == [
        (dict(b.values), b.experiment) for b in first.cells
    ]
    assert first.cells[1].experiment.workload.path == str(tmp_path / "t.csv")
    assert first.cells[0].experiment.seeds == first.base.seeds
    assert len(first.base.seeds) == 4


def test_a_point_that_cells_share_is_computed_once(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    points = points_of(plan)
    assert len(points) == 4 * 2 * 2 * 2
    todo = missing(points, tmp_path / "out", [])
    # static-3 does not feel the lag: its points are those of two cells, not four.
    assert len(todo) == len(points) * 3 // 4
    calls: list[str] = []

    def fake(experiment: Experiment, arm: str, load: float, seed: int) -> PointResult:
        calls.append(arm)
        value = load + experiment.hardware.noise_cv + seed
        return PointResult({"throughput_tok_s_gpu": value, "safety": "safe", "bound": False})

    experiments = [cell.experiment for cell in plan.cells]
    table = run_points(experiments, points, tmp_path / "out", processes(1), run=fake).table
    assert (len(calls), calls.count("static-3"), len(table)) == (24, 8, 32)
    assert table.columns[:5] == ["arm", "load", "seed", "arms.async.policy.lag", "noise"]
    assert table["noise"].to_list() == (["none"] * 8 + ["some"] * 8) * 2
    assert table["arms.async.policy.lag"].to_list() == [1] * 16 + [2] * 16


def test_repetitions_have_seeds_of_their_own() -> None:
    seeds = repeated([0, 1], 3)
    assert seeds[::3] == [0, 1]
    assert len(set(seeds)) == 6
    assert seeds == repeated([0, 1], 3)
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert repeated([5], 1) == [5]


LAG = "x.yaml:10: sweep.axes.arms.async.policy.lag"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("policy.lag: [1, 2]", "policy.lagg: [1, 2]", f"{LAG}g: there is no such key; the nearest is arms.async"),
        ("policy.lag: [1, 2]", "policy.lag: []", f"{LAG}: must not be empty"),
        ("policy.lag: [1, 2]", "policy.lag: 1", f"{LAG}: must be a list, got 1"),
        ("policy.lag: [1, 2]", "policy.lag: [1, 1]", f"{LAG}: 1 appears twice"),
        ("policy.lag: [1, 2]", "policy.lag: [1, 0]", f"{LAG}: .*at least 1, got 0"),
        ("arms.async.policy.lag: [1, 2]", "seeds: [[1], [2]]", "x.yaml:10: sweep.axes.seeds: seeds is the same for"),
        ("hardware.noise_cv: 0.0", "hardware.noise: 0.0", "axes.noise: hardware.noise: there is no such key.*noise_cv"),
        ("hardware.noise_cv: 0.0", "hardware.noise_cv: low", "axes.noise.*hardware.noise_cv: must be a number"),
        ("{hardware.noise_cv: 0.0}", "{tune.trials: 4}", "axes.noise: tune.trials is the same for the whole sweep"),
        (
            "{hardware.noise_cv: 0.0}",
            "{hardware: {}, hardware.noise_cv: 0.0}",
            "noise: hardware.noise_cv lies within ha",
        ),
        (
            "arms.async.policy.lag: [1, 2]",
            "hardware.max_num_seqs: [2, 8]",
            "max_num_seqs: 2 does not fit the file: .*load",
        ),
        ("{hardware.noise_cv: 0.0}", "{drafts.gamma: 0}", "axes.noise: drafts.gamma: must be at least 1, got 0"),
        ("{hardware.noise_cv: 0.0}", "{}", "x.yaml:12: sweep.axes.noise.none: must not be empty"),
        ("[]}", "[], effects: [{metric: regret, along: lag, against: 1}]}", "effects.0.along: must be one of"),
        (
            "[]}",
            "[], effects: [{metric: x, along: noise, against: {arm: x}}]}",
            "no arm is called 'x'; there are static",
        ),
    ],
)
def test_a_wrong_axis_is_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in TEXT
    with pytest.raises(ConfigError, match=message):
        plan_of(tmp_path, TEXT.replace(old, new))


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        (
            "{arms.async.policy: [{kind: static, k: 1}], x: {a: {arms.async.policy.lag: 1}}}",
            r"x: \S+lag overlaps \S+ of",
        ),
        ("{arms.async.policy.lag: [1], arms: [{a: {policy: {kind: static, k: 1}}}]}", r"arms: arms overlaps \S+lag of"),
        (
            "{hardware.noise_cv: [0], x: {a: {hardware: {profile: a}}}}",
            "x: hardware overlaps hardware.noise_cv of the axis",
        ),
    ],
)
def test_axes_of_which_one_lies_within_another_are_refused(tmp_path: Path, axes: str, message: str) -> None:
    with pytest.raises(ConfigError, match=r"--set: sweep.axes." + message):
        plan_of(tmp_path, TEXT, f"sweep.axes={axes}")


def test_values_that_fit_alone_but_not_together_are_named(tmp_path: Path) -> None:
    axes = "sweep.axes={sweep.load: [[4], [8]], hardware.max_num_seqs: [4, 16]}"
    with pytest.raises(
        ConfigError, match=r"sweep.axes: sweep.load \[8\], hardware.max_num_seqs 4 do not go together: "
    ):
        plan_of(tmp_path, TEXT, axes)
    (tmp_path / "x.yaml").write_text(TEXT)
    axes = "sweep.axes={drafts.gamma: [5, 2], arms.async.policy.lag: [1, 2]}"
    with pytest.raises(ConfigError, match=r"--set: sweep.axes.drafts.gamma: 2 does not fit .*block of 2 drafts"):
        run_experiment(str(tmp_path / "x.yaml"), tmp_path / "out", settings=[axes], workers=1)
    axes = "sweep.axes={drafts.gamma: [5, 7], arms.static-3.policy.k: [4, 6]}"
    third = "sweep.axes={arms.static-3.policy.k: [6], drafts.gamma: [7], hardware.max_num_seqs: [256, 3]}"
    with pytest.raises(ConfigError, match=r"--set: sweep.axes.hardware.max_num_seqs: 3 does not fit .*sweep.load.1"):
        plan_of(tmp_path, TEXT.replace("0.7}", "0.7, gamma: 5}"), third)
    (tmp_path / "x.yaml").write_text(TEXT)
    with pytest.raises(ConfigError, match=r"drafts.gamma 5, arms.static-3.policy.k 6 do not go together: .*block of 5"):
        run_experiment(str(tmp_path / "x.yaml"), tmp_path / "out", settings=[axes], workers=1)
    assert not (tmp_path / "out").exists()


def test_an_axis_is_set_from_the_command_line(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, TEXT, "sweep.axes.arms.async.policy.lag=[3]", "sweep.axes.hardware.max_num_seqs=[60, 70]")
    assert [tuple(cell.values.values()) for cell in plan.cells] == [
        (3, noise, most) for noise in ("none", "some") for most in (60, 70)
    ]
    with pytest.raises(ConfigError, match=r"sweep.axes.workload.cohort: workload.cohort is set by noise too"):
        plan_of(tmp_path, TEXT, "sweep.axes.workload.cohort=[60, 70]")
    with pytest.raises(ConfigError, match=r"sweep.axes.workload.cohrt: there is no such key; the nearest is"):
        plan_of(tmp_path, TEXT, "sweep.axes.workload.cohrt=[60]")


def test_a_setting_that_an_axis_replaces_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--set: arms.async.policy.lag: has no effect, since the axis arms.async"):
        plan_of(tmp_path, TEXT, "arms.async.policy.lag=3")
    with pytest.raises(ConfigError, match=r"--set: hardware.noise_cv: .*; set sweep.axes.noise instead"):
        plan_of(tmp_path, TEXT, "hardware.noise_cv=0.3")
    with pytest.raises(ConfigError, match=r"--set: arms.async.policy: sets arms.async.policy.lag without effect"):
        plan_of(tmp_path, TEXT, "arms.async.policy={kind: async_topk, lag: 3}")
    plan = plan_of(tmp_path, TEXT, "workload.cohort=60", "arms.async.policy={kind: async_topk, min_len: 1}")
    assert [cell.experiment.workload.cohort for cell in plan.cells] == [60, 50, 60, 50]  # of two cases, one sets it
    assert [cell.experiment.arms["async"].policy["lag"] for cell in plan.cells] == [1, 1, 2, 2]
    assert plan.cells[0].experiment.arms["async"].policy["min_len"] == 1


def test_goodput_is_printed_where_a_bound_applies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.yaml").write_text(TEXT[: TEXT.index("  axes:")] + "output: {figures: []}\nseeds: [0, 1]\n")
    for name, bound in (("tpot", "sla={tpot_s: 0.004}"), ("ttft", "sla={ttft_s: 0.004}")):
        run_and_print(str(tmp_path / "x.yaml"), output=tmp_path / name, settings=[bound], workers=1)
    tpot, ttft = (pl.read_parquet(tmp_path / name / "points.parquet") for name in ("tpot", "ttft"))
    assert ttft["goodput_req_s"].null_count() == len(ttft)
    printed = capsys.readouterr()
    assert printed.out.count("Goodput") == 1
    assert "Goodput, requests/s with TPOT at most 0.004 s, by concurrency" in printed.out
    assert (
        printed.err == "warning: sla.ttft_s does not apply: without a prefill stage there is no time to first token\n"
    )
    goodput = json.loads((tmp_path / "tpot" / "summary.json").read_bytes())["goodput"]
    assert (goodput["bounds"], goodput["loads"]) == ({"TPOT": 0.004}, [1.0, 4.0])
    arm = next(each for each in goodput["arms"] if each["arm"] == "async")
    for load, value in zip(goodput["loads"], arm["by_load"], strict=True):
        assert value == pytest.approx(tpot.filter(arm="async", load=load)["goodput_req_s"].to_numpy().mean())


def test_tables_keep_names_whole_and_continue_below(tmp_path: Path) -> None:
    columns = [("arm", ["a-long-name-of-an-arm"]), *((f"column {i}", ["1,234 ±5.6"]) for i in range(9))]
    text = io.StringIO()
    print_table(columns, Console(file=text, width=60))
    lines = text.getvalue().splitlines()
    assert all(len(line) <= 60 for line in lines)
    assert sum("a-long-name-of-an-arm" in line for line in lines) == 5  # two of nine columns fit at a time
    assert sum(line.count("1,234 ±5.6") for line in lines) == 9


def test_too_many_combinations_are_refused(tmp_path: Path) -> None:
    values = list(range(1, 102))
    text = TEXT.replace("[1, 2]\n", f"{values}\n").replace(
        "    noise:\n", f"    hardware.max_num_seqs: {values[1:]}\n    noise:\n"
    )
    with pytest.raises(ConfigError, match=r"20200 combinations, at most 10000 are run"):
        plan_of(tmp_path, text)


def test_an_axis_called_like_a_metric_is_refused(tmp_path: Path) -> None:
    for name in ("requests", "load", "safety"):
        with pytest.raises(ConfigError, match=f"x.yaml:11: sweep.axes.{name}: is the name of a column"):
            plan_of(tmp_path, TEXT.replace("    noise:", f"    {name}:"))


def constant(experiment: Experiment, arm: str, load: float, seed: int) -> PointResult:
    return PointResult({"throughput_tok_s_gpu": 1.0, "safety": "safe", "bound": False})


# --- effects


EFFECT = (
    "figures: [], effects: [{{metric: throughput_tok_s_gpu, along: arms.async.policy.lag, against: {}, lines: noise}}]"
)


def test_an_effect_pairs_points_by_seed(tmp_path: Path) -> None:
    """Seeds differ by far more than the effect, which a comparison of means would miss."""
    gains = {"none": (1.1, 1.3), "some": (0.9, 0.9)}

    def metric(arm: str, load: float, seed: int, lag: int, noise: str) -> float:
        gain = gains[noise][int(load == 4)] if lag == 2 and arm == "async" else 1.0
        return 10.0**seed * load * gain * math.exp(0.001 * (seed - 2) * (lag == 2))

    plan = plan_of(tmp_path, TEXT.replace("figures: []", EFFECT.format("1, arms: [async]")))
    (effect,) = plan.base.output.effects
    table = effects.effect_table(effect_points(metric), effect, plan)
    assert table.select("line", "x").rows() == [("none", "1"), ("none", "2"), ("some", "1"), ("some", "2")]
    assert table["ratio"].to_list() == pytest.approx([1.0, math.sqrt(1.1 * 1.3), 1.0, 0.9])
    assert table["pairs"].to_list() == [10] * 4
    # Student t, 4 degrees of freedom: 2.776 times the standard error of (-2, -1, 0, 1, 2) / 1000.
    half = 2.7764451 * 0.001 * math.sqrt(2.5 / 5)
    assert table["high"][3] == pytest.approx(0.9 * math.exp(half), rel=1e-6)
    assert table["low"][3] == pytest.approx(0.9 * math.exp(-half), rel=1e-6)


def test_an_effect_against_an_arm_leaves_out_what_has_no_partner(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, TEXT.replace("figures: []", EFFECT.format("{arm: static-3}")))
    (effect,) = plan.base.output.effects
    points = effect_points(
        lambda arm, load, seed, lag, noise: (2.0 if arm == "async" else 4.0) * lag ** (arm == "async")
    )
    table = effects.effect_table(points, effect, plan)
    assert table["ratio"].to_list() == pytest.approx([0.5, 1.0, 0.5, 1.0])
    gone = points.filter(~((pl.col("arm") == "static-3") & (pl.col("load") == 4) & (pl.col("noise") == "none")))
    table = effects.effect_table(gone, effect, plan)
    assert table["left_out"].to_list() == [5, 5, 0, 0]
    with pytest.raises(ConfigError, match=r"no point has arms.async.policy.lag 3"):
        effects.effect_table(points, effect.model_copy(update={"against": 3}), plan)
    with pytest.raises(ConfigError, match="'safety' is no numeric column"):
        effects.effect_table(points, effect.model_copy(update={"metric": "safety"}), plan)


def test_an_effect_needs_no_axes_and_shows_loads_as_they_are_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (
        TEXT[: TEXT.index("  axes:")] + "output: {figures: [], effects: [{metric: mean_rows, along: load, against: 1}]}"
    )
    (tmp_path / "x.yaml").write_text(text + "\nseeds: [0]\n")
    run = run_experiment(tmp_path / "x.yaml", tmp_path / "out", workers=1)
    print_run(run)
    out = run.folder
    (effect,) = json.loads((out / "summary.json").read_bytes())["effects"]
    assert [row["x"] for row in effect["rows"]] == ["1", "4"]
    assert effect["averaged_over"] == ["arm"]
    assert effect["rows"][1]["ratio"] == pytest.approx(4.0, rel=0.05)
    assert "Change of mean_rows along load, against load 1" in capsys.readouterr().out
    assert (out / "effect-1.svg").is_file()
    page = write_report([out], tmp_path / "report.html").read_text()
    assert "Change of mean_rows along load, against load 1" in page


def test_a_report_names_the_machines_that_ran(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(TEXT)
    axes = "sweep.axes={hardware.profile: [llama31-8b-h100, llama31-70b-h100-tp4]}"
    effects = "output.effects=[{metric: mean_rows, along: load, against: 1, panels: hardware.profile}]"
    settings = [axes, effects, "seeds=[0]"]
    out = run_experiment(tmp_path / "x.yaml", tmp_path / "out", settings=settings, workers=1).folder
    page = write_report([out], tmp_path / "report.html").read_text()
    overview = page[page.index("Runs on this page") :][:3000]
    assert "llama31-8b-h100; llama31-70b-h100-tp4" in overview
    assert "vllm-dsv4flash-b300-tp4" not in overview


def test_only_what_varies_is_averaged_over(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, TEXT.replace("figures: []", EFFECT.format("1, arms: [async], where: {load: [4]}")))
    (found,) = effects.effects_of(effect_points(lambda *_: 1.0), plan)
    assert found["averaged_over"] == []
    plan = plan_of(tmp_path, TEXT.replace("figures: []", EFFECT.format("1")))
    (found,) = effects.effects_of(effect_points(lambda *_: 1.0), plan)
    assert found["averaged_over"] == ["arm", "load"]


def test_long_values_of_an_axis_are_numbered_on_a_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.yaml").write_text(TEXT)
    axes = "sweep.axes={drafts: [{kind: constant, acceptance: 0.6}, {kind: constant, acceptance: 0.8}]}"
    print_run(run_experiment(tmp_path / "x.yaml", tmp_path / "out", settings=[axes, "seeds=[0]"], workers=1))
    printed = capsys.readouterr().out
    assert 'drafts #2: {"kind": "constant", "acceptance": 0.8}' in printed
    assert printed.count('"acceptance": 0.6') == 1
    assert "2 combinations, 8 points, 1 seed." in printed


def test_a_sweep_runs_end_to_end(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(
        TEXT.replace("figures: []", EFFECT.format(1).replace("figures: []", "figures: [frontier]"))
    )
    line, environment = command(str(tmp_path / "x.yaml"), "-o", str(tmp_path / "out"), "--workers", "2", "-q")
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "Change of throughput_tok_s_gpu along arms.async.policy.lag, against arms.async.policy.lag 1" in done.stdout
    assert {"cells/1/frontier.svg", "cells/4/frontier.png", "effect-1.svg"} <= set(contents(tmp_path / "out"))
    summary = json.loads((tmp_path / "out" / "summary.json").read_bytes())
    assert summary["axes"] == {"arms.async.policy.lag": [1, 2], "noise": ["none", "some"]}
    assert [row["ratio"] for row in summary["effects"][0]["rows"]][::2] == [1.0, 1.0]
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_bytes())
    assert manifest["computed"] == 24
    again = subprocess.run([*line, "--resume", "--set", "sweep.axes.noise={x: {hardware.noise_cv: 0.2}}"],
                           env=environment, capture_output=True, text=True, timeout=300, check=False)  # fmt: skip
    assert again.returncode == 2
    assert "holds a run of another configuration" in again.stderr


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        ("throughput", r"'throughput' is no numeric column of points.parquet; did you mean"),
        ("safety", r"'safety' is no numeric column"),
        ("ttft_p99_s", r"ttft_p99_s is null without a prefill stage"),
        ("regret", r"regret is null without an arm of the policy `oracle`"),
        ("goodput_req_s", r"goodput needs a bound that applies"),
    ],
)
def test_a_metric_without_values_is_refused_before_the_run(tmp_path: Path, metric: str, message: str) -> None:
    wrong = EFFECT.format(1).replace("throughput_tok_s_gpu", metric)
    with pytest.raises(ConfigError, match=r"x.yaml:15: output.effects.0.metric: " + message):
        plan_of(tmp_path, TEXT.replace("figures: []", wrong))


def test_other_effects_cost_no_point(tmp_path: Path) -> None:
    """Effects and figures may change when a run goes on."""
    (tmp_path / "x.yaml").write_text(TEXT.replace("figures: []", EFFECT.format(2)))
    line, environment = command(str(tmp_path / "x.yaml"), "-o", str(tmp_path / "out"), "--workers", "1", "-q")
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    (tmp_path / "x.yaml").write_text(TEXT.replace("figures: []", EFFECT.format(1)))
    again = subprocess.run([*line, "--resume"], env=environment, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    assert json.loads((tmp_path / "out" / "manifest.json").read_bytes())["computed"] == 0
    assert (tmp_path / "out" / "effect-1.svg").is_file()


# --- workers that are killed


MANY = TEXT.replace("seeds: [0, 1]", f"seeds: {list(range(17))}")
"""204 small points."""


def killed(pid: int) -> psutil.Process:
    """Kill one busy child of a process with SIGKILL and return it."""
    workers = [child for child in psutil.Process(pid).children() if "spawn_main" in " ".join(child.cmdline())]
    os.kill(workers[0].pid, signal.SIGKILL)
    return workers[0]


@pytest.mark.deep
def test_a_sweep_whose_workers_are_killed_twice_ends_with_the_same_bytes(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(MANY)
    out = tmp_path / "killed"
    line, environment = command(str(tmp_path / "x.yaml"), "-o", str(out), "--workers", "2")
    process = subprocess.Popen(line, env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    total, seen = 204, []
    for least in (1, 60):
        for _ in wait_until(lambda least=least: len(list((out / "points").glob("*.json"))) >= least):  # type: ignore[misc]
            assert process.poll() is None, process.stderr and process.stderr.read()
        victim = killed(process.pid)
        seen.append(len(list((out / "points").glob("*.json"))))
        for _ in wait_until(lambda victim=victim: not victim.is_running() or victim.status() == psutil.STATUS_ZOMBIE):  # type: ignore[misc]
            pass
        time.sleep(0.1)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    assert all(0 < finished < total for finished in seen), seen
    run_command(str(tmp_path / "x.yaml"), "-o", str(tmp_path / "whole"), "--workers", "2")
    assert contents(out) == contents(tmp_path / "whole")
    assert len(pl.read_parquet(out / "points.parquet")) == 4 * 2 * 2 * 17


@pytest.mark.deep
def test_a_command_killed_twice_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(MANY)
    out = tmp_path / "killed"
    line, environment = command(str(tmp_path / "x.yaml"), "-o", str(out), "--workers", "2", "-q")
    for least in (1, 90):
        process = subprocess.Popen([*line, *(["--resume"] if out.exists() else [])], env=environment)
        for _ in wait_until(lambda least=least: len(list((out / "points").glob("*.json"))) >= least):  # type: ignore[misc]
            assert process.poll() is None
        process.kill()
        assert process.wait() == -signal.SIGKILL
        assert 0 < len(list((out / "points").glob("*.json"))) < 204
    run_command(str(tmp_path / "x.yaml"), "-o", str(out), "--resume", "--workers", "2")
    run_command(str(tmp_path / "x.yaml"), "-o", str(tmp_path / "whole"), "--workers", "2")
    assert contents(out) == contents(tmp_path / "whole")


def unhurried(experiment: Experiment, arm: str, load: float, seed: int) -> PointResult:
    time.sleep(0.05)
    return constant(experiment, arm, load, seed)


@pytest.mark.deep
def test_a_worker_that_died_by_sigkill_loses_nothing(tmp_path: Path) -> None:
    """Workers are children of this process here, so how they ended can be read."""
    plan = plan_of(tmp_path, MANY)
    victims: list[tuple[Any, int]] = []
    done = 0

    def advance() -> None:
        nonlocal done
        done += 1
        if done in (20, 100):
            worker = multiprocessing.active_children()[0]
            assert worker.pid is not None
            os.kill(worker.pid, signal.SIGKILL)
            worker.join(30)
            victims.append((worker, done))

    experiments, points = [cell.experiment for cell in plan.cells], points_of(plan)
    sweep = run_points(experiments, points, tmp_path / "out", processes(2), advance, run=unhurried)
    assert [worker.exitcode for worker, _ in victims] == [-signal.SIGKILL] * 2
    assert [finished for _, finished in victims] == [20, 100]
    assert done == 204
    assert (sweep.failures, len(sweep.table)) == ((), len(points))


def suicidal(experiment: Experiment, arm: str, load: float, seed: int) -> PointResult:
    if (arm, load, seed) == ("async", 4.0, 1) and experiment.arms["async"].policy["lag"] == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return constant(experiment, arm, load, seed)


def test_a_point_that_kills_its_worker_twice_is_recorded_and_the_others_are_computed(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, TEXT.replace("      some: {hardware.noise_cv: 0.1, workload.cohort: 50}\n", ""))
    experiments, points = [cell.experiment for cell in plan.cells], points_of(plan)
    sweep = run_points(experiments, points, tmp_path / "out", processes(2), run=suicidal)
    (failure,) = sweep.failures
    assert failure.point == "arm async, load 4, seed 1, arms.async.policy.lag 2, noise none"
    assert "killed twice" in failure.message
    assert len(sweep.table) == len(points) - 1
    again = run_points(experiments, points, tmp_path / "out", processes(1), run=constant)
    assert (again.failures, len(again.table)) == ((), len(points))
    alone = [point for point in points if point.name == failure.point]
    assert run_points(experiments, alone, tmp_path / "alone", processes(2), run=suicidal).failures == sweep.failures


# --- a cluster


@pytest.fixture
def scheduler(tmp_path: Path) -> Any:
    """A local Dask cluster of two worker processes; yields its address and the processes."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"}
    run = [
        sys.executable,
        "-m",
        "distributed.cli.dask_scheduler",
        "--host",
        "127.0.0.1",
        "--port",
        "0",
        "--no-dashboard",
    ]
    run += ["--scheduler-file", str(tmp_path / "scheduler.json")]
    started = [subprocess.Popen(run, env=environment, stderr=subprocess.DEVNULL)]
    file = tmp_path / "scheduler.json"
    for _ in wait_until(file.is_file):
        pass
    address = json.loads(file.read_text())["address"]
    work = [sys.executable, "-m", "distributed.cli.dask_worker", address, "--nthreads", "1", "--no-dashboard"]
    work += ["--local-directory", str(tmp_path / "dask"), "--no-nanny"]
    started += [subprocess.Popen(work, env=environment, stderr=subprocess.DEVNULL) for _ in range(2)]
    yield address, started
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.deep
def test_a_cluster_gives_the_same_bytes_with_a_worker_killed(tmp_path: Path, scheduler: Any) -> None:
    address, (_, first, _) = scheduler
    (tmp_path / "x.yaml").write_text(MANY)
    out = tmp_path / "cluster"
    line, environment = command(str(tmp_path / "x.yaml"), "-o", str(out), "--cluster", address)
    process = subprocess.Popen(line, env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    for _ in wait_until(lambda: len(list((out / "points").glob("*.json"))) >= 10):
        assert process.poll() is None, process.stderr and process.stderr.read()
    first.kill()
    assert first.wait() == -signal.SIGKILL
    finished = len(list((out / "points").glob("*.json")))
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    assert 0 < finished < 204
    run_command(str(tmp_path / "x.yaml"), "-o", str(tmp_path / "whole"), "--workers", "2")
    assert contents(out) == contents(tmp_path / "whole")


def test_a_study_on_a_cluster_has_the_trials_of_one_here(tmp_path: Path, scheduler: Any) -> None:
    address, _ = scheduler
    (tmp_path / "x.yaml").write_text(
        TEXT[: TEXT.index("  axes:")].replace("[1, 4]", "[4]")
        + "output: {figures: []}\n"
        + "tune: {arm: async, trials: 8, space: {arms.async.policy.lag: {low: 1, high: 4}, sweep.load: [2, 4]},"
        + " objectives: [{maximize: throughput_tok_s_gpu}], seeds: {tuning: [0, 1], testing: [5, 6, 7, 8, 9]}}\n"
    )
    there = run_tuning(str(tmp_path / "x.yaml"), output=tmp_path / "there", quiet=True, scheduler=address)
    here = run_tuning(str(tmp_path / "x.yaml"), output=tmp_path / "here", workers=1, quiet=True)
    same = ("trials.parquet", "testing.parquet", "summary.json", "best.yaml", "history.svg")
    assert [(there / name).read_bytes() for name in same] == [(here / name).read_bytes() for name in same]
    assert json.loads((there / "manifest.json").read_bytes())["workers"] in (1, 2)  # those that were there yet


def test_a_cluster_without_workers_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "CONNECT_S", 1)
    with LocalCluster(n_workers=0, processes=False, protocol="tcp", dashboard_address=None) as empty:
        address = empty.scheduler_address
        with pytest.raises(ConfigError, match=f"--cluster {address}: the cluster has no workers"), cluster(address):
            pass


POLICY = """
from dataclasses import dataclass
from specsched.policies.static import Static

@dataclass(frozen=True)
class Mine(Static):
    k: int = 2
"""


DRAFTS = """
from dataclasses import dataclass
from specsched.sim import DraftModel
from specsched.sim.drafts import ConstantDrafts

@dataclass(frozen=True)
class Mine(DraftModel):
    seed: int
    odds: float = 0.6
    gamma: int = 5

    def blocks(self, request, domain, start, count):
        return ConstantDrafts(self.odds, self.seed, self.gamma).blocks(request, domain, start, count)
"""

FORMAT = """
from specsched.traces import TraceFormat, plain_number

MINE = TraceFormat("my log", "CSV", "at", "in", "out", plain_number, 1.0, "a number of seconds")
"""


@pytest.mark.deep
def test_objects_of_ones_own_run_on_a_cluster(tmp_path: Path, scheduler: Any) -> None:
    address, _ = scheduler
    own = {"own_policy": POLICY, "own_drafts": DRAFTS, "own_format": FORMAT}
    for name, source in own.items():
        (tmp_path / f"{name}.py").write_text(source)
    (tmp_path / "t.csv").write_text("at,in,out\n" + "".join(f"{n},10,{20 + n % 7}\n" for n in range(60)))
    policy = "static-3: {policy: {kind: python, object: 'own_policy:Mine'}}"
    text = TEXT.replace("static-3: {policy: {kind: static, k: 3}}", policy)
    text = re.sub("drafts: {.*}", "drafts: {kind: python, object: 'own_drafts:Mine'}", text, count=1)
    (tmp_path / "x.yaml").write_text(text)
    trace = (
        "workload.path=t.csv",
        "workload.format={kind: python, object: 'own_format:MINE'}",
        "workload.lengths=null",
    )
    settings = [word for setting in trace for word in ("--set", setting)]

    def run(name: str, *place: str) -> subprocess.CompletedProcess[str]:
        line, environment = command("x.yaml", "-o", name, "-q", *settings, *place)
        return subprocess.run(line, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)

    for name, place in (("there", ["--cluster", address]), ("here", ["--workers", "1"])):
        done = run(name, *place)
        assert done.returncode == 0, done.stderr
    assert contents(tmp_path / "there") == contents(tmp_path / "here")
    # The workers have loaded the modules as they were; another version under the same name must not pass for it.
    for name, source in own.items():
        (tmp_path / f"{name}.py").write_text(source + "\n# changed\n")
        done = run(f"changed-{name}", "--cluster", address)
        assert done.returncode == 2
        assert CHANGED in done.stderr
        (tmp_path / f"{name}.py").write_text(source)


def test_a_trace_that_changes_under_its_path_is_read_again(tmp_path: Path) -> None:
    """A worker of a cluster lives on while the file changes."""
    lines = ["arrived_at,num_prefill_tokens,num_decode_tokens", *(f"{i}.0,10,{{0}}" for i in range(80))]
    plan, found = None, []
    for tokens in (20, 40, 20):
        (tmp_path / "t.csv").write_text("\n".join(lines).format(tokens) + "\n")
        plan = plan_of(tmp_path, TEXT, f"workload.path={tmp_path / 't.csv'}")
        found.append(run_point(plan.cells[0].experiment, "async", 4.0, 0).metrics)
    assert found[0] == found[2] != found[1]


def test_a_worker_with_other_files_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "t.csv").write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,10,5\n1.0,10,20\n")
    plan = plan_of(tmp_path, TEXT, f"workload.path={tmp_path / 't.csv'}")
    experiments, points = [cell.experiment for cell in plan.cells], points_of(plan)
    (tmp_path / "t.csv").write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,10,5\n1.0,10,21\n")
    site = dataclasses.replace(processes(2), elsewhere=True)
    with pytest.raises(PointError, match=re.escape(OTHER_INPUTS)):
        run_points(experiments, points, tmp_path / "out", site)
    assert not list((tmp_path / "out").glob("points/*"))


class Killing:
    """What Dask's executor does with a call that killed its workers: the future has a `KilledWorker`."""

    def __init__(self) -> None:
        self.shut: list[bool] = []

    def get_executor(self, pure: bool) -> Killing:
        return self

    def submit(self, fn: Any, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        _, _, task = args  # the folder to import from and the function come first
        point = task.point
        if (point.arm, point.load, point.seed) == ("async", 4.0, 1) and dict(point.values)[
            "arms.async.policy.lag"
        ] == 2:
            future.set_exception(KilledWorker("a task", None, 3))
        else:
            future.set_result(fn(*args, **kwargs))
        return future

    def shutdown(self, wait: bool = True) -> None:  # as Dask's, without `cancel_futures`
        self.shut.append(wait)


def test_a_point_that_kills_the_workers_of_a_cluster_is_recorded(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, TEXT.replace("      some: {hardware.noise_cv: 0.1, workload.cohort: 50}\n", ""))
    experiments, points = [cell.experiment for cell in plan.cells], points_of(plan)
    site = Site(2, lambda _: _cluster_executor(Killing()), KILLED_ON_CLUSTER)
    sweep = run_points(experiments, points, tmp_path / "out", site, run=constant)
    (failure,) = sweep.failures
    assert (failure.killed, len(sweep.table)) == (True, len(points) - 1)
    assert failure.message == KILLED_ON_CLUSTER


def test_a_call_that_dask_cancels_is_over_for_who_waits() -> None:
    inner: Future[Any] = Future()
    outer: Future[Any] = Future()
    inner.cancel()
    _pass_on(inner, outer)
    assert wait([outer], timeout=5).done == {outer}


def test_a_failure_on_a_cluster_cancels_what_it_runs() -> None:
    client = Killing()
    with pytest.raises(KeyboardInterrupt), _cluster_executor(client):
        raise KeyboardInterrupt
    assert client.shut == [False]


def test_a_cluster_that_is_not_there_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.yaml").write_text(TEXT)
    monkeypatch.setattr(executors, "CONNECT_S", 1)
    with pytest.raises(ConfigError, match=r"--cluster tcp://127.0.0.1:9: no scheduler answers"):
        run_experiment(str(tmp_path / "x.yaml"), output=tmp_path / "out", cluster="tcp://127.0.0.1:9")
    for wrong in ("", "nonsense", "tcp://", "http://127.0.0.1:80", "tcp://127.0.0.1:99999", "tcp://127.0.0.1:8786/"):
        with pytest.raises(ConfigError, match=f"--cluster {wrong}: must be the address of a Dask scheduler"):
            run_experiment(str(tmp_path / "x.yaml"), output=tmp_path / "out", cluster=wrong)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arrivals", "simultaneous"), [("{kind: flash, peak: 8, start_s: 2, seconds: 3}", 1), ("{kind: waves, size: 9}", 9)]
)
def test_bursts_reach_the_simulator(tmp_path: Path, arrivals: str, simultaneous: int) -> None:
    text = TEXT.replace("cohort: 40", f"mode: open, requests: 90, arrivals: {arrivals}").replace("some:", "#")
    plan = plan_of(tmp_path, text)
    times = build_scenario(plan.cells[0].experiment, "async", 4.0, 0).requests.arrival_s
    _, counts = np.unique(times, return_counts=True)
    assert counts.max() == simultaneous
