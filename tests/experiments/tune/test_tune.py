"""The section `tune`: what it may say, what candidates it makes, and how they are measured."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from specsched.experiments import run_experiment
from specsched.experiments.config.errors import ConfigError
from specsched.experiments.config.given import shipped_experiments
from specsched.experiments.config.resolve import load_experiment
from specsched.experiments.config.schema_tune import Constraint, Objective, Tune
from specsched.experiments.tune.measure import NoValueError, measure
from specsched.experiments.tune.run import front_of
from specsched.experiments.tune.space import Space, load_space
from specsched.experiments.tune.verdict import BETTER, OPEN, WORSE, in_words, sentence, verdict

TEXT = """\
workload: {lengths: {prompt: 100, output: 40}, cohort: 40}
hardware: {profile: vllm-dsv4flash-b300-tp4}
drafts: {kind: constant, acceptance: 0.7}
arms:
  async: {policy: {kind: async_topk, lag: 2}}
sweep: {load: [4, 8]}
output: {figures: []}
tune:
  arm: async
  space:
    arms.async.policy.lag: {low: 1, high: 4}
    arms.async.policy.joins: [optimistic, mean, none]
    hardware.max_num_seqs: {low: 8, high: 64, step: 8}
  objectives: [{maximize: throughput_at_anchor, anchor: 100}]
  constraints: [{metric: tpot_p99_s, at_most: 0.02}]
  seeds: {tuning: [0, 1, 2], testing: [10, 11, 12, 13, 14]}
  trials: 8
