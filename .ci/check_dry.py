"""Check what `benchmarks/gpu.sh --dry FOLDER` left: nothing in it may pass for a time or a result of a GPU.

Usage: python .ci/check_dry.py FOLDER
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import polars as pl

from specsched.experiments.config.errors import ConfigError
from specsched.experiments.show.bench import bench_figure

TIMES = ["p20_us", "p50_us", "p80_us", "floor_us", "floor_over_p50", "repeats"]


def problems(folder: Path) -> list[str]:
    """Return what is wrong with a dry run's folder, in words."""
    found = []
    for name in ("small", "bench"):
        table = pl.read_parquet(folder / name / "bench.parquet")
        if table.is_empty() or set(table["mode"]) != {"dry"}:
            found.append(f"{name}: rows of the modes {sorted(set(table['mode']))}, only `dry` is expected")
        found += [f"{name}: {column} holds a value" for column in TIMES if table[column].null_count() < len(table)]
        if "wrong" in set(table["status"]):
            found.append(f"{name}: a kernel is wrong")
        found += [f"{name}: {file.name} was drawn" for file in (folder / name).glob("*.svg")]
        try:
            bench_figure(table)
            found.append(f"{name}: a figure can be drawn of it")
        except ConfigError:
            pass
    judged = pl.read_parquet(folder / "small" / "bench.parquet").filter(pl.col("provider") == "ours")
    if set(judged["status"]) != {"ok"}:
        found.append(f"small: kernels judged as {sorted(set(judged['status']))}, only `ok` is expected")
    verdicts = json.loads((folder / "bench" / "predictions.json").read_text(encoding="utf-8"))
    if len(verdicts) != 3 or any(each["held"] is not None or each["measured"] is not None for each in verdicts):
        found.append(f"predictions: something was measured: {verdicts}")
    return found


def main() -> int:
    """Return 0 if all is as it must be, else 1."""
    found = problems(Path(sys.argv[1]))
    print(f"dry run: {len(found)} problems", *found, sep="\n  ")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
