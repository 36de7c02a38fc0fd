"""Each broken scheduler in a small world that shows its bias, beside the one that does it right.

Unless a world says otherwise, p_t = (7/10, 3/10) and p_d = (1/2, 1/2) over the tokens A, B. Then a draft A is always
accepted and a draft B with probability 3/5, else A is emitted. Two figures recur. *Verified iff A*: Pr(A) = 1/2 + 1/2 *
7/10 = 17/20. *Verified iff B*: Pr(A) = 1/2 * 7/10 + 1/2 * 2/5 = 11/20. Either is 3/20 away from 7/10.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from specsched.policies import Policy
from specsched.policies.lossless.exact import ExactLaw, law
from specsched.policies.lossless.worlds import RowPlan, World, appendix_a
from tests.policies.worlds import view

from .broken import BROKEN, SAFE, TiesToLater, hillis_steele

PT = (Fraction(7, 10), Fraction(3, 10))
PD = (Fraction(1, 2), Fraction(1, 2))


def world(confidence: Any, gamma: int = 2, rows: int = 1, **fields: Any) -> World:
    """A world of the recurring laws and a flat cost; ``confidence`` is one row's values, or those of each row."""
    each = confidence if isinstance(confidence[0], tuple) else (confidence,)
    flat = (1.0,) * (rows * (1 + gamma))
    plain: dict[str, Any] = {
        "vocabulary": 2,
        "tokens": 1,
        "rows": (RowPlan(),) * rows,
        "target": ((PT,),),
        "draft": ((PD,),),
        "seconds": flat,
    }
    return World(gamma=gamma, confidence=tuple((values,) for values in each), **plain | fields)


# c[2] of these rows is high after A and 0 after B.
SHOWS = (0.8, 0.9, 0.0)
HALF_THEN_ONE = (0.5, 1.0, 0.0)
HALF_THEN_HALF = (0.5, 0.5, 0.5)
# Four tokens cost nine times what two do: a budget of 2 is best for two rows.
TWO_DRAFTS = (1.0, 1.0, 1.0, 1.0, 9.0, 9.0)
# In float32 by doubling, a[4] = (c3 c4)(c1 c2) is over a[3] = (c2 c3) c1 if c4 = 1; c4 follows x3 alone.
ROUNDED = (0.75591081, *(0.97523183,) * 2, *(0.57207978,) * 4, *(1.0, 0.0) * 4)


@dataclass(frozen=True)
class Witness:
    """A world that shows a bias.

    Attributes:
        world: a small one that does.
        marginal, joint: total-variation distances, derived by hand.
        instead: the look-alike that does it right.
    """

    world: World
    marginal: Fraction
    joint: Fraction
    instead: str


def alone(world: World, instead: str, distance: Fraction = Fraction(3, 20)) -> Witness:
    """A witness whose joint law is as far off as the one row's that breaks."""
    return Witness(world, distance, distance, instead)


