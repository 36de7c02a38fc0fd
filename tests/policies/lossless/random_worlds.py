"""Random little worlds from a NumPy generator."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from specsched.policies.lossless.worlds import Distribution, RowPlan, World


def random_law(rng: np.random.Generator, vocabulary: int, zeros: float = 0.1) -> Distribution:
    """Twelfths, now and then with a token that never comes."""
    weights = rng.integers(1, 7, vocabulary) * (rng.random(vocabulary) >= zeros)
    if not weights.any():
        weights[0] = 1
    return tuple(Fraction(int(weight), int(weights.sum())) for weight in weights)


def random_world(
    rng: np.random.Generator,
    vocabulary: int,
    gamma: int,
    tokens: int,
    plans: tuple[RowPlan, ...] = (RowPlan(),),
    **more: Any,
) -> World:
    """Laws by row and preceding token, confidences that tie, vanish and saturate, and a jagged cost."""

    def laws() -> tuple[tuple[Distribution, ...], ...]:
        return tuple(tuple(random_law(rng, vocabulary) for _ in range(vocabulary)) for _ in plans)

    leaves = sum(vocabulary**depth for depth in range(1, gamma + 1)) if more.get("own_token") else None
    entries = leaves or sum(vocabulary**depth for depth in range(gamma))
    values = np.round(rng.random((len(plans), vocabulary, entries)) ** 0.4, 2)
    special = rng.choice([0.0, 0.5, 1.0], values.shape)
    values = np.where(rng.random(values.shape) < 0.3, special, values)
    risers = rng.choice([0.0, 0.02, 0.1, 0.3, 0.9], len(plans) * (1 + gamma) - 1)
    seconds = 1.0 + np.concatenate(([0.0], np.cumsum(risers)))
    return World(
        vocabulary=vocabulary,
        gamma=gamma,
        tokens=tokens,
        rows=plans,
        target=laws(),
        draft=laws(),
        confidence=tuple(tuple(tuple(leaf) for leaf in by_anchor) for by_anchor in values.tolist()),
        seconds=tuple(seconds.tolist()),
        **more,
    )
