"""From a broken row-wise rule to a world whose exact law shows the bias.

The rule is broken where draft ``j`` of a row is verified for one value of a later confidence ``c[p + 1]`` and refused
for another. A drafter turns this into a bias: it makes the tokens before ``j`` certain, flips a coin for ``x[j]`` and
repeats the outcome up to ``x[p]``, which ``c[p + 1]`` shows. Draft ``j`` is then verified iff it is A (or iff it is B).
"""

from __future__ import annotations

from fractions import Fraction
from itertools import product

from .rules import Violation
from .worlds import Distribution, RowPlan, Tokens, World

TARGET = (Fraction(7, 10), Fraction(3, 10))
DRAFT = (Fraction(1, 2), Fraction(1, 2))


def witness(violation: Violation) -> World:
    """Return the one-step world of a broken row-wise rule.

    It starts without a past. Where the policy needs the past of the violation to go wrong, the world's law is right
    although the rule is broken.

    Raises:
        ValueError: for a violation of the stopping set alone, which may break no law at all.
    """
    if violation.rule != "row-wise":
        raise ValueError("only a broken row-wise rule has such a world; the stopping set alone may break no law")
    before = violation.position - 1
    # A and B, the anchor, and one token for each draft that is certain.
    vocabulary = before + 3
    plans, laws, trees = [], [], []
    for row, values in enumerate(violation.confidence):
        biased = row == violation.row
        # Only the biased row draws anything; in all others A is certain, so that their confidences are the violation's.
        plans.append(RowPlan(available=(len(values),), anchor=2 if biased else 0))
        laws.append(_laws(vocabulary, before) if biased else (_always(vocabulary, 0),) * vocabulary)
        trees.append((_tree(violation, row, vocabulary),))
    random = (0,) * (before + 2) + (1,)  # the token after which the coin is flipped
    return World(
        vocabulary=vocabulary,
        gamma=violation.gamma,
        # The drafts before it are certain, so the bias is in this token.
        tokens=violation.position,
        rows=tuple(plans),
        target=tuple(_flipped(by_token, random, TARGET, row == violation.row) for row, by_token in enumerate(laws)),
        draft=tuple(_flipped(by_token, random, DRAFT, row == violation.row) for row, by_token in enumerate(laws)),
        confidence=tuple(trees),
        seconds=violation.seconds,
        sizes=violation.sizes,
        coins=(violation.coin,),
    )


def _always(vocabulary: int, token: int) -> Distribution:
    return tuple(Fraction(int(each == token)) for each in range(vocabulary))


def _laws(vocabulary: int, before: int) -> tuple[Distribution, ...]:
    """Return the biased row's laws by preceding token: A and B repeat themselves, the others count up."""
    return tuple(_always(vocabulary, last if last < 2 else min(last + 1, before + 2)) for last in range(vocabulary))


def _flipped(
    laws: tuple[Distribution, ...], where: Tokens, coin: Distribution, biased: bool
) -> tuple[Distribution, ...]:
    """Return a row's laws with the coin in place."""
    if not biased:
        return laws
    flip = (*coin, *(Fraction(0) for _ in range(len(laws) - 2)))
    return tuple(flip if there else law for law, there in zip(laws, where, strict=True))


def _tree(violation: Violation, row: int, vocabulary: int) -> tuple[float, ...]:
    """Return a row's confidences by drafted prefix; those of the biased row tell A from B once the rule's pair does."""
    first, second = violation.confidence[row], violation.other[row]
    shows = violation.changed_position - 1
    found: list[float] = []
    for depth in range(violation.gamma):
        for prefix in product(range(vocabulary), repeat=depth):
            # From the draft on that tells the two batches apart, B shows the second one's confidences.
            values = second if depth >= shows and prefix[shows - 1] == 1 else first
            found.append(values[depth] if depth < len(values) else 0.0)
    return tuple(found)
