"""The engine and the shipped policies against the naive simulator, on seeded random scenarios."""

from __future__ import annotations

import copy
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, ClassVar

import numpy as np
import polars as pl
import pytest

from specsched.policies import Ints, LaggedBudget, LaggedView, Policy, View, build_policy
from specsched.policies.interface import Safety
from specsched.sim import (
    DraftModel,
    Prefill,
    Requests,
    Result,
    Scenario,
    SimulationError,
    Sla,
    StepCost,
    engine,
    make_draft_model,
    point_metrics,
    run,
)
from specsched.sim.array_rows import ArrayRows
from specsched.sim.curve import Lookup
from specsched.sim.list_rows import ListRows
from specsched.sim.profile_schema import Profile, profile_from_samples
from tests.parts import deep_except, deep_of

from . import naive
from .scenes import requests, scenario, sloped_profile

MOST_ROWS, MOST_GAMMA = 20, 7
DRAFTERS = ("dspark-qwen3-4b", "dflash-qwen3-4b", "eagle3-qwen3-4b")
KINDS = ("static", "threshold", "greedy_early_stop", "async_topk", "retrospective", "oracle", "oracle_rate")
SLA = Sla(ttft_s=0.2, tpot_s=0.006)


def random_sizes(rng: random.Random) -> tuple[list[int], list[int]]:
    """Sampled sizes, and the captured ones among them: all eager, all captured, or a capture limit in between."""
    most = MOST_ROWS * (1 + MOST_GAMMA)
    sizes = sorted({1, most, *rng.sample(range(1, most), rng.randint(3, 25))})
    limit = rng.choice([0, most, rng.randint(4, 100)])
    captured = [size for size in sizes if size <= limit]
    return sizes, captured


def random_profile(rng: random.Random) -> Profile:
    """Shelves and risers of every height, a jump past the capture limit, and often a context slope and a stall."""
    sizes, captured = random_sizes(rng)
    seconds, now = [], 5e-3
    for size in sizes:
        now += rng.choice([0.0, 1e-5, 5e-4, 2e-3]) * rng.random()
        eager = bool(captured) and size > captured[-1]
        seconds.append(now + (5e-3 if eager else 0.0))
    slope = rng.choice([None, 10 ** rng.uniform(-9, -7)])
    reference = rng.choice([0, 100, 300])
    note = {"source": "assumed", "note": "drawn"}
    return profile_from_samples(
        "drawn",
        sizes,
        seconds,
        captured,
        draft={1: 1e-3 * rng.uniform(0.1, 1.0), rng.randint(MOST_ROWS, 60): 1e-3 * rng.uniform(2.0, 3.0)},
        gpus=rng.randint(1, 4),
        context={"reference_tokens": reference, "seconds_per_token": slope, **note},
        host={"seconds": 1e-3 * rng.random(), "sync_stall_seconds": 2e-3 * rng.random(), **note},
    )


def random_async(rng: random.Random, gamma: int, concurrency: int) -> dict[str, Any]:
    """Any options together."""
    most = concurrency * (1 + gamma)
    chosen: dict[str, Any] = {
        "joins": rng.choice(["optimistic", "mean", "none"]),
        "ema": rng.choice([0.1, 0.5, 0.8]),
        "min_len": rng.randint(0, gamma),
        "min_gain": rng.choice([0.01, 0.1, 0.5]),
        "align": True,
        "allowed": sorted(rng.sample(range(1, most + 1), rng.randint(1, min(10, most)))),
    }
    kept = {name: value for name, value in chosen.items() if rng.random() < 0.5}
    return {"kind": "async_topk", "lag": rng.randint(1, 4), **kept}


def random_policy(rng: random.Random, kind: str, gamma: int, concurrency: int) -> Policy:
    spec: dict[str, Any] = {"kind": kind}
    if kind == "static":
        spec["k"] = rng.randint(0, gamma)
    if kind == "threshold":
        spec |= {"t": rng.choice([0.0, 1.0, rng.random()]), "signal": rng.choice(["conditional", "survival"])}
    if kind == "retrospective":
        spec["min_len"] = rng.choice([0, rng.randint(0, gamma)])
    if kind == "oracle_rate":
        spec["rate"] = 10 ** rng.uniform(1.5, 4.0)
    if kind == "async_topk":
        spec = random_async(rng, gamma, concurrency)
    return build_policy(spec, unsafe=True)


