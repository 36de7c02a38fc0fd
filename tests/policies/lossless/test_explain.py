"""Explanations: the printed tables alone give the exact law, read like the paper's example, and name the fault."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specsched.policies import Ints, Policy, View, build_policy
from specsched.policies.lossless.decoders import BROKEN_DECODERS
from specsched.policies.lossless.exact import law
from specsched.policies.lossless.explain import SHOWN, explain
from specsched.policies.lossless.explain_text import explanation_lines, path_grid
from specsched.policies.lossless.explanation import Explanation
from specsched.policies.lossless.notation import drafted, letters, number
from specsched.policies.lossless.strategies import Size, worlds
from specsched.policies.lossless.worlds import RowPlan, appendix_a

from .random_worlds import coupled_rows

HALF = Fraction(1, 2)


def shipped(kind: str) -> Policy:
    return build_policy({"kind": kind}, unsafe=True)


@dataclass(frozen=True)
class EachOther(Policy):
    """Verifies a row iff the other row's draft is likely: every marginal is right, the joint law is not."""

    def plan(self, view: View, state: Any) -> tuple[Ints, Any]:
        wanted = np.zeros(view.rows, np.int64)
        if view.rows == 2:
            wanted = (view.confidence[::-1, 0] > 0.5).astype(np.int64)
        return np.minimum(wanted, view.available), state


@dataclass(frozen=True)
class CoinAndSelf(Policy):
    """A same-step choice that a coin may replace by verifying nothing."""

    def plan(self, view: View, state: Any) -> tuple[Ints, Any]:
        lengths = np.where(view.confidence.min(axis=1) > 0, view.available, 0)
        return (lengths if view.coin < 0.5 else np.zeros(view.rows, np.int64)), state


@dataclass(frozen=True)
class EvenSteps(Policy):
    """Verifies one draft in even steps and none in odd ones."""

    def plan(self, view: View, state: Any) -> tuple[Ints, Any]:
        return np.minimum(1 - view.step % 2, view.available), state


def recomputed(data: dict[str, Any]) -> dict[tuple[str, ...], Fraction]:
    """Return the outcomes' probabilities from the factors of the written paths."""
    found: defaultdict[tuple[str, ...], Fraction] = defaultdict(Fraction)
    for path in data["paths"]:
        factors = [Fraction(step["coin_share"]) for step in path["steps"]]
        for row in [row for step in path["steps"] for row in step["rows"]]:
            share = Fraction(row["share"])
            if row["emitted"] is not None:
                assert sum(Fraction(way["probability"]) for way in row["ways"]) == share
            factors += [Fraction(row["probability"]), share]
        assert prod(factors) == Fraction(path["probability"])
        found[tuple(path["outcome"])] += prod(factors)
    return found


def written(explanation: Explanation) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(json.dumps(explanation.to_json()))
    return data


def test_appendix_a_reads_like_the_paper() -> None:
    found = explain(appendix_a(), shipped("retrospective"))
    text = "\n".join(explanation_lines(found))
    heads, rows = path_grid(found)
    table = [dict(zip(heads, row, strict=True)) for row in rows]
    assert [(row["drafted"], row["p"], row["verify"], row["emits"], row["p'"]) for row in table] == [
        ("x1 = A", "1/2", "2", "A", "1"),
        ("x1 = B", "1/2", "0", "A", "7/10"),
        ("x1 = B", "1/2", "0", "B", "3/10"),
    ]
    assert [row["Theta(0, 1, ..)"] for row in table] == ["1 0.9 1.134", "1 0.9 0.81", "1 0.9 0.81"]
    assert [row["how"] for row in table] == ["A accepted", "A bonus", "B bonus"]
    assert "c1 = 0.8; c2 = 0.9 after A, 0 after B" in text
    assert "SPS 1, 0.5, 0.45" in text
    assert "1/2 + 1/2 * 7/10 = 17/20 instead of 7/10" in text
    assert found.reason == (
        "Row 0's draft 1 is verified if x1 = A and refused if x1 = B, so whether it is verified depends on its own "
        "value."
    )


@pytest.mark.parametrize(("tokens", "distance"), [(1, "3/20"), (2, "63/400"), (3, "1281/8000")])
def test_the_law_of_appendix_a(tokens: int, distance: str) -> None:
    data = written(explain(appendix_a(tokens), shipped("retrospective")))
    assert (data["verdict"], data["laws"][0]["total_variation"]) == ("marginal", distance)
    line = data["accused"]
    assert recomputed(data)[tuple(line["outcome"])] + Fraction(data["hidden"]["probability"]) == Fraction(
        line["scheduler"]
    )


def test_the_oracle_is_told_that_it_knows() -> None:
    found = explain(replace(appendix_a(), seconds=(1.0, 1.0, 1.0)), shipped("oracle"))
    assert (found.accused.outcome, found.accused.scheduler) == (("B",), Fraction(9, 25))
    assert "knows which drafts would be accepted" in found.reason


def test_coupled_rows_keep_both_marginals() -> None:
    found = explain(coupled_rows(), EachOther())
    joint, *single = found.laws
    assert found.verdict == "joint"
    assert (found.accused.outcome, found.accused.scheduler, found.accused.target) == (
        ("B", "B"),
        Fraction(9, 80),
        Fraction(9, 100),
    )
    assert joint.total_variation == Fraction(9, 200)
    assert [table.total_variation for table in single] == [0, 0]
    assert "row 0's unverified draft 1 decides about row 1" in found.reason.lower()
    assert "row 1's unverified draft 1 decides about row 0" in found.reason.lower()