WITNESSES: dict[str, Witness] = {
    # Theta = 1, 0.9, 1.134 after A: both verified. After B it is 1, 0.9, 0.81: none. Verified iff A.
    "same-step argmax": alone(appendix_a(), "greedy early stop"),
    # K = 1 after A, 0 after B.
    "budget from later positions": alone(world(SHOWS), "budget from first positions"),
    # Row 1 is verified iff row 2 drafted A, and the reverse. Of the four equally likely pairs A,A never gives B,B; A,B
    # and B,A do with 3/10 * 3/5; B,B with 3/10 * 3/10. Sum 9/80, for 9/100: 9/400 in each of four cells.
    "budget from another row": Witness(
        world(SHOWS, rows=2), Fraction(0), Fraction(9, 200), "budget from first positions"
    ),
    # All four survivals are 1/2 or less. After A row 2's second draft ties at 1/2, comes first and takes the budget to
    # row 2; after B the tie of the first positions goes to row 1. Row 2 is verified iff A, row 1 by x[2,1] alone.
    "ties to the later position, count": alone(world((HALF_THEN_HALF, HALF_THEN_ONE), rows=2), "fixed top 1"),
    "ties to the later position, max": alone(world((HALF_THEN_HALF, HALF_THEN_ONE), rows=2), "fixed top 1"),
    # After A the budget goes to position 2, whose prefix is broken: verified iff B.
    "ties to the later position, prefix": alone(world(HALF_THEN_ONE), "fixed top 1"),
    # Both verified after A, none after B.
    "drops rows of low confidence": alone(world(SHOWS), "threshold on c"),
    # K = 2 from the optimistic prior. After A row 1 has 0.8 and 0.72 against row 2's 0.5: lengths (2, 0). After B
    # they would be (1, 1), so both rows lose theirs. Row 1 is verified iff A, row 2 never.
    "min_len or nothing": alone(
        world((SHOWS, (0.5, 0.0, 0.0)), rows=2, seconds=TWO_DRAFTS), "async_topk lag 1, min_len"
    ),
    # Step 0 verifies both (optimistic prior). One token comes out of it iff x1 = B is rejected, 1/2 * 2/5; then K = 0
    # from c2 = 0, and step 1 verifies everything iff its Theta(2) is worth it: iff A. 1/5 * 3/20.
    "min_gain on fresh survivals": alone(appendix_a(2), "async_topk lag 1, min_gain", Fraction(3, 100)),
    # Sizes 1 and 3 are allowed and K = 2. After B one candidate is left; size 2 is not allowed, so none is verified.
    "allowed after counting candidates": alone(appendix_a(), "async_topk lag 1, allowed"),
    # With nothing remembered the average is this step's generation: Appendix A again.
    "ema with the current generation": alone(appendix_a(), "async_topk lag 1, ema"),
    # c1 is 1 if x1 = A and 0 if x1 = B, and a draft under 1/2 is left out. Verifying it and then stopping is right.
    "own draft probability": alone(world((1.0, 0.0), gamma=1, own_token=True), "low token kept"),
    # A rejected B (1/2 * 2/5) is not verified, so the token is drawn from p_t instead of being A: Pr(A) = 16/25.
    "accepted prefix": alone(world((0.5,), gamma=1), "static 1", Fraction(3, 50)),
    # At a flat cost every acceptable draft pays.
    "oracle": alone(world((0.5,), gamma=1), "static 1", Fraction(3, 50)),
    # x3 is verified iff B, once both drafts before it were accepted, (4/5)^2: 16/25 * 3/20.
    "parallel float32 product": alone(
        world(ROUNDED, gamma=4, tokens=3), "sequential float32 product", Fraction(12, 125)
    ),
}

# Tables by anchor: what is likely, drafted and trusted after A and after B.
BY_ANCHOR: dict[str, Any] = {
    "target": ((PT, (PT[1], PT[0])),),
    "draft": ((PD, (Fraction(1, 5), Fraction(4, 5))),),
    "confidence": (((0.9, 0.2, 1.0), (0.3, 0.9, 0.0)), ((0.4, 1.0, 0.6), (1.0, 0.5, 0.75))),
}
STAIRS = (1.0, 1.0, 1.05, 1.7, 1.75, 2.9)
LONG_STAIRS = (*STAIRS, 3.0, 3.1, 4.0)

OTHERS: dict[str, World] = {
    # Long enough for a budget two generations old to find either token in them.
    "Appendix A, five tokens": appendix_a(5),
    "rows leave at different lengths and one joins": replace(
        world(SHOWS, rows=3, seconds=LONG_STAIRS),
        rows=(RowPlan(length=1), RowPlan(length=3, anchor=1), RowPlan(first_block=2, length=2)),
    ),
    "confidence, target and draft follow the anchor": replace(world(SHOWS, rows=2, seconds=STAIRS), **BY_ANCHOR),
    "one row whose tables follow the anchor": replace(
        world(SHOWS, seconds=STAIRS), **BY_ANCHOR | {"confidence": BY_ANCHOR["confidence"][:1]}
    ),
    "B ends a row": world(HALF_THEN_ONE, rows=2, seconds=STAIRS, end=1),
    "ragged blocks": replace(
        world((SHOWS, HALF_THEN_ONE), rows=2, seconds=STAIRS),
        rows=(RowPlan(available=(1, 2)), RowPlan(available=(2, 0, 1))),
    ),
    "coins and captured sizes": world(SHOWS, rows=2, seconds=STAIRS, sizes=(4, 6), coins=(0.1, 0.5, 0.9)),
    "three tokens": world(
        (0.9, 1.0, 0.5, 0.0),
        vocabulary=3,
        target=((tuple(Fraction(n, 10) for n in (5, 3, 2)),),),
        draft=((tuple(Fraction(n, 4) for n in (1, 1, 2)),),),
        seconds=(1.0, 1.6, 1.9),
    ),
}

