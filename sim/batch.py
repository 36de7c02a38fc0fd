"""The running rows as columns, and the window of drafts each row is walking through.

This is the seam of the step loop: everything that touches a row is here, as whole-column NumPy operations whose
number does not depend on the batch. A compiled loop would replace this file and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..policies import Floats, Ints, total
from .drafts import DraftModel
from .requests import Requests

WINDOW = 128
"""Block starts of a row whose drafts are held at once."""
_FEW = 32


class _Field(IntEnum):
    """Columns of a row."""

    ORDER = 0  # admission number
    REQUEST = 1
    ENTRY = 2  # row of the request table
    SLOT = 3
    LIMIT = 4  # first arena position that is not loaded
    END = 5  # arena position (perhaps beyond the window) at which the output is complete
    SHIFT = 6  # context tokens = AT + SHIFT
    BASE = 7  # block start = AT - BASE
    DRAFTING = 8  # 0 in the admission step, then 1
    JOINED = 9  # step of admission
    VERIFIED = 10  # these three grow every step, in one addition
    ACCEPTED = 11
    AT = 12  # where in the arena the current block lies


class Drafted(NamedTuple):
    """This generation's drafts of every row."""

    confidence: Floats
    survival: Floats
    outcomes: Ints
    available: Ints


class Committed(NamedTuple):
    """Totals of a step: drafts accepted, tokens emitted, drafts that verifying everything would have accepted."""

    accepted: int
    emitted: int
    acceptable: int


class Left(NamedTuple):
    """A row that finished: its admission number, request, entry, counts and steps."""

    order: int
    request: int
    entry: int
    joined: int
    verified: int
    accepted: int


class NoDrafts:
    """The draft model of a policy that does not draft: blocks of no tokens."""

    gamma = 0

    def check(self, domains: Iterable[str]) -> None:
        """Accept every domain."""

    def blocks(self, request: int, domain: str, start: int, count: int) -> tuple[Floats, Ints]:
        """Return empty blocks."""
        return np.zeros((count, 0)), np.zeros(count, np.int64)


