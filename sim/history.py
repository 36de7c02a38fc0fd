"""Past draft generations, so that a budget can read one of them."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..policies import Floats, Ints, Lagged


class _Generation(NamedTuple):
    order: Ints
    confidence: Floats
    survival: Floats
    known: npt.NDArray[np.bool_]
    complete: bool


class History:
    """The last ``lag`` generations; rows are matched by admission number, which no two requests share."""

    def __init__(self, lag: int) -> None:
        self._past: deque[_Generation] = deque(maxlen=lag)
        self._lag = lag

    def add(self, order: Ints, confidence: Floats, survival: Floats, known: npt.NDArray[np.bool_], complete: bool) -> None:
        """Append this step's generation: ascending ``order`` ``[R]``, drafts ``[R, gamma]``, which rows have drafts."""
        if self._lag:
            self._past.append(_Generation(order, confidence, survival, known, complete))

    def lagged(self, order: Ints, gamma: int) -> Lagged | None:
        """Return generation ``n - lag`` aligned with the rows of step ``n``; None where no lag is kept."""
        if not self._lag:
            return None
        if len(self._past) < self._lag:
            zeros = np.zeros((len(order), gamma))
            return Lagged(zeros, zeros, np.zeros(len(order), np.bool_), False)
        past = self._past[0]
        if past.order is order:
            return Lagged(past.survival, past.confidence, past.known, past.complete)
        return _align(past, order)


def _align(past: _Generation, order: Ints) -> Lagged:
    """Pick the rows of a generation that still run; both orders ascend."""
    at = np.minimum(np.searchsorted(past.order, order), len(past.order) - 1)
    known = (past.order[at] == order) & past.known[at]
    keep = known[:, None]
    survival = np.where(keep, past.survival[at], 0.0)
    confidence = np.where(keep, past.confidence[at], 0.0)
    return Lagged(survival, confidence, known, bool(known.all()))
