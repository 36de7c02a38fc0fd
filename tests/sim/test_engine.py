from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import polars as pl
import pytest

from specsched.policies import Policy, PolicyError, View
from specsched.sim.cost import StepCost
from specsched.sim.drafts import make_draft_model
from specsched.sim.engine import run
from specsched.sim.metrics import Sla, point_metrics, step_regret
from specsched.sim.profile_schema import profile_from_samples
from specsched.sim.requests import Requests, SimulationError
from specsched.sim.scenario import Prefill
from tests.parts import deep_except

from .scenes import requests, scenario, sloped_profile


@pytest.mark.parametrize("k", deep_except([3], [1, 3, 7]))
def test_accepted_length_of_constant_acceptance(k: int) -> None:
    """tau = (1 - alpha^(k+1)) / (1 - alpha) within the 99 % interval of at least 10^6 verification rounds.

    The rounds of seeds 0 to 4 are pooled.
    """
    alpha = 0.8
    rounds = accepted = 0
    for seed in range(5):
        made = scenario(
            {"kind": "static", "k": k}, alpha, concurrency=64, requests=requests(1600), cohort=400, seed=seed
        )
        steps = run(made).steps
        rounds += int(steps["drafting_rows"].sum())
        accepted += int(steps["accepted"].sum())
    law = np.append(alpha ** np.arange(k) * (1 - alpha), alpha**k)
    spread = float(np.sqrt((law * np.arange(k + 1) ** 2).sum() - (law * np.arange(k + 1)).sum() ** 2))
    assert rounds >= 1_000_000
    expected = (1 - alpha ** (k + 1)) / (1 - alpha)
    assert abs(1 + accepted / rounds - expected) < 2.576 * spread / np.sqrt(rounds)


@pytest.mark.parametrize("rows", [1, 3, 64])
def test_autoregressive_closed_loop_is_rows_times_sps(rows: int) -> None:
    made = scenario({"kind": "autoregressive"}, concurrency=rows, requests=requests(50), profile=sloped_profile(gpus=2))
    metrics = point_metrics(run(made), made.cost, Sla(), with_regret=False)
    expected = rows / made.cost.verify_seconds(rows)
    assert metrics["throughput_tok_s_gpu"] == pytest.approx(expected / 2, rel=1e-9)
    assert metrics["interactivity_tok_s_user"] == pytest.approx(expected / rows, rel=1e-9)
    assert metrics["accepted_length"] == 1.0
    assert metrics["accepted_per_verified"] is None


@pytest.mark.parametrize("policy", [{"kind": "static", "k": 3}, {"kind": "async_topk", "lag": 2}])
def test_rate_of_constant_drafts(policy: dict[str, Any]) -> None:
    """Accepted plus bonus tokens a second lie within the 99 % interval of (R + sum of a) / T, K being constant."""
    rows, alpha, gamma = 16, 0.8, 7
    made = scenario(policy, alpha, gamma, concurrency=rows, requests=requests(4000), cohort=200)
    steps = run(made).steps
    # Rows have no drafts in their admission step, and for `lag` steps after it the budget rests on a prior.
    quiet = np.convolve((steps["drafting_rows"] < rows).to_numpy(), np.ones(5), "full")[: len(steps)] == 0
    steady = steps.filter(pl.Series(quiet))
    budgets = steady["verified"].unique().to_list()
    assert len(budgets) == 1, "K is constant when every row has the same survivals"
    per_row, rest = divmod(budgets[0], rows)
    lengths = np.full(rows, per_row) + (np.arange(rows) < rest)
    survivals = [alpha ** np.arange(1, length + 1) for length in lengths]
    expected = rows + sum(float(a.sum()) for a in survivals)
    tokens = (steady["accepted"] + steady["rows"]).to_numpy().astype(float)
    seconds = made.cost.table(rows)[rows + budgets[0]]
    assert steady["step_seconds"].to_numpy() == pytest.approx(seconds)
    assert len(steady) > 1000
    half = 2.576 * tokens.std() / np.sqrt(len(tokens))
    assert abs(tokens.mean() - expected) < half


