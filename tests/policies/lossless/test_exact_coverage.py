"""What the enumeration counts: one batch in one step, decisions asked for anew, steps without rows, transitions."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from specsched.policies import Ints, Policy, View, build_policy
from specsched.policies.lossless.exact import WorldTooLarge, law
from specsched.policies.lossless.worlds import RowPlan, appendix_a


@dataclass(frozen=True)
class ByCalendar(Policy):
    """Verifies one draft of every row, and from step 1 on as many as its id says; not by what is drafted."""

    def plan(self, view: View, state: None) -> tuple[Ints, None]:
        return np.minimum(view.available, view.requests if view.step else 1), None


def test_coverage_compares_one_batch_in_one_step() -> None:
    """Lengths that follow the step or the rows present are no decisions, though batches look alike."""
    world = replace(appendix_a(2), rows=(RowPlan(length=2),) * 2, seconds=(1.0,) * 6)
    coverage = law(world, ByCalendar()).coverage
    assert dict(coverage.budgets) == {
        (0, (0, 1), (2, 2)): {2},
        (1, (0,), (2,)): {0},
        (1, (1,), (2,)): {1},
        (1, (0, 1), (2, 2)): {1},
    }
    assert not coverage.varied
    assert not coverage.split


@dataclass(frozen=True)
class InStepTwo(Policy):
    """Verifies one draft in step 0, none in step 1 and all in step 2."""

    def plan(self, view: View, state: None) -> tuple[Ints, None]:
        return np.minimum(view.available, (1, 0, 2)[min(view.step, 2)]), None


def test_a_decision_is_asked_for_anew_in_every_step() -> None:
    """Two tokens may be out after step 0 or after step 1: the rows are alike, the step is not."""
    coverage = law(appendix_a(3), InStepTwo()).coverage
    assert coverage.admitted == {(0, 0, 1), (2, 0, 1), (2, 0, 2)}


def test_a_step_without_rows_loses_no_mass_where_coins_are_tossed() -> None:
    world = replace(appendix_a(2), rows=(RowPlan(first_block=3),), coins=(0.1, 0.6, 0.9))
    found = law(world, build_policy({"kind": "retrospective"}, unsafe=True))
    assert sum(found.joint.values()) == 1
    assert law(world, build_policy({"kind": "greedy_early_stop"})).verdict == "lossless"


def test_the_limit_is_the_most_transitions_allowed() -> None:
    """No drafts and one token of two: two transitions."""
    idle = build_policy({"kind": "autoregressive"})
    assert law(appendix_a(1), idle, limit=2).verdict == "lossless"
    with pytest.raises(WorldTooLarge, match="more than 1 transitions"):
        law(appendix_a(1), idle, limit=1)
