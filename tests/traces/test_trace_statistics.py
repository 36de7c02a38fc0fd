"""Statistics: against the published table, against scipy, and on traces small enough to do by hand."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy import stats

from specsched.traces import generate_trace, read_trace, rounded_statistics, trace_statistics

FILES = {
    "azure2023_code": "AzureLLMInferenceTrace_code.csv",
    "azure2023_conv": "AzureLLMInferenceTrace_conv.csv",
    "mooncake_conversation": "mooncake_conversation_trace.jsonl",
}


def trace_of(times: list[float], prompt: list[int], output: list[int]) -> pl.DataFrame:
    columns = {"arrival_s": times, "prompt_tokens": prompt, "output_tokens": output}
    return pl.DataFrame(columns).with_row_index("request_id").cast({"request_id": pl.Int64})


@pytest.mark.shared_data
@pytest.mark.parametrize("name", FILES)
def test_agrees_with_the_published_table_in_every_printed_digit(shared_data: Path, name: str) -> None:
    with (shared_data / "traces" / "trace_stats.csv").open() as file:
        published = next(row for row in csv.DictReader(file) if row["trace"] == name)
    ours = rounded_statistics(trace_statistics(read_trace(shared_data / "traces" / FILES[name])))
    numbers = {column: float(text) for column, text in published.items() if column not in {"trace", "note"}}
    assert len(numbers) == 33
    assert ours == numbers


def test_by_hand() -> None:
    # 5 arrivals in 25 s: gaps 0, 5, 5, 15; two whole windows of 10 s hold 3 and 1, the third is unfinished.
    trace = trace_of([2.0, 2.0, 7.0, 12.0, 27.0], [0, 1, 1, 1, 4], [2, 2, 2, 2, 2])
    result = trace_statistics(trace)
    expected = {
        "n": 5,
        "duration_s": 25.0,
        "rate_rps": 0.2,
        "iat_cv": np.sqrt(275 / 4 - 6.25**2) / 6.25,
        "iat_zero_frac": 0.25,
        "peak_to_mean_10s": 1.5,
        "p99_to_mean_10s": 1.49,
        "idc_10s": 0.5,
        "idc_60s": None,
        "idc_600s": None,
        "in_mean": 1.4,
        "in_p50": 1.0,
        "in_p90": 2.8,
        "in_max": 4.0,
        "in_zero_frac": 0.2,
        "in_lognorm_mu": np.log(4) / 4,
        "out_lognorm_mu": np.log(2),
        "out_lognorm_sigma": 0.0,
        "out_log_skew": None,
        "out_lognorm_KS": None,
        "log_corr_in_out": None,
    }
    assert {name: result[name] for name in expected} == pytest.approx(expected)
    assert result["gamma_shape_from_cv"] == pytest.approx(1 / expected["iat_cv"] ** 2)


def test_agrees_with_scipy() -> None:
    trace = generate_trace(5_000, 3.0, "mooncake-conversation", seed=5, cv=2.0)
    result = trace_statistics(trace)
    for prefix, column in (("in", "prompt_tokens"), ("out", "output_tokens")):
        logs = np.log(trace[column].to_numpy())
        assert result[f"{prefix}_log_skew"] == pytest.approx(stats.skew(logs), rel=1e-9)
        law = stats.norm(logs.mean(), logs.std())
        assert result[f"{prefix}_lognorm_KS"] == pytest.approx(stats.kstest(logs, law.cdf).statistic, abs=1e-12)
    logs_1 = [np.log1p(trace[column].to_numpy()) for column in ("prompt_tokens", "output_tokens")]
    assert result["log_corr_in_out"] == pytest.approx(stats.pearsonr(*logs_1).statistic, abs=1e-12)


def test_one_request_has_no_rate() -> None:
    result = trace_statistics(trace_of([4.0], [0], [1]))
    undefined = {name for name, value in result.items() if value is None}
    arrivals = {"rate_rps", "iat_cv", "iat_zero_frac", "gamma_shape_from_cv", "peak_to_mean_10s", "p99_to_mean_10s"}
    arrivals |= {"idc_1s", "idc_10s", "idc_60s", "idc_600s"}
    lengths = {"in_lognorm_mu", "in_lognorm_sigma", "in_log_skew", "in_lognorm_KS", "out_log_skew", "out_lognorm_KS"}
    assert undefined == arrivals | lengths | {"log_corr_in_out"}
    assert (result["n"], result["duration_s"], result["in_zero_frac"]) == (1, 0.0, 1.0)


def test_where_the_clock_starts_does_not_matter() -> None:
    trace = generate_trace(300, 1.0, "azure-code", seed=1)
    shifted = trace.with_columns(pl.col("arrival_s") + 1024.0)
    assert rounded_statistics(trace_statistics(shifted)) == rounded_statistics(trace_statistics(trace))
