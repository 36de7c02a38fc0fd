"""From the tables of a run to one row of ``points.parquet`` (section 7 of the semantics).

Every reduction is a NumPy sum in row order, so that the same tables give the same bytes on any number of threads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl

from ..policies import Floats, Ints
from .cost import StepCost
from .requests import SimulationError
from .scenario import Result

Metrics = dict[str, float | int | None]
Need = Literal["a prefill stage", "an oracle arm", "a bound that applies"]

THROUGHPUT = "throughput_tok_s_gpu"
INTERACTIVITY = "interactivity_tok_s_user"


@dataclass(frozen=True)
class Metric:
    """What is known of a metric before it is computed. None is ever negative.

    Attributes:
        name: of its column.
        unit: in the words of docs/metrics.md, which says what it means; ``-`` if it has none.
        share: whether it lies within 0 and 1.
        null_without: what a run needs for it to exist; None if nothing.
    """

    name: str
    unit: str
    share: bool = False
    null_without: Need | None = None


METRICS = (
    Metric(THROUGHPUT, "tok/s/GPU"),
    Metric("mean_rows", "rows"),
    Metric("window_s", "s"),
    Metric("steps", "steps"),
    Metric("accepted_length", "tok/round"),
    Metric("verify_budget", "tok/row"),
    Metric("rejected_per_step", "tok/round"),
    Metric("accepted_per_verified", "-", share=True),
    Metric("accepted_per_verified_with_anchor", "-", share=True),
    Metric("accepted_per_drafted", "-", share=True),
    Metric("acceptance_ceiling", "-", share=True),
    Metric("truncated_tokens", "tok"),
    Metric("padded_fraction", "-", share=True),
    Metric("batch_tokens_max", "tok"),
    Metric("eager_fraction", "-", share=True),
    Metric("step_p50_s", "s"),
    Metric("step_p99_s", "s"),
    Metric("regret", "-", share=True, null_without="an oracle arm"),
    Metric(INTERACTIVITY, "tok/s"),
    Metric("interactivity_mean", "tok/s"),
    Metric("interactivity_p50", "tok/s"),
    Metric("interactivity_p10", "tok/s"),
    Metric("ttft_p50_s", "s", null_without="a prefill stage"),
    Metric("ttft_p99_s", "s", null_without="a prefill stage"),
    Metric("tpot_p50_s", "s"),
    Metric("tpot_p99_s", "s"),
    Metric("wait_p99_s", "s"),
    Metric("requests", "requests"),
    Metric("requests_of_one_token", "requests"),
    Metric("goodput_req_s", "requests/s", null_without="a bound that applies"),
)
"""Every metric, in the order in which `point_metrics` gives them."""

LEADING = (
    THROUGHPUT,
    INTERACTIVITY,
    "interactivity_p10",
    "accepted_length",
    "verify_budget",
    "accepted_per_verified",
    "accepted_per_drafted",
    "acceptance_ceiling",
    "padded_fraction",
    "regret",
    "ttft_p50_s",
    "ttft_p99_s",
    "tpot_p50_s",
    "goodput_req_s",
    "requests",
    "steps",
    "window_s",
)
"""Those that come first in ``points.parquet``, and are there even where no point has them."""


@dataclass(frozen=True)
class Sla:
    """Bounds of the service level; None bounds nothing.

    Attributes:
        ttft_s: longest time to first token, seconds.
        tpot_s: longest mean time per output token after the first, seconds.
        tok_s_user: least decode speed of a request, tokens per second.
    """

    ttft_s: float | None = None
    tpot_s: float | None = None
    tok_s_user: float | None = None

    def bounds_anything(self, with_prefill: bool) -> bool:
        """Whether a bound is set that applies: there is no time to first token without a prefill stage."""
        return self.tpot_s is not None or self.tok_s_user is not None or (self.ttft_s is not None and with_prefill)


def point_metrics(result: Result, cost: StepCost, sla: Sla, *, with_regret: bool) -> Metrics:
    """Return the metrics of a run by column name, in the order of `METRICS`.

    Args:
        result: the run.
        cost: the step cost it was priced with.
        sla: bounds for goodput.
        with_regret: compute regret against the per-step oracle; None otherwise.

    Raises:
        SimulationError: if the cohort was admitted all at once, so that the window has no length.
    """
    start, end = result.window_s
    if not end > start:
        raise SimulationError(
            "the requests that the metrics follow were all admitted at once, so throughput has no time to be measured "
            "over; raise `cohort`"
        )
    begun = result.steps["start_s"].to_numpy()
    # A step belongs to the window it begins in: each is counted once, and the last one whole.
    steps = result.steps.filter((begun >= start) & (begun < end))
    cohort = result.requests.filter(pl.col("cohort"))
    metrics: Metrics = {}
    metrics |= _rates(steps, end - start, result.gpus)
    metrics |= _acceptance(steps)
    metrics |= _batches(steps, cost)
    metrics["regret"] = regret(steps, cost) if with_regret else None
    metrics |= _latencies(cohort, result.with_prefill)
    metrics |= _goodput(cohort, sla, end - start, result.with_prefill)
    return metrics


def _total(steps: pl.DataFrame, column: str) -> int:
    return int(steps[column].to_numpy().sum())


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _rates(steps: pl.DataFrame, window: float, gpus: int) -> Metrics:
    """Throughput over the window and the rows that decoded in it (time-weighted)."""
    busy = float((steps["rows"].to_numpy() * steps["step_seconds"].to_numpy()).sum())
    return {
        THROUGHPUT: _total(steps, "emitted") / window / gpus,
        "mean_rows": busy / window,
        "window_s": window,
        "steps": len(steps),
    }


def _acceptance(steps: pl.DataFrame) -> Metrics:
    """Acceptance figures, from uncut counts; rows without drafts (admission steps) are not verification rounds."""
    rows, rounds = _total(steps, "rows"), _total(steps, "drafting_rows")
    drafted, verified, accepted = (_total(steps, name) for name in ("drafted", "verified", "accepted"))
    return {
        # The 1 is the bonus token: a round emits one token more than it accepts.
        "accepted_length": 1.0 + accepted / rounds if rounds else 1.0,
        "verify_budget": 1.0 + verified / rows if rows else None,
        "rejected_per_step": _ratio(verified - accepted, rounds),
        "accepted_per_verified": _ratio(accepted, verified),
        "accepted_per_verified_with_anchor": _ratio(accepted + rounds, verified + rounds),
        "accepted_per_drafted": _ratio(accepted, drafted),
        "acceptance_ceiling": _ratio(_total(steps, "acceptable"), drafted),
        # What would have been emitted, had no output ended in the middle of a block.
        "truncated_tokens": accepted + rows - _total(steps, "emitted"),
    }


def _batches(steps: pl.DataFrame, cost: StepCost) -> Metrics:
    """What was executed: padding, size, share of steps beyond the captured sizes, step time."""
    tokens, executed = steps["batch_tokens"].to_numpy(), steps["executed_tokens"].to_numpy()
    seconds = steps["step_seconds"].to_numpy()
    captured = cost.profile.captured_sizes
    if not len(steps):
        return dict.fromkeys(("padded_fraction", "batch_tokens_max", "eager_fraction", "step_p50_s", "step_p99_s"))
    return {
        "padded_fraction": float(executed.sum() - tokens.sum()) / float(executed.sum()),
        "batch_tokens_max": int(tokens.max()),
        "eager_fraction": float((tokens > captured[-1]).mean()) if captured else 0.0,
        "step_p50_s": float(np.percentile(seconds, 50)),
        "step_p99_s": float(np.percentile(seconds, 99)),
    }


def _latencies(cohort: pl.DataFrame, with_prefill: bool) -> Metrics:
    """Interactivity, TPOT, TTFT and waiting of the cohort; requests of one token have no decode speed."""
    decoded = cohort.filter(pl.col("output_tokens") >= 2)
    tokens = decoded["output_tokens"].to_numpy() - 1
    seconds = (decoded["last_token_s"] - decoded["first_token_s"]).to_numpy()
    speeds = tokens / seconds
    ttft = (cohort["ready_s"] - cohort["arrival_s"]).to_numpy() if with_prefill else None
    # Waiting for a row begins where prefill ends; waiting for a slot is part of the time to first token.
    handed = cohort["ready_s"] if with_prefill else cohort["arrival_s"]
    waits = (cohort["admitted_s"] - handed).to_numpy()
    return {
        # Sum over sum: weighted by tokens, as throughput is. The mean over requests, below, reads about a tenth higher.
        INTERACTIVITY: _ratio(float(tokens.sum()), float(seconds.sum())),
        "interactivity_mean": float(speeds.mean()) if len(speeds) else None,
        "interactivity_p50": _percentile(speeds, 50),
        "interactivity_p10": _percentile(speeds, 10),
        "ttft_p50_s": _percentile(ttft, 50),
        "ttft_p99_s": _percentile(ttft, 99),
        "tpot_p50_s": _percentile(seconds / tokens, 50),
        "tpot_p99_s": _percentile(seconds / tokens, 99),
        "wait_p99_s": _percentile(waits, 99),
        "requests": len(cohort),
        "requests_of_one_token": len(cohort) - len(decoded),
    }


def _percentile(values: Floats | None, percent: float) -> float | None:
    return float(np.percentile(values, percent)) if values is not None and len(values) else None


def _goodput(cohort: pl.DataFrame, sla: Sla, window: float, with_prefill: bool) -> Metrics:
    """Requests per second that meet every bound: the cohort's admission rate times the share that meets them."""
    if not sla.bounds_anything(with_prefill):
        return {"goodput_req_s": None}
    # Requests of one token have no decode time, which meets any bound on it.
    tokens = np.maximum(cohort["output_tokens"].to_numpy() - 1, 1)
    tpot = (cohort["last_token_s"] - cohort["first_token_s"]).to_numpy() / tokens
    good = np.ones(len(cohort), np.bool_)
    if sla.tpot_s is not None:
        good &= tpot <= sla.tpot_s
    if sla.tok_s_user is not None:
        # A product, since a request of one token would divide by its time of 0.
        good &= tpot * sla.tok_s_user <= 1.0
    if sla.ttft_s is not None and with_prefill:
        good &= (cohort["ready_s"] - cohort["arrival_s"]).to_numpy() <= sla.ttft_s
    # N admissions, the first and the last at the ends of the window, leave N - 1 gaps in it.
    return {"goodput_req_s": float(good.mean()) * (len(cohort) - 1) / window}


