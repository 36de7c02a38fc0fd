"""Statistics of a trace: how fast, how bursty, how long.

Names and definitions are those of a published table of public traces, which the tests reproduce for the Azure 2023
and Mooncake conversation traces. Sums are NumPy's, in row order.
"""

from __future__ import annotations

import math

import numpy as np
import polars as pl

from .arrays import Floats, Ints
from .table import check_trace

Statistics = dict[str, float | int | None]

WINDOWS_S = (1, 10, 60, 600)
_DECIMALS = {"duration_s": 1, "rate_rps": 4, "idc_600s": 2, "gamma_shape_from_cv": 3}
_LENGTH_DECIMALS = {"mean": 1, "p50": 1, "p90": 1, "p99": 1, "max": 1, "mu": 4, "sigma": 4, "KS": 4}


def trace_statistics(trace: pl.DataFrame) -> Statistics:
    """Return the statistics of a trace, unrounded; None where one is undefined (too few requests or windows).

    - ``n``; ``duration_s`` = last - first arrival; ``rate_rps`` = n / duration.
    - ``iat_cv``: population standard deviation over mean of the gaps between arrivals; ``iat_zero_frac``: the share
      of gaps of exactly 0; ``gamma_shape_from_cv`` = 1 / cv^2, the shape of a Gamma renewal process of that cv.
    - ``peak_to_mean_10s``, ``p99_to_mean_10s``: the largest and the 99th percentile count of arrivals in a 10 s
      window over the mean count. Windows start at the first arrival; an unfinished last one is left out.
    - ``idc_Ws``: index of dispersion, population variance / mean of the counts in windows of W seconds; None with
      fewer than two whole windows.
    - for ``in_`` (prompt) and ``out_`` (output) tokens: ``mean``, percentiles (linear between ranks), ``max``;
      ``lognorm_mu``, ``lognorm_sigma`` (population) and ``log_skew`` of the natural logs of the lengths above 0;
      ``lognorm_KS``, the Kolmogorov-Smirnov distance of those logs to the normal law so fitted; ``zero_frac``, the
      share of lengths of 0.
    - ``log_corr_in_out``: Pearson correlation of log(1 + prompt) and log(1 + output).

    Raises:
        TraceError: if the trace is not canonical.
    """
    check_trace(trace)
    arrivals = trace["arrival_s"].to_numpy()
    prompt = trace["prompt_tokens"].to_numpy().astype(np.float64)
    output = trace["output_tokens"].to_numpy().astype(np.float64)
    return {
        **_arrival_statistics(arrivals - arrivals[0]),
        **_length_statistics("in", prompt),
        **_length_statistics("out", output),
        "log_corr_in_out": _correlation(np.log1p(prompt), np.log1p(output)),
    }


def rounded_statistics(statistics: Statistics) -> Statistics:
    """Return the statistics with the decimals the published table prints: 1 to 4, by column."""
    return {name: round(v, _decimals(name)) if isinstance(v, float) else v for name, v in statistics.items()}


def _decimals(name: str) -> int:
    return _DECIMALS.get(name, _LENGTH_DECIMALS.get(name.rpartition("_")[2], 3))


def _arrival_statistics(arrivals: Floats) -> Statistics:
    gaps = np.diff(arrivals)
    duration = float(arrivals[-1])
    cv = float(gaps.std() / gaps.mean()) if duration > 0 else None
    counts = {seconds: _counts(arrivals, seconds) for seconds in WINDOWS_S}
    tens = counts[10] if counts[10].any() else None
    return {
        "n": len(arrivals),
        "duration_s": duration,
        "rate_rps": len(arrivals) / duration if duration > 0 else None,
        "iat_cv": cv,
        "iat_zero_frac": float((gaps == 0).mean()) if gaps.size else None,
        "peak_to_mean_10s": None if tens is None else float(tens.max() / tens.mean()),
        "p99_to_mean_10s": None if tens is None else float(np.percentile(tens, 99) / tens.mean()),
        **{f"idc_{seconds}s": _dispersion(counts[seconds]) for seconds in WINDOWS_S},
        "gamma_shape_from_cv": 1 / cv**2 if cv else None,
    }


def _counts(arrivals: Floats, seconds: int) -> Ints:
    """Return arrivals per whole window of ``seconds``, counted from the first arrival at 0."""
    windows = int(arrivals[-1] // seconds)
    return np.bincount((arrivals // seconds).astype(np.int64), minlength=windows)[:windows]


def _dispersion(counts: Ints) -> float | None:
    return float(counts.var() / counts.mean()) if counts.size >= 2 else None


def _length_statistics(prefix: str, lengths: Floats) -> Statistics:
    p50, p90, p99 = np.percentile(lengths, [50, 90, 99])
    law = _lognormal(lengths[lengths > 0])
    values: Statistics = {
        "mean": float(lengths.mean()),
        "p50": float(p50),
        "p90": float(p90),
        "p99": float(p99),
        "max": float(lengths.max()),
        "lognorm_mu": law["mu"],
        "lognorm_sigma": law["sigma"],
        "log_skew": law["skew"],
        "zero_frac": float((lengths == 0).mean()),
        "lognorm_KS": law["distance"],
    }
    return {f"{prefix}_{name}": value for name, value in values.items()}


def _lognormal(positive: Floats) -> dict[str, float | None]:
    """Return mean and deviation of the logs; skew and distance to the fitted law only where the logs vary."""
    if not positive.size:
        return dict.fromkeys(("mu", "sigma", "skew", "distance"))
    logs = np.log(positive)
    mu = float(logs.mean())
    if _constant(logs):
        return {"mu": mu, "sigma": 0.0, "skew": None, "distance": None}
    sigma = float(logs.std())
    scores = (logs - mu) / sigma
    return {"mu": mu, "sigma": sigma, "skew": float((scores**3).mean()), "distance": _normal_distance(scores)}


def _constant(values: Floats) -> bool:
    # The deviation of equal floats need not come out as exactly 0.
    return bool(values.min() == values.max())


def _normal_distance(scores: Floats) -> float:
    """Return the Kolmogorov-Smirnov distance of ``scores`` to the standard normal law."""
    points, repeats = np.unique(scores, return_counts=True)
    normal = np.array([0.5 * math.erfc(-point / math.sqrt(2)) for point in points])
    upper = np.cumsum(repeats) / scores.size
    lower = upper - repeats / scores.size
    return float(max((upper - normal).max(), (normal - lower).max()))


def _correlation(x: Floats, y: Floats) -> float | None:
    if _constant(x) or _constant(y):
        return None
    return float(((x - x.mean()) * (y - y.mean())).mean() / (x.std() * y.std()))
