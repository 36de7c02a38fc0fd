"""The command ``specsched kernels bench``, in a process of its own, and its figure."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from specsched.experiments.config.errors import ConfigError
from specsched.experiments.show.bench import SCHEMA, bench_figure, bench_table, timed, write_table

pytestmark = pytest.mark.kernels

TIMES = ("p20_us", "p50_us", "p80_us", "repeats", "floor_us", "floor_over_p50")

SPOILED = """
import os
os.environ["TRITON_INTERPRET"] = "1"
from specsched.kernels.bench.cases_step import AdmitCase, LayoutCase
right = AdmitCase.eager
def off(case, given):
    return {name: each + 1 for name, each in right(case, given).items()}
def stop(case, given):
    raise KeyboardInterrupt
"""


def specsched(*arguments: str, before: str = "") -> subprocess.CompletedProcess[str]:
    """Run the command where nothing has chosen the interpreter yet."""
    clean = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    code = f"{before}\nfrom specsched.experiments.cli.main import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, "kernels", "bench", *arguments],
        env=clean | {"CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a run of admission writes on a machine without a GPU."""
    folder = tmp_path_factory.mktemp("bench") / "new"
    done = specsched("--op", "admit", "-o", str(folder))
    assert done.returncode == 0, done.stderr + done.stdout
    assert done.stdout.splitlines()[-1] == f"10 rows (4 ok, 6 unavailable) in {folder}"
    assert "admit layout R=33 B=96 fp32 | ours interpreter ok 0 of 193 differ" in done.stdout
    return folder


def test_the_table_has_its_columns(folder: Path) -> None:
    table = pl.read_parquet(folder / "bench.parquet")
    assert table.schema == pl.Schema(SCHEMA)
    assert len(table) == 10
    assert not (folder / "bench.part").exists()


def test_the_interpreter_has_no_times_and_torch_on_the_cpu_has(folder: Path) -> None:
    table = pl.read_parquet(folder / "bench.parquet")
    ours = table.filter(provider="ours")
    assert ours["mode"].to_list() == ["interpreter"] * 2
    assert ours["mismatches"].to_list() == [0, 0]
    assert ours.select(TIMES).null_count().row(0) == (2,) * 6
    plain = table.filter(provider="torch")
    assert plain["mode"].to_list() == ["cpu"] * 2
    assert plain.select(TIMES).null_count().row(0) == (0,) * 6
    assert plain["repeats"].to_list() == [30, 30]
    assert plain.filter((pl.col("p20_us") <= pl.col("p50_us")) & (pl.col("p50_us") <= pl.col("p80_us"))).height == 2
    ratio = plain["floor_us"] / plain["p50_us"] - plain["floor_over_p50"]
    assert float(ratio.abs().max()) < 1e-12  # type: ignore[arg-type]


def test_the_environment_is_told(folder: Path) -> None:
    found = json.loads((folder / "environment.json").read_text(encoding="utf-8"))
    assert found["kind"] == "cpu"
    assert found["threads"] == 1
    assert found["ceilings"]["product"] == "fp32 1024"
    assert found["ceilings"]["bytes_per_s"] > 0
    assert found["versions"]["torch"] is not None
    assert found["device"] == pl.read_parquet(folder / "bench.parquet")["device"][0]


def test_the_figure_is_of_the_rows_with_a_time(folder: Path) -> None:
    assert (folder / "bench.png").stat().st_size > 5000
    svg = (folder / "bench.svg").read_text(encoding="utf-8")
    assert svg.startswith("<?xml")


