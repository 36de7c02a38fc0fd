"""The ways through a little world, written out: what is drafted, seen, decided and emitted, and how likely that is.

Blocks are told apart only as far as the policy can: by their confidences, and by their outcomes if it knows those.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate, product
from math import prod
from operator import mul

from .decoders import Block, Chain, finish
from .notation import drafted, letters
from .stepping import Decision, RowState, Seen, State, Stepper
from .worlds import Tokens

Ways = dict[str, Fraction]


@dataclass(frozen=True)
class Way:
    """One way to emit given tokens: ``B rejected, A redrawn``, and its probability given what the policy saw."""

    text: str
    probability: Fraction


@dataclass(frozen=True)
class RowStep:
    """One row in one step of a path.

    Attributes:
        row: row of the world.
        drafted: what is known of its block, such as ``x1 = A``.
        probability: of drafting so.
        confidence, survival: of its drafts.
        acceptable: leading drafts that would be accepted, if the policy knows.
        verified: its verify length.
        emitted: its tokens; in parentheses those beyond the compared ones. None if they no longer matter.
        share: probability of emitting them, given what was drafted and verified.
        ways: how; their probabilities sum to ``share``.
    """

    row: int
    drafted: str
    probability: Fraction
    confidence: tuple[float, ...]
    survival: tuple[float, ...]
    acceptable: int | None
    verified: int
    emitted: str | None
    share: Fraction
    ways: tuple[Way, ...]


@dataclass(frozen=True)
class PathStep:
    """One step of a path.

    Attributes:
        step: its number.
        rows: the rows that take part.
        theta: expected tokens per second if the 0, 1, .. drafts of highest survival were verified.
        coin, coin_share: the coin and its probability; None and 1 if the policy never looked.
    """

    step: int
    rows: tuple[RowStep, ...]
    theta: tuple[float, ...]
    coin: float | None
    coin_share: Fraction

    @property
    def factors(self) -> tuple[Fraction, ...]:
        """Probabilities that multiply to this step's."""
        return (*(row.probability for row in self.rows), self.coin_share, *(row.share for row in self.rows))


@dataclass(frozen=True)
class Path:
    """A way from the start to the end of a world.

    Attributes:
        steps: its steps; steps without any row are left out.
        outcome: first tokens of each watched row.
    """

    steps: tuple[PathStep, ...]
    outcome: tuple[Tokens, ...]

    @cached_property
    def probability(self) -> Fraction:
        """Product of all factors of all steps."""
        return prod((factor for step in self.steps for factor in step.factors), start=Fraction(1))


def paths(stepper: Stepper, watched: tuple[int, ...], wanted: tuple[Tokens, ...] | None = None) -> Iterator[Path]:
    """Yield the paths of a world.

    Args:
        stepper: world, policy and decoder.
        watched: rows whose first tokens are of interest; a path ends when they have them.
        wanted: first tokens of these rows; None yields the paths to all outcomes.
    """
    yield from _Paths(stepper, watched, wanted).walk(0, stepper.start(), ())


@dataclass(frozen=True)
class _Group:
    """Blocks of a row that look alike to the policy."""

    seen: Seen
    text: str
    probability: Fraction
    survival: tuple[float, ...]
    blocks: tuple[tuple[Block, Chain], ...]


_Moves = dict[bool, dict[RowState, Ways]]
"""A row's next states and the ways there: for a path that ends with them (True) and for one that goes on."""


