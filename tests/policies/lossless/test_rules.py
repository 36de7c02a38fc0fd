"""The two rules: what they catch, whom they do not accuse, and what a violation says.

Cases: each broken policy on 5 seeds at gamma 4; the shipped kinds in 35 settings at gamma 7 and the look-alikes at
gamma 3, on 48 scripts each (over 3,000).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar

import numpy as np
import pytest

from specsched.policies import Ints, LaggedBudget, LaggedView, Policy, PolicyError, View, build_policy
from specsched.policies.lossless.rules import Violation, probe, row_wise, stopping_set
from specsched.policies.lossless.scripts import Situation, random_script
from specsched.policies.lossless.what_if import beyond, in_a_row
from specsched.policies.retrospective import Retrospective

from .broken import BROKEN, SAFE
from .random_worlds import play

SEES_ITSELF = "own draft probability"  # the rules take c[r, j] for a function of the drafts before j
RULED = {
    name: broken.policy for name, broken in BROKEN.items() if not broken.policy.needs_outcomes and name != SEES_ITSELF
}


def async_topk() -> dict[str, Policy]:
    """Every option of the budget, alone and together."""
    options: list[dict[str, Any]] = [
        {"lag": lag, "ema": ema, "joins": joins}
        for lag, ema, joins in product((1, 3), (0.0, 0.6), ("optimistic", "mean", "none"))
    ]
    options += [{"lag": 8}, {"lag": 8, "ema": 0.3, "joins": "mean"}]
    floors: list[dict[str, Any]] = [{}, {"min_len": 1}, {"min_gain": 0.1}, {"align": True}, {"allowed": [1, 4, 9, 16]}]
    options += [one | other for one, other in product(floors[1:], floors) if one != other]
    return {f"async_topk {each}": build_policy({"kind": "async_topk", **each}) for each in options}


SHIPPED = async_topk() | {
    str(spec): build_policy(spec)
    for spec in (
        {"kind": "autoregressive"},
        {"kind": "static", "k": 2},
        {"kind": "greedy_early_stop"},
        {"kind": "threshold", "t": 0.5},
        {"kind": "threshold", "t": 0.5, "signal": "survival"},
    )
}


@pytest.mark.parametrize("name", RULED)
def test_broken_policies_are_caught(name: str) -> None:
    for seed in range(5):
        report = probe(RULED[name], 4, seed=seed)
        assert report.stopping_set is not None, f"seed {seed}"
        assert (report.row_wise is None) == (BROKEN[name].law == "joint"), f"seed {seed}"


@pytest.mark.parametrize(("name", "gamma"), [*((name, 7) for name in SHIPPED), *((name, 3) for name in SAFE)])
def test_safe_policies_are_not_accused(name: str, gamma: int) -> None:
    policy = SHIPPED.get(name) or SAFE[name]
    report = probe(policy, gamma, seed=gamma)
    assert (report.row_wise, report.stopping_set, report.scripts) == (None, None, 48)
    if policy.drafts:
        assert report.varied > 20
        assert report.split > 20


def test_the_search_is_deterministic() -> None:
    assert probe(Retrospective(), 5, seed=3) == probe(Retrospective(), 5, seed=3)
    assert probe(Retrospective(), 5, seed=3) != probe(Retrospective(), 5, seed=4)


def test_the_first_step_after_the_lag_is_tried() -> None:
    for name in ("budget from later positions", "drops rows of low confidence"):
        assert probe(RULED[name], 4, steps=1).row_wise is not None


def test_verifying_everything_splits_no_batch() -> None:
    assert probe(build_policy({"kind": "static", "k": 4}), 4).split == 0
    assert probe(build_policy({"kind": "static", "k": 3}), 4).split > 20


def situations(policy: Policy, seeds: int, gamma: int = 4, rows: int = 3) -> list[tuple[Situation, int]]:
    return [
        (situation, seed)
        for seed in range(seeds)
        for situation in play(policy, random_script(np.random.default_rng(seed), gamma, rows, 5))
    ]


def changes(found: Violation) -> set[tuple[int, int]]:
    """Return the (row, position) whose confidence differs."""
    return {
        (row, position)
        for row, (values, others) in enumerate(zip(found.confidence, found.other, strict=True))
        for position, (value, other) in enumerate(zip(values, others, strict=True), start=1)
        if value != other
    }


@pytest.mark.parametrize("name", ["same-step argmax", "budget from another row", "ties to the later position, count"])
def test_a_violation_can_be_asked_again_and_changes_no_verified_draft(name: str) -> None:
    seen = 0
    for situation, seed in situations(RULED[name], 30):
        found = stopping_set(situation, np.random.default_rng(seed))
        if found is None:
            continue
        seen += 1
        assert tuple(situation.again(found.confidence)) == found.lengths
        assert tuple(situation.again(found.other)) == found.other_lengths
        assert found.lengths != found.other_lengths
        assert all(position >= found.lengths[row] + 2 for row, position in changes(found))
        assert (found.changed_row, found.changed_position) in changes(found)
        pair = found.lengths[found.row], found.other_lengths[found.row]
        assert min(pair) + 1 == found.position <= max(pair)
    assert seen >= 5


def test_a_row_wise_violation_changes_one_row_after_the_draft_in_question() -> None:
    seen = single = 0
    for situation, seed in situations(Retrospective(), 60):
        found = row_wise(situation, np.random.default_rng(seed))
        if found is None:
            continue
        seen += 1
        assert found.rule == "row-wise"
        assert {row for row, _ in changes(found)} == {found.row} == {found.changed_row}
        assert found.position < min(position for _, position in changes(found)) == found.changed_position
        single += len(changes(found)) == 1
    assert seen >= 5
    assert single > seen / 2, "most need one change"


def test_rows_coupled_alone_break_no_row_wise_rule() -> None:
    policy = RULED["budget from another row"]
    for situation, seed in situations(policy, 15):
        assert row_wise(situation, np.random.default_rng(seed)) is None


def test_a_violation_explains_itself() -> None:
    found = probe(Retrospective(), 2, rows=1).row_wise
    assert found is not None
    text = str(found)
    assert text.startswith(f"The row-wise rule is broken at step {found.step} of a random history")
    assert f"Draft {found.position} of row 0 is not verified, and is once the confidence of draft 2 of row 0 is" in text
    assert f"{[list(found.confidence[0])]} give lengths {list(found.lengths)}" in text
    assert f"{[list(found.other[0])]} give {list(found.other_lengths)}" in text
    assert "marginal breaks" in text
    assert "\n" not in text


def test_a_failure_of_the_stopping_set_alone_is_undecided() -> None:
    found = probe(RULED["budget from another row"], 2).stopping_set
    assert found is not None
    assert "undecided by rule" in str(found)
    assert found.row != found.changed_row


def test_a_policy_that_knows_the_outcomes_is_not_judged_by_rules() -> None:
    report = probe(build_policy({"kind": "oracle"}, unsafe=True), 3)
    assert (report.applicable, report.scripts, report.row_wise, report.stopping_set) == (False, 0, None, None)


class Counts(Policy):
    """Remembers outside its state."""

    def __init__(self) -> None:
        self.asked = 0

    def plan(self, view: View, state: Any) -> tuple[Ints, Any]:
        self.asked += 1
        return view.available * (self.asked % 2), state


class Mutates(Policy):
    """Changes its state in place."""

    def start(self) -> list[int]:
        return [0]

    def plan(self, view: View, state: Any) -> tuple[Ints, Any]:
        state[0] += 1
        return view.available * (state[0] % 2), state


@pytest.mark.parametrize("policy", [Counts(), Mutates()])
def test_what_is_no_function_of_view_and_state_is_called_that(policy: Policy) -> None:
    with pytest.raises(PolicyError, match=r"for the same view and state; `plan` must be a pure function"):
        probe(policy, 3)


@dataclass(frozen=True)
class BiasedOnceItRemembers(Policy):
    """Drops all drafts if a last confidence is low, provided that a generation ``lag`` old is known."""

    lag: int | None = 8

    def plan(self, view: View, state: Any) -> tuple[Ints, Any]:
        low = bool(view.lagged.known.any()) and float(view.confidence[:, -1].max()) < 0.5
        return view.available * (0 if low else 1), state


def test_scripts_outlast_the_lag() -> None:
    for seed in range(5):
        assert probe(BiasedOnceItRemembers(), 3, seed=seed).row_wise is not None


@dataclass(frozen=True)
class Accountant(LaggedBudget):
    """Refuses a row that emitted nothing or more than it verified."""

    modest: ClassVar[int] = 3

    def budget(self, view: LaggedView, state: Any) -> tuple[int, Any]:
        before, budget = state or ({}, 0)
        now = dict(zip(view.requests.tolist(), view.context_tokens.tolist(), strict=True))
        for request in now.keys() & before.keys():
            if not 1 <= now[request] - before[request] <= 1 + budget:
                raise PolicyError(f"request {request} went from {before[request]} to {now[request]} tokens")
        budget = min(self.modest, view.drafted)
        return budget, (now, budget)


def test_contexts_grow_by_what_was_emitted() -> None:
    assert probe(Accountant(), 5).stopping_set is None


def test_changes_leave_what_is_verified_alone() -> None:
    rng = np.random.default_rng(0)
    confidence = ((0.5, 0.25, 1.0), (0.0,), (0.75, 0.5, 0.25, 0.125))
    lengths = (1, 0, 2)
    made = list(beyond(confidence, lengths, rng))
    assert len(made) == 3
    for other in made:
        assert [row[: length + 1] for row, length in zip(other, lengths, strict=True)] == [
            row[: length + 1] for row, length in zip(confidence, lengths, strict=True)
        ]
        assert [len(row) for row in other] == [3, 1, 4]
    for other in in_a_row(confidence, lengths, rng, 50):
        assert [row[0] for row in other] == [0.5, 0.0, 0.75]
        assert sum(one != two for one, two in zip(other, confidence, strict=True)) <= 1
        assert all(0.0 <= value <= 1.0 for row in other for value in row)
    assert list(in_a_row(((0.5,), ()), (0, 0), rng, 5)) == []
