"""Check that a run folder is whole: every point of the resolved configuration, figures and tables in place.

Usage: python .ci/check_run.py FOLDER
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import polars as pl

FILES = ("config.yaml", "manifest.json", "points.parquet", "summary.json", "frontier.svg", "frontier.png")


def problems(folder: Path) -> list[str]:
    """Return what is missing from or wrong with a run folder."""
    found = [f"{name}: missing or empty" for name in FILES if not _filled(folder / name)]
    if found:
        return found
    json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    points = pl.read_parquet(folder / "points.parquet")
    keys = points.select("arm", "load", "seed")
    grid = keys["arm"].n_unique() * keys["load"].n_unique() * keys["seed"].n_unique()
    if keys.n_unique() != grid or points.height != grid:
        found.append(f"points.parquet: {points.height} rows for {grid} combinations of arm, load and seed")
    for name in ("throughput_tok_s_gpu", "interactivity_tok_s_user", "requests", "steps", "window_s"):
        low = points.filter(pl.col(name).is_null() | ~(pl.col(name) > 0))
        found += [f"points.parquet: {name} = {row[name]} in {row['arm']}" for row in low.iter_rows(named=True)]
    return found


def _filled(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0


def main() -> int:
    """Return 0 if the folder named on the command line is whole, else 1."""
    found = problems(Path(sys.argv[1]))
    print(*found or ["the run folder is whole"], sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
