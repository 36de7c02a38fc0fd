"""Hypothesis strategies for the worlds a policy is tried in.

Simple values come first, so that a counterexample shrinks towards few rows, tokens and distinct numbers. Confidences
tie, vanish, saturate or carry many digits; costs are flat, sloped, jagged or fall in places; blocks are ragged; rows
join, leave and end at different times.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from typing import TypeVar

from hypothesis import strategies as st

from .worlds import Distribution, RowPlan, World

T = TypeVar("T")

SPECIAL = (0.8, 0.9, 0.0, 1.0, 0.5, 0.25)
"""Confidences that tie, vanish and saturate."""

# Multiples of the golden ratio, since floats of Hypothesis' own are mostly tiny (docs/LOG.md).
DIGITS = tuple(round(place * 0.6180339887498949 % 1.0, 8) for place in range(1, 65))
"""Confidences with so many digits that float32 products round differently, spread evenly."""

RISERS = (1.0, 0.75, 0.5, 0.25)
"""Seconds that one more token may add to a step of about one second, elsewhere it adds a tenth of that or nothing."""


@dataclass(frozen=True)
class Size:
    """How large worlds are.

    Attributes:
        rows: requests.
        vocabulary: tokens to choose from.
        gamma: drafts of a block.
        tokens: the most tokens a row is followed for.
    """

    rows: int
    vocabulary: int
    gamma: int
    tokens: int


def _laws(*tenths: tuple[int, ...]) -> tuple[Distribution, ...]:
    return tuple(tuple(Fraction(weight, 10) for weight in each) for each in tenths)


# Even laws, leaning ones, and some with a token that never comes.
_PAIRS = _laws((5, 5), (7, 3), (3, 7), (9, 1), (1, 9), (6, 4), (2, 8), (8, 2), (4, 6), (10, 0), (0, 10))
_TRIPLES = _laws(
    (4, 3, 3), (5, 3, 2), (2, 3, 5), (3, 6, 1), (1, 1, 8), (8, 1, 1), (5, 5, 0), (0, 4, 6), (7, 0, 3), (10, 0, 0)
)
_LAWS = {2: _PAIRS, 3: _TRIPLES}


@st.composite
def worlds(draw: st.DrawFn, size: Size, own_token: bool = False) -> World:
    """Return worlds of a size; see `World`.

    Args:
        draw: given by Hypothesis.
        size: rows, vocabulary and gamma are met exactly, tokens at most.
        own_token: confidences also read the very draft they belong to.
    """
    # More than half of the worlds follow rows to the end: lagged budgets only vary there.
    tokens = draw(st.sampled_from([*range(1, size.tokens + 1), *[size.tokens] * size.tokens]))
    depth = size.gamma if own_token else size.gamma - 1
    leaves = size.vocabulary**depth
    count = (leaves * size.vocabulary - 1) // (size.vocabulary - 1) - own_token
    laws = st.sampled_from(_LAWS[size.vocabulary])
    trees = draw(st.sampled_from(("few", "special", "digits")))
    return World(
        vocabulary=size.vocabulary,
        gamma=size.gamma,
        tokens=tokens,
        rows=tuple(draw(_plans(size, tokens)) for _ in range(size.rows)),
        target=draw(_tables(laws, size)),
        draft=draw(_tables(laws, size)),
        confidence=draw(_tables(_confidences(count, leaves, trees), size)),
        seconds=draw(_seconds(size.rows * (size.gamma + 1))),
        sizes=draw(_captured(size.rows * (size.gamma + 1))),
        coins=draw(st.sampled_from(((0.5,), (0.25, 0.75)))),
        own_token=own_token,
        end=draw(st.sampled_from((None, None, None, size.vocabulary - 1))),
    )


@st.composite
def _tables(draw: st.DrawFn, entries: st.SearchStrategy[T], size: Size) -> tuple[tuple[T, ...], ...]:
    """Return a table by row and preceding token: one entry for all, or one for each."""
    # One table for all, or one each: at p_d = 1/2 throughout, opposite errors cancel and mistakes hide (docs/LOG.md).
    rows = size.rows if size.rows > 1 and draw(st.booleans()) else 1
    after = size.vocabulary if draw(st.booleans()) else 1
    return tuple(tuple(draw(entries) for _ in range(after)) for _ in range(rows))


def _confidences(count: int, leaves: int, kind: str) -> st.SearchStrategy[tuple[float, ...]]:
    """Return the values of a confidence tree of ``count`` nodes, of which the last ``leaves`` are longest prefixes."""
    if kind == "digits":
        # Many digits inside and leaves of 0 or 1: a product that rounds otherwise then changes what is verified.
        inner = st.one_of(st.sampled_from(DIGITS), st.sampled_from(DIGITS), st.sampled_from(SPECIAL))
        return st.tuples(*[inner] * (count - leaves), *[st.sampled_from((0.0, 1.0, DIGITS[0]))] * leaves)
    values = {"special": SPECIAL, "few": (0.8, 0.0, 1.0)}[kind]
    return st.tuples(*[st.sampled_from(values)] * count)


@st.composite
def _plans(draw: st.DrawFn, size: Size, tokens: int) -> RowPlan:
    """Return when a row joins and leaves and how many drafts its blocks hold."""
    if draw(st.sampled_from((True, True, False))):  # a row that is there all the time
        return RowPlan()
    return RowPlan(
        first_block=draw(st.integers(0, 2)),
        length=draw(st.one_of(st.none(), st.integers(1, tokens + 1))),
        available=draw(st.one_of(st.just(()), st.just((0,)), st.tuples(*[st.integers(0, size.gamma)] * 2))),
        anchor=draw(st.integers(0, size.vocabulary - 1)),
    )


@st.composite
def _seconds(draw: st.DrawFn, most: int) -> tuple[float, ...]:
    """Return step times of 1 .. ``most`` tokens."""
    # One height for a world: free increments rarely give Appendix A's riser with a flat behind it (docs/LOG.md).
    riser = draw(st.sampled_from(RISERS))
    added = draw(st.tuples(*[st.sampled_from((0.0, riser, riser / 10))] * (most - 1)))
    seconds = list(accumulate(added, initial=1.0))
    if draw(st.sampled_from((False, False, False, True))):  # larger batches may be quicker, as tiles fill up
        factors = draw(st.tuples(*[st.sampled_from((1.0, 0.6, 1.4))] * most))
        seconds = [each * factor for each, factor in zip(seconds, factors, strict=True)]
    return tuple(seconds)


def _captured(most: int) -> st.SearchStrategy[tuple[int, ...]]:
    """Return captured batch sizes: none, or some."""
    some = st.sets(st.integers(1, most), min_size=1, max_size=3).map(lambda sizes: tuple(sorted(sizes)))
    return st.one_of(st.just(()), some)
