"""The comparison with the committed frontier sees a changed figure, a missing point and a new column."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import polars as pl
import pytest

SCRIPT = runpy.run_path(str(Path(__file__).resolve().parents[1] / "benchmarks/check_frontier.py"))
POINTS = pl.DataFrame(
    {"arm": ["a", "b"], "load": [1, 1], "seed": [0, 0], "steps": [7, 9], "rate": [100.0, 3.0], "regret": [None, 0.5]}
)


def differences(fresh: pl.DataFrame) -> list[str]:
    lines: list[str] = SCRIPT["differences"](POINTS, fresh)
    return lines


def test_equal_tables_do_not_differ() -> None:
    assert differences(POINTS.reverse()) == []


@pytest.mark.parametrize(("factor", "count"), [(1 + 1e-9, 0), (1 + 2e-6, 2), (float("nan"), 2)])
def test_floats_agree_to_a_millionth(factor: float, count: int) -> None:
    assert len(differences(POINTS.with_columns(pl.col("rate") * factor))) == count


@pytest.mark.parametrize(
    ("column", "value", "line"),
    [
        ("steps", 8, "('a', 1, 0) steps: committed 7, now 8"),
        ("regret", 0.0, "('a', 1, 0) regret: committed None, now 0.0"),
        ("seed", 4, "('a', 1, 0): committed, not run now"),
    ],
)
def test_a_change_is_named(column: str, value: Any, line: str) -> None:
    first = pl.col("arm") == "a"
    fresh = POINTS.with_columns(pl.when(first).then(pl.lit(value)).otherwise(pl.col(column)).alias(column))
    assert line in differences(fresh)


def test_columns_must_be_the_same() -> None:
    assert len(differences(POINTS.drop("rate"))) == 1
