"""The section of a report that tells of a tuning, from its summary and its figures."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .report_html import Column, Html, notes, preformatted, section, table
from .report_run import TuneRun
from .report_svg import inline_file


def tune_sections(run: TuneRun, prefix: str) -> Iterator[Html]:
    """Yield what a tuning found: its summary, the best experiment, and its figures as it has drawn them."""
    facts = dict(_flat(run.summary))
    if facts:
        columns: list[Column] = [("", list(facts)), ("value", list(facts.values()))]
        yield section("Result", table(columns, "The summary of the tuning", 2), level=3)
    for name, rows in run.summary.items():
        if isinstance(rows, list) and rows and all(isinstance(row, Mapping) for row in rows):
            yield section(str(name).replace("_", " ").capitalize(), _rows(rows, str(name)), level=3)
    figures = sorted(run.folder.glob("*.svg"))
    if not figures:
        yield notes(["The tuning has drawn no figures."])
    for number, file in enumerate(figures, start=1):
        drawn = inline_file(file.read_text(encoding="utf-8"), f"{prefix}-figure{number}", f"Figure {file.stem}")
        yield section(file.stem.replace("_", " ").replace("-", " ").capitalize(), drawn, level=3)
    yield section("The best experiment", preformatted(run.config, "best.yaml"), level=3)


def _flat(data: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield every single value of a summary with the path to it; tables are shown as such."""
    if isinstance(data, Mapping):
        for key, value in data.items():
            yield from _flat(value, f"{path}.{key}" if path else str(key))
    elif not (isinstance(data, list) and data and isinstance(data[0], Mapping)):
        yield path, _text(data)


def _rows(rows: Sequence[Mapping[str, Any]], caption: str) -> Html:
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns: list[Column] = [(name, [_text(row.get(name)) for row in rows]) for name in names]
    return table(columns, caption, len(columns))


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.6g}"
    return value if isinstance(value, str) else json.dumps(value)
