"""Reads a trace file of any known format into the canonical table, and writes the canonical one."""

from __future__ import annotations

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
    ticks = kind.ticks(text[kind.arrival])
    check_times(ticks, kind.time_rule, kind.arrival, origin, text[kind.arrival])
    columns = {
        "request_id": pl.int_range(text.height, dtype=pl.Int64, eager=True),
        # NumPy divides; polars multiplies by the reciprocal, which turns 0.052 s into 0.052000000000000005 s.
        "arrival_s": pl.Series((ticks - ticks[0]).to_numpy() / kind.ticks_per_s),
    }
    for column, name in (("prompt_tokens", kind.prompt), ("output_tokens", kind.output)):
        columns[column] = _whole_numbers(text[name])
        check_lengths(columns[column], LEAST[column], name, origin, text[name])
    if "request_id" in text.columns:
        bad = _whole_numbers(text["request_id"]).ne_missing(columns["request_id"])
        origin.refuse(bad, "`request_id` must count 0, 1, 2, ..", text["request_id"], "renumber, or drop the column")
    if "domain" in text.columns:
        check_domains(text["domain"], origin)
    columns |= {name: text[name] for name in OPTIONAL if name in text.columns}
    return pl.DataFrame(columns)


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
        trace = trace.with_columns(pl.col("arrival_s").cast(pl.Float64))
    check_trace(trace, str(path))
    trace = trace.select([*REQUIRED, *(name for name in OPTIONAL if name in trace.columns)])
    return trace.with_columns(pl.col("arrival_s") - trace["arrival_s"][0])