@pytest.mark.parametrize("policy", [{"kind": "autoregressive"}, {"kind": "static", "k": 5}, {"kind": "async_topk"}])
@pytest.mark.parametrize("mode", ["open", "closed"])
def test_tokens_out_equal_tokens_asked(policy: dict[str, Any], mode: str) -> None:
    lengths = np.random.default_rng(1).integers(1, 400, 300)
    wanted = requests(lengths, arrival_s=np.sort(np.random.default_rng(2).random(300)))
    outcome = run(scenario(policy, requests=wanted, mode=mode, concurrency=10))
    done = outcome.requests
    if mode == "open":
        assert done["request"].sort().to_list() == list(range(300))
        assert int(outcome.steps["emitted"].sum()) == int((lengths - 1).sum())
    assert int(done["cohort"].sum()) == (240 if mode == "open" else 200)
    assert done["output_tokens"].to_list() == [int(lengths[i % 300]) for i in done["request"]]
    steps = outcome.steps
    assert (steps["accepted"] + steps["rows"] >= steps["emitted"]).all()
    assert (steps["accepted"] <= steps["verified"]).all()
    assert (steps["verified"] <= steps["drafted"]).all()
    assert (steps["accepted"] <= steps["acceptable"]).all()


def test_rows_add_up_to_steps_and_requests() -> None:
    made = scenario({"kind": "async_topk"}, concurrency=5, requests=requests(60), keep_rows=True, cohort=30)
    outcome = run(made)
    assert outcome.rows is not None
    by_step = outcome.rows.group_by("step", maintain_order=True).sum()
    for name in ("verified", "accepted", "emitted", "acceptable"):
        assert by_step[name].to_list() == outcome.steps[name].to_list()
    by_request = outcome.rows.group_by("request").agg(pl.all().sum(), pl.len().alias("steps_run"))
    joined = outcome.requests.join(by_request, on="request", suffix="_of_rows")
    assert len(joined) == len(outcome.requests)
    for name in ("verified", "accepted"):
        assert (joined[name] == joined[f"{name}_of_rows"]).all()
    assert (joined["steps"] == joined["steps_run"]).all()
    assert (joined["emitted"] == joined["output_tokens"] - 1).all()
    assert (joined["drafted"] == joined["available"]).all()


def test_admission_step_has_no_drafts() -> None:
    outcome = run(scenario({"kind": "static", "k": 7}, concurrency=4, requests=requests(40), keep_rows=True, cohort=8))
    assert outcome.rows is not None
    first = outcome.rows.group_by("request", maintain_order=True).first()
    assert (first["available"] == 0).all()
    assert (first["emitted"] == 1).all()
    later = outcome.rows.filter(pl.col("step") > pl.col("step").min().over("request"))
    assert (later["available"] == 7).all()


@pytest.mark.parametrize("rows", [1, 4, 33])
def test_two_arms_see_the_same_text(rows: int) -> None:
    """The same (text position, depth) accepts alike under static 2 and static 7."""
    made = [
        scenario({"kind": "static", "k": k}, concurrency=rows, requests=requests(300), keep_rows=True, cohort=8)
        for k in (2, 7)
    ]
    outcomes: list[dict[tuple[int, int], int]] = []
    for each in made:
        table = run(each).rows
        assert table is not None
        starts = table.with_columns(start=1 + pl.col("emitted").cum_sum().over("request") - pl.col("emitted"))
        drafted = starts.filter(pl.col("available") > 0)
        outcomes.append({(r, s): a for r, s, a in drafted.select("request", "start", "acceptable").iter_rows()})
    shared = outcomes[0].keys() & outcomes[1].keys()
    assert len(shared) > 300
    assert all(outcomes[0][key] == outcomes[1][key] for key in shared)


