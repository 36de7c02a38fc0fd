"""The exact law of the tokens that leave a little world under a policy and a decoder.

Every path is followed: drafts, coins, acceptance, residual and bonus tokens. A path runs until each row has emitted its
first ``L`` tokens (or has ended) and is then cut; it is never conditioned on how many tokens a step gave, which would
accuse lossless policies. Equal states are merged. Arithmetic is exact: masses are whole numbers over a common
denominator, results are fractions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from fractions import Fraction
from itertools import product
from math import lcm
from typing import Any, Literal

import numpy as np

from .checks import ask, start_state
from .decoders import RIGHT, Block, Chain, Decoder, blocks, chains, finish
from .generation import Generation
from .interface import Policy, PolicyError, View
from .worlds import Tokens, World

Law = Mapping[Tokens, Fraction]
JointLaw = Mapping[tuple[Tokens, ...], Fraction]
Verdict = Literal["lossless", "marginal", "joint"]

Seen = tuple[tuple[float, ...], int | None]
"""What a policy may see of a row's block: its confidences and, if it knows outcomes, how many would be accepted."""


class WorldTooLarge(ValueError):
    """Enumerating a world would take more transitions than allowed."""


@dataclass(frozen=True)
class RowState:
    """A row between steps: its first ``L`` tokens, how many it has emitted, and the last of them."""

    tokens: Tokens
    count: int
    last: int


@dataclass
class Coverage:
    """What happened in a world, so that a pass can be told from a vacuous one.

    Attributes:
        budgets: drafts admitted in all, by step and availability of the rows.
        admitted: (step, row, position) of drafts admitted on some path.
        refused: those of drafts refused on some path.
    """

    budgets: defaultdict[Any, set[int]] = field(default_factory=lambda: defaultdict(set))
    admitted: set[tuple[int, int, int]] = field(default_factory=set)
    refused: set[tuple[int, int, int]] = field(default_factory=set)

    @property
    def varied(self) -> bool:
        """Whether the same batch got different budgets on different paths."""
        return any(len(totals) > 1 for totals in self.budgets.values())

    @property
    def split(self) -> bool:
        """Whether some draft was admitted on one path and refused on another."""
        return not self.admitted.isdisjoint(self.refused)

    def note(self, step: int, active: tuple[int, ...], available: tuple[int, ...], lengths: tuple[int, ...]) -> None:
        """Record what a policy decided."""
        self.budgets[step, active, available].add(sum(lengths))
        for row, most, length in zip(active, available, lengths, strict=True):
            self.admitted.update((step, row, j) for j in range(1, length + 1))
            self.refused.update((step, row, j) for j in range(length + 1, most + 1))


@dataclass(frozen=True)
class ExactLaw:
    """The law that leaves a world, beside the target's.

    Attributes:
        rows: law of each row's first tokens.
        joint: law of all rows together.
        target_rows, target_joint: what they should be; rows are independent.
        states: states visited.
        coverage: what the policy did on the way.
    """

    rows: tuple[Law, ...]
    joint: JointLaw
    target_rows: tuple[Law, ...]
    target_joint: JointLaw
    states: int
    coverage: Coverage

    @property
    def marginal_tv(self) -> Fraction:
        """The largest total-variation distance of a row's law from the target's."""
        return max(distance(law, target) for law, target in zip(self.rows, self.target_rows, strict=True))

    @property
    def joint_tv(self) -> Fraction:
        """Total-variation distance of the joint law from the target's."""
        return distance(self.joint, self.target_joint)

    @property
    def verdict(self) -> Verdict:
        """``lossless``; ``marginal`` if a row's law is wrong; ``joint`` if only the rows' dependence is."""
        if self.marginal_tv:
            return "marginal"
        return "joint" if self.joint_tv else "lossless"


def distance(law: Mapping[Any, Fraction], other: Mapping[Any, Fraction]) -> Fraction:
    """Return the total-variation distance of two laws, half the sum of the absolute differences."""
    nothing = Fraction(0)
    both = law.keys() | other.keys()
    return sum((abs(law.get(key, nothing) - other.get(key, nothing)) for key in both), nothing) / 2


