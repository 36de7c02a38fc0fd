"""Opens trace files: tells what a file holds from its first bytes and reads its rows as text with line numbers."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import polars as pl

from .formats import Container
from .table import TraceError, listed

BLOCK_ROWS = 100_000
_MAGIC = {
    b"\x1f\x8b": "a gzip archive; unpack it first",
    b"PK\x03\x04": "a zip archive; unpack it first",
    b"\x28\xb5\x2f\xfd": "a zstandard archive; unpack it first",
}


@dataclass(frozen=True)
class Content:
    """What a file holds: the way rows are stored, and the names in its header (JSON: the first object's keys)."""

    container: Container
    columns: list[str]


@dataclass(frozen=True)
class Rows:
    """Rows as text (null where a value is missing) and the line of the file, from 1, at which each ends."""

    text: pl.DataFrame
    lines: list[int]


def identify(path: Path) -> Content:
    """Return what the file at ``path`` holds, judged by its content, never by its name.

    Raises:
        TraceError: no such file, an empty one, or one that is neither CSV, JSON lines nor parquet.
    """
    with _readable(path), path.open("rb") as file:
        head = file.read(4096)
    if head.startswith(b"PAR1"):
        with _readable(path):
            return Content("parquet", list(pl.read_parquet_schema(path)))
    for magic, what in _MAGIC.items():
        if head.startswith(magic):
            raise TraceError(f"{path} is {what}")
    if b"\0" in head:
        raise TraceError(f"{path} is not UTF-8 text (it holds zero bytes); save it as UTF-8")
    return _identify_text(path)


def _identify_text(path: Path) -> Content:
    with _text_lines(path) as lines:
        number, first = next(((n, line) for n, line in enumerate(lines, 1) if line.strip()), (0, ""))
    if not number:
        raise TraceError(f"{path} is empty; a trace needs at least one request")
    if first.lstrip().startswith("{"):
        return Content("JSON lines", list(_json_object(first, path, number)))
    if first.lstrip().startswith("["):
        raise TraceError(f"{path} holds a JSON array; write JSON lines instead: one object, one request, a line")
    with _text_lines(path) as lines:
        return Content("CSV", _header(csv.reader(lines, strict=True), path))


def read_csv_rows(path: Path, columns: list[str]) -> Rows:
    """Read the named columns of a CSV file; blank lines are skipped and counted.

    Raises:
        TraceError: if a row has more or fewer fields than the header, or bad quoting.
    """
    with _text_lines(path) as lines:
        reader = csv.reader(lines, strict=True)
        header = _header(reader, path)
        return _in_blocks(_csv_records(reader, header, columns, path), columns)


def read_json_rows(path: Path, columns: list[str]) -> Rows:
    """Read the named keys of a JSON lines file; blank lines are skipped and counted.

    Raises:
        TraceError: if a line is no JSON object.
    """
    with _text_lines(path) as lines:
        return _in_blocks(_json_records(lines, columns, path), columns)


READERS: dict[Container, Callable[[Path, list[str]], Rows]] = {"CSV": read_csv_rows, "JSON lines": read_json_rows}

Record = tuple[int, list[str | None]]


def _csv_records(reader: Any, header: list[str], columns: list[str], path: Path) -> Iterator[Record]:
    places = [header.index(column) for column in columns]
    for row in _csv_rows(reader, path):
        if len(row) != len(header):
            raise TraceError(
                f"{path}, line {reader.line_num}: {len(row)} fields where the header has {len(header)} "
                f"({listed(header)}); correct or remove the line"
            )
        yield reader.line_num, [row[place].strip() or None for place in places]


def _json_records(lines: Iterator[str], columns: list[str], path: Path) -> Iterator[Record]:
    for number, line in enumerate(lines, 1):
        if line.strip():
            values = _json_object(line, path, number)
            yield number, [_json_text(values.get(column)) for column in columns]


def _json_text(value: Any) -> str | None:
    # Written back as JSON, so that "12" (a string), true and [1] don't pass for numbers.
    return None if value is None else json.dumps(value)


def _json_object(line: str, path: Path, number: int) -> dict[str, Any]:
    try:
        values = json.loads(line)
    except ValueError as error:
        raise TraceError(f"{path}, line {number}: not JSON ({error}); each line must be one object") from None
    if not isinstance(values, dict):
        raise TraceError(f"{path}, line {number}: each line must be a JSON object, got {line.strip()[:60]!r}")
    return values


def _in_blocks(records: Iterator[Record], columns: list[str]) -> Rows:
    """Gather records into one table; blocks keep a trace of many million rows from living in Python lists."""
    lines: list[int] = []
    blocks = [pl.DataFrame(schema=dict.fromkeys(columns, pl.String))]
    while block := list(islice(records, BLOCK_ROWS)):
        lines.extend(number for number, _ in block)
        values = zip(*(row for _, row in block), strict=True)
        blocks.append(pl.DataFrame([pl.Series(name, v, pl.String) for name, v in zip(columns, values, strict=True)]))
    return Rows(pl.concat(blocks, rechunk=True), lines)


def _header(reader: Any, path: Path) -> list[str]:
    names = [name.strip() for name in next(_csv_rows(reader, path))]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise TraceError(f"{path}: the header names {listed(twice)} more than once; rename or remove one")
    return names


def _csv_rows(reader: Any, path: Path) -> Iterator[list[str]]:
    """Yield the rows that are not blank; quoting mistakes become a `TraceError`."""
    last = 0
    try:
        for row in reader:
            last = reader.line_num
            if row and (len(row) > 1 or row[0].strip()):
                yield row
    except csv.Error as error:
        raise TraceError(f"{path}, line {last + 1}: not CSV ({error}); correct the quotes") from None


@contextmanager
def _text_lines(path: Path) -> Iterator[Iterator[str]]:
    # newline="" leaves line ends to the csv module, which also knows those inside quotes; -sig drops a BOM.
    with _readable(path), path.open(encoding="utf-8-sig", newline="") as file:
        yield iter(file)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise TraceError(f"{path}: no such file; give the path of a trace") from None
    except UnicodeDecodeError:
        raise TraceError(f"{path}, line {_undecodable_line(path)}: not UTF-8 text; save the file as UTF-8") from None
    except OSError as error:
        raise TraceError(f"{path} cannot be read: {error.strerror or error}") from None
    except pl.exceptions.PolarsError as error:
        raise TraceError(f"{path} is no readable parquet file: {error}; write it again") from None


def _undecodable_line(path: Path) -> int:
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError:
                return number
    return 1