def random_drafts(rng: random.Random, gamma: int, seed: int) -> DraftModel:
    latent = {"kind": "latent", "profile": rng.choice(DRAFTERS), "confidence": rng.choice(["sts", "raw"])}
    acceptance, confidence = rng.choice([0.0, 1.0, rng.random()]), rng.choice([None, 0.0, 1.0, rng.random()])
    constant = {"kind": "constant", "acceptance": acceptance, "confidence": confidence}
    return make_draft_model({**rng.choice([latent, constant]), "gamma": gamma}, seed)


def random_outputs(rng: random.Random, count: int) -> list[int]:
    """Ones and twos among short outputs, and in one scenario of five some over the 256 blocks held at once."""
    most, has_long = rng.choice([5, 20, 40]), rng.random() < 0.2
    outputs = []
    for _ in range(count):
        draw = rng.random()
        short = 1 if draw < 0.12 else 2 if draw < 0.25 else rng.randint(1, most)
        outputs.append(rng.randint(257, 600) if has_long and draw > 0.9 else short)
    # A workload of one-token requests alone never starts a step; it has a test of its own.
    outputs[rng.randrange(count)] = rng.randint(3, 9)
    return outputs


def random_arrivals(rng: random.Random, count: int) -> list[float]:
    """Gaps of all sizes, and bursts that share an instant."""
    now, together, gap = rng.choice([0.0, 0.1]), rng.choice([0.0, 0.6]), rng.choice([1e-3, 1e-2, 0.1, 0.5])
    arrivals = []
    for _ in range(count):
        if rng.random() >= together:
            now += rng.expovariate(1 / gap)
        arrivals.append(now)
    return arrivals


def random_requests(rng: random.Random, open_loop: bool) -> Requests:
    count = rng.randint(15, 40) if open_loop else rng.randint(3, 40)
    domains = ("math", "code", "chat")[: rng.randint(1, 3)]
    return Requests(
        prompt_tokens=np.array([rng.choice([13, rng.randint(1, 400)]) for _ in range(count)]),
        output_tokens=np.array(random_outputs(rng, count)),
        domain=np.array([rng.randrange(len(domains)) for _ in range(count)]),
        domains=domains,
        arrival_s=np.array(random_arrivals(rng, count)),
        name=np.array([1000 + 7 * number for number in range(count)]),
    )


def random_cohort(rng: random.Random, open_loop: bool) -> dict[str, int]:
    """Given bounds or, where the key is left out, the default rule."""
    if open_loop:
        return rng.choice(
            [{}, {"warmup": rng.randint(0, 3)}, {"warmup": rng.randint(0, 3), "cohort": rng.randint(2, 8)}]
        )
    return {"cohort": rng.randint(2, 40)} if rng.random() < 0.8 else {}


def random_scenario(seed: int, policy: Policy | None = None, **fixed: Any) -> Scenario:
    """The scenario of a seed; ``fixed`` replaces fields."""
    rng = random.Random(seed)
    concurrency = rng.choice([1, 2, 3, 15, 16, 17, 20, rng.randint(1, MOST_ROWS)])
    gamma = rng.randint(1, MOST_GAMMA)
    kind = rng.choice([*KINDS, "async_topk", "async_topk", "async_topk"])
    drawn = random_policy(rng, kind if rng.random() < 0.95 else "autoregressive", gamma, concurrency)
    policy = policy or drawn
    profile = random_profile(rng)
    open_loop = rng.random() < 0.5 if "mode" not in fixed else fixed["mode"] == "open"
    believed: Lookup = "linear" if rng.random() < 0.5 else "floor"
    stage = Prefill(rng.choice([1e3, 1e4, 1e5]), rng.randint(1, 4))
    fields: dict[str, Any] = {
        "policy": policy,
        "cost": StepCost(profile, drafts=policy.drafts),
        "drafts": random_drafts(rng, gamma, seed),
        "requests": random_requests(rng, open_loop),
        "mode": "open" if open_loop else "closed",
        "concurrency": concurrency,
        "prefill": stage if open_loop and rng.random() < 0.5 else None,
        "planning": StepCost(profile, believed, drafts=policy.drafts) if rng.random() < 0.3 else None,
        **random_cohort(rng, open_loop),
    }
    if not open_loop and rng.random() < 0.5:
        fields["warmup"] = rng.randint(0, 40)
    return Scenario(seed=seed, keep_rows=True, unsafe=True, **fields | fixed)


