"""What is known of the columns of ``points.parquet`` before a point is computed: names and ranges."""

from __future__ import annotations

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
