"""Formats that do not ship with the package: what is checked when one is made, and every container they may have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from specsched.traces import TraceError, TraceFormat, date_nanoseconds, plain_number, read_trace


def made(**fields: Any) -> TraceFormat:
    usual: dict[str, Any] = {
        "name": "log",
        "container": "CSV",
        "arrival": "at",
        "prompt": "in",
        "output": "out",
        "ticks": plain_number,
        "ticks_per_s": 1000.0,
        "time_rule": "a number of milliseconds",
    }
    return TraceFormat(**usual | fields)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"container": "csv"}, "trace format `log`: `container` must be one of CSV, JSON lines, parquet, got 'csv'"),
        ({"container": ["CSV"]}, "`container` must be one of"),
        ({"name": ""}, "`name` must be a text that is not empty, got ''"),
        ({"arrival": None}, "`arrival` must be a text that is not empty, got None"),
        ({"output": 3}, "`output` must be a text that is not empty, got 3"),
        ({"ticks": None}, "`ticks` must be a function from a column of text to a column of numbers, got None"),
        ({"ticks_per_s": 0.0}, "`ticks_per_s` must be a finite number above 0, got 0.0"),
        ({"ticks_per_s": float("nan")}, "`ticks_per_s` must be a finite number above 0, got nan"),
        ({"ticks_per_s": True}, "`ticks_per_s` must be a finite number above 0, got True"),
        (
            {"also": ("domain", "route")},
            "`also` must be a tuple of names among request_id, domain, session_id, got 'ro",
        ),
        ({"also": "domain"}, "`also` must be a tuple of names among request_id, domain, session_id, got 'd'"),
    ],
)
def test_a_format_that_cannot_be_is_refused_when_it_is_made(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(TraceError) as caught:
        made(**fields)
    assert message in str(caught.value)


def test_json_lines_with_dates_and_words(tmp_path: Path) -> None:
    """Strings come to ``ticks`` in their quotes; words that are taken over leave them behind."""
    rows = [
        {"at": "2024-05-10 00:00:00", "in": 5, "out": 2, "domain": "chat", "session_id": 'a "b"'},
        {"at": "2024-05-10 00:00:01.5", "in": 6, "out": 3, "domain": "math", "session_id": None},
    ]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    mine = made(
        container="JSON lines",
        ticks=lambda text: date_nanoseconds(text.str.strip_chars('"')),
        ticks_per_s=1e9,
        also=("domain", "session_id"),
    )
    assert read_trace(tmp_path / "t.jsonl", [mine]).rows() == [
        (0, 0.0, 5, 2, "chat", 'a "b"'),
        (1, 1.5, 6, 3, "math", None),
    ]


@pytest.mark.parametrize("dtype", [pl.Int64, pl.UInt64, pl.Float64])
def test_a_parquet_file_has_the_unit_of_its_format(tmp_path: Path, dtype: type[pl.DataType]) -> None:
    at = pl.Series("at", [1_700_000_000_000, 1_700_000_000_052, 1_700_000_001_500], dtype)
    pl.DataFrame([at, pl.Series("in", [5, 6, 7]), pl.Series("out", [2, 3, 4])]).write_parquet(tmp_path / "t.parquet")
    trace = read_trace(tmp_path / "t.parquet", [made(container="parquet")])
    assert trace["arrival_s"].to_list() == [0.0, 0.052, 1.5]
    assert trace["output_tokens"].to_list() == [2, 3, 4]


@pytest.mark.parametrize(
    ("at", "message"),
    [
        ([5, 3], r"row 2: `at` must not be earlier than in the row before, got 3; sort the requests by `at`"),
        ([5, None], r"row 2: `at` must be a number of milliseconds, got nothing"),
        ([5.0, float("inf")], r"row 2: `at` must be a number of milliseconds, got inf"),
        (["5", "6"], r"`arrival_s` must be Float64, got String"),
    ],
)
def test_a_bad_time_in_a_parquet_file_is_named(tmp_path: Path, at: list[Any], message: str) -> None:
    pl.DataFrame({"at": at, "in": [5, 6], "out": [2, 3]}).write_parquet(tmp_path / "t.parquet")
    with pytest.raises(TraceError, match=message):
        read_trace(tmp_path / "t.parquet", [made(container="parquet")])


@pytest.mark.parametrize(
    ("ticks", "message"),
    [
        (lambda text: text.str.no_such_thing(), "`ticks` of the format log failed on `at`: AttributeError"),
        (
            lambda text: plain_number(text)[:1],
            "must return a polars Series of 2 numbers, one for each row, got 1 of Float",
        ),
        (lambda text: text, "one for each row, got 2 of String"),
        (lambda text: [1.0, 2.0], r"one for each row, got \[1.0, 2.0\]"),
        (lambda text: plain_number(text) * -1, "line 2 .*: `at` must be a number of milliseconds, got '5'"),
    ],
)
def test_a_function_that_does_not_give_times_is_refused(tmp_path: Path, ticks: Any, message: str) -> None:
    (tmp_path / "t.csv").write_text("at,in,out\n5,1,2\n6,1,2\n")
    with pytest.raises(TraceError, match=message):
        read_trace(tmp_path / "t.csv", [made(ticks=ticks)])
