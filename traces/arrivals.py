"""Arrival times: Poisson, Gamma for traffic burstier or smoother than that, a flash crowd, waves of joins."""

from __future__ import annotations

import math

import numpy as np

from .arrays import Floats
from .table import TraceError


def poisson_arrivals(n: int, rate: float, rng: np.random.Generator) -> Floats:
    """Return float64 ``[n]`` arrival times in seconds of a Poisson process of ``rate`` requests a second.

    The first request comes after the first gap, at a time > 0.

    Raises:
        TraceError: if ``n`` is under 1 or ``rate`` is not positive and finite.
    """
    _check(n, rate=rate)
    return np.cumsum(rng.exponential(1 / rate, n))


def gamma_arrivals(n: int, rate: float, cv: float, rng: np.random.Generator) -> Floats:
    """Return float64 ``[n]`` arrival times in seconds with Gamma gaps of mean 1 / ``rate``.

    ``cv`` is the gaps' coefficient of variation: 1 is Poisson, above 1 is bursty (the Azure 2023 code trace
    has 13.2). The shape is 1 / cv^2. Gaps of a very bursty process can be too small for a float and then are 0: ties.

    Raises:
        TraceError: if ``n`` is under 1, or ``rate`` or ``cv`` is not positive and finite.
    """
    _check(n, rate=rate, cv=cv)
    shape = 1 / cv**2
    return np.cumsum(rng.gamma(shape, 1 / (rate * shape), n))


def flash_arrivals(
    n: int, rate: float, peak: float, start_s: float, seconds: float, rng: np.random.Generator
) -> Floats:
    """Return float64 ``[n]`` arrival times in seconds of a flash crowd.

    A Poisson process of ``rate`` requests a second, and of ``peak`` times that rate for ``seconds`` from ``start_s``
    on. Times of a process of rate 1 are mapped through the inverse of the expected count.

    Raises:
        TraceError: if ``n`` is under 1, ``rate``, ``peak`` or ``seconds`` is not positive and finite, or ``start_s`` is
            negative or not finite.
    """
    _check(n, rate=rate, peak=peak, seconds=seconds)
    if not (math.isfinite(start_s) and start_s >= 0):
        raise TraceError(f"`start_s` must be at least 0 and finite, got {start_s}")
    before, during = rate * start_s, rate * peak * seconds
    counts = np.cumsum(rng.exponential(1.0, n))
    inside = start_s + (counts - before) / (rate * peak)
    after = start_s + seconds + (counts - before - during) / rate
    return np.where(counts < before, counts / rate, np.where(counts < before + during, inside, after))


def wave_arrivals(n: int, rate: float, size: int, share: float, rng: np.random.Generator) -> Floats:
    """Return float64 ``[n]`` arrival times in seconds: waves of simultaneous requests over a Poisson background.

    ``share`` of the mean ``rate`` comes in waves of ``size`` requests at one instant, evenly spaced; the rest is
    Poisson.

    Raises:
        TraceError: if ``n`` or ``size`` is under 1, ``rate`` is not positive and finite, or ``share`` is not in (0, 1].
    """
    _check(n, rate=rate)
    if size < 1:
        raise TraceError(f"`size` must be at least 1 request, got {size}")
    if not 0 < share <= 1:
        raise TraceError(f"`share` must be above 0 and at most 1, got {share}")
    period = size / (rate * share)
    waves = np.repeat(period * np.arange(1, n // size + 2), size)
    background = np.cumsum(rng.exponential(1 / (rate * (1 - share)), n)) if share < 1 else np.empty(0)
    return np.sort(np.concatenate([waves, background]), kind="stable")[:n]


def _check(n: int, **positive: float) -> None:
    if n < 1:
        raise TraceError(f"`n` must be at least 1 request, got {n}")
    for name, value in positive.items():
        if not (math.isfinite(value) and value > 0):
            raise TraceError(f"`{name}` must be positive and finite, got {value}")
