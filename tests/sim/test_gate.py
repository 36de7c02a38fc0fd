"""What may run without the word `unsafe`, and what is said of the rest."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

from specsched.policies import (
    Ints,
    LaggedBudget,
    LaggedView,
    Policy,
    PolicyError,
    Safety,
    View,
    build_policy,
)
from specsched.policies.greedy_early_stop import GreedyEarlyStop
from specsched.policies.lossless import screening
from specsched.sim import Scenario, StepCost, run
from specsched.sim.profile import load_profile

from .scenes import requests, scenario


def scene(policy: Policy, **fields: Any) -> Scenario:
    usual: dict[str, Any] = {"unsafe": False, "concurrency": 4, "cohort": 8, "requests": requests(20)}
    return scenario(policy, **usual | fields)


@dataclass(frozen=True)
class Biased(Policy):
    """Looks at a row's last draft before it decides on the first."""

    below: float = 0.3

    def plan(self, view: View, state: Any) -> tuple[Ints, Any]:
        return np.where(view.survival[:, -1] < self.below, 0, view.available), state


@dataclass(frozen=True)
class SaysSafe(Biased):
    safety: ClassVar[Safety] = "safe"


@dataclass(frozen=True)
class NotThatGreedy(GreedyEarlyStop):
    """A shipped kind, made worse."""

    def plan(self, view: View, state: Any) -> tuple[Ints, Any]:
        return Biased().plan(view, state)


class BudgetOfItsOwn(LaggedBudget):
    """Smuggles this step's drafts into the budget."""

    def budget(self, view: LaggedView, state: Any) -> tuple[int, Any]:
        raise NotImplementedError


def smuggle(self: Policy, view: View, state: Any) -> tuple[Ints, Any]:
    return Biased().plan(view, state)


BudgetOfItsOwn.plan = smuggle  # type: ignore[method-assign, misc]


@pytest.mark.parametrize("policy", [Biased(), SaysSafe(), NotThatGreedy(), BudgetOfItsOwn()])
def test_a_biased_class_is_refused_whatever_it_declares(policy: Policy) -> None:
    with pytest.raises(PolicyError, match="breaks the row-wise rule") as caught:
        scene(policy)
    message = str(caught.value)
    assert "\n" not in message
    assert f"`{policy.kind or type(policy).__name__}`" in message
    assert "give lengths [" in message
    assert f"`specsched check {__name__}:{type(policy).__name__}`" in message
    assert "`unsafe: true` on its arm" in message


def test_a_biased_class_runs_where_it_is_allowed_and_is_marked() -> None:
    made = scene(SaysSafe(), unsafe=True)
    assert made.safety == "unsafe"
    assert len(run(made).steps)


def test_the_remedy_names_the_parameters() -> None:
    with pytest.raises(PolicyError, match=rf"`specsched check {__name__}:Biased --set below=0.25` tells"):
        scene(Biased(0.25))


@pytest.mark.parametrize("kind", ["retrospective", "oracle", "oracle_rate"])
def test_shipped_bounds_need_the_word(kind: str) -> None:
    policy = build_policy({"kind": kind}, unsafe=True)
    with pytest.raises(PolicyError, match=f"`{kind}` is declared unsafe: .*`unsafe=True` of a Scenario"):
        scene(policy)
    assert scene(policy, unsafe=True).safety == "unsafe"


class Knows(Policy):
    needs_outcomes: ClassVar[bool] = True

    def plan(self, view: View, state: Any) -> tuple[Ints, Any]:
        assert view.outcomes is not None
        return view.outcomes, state


def test_knowing_the_outcomes_needs_the_word() -> None:
    with pytest.raises(PolicyError, match="`Knows` asks for this step's outcomes"):
        scene(Knows())
    assert scene(Knows(), unsafe=True).safety == "unsafe"