def test_closed_loop_holds_its_rows_and_identity() -> None:
    made = scenario({"kind": "static", "k": 3}, concurrency=32, requests=requests(150))
    metrics = point_metrics(run(made), made.cost, Sla(), with_regret=False)
    assert metrics["mean_rows"] == pytest.approx(32, rel=1e-12)
    ratio = metrics["throughput_tok_s_gpu"] / (metrics["mean_rows"] * metrics["interactivity_tok_s_user"])
    assert ratio == pytest.approx(1.0, rel=0.01)


def test_stall_is_charged_to_fresh_budgets_alone() -> None:
    charged = {}
    for kind, extra in [
        ("static", {"k": 1}),
        ("threshold", {"t": 0.5}),
        ("greedy_early_stop", {}),
        ("async_topk", {}),
        ("oracle", {}),
        ("retrospective", {}),
        ("autoregressive", {}),
    ]:
        outcome = run(scenario({"kind": kind, **extra}, requests=requests(20), cohort=4, stall=0.25))
        charged[kind] = set(outcome.steps["stall_seconds"].to_list())
        seconds = outcome.steps["step_seconds"]
        assert (seconds > 0.25).all() == (charged[kind] == {0.25})
    assert charged == {
        "static": {0.0},
        "threshold": {0.25},
        "greedy_early_stop": {0.25},
        "async_topk": {0.0},
        "oracle": {0.0},
        "retrospective": {0.0},
        "autoregressive": {0.0},
    }


@pytest.mark.parametrize("kind", ["async_topk", "greedy_early_stop", "oracle", "autoregressive"])
def test_regret_lies_within_bounds_at_every_step(kind: str) -> None:
    made = scenario({"kind": kind}, 0.6, concurrency=24, requests=requests(90), stall=0.001)
    outcome = run(made)
    regrets = step_regret(outcome.steps, made.cost)
    assert regrets.min() >= 0.0
    assert regrets.max() <= 1.0
    if kind == "oracle":
        assert regrets.max() == 0.0
    if kind == "async_topk":
        assert regrets.mean() > 0.01


def test_regret_with_a_context_term_matches_brute_force() -> None:
    context = {"reference_tokens": 50, "seconds_per_token": 1e-7, "source": "assumed", "note": "test"}
    made = scenario(
        {"kind": "async_topk"}, 0.6, concurrency=4, requests=requests(60), profile=sloped_profile(context=context)
    )
    steps = run(made).steps.head(40)
    expected = []
    for row in steps.iter_rows(named=True):
        table = made.cost.table(row["rows"])
        thetas = [
            (row["rows"] + n) / (table[row["rows"] + n] + row["context_seconds"]) for n in range(row["acceptable"] + 1)
        ]
        expected.append(1 - (row["rows"] + row["accepted"]) / row["step_seconds"] / max(thetas))
    assert steps["context_seconds"].to_numpy().max() > 0
    assert step_regret(steps, made.cost) == pytest.approx(expected)


def test_noise_has_the_stated_spread_and_no_effect_on_plans() -> None:
    quiet = run(scenario({"kind": "static", "k": 3}, requests=requests(900)))
    noisy = run(scenario({"kind": "static", "k": 3}, requests=requests(900), noise_cv=0.2))
    factor = (noisy.steps["step_seconds"] / quiet.steps["step_seconds"]).to_numpy()
    assert len(factor) > 50_000
    assert factor.mean() == pytest.approx(1.0, abs=4 * 0.2 / np.sqrt(len(factor)))
    assert factor.std() == pytest.approx(0.2, rel=0.03)
    assert quiet.steps["verified"].to_list() == noisy.steps["verified"].to_list()


def test_open_loop_waits_for_arrivals_and_admits_at_step_boundaries() -> None:
    arrivals = np.array([0.0, 0.0101, 5.0, 5.0])
    made = scenario(
        {"kind": "autoregressive"},
        requests=requests([11] * 4, arrival_s=arrivals),
        mode="open",
        concurrency=2,
        warmup=0,
    )
    outcome = run(made)
    boundaries = {round(start, 12) for start in outcome.steps["start_s"].to_list()}
    admitted = outcome.requests["admitted_s"].to_list()
    assert admitted[0] == 0.0
    assert admitted[1] > 0.0101
    assert admitted[2] == pytest.approx(5.0)
    assert all(round(time, 12) in boundaries for time in admitted)
    assert outcome.steps["rows"].max() == 2