"""


def space_of(tmp_path: Path, *changes: tuple[str, str], settings: tuple[str, ...] = ()) -> Space:
    text = TEXT
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    (tmp_path / "x.yaml").write_text(text)
    return load_space(tmp_path / "x.yaml", settings)


# --- bad input: one clear error each

SPACE = "x.yaml:1[0-2]: tune.space"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("lag: {low: 1, high: 4}", "lag: {low: 0, high: 4}", f"{SPACE}.arms.async.policy.lag: .*at least 1, got 0"),
        (
            "high: 64, step: 8",
            "high: 63, step: 8",
            "seqs.high: must be low plus a whole number of steps, got 63; 56 is",
        ),
        ("high: 64, step: 8", "high: .inf", "high: must be a finite number, got inf"),
        ("lag: {low: 1, high: 4}", "lag: {low: 1, high: 4.5}", "policy.lag: .*whole number.*got 4.5"),
        ("lag: {low: 1, high: 4}", "lag: {low: 4, high: 1}", "policy.lag.high: must be greater than low 4, got 1"),
        ("lag: {low: 1, high: 4}", "lag: {low: one, high: 4}", "policy.lag.low: must be a finite number, got 'one'"),
        ("lag: {low: 1, high: 4}", "lag: {low: 1, high: 4, step: 9}", "policy.lag.step: must be above 0 and at most"),
        ("lag: {low: 1, high: 4}", "lag: {low: 1, high: 4, stp: 1}", "policy.lag.stp: unknown key; did you mean"),
        ("lag: {low: 1, high: 4}", "lag: []", "policy.lag: must not be empty"),
        ("lag: {low: 1, high: 4}", "lag: [1, 1]", "policy.lag: 1 appears twice"),
        (
            "policy.lag: {low: 1, high: 4}",
            "policy.lagg: [1]",
            "policy.lagg: there is no such key; the nearest is .*lag",
        ),
        ("[optimistic, mean, none]", "[optimistic, median]", "joins: .*must be one of.*'median'"),
        ("hardware.max_num_seqs", "seeds", "tune.space.seeds: is the same for the whole study"),
        ("hardware.max_num_seqs", "tune.trials", "tune.space.tune.trials: is the same for the whole study"),
        ("{low: 8, high: 64, step: 8}", "{low: 4, high: 64}", "must not exceed hardware.max_num_seqs 4"),
        ("arm: async", "arm: asinc", "tune.arm: no arm is called 'asinc'; did you mean 'async'?"),
        ("anchor: 100}", "anchr: 100}", "objectives.0.anchr: unknown key; did you mean 'anchor'?"),
        (", anchor: 100}", "}", "objectives.0.anchor: write {maximize: throughput_at_anchor"),
        ("maximize: throughput_at_anchor", "minimize: throughput_at_anchor", "objectives.0.anchor: write"),
        ("maximize: throughput_at_anchor, anchor: 100", "load: 4", "objectives.0.maximize: give either"),
        ("anchor: 100}", "anchor: 100, load: 4}", "objectives.0.anchor: .*without `load`"),
        ("throughput_at_anchor, anchor: 100", "throughput_tok_s_gpu", "throughput_tok_s_gpu has a value at every load"),
        (
            "throughput_at_anchor, anchor: 100",
            "mean_rows, load: 5",
            "load: must be one of sweep.load 4, 8, got 5",
        ),
        ("tpot_p99_s, at_most: 0.02", "goodput_req_s, at_least: 1", "goodput needs a bound that applies: set sla"),
        (", at_most: 0.02", "", "constraints.0.metric: give either `at_most` or `at_least`"),
        (
            "{metric: tpot_p99_s, at_most: 0.02}",
            "{metric: interactivity_tok_s_user, at_most: 90}",
            "constraints.0: .*at most 90 contradicts objectives.0.anchor, which asks for at least 100",
        ),
        (
            "at_most: 0.02}",
            "at_most: 0.02}, {metric: tpot_p99_s, at_least: 0.03}",
            "constraints.0: .*contradicts constraints.1",
        ),
        (
            "at_most: 0.02}",
            "at_most: 0.02, margin: 0.5}, {metric: tpot_p99_s, at_least: 0.019}",
            "constraints.0: tpot_p99_s at most 0.01 contradicts constraints.1, .*0.019 \\(bounds with their margins\\)",
        ),
        (
            "anchor: 100}]\n  constraints: [{metric: tpot_p99_s, at_most: 0.02}",
            "anchor: 100, margin: 0.1}]\n  constraints: [{metric: interactivity_tok_s_user, at_most: 105}",
            "constraints.0: .*at most 105 contradicts objectives.0.anchor, which asks for at least 110 \\(bounds",
        ),
        ("at_most: 0.02", "at_most: -1", "constraints.0: tpot_p99_s is never negative, so it cannot be at most -1"),
        (
            "at_most: 0.02",
            "at_most: 0, margin: 0.1",
            "constraints.0: .*at most -0.1 \\(tpot_p99_s <= 0 with its margin",
        ),
        ("tpot_p99_s, at_most: 0.02", "padded_fraction, at_least: 1.5", "is a share of at most 1, so it cannot be at"),
        ("tpot_p99_s, at_most: 0.02", "ttft_p99_s, at_most: 1", "constraints.0: ttft_p99_s is null without a prefill"),
        ("tpot_p99_s", "tpot_p98_s", "constraints.0: 'tpot_p98_s' is no numeric column .*did you mean 'tpot_p99_s'"),
        (
            "hardware.max_num_seqs: {low: 8, high: 64, step: 8}",
            "hardware.max_num_seqs: {low: 4, high: 64, step: 4}",
            "x.yaml:13: tune.space.hardware.max_num_seqs: 4 is no value that hardware.max_num_seqs .*load.1: must",
        ),
        (
            "arms.async.policy.joins: [optimistic, mean, none]",
            "arms.async.policy: [{kind: static, k: 9}]",
            f"{SPACE}.arms.async.policy.lag: lies within arms.async.policy, which is searched too",
        ),
        (
            "arms.async.policy.lag: {low: 1, high: 4}\n    arms.async.policy.joins: [optimistic, mean, none]",
            "arms.async.policy: [{kind: static, k: 3}, {kind: static, k: 9}]",
            f"{SPACE}.arms.async.policy: .*k.*: 9.* is no value that .* block of 7 drafts, got 9",
        ),
        ("testing: [10, 11", "testing: [2, 11", "testing.0: seed 2 is a tuning seed too"),
        ("tuning: [0, 1, 2]", "tuning: [0, 1, 1]", "seeds.tuning.2: 1 appears twice"),
        ("trials: 8", "trials: 9", "tune.trials: must be a multiple of batch 4, got 9; 8 is one"),
        ("trials: 8", "pruning: true, trials: 8", "not valid YAML"),
        ("trials: 8", "sampler: grid", "tune.sampler: must be one of tpe, random; got 'grid'"),
        ("sweep: {load: [4, 8]}", "sweep: {load: [4], axes: {hardware.noise_cv: [0]}}", "remove the axes"),
        ("hardware.max_num_seqs: {low: 8, high: 64, step: 8}", "tune.margin: {low: 0.0, high: 2}", "within \\[0, 1\\]"),
    ],
)
def test_every_mistake_is_one_clear_error(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        space_of(tmp_path, (old, new))


def test_an_empty_space_and_no_section_at_all(tmp_path: Path) -> None:
    start, end = TEXT.index("  space:"), TEXT.index("  objectives:")
    (tmp_path / "x.yaml").write_text(TEXT[:start] + "  space: {}\n" + TEXT[end:])
    with pytest.raises(ConfigError, match=re.escape("x.yaml:10: tune.space: must not be empty")):
        load_space(tmp_path / "x.yaml")
    (tmp_path / "x.yaml").write_text(TEXT[: TEXT.index("tune:")])
    with pytest.raises(ConfigError, match="there is no section `tune`"):
        load_space(tmp_path / "x.yaml")


def test_pruning_and_several_objectives_exclude_each_other(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"tune\.pruning: candidates with several objectives have no order"):
        space_of(tmp_path, ("anchor: 100}", "anchor: 100}, {minimize: mean_rows}"), settings=("tune.pruning=true",))
    with pytest.raises(ConfigError, match=r"tune\.pruning: .*give at least 3"):
        space_of(tmp_path, ("tuning: [0, 1, 2]", "tuning: [0, 1]"), settings=("tune.pruning=true",))


def test_a_margin_that_is_searched_needs_a_line(tmp_path: Path) -> None:
    margin = ("hardware.max_num_seqs: {low: 8, high: 64, step: 8}", "tune.margin: {low: 0.0, high: 0.2}")
    assert space_of(tmp_path, margin).candidate(0, {"tune.margin": 0.1}).margin == 0.1
    with pytest.raises(ConfigError, match="chooses among the loads of a line"):
        space_of(tmp_path, margin, ("load: [4, 8]", "load: [4]"))
    with pytest.raises(ConfigError, match="an objective must be throughput_at_anchor"):
        space_of(
            tmp_path,
            margin,
            ("throughput_at_anchor, anchor: 100", "mean_rows, load: 4"),
            ("0.02", "0.02, load: 4"),
        )


# --- candidates


def test_a_candidate_is_the_file_with_its_parameters(tmp_path: Path) -> None:
    space = space_of(tmp_path)
    parameters = {"arms.async.policy.lag": 3, "arms.async.policy.joins": "none", "hardware.max_num_seqs": 16}
    experiment = space.candidate(7, parameters).experiment
    policy = experiment.arms["async"].policy
    assert (policy["lag"], policy["joins"], experiment.hardware.max_num_seqs) == (3, "none", 16)
    assert experiment.model_copy(update={"arms": space.base.arms, "hardware": space.base.hardware}) == space.base


def test_the_default_is_the_file_if_the_space_holds_it(tmp_path: Path) -> None:
    inside = space_of(tmp_path, ("high: 64, step: 8", "high: 256, step: 8")).default()
    assert inside == {
        "arms.async.policy.lag": 2,
        "arms.async.policy.joins": "optimistic",
        "hardware.max_num_seqs": 256,
    }
    outside = space_of(tmp_path)
    assert outside.default() is None  # 256 requests at once are outside 8 .. 64
    assert outside.of_the_file() == inside
    assert space_of(tmp_path, ("high: 64, step: 8", "high: 259")).default() is not None
    assert space_of(tmp_path, ("{low: 8, high: 64, step: 8}", "{low: 8, high: 261, step: 11}")).default() is None


def test_choices_may_be_lists_and_null(tmp_path: Path) -> None:
    change = ("arms.async.policy.joins: [optimistic, mean, none]", "arms.async.policy.allowed: [null, [8, 16]]")
    space = space_of(tmp_path, change, ("high: 64", "high: 256"))
    key = "arms.async.policy.allowed"
    assert list(space.choices[key]) == [None, "[8, 16]"]
    assert space.candidate(0, {key: "[8, 16]"}).experiment.arms["async"].policy["allowed"] == [8, 16]
    default = space.default()
    assert default is not None
    assert default[key] is None


def test_a_searched_load_is_a_single_one(tmp_path: Path) -> None:
    change = ("hardware.max_num_seqs: {low: 8, high: 64, step: 8}", "sweep.load: {low: 2, high: 16}")
    space = space_of(tmp_path, change, ("load: [4, 8]", "load: [4]"))
    assert space.candidate(0, {"sweep.load": 5}).experiment.sweep.load == [5]
    default = space.default()
    assert default is not None
    assert default["sweep.load"] == 4
    with pytest.raises(ConfigError, match="the load is searched"):
        space_of(tmp_path, change, ("at_most: 0.02", "at_most: 0.02, load: 4"))


def test_an_end_may_need_another_parameter(tmp_path: Path) -> None:
    """With a block of 7, k may be 7; with the file's own block of 5 it may not."""
    change = ("{kind: constant, acceptance: 0.7}", "{kind: constant, acceptance: 0.7, gamma: 5}")
    arm = ("{kind: async_topk, lag: 2}", "{kind: static, k: 2}")
    lag = ("arms.async.policy.lag: {low: 1, high: 4}", "arms.async.policy.k: {low: 1, high: 7}")
    joins = ("arms.async.policy.joins: [optimistic, mean, none]", "drafts.gamma: {low: 3, high: 7}")
    space = space_of(tmp_path, change, arm, lag, joins)
    assert space.refusal({"arms.async.policy.k": 7, "drafts.gamma": 7}) is None
    assert "within the block of 6 drafts, got 7" in str(space.refusal({"arms.async.policy.k": 7, "drafts.gamma": 6}))
    with pytest.raises(ConfigError, match=r"policy.k: 8 is no value that .* block of 5 drafts, got 8"):
        space_of(tmp_path, change, arm, (lag[0], lag[1].replace("7", "8")), joins)


