"""What a study found, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Console

from ..show.terminal import print_table, say
from .verdict import why_open

Summary = dict[str, Any]
Column = tuple[str, list[str]]

SIDES = ("tuned", "default")
MOST_SHOWN = 12
"""Candidates of a Pareto set on a terminal."""


def print_study(summary: Summary, console: Console) -> None:
    """Print the summary of a study: the parameters, the comparison on testing seeds, and the verdict.

    Args:
        summary: what ``summary.json`` holds.
        console: where to.
    """
    best = summary["best"]
    if best is not None:
        _print(f"Trial {best['trial']}, chosen on the tuning seeds", parameter_columns(summary), console)
        for title, objectives in compared(summary):
            _print(title, objective_columns(objectives), console)
        if best["testing"]["constraints"]:
            print_table(constraint_columns(best["testing"]["constraints"]), console)
    if len(summary["front"]) > 1:
        shown = [(name, cells[:MOST_SHOWN]) for name, cells in front_columns(summary)]
        _print(front_title(summary), shown, console)
        if len(summary["front"]) > MOST_SHOWN:
            say([f".. and {len(summary['front']) - MOST_SHOWN} more in summary.json."], console)
    console.print()
    say(study_notes(summary), console)


def _print(title: str, columns: list[Column], console: Console) -> None:
    console.print(title, style="bold", highlight=False)
    print_table(columns, console)


def parameter_columns(summary: Summary) -> list[Column]:
    """Return the parameters of the chosen trial beside the default's, as columns of a table."""
    best, default = summary["best"], summary["default"]["parameters"]
    keys = list(best["parameters"])
    columns = [("parameter", keys), ("tuned", [_shown(best["parameters"][key]) for key in keys])]
    columns.append(("default", [_shown(default[key]) for key in keys]))
    if summary["importance"] is not None:
        columns.append(("importance", [_percent(summary["importance"].get(key)) for key in keys]))
    return columns


def front_title(summary: Summary) -> str:
    """Return what the table of the Pareto set is of."""
    return f"{len(summary['front'])} candidates that no other beats, on the tuning seeds"


def front_columns(summary: Summary) -> list[Column]:
    """Return the Pareto set, the best in the first objective first, as columns of a table."""
    front = summary["front"]
    columns = [("trial", [str(each["trial"]) for each in front])]
    columns += [(key, [_shown(each["parameters"][key]) for each in front]) for key in front[0]["parameters"]]
    columns += [(name, [_number(each["tuning"][name]) for each in front]) for name in summary["objectives"]]
    return columns


def compared(summary: Summary) -> Iterator[tuple[str, list[Summary]]]:
    """Yield what the chosen trial is compared with on the testing seeds, and the objectives of both."""
    best, seeds = summary["best"], len(summary["seeds"]["testing"])
    yield f"On {seeds} testing seeds, which took no part in the choice", best["testing"]["objectives"]
    if best["testing_at_same_load"] is not None:
        yield f"The same, against the default at the load {best['load']:g} too", best["testing_at_same_load"]


def objective_columns(objectives: list[Summary]) -> list[Column]:
    """Return objectives on the testing seeds as columns of a table."""
    return [
        ("objective", [each["objective"] for each in objectives]),
        ("wanted", ["more" if each["direction"] == "maximize" else "less" for each in objectives]),
        ("tuned", [_number(each["tuned"]) for each in objectives]),
        ("default", [_number(each["default"]) for each in objectives]),
        ("change", [_change(each["ratio"]) for each in objectives]),
        ("95 %, paired", [_between(each) for each in objectives]),
    ]


def constraint_columns(constraints: list[Summary]) -> list[Column]:
    """Return constraints on the testing seeds as columns of a table."""
    names = [each["constraint"] for each in constraints]
    return [("constraint", names), *((side, [_held(each[side]) for each in constraints]) for side in SIDES)]


def study_notes(summary: Summary) -> Iterator[str]:
    """Yield how the trials went, and the verdict."""
    trials = summary["trials"]
    yield (
        f"{trials['complete']} of {trials['asked']} trials complete, {trials['feasible']} keep every constraint"
        + (f", {trials['pruned']} pruned" if trials["pruned"] else "")
        + (f", {trials['failed']} failed" if trials["failed"] else "")
        + "."
    )
    if trials["failed"]:
        more = len(summary["failures"]) - 1
        others = " (and for other reasons, see `failure` in trials.parquet)" if more else ""
        yield f"Failed: {summary['failures'][0]}{others}."
    if not summary["default"]["in_space"]:
        yield "The default lies outside the space, so it was no trial."
    if trials["at_least"]:
        yield (
            f"In {trials['at_least']} trials the highest load still meets the anchor, so their throughput is a lower "
            "bound; raise sweep.load."
        )
    if summary["best"] is None:
        if trials["complete"]:
            yield "No candidate keeps every constraint: nothing was chosen. Loosen a constraint or widen the space."
        else:
            yield "Every trial has failed: nothing was chosen. Change the space."
        missed = summary["nearest"].items()
        yield from (f"The nearest to {name} misses it by {_percent(value)}." for name, value in missed)
        return
    yield from (
        f"{each['objective']}: {why}." for each in summary["best"]["testing"]["objectives"] if (why := why_open(each))
    )
    yield summary["verdict"]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.6g}"


def _shown(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.0f} %"


def _change(ratio: float | None) -> str:
    return "-" if ratio is None else f"{100 * (ratio - 1):+.2f} %"


def _between(each: Summary) -> str:
    return "-" if each["low"] is None else f"{_change(each['low'])} .. {_change(each['high'])}"


def _held(side: Summary | None) -> str:
    if side is None:
        return "-"
    mean = "" if side["mean"] is None else f"{_number(side['mean'])}, "
    return f"{mean}{'holds' if side['holds'] else 'broken by ' + _percent(side['violation'])}"
