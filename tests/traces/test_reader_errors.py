"""Every bad file gives one message: the file, the line, the rule, the value, the remedy."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl
import pytest

from specsched.traces import TraceError, check_trace, read_trace, write_trace

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n"
VIDUR = "arrived_at,num_prefill_tokens,num_decode_tokens\n0.5,10,3\n"
OWN = "request_id,arrival_s,prompt_tokens,output_tokens,domain\n0,0,10,3,chat\n"
MOONCAKE = '{"timestamp": 1, "input_length": 7, "output_length": 5}\n'


def mooncake(timestamp: str = "2", prompt: str = "7", output: str = "5") -> str:
    return f'{MOONCAKE}{{"timestamp": {timestamp}, "input_length": {prompt}, "output_length": {output}}}\n'


CASES = {
    # the file as a whole
    "empty": ("", "is empty; a trace needs at least one request"),
    "blank": ("\ufeff \n\r\n", "is empty"),
    "header only": ("arrived_at,num_prefill_tokens,num_decode_tokens\n", "has a header but no requests"),
    "header only, no newline": ("arrived_at,num_prefill_tokens,num_decode_tokens", "has a header but no requests"),
    "unknown csv": ("a,b\n1,2\n", "no trace of a known format: it holds CSV with `a`, `b`; accepted are Azure CSV"),
    "unknown json": ('{"a": 1}', "it holds JSON lines with `a`; accepted are"),
    "prose": ("It was a dark and stormy night.\n", "no trace of a known format"),
    "json array": ("[1]", "JSON array; write JSON lines"),
    "gzip": (b"\x1f\x8b\x08\x00", "gzip archive; unpack it first"),
    "utf-16": (VIDUR.encode("utf-16"), "not UTF-8 text"),
    "latin-1": (OWN.encode() + b"1,1,1,1,caf\xe9\n", "line 3: not UTF-8 text; save the file as UTF-8"),
    "broken parquet": (b"PAR1 and no more", "no readable parquet file"),
    "bailian": (
        MOONCAKE.replace("{", '{"chat_id": 3, '),
        "`chat_id` does not belong to Mooncake JSON lines: it marks a Qwen-Bailian trace, whose timestamps are seconds",
    ),
    # columns
    "no output column": (
        "TIMESTAMP,ContextTokens\n2023-11-16 18:15:46,1\n",
        "looks like Azure CSV, but lacks the column `GeneratedTokens`; it has `TIMESTAMP`, `ContextTokens`",
    ),
    "no time column": ("num_prefill_tokens,num_decode_tokens\n1,1\n", "lacks the column `arrived_at`"),
    "no json key": ('{"timestamp": 1, "input_length": 7}', "lacks the column `output_length`"),
    "same column twice": ("arrived_at,num_prefill_tokens,num_decode_tokens,arrived_at\n", "names `arrived_at` more"),
    # rows
    "few fields": (VIDUR + "1,2\n", "line 3: 2 fields where the header has 3"),
    "many fields": (VIDUR + "\n1,2,3,4\n", "line 4: 4 fields where the header has 3"),
    "open quote": (VIDUR + '1,"2,3\n4,5,6\n', "line 3: not CSV"),
    "not json": (MOONCAKE + "{nope}\n", "line 2: not JSON"),
    "not an object": (MOONCAKE + "\n[1]\n", r"line 3: each line must be a JSON object, got '\[1\]'"),
    # lengths
    "negative prompt": (VIDUR + "1,-2,3\n", "line 3: `num_prefill_tokens` must be a whole number >= 0, got '-2'"),
    "negative output": (AZURE + "2023-11-16 18:15:47,1,-5\n", "line 3: `GeneratedTokens` must be .* >= 1, got '-5'"),
    "no output": (VIDUR + "1,2,0\n", "line 3: `num_decode_tokens` must be .* >= 1, got '0'; .*generates nothing"),
    "fraction": (VIDUR + "1,2.5,3\n", "line 3: `num_prefill_tokens` must be a whole number >= 0, got '2.5'"),
    "float": (VIDUR + "1,2.0,3\n", "a whole number >= 0, got '2.0'"),
    "missing length": (VIDUR + "1,,3\n", "line 3: `num_prefill_tokens` must be .*, got nothing; correct the value"),
    "word": (AZURE + "2023-11-16 18:15:47,many,5\n", "line 3: `ContextTokens` must be .*, got 'many'"),
    "huge": (VIDUR + "1,1,99999999999999999999\n", "line 3: `num_decode_tokens` .*, got '99999999999999999999'"),
    "several": (VIDUR + "1,2,0\n2,2,1\n3,3,0\n4,3,0\n", r"line 3 \(and 2 more\): `num_decode_tokens`"),
    "blank lines count": (VIDUR + "\r\n\n1,2,0\n", "line 5: `num_decode_tokens`"),
    "json negative": (mooncake(prompt="-1"), "line 2: `input_length` must be a whole number >= 0, got '-1'"),
    "json fraction": (mooncake(output="1.5"), "line 2: `output_length` must be a whole number >= 1, got '1.5'"),
    "json text": (mooncake(output='"5"'), "line 2: `output_length` must be a whole number"),
    "json true": (mooncake(output="true"), "line 2: `output_length` must be a whole number >= 1, got 'true'"),
    "json null": (mooncake(prompt="null"), "line 2: `input_length` must be a whole number >= 0, got nothing"),
    "json key gone later": (
        MOONCAKE + '{"timestamp": 2, "input_length": 3}',
        "line 2: `output_length` .*, got nothing",
    ),
    # times
    "nan": (VIDUR + "nan,2,3\n", "line 3: `arrived_at` must be a finite number of seconds >= 0, got 'nan'"),
    "inf": (VIDUR + "inf,2,3\n", "line 3: `arrived_at` must be a finite number of seconds >= 0, got 'inf'"),
    "overflow": (VIDUR + "1e999,2,3\n", "line 3: `arrived_at` must be a finite number"),
    "negative time": ("arrived_at,num_prefill_tokens,num_decode_tokens\n-1,1,1\n", "line 2: `arrived_at` .* got '-1'"),
    "missing time": (VIDUR + ",2,3\n", "line 3: `arrived_at` must be .*, got nothing"),
    "word for a time": (VIDUR + "noon,2,3\n", "line 3: `arrived_at` must be .*, got 'noon'"),
    "unsorted": (
        VIDUR + "2,1,1\n1.5,1,1\n",
        "line 4: `arrived_at` must not be earlier than in the row before, got '1.5'; sort the requests",
    ),
    "unsorted by 100 ns": (AZURE + "2023-11-16 18:15:46.6805899,1,1\n", "line 3: `TIMESTAMP` must not be earlier"),
    "json NaN": (mooncake(timestamp="NaN"), "line 2: `timestamp` must be a finite number of milliseconds"),
    "json unsorted": (mooncake(timestamp="0.5"), "line 2: `timestamp` must not be earlier"),
    "date with 10 digits": (AZURE + "2023-11-16 18:15:47.1234567890,1,1\n", "line 3: `TIMESTAMP` must be a date"),
    "no such day": (AZURE + "2023-11-31 18:15:47,1,1\n", "line 3: `TIMESTAMP` must be a date and time such as"),
    "no such hour": (AZURE + "2023-11-16 25:15:47,1,1\n", "line 3: `TIMESTAMP` must be a date"),
    "number for a date": (AZURE + "1700158547,1,1\n", "line 3: `TIMESTAMP` must be a date"),
    "NaN for a date": (AZURE + "NaN,1,1\n", "line 3: `TIMESTAMP` must be a date"),
    # what only specsched's own files hold
    "request ids": (OWN + "2,1,1,1,chat\n", "line 3: `request_id` must count 0, 1, 2, .., got '2'"),
    "no domain": (OWN + "1,1,1,1,\n", "line 3: `domain` must be a name, got nothing"),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_file(tmp_path: Path, case: str) -> None:
    content, message = CASES[case]
    path = tmp_path / "bad.trace"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(TraceError, match=message) as caught:
        read_trace(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"absent\.csv: no such file"):
        read_trace(tmp_path / "absent.csv")


def test_a_folder_is_no_trace(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot be read: Is a directory"):
        read_trace(tmp_path)


def canonical(**columns: list[object]) -> pl.DataFrame:
    base: dict[str, list[object]] = {
        "request_id": [0, 1],
        "arrival_s": [0.0, 1.0],
        "prompt_tokens": [0, 5],
        "output_tokens": [1, 2],
    }
    return pl.DataFrame(base | columns)


TABLES = {
    "no column": (canonical().drop("output_tokens"), "lacks the column `output_tokens`; it has `request_id`"),
    "wrong type": (canonical(prompt_tokens=[0.0, 5.0]), "`prompt_tokens` must be Int64, got Float64; cast the column"),
    "wrong domain type": (canonical(domain=[1, 2]), "`domain` must be String, got Int64"),
    "no rows": (canonical().clear(), "holds no requests"),
    "ids": (canonical(request_id=[1, 0]), "row 1 .*: `request_id` must count 0, 1, 2, .., got 1; renumber"),
    "negative": (canonical(prompt_tokens=[0, -5]), "row 2: `prompt_tokens` must be a whole number >= 0, got -5"),
    "nothing out": (canonical(output_tokens=[0, 5]), "row 1: `output_tokens` must be a whole number >= 1, got 0"),
    "null": (canonical(output_tokens=[1, None]), "row 2: `output_tokens` must be a whole number >= 1, got nothing"),
    "nan": (canonical(arrival_s=[0.0, float("nan")]), "row 2: `arrival_s` must be a finite number of seconds >= 0"),
    "unsorted": (canonical(arrival_s=[2.0, 1.0]), "row 2: `arrival_s` must not be earlier"),
    "before 0": (canonical(arrival_s=[-1.0, 1.0]), "row 1: `arrival_s` must be a finite number of seconds >= 0"),
    "empty domain": (canonical(domain=["chat", ""]), "row 2: `domain` must be a name, got ''"),
}


@pytest.mark.parametrize("case", TABLES)
def test_bad_table(tmp_path: Path, case: str) -> None:
    table, message = TABLES[case]
    with pytest.raises(TraceError, match=f"trace.*{message}"):
        check_trace(table)
    with pytest.raises(TraceError, match=message):
        write_trace(table, tmp_path / "t.csv")
    assert not (tmp_path / "t.csv").exists()


@pytest.mark.parametrize("case", [c for c in TABLES if c not in {"no column", "wrong domain type", "before 0"}])
def test_bad_parquet_names_file_and_row(tmp_path: Path, case: str) -> None:
    table, message = TABLES[case]
    table.write_parquet(tmp_path / "t.parquet")
    with pytest.raises(TraceError, match=rf"t\.parquet.*{message}"):
        read_trace(tmp_path / "t.parquet")


def test_a_good_table_passes() -> None:
    check_trace(canonical(domain=["chat", "code"], extra=[1, 2]))


def test_write_into_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot be written"):
        write_trace(canonical(), tmp_path / "none" / "t.csv")


@pytest.mark.shared_data
@pytest.mark.parametrize(
    "name", ["trace_stats.csv", "trace_quantiles.csv", "servegen_summary.json", "servegen_deepseek-r1_clients.csv.gz"]
)
def test_public_files_that_are_no_traces(shared_data: Path, name: str) -> None:
    with pytest.raises(TraceError, match=re.escape(name)):
        read_trace(shared_data / "traces" / name)
