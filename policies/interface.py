"""What a verification-length policy sees and what it must return.

A policy decides, once per engine step and for every running row (request), how many of that row's drafted
tokens the target model verifies. The words are those of the DSpark paper (arXiv 2607.05147): confidence
``c[r, j]`` is the predicted probability that draft ``j`` of row ``r`` survives given that all before it did,
survival ``a[r, j]`` is the prefix product of the confidences, ``R`` the number of rows, ``K`` the number of
drafts admitted in the step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, ClassVar, Literal, Protocol, TypeVar, dataclass_transform, final

import numpy as np

from .admission import admit
from .arrays import Floats, Ints
from .generation import Generation

Safety = Literal["safe", "unsafe", "unknown"]
"""What a class declares of itself: whether the output keeps the target's law."""

_Record = TypeVar("_Record")


class PolicyError(ValueError):
    """A policy cannot be built, or returned lengths that the step cannot execute."""


class StepCost(Protocol):
    """Seconds a step takes; the simulator's profiles implement it."""

    def table(self, rows: int) -> Floats:
        """Return seconds of a whole step by batch tokens: entry ``B`` is a step of ``B`` tokens and ``rows`` rows.

        Padding to captured sizes and the drafting cost of ``rows`` blocks are included; the context term and
        the sync stall are not. The array is shared and read-only.
        """
        ...

    def listed(self, rows: int, first: int, most: int) -> tuple[float, ...]:
        """Return ``table(rows)[first : first + most + 1]`` as plain floats."""
        ...

    def padded(self, tokens: int) -> int:
        """Return the batch size that is executed (captured or eager) when ``tokens`` are asked for."""
        ...


@dataclass_transform(eq_default=False, frozen_default=True, field_specifiers=(field,))
def _record(cls: type[_Record]) -> type[_Record]:
    """Make a record with slots, frozen for whoever checks types.

    The engine makes one a step. `dataclass(frozen=True)` would guard assignments at run time too, but take five times
    as long to construct; whoever asks a policy throws the view away when the plan returns, so nothing is lost.
    """
    return dataclass(slots=True, eq=False)(cls)


@_record
class LaggedView:
    """The part of a step that a safe budget may read: nothing that depends on this step's confidences.

    This is the one record of a step's facts: `View` inherits it and adds the drafts, so policies read every fact
    directly, without a call in between. Arrays are read-only.

    Attributes:
        step: step number, from 0.
        requests: int64 ``[R]``, the request id of each row.
        available: int64 ``[R]``, drafts each row has in this step (0 in its admission step).
        drafted: their sum, the largest possible budget.
        cost: the step cost.
        lagged_drafts: what `lagged` returns; None for a policy without lag.
        contexts: what `context_tokens` calls; None stands for zeros.
        context_seconds: the part of the step time that comes from context lengths, which no length changes.
        coins: what `coin` calls with the step; None where nobody tosses one.
        prefill_tokens: prefill tokens that share the step (0 with a disaggregated prefill).
    """

    step: int
    requests: Ints
    available: Ints
    drafted: int
    cost: StepCost
    lagged_drafts: Generation | None = None
    contexts: Callable[[], Ints] | None = None
    context_seconds: float = 0.0
    coins: Callable[[int], float] | None = None
    prefill_tokens: int = 0

    def with_drafts(self, generation: Generation, outcomes: Ints | None = None) -> View:
        """Return the whole view of a policy that may read this step's drafts."""
        return View(*_facts(self), generation=generation, outcomes=outcomes)

    @property
    def rows(self) -> int:
        """Number of rows ``R`` in the step."""
        return len(self.requests)

    @property
    def context_tokens(self) -> Ints:
        """Prompt plus emitted tokens of each row, int64 ``[R]``, while ``plan`` runs; zeros where there are none."""
        return self.contexts() if self.contexts is not None else np.zeros(len(self.requests), np.int64)

    @property
    def coin(self) -> float:
        """A uniform in [0, 1) keyed by (seed, step), for policies that want randomness.

        Raises:
            PolicyError: if the caller gave none.
        """
        if self.coins is None:
            raise PolicyError("`view.coin` was not given; pass `coins` to the View")
        return self.coins(self.step)

    @property
    def lagged(self) -> Generation:
        """Generation ``n - lag`` of the policy's own lag.

        Raises:
            PolicyError: if the policy declared no lag of at least 1.
        """
        if self.lagged_drafts is None:
            raise PolicyError("`view.lagged` needs a policy with `lag` >= 1; declare `lag` on the policy class")
        return self.lagged_drafts

    def seconds(self, most: int) -> Floats:
        """Return float64 ``[most + 1]``: seconds of this step if 0, 1, .., ``most`` drafts are admitted in all."""
        rows = len(self.requests)
        first = rows + self.prefill_tokens
        table = self.cost.table(rows)[first : first + most + 1]
        return table + self.context_seconds if self.context_seconds else table

    def listed_seconds(self, most: int) -> tuple[float, ...]:
        """Return `seconds` as plain floats: quicker where few drafts are weighed."""
        rows = len(self.requests)
        listed = self.cost.listed(rows, rows + self.prefill_tokens, most)
        return tuple([each + self.context_seconds for each in listed]) if self.context_seconds else listed