def test_what_tuning_does_not_use_is_not_taken_in_silence(tmp_path: Path) -> None:
    for setting in ("seeds=[1, 2]", "sweep.repetitions=2"):
        with pytest.raises(ConfigError, match=r"--set: .*: a study runs with tune.seeds.tuning and tune.seeds.testing"):
            space_of(tmp_path, settings=(setting,))


def test_with_a_single_load_everything_is_read_there(tmp_path: Path) -> None:
    """Two anchors at two loads may lie on either side of a bound; at one load they may not."""
    two = ("anchor: 100}]", "anchor: 100}, {maximize: throughput_at_anchor, anchor: 250}]")
    bound = ("{metric: tpot_p99_s, at_most: 0.02}", "{metric: interactivity_tok_s_user, at_most: 200}")
    one = ("load: [4, 8]", "load: [4]")
    space_of(tmp_path, two, bound)
    with pytest.raises(ConfigError, match=r"x.yaml:\d+: tune.constraints.0: .* contradicts objectives.1.anchor"):
        space_of(tmp_path, two, bound, one)
    named = (bound[0], "{metric: tpot_p99_s, at_most: 0.02, load: 4}, {metric: tpot_p99_s, at_least: 0.03}")
    space_of(tmp_path, named)
    with pytest.raises(ConfigError, match=r"tune.constraints.0: .* contradicts constraints.1"):
        space_of(tmp_path, named, one)


