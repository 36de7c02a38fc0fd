"""Generators against theory. Sample sizes are stated; bounds are 4 standard errors, or a law's own 1e-6 bound."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy import stats

from specsched.traces import (
    LENGTH_TABLES,
    LengthTable,
    TraceError,
    check_trace,
    draw_domains,
    flash_arrivals,
    gamma_arrivals,
    generate_trace,
    load_lengths,
    poisson_arrivals,
    read_trace,
    wave_arrivals,
)

N = 200_000
ROOT = Path(__file__).resolve().parents[2]


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("cv", [0.25, 0.5, 1.0, 2.0, 3.0])
def test_gamma_gaps_have_the_asked_mean_and_cv(cv: float) -> None:
    gaps = np.diff(gamma_arrivals(N, 4.0, cv, rng()), prepend=0.0)
    assert abs(gaps.mean() - 0.25) < 4 * 0.25 * cv / math.sqrt(N)
    # Delta method for a Gamma law (skew 2 cv, kurtosis 3 + 6 cv^2): var(cv_hat) = cv^2 (1 + cv^2) / 2n.
    assert abs(gaps.std() / gaps.mean() - cv) < 4 * cv * math.sqrt((1 + cv**2) / (2 * N))


def test_gamma_gaps_follow_the_gamma_law() -> None:
    gaps = np.diff(gamma_arrivals(20_000, 2.0, 2.0, rng(1)), prepend=0.0)
    assert stats.kstest(gaps, stats.gamma(0.25, scale=2.0).cdf).pvalue > 0.001


def test_poisson_gaps_are_exponential_and_counts_are_poisson() -> None:
    times = poisson_arrivals(20_000, 5.0, rng(2))
    assert times[0] > 0
    assert stats.kstest(np.diff(times, prepend=0.0), stats.expon(scale=0.2).cdf).pvalue > 0.001
    counts = np.bincount(times.astype(int))[:-1]
    dispersion = counts.var(ddof=1) / counts.mean()
    assert abs(dispersion - 1) < 4 * math.sqrt(2 / (counts.size - 1))


def test_a_flash_crowd_is_poisson_with_another_rate_inside() -> None:
    """5 requests a second for 1,000 s, 20 a second for 500 s, then 5 again: three Poisson processes."""
    times = flash_arrivals(30_000, 5.0, 4.0, 1000.0, 500.0, rng(4))
    assert (np.diff(times) >= 0).all()
    parts = [times[times < 1000], times[(times >= 1000) & (times < 1500)], times[(times >= 1500) & (times < 4500)]]
    for part, expected in zip(parts, (5000, 10_000, 15_000), strict=True):
        assert abs(len(part) - expected) < 4 * math.sqrt(expected)
    for part, start, length in zip(parts, (0, 1000, 1500), (1000, 500, 3000), strict=True):
        # Given their number, the times of a Poisson process are uniform.
        assert stats.kstest(part, stats.uniform(start, length).cdf).pvalue > 0.001


def test_a_flash_may_begin_at_once_or_never_be_reached() -> None:
    early = flash_arrivals(1000, 1.0, 10.0, 0.0, 50.0, rng(5))
    assert abs((early < 50).sum() - 500) < 4 * math.sqrt(500)
    late = flash_arrivals(100, 1.0, 10.0, 1e6, 50.0, rng(5))
    assert late.tolist() == pytest.approx(np.cumsum(rng(5).exponential(1.0, 100)).tolist())


def test_waves_come_evenly_over_a_background() -> None:
    times = wave_arrivals(4000, 8.0, 32, 0.5, rng(6))
    values, counts = np.unique(times, return_counts=True)
    waves = values[counts >= 32]
    assert np.diff(waves).tolist() == pytest.approx([8.0] * (len(waves) - 1))
    assert set(counts[counts >= 32]) == {32}
    background = (counts < 32).sum()
    assert abs(background - 2000) < 4 * math.sqrt(2000)
    alone = wave_arrivals(100, 10.0, 40, 1.0, rng(7))
    assert alone.tolist() == [4.0] * 40 + [8.0] * 40 + [12.0] * 20


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: flash_arrivals(5, 1.0, 0.0, 1.0, 1.0, rng()), "`peak` must be positive and finite, got 0.0"),
        (lambda: flash_arrivals(5, 1.0, 2.0, -1.0, 1.0, rng()), "`start_s` must be at least 0 and finite, got -1.0"),
        (lambda: wave_arrivals(5, 1.0, 0, 0.5, rng()), "`size` must be at least 1 request, got 0"),
        (lambda: wave_arrivals(5, 1.0, 3, 1.5, rng()), "`share` must be above 0 and at most 1, got 1.5"),
    ],
)
def test_arrivals_out_of_range_are_named(make: Callable[[], object], message: str) -> None:
    with pytest.raises(TraceError, match=message):
        make()


def test_very_bursty_arrivals_tie_but_never_go_back() -> None:
    times = gamma_arrivals(50_000, 2.5, 30.0, rng(3))
    assert (np.diff(times) >= 0).all()
    assert (np.diff(times) == 0).any()
    assert np.isfinite(times).all()


@pytest.mark.parametrize("name", LENGTH_TABLES)
def test_sampled_lengths_have_the_quantiles_of_the_table(name: str) -> None:
    table = load_lengths(name)
    bound = math.sqrt(math.log(2 / 1e-6) / (2 * N))  # Dvoretzky-Kiefer-Wolfowitz, at every length at once
    for tokens, drawn in zip((table.prompt, table.output), table.sample(N, rng(4)), strict=True):
        assert drawn.dtype == np.int64
        assert drawn.min() >= 1
        assert drawn.min() >= np.rint(tokens[0])
        assert drawn.max() <= np.rint(tokens[-1])
        # Rounding moves a length by at most one half.
        up_to = np.array([(drawn <= value + 0.5).mean() for value in tokens])
        below = np.array([(drawn < value - 0.5).mean() for value in tokens])
        assert (up_to >= table.percentiles / 100 - bound).all()
        assert (below <= table.percentiles / 100 + bound).all()


@pytest.mark.parametrize("name", LENGTH_TABLES)
def test_sampled_means_are_those_of_the_interpolated_table(name: str) -> None:
    table = load_lengths(name)
    for tokens, drawn in zip((table.prompt, table.output), table.sample(N, rng(5)), strict=True):
        mean = np.trapezoid(tokens, table.percentiles) / 100
        assert abs(drawn.mean() - mean) < 4 * drawn.std() / math.sqrt(N)


def test_lengths_are_rounded_to_the_nearest() -> None:
    table = LengthTable("1 to 3", np.array([0.0, 100.0]), np.array([1.0, 3.0]), np.array([1.0, 3.0]))
    prompt, _ = table.sample(N, rng(8))
    shares = np.bincount(prompt, minlength=4) / N
    np.testing.assert_allclose(shares, [0, 0.25, 0.5, 0.25], atol=4 * math.sqrt(0.25 / N))


def test_prompt_and_output_are_independent() -> None:
    prompt, output = load_lengths("azure-conversation").sample(N, rng(6))
    assert abs(stats.spearmanr(prompt, output).statistic) < 4 / math.sqrt(N)


@pytest.mark.shared_data
@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("azure-conversation", "AzureLLMInferenceTrace_conv.csv"),
        ("azure-code", "AzureLLMInferenceTrace_code.csv"),
        ("mooncake-conversation", "mooncake_conversation_trace.jsonl"),
    ],
)
def test_shipped_tables_are_the_quantiles_of_the_public_traces(shared_data: Path, name: str, file: str) -> None:
    table, trace = load_lengths(name), read_trace(shared_data / "traces" / file)
    for column, tokens in (("prompt_tokens", table.prompt), ("output_tokens", table.output)):
        # The table is printed to two decimals.
        np.testing.assert_allclose(np.percentile(trace[column].to_numpy(), table.percentiles), tokens, atol=0.0051)


@pytest.mark.shared_data
def test_shipped_tables_are_what_the_script_builds(shared_data: Path, tmp_path: Path) -> None:
    script = ROOT / "benchmarks" / "build_length_tables.py"
    quantiles = shared_data / "traces" / "trace_quantiles.csv"
    subprocess.run([sys.executable, script, quantiles, "--out", tmp_path], check=True)
    assert sorted(path.stem for path in tmp_path.iterdir()) == sorted(LENGTH_TABLES)
    for path in tmp_path.iterdir():
        assert path.read_bytes() == (ROOT / "traces" / "data" / path.name).read_bytes()


@pytest.mark.parametrize("name", LENGTH_TABLES)
def test_shipped_tables_say_where_they_come_from(name: str) -> None:
    table = load_lengths(name)
    assert table.source is not None
    assert "https://github.com/" in table.source
    assert table.licence is not None
    assert table.licence.startswith("CC-BY-4.0" if name.startswith("azure") else "Apache-2.0")


def test_constant_lengths() -> None:
    prompt, output = LengthTable.constant(1024, 256).sample(1000, rng())
    assert (set(prompt), set(output)) == ({1024}, {256})


def test_domain_shares() -> None:
    mix = {"chat": 0.5, "code": 0.3, "math": 0.2}
    drawn = draw_domains(N, mix, rng(7))
    assert len(drawn) == N
    for name, weight in mix.items():
        assert abs(drawn.count(name) / N - weight) < 4 * math.sqrt(weight * (1 - weight) / N)


def test_the_order_of_a_mix_does_not_matter() -> None:
    assert draw_domains(100, {"a": 0.4, "b": 0.6}, rng()) == draw_domains(100, {"b": 0.6, "a": 0.4}, rng())


def test_thirds_sum_to_one() -> None:
    assert set(draw_domains(1000, {"a": 1 / 3, "b": 1 / 3, "c": 1 / 3}, rng())) == {"a", "b", "c"}
    assert draw_domains(3, {"a": 1 - 9e-10}, rng()) == ["a"] * 3


def test_generated_traces_are_canonical_and_repeat() -> None:
    arguments = {"n": 500, "rate": 4.0, "lengths": "azure-conversation", "seed": 11}
    mix = {"chat": 0.9, "code": 0.1}
    trace = generate_trace(**arguments, cv=3.0, domains=mix)
    check_trace(trace)
    assert trace.columns == ["request_id", "arrival_s", "prompt_tokens", "output_tokens", "domain"]
    assert trace.equals(generate_trace(**arguments, cv=3.0, domains=mix))
    assert not trace.equals(generate_trace(**{**arguments, "seed": 12}, cv=3.0, domains=mix))


def test_streams_are_apart() -> None:
    base = generate_trace(200, 4.0, "azure-code", seed=1)
    assert generate_trace(200, 4.0, "azure-code", seed=1, domains={"a": 1.0}).drop("domain").equals(base)
    bursty = generate_trace(200, 4.0, load_lengths("azure-code"), seed=1, cv=3.0)
    assert bursty.drop("arrival_s").equals(base.drop("arrival_s"))
    longer = generate_trace(200, 4.0, "mooncake-conversation", seed=1)
    assert longer["arrival_s"].equals(base["arrival_s"])


def test_the_same_seed_at_another_rate_is_the_same_pattern() -> None:
    slow, fast = (generate_trace(200, rate, "azure-code", seed=1)["arrival_s"].to_numpy() for rate in (1.0, 4.0))
    np.testing.assert_allclose(slow, 4 * fast, rtol=1e-12)


def generate(**changes: object) -> pl.DataFrame:
    arguments: dict[str, object] = {"n": 10, "rate": 1.0, "lengths": "azure-code", "seed": 0}
    return generate_trace(**{**arguments, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n": 0}, "`n` must be at least 1 request, got 0"),
        ({"rate": 0.0}, "`rate` must be positive and finite, got 0.0"),
        ({"rate": float("nan")}, "`rate` must be positive and finite, got nan"),
        ({"rate": float("inf"), "cv": 2.0}, "`rate` must be positive and finite, got inf"),
        ({"cv": 0.0}, "`cv` must be positive and finite, got 0.0"),
        ({"cv": float("nan")}, "`cv` must be positive and finite, got nan"),
        ({"seed": -1}, "`seed` must be an integer >= 0, got -1"),
        ({"lengths": "azure"}, "no length table is called `azure`; choose one of `azure-conversation`, `azure-code`"),
        ({"domains": {}}, "`domains` is empty"),
        ({"domains": {"a": 0.5, "b": 0.4}}, "the weights must sum to 1, got 0.9; divide"),
        ({"domains": {"a": 0.5, "b": 0.5 + 2e-9}}, "the weights must sum to 1, got 1.000000002"),
        ({"domains": {"a": 1.0, "b": 0.0}}, "the weight of `b` must be positive, got 0.0; leave unused ones out"),
        ({"domains": {"a": 1.5, "b": -0.5}}, "the weight of `b` must be positive, got -0.5"),
        ({"domains": {"a": float("nan")}}, "the weight of `a` must be positive, got nan"),
        ({"domains": {"": 1.0}}, "a domain must have a name"),
    ],
)
def test_bad_arguments(changes: dict[str, object], message: str) -> None:
    with pytest.raises(TraceError, match=message):
        generate(**changes)


@pytest.mark.parametrize(
    ("percentiles", "prompt", "message"),
    [
        ([0, 50], [1, 2], "`percentiles` must increase from 0 to 100"),
        ([0, 50, 50, 100], [1, 2, 3, 4], "`percentiles` must increase"),
        ([0, 100], [0, 2], "`prompt` must be finite, >= 1 and never decrease"),
        ([0, 100], [3, 2], "`prompt` must be finite, >= 1 and never decrease"),
        ([0, 100], [1, math.nan], "`prompt` must be finite"),
        ([0, 100], [1, 2, 3], "`prompt` must hold one value a percentile"),
    ],
)
def test_bad_tables(percentiles: list[float], prompt: list[float], message: str) -> None:
    with pytest.raises(TraceError, match=f"length table `mine`: {message}"):
        LengthTable("mine", np.array(percentiles, float), np.array(prompt, float), np.ones(len(percentiles)))
