"""Nelder and Mead's downhill simplex, for fits with a handful of parameters and no gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ...policies import Floats


def minimize(
    loss: Callable[[Floats], float], start: Sequence[float], step: Sequence[float], rounds: int
) -> tuple[Floats, float]:
    """Return the best point found and its loss; the same input gives the same output.

    Args:
        loss: to be minimized; may return infinity.
        start: first corner.
        step: by how much each parameter differs in one other corner.
        rounds: improvements of the worst corner that are tried.
    """
    first = np.asarray(start, np.float64)
    corners = [first, *(first + offset for offset in np.diag(np.asarray(step, np.float64)))]
    ranked = sorted(((loss(corner), corner) for corner in corners), key=lambda pair: pair[0])
    for _ in range(rounds):
        ranked = sorted(_improve(loss, ranked), key=lambda pair: pair[0])
    return ranked[0][1], ranked[0][0]


def _improve(loss: Callable[[Floats], float], ranked: list[tuple[float, Floats]]) -> list[tuple[float, Floats]]:
    """Move the worst corner through the middle of the others: reflect, stretch, contract, else shrink all."""
    *others, (worst, corner) = ranked
    middle = np.mean([point for _, point in others], axis=0)

    def at(stretch: float) -> tuple[float, Floats]:
        point = middle + stretch * (middle - corner)
        return loss(point), point

    reflected = at(1.0)
    if reflected[0] < ranked[0][0]:
        return [*others, min(reflected, at(2.0), key=lambda pair: pair[0])]
    if reflected[0] < others[-1][0]:
        return [*others, reflected]
    contracted = at(-0.5)
    if contracted[0] < worst:
        return [*others, contracted]
    best = ranked[0][1]
    return [ranked[0], *((loss(point), point) for point in (best + 0.5 * (p - best) for _, p in ranked[1:]))]
