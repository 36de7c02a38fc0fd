"""Every example in a docstring or in a document runs and prints what it says.

pytest's own ``--doctest-modules`` imports files by path, which breaks relative imports; this walks the package.
"""

from __future__ import annotations

import doctest
import importlib
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
ROOMS: dict[str, str] = PROJECT["tool"]["setuptools"]["package-dir"]
OPTIONS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def module_names() -> list[str]:
    """Return the import names of all modules of all rooms."""
    names = []
    for package, room in ROOMS.items():
        files = sorted(path for path in (ROOT / room).rglob("*.py") if path.stem != "__main__")
        tails = [path.relative_to(ROOT / room).with_suffix("").parts for path in files]
        names += [".".join((package, *tail)).removesuffix(".__init__") for tail in tails]
    return names


def run_module(name: str) -> doctest.TestResults:
    """Run the examples in a module's docstrings."""
    return doctest.testmod(importlib.import_module(name), optionflags=OPTIONS)


def run_document(path: Path) -> doctest.TestResults:
    """Run the examples in a text file."""
    return doctest.testfile(str(path), module_relative=False, optionflags=OPTIONS, encoding="utf-8")


def with_marks(name: str) -> Any:
    """Return a module's parameter: the kernel lab is imported where torch is."""
    return pytest.param(name, marks=pytest.mark.kernels if name.startswith("specsched.kernels.") else ())


@pytest.mark.parametrize("name", [with_marks(name) for name in module_names()])
def test_docstrings(name: str) -> None:
    assert run_module(name).failed == 0


@pytest.mark.parametrize("path", sorted((ROOT / "docs").rglob("*.md")), ids=lambda path: path.stem)
def test_documents(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_document(path).failed == 0


def test_the_readme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_document(ROOT / "README.md").failed == 0


@pytest.mark.parametrize(("printed", "failed"), [("2", 0), ("3", 1)])
def test_a_wrong_example_is_found(printed: str, failed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f">>> 1 + 1\n{printed}\n"
    (tmp_path / f"example_{printed}.py").write_text(f'"""Example.\n\n{text}"""\n')
    (tmp_path / "example.md").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    assert run_module(f"example_{printed}") == doctest.TestResults(failed, 1)
    assert run_document(tmp_path / "example.md") == doctest.TestResults(failed, 1)
