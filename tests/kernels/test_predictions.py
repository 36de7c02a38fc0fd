"""The three predictions are judged from right, timed rows of a GPU, and of nothing else."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from specsched.experiments.show.bench import bench_table
from specsched.kernels.bench.bench import Row
from specsched.kernels.bench.shapes import select

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "benchmarks" / "gpu_predictions.py"


def script() -> Any:
    spec = importlib.util.spec_from_file_location("gpu_predictions", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rows(inverse: float, gumbel: float, packed: float, **changes: Any) -> list[dict[str, Any]]:
    """Rows as the benchmark of the real shapes would have them; times are made up, to judge the judging."""
    times = {"inverse_cdf R=256": inverse, "gumbel R=256": gumbel, "packed": packed}
    found = []
    for shape in select("real"):
        time = next((value for start, value in times.items() if shape.label.startswith(start)), 1.0)
        # Only one of the ways to cut the context is as fast.
        time *= 2.0 if "split=1" in shape.label else 1.0
        row = Row(shape.op, shape.label, "ours", "gpu", "ok", p20_us=time, p50_us=time, p80_us=time)
        found.append(asdict(row) | changes)
    return found


@pytest.mark.parametrize(
    ("times", "held"),
    [
        ((40.9, 122.8, 312.0), [True, True, True]),
        ((41.0, 122.9, 313.0), [False, False, False]),
        ((30.0, 200.0, 240.0), [True, True, True]),
    ],
)
def test_predictions_are_judged_at_their_limits(times: tuple[float, float, float], held: list[bool]) -> None:
    verdicts = script().judge(rows(*times))
    assert [each["held"] for each in verdicts] == held
    assert [each["measured"] for each in verdicts] == [times[0], times[1] / times[0], times[2]]


@pytest.mark.parametrize(
    "changes",
    [{"mode": "cpu"}, {"mode": "dry"}, {"mode": "interpreter"}, {"status": "wrong"}, {"provider": "torch"},
     {"p50_us": None}],
)  # fmt: skip
def test_nothing_else_counts_as_a_measurement(changes: dict[str, Any]) -> None:
    verdicts = script().judge(rows(30.0, 200.0, 240.0, **changes))
    assert [(each["held"], each["measured"]) for each in verdicts] == [(None, None)] * 3


def test_the_command_writes_its_verdicts_and_names_a_missing_table(tmp_path: Path) -> None:
    run = [sys.executable, str(SCRIPT), str(tmp_path)]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "bench.parquet is not there; run `specsched kernels bench --shapes real" in done.stderr
    bench_table(rows(30.0, 60.0, 240.0)).write_parquet(tmp_path / "bench.parquet")
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    assert [line.split(": ")[1] for line in done.stdout.splitlines()] == ["held (30)", "failed (2)", "held (240)"]
    assert [each["held"] for each in json.loads((tmp_path / "predictions.json").read_text())] == [True, False, True]