def test_a_searched_margin_counts_with_its_least_value(tmp_path: Path) -> None:
    margin = ("hardware.max_num_seqs: {low: 8, high: 64, step: 8}", "tune.margin: {low: 0.3, high: 0.5}")
    bound = ("{metric: tpot_p99_s, at_most: 0.02}", "{metric: interactivity_tok_s_user, at_most: 110}")
    with pytest.raises(
        ConfigError, match=r"at most 110 contradicts objectives.0.anchor, .* at least 130 \(bounds with"
    ):
        space_of(tmp_path, margin, bound)
    space_of(tmp_path, (margin[0], margin[1].replace("0.3", "0.05")), bound)


def test_a_metric_may_get_its_values_from_the_space(tmp_path: Path) -> None:
    """Without a bound there is no goodput; a searched bound gives it one."""
    goodput = ("tpot_p99_s, at_most: 0.02", "goodput_req_s, at_least: 1")
    bound = ("hardware.max_num_seqs: {low: 8, high: 64, step: 8}", "sla.tpot_s: [0.01, 0.02]")
    assert space_of(tmp_path, goodput, bound).base.sla.tpot_s is None
    with pytest.raises(ConfigError, match="goodput needs a bound that applies"):
        space_of(tmp_path, goodput)


def test_set_reaches_the_section(tmp_path: Path) -> None:
    settings = (
        "tune.trials=20",
        "tune.space.arms.async.policy.lag={low: 2, high: 3}",
        "tune.space.hardware.noise_cv=[0, 1]",
    )
    tune = space_of(tmp_path, settings=settings).tune
    assert tune.trials == 20
    assert tune.space["arms.async.policy.lag"].low == 2  # type: ignore[union-attr]
    assert tune.space["hardware.noise_cv"] == [0, 1]