def test_disaggregated_prefill_queues_for_its_slots() -> None:
    arrivals = np.array([0.0, 0.0, 0.0, 10.0])
    made = scenario(
        {"kind": "autoregressive"},
        requests=requests([5] * 4, prompt=1000, arrival_s=arrivals),
        mode="open",
        concurrency=8,
        prefill=Prefill(tokens_per_s=1000.0, slots=2),
        warmup=0,
    )
    outcome = run(made)
    ttft = (outcome.requests["ready_s"] - outcome.requests["arrival_s"]).to_list()
    assert ttft == pytest.approx([1.0, 1.0, 2.0, 1.0])
    assert outcome.requests["first_token_s"].to_list() == outcome.requests["ready_s"].to_list()
    metrics = point_metrics(outcome, made.cost, Sla(ttft_s=1.5), with_regret=False)
    assert metrics["ttft_p50_s"] == pytest.approx(1.0)
    window = outcome.window_s[1] - outcome.window_s[0]
    assert metrics["goodput_req_s"] == pytest.approx(0.75 * 3 / window)


def test_closed_loop_refills_from_prefilled_requests() -> None:
    fast = scenario({"kind": "static", "k": 3}, concurrency=8, requests=requests(60), prefill=Prefill(1e6, slots=8))
    outcome = run(fast)
    metrics = point_metrics(outcome, fast.cost, Sla(), with_regret=False)
    assert metrics["mean_rows"] > 7.9
    assert metrics["ttft_p50_s"] == pytest.approx(1e-4)
    starved = scenario(
        {"kind": "static", "k": 3}, concurrency=8, requests=requests(60), prefill=Prefill(500.0, slots=1)
    )
    metrics = point_metrics(run(starved), starved.cost, Sla(), with_regret=False)
    assert metrics["mean_rows"] < 4


def test_one_token_requests_end_at_prefill_and_are_counted_apart() -> None:
    made = scenario({"kind": "autoregressive"}, requests=requests([1, 20] * 50), concurrency=4, cohort=40)
    outcome = run(made)
    single = outcome.requests.filter(pl.col("output_tokens") == 1)
    assert (single["steps"] == 0).all()
    assert (single["last_token_s"] == single["first_token_s"]).all()
    metrics = point_metrics(outcome, made.cost, Sla(tok_s_user=1.0), with_regret=False)
    assert metrics["requests"] == 40
    assert metrics["requests_of_one_token"] == 20


def test_same_scenario_gives_the_same_tables() -> None:
    def tables() -> tuple[pl.DataFrame, pl.DataFrame]:
        outcome = run(
            scenario({"kind": "async_topk", "joins": "mean"}, concurrency=6, requests=requests(70), noise_cv=0.1)
        )
        return outcome.steps, outcome.requests

    first, second = tables(), tables()
    assert first[0].equals(second[0])
    assert first[1].equals(second[1])


def test_capture_cliff_of_a_fixed_length() -> None:
    """Past the captured sizes the eager time is paid in full."""
    profile = profile_from_samples(
        "cliff", [8, 16, 24, 64], [0.01, 0.011, 0.05, 0.06], captured_sizes=[8, 16], draft={1: 0.001, 16: 0.001}
    )
    made = scenario({"kind": "static", "k": 3}, concurrency=5, requests=requests(40), profile=profile, cohort=10)
    outcome = run(made)
    full = outcome.steps.filter(pl.col("batch_tokens") == 20)
    assert len(full)
    assert full["step_seconds"].to_list() == pytest.approx([0.051] * len(full))
    metrics = point_metrics(outcome, made.cost, Sla(), with_regret=False)
    assert metrics["eager_fraction"] > 0.5
    assert metrics["batch_tokens_max"] == 20


