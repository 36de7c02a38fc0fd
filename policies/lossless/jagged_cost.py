"""A step cost made rugged, so that a few rows meet the cliffs that a real curve holds for large batches only."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arrays import Floats
from .scripts import ScriptCost, random_seconds


class JaggedCost:
    """Another cost times a random factor by batch tokens; everything else is the other cost's.

    Args:
        cost: the cost.
        most: tokens up to which the factor varies.
        rng: draws it: flat, sloped, with cliffs, or falling in places.
    """

    def __init__(self, cost: ScriptCost, most: int, rng: np.random.Generator) -> None:
        self._cost = cost
        factors = np.array(random_seconds(rng, most))
        # Entry 0 repeats entry 1, as in every cost table.
        self._factors: Floats = np.concatenate((factors[:1], factors))
        self._tables: dict[int, Floats] = {}

    def __getattr__(self, name: str) -> Any:
        # Whatever else a policy asks of a cost is the other's to answer.
        return getattr(self._cost, name)

    def table(self, rows: int) -> Floats:
        """Return seconds by batch tokens, read-only."""
        if rows not in self._tables:
            table = self._cost.table(rows)
            last = len(table) - len(self._factors)
            # Past `most` the last factor goes on: batches that large are not tried.
            table = table * np.pad(self._factors, (0, max(last, 0)), mode="edge")[: len(table)]
            table.flags.writeable = False
            self._tables[rows] = table
        return self._tables[rows]

    def listed(self, rows: int, first: int, most: int) -> tuple[float, ...]:
        """Return ``table(rows)[first : first + most + 1]``."""
        return tuple(self.table(rows)[first : first + most + 1].tolist())

    def padded(self, tokens: int) -> int:
        """Return the other cost's padded size."""
        return self._cost.padded(tokens)

    def context_seconds(self, rows: int, context_tokens: int) -> float:
        """Return the other cost's context seconds."""
        return self._cost.context_seconds(rows, context_tokens)
