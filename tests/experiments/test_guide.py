"""The guide's own-trace, own-policy and Python examples run as they are printed."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

GUIDE = (Path(__file__).resolve().parents[2] / "docs" / "guide.md").read_text(encoding="utf-8")
COMMAND = [sys.executable, "-c", "from specsched.experiments.cli.main import main; main()"]


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL)


def commands(word: str) -> list[str]:
    lines = [line[2:] for block in blocks("console") for line in block.splitlines() if line.startswith("$ specsched")]
    return [line for line in lines if word in line]


def run(line: str, folder: Path, *more: str) -> str:
    """Run a printed command, shortened by further settings."""
    words = shlex.split(line)[1:]
    done = subprocess.run([*COMMAND, *words, *more], cwd=folder, env=os.environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


SHORT = ("--workers", "1", "--set", "seeds=[0]", "--set", "workload.cohort=8")


def test_own_trace(tmp_path: Path) -> None:
    rows = blocks("csv")[0]
    for number in range(3, 60):
        rows += f"{number},{number / 2},300,{20 + number}\n"
    (tmp_path / "my_trace.csv").write_text(rows)
    show, lengths, arrivals = commands("my_trace.csv")
    assert "60" in run(show, tmp_path)
    assert "async-lag2" in run(lengths, tmp_path, *SHORT, "--set", "sweep.load=[4]")
    assert "async-lag2" in run(arrivals, tmp_path, "--workers", "1", "--set", "seeds=[0]")


def test_own_policy(tmp_path: Path) -> None:
    (tmp_path / "my_policy.py").write_text(next(block for block in blocks("python") if "CountLikely" in block))
    (command,) = commands("my_policy")
    run(command, tmp_path, *SHORT, "--set", "sweep.load=[4]")
    points = pl.read_parquet(tmp_path / "runs" / "mine" / "points.parquet")
    mine = points.filter(pl.col("arm") == "mine")
    assert mine["safety"].to_list() == ["safe"]
    assert 1.0 < mine["verify_budget"].item() < 8.0


def saved(name: str) -> str:
    """What the guide says to save under a name."""
    (source,) = re.findall(rf"Save this as `{re.escape(name)}`:\n\n```\w+\n(.*?)```", GUIDE, re.DOTALL)
    return str(source)


def test_own_trace_format(tmp_path: Path) -> None:
    for name in ("my_format.py", "gateway.csv"):
        (tmp_path / name).write_text(saved(name))
    show, sweep = commands("gateway.csv")
    assert "gateway log" in run(show, tmp_path)
    more = [f"{1_700_000_001_000 + 250 * number},chat,300,{20 + number}\n" for number in range(60)]
    (tmp_path / "gateway.csv").write_text(saved("gateway.csv") + "".join(more))
    run(sweep, tmp_path, *SHORT, "--set", "sweep.load=[4]", "--set", "output.records=[requests]", "--workers", "2")
    requests = pl.read_parquet(tmp_path / "runs" / "gateway" / "requests" / "static-3-4-0.parquet")
    assert set(requests["output_tokens"].to_list()) <= {44, 109, 55, *range(20, 80)}


def test_own_draft_model(tmp_path: Path) -> None:
    for name in ("my_drafts.py", "test_my_drafts.py"):
        (tmp_path / name).write_text(saved(name))
    (command,) = commands("my_drafts")
    run(command, tmp_path, *SHORT, "--set", "sweep.load=[4]", "--workers", "2")
    points = pl.read_parquet(tmp_path / "runs" / "fading" / "points.parquet")
    lengths = dict(points.select("arm", "accepted_length").rows())
    assert lengths["static-1"] == pytest.approx(1.9, abs=0.1)
    assert lengths["static-1"] < lengths["static-3"] < lengths["static-7"] <= lengths["oracle"] + 0.5
    pytest_command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_my_drafts.py"]
    done = subprocess.run(pytest_command, cwd=tmp_path, env=os.environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "7 passed" in done.stdout


def test_from_python(capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(blocks("python")[-1], "guide.md", "exec"), {"__name__": "guide"})
    assert float(capsys.readouterr().out.splitlines()[0]) > 0


def test_an_experiment_from_python(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(next(block for block in blocks("python") if "run_experiment" in block))
    done = subprocess.run([sys.executable, "mine.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "throughput_tok_s_gpu" in done.stdout
    assert len(pl.read_parquet(tmp_path / "runs" / "from_python" / "points.parquet")) == 4
