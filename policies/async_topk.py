"""The production scheduler of section 5.2: a budget from the past, a split from the present."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from .arrays import Floats, Ints
from .generation import Generation
from .interface import LaggedBudget, LaggedView
from .parameters import at_least, one_of, within
from .search import SearchOptions, as_sizes, best_budget, search_matrix


@dataclass(frozen=True)
class Memory:
    """What `AsyncTopK` carries from step to step; made of generations at least ``lag`` old.

    Attributes:
        requests: int64 ``[M]``, ascending ids of the rows that ``smooth`` belongs to.
        smooth: float64 ``[M, gamma]``, moving average of their survivals.
        totals: float64 ``[gamma]``, sums of the survivals seen, by position.
        count: rows summed in ``totals``.
    """

    requests: Ints
    smooth: Floats
    totals: Floats
    count: int

    @classmethod
    def empty(cls, gamma: int) -> Memory:
        """Return the memory of a run that has seen nothing."""
        return cls(np.empty(0, np.int64), np.empty((0, gamma)), np.zeros(gamma), 0)


@dataclass(frozen=True)
class AsyncTopK(LaggedBudget):
    """Budget = argmax of Theta over survivals ``lag`` generations old; rows share it by this step's survivals.

    Attributes:
        lag: age in draft generations of the survivals the budget reads, at least 1.
        ema: weight in [0, 1) that the moving average keeps of older generations; 0 reads generation ``n - lag``
            alone.
        joins: survival assumed for a row that generation lacks: ``optimistic`` 1 (vLLM, SGLang, TensorRT-LLM),
            ``mean`` the running mean by position, ``none`` 0.
        min_len, min_gain, align, allowed: see `SearchOptions`.
    """

    kind: ClassVar[str] = "async_topk"
    lag: int | None = 2
    ema: float = 0.0
    joins: Literal["optimistic", "mean", "none"] = "optimistic"
    min_len: int = 0
    min_gain: float = 0.0
    align: bool = False
    allowed: tuple[int, ...] | None = None
    options: SearchOptions = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        at_least(self.kind, "lag", self.lag, 1)
        within(self.kind, "ema", self.ema, 0.0, 0.999)
        one_of(self.kind, "joins", self.joins, ("optimistic", "mean", "none"))
        object.__setattr__(self, "allowed", as_sizes(self.allowed))
        options = SearchOptions(self.min_len, self.min_gain, self.align, self.allowed)
        options.check(self.kind)
        object.__setattr__(self, "options", options)

    def budget(self, view: LaggedView, state: Memory | None) -> tuple[int, Memory | None]:
        """Return the argmax of Theta over the lagged survivals."""
        lagged = view.lagged
        if not self.ema and self.joins == "mean":
            state = self._remember(view, lagged.survival, state or Memory.empty(lagged.survival.shape[1]))
        if lagged.complete and not (self.ema or self.min_len) and view.drafted == lagged.size:
            return best_budget(lagged.ranked, view, self.options), state
        if lagged.rows is not None and not (self.ema or self.min_len):
            prior = self._prior(lagged.gamma, state).tolist()
            return best_budget(_ranked_with_joins(lagged, view.available, prior), view, self.options), state
        expected = lagged.survival
        if self.ema:
            state = state or Memory.empty(expected.shape[1])
            expected = self._smoothed(view, state)
            state = self._remember(view, expected, state)
        if not lagged.complete:
            expected = np.where(lagged.known[:, None], expected, self._prior(expected.shape[1], state))
        return search_matrix(expected, view, self.options), state

    def _smoothed(self, view: LaggedView, state: Memory) -> Floats:
        """Return the lagged survivals averaged with what is remembered of the same requests."""
        lagged = view.lagged
        if not len(state.requests):
            return lagged.survival
        at = np.minimum(np.searchsorted(state.requests, view.requests), len(state.requests) - 1)
        kept = (state.requests[at] == view.requests) & lagged.known
        smooth = lagged.survival.copy()
        smooth[kept] = self.ema * state.smooth[at[kept]] + (1.0 - self.ema) * smooth[kept]
        return smooth

    def _remember(self, view: LaggedView, smooth: Floats, state: Memory) -> Memory:
        """Fold generation ``n - lag`` into the running mean and keep the averages of its rows, sorted by id."""
        known = np.flatnonzero(view.lagged.known)
        seen = view.lagged.survival[known]
        known = known[np.argsort(view.requests[known], kind="stable")]
        totals = state.totals + seen.sum(axis=0)
        return Memory(view.requests[known], smooth[known], totals, state.count + len(seen))

    def _prior(self, gamma: int, state: Memory | None) -> Floats:
        """Return the survivals by position that a row without a generation ``n - lag`` is assumed to have."""
        if self.joins == "optimistic":
            return np.ones(gamma)
        if self.joins == "mean" and state is not None and state.count:
            mean: Floats = state.totals / state.count
            return mean
        return np.zeros(gamma)


def _ranked_with_joins(lagged: Generation, available: Ints, prior: list[float]) -> list[float]:
    """Return, descending, the lagged survivals of known rows and the prior of the others, for drafts that exist."""
    expected: list[float] = []
    for row, known, most in zip(lagged.rows or (), lagged.known.tolist(), available.tolist(), strict=True):
        expected += row[:most] if known else prior[:most]
    expected.sort(reverse=True)
    return expected
