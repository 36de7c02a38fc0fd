"""The contract passes the project's own policies, and every test of it fails a policy made to fail it."""

from __future__ import annotations

import itertools
import random
import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from specsched.policies import Ints, LaggedBudget, LaggedView, Policy, View, build_policy
from specsched.policies.admission import admit
from specsched.policies.greedy_early_stop import GreedyEarlyStop
from specsched.policies.testing import PolicyContract, UndecidedByRule

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "guide.md"
TESTS = sorted(name for name in dir(PolicyContract) if name.startswith("test_"))
PLAYED = {
    "test_all_one_survivals",
    "test_all_zero_survivals",
    "test_budget_respected",
    "test_large_ids",
    "test_many_rows",
    "test_one_row",
    "test_ragged_availability",
    "test_rows_without_drafts",
    "test_zero_rows",
}
"""The tests in which lengths must be ones that a step can execute; the checker and the rules ask for it too."""

RAGGED = PLAYED - {"test_all_one_survivals", "test_all_zero_survivals", "test_many_rows", "test_zero_rows"}
"""Those of them in which some row has fewer drafts than a block holds."""

JUDGED = {"test_lossless", "test_rules"}


class Cautious(Policy):
    """One draft of every row that has any, whatever the confidences: a body for defects."""

    kind = "cautious"
    lag = None

    def plan(self, view: View, state: Any) -> tuple[Any, Any]:
        return np.minimum(view.available, 1), state


class OverAdmits(Cautious):
    def plan(self, view: View, state: Any) -> tuple[Any, Any]:
        return view.available + 1, state


class IgnoresAvailability(Cautious):
    def plan(self, view: View, state: Any) -> tuple[Any, Any]:
        return np.full(view.rows, view.confidence.shape[1]), state


class IgnoresAvailabilityOfLargeBatches(Cautious):
    """A buffer of whole blocks is used for more than four rows."""

    def plan(self, view: View, state: Any) -> tuple[Any, Any]:
        if view.rows > 4:
            return np.full(view.rows, view.confidence.shape[1]), state
        return view.available.copy(), state


class Negative(Cautious):
    def plan(self, view: View, state: Any) -> tuple[Any, Any]:
        return view.available - 1, state


class FloatLengths(Cautious):
    def plan(self, view: View, state: Any) -> tuple[Any, Any]:
        return view.available / 2, state


class NoBlockOfSix(Cautious):
    """Wrong for blocks one draft longer than it was tried with."""

    def plan(self, view: View, state: Any) -> tuple[Any, Any]:
        wrong = view.confidence.shape[1] == 6
        return np.minimum(view.available, 1) - wrong, state


class MutatesView(Cautious):
    def plan(self, view: View, state: Any) -> tuple[Any, Any]:
        np.minimum(view.available, 1, out=view.available)
        return view.available, state


class MutatesState(Cautious):
    def start(self) -> list[int]:
        return []

    def plan(self, view: View, state: list[int]) -> tuple[Any, Any]:
        state.append(view.rows)
        return np.minimum(view.available, 1), state


COUNTER = itertools.count()


class ReadsACounter(Cautious):
    """Impure: a counter of the process decides."""

    def plan(self, view: View, state: Any) -> tuple[Any, Any]:
        return np.minimum(view.available, next(COUNTER) % 2), state


class DrawsWithoutCoin(Cautious):
    """Random, and from the global generator."""

    def plan(self, view: View, state: Any) -> tuple[Any, Any]:
        return np.minimum(view.available, random.randrange(2)), state


class WastesRandomness(Cautious):
    """Draws a number and ignores it: the next user of the generator gets another one."""

    def plan(self, view: View, state: Any) -> tuple[Any, Any]:
        random.random()
        return np.minimum(view.available, 1), state


class RemembersOnItself(Cautious):
    """Its memory of the last batch is an attribute, so a replay differs from the run."""

    lag = 0

    def __init__(self) -> None:
        self.rows = 0

    def plan(self, view: View, state: Any) -> tuple[Any, Any]:
        before, self.rows = self.rows, view.rows
        return np.minimum(view.available, 1 + (before < view.rows)), state


class Box:
    """An object without a value."""


class OpaqueState(Cautious):
    def plan(self, view: View, state: Any) -> tuple[Any, Any]:
        return np.minimum(view.available, 1), Box()


