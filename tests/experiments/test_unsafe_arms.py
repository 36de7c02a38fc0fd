"""A biased scheduler of the user's, from the command line: refused, or run and called biased."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import polars as pl
import pytest

from specsched.experiments.cli import main as cli

EXPERIMENT = """\
workload: {lengths: {prompt: 100, output: 30}, cohort: 12}
hardware: {profile: vllm-dsv4flash-b300-tp4}
drafts: {kind: latent, profile: dspark-qwen3-4b}
arms:
  static-1: {policy: {kind: static, k: 1}}
  mine: {policy: {kind: python, object: 'hasty_policies:Hasty'}}
sweep: {load: [2, 6]}
seeds: [0]
"""
POLICY = """
import numpy as np
from dataclasses import dataclass
from specsched.policies import Policy

@dataclass(frozen=True)
class Hasty(Policy):
    safety = "safe"
    def plan(self, view, state):
        return np.where(view.survival[:, -1] < 0.2, 0, view.available), state
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "hasty_policies", raising=False)
    (tmp_path / "x.yaml").write_text(EXPERIMENT)
    (tmp_path / "hasty_policies.py").write_text(POLICY)
    return tmp_path


def specsched(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["specsched", *arguments])
    with pytest.raises(SystemExit) as end:
        cli.main()
    return int(end.value.code or 0)


def test_it_is_refused_before_anything_runs(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    code = specsched(monkeypatch, "run", "x.yaml", "--workers", "1", "-q", "-o", "out")
    (line,) = capfd.readouterr().err.splitlines()
    assert code == 2
    assert line.startswith("error: arm mine: policy `Hasty` breaks the row-wise rule")
    assert "`specsched check hasty_policies:Hasty`" in line
    assert "`unsafe: true` on its arm" in line
    assert not list(folder.glob("out/points/*"))


def test_it_runs_marked_biased_where_the_arm_says_unsafe(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = ("run", "x.yaml", "--workers", "2", "-q", "-o", "out", "--set", "arms.mine.unsafe=true")
    assert specsched(monkeypatch, *arguments) == 0
    assert "mine (biased)" in capfd.readouterr().out
    points = pl.read_parquet(folder / "out" / "points.parquet")
    safety = dict(points.select("arm", "safety").unique().rows())
    assert safety == {"static-1": "safe", "mine": "unsafe"}
    assert "mine (biased)" in (folder / "out" / "frontier.svg").read_text()
    frontier = json.loads((folder / "out" / "summary.json").read_text())["frontier"]
    assert "mine" not in str(frontier)
    assert "static-1" in str(frontier)
