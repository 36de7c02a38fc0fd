from __future__ import annotations

import sys
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specsched.policies import Floats, Generation, Ints, LaggedBudget, LaggedView, Policy, PolicyError, build_policy
from specsched.policies.admission import admit
from specsched.policies.greedy_early_stop import early_stop
from specsched.policies.search import SearchOptions, best_budget, search_matrix
from tests.policies.worlds import TableCost, ragged_batches, staircase, view

B300_LIKE = [0.67, 0.42, 0.26, 0.17, 0.12, 0.09, 0.07]


def lengths_of(policy: Policy, *args: Any, **kwargs: Any) -> list[int]:
    lengths, _ = policy.plan(view(*args, **kwargs), policy.start())
    return lengths.tolist()


def theta(survival: Floats, rows: int, cost: TableCost, budget: int) -> float:
    best = np.sort(survival, axis=None)[::-1][:budget]
    return (rows + float(np.add.accumulate(np.concatenate(([0.0], best)))[-1])) / cost.seconds[rows + budget]


def test_static_and_autoregressive() -> None:
    c = np.full((3, 4), 0.5)
    assert lengths_of(build_policy({"kind": "static", "k": 2}), c, available=[4, 1, 0]) == [2, 1, 0]
    assert lengths_of(build_policy({"kind": "autoregressive"}), c) == [0, 0, 0]


@pytest.mark.parametrize(("signal", "expected"), [("conditional", [2, 0, 4]), ("survival", [1, 0, 2])])
def test_threshold_takes_the_longest_prefix(signal: str, expected: list[int]) -> None:
    c = [[0.8, 0.7, 0.1, 0.9], [0.4, 0.9, 0.9, 0.9], [0.9, 0.9, 0.7, 0.7]]
    policy = build_policy({"kind": "threshold", "t": 0.6, "signal": signal})
    assert lengths_of(policy, c) == expected


def test_threshold_zero_verifies_only_drafts_that_exist() -> None:
    assert lengths_of(build_policy({"kind": "threshold", "t": 0.0}), np.zeros((2, 3)), available=[3, 0]) == [3, 0]


def test_appendix_a() -> None:
    """The paper's counterexample: early stop keeps its decision, the same-step argmax follows the sampled token."""
    cost = TableCost(np.array([1.0, 1.0, 1 / 0.5, 1 / 0.45]))
    greedy, same_step = (
        build_policy({"kind": "greedy_early_stop"}),
        build_policy({"kind": "retrospective"}, unsafe=True),
    )
    decisions = {
        name: [lengths_of(policy, [[0.8, c2]], cost) for c2 in (0.9, 0.0)]
        for name, policy in (("greedy", greedy), ("same step", same_step))
    }
    assert decisions == {"greedy": [[0], [0]], "same step": [[2], [0]]}


@given(ragged_batches())
@settings(max_examples=300, deadline=None)
def test_early_stop_is_the_first_candidate_that_does_not_pay(batch: tuple[Floats, Ints, TableCost]) -> None:
    confidence, available, cost = batch
    seen = view(confidence, cost, available=available)
    gains = np.sort(seen.survival[seen.survival > 0])[::-1]
    admitted, best, tau = 0, seen.rows / cost.seconds[seen.rows], float(seen.rows)
    for gain in gains.tolist():
        tau += gain
        if not tau / cost.seconds[seen.rows + admitted + 1] > best:
            break
        admitted += 1
        best = tau / cost.seconds[seen.rows + admitted]
    assert early_stop(gains, seen.rows, seen.seconds(len(gains))) == admitted
    lengths, _ = build_policy({"kind": "greedy_early_stop"}).plan(seen, None)
    assert int(lengths.sum()) == admitted


