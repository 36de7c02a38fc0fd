"""The committed mutants still fit the kernels, the page lists these and no others, and outcomes are read right.

That each of them is caught is what `benchmarks/kernel_mutants.py` runs for minutes to see.
"""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = runpy.run_path(str(ROOT / "benchmarks/kernel_mutants.py"))
MUTANTS = {mutant.name: mutant for mutant in SCRIPT["mutants"]()}
PAGE = (ROOT / "docs/kernel_mutants.md").read_text(encoding="utf-8")
TABLE = PAGE.split(SCRIPT["BEGIN"])[1].split(SCRIPT["END"])[0]
ROWS = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in TABLE.splitlines()[4:]]


def test_every_op_has_several() -> None:
    counts = Counter(mutant.op for mutant in MUTANTS.values())
    assert counts.keys() == SCRIPT["TESTS"].keys()
    assert min(counts.values()) >= 5
    assert all(name.startswith(f"{mutant.op}-") for name, mutant in MUTANTS.items())


@pytest.mark.parametrize("name", MUTANTS)
def test_patches_fit_and_change_kernels_alone(name: str, tmp_path: Path) -> None:
    touched = re.findall(r"^\+\+\+ b/(.*)$", MUTANTS[name].path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert touched
    for path in touched:
        assert re.fullmatch(r"kernels/\w+\.py", path)
        (tmp_path / "kernels").mkdir(exist_ok=True)
        shutil.copy2(ROOT / path, tmp_path / path)
    SCRIPT["apply"](MUTANTS[name], tmp_path)
    for path in touched:
        broken = (tmp_path / path).read_text(encoding="utf-8")
        assert broken != (ROOT / path).read_text(encoding="utf-8")
        compile(broken, path, "exec")


def test_a_patch_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels/admit.py").write_text("something else\n", encoding="utf-8")
    with pytest.raises(subprocess.CalledProcessError):
        SCRIPT["apply"](MUTANTS["admit-one-too-many"], tmp_path)


def test_the_page_lists_these_mutants_and_none_survives() -> None:
    assert [row[:2] for row in ROWS] == [[name, mutant.breaks] for name, mutant in MUTANTS.items()]
    assert TABLE.startswith(f"{len(MUTANTS)} of {len(MUTANTS)} mutants are caught.\n")
    assert "| **" not in TABLE
    # A kernel that cannot run at all is no mutant: any test would catch it.
    assert not {"InterpreterError", "CompilationError", "NameError"} & {row[3] for row in ROWS}


def test_tests_that_the_page_names_exist() -> None:
    for _, _, test, _ in ROWS:
        file, name = re.fullmatch(r"`(\w+\.py)::(\w+).*`", test).groups()  # type: ignore[union-attr]
        assert f"\ndef {name}(" in (ROOT / "tests/kernels" / file).read_text(encoding="utf-8")


@pytest.mark.parametrize("first", ["admit admits too much", "sort: sorts", ""])
def test_a_patch_must_say_what_it_breaks(first: str, tmp_path: Path) -> None:
    path = tmp_path / "x.patch"
    path.write_text(f"{first}\n--- a\n", encoding="utf-8")
    with pytest.raises(SystemExit, match=r"x\.patch: its first line must be"):
        SCRIPT["read"](path)


PASSED = "tests/kernels/test_admit.py::test_one PASSED [ 50%]\n"
RUNNING = "tests/kernels/test_admit.py::test_two[a-0.5] "
FAILED = "FAILED tests/kernels/test_admit.py::test_two[a-0.5] - "


@pytest.mark.parametrize(
    ("code", "output", "expected"),
    [
        (0, PASSED, (None, None)),
        (1, FAILED + "assert 1 == 2", ("test_two[a-0.5]", "assertion")),
        (1, FAILED + "AssertionError: a kernel wrote beside `c`", ("test_two[a-0.5]", "assertion")),
        (1, FAILED + "triton.runtime.errors.InterpreterError: IndexError()", ("test_two[a-0.5]", "InterpreterError")),
        (-11, PASSED + RUNNING + "Fatal Python error: Segmentation fault", ("test_two[a-0.5]", "crash (SIGSEGV)")),
        (None, PASSED + RUNNING, ("test_two[a-0.5]", "out of time")),
        (None, "", ("before the first test", "out of time")),
    ],
)
def test_what_became_of_a_run(code: int | None, output: str, expected: tuple[Any, Any]) -> None:
    found = SCRIPT["outcome"](code, output)
    assert (found.test and found.test.removeprefix("tests/kernels/test_admit.py::"), found.how) == expected


@pytest.mark.parametrize(("code", "message"), [(2, "could not run"), (5, "could not run"), (1, "no failed test")])
def test_a_run_that_proves_nothing_is_an_error(code: int, message: str) -> None:
    with pytest.raises(SystemExit, match=message):
        SCRIPT["outcome"](code, "ImportError while importing test module")


def test_only_known_mutants_can_be_chosen() -> None:
    assert [each.name for each in SCRIPT["choose"](["admit-one-too-many"])] == ["admit-one-too-many"]
    with pytest.raises(SystemExit, match="no mutant is called admit-none; there are markov-"):
        SCRIPT["choose"](["admit-none", "admit-one-too-many"])


def test_a_survivor_is_marked_and_other_lines_stay() -> None:
    one, other, third = SCRIPT["choose"](["admit-coarse-keys", "admit-one-too-many", "admit-tie-by-row"])
    survived = SCRIPT["Outcome"]()
    caught = SCRIPT["Outcome"]("tests/kernels/test_admit.py::test_x[a|b]", "assertion")
    fresh = SCRIPT["table"]([one, other, third], {one.name: survived, other.name: caught})
    head, _, _, _, *lines = fresh.splitlines()
    assert head == "1 of 3 mutants are caught."
    assert [line.split(" | ", 2)[2] for line in lines] == [
        "**survives** |  |",
        "`test_admit.py::test_x[a\\|b]` | assertion |",
        "**not tried** |  |",
    ]
    again = SCRIPT["table"]([one, other, third], {third.name: caught}, fresh)
    assert again.splitlines()[4:6] == lines[:2]
    assert again.startswith("2 of 3 mutants are caught.")
    reworded = SCRIPT["table"]([replace(other, breaks="else")], {}, fresh)
    assert reworded.endswith("| else | **not tried** |  |\n")
