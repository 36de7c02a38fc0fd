from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from specsched.policies import Ints, Policy, PolicyError, View, build_policy
from specsched.policies.lossless.decoders import BROKEN_DECODERS, RIGHT, Decoder
from specsched.policies.lossless.exact import ExactLaw, distance, law
from specsched.policies.lossless.sampled import Fit, chi_square, draws_needed
from specsched.policies.lossless.sampler import sample
from specsched.policies.lossless.worlds import RowPlan, World, WorldError, appendix_a

from .random_worlds import coupled_rows, random_world

RAGGED = RowPlan(available=(2, 1, 0, 2))
ENDS = RowPlan(length=2, anchor=1)
JOINS = RowPlan(first_block=2, available=(2, 1))

SHAPES: dict[str, dict[str, Any]] = {
    "one row": {"vocabulary": 2, "gamma": 2, "tokens": 4},
    "one row, vocabulary 3": {"vocabulary": 3, "gamma": 2, "tokens": 3},
    "one row, gamma 3": {"vocabulary": 3, "gamma": 3, "tokens": 2, "plans": (RowPlan(available=(3, 1, 2)),)},
    "one row, end token": {"vocabulary": 2, "gamma": 3, "tokens": 4, "end": 1},
    "two rows": {"vocabulary": 2, "gamma": 2, "tokens": 2, "plans": (RowPlan(), RowPlan(anchor=1))},
    "two rows, coins": {"vocabulary": 2, "gamma": 2, "tokens": 2, "plans": (RowPlan(), RAGGED), "coins": (0.1, 0.7)},
    "two rows, a join": {"vocabulary": 2, "gamma": 2, "tokens": 3, "plans": (RowPlan(), JOINS)},
    "two rows, one leaves": {"vocabulary": 2, "gamma": 2, "tokens": 3, "plans": (ENDS, RowPlan())},
    "two rows, everything": {"vocabulary": 2, "gamma": 2, "tokens": 3, "plans": (ENDS, JOINS), "end": 0},
    "two rows, vocabulary 3": {"vocabulary": 3, "gamma": 2, "tokens": 2, "plans": (RowPlan(), RAGGED), "end": 2},
}
SEEDS = (28, 190, 16, 7, 12, 69, 69, 351, 68, 43)
"""Chosen so that decisions matter: `retrospective` is biased in every one of these worlds."""
WORLDS = {
    name: random_world(np.random.default_rng(seed), **shape)
    for seed, (name, shape) in zip(SEEDS, SHAPES.items(), strict=True)
}
POLICIES = {
    "async_topk, lag 1": build_policy({"kind": "async_topk", "lag": 1, "joins": "mean"}),
    "async_topk, lag 2": build_policy({"kind": "async_topk", "lag": 2, "ema": 0.5}),
    "retrospective": build_policy({"kind": "retrospective"}, unsafe=True),
    "greedy_early_stop": build_policy({"kind": "greedy_early_stop"}),
}
CASES = [
    (world, policy)
    for place, world in enumerate(WORLDS)
    for policy in POLICIES
    if not policy.endswith(f"lag {2 - place % 2}")  # each world has one of the two lags
]
DRAWS, FEW_DRAWS = 1_000_000, 50_000
ALPHA = 1e-3 / len(CASES)
"""So that all thirty together give a false alarm with probability 1e-3."""


def compared(world: World, policy: Policy, decoder: Decoder, draws: int, seed: int) -> tuple[Fit, ExactLaw]:
    exact = law(world, policy, decoder)
    return chi_square(sample(world, policy, decoder, draws, seed), exact.joint), exact


def test_the_worlds_tell_policies_apart() -> None:
    assert len(CASES) == 30
    laws = {case: law(WORLDS[case[0]], POLICIES[case[1]]) for case in CASES}
    biased = [exact.marginal_tv for (_, policy), exact in laws.items() if policy == "retrospective"]
    assert min(biased) > 0.01
    safe = [exact for (_, policy), exact in laws.items() if policy != "retrospective"]
    assert {exact.verdict for exact in safe} == {"lossless"}
    assert sum(exact.coverage.varied for exact in safe) >= 10
    assert sum(exact.coverage.split for exact in safe) >= 10


