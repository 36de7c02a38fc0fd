"""Calibration of confidences: ECE, AUROC, Brier score, reliability tables and sequential temperature scaling.

Sequential temperature scaling (STS) is the DSpark paper's post-hoc calibration (arXiv 2607.05147, section on
confidence): one temperature a draft position, chosen from left to right so that the *prefix product* of the
confidences, not each confidence alone, agrees with how often that prefix is accepted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .arrays import Floats, Ints

#: Temperatures tried by `fit_sts`: 0.25 to 4 in equal ratios, with 1 among them.
TEMPERATURES: Floats = np.exp2(np.linspace(-2.0, 2.0, 129))


class CalibrationError(ValueError):
    """Predictions and outcomes that no calibration measure is defined for."""


@dataclass(frozen=True, slots=True)
class Reliability:
    """A reliability table: one entry for each bin that holds at least one prediction.

    Attributes:
        low, high: float64 ``[B]``, edges of the bin; a prediction equal to an edge belongs to the bin above it,
            1.0 to the last one.
        count: int64 ``[B]``, predictions in the bin.
        predicted, observed: float64 ``[B]``, mean prediction and mean outcome in the bin.
    """

    low: Floats
    high: Floats
    count: Ints
    predicted: Floats
    observed: Floats


@dataclass(frozen=True, slots=True)
class STS:
    """Temperatures of sequential temperature scaling, one a draft position.

    Attributes:
        temperatures: positive, from the first position to the last; above 1 they make a confidence humbler.
    """

    temperatures: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.temperatures or not all(0.0 < t < np.inf for t in self.temperatures):
            raise CalibrationError(f"`temperatures` must be positive and finite, got {self.temperatures}")

    def apply(self, confidence: npt.ArrayLike) -> Floats:
        """Return ``sigmoid(logit(c) / T)`` per position; the order of two confidences of one position never changes.

        Args:
            confidence: ``[..., gamma]`` in [0, 1]; 0 and 1 stay what they are.

        Raises:
            CalibrationError: if the last axis has not one entry a temperature, or a value lies outside [0, 1].
        """
        values = _probabilities("confidence", confidence)
        if values.ndim == 0 or values.shape[-1] != len(self.temperatures):
            raise CalibrationError(
                f"`confidence` must have {len(self.temperatures)} positions (one a temperature) on its last axis,"
                f" got shape {values.shape}; fit STS on blocks of the same length"
            )
        return _tempered(_logit(values), np.asarray(self.temperatures))


def ece(predicted: npt.ArrayLike, observed: npt.ArrayLike, bins: int = 20) -> float:
    """Return the expected calibration error: mean absolute gap between prediction and outcome over equal-width bins.

    Each bin weighs what share of the predictions it holds.

    Args:
        predicted: ``[N]`` probabilities.
        observed: ``[N]`` outcomes, 0 or 1 (probabilities are allowed: their mean is used).
        bins: number of equal-width bins on [0, 1]; the paper's Figure 6 has 20.

    Raises:
        CalibrationError: on empty input, different shapes, NaN, values outside [0, 1] or ``bins`` under 1.
    """
    p, y = _pair(predicted, observed)
    return _ece(p, y, _bins(bins))


def reliability_table(predicted: npt.ArrayLike, observed: npt.ArrayLike, bins: int = 20) -> Reliability:
    """Return the reliability table (Figure 6 of the paper) of ``[N]`` probabilities and ``[N]`` outcomes.

    Raises:
        CalibrationError: as `ece`.
    """
    p, y = _pair(predicted, observed)
    index = _bin_index(p, _bins(bins))
    count = np.bincount(index, minlength=bins)
    full = np.flatnonzero(count)
    return Reliability(
        low=full / bins,
        high=(full + 1) / bins,
        count=count[full],
        predicted=np.bincount(index, p, bins)[full] / count[full],
        observed=np.bincount(index, y, bins)[full] / count[full],
    )


def auroc(predicted: npt.ArrayLike, observed: npt.ArrayLike) -> float:
    """Return the area under the ROC curve: P(an accepted draft scores above a rejected one), ties counting 1/2.

    Args:
        predicted: ``[N]`` probabilities.
        observed: ``[N]`` outcomes, each 0 or 1.

    Raises:
        CalibrationError: as `ece`, or if an outcome is neither 0 nor 1, or all outcomes are alike.
    """
    p, y = _pair(predicted, observed)
    if not np.isin(y, (0.0, 1.0)).all():
        raise CalibrationError("`observed` must hold 0 and 1 only for an AUROC; use `ece` or `brier` for probabilities")
    positives = int(y.sum())
    negatives = len(y) - positives
    if not positives or not negatives:
        raise CalibrationError(
            f"an AUROC needs both outcomes, got {positives} accepted and {negatives} rejected drafts"
        )
    _, inverse, counts = np.unique(p, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    mean_rank = last - (counts - 1) / 2.0
    ranks = float(mean_rank[inverse[y == 1.0]].sum())
    return (ranks - positives * (positives + 1) / 2.0) / (positives * negatives)


def brier(predicted: npt.ArrayLike, observed: npt.ArrayLike) -> float:
    """Return the Brier score: mean squared difference of ``[N]`` probabilities and ``[N]`` outcomes.

    Raises:
        CalibrationError: as `ece`.
    """
    p, y = _pair(predicted, observed)
    return float(np.mean((p - y) ** 2))


def fit_sts(
    confidence: npt.ArrayLike, accepted: npt.ArrayLike, temperatures: npt.ArrayLike = TEMPERATURES, bins: int = 20
) -> STS:
    """Fit sequential temperature scaling on held-out blocks.

    For each position from left to right, every temperature of the grid is tried and the one is kept under which the
    prefix product up to that position has the least ECE, earlier positions being fixed at their calibrated values.
    Of equally good ones the nearest to 1 is taken.

    Args:
        confidence: ``[N, gamma]`` raw conditional confidences in [0, 1].
        accepted: ``[N, gamma]``, 0 or 1: whether the target accepts the draft. Entries after a row's first
            rejection do not matter.
        temperatures: positive candidates, the same for every position.
        bins: bins of the ECE.

    Raises:
        CalibrationError: on empty input, shapes that differ or are not two-dimensional, NaN, values out of range.
    """
    values, outcome = _pair(confidence, accepted, dimensions=2)
    grid = np.asarray(temperatures, np.float64).ravel()
    if not len(grid) or not np.all((grid > 0.0) & np.isfinite(grid)):
        raise CalibrationError("`temperatures` must be a non-empty list of positive numbers")
    if not np.isin(outcome, (0.0, 1.0)).all():
        raise CalibrationError("`accepted` must hold 0 and 1 only")
    grid = grid[np.argsort(np.abs(np.log(grid)), kind="stable")]
    logits = _logit(values)
    survives = np.logical_and.accumulate(outcome == 1.0, axis=1).astype(np.float64)
    prefix = np.ones(len(values))
    chosen: list[float] = []
    for position in range(values.shape[1]):
        tried = [prefix * _tempered(logits[:, position], t) for t in grid]
        errors = [_ece(product, survives[:, position], _bins(bins)) for product in tried]
        best = int(np.argmin(errors))
        chosen.append(float(grid[best]))
        prefix = tried[best]
    return STS(tuple(chosen))


def _ece(predicted: Floats, observed: Floats, bins: int) -> float:
    index = _bin_index(predicted, bins)
    gap = np.bincount(index, predicted, bins) - np.bincount(index, observed, bins)
    return float(np.abs(gap).sum() / len(predicted))


def _bin_index(predicted: Floats, bins: int) -> Ints:
    return np.minimum((predicted * bins).astype(np.int64), bins - 1)


def _bins(bins: int) -> int:
    if bins < 1:
        raise CalibrationError(f"`bins` must be at least 1, got {bins}")
    return bins


def _logit(probability: Floats) -> Floats:
    with np.errstate(divide="ignore"):
        result: Floats = np.log(probability) - np.log1p(-probability)
    return result


def _tempered(logits: Floats, temperature: Floats | float) -> Floats:
    with np.errstate(over="ignore"):
        result: Floats = 1.0 / (1.0 + np.exp(-logits / temperature))
    return result


def _pair(predicted: npt.ArrayLike, observed: npt.ArrayLike, dimensions: int = 1) -> tuple[Floats, Floats]:
    """Return both as float64 of the same shape, checked."""
    p, y = _probabilities("predicted", predicted), _probabilities("observed", observed)
    if p.shape != y.shape:
        raise CalibrationError(f"predictions and outcomes must have one shape, got {p.shape} and {y.shape}")
    if p.ndim != dimensions:
        raise CalibrationError(f"expected {dimensions} dimension(s), got shape {p.shape}")
    if not p.size:
        raise CalibrationError("no predictions: a calibration measure of nothing is undefined")
    return p, y


def _probabilities(name: str, values: npt.ArrayLike) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    bad = np.flatnonzero(~((array >= 0.0) & (array <= 1.0)).ravel())
    if len(bad):
        raise CalibrationError(
            f"`{name}` must lie within [0, 1] and hold no NaN, got {array.ravel()[bad[0]]} at flat index {bad[0]}"
        )
    return array
