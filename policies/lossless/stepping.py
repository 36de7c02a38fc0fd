"""One step of a little world: who takes part, what the policy sees and answers, what a row's state becomes.

`exact` spreads probability over these steps; `explain` writes them out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from ..checks import ask, start_state
from ..generation import Generation
from ..interface import Policy, PolicyError, View
from .decoders import Block, Chain, Decoder, blocks, chains
from .worlds import Tokens, World

Seen = tuple[tuple[float, ...], int | None]
"""What a policy may see of a row's block: its confidences and, if it knows outcomes, how many would be accepted."""

Note = Callable[[int, tuple[int, ...], tuple[int, ...], tuple[int, ...]], None]


class RowState(NamedTuple):
    """A row between steps.

    Attributes:
        tokens: its first ``L`` tokens.
        emitted: how many it has emitted in all.
        last: the last of them.
    """

    tokens: Tokens
    emitted: int
    last: int


class State(NamedTuple):
    """Everything the future depends on.

    Attributes:
        rows: the rows.
        history: the last ``lag`` generations, oldest first: each row's confidences, None where it had no draft.
        memory: key of the policy's state.
    """

    rows: tuple[RowState, ...]
    history: tuple[tuple[tuple[float, ...] | None, ...], ...]
    memory: Any


class Decision(NamedTuple):
    """What a policy decided.

    Attributes:
        coins: how many of the world's equally likely coins lead to it.
        lengths: verify lengths of the active rows.
        memory: key of the policy's next state.
        coin: the coin; None if the policy never looked at it.
    """

    coins: int
    lengths: tuple[int, ...]
    memory: Any
    coin: float | None


class Stepper:
    """The steps of one world under a policy and a decoder.

    Args:
        world: what is decoded.
        policy: decides the verify lengths; ``plan`` must be pure.
        decoder: how tokens are drawn.
        note: called with (step, active rows, their drafts, lengths) for every new decision.
    """

    def __init__(self, world: World, policy: Policy, decoder: Decoder, note: Note | None = None) -> None:
        self.world, self.policy, self.decoder, self._note = world, policy, decoder, note
        self._lag = policy.lag or 0
        self._memories: dict[Any, Any] = {}
        self._plans: dict[Any, tuple[tuple[int, ...], Any]] = {}
        self._blocks: dict[Any, dict[Seen, list[tuple[Block, Chain]]]] = {}
        self._pasts: dict[Any, Generation] = {}

    def start(self) -> State:
        """Return the state before the first step."""
        rows = tuple(RowState((), 0, plan.anchor) for plan in self.world.rows)
        return State(rows, (), self._keep(start_state(self.policy)))

    def complete(self, row: int, state: RowState) -> bool:
        """Return whether a row has all tokens that are compared."""
        return len(state.tokens) == self.world.compared(row) or self._ended(state)

    def active(self, step: int, rows: tuple[RowState, ...]) -> tuple[int, ...]:
        """Return the rows that take part in a step."""
        return tuple(
            row
            for row, (plan, state) in enumerate(zip(self.world.rows, rows, strict=True))
            if plan.admitted <= step and state.emitted != plan.length and not self._ended(state)
        )

    def drafted(self, step: int, active: tuple[int, ...]) -> tuple[int, ...]:
        """Return how many drafts the active rows have."""
        return tuple(self.world.available(row, step) if self.policy.drafts else 0 for row in active)

    def options(self, row: int, anchor: int, count: int) -> dict[Seen, list[tuple[Block, Chain]]]:
        """Return a row's possible blocks by what the policy sees of them."""
        key = row, anchor, count
        if key not in self._blocks:
            found: defaultdict[Seen, list[tuple[Block, Chain]]] = defaultdict(list)
            for block in blocks(self.world, self.decoder, row, anchor, count):
                confidence = self.world.confidences(row, anchor, block.tokens)
                for chain in chains(self.world, self.decoder, row, anchor, block):
                    found[confidence, chain.accepted if self.policy.needs_outcomes else None].append((block, chain))
            self._blocks[key] = dict(found)
        return self._blocks[key]

    def decisions(
        self, step: int, state: State, active: tuple[int, ...], drafted: tuple[int, ...], seen: tuple[Seen, ...]
    ) -> Iterator[Decision]:
        """Yield what the policy decides, by coin if it tosses one.

        Raises:
            PolicyError: if the policy fails, returns lengths that a step cannot execute, or keeps a state that cannot
                be compared.
        """
        counts = tuple(state.rows[row].emitted for row in active)
        # All that a policy may see. Texts are not part of it: paths that differ in them alone share an answer.
        key = (step, active, counts, state.history, state.memory, seen)
        for coin in self.world.coins:
            # An answer that tossed no coin is kept under None and holds for all of them.
            answer = self._plans.get((key, coin)) or self._plans.get((key, None))
            if answer is None:
                tossed: list[int] = []
                view = self._view(step, state, active, counts, drafted, seen, coin, tossed)
                lengths, memory = ask(self.policy, view, self._memories[state.memory])
                answer = tuple(lengths.tolist()), self._keep(memory)
                if self._note is not None:
                    self._note(step, active, drafted, answer[0])
                self._plans[key, coin if tossed else None] = answer
            if (key, None) in self._plans:
                yield Decision(len(self.world.coins), *answer, None)
                return
            yield Decision(1, *answer, coin)

    def after(self, row: int, state: RowState, tokens: Tokens) -> RowState:
        """Return a row's state once it has emitted tokens, cut at its end."""
        # By length first, then at an end token: both cut the row's own text, and the target's law is cut alike.
        length = self.world.rows[row].length
        if length is not None:
            tokens = tokens[: length - state.emitted]
        if self.world.end in tokens:
            tokens = tokens[: tokens.index(self.world.end) + 1]
        kept = (*state.tokens, *tokens)[: self.world.compared(row)]
        return RowState(kept, state.emitted + len(tokens), tokens[-1])

    def history(self, history: tuple[Any, ...], active: tuple[int, ...], seen: tuple[Seen, ...]) -> tuple[Any, ...]:
        """Return `State.history` after a step."""
        if not self._lag:
            return ()
        now: list[tuple[float, ...] | None] = [None] * len(self.world.rows)
        for row, (confidence, _) in zip(active, seen, strict=True):
            now[row] = confidence or None
        # No older than can be asked for: what no policy may read must not keep equal states apart.
        return (*history, tuple(now))[-self._lag :]

    def _ended(self, state: RowState) -> bool:
        return bool(state.tokens) and state.last == self.world.end

    def _view(
        self,
        step: int,
        state: State,
        active: tuple[int, ...],
        counts: tuple[int, ...],
        drafted: tuple[int, ...],
        seen: tuple[Seen, ...],
        coin: float,
        tossed: list[int],
    ) -> View:
        def toss(at: int) -> float:
            tossed.append(at)
            return coin

        gamma = self.world.gamma if self.policy.drafts else 0
        outcomes = None
        if self.policy.needs_outcomes:
            outcomes = np.array([accepted for _, accepted in seen], np.int64)
        return View(
            step=step,
            requests=np.array(active, np.int64),
            available=np.array(drafted, np.int64),
            drafted=sum(drafted),
            cost=self.world.cost,
            lagged_drafts=self._lagged(state.history, active),
            # A prompt of one token, the anchor; contexts say what has been emitted and nothing of what.
            contexts=lambda: np.array(counts, np.int64) + 1,
            coins=toss,
            generation=generation_of([confidence or None for confidence, _ in seen], gamma),
            outcomes=outcomes,
        )

    def _lagged(self, history: tuple[Any, ...], active: tuple[int, ...]) -> Generation | None:
        """Return generation ``n - lag`` by row; nothing is known of rows that it lacks."""
        if not self._lag:
            return None
        # Before step `lag` there is no such generation, and rows are as unknown as those that join.
        past = history[0] if len(history) == self._lag else (None,) * len(self.world.rows)
        wanted = tuple(past[row] for row in active)
        if wanted not in self._pasts:
            self._pasts[wanted] = generation_of(list(wanted), self.world.gamma)
        return self._pasts[wanted]

    def _keep(self, memory: Any) -> Any:
        """Return the key of a policy state, remembering the state itself."""
        key = freeze(memory)
        self._memories.setdefault(key, memory)
        return key


