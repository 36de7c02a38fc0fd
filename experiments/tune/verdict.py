"""Whether a tuned candidate beats the default on seeds that neither has seen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import polars as pl

from ..analysis.intervals import LEAST_SEEDS, Interval, mean_interval, ratio_interval
from ..config.schema_tune import Objective, Tune
from .measure import BySeed, Measured

BETTER, WORSE, OPEN = "better", "worse", "no difference shown"
MIXED = "better in one objective and worse in another"


def verdict(tuned: Measured | None, default: Measured | None, tune: Tune) -> dict[str, Any]:
    """Return the comparison of a candidate with the default, ready for JSON.

    Args:
        tuned: the candidate on the testing seeds; None if it could not be computed.
        default: the file's own values on the same seeds.
        tune: the study.

    Returns:
        ``objectives``: for each the ratio to the default, a geometric mean over seeds with its paired 95 % interval,
        and a verdict; ``constraints``: for each, both means with intervals and whether they hold; ``beats``: whether
        the candidate keeps every constraint, is better in an objective and worse in none.
    """
    objectives = [_objective(each, tuned, default) for each in tune.objectives]
    constraints = _constraints(tuned, default)
    words = [each["verdict"] for each in objectives]
    return {
        "objectives": objectives,
        "constraints": constraints,
        "beats": bool(tuned and tuned.feasible and BETTER in words and WORSE not in words),
    }


def seeds_table(measured: dict[str, Measured]) -> pl.DataFrame:
    """Return ``candidate, seed, metric, value`` for each objective and constrained metric."""
    rows = [
        {"candidate": name, "seed": seed, "metric": metric, "value": value}
        for name, found in measured.items()
        for metric, values in (*found.objectives.items(), *found.constrained.items())
        for seed, value in zip(found.seeds, values, strict=True)
    ]
    types = {"candidate": pl.String, "seed": pl.Int64, "metric": pl.String, "value": pl.Float64}
    return pl.DataFrame(rows, schema=types)


def _objective(objective: Objective, tuned: Measured | None, default: Measured | None) -> dict[str, Any]:
    ours, theirs = (_values(each, objective.name) for each in (tuned, default))
    pairs = [
        (mine, other)
        for mine, other in zip(ours, theirs, strict=False)
        if mine is not None and other is not None and mine > 0 and other > 0
    ]
    whole = len(pairs) == len(ours) == len(theirs) > 0
    logs = [math.log(mine / other) for mine, other in pairs]
    interval = ratio_interval(logs) if whole else None
    return {
        "objective": objective.name,
        "direction": "maximize" if objective.maximize else "minimize",
        "tuned": _mean(ours),
        "default": _mean(theirs),
        "ratio": math.exp(math.fsum(logs) / len(logs)) if whole else None,
        "low": interval and interval.low,
        "high": interval and interval.high,
        "seeds": len(pairs),
        "seeds_without_a_pair": max(len(ours), len(theirs)) - len(pairs),
        "verdict": _verdict(interval, bool(objective.maximize)),
    }


def _verdict(interval: Interval | None, maximize: bool) -> str:
    """Say which way an interval of ratios lies; one that has 1 in it, or does not exist, decides nothing."""
    if interval is None or interval.low <= 1.0 <= interval.high:
        return OPEN
    return BETTER if (interval.low > 1.0) == maximize else WORSE


def _constraints(tuned: Measured | None, default: Measured | None) -> list[dict[str, Any]]:
    names = dict.fromkeys(name for each in (tuned, default) if each for name in each.violations)
    return [
        {"constraint": name, "tuned": _constraint(tuned, name), "default": _constraint(default, name)} for name in names
    ]


def _constraint(measured: Measured | None, name: str) -> dict[str, Any] | None:
    if measured is None:
        return None
    values = [value for value in measured.constrained.get(name, ()) if value is not None]
    interval = mean_interval(values) if values else None
    return {
        "holds": measured.violations[name] <= 0.0,
        "violation": measured.violations[name],
        "mean": _mean(tuple(values)),
        "low": interval and interval.low,
        "high": interval and interval.high,
    }


def _values(measured: Measured | None, name: str) -> BySeed:
    return () if measured is None else measured.objectives[name]


def _mean(values: BySeed) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known and len(known) == len(values) else None


def in_words(best: dict[str, Any], seeds: int) -> str:
    """Return the verdict on a chosen candidate, and what is left of it at equal load if the load was searched.

    Args:
        best: entry ``best`` of the summary.
        seeds: testing seeds.
    """
    beside = best["testing_at_same_load"]
    known = beside is not None and all(each["low"] is not None for each in beside)
    first = sentence(best["testing"], seeds, by_load=known and outcome(beside) != BETTER)
    if not known:
        return first
    meaning = {
        BETTER: "its other parameters are better than the default's",
        WORSE: "its other parameters are worse than the default's",
        MIXED: "its other parameters are better in one objective and worse in another",
        OPEN: "nothing shows that its other parameters matter",
    }[outcome(beside)]
    return f"{first} Against the default at the same load {best['load']:g}: {_figures(beside)}; {meaning}."


def sentence(testing: dict[str, Any], seeds: int, by_load: bool = False) -> str:
    """Return the verdict in a sentence.

    Args:
        testing: as `verdict` returns it.
        seeds: testing seeds.
        by_load: whether nothing is left of an advantage at equal load.
    """
    objectives = testing["objectives"]
    broken = [each["constraint"] for each in testing["constraints"] if each["tuned"] and not each["tuned"]["holds"]]
    if any(each["low"] is None for each in objectives):
        return "Verdict: no interval on the testing seeds, so nothing is claimed."
    figures = f"{_figures(objectives)}; {seeds} seeds"
    if broken:
        return f"Verdict: on the testing seeds the tuned candidate breaks {', '.join(broken)}; {figures}."
    words = {
        BETTER: "tuned beats the default" + (" by its load alone" if by_load else ""),
        WORSE: "tuned is worse than the default",
        MIXED: "tuned is better than the default in one objective and worse in another",
        OPEN: "tuned does not beat the default",
    }[outcome(objectives)]
    return f"Verdict: {words} on held-out seeds: {figures}."


def outcome(objectives: Sequence[dict[str, Any]]) -> str:
    """Return what the verdicts on several objectives come to."""
    words = {each["verdict"] for each in objectives}
    if {BETTER, WORSE} <= words:
        return MIXED
    return BETTER if BETTER in words else WORSE if WORSE in words else OPEN


def _figures(objectives: Sequence[dict[str, Any]]) -> str:
    shown = []
    for each in objectives:
        change, low, high = (f"{100 * (each[key] - 1):+.2f} %" for key in ("ratio", "low", "high"))
        word = f", {each['verdict']}" if len(objectives) > 1 else ""
        shown.append(f"{each['objective']} {change} ({low} .. {high}{word})")
    return ", ".join(shown)


def why_open(objective: dict[str, Any]) -> str | None:
    """Return why an objective has no interval, if it has none."""
    if objective["low"] is not None:
        return None
    if objective["seeds_without_a_pair"]:
        return f"{objective['seeds_without_a_pair']} testing seeds have no value above 0 for both"
    return f"an interval needs {LEAST_SEEDS} testing seeds, there are {objective['seeds']}"