@pytest.mark.parametrize(("world", "policy"), CASES)
def test_some_draws_have_the_exact_law(world: str, policy: str) -> None:
    fit, _ = compared(WORLDS[world], POLICIES[policy], RIGHT, FEW_DRAWS, 100 + CASES.index((world, policy)))
    assert fit.p_value > ALPHA, fit


@pytest.mark.deep
@pytest.mark.parametrize(("world", "policy"), CASES)
def test_a_million_draws_have_the_exact_law(world: str, policy: str) -> None:
    fit, exact = compared(WORLDS[world], POLICIES[policy], RIGHT, DRAWS, CASES.index((world, policy)))
    assert fit.p_value > ALPHA, fit
    # What such a test sees with probability 0.99, whatever the difference.
    assert draws_needed(exact.joint, total_variation=0.01, alpha=ALPHA, power=0.99) <= DRAWS


def test_a_bias_of_a_hundredth_would_be_seen() -> None:
    world, policy = WORLDS["one row, gamma 3"], POLICIES["retrospective"]
    exact = law(world, policy)
    assert exact.joint_tv < 0.02
    assert chi_square(sample(world, policy, RIGHT, DRAWS, 0), exact.target_joint).p_value <= ALPHA


# --- broken decoders

FEWER = 200_000
DECODERS = [
    (world, policy, decoder)
    for world in ("one row, vocabulary 3", "two rows, everything", "two rows, vocabulary 3")
    for policy in ("static", "greedy_early_stop")
    for decoder in BROKEN_DECODERS
]
DECODER_ALPHA = 1e-3 / len(DECODERS)
STATIC = {"static": build_policy({"kind": "static", "k": 1})}


@pytest.mark.parametrize(("world", "policy", "decoder"), DECODERS)
def test_broken_decoders_have_their_exact_law(world: str, policy: str, decoder: str) -> None:
    seed = 1000 + DECODERS.index((world, policy, decoder))
    chosen = (POLICIES | STATIC)[policy]
    fit, _ = compared(WORLDS[world], chosen, BROKEN_DECODERS[decoder], FEWER, seed)
    assert fit.p_value > DECODER_ALPHA, fit


def test_every_broken_decoder_leaves_the_target_s_law_in_one_of_these_worlds() -> None:
    wrong = {
        decoder
        for world, policy, decoder in DECODERS
        if law(WORLDS[world], (POLICIES | STATIC)[policy], BROKEN_DECODERS[decoder]).joint_tv > 0.01
    }
    assert wrong == set(BROKEN_DECODERS)


# --- what else a policy may read


@dataclass(frozen=True)
class Tossing(Policy):
    """Cuts rows whose last survival is low, a bias, but only on some coins; which ones depends on the past."""

    lag: int | None = None

    def start(self) -> float:
        return 0.5

    def plan(self, view: View, state: float) -> tuple[Ints, float]:
        cut = (view.coin < state) & (view.survival[:, -1] < 0.3)
        return view.available * ~cut, 0.3 if cut.any() else 0.8


@dataclass(frozen=True)
class Reading(Policy):
    """Reads contexts, ids, the step and all it has seen of a row: a state that never merges."""

    def start(self) -> tuple[Any, ...]:
        return ()

    def plan(self, view: View, state: tuple[Any, ...]) -> tuple[Ints, tuple[Any, ...]]:
        seen = (view.step, *view.requests.tolist(), *view.context_tokens.tolist(), *view.confidence.ravel().tolist())
        longest = np.array([int(sum(seen) * 100) % 3, view.step % 2])[: view.rows]
        return np.minimum(view.available, longest), (*state, seen)


@dataclass(frozen=True)
class Reciprocal(Policy):
    """Verifies a row's draft iff the other row's confidence is 1."""

    def plan(self, view: View, state: None) -> tuple[Ints, None]:
        return view.available * (view.confidence[::-1, 0] == 1.0), None


