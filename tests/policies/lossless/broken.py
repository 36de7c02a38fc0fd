"""Schedulers that bias the output, one mistake each, and the look-alikes beside them that do not.

``BROKEN`` holds the mistakes, ``SAFE`` what must not be accused. Both are judged by laws, never by what their classes
declare. Positions count from 1, as in the paper.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from specsched.policies import Bools, Floats, Ints, Policy, View
from specsched.policies.admission import admit
from specsched.policies.async_topk import AsyncTopK
from specsched.policies.autoregressive import Autoregressive
from specsched.policies.greedy_early_stop import GreedyEarlyStop
from specsched.policies.oracle import Oracle, outcomes_of
from specsched.policies.retrospective import Retrospective
from specsched.policies.search import SearchOptions, search_matrix
from specsched.policies.static import Static
from specsched.policies.threshold import Threshold

Reading = Literal["count", "max", "prefix"]
"""How an admitted set with gaps becomes a length."""

Signal: TypeAlias = npt.NDArray[np.floating[Any]]
Plan = tuple[Ints, Any]


# What several policies share


def top(view: View, budget: int) -> Ints:
    """The project's top K; a budget over what there is admits everything."""
    return admit(view.generation, view.available, min(budget, view.drafted))


def existing(view: View) -> Bools:
    """Which positions hold a draft, bool ``[R, gamma]``."""
    return np.arange(view.confidence.shape[1]) < view.available[:, None]


def top_set(signal: Signal, view: View, budget: int, later_first: bool = False) -> Bools:
    """The ``budget`` best drafts as a set, bool ``[R, gamma]``: by signal, then position, then row."""
    rows, positions = np.indices(signal.shape)
    order = np.lexsort((rows.ravel(), (-positions if later_first else positions).ravel(), -signal.ravel()))
    order = order[existing(view).ravel()[order]][:budget]
    admitted = np.zeros(signal.size, np.bool_)
    admitted[order] = True
    return admitted.reshape(signal.shape)


def length_of(admitted: Bools, reading: Reading) -> Ints:
    """Verify lengths of an admitted set: its size, its largest position, or its longest unbroken prefix."""
    if reading == "prefix":
        return leading(admitted)
    positions = np.arange(1, admitted.shape[1] + 1)
    lengths: Ints = admitted.sum(axis=1) if reading == "count" else (admitted * positions).max(axis=1, initial=0)
    return lengths


def leading(passed: Bools) -> Ints:
    """Length of each row's leading run."""
    lengths: Ints = np.logical_and.accumulate(passed, axis=1).sum(axis=1)
    return lengths


# Broken


@dataclass(frozen=True)
class BudgetFromLater(Policy):
    """K counts this step's confidences of positions 2 and later."""

    t: float = 0.5

    def plan(self, view: View, state: Any) -> Plan:
        return top(view, int((view.confidence[:, 1:] >= self.t).sum())), state


@dataclass(frozen=True)
class BudgetFromOtherRows(Policy):
    """A row's first draft is admitted iff another row's second confidence is high, and the other way round."""

    t: float = 0.5

    def plan(self, view: View, state: Any) -> Plan:
        second = (view.confidence[:, 1:2] >= self.t).sum(axis=1)
        others = second.sum() - second
        return np.minimum(view.available, others > 0), state


@dataclass(frozen=True)
class TiesToLater(Policy):
    """A fixed top K whose ties go to the later position."""

    reading: Reading
    budget: int = 1

    def plan(self, view: View, state: Any) -> Plan:
        return length_of(top_set(view.survival, view, self.budget, later_first=True), self.reading), state


@dataclass(frozen=True)
class DropsLowRows(Policy):
    """A row is verified whole, or not at all if one of its confidences from position 2 on is low."""

    t: float = 0.5

    def plan(self, view: View, state: Any) -> Plan:
        low = (view.confidence < self.t) & existing(view)
        return np.where(low[:, 1:].any(axis=1), 0, view.available), state


@dataclass(frozen=True)
class MinLenOrNothing(Policy):
    """`AsyncTopK`, and rows that got fewer than ``least`` drafts lose them."""

    least: int = 2
    lag: int | None = 1

    def plan(self, view: View, state: Any) -> Plan:
        lengths, state = AsyncTopK(lag=self.lag).plan(view, state)
        return np.where(lengths < self.least, 0, lengths), state


@dataclass(frozen=True)
class MinGainOnFresh(Policy):
    """`AsyncTopK`, whose trim must beat verifying everything on this step's survivals."""

    min_gain: float = 0.1
    lag: int | None = 1

    def plan(self, view: View, state: Any) -> Plan:
        budget, state = AsyncTopK(lag=self.lag).budget(view.past(), state)
        ranked = np.sort(view.survival[existing(view)])[::-1]
        theta = (view.rows + np.concatenate(([0.0], np.cumsum(ranked)))) / view.seconds(view.drafted)
        pays = theta[budget] >= theta[-1] * (1.0 + self.min_gain)
        return top(view, budget if pays else view.drafted), state


