"""The batches a policy is put before by its contract: histories with one thing special about them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np

from ..arrays import Ints
from ..checks import ask, start_state
from ..interface import Policy, PolicyError, View
from ..lossless.scripts import Moment, Script, random_script, random_seconds, view_of
from ..problems import describe

SHOWN = 6
"""Rows of a batch that messages print."""

Blocks = Sequence[tuple[float, ...]]
"""Confidences by row, as many as the row has drafts."""


@dataclass(frozen=True)
class Turn:
    """A step as a policy went through it.

    Attributes:
        script: the history.
        step: number of the step in it.
        view: what the policy saw.
        state: its state before the step; ``following`` the one after.
        lengths: what it returned; ``[R]`` whole numbers only where the turn was checked.
    """

    script: Script
    step: int
    view: View
    state: Any
    lengths: Ints
    following: Any

    @property
    def moment(self) -> Moment:
        """The batch of this step."""
        return self.script.moments[self.step]

    def __str__(self) -> str:
        return shown(self.moment, self.step, np.asarray(self.lengths).tolist())


def turns(policy: Policy, script: Script, checked: bool = True) -> Iterator[Turn]:
    """Yield a policy's turns along a script.

    Args:
        policy: who decides.
        script: the history.
        checked: refuse lengths that a step cannot execute.

    Raises:
        AssertionError: with the batch, if the policy fails or (where checked) returns what cannot be executed.
    """
    state = start_state(policy)
    for step, moment in enumerate(script.moments):
        view = view_of(policy, script, step, moment)
        try:
            lengths, following = ask(policy, view, state) if checked else _answer(policy, view, state)
        except PolicyError as error:
            raise AssertionError(f"{error}\n{shown(moment, step)}") from error
        yield Turn(script, step, view, state, lengths, following)
        state = following


def turn_at(policy: Policy, script: Script, step: int) -> Turn:
    """Return one turn along a script, unchecked."""
    return next(islice(turns(policy, script, checked=False), step, None))


def _answer(policy: Policy, view: View, state: Any) -> tuple[Ints, Any]:
    """Return what ``plan`` returns, whatever numbers the lengths are.

    Raises:
        PolicyError: if it fails or does not return one number a row and a state.
    """
    try:
        lengths, following = policy.plan(view, state)
        values = np.asarray(lengths)
    except Exception as error:
        raise PolicyError(f"plan failed at step {view.step}: {describe(error)}") from error
    if values.shape != (view.rows,) or values.dtype.kind not in "biuf":
        raise PolicyError(f"plan must return one length for each of {view.rows} rows at step {view.step}: {lengths!r}")
    return values, following


def shown(moment: Moment, step: int, lengths: Any = None) -> str:
    """Return a batch in words, its first rows only."""
    lines = [f"the batch of step {step}, {len(moment.requests)} rows:"]
    for row, (request, values) in enumerate(zip(moment.requests, moment.confidence, strict=True)):
        if row == SHOWN:
            lines.append("  ..")
            break
        lines.append(f"  request {request}: {len(values)} drafts, confidence {values}")
    return "\n".join(lines) + ("" if lengths is None else f"\nlengths: {lengths}")


def random_scripts(rng: np.random.Generator, gamma: int, rows: int, steps: int, count: int) -> list[Script]:
    """Return random histories."""
    return [random_script(rng, gamma, rows, steps) for _ in range(count)]


def of_blocks(rng: np.random.Generator, gamma: int, steps: Sequence[Blocks]) -> Script:
    """Return a history of requests 0, 1, .. with given confidences in every step."""
    most = max(map(len, steps))
    moments = tuple(_moment(rng, blocks) for blocks in steps)
    return Script(gamma, moments, random_seconds(rng, max(most, 1) * (gamma + 1)))


def _moment(rng: np.random.Generator, blocks: Blocks) -> Moment:
    return Moment(
        tuple(range(len(blocks))),
        tuple(blocks),
        tuple(int(rng.integers(0, len(values) + 1)) for values in blocks),
        tuple(int(each) for each in rng.integers(1, 2000, len(blocks))),
        float(rng.random()),
    )


def smooth(rng: np.random.Generator, counts: Sequence[int]) -> Blocks:
    """Return confidences of rows with so many drafts: strictly inside (0, 1), so that no two survivals tie."""
    return [tuple(rng.uniform(0.05, 0.999, count).tolist()) for count in counts]


def staircase(rng: np.random.Generator, gamma: int, steps: int) -> Script:
    """Return rows with 0, 1, .., ``gamma`` drafts, each of which has another number of them in every step."""
    counts = list(range(gamma + 1))
    return of_blocks(rng, gamma, [smooth(rng, counts[step:] + counts[:step]) for step in range(steps)])


def constant(rng: np.random.Generator, gamma: int, rows: int, steps: int, value: float) -> Script:
    """Return full blocks in which every confidence, and so every survival, is ``value``: 0 or 1."""
    return of_blocks(rng, gamma, [[(value,) * gamma] * rows] * steps)


def distinct(rng: np.random.Generator, script: Script) -> Script:
    """Return the same history with confidences of which no two survivals tie."""
    return renewed(rng, script, 0, len(script.moments))


def renewed(rng: np.random.Generator, script: Script, first: int, stop: int) -> Script:
    """Return a history whose steps ``first .. stop - 1`` have other confidences."""
    moments = list(script.moments)
    for step in range(first, stop):
        moments[step] = replace(moments[step], confidence=tuple(smooth(rng, moments[step].available)))
    return replace(script, moments=tuple(moments))


def permuted(rng: np.random.Generator, script: Script) -> Script:
    """Return the same history with the rows of every step in an order of their own."""
    return replace(
        script, moments=tuple(_in_order(each, rng.permutation(len(each.requests))) for each in script.moments)
    )


def _in_order(moment: Moment, order: Ints) -> Moment:
    rows = order.tolist()
    return Moment(
        tuple(moment.requests[row] for row in rows),
        tuple(moment.confidence[row] for row in rows),
        tuple(moment.outcomes[row] for row in rows),
        tuple(moment.contexts[row] for row in rows),
        moment.coin,
    )


def relabelled(script: Script, label: Callable[[int], int]) -> Script:
    """Return the same history of requests with other ids."""
    return replace(
        script, moments=tuple(replace(each, requests=tuple(map(label, each.requests))) for each in script.moments)
    )


def emptied(script: Script, step: int) -> Script:
    """Return a history whose batch is empty in one step."""
    moments = list(script.moments)
    moments[step] = replace(moments[step], requests=(), confidence=(), outcomes=(), contexts=())
    return replace(script, moments=tuple(moments))
