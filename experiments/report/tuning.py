"""The section of a report that tells of a tuning, from its summary, its trials and its figures."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl
from markupsafe import Markup

from ..tune.terminal import (
    compared,
    constraint_columns,
    front_columns,
    front_title,
    objective_columns,
    parameter_columns,
    study_notes,
)
from .html import Column, notes, preformatted, section, table
from .read import TuneRun
from .svg import inline_file


def tune_sections(run: TuneRun, prefix: str) -> Iterator[Markup]:
    """Yield what a tuning found: its verdict, parameters, trials and figures, and the best experiment."""
    summary = dict(run.summary)
    yield section("Verdict", *_judged(summary), notes(study_notes(summary)), level=3)
    yield section("The study", table(_study_columns(summary), "What was searched for", 2), level=3)
    if len(summary["front"]) > 1:
        caption = f"{front_title(summary)}; the best in {summary['objectives'][0]} first"
        yield section("Candidates that no other beats", table(front_columns(summary), caption), level=3)
    yield from _figures(run, prefix)
    trials = run.folder / "trials.parquet"
    if trials.is_file():
        rows = pl.read_parquet(trials).to_dicts()
        yield section("Trials", _rows(rows, "Every trial, in the order it was asked for"), level=3)
    best = run.folder / "best.yaml"
    if best.is_file():
        yield section("The best experiment", preformatted(best.read_text(encoding="utf-8"), "best.yaml"), level=3)


def _judged(summary: dict[str, Any]) -> Iterator[Markup]:
    """Yield the best parameters beside the default's, and what the held-out seeds say of them."""
    best = summary["best"]
    if best is None:
        return
    yield table(parameter_columns(summary), f"Trial {best['trial']}, chosen on the tuning seeds, and the default", 1)
    for title, objectives in compared(summary):
        yield table(objective_columns(objectives), title)
    if best["testing"]["constraints"]:
        yield table(constraint_columns(best["testing"]["constraints"]), "Constraints on the testing seeds")


def _study_columns(summary: Mapping[str, Any]) -> list[Column]:
    counts = summary["trials"]
    told = ("complete", "pruned", "failed", "feasible")
    rows = {
        "arm": summary["arm"],
        "objectives": ", ".join(summary["objectives"]),
        "constraints": ", ".join(summary["constraints"]) or "none",
        "tuning seeds": _text(summary["seeds"]["tuning"]),
        "testing seeds": _text(summary["seeds"]["testing"]),
        "trials": f"{counts['asked']}: " + ", ".join(f"{counts[name]} {name}" for name in told if counts[name]),
    }
    return [("entry", list(rows)), ("value", list(rows.values()))]


def _figures(run: TuneRun, prefix: str) -> Iterator[Markup]:
    files = sorted(run.folder.glob("*.svg"))
    if not files:
        yield notes(["No figures: no trial keeps every constraint."])
    elif run.summary["importance"] is None:
        yield notes(["No importance of parameters: too few complete trials, or all are worth the same."])
    for number, file in enumerate(files, start=1):
        title = file.stem.replace("_", " ").replace("-", " ").capitalize()
        drawn = inline_file(file.read_text(encoding="utf-8"), f"{prefix}-figure{number}", f"{title}, as tuning drew it")
        yield section(title, drawn, level=3)


def _rows(rows: Sequence[Mapping[str, Any]], caption: str) -> Markup:
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
