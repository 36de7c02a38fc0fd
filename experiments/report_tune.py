"""The section of a report that tells of a tuning, from its summary, its trials and its figures."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from .report_html import Column, Html, notes, preformatted, section, table, tag
from .report_run import TuneRun
from .report_svg import inline_file

_TOLD = ("kind", "verdict", "best", "default", "front")
"""Entries of the summary that have places of their own."""


def tune_sections(run: TuneRun, prefix: str) -> Iterator[Html]:
    """Yield what a tuning found: its verdict, parameters, trials and figures, and the best experiment."""
    summary = run.summary
    verdict = summary.get("verdict") or "No trial meets the constraints, so nothing is compared with the default."
    yield section("Verdict", tag("p", str(verdict)), *_judged(summary), level=3)
    facts = dict(_flat({key: value for key, value in summary.items() if key not in _TOLD}))
    columns: list[Column] = [("entry", list(facts)), ("value", list(facts.values()))]
    yield section("The study", table(columns, "What was searched, and how much each parameter matters", 2), level=3)
    front = summary.get("front") or ()
    if len(front) > 1:
        yield section(
            "Candidates that no other beats", _rows([dict(_flat(each)) for each in front], "Pareto set"), level=3
        )
    yield from _figures(run, prefix)
    trials = run.folder / "trials.parquet"
    if trials.is_file():
        rows = pl.read_parquet(trials).to_dicts()
        yield section("Trials", _rows(rows, "Every trial, in the order it was asked for"), level=3)
    best = run.folder / "best.yaml"
    if best.is_file():
        yield section("The best experiment", preformatted(best.read_text(encoding="utf-8"), "best.yaml"), level=3)


def _judged(summary: Mapping[str, Any]) -> Iterator[Html]:
    """Yield the best parameters beside the default's, and what the held-out seeds say of them."""
    best = summary.get("best")
    if not best:
        return
    default = (summary.get("default") or {}).get("parameters") or {}
    keys = list(dict.fromkeys([*best["parameters"], *default]))
    columns: list[Column] = [
        ("parameter", keys),
        (f"trial {best['trial']}", [_text(best["parameters"].get(key)) for key in keys]),
        ("default", [_text(default.get(key)) for key in keys]),
    ]
    yield table(columns, "The best trial and the default", 3)
    for name, rows in (best.get("testing") or {}).items():
        if isinstance(rows, list) and rows and all(isinstance(row, Mapping) for row in rows):
            yield _rows([dict(_flat(row)) for row in rows], f"On held-out seeds: {name}")


def _figures(run: TuneRun, prefix: str) -> Iterator[Html]:
    files = sorted(run.folder.glob("*.svg"))
    if not files:
        yield notes(["The tuning has drawn no figures."])
    for number, file in enumerate(files, start=1):
        title = file.stem.replace("_", " ").replace("-", " ").capitalize()
        drawn = inline_file(file.read_text(encoding="utf-8"), f"{prefix}-figure{number}", f"{title}, as tuning drew it")
        yield section(title, drawn, level=3)


def _flat(data: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield every single value with the path to it."""
    if isinstance(data, Mapping):
        for key, value in data.items():
            yield from _flat(value, f"{path}.{key}" if path else str(key))
    else:
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
    if isinstance(value, list) and not any(isinstance(each, list | Mapping) for each in value):
        return ", ".join(map(_text, value)) or "none"
    return value if isinstance(value, str) else json.dumps(value)
