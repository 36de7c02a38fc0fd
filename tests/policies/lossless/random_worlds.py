"""Random little worlds from a NumPy generator, one of two coupled rows, and a way to play random histories."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from specsched.policies import Policy
from specsched.policies.checks import ask, start_state
from specsched.policies.lossless.scripts import Script, Situation, view_of
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


def coupled_rows() -> World:
    """Return two rows of one draft each, whose confidences show the drafts: the smallest world that can couple rows.

    Verifying row 1's draft iff row 2 drafted A and the other way round keeps both marginals and gives B, B the
    probability 9/80 instead of 9/100.
    """
    half = Fraction(1, 2)
    return World(
        vocabulary=2,
        gamma=1,
        tokens=1,
        rows=(RowPlan(), RowPlan()),
        target=(((Fraction(7, 10), Fraction(3, 10)),),),
        draft=(((half, half),),),
        confidence=(((1.0, 0.0),),),
        seconds=(1.0, 1.0, 1.0, 1.0),
        own_token=True,
    )


def play(policy: Policy, script: Script) -> Iterator[Situation]:
    """Yield every step of a script with the policy's decision; its state flows from step to step.

    Raises:
        PolicyError: if the policy fails or returns lengths that a step cannot execute.
    """
    state = start_state(policy)
    for step, moment in enumerate(script.moments):
        lengths, following = ask(policy, view_of(policy, script, step, moment), state)
        yield Situation(policy, script, step, state, lengths)
        state = following