# What may not be asked of a world in which a confidence has seen its own token: there only rules that look at none,
# or at none of the draft they judge, keep the law.
BLIND = ("autoregressive", "static 1", "static 2", "random budget", "context rule", "low token kept")
# Rules that decide the same in every step, so that no draft is both admitted and refused.
CONSTANT = ("autoregressive", "static 1", "static 2")
# Rules that admit as many drafts of equal batches, whichever they are.
FIXED = (*CONSTANT, "fixed top 1", "fixed top 2", "sequential float32 product")


def judged(world: World, policy: Policy, tokens: int = 1) -> ExactLaw:
    """The exact law of at least ``tokens`` tokens a row."""
    return law(replace(world, tokens=max(tokens, world.tokens)), policy)


def test_every_broken_policy_has_a_witness() -> None:
    assert WITNESSES.keys() == BROKEN.keys()


@pytest.mark.parametrize("name", BROKEN)
def test_bias_is_what_a_hand_finds(name: str) -> None:
    broken, witness = BROKEN[name], WITNESSES[name]
    found = judged(witness.world, broken.policy)
    assert (found.verdict, found.marginal_tv, found.joint_tv) == (broken.law, witness.marginal, witness.joint)
    assert found.coverage.split
    assert witness.world.own_token == broken.own_token


@pytest.mark.parametrize("name", BROKEN)
def test_bias_stays_when_more_tokens_are_compared(name: str) -> None:
    """Distances cannot shrink: the first tokens' law is a marginal of the longer one."""
    broken, witness = BROKEN[name], WITNESSES[name]
    longer = judged(witness.world, broken.policy, witness.world.tokens + 1)
    assert longer.verdict == broken.law
    assert longer.marginal_tv >= witness.marginal
    assert longer.joint_tv >= witness.joint


@pytest.mark.parametrize(("tokens", "distance"), [(1, (3, 20)), (2, (63, 400)), (3, (1281, 8000))])
def test_appendix_a(tokens: int, distance: tuple[int, int]) -> None:
    found = law(appendix_a(tokens), BROKEN["same-step argmax"].policy)
    assert found.marginal_tv == Fraction(*distance)
    for name in ("greedy early stop", "async_topk lag 1, joins optimistic", "async_topk lag 2, joins optimistic"):
        assert law(appendix_a(tokens), SAFE[name]).verdict == "lossless"


def test_known_probabilities() -> None:
    first = judged(WITNESSES["same-step argmax"].world, BROKEN["same-step argmax"].policy).rows[0]
    assert first == {(0,): Fraction(17, 20), (1,): Fraction(3, 20)}
    first = judged(WITNESSES["accepted prefix"].world, BROKEN["accepted prefix"].policy).rows[0]
    assert first == {(0,): Fraction(16, 25), (1,): Fraction(9, 25)}
    coupled = judged(WITNESSES["budget from another row"].world, BROKEN["budget from another row"].policy)
    assert coupled.joint[(1,), (1,)] == Fraction(9, 80)


@pytest.mark.parametrize("name", BROKEN)
def test_right_way_keeps_the_law_in_the_same_world(name: str) -> None:
    """With three tokens a row, so that a budget two generations old is used; and not by doing nothing."""
    witness = WITNESSES[name]
    found = judged(witness.world, SAFE[witness.instead], 3)
    assert found.verdict == "lossless"
    # In Appendix A no draft of step 0 pays, which is the paper's point.
    assert found.coverage.admitted or witness.instead == "greedy early stop"