class Broken(Policy):
    """Returns whatever it was given."""

    answer: ClassVar[Any] = None

    def plan(self, view: View, state: Any) -> tuple[Any, Any]:
        return (self.answer(view) if callable(self.answer) else self.answer), state


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (None, "numpy array of whole numbers, got NoneType"),
        ([1, 2], "got list"),
        (lambda view: np.zeros(view.rows), r"whole numbers, got dtype float64"),
        (lambda view: np.zeros((view.rows, 1), np.int64), r"shape \(3,\), one per row, got \(3, 1\)"),
        (lambda view: np.zeros(view.rows + 1, np.int64), r"shape \(3,\)"),
        (lambda view: view.available + 1, r"step 0, row 0 \(request 0\).* within 0..0 .* got 1; clip"),
        (lambda view: np.full(view.rows, -1), "got -1"),
        (lambda view: 1 / 0, "failed at step 0 .*ZeroDivisionError"),
        (lambda view: view.lagged, "declare `lag`"),
        (lambda view: view.available.__setitem__(0, 3), "read-only"),
    ],
)
def test_nonsense_from_a_policy_is_named(answer: Any, message: str) -> None:
    policy = type("Mine", (Broken,), {"answer": staticmethod(answer) if callable(answer) else answer})()
    with pytest.raises(PolicyError, match=message) as caught:
        run(scenario(policy, requests=requests(10), concurrency=3, cohort=4))
    assert "Mine" in str(caught.value)


def test_narrow_integers_are_fine() -> None:
    policy = type("Narrow", (Broken,), {"answer": staticmethod(lambda view: view.available.astype(np.int8))})()
    assert len(run(scenario(policy, requests=requests(10), cohort=4)).steps)


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"lag": -1}, "`lag` must be a whole number of at least 0, or None, got -1"),
        ({"lag": 1.5}, "got 1.5"),
        ({"safety": "certain"}, "safe, unsafe or unknown, got 'certain'"),
        ({"longest": lambda self, gamma: gamma + 1}, r"`longest\(7\)` .* in 0..7, got 8"),
        ({"start": lambda self: 1 / 0}, "failed to start: ZeroDivisionError"),
    ],
)
def test_nonsense_declared_by_a_policy_is_named(facts: dict[str, Any], message: str) -> None:
    policy = type("Mine", (Broken,), {"answer": staticmethod(lambda view: view.available), **facts})()
    with pytest.raises(PolicyError, match=f"`Mine`.*{message}"):
        run(scenario(policy, requests=requests(10), cohort=4))


@pytest.mark.parametrize("prefill", [None, Prefill(1000.0)])
def test_a_closed_loop_of_one_token_requests_ends(prefill: Prefill | None) -> None:
    outcome = run(scenario({"kind": "static", "k": 1}, requests=requests([1, 1]), concurrency=3, prefill=prefill))
    assert int(outcome.requests["cohort"].sum()) == 200
    assert len(outcome.steps) == 0


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"concurrency": 0}, "concurrency must be at least 1"),
        ({"noise_cv": -0.1}, "noise_cv"),
        ({"cohort": 1}, "at least 2 requests"),
        ({"warmup": -1}, "warmup"),
        ({"mode": "open"}, "arrival times"),
    ],
)
def test_impossible_scenarios_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(SimulationError, match=message):
        scenario({"kind": "autoregressive"}, **fields)


def test_open_loop_with_too_few_requests_is_refused() -> None:
    made = scenario(
        {"kind": "autoregressive"}, requests=requests([5] * 3, arrival_s=np.arange(3.0)), mode="open", warmup=2
    )
    with pytest.raises(SimulationError, match="lower `warmup` or `cohort`"):
        run(made)


def test_sizes_without_a_price_are_refused_before_the_run() -> None:
    with pytest.raises(ValueError, match=r"no sample|no draft cost"):
        scenario({"kind": "static", "k": 7}, concurrency=5000)


