"""The summary as tables, for a terminal of 80 columns or none at all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from ...sim.metrics import THROUGHPUT
from ..analysis.intervals import LEAST_SEEDS

Summary = dict[str, Any]
Column = tuple[str, list[str]]

_APART = 3
"""Spaces between two columns."""

REFERENCES = {"mtp": "the MTP-1 arm", "best_static": "the best static arm"}


def print_summary(summary: Summary, console: Console) -> None:
    """Print a summary: throughput at the anchors and speed-ups.

    Args:
        summary: as `summarize` returns it.
        console: where to; its width decides how many anchors share a table.
    """
    _print_anchors(summary, console)
    if "goodput" in summary:
        _print_goodput(summary["goodput"], summary["load"], console)
    for name, title in REFERENCES.items():
        _print_speedups(summary["speedup"][name], title, console)
    say(run_notes(summary), console)


def say(notes: Iterable[str], console: Console) -> None:
    """Print notes, a line each."""
    for note in notes:
        console.print(note, highlight=False, markup=False)


def _print_anchors(summary: Summary, console: Console) -> None:
    arms = ("arm", [arm["label"] for arm in summary["arms"]])
    plus_minus = " ±" if console.encoding.startswith("utf") else " +-"
    columns = [
        (number(anchor), [anchor_cell(arm["at_anchor"][i], plus_minus) for arm in summary["arms"]])
        for i, anchor in enumerate(summary["anchors"])
    ]
    if columns:
        console.print("Throughput, tok/s/GPU, at an interactivity of at least so many tok/s/user", style="bold")
    if columns:
        print_table([arms, *columns], console)
    say(anchor_notes(summary), console)
    console.print()


def print_table(columns: Sequence[Column], console: Console, names: int = 1) -> None:
    """Print columns as a table, or as several if the console is too narrow, each with the first ``names`` columns."""
    fixed = list(columns[:names])
    room = console.width - sum(map(_width, fixed))
    for i, part in enumerate(list(_that_fit(columns[names:], room)) or [[]]):
        console.print(*([""] if i else []), table([*fixed, *part]), sep="\n")


def _print_goodput(goodput: Summary, load: str, console: Console) -> None:
    bounds = " and ".join(f"{name} at most {bound:g} s" for name, bound in goodput["bounds"].items())
    console.print(f"Goodput, requests/s with {bounds}, by {load}", style="bold", highlight=False)
    arms = [("arm", [arm["label"] for arm in goodput["arms"]])]
    loads = [
        (number(at), [_goodput_cell(arm["by_load"][i]) for arm in goodput["arms"]])
        for i, at in enumerate(goodput["loads"])
    ]
    print_table([*arms, *loads], console)
    console.print()


def _goodput_cell(value: float | None) -> str:
    return "-" if value is None else number(value)


def _that_fit(columns: Sequence[Column], width: int) -> Iterator[list[Column]]:
    """Yield runs of columns that fit in a width, at least one at a time."""
    part: list[Column] = []
    for column in columns:
        if part and sum(map(_width, [*part, column])) > width:
            yield part
            part = []
        part.append(column)
    if part:
        yield part


def _width(column: Column) -> int:
    return _APART + max(map(len, [column[0], *column[1]]))


def table(columns: Sequence[Column]) -> Table:
    """Return columns of text as a table, the first to the left."""
    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for i, (name, _) in enumerate(columns):
        drawn.add_column(name, justify="right" if i else "left", no_wrap=i > 0, overflow="ellipsis" if i else "fold")
    for row in zip(*(cells for _, cells in columns), strict=True):
        drawn.add_row(*row)
    return drawn


def anchor_cell(at: Summary, plus_minus: str) -> str:
    """Return the throughput at an anchor as a table shows it."""
    if at["status"] == "not_met":
        return "not met"
    text = number(at[THROUGHPUT]) + ("*" if at["at_capture_limit"] else "")
    if at["low"] is not None:
        text += plus_minus + half_width((at["high"] - at["low"]) / 2, at[THROUGHPUT])
    if at["seeds_of_this_status"] < at["seeds"]:
        text += f" {at['seeds_of_this_status']}/{at['seeds']}"
    return f">= {text} @{number(at['highest_load'])}" if at["status"] == "at_least" else text


def anchor_notes(summary: Summary) -> Iterator[str]:
    """Yield what the marks in a table of throughput at the anchors mean, as far as they occur."""
    if not summary["anchors"]:
        yield "No interactivity anchors: set sla.anchors to compare arms at them."
        return
    found = [at for arm in summary["arms"] for at in arm["at_anchor"]]
    best: dict[str, list[str]] = {}
    for each in summary["best_static_at_anchor"]:
        if each["arm"] is not None:
            best.setdefault(each["arm"], []).append(number(each["anchor"]))
    if best:
        yield "Best static: " + "; ".join(f"{arm} at {', '.join(anchors)}" for arm, anchors in best.items()) + "."
    if any(at["status"] == "at_least" for at in found):
        yield f">= y @N: still met at the highest load ({summary['load']} N); more load may give more."
    if any(at["at_capture_limit"] for at in found):
        yield "*: the next load runs past the capture limit; nothing is interpolated across."
    if any(at["seeds_of_this_status"] < at["seeds"] for at in found):
        yield "m/n: only m of n seeds come to this by themselves, so there is no interval."


def _print_speedups(speedup: Summary | None, title: str, console: Console) -> None:
    if speedup is None:
        console.print(f"No speed-up over {title}: the run has no such arm.\n", highlight=False)
        return
    if not speedup["arms"]:
        console.print(f"No speed-up over {title}: the run has no other arm.\n", highlight=False)
        return
    console.print(f"Speed-up per user at matched throughput, over {title}", style="bold", highlight=False)
    print_table(speedup_columns(speedup["arms"]), console)
    say(speedup_notes(speedup), console)
    console.print()


def speedup_notes(speedup: Summary) -> Iterator[str]:
    """Yield what the columns of a table of speed-ups mean."""
    names = speedup["reference"]
    best = ", the fastest of them at each throughput" if len(names) > 1 else ""
    yield f"Over {', '.join(names)}{best}."
    yield f"points: of its {speedup['reference_points']} non-dominated ones, those in the arm's range of throughput."
    yield "mean: geometric, over these points. most: at so many tok/s/GPU."
    if any(arm["over_band_ends"] for arm in speedup["arms"]):
        yield f"cost band: the mean if the draft cost of {names[0]} is at either end of its band."


def speedup_columns(arms: Sequence[Summary]) -> list[Column]:
    """Return the speed-ups of arms over one reference as columns of a table."""
    columns = [
        ("arm", [arm["label"] for arm in arms]),
        ("mean", [_ratio(arm["geometric_mean"]) for arm in arms]),
        ("95 %", [_range(arm["low"], arm["high"]) for arm in arms]),
        ("least", [_ratio(arm["least"] and arm["least"]["speedup"]) for arm in arms]),
        ("most", [_at_throughput(arm["most"]) for arm in arms]),
        ("points", [str(len(arm["matched"])) for arm in arms]),
    ]
    if any(arm["over_band_ends"] for arm in arms):
        columns.append(("cost band", [_range(*arm["over_band_ends"]) for arm in arms]))
    return columns


def run_notes(summary: Summary) -> Iterator[str]:
    """Yield what a run's intervals rest on, and what was left out."""
    seeds = len(summary["seeds"])
    if seeds >= LEAST_SEEDS:
        yield f"Intervals: 95 %, Student t over {seeds} seeds."
    else:
        yield f"No intervals: {seeds} {'seed' if seeds == 1 else 'seeds'}, at least {LEAST_SEEDS} are needed."
    if summary["points_left_out"]:
        yield f"{summary['points_left_out']} of {summary['points']} points have no interactivity and are left out."


def _at_throughput(matched: Summary | None) -> str:
    return "-" if matched is None else f"{_ratio(matched['speedup'])} @{number(matched[THROUGHPUT])}"


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _range(low: float | None, high: float | None) -> str:
    return "-" if low is None or high is None else f"{low:.2f}-{high:.2f}"


def half_width(value: float, around: float) -> str:
    """Return half an interval with two figures, or 0 where seeds differ by rounding alone.

    They do so for an arm whose steps never depend on the text.
    """
    if value < 1e-9 * abs(around):
        return "0"
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def number(value: float) -> str:
    """Return three figures or more, with thousands separated."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
