"""Per-step randomness of the engine, keyed by (seed, step): step-time noise and the policies' coin."""

from __future__ import annotations

from math import log1p, sqrt

import numpy as np

_CHUNK = 1024


class StepNoise:
    """Uniform coins and lognormal step-time factors (mean 1), drawn in chunks of steps."""

    def __init__(self, seed: int, cv: float) -> None:
        self._seed = seed
        self._sigma = sqrt(log1p(cv * cv))
        self._chunk: int | None = None
        self._coins: list[float] = []
        self._factors: list[float] = []

    def _load(self, chunk: int) -> None:
        # "coin" and the chunk: a step's numbers depend on nothing but (seed, step). Both kinds are always drawn, in
        # this order, so that noise on or off leaves the coins as they are.
        rng = np.random.Generator(np.random.Philox(np.random.SeedSequence([self._seed, 0x636F696E, chunk])))
        self._coins = rng.random(_CHUNK).tolist()
        normal = rng.standard_normal(_CHUNK)
        # Minus sigma^2 / 2: a lognormal of mean 1, or noise would make every arm slower.
        self._factors = np.exp(self._sigma * normal - 0.5 * self._sigma**2).tolist()
        self._chunk = chunk

    def coin(self, step: int) -> float:
        """Return the uniform in [0, 1) of a step."""
        chunk, at = divmod(step, _CHUNK)
        if chunk != self._chunk:
            self._load(chunk)
        return self._coins[at]

    def factor(self, step: int) -> float:
        """Return the step-time factor of a step; exactly 1 without noise."""
        if not self._sigma:
            return 1.0
        self.coin(step)
        return self._factors[step % _CHUNK]