def law(world: World, policy: Policy, decoder: Decoder = RIGHT, limit: int = 5_000_000) -> ExactLaw:
    """Enumerate the law of each row's first tokens.

    Args:
        world: what is decoded.
        policy: decides the verify lengths; ``plan`` must be pure.
        decoder: how tokens are drawn; the right one judges policies.
        limit: transitions between states after which enumeration is given up.

    Raises:
        WorldTooLarge: past ``limit``.
        PolicyError: if the policy fails or returns lengths that a step cannot execute.
    """
    walk = _Walk(world, policy, decoder, limit)
    joint = walk.run()
    targets = tuple(target_law(world, row) for row in range(len(world.rows)))
    return ExactLaw(
        rows=tuple(_marginal(joint, row) for row in range(len(world.rows))),
        joint=joint,
        target_rows=targets,
        target_joint=_independent(targets),
        states=walk.states,
        coverage=walk.coverage,
    )


def target_law(world: World, row: int) -> Law:
    """Return the target's law of a row's first tokens."""
    found: dict[Tokens, Fraction] = {(): Fraction(1)}
    for _ in range(world.compared(row)):
        longer: defaultdict[Tokens, Fraction] = defaultdict(Fraction)
        for tokens, mass in found.items():
            if tokens and tokens[-1] == world.end:
                longer[tokens] += mass
                continue
            last = tokens[-1] if tokens else world.rows[row].anchor
            for token, probability in enumerate(world.target_at(row, last)):
                if probability:
                    longer[*tokens, token] += mass * probability
        found = dict(longer)
    return found


def freeze(state: Any) -> Any:
    """Return a hashable value that is equal for equal policy states.

    Raises:
        PolicyError: for a state made of something that has no value to compare, such as an object of a plain class.
    """
    if isinstance(state, np.ndarray):
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
        return (type(state).__name__, state)
    raise PolicyError(
        f"a policy state of type {type(state).__name__} cannot be compared; build states from numbers, strings, "
        "tuples, lists, dicts, arrays and dataclasses"
    )


@dataclass(frozen=True)
class _State:
    """Everything the future depends on."""

    rows: tuple[RowState, ...]
    history: tuple[tuple[tuple[float, ...] | None, ...], ...]
    memory: Any


