"""What a run leaves behind: one row per step, one per finished request, and one per row of a step if asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from ..policies import Floats, Ints

STEP_COLUMNS = (
    "step",
    "start_s",
    "step_seconds",
    "rows",
    "drafting_rows",
    "drafted",
    "verified",
    "accepted",
    "emitted",
    "acceptable",
    "batch_tokens",
    "executed_tokens",
    "context_seconds",
    "stall_seconds",
)
"""Columns of the step table."""

_LOGGED = (
    "start_s",
    "step_seconds",
    "rows",
    "drafting_rows",
    "verified",
    "accepted",
    "emitted",
    "acceptable",
    "context_seconds",
)
_BLOCK = 1 << 16


class StepLog:
    """Steps as float64 blocks; every count is far under 2**53 and so exact."""

    def __init__(self) -> None:
        self._open: list[float] = []
        self._blocks: list[Floats] = []

    def add(self, values: tuple[float, ...]) -> None:
        """Append a step: start, seconds, rows, rows with drafts, verified, accepted, emitted, acceptable, context."""
        self._open.extend(values)
        if len(self._open) >= _BLOCK:
            self._close()

    def _close(self) -> None:
        self._blocks.append(np.array(self._open).reshape(-1, len(_LOGGED)))
        self._open.clear()

    def table(self, gamma: int, padded: Callable[[int], int], stall_seconds: float) -> pl.DataFrame:
        """Return the steps as a table of `STEP_COLUMNS`, with what follows from what was logged."""
        self._close()
        data = np.concatenate(self._blocks)
        columns: dict[str, Floats | Ints] = {"step": np.arange(len(data))}
        for index, name in enumerate(_LOGGED):
            values = data[:, index].copy()
            columns[name] = values if name.endswith(("_s", "_seconds")) else values.astype(np.int64)
        tokens = columns["rows"] + columns["verified"]
        columns["drafted"] = columns["drafting_rows"] * gamma
        columns["batch_tokens"] = tokens
        columns["executed_tokens"] = np.array([padded(size) for size in tokens.tolist()], np.int64)
        columns["stall_seconds"] = np.full(len(data), stall_seconds)
        return pl.DataFrame({name: columns[name] for name in STEP_COLUMNS})


@dataclass
class RequestLog:
    """Finished requests, one tuple each."""

    entries: list[tuple[object, ...]] = field(default_factory=list)

    SCHEMA = {  # noqa: RUF012 - a dataclass would take an annotated one for a field
        "order": pl.Int64,
        "request": pl.Int64,
        "name": pl.Int64,
        "domain": pl.String,
        "cohort": pl.Boolean,
        "prompt_tokens": pl.Int64,
        "output_tokens": pl.Int64,
        "arrival_s": pl.Float64,
        "ready_s": pl.Float64,
        "admitted_s": pl.Float64,
        "first_token_s": pl.Float64,
        "last_token_s": pl.Float64,
        "steps": pl.Int64,
        "drafted": pl.Int64,
        "verified": pl.Int64,
        "accepted": pl.Int64,
    }

    def table(self) -> pl.DataFrame:
        """Return the requests in order of admission."""
        return pl.DataFrame(self.entries, schema=self.SCHEMA, orient="row").sort("order")


@dataclass
class RowLog:
    """Every row of every step, kept only on request: 48 bytes a row."""

    parts: list[dict[str, Ints]] = field(default_factory=list)

    COLUMNS = ("step", "request", "available", "verified", "accepted", "emitted", "acceptable")

    def add(self, **columns: Ints) -> None:
        """Append the rows of a step."""
        self.parts.append(columns)

    def table(self) -> pl.DataFrame:
        """Return all rows, by step and then admission."""
        if not self.parts:
            return pl.DataFrame(schema=dict.fromkeys(self.COLUMNS, pl.Int64))
        return pl.DataFrame({name: np.concatenate([part[name] for part in self.parts]) for name in self.COLUMNS})
