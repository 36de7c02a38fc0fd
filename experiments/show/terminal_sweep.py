"""The summary of a sweep with axes, as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Console

from ..config.text import value_text
from .terminal import anchor_cell, number, print_table, say

Summary = dict[str, Any]
Column = tuple[str, list[str]]

ARMS_TITLE = "Throughput, tok/s/GPU, at each combination's interactivity anchors (tok/s/user)"

LONGEST = 20
"""Characters of a list or mapping in a table; longer ones are numbered, and written out below."""

MOST_ROWS = 48
"""Rows of a table on a terminal; ``summary.json`` has all."""


def print_cells(summary: Summary, console: Console) -> None:
    """Print what `summarize_plan` returns for a sweep with axes: the effects, else every combination's arms."""
    print_effects(summary, console)
    if not summary["effects"]:
        _print_arms(summary, console)
    cells, seeds = len(summary["cells"]), len(summary["seeds"])
    counted = f"{_count(cells, 'combination')}, {_count(summary['points'], 'point')}, {_count(seeds, 'seed')}"
    say([f"{counted}. Intervals: 95 %."], console)


def print_effects(summary: Summary, console: Console) -> None:
    """Print the effects of a summary, if it has some."""
    for effect in summary.get("effects", ()):
        _print_effect(effect, console)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _print_effect(effect: Summary, console: Console) -> None:
    console.print(effect_title(effect), style="bold", highlight=False)
    _print_rows(effect_columns(effect), console, sum(effect[name] is not None for name in ("panels", "lines", "along")))
    say(effect_notes(effect), console)
    console.print()


def effect_title(effect: Summary) -> str:
    """Return what an effect compares."""
    against = effect["against"]
    other = f"arm {against['arm']}" if isinstance(against, dict) else f"{effect['along']} {value_text(against)}"
    return f"Change of {effect['metric']} along {effect['along']}, against {other}"


def effect_columns(effect: Summary) -> list[Column]:
    """Return an effect as columns of a table, those that name its rows first."""
    rows = effect["rows"]
    columns: list[Column] = [
        (effect[name], [str(row[key]) for row in rows])
        for name, key in (("panels", "panel"), ("lines", "line"), ("along", "x"))
        if effect[name] is not None
    ]
    columns.append(("change", [_change(row["ratio"]) for row in rows]))
    columns.append(("95 %", [_between(row) for row in rows]))
    return columns


def effect_notes(effect: Summary) -> Iterator[str]:
    """Yield which points take part, what an effect is averaged over, and what was left out."""
    for name, values in effect["where"].items():
        yield f"Only where {name} is {' or '.join(map(value_text, values))}."
    if effect["averaged_over"]:
        yield f"Geometric mean over {', '.join(effect['averaged_over'])}, paired by seed."
    lost = sum(row["left_out"] for row in effect["rows"])
    if lost:
        yield f"{lost} pairs are left out: a point is missing, or its metric is not positive."


def _print_arms(summary: Summary, console: Console) -> None:
    console.print(ARMS_TITLE, style="bold")
    columns = arm_columns(summary, " ±" if console.encoding.startswith("utf") else " +-")
    _print_rows(columns, console, len(summary["axes"]) + 1)


def arm_columns(summary: Summary, plus_minus: str) -> list[Column]:
    """Return the arms of every combination with their throughput at the anchors as columns of a table."""
    names = list(summary["axes"])
    rows = [(cell, arm) for cell in summary["cells"] for arm in cell["arms"]]
    columns: list[Column] = [(name, [str(cell["values"][name]) for cell, _ in rows]) for name in names]
    columns.append(("arm", [arm["label"] for _, arm in rows]))
    most = max((len(cell["anchors"]) for cell, _ in rows), default=0)
    for i in range(most):
        shown = [
            f"@{number(cell['anchors'][i])} " + anchor_cell(arm["at_anchor"][i], plus_minus)
            if i < len(cell["anchors"])
            else "-"
            for cell, arm in rows
        ]
        columns.append((f"anchor {i + 1}", shown))
    return columns


def _print_rows(columns: list[Column], console: Console, names: int) -> None:
    total = len(columns[0][1])
    part = [(name, cells[:MOST_ROWS]) for name, cells in columns]
    numbered, legend = _numbered(part)
    print_table(numbered, console, names)
    say(legend, console)
    if total > MOST_ROWS:
        say([f".. and {total - MOST_ROWS} more rows in summary.json."], console)


def _numbered(columns: list[Column]) -> tuple[list[Column], list[str]]:
    """Return the columns with long lists and mappings numbered, and what the numbers stand for."""
    numbered, legend = [], []
    for name, cells in columns:
        values = list(dict.fromkeys(cells))
        if any(value[:1] in ("{", "[") and len(value) > LONGEST for value in values):
            places = {value: f"#{i}" for i, value in enumerate(values, start=1)}
            legend += [f"{name} {place}: {value}" for value, place in places.items()]
            numbered.append((name, [places[cell] for cell in cells]))
        else:
            numbered.append((name, cells))
    return numbered, legend


def _change(ratio: float | None) -> str:
    return "-" if ratio is None else f"{100 * (ratio - 1):+.2f} %"


def _between(row: Summary) -> str:
    return "-" if row["low"] is None else f"{_change(row['low'])} .. {_change(row['high'])}"
