"""Sampled laws for real code: does a sampler's output have the law it should, and would the test have noticed?

For code that cannot be enumerated: kernels that sample, the drafter's heads, an engine. All tests are Pearson's
chi-square, on as many draws as the stated power takes. Its power against an alternative is that of the noncentral
chi-square law with noncentrality ``draws * sum((q - p)^2 / p)``, exact for many draws.

The p-value is that of many draws too, and far out in the tail it flatters rare cells: with alpha 1e-6 a cell of 5
expected draws gives false alarms at 7e-5, one of 100 at 3e-6 (exact binomial). Ask for more expected draws a cell when
alpha is small, as `assert_law` does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Generic, TypeVar

import numpy as np

from ..arrays import Floats
from .tails import chi_square_critical, chi_square_tail, noncentral_tail

Key = TypeVar("Key", bound=Hashable)
Probabilities = Mapping[Key, Fraction | float]
Sampler = Callable[[int, int], Mapping[Key, int]]
"""``sampler(draws, seed)`` returns how often each outcome came."""

_MOST_DRAWS = 1 << 50


@dataclass(frozen=True)
class Fit:
    """What a chi-square test found.

    Attributes:
        statistic: Pearson's; infinite if an outcome of probability 0 occurred.
        degrees: degrees of freedom, cells after pooling less one.
        p_value: probability of at least this statistic if the law is right; 0 if an impossible outcome occurred.
        draws: how many were counted, in both samples together where there are two.
        pooled: outcomes that were too rare for a cell of their own and share one.
    """

    statistic: float
    degrees: int
    p_value: float
    draws: int
    pooled: int


def chi_square(counts: Mapping[Key, int], law: Probabilities[Key], minimum_expected: float = 5.0) -> Fit:
    """Test counts against a law.

    Args:
        counts: draws by outcome; outcomes that are left out did not occur.
        law: probabilities by outcome; they sum to 1. Outcomes that are left out have probability 0.
        minimum_expected: outcomes expected less often than this share one cell, which takes in the next rarest until
            it too is expected as often. None is dropped.

    Raises:
        ValueError: for a law that is none, counts that are none, or too few draws for two cells.
    """
    outcomes = _Outcomes(law)
    observed, draws = _observed(counts, outcomes.keys)
    pooled = outcomes.pooled(draws, minimum_expected)
    expected = _cells(outcomes.probability, pooled) * draws
    if len(expected) == 1 < len(outcomes.keys):
        raise ValueError(
            f"{draws} draws are too few to expect {minimum_expected:g} in each of two cells; draw more (`draws_needed`)"
        )
    # Draws fell outside of the law's outcomes: no number of them is right.
    if observed.sum() < draws:
        return Fit(math.inf, len(expected) - 1, 0.0, draws, pooled)
    statistic = float(((_cells(observed, pooled) - expected) ** 2 / expected).sum())
    # One less than cells: the number of draws is given, and nothing is fitted.
    degrees = len(expected) - 1
    return Fit(statistic, degrees, chi_square_tail(statistic, degrees) if degrees else 1.0, draws, pooled)


def two_samples(counts: Mapping[Key, int], other: Mapping[Key, int], minimum_expected: float = 5.0) -> Fit:
    """Test whether two samplers have one law, whatever it is (homogeneity of a table of two columns).

    Args:
        counts: draws by outcome of the one.
        other: of the other.
        minimum_expected: as in `chi_square`, of the smaller sample.

    Raises:
        ValueError: for counts that are none, or too few draws for two cells.
    """
    keys = list(dict.fromkeys([*counts, *other]))
    (one, many), (two, more) = _observed(counts, keys), _observed(other, keys)
    shared = _Outcomes({key: Fraction(int(a + b), many + more) for key, a, b in zip(keys, one, two, strict=True)})
    one, two = _observed(counts, shared.keys)[0], _observed(other, shared.keys)[0]
    pooled = shared.pooled(min(many, more), minimum_expected)
    first, second = _cells(one, pooled), _cells(two, pooled)
    if len(first) == 1 < len(shared.keys):
        raise ValueError(f"{many} and {more} draws are too few to expect {minimum_expected:g} in two cells; draw more")
    # Each count against the other's size: the usual statistic of a table of two columns, without its expected cells.
    difference = first * math.sqrt(more / many) - second * math.sqrt(many / more)
    statistic, degrees = float((difference**2 / (first + second)).sum()), len(first) - 1
    return Fit(statistic, degrees, chi_square_tail(statistic, degrees) if degrees else 1.0, many + more, pooled)


def power(
    law: Probabilities[Key],
    alternative: Probabilities[Key],
    draws: int,
    alpha: float,
    minimum_expected: float = 5.0,
) -> float:
    """Return the probability that `chi_square` gives a p-value of at most ``alpha`` when ``alternative`` is true.

    It is 0 where the draws are too few for two cells.

    Raises:
        ValueError: for a law that is none, less than one draw, or ``alpha`` outside (0, 1).
    """
    if draws < 1:
        raise ValueError(f"`draws` must be at least 1, got {draws}")
    outcomes = _Outcomes(law)
    return _power(outcomes, *_aligned(outcomes, alternative), draws, alpha, minimum_expected)


def draws_needed(
    law: Probabilities[Key],
    *,
    total_variation: float | None = None,
    alternative: Probabilities[Key] | None = None,
    alpha: float = 1e-6,
    power: float = 0.99,
    minimum_expected: float = 5.0,
) -> int:
    """Return the draws with which `chi_square` finds an alternative with a probability of at least ``power``.

    Of all alternatives at a total variation ``d`` the hardest to see shifts half of the mass: by Cauchy and Schwarz
    ``sum((q - p)^2 / p) >= (sum |q - p|)^2 = 4 d^2``, with equality where ``|q - p| = 2 d p``. Outcomes that are
    pooled, of mass ``m`` together, can hide at most ``m`` of it, so ``4 draws (d - m)^2`` bounds the noncentrality
    of every alternative. Mass on outcomes that the law rules out is seen at once and hides nothing.

    Args:
        law: probabilities by outcome.
        total_variation: distance from the law, in (0, 1), of any alternative; or
        alternative: the one that matters.
        alpha: p-value at or below which the law is rejected.
        power: probability wanted.
        minimum_expected: as in `chi_square`.

    Raises:
        ValueError: for a law that is none, numbers outside their bounds, both or none of ``total_variation`` and
            ``alternative``, or an alternative that no affordable number of draws (2^50) tells from the law.
    """
    outcomes = _Outcomes(law)
    if not 0.0 < power < 1.0:
        raise ValueError(f"`power` must be within (0, 1), got {power}")
    if (total_variation is None) == (alternative is None):
        raise ValueError("give one of `total_variation` and `alternative`")
    if alternative is not None:
        aligned = _aligned(outcomes, alternative)
        return _fewest(lambda draws: _power(outcomes, *aligned, draws, alpha, minimum_expected), power)
    if total_variation is None or not 0.0 < total_variation < 1.0:
        raise ValueError(f"`total_variation` must be within (0, 1), got {total_variation}")
    distance = total_variation
    return _fewest(lambda draws: _least_power(outcomes, distance, draws, alpha, minimum_expected), power)


def assert_law(
    sampler: Sampler[Key],
    law: Probabilities[Key],
    total_variation: float = 0.01,
    alpha: float = 1e-6,
    power: float = 0.99,
    seed: int = 0,
    minimum_expected: float = 100.0,
) -> Fit:
    """Fail if a sampler does not have a law; draw as often as it takes to notice that.

    Args:
        sampler: called once as ``sampler(draws, seed)``; returns counts by outcome that sum to ``draws``.
        law: what it should be.
        total_variation: distance from the law at which any sampler is to be caught with probability ``power``.
        alpha: probability with which a right sampler fails.
        power: see ``total_variation``.
        seed: passed on to the sampler.
        minimum_expected: as in `chi_square`; more than there, since ``alpha`` is small.

    Raises:
        AssertionError: naming the cells that are furthest off, the p-value and what the test was able to see.
        ValueError: as `draws_needed`, or if the counts do not sum to the draws asked for.
    """
    # From the distance to be noticed, not from habit: a pass then says how far off the sampler may still be.
    draws = draws_needed(
        law, total_variation=total_variation, alpha=alpha, power=power, minimum_expected=minimum_expected
    )
    counts = sampler(draws, seed)
    fit = chi_square(counts, law, minimum_expected)
    if fit.draws != draws:
        raise ValueError(f"the sampler was asked for {draws} draws and counted {fit.draws}; count every draw once")
    if fit.p_value <= alpha:
        raise AssertionError(
            f"the sampler does not have this law: chi-square {fit.statistic:.6g} on {fit.degrees} degrees of freedom, "
            f"p = {fit.p_value:.3g} <= alpha = {alpha:g}; seed {seed}, {draws} draws, enough to see a total variation "
            f"of {total_variation:g} with probability {power:g}. Furthest off: {_worst(counts, law, draws)}"
        )
    return fit


class _Outcomes(Generic[Key]):
    """The outcomes a law allows, rarest first.

    Attributes:
        keys: the outcomes.
        probability: float64, theirs.
    """

    def __init__(self, law: Probabilities[Key]) -> None:
        _check_law(law)
        every = np.array([float(probability) for probability in law.values()])
        # Rarest first, so that what shares a cell is always a prefix; stable, so that a law has one order.
        order = [int(place) for place in np.argsort(every, kind="stable") if every[place]]
        keys = list(law)
        self.keys = [keys[place] for place in order]
        self.probability: Floats = every[order]
        self._upto = np.cumsum(self.probability)

    def pooled(self, draws: int, minimum: float) -> int:
        """Return how many of them, the rarest, share a cell."""
        count = int(np.searchsorted(self.probability, minimum / draws))
        if not count:
            return 0
        # The shared cell must be expected as often as the others, so it takes in the next rarest until it is.
        return min(max(count, int(np.searchsorted(self._upto, minimum / draws)) + 1), len(self.keys))

    def mass(self, count: int) -> float:
        """Return the probability of the ``count`` rarest."""
        return float(self._upto[count - 1]) if count else 0.0


def _check_law(law: Probabilities[Key]) -> None:
    for key, probability in law.items():
        if not 0 <= probability <= 1:
            raise ValueError(f"a law holds probabilities within [0, 1], got {probability} for {key!r}")
    exact = all(isinstance(probability, Fraction | int) for probability in law.values())
    total: Fraction | float = sum(law.values()) if exact else math.fsum(law.values())
    # Fractions sum to 1 or are no law; floats get what their addition may lose.
    if abs(float(total - 1)) > (0.0 if exact else 1e-9):
        raise ValueError(f"the probabilities of a law must sum to 1, got {total}; normalize them, floats in float64")


def _observed(counts: Mapping[Key, int], keys: Sequence[Key]) -> tuple[Floats, int]:
    """Return the counts of ``keys`` and the number of draws."""
    for key, count in counts.items():
        if count < 0 or count != int(count):
            raise ValueError(f"counts must be whole numbers of at least 0, got {count} for {key!r}")
    draws = int(sum(counts.values()))
    if not draws:
        raise ValueError("there are no draws to test")
    return np.array([counts.get(key, 0) for key in keys], np.float64), draws


def _cells(values: Floats, pooled: int) -> Floats:
    return np.concatenate(([values[:pooled].sum()], values[pooled:])) if pooled else values


def _aligned(outcomes: _Outcomes[Key], alternative: Probabilities[Key]) -> tuple[Floats, float]:
    """Return an alternative's probabilities of a law's outcomes, and those of all others together."""
    _check_law(alternative)
    inside = np.array([float(alternative.get(key, 0)) for key in outcomes.keys])
    known = set(outcomes.keys)
    return inside, math.fsum(float(probability) for key, probability in alternative.items() if key not in known)


def _power(
    outcomes: _Outcomes[Key], inside: Floats, outside: float, draws: int, alpha: float, minimum_expected: float
) -> float:
    # One outcome that the law rules out is enough, so chi-square has to answer only if none comes.
    unseen = (1.0 - outside) ** draws
    if not unseen:
        return 1.0
    pooled = outcomes.pooled(draws, minimum_expected)
    # Given that none came, the alternative is what is left of it.
    expected, other = _cells(outcomes.probability, pooled), _cells(inside, pooled) / (1.0 - outside)
    noncentrality = draws * float(((other - expected) ** 2 / expected).sum())
    return 1.0 - unseen * (1.0 - _reach(len(expected) - 1, noncentrality, alpha))


def _least_power(outcomes: _Outcomes[Key], distance: float, draws: int, alpha: float, minimum_expected: float) -> float:
    """Return a lower bound of the power against every alternative at a total variation; see `draws_needed`."""
    if len(outcomes.keys) == 1:
        # A law of one outcome: what differs from it by d has mass d on outcomes it rules out.
        return 1.0 - float((1.0 - distance) ** draws)
    pooled = outcomes.pooled(draws, minimum_expected)
    seen = max(distance - outcomes.mass(pooled), 0.0)
    return _reach(len(outcomes.keys) - max(pooled, 1), 4.0 * draws * seen**2, alpha)


def _reach(degrees: int, noncentrality: float, alpha: float) -> float:
    return noncentral_tail(chi_square_critical(alpha, degrees), degrees, noncentrality) if degrees else 0.0


def _fewest(reached: Callable[[int], float], wanted: float) -> int:
    """Return a number of draws that reaches a power, one less than which does not."""
    # Power is not quite monotone, since a cell split off costs a degree of freedom: any crossing will do.
    low, high = 0, 1
    while reached(high) < wanted:
        if high >= _MOST_DRAWS:
            raise ValueError(f"even {high} draws do not tell the alternative from the law; take one that differs more")
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if reached(middle) >= wanted else (middle, high)
    return high


def _worst(counts: Mapping[Key, int], law: Probabilities[Key], draws: int) -> str:
    """Describe the outcomes that add most to the statistic."""

    def excess(key: Key) -> float:
        expected = draws * float(law.get(key, 0))
        return (counts.get(key, 0) - expected) ** 2 / expected if expected else math.inf

    # Impossible outcomes that occurred are told too: their excess is infinite.
    keys = [key for key in dict.fromkeys([*law, *counts]) if law.get(key, 0) or counts.get(key, 0)]
    furthest = sorted(keys, key=excess, reverse=True)[:5]
    return "; ".join(
        f"{key!r} expected {draws * float(law.get(key, 0)):.1f}, observed {counts.get(key, 0)}" for key in furthest
    )
