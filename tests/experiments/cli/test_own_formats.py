"""A trace format of the user's own, or a shipped one by its name, in experiment files and on the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
import yaml

from specsched.traces import read_trace

Command = Callable[..., tuple[int, str, str]]

MODULE = """
from specsched.traces import TraceFormat, plain_number

GATEWAY = TraceFormat(
    name="gateway log", container="CSV", arrival="received_ms", prompt="tokens_in", output="tokens_out",
    ticks=plain_number, ticks_per_s=1000.0, time_rule="a number of milliseconds",
)
SLOW = TraceFormat(
    name="slow log", container="CSV", arrival="received_ms", prompt="tokens_in", output="tokens_out",
    ticks=plain_number, ticks_per_s=100.0, time_rule="a number of hundredths of a second",
)
SWAPPED = TraceFormat(
    name="swapped log", container="CSV", arrival="received_ms", prompt="tokens_out", output="tokens_in",
    ticks=plain_number, ticks_per_s=1000.0, time_rule="a number of milliseconds",
)
"""
TEXT = """\
workload: {mode: open, path: t.csv, format: {kind: python, object: 'my_format:GATEWAY'}}
hardware: {profile: vllm-dsv4flash-b300-tp4}
drafts: {kind: constant, acceptance: 0.7}
arms:
  static-3: {policy: {kind: static, k: 3}}
sweep: {load: [2, 4]}
seeds: [0]
output: {figures: [], records: [requests]}
"""
FORMAT = "format: {kind: python, object: 'my_format:GATEWAY'}"


@pytest.fixture(autouse=True)
def _files(tmp_path: Path) -> None:
    (tmp_path / "my_format.py").write_text(MODULE)
    (tmp_path / "x.yaml").write_text(TEXT)
    rows = "".join(f"{1_700_000_000_000 + 500 * n},chat,{50 + n},{10 + n % 9}\n" for n in range(60))
    (tmp_path / "t.csv").write_text("received_ms,route,tokens_in,tokens_out\n" + rows)
    vidur = "".join(f"{0.5 * n},{50 + n},{10 + n % 9}\n" for n in range(60))
    (tmp_path / "vidur.csv").write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n" + vidur)


def refused(result: tuple[int, str, str]) -> str:
    code, _, errors = result
    assert code == 2, errors
    (line,) = [line for line in errors.splitlines() if line]
    return line.removeprefix("error: ")


def run(here: Command, name: str, *settings: str, workers: str = "1") -> Path:
    more = [word for setting in settings for word in ("--set", setting)]
    code, _, errors = here("run", "x.yaml", "-q", "--workers", workers, "-o", name, *more)
    assert (code, errors) == (0, "")
    return Path(name)


def test_it_reads_what_a_shipped_format_reads(here: Command) -> None:
    """The same requests in Vidur's columns, whose format is told from the content, give the same points."""
    own = run(here, "own", workers="2")
    theirs = run(here, "theirs", "workload={mode: open, path: vidur.csv}", workers="1")
    assert (own / "points.parquet").read_bytes() == (theirs / "points.parquet").read_bytes()
    requests = pl.read_parquet(own / "requests" / "static-3-4-0.parquet").sort("arrival_s")
    assert requests["output_tokens"].to_list() == [10 + n % 9 for n in range(60)]


def test_the_resolved_file_names_it_and_runs_again(here: Command) -> None:
    own = run(here, "own")
    config = yaml.safe_load((own / "config.yaml").read_text())
    assert config["workload"]["format"] == {"kind": "python", "object": "my_format:GATEWAY"}
    code, _, errors = here("run", "own/config.yaml", "-q", "--workers", "1", "-o", "again")
    assert (code, errors) == (0, "")
    for name in ("points.parquet", "config.yaml"):
        assert (own / name).read_bytes() == (Path("again") / name).read_bytes()


def test_a_format_that_is_not_named_leaves_no_trace(here: Command) -> None:
    theirs = run(here, "theirs", "workload={mode: open, path: vidur.csv}")
    config = yaml.safe_load((theirs / "config.yaml").read_text())
    assert "format" not in config["workload"]
    assert '"format"' not in (theirs / "manifest.json").read_text()


def test_a_shipped_format_is_forced_by_its_name(here: Command) -> None:
    told = run(here, "told", "workload={mode: open, path: vidur.csv}")
    forced = run(here, "forced", "workload={mode: open, path: vidur.csv, format: vidur}")
    assert (told / "points.parquet").read_bytes() == (forced / "points.parquet").read_bytes()
    assert yaml.safe_load((forced / "config.yaml").read_text())["workload"]["format"] == "vidur"


def test_one_file_may_be_read_in_two_ways_in_a_sweep(here: Command) -> None:
    """What a process has read once is kept under the format too."""
    for axis in (
        "{workload.format.object: ['my_format:GATEWAY', 'my_format:SWAPPED']}",
        "{how: {a: {workload.format.object: 'my_format:GATEWAY'}, b: {workload.format.object: 'my_format:SWAPPED'}}}",
    ):
        folder = run(here, f"sweep{len(axis)}", f"sweep.axes={axis}", "sweep.load=[2]")
        points = pl.read_parquet(folder / "points.parquet")
        assert points["throughput_tok_s_gpu"].n_unique() == 2


