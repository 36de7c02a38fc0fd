"""The commands ``traces show`` and ``traces generate``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from specsched.experiments.cli.traces import app
from specsched.traces import TraceError, generate_trace, read_trace, rounded_statistics, trace_statistics, write_trace


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "requests.csv"
    write_trace(generate_trace(400, 2.0, "azure-code", seed=2), path)
    return path


def test_show_prints_every_statistic(file: Path) -> None:
    result = CliRunner().invoke(app, ["show", str(file)])
    assert result.exit_code == 0, result.output
    words = set(result.output.replace("│", " ").split())
    assert str(file) in result.output
    for name, value in rounded_statistics(trace_statistics(read_trace(file))).items():
        assert name.removeprefix("in_").removeprefix("out_") in words
        assert ("-" if value is None else str(value)) in words


def test_show_as_json(file: Path) -> None:
    result = CliRunner().invoke(app, ["show", str(file), "--json"])
    assert result.exit_code == 0, result.output
    expected = {"trace": "requests.csv", "format": "specsched CSV"}
    assert json.loads(result.output) == {**expected, **rounded_statistics(trace_statistics(read_trace(file)))}


def test_show_leaves_a_bad_file_to_the_main_command(tmp_path: Path) -> None:
    (tmp_path / "empty.csv").touch()
    result = CliRunner().invoke(app, ["show", str(tmp_path / "empty.csv")])
    assert isinstance(result.exception, TraceError)
    assert not result.output


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_generate(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"made.{suffix}"
    options = ["-n", "30", "--rate", "2", "--lengths", "mooncake-conversation", "--cv", "3", "--seed", "5"]
    result = CliRunner().invoke(app, ["generate", *options, "-o", str(path)])
    assert result.exit_code == 0, result.output
    made = generate_trace(30, 2.0, "mooncake-conversation", 5, cv=3.0)
    assert read_trace(path).drop("arrival_s").equals(made.drop("arrival_s"))


def test_generate_does_not_overwrite(file: Path) -> None:
    before = file.read_bytes()
    result = CliRunner().invoke(app, ["generate", "-n", "3", "--rate", "1", "-o", str(file)])
    assert isinstance(result.exception, TraceError)
    assert "exists" in str(result.exception)
    assert file.read_bytes() == before