class _Paths:
    """One enumeration of paths."""

    def __init__(self, stepper: Stepper, watched: tuple[int, ...], wanted: tuple[Tokens, ...] | None) -> None:
        self.stepper, self.watched = stepper, watched
        self.wanted = dict(zip(watched, wanted, strict=True)) if wanted is not None else {}
        self.groups: dict[tuple[int, int, int, Seen], _Group] = {}
        self.moves: dict[tuple[int, RowState, int, Seen, int], _Moves] = {}

    def walk(self, step: int, state: State, before: tuple[PathStep, ...]) -> Iterator[Path]:
        """Yield what follows from a state."""
        stepper = self.stepper
        # Not merged as in `exact`: a reader follows one way at a time.
        if all(stepper.complete(row, state.rows[row]) for row in self.watched):
            yield Path(before, tuple(state.rows[row].tokens for row in self.watched))
            return
        active = stepper.active(step, state.rows)
        if not active:
            yield from self.walk(step + 1, state, before)
            return
        has = stepper.drafted(step, active)
        anchors = [state.rows[row].last for row in active]
        options = [stepper.options(*each) for each in zip(active, anchors, has, strict=True)]
        for seen in product(*options):
            groups = [self._group(*each) for each in zip(active, anchors, has, seen, strict=True)]
            history = stepper.history(state.history, active, seen)
            for decision in stepper.decisions(step, state, active, has, seen):
                # The policy remembers and generations age, whatever the rows come to emit.
                after = State(state.rows, history, decision.memory)
                for following, done in self._emit(step, after, active, groups, decision):
                    yield from self.walk(step + 1, following, (*before, done))

    def _group(self, row: int, anchor: int, count: int, seen: Seen) -> _Group:
        """Return a row's blocks that look alike."""
        key = row, anchor, count, seen
        if key not in self.groups:
            options = self.stepper.options(row, anchor, count)
            probability = sum((block.probability * chain.probability for block, chain in options[seen]), Fraction(0))
            # One factor after the other, as policies get them, down to the last bit.
            survival = tuple(accumulate(seen[0], mul))
            self.groups[key] = _Group(seen, seen_text(options, seen), probability, survival, tuple(options[seen]))
        return self.groups[key]

    def _emit(
        self, step: int, state: State, active: tuple[int, ...], groups: list[_Group], decision: Decision
    ) -> Iterator[tuple[State, PathStep]]:
        """Yield the states after a decision and the step that leads there."""
        coin_share = Fraction(decision.coins, len(self.stepper.world.coins))
        theta = self._theta([group.survival for group in groups])
        moves = [
            self._moves(row, state.rows[row], group, length)
            for row, group, length in zip(active, groups, decision.lengths, strict=True)
        ]
        for ends, chosen in self._combinations(state, active, moves):
            rows, written = list(state.rows), []
            for row, group, length, move in zip(active, groups, decision.lengths, chosen, strict=True):
                if move is None:
                    written.append(_write(row, group, length, None, {"": Fraction(1)}))
                else:
                    rows[row] = move[0]
                    written.append(_write(row, group, length, _emitted(state.rows[row], move[0], ends), move[1]))
            done = PathStep(step, tuple(written), theta, decision.coin, coin_share)
            yield State(tuple(rows), state.history, state.memory), done

    def _combinations(
        self, state: State, active: tuple[int, ...], moves: list[_Moves]
    ) -> Iterator[tuple[bool, tuple[tuple[RowState, Ways] | None, ...]]]:
        """Yield whether the path ends, and each row's move, None where it no longer matters.

        At a path's end only tokens are told apart, before it whole states, since the future depends on those.
        """
        complete = self.stepper.complete
        # A path may end here if every watched row either has its tokens or takes part and may get them now.
        if all(row in active or complete(row, state.rows[row]) for row in self.watched):
            last = [
                list(move[True].items()) if row in self.watched and not complete(row, state.rows[row]) else [None]
                for row, move in zip(active, moves, strict=True)
            ]
            # None stands for all moves of a row whose tokens matter no more: together they have probability 1.
            yield from ((True, chosen) for chosen in product(*last))
        for chosen in product(*(move[False].items() for move in moves)):
            after = list(state.rows)
            for row, (new, _) in zip(active, chosen, strict=True):
                after[row] = new
            # Those that end the path were yielded above, merged by their tokens.
            if not all(complete(row, after[row]) for row in self.watched):
                yield False, chosen

    def _moves(self, row: int, state: RowState, group: _Group, verified: int) -> _Moves:
        """Return a row's next states and the ways there."""
        key = row, state, len(group.survival), group.seen, verified
        if key not in self.moves:
            self.moves[key] = self._find_moves(row, state, group, verified)
        return self.moves[key]

    def _find_moves(self, row: int, state: RowState, group: _Group, verified: int) -> _Moves:
        stepper = self.stepper
        found: dict[bool, defaultdict[RowState, defaultdict[str, Fraction]]] = {
            ends: defaultdict(lambda: defaultdict(Fraction)) for ends in (True, False)
        }
        for block, chain in group.blocks:
            # Given that the policy saw this group, whose own probability has a column of its own.
            given = block.probability * chain.probability / group.probability
            for tokens, share in finish(stepper.world, stepper.decoder, row, state.last, block, chain, verified):
                new = stepper.after(row, state, tokens)
                if not self._leads_on(row, new):
                    continue
                way = self._way(block, chain, verified, tokens, new.emitted - state.emitted)
                found[False][new][way] += given * share
                if stepper.complete(row, new):
                    shown = len(new.tokens) - len(state.tokens)
                    # Tokens past the compared ones are forgotten: ways that differ in them alone add up.
                    merged = RowState(new.tokens, len(new.tokens), new.tokens[-1])
                    found[True][merged][self._way(block, chain, verified, tokens, shown)] += given * share
        return {ends: {new: dict(ways) for new, ways in states.items()} for ends, states in found.items()}

    def _leads_on(self, row: int, state: RowState) -> bool:
        wanted = self.wanted.get(row)
        return wanted is None or wanted[: len(state.tokens)] == state.tokens

    def _way(self, block: Block, chain: Chain, verified: int, tokens: Tokens, shown: int) -> str:
        """Return how the first ``shown`` of the emitted tokens came about."""
        kept = min(chain.accepted, verified)
        said = [f"{letters(tokens[: min(kept, shown)])} accepted"] if kept and shown else []
        if shown > kept:
            last = letters(tokens[kept:])
            redrawn = chain.rejecting is not None and (chain.accepted < verified or self.stepper.decoder.uncut_token)
            rejected = letters(block.tokens[chain.accepted : chain.accepted + 1])
            said.append(f"{rejected} rejected, {last} redrawn" if redrawn else f"{last} bonus")
        return ", ".join(said)

    def _theta(self, survivals: list[tuple[float, ...]]) -> tuple[float, ...]:
        """Return (R + sum of the K highest survivals) / T(R + K) for K = 0, 1, .. drafts."""
        ranked = sorted((each for values in survivals for each in values), reverse=True)
        # As Algorithm 1 counts: every row emits one token for sure, each verified draft adds its survival.
        expected = accumulate(ranked, initial=float(len(survivals)))
        seconds = self.stepper.world.seconds[len(survivals) - 1 :]
        return tuple(tokens / each for tokens, each in zip(expected, seconds, strict=False))