@given(ragged_batches(most_rows=12))
@settings(max_examples=300, deadline=None)
def test_best_budget_is_the_lowest_argmax(batch: tuple[Floats, Ints, TableCost]) -> None:
    """Against a search by brute force; batches of up to 84 drafts take both the short and the long path."""
    confidence, available, cost = batch
    seen = view(confidence, cost, available=available)
    scores = [theta(seen.survival, seen.rows, cost, budget) for budget in range(seen.drafted + 1)]
    assert search_matrix(seen.survival, seen, SearchOptions()) == int(np.argmax(scores))


@given(ragged_batches())
@settings(max_examples=200, deadline=None)
def test_lists_and_arrays_decide_alike(batch: tuple[Floats, Ints, TableCost]) -> None:
    """A generation given as lists and as arrays ranks, searches and admits to the same bits."""
    confidence, available, cost = batch
    seen = view(confidence, cost, available=available)
    arrays = seen.generation
    lists = Generation.of_rows(
        [(arrays.confidence, row) for row in range(len(confidence))],
        arrays.survival.tolist(),
        confidence.shape[1],
        arrays.known,
        arrays.complete,
    )
    assert list(lists.ranked) == list(arrays.ranked)
    assert (lists.survival == arrays.survival).all()
    assert (lists.confidence == arrays.confidence).all()
    ranked = (lists.ranked[: seen.drafted], arrays.ranked[: seen.drafted])
    budgets = [best_budget(each, seen, SearchOptions(min_gain=0.01)) for each in ranked]
    assert budgets[0] == budgets[1]
    for budget in {*budgets, seen.drafted // 2, seen.drafted // 3}:
        lengths = [admit(each, available, budget).tolist() for each in (lists, arrays)]
        assert lengths[0] == lengths[1]


def test_async_takes_its_budget_from_the_past_and_its_split_from_the_present() -> None:
    """Engine case 1: at n - lag row 0 was sure and row 1 was not; now they have swapped."""
    then = [[0.9, 0.85, 0.8, 0.75], [0.1, 0.01, 0.0, 0.0]]
    now = [[0.1, 0.1, 0.1, 0.1], [0.95, 0.95, 0.95, 0.95]]
    cost = staircase((6, 10), (1.0, 3.0), 10)
    policy = build_policy({"kind": "async_topk", "lag": 2})
    assert lengths_of(policy, now, cost, lagged=then) == [0, 4]


def test_case_6_budget_never_pays_for_a_size_it_does_not_fill() -> None:
    """Captured {16, 32} and 17 tokens wanted: 16 where the riser does not pay, 32 filled where it does."""
    policy = build_policy({"kind": "async_topk", "lag": 1})
    c = np.full((8, 4), 0.9)
    steep, mild = staircase((16, 32, 40), (1.0, 4.0, 9.0), 40), staircase((16, 32, 40), (1.0, 1.2, 9.0), 40)
    assert 8 + sum(lengths_of(policy, c, steep, lagged=np.multiply.accumulate(c, 1))) == 16
    assert 8 + sum(lengths_of(policy, c, mild, lagged=np.multiply.accumulate(c, 1))) == 32


def test_align_fills_the_executed_size_with_real_drafts() -> None:
    lagged = [[0.9, 0.0], [0.9, 0.0], [0.9, 0.0]]
    cost = staircase((4, 8), (1.0, 1.3), 9)
    plain, aligned = ({"kind": "async_topk", "lag": 1, "align": align} for align in (False, True))
    assert lengths_of(build_policy(plain), np.full((3, 2), 0.5), cost, lagged=lagged) == [1, 1, 1]
    assert sum(lengths_of(build_policy(aligned), np.full((3, 2), 0.5), cost, lagged=lagged)) == 5


@pytest.mark.parametrize(("bias", "expected"), [(0.0, 0), (2.0, 32), (5.0, 64), (10.0, 80)])
def test_case_7_terms_that_trimming_cannot_save_do_not_cancel(bias: float, expected: int) -> None:
    survivals = np.tile([0.7, 0.5, 0.35, 0.25, 0.17], (16, 1))
    cost = TableCost(bias + 0.05 * np.arange(97))
    seen = view(np.full((16, 5), 0.5), cost, lagged=survivals)
    assert build_policy({"kind": "async_topk"}).plan(seen, None)[0].sum() == expected


def test_case_5_floor_lookup_believes_in_free_tokens() -> None:
    """Probes 8: 10 ms, 16: 10, 24: 20; 8 rows, 4 of them with drafts."""
    c = np.tile([0.9, 5 / 9, 0.6, 0.25 / 0.3], (8, 1))
    available = [4, 4, 4, 4, 0, 0, 0, 0]
    probes, tokens = np.array([8, 16, 24]), np.arange(41)
    milliseconds = np.array([10.0, 10.0, 20.0])
    floor = TableCost(milliseconds[np.clip(np.searchsorted(probes, tokens, side="right") - 1, 0, 2)])
    ceil = staircase((8, 16, 24), (10.0, 10.0, 20.0), 40)
    policy = build_policy({"kind": "async_topk", "lag": 1})
    survival = np.multiply.accumulate(np.where(np.arange(4) < np.array(available)[:, None], c, 0.0), 1)
    budgets = {
        name: sum(lengths_of(policy, c, cost, lagged=survival, available=available))
        for name, cost in (("floor", floor), ("ceil", ceil))
    }
    assert budgets == {"floor": 15, "ceil": 8}
    assert theta(survival, 8, floor, 15) == pytest.approx(1.555)
    assert theta(survival, 8, ceil, 15) == pytest.approx(0.7775)
    assert theta(survival, 8, ceil, 8) == pytest.approx(1.36)


def test_case_9_min_gain_keeps_everything_when_trimming_hardly_pays() -> None:
    survivals = np.tile(B300_LIKE, (4, 1))
    cost = TableCost(10.0 + 0.4 * np.arange(33))
    trimmed = build_policy({"kind": "async_topk"})
    careful = build_policy({"kind": "async_topk", "min_gain": 0.2})
    assert sum(lengths_of(trimmed, np.full((4, 7), 0.5), cost, lagged=survivals)) < 28
    assert sum(lengths_of(careful, np.full((4, 7), 0.5), cost, lagged=survivals)) == 28


@pytest.mark.parametrize("kind", ["static", "threshold", "greedy_early_stop", "async_topk"])
def test_case_11_nothing_to_verify_is_routine(kind: str) -> None:
    parameters = {"static": {"k": 3}, "threshold": {"t": 0.5}}.get(kind, {})
    policy = build_policy({"kind": kind, **parameters})
    c = np.full((3, 2), 0.9)
    unknown = {"lagged": np.zeros((3, 2)), "known": [False] * 3} if policy.lag else {}
    assert lengths_of(policy, c, available=[0, 0, 0], **unknown) == [0, 0, 0]
    assert sum(lengths_of(policy, c, available=[0, 2, 0], **unknown)) <= 2
    steep = TableCost(np.exp(np.arange(10.0)))
    if kind in ("greedy_early_stop", "async_topk"):
        assert lengths_of(policy, c, steep, **({"lagged": c} if policy.lag else {})) == [0, 0, 0]


def test_flat_cost_verifies_every_draft_with_survival() -> None:
    """Engine case 4."""
    lagged = [[0.5, 0.25, 0.0], [1.0, 0.0, 0.0]]
    policy = build_policy({"kind": "async_topk"})
    assert sum(lengths_of(policy, np.full((2, 3), 0.5), TableCost(np.ones(9)), lagged=lagged)) == 3


@pytest.mark.parametrize(("joins", "expected"), [("optimistic", 4), ("none", 1)])
def test_joins_are_priced_by_their_prior(joins: str, expected: int) -> None:
    """Row 1 has no lagged generation; row 2 none and only its admission step."""
    policy = build_policy({"kind": "async_topk", "joins": joins})
    cost = TableCost(1.0 + 0.2 * np.arange(13))
    budget = sum(
        lengths_of(
            policy,
            np.full((3, 3), 0.5),
            cost,
            lagged=[[0.9, 0.1, 0.0]] * 3,
            known=[True, False, False],
            available=[3, 3, 0],
        )
    )
    assert budget == expected


def test_mean_joins_and_ema_remember_by_request() -> None:
    policy = build_policy({"kind": "async_topk", "joins": "mean", "ema": 0.5})
    c = np.full((2, 2), 0.5)
    first = view(c, lagged=[[0.8, 0.4], [0.6, 0.2]], requests=[7, 9])
    _, memory = policy.plan(first, policy.start())
    assert memory.totals / memory.count == pytest.approx([0.7, 0.3])
    # Request 7 left, 9 moved to row 0, 12 joined.
    second = view(c, lagged=[[0.2, 0.0], [0.0, 0.0]], known=[True, False], requests=[9, 12])
    _, memory = policy.plan(second, memory)
    assert memory.requests.tolist() == [9]
    assert memory.smooth.tolist() == [pytest.approx([0.4, 0.1])]
    assert memory.totals / memory.count == pytest.approx([1.6 / 3, 0.6 / 3])


def test_allowed_sizes_bound_the_batch() -> None:
    policy = build_policy({"kind": "async_topk", "allowed": [4, 6]})
    lagged = np.full((3, 3), 0.9)
    assert 3 + sum(lengths_of(policy, np.full((3, 3), 0.5), TableCost(np.ones(13)), lagged=lagged)) == 6
    out_of_reach = build_policy({"kind": "async_topk", "allowed": [2]})
    assert lengths_of(out_of_reach, np.full((3, 3), 0.5), TableCost(np.ones(13)), lagged=lagged) == [0, 0, 0]


def test_min_len_comes_first_and_counts() -> None:
    policy = build_policy({"kind": "async_topk", "min_len": 1})
    lagged = [[0.1, 0.0], [0.1, 0.0]]
    steep = TableCost(np.exp(np.arange(7.0)))
    assert lengths_of(policy, [[0.9, 0.9], [0.0, 0.0]], steep, lagged=lagged) == [1, 1]


def test_oracle_maximizes_the_step_ratio_and_verifies_only_what_is_accepted() -> None:
    cost = staircase((3, 4, 9), (1.0, 1.1, 5.0), 9)
    oracle = build_policy({"kind": "oracle"}, unsafe=True)
    assert lengths_of(oracle, np.full((3, 2), 0.5), cost, outcomes=[0, 2, 1]) == [0, 1, 0]
    with pytest.raises(PolicyError, match="needs_outcomes"):
        lengths_of(oracle, np.full((3, 2), 0.5), cost)


def test_oracle_rate_prices_time_at_the_rate_of_the_run() -> None:
    cost = staircase((3, 6, 9), (1.0, 2.0, 5.0), 9)
    outcomes = [1, 2, 0]
    cheap = build_policy({"kind": "oracle_rate", "rate": 0.1}, unsafe=True)
    dear = build_policy({"kind": "oracle_rate", "rate": 100.0}, unsafe=True)
    assert sum(lengths_of(cheap, np.full((3, 2), 0.5), cost, outcomes=outcomes)) == 3
    assert sum(lengths_of(dear, np.full((3, 2), 0.5), cost, outcomes=outcomes)) == 0


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({}, "needs `kind`"),
        ({"kind": "statik"}, "did you mean `static`"),
        ({"kind": "static"}, "needs parameter `k`"),
        ({"kind": "static", "k": 1, "q": 2}, "no parameter `q`"),
        ({"kind": "static", "k": -1}, "at least 0, got -1"),
        ({"kind": "static", "k": True}, "whole number"),
        ({"kind": "async_topk", "lag": 0}, "`lag` of policy `async_topk` must be a whole number of at least 1"),
        ({"kind": "async_topk", "joins": "hopeful"}, "must be one of 'optimistic', 'mean', 'none'"),
        ({"kind": "async_topk", "ema": 1.0}, "within"),
        ({"kind": "async_topk", "allowed": [0]}, "`allowed`"),
        ({"kind": "threshold", "t": 1.5}, r"within \[0.0, 1.0\], got 1.5"),
        ({"kind": "threshold", "t": float("nan")}, "within"),
        ({"kind": "retrospective"}, "unsafe: true"),
        ({"kind": "oracle"}, "unsafe: true"),
        ({"kind": "python", "object": "nowhere:Thing"}, "cannot import `nowhere`"),
        ({"kind": "python", "object": "math:Thing"}, "has no `Thing`"),
        ({"kind": "python", "object": "math:pi"}, "derived from"),
        ({"kind": "python", "object": "math"}, "module:Class"),
    ],
)
def test_bad_specifications_say_what_to_do(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        build_policy(spec)


def test_a_class_that_exits_when_built_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Exits(Policy):
        def __init__(self) -> None:
            raise SystemExit(0)

        def plan(self, view: Any, state: Any) -> Any:
            return np.zeros(view.rows, np.int64), state

    monkeypatch.setattr(sys.modules[__name__], "Exits", Exits, raising=False)
    with pytest.raises(PolicyError, match=r"`Exits` cannot be built from \{\}: SystemExit: 0"):
        build_policy({"kind": "python", "object": f"{__name__}:Exits"})


def test_lagged_budget_is_final() -> None:
    with pytest.raises(TypeError, match="implements `budget` only"):

        class Cheat(LaggedBudget):
            def plan(self, view: Any, state: Any) -> Any:  # type: ignore[misc]
                return view.available, state

            def budget(self, view: LaggedView, state: Any) -> tuple[int, Any]:
                return 0, state


def test_lagged_budget_sees_nothing_fresh() -> None:
    seen = view(np.full((2, 2), 0.5), lagged=np.zeros((2, 2)), outcomes=[1, 2]).past()
    for name in ("confidence", "survival", "outcomes", "generation"):
        assert not hasattr(seen, name)


def test_the_two_views_hold_the_same_facts() -> None:
    """Each fact by its own name, so that one added to the record is carried as well."""
    facts = {each.name: object() for each in fields(LaggedView)}
    past = LaggedView(**facts)  # type: ignore[arg-type]
    generation, outcomes = object(), object()
    whole = past.with_drafts(generation, outcomes)  # type: ignore[arg-type]
    assert whole.generation is generation
    assert whole.outcomes is outcomes
    for seen in (past, whole, whole.past()):
        assert {name: getattr(seen, name) for name in facts} == facts
    assert type(whole.past()) is LaggedView


@given(
    ragged_batches(), st.sampled_from([{"lag": 1}, {"lag": 1, "ema": 0.5, "joins": "mean"}, {"lag": 1, "min_len": 1}])
)
@settings(max_examples=150, deadline=None)
def test_slots_do_not_matter(batch: tuple[Floats, Ints, TableCost], parameters: dict[str, Any]) -> None:
    """Permuting the rows permutes the lengths, where no survivals tie."""
    confidence, available, cost = batch
    rows, gamma = confidence.shape
    confidence = confidence * 0.9 + 0.05 + np.arange(rows * gamma).reshape(rows, gamma) * 1e-7
    policy = build_policy({"kind": "async_topk", **parameters})
    order = np.arange(rows)[::-1]
    plain = lengths_of(policy, confidence, cost, lagged=confidence, available=available)
    turned = lengths_of(
        policy, confidence[order], cost, lagged=confidence[order], available=available[order], requests=order
    )
    assert turned == [plain[row] for row in order]