def test_run_leaves_the_section_alone(tmp_path: Path) -> None:
    (tmp_path / "with.yaml").write_text(TEXT)
    (tmp_path / "without.yaml").write_text(TEXT[: TEXT.index("tune:")])
    assert (
        load_experiment(tmp_path / "with.yaml").model_dump() == load_experiment(tmp_path / "without.yaml").model_dump()
    )
    for name in ("with", "without"):
        run_experiment(str(tmp_path / f"{name}.yaml"), tmp_path / name, settings=["seeds=[0]"], workers=1)
    one, other = ((tmp_path / name / "points.parquet").read_bytes() for name in ("with", "without"))
    assert one == other
    assert "tune" not in (tmp_path / "with" / "config.yaml").read_text()


@pytest.mark.parametrize("name", ["tune_async", "tune_planted"])
def test_shipped_studies_hold_their_default(name: str) -> None:
    space = load_space(shipped_experiments()[name])
    assert space.default() is not None
    assert len(space.tune.seeds.testing) >= 10


# --- measures


def tune_of(*objectives: dict[str, Any], constraints: tuple[dict[str, Any], ...] = ()) -> Tune:
    return Tune(
        arm="a",
        space={"hardware.noise_cv": [0]},
        objectives=[Objective(**each) for each in objectives],
        constraints=[Constraint(**each) for each in constraints],
    )


def table_of(*rows: tuple[float, int, float, float], **columns: list[Any]) -> pl.DataFrame:
    """Rows are (load, seed, interactivity, throughput)."""
    names = ["load", "seed", "interactivity_tok_s_user", "throughput_tok_s_gpu"]
    table = pl.DataFrame(rows, schema=names, orient="row").with_columns(
        pl.lit("a").alias("arm"), pl.lit(0.0).alias("eager_fraction"), pl.col("load").cast(pl.Float64)
    )
    return table.with_columns(**{name: pl.Series(name, values) for name, values in columns.items()})


LINE = table_of((4, 0, 300.0, 10.0), (4, 1, 320.0, 12.0), (8, 0, 200.0, 20.0), (8, 1, 220.0, 22.0), p=[1, 2, 3, 4])


def test_throughput_at_an_anchor_lies_on_the_line_and_each_seed_on_its_own() -> None:
    found = measure(LINE, tune_of({"maximize": "throughput_at_anchor", "anchor": 250.0}))
    assert found.values == (17.0,)  # the mean line goes from 11 at 310 to 21 at 210
    assert found.objectives["throughput_at_anchor_250"] == (15.0, 19.0)
    assert found.load == 4.0  # of the two loads, the one that meets the anchor
    assert found.feasible


def test_constraints_are_read_where_the_anchor_is_and_a_margin_moves_it() -> None:
    bound = ({"metric": "p", "at_most": 2.0},)
    tune = tune_of({"maximize": "throughput_at_anchor", "anchor": 200.0}, constraints=bound)
    near = measure(LINE, tune)
    assert (near.load, near.values, near.feasible) == (8.0, (21.0,), False)
    assert near.violations["p <= 2"] == pytest.approx(0.75)
    assert near.at_least
    far = measure(LINE, tune, margin=0.25)
    assert (far.load, far.values, far.feasible) == (4.0, (17.0,), True)
    assert far.violations["p <= 2"] == pytest.approx(-0.25)


def test_an_anchor_that_is_missed_is_a_broken_constraint() -> None:
    found = measure(LINE, tune_of({"maximize": "throughput_at_anchor", "anchor": 400.0}))
    assert found.values == (0.0,)
    assert found.violations == {"interactivity_tok_s_user >= 400": pytest.approx(90 / 400)}
    assert not found.feasible