def freeze(state: Any) -> Any:
    """Return a hashable value that is equal for equal policy states, one nan being as good as another.

    Raises:
        PolicyError: for a state made of something that has no value to compare, such as an object of a plain class.
    """
    if isinstance(state, np.ndarray):
        # Equal bytes of another type or shape are another state.
        return ("array", state.dtype.str, state.shape, state.tobytes())
    if isinstance(state, Generation):
        return ("generation", freeze(state.confidence), freeze(state.survival), freeze(state.known))
    if is_dataclass(state) and not isinstance(state, type):
        return (type(state).__name__, *(freeze(getattr(state, each.name)) for each in fields(state)))
    if isinstance(state, tuple | list):
        return (type(state).__name__, *map(freeze, state))
    if isinstance(state, dict):
        return ("dict", *((freeze(key), freeze(value)) for key, value in state.items()))
    if isinstance(state, set | frozenset):
        return ("set", frozenset(map(freeze, state)))
    if state is None or isinstance(state, bool | int | float | complex | str | bytes | np.generic | Fraction):
        return (type(state).__name__, state if state == state else "nan")  # nan equals nothing, itself included
    raise PolicyError(
        f"a policy state of type {type(state).__name__} cannot be compared; build states from numbers, strings, "
        "tuples, lists, dicts, arrays and dataclasses"
    )


def generation_of(confidences: list[tuple[float, ...] | None], gamma: int) -> Generation:
    """Return a generation from each row's confidences; None stands for a row without drafts.

    Survivals are sequential float64 products.
    """
    confidence = np.zeros((len(confidences), gamma))
    for row, values in enumerate(confidences):
        if values is not None:
            confidence[row, : len(values)] = values
    # A row without drafts is unknown; zeros would say that its drafts are hopeless.
    known = np.array([values is not None for values in confidences], np.bool_)
    return Generation(confidence, np.multiply.accumulate(confidence, axis=1), known, bool(known.all()))
