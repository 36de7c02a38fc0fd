"""Run mypy over every room and make sure that it looked at every file (a wrong path checks none and passes)."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def modules() -> set[str]:
    """Return the import names of all Python files in the rooms that the package map names."""
    rooms = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]["package-dir"]
    names = set()
    for package, room in rooms.items():
        for path in (ROOT / room).rglob("*.py"):
            tail = path.relative_to(ROOT / room).with_suffix("").as_posix().replace("/", ".")
            names.add(package if tail == "__init__" else f"{package}.{tail}".removesuffix(".__init__"))
    return names


def checked(report: Path) -> set[str]:
    """Return the modules in mypy's line count report, whose lines end with a module's name."""
    return {line.split()[-1] for line in report.read_text(encoding="utf-8").splitlines() if line.strip()}


def main() -> int:
    """Return mypy's exit status, or 1 if it missed a file."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "mypy", "-p", "specsched", "--linecount-report", folder]
        status = subprocess.run(command, cwd=ROOT, check=False).returncode
        missed = modules() - checked(Path(folder, "linecount.txt")) if status == 0 else set()
    if missed:
        print("mypy did not look at:", *sorted(missed), "see .typing/ and `mypy_path`", sep="\n  ")
    return status or bool(missed)


if __name__ == "__main__":
    sys.exit(main())
