"""Who may join the running rows: the one place that says no to a request that waits.

The step loop asks before every join and tells of every join and leave, with the request's place in the request table,
where its prompt and output lengths are. A limit on KV space or on tokens in flight books there what a row takes; the
loop stays as it is.
"""

from __future__ import annotations

from .scenario import Scenario


class Admission:
    """Lets a request join while fewer rows run than the scenario allows (`max_num_seqs`)."""

    def __init__(self, scenario: Scenario) -> None:
        self._most_rows = scenario.concurrency
        self._rows = 0

    def may_join(self, entry: int) -> bool:
        """Return whether the request that waits longest may join now.

        Requests join in the order in which they became ready, as in vLLM: if the first has to wait, all do, or a long
        prompt could be overtaken for ever.

        Args:
            entry: its row in the request table.
        """
        return self._rows < self._most_rows

    def join(self, entry: int) -> None:
        """Note that a request joined. One that has nothing to decode takes no row and is not told of."""
        self._rows += 1

    def leave(self, entry: int) -> None:
        """Note that a row left."""
        self._rows -= 1