@pytest.mark.parametrize("name", SAFE)
def test_look_alikes_keep_the_law_in_every_world(name: str) -> None:
    # Some mistakes share a world.
    worlds = {witness.world: key for key, witness in WITNESSES.items()} | {each: key for key, each in OTHERS.items()}
    found = {key: judged(each, SAFE[name], 3) for each, key in worlds.items() if name in BLIND or not each.own_token}
    assert {key: each.verdict for key, each in found.items() if each.verdict != "lossless"} == {}
    assert any(each.coverage.admitted for each in found.values()) == (name != "autoregressive")
    assert any(each.coverage.split for each in found.values()) == (name not in CONSTANT)
    assert any(each.coverage.varied for each in found.values()) == (name not in FIXED)


@pytest.mark.parametrize("name", [name for name, broken in BROKEN.items() if not broken.policy.needs_outcomes])
def test_no_bias_where_confidences_ignore_the_drafts(name: str) -> None:
    """The only way from a draft's value to a length is a confidence: without it nothing is left of the mistake."""
    deaf = world(((0.8, 0.9, 0.9), (0.5, 0.4, 0.4)), rows=2, tokens=3)
    found = law(deaf, BROKEN[name].policy)
    assert found.verdict == "lossless"
    assert found.coverage.admitted


def test_joint_break_leaves_every_marginal_right() -> None:
    found = {name: judged(each, BROKEN["budget from another row"].policy, 3) for name, each in OTHERS.items()}
    assert all(each.marginal_tv == 0 for each in found.values())
    assert {name for name, each in found.items() if each.verdict == "joint"}


@pytest.mark.parametrize("reading", ["count", "max"])
def test_ties_to_the_later_position_need_a_second_row(reading: Any) -> None:
    """One row: the count is K itself, and the largest position runs past K only along c = 1, known before it."""
    rng = np.random.default_rng(7)
    split = 0
    for _ in range(60):
        gamma = int(rng.integers(2, 4))
        confidence = tuple(rng.choice([0.5, 0.9, 1.0], 2**gamma - 1).tolist())
        found = law(world(confidence, gamma=gamma, tokens=2), TiesToLater(reading, int(rng.integers(1, gamma + 1))))
        assert found.verdict == "lossless"
        split += found.coverage.split
    assert (split > 10) == (reading == "max")


@pytest.mark.parametrize("reading", ["count", "max", "prefix"])
def test_ties_to_the_later_position_need_a_confidence_of_one(reading: Any) -> None:
    almost = tuple(tuple(min(c, 0.99) for c in row) for row in (HALF_THEN_HALF, HALF_THEN_ONE))
    for below_one in (world(almost, rows=2, tokens=3), world(almost[1], tokens=3)):
        assert law(below_one, TiesToLater(reading)).verdict == "lossless"


def test_parallel_product_rises_along_a_row() -> None:
    confidence = np.array([[0.75591081, 0.97523183, 0.57207978, 1.0]])
    parallel = hillis_steele(confidence)[0]
    assert parallel[2] < parallel[3]
    sequential = np.multiply.accumulate(confidence.astype(np.float32), axis=1)[0]
    assert sequential[2] == sequential[3]


def test_parallel_product_needs_a_saturated_confidence() -> None:
    below_one = tuple(min(c, 0.99) for c in ROUNDED)
    found = law(world(below_one, gamma=4, tokens=3), BROKEN["parallel float32 product"].policy)
    assert found.verdict == "lossless"


def test_stale_slots_depend_on_the_slots() -> None:
    """Request 1 stays when request 0 leaves; which slot it sat in must not matter, and does."""
    policy = SAFE["stale slots"]
    confident, hopeless = [0.9, 0.9], [0.1, 0.1]
    lengths = []
    for requests, confidence in (([0, 1], [confident, hopeless]), ([1, 0], [hopeless, confident])):
        _, state = policy.plan(view(confidence, requests=requests), policy.start())
        lengths.append(policy.plan(view([hopeless], requests=[1]), state)[0].tolist())
    assert lengths[0] != lengths[1]