def step_regret(steps: pl.DataFrame, cost: StepCost) -> Floats:
    """Return float64 ``[steps]`` within [0, 1]: 1 - Theta realised / Theta of the oracle on the same step's drafts.

    Noise is left out of both; the realised Theta pays the step's sync stall, the oracle does not.
    """
    rows = steps["rows"].to_numpy()
    context = steps["context_seconds"].to_numpy()
    realised = np.empty(len(steps))
    best = np.empty(len(steps))
    # By rows: all steps of one number of rows read the same table.
    for count in np.unique(rows).tolist():
        here = np.flatnonzero(rows == count)
        table = cost.table(count)
        part = steps[here]
        # Priced anew instead of read from `step_seconds`, where the noise is.
        paid = table[part["batch_tokens"].to_numpy()] + context[here] + part["stall_seconds"].to_numpy()
        realised[here] = (count + part["accepted"].to_numpy()) / paid
        best[here] = _oracle_theta(count, table, part["acceptable"].to_numpy(), context[here])
    return 1.0 - realised / best


def _oracle_theta(rows: int, table: Floats, acceptable: Ints, context: Floats) -> Floats:
    """Return the largest (R + n) / T(R + n) over n up to each step's acceptable drafts."""
    most = int(acceptable.max())
    emitted = rows + np.arange(most + 1)
    seconds = table[rows : rows + most + 1]
    if not context.any():
        # Without a context term one running maximum over n answers for every step, however many drafts it could accept.
        best: Floats = np.maximum.accumulate(emitted / seconds)[acceptable]
        return best
    each = [
        (emitted[: n + 1] / (seconds[: n + 1] + extra)).max()
        for n, extra in zip(acceptable.tolist(), context.tolist(), strict=True)
    ]
    return np.array(each)


def regret(steps: pl.DataFrame, cost: StepCost) -> float | None:
    """Return the mean of `step_regret` weighted by step seconds; None where nothing was drafted."""
    if not _total(steps, "drafted"):
        return None
    weights = steps["step_seconds"].to_numpy()
    return float((step_regret(steps, cost) * weights).sum() / weights.sum())
