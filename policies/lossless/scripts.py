"""Random histories of a batch, played to a policy step by step, and what-if questions about any of them.

The past of a step is adversarial: confidences tie, vanish and saturate, blocks are ragged, requests join and leave,
costs have cliffs. Whatever holds for a single step after every such past holds for a run.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from ..arrays import Floats, Ints
from ..checks import ask
from ..generation import Generation
from ..interface import Policy, StepCost, View
from .stepping import freeze, generation_of
from .worlds import WorldCost

SPECIAL = (0.0, 0.25, 0.5, 0.75, 0.9, 1.0)
"""Confidences that tie, vanish and saturate."""


@dataclass(frozen=True)
class Moment:
    """The batch of one step.

    Attributes:
        requests: ids by row, ``[R]``.
        confidence: of each row's drafts, as many as it has; an empty tuple is a row without drafts.
        outcomes: leading drafts of each row that would be accepted.
        contexts: prompt plus emitted tokens of each row.
        coin: value of ``view.coin``.
    """

    requests: tuple[int, ...]
    confidence: tuple[tuple[float, ...], ...]
    outcomes: tuple[int, ...]
    contexts: tuple[int, ...]
    coin: float

    @property
    def available(self) -> tuple[int, ...]:
        """Drafts of each row."""
        return tuple(map(len, self.confidence))


class ScriptCost(StepCost, Protocol):
    """A step cost that also prices context lengths."""

    def context_seconds(self, rows: int, context_tokens: int) -> float:
        """Return seconds from ``context_tokens``, summed over ``rows`` rows."""
        ...


@dataclass(frozen=True)
class Script:
    """Consecutive steps of a batch and what they cost.

    Attributes:
        gamma: drafts of a full block.
        moments: the steps, in order.
        seconds: step time of batches of 1, 2, .. tokens.
        sizes: captured batch sizes, ascending.
        priced: a step cost that replaces ``seconds`` and ``sizes``.
        first: number of the first step.
    """

    gamma: int
    moments: tuple[Moment, ...]
    seconds: tuple[float, ...]
    sizes: tuple[int, ...] = ()
    priced: ScriptCost | None = None
    first: int = 0

    @cached_property
    def cost(self) -> ScriptCost:
        """The step cost that policies see."""
        return self.priced or WorldCost(self.seconds, self.sizes)


@dataclass(frozen=True)
class Situation:
    """A step that a policy has come to, and what it decided there.

    Attributes:
        policy: the policy.
        script: the history.
        step: number of the step in it.
        state: the policy's state before the step.
        lengths: what it decided, int64 ``[R]``.
    """

    policy: Policy
    script: Script
    step: int
    state: Any
    lengths: Ints

    @property
    def moment(self) -> Moment:
        """The batch of this step."""
        return self.script.moments[self.step]

    def again(self, confidence: tuple[tuple[float, ...], ...] | None = None) -> Ints:
        """Return the lengths the policy decides after the same past, for other confidences of this step's drafts."""
        view = self._view
        if confidence is not None and self.policy.drafts:
            drafts = generation_of([values or None for values in confidence], self.script.gamma)
            # The same past and coin; only what this step drew is other.
            view = view.past().with_drafts(drafts, view.outcomes)
        return ask(self.policy, view, self.state)[0]

    @cached_property
    def _view(self) -> View:
        return view_of(self.policy, self.script, self.step, self.moment)


def view_of(policy: Policy, script: Script, step: int, moment: Moment) -> View:
    """Return what a policy sees of a moment as step ``step`` of a script."""
    gamma = script.gamma if policy.drafts else 0
    confidence = moment.confidence if policy.drafts else ((),) * len(moment.requests)
    return View(
        step=script.first + step,
        requests=np.array(moment.requests, np.int64),
        available=np.array([len(values) for values in confidence], np.int64),
        drafted=sum(len(values) for values in confidence),
        cost=script.cost,
        lagged_drafts=_lagged(policy, script, step, moment.requests),
        contexts=lambda: np.array(moment.contexts, np.int64),
        context_seconds=script.cost.context_seconds(len(moment.requests), sum(moment.contexts)),
        coins=lambda _: moment.coin,
        # A row without drafts is unknown, which is not the same as drafts that are sure to fail.
        generation=generation_of([values or None for values in confidence], gamma),
        outcomes=np.array(moment.outcomes, np.int64) if policy.needs_outcomes else None,
    )


def arguments(policy: Policy, view: View) -> dict[str, Any]:
    """Return everything a plan might change in a view, by name, as values."""
    return {
        "requests": freeze(view.requests),
        "available": freeze(view.available),
        "generation": freeze(view.generation),
        "lagged": freeze(view.lagged) if policy.lag else None,
        "outcomes": freeze(view.outcomes),
        "cost": freeze(view.cost.table(view.rows)),
        "step": (view.step, view.drafted, view.context_seconds, view.prefill_tokens),
    }