def same(mine: Any, theirs: Any, tolerance: float, slack: float = 0.0) -> bool:
    """Integers, words and nulls alike, numbers within a relative tolerance."""
    if isinstance(mine, float) and isinstance(theirs, float):
        return abs(mine - theirs) <= slack + tolerance * max(abs(mine), abs(theirs))
    return type(mine) is type(theirs) and mine == theirs


def differences(what: str, mine: Sequence[naive.Record], theirs: pl.DataFrame) -> Iterator[str]:
    """What sets two tables apart, row by row; every column of the engine's table is looked at."""
    if len(mine) != len(theirs):
        yield f"{what}: {len(mine)} records, the engine has {len(theirs)}"
    for place, (own, other) in enumerate(zip(mine, theirs.to_dicts(), strict=False)):
        for column, value in other.items():
            if not same(own[column], value, 1e-12):
                yield f"{what}[{place}].{column}: {own[column]!r}, the engine has {value!r}"


def metric_differences(tables: naive.Tables, result: Result, cost: StepCost) -> Iterator[str]:
    theirs = point_metrics(result, cost, SLA, with_regret=True)
    mine = naive.metrics(tables, cost, SLA)
    if mine.keys() != theirs.keys():
        yield f"metrics: {mine.keys() ^ theirs.keys()} on one side only"
    for name, value in mine.items():
        # A wait of nothing is the difference of two times that agree to 1e-12 of themselves.
        slack = 1e-12 * tables.window[1] if name == "wait_p99_s" else 0.0
        if not same(value, theirs[name], 1e-9, slack):
            yield f"metric {name}: {value!r}, the engine has {theirs[name]!r}"


@dataclass
class Compared:
    """How much was compared."""

    counts: Counter[str] = field(default_factory=Counter)

    def add(self, tables: naive.Tables) -> None:
        self.counts += Counter(scenarios=1, steps=len(tables.steps), rows=len(tables.rows))
        self.counts += Counter(requests=len(tables.requests), metrics=int(has_window(tables)))


def has_window(tables: naive.Tables) -> bool:
    return tables.window[1] > tables.window[0] and bool(naive.in_window(tables))


def keep_rows_in(monkeypatch: pytest.MonkeyPatch, rows: type) -> None:
    """Run every scenario, open loops included, on one implementation of the rows."""
    monkeypatch.setattr(engine, "FEW", 0)
    monkeypatch.setattr(engine, "ListRows", rows)
    monkeypatch.setattr(engine, "ArrayRows", rows)


def assert_agreement(
    scene: Scenario,
    monkeypatch: pytest.MonkeyPatch,
    compared: Compared,
    where: str,
    plan: naive.Plan | None = None,
) -> None:
    """Compare tables, window and metrics of both implementations of the rows with the naive run's."""
    tables = naive.simulate(scene, plan)
    for rows in (ListRows, ArrayRows):
        with monkeypatch.context() as patched:
            keep_rows_in(patched, rows)
            result = run(scene)
        assert result.rows is not None
        found = [
            *differences("steps", tables.steps, result.steps),
            *differences("requests", tables.requests, result.requests),
            *differences("rows", tables.rows, result.rows),
        ]
        assert not found, f"{where}, {rows.__name__}, {scene.policy}: {found[:5]}"
        assert result.window_s == pytest.approx(tables.window, rel=1e-12, abs=0.0), where
        if has_window(tables):
            found = list(metric_differences(tables, result, scene.cost))
            assert not found, f"{where}, {rows.__name__}, {scene.policy}: {found}"
    compared.add(tables)


