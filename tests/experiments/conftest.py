"""Small finished runs that the tests of reports read; they change copies only."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from specsched.experiments import run_experiment
from specsched.experiments.tune.run import NothingFoundError, run_tuning

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


TUNED = """
workload: {lengths: {prompt: 20, output: 24}, cohort: 24, warmup: 8}
hardware: {profile: vllm-dsv4flash-b300-tp4}
drafts: {kind: constant, acceptance: 0.7, gamma: 4}
arms:
  static-1: {policy: {kind: static, k: 1}}
sweep: {load: [4]}
output: {figures: []}
tune:
  arm: static-1
  space:
    arms.static-1.policy.k: {low: 1, high: 6}
    drafts.gamma: {low: 4, high: 6}
    sweep.load: {low: 2, high: 40}
  objectives: [{maximize: throughput_at_anchor, anchor: 150, margin: 0.01}]
  constraints: [{metric: tpot_p99_s, at_most: 0.02}]
  seeds: {tuning: [0], testing: [10, 11, 12, 13, 14]}
  trials: 32
"""
"""At high loads the cohort is admitted all at once, which cannot be simulated, so some trials fail."""


@dataclass(frozen=True)
class Runs:
    """Folders of finished runs.

    Attributes:
        plain: five arms with step records and two figures.
        other: the same with another drafter and no records.
        sweep: two combinations with step records.
        wide: six combinations without records.
        tuned: a study with a searched load, some of whose trials are no experiments.
        pareto: the same with two objectives and too few trials to tell what matters.
        nothing: the same with an anchor that no trial meets.
    """

    plain: Path
    other: Path
    sweep: Path
    wide: Path
    tuned: Path
    pareto: Path
    nothing: Path


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
        run_experiment(str(source), folder / name, settings=changes, workers=1)
    return Runs(**{name: folder / name for name in settings}, **studies(folder))


def studies(folder: Path) -> dict[str, Path]:
    (folder / "tuned.yaml").write_text(TUNED, encoding="utf-8")
    two = "tune.objectives=[{maximize: throughput_tok_s_gpu}, {minimize: tpot_p99_s}]"
    unmet = "tune.objectives=[{maximize: throughput_at_anchor, anchor: 5000}]"
    found = {}
    for name, changes in {"tuned": [], "pareto": [two, "tune.trials=8"], "nothing": [unmet, "tune.trials=4"]}.items():
        found[name] = folder / name
        with suppress(NothingFoundError):
            run_tuning(str(folder / "tuned.yaml"), changes, found[name], workers=1, quiet=True)
    return found
