"""The exact law of the tokens that leave a little world under a policy and a decoder.

Every path is followed: drafts, coins, acceptance, residual and bonus tokens. A path runs until each row has emitted its
first ``L`` tokens (or has ended) and is then cut; it is never conditioned on how many tokens a step gave, which would
accuse lossless policies. Equal states are merged. Arithmetic is exact: masses are whole numbers over a common
denominator, results are fractions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product
from math import lcm, prod
from typing import Any, Literal

from ..interface import Policy
from .decoders import RIGHT, Decoder, finish
from .stepping import RowState, Seen, State, Stepper
from .worlds import Tokens, World

Law = Mapping[Tokens, Fraction]
JointLaw = Mapping[tuple[Tokens, ...], Fraction]
Verdict = Literal["lossless", "marginal", "joint"]


class WorldTooLarge(ValueError):
    """Enumerating a world would take more transitions than allowed."""


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
        # By batch, so that a budget which only follows who is there does not pass for one that decides.
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
        # The stronger accusation first: a wrong marginal makes the joint law wrong as well.
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
            # An ended text is complete, however short.
            if tokens and tokens[-1] == world.end:
                longer[tokens] += mass
                continue
            last = tokens[-1] if tokens else world.rows[row].anchor
            for token, probability in enumerate(world.target_at(row, last)):
                if probability:
                    longer[*tokens, token] += mass * probability
        found = dict(longer)
    return found


Masses = dict[tuple[RowState, ...], Any]
"""Mass by the rows' states, as whole numbers where right decoding makes them so."""


class _Walk:
    """One enumeration."""

    def __init__(self, world: World, policy: Policy, decoder: Decoder, limit: int) -> None:
        self.world, self.decoder, self.limit = world, decoder, limit
        self.coverage = Coverage()
        self.stepper = Stepper(world, policy, decoder, self.coverage.note)
        self.states = self.transitions = 0
        self.unit = _common_denominator(world)
        self.emissions: dict[Any, list[tuple[Tokens, Any]]] = {}
        self.moves: dict[Any, list[tuple[RowState, Any]]] = {}

    def run(self) -> JointLaw:
        """Follow every path and return the joint law."""
        start = self.stepper.start()
        # Two levels: states of one past are spread together, and the past is looked up once for all of them.
        now: dict[tuple[Any, Any], Masses] = {(start.history, start.memory): {start.rows: 1}}
        joint: defaultdict[tuple[Tokens, ...], Fraction] = defaultdict(Fraction)
        step, denominator = 0, 1
        while now:
            following: defaultdict[tuple[Any, Any], Masses] = defaultdict(dict)
            done: defaultdict[tuple[Tokens, ...], Any] = defaultdict(int)
            for (history, memory), masses in now.items():
                for rows, mass in masses.items():
                    self._step(step, State(rows, history, memory), mass, following, done)
            for tokens, mass in done.items():
                joint[tokens] += Fraction(mass) / denominator
            now, step = following, step + 1
            # One factor a row and step, whether the row took part or not: masses of one step then have one denominator.
            denominator *= self.unit ** len(self.world.rows) * len(self.world.coins)
        return dict(joint)

    def _step(
        self,
        step: int,
        state: State,
        mass: Any,
        following: defaultdict[tuple[Any, Any], Masses],
        done: defaultdict[tuple[Tokens, ...], Any],
    ) -> None:
        """Add a state's mass to those that are done, or spread it over the states after a step."""
        self.states += 1
        stepper, rows = self.stepper, state.rows
        if all(stepper.complete(row, each) for row, each in enumerate(rows)):
            done[tuple(each.tokens for each in rows)] += mass
            return
        active = stepper.active(step, rows)
        # Rows that sit this step out are scaled like the others, or their masses could not be added.
        mass *= self.unit ** (len(rows) - len(active))
        if not active:
            _add(following[state.history, state.memory], rows, mass * len(self.world.coins))
            return
        drafted = stepper.drafted(step, active)
        # Only what a policy sees tells blocks apart: those that look alike get one decision.
        options = [stepper.options(row, rows[row].last, has) for row, has in zip(active, drafted, strict=True)]
        for seen in product(*options):
            history = stepper.history(state.history, active, seen)
            for share, lengths, memory, _ in stepper.decisions(step, state, active, drafted, seen):
                moves = [
                    self._moves(row, rows[row], has, what, length)
                    for row, has, what, length in zip(active, drafted, seen, lengths, strict=True)
                ]
                self._spread(rows, active, moves, mass * share, following[history, memory])

    def _spread(
        self,
        rows: tuple[RowState, ...],
        active: tuple[int, ...],
        moves: list[list[tuple[RowState, Any]]],
        mass: Any,
        into: Masses,
    ) -> None:
        """Add the mass of every combination of the rows' new states."""
        # Counted before they are made, so that a world too large is given up before it fills the memory.
        self.transitions += prod(map(len, moves))
        if self.transitions > self.limit:
            raise WorldTooLarge(
                f"more than {self.limit} transitions; take fewer rows, drafts or tokens, or raise `limit`"
            )
        if len(moves) == len(rows) == 1:  # the common case, without the detour
            for new, probability in moves[0]:
                _add(into, (new,), mass * probability)
            return
        for moved in product(*moves):
            now, weight = list(rows), mass
            for row, (new, probability) in zip(active, moved, strict=True):
                now[row] = new
                weight *= probability
            _add(into, tuple(now), weight)

    def _moves(self, row: int, state: RowState, count: int, seen: Seen, verified: int) -> list[tuple[RowState, Any]]:
        """Return a row's states after a step in which the policy saw ``seen``, with masses in units."""
        key = row, state, count, seen, verified
        if key not in self.moves:
            found: defaultdict[RowState, Any] = defaultdict(int)
            for tokens, mass in self._emissions(row, state.last, count, seen, verified):
                found[self.stepper.after(row, state, tokens)] += mass
            self.moves[key] = list(found.items())
        return self.moves[key]

    def _emissions(self, row: int, anchor: int, count: int, seen: Seen, verified: int) -> list[tuple[Tokens, Any]]:
        """Return what a row emits after an anchor, with masses in units."""
        key = row, anchor, count, seen, verified
        # Its text is not in the key, for what a row emits depends on its anchor alone: half the time (docs/LOG.md).
        if key not in self.emissions:
            found: defaultdict[Tokens, Fraction] = defaultdict(Fraction)
            for block, chain in self.stepper.options(row, anchor, count)[seen]:
                here = block.probability * chain.probability
                for tokens, share in finish(self.world, self.decoder, row, anchor, block, chain, verified):
                    found[tokens] += here * share
            self.emissions[key] = [(tokens, _whole(mass * self.unit)) for tokens, mass in found.items() if mass]
        return self.emissions[key]


def _add(masses: Masses, rows: tuple[RowState, ...], mass: Any) -> None:
    masses[rows] = masses.get(rows, 0) + mass


def _common_denominator(world: World) -> int:
    """Return a number that turns the probabilities of right decoding's moves into whole ones."""
    tables = [law for table in (world.target, world.draft) for by_token in table for law in by_token]
    # A draft contributes p_d, min(p_t, p_d) or their difference, the last token p_t or a residual share: gamma + 1
    # factors over `base` and one norm of a residual at most. Broken decoders may need more.
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
