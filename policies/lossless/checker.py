"""Search for a world in which a policy changes what leaves, and say what was covered if none turns up.

Worlds come from Hypothesis, smallest sizes first; each is judged by its exact law in fractions. A world that breaks a
policy is shrunk to one that can be redone by hand. Beside the worlds, the two rules are tried on random histories of
larger batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from hypothesis import HealthCheck, Phase, Verbosity, given, settings
from hypothesis import seed as seeded

from ..checks import ask, check_policy, policy_name, start_state
from ..interface import Policy, PolicyError
from .decoders import RIGHT, Decoder
from .exact import ExactLaw, WorldTooLarge, law
from .rules import RuleReport, probe
from .scripts import Script, Situation, arguments, random_script, view_of
from .stepping import freeze
from .strategies import Size, worlds
from .witness import witness
from .worlds import World

Outcome = Literal["lossless", "marginal", "joint", "undecided", "vacuous"]

GAMMA = 5
"""Drafts of a block where the rules are tried: beyond what is enumerated."""

PURSUED = ((Size(1, 2, 2, 3), 0.6), (Size(2, 2, 2, 2), 0.4))
"""Where to look further if a rule is broken and no law is."""

LIMIT = 300_000
"""Transitions after which a world is given up and counted as too large."""

LONGEST = 5
"""The most tokens a row is followed for, however long the policy's lag."""

FURTHEST = 10
"""The same in the smallest worlds."""


@dataclass(frozen=True)
class Tally:
    """What was covered at one size.

    Attributes:
        rows, vocabulary, gamma, tokens: the size; rows are followed for up to ``tokens`` tokens.
        worlds: different worlds enumerated.
        admitted: those in which some draft was verified.
        varied: those in which the same batch got different budgets on different paths.
        split: those in which some draft was verified on one path and refused on another.
        too_large: worlds given up, not counted in ``worlds``.
    """

    rows: int
    vocabulary: int
    gamma: int
    tokens: int
    worlds: int
    admitted: int
    varied: int
    split: int
    too_large: int = 0


@dataclass(frozen=True)
class Counterexample:
    """A world in which the law that leaves is not the target's.

    Attributes:
        world: shrunk as far as Hypothesis could.
        law: its exact law, in fractions.
        examples: worlds enumerated until a first one broke, that one included.
        by_rule: whether the world was built from a broken row-wise rule instead of found by the search.
    """

    world: World
    law: ExactLaw
    examples: int
    by_rule: bool = False


@dataclass(frozen=True)
class Search:
    """The outcome of a search through worlds."""

    tallies: tuple[Tally, ...]
    counterexample: Counterexample | None

    def joined(self, later: Search) -> Search:
        """Return both outcomes as one; this one found nothing."""
        found = later.counterexample
        if found is not None:
            found = replace(found, examples=found.examples + sum(tally.worlds for tally in self.tallies))
        return Search((*self.tallies, *later.tallies), found)


@dataclass(frozen=True)
class Report:
    """What is known of a policy after a check.

    Attributes:
        policy: its name.
        rules: the two rules on random histories.
        search: the worlds enumerated.
        own_token: whether confidences read the very draft they belong to; the rules say nothing then.
    """

    policy: str
    rules: RuleReport
    search: Search
    own_token: bool = False

    @property
    def tallies(self) -> tuple[Tally, ...]:
        """What was covered, by size."""
        return self.search.tallies

    @property
    def counterexample(self) -> Counterexample | None:
        """The world that breaks the policy, if one was found."""
        return self.search.counterexample

    @property
    def worlds(self) -> int:
        """Worlds enumerated in all."""
        return sum(tally.worlds for tally in self.tallies)

    @property
    def verdict(self) -> Outcome:
        """``marginal`` or ``joint`` if a world shows that law to be wrong; ``marginal`` if the row-wise rule is broken.

        Some drafter turns any broken row-wise rule into a wrong marginal (docs/lossless.md). Otherwise nothing was
        found: ``vacuous`` if no draft was ever verified, ``undecided`` if the stopping-set rule alone fails or the
        rules say nothing (of a policy that knows the outcomes), else ``lossless``.
        """
        if self.counterexample is not None:
            return "marginal" if self.counterexample.law.marginal_tv else "joint"
        if self.rules.row_wise is not None and not self.own_token:
            return "marginal"
        if not any(tally.admitted for tally in self.tallies):
            return "vacuous"
        ruled = self.rules.applicable and self.rules.stopping_set is None
        return "lossless" if ruled else "undecided"


