"""docs/shape.md: its picture and table of rooms are those of the imports, its errors those that the command knows."""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from specsched.experiments.config.errors import PointError, known_errors

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = runpy.run_path(str(ROOT / "benchmarks" / "rooms.py"))
PAGE = (ROOT / "docs" / "shape.md").read_text(encoding="utf-8")


def checked(tree: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(tree / "benchmarks" / "rooms.py"), "--check"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tree = tmp_path_factory.mktemp("tree")
    for name in (*SCRIPT["PROJECT"]["tool"]["setuptools"]["package-dir"].values(), "docs", "benchmarks", ".typing"):
        shutil.copytree(ROOT / name, tree / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tree)
    return tree


def test_the_page_shows_the_rooms_as_they_are() -> None:
    done = checked(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("sim/more.py", "from ..traces import rate"),
        ("experiments/analysis/more.py", "from ..show.canvas import save"),
        ("experiments/analysis/more.py", "from ...traces import rate"),
        ("experiments/more.py", "x = 1"),
    ],
)
def test_an_arrow_or_a_room_more_is_noticed(copy: Path, path: str, line: str) -> None:
    (copy / path).write_text(f"{line}\n")
    try:
        done = checked(copy)
    finally:
        (copy / path).unlink()
    assert done.returncode == 1
    assert "shape.md: rooms or arrows differ" in done.stdout
    assert checked(copy).returncode == 0


def test_an_arrow_less_is_noticed(copy: Path) -> None:
    """The report's one import from the room of tuning."""
    path = copy / "experiments" / "report" / "tuning.py"
    text = path.read_text(encoding="utf-8")
    assert len(re.findall(r"^from \.\.tune\.", text, re.MULTILINE)) == 1
    path.write_text(re.sub(r"^from \.\.tune\..*\n", "", text, flags=re.MULTILINE), encoding="utf-8")
    try:
        done = checked(copy)
    finally:
        path.write_text(text, encoding="utf-8")
    assert done.returncode == 1


def test_only_arrows_that_no_longer_way_shows_are_drawn() -> None:
    arrows = frozenset({("a", "b"), ("b", "c"), ("a", "c"), ("a", "d")})
    assert SCRIPT["drawn"](arrows) == [("a", "b"), ("a", "d"), ("b", "c")]


def test_every_room_says_what_lives_there() -> None:
    assert [room for room, says in SCRIPT["read_map"]().rooms.items() if not says] == []


def test_errors_are_those_that_the_command_knows() -> None:
    """That of the kernels is known to it once they are imported."""
    table = PAGE.split("## Errors\n")[1].strip().split("\n\n")[0]
    known = {error.__name__ for error in (*known_errors(), PointError)} - {"OSError"}
    assert {*re.findall(r"`(\w+Error)`", table)} == known | {"KernelError"}