def test_a_single_load_meets_an_anchor_on_average() -> None:
    single = LINE.filter(pl.col("load") == 8)
    found = measure(single, tune_of({"maximize": "throughput_at_anchor", "anchor": 205.0}))
    assert (found.values, found.feasible, found.at_least) == ((21.0,), True, False)
    assert found.objectives["throughput_at_anchor_205"] == (20.0, 22.0)
    assert found.constrained["interactivity_tok_s_user >= 205"] == (200.0, 220.0)


def test_a_fixed_margin_binds_while_tuning_alone() -> None:
    single = LINE.filter(pl.col("load") == 8)
    tune = tune_of(
        {"maximize": "throughput_at_anchor", "anchor": 205.0, "margin": 0.1},
        constraints=({"metric": "p", "at_most": 3.6, "margin": 0.1},),
    )
    tuning, testing = measure(single, tune), measure(single, tune, planning=False)
    assert not tuning.feasible
    assert all(value > 0 for value in tuning.violations.values())
    assert testing.feasible


@pytest.mark.parametrize(
    ("constraint", "value", "violation"),
    [
        (Constraint(metric="p", at_most=2.0), 3.0, 0.5),
        (Constraint(metric="p", at_most=2.0), 1.0, -0.5),
        (Constraint(metric="p", at_least=2.0), 1.0, 0.5),
        (Constraint(metric="p", at_least=2.0), 2.0, 0.0),
        (Constraint(metric="p", at_most=0.0), 0.25, 0.25),
        (Constraint(metric="p", at_least=0.0), -1.0, 1.0),
    ],
)
def test_violations_are_fractions_of_the_bound(constraint: Constraint, value: float, violation: float) -> None:
    assert constraint.violation(value) == violation


def test_a_metric_that_is_unknown_or_null_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"'trhoughput_tok_s_gpu' is no numeric column .*did you mean 'throughput"):
        measure(LINE, tune_of({"maximize": "trhoughput_tok_s_gpu", "load": 4.0}))
    null = LINE.with_columns(pl.lit(None, pl.Float64).alias("p"))
    with pytest.raises(NoValueError, match="p has no value in every seed"):
        measure(null, tune_of({"minimize": "p", "load": 4.0}))


# --- verdicts


def verdict_of(tuned: list[float], default: list[float], direction: str = "maximize") -> dict[str, Any]:
    tune = tune_of({direction: "throughput_tok_s_gpu"})
    tables = [table_of(*((8.0, seed, 100.0, value) for seed, value in enumerate(each))) for each in (tuned, default)]
    return verdict(measure(tables[0], tune), measure(tables[1], tune), tune)


def test_the_advantage_is_paired_by_seed() -> None:
    default = [10.0, 100.0, 30.0, 7.0, 55.0]
    found = verdict_of([value * (1.05 + 0.001 * i) for i, value in enumerate(default)], default)
    (objective,) = found["objectives"]
    assert (objective["verdict"], found["beats"]) == (BETTER, True)
    assert objective["ratio"] == pytest.approx(1.052, abs=1e-4)
    assert 1.049 < objective["low"] < objective["high"] < 1.055
    assert "beats the default" in sentence(found, 5)


@pytest.mark.parametrize(
    ("factors", "direction", "word", "beats"),
    [
        ([1.01, 0.99, 1.02, 0.98, 1.0], "maximize", OPEN, False),
        ([0.9, 0.91, 0.9, 0.92, 0.9], "maximize", WORSE, False),
        ([0.9, 0.91, 0.9, 0.92, 0.9], "minimize", BETTER, True),
        ([1.1, 1.1, 1.1, 1.1, 1.1], "minimize", WORSE, False),
        ([1.0, 1.0, 1.0, 1.0, 1.0], "maximize", OPEN, False),
        ([1.1, 1.1, 1.1, 1.1], "maximize", OPEN, False),  # no interval under five seeds
    ],
)
def test_words_follow_the_interval(factors: list[float], direction: str, word: str, beats: bool) -> None:
    found = verdict_of([10 * factor for factor in factors], [10.0] * len(factors), direction)
    assert (found["objectives"][0]["verdict"], found["beats"]) == (word, beats)
    assert ("beats the default" in sentence(found, 5)) == beats


