"""The canonical trace table, its rules, and the one error this room raises.

A trace is a polars table with one row a request, in order of arrival::

    request_id     Int64    0, 1, .., n - 1
    arrival_s      Float64  seconds, >= 0, finite, never decreasing (ties are fine)
    prompt_tokens  Int64    >= 0
    output_tokens  Int64    >= 1
    domain         String   optional: what the text is about, never empty
    session_id     String   optional: which conversation the request belongs to; null where there is none
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

REQUIRED = {
    "request_id": pl.Int64,
    "arrival_s": pl.Float64,
    "prompt_tokens": pl.Int64,
    "output_tokens": pl.Int64,
}
OPTIONAL = {"domain": pl.String, "session_id": pl.String}
LEAST = {"prompt_tokens": 0, "output_tokens": 1}

_REMEDY = {
    "prompt_tokens": "correct the value or remove the request",
    "output_tokens": "correct the value, or remove the request: one that generates nothing never decodes",
}


class TraceError(ValueError):
    """A trace cannot be read, generated or transformed as asked."""


@dataclass(frozen=True)
class Origin:
    """Where the rows of a table came from, so that an error can point at one.

    Attributes:
        name: the file, or "trace" for a table built in memory.
        lines: line of the file (from 1) of each row; None where rows are counted instead.
    """

    name: str
    lines: Sequence[int] | None = None

    def place(self, row: int) -> str:
        """Return the words that point at ``row`` (from 0)."""
        return f"row {row + 1}" if self.lines is None else f"line {self.lines[row]}"

    def refuse(self, bad: pl.Series, message: str, values: pl.Series, remedy: str) -> None:
        """Raise for the first row at which the Boolean series ``bad`` is true; return if there is none.

        Raises:
            TraceError: naming the file, the line, the rule, the value and the remedy.
        """
        row = bad.arg_max() if bad.any() else None
        if row is None:
            return
        others = int(bad.sum()) - 1
        more = f" (and {others} more)" if others else ""
        raise TraceError(f"{self.name}, {self.place(row)}{more}: {message}, got {shown(values[row])}; {remedy}")


def shown(value: Any) -> str:
    """Return a value as an error prints it: quoted as it stands in the file, long texts cut."""
    if value is None:
        return "nothing"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def check_lengths(lengths: pl.Series, least: int, column: str, origin: Origin, written: pl.Series) -> None:
    """Refuse lengths that are null (not a whole number) or under ``least``.

    ``column`` and ``written`` are the name and the values as they stand in the source.

    Raises:
        TraceError: at the first such row.
    """
    bad = lengths.is_null() | (lengths < least).fill_null(True)
    canonical = "output_tokens" if least else "prompt_tokens"
    origin.refuse(bad, f"`{column}` must be a whole number >= {least}", written, _REMEDY[canonical])


def check_times(times: pl.Series, rule: str, column: str, origin: Origin, written: pl.Series) -> None:
    """Refuse times that are null (unreadable), not finite, negative or earlier than the row before.

    Raises:
        TraceError: at the first such row; unreadable values come before unsorted ones.
    """
    bad = times.is_null()
    if times.dtype.is_float():
        bad = bad | (~times.is_finite()).fill_null(True) | (times < 0).fill_null(True)
    origin.refuse(bad, f"`{column}` must be {rule}", written, "correct the value or remove the request")
    earlier = (times.diff() < 0).fill_null(False)
    message = f"`{column}` must not be earlier than in the row before"
    origin.refuse(earlier, message, written, f"sort the requests by `{column}`")


def check_trace(trace: pl.DataFrame, name: str = "trace") -> None:
    """Check that a table built in memory is a canonical trace; further columns are let through.

    Raises:
        TraceError: naming ``name``, the column or row, the rule, the value and the remedy.
    """
    _check_columns(trace, name)
    if trace.is_empty():
        raise TraceError(f"{name} holds no requests; a trace needs at least one")
    origin = Origin(name)
    ids = trace["request_id"]
    misnumbered = ids.ne_missing(pl.int_range(trace.height, dtype=pl.Int64, eager=True))
    origin.refuse(misnumbered, "`request_id` must count 0, 1, 2, ..", ids, "renumber the requests")
    arrivals = trace["arrival_s"]
    check_times(arrivals, "a finite number of seconds >= 0", "arrival_s", origin, arrivals)
    for column, least in LEAST.items():
        check_lengths(trace[column], least, column, origin, trace[column])
    if "domain" in trace.columns:
        check_domains(trace["domain"], origin)


def _check_columns(trace: pl.DataFrame, name: str) -> None:
    missing = [column for column in REQUIRED if column not in trace.columns]
    if missing:
        raise TraceError(
            f"{name} lacks the column {listed(missing)}; it has {listed(trace.columns)}; "
            f"a trace needs {listed(REQUIRED)}"
        )
    for column, dtype in (REQUIRED | OPTIONAL).items():
        if column in trace.columns and trace[column].dtype != dtype:
            raise TraceError(f"{name}: `{column}` must be {dtype}, got {trace[column].dtype}; cast the column")


def check_domains(domains: pl.Series, origin: Origin) -> None:
    """Refuse missing and empty domains.

    Raises:
        TraceError: at the first such row.
    """
    bad = domains.is_null() | (domains == "").fill_null(True)
    origin.refuse(bad, "`domain` must be a name", domains, "fill it in, or leave the whole column out")


def listed(names: Iterable[str]) -> str:
    """Return names as an error lists them: in backticks, joined by commas, the 12 first of many."""
    quoted = [f"`{name}`" for name in names]
    more = f" and {len(quoted) - 12} more" if len(quoted) > 12 else ""
    return ", ".join(quoted[:12]) + more or "nothing"