class Batch:
    """Rows that decode together, in order of admission."""

    def __init__(self, drafts: DraftModel, requests: Requests, capacity: int) -> None:
        self._drafts = drafts
        self._requests = requests
        self.gamma = drafts.gamma
        self._columns = np.zeros((len(_Field), capacity), np.int64)
        self._free = list(range(capacity - 1, -1, -1))
        # Arena position 0 stays empty: the "draft" of a row in its admission step.
        self._confidence = np.zeros((1 + capacity * WINDOW, self.gamma))
        self._survival = np.zeros((1 + capacity * WINDOW, self.gamma))
        self._outcomes = np.zeros(1 + capacity * WINDOW, np.int64)
        self._step = np.zeros((4, capacity), np.int64)
        self._safe_steps = 0
        self._fresh = 0
        self.rows = 0
        self._slice()

    def _slice(self) -> None:
        """Renew the views of the occupied part of each column after a row joined or left."""
        rows = self.rows
        used = self._columns[:, :rows]
        self.order = used[_Field.ORDER].copy()
        self.requests = used[_Field.REQUEST].copy()
        self.requests.flags.writeable = False
        self._at = used[_Field.AT]
        self._limit = used[_Field.LIMIT]
        self._end = used[_Field.END]
        self._shift = used[_Field.SHIFT]
        self._drafting = used[_Field.DRAFTING]
        self._growing = used[_Field.VERIFIED :]
        self._scratch = self._step[:, :rows]
        self._growth = self._scratch[:3]
        self._verified, self._accepted, self._emitted, self._acceptable = self._scratch
        self._settle()
        self._safe_steps = 0

    def _settle(self) -> None:
        """Renew what depends on which rows draft."""
        self.available = self._drafting * self.gamma
        self.available.flags.writeable = False
        self.known = self._drafting > 0
        self.drafting_rows = total(self._drafting)
        self.drafted = self.drafting_rows * self.gamma
        self.all_draft = self._fresh == 0

    @property
    def context_tokens(self) -> Ints:
        """Prompt and emitted tokens of each row, int64 ``[R]``."""
        context: Ints = self._at + self._shift
        return context

    def join(self, order: int, request: int, entry: int, step: int) -> None:
        """Admit a request behind the running rows; it has no drafts in its first step."""
        row = self.rows
        self._columns[:, row] = 0
        column = self._columns[:, row]
        column[_Field.ORDER] = order
        column[_Field.REQUEST] = request
        column[_Field.ENTRY] = entry
        column[_Field.SLOT] = self._free.pop()
        column[_Field.JOINED] = step
        self.rows = row + 1
        self._fresh += 1
        self._load(row, 1, int(self._requests.output_tokens[entry]) - 1)

    def joined(self) -> None:
        """Make the rows admitted since the last step part of the batch."""
        self._slice()

    def _load(self, row: int, start: int, remaining: int) -> None:
        """Fill the row's window with the blocks that start at ``start``, ``start + 1``, .."""
        column = self._columns[:, row]
        entry = int(column[_Field.ENTRY])
        count = min(WINDOW, remaining)
        first = 1 + int(column[_Field.SLOT]) * WINDOW
        domain = self._requests.domains[int(self._requests.domain[entry])]
        confidence, outcomes = self._drafts.blocks(int(column[_Field.REQUEST]), domain, start, count)
        self._confidence[first : first + count] = confidence
        np.multiply.accumulate(confidence, axis=1, out=self._survival[first : first + count])
        self._outcomes[first : first + count] = outcomes
        column[_Field.AT] = first
        column[_Field.LIMIT] = first + count
        column[_Field.END] = first + remaining
        column[_Field.BASE] = first - start
        column[_Field.SHIFT] = int(self._requests.prompt_tokens[entry]) - (first - start)

    def draft(self) -> Drafted:
        """Return this generation's drafts."""
        at = self._at if self.all_draft else self._at * self._drafting
        return Drafted(
            self._confidence.take(at, axis=0),
            self._survival.take(at, axis=0),
            self._outcomes.take(at),
            self.available,
        )

    def commit(self, lengths: Ints, outcomes: Ints) -> Committed:
        """Verify ``lengths`` drafts of each row and emit what is accepted, cut at the end of the output."""
        self._verified[:] = lengths
        self._acceptable[:] = outcomes
        np.minimum(lengths, outcomes, out=self._accepted)
        np.add(self._accepted, 1, out=self._emitted)
        if not self._safe_steps:
            np.minimum(self._emitted, self._end - self._at, out=self._emitted)
        self._growing += self._growth
        if self.rows < _FEW:
            _, accepted, emitted, acceptable = map(sum, self._scratch.tolist())
        else:
            _, accepted, emitted, acceptable = self._scratch.sum(axis=1).tolist()
        return Committed(accepted, emitted, acceptable)

    def row_commits(self) -> tuple[Ints, Ints]:
        """Return copies of the last step's accepted and emitted tokens by row."""
        return self._accepted.copy(), self._emitted.copy()

    def advance(self) -> list[Left]:
        """Let new rows start to draft, load windows that ran out, and remove rows whose output is complete."""
        if self._fresh:
            self._drafting[:] = 1
            self._fresh = 0
            self._settle()
        if self._safe_steps:
            self._safe_steps -= 1
            return []
        left: list[Left] = []
        short = np.flatnonzero(self._at >= self._limit)
        if len(short):
            left = self._reload_or_remove(short)
        if self.rows:
            # No row can run out of its window sooner than this, whatever is accepted.
            self._safe_steps = max((int(np.minimum.reduce(self._limit - self._at)) - 1) // (self.gamma + 1), 0)
        return left

    def _reload_or_remove(self, short: npt.NDArray[np.intp]) -> list[Left]:
        """Handle rows that reached the end of their window."""
        left: list[Left] = []
        keep = np.ones(self.rows, np.bool_)
        for row in short.tolist():
            column = self._columns[:, row]
            remaining = int(column[_Field.END] - column[_Field.AT])
            if remaining > 0:
                self._load(row, int(column[_Field.AT] - column[_Field.BASE]), remaining)
                continue
            keep[row] = False
            self._free.append(int(column[_Field.SLOT]))
            values = column.tolist()
            left.append(
                Left(
                    values[_Field.ORDER],
                    values[_Field.REQUEST],
                    values[_Field.ENTRY],
                    values[_Field.JOINED],
                    values[_Field.VERIFIED],
                    values[_Field.ACCEPTED],
                )
            )
        if left:
            kept = self._columns[:, : self.rows][:, keep]
            self.rows = kept.shape[1]
            self._columns[:, : self.rows] = kept
            self._slice()
        return left
