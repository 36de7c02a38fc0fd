"""Windows and rate scaling keep what they promise to keep."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from specsched.traces import TraceError, check_trace, rate, scale_rate, window


def trace_of(times: list[float]) -> pl.DataFrame:
    n = len(times)
    columns = {"arrival_s": times, "prompt_tokens": range(100, 100 + n), "output_tokens": range(1, n + 1)}
    return pl.DataFrame(columns).with_row_index("request_id").cast({"request_id": pl.Int64})


@st.composite
def traces(draw: st.DrawFn) -> pl.DataFrame:
    """Arrivals on a grid of 1/64 s, so that differences are exact, with ties, starting anywhere."""
    ticks = draw(st.lists(st.integers(0, 10_000), min_size=1, max_size=40))
    return trace_of([tick / 64 for tick in sorted(ticks)])


BOUND = st.none() | st.integers(0, 10_000).map(lambda tick: tick / 64)


@settings(max_examples=300, deadline=None)
@given(trace=traces(), start=BOUND, end=BOUND, limit=st.none() | st.integers(1, 50))
def test_window_keeps_exactly_the_requests_inside(
    trace: pl.DataFrame, start: float | None, end: float | None, limit: int | None
) -> None:
    assume(start is None or end is None or start < end)
    times = trace["arrival_s"].to_list()
    inside = [i for i, t in enumerate(times) if (start is None or t >= start) and (end is None or t < end)][:limit]
    if not inside:
        with pytest.raises(TraceError, match="no request arrives"):
            window(trace, start, end, limit)
        return
    kept = window(trace, start, end, limit)
    check_trace(kept)
    assert kept["arrival_s"].to_list() == [times[i] - times[inside[0]] for i in inside]
    assert kept["output_tokens"].to_list() == [i + 1 for i in inside]
    assert kept["prompt_tokens"].to_list() == [i + 100 for i in inside]


@settings(max_examples=100, deadline=None)
@given(trace=traces(), cut=st.integers(1, 9_999).map(lambda tick: tick / 64))
def test_two_windows_split_a_trace(trace: pl.DataFrame, cut: float) -> None:
    first, last = trace["arrival_s"][0], trace["arrival_s"][-1]
    assume(first < cut <= last)
    parts = [window(trace, end_s=cut), window(trace, start_s=cut)]
    outputs = [tokens for part in parts for tokens in part["output_tokens"]]
    assert outputs == trace["output_tokens"].to_list()


@settings(max_examples=200, deadline=None)
@given(trace=traces(), target=st.floats(1e-3, 1e4))
def test_scaling_sets_the_rate_and_keeps_the_pattern(trace: pl.DataFrame, target: float) -> None:
    before = trace["arrival_s"].to_numpy()
    assume(before[-1] > before[0])
    scaled = scale_rate(trace, target)
    check_trace(scaled)
    assert rate(scaled) == pytest.approx(target, rel=1e-12)
    after = scaled["arrival_s"].to_numpy()
    factor = (after[-1] - after[0]) / (before[-1] - before[0])
    np.testing.assert_allclose(np.diff(after), np.diff(before) * factor, rtol=1e-9, atol=1e-12 * after[-1])
    assert scaled.drop("arrival_s").equals(trace.drop("arrival_s"))
    assert np.array_equal(np.diff(after) == 0, np.diff(before) == 0)


def test_rate_counts_all_requests_over_the_time_between_first_and_last() -> None:
    assert rate(trace_of([3.0, 4.0, 5.0])) == 1.5
    assert rate(trace_of([2.0, 2.0])) is None


def test_further_columns_come_along() -> None:
    trace = trace_of([0.0, 1.0, 2.0]).with_columns(domain=pl.Series(["a", "b", "c"]), note=pl.Series([1, 2, 3]))
    kept = window(scale_rate(trace, 3.0), start_s=0.5)
    assert kept.columns == [*trace.columns]
    assert kept.select("domain", "note").rows() == [("b", 2), ("c", 3)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"start_s": 5.0},
            r"no request arrives from `start_s` = 5.0 to `end_s` = None; the trace runs from 0.0 s to 2",
        ),
        ({"start_s": 1.25, "end_s": 1.5}, "no request arrives"),
        ({"start_s": 2.0, "end_s": 2.0}, "`end_s` must be later than `start_s` = 2.0, got 2.0"),
        ({"start_s": float("nan")}, "`start_s` must be a finite number of seconds >= 0, got nan"),
        ({"end_s": float("inf")}, "`end_s` must be a finite number"),
        ({"end_s": -1.0}, "`end_s` must be a finite number of seconds >= 0, got -1.0"),
        ({"limit": 0}, "`limit` must be at least 1, got 0"),
    ],
)
def test_bad_windows(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(TraceError, match=message):
        window(trace_of([0.0, 1.0, 2.0]), **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("target", [0.0, -1.0, float("nan"), float("inf")])
def test_bad_rates(target: float) -> None:
    with pytest.raises(TraceError, match="`requests_per_s` must be positive and finite, got"):
        scale_rate(trace_of([0.0, 1.0]), target)


@pytest.mark.parametrize("times", [[0.0], [1.0, 1.0, 1.0]])
def test_no_rate_to_scale(times: list[float]) -> None:
    with pytest.raises(TraceError, match="all arrive at once has no rate"):
        scale_rate(trace_of(times), 1.0)


def test_a_table_that_is_no_trace() -> None:
    for call in (rate, window, lambda t: scale_rate(t, 1.0)):
        with pytest.raises(TraceError, match="row 2: `arrival_s` must not be earlier"):
            call(trace_of([1.0, 0.0]))
