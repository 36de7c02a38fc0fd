"""The shipped studies in a shortened form, what they need of the scenario file, and the figures of their pages."""

from __future__ import annotations

import json
import math
import re
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from specsched.experiments import run_experiment
from specsched.experiments.analysis import effects, transient
from specsched.experiments.cli.run import print_run
from specsched.experiments.config.errors import ConfigError
from specsched.experiments.config.resolve import load_experiment
from specsched.experiments.show.transient import transient_figure
from specsched.experiments.sweep.plan import load_plan
from specsched.experiments.sweep.points import build_scenario, profile_of, run_point
from specsched.experiments.sweep.store import Point
from tests.experiments.lag_sweep import TEXT, effect_points, plan_of
from tests.parts import deep_except

ROOT = Path(__file__).resolve().parents[2]
TABLES = runpy.run_path(str(ROOT / "benchmarks" / "study_tables.py"))
SHORT = ("seeds=[0]", "workload.lengths={prompt: 100, output: 20}")

FEWER_BURSTS = (
    "sweep.axes.burst={cv 10: {workload.arrivals: {kind: gamma, cv: 10}}, "
    "flash: {workload.arrivals: {kind: flash, peak: 3, start_s: 0.2, seconds: 0.2}}}"
)
FEWER_JOINS = (
    "sweep.axes.joins={optimistic: {arms.lag-1.policy.joins: optimistic}, mean: {arms.lag-1.policy.joins: mean}}"
)

STUDIES = {
    "lag_bursts": (4 * 2 * 9, (*SHORT, FEWER_BURSTS, FEWER_JOINS, "workload.requests=100")),
    "lag_short_answers": (4 * 2 * 9, (*SHORT, FEWER_BURSTS, FEWER_JOINS, "workload.requests=100")),
    "lag_transient": (2 * 7, (*SHORT, FEWER_JOINS, "workload.requests=260")),
    "calibration": (4 * 2 * 5, (*SHORT, "workload.cohort=12", "sweep.load=[8]")),
    "jaggedness": (4 * 3 * 4, (*SHORT, "workload.cohort=12", "sweep.load=[8]")),
}
"""For each study the points that are computed, and how it is shortened: one seed, few short answers, fewer cases."""


