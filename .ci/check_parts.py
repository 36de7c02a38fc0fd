"""Check that the parts run every test once: what each target of make collects, against what pytest finds on its own.

Usage: python .ci/check_parts.py
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("test", "test-kernels", "test-deep", "browser")
ALL = [sys.executable, "-m", "pytest", "--collect-only", "-q"]


def collected(command: list[str]) -> list[str]:
    """Return the ids of the tests that a command would run.

    Raises:
        SystemExit: if it cannot collect them.
    """
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout[-2000:]}{done.stderr}")
    return [line for line in done.stdout.splitlines() if line.startswith("tests/") and "::" in line]


def problems(whole: list[str], parts: dict[str, list[str]]) -> list[str]:
    """Return what is run by no part, by several, or by a part alone though it is not in the whole."""
    runs = Counter(test for tests in parts.values() for test in tests)
    found = [f"{part}: no test" for part, tests in parts.items() if not tests]
    found += [f"{test}: in no part" for test in whole if not runs[test]]
    found += [
        f"{test}: in {', '.join(part for part, tests in parts.items() if test in tests)}"
        for test, count in runs.items()
        if count > 1
    ]
    return found + [f"{test}: not in the whole" for test in runs.keys() - set(whole)]


def main() -> int:
    """Return 0 if every test is in one part, else 1."""
    whole = collected(ALL)
    parts = {part: collected(["make", "-s", part, "ARGS=--collect-only -q"]) for part in PARTS}
    found = problems(whole, parts)
    sizes = ", ".join(f"{part} {len(tests)}" for part, tests in parts.items())
    print(f"{len(whole)} tests: {sizes}; {len(found)} problems", *found, sep="\n  ")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
