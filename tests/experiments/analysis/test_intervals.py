"""Student t quantiles and intervals."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from specsched.experiments.analysis.intervals import Interval, mean_interval, ratio_interval, t_quantile


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 5, 8, 9, 30, 101, 1000])
@pytest.mark.parametrize("probability", [0.01, 0.4, 0.5, 0.75, 0.975, 0.995, 0.9999])
def test_quantile_equals_scipy(probability: float, degrees: int) -> None:
    assert t_quantile(probability, degrees) == pytest.approx(stats.t.ppf(probability, degrees), rel=1e-10, abs=1e-10)


@pytest.mark.parametrize("probability", [0.0, 1.0, -0.1, math.nan])
def test_a_probability_outside_the_open_unit_interval_is_refused(probability: float) -> None:
    with pytest.raises(ValueError, match="`probability` must be above 0 and below 1"):
        t_quantile(probability, 4)


def test_no_degrees_of_freedom_are_refused() -> None:
    with pytest.raises(ValueError, match="`degrees` must be at least 1, got 0"):
        t_quantile(0.975, 0)


def test_interval_equals_scipy() -> None:
    values = [102.0, 99.5, 101.25, 97.0, 100.5, 103.0]
    low, high = stats.t.interval(0.95, 5, loc=np.mean(values), scale=stats.sem(values))
    interval = mean_interval(values)
    assert interval is not None
    assert (interval.low, interval.high) == pytest.approx((low, high), rel=1e-12)


def test_four_seeds_give_no_interval_and_five_do() -> None:
    assert mean_interval([1.0, 2.0, 3.0, 4.0]) is None
    assert ratio_interval([0.1] * 4) is None
    assert mean_interval([1.0, 2.0, 3.0, 4.0, 5.0]) is not None


def test_equal_values_give_an_interval_of_no_width() -> None:
    assert mean_interval([7.0] * 5) == Interval(7.0, 7.0)


def test_interval_covers_the_mean_as_often_as_it_says() -> None:
    # 4,000 samples of five normal values: the share covered has a standard error of 0.34 points.
    samples = np.random.default_rng(1).normal(3.0, 2.0, (4000, 5))
    covered = [found.low <= 3.0 <= found.high for row in samples if (found := mean_interval(list(row)))]
    assert np.mean(covered) == pytest.approx(0.95, abs=0.0137)


def test_ratio_interval_is_the_interval_of_the_logs() -> None:
    logs = [math.log(ratio) for ratio in (1.2, 1.25, 1.22, 1.3, 1.18)]
    plain, ratio = mean_interval(logs), ratio_interval(logs)
    assert plain is not None
    assert ratio is not None
    assert (ratio.low, ratio.high) == (math.exp(plain.low), math.exp(plain.high))
    assert ratio.low < math.exp(np.mean(logs)) < ratio.high
