"""Cuts a stretch out of a trace and changes how fast its requests come."""

from __future__ import annotations

import math

import polars as pl

from .table import TraceError, check_trace


def rate(trace: pl.DataFrame) -> float | None:
    """Return requests per second: requests / (last arrival - first arrival); None if all arrive at once.

    Raises:
        TraceError: if the trace is not canonical.
    """
    check_trace(trace)
    seconds = _duration(trace)
    return trace.height / seconds if seconds > 0 else None


def window(
    trace: pl.DataFrame, start_s: float | None = None, end_s: float | None = None, limit: int | None = None
) -> pl.DataFrame:
    """Keep the requests that arrive in ``[start_s, end_s)``, and of those the first ``limit``.

    Args:
        trace: a canonical trace.
        start_s, end_s: seconds on the trace's own clock; None leaves that side open.
        limit: how many requests to keep at most; None for all.

    Returns:
        A canonical trace: requests renumbered from 0, times rebased so that the first arrives at 0 s.

    Raises:
        TraceError: if a bound makes no sense or no request is left.
    """
    check_trace(trace)
    _check_bounds(start_s, end_s, limit)
    arrival = pl.col("arrival_s")
    kept = trace.filter(
        arrival >= (-math.inf if start_s is None else start_s), arrival < (math.inf if end_s is None else end_s)
    )
    kept = kept if limit is None else kept.head(limit)
    if kept.is_empty():
        first, last = trace["arrival_s"][0], trace["arrival_s"][-1]
        raise TraceError(
            f"no request arrives from `start_s` = {start_s} to `end_s` = {end_s}; the trace runs from {first} s "
            f"to {last} s; choose a window inside"
        )
    return kept.with_columns(
        pl.int_range(kept.height, dtype=pl.Int64, eager=True).alias("request_id"),
        arrival - kept["arrival_s"][0],
    )


def scale_rate(trace: pl.DataFrame, requests_per_s: float) -> pl.DataFrame:
    """Stretch or squeeze time so that `rate` becomes ``requests_per_s``; the pattern of arrivals stays.

    Every arrival time is multiplied by the same factor; lengths and order do not change.

    Raises:
        TraceError: if the rate is not positive and finite, or all requests arrive at once.
    """
    if not (math.isfinite(requests_per_s) and requests_per_s > 0):
        raise TraceError(f"`requests_per_s` must be positive and finite, got {requests_per_s}")
    now = rate(trace)
    if now is None:
        raise TraceError(
            "a trace whose requests all arrive at once has no rate to scale; use a longer trace, or generate arrivals"
        )
    return trace.with_columns(pl.col("arrival_s") * (now / requests_per_s))


def _duration(trace: pl.DataFrame) -> float:
    return float(trace["arrival_s"][-1] - trace["arrival_s"][0])


def _check_bounds(start_s: float | None, end_s: float | None, limit: int | None) -> None:
    for name, bound in (("start_s", start_s), ("end_s", end_s)):
        if bound is not None and not (math.isfinite(bound) and bound >= 0):
            raise TraceError(f"`{name}` must be a finite number of seconds >= 0, got {bound}; leave it out for none")
    if start_s is not None and end_s is not None and end_s <= start_s:
        raise TraceError(f"`end_s` must be later than `start_s` = {start_s}, got {end_s}")
    if limit is not None and limit < 1:
        raise TraceError(f"`limit` must be at least 1, got {limit}; leave it out to keep all")
