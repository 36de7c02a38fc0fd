from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import polars as pl
import pytest

from specsched.experiments.config.errors import ConfigError, PointError
from specsched.experiments.config.resolve import load_experiment
from specsched.experiments.config.schema import Experiment
from specsched.experiments.sweep import store
from specsched.experiments.sweep.executors import processes
from specsched.experiments.sweep.identity import identity
from specsched.experiments.sweep.points import PointResult
from specsched.experiments.sweep.runner import Task, longest_first, run_points, sweep_points
from specsched.experiments.sweep.store import Point
from specsched.policies.interface import PolicyError
from specsched.sim.metrics import LEADING
from tests.experiments.commands import command, contents, run_command, wait_until

TEXT = """\
workload: {lengths: {prompt: 100, output: 40}, cohort: 40}
hardware: {profile: vllm-dsv4flash-b300-tp4}
drafts: {kind: constant, acceptance: 0.7}
arms:
  static-3: {policy: {kind: static, k: 3}}
  async-lag2: {policy: {kind: async_topk, lag: 2}}
  oracle: {policy: {kind: oracle}, unsafe: true}
sweep: {load: [1, 4]}
seeds: [0, 1]
"""


@pytest.fixture
def experiment(tmp_path: Path) -> Experiment:
    (tmp_path / "x.yaml").write_text(TEXT)
    return load_experiment(tmp_path / "x.yaml")


def points_of(experiment: Experiment) -> list[Point]:
    return sweep_points(experiment, identity(experiment))


class Fake:
    """Stands in for the simulator and notes what it was asked for."""

    def __init__(self, fail_at: int | None = None, error: BaseException | None = None) -> None:
        self.calls: list[tuple[str, float, int]] = []
        self.fail_at = fail_at
        self.error = error

    def __call__(self, experiment: Experiment, arm: str, load: float, seed: int) -> PointResult:
        self.calls.append((arm, load, seed))
        if len(self.calls) == self.fail_at and self.error is not None:
            raise self.error
        return PointResult({"throughput_tok_s_gpu": load * 0.1 + seed, "extra": 1, "safety": "safe", "bound": False})


def test_every_point_is_computed_once_and_the_table_is_sorted(experiment: Experiment, tmp_path: Path) -> None:
    fake, ticks = Fake(), []
    sweep = run_points(
        [experiment], points_of(experiment), tmp_path / "out", processes(1), lambda: ticks.append(1), fake
    )
    table = sweep.table
    assert len(fake.calls) == len(set(fake.calls)) == len(ticks) == 3 * 2 * 2
    assert table.select("arm", "load", "seed").rows() == sorted(fake.calls)
    assert table["throughput_tok_s_gpu"].to_list() == [load * 0.1 + seed for _, load, seed in sorted(fake.calls)]


def test_the_table_has_the_promised_columns_first_and_fixed_types(experiment: Experiment, tmp_path: Path) -> None:
    table = run_points([experiment], points_of(experiment), tmp_path / "out", processes(1), run=Fake()).table
    assert table.columns == ["arm", "load", "seed", *LEADING, "extra", "safety", "bound"]
    types = {"arm": pl.String, "load": pl.Float64, "seed": pl.Int64, "regret": pl.Float64, "extra": pl.Int64}
    assert {name: table.schema[name] for name in types} == types
    assert (table.schema["safety"], table.schema["bound"]) == (pl.String, pl.Boolean)


@pytest.mark.parametrize(("mode", "order"), [("closed", [16.0, 4.0, 1.0]), ("open", [1.0, 4.0, 16.0])])
def test_expensive_points_come_first(experiment: Experiment, mode: str, order: list[float]) -> None:
    changed = experiment.model_copy(update={"workload": experiment.workload.model_copy(update={"mode": mode})})
    tasks = [Task(changed, Point("a", load, 0, ""), Fake()) for load in (1.0, 16.0, 4.0)]
    assert [task.point.load for task in longest_first(tasks)] == order


