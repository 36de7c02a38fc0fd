"""Complete length maps: what a scheduler does in one step, as a function of every draft in the batch.

Given the past and the coin, a step of a scheduler is a function from all rows' drafts ``x`` to verify lengths ``l``.
For tiny batches the whole function can be written down and both rules of docs/lossless.md be checked exhaustively:
row-wise non-anticipation, which keeps each row's law, and the stopping-set rule, which keeps the joint law.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np

from ..arrays import Ints
from ..checks import ask, policy_name, start_state
from ..interface import Policy, PolicyError, View
from .stepping import generation_of
from .worlds import Distribution, RowPlan, Tokens, World

Drafts = tuple[Tokens, ...]
"""Every row's drafted tokens, ``x[r, 1 ..]``."""

Lengths = tuple[int, ...]
"""Verify lengths by row."""


class LengthMapError(ValueError):
    """A length map is incomplete or asks for drafts that do not exist."""


@dataclass(frozen=True)
class LengthMap:
    """Verify lengths for every value of a batch's drafts.

    Attributes:
        counts: drafts of each row.
        vocabulary: number of tokens; tokens are ``0 .. vocabulary - 1``.
        lengths: verify lengths by row, for every value of the drafts in the order of `all_drafts`.

    Raises:
        LengthMapError: unless there is one entry for every value of the drafts, each within ``0 .. counts``.
    """

    counts: tuple[int, ...]
    vocabulary: int
    lengths: tuple[Lengths, ...]

    def __post_init__(self) -> None:
        # Complete or nothing: "for all drafts" is what makes a check of a map a proof for that map.
        wanted = self.vocabulary ** sum(self.counts)
        if len(self.lengths) != wanted:
            raise LengthMapError(
                f"`lengths` must hold {wanted} entries, one for every value of {self.counts} drafts by row and "
                f"{self.vocabulary} tokens; got {len(self.lengths)}"
            )
        for drafts, lengths in self.items():
            fits = len(lengths) == len(self.counts) and all(
                0 <= n <= most for n, most in zip(lengths, self.counts, strict=True)
            )
            if not fits:
                raise LengthMapError(f"lengths of drafts {drafts} must be within 0..{self.counts}, got {lengths}")

    @classmethod
    def of(cls, function: Callable[[Drafts], Lengths], counts: tuple[int, ...], vocabulary: int) -> LengthMap:
        """Return the map of a function."""
        return cls(counts, vocabulary, tuple(tuple(function(drafts)) for drafts in all_drafts(counts, vocabulary)))

    def __getitem__(self, drafts: Drafts) -> Lengths:
        """Return the lengths for the drafts given."""
        return self._table[drafts]

    def items(self) -> Iterator[tuple[Drafts, Lengths]]:
        """Yield every value of the drafts with its lengths."""
        return zip(all_drafts(self.counts, self.vocabulary), self.lengths, strict=True)

    @cached_property
    def _table(self) -> dict[Drafts, Lengths]:
        return dict(self.items())


@dataclass(frozen=True)
class Pair:
    """Two values of the drafts that a rule says must be treated alike, and are not.

    Attributes:
        drafts, other: the two values.
        lengths, other_lengths: what is verified of each.
        row, position: the admission that changed; rows count from 0, positions from 1.
    """

    drafts: Drafts
    other: Drafts
    lengths: Lengths
    other_lengths: Lengths
    row: int
    position: int


def all_drafts(counts: tuple[int, ...], vocabulary: int) -> Iterator[Drafts]:
    """Yield every value of a batch's drafts: rows in order, each like a number whose first token weighs most."""
    return product(*(product(range(vocabulary), repeat=count) for count in counts))


def all_maps(counts: tuple[int, ...], vocabulary: int) -> Iterator[LengthMap]:
    """Yield every length map; there are ``prod(counts + 1) ** (vocabulary ** sum(counts))``."""
    options = list(product(*(range(count + 1) for count in counts)))
    for lengths in product(options, repeat=vocabulary ** sum(counts)):
        yield LengthMap(counts, vocabulary, lengths)


def row_wise(mapping: LengthMap) -> Pair | None:
    """Return a pair that breaks row-wise non-anticipation, or None if there is none.

    The rule: whether draft ``j`` of row ``r`` is admitted does not change when ``x[r, j], x[r, j + 1], ..`` change. It
    implies that each row's law is the target's.
    """
    for drafts, here in mapping.items():
        for row, count in enumerate(mapping.counts):
            for position in range(1, count + 1):
                # Everything is kept but this row's drafts from `position` on, on which its admission must not depend.
                for other in _agreeing(mapping, drafts, _only(mapping.counts, row, position - 1)):
                    there = mapping[other]
                    if (here[row] >= position) != (there[row] >= position):
                        return Pair(drafts, other, here, there, row, position)
    return None


def stopping_set(mapping: LengthMap) -> Pair | None:
    """Return a pair that breaks the stopping-set rule, or None if there is none.

    The rule: if ``x'`` agrees with ``x`` on every draft admitted under ``x``, both get the same lengths. It implies
    that the joint law is the target's, and row-wise non-anticipation.
    """
    for drafts, here in mapping.items():
        # What x has verified is kept, nothing else: these are the x' that must get the same lengths.
        for other in _agreeing(mapping, drafts, here):
            there = mapping[other]
            if here != there:
                row = next(row for row, length in enumerate(here) if length != there[row])
                return Pair(drafts, other, here, there, row, min(here[row], there[row]) + 1)
    return None