class OpaqueStateOfLargeBatches(Cautious):
    def plan(self, view: View, state: Any) -> tuple[Any, Any]:
        return np.minimum(view.available, 1), Box() if view.rows > 4 else None


class MatchesBySlot(Policy):
    """The lengths of a row follow the confidences that were last seen in its row, whoever sat there."""

    kind = "by_slot"
    lag = 1

    def start(self) -> tuple[int, ...]:
        return ()

    def plan(self, view: View, state: tuple[int, ...]) -> tuple[Any, Any]:
        known = np.array([*state, *[1] * view.rows][: view.rows], np.int64)
        return np.minimum(known, view.available), tuple((view.confidence > 0.5).sum(axis=1).tolist())


class HidesItsLag(GreedyEarlyStop):
    """This step's confidences fix the budget; declaring lag 1 saves the charge for waiting for them."""

    kind = "hidden_lag"
    lag = 1


class NeverLooks(GreedyEarlyStop):
    kind = "never_looks"
    lag = None


class UnderstatesLongest(Cautious):
    def plan(self, view: View, state: Any) -> tuple[Any, Any]:
        return np.minimum(view.available, 2), state

    def longest(self, gamma: int) -> int:
        return 1


class LagOfAHalf(Cautious):
    lag = 0.5  # type: ignore[assignment]


class UnknownSafety(Cautious):
    safety = "very"  # type: ignore[assignment]


class Crashes(Cautious):
    """Raises once a condition has held in some consecutive steps; the state counts them."""

    def __init__(self, when: Callable[[View], Any], steps: int = 1) -> None:
        self.when, self.steps = when, steps

    def start(self) -> int:
        return 0

    def plan(self, view: View, state: int) -> tuple[Any, Any]:
        held = state + 1 if self.when(view) else 0
        if held == self.steps:
            raise ZeroDivisionError("division by zero")
        return np.minimum(view.available, 1), held


class Constant(LaggedBudget):
    """A lagged budget of one draft, if there is one: a body for defects."""

    kind = "constant"
    lag = 1

    def budget(self, view: LaggedView, state: Any) -> tuple[Any, Any]:
        return min(1, view.drafted), state


class TooLarge(Constant):
    def budget(self, view: LaggedView, state: Any) -> tuple[Any, Any]:
        return view.drafted + 1, state


class FloatBudget(Constant):
    def budget(self, view: LaggedView, state: Any) -> tuple[Any, Any]:
        return view.drafted / 2, state


class OffBudget(Constant):
    """Its split was replaced behind the base class, and admits one draft more than the budget."""


class WorstFirst(Constant):
    """Its split was replaced behind the base class, and fills the budget from the last row."""


def one_more(self: Constant, view: View, state: Any) -> tuple[Ints, Any]:
    budget, state = self.budget(view.past(), state)
    return admit(view.generation, view.available, min(budget + 1, view.drafted)), state


def last_row_first(self: Constant, view: View, state: Any) -> tuple[Ints, Any]:
    budget, state = self.budget(view.past(), state)
    lengths = np.zeros(view.rows, np.int64)
    for row in sorted(range(view.rows), key=lambda row: -int(view.requests[row])):
        lengths[row] = min(budget, int(view.available[row]))
        budget -= int(lengths[row])
    return lengths, state


OffBudget.plan = one_more  # type: ignore[method-assign]
WorstFirst.plan = last_row_first  # type: ignore[method-assign]


class NeverAdmits(Cautious):
    def plan(self, view: View, state: Any) -> tuple[Any, Any]:
        return np.zeros(view.rows, np.int64), state


class DropsOnLaterDoubt(Policy):
    """Throws a row's drafts away when its own second confidence, which shows the first draft, is low."""

    kind = "later_doubt"

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def plan(self, view: View, state: Any) -> tuple[Any, Any]:
        if view.rows < self.rows or view.confidence.shape[1] < 2:
            return np.minimum(view.available, 1), state
        return np.where(view.confidence[:, 1] < 0.5, 0, view.available), state


