"""One draft generation: what the drafter produced for every row of a batch."""

from __future__ import annotations

from itertools import chain

import numpy as np

from .arrays import Bools, Floats


class Generation:
    """Drafts of ``R`` rows, ``gamma`` each; rows without drafts hold zeros.

    A generation comes as arrays, or as lists of rows where the batch is small and NumPy's call overhead would
    outweigh the arithmetic; either form gives the same numbers. Arrays are made when first asked for and are
    read-only.

    Attributes:
        known: bool ``[R]``; False for a row without drafts in this generation (in a lagged one: a "join").
        complete: whether every row is known.
        gamma: drafts of a row.
        size: ``R * gamma``.
        rows: survivals as lists by row, not to be changed, or None if the generation came as arrays.
    """

    __slots__ = ("_blocks", "_confidence", "_ranked", "_survival", "complete", "gamma", "known", "rows", "size")

    known: Bools
    complete: bool
    gamma: int
    size: int
    rows: list[list[float]] | None

    def __init__(self, confidence: Floats, survival: Floats, known: Bools, complete: bool) -> None:
        self._confidence: Floats | None = _frozen(confidence)
        self._survival: Floats | None = _frozen(survival)
        self._blocks: list[tuple[Floats, int]] = []
        self._ranked: list[float] | Floats | None = None
        self.rows = None
        self.known = known
        self.complete = complete
        self.gamma = survival.shape[1]
        self.size = survival.size

    @classmethod
    def of_rows(
        cls, blocks: list[tuple[Floats, int]], survival: list[list[float]], gamma: int, known: Bools, complete: bool
    ) -> Generation:
        """Return a generation given row by row; what is passed must not change afterwards.

        Args:
            blocks: where each row's confidences are: an array of blocks ``[n, gamma]`` and the block's place in it.
            survival: each row's ``gamma`` survivals.
            gamma: drafts of a row.
            known: bool ``[R]``.
            complete: whether every row is known.
        """
        made = cls.__new__(cls)
        made._confidence = None
        made._survival = None
        made._blocks = blocks
        made._ranked = None
        made.rows = survival
        made.known = known
        made.complete = complete
        made.gamma = gamma
        made.size = len(survival) * gamma
        return made

    def take(self, places: list[int | None]) -> Generation:
        """Return the rows at ``places``; None stands for a row without drafts."""
        known = [place is not None and bool(self.known[place]) for place in places]
        flags = np.array(known, np.bool_)
        flags.flags.writeable = False
        if self.rows is None:
            at = np.array([place or 0 for place in places], np.intp)
            keep = flags[:, None]
            confidence = np.where(keep, self.confidence[at], 0.0)
            return Generation(confidence, np.where(keep, self.survival[at], 0.0), flags, all(known))
        nothing: tuple[list[float], tuple[Floats, int]] = ([0.0] * self.gamma, (np.zeros((1, self.gamma)), 0))
        pairs = [
            (self.rows[place], self._blocks[place]) if place is not None and has else nothing
            for place, has in zip(places, known, strict=True)
        ]
        return Generation.of_rows(
            [block for _, block in pairs], [row for row, _ in pairs], self.gamma, flags, all(known)
        )

    @property
    def confidence(self) -> Floats:
        """Conditional confidences ``c``, float64 ``[R, gamma]``."""
        if self._confidence is None:
            self._confidence = _frozen(np.array([block[at] for block, at in self._blocks]))
        return self._confidence

    @property
    def survival(self) -> Floats:
        """Survivals ``a``, the sequential prefix products of ``c``, float64 ``[R, gamma]``."""
        if self._survival is None:
            self._survival = _frozen(np.array(self.rows))
        return self._survival

    @property
    def ranked(self) -> list[float] | Floats:
        """All survivals, descending; a list if the generation came as lists."""
        if self._ranked is None:
            if self.rows is None:
                self._ranked = np.sort(self.survival, axis=None)[::-1]
            else:
                self._ranked = sorted(chain.from_iterable(self.rows), reverse=True)
        return self._ranked


def _frozen(values: Floats) -> Floats:
    values.flags.writeable = False
    return values