@pytest.mark.parametrize("part", deep_except([0, 3, 4], range(10)))
def test_runs_agree(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """20 scenarios a part, both implementations of the rows."""
    compared = Compared()
    for seed in range(20 * part, 20 * part + 20):
        assert_agreement(random_scenario(seed), monkeypatch, compared, f"scenario {seed}")
    assert compared.counts["metrics"] >= 17  # the others follow a cohort admitted at one instant
    assert compared.counts["steps"] > 1000


@pytest.mark.parametrize("part", deep_except([0], range(4)))
def test_closed_loops_with_prefill_agree(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """5 scenarios a part."""
    compared = Compared()
    for seed in range(1000 + 5 * part, 1005 + 5 * part):
        stage = Prefill(random.Random(seed).choice([1e3, 1e4, 1e5]), 1 + seed % 4)
        assert_agreement(random_scenario(seed, mode="closed", prefill=stage), monkeypatch, compared, f"scenario {seed}")
    assert compared.counts["metrics"] >= 4


OPTIONS: list[dict[str, Any]] = [
    {"ema": 0.2},
    {"ema": 0.9},
    {"joins": "mean"},
    {"joins": "mean", "ema": 0.7, "min_len": 1},
    {"joins": "none"},
    {"joins": "optimistic"},
    {"min_len": 2, "min_gain": 0.02},
    {"allowed": list(range(6, 161, 6)), "min_gain": 0.05},
    {"allowed": list(range(5, 161, 6)), "align": True},
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(options))
def test_options_of_the_budget_agree(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Real confidences on a curve whose best budget lies inside: every option moves it; 2 scenarios each."""
    sizes = range(1, MOST_ROWS * (1 + MOST_GAMMA) + 1)
    profile = profile_from_samples(
        "rising", sizes, [5e-3 + 1e-4 * size for size in sizes], range(4, 161, 4), draft={1: 1e-3, 20: 1e-3}
    )
    compared = Compared()
    for seed in range(5000, 5002):
        policy = build_policy({"kind": "async_topk", "lag": 1 + seed % 2, **options})
        drafts = make_draft_model({"kind": "latent", "profile": DRAFTERS[0], "gamma": 7}, seed)
        fixed: dict[str, Any] = {"cost": StepCost(profile), "planning": None, "drafts": drafts}
        fixed |= {"mode": "closed", "concurrency": 5 + 12 * (seed % 2), "cohort": 20, "warmup": 10}
        assert_agreement(random_scenario(seed, policy, **fixed), monkeypatch, compared, f"scenario {seed}")


TIED: list[dict[str, Any]] = [
    {"kind": "greedy_early_stop"},
    {"kind": "async_topk", "lag": 1},
    {"kind": "async_topk", "min_len": 1},
    {"kind": "async_topk", "allowed": [3, 4, 6, 12, 13, 20]},
    {"kind": "retrospective"},
    {"kind": "oracle"},
    {"kind": "oracle_rate", "rate": 1024.0},
]


@pytest.mark.parametrize("spec", TIED, ids=lambda spec: "-".join(map(str, spec.values())))
def test_exact_ties_agree(spec: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Sure drafts at 2**-10 s a token: Theta is the same at every captured size, to the bit; 2 scenarios a policy."""
    compared = Compared()
    for seed in range(6000, 6002):
        rng = random.Random(seed)
        most = MOST_ROWS * (1 + MOST_GAMMA)
        captured = sorted({1, most, *rng.sample(range(1, most), 110)})
        profile = profile_from_samples(
            "tied", captured, [size / 1024 for size in captured], captured, draft={1: 1, 20: 1}
        )
        fixed = {"cost": StepCost(profile, draft_scale=0.0), "planning": None}
        drafts = make_draft_model({"kind": "constant", "acceptance": 0.7, "confidence": 1.0, "gamma": 4}, seed)
        scene = random_scenario(seed, build_policy(spec, unsafe=True), drafts=drafts, **fixed)
        assert_agreement(scene, monkeypatch, compared, f"scenario {seed}")


def test_scenarios_reach_what_they_should() -> None:
    """Every policy and option, both loops, outputs of one and two tokens and over the window of the rows."""
    seen: Counter[str] = Counter()
    for seed in range(200):
        scene = random_scenario(seed)
        outputs = scene.requests.output_tokens.tolist()
        seen[scene.policy.kind] += 1
        seen[scene.mode] += 1
        seen[type(scene.drafts).__name__] += 1
        seen.update({f"output {length}": 1 for length in (1, 2) if length in outputs})
        seen["over the window"] += max(outputs) > 256
        seen["context"] += scene.cost.profile.context.seconds_per_token is not None
        seen["capture limit"] += 1 < len(scene.cost.profile.captured_sizes) < len(scene.cost.profile.verify.tokens)
        seen["prefill"] += scene.prefill is not None
        seen["many rows"] += scene.concurrency >= engine.FEW
        for option in ("ema", "min_len", "min_gain", "align", "allowed"):
            seen[option] += bool(getattr(scene.policy, option, None))
    assert set(KINDS) | {"autoregressive", "open", "closed", "ConstantDrafts", "LatentDrafts"} <= seen.keys()
    assert {name: count for name, count in seen.items() if count < 8} == {}


def snapshot(batch: naive.Batch) -> dict[str, Any]:
    """What a policy's view should hold."""
    rows = batch.rows
    return {
        "step": batch.step,
        "requests": [row["request"] for row in rows],
        "available": [row["available"] for row in rows],
        "context": [row["context"] for row in rows],
        "confidence": [row["confidence"] for row in rows],
        "survival": [row["survival"] for row in rows],
        "outcomes": [row["outcome"] for row in rows],
        "lagged": [batch.lagged.get(row["request"]) for row in rows],
        "seconds": batch.seconds[: batch.drafted + 1],
    }


def scattered(step: int, requests: Sequence[int], available: Sequence[int]) -> list[int]:
    """Ragged lengths that follow nothing."""
    return [(7 * step + 5 * r + step * r) % (most + 1) for r, most in zip(requests, available, strict=True)]


@dataclass(frozen=True)
class Scattered(Policy):
    """A user's policy that keeps what it sees."""

    needs_outcomes: ClassVar[bool] = True
    safety: ClassVar[Safety] = "unknown"
    lag: int | None = 2
    seen: list[dict[str, Any]] = field(default_factory=list, compare=False)

    def plan(self, view: View, state: Any) -> tuple[Ints, Any]:
        assert view.outcomes is not None
        lagged: list[Any] = [None] * view.rows
        if self.lag:
            pairs = zip(view.lagged.known.tolist(), view.lagged.survival.tolist(), strict=True)
            lagged = [survival if known else None for known, survival in pairs]
        self.seen.append(
            {
                "step": view.step,
                "requests": view.requests.tolist(),
                "available": view.available.tolist(),
                "context": view.context_tokens.tolist(),
                "confidence": view.confidence.tolist(),
                "survival": view.survival.tolist(),
                "outcomes": view.outcomes.tolist(),
                "lagged": lagged,
                "seconds": view.seconds(view.drafted).tolist(),
            }
        )
        return np.array(scattered(view.step, view.requests.tolist(), view.available.tolist()), np.int64), state


@pytest.mark.parametrize("lag", [None, 0, 1, 2, 5])
def test_views_hold_what_they_should(lag: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every field of the view in every step, while a user's policy picks ragged lengths; 6 scenarios a lag."""
    expected: list[dict[str, Any]] = []

    def keep(batch: naive.Batch, options: naive.Record, state: naive.Record) -> list[int]:
        expected.append(snapshot(batch))
        rows = batch.rows
        return scattered(batch.step, [row["request"] for row in rows], [row["available"] for row in rows])

    compared = Compared()
    for seed in range(2000, 2006):
        policy = Scattered(lag)
        expected.clear()
        assert_agreement(random_scenario(seed, policy), monkeypatch, compared, f"scenario {seed}", keep)
        assert policy.seen == expected + expected, f"scenario {seed}"  # one run in lists, one in arrays


@dataclass(frozen=True)
class LikelyCount(LaggedBudget):
    """A user's budget: as many drafts as looked likely, beyond the floor."""

    lag: int | None = 2
    min_len: int = 0
    level: float = 0.3

    def budget(self, view: LaggedView, state: Any) -> tuple[int, Any]:
        floor = int(np.minimum(view.available, self.min_len).sum())
        return min(max(floor, int((view.lagged.survival > self.level).sum())), view.drafted), state


@pytest.mark.parametrize("min_len", [0, 1, 3])
def test_a_users_budget_is_split_by_the_present(min_len: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """6 scenarios a floor."""

    def count(batch: naive.Batch, options: naive.Record, state: naive.Record) -> list[int]:
        floor = sum(min(row["available"], options["min_len"]) for row in batch.rows)
        old = [batch.lagged.get(row["request"], []) for row in batch.rows]
        likely = sum(survival > options["level"] for survivals in old for survival in survivals)
        return naive.split(batch, min(max(floor, likely), batch.drafted), options["min_len"])

    compared = Compared()
    for seed in range(3000, 3006):
        scene = random_scenario(seed, LikelyCount(min_len=min_len))
        assert_agreement(scene, monkeypatch, compared, f"scenario {seed}", count)


def alike(one: Any, other: Any) -> bool:
    """Whether two states are equal, arrays to the bit."""
    if isinstance(one, np.ndarray):
        return isinstance(other, np.ndarray) and one.dtype == other.dtype and np.array_equal(one, other)
    if isinstance(one, tuple):
        return isinstance(other, tuple) and len(one) == len(other) and all(map(alike, one, other))
    if hasattr(one, "__dict__"):
        return type(one) is type(other) and alike(tuple(vars(one).items()), tuple(vars(other).items()))
    return type(one) is type(other) and bool(one == other)


class Twice(Policy):
    """Asks another policy again, at once and after later steps, and compares the answers and the states."""

    def __init__(self, inner: Policy) -> None:
        self.inner = inner
        self.asked: list[tuple[View, Any, Any, Ints, Any]] = []
        self.kind = inner.kind  # type: ignore[misc]
        self.lag = inner.lag
        self.safety = inner.safety  # type: ignore[misc]
        self.needs_outcomes = inner.needs_outcomes  # type: ignore[misc]
        self.drafts = inner.drafts  # type: ignore[misc]

    def start(self) -> Any:
        return self.inner.start()

    def longest(self, gamma: int) -> int:
        return self.inner.longest(gamma)

    def plan(self, view: View, state: Any) -> tuple[Ints, Any]:
        before = copy.deepcopy(state)
        lengths, after = self.inner.plan(view, state)
        assert alike(before, state), f"step {view.step}: the state was changed in place"
        self.asked.append((view, state, before, lengths.copy(), copy.deepcopy(after)))
        for each in (self.asked[-1], self.asked[len(self.asked) // 2]):
            self.ask_again(*each)
        return lengths, after

    def ask_again(self, view: View, state: Any, before: Any, lengths: Ints, after: Any) -> None:
        again, then = self.inner.plan(view, state)
        assert again.tolist() == lengths.tolist(), f"step {view.step}: other lengths the second time"
        assert alike(then, after), f"step {view.step}: another state the second time"
        assert alike(state, before), f"step {view.step}: the state was changed later"


PURE: list[dict[str, Any]] = [
    {"kind": "autoregressive"},
    {"kind": "static", "k": 2},
    {"kind": "threshold", "t": 0.5},
    {"kind": "threshold", "t": 0.3, "signal": "survival"},
    {"kind": "greedy_early_stop"},
    {"kind": "async_topk"},
    {"kind": "async_topk", "lag": 1, "joins": "mean"},
    {"kind": "async_topk", "lag": 3, "joins": "mean", "ema": 0.7, "min_len": 1, "align": True},
    {"kind": "async_topk", "joins": "none", "ema": 0.2, "min_gain": 0.02},
    {"kind": "async_topk", "min_len": 1, "allowed": [8, 16, 24, 48]},
    {"kind": "retrospective", "min_len": 1},
    {"kind": "oracle"},
    {"kind": "oracle_rate"},
    {"kind": "oracle_rate", "rate": 300.0},
]


BUDGETS = [spec for spec in PURE if spec["kind"] == "async_topk" and len(spec) > 1]
"""Slow, most of it in copies of states; `make test` asks them with rows in lists."""


@pytest.mark.parametrize(
    ("rows", "spec"),
    deep_of([(ArrayRows, spec) for spec in BUDGETS], product([ListRows, ArrayRows], PURE)),
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else value.__name__,
)
def test_plans_are_pure(rows: type, spec: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The same view and state give the same lengths and next state, at once and later; and a run replays."""
    keep_rows_in(monkeypatch, rows)
    for seed, mode in ((4000, "closed"), (4001, "open")):
        policy = build_policy(spec, unsafe=True)
        gamma = 4
        drafts = make_draft_model({"kind": "latent", "profile": DRAFTERS[0], "gamma": gamma}, seed)
        fixed: dict[str, Any] = {"mode": mode, "concurrency": 6, "drafts": drafts}
        if mode == "closed":
            fixed |= {"cohort": 12, "warmup": 0}
        plain = run(random_scenario(seed, policy, **fixed))
        checked = run(random_scenario(seed, Twice(policy), **fixed))
        assert plain.steps.equals(checked.steps)
        assert plain.rows is not None
        assert checked.rows is not None
        assert plain.rows.equals(checked.rows)
        # An arm that never drafts has nothing to be pure about.
        assert plain.steps["drafted"].sum() > 0 or spec["kind"] == "autoregressive"


def test_a_closed_loop_prefills_as_many_ahead_as_there_are_slots() -> None:
    """One row that decodes for 90 ms, two slots, prompts of 10 ms: the stock never holds a third prompt."""
    profile = profile_from_samples("even", [1, 8], [0.01, 0.011])
    policy = build_policy({"kind": "autoregressive"})
    scene = Scenario(
        policy=policy,
        cost=StepCost(profile, drafts=False),
        drafts=make_draft_model({"kind": "constant", "acceptance": 0.5}, 0),
        requests=requests(10, count=5, prompt=10),
        prefill=Prefill(1000.0, slots=2),
        cohort=8,
        warmup=0,
    )
    done = run(scene).requests
    for now in done["last_token_s"].to_list()[:-3]:
        ready = [each for each in done.rows(named=True) if each["ready_s"] < now <= each["admitted_s"]]
        assert len(ready) <= 2, f"{len(ready)} finished prefills wait at {now} s"


def test_requests_that_arrive_together_join_together() -> None:
    policy = build_policy({"kind": "static", "k": 1})
    arrivals = np.array([0.05, 0.21, 0.21])
    scene = scenario(policy, mode="open", concurrency=4, requests=requests([2, 2, 2], arrival_s=arrivals), warmup=0)
    result = run(scene)
    assert (result.requests["admitted_s"] >= result.requests["arrival_s"]).all()
    assert result.steps["rows"].to_list() == [1, 2]


def test_min_gain_holds_next_to_allowed_sizes() -> None:
    """Verifying everything is allowed, and nothing beats it by a factor of 11: everything is verified."""
    fields: dict[str, Any] = {"gamma": 4, "concurrency": 2, "requests": requests(40), "cohort": 2, "warmup": 0}
    costly = profile_from_samples(
        "steep", range(1, 11), [0.001 * size for size in range(1, 11)], draft={1: 1e-3, 4: 1e-3}
    )
    spec = {"kind": "async_topk", "lag": 1, "min_gain": 10.0}
    plain = run(scenario(spec, 0.2, profile=costly, **fields)).steps
    assert (plain["verified"] == plain["drafted"]).all()
    limited = run(scenario(spec | {"allowed": [2, 6, 10]}, 0.2, profile=costly, **fields)).steps
    assert limited["verified"].to_list() == plain["verified"].to_list()


@pytest.mark.parametrize("mode", ["open", "closed"])
def test_a_cohort_admitted_at_one_instant_has_no_rates(mode: str) -> None:
    """A burst that fits the batch, or two rows that are replaced at once."""
    fields: dict[str, Any] = {"requests": requests(5, count=40, arrival_s=np.zeros(40)), "cohort": 2, "warmup": 4}
    scene = scenario({"kind": "static", "k": 1}, mode=mode, concurrency=40, profile=sloped_profile(), **fields)
    with pytest.raises(SimulationError, match="all admitted at once"):
        point_metrics(run(scene), scene.cost, Sla(), with_regret=False)


def test_a_window_without_steps_has_no_rates() -> None:
    """Between the requests at both ends of the trace, every request is one token, and nothing decodes."""
    work = requests([5, *[1] * 28, 5], arrival_s=np.arange(30.0))
    scene = scenario({"kind": "static", "k": 1}, mode="open", concurrency=4, requests=work)
    metrics = point_metrics(run(scene), scene.cost, Sla(), with_regret=True)
    assert metrics["verify_budget"] is None
    assert metrics["step_p50_s"] is None
    assert metrics["steps"] == 0