@dataclass(frozen=True)
class AllowedAfterCount(Policy):
    """`AsyncTopK` on allowed sizes, falling to a smaller one where this step has too few candidates (a > 0)."""

    allowed: tuple[int, ...] = (1, 3, 6)
    lag: int | None = 1

    def plan(self, view: View, state: Any) -> Plan:
        budget, state = AsyncTopK(lag=self.lag, allowed=self.allowed).budget(view.past(), state)
        candidates = int((view.survival > 0.0).sum())
        if candidates < budget:
            reached = [size - view.rows for size in self.allowed if 0 <= size - view.rows <= candidates]
            budget = max(reached, default=0)
        return top(view, budget), state


@dataclass(frozen=True)
class EmaWithCurrent(Policy):
    """`AsyncTopK`, whose moving average takes in this step's generation before the budget is chosen."""

    ema: float = 0.5

    def plan(self, view: View, state: Any) -> Plan:
        seen = replace(view, lagged_drafts=view.generation)
        budget, state = AsyncTopK(lag=1, ema=self.ema).budget(seen.past(), state)
        return top(view, budget), state


@dataclass(frozen=True)
class AcceptedPrefix(Policy):
    """Verifies exactly the drafts that will be accepted."""

    needs_outcomes = True

    def plan(self, view: View, state: Any) -> Plan:
        return outcomes_of(view), state


@dataclass(frozen=True)
class ParallelProduct(Policy):
    """A fixed top K over survivals multiplied in float32 by a parallel scan; the longest admitted prefix."""

    budget: int = 3

    def plan(self, view: View, state: Any) -> Plan:
        return length_of(top_set(hillis_steele(view.confidence), view, self.budget), "prefix"), state


def hillis_steele(confidence: Floats) -> npt.NDArray[np.float32]:
    """Prefix products along rows in float32, by doubling strides: every position is associated differently."""
    product, stride = confidence.astype(np.float32), 1
    while stride < product.shape[1]:
        product = np.concatenate((product[:, :stride], product[:, stride:] * product[:, :-stride]), axis=1)
        stride *= 2
    return product


# Look-alikes that keep the law


@dataclass(frozen=True)
class FixedTopK(Policy):
    """The project's top K with a fixed K: rows compete, since a budget is shared by a global sort."""

    budget: int = 1

    def plan(self, view: View, state: Any) -> Plan:
        return top(view, self.budget), state


@dataclass(frozen=True)
class RandomBudget(Policy):
    """K is a coin's."""

    def plan(self, view: View, state: Any) -> Plan:
        return top(view, int(view.coin * (view.drafted + 1))), state


@dataclass(frozen=True)
class BudgetFromFirst(Policy):
    """K counts this step's confidences of position 1, which are known before anything is drafted."""

    t: float = 0.5

    def plan(self, view: View, state: Any) -> Plan:
        return top(view, int((view.confidence[:, :1] >= self.t).sum())), state


@dataclass(frozen=True)
class AnchorRule(Policy):
    """A block is verified whole or not at all by its first confidence, that is by its anchor's id."""

    t: float = 0.5

    def plan(self, view: View, state: Any) -> Plan:
        first = (view.confidence[:, :1] >= self.t).any(axis=1)
        return np.where(first, view.available, 0), state


@dataclass(frozen=True)
class ContextRule(Policy):
    """Rows whose context is odd are verified whole: how many tokens a row has emitted is past."""

    def plan(self, view: View, state: Any) -> Plan:
        return np.where(view.context_tokens % 2 == 1, view.available, 0), state


@dataclass(frozen=True)
class KeepsLowToken(Policy):
    """Stops behind the first draft under the threshold, which is verified still."""

    t: float = 0.5

    def plan(self, view: View, state: Any) -> Plan:
        return np.minimum(leading(view.confidence >= self.t) + 1, view.available), state


@dataclass(frozen=True)
class SequentialFloat32(Policy):
    """`ParallelProduct` with survivals multiplied from left to right: rounded, yet never rising along a row."""

    budget: int = 3

    def plan(self, view: View, state: Any) -> Plan:
        survival = np.multiply.accumulate(view.confidence.astype(np.float32), axis=1)
        return length_of(top_set(survival, view, self.budget), "prefix"), state


@dataclass(frozen=True)
class StaleLengths(Policy):
    """Uses the lengths a same-step argmax wanted one step ago for the same requests."""

    def start(self) -> Any:
        return {}

    def plan(self, view: View, state: Any) -> Plan:
        wanted, _ = Retrospective().plan(view, None)
        stale = np.array([state.get(request, 0) for request in view.requests.tolist()], np.int64)
        return np.minimum(stale, view.available), dict(zip(view.requests.tolist(), wanted.tolist(), strict=True))


