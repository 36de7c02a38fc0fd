"""Run mypy over every room and make sure that it looked at every file (a wrong path checks none and passes)."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def count_modules() -> int:
    """Return the number of Python files in the rooms that the package map names."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return sum(len(list((ROOT / room).rglob("*.py"))) for room in project["tool"]["setuptools"]["package-dir"].values())


def main() -> int:
    """Return mypy's exit status, or 1 if it missed a file."""
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "-p", "specsched"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    print(done.stdout, done.stderr, sep="", end="")
    if done.returncode:
        return done.returncode
    found = re.search(r"in (\d+) source files?", done.stdout)
    checked = int(found.group(1)) if found else 0
    if checked != count_modules():
        print(f"mypy checked {checked} files, the rooms hold {count_modules()}; see .typing/ and `mypy_path`")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