@dataclass(frozen=True)
class IfEqual(Policy):
    """Verifies row 1, and row 0 iff both drafts are equal: half of the time either error, so its marginal is right."""

    def plan(self, view: View, state: Any) -> tuple[Ints, Any]:
        wanted = np.ones(view.rows, np.int64)
        if view.rows == 2:
            wanted[0] = view.confidence[0, 0] == view.confidence[1, 0]
        return np.minimum(wanted, view.available), state


def test_errors_that_cancel_in_the_marginal_are_blamed_on_the_row_not_on_the_decoder() -> None:
    found = explain(coupled_rows(), IfEqual())
    assert found.verdict == "joint"
    assert "decoder" not in found.reason
    assert found.reason.startswith("Row 0's draft 1 is verified if x1 = ")
    assert "while row 1 drafts x1 = " in found.reason
    assert found.reason.endswith("depends on its own value.")


def test_one_coupled_row_is_no_fault() -> None:
    found = explain(coupled_rows(), shipped("autoregressive"))
    assert found.verdict == "lossless"
    assert "Nothing goes wrong" in found.reason


def test_coins_are_written_with_their_share() -> None:
    world = replace(appendix_a(), coins=(0.25, 0.75))
    found = explain(world, CoinAndSelf())
    coins = {(step.coin, step.coin_share) for path in found.paths for step in path.steps}
    assert coins == {(0.25, HALF), (0.75, HALF)}
    assert "coin" in path_grid(found)[0]
    assert recomputed(written(found))["A",] == law(world, CoinAndSelf()).rows[0][(0,)] == Fraction(31, 40)


@pytest.mark.parametrize("name", BROKEN_DECODERS)
def test_a_broken_decoder_is_blamed_on_the_decoder(name: str) -> None:
    laws = [tuple(Fraction(weight, 10) for weight in each) for each in [(4, 4, 2), (2, 2, 6)]]
    world = replace(
        appendix_a(2),
        vocabulary=3,
        target=((laws[0], laws[1], laws[1]),),
        draft=((laws[1], laws[0], laws[1]),),
        confidence=(((0.8, 0.9, 0.0, 0.5),),),
    )
    policy = EvenSteps()
    assert law(world, policy).verdict == "lossless"
    found = explain(world, policy, BROKEN_DECODERS[name])
    assert found.verdict == "marginal"
    assert f"the decoder's (`{name}`)" in found.reason


def test_the_blamed_step_is_the_one_that_goes_wrong() -> None:
    """A row whose first block comes in step 1 goes wrong there; what it emitted before is told."""
    world = replace(appendix_a(2), rows=(RowPlan(first_block=1),))
    reason = explain(world, shipped("retrospective")).reason
    assert reason.startswith("In step 1, after row 0 emitted ")


def test_many_paths_are_cut_and_the_rest_is_summed() -> None:
    world = replace(appendix_a(8), target=(((HALF, HALF),),))
    found = explain(world, shipped("retrospective"))
    data = written(found)
    assert len(found.paths) == SHOWN
    assert found.hidden.accused > 0
    assert found.hidden.others > 0
    line = data["accused"]
    shown = recomputed(data)
    assert list(shown) == [tuple(line["outcome"])]
    assert sum(shown.values()) + Fraction(data["hidden"]["probability"]) == Fraction(line["scheduler"])
    assert f"Not shown: {found.hidden.accused} more paths" in "\n".join(explanation_lines(found))


@pytest.mark.parametrize("size", [Size(1, 2, 2, 2), Size(1, 3, 2, 2), Size(2, 2, 1, 2)], ids=str)
@pytest.mark.parametrize("kind", ["retrospective", "oracle", "greedy_early_stop", "each other", "coin"])
def test_tables_give_the_exact_law(size: Size, kind: str) -> None:
    policy = {"each other": EachOther(), "coin": CoinAndSelf()}.get(kind) or shipped(kind)
    biased = 0

    @settings(max_examples=15, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.booleans().flatmap(lambda own: worlds(size, own)))
    def check(world: Any) -> None:
        nonlocal biased
        found = explain(world, policy)
        exact = law(world, policy)
        data = written(found)
        shown = recomputed(data)
        watched = exact.joint if len(found.watched) > 1 else exact.rows[found.watched[0]]
        expected = {
            tuple(map(letters, key if len(found.watched) > 1 else (key,))): mass for key, mass in watched.items()
        }
        accused = found.accused.outcome
        assert shown.get(accused, 0) + found.hidden.probability == expected.get(accused, 0)
        if found.hidden.counted and not found.hidden.accused and not found.hidden.others:
            assert shown == {key: mass for key, mass in expected.items() if mass}
        if exact.verdict != "lossless":
            biased += 1
            assert "decoder" not in found.reason
        assert explanation_lines(found)

    check()
    if kind in ("retrospective", "oracle"):
        assert biased > 0


def test_groups_are_described_by_what_tells_them_apart() -> None:
    every = {(a, b) for a in range(2) for b in range(2)}
    assert drafted(every, every) == "any"
    assert drafted({(0, 0), (0, 1)}, every) == "x1 = A"
    assert drafted({(0, 1), (1, 0)}, every) == "x1 x2 = AB or BA"
    assert drafted({()}, {()}) == "-"


@pytest.mark.parametrize(("value", "text"), [(0.8, "0.8"), (0.0, "0"), (0.75591081, "0.75591081"), (1.0, "1")])
def test_confidences_are_written_in_full(value: float, text: str) -> None:
    assert number(value) == text
    assert float(number(value)) == value
