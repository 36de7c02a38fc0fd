"""Each broken decoder under a safe scheduler, in a small world that shows its bias, beside right decoding.

Tokens are A, B, C. Intervals are those of the uniforms, cumulated in that order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from specsched.policies import Policy
from specsched.policies.lossless.decoders import BROKEN_DECODERS, RIGHT
from specsched.policies.lossless.exact import law
from specsched.policies.lossless.worlds import RowPlan, World
from specsched.policies.static import Static
from specsched.policies.threshold import Threshold

Laws = tuple[tuple[Fraction, ...], ...]


def over(whole: int, *parts: int) -> tuple[Fraction, ...]:
    """Probabilities as parts of a whole."""
    return tuple(Fraction(part, whole) for part in parts)


def world(target: Laws, draft: Laws, gamma: int = 1, tokens: int = 1) -> World:
    """One row at a flat cost; ``target`` and ``draft`` by the token before, or one for all. Confidences vary."""
    vocabulary = len(target[0])
    nodes = (vocabulary**gamma - 1) // (vocabulary - 1)
    confidence = tuple((0.9, 0.4)[node % 2] for node in range(nodes))
    return World(
        vocabulary, gamma, tokens, (RowPlan(),), (target,), (draft,), ((confidence,),), seconds=(1.0,) * (1 + gamma)
    )


@dataclass(frozen=True)
class Witness:
    """A world that shows a bias, the scheduler it is seen under, the law that leaves and the figure by hand."""

    world: World
    policy: Policy
    first: tuple[Fraction, ...]
    distance: Fraction


USUAL = world((over(10, 7, 3),), (over(2, 1, 1),))
NONE, ONE = Static(0), Static(1)

WITNESSES: dict[str, Witness] = {
    # The tie of p_d goes to A, which is always drafted and, p_t / p_d being over 1, always accepted.
    "argmax draft": Witness(USUAL, ONE, over(1, 1, 0), Fraction(3, 10)),
    # B is drafted by u in [1/2, 1) and accepted by u < 3/5: a fifth of the cases instead of three. Pr(B) = 1/10.
    "draft and accept share a uniform": Witness(USUAL, ONE, over(10, 9, 1), Fraction(1, 5)),
    # A, drafted by u in [0, 1/2), is always rejected; the residual gives B below 1/2, so it never gives C.
    "draft and residual share a uniform": Witness(
        world((over(2, 0, 1, 1),), (over(4, 2, 1, 1),)), ONE, over(4, 0, 3, 1), Fraction(1, 4)
    ),
    # A is rejected by u in [1/2, 1); the residual gives C from 1/2 on, so it never gives B.
    "accept and residual share a uniform": Witness(
        world((over(8, 2, 3, 3),), (over(4, 2, 1, 1),)), ONE, over(8, 2, 2, 4), Fraction(1, 8)
    ),
    # Nothing is verified, and the token is drawn as if it followed the draft: 1/2 * 7/10 + 1/2 * 3/10.
    "bonus after the block": Witness(
        world((over(10, 7, 3), over(10, 3, 7)), (over(2, 1, 1),)), NONE, over(2, 1, 1), Fraction(1, 5)
    ),
    # Nothing is verified, yet a rejected B (1/5) leaves its residual A, and the others a bonus: 1/5 + 4/5 * 7/10.
    "token of the uncut block": Witness(USUAL, NONE, over(100, 76, 24), Fraction(3, 50)),
}


def test_token_of_the_uncut_block_behind_a_verified_draft() -> None:
    """One draft of two is verified. Behind an accepted one (A 1/2, B 3/10) the token is that of the whole block, A with
    19/25 as above; a rejected B (1/5) leaves its residual A, and the next block's first draft is decoded right.
    """
    longer = world(USUAL.target[0], USUAL.draft[0], gamma=2, tokens=2)
    found = law(longer, ONE, BROKEN_DECODERS["token of the uncut block"])
    assert found.rows[0] == {
        (0, 0): Fraction(1, 2) * Fraction(19, 25) + Fraction(1, 5) * Fraction(7, 10),
        (0, 1): Fraction(1, 2) * Fraction(6, 25) + Fraction(1, 5) * Fraction(3, 10),
        (1, 0): Fraction(3, 10) * Fraction(19, 25),
        (1, 1): Fraction(3, 10) * Fraction(6, 25),
    }


RESIDUAL = ("draft and residual share a uniform", "accept and residual share a uniform")


def random_laws(rng: np.random.Generator, vocabulary: int, least: int) -> Laws:
    """Laws of small denominators by the token before; some probabilities vanish if ``least`` is 0."""
    found = []
    for _ in range(vocabulary):
        parts = rng.integers(least, 6, vocabulary)
        parts[rng.integers(vocabulary)] += 1
        found.append(over(int(parts.sum()), *parts.tolist()))
    return tuple(found)


def test_every_broken_decoder_has_a_witness() -> None:
    assert WITNESSES.keys() == BROKEN_DECODERS.keys()


@pytest.mark.parametrize("name", BROKEN_DECODERS)
def test_bias_is_what_a_hand_finds(name: str) -> None:
    witness = WITNESSES[name]
    found = law(witness.world, witness.policy, BROKEN_DECODERS[name])
    assert found.rows[0] == {(token,): mass for token, mass in enumerate(witness.first) if mass}
    assert (found.verdict, found.marginal_tv, found.joint_tv) == ("marginal", witness.distance, witness.distance)


@pytest.mark.parametrize("name", BROKEN_DECODERS)
@pytest.mark.parametrize("policy", [Static(0), Static(1), Threshold(0.5)], ids=lambda policy: str(policy))
def test_right_decoding_keeps_the_law_in_the_same_world(name: str, policy: Policy) -> None:
    for tokens in (1, 3):
        assert law(replace(WITNESSES[name].world, tokens=tokens), policy, RIGHT).verdict == "lossless"


@pytest.mark.parametrize("name", BROKEN_DECODERS)
def test_bias_shows_under_a_threshold_too(name: str) -> None:
    """Two rows of two drafts: the first is verified behind an A only, the second by what the first is."""
    one = WITNESSES[name].world
    longer = world(one.target[0], one.draft[0], gamma=2, tokens=2)
    trusted = longer.confidence[0][0]
    by_anchor = (trusted, *((0.4, *trusted[1:]),) * (one.vocabulary - 1))
    both = replace(longer, rows=(RowPlan(), RowPlan(anchor=1)), seconds=(1.0,) * 6, confidence=(by_anchor,))
    found = law(both, Threshold(0.5), BROKEN_DECODERS[name])
    assert found.coverage.split
    assert found.verdict == "marginal"
    assert law(both, Threshold(0.5), RIGHT).verdict == "lossless"


@pytest.mark.parametrize("name", RESIDUAL)
def test_shared_residual_is_invisible_with_two_tokens(name: str) -> None:
    """The residual of two tokens is certain, whatever uniform draws it: 200 worlds, most with rejections."""
    rng = np.random.default_rng(11)
    rejecting = 0
    for number in range(200):
        gamma, tokens = (int(each) for each in rng.integers(1, 3, 2))
        laws = random_laws(rng, 2, least=0), random_laws(rng, 2, least=0)
        little = world(*laws, gamma=gamma, tokens=tokens)
        policy: Policy = Static(1) if number % 2 else Threshold(0.3)
        assert law(little, policy, BROKEN_DECODERS[name]).verdict == "lossless"
        rejecting += laws[0] != laws[1]
    assert rejecting > 150


@pytest.mark.parametrize("name", RESIDUAL)
def test_shared_residual_shows_with_three_tokens(name: str) -> None:
    """In at least a quarter of 40 worlds, and never under right decoding.

    No probability vanishes: a draft the target never emits is rejected by every uniform, which then tells nothing.
    """
    rng = np.random.default_rng(12)
    seen = 0
    for _ in range(40):
        little = world(random_laws(rng, 3, least=1), random_laws(rng, 3, least=1))
        seen += law(little, Static(1), BROKEN_DECODERS[name]).verdict == "marginal"
        assert law(little, Static(1), RIGHT).verdict == "lossless"
    assert seen >= 10


@pytest.mark.parametrize(
    ("name", "hidden"),
    [
        # A target that ignores the token before cannot tell where the bonus was drawn.
        ("bonus after the block", (USUAL, NONE)),
        # Where something is verified the bonus follows it.
        ("bonus after the block", (WITNESSES["bonus after the block"].world, ONE)),
        # Where everything is verified nothing is cut.
        ("token of the uncut block", (USUAL, ONE)),
        # Where nothing is verified nothing is accepted, or redrawn.
        ("argmax draft", (USUAL, NONE)),
        ("draft and accept share a uniform", (USUAL, NONE)),
        # A drafter that is right is never rejected.
        ("draft and accept share a uniform", (world((over(4, 1, 3),), (over(4, 1, 3),)), ONE)),
    ],
)
def test_where_a_mistake_hides(name: str, hidden: tuple[World, Policy]) -> None:
    little, policy = hidden
    assert law(replace(little, tokens=2), policy, BROKEN_DECODERS[name]).verdict == "lossless"


def test_broken_decoder_breaks_no_dependence() -> None:
    """Rows decoded apart stay independent: the joint law is the product of the wrong marginals."""
    both = replace(USUAL, rows=(RowPlan(), RowPlan()), seconds=(1.0,) * 4)
    found = law(both, ONE, BROKEN_DECODERS["argmax draft"])
    expected: dict[Any, Fraction] = {
        (a, b): one * other for a, one in found.rows[0].items() for b, other in found.rows[1].items()
    }
    assert found.joint == expected
