"""Which drafts fill a budget: the top ``K`` by survival, prefix-closed by construction."""

from __future__ import annotations

import operator

import numpy as np
import numpy.typing as npt

from .totals import total


def admit_top_k(
    survival: npt.NDArray[np.float64],
    available: npt.NDArray[np.int64],
    budget: int,
    min_len: int = 0,
) -> npt.NDArray[np.int64]:
    """Return verify lengths, int64 ``[R]``, that admit the ``budget`` best drafts.

    The order is survival descending, position ascending, row ascending (ties included), over the drafts that exist
    (``j < available[r]``, whatever their survival). Survivals never rise along a row, so every admitted set is a
    prefix. With ``min_len`` the first ``min(min_len, available)`` drafts of every row come first and count.

    Args:
        survival: float64 ``[R, gamma]``, non-increasing along a row.
        available: int64 ``[R]``.
        budget: drafts to admit in all, ``0 <= budget <= available.sum()``.
        min_len: drafts of every row that are admitted whatever their survival.

    Raises:
        ValueError: if the budget is no whole number or lies outside that range, or is under what ``min_len`` takes.
    """
    budget = operator.index(budget)
    drafted = total(available)
    if not 0 <= budget <= drafted:
        raise ValueError(f"budget must be within 0..{drafted} (drafts available), got {budget}")
    if min_len:
        return _admit_with_floor(survival, available, budget, min_len)
    if budget == 0:
        return np.zeros(len(available), np.int64)
    if budget == drafted:
        return available.copy()
    flat = survival.ravel()
    cut = len(flat) - budget
    last = np.partition(flat, cut)[cut]
    if last > 0.0:
        lengths: npt.NDArray[np.int64] = np.add.reduce(survival >= last, axis=1)
        if total(lengths) == budget:
            return lengths
    return _by_order(survival, available, budget)


def _by_order(
    survival: npt.NDArray[np.float64], available: npt.NDArray[np.int64], budget: int
) -> npt.NDArray[np.int64]:
    """Fill ``budget`` by sorting every draft: the slow way, used where survivals tie at the cut."""
    rows, gamma = survival.shape
    exists = np.arange(gamma) < available[:, None]
    # Position-major order makes a stable sort break ties by position, then row.
    order = np.argsort(np.where(exists, -survival, np.inf).T.ravel(), kind="stable")[:budget]
    return np.bincount(order % rows, minlength=rows).astype(np.int64)


def _admit_with_floor(
    survival: npt.NDArray[np.float64], available: npt.NDArray[np.int64], budget: int, min_len: int
) -> npt.NDArray[np.int64]:
    """Give every row its floor, then fill the rest of the budget by survival."""
    floor = np.minimum(available, min_len)
    rest = budget - int(floor.sum())
    if rest < 0:
        raise ValueError(f"budget must be at least {int(floor.sum())} (min_len {min_len} of every row), got {budget}")
    raised = np.where(np.arange(survival.shape[1]) < floor[:, None], 2.0, survival)
    return _by_order(raised, available, budget)