class SpiesOnTheUnverified(Policy):
    """Never verifies the oldest row, and the others only if its drafts, which nobody will see, look good.

    This breaks the stopping set, but the oldest row's token is drawn anew, so the law is the target's.
    """

    kind = "spy"

    def plan(self, view: View, state: Any) -> tuple[Any, Any]:
        if view.rows == 0:
            return np.zeros(0, np.int64), state
        oldest = int(np.argmin(view.requests))
        good = view.confidence[oldest].sum() > 1
        lengths = np.where(good, view.available, 0)
        lengths[oldest] = 0
        return lengths, state


class EachFollowsTheOther(Policy):
    """Of two rows, each is verified if the other's second confidence is high: marginals right, joint wrong."""

    kind = "reciprocal"

    def plan(self, view: View, state: Any) -> tuple[Any, Any]:
        if view.rows != 2 or view.confidence.shape[1] < 2:
            return np.minimum(view.available, 1), state
        return np.where(view.confidence[::-1, 1] > 0.5, np.minimum(view.available, 1), 0), state


@dataclass
class Defect:
    """A policy and the tests that fail it."""

    policy: Policy
    fails: set[str]
    says: str
    knobs: dict[str, Any] = field(default_factory=dict)


BROKEN = {
    "over-admits": Defect(OverAdmits(), PLAYED | JUDGED | {"test_prefix_closed"}, "clip to `view.available`"),
    "ignores availability": Defect(
        IgnoresAvailability(), RAGGED | JUDGED, "length must be within 0..0 (drafts available), got 1"
    ),
    "ignores availability of large batches": Defect(
        IgnoresAvailabilityOfLargeBatches(), {"test_ragged_availability"}, "request 3: 3 drafts"
    ),
    "negative": Defect(Negative(), RAGGED | JUDGED, "got -1"),
    "float lengths": Defect(FloatLengths(), PLAYED | JUDGED, "return .astype(np.int64)"),
    "wrong for longer blocks": Defect(NoBlockOfSix(), {"test_budget_respected"}, "got -1", {"gamma": 5}),
    "mutates the view": Defect(MutatesView(), {"test_pure", "test_lossless"}, "plan changed `view.available`"),
    "mutates the state": Defect(MutatesState(), {"test_pure", "test_lossless"}, "plan changed the state"),
    "wastes global randomness": Defect(WastesRandomness(), {"test_pure"}, "use `view.coin`"),
    "state without a value": Defect(
        OpaqueState(), {"test_state_comparable", "test_lossless"}, "Box cannot be compared"
    ),
    "state without a value in large batches": Defect(
        OpaqueStateOfLargeBatches(), {"test_state_comparable"}, "Box cannot be compared"
    ),
    "matches by slot": Defect(MatchesBySlot(), {"test_slot_equivariant"}, "match what you remember by `view.requests`"),
    "hides its lag": Defect(HidesItsLag(), {"test_lag_is_honest"}, "declares lag 1"),
    "says it never looks": Defect(NeverLooks(), {"test_lag_is_honest"}, "declares lag None"),
    "longer than its longest": Defect(UnderstatesLongest(), {"test_prefix_closed"}, "`longest(2)`, which returned 1"),
    "a split of its own": Defect(WorstFirst(), {"test_prefix_closed"}, "admits the best drafts"),
    "more than its budget": Defect(OffBudget(), PLAYED, "a budget of 1 was asked for and 2 drafts were admitted"),
    "a lag of a half": Defect(LagOfAHalf(), set(TESTS), "`lag` must be a whole number"),
    "an unknown safety": Defect(UnknownSafety(), set(TESTS), "`safety` must be safe, unsafe or unknown"),
    "a budget too large": Defect(TooLarge(), set(TESTS), "budget must be within 0..4 (drafts available), got 5"),
    "half a draft": Defect(FloatBudget(), set(TESTS), "budget must be a whole number of drafts, got 2.0"),
    "never admits": Defect(NeverAdmits(), {"test_lossless"}, "admitted no draft in any of"),
    "drops on later doubt": Defect(DropsOnLaterDoubt(1), JUDGED, "changes the output distribution (marginal law)"),
    "drops on later doubt in larger batches": Defect(DropsOnLaterDoubt(3), JUDGED, "breaks the row-wise rule"),
    # Beyond the four rows that `check` tries; the contract's own knob goes further.
    "drops on later doubt in the largest batches": Defect(
        DropsOnLaterDoubt(6), {"test_rules"}, "breaks the row-wise rule", {"rows": 8}
    ),
    "the fresh argmax": Defect(
        build_policy({"kind": "retrospective"}, unsafe=True), JUDGED, "changes the output distribution (marginal law)"
    ),
    # It is indifferent between rows whose drafts are acceptable alike, so it breaks those ties by row.
    "knows the outcomes": Defect(
        build_policy({"kind": "oracle"}, unsafe=True),
        JUDGED | {"test_slot_equivariant"},
        "changes the output distribution (marginal law)",
    ),
    "crashes without rows": Defect(Crashes(lambda view: view.rows == 0), {"test_zero_rows"}, "(0 rows)"),
    "crashes with many rows": Defect(Crashes(lambda view: view.rows > 99), {"test_many_rows"}, "(256 rows)"),
    "crashes with one row after a while": Defect(
        Crashes(lambda view: view.rows == 1, steps=12), {"test_one_row"}, "(1 rows)"
    ),
    "crashes at large ids": Defect(
        Crashes(lambda view: view.requests.max(initial=0) > 2**32), {"test_large_ids"}, "request 4611686018427387904"
    ),
    "crashes at zeros": Defect(
        Crashes(lambda view: view.drafted > 15 and not view.survival.any(), steps=3),
        {"test_all_zero_survivals"},
        "confidence (0.0, 0.0, 0.0, 0.0)",
    ),
    "crashes at ones": Defect(
        Crashes(lambda view: view.drafted > 15 and view.survival.all() and (view.survival == 1).all(), steps=3),
        {"test_all_one_survivals"},
        "confidence (1.0, 1.0, 1.0, 1.0)",
    ),
    "crashes without drafts in later steps": Defect(
        Crashes(lambda view: view.rows > 3 and 4 < view.step < 30 and not view.drafted),
        {"test_rows_without_drafts"},
        "0 drafts, confidence ()",
    ),
}
"""What the contract must catch. ``fails`` is exact: every other test passes; ``says`` is in one of the messages."""