OWN = random_world(
    np.random.default_rng(1), vocabulary=3, gamma=2, tokens=2, plans=(RowPlan(), RowPlan()), own_token=True
)
OTHERS: dict[str, tuple[World, Policy]] = {
    "coins": (WORLDS["two rows, coins"], Tossing()),
    "contexts and memory": (WORLDS["two rows, one leaves"], Reading()),
    "contexts and a join": (WORLDS["two rows, a join"], Reading()),
    "no drafts": (WORLDS["two rows, everything"], build_policy({"kind": "autoregressive"})),
    "threshold": (WORLDS["two rows, one leaves"], build_policy({"kind": "threshold", "t": 0.5})),
    "outcomes": (WORLDS["two rows, everything"], build_policy({"kind": "oracle"}, unsafe=True)),
    "outcomes and a state": (WORLDS["two rows"], build_policy({"kind": "oracle_rate"}, unsafe=True)),
    "own token": (OWN, Reciprocal()),
    "own token, coupled": (coupled_rows(), Reciprocal()),
    "own token, retrospective": (OWN, POLICIES["retrospective"]),
}
OTHER_ALPHA = 1e-3 / len(OTHERS)


@pytest.mark.parametrize("name", OTHERS)
def test_other_things_a_policy_may_read(name: str) -> None:
    fit, _ = compared(*OTHERS[name], RIGHT, FEWER, 2000 + list(OTHERS).index(name))
    assert fit.p_value > OTHER_ALPHA, fit


def test_what_these_policies_read_shows_in_the_law() -> None:
    off = {name: float(law(world, policy).joint_tv) for name, (world, policy) in OTHERS.items()}
    assert {name for name, distance in off.items() if not distance} == {"no drafts", "threshold"}
    assert min(distance for distance in off.values() if distance) > 0.04


def test_coins_matter_to_that_policy() -> None:
    world, policy = OTHERS["coins"]
    laws = [law(replace(world, coins=coins), policy).joint for coins in (world.coins, (0.1,), (0.7,))]
    assert min(distance(laws[0], laws[1]), distance(laws[0], laws[2]), distance(laws[1], laws[2])) > 0.01


# --- the sampler itself


def test_counts_sum_to_the_draws_and_repeat() -> None:
    world, policy = WORLDS["two rows, everything"], POLICIES["greedy_early_stop"]
    counts = sample(world, policy, RIGHT, 10_000, 3)
    assert sum(counts.values()) == 10_000
    assert sample(world, policy, RIGHT, 10_000, 3) == counts
    assert sample(world, policy, RIGHT, 10_000, 4) != counts


def test_the_policy_is_asked_once_for_every_past_and_present() -> None:
    calls = []

    @dataclass(frozen=True)
    class Counted(Policy):
        def plan(self, view: View, state: Any) -> tuple[Ints, Any]:
            calls.append(view.confidence.tolist())
            return view.available, (*(state or ()), tuple(view.confidence[0].tolist()))

    sample(appendix_a(1), Counted(), RIGHT, 50_000, 0)
    # One step, drafts that begin with A or with B.
    assert sorted(calls) == [[[0.8, 0.0]], [[0.8, 0.9]]]


def test_a_sampler_refuses_what_it_cannot_do() -> None:
    policy = POLICIES["greedy_early_stop"]
    with pytest.raises(ValueError, match="`draws` must be at least 1, got 0"):
        sample(appendix_a(), policy, RIGHT, 0, 0)
    with pytest.raises(WorldError, match="40 tokens of a vocabulary of 2 are too many to sample"):
        sample(appendix_a(40), policy, RIGHT, 10, 0)

    @dataclass(frozen=True)
    class TooLong(Policy):
        def plan(self, view: View, state: Any) -> tuple[Ints, Any]:
            return view.available + 1, state

    with pytest.raises(PolicyError, match=r"length must be within 0\.\.2"):
        sample(appendix_a(), TooLong(), RIGHT, 10, 0)
