"""Re-run the smallest load of the committed frontier and compare every figure of every arm and seed.

On one machine type and one set of versions the tables are equal to the byte. Between instruction sets ``exp`` and
``log`` differ in the last bit, so floats are compared to a relative 1e-6 and counts exactly. A last bit could also
flip an acceptance (its uniform would have to lie within 1e-16 of its probability: a chance of about 1e-9 in 10^7
drafts) or a choice between two budgets of equal value; either changes counts and is reported, not excused.

Usage: python benchmarks/check_frontier.py [--config FILE] [--points FILE]
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
import tempfile
from pathlib import Path

import polars as pl

ROOT = Path(__file__).resolve().parents[1]
KEY = ["arm", "load", "seed"]
RELATIVE = 1e-6


def same(committed: object, fresh: object) -> bool:
    """Tell whether two cells agree: floats to 1e-6, anything else exactly; nulls and NaNs only with their like."""
    if isinstance(committed, float) and isinstance(fresh, float):
        both_nan = math.isnan(committed) and math.isnan(fresh)
        return both_nan or math.isclose(committed, fresh, rel_tol=RELATIVE, abs_tol=0.0)
    return type(committed) is type(fresh) and committed == fresh


def differences(committed: pl.DataFrame, fresh: pl.DataFrame) -> list[str]:
    """Return one line for each column, row or cell in which two points tables differ."""
    if committed.columns != fresh.columns:
        return [f"columns: committed {committed.columns}, now {fresh.columns}"]
    before = {tuple(row[name] for name in KEY): row for row in committed.iter_rows(named=True)}
    now = {tuple(row[name] for name in KEY): row for row in fresh.iter_rows(named=True)}
    lines = [f"{key}: committed, not run now" for key in before.keys() - now.keys()]
    lines += [f"{key}: run now, not committed" for key in now.keys() - before.keys()]
    for key in before.keys() & now.keys():
        for name in committed.columns:
            if not same(before[key][name], now[key][name]):
                lines.append(f"{key} {name}: committed {before[key][name]!r}, now {now[key][name]!r}")
    return sorted(lines)


def run(config: Path, load: float, folder: Path) -> pl.DataFrame:
    """Run one load of an experiment with the installed command and return its points."""
    script = "from specsched.experiments.cli.main import main; main()"
    command = [sys.executable, "-c", script, "run", str(config), "-o", str(folder), "-q", "--set"]
    subprocess.run(
        [*command, f"sweep.load=[{load:g}]"], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    return pl.read_parquet(folder / "points.parquet")


def main() -> int:
    """Return 0 if the smallest load agrees with the committed points, else 1."""
    parser = argparse.ArgumentParser(description="Compare the frontier's smallest load with the committed points.")
    parser.add_argument("--config", type=Path, default=ROOT / "experiments/frontier.yaml")
    parser.add_argument("--points", type=Path, default=ROOT / "docs/frontier/points.parquet")
    given = parser.parse_args()
    points = pl.read_parquet(given.points)
    load = points.sort("load")["load"][0]
    committed = points.filter(pl.col("load") == load)
    with tempfile.TemporaryDirectory() as folder:
        fresh = run(given.config, float(load), Path(folder) / "run")
    lines = differences(committed, fresh)
    print(f"{committed.height} committed points at load {load}: {len(lines)} differences", *lines[:20], sep="\n  ")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