@dataclass(frozen=True)
class RowsMeet(Policy):
    """Row 0 is verified if the other rows' second confidences are high, which no draft of its own shows."""

    def plan(self, view: View, state: Any) -> tuple[Ints, Any]:
        lengths = np.zeros(view.rows, np.int64)
        if view.rows > 1 and view.confidence[1:, 1].min() > 0.5:
            lengths[0] = view.available[0]
        return lengths, state


def test_a_failure_of_the_stopping_set_alone_is_refused_too() -> None:
    with pytest.raises(PolicyError, match="breaks the stopping set rule"):
        scene(RowsMeet())


def test_rows_that_cannot_meet_are_not_tried() -> None:
    assert scene(RowsMeet(), concurrency=1).safety == "unknown"


@dataclass(frozen=True)
class Likely(LaggedBudget):
    at_least: float = 0.3

    def budget(self, view: LaggedView, state: Any) -> tuple[int, Any]:
        return min(int((view.lagged.survival >= self.at_least).sum()), view.drafted), state


class Particular(Policy):
    """Leans on what every simulation gives: whole blocks, prices of whole batches, growing contexts, the real cost."""

    def plan(self, view: View, state: Any) -> tuple[Ints, Any]:
        known = state or {}
        now = dict(zip(view.requests.tolist(), view.context_tokens.tolist(), strict=True))
        assert all(now[each] > known[each] for each in now.keys() & known.keys())
        assert set(view.available.tolist()) <= {0, 7}
        assert len(view.seconds(view.drafted)) == view.drafted + 1
        assert view.cost.profile.name == "sloped"  # type: ignore[attr-defined]
        assert view.prefill_tokens == 0 <= view.coin < 1
        return np.where(view.available > 0, 7, 0), now


@pytest.mark.parametrize(("policy", "safety"), [(Likely(), "safe"), (Particular(), "unknown")])
def test_what_passes_keeps_what_its_class_declares(policy: Policy, safety: str) -> None:
    for unsafe in (False, True):
        assert scene(policy, unsafe=unsafe).safety == safety


class OneRow(Policy):
    def plan(self, view: View, state: Any) -> tuple[Ints, Any]:
        if view.rows > 1:
            raise RuntimeError("I know one row")
        return view.available, state


def test_a_policy_that_fails_in_a_trial_is_one_clear_error() -> None:
    with pytest.raises(
        PolicyError, match=r"`OneRow` failed at step \d+ .*I know one row .*\(tried on random"
    ) as caught:
        scene(OneRow())
    assert "`unsafe: true` on its arm" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert scene(OneRow(), concurrency=1).safety == "unknown"
    assert scene(OneRow(), unsafe=True).safety == "unsafe"


class Listed(Policy):
    """Equal to others of its kind, without a hash."""

    def __init__(self, depths: list[int]) -> None:
        self.depths = depths

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Listed) and self.depths == other.depths

    __hash__ = None  # type: ignore[assignment]

    def plan(self, view: View, state: Any) -> tuple[Ints, Any]:
        return np.minimum(view.available, max(self.depths)), state


def test_a_sweep_pays_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[Policy] = []
    real = screening._probe

    def counted(policy: Policy, *rest: Any) -> Any:
        tried.append(policy)
        return real(policy, *rest)

    monkeypatch.setattr(screening, "_probe", counted)
    monkeypatch.setattr(screening, "_seen", [])
    for load in (4, 8, 16):
        scene(Listed([1, 2]), concurrency=load)
        scene(Likely(0.4), concurrency=load)
    assert len(tried) == 2
    scene(Listed([3]))
    scene(Likely(0.4), gamma=3)
    assert len(tried) == 4
    scene(Likely(0.4), planning=StepCost(load_profile("vllm-dsv4flash-b300-tp4")))
    assert len(tried) == 5
    scene(build_policy({"kind": "async_topk"}))
    assert len(tried) == 5


def test_the_trial_takes_less_than_a_second() -> None:
    begun = time.process_time()
    scene(Likely(0.123))
    assert time.process_time() - begun < 1.0
