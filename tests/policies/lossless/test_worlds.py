from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest

from specsched.policies.lossless.worlds import RowPlan, World, WorldCost, WorldError, appendix_a

from .random_worlds import coupled_rows

HALF = Fraction(1, 2)
WORLD = replace(appendix_a(2), rows=(RowPlan(), RowPlan()), seconds=(1.0, 1.1, 1.2, 1.3, 1.4, 1.5))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vocabulary": 1}, "`vocabulary` of a world must be at least 2, got 1"),
        ({"gamma": 0}, "`gamma` of a world must be at least 1, got 0"),
        ({"tokens": 0}, "`tokens` of a world must be at least 1, got 0"),
        ({"rows": ()}, "a world needs at least one row"),
        ({"rows": (RowPlan(first_block=-1),)}, "row 0: `first_block` must be at least 0 and `anchor` a token, got"),
        ({"rows": (RowPlan(), RowPlan(anchor=2))}, "row 1: `first_block` must be at least 0 and `anchor` a token"),
        ({"rows": (RowPlan(), RowPlan(length=0))}, "row 1: `length` must be at least 1 or None, got 0"),
        ({"rows": (RowPlan(available=(1, 3)),)}, r"row 0: `available` must be within 0\.\.2, got \(1, 3\)"),
        ({"rows": (RowPlan(available=(-1,)),)}, r"row 0: `available` must be within 0\.\.2, got \(-1,\)"),
        ({"target": WORLD.target * 3}, "`target` must hold one entry, or one for each of 2 rows; got 3"),
        ({"draft": (WORLD.draft[0] * 3,)}, "`draft`: one entry, or one for each of 2 tokens; got 3"),
        ({"draft": (((HALF, HALF, Fraction(0)),),)}, "`draft` must hold 2 numbers that sum to 1, got"),
        ({"target": (((HALF, Fraction(1, 3)),),)}, "`target` must hold 2 numbers that sum to 1, got"),
        ({"target": (((Fraction(3, 2), -HALF),),)}, "`target` must hold 2 numbers that sum to 1, got"),
        ({"confidence": (((0.5, 0.5),),)}, r"`confidence` must hold 3 numbers within \[0, 1\], got \(0\.5, 0\.5\)"),
        ({"confidence": (((0.5, 0.5, 1.5),),)}, r"`confidence` must hold 3 numbers within \[0, 1\], got"),
        ({"confidence": (((0.5, 0.5, float("nan")),),)}, r"`confidence` must hold 3 numbers within \[0, 1\], got"),
        ({"own_token": True}, r"`confidence` must hold 6 numbers within \[0, 1\], got"),
        ({"seconds": (1.0,) * 5}, r"`seconds` must hold 6 finite times above 0 \(1 \.\. 6 tokens\)"),
        ({"seconds": (0.0,) * 6}, "`seconds` must hold 6 finite times above 0"),
        ({"seconds": (float("inf"),) * 6}, "`seconds` must hold 6 finite times above 0"),
        ({"sizes": (2, 2)}, r"`sizes` must ascend from at least 1, got \(2, 2\)"),
        ({"sizes": (0, 2)}, r"`sizes` must ascend from at least 1, got \(0, 2\)"),
        ({"coins": ()}, r"`coins` must be values in \[0, 1\), at least one, got \(\)"),
        ({"coins": (0.5, 1.0)}, r"`coins` must be values in \[0, 1\), at least one, got \(0\.5, 1\.0\)"),
        ({"end": 2}, "`end` must be a token below 2 or None, got 2"),
    ],
)
def test_a_world_that_contradicts_itself_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(WorldError, match=message):
        replace(WORLD, **change)


@pytest.mark.parametrize("vocabulary", [2, 3])
def test_prefixes_are_listed_shorter_ones_first_then_as_digits(vocabulary: int) -> None:
    ordered = [prefix for depth in range(4) for prefix in product(range(vocabulary), repeat=depth)]
    world = tree_of(vocabulary, own_token=False)
    assert [world.node(prefix) for prefix in ordered if len(prefix) < 3] == list(range(world.tree))
    assert world.tree == 1 + vocabulary + vocabulary**2
    world = tree_of(vocabulary, own_token=True)
    assert [world.node(prefix) for prefix in ordered if prefix] == list(range(world.tree))
    assert world.tree == vocabulary + vocabulary**2 + vocabulary**3


