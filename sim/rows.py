"""What the step loop asks of the running rows; `ListRows` and `ArrayRows` answer it alike.

This is the seam of the step loop: everything that touches a row is behind it. A compiled loop would be a third
implementation and change nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

import numpy as np

from ..policies import Floats, Generation, Ints
from .drafts import DraftModel
from .requests import Requests

WINDOW = 512
"""Block starts of a row whose drafts are held at once."""


Drafted = tuple[Generation, list[int] | Ints]
"""This step's drafts: the generation, and how many of each row's drafts the target would accept."""

Committed = tuple[int, int, int]
"""Totals of a step: drafts accepted, tokens emitted, drafts that verifying everything would have accepted."""


class Left(NamedTuple):
    """A row that finished."""

    order: int
    request: int
    entry: int
    joined: int
    verified: int
    accepted: int


class NoDrafts:
    """The draft model of a policy that does not draft: blocks of no tokens."""

    gamma = 0
    replays = False

    def check(self, domains: Iterable[str]) -> None:
        """Accept every domain."""

    def blocks(self, request: int, domain: str, start: int, count: int) -> tuple[Floats, Ints]:
        """Return empty blocks."""
        return np.zeros((count, 0)), np.zeros(count, np.int64)


class Rows(Protocol):
    """Rows that decode together, in order of admission.

    Attributes:
        rows: how many.
        order: int64 ``[R]``, admission numbers; the same object as long as no row joins or leaves.
        requests: int64 ``[R]``, request ids.
        available: int64 ``[R]``, drafts of each row in this step.
        drafting_rows: rows that have drafts in this step.
        drafted: sum of ``available``.
    """

    gamma: int
    rows: int
    order: Ints
    requests: Ints
    available: Ints
    drafting_rows: int
    drafted: int

    def join(self, order: int, request: int, entry: int, step: int) -> None:
        """Admit a request behind the running rows; it has no drafts in its first step."""
        ...

    def joined(self) -> None:
        """Make the rows admitted since the last step part of the batch."""
        ...

    def context(self) -> Ints:
        """Return prompt plus emitted tokens of each row, int64 ``[R]``."""
        ...

    def draft(self) -> Drafted:
        """Return this step's drafts."""
        ...

    def commit(self, lengths: Ints, outcomes: list[int] | Ints) -> Committed:
        """Verify ``lengths`` drafts of each row and emit what is accepted, cut at the end of the output."""
        ...

    def row_commits(self) -> tuple[Ints, Ints]:
        """Return the last step's accepted and emitted tokens by row."""
        ...

    def advance(self) -> list[Left]:
        """Let new rows start to draft, load windows that ran out, and remove rows whose output is complete."""
        ...


def load_blocks(drafts: DraftModel, requests: Requests, request: int, entry: int, start: int, count: int) -> Blocks:
    """Return the drafts of the ``count`` blocks that start at ``start``, ``start + 1``, .."""
    domain = requests.domains[int(requests.domain[entry])]
    # A recording knows requests by their trace ids; a generated text is new each time a request is asked for again.
    text = int(requests.name[entry]) if drafts.replays else request
    confidence, outcomes = drafts.blocks(text, domain, start, count)
    # Sequential products (section 3): the same bits whoever makes them, which a tree of products would not give.
    return Blocks(confidence, np.multiply.accumulate(confidence, axis=1), outcomes)


class Blocks(NamedTuple):
    """Consecutive blocks of a row: ``[count, gamma]`` confidences and survivals, ``[count]`` outcomes."""

    confidence: Floats
    survival: Floats
    outcomes: Ints