def test_a_dry_run_has_no_time_and_no_figure(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "bench.svg").write_text("of an earlier run")
    done = specsched("--op", "admit", "--op", "rnn", "--providers", "ours,torch", "--dry", "-o", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "no figure: no row of the benchmark has a time" in done.stdout
    table = pl.read_parquet(tmp_path / "bench.parquet")
    assert table.schema == pl.read_parquet(folder / "bench.parquet").schema
    assert set(table["mode"]) == {"dry"}
    assert set(table["op"]) == {"admit", "rnn"}
    assert table.select(TIMES).null_count().row(0) == (len(table),) * 6
    assert json.loads((tmp_path / "environment.json").read_text(encoding="utf-8"))["ceilings"] is None
    assert sorted(each.name for each in tmp_path.iterdir()) == ["bench.parquet", "environment.json"]


def test_a_wrong_provider_fails_the_command(tmp_path: Path) -> None:
    done = specsched("--op", "admit", "-o", str(tmp_path), before=SPOILED + "AdmitCase.eager = off")
    assert done.returncode == 1
    assert "torch cpu wrong 67 of 67 differ (67 of 67 integers differ from the float64 reference)" in done.stdout
    wrong = pl.read_parquet(tmp_path / "bench.parquet").filter(status="wrong")
    assert wrong["p50_us"].to_list() == [None]


def test_what_was_found_is_kept_when_a_run_is_stopped(tmp_path: Path) -> None:
    (tmp_path / "bench.svg").write_text("of an earlier run")
    done = specsched("--op", "admit", "-o", str(tmp_path), before=SPOILED + "LayoutCase.eager = stop")
    assert done.returncode == 130
    assert done.stderr == f"specsched: interrupted; 6 rows are in {tmp_path / 'bench.parquet'}\n"
    assert len(pl.read_parquet(tmp_path / "bench.parquet")) == 6
    assert not (tmp_path / "bench.svg").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--op", "sort"), "`op` must be one of markov, rnn, confidence, admit, attention, verify, got 'sort'"),
        (("--shapes", "big"), "`shapes` must be one of ci, real, got 'big'"),
        (("--providers", "ours,numpy"), "`providers` must be of ours, torch, compile, flashinfer, flash-attn, got "),
    ],
)
def test_names_that_do_not_exist(arguments: tuple[str, ...], message: str, tmp_path: Path) -> None:
    done = specsched(*arguments, "--dry", "-o", str(tmp_path / "new"))
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {message}")
    assert not (tmp_path / "new").exists()


def row(**values: Any) -> dict[str, Any]:
    found = {"op": "admit", "shape": "R=1", "provider": "ours", "mode": "gpu", "status": "ok", "device": "Fast"}
    return dict.fromkeys(SCHEMA) | found | {"p50_us": 2.0, "floor_us": 1.0, "floor_over_p50": 0.5} | values


def test_columns_are_the_fields_of_a_row() -> None:
    from specsched.kernels.bench.bench import Row

    assert [each.name for each in fields(Row)] == list(SCHEMA)


def test_a_table_is_written_whole(tmp_path: Path) -> None:
    write_table(bench_table([row()]), tmp_path / "bench.parquet")
    assert pl.read_parquet(tmp_path / "bench.parquet").height == 1
    with pytest.raises(OSError, match="absent"):
        write_table(bench_table([row()]), tmp_path / "absent/bench.parquet")


def test_a_figure_shows_floor_over_median() -> None:
    rows = [row(), row(provider="torch", floor_over_p50=0.25), row(shape="R=2", floor_over_p50=0.75)]
    (axes,) = bench_figure(bench_table(rows)).axes
    drawn = {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in axes.get_lines()}
    assert drawn["ours"] == ([0.5, 0.75], [0, -1])
    assert drawn["torch"] == ([0.25], [0])
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["admit  R=1", "admit  R=2"]
    assert axes.get_title() == "Fast (gpu)"


def test_a_figure_shows_points_past_the_floor() -> None:
    (axes,) = bench_figure(bench_table([row(floor_over_p50=1.4)])).axes
    assert axes.get_xlim()[1] > 1.4


@pytest.mark.parametrize("mode", ["interpreter", "dry"])
def test_no_figure_of_rows_without_a_time(mode: str) -> None:
    untimed = row(mode=mode, p50_us=None, floor_us=None, floor_over_p50=None)
    with pytest.raises(ConfigError, match=f"got admit R=1 ours of mode {mode} without one"):
        bench_figure(bench_table([row(provider="torch"), untimed]))
    assert timed(bench_table([row(), untimed])).height == 1


def test_no_figure_of_a_time_out_of_the_interpreter() -> None:
    with pytest.raises(ConfigError, match="of mode interpreter"):
        bench_figure(bench_table([row(mode="interpreter")]))


def test_no_figure_of_nothing_or_of_two_devices() -> None:
    with pytest.raises(ConfigError, match="no row of the benchmark has a time"):
        bench_figure(bench_table([]))
    with pytest.raises(ConfigError, match="one device, got Fast, Slow"):
        bench_figure(bench_table([row(), row(shape="R=2", device="Slow")]))
