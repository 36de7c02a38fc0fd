"""Calibration measures against hand-computed values and scikit-learn."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from sklearn.calibration import calibration_curve
from sklearn.metrics import brier_score_loss, roc_auc_score

from specsched.policies.calibration import STS, CalibrationError, auroc, brier, ece, fit_sts, reliability_table


def world(size: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    p = rng.random(size)
    return p, (rng.random(size) < p**1.5).astype(np.float64)


def test_ece_by_hand() -> None:
    # Bin [0, .5): mean prediction .2, outcome 1/2. Bin [.5, 1]: .8, 1/2. Weights 1/2 each.
    assert ece([0.1, 0.3, 0.7, 0.9], [0, 1, 1, 0], bins=2) == pytest.approx(0.5 * 0.3 + 0.5 * 0.3)


def test_an_edge_belongs_to_the_bin_above_and_1_to_the_last() -> None:
    table = reliability_table([0.5, 1.0, 0.0], [1, 1, 0], bins=2)
    np.testing.assert_array_equal(table.count, [1, 2])
    np.testing.assert_array_equal(table.low, [0.0, 0.5])
    np.testing.assert_array_equal(table.high, [0.5, 1.0])
    np.testing.assert_array_equal(table.predicted, [0.0, 0.75])
    np.testing.assert_array_equal(table.observed, [0.0, 1.0])


def test_opposite_errors_in_two_bins_do_not_cancel() -> None:
    assert ece([0.25, 0.75], [1, 0], bins=2) == pytest.approx(0.75)
    assert ece([0.25, 0.75], [1, 0], bins=1) == pytest.approx(0.0)


def test_reliability_and_ece_against_scikit_learn() -> None:
    p, y = world(5000)
    table = reliability_table(p, y, bins=20)
    observed, predicted = calibration_curve(y, p, n_bins=20, strategy="uniform")
    np.testing.assert_allclose(table.observed, observed, rtol=1e-12)
    np.testing.assert_allclose(table.predicted, predicted, rtol=1e-12)
    weights = np.histogram(p, 20, (0.0, 1.0))[0] / len(p)
    assert ece(p, y) == pytest.approx(float((weights * np.abs(observed - predicted)).sum()), rel=1e-12)


@pytest.mark.parametrize("digits", [1, 2, 12])
def test_auroc_against_scikit_learn_with_and_without_ties(digits: int) -> None:
    p, y = world(3000)
    p = p.round(digits)
    assert auroc(p, y) == pytest.approx(roc_auc_score(y, p), rel=1e-12)


def test_auroc_by_hand() -> None:
    assert auroc([0.1, 0.9], [0, 1]) == 1.0
    assert auroc([0.9, 0.1], [0, 1]) == 0.0
    assert auroc([0.4, 0.4], [0, 1]) == 0.5
    # Pairs (accepted, rejected): .8 beats .5 and ties .8; .6 beats .5, loses to .8: 2.5 of 4.
    assert auroc([0.8, 0.6, 0.5, 0.8], [1, 1, 0, 0]) == pytest.approx(2.5 / 4)


def test_brier_by_hand_and_against_scikit_learn() -> None:
    assert brier([0.9, 0.2], [1, 1]) == pytest.approx((0.01 + 0.64) / 2)
    p, y = world(3000)
    assert brier(p, y) == pytest.approx(brier_score_loss(y, p), rel=1e-12)


def blocks(size: int, temperatures: tuple[float, ...], seed: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Blocks whose raw confidences are the true probabilities with logits multiplied by the temperatures."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(1.0, 1.2, (size, len(temperatures)))
    q = 1.0 / (1.0 + np.exp(-logits))
    raw = 1.0 / (1.0 + np.exp(-logits * np.array(temperatures)))
    return raw, rng.random(q.shape) < q


def test_fit_sts_finds_the_temperatures_of_the_world() -> None:
    truth = (1.5, 1.0, 2.0)
    raw, accepted = blocks(150_000, truth)
    fitted = fit_sts(raw, accepted)
    np.testing.assert_allclose(fitted.temperatures, truth, rtol=0.06)
    survives = np.logical_and.accumulate(accepted, axis=1)
    after = np.cumprod(fitted.apply(raw), axis=1)
    before = np.cumprod(raw, axis=1)
    for k in range(3):
        assert ece(after[:, k], survives[:, k]) < 0.006
    assert ece(before[:, 0], survives[:, 0]) > 0.04


def test_each_temperature_minimizes_the_ece_of_the_prefix_product() -> None:
    """Position by position against a brute-force search, earlier positions fixed at their calibrated values."""
    raw, accepted = blocks(4000, (1.4, 1.8))
    grid = [0.8, 1.0, 1.25, 1.5, 1.9, 2.4]
    survives = np.logical_and.accumulate(accepted, axis=1)
    fitted = fit_sts(raw, accepted, grid)
    prefix = np.ones(len(raw))
    for k in range(2):
        scaled = {t: prefix * STS((t,)).apply(raw[:, k : k + 1])[:, 0] for t in grid}
        errors = {t: ece(product, survives[:, k]) for t, product in scaled.items()}
        assert fitted.temperatures[k] == min(errors, key=lambda t: errors[t])
        prefix = scaled[fitted.temperatures[k]]


def test_outcomes_after_a_rejection_do_not_matter() -> None:
    raw, accepted = blocks(3000, (1.5, 1.2, 1.0))
    assert fit_sts(raw, accepted) == fit_sts(raw, np.logical_and.accumulate(accepted, axis=1))


def test_of_equally_good_temperatures_the_nearest_to_1_is_taken() -> None:
    # Every confidence is 1/2, which no temperature moves.
    assert fit_sts(np.full((10, 2), 0.5), np.zeros((10, 2)), [3.0, 0.5, 1.1, 2.0]).temperatures == (1.1, 1.1)


def test_apply_keeps_the_order_and_the_ends() -> None:
    raw = np.sort(np.random.default_rng(1).random((500, 2)), axis=0)
    raw[0], raw[-1] = 0.0, 1.0
    scaled = STS((2.0, 0.5)).apply(raw)
    assert (np.diff(scaled, axis=0) >= 0.0).all()
    np.testing.assert_array_equal(scaled[[0, -1]], [[0.0, 0.0], [1.0, 1.0]])
    logit = math.log(0.8 / 0.2)
    assert STS((2.0,)).apply([0.8])[0] == pytest.approx(1.0 / (1.0 + math.exp(-logit / 2.0)))


@pytest.mark.parametrize("measure", [ece, auroc, brier, reliability_table])
@pytest.mark.parametrize(
    ("predicted", "observed", "message"),
    [
        ([0.5, 0.5], [1.0], "one shape, got \\(2,\\) and \\(1,\\)"),
        ([0.5, math.nan], [1, 0], "`predicted` must lie within .* got nan at flat index 1"),
        ([0.5, 1.2], [1, 0], "`predicted` must lie within .* got 1.2"),
        ([0.5, 0.2], [1, -1], "`observed` must lie within .* got -1.0"),
        ([], [], "no predictions"),
        ([[0.5]], [[1.0]], "expected 1 dimension"),
    ],
)
def test_bad_input(measure: Callable[..., object], predicted: list, observed: list, message: str) -> None:
    with pytest.raises(CalibrationError, match=message):
        measure(predicted, observed)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: auroc([0.2, 0.3], [1, 1]), "needs both outcomes, got 2 accepted and 0 rejected"),
        (lambda: auroc([0.2, 0.3], [1, 0.5]), "must hold 0 and 1 only"),
        (lambda: ece([0.5], [1], bins=0), "`bins` must be at least 1, got 0"),
        (lambda: STS(()), "`temperatures` must be positive"),
        (lambda: STS((1.0, 0.0)), "`temperatures` must be positive"),
        (lambda: STS((1.0, 2.0)).apply([[0.5, 0.5, 0.5]]), "2 positions .* got shape \\(1, 3\\)"),
        (lambda: STS((1.0,)).apply([math.nan]), "`confidence` must lie within"),
        (lambda: fit_sts([0.5], [1]), "expected 2 dimension"),
        (lambda: fit_sts(np.empty((0, 3)), np.empty((0, 3))), "no predictions"),
        (lambda: fit_sts([[0.5]], [[0.5]]), "`accepted` must hold 0 and 1 only"),
        (lambda: fit_sts([[0.5]], [[1]], []), "non-empty list of positive"),
        (lambda: fit_sts([[0.5]], [[1]], [-1.0]), "non-empty list of positive"),
    ],
)
def test_bad_calls(call: Callable[[], object], message: str) -> None:
    with pytest.raises(CalibrationError, match=message):
        call()
