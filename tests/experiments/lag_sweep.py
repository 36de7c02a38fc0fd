"""A sweep over two axes, lag and noise, that the tests of plans and effects share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from specsched.experiments.sweep.plan import load_plan

TEXT = """\
workload: {lengths: {prompt: 100, output: 40}, cohort: 40}
hardware: {profile: vllm-dsv4flash-b300-tp4}
drafts: {kind: constant, acceptance: 0.7}
arms:
  static-3: {policy: {kind: static, k: 3}}
  async: {policy: {kind: async_topk, lag: 2}}
sweep:
  load: [1, 4]
  axes:
    arms.async.policy.lag: [1, 2]
    noise:
      none: {hardware.noise_cv: 0.0}
      some: {hardware.noise_cv: 0.1, workload.cohort: 50}
seeds: [0, 1]
output: {figures: []}
"""


def plan_of(tmp_path: Path, text: str = TEXT, *settings: str) -> Any:
    (tmp_path / "x.yaml").write_text(text)
    return load_plan(tmp_path / "x.yaml", settings)


def effect_points(metric: Any) -> pl.DataFrame:
    rows = [
        {"arm": arm, "load": load, "seed": seed, "arms.async.policy.lag": lag, "noise": noise,
         "throughput_tok_s_gpu": metric(arm, load, seed, lag, noise), "safety": "safe", "bound": False}
        for lag in (1, 2) for noise in ("none", "some") for arm in ("async", "static-3")
        for load in (1.0, 4.0) for seed in range(5)
    ]  # fmt: skip
    return pl.DataFrame(rows)
