"""Many rows: columns of NumPy arrays, so that the number of calls a step does not depend on the batch."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import numpy.typing as npt

from ..policies import Generation, Ints
from .drafts import DraftModel
from .requests import Requests
from .rows import WINDOW, Committed, Drafted, Left, load_blocks


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


class ArrayRows:
    """See `Rows`."""

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
        self._known = self._drafting > 0
        self._known.flags.writeable = False
        self.drafting_rows = int(self._drafting.sum())
        self.drafted = self.drafting_rows * self.gamma
        self._all_draft = self._fresh == 0

    def context(self) -> Ints:
        """See `Rows.context`."""
        context: Ints = self._at + self._shift
        return context

    def join(self, order: int, request: int, entry: int, step: int) -> None:
        """See `Rows.join`."""
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
        """See `Rows.joined`."""
        self._slice()

    def _load(self, row: int, start: int, remaining: int) -> None:
        """Fill the row's window with the blocks that start at ``start``, ``start + 1``, .."""
        column = self._columns[:, row]
        entry = int(column[_Field.ENTRY])
        count = min(WINDOW, remaining)
        first = 1 + int(column[_Field.SLOT]) * WINDOW
        blocks = load_blocks(self._drafts, self._requests, int(column[_Field.REQUEST]), entry, start, count)
        self._confidence[first : first + count] = blocks.confidence
        self._survival[first : first + count] = blocks.survival
        self._outcomes[first : first + count] = blocks.outcomes
        column[_Field.AT] = first
        column[_Field.LIMIT] = first + count
        column[_Field.END] = first + remaining
        column[_Field.BASE] = first - start
        column[_Field.SHIFT] = int(self._requests.prompt_tokens[entry]) - (first - start)

    def draft(self) -> Drafted:
        """See `Rows.draft`."""
        at = self._at if self._all_draft else self._at * self._drafting
        confidence, survival = self._confidence.take(at, axis=0), self._survival.take(at, axis=0)
        return Generation(confidence, survival, self._known, self._all_draft), self._outcomes.take(at)

    def commit(self, lengths: Ints, outcomes: list[int] | Ints) -> Committed:
        """See `Rows.commit`."""
        self._verified[:] = lengths
        self._acceptable[:] = outcomes
        np.minimum(lengths, outcomes, out=self._accepted)
        np.add(self._accepted, 1, out=self._emitted)
        if not self._safe_steps:
            np.minimum(self._emitted, self._end - self._at, out=self._emitted)
        self._growing += self._growth
        _, accepted, emitted, acceptable = self._scratch.sum(axis=1).tolist()
        return accepted, emitted, acceptable

    def row_commits(self) -> tuple[Ints, Ints]:
        """See `Rows.row_commits`."""
        return self._accepted.copy(), self._emitted.copy()

    def advance(self) -> list[Left]:
        """See `Rows.advance`."""
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
