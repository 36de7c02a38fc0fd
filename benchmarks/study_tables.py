"""Write the effects of a finished sweep as a small table, copy its figures, and fill them into pages.

    python benchmarks/study_tables.py RUN DEST PAGE..

``DEST/<name>.csv`` gets the rows of every effect in ``RUN/summary.json``, ``<name>`` being that of the run folder, and
the figures of the effects follow as ``DEST/<name>-<number>.svg``. In each PAGE, a pair of markers

    <!-- table <name> <number> -->
    <!-- end -->

encloses the table of that effect: a row for each line, a column for each value on the x axis, changes in per cent with
95 % intervals. A run with the figure ``transient`` gives ``DEST/<name>-transient.csv`` too, and

    <!-- transient <name> <quantity> <value of each axis> .. -->
    <!-- end -->

encloses the means of one quantity: a row for each arm, a column for each step.
"""

from __future__ import annotations

import csv
import json
import re
import shutil
import sys
from pathlib import Path

import polars as pl

Row = dict[str, str]

COLUMNS = (
    *("effect", "metric", "along", "against", "panels", "lines"),
    *("panel", "line", "x", "ratio", "low", "high", "seeds", "pairs", "left_out"),
)
AROUND = (-1, 0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 12)
"""Steps of a transient that are kept."""

TRANSIENT = re.compile(r"(<!-- transient (\S+) (\S+) (.*?) -->\n).*?(<!-- end -->)", re.DOTALL)
MARKED = re.compile(r"(<!-- table (\S+) (\d+) -->\n).*?(<!-- end -->)", re.DOTALL)


def effect_rows(summary: dict) -> list[Row]:
    """Rows of all effects, numbers with seven digits."""
    rows = []
    for number, effect in enumerate(summary["effects"], start=1):
        against = effect["against"]
        shared = {
            "effect": number,
            "metric": effect["metric"],
            "along": effect["along"],
            "against": against["arm"] if isinstance(against, dict) else against,
            "panels": effect["panels"],
            "lines": effect["lines"],
        }
        for row in effect["rows"]:
            numbers = {key: None if row[key] is None else f"{row[key]:.7g}" for key in ("ratio", "low", "high")}
            rows.append({key: "" if value is None else str(value) for key, value in (shared | row | numbers).items()})
    return rows


def markdown(rows: list[Row]) -> str:
    """A table for each panel."""
    panels = dict.fromkeys(row["panel"] for row in rows)
    return "\n".join(_panel([row for row in rows if row["panel"] == panel]) for panel in panels)


def _panel(rows: list[Row]) -> str:
    across = list(dict.fromkeys(row["x"] for row in rows))
    head = f"{rows[0]['panel']}: {rows[0]['lines']}" if rows[0]["panel"] else rows[0]["lines"]
    lines = [f"| {head} | " + " | ".join(across) + " |", "|---" * (len(across) + 1) + "|"]
    for name in dict.fromkeys(row["line"] for row in rows):
        cells = {row["x"]: _cell(row) for row in rows if row["line"] == name}
        lines.append(f"| {name} | " + " | ".join(cells[x] for x in across) + " |")
    return "\n".join(lines) + "\n"


def _cell(row: Row) -> str:
    if row["x"] == row["against"]:
        return "0"
    mean = _change(row["ratio"])
    return f"{mean} ({_change(row['low'])}, {_change(row['high'])})" if row["low"] else mean


def _change(ratio: str) -> str:
    return f"{100 * (float(ratio) - 1):+.2f}"


def transient_rows(run: Path) -> pl.DataFrame:
    """Means and intervals of every combination of a run's axes at the steps `AROUND`, with five digits."""
    cells = json.loads((run / "cells.json").read_bytes())
    parts = []
    for number, cell in enumerate(cells, start=1):
        part = pl.read_parquet(run / "cells" / str(number) / "transient.parquet").drop("load")
        named = [pl.lit(str(value)).alias(axis) for axis, value in cell["values"].items()]
        parts.append(part.filter(pl.col("offset").is_in(AROUND)).select(*named, pl.all()))
    return pl.concat(parts).with_columns(pl.col("mean", "low", "high").round_sig_figs(5))


def transient_table(rows: pl.DataFrame, quantity: str, values: list[str]) -> str:
    """Means of a quantity in one combination, one digit after the point below 100 and none above."""
    axes = rows.columns[: rows.columns.index("arm")]
    here = rows.filter(
        pl.col("quantity") == quantity, *(pl.col(axis) == value for axis, value in zip(axes, values, strict=True))
    )
    steps = here["offset"].unique().sort().to_list()
    lines = [
        f"| {quantity}, {', '.join(values)} | " + " | ".join(map(str, steps)) + " |",
        "|---" * (len(steps) + 1) + "|",
    ]
    for arm in here["arm"].unique(maintain_order=True):
        means = dict(here.filter(pl.col("arm") == arm).select("offset", "mean").iter_rows())
        lines.append(f"| {arm} | " + " | ".join(_mean(means[step]) for step in steps) + " |")
    return "\n".join(lines) + "\n"


def _mean(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def filled(page: str, folder: Path) -> str:
    """The page with every marked table written anew from the csv files of a folder."""

    def table(match: re.Match[str]) -> str:
        with (folder / f"{match[2]}.csv").open(newline="") as file:
            rows = [row for row in csv.DictReader(file) if row["effect"] == match[3]]
        return f"{match[1]}{markdown(rows)}{match[4]}"

    def transient(match: re.Match[str]) -> str:
        rows = pl.read_csv(folder / f"{match[2]}-transient.csv")
        return f"{match[1]}{transient_table(rows, match[3], match[4].split())}{match[5]}"

    return TRANSIENT.sub(transient, MARKED.sub(table, page))


def main(run: Path, folder: Path, *pages: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rows = effect_rows(json.loads((run / "summary.json").read_bytes()))
    with (folder / f"{run.name}.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    for figure in run.glob("effect-*.svg"):
        shutil.copyfile(figure, folder / f"{run.name}-{figure.stem.rpartition('-')[2]}.svg")
    if any(run.glob("cells/*/transient.parquet")):
        transient_rows(run).write_csv(folder / f"{run.name}-transient.csv")
    for page in pages:
        page.write_text(filled(page.read_text(encoding="utf-8"), folder), encoding="utf-8")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
