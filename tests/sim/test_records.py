"""The tables that a run leaves: columns and types are those of the records, in whatever blocks they were packed."""

from __future__ import annotations

import polars as pl
import pytest

from specsched.sim import run
from specsched.sim.records import BLOCK, REQUEST_COLUMNS, STEP_COLUMNS, RequestLog, RequestRecord, RowRecords, StepLog

from .scenes import requests, scenario


def finished(order: int, ready_s: float | None = None) -> RequestRecord:
    return RequestRecord(
        order=order,
        request=order,
        name=order,
        domain="chat",
        cohort=False,
        prompt_tokens=1,
        output_tokens=2,
        arrival_s=0.5,
        ready_s=ready_s,
        admitted_s=1.0,
        first_token_s=1.0,
        last_token_s=2.0,
        steps=1,
        drafted=0,
        verified=0,
        accepted=0,
    )


@pytest.mark.parametrize("count", [1, BLOCK, 2 * BLOCK + 7])
def test_steps_come_back_from_their_blocks(count: int) -> None:
    log = StepLog()
    large = 2**53  # beyond it a float64 would round
    for number in range(count):
        for name in STEP_COLUMNS:
            is_seconds = name.endswith(("_s", "_seconds"))
            getattr(log, name).append(number / 3 if is_seconds else large + number)
        if len(log.step) == BLOCK:
            log.pack()
    table = log.table()
    assert table.columns == list(STEP_COLUMNS)
    for name, column in zip(STEP_COLUMNS, table, strict=True):
        if name.endswith(("_s", "_seconds")):
            assert column.dtype == pl.Float64
            assert column.to_list() == [number / 3 for number in range(count)]
        else:
            assert column.dtype == pl.Int64
            assert column.to_list() == [large + number for number in range(count)]


def test_requests_are_in_order_of_admission_and_know_their_cohort() -> None:
    log = RequestLog()
    for order in (2, 0, 1):
        log.add(finished(order))
    table = log.table(lambda order: order > 0)
    assert table.schema == pl.Schema(REQUEST_COLUMNS)
    assert table["order"].to_list() == [0, 1, 2]
    assert table["cohort"].to_list() == [False, True, True]
    assert table["ready_s"].to_list() == [None] * 3
    assert table["ready_s"].dtype == pl.Float64


@pytest.mark.parametrize("rows", [3, 20])
def test_a_run_of_several_blocks_of_steps(rows: int) -> None:
    """Every log at once, against each other."""
    made = scenario(
        {"kind": "async_topk", "lag": 1},
        requests=requests(300),
        concurrency=rows,
        cohort=20 * rows,
        warmup=rows,
        keep_rows=True,
    )
    result = run(made)
    steps, each = result.steps, result.rows
    assert each is not None
    assert len(steps) > BLOCK
    assert steps["step"].to_list() == list(range(len(steps)))
    assert each.schema == pl.Schema(dict.fromkeys(RowRecords._fields, pl.Int64))
    summed = each.group_by("step", maintain_order=True).agg(
        pl.len().cast(pl.Int64).alias("rows"),
        pl.col("available", "verified", "accepted", "emitted", "acceptable").sum(),
    )
    for name in ("rows", "verified", "accepted", "emitted", "acceptable"):
        assert summed[name].to_list() == steps[name].to_list(), name
    assert summed["available"].to_list() == steps["drafted"].to_list()
    assert (steps["batch_tokens"] == steps["rows"] + steps["verified"]).all()