def _only(counts: tuple[int, ...], row: int, kept: int) -> Lengths:
    """Return ``counts`` with ``kept`` in place of one row's."""
    return (*counts[:row], kept, *counts[row + 1 :])


def _agreeing(mapping: LengthMap, drafts: Drafts, kept: Lengths) -> Iterator[Drafts]:
    """Yield every value of the drafts that agrees with ``drafts`` on the first ``kept[r]`` of each row."""
    free = [
        [(*row[:keep], *rest) for rest in product(range(mapping.vocabulary), repeat=len(row) - keep)]
        for row, keep in zip(drafts, kept, strict=True)
    ]
    return product(*free)


def length_map(policy: Policy, world: World, coin: float | None = None) -> LengthMap:
    """Return what a policy does in the first step of a world, for every value of the drafts of the rows that run.

    Drafts of probability 0 are asked about too, so a rule may be broken where the law is not.

    Args:
        policy: any policy that does not know outcomes.
        world: its confidences, laws and cost; rows that join later take no part.
        coin: value of ``view.coin``; may be left out where the world has one.

    Raises:
        PolicyError: if the policy needs outcomes (its lengths are then no function of the drafts), fails, or returns
            lengths that a step cannot execute.
        LengthMapError: if the coin is left out and the world has several.
    """
    if policy.needs_outcomes:
        raise PolicyError(f"policy `{policy_name(policy)}` reads outcomes: its lengths are no function of the drafts")
    if coin is None and len(world.coins) > 1:
        raise LengthMapError(f"`coin` must be one of the world's {world.coins}; every value makes a map of its own")
    running = tuple(row for row, plan in enumerate(world.rows) if plan.admitted == 0)
    counts = tuple(world.available(row, 0) if policy.drafts else 0 for row in running)
    # One step from the start is enough: given the past, the rules are about single steps.
    state, toss = start_state(policy), world.coins[0] if coin is None else coin

    def decide(drafts: Drafts) -> Lengths:
        return tuple(ask(policy, _first_view(policy, world, running, drafts, toss), state)[0].tolist())

    return LengthMap.of(decide, counts, world.vocabulary)


def _first_view(policy: Policy, world: World, running: tuple[int, ...], drafts: Drafts, coin: float) -> View:
    gamma = world.gamma if policy.drafts else 0
    seen = [
        world.confidences(row, world.rows[row].anchor, block) or None
        for row, block in zip(running, drafts, strict=True)
    ]
    return View(
        step=0,
        requests=np.array(running, np.int64),
        available=np.array([len(block) for block in drafts], np.int64),
        drafted=sum(len(block) for block in drafts),
        cost=world.cost,
        lagged_drafts=generation_of([None] * len(running), gamma) if policy.lag else None,
        contexts=lambda: np.ones(len(running), np.int64),
        coins=lambda _: coin,
        generation=generation_of(list(seen), gamma),
    )


@dataclass(frozen=True)
class MapPolicy(Policy):
    """A length map as a policy of worlds whose confidences show the drafts; see `revealing_world`.

    The map decides the first step. Later steps verify nothing, so that what follows is the target's doing and the
    world's law is that of one step.
    """

    mapping: LengthMap

    def plan(self, view: View, state: Any) -> tuple[Ints, Any]:
        """Return the map's lengths of the drafts that the confidences show."""
        if view.step:
            return np.zeros(view.rows, np.int64), state
        counts = tuple(view.available.tolist())
        if counts != self.mapping.counts:
            raise PolicyError(f"the map is for {self.mapping.counts} drafts by row, the step has {counts}")
        # Compared as floats, which is safe: the world's confidences come from the same expression.
        tokens = {shown(token, self.mapping.vocabulary): token for token in range(self.mapping.vocabulary)}
        rows = zip(view.confidence.tolist(), counts, strict=True)
        try:
            drafts = tuple(tuple(tokens[value] for value in values[:count]) for values, count in rows)
        except KeyError as error:
            raise PolicyError(f"confidence {error} shows no token; take a `revealing_world` of the map") from None
        return np.array(self.mapping[drafts], np.int64), state


def shown(token: int, vocabulary: int) -> float:
    """Return the confidence by which a revealing world shows a token: 1 for token 0, falling to 0 for the last."""
    return 1.0 - token / (vocabulary - 1)


def revealing_world(
    mapping: LengthMap, target: tuple[tuple[Distribution, ...], ...], draft: tuple[tuple[Distribution, ...], ...]
) -> World:
    """Return the one-step world of a map, in which each draft's confidence shows the draft itself.

    The law compared is that of each row's first ``max(counts)`` tokens: later ones come from the target whatever the
    map does.

    Args:
        mapping: the map.
        target: ``p_t`` by row and preceding token, as in `World`.
        draft: ``p_d`` likewise.
    """
    gamma = max(mapping.counts)
    by_node = tuple(
        shown(prefix[-1], mapping.vocabulary)
        for depth in range(1, gamma + 1)
        for prefix in product(range(mapping.vocabulary), repeat=depth)
    )
    return World(
        vocabulary=mapping.vocabulary,
        gamma=gamma,
        tokens=gamma,
        rows=tuple(RowPlan(available=(count,)) for count in mapping.counts),
        target=target,
        draft=draft,
        confidence=((by_node,),),
        seconds=(1.0,) * (len(mapping.counts) * (1 + gamma)),
        # Each confidence shows its own draft, so that a map may look at all of them, the last included.
        own_token=True,
    )