@dataclass(frozen=True)
class StaleSlots(Policy):
    """K from the survivals that the same slots held one step ago, whichever requests sat there.

    A function of the past, hence lossless; but where rows come and go it prices a request by another's survivals.
    """

    def plan(self, view: View, state: Any) -> Plan:
        expected = np.ones(view.survival.shape)
        if state is not None:
            both = min(len(state), view.rows)
            expected[:both] = state[:both]
        return top(view, search_matrix(expected, view, SearchOptions())), view.survival


@dataclass(frozen=True)
class Broken:
    """A scheduler that must be caught.

    Attributes:
        policy: the scheduler.
        law: what it breaks: a row's ``marginal``, or the ``joint`` law only.
        note: why.
        own_token: it breaks the law only where a confidence has seen the very token it speaks of.
    """

    policy: Policy
    law: Literal["marginal", "joint"]
    note: str
    own_token: bool = False


BROKEN: dict[str, Broken] = {
    "same-step argmax": Broken(
        Retrospective(), "marginal", "c[r,2] knows x[r,1] and moves the argmax that decides whether x[r,1] is verified"
    ),
    "budget from later positions": Broken(
        BudgetFromLater(), "marginal", "K reads c[r,2], which knows x[r,1], and then admits or refuses x[r,1]"
    ),
    "budget from another row": Broken(
        BudgetFromOtherRows(), "joint", "row 1 is verified by what row 2 drafted and row 2 by what row 1 drafted"
    ),
    "ties to the later position, count": Broken(
        TiesToLater("count"), "marginal", "c[r,2] = 1 lifts row r over a row it ties with, so x[r,1] admits itself"
    ),
    "ties to the later position, max": Broken(
        TiesToLater("max"), "marginal", "c[r,2] = 1 lifts row r over a row it ties with, so x[r,1] admits itself"
    ),
    "ties to the later position, prefix": Broken(
        TiesToLater("prefix"), "marginal", "c[r,2] = 1 spends the budget on position 2, so x[r,1] refuses itself"
    ),
    "drops rows of low confidence": Broken(
        DropsLowRows(), "marginal", "c[r,2] knows x[r,1] and decides whether any of row r is verified"
    ),
    "min_len or nothing": Broken(
        MinLenOrNothing(),
        "marginal",
        "whether row r reaches min_len depends on c[r,2], hence on x[r,1]",
    ),
    "min_gain on fresh survivals": Broken(
        MinGainOnFresh(), "marginal", "the choice between the trimmed and the whole batch reads c[r,2], hence x[r,1]"
    ),
    "allowed after counting candidates": Broken(
        AllowedAfterCount(),
        "marginal",
        "c[r,2] = 0 takes away a candidate, and with it the size that held x[r,1]",
    ),
    "ema with the current generation": Broken(
        EmaWithCurrent(), "marginal", "the average that sets K holds c[r,2] of this step, hence x[r,1]"
    ),
    "own draft probability": Broken(
        Threshold(0.5),
        "marginal",
        "a draft is left out by its own probability, hence by its value",
        own_token=True,
    ),
    "accepted prefix": Broken(
        AcceptedPrefix(), "marginal", "a draft that would be rejected is not verified, so its residual is never drawn"
    ),
    "oracle": Broken(
        Oracle(), "marginal", "a draft that would be rejected is not verified, so its residual is never drawn"
    ),
    "parallel float32 product": Broken(
        ParallelProduct(), "marginal", "rounding lifts a[r,4] over a[r,3] if c[r,4] = 1, so x[r,3] refuses itself"
    ),
}

ASYNC_OPTIONS: dict[str, dict[str, Any]] = {
    "joins optimistic": {},
    "joins mean": {"joins": "mean"},
    "joins none": {"joins": "none"},
    "ema": {"ema": 0.5},
    "ema, joins mean": {"ema": 0.5, "joins": "mean"},
    "min_len": {"min_len": 1},
    "min_gain": {"min_gain": 0.1},
    "align": {"align": True},
    "allowed": {"allowed": (1, 3, 6)},
}

SAFE: dict[str, Policy] = {
    "autoregressive": Autoregressive(),
    "static 1": Static(1),
    "static 2": Static(2),
    "threshold on c": Threshold(0.5),
    "threshold on a": Threshold(0.5, "survival"),
    "greedy early stop": GreedyEarlyStop(),
    "fixed top 1": FixedTopK(1),
    "fixed top 2": FixedTopK(2),
    "random budget": RandomBudget(),
    "budget from first positions": BudgetFromFirst(),
    "anchor rule": AnchorRule(),
    "context rule": ContextRule(),
    "low token kept": KeepsLowToken(),
    "sequential float32 product": SequentialFloat32(),
    "stale lengths": StaleLengths(),
    "stale slots": StaleSlots(),
} | {
    f"async_topk lag {lag}, {name}": AsyncTopK(lag=lag, **options)
    for lag in (1, 2)
    for name, options in ASYNC_OPTIONS.items()
}
