from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from specsched.policies.lossless.sampled import Sampler, assert_law, chi_square, draws_needed, power, two_samples
from specsched.policies.lossless.tails import chi_square_critical, chi_square_tail, noncentral_tail

DEGREES = [1, 2, 3, 7, 29, 31, 32, 33, 100, 2001, 150_000]
DIE = {face: Fraction(1, 6) for face in range(1, 7)}


def sampler_of(law: Mapping[int, Fraction | float]) -> Sampler[int]:
    """A sampler that does have a law."""

    def drawn(draws: int, seed: int) -> dict[int, int]:
        counts = np.random.default_rng(seed).multinomial(draws, [float(each) for each in law.values()])
        return dict(zip(law, counts.tolist(), strict=True))

    return drawn


def shifted(law: dict[int, Fraction], distance: Fraction) -> dict[int, Fraction]:
    """The hardest alternative at a distance: one half of the mass grows in proportion, the other shrinks."""
    half = len(law) // 2
    assert sum(list(law.values())[:half]) == Fraction(1, 2)
    return {key: p * (1 + (2 if place < half else -2) * distance) for place, (key, p) in enumerate(law.items())}


# --- tails


@pytest.mark.parametrize("degrees", DEGREES)
def test_the_central_tail_is_scipy_s(degrees: int) -> None:
    for probability in (1 - 1e-9, 0.999, 0.9, 0.5, 0.1, 0.01, 1e-4, 1e-6, 1e-9, 1e-12, 1e-40):
        statistic = stats.chi2.isf(probability, degrees)
        expected = stats.chi2.sf(statistic, degrees)
        assert chi_square_tail(statistic, degrees) == pytest.approx(expected, rel=1e-10, abs=1e-300)


@pytest.mark.parametrize("degrees", DEGREES)
@pytest.mark.parametrize("noncentrality", [1e-3, 0.5, 3.0, 20.0, 100.0, 1e3, 1e4])
def test_the_noncentral_tail_is_the_mixture_s(degrees: int, noncentrality: float) -> None:
    # scipy's own ncx2 gives 0 for 1 where the mixture underflows, so the mixture is summed here from scipy's parts.
    counts = np.arange(int(noncentrality + 20 * math.sqrt(noncentrality) + 60))
    weights = stats.poisson.pmf(counts, noncentrality / 2)
    mean, deviation = degrees + noncentrality, math.sqrt(2 * (degrees + 2 * noncentrality))
    for away in (-8.0, -3.0, -1.0, 0.0, 1.0, 3.0, 8.0):
        statistic = max(mean + away * deviation, 0.01 * mean)
        expected = float(weights @ stats.chi2.sf(statistic, degrees + 2 * counts))
        assert noncentral_tail(statistic, degrees, noncentrality) == pytest.approx(expected, rel=1e-10, abs=1e-13)
        if degrees < 5000:
            assert expected == pytest.approx(float(stats.ncx2.sf(statistic, degrees, noncentrality)), abs=1e-10)


@pytest.mark.parametrize("degrees", DEGREES)
def test_critical_values_are_scipy_s(degrees: int) -> None:
    for alpha in (0.5, 0.05, 1e-3, 1e-6, 1e-9):
        assert chi_square_critical(alpha, degrees) == pytest.approx(stats.chi2.isf(alpha, degrees), rel=1e-10)


def test_tails_at_their_ends() -> None:
    assert chi_square_tail(0.0, 3) == 1.0
    assert chi_square_tail(math.inf, 3) == 0.0
    assert chi_square_tail(1.0, 0) == 0.0
    assert noncentral_tail(0.0, 3, 2.0) == 1.0
    assert noncentral_tail(4.0, 3, 0.0) == chi_square_tail(4.0, 3)
    with pytest.raises(ValueError, match="`statistic` of a chi-square law must be at least 0, got nan"):
        chi_square_tail(math.nan, 3)
    with pytest.raises(ValueError, match="`noncentrality` of a chi-square law must be at least 0, got -1"):
        noncentral_tail(1.0, 3, -1)
    with pytest.raises(ValueError, match="degrees above 0 and finite"):
        noncentral_tail(1.0, 0, 1.0)
    with pytest.raises(ValueError, match=r"0 < alpha < 1 and degrees above 0, got 0\.0 and 3"):
        chi_square_critical(0.0, 3)


