"""Which columns of ``points.parquet`` can be compared or bounded in an experiment, before a point is computed."""

from __future__ import annotations

from ...policies.nearest import suggestion
from .columns import METRICS
from .schema import Experiment


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