def test_a_failing_point_is_named_and_the_finished_ones_are_kept(experiment: Experiment, tmp_path: Path) -> None:
    points, folder = points_of(experiment), tmp_path / "out"
    broken = Fake(fail_at=5, error=PolicyError("lengths are wrong"))
    with pytest.raises(PointError) as caught:
        run_points([experiment], points, folder, processes(1), run=broken)
    arm, load, seed = broken.calls[-1]
    assert str(caught.value) == f"arm {arm}, load {load:g}, seed {seed}: lengths are wrong"
    assert caught.value.trace is None
    assert len(list((folder / "points").iterdir())) == 4

    whole = Fake()
    table = run_points([experiment], points, folder, processes(1), run=whole).table
    assert set(whole.calls) == set(table.select("arm", "load", "seed").rows()) - set(broken.calls[:4])


def test_an_error_nobody_expects_keeps_its_traceback(experiment: Experiment, tmp_path: Path) -> None:
    with pytest.raises(PointError, match="ZeroDivisionError: by zero") as caught:
        run_points(
            [experiment], points_of(experiment), tmp_path, processes(1), run=Fake(1, ZeroDivisionError("by zero"))
        )
    assert caught.value.trace is not None
    assert "Traceback" in caught.value.trace


@pytest.mark.parametrize("value", [0.1 + 0.2, 5e-324, 1.7976931348623157e308, -0.0, 1 / 3, 12345678901234567])
def test_numbers_read_back_exactly(tmp_path: Path, value: float) -> None:
    point = Point("a", 1.0, 0, "key")
    store.save(tmp_path, point, PointResult({"x": value}))
    entry = store.load(tmp_path, point, [])
    assert entry is not None
    assert (repr(entry["x"]), type(entry["x"])) == (repr(value), type(value))


def test_a_metric_that_is_not_a_number_is_not_stored(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        store.save(tmp_path, Point("a", 1.0, 0, "key"), PointResult({"x": float("nan")}))


def test_a_point_without_its_records_is_not_finished(tmp_path: Path) -> None:
    point = Point("a", 2.0, 0, "key")
    store.save(tmp_path, point, PointResult({"x": 1}, steps=pl.DataFrame({"step": [0]})))
    assert (tmp_path / "steps" / "a-2-0.parquet").is_file()
    assert store.load(tmp_path, point, ["steps"]) is not None
    assert store.load(tmp_path, point, ["steps", "rows"]) is None


def test_a_damaged_point_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "points").mkdir()
    (tmp_path / "points" / "key.json").write_text('{"arm": ')
    with pytest.raises(ConfigError, match=r"key.json is damaged; delete it and use --resume to compute arm a, load 1"):
        store.load(tmp_path, Point("a", 1.0, 0, "key"), [])


def keys(tmp_path: Path, *changes: tuple[str, str]) -> dict[tuple[str, float, int], str]:
    text = TEXT
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (tmp_path / "k.yaml").write_text(text)
    points = points_of(load_experiment(tmp_path / "k.yaml"))
    assert len({point.key for point in points}) == len(points)
    return {(point.arm, point.load, point.seed): point.key for point in points}


def test_a_points_key_depends_on_what_the_point_depends_on(tmp_path: Path) -> None:
    before = keys(tmp_path)
    for change in [
        ("acceptance: 0.7", "acceptance: 0.71"),
        ("cohort: 40", "cohort: 41"),
        ("vllm-dsv4flash-b300-tp4", "llama31-8b-h100"),
        ("seeds: [0, 1]", "seeds: [0, 1]\nprefill: {kind: disaggregated, tokens_per_s: 1, slots: 1}"),
        ("seeds: [0, 1]", "seeds: [0, 1]\noutput: {records: [steps]}"),
        ("seeds: [0, 1]", "seeds: [0, 1]\nsla: {tpot_s: 0.1}"),
    ]:
        assert not set(before.values()) & set(keys(tmp_path, change).values()), change


