"""Past draft generations, so that a budget can read one of them."""

from __future__ import annotations

from collections import deque

import numpy as np

from ..policies import Generation, Ints


class History:
    """The last ``lag`` generations; rows are matched by admission number, which no two requests share."""

    def __init__(self, lag: int) -> None:
        self._past: deque[tuple[Ints, Generation]] = deque(maxlen=lag)
        self._lag = lag

    def add(self, order: Ints, generation: Generation) -> None:
        """Append this step's generation, its rows' admission numbers ascending in ``order`` ``[R]``."""
        if self._lag:
            self._past.append((order, generation))

    def lagged(self, order: Ints, gamma: int) -> Generation | None:
        """Return generation ``n - lag`` aligned with the rows of step ``n``; None where no lag is kept."""
        if not self._lag:
            return None
        if len(self._past) < self._lag:
            # The first steps of a run: all rows are joins to a budget of this lag.
            zeros = np.zeros((len(order), gamma))
            return Generation(zeros, zeros, np.zeros(len(order), np.bool_), False)
        past_order, past = self._past[0]
        # The same object, so nobody joined or left since (`Rows.order`), and there is nothing to match.
        if past_order is order:
            return past
        places = {number: place for place, number in enumerate(past_order.tolist())}
        return past.take([places.get(number) for number in order.tolist()])
