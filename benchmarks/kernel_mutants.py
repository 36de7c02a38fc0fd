"""Which test catches each broken kernel.

    python benchmarks/kernel_mutants.py [--only NAME ...] [--check] [--workers N]

Each patch in benchmarks/kernel_mutants breaks one op in one way and says so in its first line. The tree is copied once,
and from there for each patch, so the checkout is never touched. The tests of each op pass unmutated first, or nothing
is written; then they run against each of its mutants until one fails. A crash or a run out of time counts as caught,
and is named; a mutant that cannot even be imported proves nothing and is an error. Everything is seeded.

Rewrites the table in docs/kernel_mutants.md; with ``--only`` the lines of the mutants that are named; with ``--check``
runs them too, but only compares. Exits 1 if a mutant survives or the table differs. Needs git, which applies the
patches. About ten minutes on two idle cores.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOC = ROOT / "docs" / "kernel_mutants.md"
PATCHES = ROOT / "benchmarks" / "kernel_mutants"
BEGIN, END = "<!-- kernel mutants -->\n", "<!-- end of kernel mutants -->\n"

RULES = "tests/kernels/test_kernel_rules.py"
"""What the source itself must keep to, where the interpreter cannot see a difference."""
TESTS = {
    op: (f"tests/kernels/test_{op}.py", RULES) for op in ("markov", "rnn", "confidence", "admit", "attention", "verify")
}
"""Test files of each op, in the order of the table."""

COPIED = ("kernels", "policies", "sim", "traces", "experiments", "tests", ".typing", "pyproject.toml")
GENERATED = shutil.ignore_patterns("__pycache__", "*_cache", ".hypothesis")

LENIENCE = 5
"""How many times as long as unmutated tests mutated ones may take."""


@dataclass(frozen=True)
class Mutant:
    """A patch and what its first line says."""

    path: Path
    op: str
    breaks: str

    @property
    def name(self) -> str:
        return self.path.stem


@dataclass(frozen=True)
class Outcome:
    """What became of a run of tests.

    Attributes:
        test: the one that failed or was running when the process died; None if all passed.
        how: `assertion`, the name of another exception, `crash (SIGSEGV)`, `out of time`; None if all passed.
    """

    test: str | None = None
    how: str | None = None


def read(path: Path) -> Mutant:
    """Return a mutant from its patch, whose first line is ``op: what it breaks``."""
    with path.open(encoding="utf-8") as lines:
        op, colon, breaks = next(lines, "").strip().partition(": ")
    if op not in TESTS or not colon:
        raise SystemExit(
            f"error: {path.name}: its first line must be `op: what it breaks`, op one of {', '.join(TESTS)}"
        )
    return Mutant(path, op, breaks)


def mutants() -> list[Mutant]:
    """Return all mutants, in the order of the table."""
    found = [read(path) for path in PATCHES.glob("*.patch")]
    return sorted(found, key=lambda each: (list(TESTS).index(each.op), each.name))


def apply(mutant: Mutant, folder: Path) -> None:
    """Apply a patch to a tree.

    Raises:
        subprocess.CalledProcessError: if it does not fit.
    """
    # In a copy that lies within some repository, git would take the paths to be of that one.
    settings = os.environ | {"GIT_CEILING_DIRECTORIES": str(folder.parent)}
    command = ["git", "apply", str(mutant.path)]
    subprocess.run(command, cwd=folder, env=settings, check=True, capture_output=True, text=True)


def copy(source: Path, folder: Path) -> None:
    """Copy what the tests need."""
    for name in COPIED:
        if (source / name).is_dir():
            shutil.copytree(source / name, folder / name, symlinks=True, ignore=GENERATED)
        else:
            shutil.copy2(source / name, folder / name)


def run(folder: Path, op: str, seconds: float | None = None) -> Outcome:
    """Run the tests of an op in a tree until one fails."""
    command = [
        sys.executable, "-m", "pytest", *TESTS[op], "-x", "-v", "-rfE", "--tb=line", "--color=no", "-p",
        "no:cacheprovider", "--hypothesis-seed=0",
    ]  # fmt: skip
    settings = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"} | {
        "PYTHONPATH": str(folder / ".typing"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "400",
    }
    _check_place(folder, settings)
    with (folder / "output.txt").open("w+", encoding="utf-8") as log:
        try:
            done = subprocess.run(
                command, cwd=folder, env=settings, stdout=log, stderr=log, timeout=seconds, check=False
            )
            code = done.returncode
        except subprocess.TimeoutExpired:
            code = None
        log.seek(0)
        return outcome(code, log.read())


def _check_place(folder: Path, settings: Mapping[str, str]) -> None:
    """Make sure that a process in the tree imports the tree's kernels, not the checkout's."""
    script = "from importlib.util import find_spec; print(find_spec('specsched.kernels.common').origin)"
    command = [sys.executable, "-c", script]
    found = subprocess.run(command, cwd=folder, env=settings, check=True, capture_output=True, text=True).stdout
    if Path(found.strip()).resolve() != (folder / "kernels" / "common.py").resolve():
        raise SystemExit(f"error: a copy imports {found.strip()} and not its own kernels; run in a fresh environment")


def outcome(code: int | None, output: str) -> Outcome:
    """Return what became of a run from pytest's exit code (None: out of time) and its verbose output."""
    if code == 0:
        return Outcome()
    if code is not None and code > 1:
        raise SystemExit(f"error: the tests could not run (pytest exit code {code}):\n{output[-2000:]}")
    if code == 1:
        failed = re.search(r"^(?:FAILED|ERROR) (\S+\.py::.*?) - (.*)$", output, flags=re.MULTILINE)
        if failed is None:
            raise SystemExit(f"error: no failed test is named in this output:\n{output[-2000:]}")
        return Outcome(failed[1], reason(failed[2]))
    running = re.findall(r"^(\S+\.py::\w+(?:\[.*?\])?) (?!PASSED|SKIPPED)", output, flags=re.MULTILINE)
    how = "out of time" if code is None else f"crash ({signal.Signals(-code).name})"
    return Outcome(running[-1] if running else "before the first test", how)


