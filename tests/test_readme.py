"""README.md: its figures are those of the committed frontier, its counts and commands those of the tree."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
FLAT = " ".join(TEXT.split())
STUDIES = " ".join((ROOT / "docs" / "studies.md").read_text(encoding="utf-8").split())
VALIDATION = (ROOT / "docs" / "validation.md").read_text(encoding="utf-8")
SUMMARY: dict[str, Any] = json.loads((ROOT / "docs" / "frontier" / "summary.json").read_bytes())


def cells(arm: str) -> list[str]:
    """What an arm reaches at the anchors, as the README writes it."""
    (found,) = (each["at_anchor"] for each in SUMMARY["arms"] if each["arm"] == arm)
    return [_cell(each) for each in found]


def _cell(at: dict[str, Any]) -> str:
    if at["status"] == "not_met":
        return "not met"
    return ("≥ " if at["status"] == "at_least" else "") + f"{at['throughput_tok_s_gpu']:,.0f}"


def row(name: str) -> list[str]:
    """The cells of a row of the README's table that begins so."""
    (line,) = (line for line in TEXT.splitlines() if line.startswith(f"| {name}"))
    return [cell.strip() for cell in line.strip("| ").split(" | ")[1:]]


@pytest.mark.parametrize(
    ("name", "arm"),
    [("autoregressive", "autoregressive"), ("greedy", "greedy"), ("asynchronous", "async-lag2"), ("oracle", "oracle")],
)
def test_the_table_is_that_of_the_committed_frontier(name: str, arm: str) -> None:
    assert row(name) == cells(arm)


def test_the_band_and_the_best_static_length() -> None:
    ends = zip(cells("mtp-1-high"), cells("mtp-1-low"), strict=True)
    assert row("MTP-1") == [f"{low} to {high}" for low, high in ends]
    best = SUMMARY["best_static_at_anchor"]
    lengths = ", ".join(each["arm"].removeprefix("static-") for each in best)
    assert row(f"best static length ({lengths})") == [f"{each['throughput_tok_s_gpu']:,.0f}" for each in best]


def test_the_speed_ups() -> None:
    over = {
        name: next(each for each in found["arms"] if each["arm"] == "async-lag2")
        for name, found in SUMMARY["speedup"].items()
    }
    mtp, static = over["mtp"], over["best_static"]
    assert f"{mtp['geometric_mean']:.2f} times the speed of MTP-1" in FLAT
    assert f"{static['geometric_mean']:.2f} times that of the best static length" in FLAT
    light, heavy = static["least"], static["most"]
    assert (light["load"], heavy["load"]) == (1.0, 256.0)
    assert f"{light['speedup']:.2f}" == "1.00"
    assert f"nothing at light load, {heavy['speedup']:.2f} at the heaviest" in FLAT
    low, high = mtp["over_band_ends"]
    assert f"({low:.2f} to {high:.2f} over the assumed drafter costs)" in FLAT
    assert f"95 % interval {mtp['low']:.2f} to {mtp['high']:.2f}; {low:.2f} to {high:.2f} over the assumed" in STUDIES
    for figure in (mtp["geometric_mean"], static["geometric_mean"], heavy["speedup"]):
        assert f"{figure:.2f}" in STUDIES


def test_mistakes_that_are_counted() -> None:
    lossless = (ROOT / "docs" / "lossless.md").read_text(encoding="utf-8")
    table = lossless.split("<!-- mutation table -->\n")[1].split("<!-- end of mutation table -->")[0].splitlines()[2:]
    decoders = sum(line.startswith("| decoder: ") for line in table)
    kernels = len(list((ROOT / "benchmarks" / "kernel_mutants").glob("*.patch")))
    assert f"; {len(table)} planted mistakes are caught" in TEXT
    assert f"{len(table) - decoders} broken schedulers and {decoders} broken decoders" in VALIDATION
    assert f"{kernels} planted mistakes are caught" in TEXT
    assert f"{kernels} ways to break them" in VALIDATION
    counted = re.findall(r"\| (\d+) \(\d+, \d+\) \| (\d+) \(\d+, \d+\) \|", lossless)
    worlds = [int(one) + int(two) for one, two in counted]
    assert worlds
    assert all(abs(each - 2885) <= 2 for each in worlds)
    assert "about 2,885 worlds each" in TEXT
    assert "about 2,885 worlds each" in VALIDATION


def test_commands_of_the_tables_name_files_that_exist() -> None:
    commands = re.findall(r"\| `([^`]+)` \|$", TEXT + VALIDATION, re.MULTILINE)
    files = [word for command in commands for word in command.split() if "/" in word]
    assert len(files) > len(commands) >= 20
    assert [name for name in files if not (ROOT / name).exists()] == []


def test_the_tree_is_that_of_the_repository() -> None:
    tree = TEXT.split("\ntraces/ ")[1].split("```")[0]
    lines = ["traces/ ", *tree.splitlines()[1:]]
    top = ""
    named = set()
    for line in lines:
        folders = re.findall(r"(\w+)/", line[:18])
        inside = line.startswith(" ")
        top = top if inside else folders[0]
        named |= {f"{top}/{name}" if inside else name for name in folders}
    assert {name for name in named if not (ROOT / name).is_dir()} == set()
    inner = {path.parent.relative_to(ROOT).as_posix() for path in ROOT.glob("[pse]*/*/__init__.py")}
    assert {name for name in inner if not name.startswith("tests/")} <= named
