"""Rules of style that no linter checks: function length, and nothing that names the machine it was written on."""

from __future__ import annotations

import ast
import io
import os
import re
import tokenize
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
ROOMS: list[str] = sorted(PROJECT["tool"]["setuptools"]["package-dir"].values())
NO_SOURCE = re.compile(r"^(\.git|\.venv.*|.*_cache|\.hypothesis|__pycache__|.*\.egg-info|build|dist|runs)$")
TEXT = {".py", ".md", ".toml", ".yaml", ".yml", ".json", ".csv", ".txt", ".cfg", ""}
MACHINE = re.compile(r"(?<![\w.~-])/(?:work|root|home|Users|tmp)/|(?:pypi|pythonhosted|npmjs|debian)\.(?:org|com|io)\b")

LONGEST = 60
MOST = 25
LONGEST_KERNEL = 120
"""A function that Triton compiles cannot be cut where one would like."""


def function_lengths(source: str, compiled: bool = False) -> dict[str, int]:
    """Return the lines of every function by `line name`, its docstring not counted; of Triton's or of all others."""
    lengths = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if compiled != any("triton.jit" in ast.unparse(each) for each in node.decorator_list):
                continue
            text = node.body[0] if ast.get_docstring(node, clean=False) is not None else None
            spoken = text.end_lineno - text.lineno + 1 if text is not None and text.end_lineno else 0
            lengths[f"{node.lineno} {node.name}"] = (node.end_lineno or node.lineno) - node.lineno + 1 - spoken
    return lengths


def comments(source: str) -> tuple[int, int]:
    """Return how many comments a module has, and how many lines that are neither blank nor of a docstring."""
    spoken: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        alone = (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        )
        if alone:
            spoken.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = [
        number for number, line in enumerate(source.splitlines(), start=1) if line.strip() and number not in spoken
    ]
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return sum(token.type == tokenize.COMMENT for token in tokens), len(lines)


def text_files() -> list[Path]:
    """Return the text files of the checkout, generated folders left out."""
    found = []
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders if not NO_SOURCE.match(name)]
        found += [Path(folder, name) for name in names if Path(name).suffix in TEXT]
    return found


@pytest.mark.parametrize("room", ROOMS)
def test_functions_are_short(room: str) -> None:
    lengths = {
        f"{path.relative_to(ROOT)}:{where}": length
        for path in sorted((ROOT / room).rglob("*.py"))
        for where, length in function_lengths(path.read_text(encoding="utf-8")).items()
    }
    assert {where: length for where, length in lengths.items() if length > LONGEST} == {}
    long = {where: length for where, length in lengths.items() if length > MOST}
    assert len(long) <= len(lengths) / 10, f"more than one function in ten is over {MOST} lines: {long}"


def test_kernels_fit_their_own_limit() -> None:
    lengths = {
        f"{path.name}:{where}": length
        for path in sorted((ROOT / "kernels").rglob("*.py"))
        for where, length in function_lengths(path.read_text(encoding="utf-8"), compiled=True).items()
    }
    assert len(lengths) > 10
    assert max(lengths.values()) <= LONGEST_KERNEL


def test_function_length_leaves_the_docstring_out() -> None:
    source = 'def f(x):\n    """One.\n\n    Two.\n    """\n    y = x\n    return y\n'
    assert function_lengths(source) == {"1 f": 3}


@pytest.mark.parametrize("room", ["sim", "kernels", "policies/lossless"])
def test_five_to_eight_comments_in_a_hundred_lines(room: str) -> None:
    """Where a reader asks why: fewer leave him alone with the code, more talk over it."""
    counts = [comments(path.read_text(encoding="utf-8")) for path in sorted((ROOT / room).rglob("*.py"))]
    assert 0.05 <= sum(found for found, _ in counts) / sum(lines for _, lines in counts) <= 0.08


def test_comments_are_counted_apart_from_docstrings_and_hashes_in_texts() -> None:
    assert comments('"""One.\n\n# no comment\n"""\n\nx = "#"  # one\n# two\n') == (2, 2)


def test_no_file_names_a_machine() -> None:
    found = {}
    for path in text_files():
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            if MACHINE.search(line):
                found[f"{path.relative_to(ROOT)}:{number}"] = line.strip()
    assert found == {}


@pytest.mark.parametrize(
    ("line", "caught"),
    [
        ("open('" + "/".join(["", "tmp", "x"]) + "')", True),
        ("https://" + ".".join(["pypi", "org"]) + "/simple", True),
        ("tests/tmp/x and ../work/x and a.b/home/c", False),
        ("from PyPI", False),
    ],
)
def test_the_pattern_catches_machine_names(line: str, caught: bool) -> None:
    assert bool(MACHINE.search(line)) == caught
