"""The search for counterexamples: broken schedulers and decoders are caught, safe ones are not accused."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from specsched.policies import Ints, Policy, PolicyError, View, build_policy
from specsched.policies.lossless.checker import Report, check, check_pure, search, shares, sizes_for
from specsched.policies.lossless.decoders import BROKEN_DECODERS, RIGHT
from specsched.policies.lossless.exact import law
from specsched.policies.lossless.length_maps import length_map, row_wise
from specsched.policies.lossless.strategies import Size
from specsched.policies.lossless.worlds import World, appendix_a
from specsched.policies.threshold import Threshold
from tests.parts import deep_except, deep_of

from .broken import BROKEN, SAFE

# Smaller than what `specsched check` runs, and in the same order: the smallest world first.
FEW = (
    (Size(1, 2, 1, 3), 40),
    (Size(1, 2, 2, 3), 400),
    (Size(2, 2, 2, 2), 150),
    (Size(1, 2, 4, 3), 400),
)
LONG_SEARCHES = [
    "parallel float32 product",
    "min_len or nothing",
    "ties to the later position, count",
    "ties to the later position, max",
    "budget from another row",
]
"""Rare mistakes, found after thousands of worlds; the rules see all of them at once (`test_rules`)."""
SHIPPED = [
    "static 1",
    "static 2",
    "threshold on c",
    "threshold on a",
    "greedy early stop",
    *(name for name in SAFE if name.startswith("async_topk")),
]


def extent(world: World) -> tuple[int, int, int, int]:
    return len(world.rows), world.vocabulary, world.gamma, world.tokens


@pytest.mark.parametrize("name", deep_of(LONG_SEARCHES, BROKEN))
def test_every_broken_scheduler_is_caught(name: str) -> None:
    broken = BROKEN[name]
    found = search(broken.policy, FEW, own_token=broken.own_token).counterexample
    assert found is not None
    assert found.law.verdict == broken.law
    # The verdict is the world's own, found again apart from the search, and the scheduler's, not the decoder's.
    assert law(found.world, broken.policy).joint_tv == found.law.joint_tv > 0


def test_the_paper_s_counterexample_is_found_and_shrunk() -> None:
    found = search(build_policy({"kind": "retrospective"}, unsafe=True), FEW).counterexample
    assert found is not None
    assert all(ours <= papers for ours, papers in zip(extent(found.world), extent(appendix_a()), strict=True))
    # c2 tells x1 apart, as in the paper.
    assert any(tree[1] != tree[2] for by_anchor in found.world.confidence for tree in by_anchor)
    assert row_wise(length_map(BROKEN["same-step argmax"].policy, found.world)) is not None


@pytest.mark.parametrize(
    "name", deep_of(["draft and residual share a uniform", "accept and residual share a uniform"], BROKEN_DECODERS)
)
def test_every_broken_decoder_is_caught(name: str) -> None:
    policy = Threshold(0.5)
    sizes = (*FEW[:2], (Size(1, 3, 1, 2), 40))
    found = search(policy, sizes, BROKEN_DECODERS[name]).counterexample
    assert found is not None
    assert law(found.world, policy, BROKEN_DECODERS[name]).marginal_tv > 0
    assert law(found.world, policy, RIGHT).joint_tv == 0


@pytest.mark.parametrize(
    "name",
    deep_except(
        ["threshold on c", "greedy early stop", "async_topk lag 1, min_len", "async_topk lag 2, joins optimistic"],
        SHIPPED,
    ),
)
def test_safe_schedulers_are_not_accused_and_not_idle(name: str) -> None:
    report = check(SAFE[name], examples=300)
    assert report.verdict == "lossless", report.counterexample
    assert report.worlds > 250
    assert sum(tally.admitted for tally in report.tallies) > 50
    if not name.startswith("static"):
        assert sum(tally.split for tally in report.tallies) > 5
        # Few sizes are allowed, and two generations pass before a budget reads one.
        assert sum(tally.varied for tally in report.tallies) > 0 or name == "async_topk lag 2, allowed"


@pytest.mark.parametrize("name", [name for name in SAFE if name not in (*SHIPPED, "autoregressive")])
def test_look_alikes_are_not_accused(name: str) -> None:
    assert search(SAFE[name], [(size, 25) for size, _ in FEW]).counterexample is None


def test_a_scheduler_that_never_verifies_is_vacuous_not_lossless() -> None:
    assert check(SAFE["autoregressive"], examples=60).verdict == "vacuous"
    assert check(build_policy({"kind": "static", "k": 0}), examples=60).verdict == "vacuous"


@dataclass(frozen=True)
class OneBySecondOfTheOther(Policy):
    """Row 2 is never verified and decides about row 1: breaks the stopping-set rule, keeps the law."""

    def plan(self, view: View, state: Any) -> tuple[Ints, Any]:
        lengths = np.zeros(view.rows, np.int64)
        if view.rows > 1 and view.available[0]:
            lengths[0] = view.confidence[1, 1:2].sum() > 0.5
        return lengths, state


def test_a_failure_of_the_stopping_set_alone_is_undecided() -> None:
    report = check(OneBySecondOfTheOther(), examples=100)
    assert report.rules.row_wise is None
    assert report.rules.stopping_set is not None
    assert report.counterexample is None
    assert report.verdict == "undecided"


def test_the_same_seed_gives_the_same_report_and_another_seed_other_worlds() -> None:
    policy = SAFE["async_topk lag 1, joins optimistic"]
    report = check(policy, 100)
    assert check(policy, 100) == report
    assert check(policy, 100, seed=1).tallies != report.tallies
    broken = BROKEN["same-step argmax"].policy
    assert search(broken, FEW) == search(broken, FEW)


def test_tallies_add_up_and_progress_is_told() -> None:
    told: list[tuple[int, int]] = []
    report = check(SAFE["greedy early stop"], 200, progress=lambda done, total: told.append((done, total)))
    assert [done for done, _ in told] == list(range(1, report.worlds + 1))
    assert {total for _, total in told} == {sum(n for _, n in shares(sizes_for(SAFE["greedy early stop"]), 200))}
    for tally in report.tallies:
        assert tally.worlds >= tally.admitted >= tally.split >= 0
        assert tally.split >= tally.varied or tally.rows > 1


def test_worlds_too_large_are_counted_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specsched.policies.lossless.checker.LIMIT", 20)
    found = search(SAFE["greedy early stop"], [(Size(1, 2, 2, 3), 40)])
    (tally,) = found.tallies
    assert tally.too_large > 0
    assert 0 < tally.worlds < 40


def test_sizes_follow_the_lag() -> None:
    def followed(lag: int) -> int:
        return sizes_for(build_policy({"kind": "async_topk", "lag": lag}))[0][0].tokens

    assert [followed(lag) for lag in (1, 2, 3, 8, 20)] == [3, 4, 5, 10, 10]
    for lag in (1, 3):
        assert sum(share for _, share in sizes_for(build_policy({"kind": "async_topk", "lag": lag}))) == pytest.approx(
            1
        )


@dataclass(frozen=True)
class Counts(Policy):
    """Answers by how often it was asked."""

    asked: list[int]

    def plan(self, view: View, state: Any) -> tuple[Ints, Any]:
        self.asked.append(1)
        return np.minimum(view.available, len(self.asked) % 2), state


@dataclass(frozen=True)
class WritesItsState(Policy):
    """Changes the state it was given."""

    def start(self) -> Any:
        return [0]

    def plan(self, view: View, state: Any) -> tuple[Ints, Any]:
        state[0] += 1
        return np.zeros(view.rows, np.int64), state


@dataclass(frozen=True)
class SetsItsState(Policy):
    """Writes into the state what a second call would write again, so that asking twice does not show it."""

    def start(self) -> Any:
        return {}

    def plan(self, view: View, state: Any) -> tuple[Ints, Any]:
        likely = sum(state.get((view.step - 1, request), 1.0) >= 0.4 for request in view.requests.tolist())
        state.update({(view.step, request): row[-1] for request, row in _by_request(view)})
        return np.minimum(view.available, likely), state


@dataclass(frozen=True)
class RemembersByStep(Policy):
    """Remembers in itself, by step: the same answer twice in a row, another one after another history."""

    seen: dict[tuple[int, int], float]

    def plan(self, view: View, state: Any) -> tuple[Ints, Any]:
        likely = sum(self.seen.get((view.step - 1, request), 1.0) >= 0.4 for request in view.requests.tolist())
        self.seen.update({(view.step, request): row[-1] for request, row in _by_request(view)})
        return np.minimum(view.available, likely), state


@dataclass(frozen=True)
class WritesTheView(Policy):
    """Gives itself drafts by writing into the view; in a run the array is read-only."""

    def plan(self, view: View, state: Any) -> tuple[Ints, Any]:
        view.available[:] = 1
        return view.available, state


@dataclass(frozen=True)
class ExitsAtStart(Policy):
    """Ends the interpreter, with the exit code of success."""

    def start(self) -> Any:
        raise SystemExit(0)

    def plan(self, view: View, state: Any) -> tuple[Ints, Any]:
        return np.zeros(view.rows, np.int64), state


def _by_request(view: View) -> Iterable[tuple[int, list[float]]]:
    return zip(view.requests.tolist(), view.survival.tolist(), strict=True)


@dataclass(frozen=True)
class OverAdmits(Policy):
    """Asks for drafts that do not exist."""

    def plan(self, view: View, state: Any) -> tuple[Ints, Any]:
        return view.available + 1, state


@dataclass(frozen=True)
class Opaque(Policy):
    """Keeps a state that has no value."""

    def start(self) -> Any:
        return object()

    def plan(self, view: View, state: Any) -> tuple[Ints, Any]:
        return np.zeros(view.rows, np.int64), state


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (Counts([]), r"`Counts` at step \d: asked twice with the same view and state .* must be a pure function"),
        (WritesItsState(), r"`WritesItsState` at step 0: plan changed the state it was given; return a new one"),
        (SetsItsState(), r"`SetsItsState` at step 0: plan changed the state it was given; return a new one"),
        (RemembersByStep({}), r"`RemembersByStep` at step \d: asked again .*, after other histories, it returned"),
        (WritesTheView(), r"`WritesTheView` at step 0: plan changed `view\.available`; work on a copy"),
        (ExitsAtStart(), r"`ExitsAtStart` failed to start: SystemExit: 0"),
        (OverAdmits(), r"`OverAdmits` at step 0, row 0 .*: length must be within 0\.\."),
        (Opaque(), r"a policy state of type object cannot be compared; build states from"),
        (replace(SAFE["greedy early stop"]), None),
    ],
)
def test_nonsense_is_an_error_not_a_verdict(policy: Policy, message: str | None) -> None:
    if message is None:
        check_pure(policy)
        return
    with pytest.raises(PolicyError, match=message):
        check(policy, examples=20)


def test_a_policy_that_fails_in_one_world_only_is_an_error() -> None:
    @dataclass(frozen=True)
    class Fails(Policy):
        def plan(self, view: View, state: Any) -> tuple[Ints, Any]:
            if view.rows and view.confidence.shape[1] == 2 and view.confidence[0, 0] == 0.0:
                raise ZeroDivisionError("by the first confidence")
            return np.zeros(view.rows, np.int64), state

    with pytest.raises(PolicyError, match=r"failed at step .*by the first confidence"):
        check(Fails(), examples=300)


def test_report_verdicts() -> None:
    clean = check(SAFE["greedy early stop"], 30)
    rules = replace(clean.rules, applicable=False)
    assert Report("x", rules, clean.search).verdict == "undecided"
    broken = search(BROKEN["budget from another row"].policy, FEW)
    assert Report("x", clean.rules, broken).verdict == "joint"
