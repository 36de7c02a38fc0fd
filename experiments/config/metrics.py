"""Which columns of ``points.parquet`` can be compared or bounded in an experiment, before a point is computed."""

from __future__ import annotations

from ...policies.nearest import suggestion
from ...sim.metrics import METRICS as TABLE
from ...sim.metrics import Need
from .columns import METRICS
from .schema import Experiment

_NEEDS = {each.name: each.null_without for each in TABLE}

_REMEDIES: dict[Need, str] = {
    "a prefill stage": "{} is null without a prefill stage; set `prefill`, or take another metric",
    "an oracle arm": "{} is null without an arm of the policy `oracle`; add one, or take another metric",
    "a bound that applies": "goodput needs a bound that applies: set sla.tpot_s, or sla.ttft_s with a prefill stage",
}


def no_metric(name: str, experiment: Experiment) -> str | None:
    """Return why ``name`` can be no metric of a resolved experiment: it is no column, or is always null; else None."""
    if name not in METRICS:
        return f"{name!r} is no numeric column of points.parquet; {suggestion(name, METRICS)} (docs/metrics.md)"
    need = _NEEDS[name]
    return None if need is None or _has(experiment, need) else _REMEDIES[need].format(name)


def _has(experiment: Experiment, need: Need) -> bool:
    """Return whether an experiment has what a metric needs."""
    if need == "a prefill stage":
        return experiment.with_prefill
    if need == "an oracle arm":
        return experiment.with_oracle
    return experiment.sla.bounds.bounds_anything(experiment.with_prefill)
