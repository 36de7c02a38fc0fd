"""The summary of a sweep with axes, as tables for a terminal."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from .terminal import anchor_cell, number, say, table

Summary = dict[str, Any]
Column = tuple[str, list[str]]

MOST_ROWS = 48
"""Rows of a table on a terminal; ``summary.json`` has all."""


def print_cells(summary: Summary, console: Console) -> None:
    """Print what `summarize_plan` returns for a sweep with axes: the effects, else every combination's arms."""
    for effect in summary["effects"]:
        _print_effect(effect, console)
    if not summary["effects"]:
        _print_arms(summary, console)
    seeds = len(summary["seeds"])
    say([f"{len(summary['cells'])} combinations, {summary['points']} points, {seeds} seeds. Intervals: 95 %."], console)


def _print_effect(effect: Summary, console: Console) -> None:
    against = effect["against"]
    other = f"arm {against['arm']}" if isinstance(against, dict) else f"{effect['along']} {against}"
    console.print(
        f"Change of {effect['metric']} along {effect['along']}, against {other}", style="bold", highlight=False
    )
    rows = effect["rows"]
    columns: list[Column] = [
        (effect[name], [str(row[key]) for row in rows])
        for name, key in (("panels", "panel"), ("lines", "line"), ("along", "x"))
        if effect[name] is not None
    ]
    columns.append(("change", [_change(row["ratio"]) for row in rows]))
    columns.append(("95 %", [_between(row) for row in rows]))
    _print_rows(columns, console)
    if effect["averaged_over"]:
        say([f"Geometric mean over {', '.join(effect['averaged_over'])}, paired by seed."], console)
    lost = sum(row["left_out"] for row in rows)
    if lost:
        say([f"{lost} pairs are left out: a point is missing, or its metric is not positive."], console)
    console.print()


def _print_arms(summary: Summary, console: Console) -> None:
    names = list(summary["axes"])
    rows = [(cell, arm) for cell in summary["cells"] for arm in cell["arms"]]
    columns: list[Column] = [(name, [str(cell["values"][name]) for cell, _ in rows]) for name in names]
    columns.append(("arm", [arm["label"] for _, arm in rows]))
    plus_minus = " ±" if console.encoding.startswith("utf") else " +-"
    most = max((len(cell["anchors"]) for cell, _ in rows), default=0)
    console.print("Throughput, tok/s/GPU, at each combination's interactivity anchors (tok/s/user)", style="bold")
    for i in range(most):
        shown = [
            f"@{number(cell['anchors'][i])} " + anchor_cell(arm["at_anchor"][i], plus_minus)
            if i < len(cell["anchors"])
            else "-"
            for cell, arm in rows
        ]
        columns.append((f"anchor {i + 1}", shown))
    _print_rows(columns, console)


def _print_rows(columns: list[Column], console: Console) -> None:
    total = len(columns[0][1])
    part = [(name, cells[:MOST_ROWS]) for name, cells in columns]
    console.print(table(part))
    if total > MOST_ROWS:
        say([f".. and {total - MOST_ROWS} more rows in summary.json."], console)


def _change(ratio: float | None) -> str:
    return "-" if ratio is None else f"{100 * (ratio - 1):+.2f} %"


def _between(row: Summary) -> str:
    return "-" if row["low"] is None else f"{_change(row['low'])} .. {_change(row['high'])}"