@pytest.mark.parametrize("rows", [1, 5, 40])
@pytest.mark.parametrize("kind", ["async_topk", "greedy_early_stop", "oracle"])
def test_rows_in_lists_and_in_arrays_run_alike(rows: int, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = np.random.default_rng(rows).integers(1, 500, 300)
    tables = []
    for few in (1, 1000):
        monkeypatch.setattr("specsched.sim.engine.FEW", few)
        drafts = make_draft_model({"kind": "latent", "profile": "dspark-qwen3-4b", "gamma": 7}, 0)
        made = scenario(
            {"kind": kind}, drafts=drafts, concurrency=rows, requests=requests(lengths), keep_rows=True, cohort=60
        )
        tables.append(run(made))
    assert tables[0].steps.equals(tables[1].steps)
    assert tables[0].requests.equals(tables[1].requests)
    assert tables[0].rows is not None
    assert tables[1].rows is not None
    assert tables[0].rows.equals(tables[1].rows)


def test_what_is_ready_when_a_step_ends_joins_the_next() -> None:
    """Steps of 1/128 s, one slot, prompts of 1/128 s: each prefill ends exactly when a step does."""
    profile = profile_from_samples("even", [1, 7, 8], [0.0078125, 0.0078125, 1.0])
    made = scenario(
        {"kind": "autoregressive"},
        profile=profile,
        concurrency=4,
        requests=requests(40, prompt=8),
        prefill=Prefill(1024.0, slots=1),
        cohort=4,
        warmup=0,
    )
    assert run(made).steps["rows"].to_list()[:5] == [1, 2, 3, 4, 4]


def test_planning_may_believe_in_another_context_slope() -> None:
    context = {"reference_tokens": 0, "seconds_per_token": 1e-7, "source": "assumed", "note": "test"}
    seen: list[float] = []

    class Look(Policy):
        def plan(self, view: View, state: Any) -> tuple[Any, Any]:
            seen.append(view.context_seconds)
            return np.zeros(view.rows, np.int64), state

    planning = StepCost(sloped_profile(context=context))
    steps = run(scenario(Look(), requests=requests(20), cohort=4, planning=planning)).steps
    assert min(seen) > 0
    assert (steps["context_seconds"] == 0).all()


@pytest.mark.parametrize("mode", ["open", "closed"])
def test_recordings_know_requests_by_their_trace_ids(mode: str, tmp_path: Path) -> None:
    """Request 7 of the trace accepts everything, 3 nothing, whatever the order they are asked for in."""
    gamma = 2
    rows = [
        (request, start + depth, depth, 0.5, accepts or (None if depth > 1 else False))
        for request, accepts in ((7, True), (3, False))
        for start in range(1, 12)
        for depth in range(1, gamma + 1)
    ]
    schema = {
        "request": pl.Int64,
        "position": pl.Int64,
        "depth": pl.Int64,
        "confidence": pl.Float64,
        "accepted": pl.Boolean,
    }
    pl.DataFrame(rows, schema=schema, orient="row").write_parquet(tmp_path / "drafts.parquet")
    wanted = Requests(
        prompt_tokens=np.array([10, 10]),
        output_tokens=np.array([12, 12]),
        domain=np.zeros(2, np.int64),
        domains=("chat",),
        arrival_s=np.array([0.0, 1.0]),
        name=np.array([7, 3]),
    )
    drafts = make_draft_model({"kind": "recorded", "path": str(tmp_path / "drafts.parquet")}, 0)
    fields: dict[str, Any] = {"cohort": 2, "warmup": 0} if mode == "open" else {"cohort": 8, "warmup": 2}
    done = run(scenario({"kind": "static", "k": 2}, drafts=drafts, requests=wanted, mode=mode, **fields)).requests
    assert len(done) >= 2
    assert (done.filter(pl.col("name") == 7)["accepted"] > 0).all()
    assert (done.filter(pl.col("name") == 3)["accepted"] == 0).all()
