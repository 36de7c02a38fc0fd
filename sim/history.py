"""Past draft generations, so that a budget can read one of them."""

from __future__ import annotations

from collections import deque

import numpy as np

from ..policies import Ints, Lagged


class History:
    """The last ``lag`` generations; rows are matched by admission number, which no two requests share."""

    def __init__(self, lag: int) -> None:
        self._past: deque[tuple[Ints, Lagged]] = deque(maxlen=lag)
        self._lag = lag

    def add(self, order: Ints, generation: Lagged) -> None:
        """Append this step's generation, its rows' admission numbers ascending in ``order`` ``[R]``."""
        if self._lag:
            self._past.append((order, generation))

    def lagged(self, order: Ints, gamma: int) -> Lagged | None:
        """Return generation ``n - lag`` aligned with the rows of step ``n``; None where no lag is kept."""
        if not self._lag:
            return None
        if len(self._past) < self._lag:
            zeros = np.zeros((len(order), gamma))
            return Lagged(zeros, zeros, np.zeros(len(order), np.bool_), False)
        past_order, past = self._past[0]
        return past if past_order is order else _align(past_order, past, order)


def _align(past_order: Ints, past: Lagged, order: Ints) -> Lagged:
    """Pick the rows of a generation that still run; both orders ascend."""
    at = np.minimum(np.searchsorted(past_order, order), len(past_order) - 1)
    known = (past_order[at] == order) & past.known[at]
    keep = known[:, None]
    survival = np.where(keep, past.survival[at], 0.0)
    confidence = np.where(keep, past.confidence[at], 0.0)
    return Lagged(survival, confidence, known, bool(known.all()))