def test_a_candidate_that_breaks_a_constraint_in_testing_beats_nothing() -> None:
    tune = tune_of(
        {"maximize": "throughput_tok_s_gpu"}, constraints=({"metric": "interactivity_tok_s_user", "at_least": 150.0},)
    )
    tuned, default = (
        measure(table_of(*((8.0, seed, speed, value) for seed in range(5))), tune)
        for speed, value in ((100.0, 20.0), (160.0, 10.0))
    )
    found = verdict(tuned, default, tune)
    assert found["objectives"][0]["verdict"] == BETTER
    assert not found["beats"]
    (constraint,) = found["constraints"]
    assert (constraint["tuned"]["holds"], constraint["default"]["holds"]) == (False, True)
    assert "breaks interactivity_tok_s_user >= 150" in sentence(found, 5)


def test_a_seed_without_a_value_is_counted_and_gives_no_interval() -> None:
    tune = tune_of({"maximize": "throughput_at_anchor", "anchor": 210.0})
    rows = [
        (load, seed, speed - 4 * seed, 10.0 * load) for seed in range(6) for load, speed in ((4, 220.0), (8, 200.0))
    ]
    found = measure(table_of(*rows), tune)
    assert found.objectives["throughput_at_anchor_210"].count(None) == 3
    objective = verdict(found, found, tune)["objectives"][0]
    assert (objective["low"], objective["seeds_without_a_pair"], objective["verdict"]) == (None, 3, OPEN)


def best_of(tuned: list[float], default: list[float], beside: list[float]) -> dict[str, Any]:
    same_load = verdict_of(tuned, beside)["objectives"]
    return {"testing": verdict_of(tuned, default), "testing_at_same_load": same_load, "load": 8.0}


@pytest.mark.parametrize(
    ("factor", "headline", "rest"),
    [
        (
            1.1,
            "tuned beats the default on held-out",
            "+10.00 % (+10.00 % .. +10.00 %); its other parameters are better",
        ),
        (
            0.9,
            "beats the default by its load alone on held",
            "-10.00 % (-10.00 % .. -10.00 %); its other parameters are w",
        ),
        (1.0, "tuned beats the default by its load alone", "nothing shows that its other parameters matter."),
    ],
)
def test_a_verdict_says_what_is_left_at_equal_load(factor: float, headline: str, rest: str) -> None:
    beside = [20.0, 21.0, 22.0, 23.0, 24.0]
    said = in_words(best_of([factor * value for value in beside], [value / 2 for value in beside], beside), 5)
    assert headline in said
    assert f"Against the default at the same load 8: throughput_tok_s_gpu {100 * (factor - 1):+.2f} %" in said
    assert rest in said


def test_several_objectives_may_be_a_trade(tmp_path: Path) -> None:
    tune = tune_of({"maximize": "throughput_tok_s_gpu"}, {"maximize": "interactivity_tok_s_user"})
    fast, full = (
        measure(table_of(*((8.0, seed, speed, value) for seed in range(5))), tune)
        for speed, value in ((200.0, 10.0), (100.0, 20.0))
    )
    found = verdict(full, fast, tune)
    assert not found["beats"]
    assert sentence(found, 5) == (
        "Verdict: tuned is better than the default in one objective and worse in another on held-out seeds: "
        "throughput_tok_s_gpu +100.00 % (+100.00 % .. +100.00 %, better), interactivity_tok_s_user -50.00 % "
        "(-50.00 % .. -50.00 %, worse); 5 seeds."
    )


# --- the chosen


def test_the_front_has_what_nothing_beats_and_keeps_the_constraints() -> None:
    rows = [(0, 1.0, 5.0, True), (1, 3.0, 4.0, True), (2, 2.0, 6.0, True), (3, 9.0, 1.0, False), (4, 3.0, 4.0, True)]
    table = pl.DataFrame(rows, schema=["trial", "up", "down", "feasible"], orient="row")
    up, down = Objective(maximize="up"), Objective(minimize="down")
    assert front_of(table, [up]) == [1]  # the first of equal ones; trial 3 breaks a constraint
    assert front_of(table, [down]) == [1]
    assert front_of(table, [up, down]) == [1]
    assert front_of(table, [up, Objective(maximize="down")]) == [1, 2]
    assert front_of(table.with_columns(feasible=pl.lit(value=False)), [up]) == []
