"""Admission: rows up to the limit, and another limit put in its place without touching the step loop."""

from __future__ import annotations

import numpy as np
import pytest

from specsched.sim import Prefill, Scenario, run
from specsched.sim import engine as step_loop
from specsched.sim.admission import Admission

from .scenes import requests, scenario

OUTPUTS = [1, 9, 40, 2, 1, 17, 25, 1, 30, 3] * 6


class Watched(Admission):
    """Counts for itself who it was told of."""

    made: list[Watched]

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        self.entries: list[int] = []
        self.most = 0
        self.made.append(self)

    def join(self, entry: int) -> None:
        super().join(entry)
        self.entries.append(entry)
        self.most = max(self.most, len(self.entries))

    def leave(self, entry: int) -> None:
        super().leave(entry)
        self.entries.remove(entry)


class InFlight(Admission):
    """At most 60 output tokens in flight, or one request."""

    LIMIT = 60

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        self.output = scenario.requests.output_tokens
        self.tokens = 0

    def may_join(self, entry: int) -> bool:
        return super().may_join(entry) and (not self.tokens or self.tokens + int(self.output[entry]) <= self.LIMIT)

    def join(self, entry: int) -> None:
        super().join(entry)
        self.tokens += int(self.output[entry])

    def leave(self, entry: int) -> None:
        super().leave(entry)
        self.tokens -= int(self.output[entry])


@pytest.mark.parametrize("mode", ["closed", "open"])
@pytest.mark.parametrize("rows", [1, 3, 20])
def test_told_of_every_row_that_joins_and_leaves(mode: str, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    Watched.made = []
    monkeypatch.setattr(step_loop, "Admission", Watched)
    arrivals = np.linspace(0.0, 0.2, len(OUTPUTS))
    made = scenario(
        {"kind": "static", "k": 3},
        requests=requests(OUTPUTS, arrival_s=arrivals),
        mode=mode,
        concurrency=rows,
        prefill=Prefill(50_000.0, 2),
        cohort=20,
    )
    steps = run(made).steps
    (told,) = Watched.made
    assert told.most == steps["rows"].max() <= rows
    if mode == "open":
        assert told.entries == []
    else:
        assert told.most == rows
    assert all(OUTPUTS[entry] > 1 for entry in told.entries)


@pytest.mark.parametrize("mode", ["closed", "open"])
def test_another_limit_is_one_class(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    arrivals = np.linspace(0.0, 0.2, len(OUTPUTS))
    made = scenario(
        {"kind": "static", "k": 3},
        requests=requests(OUTPUTS, arrival_s=arrivals),
        mode=mode,
        concurrency=8,
        cohort=30,
        keep_rows=True,
    )
    monkeypatch.setattr(step_loop, "Admission", InFlight)
    limited = run(made)
    assert limited.rows is not None
    output = dict(enumerate(OUTPUTS))
    used = [
        sum(output[request % len(OUTPUTS)] for request in part["request"].to_list())
        for part in limited.rows.partition_by("step", maintain_order=True)
    ]
    assert max(used) <= InFlight.LIMIT
    monkeypatch.undo()
    free = run(made)
    assert limited.steps["rows"].max() < free.steps["rows"].max() == 8
    # First come, first served: nobody overtakes a request that has to wait.
    assert limited.requests["request"].to_list() == sorted(limited.requests["request"].to_list())
