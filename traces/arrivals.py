"""Arrival times of renewal processes: Poisson, and Gamma for traffic burstier or smoother than that."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from .table import TraceError

Floats = npt.NDArray[np.float64]


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


def _check(n: int, **positive: float) -> None:
    if n < 1:
        raise TraceError(f"`n` must be at least 1 request, got {n}")
    for name, value in positive.items():
        if not (math.isfinite(value) and value > 0):
            raise TraceError(f"`{name}` must be positive and finite, got {value}")
