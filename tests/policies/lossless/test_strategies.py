"""What the worlds of the search hold: every kind of confidence, cost, block and history turns up."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from specsched.policies.lossless.strategies import Size, worlds
from specsched.policies.lossless.worlds import World


def drawn(size: Size, own_token: bool = False, count: int = 300) -> list[World]:
    """Worlds as the search sees them."""
    found: list[World] = []

    @settings(
        max_examples=count,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        deadline=None,
    )
    @given(worlds(size, own_token))
    def draw(world: World) -> None:
        found.append(world)

    draw()
    return found


@pytest.mark.parametrize("size", [Size(1, 2, 2, 3), Size(2, 2, 2, 3), Size(1, 3, 3, 3)], ids=str)
def test_every_kind_of_world_turns_up(size: Size) -> None:
    seen: Counter[str] = Counter()
    for world in drawn(size):
        values = [c for by_anchor in world.confidence for tree in by_anchor for c in tree]
        steps = [after - before for before, after in pairwise(world.seconds)]
        facts = {
            "a confidence of 0": 0.0 in values,
            "a confidence of 1": 1.0 in values,
            "ties": len(set(values)) < len(values),
            "all alike": len(set(values)) == 1,
            "many digits": any(round(c, 4) != c for c in values),
            "flat in places": 0.0 in steps,
            "a cliff": max(steps) > 0.2,
            "a falling cost": min(steps) < 0.0,
            "captured sizes": bool(world.sizes),
            "nothing captured": not world.sizes,
            "coins": len(world.coins) > 1,
            "an end token": world.end is not None,
            "a row that joins": any(plan.first_block > 0 for plan in world.rows),
            "a row that leaves": any(plan.length is not None for plan in world.rows),
            "ragged blocks": any(len(set(plan.available)) > 1 for plan in world.rows),
            "no drafts at all": any(plan.available and max(plan.available) == 0 for plan in world.rows),
            "anchors": any(plan.anchor for plan in world.rows),
            "a target that depends on the token before": len(world.target[0]) > 1,
            "a draft that depends on the token before": len(world.draft[0]) > 1,
            "confidences by anchor": len(world.confidence[0]) > 1,
            "a token that never comes": any(0 in law for table in world.target for law in table),
            "one token": world.tokens == 1,
            "as many tokens as allowed": world.tokens == size.tokens,
        }
        if size.rows > 1:
            facts["rows unlike each other"] = len(world.confidence) > 1 or len(world.target) > 1
            facts["rows of different lengths"] = len({plan.length for plan in world.rows}) > 1
        assert (len(world.rows), world.vocabulary, world.gamma) == (size.rows, size.vocabulary, size.gamma)
        seen.update({name: int(fact) for name, fact in facts.items()})
    assert {name for name, count in seen.items() if count < 3} == set()


def test_own_token_worlds_show_the_draft_itself() -> None:
    found = drawn(Size(1, 2, 1, 1), own_token=True, count=60)
    assert all(world.own_token and len(world.confidence[0][0]) == 2 for world in found)
    assert any(world.confidences(0, 0, (0,)) != world.confidences(0, 0, (1,)) for world in found)


def test_the_simplest_world_is_where_shrinking_leads() -> None:
    first = drawn(Size(2, 2, 2, 3), count=1)[0]
    assert first.tokens == 1
    assert {(plan.first_block, plan.length, plan.available) for plan in first.rows} == {(0, None, ())}