@_record
class View(LaggedView):
    """Everything a policy may read in a step. Arrays are read-only.

    Attributes:
        generation: this step's drafts; ``confidence`` and ``survival`` are its arrays.
        outcomes: int64 ``[R]``, drafts of each row that would be accepted if all were verified; None unless the
            policy declares ``needs_outcomes``.
    """

    generation: Generation = field(kw_only=True)
    outcomes: Ints | None = field(default=None, kw_only=True)

    @property
    def confidence(self) -> Floats:
        """This generation's conditional confidences ``c``, float64 ``[R, gamma]``; 0 where no draft is."""
        return self.generation.confidence

    @property
    def survival(self) -> Floats:
        """Their sequential prefix products ``a``, float64 ``[R, gamma]``."""
        return self.generation.survival

    def past(self) -> LaggedView:
        """Return the view without this step's confidences and outcomes."""
        return LaggedView(*_facts(self))


# A copy rather than the view itself: what a budget is handed has no attribute through which it could see the present.
_facts: Callable[[LaggedView], tuple[Any, ...]] = attrgetter(*(each.name for each in fields(LaggedView)))


class Policy(ABC):
    """Decides the verify length of every row in every step.

    Subclass it as a frozen dataclass whose fields are the YAML parameters. ``plan`` must be a pure function of its
    arguments: whatever it wants to remember goes through ``state``, so that runs replay.

    Attributes:
        kind: the name used in YAML.
        lag: youngest generation the budget reads, counted back from this step's; 0 when this step's confidences
            fix the batch size (they must then reach the host before launch, so the engine charges the profile's
            sync stall); None for a policy that never looks at confidences.
        needs_outcomes: whether ``view.outcomes`` is filled; such a policy is a bound, not a scheduler.
        safety: what is known about losslessness.
        drafts: False for a policy that neither drafts nor pays for drafting (plain autoregressive decoding).
    """

    kind: ClassVar[str] = ""
    needs_outcomes: ClassVar[bool] = False
    safety: ClassVar[Safety] = "unknown"
    drafts: ClassVar[bool] = True
    lag: int | None = 0

    def start(self) -> Any:
        """Return the state before the first step (None by default)."""
        return None

    @abstractmethod
    def plan(self, view: View, state: Any) -> tuple[Ints, Any]:
        """Return the verify lengths, int64 ``[R]`` with ``0 <= lengths <= view.available``, and the next state."""

    def longest(self, gamma: int) -> int:
        """Return the most drafts of one row this policy may admit when blocks hold ``gamma`` drafts."""
        return gamma

    @property
    def stalls(self) -> bool:
        """Whether the engine charges the sync stall: the budget waits for this step's confidences."""
        return self.lag == 0 and self.safety != "unsafe"


class LaggedBudget(Policy):
    """Safe base class: the budget ``K`` reads the past, the split among rows reads the present.

    Subclasses implement `budget`. The final `plan` admits the ``K`` best fresh drafts in the order survival
    descending, position ascending, row ascending, after giving every row its first ``min_len`` drafts. Since
    ``K`` is fixed before this step's confidences exist, whether draft ``j`` of a row is verified never depends on
    its own value or on a later one.
    """

    safety: ClassVar[Safety] = "safe"
    lag: int | None = 1
    min_len: int = 0

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in ("plan", "plan_past"):
            if name in cls.__dict__:
                raise TypeError(f"`{cls.__name__}` overrides `{name}`; a LaggedBudget implements `budget` only")

    @abstractmethod
    def budget(self, view: LaggedView, state: Any) -> tuple[int, Any]:
        """Return the number of drafts to admit, ``0 <= K <= sum(view.available)``, and the next state."""

    @final
    def plan(self, view: View, state: Any) -> tuple[Ints, Any]:
        """Admit the top ``K`` of this step's drafts."""
        return self.plan_past(view.past(), view.generation, state)

    @final
    def plan_past(self, past: LaggedView, generation: Generation, state: Any) -> tuple[Ints, Any]:
        """Do what `plan` does, for a caller that has the two parts of the view apart."""
        budget, state = self.budget(past, state)
        return admit(generation, past.available, budget, self.min_len, past.drafted), state