def _lagged(policy: Policy, script: Script, step: int, requests: tuple[int, ...]) -> Generation | None:
    """Return generation ``step - lag`` matched by request."""
    if not policy.lag:
        return None
    past: dict[int, tuple[float, ...]] = {}
    # By request, not by row: others have left and joined in between (section 2).
    if step >= policy.lag:
        moment = script.moments[step - policy.lag]
        past = dict(zip(moment.requests, moment.confidence, strict=True))
    return generation_of([past.get(request) or None for request in requests], script.gamma)


def random_script(rng: np.random.Generator, gamma: int, rows: int, steps: int, ragged: float = 0.3) -> Script:
    """Return a random script: up to ``rows`` rows, of which some leave and others join in every step.

    A row has ``gamma`` drafts, none in the step it joins, and with probability ``ragged`` any number. Half the scripts
    begin with a run, the others where step numbers and request ids are large.
    """
    begun = rng.random() < 0.5
    offset = int(rng.integers(1, 10**6)) if begun else 0
    requests = list(range(offset, offset + int(rng.integers(1, rows + 1))))
    fresh = requests[-1] + 1
    moments, joined = [], set(requests if rng.random() < 0.5 else ())
    for _ in range(steps):
        moments.append(_random_moment(rng, gamma, requests, joined, ragged))
        # Rows leave by chance alone, as any rule on the strength of the past may have it (docs/lossless.md, the proof).
        stay = [request for request in requests if rng.random() < 0.85]
        joined = set(range(fresh, fresh + int(rng.integers(0, rows - len(stay) + 1))))
        fresh += len(joined)
        # A batch is never empty, but it may hold only rows that have just joined.
        requests = stay + sorted(joined) or [fresh]
        fresh = max(fresh, requests[-1] + 1)
    most = rows * (gamma + 1)
    first = int(rng.integers(1, 10**5)) if begun else 0
    return Script(gamma, tuple(moments), random_seconds(rng, most), _random_sizes(rng, most), first=first)


def _random_moment(
    rng: np.random.Generator, gamma: int, requests: list[int], joined: set[int], ragged: float
) -> Moment:
    available = [
        0 if r in joined else gamma if rng.random() >= ragged else int(rng.integers(0, gamma + 1)) for r in requests
    ]
    return Moment(
        tuple(requests),
        _random_batch(rng, available),
        # Outcomes owe nothing to confidences: the past of a step is adversarial.
        tuple(int(rng.integers(0, most + 1)) for most in available),
        # Contexts of all scales, from 1 to 131,072 tokens.
        tuple(int(each) for each in 2.0 ** rng.uniform(0.0, 17.0, len(requests))),
        float(rng.random()),
    )


def _random_batch(rng: np.random.Generator, available: list[int]) -> tuple[tuple[float, ...], ...]:
    """Return confidences by row; in a third of the batches all are one value or 1, so that survivals tie everywhere."""
    if rng.random() >= 1 / 3:
        return tuple(tuple(random_confidences(rng, most).tolist()) for most in available)
    values = np.array((float(rng.choice((0.5, 0.9, float(rng.random())))), 1.0))
    return tuple(tuple(values[rng.integers(0, 2, most)].tolist()) for most in available)


def random_confidences(rng: np.random.Generator, count: int) -> Floats:
    """Return confidences of one row: smooth, special or a mixture, since each hides different mistakes."""
    # Small exponents crowd confidences near 1, large ones near 0.
    values = rng.random(count) ** rng.choice([0.1, 0.5, 1.0, 3.0])
    special = rng.choice(SPECIAL, count)
    mixed: Floats = np.where(rng.random(count) < rng.choice([0.0, 0.3, 1.0]), special, values)
    return mixed


def random_seconds(rng: np.random.Generator, most: int) -> tuple[float, ...]:
    """Return step times of batches of 1 .. ``most`` tokens: flat, sloped, with cliffs, or falling in places.

    In seconds or in hundredths of a second, since a policy may know a bound.
    """
    seconds = 1.0 + rng.choice([0.0, 0.02, 0.1, 0.3]) * np.arange(most)
    # Cliffs: an early stop never looks behind one, an argmax does.
    for riser in rng.integers(0, most, int(rng.integers(0, 4))):
        seconds[riser:] += rng.choice([0.1, 0.5, 1.5])
    if rng.random() < 0.25:
        seconds *= rng.uniform(0.7, 1.3, most)
    return tuple((seconds * rng.choice([1.0, 0.01])).tolist())


def _random_sizes(rng: np.random.Generator, most: int) -> tuple[int, ...]:
    if rng.random() < 0.5:
        return ()
    return tuple(sorted({int(size) for size in rng.integers(1, most + 1, 4)}))
