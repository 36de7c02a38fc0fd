"""What goes wrong in a world, in a sentence, found by comparing decisions that the same past leads to.

A row's law is kept if the admission of a draft never depends on its own value or on a later one; rows stay independent
if drafts that are not verified never change which are. So a biased world holds a pair of decisions that breaks one of
these, and the first such pair is reported.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations, product

from .decoders import Block, Chain, finish
from .notation import letters
from .paths import seen_text
from .stepping import RowState, Seen, State, Stepper
from .worlds import Tokens

Options = dict[Seen, list[tuple[Block, Chain]]]


@dataclass(frozen=True)
class Moment:
    """A step that the world may come to, and everything the policy decides in it.

    Attributes:
        step: its number.
        rows: the rows that take part.
        past: what they have emitted.
        options: their possible blocks, by what the policy sees of them.
        lengths: verify lengths by coin and by what the policy sees of every row.
    """

    step: int
    rows: tuple[int, ...]
    past: tuple[Tokens, ...]
    options: tuple[Options, ...]
    lengths: dict[float | None, dict[tuple[Seen, ...], tuple[int, ...]]]

    def text(self, place: int, seen: Seen) -> str:
        """Return what is drafted in the row at ``place``."""
        return seen_text(self.options[place], seen)


def moments(stepper: Stepper) -> Iterator[Moment]:
    """Yield every step that a world may come to, earliest first."""
    now, step = {stepper.start()}, 0
    while now:
        following: set[State] = set()
        # A set has no order of its own, and the sentence must be the same in every run.
        for state in sorted(now, key=repr):
            if all(stepper.complete(row, each) for row, each in enumerate(state.rows)):
                continue
            active = stepper.active(step, state.rows)
            if not active:
                following.add(state)
                continue
            moment = _moment(stepper, step, state, active, following)
            yield moment
        now, step = following, step + 1


def _moment(stepper: Stepper, step: int, state: State, active: tuple[int, ...], following: set[State]) -> Moment:
    """Ask for every decision of a step, adding the states it leads to."""
    has = stepper.drafted(step, active)
    options = tuple(stepper.options(row, state.rows[row].last, count) for row, count in zip(active, has, strict=True))
    lengths: dict[float | None, dict[tuple[Seen, ...], tuple[int, ...]]] = {}
    # Every combination, likely or not: a rule is about decisions, not about how often they are met.
    for seen in product(*options):
        history = stepper.history(state.history, active, seen)
        for decision in stepper.decisions(step, state, active, has, seen):
            lengths.setdefault(decision.coin, {})[seen] = decision.lengths
            moves = [
                _states(stepper, row, state.rows[row], option[what], length)
                for row, option, what, length in zip(active, options, seen, decision.lengths, strict=True)
            ]
            for chosen in product(*moves):
                rows = list(state.rows)
                for row, new in zip(active, chosen, strict=True):
                    rows[row] = new
                following.add(State(tuple(rows), history, decision.memory))
    return Moment(step, active, tuple(state.rows[row].tokens for row in active), options, lengths)


def _states(
    stepper: Stepper, row: int, state: RowState, group: list[tuple[Block, Chain]], verified: int
) -> set[RowState]:
    return {
        stepper.after(row, state, tokens)
        for block, chain in group
        for tokens, share in finish(stepper.world, stepper.decoder, row, state.last, block, chain, verified)
        if share
    }


def anticipation(stepper: Stepper, row: int) -> str | None:
    """Return a sentence on the first draft of a row whose admission depends on itself or on a later draft."""
    for moment in moments(stepper):
        if row in moment.rows:
            found = _anticipation(moment, moment.rows.index(row))
            if found is not None:
                return found
    return None


def _anticipation(moment: Moment, place: int) -> str | None:
    """Return a sentence on the earliest such draft of one step, if there is one."""
    found = [
        (min(lengths) + 1, differs, more, less)
        for more, less, lengths in _unlike(moment, place)
        if (differs := _first_difference(moment, place, more[place], less[place])) is not None
        # A draft that both verify may decide what follows; the first that only one verifies must not depend on itself
        # or on later ones.
        and differs > min(lengths)
    ]
    if not found:
        return None
    # The earliest draft, and of its reasons the earliest.
    position, differs, more, less = min(found, key=lambda each: each[:2])
    return _anticipating(moment, place, more, less, position, differs)


def _unlike(moment: Moment, place: int) -> Iterator[tuple[tuple[Seen, ...], tuple[Seen, ...], tuple[int, int]]]:
    """Yield what else can be seen of one row alone that verifies more and less of it, and both lengths."""
    for decisions in moment.lengths.values():
        for more, less in permutations(decisions, 2):
            lengths = decisions[more][place], decisions[less][place]
            # All else being equal, so that what the policy sees of this row alone is to blame.
            alike = all(a == b for at, (a, b) in enumerate(zip(more, less, strict=True)) if at != place)
            if alike and lengths[0] > lengths[1]:
                yield more, less, lengths


def _first_difference(moment: Moment, place: int, one: Seen, other: Seen) -> int | None:
    """Return the position, from 1, up to which blocks of two groups may agree; None if they hold the same blocks.

    Drafts differ in their token, or for a policy that knows outcomes in whether they would be accepted.
    """
    option = moment.options[place]
    best = 0
    for (block, chain), (block_, chain_) in product(option[one], option[other]):
        one_, other_ = _drafts(block, chain, one), _drafts(block_, chain_, other)
        at = next((j for j, (a, b) in enumerate(zip(one_, other_, strict=True), start=1) if a != b), None)
        # Of all blocks that look so, the two that agree longest: what they share cannot be what the policy saw.
        best = max(best, at or 0)
    return best or None


def _drafts(block: Block, chain: Chain, seen: Seen) -> list[tuple[int, bool]]:
    """Return a block's drafts, each with whether it would be accepted if the policy knows that."""
    known = seen[1] is not None
    return [(token, known and chain.accepted >= j) for j, token in enumerate(block.tokens, start=1)]