IMPURE: dict[str, Policy] = {
    "reads a counter": ReadsACounter(),
    "draws without the coin": DrawsWithoutCoin(),
    "remembers on itself": RemembersOnItself(),
}
"""Policies whose answers depend on who asked before, so that other tests may fail as well."""

SAFE: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "autoregressive": ({"kind": "autoregressive"}, {"vacuous_ok": True}),
    "static": ({"kind": "static", "k": 2}, {"gamma": 3}),
    "threshold": ({"kind": "threshold", "t": 0.5}, {}),
    "threshold-survival": ({"kind": "threshold", "t": 0.3, "signal": "survival"}, {"rows": 6}),
    "greedy_early_stop": ({"kind": "greedy_early_stop"}, {}),
    "async_topk": ({"kind": "async_topk", "lag": 2}, {}),
    "async_topk-ema-mean": ({"kind": "async_topk", "lag": 1, "ema": 0.5, "joins": "mean"}, {}),
    "async_topk-mean": ({"kind": "async_topk", "lag": 1, "joins": "mean"}, {"seed": 3}),
    "async_topk-floor": ({"kind": "async_topk", "lag": 2, "min_len": 1, "joins": "none"}, {}),
    "async_topk-sizes": ({"kind": "async_topk", "lag": 1, "align": True, "min_gain": 0.05, "allowed": [2, 4, 8]}, {}),
}


def suite(policy: Any, **knobs: Any) -> PolicyContract:
    return type("TestIt", (PolicyContract,), {"policy": policy, "examples": 40, **knobs})()


def failures(contract: PolicyContract) -> dict[str, str]:
    found = {}
    for name in TESTS:
        try:
            getattr(contract, name)()
        except AssertionError as error:
            found[name] = str(error)
    return found