def check(
    policy: Policy,
    examples: int = 3000,
    seed: int = 0,
    own_token: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Report:
    """Try to show that a policy changes the output distribution.

    If no world breaks a policy but a rule is broken, the row-wise one gives a world of its own; for the stopping set up
    to 1,500 further worlds of two drafts are tried.

    Args:
        policy: judged with right decoding.
        examples: worlds to enumerate, shared out among the sizes.
        seed: of the worlds and histories.
        own_token: let confidences read the very draft they belong to.
        progress: called with (worlds enumerated, ``examples``).

    Raises:
        PolicyError: if the policy declares nonsense, fails, returns lengths that a step cannot execute, keeps a state
            that cannot be compared, or answers differently when asked again.
    """
    check_policy(policy, GAMMA)
    # First, since a plan that is no function has no law, and looks like a broken rule.
    check_pure(policy, seed)
    rules = probe(policy, GAMMA, seed=seed)
    if rules.stopping_set is not None and rules.row_wise is None:  # look harder for what would settle it
        rules = replace(rules, row_wise=probe(policy, GAMMA, scripts=144, seed=seed + 1, trials=20).row_wise)
    found = search(policy, shares(sizes_for(policy), examples), seed=seed, own_token=own_token, progress=progress)
    if found.counterexample is None and not own_token:
        found = found.joined(_pursued(policy, rules, examples, seed, progress))
    return Report(policy_name(policy), rules, found, own_token)


def _pursued(
    policy: Policy, rules: RuleReport, examples: int, seed: int, progress: Callable[[int, int], None] | None
) -> Search:
    """Look for a world that shows what a broken rule does."""
    if rules.row_wise is not None:
        # It starts without a past. A policy that goes wrong only after some history keeps the law in it.
        world = witness(rules.row_wise)
        with suppress(WorldTooLarge):
            built = law(world, policy, limit=LIMIT)
            if built.joint_tv:
                return Search((), Counterexample(world, built, 1, by_rule=True))
    if rules.stopping_set is None:
        return Search((), None)
    # Two drafts are the fewest whose confidences can show one that is not verified.
    sizes = shares(PURSUED, min(max(examples, 400), 1500))
    return search(policy, sizes, seed=seed + 1, progress=progress)


def check_pure(policy: Policy, seed: int = 0) -> None:
    """Ask a policy everything twice at once, and again after other histories.

    Raises:
        PolicyError: unless the later answers are the first, and the state and view it was given are unchanged.
    """
    rng = np.random.default_rng(seed)
    asked: list[Situation] = []
    for _ in range(10):
        for situation in _untouched(policy, random_script(rng, GAMMA, 3, 4)):
            _same_answer(situation, "asked twice with the same view and state")
            asked.append(situation)
    for situation in reversed(asked):  # forwards, what is remembered by step would be written again in time
        _same_answer(situation, "asked again with the same view and state, after other histories,")


def _untouched(policy: Policy, script: Script) -> Iterator[Situation]:
    """Yield the steps of a script if no plan changes what it is given."""
    state = start_state(policy)
    for step, moment in enumerate(script.moments):
        view = view_of(policy, script, step, moment)
        # By value and before the call: a plan that writes to what it is given changes these very objects.
        memory, before = freeze(state), arguments(policy, view)
        lengths, following = ask(policy, view, state)
        where = f"policy `{policy_name(policy)}` at step {step}: plan changed"
        if freeze(state) != memory:
            raise PolicyError(f"{where} the state it was given; return a new one instead")
        for name, now in arguments(policy, view).items():
            if now != before[name]:
                raise PolicyError(f"{where} `view.{name}`; work on a copy")
        yield Situation(policy, script, step, state, lengths)
        state = following


def _same_answer(situation: Situation, when: str) -> None:
    again = situation.again()
    if not np.array_equal(again, situation.lengths):
        raise PolicyError(
            f"policy `{policy_name(situation.policy)}` at step {situation.step}: {when} it returned "
            f"{situation.lengths.tolist()}, then {again.tolist()}; plan must be a pure function: keep memory in the "
            "state, take randomness from `view.coin`"
        )


def sizes_for(policy: Policy) -> tuple[tuple[Size, float], ...]:
    """Return the sizes worth enumerating for a policy, smallest first, with each one's share of the worlds.

    A budget of lag ``n`` reads a generation only after ``n`` steps, so rows are followed for ``n + 2`` tokens where
    that can be enumerated, and for 3 at least.
    """
    # At one token a step a budget of this lag has something to read in the last two of lag + 2 steps.
    follow = min(max((policy.lag or 0) + 2, 3), LONGEST)
    return (
        (Size(1, 2, 1, min(max((policy.lag or 0) + 2, 3), FURTHEST)), 0.08),
        (Size(1, 2, 2, follow), 0.20),
        (Size(1, 3, 1, 3), 0.05),
        (Size(1, 2, 3, 3), 0.12),
        (Size(1, 3, 2, 3), 0.07),
        (Size(2, 2, 1, min(follow, 4)), 0.12),
        (Size(2, 2, 2, 3), 0.18),
        (Size(1, 3, 3, 3), 0.03),
        (Size(1, 2, 4, 3), 0.12),
        (Size(2, 3, 1, 3), 0.03),
    )


def shares(sizes: Iterable[tuple[Size, float]], examples: int) -> list[tuple[Size, int]]:
    """Return how many worlds of each size to enumerate."""
    return [(size, max(1, round(share * examples))) for size, share in sizes]


def search(
    policy: Policy,
    sizes: Iterable[tuple[Size, int]],
    decoder: Decoder = RIGHT,
    seed: int = 0,
    own_token: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Search:
    """Enumerate worlds size by size, until one breaks the law.

    Args:
        policy: decides the verify lengths.
        sizes: sizes in order, with how many worlds of each.
        decoder: how tokens are drawn.
        seed: of the worlds.
        own_token: let confidences read the very draft they belong to.
        progress: called with (worlds enumerated, worlds in all).
    """
    # All sizes up front, since progress is told in worlds of the whole search.
    planned = list(sizes)
    total = sum(examples for _, examples in planned)
    tallies: list[Tally] = []
    for size, examples in planned:
        before = sum(tally.worlds for tally in tallies)
        hunt = _Hunt(policy, decoder, size, _offset(progress, before, total))
        world = hunt.run(examples, seed, own_token)
        tallies.append(hunt.tally)
        if world is not None:
            return Search(tuple(tallies), Counterexample(world, law(world, policy, decoder), before + hunt.worlds))
    return Search(tuple(tallies), None)


def _offset(progress: Callable[[int, int], None] | None, before: int, total: int) -> Callable[[int], None]:
    """Return a callback that adds the worlds of earlier sizes."""

    def tell(worlds: int) -> None:
        if progress is not None:
            progress(before + worlds, total)

    return tell


class _Broken(Exception):
    """The world at hand breaks the law."""


class _Hunt:
    """The search through worlds of one size."""

    def __init__(self, policy: Policy, decoder: Decoder, size: Size, progress: Callable[[int], None]) -> None:
        self.policy, self.decoder, self.size, self.progress = policy, decoder, size, progress
        self.judged: dict[World, bool] = {}
        self.smallest: World | None = None
        self.worlds = self.admitted = self.varied = self.split = self.too_large = 0

    @property
    def tally(self) -> Tally:
        """What was covered, up to and with the first world that breaks the law."""
        size = self.size
        covered = (self.worlds, self.admitted, self.varied, self.split, self.too_large)
        return Tally(size.rows, size.vocabulary, size.gamma, size.tokens, *covered)

    def run(self, examples: int, seed: int, own_token: bool) -> World | None:
        """Return the smallest world found to break the law, or None."""

        # Seeded, nothing remembered between runs, no deadline: the same seed tries the same worlds on any machine.
        @seeded(seed)
        @settings(
            max_examples=examples,
            database=None,
            deadline=None,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
            report_multiple_bugs=False,
            verbosity=Verbosity.quiet,
        )
        @given(worlds(self.size, own_token))
        def keeps_the_law(world: World) -> None:
            # Hypothesis comes back to worlds, above all when it shrinks: each is judged, and counted, once.
            if world not in self.judged:
                self.judged[world] = self._breaks(world)
            if self.judged[world]:
                self.smallest = world  # Hypothesis tries the smallest once more at the end
                raise _Broken

        with suppress(_Broken):
            keeps_the_law()
        return self.smallest

    def _breaks(self, world: World) -> bool:
        """Judge a world, and count it unless this is shrinking."""
        try:
            found = law(world, self.policy, self.decoder, limit=LIMIT)
        except WorldTooLarge:
            # Neither right nor wrong, and said so in the tally.
            self.too_large += self.smallest is None
            return False
        if self.smallest is None:
            self.worlds += 1
            self.admitted += bool(found.coverage.admitted)
            self.varied += found.coverage.varied
            self.split += found.coverage.split
            self.progress(self.worlds)
        # The joint law contains the marginals: one comparison judges both.
        return found.joint_tv > 0