# --- one sample


def test_a_fit_is_pearson_s() -> None:
    observed = [90, 110, 95, 105, 120, 80]
    fit = chi_square(dict(zip(DIE, observed, strict=True)), DIE)
    expected = stats.chisquare(observed)
    assert (fit.degrees, fit.draws, fit.pooled) == (5, 600, 0)
    assert fit.statistic == pytest.approx(expected.statistic)
    assert fit.p_value == pytest.approx(expected.pvalue)


def test_rare_outcomes_share_a_cell_that_is_itself_not_rare() -> None:
    law = {"a": 0.5, "b": 0.4, "c": 0.06, "d": 0.03, "e": 0.01}
    # 100 draws: d and e are expected 3 and 1 times, together 4, so that c joins them: 10.
    fit = chi_square({"a": 50, "b": 40, "c": 4, "d": 5, "e": 1}, law)
    assert (fit.degrees, fit.pooled, fit.statistic) == (2, 3, pytest.approx(0.0))
    # 200 draws: e alone is expected less than 5 times; d, expected 6 times, joins it.
    fit = chi_square({"a": 92, "b": 80, "c": 12, "d": 8, "e": 8}, law)
    assert (fit.degrees, fit.pooled) == (3, 2)
    assert fit.statistic == pytest.approx((92 - 100) ** 2 / 100 + (16 - 8) ** 2 / 8)


def test_an_impossible_outcome_fails_outright() -> None:
    for law in ({"a": 0.5, "b": 0.5}, {"a": 0.5, "b": 0.5, "c": 0.0}):
        fit = chi_square({"a": 500_000, "b": 500_000, "c": 1}, law)
        assert (fit.statistic, fit.p_value) == (math.inf, 0.0)


def test_a_sure_outcome() -> None:
    assert chi_square({"a": 10}, {"a": 1}).p_value == 1.0
    assert chi_square({"a": 9, "b": 1}, {"a": 1}).p_value == 0.0
    assert draws_needed({"a": 1}, total_variation=0.1, power=0.99) == math.ceil(math.log(0.01) / math.log(0.9))


def test_what_is_no_law_or_no_count() -> None:
    with pytest.raises(ValueError, match="must sum to 1, got 9/10"):
        chi_square({"a": 1}, {"a": Fraction(9, 10)})
    with pytest.raises(ValueError, match=r"must sum to 1, got 1\.00001; normalize them, floats in float64"):
        chi_square({"a": 1}, {"a": 0.5, "b": 0.50001})
    with pytest.raises(ValueError, match=r"within \[0, 1\], got -1 for 'b'"):
        chi_square({"a": 1}, {"a": 2, "b": -1} | {"a": 1})
    with pytest.raises(ValueError, match=r"whole numbers of at least 0, got 1\.5 for 'a'"):
        chi_square({"a": 1.5}, {"a": 0.5, "b": 0.5})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="whole numbers of at least 0, got -1 for 'b'"):
        chi_square({"a": 2, "b": -1}, {"a": 0.5, "b": 0.5})
    with pytest.raises(ValueError, match="no draws"):
        chi_square({}, {"a": 0.5, "b": 0.5})
    with pytest.raises(ValueError, match="6 draws are too few to expect 5 in each of two cells"):
        chi_square({"a": 6}, {"a": 0.5, "b": 0.5})


@pytest.mark.parametrize("alpha", [0.05, 0.01])
def test_false_alarms_come_as_often_as_stated(alpha: float) -> None:
    # 4,000 seeds of 3,000 draws; the band holds 99.99 % of right tests.
    law = {face: face / 45 for face in range(1, 10)}
    drawn = sampler_of(law)
    alarms = sum(chi_square(drawn(3_000, seed), law).p_value <= alpha for seed in range(4_000))
    low, high = stats.binom.interval(0.9999, 4_000, alpha)
    assert low <= alarms <= high


