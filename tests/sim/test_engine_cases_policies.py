"""Questions that users of shipped engines asked, answered by the shipped policies on the measured profile."""

from __future__ import annotations

import numpy as np
import pytest

from specsched.policies import Generation, View, build_policy
from specsched.sim.cost import StepCost
from specsched.sim.profile import FlatProfileWarning, ProfileError, load_profile
from specsched.sim.profile_schema import profile_from_samples

SURVIVALS = [0.67, 0.42, 0.26, 0.17, 0.12, 0.09, 0.07]


def batch(rows: int, cost: StepCost, survivals: list[float]) -> View:
    """A batch of equal rows whose lagged and fresh survivals are the same."""
    survival = np.tile(survivals, (rows, 1))
    known = np.ones(rows, np.bool_)
    generation = Generation(survival.copy(), survival, known, True)
    available = np.full(rows, len(survivals))
    return View(0, np.arange(rows), available, int(available.sum()), cost, generation, generation=generation)


def admitted(kind: str, view: View) -> int:
    return int(build_policy({"kind": kind}).plan(view, None)[0].sum())


def test_case_2_greedy_stops_before_the_shelf_argmax_crosses() -> None:
    cost = StepCost(load_profile("vllm-dsv4flash-b300-tp4"))
    view = batch(128, cost, SURVIVALS)
    assert admitted("greedy_early_stop", view) == 0
    assert admitted("async_topk", view) == 672


def test_case_8_the_capture_edge_holds_the_budget() -> None:
    """192 rows at 7 drafts would be 1,536 eager tokens, five times as slow; argmax stays within the graphs.

    640 drafts are 832 tokens, the end of a shelf of the running maximum of medians.
    """
    cost = StepCost(load_profile("vllm-dsv4flash-b300-tp4"))
    view = batch(192, cost, SURVIVALS)
    budget = admitted("async_topk", view)
    assert budget == 640
    assert cost.padded(192 + budget) == 832
    assert cost.verify_seconds(192 * 8) > 5 * cost.verify_seconds(1024)


def test_case_4_flat_profile_warns_and_verifies_all_that_may_survive() -> None:
    profile = profile_from_samples("flat", [1, 64], [0.01, 0.01], draft={1: 0.001, 8: 0.001})
    with pytest.warns(FlatProfileWarning, match="survival > 0"):
        cost = StepCost(profile)
    assert admitted("async_topk", batch(8, cost, [0.5, 0.25, 0.0])) == 16


def test_case_4_missing_profile_is_an_error() -> None:
    with pytest.raises(ProfileError, match="vllm-dsv4flash-b300-tp4"):
        load_profile("vllm-dsv4flash-b300-tp8")