class _Walk:
    """One enumeration."""

    def __init__(self, world: World, policy: Policy, decoder: Decoder, limit: int) -> None:
        self.world, self.policy, self.decoder, self.limit = world, policy, decoder, limit
        self.lag = policy.lag or 0
        self.coverage = Coverage()
        self.states = self.transitions = 0
        self.unit = _common_denominator(world)
        self.memories: dict[Any, Any] = {}
        self.plans: dict[Any, tuple[tuple[int, ...], Any]] = {}
        self.blocks: dict[Any, dict[Seen, list[tuple[Block, Chain]]]] = {}
        self.moves: dict[Any, list[tuple[RowState, Any]]] = {}
        self.pasts: dict[Any, Generation] = {}

    def run(self) -> JointLaw:
        """Follow every path and return the joint law."""
        world = self.world
        start = tuple(RowState((), 0, plan.anchor) for plan in world.rows)
        now: dict[_State, Any] = {_State(start, (), self._keep(start_state(self.policy))): 1}
        joint: defaultdict[tuple[Tokens, ...], Fraction] = defaultdict(Fraction)
        step, denominator = 0, 1
        while now:
            following: defaultdict[_State, Any] = defaultdict(int)
            for state, mass in now.items():
                self.states += 1
                if all(self._complete(row, each) for row, each in enumerate(state.rows)):
                    joint[tuple(each.tokens for each in state.rows)] += Fraction(mass) / denominator
                else:
                    self._advance(step, state, mass, following)
            now, step = following, step + 1
            denominator *= self.unit ** len(world.rows) * len(world.coins)
        return dict(joint)

    def _complete(self, row: int, state: RowState) -> bool:
        return len(state.tokens) == self.world.compared(row) or self._ended(state)

    def _ended(self, state: RowState) -> bool:
        return bool(state.tokens) and state.last == self.world.end

    def _active(self, step: int, rows: tuple[RowState, ...]) -> tuple[int, ...]:
        return tuple(
            row
            for row, (plan, state) in enumerate(zip(self.world.rows, rows, strict=True))
            if plan.admitted <= step and state.count != plan.length and not self._ended(state)
        )

    def _advance(self, step: int, state: _State, mass: Any, following: defaultdict[_State, Any]) -> None:
        """Spread a state's mass over the states after a step."""
        active = self._active(step, state.rows)
        idle = self.unit ** (len(state.rows) - len(active))
        if not active:
            following[state] += mass * idle * len(self.world.coins)
            return
        available = tuple(self.world.available(row, step) for row in active)
        drafted = available if self.policy.drafts else (0,) * len(active)
        options = [self._options(row, state.rows[row].last, has) for row, has in zip(active, drafted, strict=True)]
        for seen in product(*options):
            history = self._history(state.history, active, seen)
            for share, lengths, memory in self._lengths(step, state, active, drafted, seen):
                after = _State(state.rows, history, memory)
                self._emit(after, mass * idle * share, active, drafted, seen, lengths, following)

    def _emit(
        self,
        state: _State,
        mass: Any,
        active: tuple[int, ...],
        drafted: tuple[int, ...],
        seen: tuple[Seen, ...],
        lengths: tuple[int, ...],
        following: defaultdict[_State, Any],
    ) -> None:
        """Add the mass of every combination of the rows' new states."""
        each = [
            self._moves(row, state.rows[row], has, what, length)
            for row, has, what, length in zip(active, drafted, seen, lengths, strict=True)
        ]
        for moved in product(*each):
            rows, weight = list(state.rows), mass
            for row, (new, probability) in zip(active, moved, strict=True):
                rows[row] = new
                weight *= probability
            following[_State(tuple(rows), state.history, state.memory)] += weight
            self.transitions += 1
        if self.transitions > self.limit:
            raise WorldTooLarge(
                f"more than {self.limit} transitions; take fewer rows, drafts or tokens, or raise `limit`"
            )

    # --- what the policy sees and answers

    def _lengths(
        self, step: int, state: _State, active: tuple[int, ...], drafted: tuple[int, ...], seen: tuple[Seen, ...]
    ) -> Iterator[tuple[int, tuple[int, ...], Any]]:
        """Yield (number of coins, lengths, memory) for the coins' values."""
        counts = tuple(state.rows[row].count for row in active)
        key = (step, active, counts, state.history, state.memory, seen)
        for coin in self.world.coins:
            answer = self.plans.get((key, coin)) or self.plans.get((key, None))
            if answer is None:
                tossed: list[int] = []
                view = self._view(step, state, active, counts, drafted, seen, coin, tossed)
                lengths, memory = ask(self.policy, view, self.memories[state.memory])
                answer = tuple(lengths.tolist()), self._keep(memory)
                self.coverage.note(step, active, drafted, answer[0])
                self.plans[key, coin if tossed else None] = answer
            if (key, None) in self.plans:
                yield len(self.world.coins), *answer
                return
            yield 1, *answer

    def _view(
        self,
        step: int,
        state: _State,
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
            step,
            np.array(active, np.int64),
            generation_of([confidence or None for confidence, _ in seen], gamma),
            np.array(drafted, np.int64),
            self.world.cost,
            self._lagged(state.history, active),
            context=lambda: np.array(counts, np.int64) + 1,
            outcomes=outcomes,
            coin=toss,
        )

    def _lagged(self, history: tuple[Any, ...], active: tuple[int, ...]) -> Generation | None:
        """Return generation ``n - lag`` by row; nothing is known of rows that it lacks."""
        if not self.lag:
            return None
        past = history[0] if len(history) == self.lag else (None,) * len(self.world.rows)
        wanted = tuple(past[row] for row in active)
        if wanted not in self.pasts:
            self.pasts[wanted] = generation_of(list(wanted), self.world.gamma)
        return self.pasts[wanted]

    def _history(self, history: tuple[Any, ...], active: tuple[int, ...], seen: tuple[Seen, ...]) -> tuple[Any, ...]:
        if not self.lag:
            return ()
        now: list[tuple[float, ...] | None] = [None] * len(self.world.rows)
        for row, (confidence, _) in zip(active, seen, strict=True):
            now[row] = confidence or None
        return (*history, tuple(now))[-self.lag :]

    def _keep(self, memory: Any) -> Any:
        """Return the key of a policy state, remembering the state itself."""
        key = freeze(memory)
        self.memories.setdefault(key, memory)
        return key

    # --- what a row may draft and emit

    def _options(self, row: int, anchor: int, count: int) -> dict[Seen, list[tuple[Block, Chain]]]:
        """Return a row's possible blocks by what the policy sees of them."""
        key = row, anchor, count
        if key not in self.blocks:
            found: defaultdict[Seen, list[tuple[Block, Chain]]] = defaultdict(list)
            for block in blocks(self.world, self.decoder, row, anchor, count):
                confidence = self.world.confidences(row, anchor, block.tokens)
                for chain in chains(self.world, self.decoder, row, anchor, block):
                    found[confidence, chain.accepted if self.policy.needs_outcomes else None].append((block, chain))
            self.blocks[key] = dict(found)
        return self.blocks[key]

    def _moves(self, row: int, state: RowState, count: int, seen: Seen, verified: int) -> list[tuple[RowState, Any]]:
        """Return a row's states after a step in which the policy saw ``seen``, with masses in units."""
        key = row, state, count, seen, verified
        if key not in self.moves:
            found: defaultdict[RowState, Fraction] = defaultdict(Fraction)
            for block, chain in self._options(row, state.last, count)[seen]:
                here = block.probability * chain.probability
                for tokens, share in finish(self.world, self.decoder, row, state.last, block, chain, verified):
                    found[self._after(row, state, tokens)] += here * share
            self.moves[key] = [(new, _whole(mass * self.unit)) for new, mass in found.items() if mass]
        return self.moves[key]

    def _after(self, row: int, state: RowState, tokens: Tokens) -> RowState:
        """Return a row's state once it has emitted tokens, cut at its end."""
        length = self.world.rows[row].length
        if length is not None:
            tokens = tokens[: length - state.count]
        if self.world.end in tokens:
            tokens = tokens[: tokens.index(self.world.end) + 1]
        kept = (*state.tokens, *tokens)[: self.world.compared(row)]
        return RowState(kept, state.count + len(tokens), tokens[-1])