@pytest.mark.parametrize("name", SAFE)
def test_the_projects_own_policies_pass(name: str) -> None:
    spec, knobs = SAFE[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error", UndecidedByRule)
        assert failures(suite(build_policy(spec), **{"examples": 60, **knobs})) == {}


@pytest.mark.parametrize("policy", [Cautious(), Constant()], ids=["cautious", "constant"])
def test_the_bodies_of_the_defects_pass(policy: Policy) -> None:
    assert failures(suite(policy)) == {}


@pytest.mark.parametrize("name", BROKEN)
def test_a_defect_fails_the_tests_that_are_about_it(name: str) -> None:
    defect = BROKEN[name]
    found = failures(suite(defect.policy, **{"examples": 20, **defect.knobs}))
    assert set(found) == defect.fails
    assert any(defect.says in message for message in found.values()), found


def test_every_test_is_the_only_one_to_fail_for_some_defect() -> None:
    alone = {next(iter(defect.fails)) for defect in BROKEN.values() if len(defect.fails) == 1}
    assert alone == set(TESTS)


@pytest.mark.parametrize("name", IMPURE)
def test_an_impure_policy_is_caught(name: str) -> None:
    random.seed(0)
    found = failures(suite(IMPURE[name]))
    assert {"test_pure", "test_lossless"} <= set(found)
    assert "keep what is remembered in the state" in found["test_pure"] or "`view.coin`" in found["test_pure"]


@pytest.mark.deep
def test_undecided_by_rule_passes_with_a_warning() -> None:
    """The stopping set fails, exact laws find nothing: not accused, and not kept quiet either."""
    contract = suite(SpiesOnTheUnverified(), examples=20)
    with pytest.warns(UndecidedByRule, match="exact laws of 20 worlds found nothing"):
        contract.test_rules()
    contract.test_lossless()


def test_a_stopping_set_that_breaks_the_law_fails_the_rules() -> None:
    found = failures(suite(EachFollowsTheOther(), examples=200))
    assert set(found) == JUDGED
    assert "changes the output distribution (joint law)" in found["test_lossless"]
    assert "is undecided by rule" in found["test_rules"]
    assert "shows a wrong joint law" in found["test_rules"]


def test_a_counterexample_is_shown_as_a_table() -> None:
    message = failures(suite(build_policy({"kind": "retrospective"}, unsafe=True)))["test_lossless"]
    assert len(message.splitlines()) > 5


def test_own_token_worlds_accuse_a_threshold() -> None:
    """A confidence that saw its own draft is an unsafe world, so a threshold on it cannot be lossless there."""
    policy = build_policy({"kind": "threshold", "t": 0.5})
    assert set(failures(suite(policy, own_token=True))) == {"test_lossless"}


def test_the_policy_may_be_made_fresh() -> None:
    class ByMethod(PolicyContract):
        def policy(self) -> Policy:
            return Cautious()

    class ByProperty(PolicyContract):
        @property
        def policy(self) -> Policy:
            return Cautious()

    class ByClass(PolicyContract):
        policy = Cautious

    for contract in (ByMethod(), ByProperty(), ByClass()):
        contract.test_pure()


def test_no_policy_is_told_so() -> None:
    with pytest.raises(AssertionError, match="set `policy` of PolicyContract"):
        PolicyContract().test_pure()


def run_pytest(folder: Path, name: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", name]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_the_guides_test_file_passes(tmp_path: Path) -> None:
    """The guide's policy and its test file, as printed, in a folder of their own."""
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "my_policy.py").write_text(next(block for block in blocks if "class CountLikely" in block))
    (tmp_path / "test_my_policy.py").write_text(next(block for block in blocks if "PolicyContract" in block))
    done = run_pytest(tmp_path, "test_my_policy.py")
    assert done.returncode == 0, done.stdout
    assert f"{len(TESTS)} passed" in done.stdout


def test_a_failure_in_a_users_file_is_readable(tmp_path: Path) -> None:
    (tmp_path / "test_theirs.py").write_text(
        "import numpy as np\n"
        "from specsched.policies import Policy\n"
        "from specsched.policies.testing import PolicyContract\n\n"
        "class Whole(Policy):\n"
        "    lag = None\n"
        "    def plan(self, view, state):\n"
        "        return np.full(view.rows, view.confidence.shape[1]), state\n\n"
        "class TestWhole(PolicyContract):\n"
        "    policy = Whole()\n"
        "    examples = 20\n"
    )
    done = run_pytest(tmp_path, "test_theirs.py")
    assert done.returncode == 1
    failed = set(re.findall(r"^FAILED .*::(\w+)", done.stdout, re.MULTILINE))
    assert failed == RAGGED | JUDGED
    assert "length must be within 0..0 (drafts available), got 4; clip to `view.available`" in done.stdout
