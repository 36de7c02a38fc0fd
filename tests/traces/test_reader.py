"""Reading: every format, exact times, and the same table back after writing."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specsched.traces import FORMATS, TraceFormat, generate_trace, read_trace, trace_format, write_trace
from specsched.traces.formats import plain_number

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
PUBLIC = {
    "AzureLLMInferenceTrace_conv.csv": ("Azure CSV", 19366),
    "AzureLLMInferenceTrace_code.csv": ("Azure CSV", 8819),
    "conv2000_poisson4.csv": ("Vidur CSV", 2000),
    "mooncake_conversation_trace.jsonl": ("Mooncake JSON lines", 12031),
}


def write(folder: Path, content: str | bytes, name: str = "trace") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_azure_keeps_seven_digits_and_starts_at_zero(tmp_path: Path) -> None:
    rows = "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951691,396,109\n2023-11-17 00:00:00,0,1\n"
    trace = read_trace(write(tmp_path, AZURE + rows))
    assert trace.schema == {
        "request_id": pl.Int64,
        "arrival_s": pl.Float64,
        "prompt_tokens": pl.Int64,
        "output_tokens": pl.Int64,
    }
    assert trace["arrival_s"].to_list() == [0.0, 4.3145791, 20653.31941]
    assert trace.drop("arrival_s").rows() == [(0, 374, 44), (1, 396, 109), (2, 0, 1)]


@pytest.mark.parametrize(
    ("first", "second", "seconds"),
    [
        ("2023-12-31 23:59:59.9999999", "2024-01-01 00:00:00.0000001", 2e-7),
        ("2024-02-28T23:59:59", "2024-03-01T00:00:00", 86401.0),
        ("2024-05-10 00:00:00.009930+00:00", "2024-05-10 00:00:00.01Z", 7e-5),
        ("2024-05-10 02:00:00+02:00", "2024-05-10 00:00:01", 1.0),
        ("2024-05-09 19:30:00-0430", "2024-05-10 00:00:00.123456789", 0.123456789),
        ("1999-12-31 23:59:59", "2000-03-01 00:00:00", 5184001.0),
    ],
)
def test_dates(tmp_path: Path, first: str, second: str, seconds: float) -> None:
    trace = read_trace(write(tmp_path, f"{AZURE}{first},1,1\n{second},1,1\n"))
    assert trace["arrival_s"].to_list() == [0.0, seconds]


@pytest.mark.parametrize(
    "shape",
    [
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.rstrip("\n"),
        lambda text: "\ufeff" + text,
        lambda text: "\ufeff" + text.replace("\n", "\r\n").rstrip(),
        lambda text: "\n\n" + text.replace("\n", "\n\n") + "  \n",
        lambda text: text.replace(",", " , "),
        lambda text: "".join('"' + line.replace(",", '","') + '"\n' for line in text.splitlines()),
        lambda text: "".join(line + ",unused\n" for line in text.splitlines()),
        lambda text: "".join(",".join(reversed(line.split(","))) + "\n" for line in text.splitlines()),
    ],
    ids=["crlf", "no-last-newline", "bom", "bom-crlf", "blank-lines", "spaces", "quotes", "more-columns", "reordered"],
)
def test_the_look_of_a_csv_does_not_matter(tmp_path: Path, shape: object) -> None:
    text = AZURE + "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n"
    plain = read_trace(write(tmp_path, text, "plain"))
    assert plain.height == 2
    assert read_trace(write(tmp_path, shape(text), "shaped")).equals(plain)  # type: ignore[operator]


def test_vidur_is_rebased_and_ties_are_fine(tmp_path: Path) -> None:
    text = "arrived_at,num_prefill_tokens,num_decode_tokens\n2.5,10,3\n2.5,11,4\n4,12,5\n"
    trace = read_trace(write(tmp_path, text))
    assert trace.rows() == [(0, 0.0, 10, 3), (1, 0.0, 11, 4), (2, 1.5, 12, 5)]


def test_mooncake_counts_milliseconds(tmp_path: Path) -> None:
    rows = [
        {"timestamp": 27, "input_length": 7, "output_length": 5, "hash_ids": [0, 1]},
        {"timestamp": 3027.5, "output_length": 6, "input_length": 8},
    ]
    text = "\n\n".join(json.dumps(row) for row in rows)
    assert read_trace(write(tmp_path, text)).rows() == [(0, 0.0, 7, 5), (1, 3.0005, 8, 6)]


def test_format_is_told_from_content_not_from_the_name(tmp_path: Path) -> None:
    row = '{"timestamp": 0, "input_length": 1, "output_length": 1}'
    assert trace_format(write(tmp_path, row, "trace.csv")).name == "Mooncake JSON lines"
    write_trace(read_trace(tmp_path / "trace.csv"), tmp_path / "t.parquet")
    (tmp_path / "t.parquet").rename(tmp_path / "t.jsonl")
    assert trace_format(tmp_path / "t.jsonl").name == "specsched parquet"


def test_a_format_of_ones_own(tmp_path: Path) -> None:
    own = TraceFormat("own", "JSON lines", "at_us", "in", "out", plain_number, 1e6, "microseconds")
    path = write(tmp_path, '{"at_us": 5, "in": 1, "out": 2}\n{"at_us": 500005, "in": 3, "out": 4}')
    assert read_trace(path, [*FORMATS, own]).rows() == [(0, 0.0, 1, 2), (1, 0.5, 3, 4)]


def test_parquet_of_other_numeric_types(tmp_path: Path) -> None:
    table = pl.DataFrame({"output_tokens": [1, 2], "prompt_tokens": [0, 9], "arrival_s": [3, 5], "x": ["a", "b"]})
    table.cast({"output_tokens": pl.UInt16, "prompt_tokens": pl.Int32}).write_parquet(tmp_path / "t")
    assert read_trace(tmp_path / "t").rows() == [(0, 0.0, 0, 1), (1, 2.0, 9, 2)]


NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1).filter(
    lambda name: name == name.strip()
)


@st.composite
def traces(draw: st.DrawFn) -> pl.DataFrame:
    """A canonical trace that starts at 0, with or without domains and sessions."""
    n = draw(st.integers(1, 12))
    times = draw(st.lists(st.floats(0, 1e9), min_size=n - 1, max_size=n - 1))
    tokens = st.integers(1, 10**12)
    columns = {
        "request_id": range(n),
        "arrival_s": [0.0, *sorted(times)],
        "prompt_tokens": draw(st.lists(tokens | st.just(0), min_size=n, max_size=n)),
        "output_tokens": draw(st.lists(tokens, min_size=n, max_size=n)),
    }
    if draw(st.booleans()):
        columns["domain"] = draw(st.lists(NAMES, min_size=n, max_size=n))
    if draw(st.booleans()):
        columns["session_id"] = draw(st.lists(st.none() | NAMES, min_size=n, max_size=n))
    return pl.DataFrame(columns, schema_overrides={"session_id": pl.String} if "session_id" in columns else None)


@settings(max_examples=150, deadline=None)
@given(trace=traces(), suffix=st.sampled_from([".csv", ".parquet"]))
def test_what_is_written_is_read_back_exactly(trace: pl.DataFrame, suffix: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"trace{suffix}"
        write_trace(trace, path)
        assert read_trace(path).equals(trace)


def test_a_generated_trace_comes_back_rebased(tmp_path: Path) -> None:
    trace = generate_trace(50, 2.0, "azure-code", seed=3, domains={"code": 0.5, "chat": 0.5})
    write_trace(trace, tmp_path / "t.csv")
    first = trace["arrival_s"][0]
    assert first > 0
    assert read_trace(tmp_path / "t.csv").equals(trace.with_columns(pl.col("arrival_s") - first))


@pytest.mark.shared_data
@pytest.mark.parametrize("name", PUBLIC)
def test_public_traces(shared_data: Path, name: str) -> None:
    kind, requests = PUBLIC[name]
    path = shared_data / "traces" / name
    trace = read_trace(path)
    assert (trace_format(path).name, trace.height, trace["arrival_s"][0]) == (kind, requests, 0.0)


@pytest.mark.shared_data
def test_the_largest_public_trace_reads_in_well_under_a_second(shared_data: Path) -> None:
    path = shared_data / "traces" / "AzureLLMInferenceTrace_conv.csv"
    times = []
    for _ in range(3):
        start = time.perf_counter()
        read_trace(path)
        times.append(time.perf_counter() - start)
    assert min(times) < 0.5  # 0.05 to 0.07 s on a shared core
