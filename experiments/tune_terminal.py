"""What a study found, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Console

from .terminal import say, table
from .tune_verdict import why_open

Summary = dict[str, Any]


def print_study(summary: Summary, console: Console) -> None:
    """Print the summary of a study: the parameters, the comparison on testing seeds, and the verdict.

    Args:
        summary: what ``summary.json`` holds.
        console: where to.
    """
    best = summary["best"]
    if best is not None:
        default = summary["default"]["parameters"]
        console.print(f"Trial {best['trial']}, chosen on the tuning seeds", style="bold", highlight=False)
        keys = list(best["parameters"])
        columns = [("parameter", keys), ("tuned", [_shown(best["parameters"][key]) for key in keys])]
        columns.append(("default", [_shown(default[key]) if default else "outside the space" for key in keys]))
        if summary["importance"] is not None:
            columns.append(("importance", [_percent(summary["importance"].get(key)) for key in keys]))
        console.print(table(columns))
        _print_objectives(best["testing"]["objectives"], len(summary["seeds"]["testing"]), console)
        _print_constraints(best["testing"]["constraints"], console)
    console.print()
    say(_notes(summary), console)


def _print_objectives(objectives: list[Summary], seeds: int, console: Console) -> None:
    console.print(f"On {seeds} testing seeds, which took no part in the choice", style="bold", highlight=False)
    columns = [
        ("objective", [each["objective"] for each in objectives]),
        ("tuned", [_number(each["tuned"]) for each in objectives]),
        ("default", [_number(each["default"]) for each in objectives]),
        ("change", [_change(each["ratio"]) for each in objectives]),
        ("95 %, paired", [_between(each) for each in objectives]),
    ]
    console.print(table(columns))


def _print_constraints(constraints: list[Summary], console: Console) -> None:
    if constraints:
        sides = ("tuned", "default")
        columns = [("constraint", [each["constraint"] for each in constraints])]
        columns += [(side, [_held(each[side]) for each in constraints]) for side in sides]
        console.print(table(columns))


def _notes(summary: Summary) -> Iterator[str]:
    trials = summary["trials"]
    yield (
        f"{trials['complete']} of {trials['asked']} trials complete, {trials['feasible']} keep every constraint"
        + (f", {trials['pruned']} pruned" if trials["pruned"] else "")
        + (f", {trials['failed']} failed" if trials["failed"] else "")
        + "."
    )
    if trials["at_least"]:
        yield (
            f"In {trials['at_least']} trials the highest load still meets the anchor, so their throughput is a lower "
            "bound; raise sweep.load."
        )
    if summary["best"] is None:
        yield "No candidate keeps every constraint: nothing was chosen. Loosen a constraint or widen the space."
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
