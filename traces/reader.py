"""Reads a trace file of any known format into the canonical table, and writes the canonical one."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from .formats import FORMATS, TraceFormat
from .sources import READERS, Content, identify
from .table import (
    LEAST,
    OPTIONAL,
    REQUIRED,
    Origin,
    TraceError,
    check_domains,
    check_lengths,
    check_times,
    check_trace,
    listed,
)

PathLike = str | os.PathLike[str]


def read_trace(path: PathLike, formats: Sequence[TraceFormat] = FORMATS) -> pl.DataFrame:
    """Read a request trace; the format is told from the content.

    Args:
        path: an Azure CSV, Vidur CSV, Mooncake JSON lines, specsched CSV or specsched parquet file.
        formats: the formats to try; add your own `TraceFormat`.

    Returns:
        The canonical table. Times are rebased: the first request arrives at 0 s.

    Raises:
        TraceError: the file is unreadable or of no known format, or breaks a rule; the message names the file,
            the line (from 1, header included; parquet: the row), the column, the rule, the value and the remedy.
    """
    path = Path(path)
    content = identify(path)
    kind = _choose(path, content, formats)
    if content.container == "parquet":
        return _from_parquet(path, kind, content)
    taken = [*kind.needs, *(name for name in kind.also if name in content.columns)]
    rows = READERS[content.container](path, taken)
    if rows.text.is_empty():
        raise TraceError(f"{path} has a header but no requests; a trace needs at least one")
    return _canonical(rows.text, kind, Origin(str(path), rows.lines))


def trace_format(path: PathLike, formats: Sequence[TraceFormat] = FORMATS) -> TraceFormat:
    """Return the format of the file at ``path``.

    Raises:
        TraceError: as `read_trace`, for what the first line shows.
    """
    path = Path(path)
    return _choose(path, identify(path), formats)


def write_trace(trace: pl.DataFrame, path: PathLike) -> None:
    """Write a canonical trace as specsched CSV, or as parquet if ``path`` ends in ``.parquet``.

    `read_trace` gives the same table back, but for its start: it sets the first arrival to 0.

    Raises:
        TraceError: if the trace is not canonical or the file cannot be written.
    """
    check_trace(trace)
    path = Path(path)
    kept = trace.select([*REQUIRED, *(name for name in OPTIONAL if name in trace.columns)])
    try:
        kept.write_parquet(path) if path.suffix == ".parquet" else kept.write_csv(path)
    except OSError as error:
        raise TraceError(f"{path} cannot be written: {error.strerror or error}") from None


def _choose(path: Path, content: Content, formats: Sequence[TraceFormat]) -> TraceFormat:
    """Return the format that shares most columns with the file, which must then have all it needs."""
    shared = {f.name: len(set(f.needs) & set(content.columns)) for f in formats if f.container == content.container}
    best = max((f for f in formats if f.name in shared), key=lambda f: shared[f.name], default=None)
    if best is None or not shared[best.name]:
        accepted = "; ".join(f"{f.name} ({listed(f.needs)})" for f in formats)
        raise TraceError(
            f"{path} is no trace of a known format: it holds {content.container} with {listed(content.columns)}; "
            f"accepted are {accepted}"
        )
    missing = [name for name in best.needs if name not in content.columns]
    if missing:
        raise TraceError(
            f"{path} looks like {best.name}, but lacks the column {listed(missing)}; it has "
            f"{listed(content.columns)}; {best.name} needs {listed(best.needs)}"
        )
    for name, why in best.foreign.items():
        if name in content.columns:
            raise TraceError(f"{path}: `{name}` does not belong to {best.name}: {why}; convert the file first")
    return best


def _canonical(text: pl.DataFrame, kind: TraceFormat, origin: Origin) -> pl.DataFrame:
    ticks = _ticks(text[kind.arrival], kind, origin)
    check_times(ticks, kind.time_rule, kind.arrival, origin, text[kind.arrival])
    columns = {
        "request_id": pl.int_range(text.height, dtype=pl.Int64, eager=True),
        "arrival_s": _seconds(ticks, kind),
    }
    for column, name in (("prompt_tokens", kind.prompt), ("output_tokens", kind.output)):
        columns[column] = _whole_numbers(text[name])
        check_lengths(columns[column], LEAST[column], name, origin, text[name])
    if "request_id" in text.columns:
        bad = _whole_numbers(text["request_id"]).ne_missing(columns["request_id"])
        origin.refuse(bad, "`request_id` must count 0, 1, 2, ..", text["request_id"], "renumber, or drop the column")
    columns |= {name: _words(text[name], kind) for name in OPTIONAL if name in text.columns}
    if "domain" in columns:
        check_domains(columns["domain"], origin)
    return pl.DataFrame(columns)


def _ticks(text: pl.Series, kind: TraceFormat, origin: Origin) -> pl.Series:
    """Return what a format makes of its arrival column.

    Raises:
        TraceError: if that fails, or gives anything but a number for each row.
    """
    try:
        ticks = kind.ticks(text)
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise TraceError(
            f"{origin.name}: `ticks` of the format {kind.name} failed on `{kind.arrival}`: {what}"
        ) from error
    if not isinstance(ticks, pl.Series) or not ticks.dtype.is_numeric() or len(ticks) != len(text):
        got = f"{len(ticks)} of {ticks.dtype}" if isinstance(ticks, pl.Series) else repr(ticks)[:60]
        raise TraceError(
            f"{origin.name}: `ticks` of the format {kind.name} must return a polars Series of {len(text)} numbers, one "
            f"for each row, got {got}"
        )
    return ticks


def _seconds(ticks: pl.Series, kind: TraceFormat) -> pl.Series:
    """Return seconds since the first row, Float64."""
    # NumPy divides; polars multiplies by the reciprocal, which turns 0.052 s into 0.052000000000000005 s.
    return pl.Series((ticks - ticks[0]).to_numpy() / kind.ticks_per_s)


def _words(text: pl.Series, kind: TraceFormat) -> pl.Series:
    """Return a column of words as it is meant: strings of JSON lines come in their quotes."""
    if kind.container != "JSON lines":
        return text
    values = [None if value is None else json.loads(value) for value in text]
    plain = [each if isinstance(each, str) else value for each, value in zip(values, text, strict=True)]
    return pl.Series(text.name, plain, pl.String)


def _whole_numbers(text: pl.Series) -> pl.Series:
    """Return Int64, null where the text is anything but digits: 12.0, 1e3 and -5 are not taken for a length."""
    value = pl.col("value")
    digits = pl.when(value.str.contains(r"^[0-9]{1,18}$")).then(value).cast(pl.Int64)
    return text.to_frame("value").select(digits).to_series()


def _from_parquet(path: Path, kind: TraceFormat, content: Content) -> pl.DataFrame:
    """Columns of numbers need no parsing, only the type that the table wants and the table's own check."""
    stored = pl.read_parquet(path, columns=[*kind.needs, *(n for n in kind.also if n in content.columns)])
    trace = stored.rename({kind.arrival: "arrival_s", kind.prompt: "prompt_tokens", kind.output: "output_tokens"})
    if "request_id" not in trace.columns:
        trace = trace.with_row_index("request_id")
    whole = [name for name, dtype in trace.schema.items() if dtype.is_integer() and name in REQUIRED]
    trace = trace.with_columns(pl.col(whole).cast(pl.Int64, strict=False))
    if trace["arrival_s"].dtype.is_numeric():
        if kind.ticks_per_s != 1.0 and trace.height:
            check_times(trace["arrival_s"], kind.time_rule, kind.arrival, Origin(str(path)), trace["arrival_s"])
            trace = trace.with_columns(arrival_s=_seconds(trace["arrival_s"], kind))
        trace = trace.with_columns(pl.col("arrival_s").cast(pl.Float64))
    check_trace(trace, str(path))
    trace = trace.select([*REQUIRED, *(name for name in OPTIONAL if name in trace.columns)])
    return trace.with_columns(pl.col("arrival_s") - trace["arrival_s"][0])
