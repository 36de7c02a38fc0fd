"""Which drafts fill a budget: the top ``K`` by survival, prefix-closed by construction."""

from __future__ import annotations

import operator

import numpy as np

from .arrays import Floats, Ints
from .generation import Generation
from .totals import total


def admit_top_k(survival: Floats, available: Ints, budget: int, min_len: int = 0) -> Ints:
    """Return verify lengths, int64 ``[R]``, that admit the ``budget`` best drafts.

    The order is survival descending, position ascending, row ascending (ties included), over the drafts that exist
    (``j < available[r]``, whatever their survival). Survivals never rise along a row, so every admitted set is a
    prefix. With ``min_len`` the first ``min(min_len, available)`` drafts of every row come first and count.

    Args:
        survival: float64 ``[R, gamma]``, non-increasing along a row, 0 where no draft is.
        available: int64 ``[R]``.
        budget: drafts to admit in all, ``0 <= budget <= available.sum()``.
        min_len: drafts of every row that are admitted whatever their survival.

    Raises:
        ValueError: if the budget is no whole number, lies outside that range, or is under what ``min_len`` takes.
    """
    known = available > 0
    return admit(Generation(survival.copy(), survival.copy(), known, bool(known.all())), available, budget, min_len)


def admit(generation: Generation, available: Ints, budget: int, min_len: int = 0, drafted: int | None = None) -> Ints:
    """Return what `admit_top_k` does, for a generation that may be ranked already and a known sum of ``available``."""
    try:
        budget = operator.index(budget)
    except TypeError:
        raise ValueError(f"budget must be a whole number of drafts, got {budget!r}; wrap it in int(..)") from None
    if drafted is None:
        drafted = total(available)
    if not 0 <= budget <= drafted:
        raise ValueError(f"budget must be within 0..{drafted} (drafts available), got {budget}")
    if min_len:
        return _admit_with_floor(generation.survival, available, budget, min_len)
    if budget == 0:
        return np.zeros(len(available), np.int64)
    if budget == drafted:
        return available.copy()
    last = generation.ranked[budget - 1]
    # Drafts that do not exist have survival 0, so a positive cut never reaches them.
    if last > 0.0:
        lengths = _at_least(generation, last)
        if total(lengths) == budget:
            return lengths
    return _by_order(generation.survival, available, budget)


def _at_least(generation: Generation, last: float) -> Ints:
    """Return how many drafts of each row have survival ``last`` or more."""
    if generation.rows is None:
        lengths: Ints = np.add.reduce(generation.survival >= last, axis=1)
        return lengths
    lengths_by_row = []
    for row in generation.rows:
        admitted = 0
        for survival in row:  # they never rise, so the first below the cut ends the row
            if survival < last:
                break
            admitted += 1
        lengths_by_row.append(admitted)
    return np.array(lengths_by_row, np.int64)


def _by_order(survival: Floats, available: Ints, budget: int) -> Ints:
    """Fill ``budget`` by sorting every draft: the slow way, used where survivals tie at the cut."""
    rows, gamma = survival.shape
    exists = np.arange(gamma) < available[:, None]
    # Position-major order makes a stable sort break ties by position, then row.
    order = np.argsort(np.where(exists, -survival, np.inf).T.ravel(), kind="stable")[:budget]
    return np.bincount(order % rows, minlength=rows).astype(np.int64)


def _admit_with_floor(survival: Floats, available: Ints, budget: int, min_len: int) -> Ints:
    """Give every row its floor, then fill the rest of the budget by survival."""
    floor = np.minimum(available, min_len)
    rest = budget - int(floor.sum())
    if rest < 0:
        raise ValueError(f"budget must be at least {int(floor.sum())} (min_len {min_len} of every row), got {budget}")
    raised = np.where(np.arange(survival.shape[1]) < floor[:, None], 2.0, survival)
    return _by_order(raised, available, budget)
