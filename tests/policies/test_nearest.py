"""The one "did you mean"."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from specsched.policies.nearest import closest, did_you_mean, likeness, suggestion

ROOT = Path(__file__).resolve().parents[2]
ROOMS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]["package-dir"]


@pytest.mark.parametrize("word", ["difflib", "did you mean"])
def test_it_is_written_once(word: str) -> None:
    files = [file for room in ROOMS.values() for file in (ROOT / room).rglob("*.py")]
    assert len(files) > 100
    assert [file for file in files if word in file.read_text(encoding="utf-8")] == [ROOT / "policies" / "nearest.py"]


def test_the_likest_come_first_and_what_is_unlike_does_not_come() -> None:
    assert closest("gama", ["beta", "gamma", "gaming"], most=3) == ["gamma", "gaming"]
    assert closest("gama", {"gamma": 1, "gaming": 2}) == ["gamma"]
    assert closest("gama", ["beta"]) == []
    assert closest("gama", ["beta"], cutoff=0.2) == ["beta"]


def test_a_question_is_asked_only_where_something_is_near() -> None:
    assert did_you_mean("statc", ["oracle", "static"]) == "did you mean `static`?"
    assert did_you_mean("zz", ["oracle", "static"]) == ""


@pytest.mark.parametrize(
    ("name", "choices", "text"),
    [
        ("Padded-Fraction", ["steps", "padded_fraction"], "did you mean 'padded_fraction'?"),
        ("zz", ["steps", "padded_fraction"], "choose from steps, padded_fraction"),
        ("zz", [], "there is none to choose from"),
    ],
)
def test_a_suggestion_ignores_case_and_dashes_and_else_lists_all(name: str, choices: list[str], text: str) -> None:
    assert suggestion(name, choices) == text


def test_likeness_is_1_only_for_the_same() -> None:
    assert likeness("lag", "lag") == 1.0
    assert 0.0 < likeness("lagg", "lag") < 1.0
    assert likeness("lag", "k") == 0.0