@pytest.mark.parametrize("name", deep_except(["calibration"], STUDIES))
def test_a_study_runs_in_a_shortened_form(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    computed, settings = STUDIES[name]
    run = run_experiment(name, tmp_path / "out", settings=settings, workers=1)
    print_run(run)
    folder = run.folder
    manifest = json.loads((folder / "manifest.json").read_bytes())
    assert (manifest["status"], manifest["computed"]) == ("complete", computed)
    summary = json.loads((folder / "summary.json").read_bytes())
    for number, effect in enumerate(summary["effects"], start=1):
        assert (folder / f"effect-{number}.svg").stat().st_size > 10_000
        assert effect["rows"]
        assert all(row["left_out"] == 0 and row["ratio"] > 0 for row in effect["rows"])
        references = [row["ratio"] for row in effect["rows"] if row["x"] == str(effect["against"])]
        assert references == [1.0] * len(references)
    assert "Change of" in capsys.readouterr().out


@pytest.mark.deep
def test_joins_are_priced_for_as_many_steps_as_the_lag(tmp_path: Path) -> None:
    """After a wave the budget of lag L stays apart from that of lag 1 for L steps: above it if joins count as sure,
    below it if they do not count."""
    settings = (
        "seeds=[0]",
        "workload.requests=400",
        "workload.arrivals.share=0.4",
        "workload.lengths={prompt: 100, output: 100}",
        "sweep.axes.machine={h100: {hardware.profile: llama31-8b-h100, sweep.load: [51]}}",
        "output.effects=[]",
    )
    folder = run_experiment("lag_transient", tmp_path / "out", settings=settings, workers=1).folder
    steps = {
        joins: budgets(folder / "cells" / str(cell)) for cell, joins in enumerate(("optimistic", "mean", "none"), 1)
    }
    during, after = slice(4 + 2, 4 + 9), slice(4 + 10, None)
    for joins, sign in (("optimistic", 1), ("none", -1)):
        apart = sign * (steps[joins]["lag-8"] - steps[joins]["lag-1"])
        assert (apart[during] > 0).all(), joins
        assert apart[during].mean() > 3 * abs(apart[after].mean()), joins
    # A mean prior is nearer to what fresh confidences would do than either.
    fresh = steps["mean"]["lag-0"]
    off = {joins: float(np.abs(arms["lag-8"] - fresh)[during].mean()) for joins, arms in steps.items()}
    assert off["mean"] < min(off["optimistic"], off["none"])


def budgets(folder: Path) -> dict[str, Any]:
    table = pl.read_parquet(folder / "transient.parquet").filter(pl.col("quantity") == "batch_tokens")
    return {arm: part.sort("offset")["mean"].to_numpy() for (arm,), part in table.group_by("arm")}


# --- waves laid over each other


def steps_with_waves(*waves: tuple[int, float], steps: int = 80) -> pl.DataFrame:
    """Steps of 10 rows and 20 batch tokens; 8 rows join in each wave, and its next step verifies so many more."""
    table = {
        "rows": np.full(steps, 10), "drafting_rows": np.full(steps, 10), "verified": np.full(steps, 10.0),
        "batch_tokens": np.full(steps, 20.0), "executed_tokens": np.full(steps, 24), "emitted": np.full(steps, 15),
        "step_seconds": np.full(steps, 0.01),
    }  # fmt: skip
    for start, more in waves:
        table["drafting_rows"][start] = 2
        table["verified"][start + 1] += more
        table["batch_tokens"][start + 1] += more
    return pl.DataFrame(table)


def table_of(tmp_path: Path, *seeds: pl.DataFrame) -> pl.DataFrame:
    text = TEXT.split("  axes:")[0] + "output: {records: [steps], figures: [transient]}\n"
    text = text.replace("workload: {", "workload: {mode: open, arrivals: {kind: waves, size: 12}, requests: 400, ")
    (tmp_path / "w.yaml").write_text(text)
    (tmp_path / "steps").mkdir(exist_ok=True)
    points = [Point("async", 4.0, seed, "0" * 32) for seed in range(len(seeds))]
    for point, steps in zip(points, seeds, strict=True):
        steps.write_parquet(tmp_path / "steps" / point.file)
    return transient.transient_table(points, load_experiment(tmp_path / "w.yaml"), tmp_path)


def test_waves_are_aligned_and_averaged_by_seed(tmp_path: Path) -> None:
    """Two waves of a seed count as much as one of another."""
    table = table_of(tmp_path, steps_with_waves((10, 4.0), (40, 8.0)), steps_with_waves((30, 12.0)))
    tokens = table.filter(pl.col("quantity") == "batch_tokens")
    assert tokens["offset"].to_list() == list(range(-4, 17))
    assert tokens["mean"].to_list() == [20.0] * 5 + [20 + ((4 + 8) / 2 + 12) / 2] + [20.0] * 15
    assert set(tokens.select("seeds", "waves", "low").rows()) == {(2, 3, None)}
    at_one = table.filter(pl.col("offset") == 1)
    assert dict(at_one.select("quantity", "mean").rows()) == pytest.approx(
        {"budget": 1.9, "batch_tokens": 29.0, "step_ms": 10.0, "padding": -5.0, "tokens_per_s": 1500.0}
    )
    # In step 0 two rows have drafts.
    assert table.filter((pl.col("offset") == 0) & (pl.col("quantity") == "budget"))["mean"].to_list() == [5.0]


def test_five_seeds_give_an_interval(tmp_path: Path) -> None:
    table = table_of(tmp_path, *(steps_with_waves((20, float(more))) for more in (1, 2, 3, 4, 5)))
    row = table.filter((pl.col("quantity") == "batch_tokens") & (pl.col("offset") == 1)).row(0, named=True)
    half = 2.7764451 * math.sqrt(2.5 / 5)
    assert (row["mean"], row["low"], row["high"]) == pytest.approx((23.0, 23 - half, 23 + half), rel=1e-6)


def test_a_wave_without_all_its_steps_or_with_another_in_them_is_left_out(tmp_path: Path) -> None:
    steps = steps_with_waves((2, 1.0), (20, 2.0), (30, 3.0), (70, 4.0))
    table = table_of(tmp_path, steps)
    tokens = table.filter((pl.col("quantity") == "batch_tokens") & (pl.col("offset") == 1))
    assert tokens.select("mean", "waves").rows() == [(23.0, 1)]


def test_without_waves_the_figure_says_so(tmp_path: Path) -> None:
    table = table_of(tmp_path, steps_with_waves())
    assert len(table) == 0
    figure = transient_figure(table)
    assert figure.axes[0].texts[0].get_text() == "no wave of joins"


def test_the_figure_needs_step_records(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(TEXT.replace("figures: []", "figures: [transient]"))
    with pytest.raises(ConfigError, match=r"output.records: the figure transient is drawn from steps"):
        load_plan(tmp_path / "x.yaml")


# --- effects of some points


WHERE = (
    "effects: [{{metric: throughput_tok_s_gpu, along: arms.async.policy.lag, against: 1, arms: [async], where: {}}}]"
)


def test_an_effect_is_restricted_to_values(tmp_path: Path) -> None:
    def metric(arm: str, load: float, seed: int, lag: int, noise: str) -> float:
        return 2.0 if lag == 1 else {"none": 4.0, "some": 6.0}[noise] * load

    for where, ratio, pairs in (
        ("{noise: [some], load: [4]}", 12.0, 5),
        ("{noise: [none, some], load: [1]}", math.sqrt(6), 10),
    ):
        plan = plan_of(tmp_path, TEXT.replace("figures: []", "figures: [], " + WHERE.format(where)))
        table = effects.effect_table(effect_points(metric), plan.base.output.effects[0], plan)
        assert table["ratio"].to_list() == pytest.approx([1.0, ratio])
        assert table["pairs"].to_list() == [pairs, pairs]


@pytest.mark.parametrize(
    ("where", "message"),
    [
        (
            "{noisy: [some]}",
            r"output.effects.0.where.noisy: must be one of arms.async.policy.lag, noise, load, arm; got",
        ),
        ("{noise: [much]}", r"output.effects.0.where.noise: noise is never 'much'; its values are none, some"),
        ("{load: [2]}", r"x.yaml:\d+: output.effects.0.where.load: load is never 2; its values are 1, 4"),
        ("{noise: []}", r"output.effects.0.where.noise: must not be empty"),
    ],
)
def test_a_restriction_to_nothing_is_refused_before_the_run(tmp_path: Path, where: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plan_of(tmp_path, TEXT.replace("figures: []", "figures: [], " + WHERE.format(where)))


def test_what_an_effect_is_against_must_occur(tmp_path: Path) -> None:
    text = TEXT.replace("figures: []", "figures: [], " + WHERE.format("{}").replace("against: 1", "against: 3"))
    with pytest.raises(
        ConfigError, match=r"output.effects.0.against: arms.async.policy.lag is never 3; its values are 1, 2"
    ):
        plan_of(tmp_path, text)


# --- fewer graphs, and the stall of lag 0


def test_captured_sizes_are_those_of_the_file(tmp_path: Path) -> None:
    for given, last in (
        ("powers_of_two", (256, 512, 1024)),
        ("{multiples_of: 400}", (400, 800, 1024)),
        ("[8, 1024]", (8, 1024)),
    ):
        (tmp_path / "x.yaml").write_text(TEXT.replace("p4}", f"p4, captured_sizes: {given}}}"))
        plan = load_plan(tmp_path / "x.yaml")
        assert profile_of(plan.cells[0].experiment).captured_sizes[-len(last) :] == last
        scenario = build_scenario(plan.cells[0].experiment, "async", 4, 0)
        assert scenario.cost.padded(900) == 1024
    whole = load_plan(tmp_path / "x.yaml", ["hardware.captured_sizes=all"]).cells[0].experiment
    few = load_plan(tmp_path / "x.yaml", ["hardware.captured_sizes=[1024]"]).cells[0].experiment
    slow, fast = (run_point(each, "static-3", 4, 0).metrics for each in (few, whole))
    assert slow["padded_fraction"] > 0.9 > 0.1 > fast["padded_fraction"]
    assert slow["throughput_tok_s_gpu"] < 0.6 * fast["throughput_tok_s_gpu"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("[8, 1000]", r"x.yaml:2: hardware.captured_sizes: .*1000 has no captured graph; the nearest that has is 992"),
        ("[8, 512]", r"hardware.captured_sizes: .*must hold the largest, 1024"),
        ("some", r"hardware.captured_sizes: must be .*all.*powers_of_two"),
        ("[]", r"hardware.captured_sizes: must not be empty"),
        ("{multiples_of: 0}", r"hardware.captured_sizes.multiples_of: must be"),
    ],
)
def test_captured_sizes_that_do_not_fit_are_refused(tmp_path: Path, given: str, message: str) -> None:
    (tmp_path / "x.yaml").write_text(TEXT.replace("p4}", f"p4, captured_sizes: {given}}}"))
    with pytest.raises(ConfigError, match=message):
        load_plan(tmp_path / "x.yaml")


def test_the_stall_of_lag_0_is_charged_on_request(tmp_path: Path) -> None:
    text = TEXT.replace(
        "  async:", "  lag-0: {policy: {kind: retrospective, pays_stall: true}, unsafe: true}\n  async:"
    )
    (tmp_path / "x.yaml").write_text(text + "\n")
    settings = ["output.records=[steps]", "sweep.axes={}", "hardware.sync_stall_seconds=0.25"]
    stalled = run_point(load_experiment(tmp_path / "x.yaml", settings), "lag-0", 4, 0)
    settings.append("arms.lag-0.policy.pays_stall=false")
    free = run_point(load_experiment(tmp_path / "x.yaml", settings), "lag-0", 4, 0)
    assert stalled.steps is not None
    assert free.steps is not None
    assert set(stalled.steps["stall_seconds"].to_list()) == {0.25}
    assert set(free.steps["stall_seconds"].to_list()) == {0.0}
    same = ["rows", "verified", "accepted"]
    assert stalled.steps.select(same).equals(free.steps.select(same))
    with pytest.raises(ConfigError, match=r"arms.lag-0.policy.pays_stall: .*must be true or false, got 1"):
        load_experiment(tmp_path / "x.yaml", ["arms.lag-0.policy.pays_stall=1"])


# --- the pages


PAGES = {
    "lag_study.md": "lag_study",
    "lag_study/bursts.md": "lag_study",
    "lag_study/short_answers.md": "lag_study",
    "lag_study/transient.md": "lag_study",
    "studies.md": "studies",
}
"""Pages with tables of studies, and the folder of `docs` that holds the results."""


@pytest.mark.parametrize("page", PAGES)
def test_the_tables_of_a_page_are_those_of_the_committed_results(page: str) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    tables, transients = TABLES["MARKED"].findall(text), TABLES["TRANSIENT"].findall(text)
    assert len(tables) == text.count("<!-- table ")
    assert len(transients) == text.count("<!-- transient ")
    assert len(tables) + len(transients) == text.count("<!-- end -->") > 0
    assert TABLES["filled"](text, ROOT / "docs" / PAGES[page]) == text
    for image in re.findall(r"!\[.*?\]\((.*?)\)", text):
        assert (ROOT / "docs" / page).parent.joinpath(image).is_file(), image


def test_every_effect_of_the_lag_studies_is_tabled_once() -> None:
    text = "".join(
        (ROOT / "docs" / page).read_text(encoding="utf-8") for page, at in PAGES.items() if at == "lag_study"
    )
    shown = [(name, number) for _, name, number, _ in TABLES["MARKED"].findall(text)]
    for study, effects_of_it in (("lag_bursts", 11), ("lag_short_answers", 5)):
        assert sorted(int(number) for name, number in shown if name == study) == list(range(1, effects_of_it + 1))