def test_false_alarms_of_a_rare_cell_far_out_are_as_documented() -> None:
    # Two cells, so that the statistic's law is binomial and can be summed: alpha 1e-6, a million draws.
    alarms = {}
    for expected in (5, 100):
        counts = np.arange(3_000)
        statistic = (counts - expected) ** 2 * (1 / expected + 1 / (10**6 - expected))
        far = statistic >= chi_square_critical(1e-6, 1)
        alarms[expected] = float(stats.binom.pmf(counts, 10**6, expected / 10**6)[far].sum())
    assert alarms == {5: pytest.approx(7e-5, rel=0.05), 100: pytest.approx(3e-6, rel=0.05)}


# --- power


def test_power_is_reached_as_stated() -> None:
    # 2,000 seeds of a sampler biased by the alternative itself; the band holds 99.99 % of them.
    biased = shifted(DIE, Fraction(1, 20))
    draws = draws_needed(DIE, alternative=biased, alpha=0.01, power=0.8)
    assert power(DIE, biased, draws, 0.01) >= 0.8 > power(DIE, biased, draws - 1, 0.01)
    drawn = sampler_of(biased)
    caught = sum(chi_square(drawn(draws, seed), DIE).p_value <= 0.01 for seed in range(2_000))
    low, high = stats.binom.interval(0.9999, 2_000, 0.8)
    assert low <= caught <= high


def test_the_hardest_alternative_is_the_bound() -> None:
    for alpha, wanted in ((0.01, 0.5), (1e-6, 0.99)):
        bound = draws_needed(DIE, total_variation=0.05, alpha=alpha, power=wanted)
        assert bound == draws_needed(DIE, alternative=shifted(DIE, Fraction(1, 20)), alpha=alpha, power=wanted)


def test_no_alternative_at_the_distance_needs_more_draws() -> None:
    rng = np.random.default_rng(7)
    law = dict(enumerate((np.arange(1, 9) / 36).tolist()))
    p = np.array(list(law.values()))
    bound = draws_needed(law, total_variation=0.02, alpha=1e-3, power=0.9)
    for _ in range(50):
        change = rng.normal(size=8) * p ** rng.choice([0.0, 0.5, 1.0])
        change -= change.mean()
        change *= 0.04 / np.abs(change).sum()
        other = dict(enumerate((p + change).tolist()))
        assert power(law, other, bound, 1e-3) >= 0.9 - 1e-9


def test_what_pooled_outcomes_can_hide_is_paid_for() -> None:
    # Half of the mass on 1,000 rare outcomes. An alternative that moves mass among these alone is invisible as long as
    # they share a cell; the draws asked for give each its own.
    rare = {("rare", place): Fraction(1, 2_000) for place in range(1_000)}
    law = {**rare, "common": Fraction(1, 2)}
    other = {key: p * (Fraction(3, 2) if place % 2 else Fraction(1, 2)) for place, (key, p) in enumerate(rare.items())}
    other["common"] = Fraction(1, 2)
    assert sum(abs(other[key] - law[key]) for key in law) / 2 == Fraction(1, 8)
    assert power(law, other, 9_000, 0.01) == pytest.approx(0.01)
    draws = draws_needed(law, total_variation=0.125, alpha=0.01, power=0.9)
    assert draws >= 10_000
    assert power(law, other, draws, 0.01) >= 0.9


def test_mass_on_impossible_outcomes_counts_as_caught() -> None:
    law, other = {"a": 0.5, "b": 0.5}, {"a": 0.45, "b": 0.45, "c": 0.1}
    # Given that none occurred the alternative is the law itself, and only a false alarm rejects it.
    assert power(law, other, 20, 0.01) == pytest.approx(1 - 0.9**20 * 0.99)
    assert power(law, {"c": 1.0}, 1, 0.01) == 1.0


def test_questions_about_power_that_have_no_answer() -> None:
    with pytest.raises(ValueError, match="one of `total_variation` and `alternative`"):
        draws_needed(DIE)
    with pytest.raises(ValueError, match="one of `total_variation` and `alternative`"):
        draws_needed(DIE, total_variation=0.1, alternative=DIE)
    with pytest.raises(ValueError, match="do not tell the alternative from the law"):
        draws_needed(DIE, alternative=DIE)
    with pytest.raises(ValueError, match=r"`total_variation` must be within \(0, 1\), got 0"):
        draws_needed(DIE, total_variation=0)
    with pytest.raises(ValueError, match=r"`power` must be within \(0, 1\), got 1"):
        draws_needed(DIE, total_variation=0.1, power=1)
    with pytest.raises(ValueError, match="`draws` must be at least 1, got 0"):
        power(DIE, DIE, 0, 0.01)
    assert power(DIE, DIE, 3, 0.01) == 0.0


