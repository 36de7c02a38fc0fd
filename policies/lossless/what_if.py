"""Other confidences that a step's drafts might have had: values that tie, swap orders, vanish and saturate.

Rows are numbered from 0, drafts from 1. Confidences come by row, as many as the row has drafts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from operator import mul

import numpy as np

from .scripts import random_confidences

Confidences = tuple[tuple[float, ...], ...]
Draw = Callable[[tuple[float, ...], int], Sequence[float]]
"""From a row's confidences and the first draft that changes, the values of that draft and of those after it."""


def beyond(confidence: Confidences, lengths: Sequence[int], rng: np.random.Generator) -> Iterator[Confidences]:
    """Yield changes of several rows at once, at drafts that nothing admitted can tell apart.

    ``c[r, j]`` is a function of the drafts before ``j``, so with ``lengths`` admitted these are the ``j`` of at least
    ``lengths[r] + 2``. All such drafts of all rows get zeros, ones, then random values.
    """
    firsts = [length + 2 for length in lengths]
    if sum(len(row) >= first for row, first in zip(confidence, firsts, strict=True)) < 2:
        return  # `in_a_row` covers it
    for draw in (_zeros, _ones, partial(_random, rng)):
        yield tuple(
            _changed(row, first, draw) if first <= len(row) else row
            for row, first in zip(confidence, firsts, strict=True)
        )


def in_a_row(
    confidence: Confidences, lengths: Sequence[int], rng: np.random.Generator, count: int
) -> Iterator[Confidences]:
    """Yield ``count`` changes of one row from some draft (the second or later) on; none where no row has two drafts.

    Half of them begin at the first draft that nothing admitted can tell apart.
    """
    rows = [row for row, values in enumerate(confidence) if len(values) >= 2]
    if not rows:
        return
    draws: tuple[Draw, ...] = (
        _zeros,
        _ones,
        partial(_random, rng),
        partial(_one, 0.0),
        partial(_one, 1.0),
        partial(_swap, rng, confidence),
    )
    for turn in range(count):
        row = rows[int(rng.integers(len(rows)))]
        values = confidence[row]
        # From the second draft on: c[1] is known before anything of this step is drafted.
        first = int(rng.integers(2, len(values) + 1))
        if turn % 2 and lengths[row] + 2 <= len(values):
            first = lengths[row] + 2
        draw = draws[int(rng.integers(len(draws)))]
        yield replaced(confidence, row, _changed(values, first, draw))


def replaced(confidence: Confidences, row: int, values: tuple[float, ...]) -> Confidences:
    """Return confidences with other values in one row."""
    return (*confidence[:row], values, *confidence[row + 1 :])


def _changed(values: tuple[float, ...], first: int, draw: Draw) -> tuple[float, ...]:
    return (*values[: first - 1], *draw(values, first))


def _zeros(values: tuple[float, ...], first: int) -> Sequence[float]:
    return (0.0,) * (len(values) - first + 1)


def _ones(values: tuple[float, ...], first: int) -> Sequence[float]:
    return (1.0,) * (len(values) - first + 1)


def _random(rng: np.random.Generator, values: tuple[float, ...], first: int) -> Sequence[float]:
    drawn: list[float] = random_confidences(rng, len(values) - first + 1).tolist()
    return drawn


def _one(value: float, values: tuple[float, ...], first: int) -> Sequence[float]:
    return (value, *values[first:])


def _swap(rng: np.random.Generator, confidence: Confidences, values: tuple[float, ...], first: int) -> Sequence[float]:
    """Bring a draft's survival to that of a draft elsewhere, or to just above or below it."""
    before = math.prod(values[: first - 1])
    # A survival only falls along its row, so goals above the one before it are out of reach.
    goals = [goal for row in confidence for goal in accumulate(row, mul) if goal <= before]
    if not goals or before <= 0.0:
        return _one(float(rng.random()), values, first)
    value = min(goals[int(rng.integers(len(goals)))] / before, 1.0)
    side = int(rng.integers(3))
    # A tie, or an ulp to either side of it: the order is what a policy goes by.
    value = (value, math.nextafter(value, 0.0), min(math.nextafter(value, 2.0), 1.0))[side]
    return _one(value, values, first)
