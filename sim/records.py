"""What a run leaves behind: one record per step, per finished request, and per row of a step if asked.

The fields of a record are the columns of its table: their names, order and types are written here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import pack
from typing import NamedTuple, get_args, get_type_hints

import numpy as np
import polars as pl

from ..policies import Ints

BLOCK = 1024


class StepLog:
    """Steps as begun; `docs/metrics.md` says what each column means.

    The record of a step is one entry in each of these lists, which the step loop appends. By column, and packed by
    the block: to append costs less than to build a record, and a run has up to a million steps, whose numbers take
    8 bytes each here and some 20 in tuples.
    """

    step: list[int]
    start_s: list[float]
    step_seconds: list[float]
    rows: list[int]
    drafting_rows: list[int]
    drafted: list[int]
    verified: list[int]
    accepted: list[int]
    emitted: list[int]
    acceptable: list[int]
    batch_tokens: list[int]
    executed_tokens: list[int]
    context_seconds: list[float]
    stall_seconds: list[float]

    def __init__(self) -> None:
        for name in STEP_COLUMNS:
            setattr(self, name, [])
        self._packed = {name: bytearray() for name in STEP_COLUMNS}

    def pack(self) -> None:
        """Pack what has been appended; due once there are `BLOCK` steps of it."""
        for name, kind in _STEP_TYPES.items():
            values = getattr(self, name)
            # `struct` packs a list of numbers in half the time NumPy needs to make an array of it.
            self._packed[name] += pack(f"{len(values)}{kind.char}", *values)
            values.clear()

    def table(self) -> pl.DataFrame:
        """Return the steps, one a row."""
        self.pack()
        return pl.DataFrame({name: np.frombuffer(self._packed[name], kind) for name, kind in _STEP_TYPES.items()})


_STEP_TYPES = {name: np.dtype("q" if hint == list[int] else "d") for name, hint in get_type_hints(StepLog).items()}
STEP_COLUMNS = tuple(_STEP_TYPES)
"""Columns of the step table."""


class RequestRecord(NamedTuple):
    """A finished request.

    ``ready_s`` is None without prefill. ``cohort`` is known when the run ends: a log takes any value and replaces it.
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


class RequestLog:
    """Finished requests, in the order in which they finish."""

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
        # Rows finish in any order; the table has the order of admission, by which cohorts are numbered.
        table = pl.DataFrame(self._records, schema=REQUEST_COLUMNS, orient="row").sort("order")
        followed = [in_cohort(order) for order in table["order"].to_list()]
        return table.with_columns(cohort=pl.Series(followed, dtype=pl.Boolean))


def _column_types(record: type[NamedTuple]) -> dict[str, type[pl.DataType]]:
    """Return polars types by field; a field that may be None is a column that may be null."""
    # Given to polars instead of left to its guess: a column of nothing but None has a type too.
    types = {int: pl.Int64, float: pl.Float64, bool: pl.Boolean, str: pl.String}
    hints = get_type_hints(record).items()
    return {name: types[next((each for each in get_args(hint) if each in types), hint)] for name, hint in hints}


REQUEST_COLUMNS = _column_types(RequestRecord)
"""Columns of the request table with their types."""


class RowRecords(NamedTuple):
    """The rows of a step by column, each int64 ``[R]``."""

    step: Ints
    request: Ints
    available: Ints
    verified: Ints
    accepted: Ints
    emitted: Ints
    acceptable: Ints


class RowLog:
    """Every row of every step, kept only on request: 56 bytes a row."""

    def __init__(self) -> None:
        self._steps: list[RowRecords] = []

    def add(self, rows: RowRecords) -> None:
        """Append the rows of a step."""
        self._steps.append(rows)

    def table(self) -> pl.DataFrame:
        """Return all rows, by step and then admission."""
        if not self._steps:
            return pl.DataFrame(schema=dict.fromkeys(RowRecords._fields, pl.Int64))
        together = map(np.concatenate, zip(*self._steps, strict=True))
        return pl.DataFrame(dict(zip(RowRecords._fields, together, strict=True)))
