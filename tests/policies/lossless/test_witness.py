"""A broken row-wise rule becomes a world whose exact law is off by what the construction promises."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from specsched.policies import Ints, Policy, View, build_policy
from specsched.policies.lossless.checker import check
from specsched.policies.lossless.exact import law
from specsched.policies.lossless.explain import explain
from specsched.policies.lossless.explain_text import explanation_lines
from specsched.policies.lossless.rules import probe
from specsched.policies.lossless.witness import witness
from specsched.policies.retrospective import Retrospective

from .broken import BROKEN


@dataclass(frozen=True)
class FromThreeRows(Policy):
    """A same-step argmax from three rows on: beyond every enumerated size."""

    def plan(self, view: View, state: Any) -> tuple[Ints, Any]:
        if view.rows < 3:
            return np.minimum(view.available, 1), state
        return Retrospective().plan(view, None)[0], state


@dataclass(frozen=True)
class FromStepFifty(Policy):
    """A same-step argmax after a warm-up: no world lasts as long."""

    def plan(self, view: View, state: Any) -> tuple[Ints, Any]:
        if view.step < 50:
            return np.minimum(view.available, 1), state
        return Retrospective().plan(view, None)[0], state


@dataclass(frozen=True)
class AtARareCoin(Policy):
    """A same-step argmax in one step out of twenty."""

    def plan(self, view: View, state: Any) -> tuple[Ints, Any]:
        if view.coin > 0.05:
            return np.minimum(view.available, 1), state
        return Retrospective().plan(view, None)[0], state


@pytest.mark.parametrize(
    "name",
    [
        "same-step argmax",
        "budget from later positions",
        "ties to the later position, count",
        "ties to the later position, prefix",
        "drops rows of low confidence",
        "allowed after counting candidates",
        "parallel float32 product",
    ],
)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_world_of_a_broken_rule_is_biased_by_three_twentieths(name: str, seed: int) -> None:
    policy = BROKEN[name].policy
    violation = probe(policy, 5, scripts=144, seed=seed).row_wise
    assert violation is not None
    world = witness(violation)
    found = law(world, policy)
    assert found.marginal_tv == found.joint_tv == Fraction(3, 20)
    assert world.tokens == violation.position
    row = violation.row
    biased = [mass for tokens, mass in found.rows[row].items() if tokens[-1] == 0]
    assert biased in ([Fraction(17, 20)], [Fraction(11, 20)])
    # The same world is harmless to a scheduler that does not look ahead.
    assert law(world, build_policy({"kind": "greedy_early_stop"})).joint_tv == 0


def test_a_mistake_beyond_the_enumerated_sizes_is_shown_in_a_world_of_its_own() -> None:
    report = check(FromThreeRows(), examples=40)
    assert report.verdict == "marginal"
    found = report.counterexample
    assert found is not None
    assert found.by_rule
    assert len(found.world.rows) >= 3
    text = "\n".join(explanation_lines(explain(found.world, FromThreeRows())))
    assert len(text) < 12_000  # confidences of prefixes that are never drafted stay out
    assert check(AtARareCoin(), examples=40).counterexample is not None


def test_a_mistake_that_needs_a_past_is_called_by_the_rule() -> None:
    report = check(FromStepFifty(), examples=40)
    assert report.counterexample is None
    assert report.rules.row_wise is not None
    assert report.verdict == "marginal"
    assert replace(report, own_token=True).verdict != "marginal"


def test_the_stopping_set_alone_has_no_such_world() -> None:
    violation = probe(BROKEN["budget from another row"].policy, 5).stopping_set
    assert violation is not None
    with pytest.raises(ValueError, match="only a broken row-wise rule"):
        witness(violation)
