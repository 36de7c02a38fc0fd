"""Tails of the chi-square law, central and noncentral.

The central tail is a regularised incomplete gamma function: its series below the mean and its continued fraction above
(Abramowitz and Stegun 6.5.29 and 6.5.31), with the leading factor computed as Loader (2000, "Fast and accurate
computation of binomial probabilities") does, so that it keeps its digits at many degrees of freedom. The noncentral
law is a Poisson mixture of central ones (Abramowitz and Stegun 26.4.25).
"""

from __future__ import annotations

import math

import numpy as np

from ..arrays import Floats

_TINY = 1e-17
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188)


def chi_square_tail(statistic: float, degrees: float) -> float:
    """Return the probability that a chi-square variable is at least ``statistic``.

    Args:
        statistic: at least 0; infinity gives 0.
        degrees: degrees of freedom, at least 0; with 0 the variable is 0.

    Raises:
        ValueError: for a negative argument or NaN.
    """
    _check(statistic=statistic, degrees=degrees)
    if statistic == 0.0 or degrees == 0.0 or math.isinf(statistic):
        return float(statistic == 0.0)
    shape, x = degrees / 2, statistic / 2
    factor = math.exp(_log_density(shape, x))
    # The series converges fast below the mean, the fraction above it.
    return 1.0 - factor * _series(shape, x) if x < shape + 1 else factor * _fraction(shape, x)


def noncentral_tail(statistic: float, degrees: float, noncentrality: float) -> float:
    """Return the probability that a noncentral chi-square variable is at least ``statistic``.

    Args:
        statistic: finite, at least 0.
        degrees: degrees of freedom, above 0.
        noncentrality: sum of the squared means, finite, at least 0.

    Raises:
        ValueError: for an argument outside these bounds or NaN.
    """
    _check(statistic=statistic, degrees=degrees, noncentrality=noncentrality)
    if degrees == 0.0 or math.isinf(statistic) or math.isinf(noncentrality):
        raise ValueError("a noncentral chi-square tail needs degrees above 0 and finite arguments")
    if statistic == 0.0 or noncentrality == 0.0:
        return chi_square_tail(statistic, degrees)
    first, weights = _poisson(noncentrality / 2)
    shape, x = degrees / 2 + first, statistic / 2
    # Q(a + 1, x) = Q(a, x) + x^a exp(-x) / Gamma(a + 1): upwards every term adds, so that nothing cancels.
    steps = np.log(x) - np.log(shape + np.arange(1, len(weights)))
    rises = np.exp(_log_density(shape, x) - math.log(shape) + np.concatenate(([0.0], np.cumsum(steps))))
    tails = chi_square_tail(statistic, 2 * shape) + np.concatenate(([0.0], np.cumsum(rises[:-1])))
    return min(float(weights @ tails), 1.0)


def chi_square_critical(alpha: float, degrees: float) -> float:
    """Return the statistic that a chi-square variable reaches with probability ``alpha``, to 12 digits.

    Raises:
        ValueError: unless ``0 < alpha < 1`` and ``degrees > 0``.
    """
    if not (0.0 < alpha < 1.0 and degrees > 0.0):
        raise ValueError(f"a critical value needs 0 < alpha < 1 and degrees above 0, got {alpha} and {degrees}")
    low, high = 0.0, max(degrees, 1.0)
    while chi_square_tail(high, degrees) > alpha:
        low, high = high, 2 * high
    # By halving, since the tail falls as the statistic grows.
    while high - low > 1e-13 * high:
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (middle, high) if chi_square_tail(middle, degrees) > alpha else (low, middle)
    return high


def _check(**arguments: float) -> None:
    for name, value in arguments.items():
        if not value >= 0.0:
            raise ValueError(f"`{name}` of a chi-square law must be at least 0, got {value}")


def _log_density(shape: float, x: float) -> float:
    """Return log(x^shape exp(-x) / Gamma(shape))."""
    if shape < 16.0:
        return shape * math.log(x) - x - math.lgamma(shape)
    away = (x - shape) / shape
    # log(1 + d) - d loses its digits to cancellation where d is small; there the series of it does not.
    bent = _log1p_less(away)
    correction = sum(term / shape ** (2 * place + 1) for place, term in enumerate(_STIRLING))
    return shape * bent - correction + 0.5 * math.log(shape / (2 * math.pi))


def _log1p_less(d: float) -> float:
    """Return log(1 + d) - d."""
    if abs(d) > 0.1:
        return math.log1p(d) - d
    total, power, place = 0.0, -d, 1
    while True:
        power, place = power * -d, place + 1
        term = -power / place
        total += term
        if abs(term) <= _TINY * abs(total):
            return total


def _series(shape: float, x: float) -> float:
    """Return P(shape, x) over its leading factor x^shape exp(-x) / Gamma(shape)."""
    term = total = 1.0 / shape
    place = shape
    while term > _TINY * total:
        place += 1.0
        term *= x / place
        total += term
    return total


def _fraction(shape: float, x: float) -> float:
    """Return Q(shape, x) over the same factor: the continued fraction, by Lentz's method."""
    b = x + 1.0 - shape
    # Lentz's start, a very large number for the infinite one.
    c, d = 1e300, 1.0 / b
    value, place = d, 0.0
    while True:
        place += 1.0
        a = place * (shape - place)
        b += 2.0
        d = 1.0 / (a * d + b)
        c = b + a / c
        value *= c * d
        if abs(c * d - 1.0) < 1e-16 or place > 1e6:
            return value


def _poisson(mean: float) -> tuple[int, Floats]:
    """Return the first of the counts that matter, and the probabilities from there on."""
    # Nine standard deviations, and 40 for small means: what is left out weighs less than 1e-17.
    spread = 9.0 * math.sqrt(mean) + 40.0
    mode = int(mean)
    first, last = max(0, int(mode - spread)), int(mode + spread)
    counts = np.arange(first, last + 1)
    # Ratios from the mode outwards, in logarithms: exp(-mean) alone would underflow.
    logs = np.concatenate(([0.0], np.cumsum(math.log(mean) - np.log(counts[1:]))))
    at_mode = _log_density(mode, mean) - math.log(mode) if mode else -mean
    weights: Floats = np.exp(logs - logs[mode - first] + at_mode)
    return first, weights
