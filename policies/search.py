"""The global budget search: the argmax of expected tokens per second, without an early stop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol

import numpy as np

from .interface import Bools, Floats, Ints, StepCost
from .parameters import at_least, within

_FEW = 64


class Priced(Protocol):
    """What the search reads of a view: the batch, never a survival."""

    available: Ints
    cost: StepCost
    drafted: int
    prefill_tokens: int

    @property
    def rows(self) -> int:
        """Number of rows."""
        ...

    def seconds(self, most: int) -> Floats:
        """Return step seconds by drafts admitted."""
        ...


@dataclass(frozen=True)
class SearchOptions:
    """Options of the search that a policy's YAML parameters carry.

    Attributes:
        min_len: drafts every row gets whatever its survival; they count in the budget.
        min_gain: trim only if the best budget beats verifying everything by at least this fraction.
        align: raise the budget to fill the executed batch size with real drafts instead of padding.
        allowed: batch sizes in tokens a budget may land on; None allows every size. Where none is in reach, only
            the floor that ``min_len`` demands is admitted.
    """

    min_len: int = 0
    min_gain: float = 0.0
    align: bool = False
    allowed: tuple[int, ...] | None = None

    def check(self, kind: str) -> None:
        """Raise PolicyError for an option outside its bounds."""
        at_least(kind, "min_len", self.min_len, 0)
        within(kind, "min_gain", self.min_gain, 0.0, 10.0)
        for size in self.allowed or ():
            at_least(kind, "allowed", size, 1)


def as_sizes(sizes: Sequence[int] | None) -> tuple[int, ...] | None:
    """Return allowed sizes as a tuple (YAML gives lists)."""
    return None if sizes is None else tuple(sizes)


def best_budget(expected: Floats, view: Priced, options: SearchOptions) -> int:
    """Return the budget ``K`` that maximizes expected tokens per second, the lowest on ties.

    Theta(K) = (R + sum of the K best expected survivals) / T(R + prefill + K), section 5.2 of the paper.

    Args:
        expected: float64 ``[R, gamma]``, expected survivals, 0 where a row has no draft.
        view: the batch and its cost.
        options: see `SearchOptions`.
    """
    total = view.drafted
    floor = int(np.minimum(view.available, options.min_len).sum()) if options.min_len else 0
    theta = _theta(expected, view, total, floor, options.min_len)
    if options.allowed is not None:
        theta = np.where(_landing(view, floor, total, options.allowed), theta, -np.inf).tolist()
    best = theta.index(max(theta)) if isinstance(theta, list) else int(theta.argmax())
    # Trimming must pay for itself: compare with verifying all there is.
    if options.min_gain and options.allowed is None and theta[best] < theta[-1] * (1.0 + options.min_gain):
        return total
    budget = floor + best
    if options.align:
        executed = view.cost.padded(view.rows + view.prefill_tokens + budget)
        budget = min(executed - view.rows - view.prefill_tokens, total)
    return budget


def _theta(expected: Floats, view: Priced, total: int, floor: int, min_len: int) -> Floats | list[float]:
    """Return expected tokens per second for budgets ``floor .. total``.

    Few drafts are summed and divided in plain Python, in the same order and so to the same bits: NumPy's call
    overhead would cost more than the arithmetic.
    """
    if total != expected.size:  # no prior or stale value may count drafts that do not exist
        expected = np.where(np.arange(expected.shape[1]) < view.available[:, None], expected, 0.0)
    base = float(view.rows + expected[:, :min_len].sum()) if min_len else float(view.rows)
    optional = (expected[:, min_len:] if min_len else expected).flatten()
    seconds = view.seconds(total)[floor:]
    if total <= _FEW:
        best_first = sorted(optional.tolist(), reverse=True)[: total - floor]
        return [gain / paid for gain, paid in zip(accumulate(best_first, initial=base), seconds.tolist(), strict=True)]
    optional.sort()
    gains = np.empty(total - floor + 1)
    gains[0] = base
    gains[1:] = optional[::-1][: total - floor]
    np.add.accumulate(gains, out=gains)
    return np.divide(gains, seconds, out=gains)


def _landing(view: Priced, floor: int, total: int, allowed: tuple[int, ...]) -> Bools:
    """Return which budgets ``floor .. total`` give an allowed batch size; the floor alone if none does."""
    sizes = view.rows + view.prefill_tokens + np.arange(floor, total + 1)
    lands = np.isin(sizes, allowed)
    if not lands.any():
        lands[0] = True
    return lands
