"""Few rows: plain lists, since on a handful of rows NumPy's call overhead outweighs its arithmetic many times."""

from __future__ import annotations

import numpy as np

from ..policies import Bools, Floats, Generation, Ints
from .drafts import DraftModel
from .requests import Requests
from .rows import WINDOW, Committed, Drafted, Left, load_blocks


class _Row:
    """A running request and the window of blocks it is walking through."""

    __slots__ = (
        "accepted",
        "at",
        "confidence",
        "emitted",
        "entry",
        "joined",
        "order",
        "outcomes",
        "remaining",
        "request",
        "size",
        "start",
        "survival",
        "taken",
        "verified",
    )

    def __init__(self, order: int, request: int, entry: int, step: int) -> None:
        self.order, self.request, self.entry, self.joined = order, request, entry, step
        self.verified = self.accepted = 0
        self.taken = self.emitted = 0  # accepted and emitted tokens of the last step

    def load(self, drafts: DraftModel, requests: Requests, start: int, remaining: int) -> None:
        """Fill the window with the blocks that start at ``start``, ``start + 1``, .."""
        self.at = 0
        self.start, self.remaining, self.size = start, remaining, min(WINDOW, remaining)
        blocks = load_blocks(drafts, requests, self.request, self.entry, start, self.size)
        self.confidence, self.survival = blocks.confidence, blocks.survival
        self.outcomes: list[int] = blocks.outcomes.tolist()


class ListRows:
    """See `Rows`."""

    def __init__(self, drafts: DraftModel, requests: Requests, capacity: int) -> None:
        self._drafts = drafts
        self._requests = requests
        self.gamma = drafts.gamma
        self._zeros = np.zeros((1, self.gamma))
        self._rows: list[_Row] = []
        self._fresh = 0  # rows at the end of the list that have no drafts yet
        self._safe_steps = 0
        # By (rows, rows that draft): views share these arrays, and a light load comes back to the same few.
        self._shapes: dict[tuple[int, int], tuple[Bools, Ints]] = {}
        self.rows = 0
        self.joined()

    def join(self, order: int, request: int, entry: int, step: int) -> None:
        """See `Rows.join`."""
        row = _Row(order, request, entry, step)
        row.load(self._drafts, self._requests, 1, int(self._requests.output_tokens[entry]) - 1)
        self._rows.append(row)
        self.rows = len(self._rows)
        self._fresh += 1

    def joined(self) -> None:
        """See `Rows.joined`."""
        self.rows = len(self._rows)
        self.order = np.array([row.order for row in self._rows], np.int64)
        self.requests = np.array([row.request for row in self._rows], np.int64)
        self.requests.flags.writeable = False
        self._safe_steps = 0
        self._settle()

    def _settle(self) -> None:
        """Renew what depends on which rows draft."""
        self.drafting_rows = self.rows - self._fresh
        self.drafted = self.drafting_rows * self.gamma
        # Rows that joined last stand last, so the number of them says which they are.
        key = self.rows, self.drafting_rows
        if key not in self._shapes:
            known = np.arange(self.rows) < self.drafting_rows
            available = known * self.gamma
            known.flags.writeable = available.flags.writeable = False
            self._shapes[key] = known, available
        self._known, self.available = self._shapes[key]

    def context(self) -> Ints:
        """See `Rows.context`."""
        prompts = self._requests.prompt_tokens
        return np.array([int(prompts[row.entry]) + row.start + row.at for row in self._rows], np.int64)

    def draft(self) -> Drafted:
        """See `Rows.draft`."""
        survival: list[list[float]] = []
        blocks: list[tuple[Floats, int]] = []
        outcomes: list[int] = []
        for row in self._rows:
            at = row.at
            survival.append(row.survival[at].tolist())
            blocks.append((row.confidence, at))
            outcomes.append(row.outcomes[at])
        # Their window is loaded, but in the step of admission there are no drafts yet.
        for fresh in range(self.drafting_rows, self.rows):
            survival[fresh] = [0.0] * self.gamma
            blocks[fresh] = (self._zeros, 0)
            outcomes[fresh] = 0
        return Generation.of_rows(blocks, survival, self.gamma, self._known, not self._fresh), outcomes

    def commit(self, lengths: Ints, outcomes: list[int] | Ints) -> Committed:
        """See `Rows.commit`."""
        accepted = emitted = acceptable = 0
        # As long as no window can run out, no output can end: the cut is not even looked at.
        may_end = not self._safe_steps
        for row, length, most in zip(self._rows, lengths.tolist(), outcomes, strict=True):
            taken = min(most, length)
            out = taken + 1
            if may_end and out > row.remaining - row.at:
                out = row.remaining - row.at
            row.at += out
            row.taken, row.emitted = taken, out
            row.verified += length
            row.accepted += taken
            accepted += taken
            emitted += out
            acceptable += most
        return accepted, emitted, acceptable

    def row_commits(self) -> tuple[Ints, Ints]:
        """See `Rows.row_commits`."""
        rows = self._rows
        return np.array([row.taken for row in rows], np.int64), np.array([row.emitted for row in rows], np.int64)

    def advance(self) -> list[Left]:
        """See `Rows.advance`."""
        if self._fresh:
            self._fresh = 0
            self._settle()
        if self._safe_steps:
            self._safe_steps -= 1
            return []
        left = self._reload_or_remove()
        if self._rows:
            # No row can run out of its window sooner than this, whatever is accepted.
            nearest = min([row.size - row.at for row in self._rows])
            self._safe_steps = (nearest - 1) // (self.gamma + 1)
        return left

    def _reload_or_remove(self) -> list[Left]:
        """Handle rows that reached the end of their window."""
        left: list[Left] = []
        for row in self._rows:
            if row.at >= row.remaining:
                left.append(Left(row.order, row.request, row.entry, row.joined, row.verified, row.accepted))
            # The output goes on beyond the window.
            elif row.at >= row.size:
                row.load(self._drafts, self._requests, row.start + row.at, row.remaining - row.at)
        if left:
            self._rows = [row for row in self._rows if row.at < row.remaining]
            self.joined()
        return left