def test_a_changed_file_refuses_to_resume(here: Command, tmp_path: Path) -> None:
    run(here, "own")
    again = ("run", "x.yaml", "-q", "--workers", "1", "-o", "own", "--resume")
    assert here(*again)[0] == 0
    (tmp_path / "my_format.py").write_text(MODULE + "# changed\n")
    assert "code.my_format has changed; resume with the configuration" in refused(here(*again))


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("workload.format=azur", "--set: workload.format: no trace format is called 'azur'; did you mean 'azure'?"),
        ("workload.format=xy", "'xy'; choose from azure, vidur, mooncake, specsched"),
        ("workload.format=my_format:GATEWAY", "an object of your own is {kind: python, object: 'my_format:GATEWAY'}"),
        ("workload.format=3", "--set: workload.format: must be a word, got 3"),
        ("workload.format={object: 'a:B'}", "--set: workload.format.kind: is required and missing"),
        ("workload.format={kind: java, object: 'a:B'}", "workload.format.kind: must be one of python; got 'java'"),
        ("workload.format={kind: python}", "--set: workload.format.object: is required and missing"),
        (
            "workload.format={kind: python, object: 'a:B', x: 1}",
            "workload.format.x: unknown key; choose from kind, object",
        ),
        (
            "workload.format.object=my_format",
            "`object` of a python trace format must be 'module:NAME', got 'my_format'",
        ),
        ("workload.format.object=my_formt:X", "cannot import `my_formt` of trace format object 'my_formt:X'"),
        ("workload.format.object=my_format:X", "my_format.py) has no `X` (trace format object 'my_format:X')"),
        ("workload.format.object=my_format:MODULE", "has no `MODULE`"),
        ("workload.format.object=my_format:plain_number", "must be a specsched.traces.TraceFormat, got <function"),
        ("workload.format.object=my_format:TraceFormat", "must be a specsched.traces.TraceFormat, got <class"),
        ("workload.format=azure", "t.csv is no trace of a known format: it holds CSV with `received_ms`, `route`"),
        (
            "workload={mode: open, format: azure}",
            "workload.format: says how a trace file is written, so it needs `work",
        ),
        ("workload={path: vidur.csv, format: {kind: python, object: 'my_format:SLOW'}}", "accepted are slow log ("),
    ],
)
def test_a_bad_setting_is_one_line(here: Command, setting: str, message: str) -> None:
    assert message in refused(here("run", "x.yaml", "-q", "--workers", "1", "--set", setting, "-o", "out"))
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ('container="csv"', "`container` must be one of CSV, JSON lines, parquet, got 'csv'"),
        ("ticks_per_s=0", "`ticks_per_s` must be a finite number above 0, got 0"),
        ('ticks="ms"', "`ticks` must be a function from a column of text to a column of numbers, got 'ms'"),
        ("ticks=lambda text: 1 / 0", "t.csv: `ticks` of the format log failed on `received_ms`: ZeroDivisionError"),
        ("ticks=lambda text: text", "must return a polars Series of 60 numbers, one for each row, got 60 of String"),
        ('output="tokens"', "t.csv looks like log, but lacks the column `tokens`"),
        ('arrival="route"', "t.csv, line 2 (and 59 more): `route` must be a number, got 'chat'"),
    ],
)
def test_a_bad_format_is_one_line(here: Command, tmp_path: Path, field: str, message: str) -> None:
    fields = {
        "name": "name='log'",
        "container": "container='CSV'",
        "arrival": "arrival='received_ms'",
        "prompt": "prompt='tokens_in'",
        "output": "output='tokens_out'",
        "ticks": "ticks=plain_number",
        "ticks_per_s": "ticks_per_s=1000",
        "time_rule": "time_rule='a number'",
    }
    fields[field.partition("=")[0]] = field
    made = f"GATEWAY = TraceFormat({', '.join(fields.values())})\n"
    (tmp_path / "my_format.py").write_text("from specsched.traces import TraceFormat, plain_number\n" + made)
    assert message in refused(here("run", "x.yaml", "-q", "--workers", "1", "-o", "out"))
    assert message in refused(here("traces", "show", "t.csv", "--format", "my_format:GATEWAY"))


def test_show_takes_a_name_or_an_object(here: Command) -> None:
    code, out, errors = here("traces", "show", "t.csv", "--format", "my_format:GATEWAY", "--json")
    assert (code, errors) == (0, "")
    told = json.loads(out)
    assert (told["format"], told["n"], told["duration_s"]) == ("gateway log", 60, 29.5)
    told = json.loads(here("traces", "show", "t.csv", "--format", "my_format:SLOW", "--json")[1])
    assert told["duration_s"] == 295.0
    code, out, _ = here("traces", "show", "vidur.csv", "--format", "vidur")
    assert code == 0
    assert out == here("traces", "show", "vidur.csv")[1]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("azur", "no trace format is called 'azur'; did you mean 'azure'?"),
        ("", "no trace format is called ''; choose from azure, vidur, mooncake, specsched"),
        ("nowhere_at_all:X", "cannot import `nowhere_at_all` of trace format object 'nowhere_at_all:X'"),
        ("my_format:", "must be 'module:NAME', got 'my_format:'"),
        ("mooncake", "t.csv is no trace of a known format: it holds CSV with"),
    ],
)
def test_show_refuses_what_is_no_format(here: Command, given: str, message: str) -> None:
    assert message in refused(here("traces", "show", "t.csv", "--format", given))


def test_the_names_are_those_of_the_shipped_formats(tmp_path: Path) -> None:
    from specsched.traces import FORMATS, NAMED_FORMATS

    assert sorted(kind.name for kinds in NAMED_FORMATS.values() for kind in kinds) == sorted(
        kind.name for kind in FORMATS
    )
    assert read_trace(tmp_path / "vidur.csv", NAMED_FORMATS["vidur"]).equals(read_trace(tmp_path / "vidur.csv"))