def generation_of(confidences: list[tuple[float, ...] | None], gamma: int) -> Generation:
    """Return a generation from each row's confidences; None stands for a row without drafts.

    Survivals are sequential float64 products.
    """
    confidence = np.zeros((len(confidences), gamma))
    for row, values in enumerate(confidences):
        if values is not None:
            confidence[row, : len(values)] = values
    known = np.array([values is not None for values in confidences], np.bool_)
    return Generation(confidence, np.multiply.accumulate(confidence, axis=1), known, bool(known.all()))


def _common_denominator(world: World) -> int:
    """Return a number that turns the probabilities of right decoding's moves into whole ones."""
    tables = [law for table in (world.target, world.draft) for by_token in table for law in by_token]
    base = lcm(*(probability.denominator for law in tables for probability in law))
    residual = 1
    for row, token in product(range(len(world.rows)), range(world.vocabulary)):
        pairs = zip(world.target_at(row, token), world.draft_at(row, token), strict=True)
        residual = lcm(residual, int(base * sum(max(t - d, Fraction(0)) for t, d in pairs)) or 1)
    return int(base ** (world.gamma + 1) * residual)


def _whole(mass: Fraction) -> int | Fraction:
    """Return an int where the mass is whole: products of ints are much quicker, and as exact."""
    return mass.numerator if mass.denominator == 1 else mass


def _marginal(joint: JointLaw, row: int) -> Law:
    found: defaultdict[Tokens, Fraction] = defaultdict(Fraction)
    for tokens, mass in joint.items():
        found[tokens[row]] += mass
    return dict(found)


def _independent(rows: tuple[Law, ...]) -> JointLaw:
    found: dict[tuple[Tokens, ...], Fraction] = {(): Fraction(1)}
    for law in rows:
        found = {(*key, tokens): mass * share for key, mass in found.items() for tokens, share in law.items()}
    return found