def tree_of(vocabulary: int, own_token: bool) -> World:
    """A world whose confidences are their own places in the tree, in hundredths."""
    even = ((Fraction(1, vocabulary),) * vocabulary,)
    nodes = sum(vocabulary**depth for depth in (range(1, 4) if own_token else range(3)))
    return World(
        vocabulary=vocabulary,
        gamma=3,
        tokens=1,
        rows=(RowPlan(),),
        target=(even,),
        draft=(even,),
        confidence=((tuple(place / 100 for place in range(nodes)),),),
        seconds=(1.0,) * 4,
        own_token=own_token,
    )


def test_confidences_follow_the_drafts_before_them() -> None:
    # Vocabulary 2: (), 0, 1, 00, 01, 10, 11 have the places 0 to 6.
    world = tree_of(2, own_token=False)
    assert world.confidences(0, 0, (0, 0, 0)) == (0.00, 0.01, 0.03)
    assert world.confidences(0, 0, (1, 0, 1)) == (0.00, 0.02, 0.05)
    assert world.confidences(0, 1, (1, 1)) == (0.00, 0.02)
    # With the draft's own token: 0, 1, 00, 01, 10, 11, 000 to 111 have the places 0 to 13.
    world = tree_of(2, own_token=True)
    assert world.confidences(0, 0, (1, 0, 1)) == (0.01, 0.04, 0.11)
    assert world.confidences(0, 0, ()) == ()


def test_single_entries_stand_for_all() -> None:
    first, second, third, fourth = ((Fraction(k, 10), Fraction(10 - k, 10)) for k in (1, 2, 3, 4))
    world = replace(WORLD, target=((first, second), (third, fourth)), draft=((first, second),))
    assert [world.target_at(row, last) for row in (0, 1) for last in (0, 1)] == [first, second, third, fourth]
    assert [world.draft_at(row, last) for row in (0, 1) for last in (0, 1)] == [first, second, first, second]
    world = replace(WORLD, target=((first,), (second,)), draft=((third,),))
    assert [world.target_at(row, last) for row in (0, 1) for last in (0, 1)] == [first, first, second, second]
    assert [world.draft_at(row, last) for row in (0, 1) for last in (0, 1)] == [third] * 4


def test_when_rows_have_drafts() -> None:
    plans = (RowPlan(), RowPlan(first_block=2, available=(2, 0, 1)), RowPlan(first_block=1, available=(1,)))
    world = replace(WORLD, rows=plans, seconds=(1.0,) * 9)
    assert [plan.admitted for plan in plans] == [0, 1, 0]
    assert [world.available(0, step) for step in range(3)] == [2, 2, 2]
    assert [world.available(1, step) for step in range(1, 7)] == [0, 2, 0, 1, 1, 1]
    assert [world.available(2, step) for step in range(3)] == [0, 1, 1]


def test_how_many_tokens_are_compared() -> None:
    world = replace(WORLD, tokens=3, rows=(RowPlan(), RowPlan(length=2), RowPlan(length=5)), seconds=(1.0,) * 9)
    assert [world.compared(row) for row in range(3)] == [3, 2, 3]


def test_the_cost_of_a_world() -> None:
    cost = WorldCost((1.0, 2.0, 4.0), sizes=(2, 3))
    assert cost.table(1).tolist() == [1.0, 1.0, 2.0, 4.0]
    assert cost.listed(1, 1, 1) == (1.0, 2.0)
    assert [cost.padded(tokens) for tokens in (1, 2, 3, 4)] == [2, 2, 3, 4]
    assert WorldCost((1.0, 2.0)).padded(1) == 1
    with pytest.raises(ValueError, match="read-only"):
        cost.table(1)[0] = 0.0


def test_appendix_a_has_the_paper_s_throughputs() -> None:
    world = appendix_a()
    seconds = world.cost.table(1)
    theta = {tokens: [] for tokens in ((0, 0), (1, 0))}  # type: dict[tuple[int, int], list[float]]
    for drafted, found in theta.items():
        survival = np.cumprod(world.confidences(0, 0, drafted))
        found += [(1 + survival[:admitted].sum()) / seconds[1 + admitted] for admitted in range(3)]
    assert theta[0, 0] == pytest.approx([1.0, 0.9, 1.134])
    assert theta[1, 0] == pytest.approx([1.0, 0.9, 0.81])


def test_coupled_rows_show_their_drafts() -> None:
    world = coupled_rows()
    assert [world.confidences(row, 0, (token,)) for row in (0, 1) for token in (0, 1)] == [(1.0,), (0.0,)] * 2
