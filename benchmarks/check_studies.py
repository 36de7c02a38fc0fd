"""Run the studies again, in full, and compare every row of their tables with the committed ones.

    python benchmarks/check_studies.py [NAME ..]          # all of them take about 20 minutes on two quiet cores

Numbers in the tables have seven (effects) or five digits (transients), so equal files mean equal studies but for last
bits. Exit code 1 if a row differs.
"""

from __future__ import annotations

import runpy
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TABLES = runpy.run_path(str(Path(__file__).with_name("study_tables.py")))

B300 = "sweep.axes.hardware.profile=[vllm-dsv4flash-b300-tp4]"
STUDIES: dict[str, tuple[str, list[str]]] = {
    "calibration": ("studies", ["calibration"]),
    "jaggedness": ("studies", ["jaggedness"]),
    "jaggedness_linear": ("studies", ["jaggedness", "--set", "hardware.planning_lookup=linear", "--set", B300]),
    "lag_transient": ("lag_study", ["lag_transient"]),
    "lag_short_answers": ("lag_study", ["lag_short_answers"]),
    "lag_bursts": ("lag_study", ["lag_bursts"]),
}
"""By name: the folder in ``docs/`` that holds the tables, and the words after ``specsched run``."""


def main(names: list[str]) -> int:
    """Return 0 if every table is the committed one, else 1."""
    unknown = [name for name in names if name not in STUDIES]
    if unknown:
        print(f"no study is called {unknown[0]!r}; there are {', '.join(STUDIES)}")
        return 2
    wrong = 0
    with tempfile.TemporaryDirectory() as scratch:
        for name in names or STUDIES:
            began = time.monotonic()
            fresh = tables(name, Path(scratch))
            for table in fresh:
                rows, differ = compare(ROOT / "docs" / STUDIES[name][0] / table.name, table)
                wrong += differ
                print(f"{table.name}: {rows} rows, {differ} differ ({time.monotonic() - began:.0f} s)", flush=True)
    return 1 if wrong else 0


def tables(name: str, scratch: Path) -> list[Path]:
    """Run a study and return its tables."""
    script = "from specsched.experiments.cli.main import main; main()"
    run, folder = scratch / name, scratch / f"{name}-tables"
    command = [sys.executable, "-c", script, "run", *STUDIES[name][1], "-q", "-o", str(run)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    TABLES["main"](run, folder)
    return sorted(folder.glob("*.csv"))


def compare(committed: Path, fresh: Path) -> tuple[int, int]:
    """Return how many rows a committed table has, and how many lines of the two differ."""
    before, now = (Counter(file.read_text(encoding="utf-8").splitlines()) for file in (committed, fresh))
    return before.total() - 1, max((before - now).total(), (now - before).total())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
