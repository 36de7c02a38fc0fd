"""What a run leaves behind: one record per step, per finished request, and per row of a step if asked.

The fields of a record are the columns of its table, in this order; their types are the columns' types.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import starmap
from struct import Struct
from typing import NamedTuple, get_args, get_type_hints

import numpy as np
import polars as pl

from ..policies import Ints

_COLUMN_TYPES: dict[type, type[pl.DataType]] = {
    int: pl.Int64,
    float: pl.Float64,
    bool: pl.Boolean,
    str: pl.String,
}


class StepRecord(NamedTuple):
    """A step, as begun: `docs/metrics.md` says what each column means."""

    step: int
    start_s: float
    step_seconds: float
    rows: int
    drafting_rows: int
    drafted: int
    verified: int
    accepted: int
    emitted: int
    acceptable: int
    batch_tokens: int
    executed_tokens: int
    context_seconds: float
    stall_seconds: float


class RequestRecord(NamedTuple):
    """A finished request.

    ``ready_s`` is None without prefill. ``cohort`` is known when the run ends: a log takes any value and fills it in.
    """

    order: int
    request: int
    name: int
    domain: str
    cohort: bool
    prompt_tokens: int
    output_tokens: int
    arrival_s: float
    ready_s: float | None
    admitted_s: float
    first_token_s: float
    last_token_s: float
    steps: int
    drafted: int
    verified: int
    accepted: int


class RowRecords(NamedTuple):
    """The rows of a step by column, each int64 ``[R]``."""

    step: Ints
    request: Ints
    available: Ints
    verified: Ints
    accepted: Ints
    emitted: Ints
    acceptable: Ints


def columns(record: type[NamedTuple]) -> dict[str, type[pl.DataType]]:
    """Return the columns of a record's table with their types; a field that may be None may be null."""
    return {name: _COLUMN_TYPES[kind] for name, kind in _fields(record).items()}


def _fields(record: type[NamedTuple]) -> dict[str, type]:
    hints = get_type_hints(record).items()
    return {name: next((each for each in get_args(hint) if each is not type(None)), hint) for name, hint in hints}


_STEP_TYPES = {name: np.dtype({int: np.int64, float: np.float64}[kind]) for name, kind in _fields(StepRecord).items()}
_PACKED_STEP = Struct("".join({int: "q", float: "d"}[kind] for kind in _fields(StepRecord).values()))
_REQUEST_COLUMNS = columns(RequestRecord)
_BLOCK = 4096


class StepLog:
    """Steps, packed to 8 bytes a column: a long run has a million of them, and a tuple takes three times as much."""

    def __init__(self) -> None:
        self._open: list[StepRecord] = []
        self._packed = bytearray()

    def add(self, record: StepRecord) -> None:
        """Append a step."""
        self._open.append(record)
        if len(self._open) == _BLOCK:
            self._close()

    def _close(self) -> None:
        # By the block, since one call of `pack` from the step loop costs more than all fourteen numbers in it.
        self._packed += b"".join(starmap(_PACKED_STEP.pack, self._open))
        self._open.clear()

    def table(self) -> pl.DataFrame:
        """Return the steps, one a row."""
        self._close()
        data = np.frombuffer(self._packed, np.dtype(list(_STEP_TYPES.items())))
        return pl.DataFrame({name: data[name].copy() for name in StepRecord._fields})


class RequestLog:
    """Finished requests."""

    def __init__(self) -> None:
        self._records: list[RequestRecord] = []

    def add(self, record: RequestRecord) -> None:
        """Append a request."""
        self._records.append(record)

    def table(self, in_cohort: Callable[[int], bool]) -> pl.DataFrame:
        """Return the requests in order of admission.

        Args:
            in_cohort: whether the request admitted as number ``order`` belongs to the cohort.
        """
        known = [record._replace(cohort=in_cohort(record.order)) for record in self._records]
        return pl.DataFrame(known, schema=_REQUEST_COLUMNS, orient="row").sort("order")


class RowLog:
    """Every row of every step, kept only on request: 48 bytes a row."""

    def __init__(self) -> None:
        self._parts: list[RowRecords] = []

    def add(self, rows: RowRecords) -> None:
        """Append the rows of a step."""
        self._parts.append(rows)

    def table(self) -> pl.DataFrame:
        """Return all rows, by step and then admission."""
        if not self._parts:
            return pl.DataFrame(schema=dict.fromkeys(RowRecords._fields, pl.Int64))
        return pl.DataFrame(
            dict(zip(RowRecords._fields, map(np.concatenate, zip(*self._parts, strict=True)), strict=True))
        )
