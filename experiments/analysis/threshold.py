"""Accepted and rejected tokens a step by confidence threshold, as the paper's Figure 5 counts them."""

from __future__ import annotations

import polars as pl

from ..config.schema import Arm, Experiment

_COLUMNS = {"benchmark": pl.String, "threshold": pl.Float64, "accepted": pl.Float64, "verified": pl.Float64}


def threshold_table(points: pl.DataFrame, experiment: Experiment) -> pl.DataFrame:
    """Return tokens per request and step of every arm whose policy is a threshold, mean over its loads and seeds.

    Both counts include the anchor, which is always verified and always emitted, as in Figure 5.

    Returns:
        ``benchmark, threshold, accepted, verified``: benchmarks in the order of the file, thresholds ascending. The
        benchmark is the arm's domains, and whatever else tells the arms apart.
    """
    arms = {name: arm for name, arm in experiment.arms.items() if arm.policy["kind"] == "threshold"}
    facts = {name: _facts(arm, experiment) for name, arm in arms.items()}
    telling = [i for i in range(4) if i == 0 or len({each[i] for each in facts.values()}) > 1]
    rows = []
    for name, arm in arms.items():
        tokens = _tokens(points, name)
        if tokens is not None:
            rows.append((", ".join(facts[name][i] for i in telling), float(arm.policy["t"]), *tokens))
    order = list(dict.fromkeys(row[0] for row in rows))
    rows.sort(key=lambda row: (order.index(row[0]), row[1]))
    return pl.DataFrame(rows, schema=_COLUMNS, orient="row")


def _tokens(points: pl.DataFrame, arm: str) -> tuple[float, float] | None:
    """Return the accepted and the verified tokens of an arm, or None where no point has both."""
    mine = points.filter(pl.col("arm") == arm).sort("load", "seed").select("accepted_length", "rejected_per_step")
    mine = mine.cast(pl.Float64).drop_nulls()
    if not len(mine):
        return None
    accepted, rejected = (float(mine[name].to_numpy().mean()) for name in mine.columns)
    return accepted, accepted + rejected


def _facts(arm: Arm, experiment: Experiment) -> tuple[str, str, str, str]:
    """Return what makes two arms with the same threshold differ: domains, drafts, signal, draft cost."""
    domains = arm.domains or experiment.workload.domains or {"trace": 1.0}
    mix = (
        next(iter(domains)) if len(domains) == 1 else " + ".join(f"{share:g} {name}" for name, share in domains.items())
    )
    drafts = (arm.drafts or experiment.drafts).model_dump()
    drafter = " ".join(str(value) for key, value in drafts.items() if value is not None and key != "kind")
    cost = arm.draft_cost.scale if arm.draft_cost else 1.0
    return mix, drafter, str(arm.policy.get("signal", "conditional")), f"draft cost x {cost:g}"