# --- assertions


def test_a_right_sampler_passes_and_a_biased_one_is_caught() -> None:
    # alpha 1e-6 and power 0.99: of 50 right samplers none may fail, of 50 biased ones at least 45 are caught but for
    # a chance of 2e-5.
    biased = shifted(DIE, Fraction(1, 100))
    assert assert_law(sampler_of(DIE), DIE).draws == draws_needed(DIE, total_variation=0.01, minimum_expected=100)
    caught = 0
    for seed in range(50):
        assert_law(sampler_of(DIE), DIE, total_variation=0.01, seed=seed)
        try:
            assert_law(sampler_of(biased), DIE, total_variation=0.01, seed=seed)
        except AssertionError:
            caught += 1
    assert caught >= 45


def test_a_failure_says_what_is_wrong_and_what_the_test_could_see() -> None:
    loaded = {face: Fraction(1, 4) if face == 6 else Fraction(3, 20) for face in DIE}
    with pytest.raises(AssertionError) as caught:
        assert_law(sampler_of(loaded), DIE, total_variation=0.05, seed=3)
    message = str(caught.value)
    draws = draws_needed(DIE, total_variation=0.05, minimum_expected=100)
    assert f"seed 3, {draws} draws, enough to see a total variation of 0.05 with probability 0.99" in message
    assert f"Furthest off: 6 expected {draws / 6:.1f}, observed {sampler_of(loaded)(draws, 3)[6]};" in message
    assert "p = " in message


def test_impossible_outcomes_are_named_first() -> None:
    with pytest.raises(AssertionError, match=r"p = 0 .*Furthest off: 7 expected 0\.0, observed 1;"):
        assert_law(lambda draws, seed: {**sampler_of(DIE)(draws - 1, seed), 7: 1}, DIE)


def test_a_sampler_that_loses_draws_is_refused() -> None:
    with pytest.raises(ValueError, match=r"asked for (\d+) draws and counted (?!\1)"):
        assert_law(lambda draws, seed: sampler_of(DIE)(draws - 1, seed), DIE)


# --- two samples


def test_two_samples_are_a_contingency_table() -> None:
    one, two = {"a": 30, "b": 50, "c": 20}, {"a": 100, "b": 120, "c": 80}
    fit = two_samples(one, two)
    expected = stats.chi2_contingency([list(one.values()), list(two.values())], correction=False)
    assert (fit.degrees, fit.draws, fit.pooled) == (2, 400, 0)
    assert fit.statistic == pytest.approx(expected.statistic)
    assert fit.p_value == pytest.approx(expected.pvalue)


def test_two_samples_pool_what_is_rare_in_the_smaller() -> None:
    one, two = {"a": 60, "b": 30, "d": 10}, {"a": 500, "b": 400, "c": 50, "d": 50}
    # Expected in 100 draws: c 50 / 11 = 4.5, so that d, 60 / 11 = 5.5, joins it.
    fit = two_samples(one, two)
    expected = stats.chi2_contingency([[60, 30, 10], [500, 400, 100]], correction=False)
    assert (fit.degrees, fit.pooled) == (2, 2)
    assert fit.statistic == pytest.approx(expected.statistic)
    with pytest.raises(ValueError, match="6 and 600 draws are too few to expect 5 in two cells"):
        two_samples({"a": 3, "b": 3}, {"a": 300, "b": 300})
    assert two_samples({"a": 3}, {"a": 4}).p_value == 1.0


def test_two_samplers_of_one_law_raise_false_alarms_as_often_as_stated() -> None:
    # 3,000 pairs of seeds of 1,000 and 2,500 draws; the band holds 99.99 % of right tests.
    law = {face: face / 45 for face in range(1, 10)}
    drawn = sampler_of(law)
    p_values = [two_samples(drawn(1_000, seed), drawn(2_500, 10_000 + seed)).p_value for seed in range(3_000)]
    low, high = stats.binom.interval(0.9999, 3_000, 0.05)
    assert low <= sum(p <= 0.05 for p in p_values) <= high
    assert Counter(p <= 1e-6 for p in p_values)[True] == 0
