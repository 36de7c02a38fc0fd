"""Small finished runs that the tests of reports read; they change copies only."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from specsched.experiments.run_command import run_experiment

PLAIN = """
workload: {lengths: {prompt: 20, output: 24}, cohort: 24, warmup: 8}
hardware: {profile: vllm-dsv4flash-b300-tp4}
drafts: {kind: constant, acceptance: 0.7, gamma: 4}
arms:
  autoregressive: {policy: {kind: autoregressive}}
  static-3: {policy: {kind: static, k: 3}, draft_cost: {scale: 1, band: [0.5, 1.5]}}
  threshold-40: {policy: {kind: threshold, t: 0.4}}
  async: {policy: {kind: async_topk, lag: 1}}
  oracle: {policy: {kind: oracle}, unsafe: true}
sweep: {load: [2, 8]}
sla: {tpot_s: 0.01}
"""

SWEEP = """
workload: {lengths: {prompt: 20, output: 24}, cohort: 24, warmup: 8}
hardware: {profile: vllm-dsv4flash-b300-tp4}
drafts: {kind: latent, profile: dspark-qwen3-4b}
arms:
  static-3: {policy: {kind: static, k: 3}}
  async: {policy: {kind: async_topk, lag: 1}}
sweep:
  load: [2, 8]
  axes:
    arms.async.policy.lag: [1, 2]
output:
  records: [steps]
  effects:
    - {metric: throughput_tok_s_gpu, along: arms.async.policy.lag, against: 1, lines: load, arms: [async]}
"""


@dataclass(frozen=True)
class Runs:
    """Folders of finished runs.

    Attributes:
        plain: five arms with step records and two figures.
        other: the same with another drafter and no records.
        sweep: two combinations with step records.
        wide: six combinations without records.
    """

    plain: Path
    other: Path
    sweep: Path
    wide: Path


@pytest.fixture(scope="session")
def report_runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    folder = tmp_path_factory.mktemp("report")
    files = {"plain": PLAIN, "sweep": SWEEP}
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    recorded = ["output.records=[steps]", "output.figures=[frontier, load, threshold]"]
    axes = ["output.records=[]", "seeds=[0, 1]", "sweep.load=[4]", "sweep.axes.hardware.noise_cv=[0, 0.1, 0.2]"]
    settings = {"plain": recorded, "other": ["drafts.acceptance=0.8"], "sweep": [], "wide": axes}
    for name, changes in settings.items():
        source = folder / ("plain.yaml" if name in ("plain", "other") else "sweep.yaml")
        run_experiment(str(source), changes, folder / name, workers=1, quiet=True)
    return Runs(**{name: folder / name for name in settings})