def _anticipating(
    moment: Moment, place: int, more: tuple[Seen, ...], less: tuple[Seen, ...], position: int, differs: int
) -> str:
    reason = "its own value" if differs == position else f"draft {differs}, which comes after it"
    if more[place][1] is not None:
        reason = "outcomes: the policy knows which drafts would be accepted"
    return (
        f"{_when(moment)}row {moment.rows[place]}'s draft {position} is verified if {moment.text(place, more[place])} "
        f"and refused if {moment.text(place, less[place])}{_others(moment, more, place)}, so whether it is verified "
        f"depends on {reason}."
    )


def coupling(stepper: Stepper) -> str | None:
    """Return a sentence on unverified drafts of one row that change what is verified of another."""
    for moment in moments(stepper):
        found = [
            pair
            for source, sink in permutations(range(len(moment.rows)), 2)
            if (pair := _coupled(moment, source, sink)) is not None
        ]
        if found:
            # All pairs of the step at once: reciprocal rules are wrong together, each alone may keep the law.
            return f"{_when(moment)}{', and '.join(found)}; that ties the rows together."
    return None


def _coupled(moment: Moment, source: int, sink: int) -> str | None:
    """Return how the length of row ``sink`` changes with drafts of row ``source`` alone that are not verified."""
    for decisions in moment.lengths.values():
        for one, other in permutations(decisions, 2):
            changed = {at for at, (a, b) in enumerate(zip(one, other, strict=True)) if a != b}
            lengths, lengths_ = decisions[one], decisions[other]
            # One row's drafts change, another row's length moves.
            if changed != {source} or lengths[sink] == lengths_[sink]:
                continue
            differs = _first_difference(moment, source, one[source], other[source])
            # Behind what is verified: verified drafts may decide about other rows, which is what rule (b) allows.
            if differs is not None and differs > lengths[source]:
                rows = moment.rows
                return (
                    f"row {rows[source]}'s unverified draft {differs} decides about row {rows[sink]} "
                    f"({lengths[sink]} verified if {moment.text(source, one[source])}, {lengths_[sink]} if "
                    f"{moment.text(source, other[source])}{_others(moment, one, source)})"
                )
    return None


def _when(moment: Moment) -> str:
    """Return the past, if there is one."""
    said = [
        f"row {row} emitted {letters(tokens)}" for row, tokens in zip(moment.rows, moment.past, strict=True) if tokens
    ]
    after = f"after {' and '.join(said)}, " if said else ""
    return f"in step {moment.step}, {after}" if moment.step else ""


def _others(moment: Moment, seen: tuple[Seen, ...], told: int) -> str:
    """Return what is drafted in the rows but the one told of, where that says something."""
    said = [
        f"row {row} drafts {moment.text(place, seen[place])}"
        for place, row in enumerate(moment.rows)
        if place != told and moment.text(place, seen[place]) not in ("-", "any")
    ]
    return f", while {' and '.join(said)}" if said else ""
