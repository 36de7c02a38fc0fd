"""Student t intervals over a handful of seeds, from the standard library alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

LEAST_SEEDS = 5
"""Fewest values an interval is given for; below it the t quantile says more about the count than about the run."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A two-sided confidence interval, in the unit of the values it came from."""

    low: float
    high: float


def t_quantile(probability: float, degrees: int) -> float:
    """Return the quantile of Student's t distribution with a whole number of degrees of freedom.

    With theta = atan(t / sqrt(degrees)) the distribution function is a finite sum of powers of cos(theta)
    (Abramowitz and Stegun 26.7.3 and 26.7.4), which is inverted here by bisection over theta.

    Args:
        probability: in (0, 1).
        degrees: degrees of freedom, at least 1.

    Raises:
        ValueError: if `probability` or `degrees` is out of range.
    """
    if not 0.0 < probability < 1.0:
        raise ValueError(f"`probability` must be above 0 and below 1, got {probability!r}")
    if degrees < 1:
        raise ValueError(f"`degrees` must be at least 1, got {degrees!r}")
    if probability < 0.5:
        return -t_quantile(1.0 - probability, degrees)
    inside, low, high = 2.0 * probability - 1.0, 0.0, math.pi / 2
    # 60 halvings of a range below 2 leave less than one unit in the last place of theta.
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _central_mass(middle, degrees) < inside else (low, middle)
    return math.sqrt(degrees) * math.tan(low)


def _central_mass(theta: float, degrees: int) -> float:
    """Return P(|T| <= sqrt(degrees) tan(theta))."""
    cosine, sine = math.cos(theta), math.sin(theta)
    odd = degrees % 2
    term = cosine if odd else 1.0
    total = term if degrees > 1 else 0.0
    for n in range(2 + odd, degrees - 1, 2):
        term *= cosine * cosine * (n - 1) / n
        total += term
    return 2.0 / math.pi * (theta + sine * total) if odd else sine * total


def mean_interval(values: Sequence[float], level: float = 0.95) -> Interval | None:
    """Return the interval of the mean of independent values, or None with fewer than `LEAST_SEEDS` of them.

    Args:
        values: one value a seed, any unit.
        level: coverage, in (0, 1).
    """
    count = len(values)
    if count < LEAST_SEEDS:
        return None
    mean = math.fsum(values) / count
    variance = math.fsum((value - mean) ** 2 for value in values) / (count - 1)
    half = t_quantile((1.0 + level) / 2.0, count - 1) * math.sqrt(variance / count)
    return Interval(mean - half, mean + half)


def ratio_interval(log_ratios: Sequence[float], level: float = 0.95) -> Interval | None:
    """Return the interval of a geometric mean ratio from paired natural-log ratios, one a seed (None below five)."""
    logs = mean_interval(log_ratios, level)
    return None if logs is None else Interval(math.exp(logs.low), math.exp(logs.high))
