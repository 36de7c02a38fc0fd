"""The guide shows what ``specsched check`` prints, and the remedy it names is one."""

from __future__ import annotations

import runpy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from specsched.policies import Ints, Policy, View
from specsched.policies.lossless.checker import check

SCRIPT = runpy.run_path(str(Path(__file__).resolve().parents[2] / "benchmarks/guide_check.py"))
SECTION = SCRIPT["section"](SCRIPT["GUIDE"].read_text(encoding="utf-8"))


@dataclass(frozen=True)
class WholeBlocksLater(Policy):
    """The guide's scheduler, reading the last survival of the generation before."""

    at_least: float = 0.3
    lag: int | None = 1

    def plan(self, view: View, state: Any) -> tuple[Ints, Any]:
        last = view.lagged.survival[np.arange(view.rows), view.available - 1]
        return np.where(last >= self.at_least, view.available, 0), state


def test_the_guide_shows_what_is_printed() -> None:
    """If it is right that the output changed, run `python benchmarks/guide_check.py`."""
    assert SCRIPT["printed"](SECTION) == SCRIPT["produced"](SECTION)


def test_the_remedy_of_the_guide() -> None:
    report = check(WholeBlocksLater(), examples=150)
    assert report.verdict == "lossless"
    assert sum(tally.split for tally in report.tallies) > 0