def reason(text: str) -> str:
    """Return the kind of failure that a line of pytest's summary tells of."""
    kind = re.match(r"[\w.]+", text)
    if kind is None or kind[0] in ("assert", "AssertionError"):
        return "assertion"
    return kind[0].rpartition(".")[2]


def unmutated(folder: Path, op: str) -> float:
    """Run an op's tests as they are; return the seconds they took."""
    start = time.monotonic()
    found = run(folder, op)
    if found.test is not None:
        raise SystemExit(f"error: {found.test} fails without any mutant ({found.how}); mend that first")
    return time.monotonic() - start


def trial(source: Path, limits: Mapping[str, float], mutant: Mutant) -> Outcome:
    """Break a copy of the tree and run the op's tests."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copy(source, folder)
        try:
            apply(mutant, folder)
        except subprocess.CalledProcessError as error:
            raise SystemExit(f"error: {mutant.path.name} does not apply: {error.stderr.strip()}") from None
        found = run(folder, mutant.op, limits[mutant.op])
    caught = "SURVIVES" if found.test is None else f"{found.test} ({found.how})"
    print(f"{mutant.name}: {caught}, {time.monotonic() - start:.0f} s", flush=True)
    return found


def trials(chosen: Sequence[Mutant], workers: int) -> list[Outcome]:
    """Run the tests of all ops concerned, then try each mutant."""
    ops = sorted({each.op for each in chosen})
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(workers) as pool:
        source = Path(name)
        copy(ROOT, source)
        # One tree for each, since each leaves its output there.
        taken = dict(zip(ops, pool.map(partial(_whole, source), ops), strict=True))
        limits = {op: LENIENCE * seconds + 60 for op, seconds in taken.items()}
        return list(pool.map(partial(trial, source, limits), chosen))


def _whole(source: Path, op: str) -> float:
    with tempfile.TemporaryDirectory() as name:
        copy(source, Path(name))
        seconds = unmutated(Path(name), op)
    print(f"{op}, unmutated: passes, {seconds:.0f} s", flush=True)
    return seconds


def row(mutant: Mutant, found: Outcome | None) -> str:
    """Return a mutant's line of the table; without an outcome, it has not been tried."""
    test, how = "**not tried**", ""
    if found is not None:
        test, how = "**survives**", ""
        if found.test is not None and found.how is not None:
            test, how = f"`{found.test.removeprefix('tests/kernels/')}`".replace("|", "\\|"), found.how
    return f"| {mutant.name} | {mutant.breaks} | {test} | {how} |"


def table(known: Sequence[Mutant], outcomes: Mapping[str, Outcome], before: str = "") -> str:
    """Return how many were caught, and the table, as Markdown; lines of mutants that were not tried stay as they were.

    A line stays only if it tells of the same break: what a patch of that name did before is not carried over.
    """
    kept = {tuple(line.split(" | ")[:2]): line for line in before.splitlines()}
    lines = []
    for mutant in known:
        line = row(mutant, outcomes.get(mutant.name))
        lines.append(line if mutant.name in outcomes else kept.get(tuple(line.split(" | ")[:2]), line))
    caught = sum("| **" not in line for line in lines)
    head = [f"{caught} of {len(lines)} mutants are caught.", "", "| mutant | what it breaks | caught by | how |"]
    return "\n".join([*head, "|---|---|---|---|", *lines]) + "\n"


def parted(text: str) -> tuple[str, str, str]:
    """Return what comes before the table in a page, the table, and what comes after."""
    before, found, rest = text.partition(BEGIN)
    held, found_end, after = rest.partition(END)
    if not found or not found_end:
        raise SystemExit(
            f"error: {DOC.name} lacks `{BEGIN.strip()}` .. `{END.strip()}`; put both on lines of their own"
        )
    return before + BEGIN, held, END + after


def choose(names: Sequence[str] | None) -> list[Mutant]:
    """Return the mutants of these names, or all.

    Raises:
        SystemExit: if there is none of a name.
    """
    known = mutants()
    unknown = sorted(set(names or ()) - {each.name for each in known})
    if unknown:
        listed = ", ".join(each.name for each in known)
        raise SystemExit(f"error: no mutant is called {', '.join(unknown)}; there are {listed}")
    return [each for each in known if not names or each.name in names]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="run these alone")
    parser.add_argument("--check", action="store_true", help="compare the table, write nothing")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args(arguments)
    chosen = choose(options.only)
    before, held, after = parted(DOC.read_text(encoding="utf-8"))
    outcomes = dict(zip((each.name for each in chosen), trials(chosen, options.workers), strict=True))
    survivors = [name for name, found in outcomes.items() if found.test is None]
    print(f"survivors: {', '.join(survivors) or 'none'} of {len(chosen)}")
    fresh = table(mutants(), outcomes, held)
    if not options.check:
        DOC.write_text(before + fresh + after, encoding="utf-8")
    elif fresh != held:
        print(f"{DOC.name}: the table differs; run without --check")
    return int(bool(survivors) or (options.check and fresh != held))


if __name__ == "__main__":
    sys.exit(main())