def _emitted(before: RowState, after: RowState, ends: bool) -> str:
    """Return the tokens a move emits; how many lie beyond the compared ones stands in parentheses."""
    inside = letters(after.tokens[len(before.tokens) :])
    beyond = after.emitted - before.emitted - (len(after.tokens) - len(before.tokens))
    return inside if ends or not beyond else f"{inside}(+{beyond})"


def _write(row: int, group: _Group, verified: int, emitted: str | None, ways: Ways) -> RowStep:
    """Return a row's part of a step."""
    return RowStep(
        row=row,
        drafted=group.text,
        probability=group.probability,
        confidence=group.seen[0],
        survival=group.survival,
        acceptable=group.seen[1],
        verified=verified,
        emitted=emitted,
        share=sum(ways.values(), Fraction(0)),
        ways=tuple(Way(text, probability) for text, probability in ways.items() if text),
    )


def seen_text(options: dict[Seen, list[tuple[Block, Chain]]], seen: Seen) -> str:
    """Return which blocks look like ``seen`` to a policy: ``x1 = A``, or ``x1 = A, 1 would be accepted``."""
    group = {block.tokens for block, _ in options[seen]}
    text = drafted(group, {block.tokens for found in options.values() for block, _ in found})
    if seen[1] is None or text == "-":
        return text
    accepted = f"{seen[1]} would be accepted"
    return accepted if text == "any" else f"{text}, {accepted}"
