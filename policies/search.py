"""The global budget search: the argmax of expected tokens per second, without an early stop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import truediv

import numpy as np

from .arrays import Bools, Floats
from .interface import LaggedView, PolicyError
from .parameters import at_least, within


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
        if not isinstance(self.align, bool):
            raise PolicyError(f"`align` of policy `{kind}` must be true or false, got {self.align!r}")
        for size in self.allowed or ():
            at_least(kind, "allowed", size, 1)


def as_sizes(sizes: Sequence[int] | None) -> tuple[int, ...] | None:
    """Return allowed sizes as a tuple (YAML gives lists)."""
    return None if sizes is None else tuple(sizes)


def best_budget(
    ranked: list[float] | Floats, view: LaggedView, options: SearchOptions, base: float | None = None
) -> int:
    """Return the budget ``K`` that maximizes expected tokens per second, the lowest on ties.

    Theta(K) = (R + sum of the K best expected survivals) / T(R + prefill + K), section 5.2 of the paper.

    Args:
        ranked: expected survivals descending, one for each draft that is not part of the floor.
        view: the batch and its cost.
        options: see `SearchOptions`.
        base: tokens expected at the floor; None is ``R``, without a floor.
    """
    drafted = view.drafted
    floor = drafted - len(ranked)
    if base is None:
        base = float(len(view.available))
    theta: Floats | list[float]
    if isinstance(ranked, list) and not floor:
        theta = list(map(truediv, accumulate(ranked, initial=base), view.listed_seconds(drafted)))
    else:
        theta = _theta(np.asarray(ranked), base, view.seconds(drafted)[floor:])
    if options.allowed is not None:
        theta = np.where(_landing(view, floor, drafted, options.allowed), theta, -np.inf)
    best = theta.index(max(theta)) if isinstance(theta, list) else int(theta.argmax())
    # Trimming must pay for itself: compare with verifying all there is, if that is allowed (else -inf).
    if options.min_gain and theta[best] < theta[-1] * (1.0 + options.min_gain):
        return drafted
    budget = floor + best
    if options.align:
        executed = view.cost.padded(view.rows + view.prefill_tokens + budget)
        budget = min(executed - view.rows - view.prefill_tokens, drafted)
    return budget


def _theta(ranked: Floats, base: float, seconds: Floats) -> Floats:
    """Return expected tokens per second by drafts admitted beyond the floor.

    Lists are added in the same order and divided alike, so both forms agree to the bit.
    """
    gains = np.empty(len(ranked) + 1)
    gains[0] = base
    gains[1:] = ranked
    np.add.accumulate(gains, out=gains)
    return np.divide(gains, seconds, out=gains)


def search_matrix(expected: Floats, view: LaggedView, options: SearchOptions) -> int:
    """Return `best_budget` for expected survivals given as float64 ``[R, gamma]``, in any state of repair.

    Values at positions a row does not have are left out: no prior or stale value may count drafts that do not
    exist. The first ``min_len`` drafts of every row form the floor.
    """
    exists = np.arange(expected.shape[1]) < view.available[:, None]
    floor = exists[:, : options.min_len]
    base = float(view.rows + expected[:, : options.min_len][floor].sum())
    ranked = np.sort(expected[:, options.min_len :][exists[:, options.min_len :]])[::-1]
    return best_budget(ranked, view, options, base)


def _landing(view: LaggedView, floor: int, total: int, allowed: tuple[int, ...]) -> Bools:
    """Return which budgets ``floor .. total`` give an allowed batch size; the floor alone if none does."""
    sizes = view.rows + view.prefill_tokens + np.arange(floor, total + 1)
    lands = np.isin(sizes, allowed)
    if not lands.any():
        lands[0] = True
    return lands
