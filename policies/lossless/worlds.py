"""Worlds small enough to enumerate: a few rows, a tiny vocabulary, a step cost and a confidence function.

A world holds everything that decides, together with a policy and a decoder, the law of the tokens that leave. Tokens
are numbers ``0 .. vocabulary - 1``. Each row starts from an anchor token. Probabilities are fractions, confidences
float64 as policies get them.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np

from ..arrays import Floats

Distribution = tuple[Fraction, ...]
"""Probabilities by token."""

Tokens = tuple[int, ...]

T = TypeVar("T")


class WorldError(ValueError):
    """A world contradicts itself."""


@dataclass(frozen=True)
class RowPlan:
    """One request of a world.

    Attributes:
        first_block: step for which it has its first drafts. It is admitted one step earlier and emits one token
            there; a row whose first block is that of step 0 was admitted before the world begins.
        length: tokens after which it leaves, at least 1; None runs on until the world ends. Policies never see it.
        available: drafts of its first, second, .. block; later blocks hold as many as the last named. Empty is gamma.
        anchor: the token before its first.
    """

    first_block: int = 0
    length: int | None = None
    available: tuple[int, ...] = ()
    anchor: int = 0

    @property
    def admitted(self) -> int:
        """First step of the world it takes part in."""
        # The step before the first block: a row that joins emits one token without drafts.
        return max(self.first_block - 1, 0)


@dataclass(frozen=True)
class World:
    """A closed little world.

    Target and draft are Markov: the next token's law depends on the row and on the token before it (as in the Markov
    head of the DSpark drafter). In ``target``, ``draft`` and ``confidence`` a single entry stands for all rows, and
    within it a single entry for all preceding tokens.

    Attributes:
        vocabulary: number of tokens, at least 2.
        gamma: drafts of a block, at least 1.
        tokens: ``L``; the law compared is that of each row's first ``L`` tokens (fewer if it ends earlier).
        rows: the requests.
        target: ``p_t`` by row and preceding token.
        draft: ``p_d`` likewise.
        confidence: by row and anchor the values of ``c`` over the tree of drafted prefixes, breadth first: the empty
            prefix (that is ``c`` of draft 1), then the prefixes of one token, and so on; see `node`.
        seconds: step time of batches of 1, 2, .. tokens; at least ``rows * (1 + gamma)`` entries.
        sizes: captured batch sizes, ascending; none means that nothing is padded.
        coins: equally likely values of ``view.coin``, drawn anew in every step.
        own_token: ``c`` of draft ``j`` also reads draft ``j`` itself. Such a world breaks the rule every policy
            relies on; it exists to show what happens then.
        end: a token that ends its row; None if no token does.
    """

    vocabulary: int
    gamma: int
    tokens: int
    rows: tuple[RowPlan, ...]
    target: tuple[tuple[Distribution, ...], ...]
    draft: tuple[tuple[Distribution, ...], ...]
    confidence: tuple[tuple[tuple[float, ...], ...], ...]
    seconds: tuple[float, ...]
    sizes: tuple[int, ...] = ()
    coins: tuple[float, ...] = (0.5,)
    own_token: bool = False
    end: int | None = None

    def __post_init__(self) -> None:
        _check(self)

    def target_at(self, row: int, last: int) -> Distribution:
        """Return ``p_t`` of the token that follows ``last`` in a row."""
        return _pick(self.target, row, last)

    def draft_at(self, row: int, last: int) -> Distribution:
        """Return ``p_d`` of the token drafted after ``last`` in a row."""
        return _pick(self.draft, row, last)

    def confidences(self, row: int, anchor: int, drafted: Tokens) -> tuple[float, ...]:
        """Return ``c[1 .. len(drafted)]`` of a block."""
        values = _pick(self.confidence, row, anchor)
        # c[j] reads x[<j] alone, on which both rules rest; `own_token` breaks that on purpose.
        seen = 1 if self.own_token else 0
        return tuple(values[self.node(drafted[: j + seen])] for j in range(len(drafted)))

    def node(self, prefix: Tokens) -> int:
        """Return a drafted prefix's place in `confidence`: shorter ones first, then by tokens read as digits."""
        place = 0
        for token in prefix:
            place = place * self.vocabulary + token
        # Confidences that read their own draft have none for the empty prefix, so their table begins one node later.
        first = self.nodes(len(prefix)) - (1 if self.own_token else 0)
        return first + place

    def nodes(self, depth: int) -> int:
        """Return how many prefixes are shorter than ``depth`` tokens."""
        return int((self.vocabulary**depth - 1) // (self.vocabulary - 1))

    @property
    def tree(self) -> int:
        """Entries a confidence table needs."""
        return self.nodes(self.gamma + 1) - 1 if self.own_token else self.nodes(self.gamma)

    def available(self, row: int, step: int) -> int:
        """Return how many drafts a row has in a step it takes part in."""
        plan = self.rows[row]
        block = step - plan.first_block
        # The step of admission: an anchor and no drafts yet.
        if block < 0:
            return 0
        return plan.available[min(block, len(plan.available) - 1)] if plan.available else self.gamma

    @cached_property
    def cost(self) -> WorldCost:
        """The step cost as policies ask for it."""
        return WorldCost(self.seconds, self.sizes)

    def compared(self, row: int) -> int:
        """Return how many tokens of a row are compared, unless an end token comes first."""
        length = self.rows[row].length
        # Policies never see the length. It cuts a row's own text, hence the target's law in the same place.
        return self.tokens if length is None else min(self.tokens, length)


class WorldCost:
    """A step cost given by a list; see `specsched.policies.StepCost`."""

    def __init__(self, seconds: tuple[float, ...], sizes: tuple[int, ...] = ()) -> None:
        self._table = np.array((seconds[0], *seconds), np.float64)
        # One array for all policies asked: one that wrote to it would change the world it is judged in.
        self._table.flags.writeable = False
        self._listed: tuple[float, ...] = tuple(self._table.tolist())
        self._sizes = sizes

    def table(self, rows: int) -> Floats:
        """Return seconds by batch tokens; entry 0 repeats entry 1."""
        return self._table

    def listed(self, rows: int, first: int, most: int) -> tuple[float, ...]:
        """Return ``table(rows)[first : first + most + 1]``."""
        return self._listed[first : first + most + 1]

    def padded(self, tokens: int) -> int:
        """Return the next captured size, or ``tokens`` beyond the last."""
        return next((size for size in self._sizes if size >= tokens), tokens)

    def context_seconds(self, rows: int, context_tokens: int) -> float:
        """Return 0: contexts cost nothing here."""
        return 0.0


def appendix_a(tokens: int = 1) -> World:
    """Return the world of the DSpark paper's Appendix A: one row, two drafts, vocabulary {A, B}.

    ``a_1 = 0.8``; ``c_2`` is 0.9 after A and 0 after B; SPS(1), SPS(2), SPS(3) = 1, 0.5, 0.45.
    """
    half = Fraction(1, 2)
    return World(
        vocabulary=2,
        gamma=2,
        tokens=tokens,
        rows=(RowPlan(),),
        target=(((Fraction(7, 10), Fraction(3, 10)),),),
        draft=(((half, half),),),
        confidence=(((0.8, 0.9, 0.0),),),
        seconds=(1.0, 1.0 / 0.5, 1.0 / 0.45),
    )


def _pick(table: tuple[tuple[T, ...], ...], row: int, token: int) -> T:
    by_token = table[row if len(table) > 1 else 0]
    return by_token[token if len(by_token) > 1 else 0]


def _check(world: World) -> None:
    """Raise WorldError naming the field, the rule and the value."""
    for name, low in (("vocabulary", 2), ("gamma", 1), ("tokens", 1)):
        if getattr(world, name) < low:
            raise WorldError(f"`{name}` of a world must be at least {low}, got {getattr(world, name)}")
    if not world.rows:
        raise WorldError("a world needs at least one row")
    for row, plan in enumerate(world.rows):
        _check_plan(world, row, plan)
    for name in ("target", "draft", "confidence"):
        _check_table(world, name, getattr(world, name))
    needed = len(world.rows) * (1 + world.gamma)
    if len(world.seconds) < needed or not all(0.0 < each < float("inf") for each in world.seconds):
        raise WorldError(f"`seconds` must hold {needed} finite times above 0 (1 .. {needed} tokens): {world.seconds}")
    # From 0, so that a first size of 0 is refused by the same comparison.
    if any(low >= high for low, high in pairwise((0, *world.sizes))):
        raise WorldError(f"`sizes` must ascend from at least 1, got {world.sizes}")
    if not world.coins or not all(0.0 <= each < 1.0 for each in world.coins):
        raise WorldError(f"`coins` must be values in [0, 1), at least one, got {world.coins}")
    if world.end is not None and not 0 <= world.end < world.vocabulary:
        raise WorldError(f"`end` must be a token below {world.vocabulary} or None, got {world.end}")


def _check_plan(world: World, row: int, plan: RowPlan) -> None:
    if plan.first_block < 0 or not 0 <= plan.anchor < world.vocabulary:
        raise WorldError(f"row {row}: `first_block` must be at least 0 and `anchor` a token, got {plan}")
    if plan.length is not None and plan.length < 1:
        raise WorldError(f"row {row}: `length` must be at least 1 or None, got {plan.length}")
    if not all(0 <= each <= world.gamma for each in plan.available):
        raise WorldError(f"row {row}: `available` must be within 0..{world.gamma}, got {plan.available}")


def _check_table(world: World, name: str, table: tuple[tuple[tuple[Any, ...], ...], ...]) -> None:
    if len(table) not in (1, len(world.rows)):
        raise WorldError(f"`{name}` must hold one entry, or one for each of {len(world.rows)} rows; got {len(table)}")
    # A law has an entry a token, a confidence one a prefix.
    entries = world.tree if name == "confidence" else world.vocabulary
    for by_token in table:
        if len(by_token) not in (1, world.vocabulary):
            raise WorldError(f"`{name}`: one entry, or one for each of {world.vocabulary} tokens; got {len(by_token)}")
        for values in by_token:
            # Fractions sum to 1 or they don't: a law that is nearly one would leave a distance that no policy made.
            bad = len(values) != entries or not all(0 <= each <= 1 for each in values)
            if bad or (name != "confidence" and sum(values) != 1):
                rule = "within [0, 1]" if name == "confidence" else "that sum to 1"
                raise WorldError(f"`{name}` must hold {entries} numbers {rule}, got {values}")
