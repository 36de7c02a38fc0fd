"""How often does tuning find a planted optimum? ``python benchmarks/tune_planted.py [--studies 10] [--trials 60]``.

Runs `experiments/tune_planted.yaml` with study seeds 0, 1, .. Points are computed once for all studies: they do not
depend on the study's seed. For each study it prints the setting chosen and the trial at which it was first tried.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import polars as pl

from specsched.experiments.config.given import shipped_experiments
from specsched.experiments.sweep.executors import processes
from specsched.experiments.tune import study as tune_study
from specsched.experiments.tune.points import Evaluator
from specsched.experiments.tune.run import front_of, measuring
from specsched.experiments.tune.space import load_space

PLANTED = {"arms.static.policy.k": 1, "sweep.load": 32}


def study(seed: int, trials: int, sampler: str, folder: Path, points: Path) -> tuple[dict[str, int], int]:
    """Return the parameters a study chooses and the trial at which they were tried."""
    settings = [f"tune.seed={seed}", f"tune.sampler={sampler}"]
    space = load_space(shipped_experiments()["tune_planted"], settings, trials)
    folder.mkdir()
    opened = tune_study.open_study(folder, space, "benchmark")
    tune_study.search(opened, space, measuring(Evaluator(points, space.tune.arm, processes(1)), space.tune))
    table = tune_study.trials_table(opened, space)
    best = front_of(table, space.tune.objectives)[0]
    row = table.row(by_predicate=pl.col("trial") == best, named=True)
    return {key: row[key] for key in PLANTED}, best


def main() -> None:
    """Run the studies and count."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--studies", type=int, default=10)
    parser.add_argument("--trials", type=int, default=None)
    parser.add_argument("--sampler", choices=("tpe", "random"), default="tpe")
    given = parser.parse_args()
    found, began = 0, time.monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        for seed in range(given.studies):
            chosen, trial = study(seed, given.trials, given.sampler, Path(temporary) / str(seed), Path(temporary) / "p")
            found += chosen == PLANTED
            print(f"study seed {seed}: {chosen} in trial {trial}{'' if chosen == PLANTED else '  (missed)'}")
    print(f"planted optimum found in {found} of {given.studies} studies, {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