def test_a_points_key_does_not_depend_on_other_points(tmp_path: Path) -> None:
    before = keys(tmp_path)
    more = keys(tmp_path, ("load: [1, 4]", "load: [1, 4, 8]"), ("[0, 1]", "[0, 1, 2]"))
    assert {name: more[name] for name in before} == before
    other = keys(tmp_path, ("lag: 2", "lag: 1"))
    assert {name[0] for name in before if before[name] != other[name]} == {"async-lag2"}


def test_without_the_oracle_regret_is_another_matter(tmp_path: Path) -> None:
    before, after = keys(tmp_path), keys(tmp_path, ("  oracle: {policy: {kind: oracle}, unsafe: true}\n", ""))
    assert not set(before.values()) & set(after.values())


def test_the_content_of_a_trace_counts_and_its_place_does_not(tmp_path: Path) -> None:
    rows = "arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,10,{}\n1.0,10,20\n"
    one, same, other = (tmp_path / name for name in ("one.csv", "same.csv", "other.csv"))
    one.write_text(rows.format(5))
    same.write_text(rows.format(5))
    other.write_text(rows.format(6))
    found = [keys(tmp_path, ("cohort: 40", f"path: {file}, cohort: 40")) for file in (one, same, other)]
    assert found[0] == found[1]
    assert not set(found[0].values()) & set(found[2].values())


# --- the same bytes, whoever computes them


def test_bytes_depend_neither_on_workers_nor_on_threads(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(TEXT + "output: {records: [steps, requests, rows], figures: [frontier, load]}\n")
    for name, workers, threads in (("a", "1", 1), ("b", "2", 4), ("c", "1", 4)):
        folder = str(tmp_path / name)
        run_command(str(tmp_path / "x.yaml"), "-o", folder, "--workers", workers, threads=threads)
    whole = contents(tmp_path / "a")
    assert {"points.parquet", "summary.json", "config.yaml", "frontier.svg", "load.png"} <= set(whole)
    assert len(whole) >= 12 * 4 + 7
    assert whole == contents(tmp_path / "b") == contents(tmp_path / "c")


def test_a_run_stopped_by_ctrl_c_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(TEXT.replace("[0, 1]", "[0, 1, 2, 3]").replace("cohort: 40", "cohort: 400"))
    config, out = str(tmp_path / "x.yaml"), tmp_path / "stopped"
    line, environment = command(config, "-o", str(out), "--workers", "2")
    process = subprocess.Popen(line, env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    for _ in wait_until(lambda: any((out / "points").glob("*.json"))):
        assert process.poll() is None, process.stderr and process.stderr.read()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    finished = len(list((out / "points").glob("*.json")))
    assert 1 <= finished < 24
    assert "Traceback" not in errors
    assert f"specsched: stopped with {finished} of 24 points finished" in errors
    assert f"-o {out} --resume" in errors
    assert not (out / "points.parquet").exists()
    assert json.loads((out / "manifest.json").read_bytes())["status"] == "interrupted"

    run_command(config, "-o", str(out), "--resume", "--workers", "1")
    run_command(config, "-o", str(tmp_path / "whole"), "--workers", "2")
    assert contents(out) == contents(tmp_path / "whole")
    assert json.loads((out / "manifest.json").read_bytes())["computed"] == 24 - finished


@pytest.mark.deep
def test_a_point_with_a_million_row_records_has_the_same_bytes_on_any_number_of_threads(tmp_path: Path) -> None:
    text = TEXT.replace("load: [1, 4]", "load: [256]").replace("cohort: 40", "cohort: 4200")
    text = text.replace("output: 40", "output: 800").replace("  oracle: {policy: {kind: oracle}, unsafe: true}\n", "")
    text = text.replace("  static-3: {policy: {kind: static, k: 3}}\n", "")
    (tmp_path / "x.yaml").write_text(text + "output: {records: [steps, requests, rows]}\n")
    for name, workers, threads in (("a", "1", 1), ("b", "2", 4)):
        folder = str(tmp_path / name)
        run_command(str(tmp_path / "x.yaml"), "-o", folder, "--workers", workers, threads=threads)
    for file in (tmp_path / "a" / "rows").iterdir():
        assert pl.scan_parquet(file).select(pl.len()).collect().item() >= 1_000_000
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
