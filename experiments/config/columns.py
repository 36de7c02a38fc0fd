"""What is known of the columns of ``points.parquet`` before a point is computed: names, ranges, where they are null."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .nearest import suggestion

if TYPE_CHECKING:
    from .schema import Experiment

SHARES = (
    "accepted_per_verified",
    "accepted_per_verified_with_anchor",
    "accepted_per_drafted",
    "acceptance_ceiling",
    "padded_fraction",
    "eager_fraction",
    "regret",
)
"""Metrics within 0 and 1."""

METRICS = (
    "throughput_tok_s_gpu",
    "mean_rows",
    "window_s",
    "steps",
    "accepted_length",
    "verify_budget",
    "rejected_per_step",
    "truncated_tokens",
    "batch_tokens_max",
    "step_p50_s",
    "step_p99_s",
    "interactivity_tok_s_user",
    "interactivity_mean",
    "interactivity_p50",
    "interactivity_p10",
    "ttft_p50_s",
    "ttft_p99_s",
    "tpot_p50_s",
    "tpot_p99_s",
    "wait_p99_s",
    "requests",
    "requests_of_one_token",
    "goodput_req_s",
    *SHARES,
)
"""Columns that are numbers; none is ever negative. docs/metrics.md says what they mean."""

OTHERS = ("arm", "load", "seed", "safety", "bound")
"""Columns that name a point or say what is known of its policy."""


def no_metric(name: str, experiment: Experiment) -> str | None:
    """Return why ``name`` can be no metric of a resolved experiment: it is no column, or is always null; else None."""
    if name not in METRICS:
        return f"{name!r} is no numeric column of points.parquet; {suggestion(name, METRICS)} (docs/metrics.md)"
    if name.startswith("ttft_") and experiment.prefill.kind == "none":
        return f"{name} is null without a prefill stage; set `prefill`, or take another metric"
    if name == "regret" and not any(arm.policy["kind"] == "oracle" for arm in experiment.arms.values()):
        return "regret is null without an arm of the policy `oracle`; add one, or take another metric"
    bounded = experiment.sla.tpot_s is not None
    bounded = bounded or (experiment.sla.ttft_s is not None and experiment.prefill.kind != "none")
    if name == "goodput_req_s" and not bounded:
        return "goodput needs a bound that applies: set sla.tpot_s, or sla.ttft_s with a prefill stage"
    return None
