"""The sections of a report that tell of one experiment: SLA, frontier, verify budget, step cost, waste."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
from markupsafe import Markup

from ...sim.metrics import INTERACTIVITY, THROUGHPUT
from ..analysis.frontier import frontier, line, usable
from ..analysis.intervals import LEAST_SEEDS, mean_interval
from ..analysis.roles import Roles
from ..analysis.summary import bounds_of, cast_of, load_name
from ..analysis.threshold import threshold_table
from ..config.schema import Experiment
from ..config.text import load_text
from ..show.frontier import frontier_figure
from ..show.load import load_figure
from ..show.terminal import (
    REFERENCES,
    anchor_cell,
    anchor_notes,
    half_width,
    number,
    run_notes,
    speedup_columns,
    speedup_notes,
)
from .html import Column, beside, join, notes, section, table
from .sizes import Chosen, chosen_sizes, cost_of, sizes_figure
from .svg import inline_figure, inline_file, reflow
from .waste import PARTS, waste_figure, waste_table

NONE = "-"
WIDTH = 5.6
"""Inches of a figure beside its values."""

Cells = Callable[[float], str]


@dataclass(frozen=True)
class Part:
    """One experiment of a run: the whole run, or a combination of its axes.

    Attributes:
        experiment: what was run.
        points: its points, without columns of axes.
        prefix: begins the identifiers of its figures.
        folder: the run folder; figures that the run has drawn are in ``drawn``.
        drawn: see above.
        keyed: whether the run has axes.
        digest: SHA-256 of the profile, as far as the manifest knows it.
    """

    experiment: Experiment
    points: pl.DataFrame
    prefix: str
    folder: Path
    drawn: Path
    keyed: bool = False
    digest: str | None = None

    @property
    def cast(self) -> Roles:
        """Roles of the arms."""
        return cast_of(self.points, self.experiment)

    @property
    def shown(self) -> tuple[str, ...]:
        """Arms that get rows and panels of their own: all but the ends of draft cost bands."""
        cast = self.cast
        return tuple(arm for arm in cast.arms if arm not in cast.band_ends)

    def figure_name(self, name: str) -> str:
        """Return an identifier for one of its figures."""
        return f"{self.prefix}-{name}"


def sections(part: Part, level: int = 3) -> Iterator[Markup]:
    """Yield the sections of one experiment but the one that its summary gives."""
    for title, made in (
        ("Frontier", frontier_part(part)),
        ("Latency and goodput", latency_part(part)),
        ("Verify budget against load", budget_part(part)),
        ("Step cost and the batch sizes chosen", sizes_part(part)),
        ("Waste: what the executed tokens were", waste_part(part)),
        *further_parts(part),
    ):
        yield section(title, made, level=level)


def anchors_part(summary: Mapping[str, Any]) -> Markup:
    """Return throughput at the SLA anchors and the speed-ups, from a run's summary."""
    arms = summary["arms"]
    columns: list[Column] = [("arm", [arm["label"] for arm in arms])]
    columns += [
        (f"at {number(anchor)}", [anchor_cell(arm["at_anchor"][i], " ±") for arm in arms])
        for i, anchor in enumerate(summary["anchors"])
    ]
    caption = "Throughput, tok/s/GPU, at an interactivity of at least so many tok/s/user"
    pieces = [table(columns, caption)] if summary["anchors"] else []
    pieces += [notes(anchor_notes(dict(summary)))]
    for name, title in REFERENCES.items():
        pieces += list(_speedup(summary["speedup"][name], title))
    return join([*pieces, notes(run_notes(dict(summary)))])


def _speedup(speedup: dict[str, Any] | None, title: str) -> Iterator[Markup]:
    if speedup is None:
        yield notes([f"No speed-up over {title}: the run has no such arm."])
        return
    yield table(speedup_columns(speedup["arms"]), f"Speed-up per user at matched throughput, over {title}")
    yield notes(speedup_notes(speedup))


def frontier_part(part: Part) -> Markup:
    """Return the frontier figure with the coordinates of every point."""
    load = load_name(part.experiment)
    figure = frontier_figure(part.points, part.experiment.sla.anchors or (), part.cast, load)
    caption = "Throughput against interactivity; dashed lines are the SLA anchors, filled markers are on the frontier"
    drawn = inline_figure(reflow(figure, 1, WIDTH, 4.0), part.figure_name("frontier"), caption)
    return beside(drawn, frontier_values(part), notes(_interval_note(part)))


def frontier_values(part: Part) -> Markup:
    """Return both coordinates of every point as a table, mean over seeds with half the interval's width."""
    cast, kept = part.cast, usable(part.points)
    best = set(frontier([line(kept, arm) for arm in cast.contenders]).select("arm", "load").rows())
    rows = list(_by_point(kept, cast.arms))
    columns: list[Column] = [
        ("arm", [cast.label(arm) for arm, _, _ in rows]),
        (load_name(part.experiment), [load_text(load) for _, load, _ in rows]),
        ("tok/s/user", [_mean_text(each[INTERACTIVITY]) for _, _, each in rows]),
        ("tok/s/GPU", [_mean_text(each[THROUGHPUT]) for _, _, each in rows]),
        ("frontier", ["yes" if (arm, load) in best else "" for arm, load, _ in rows]),
    ]
    return table(columns, "Interactivity and throughput of every point")


def latency_part(part: Part) -> Markup:
    """Return latencies, and goodput where the experiment has bounds, by arm and load."""
    wanted = {
        "tpot_p50_s": ("TPOT p50, ms", _milliseconds),
        "tpot_p99_s": ("TPOT p99, ms", _milliseconds),
        "ttft_p99_s": ("TTFT p99, ms", _milliseconds),
        "wait_p99_s": ("wait p99, ms", _milliseconds),
        "step_p99_s": ("step p99, ms", _milliseconds),
        "goodput_req_s": ("goodput, requests/s", number),
    }
    bounds = [f"{name} at most {bound:g} s" for name, bound in bounds_of(part.experiment).items()]
    said = [f"Goodput: requests that meet {' and '.join(bounds)}." if bounds else "No bound is set, so no goodput."]
    if part.points["ttft_p99_s"].null_count() == len(part.points):
        said.append("No time to first token: the run has no prefill stage.")
    return join([values_table(part, wanted, "Latencies by arm and load, mean over seeds"), notes(said)])


def values_table(part: Part, wanted: Mapping[str, tuple[str, Cells]], caption: str) -> Markup:
    """Return metrics by arm and load, mean over seeds; columns without any value are left out."""
    present = {name: told for name, told in wanted.items() if _is_there(part.points, name)}
    rows = list(_by_point(part.points, part.cast.arms))
    columns: list[Column] = [
        ("arm", [part.cast.label(arm) for arm, _, _ in rows]),
        (load_name(part.experiment), [load_text(load) for _, load, _ in rows]),
    ]
    for name, (title, shown) in present.items():
        columns.append((title, [_mean(each[name], shown) for _, _, each in rows]))
    return table(columns, caption)


def budget_part(part: Part) -> Markup:
    """Return throughput and verify budget against load."""
    figure = reflow(load_figure(part.points, part.cast, load_name(part.experiment)), 1, WIDTH, 3.0)
    caption = "Throughput, and drafts verified per request with the anchor, against load"
    drawn = inline_figure(figure, part.figure_name("load"), caption)
    return beside(drawn, budget_values(part))


def budget_values(part: Part) -> Markup:
    """Return the verify budget of every arm at every load."""
    budgets = {(arm, load): each["verify_budget"] for arm, load, each in _by_point(part.points, part.cast.arms)}
    columns: list[Column] = [("arm", [part.cast.label(arm) for arm in part.shown])]
    of = load_name(part.experiment)
    for load in part.points["load"].unique().sort():
        values = [budgets.get((arm, load)) for arm in part.shown]
        columns.append((load_text(load), [NONE if each is None else _mean(each, _two) for each in values]))
    return table(columns, f"Verify budget, tokens per request and step (anchor included), by {of}")


def sizes_part(part: Part) -> Markup:
    """Return the step-cost curve with the sizes that ran, or what is missing for it."""
    cost = cost_of(part.experiment, part.digest)
    chosen = _chosen(part)
    pieces: list[str] = [notes(_sizes_notes(part, chosen))]
    if isinstance(cost, str):
        return join([notes([cost]), *pieces, _sizes_values(part, chosen)])
    profile = cost.profile
    caption = f"Verify step of {profile.name} ({profile.source}) by batch tokens, lookup {cost.lookup}"
    if chosen is not None:
        caption += "; below, the sizes that ran: a disc's area is its share of the arm's steps, loads weighing alike"
    drawn = inline_figure(sizes_figure(cost, chosen, part.cast), part.figure_name("cost"), caption)
    return beside(drawn, _sizes_values(part, chosen), *pieces)


def _chosen(part: Part) -> Chosen | None:
    try:
        return chosen_sizes(part.folder, part.points, part.shown, part.keyed)
    except (OSError, ValueError, pl.exceptions.PolarsError):
        return None


def _sizes_notes(part: Part, chosen: Chosen | None) -> Iterator[str]:
    if chosen is None:
        yield (
            "Which batch sizes were chosen is not known: the run kept no step records of all these points. Run it with "
            "output.records: [steps] to see them here; until then only the largest batch of each point is known."
        )
    else:
        yield "All recorded steps, warm-up included, all seeds together."


def _sizes_values(part: Part, chosen: Chosen | None) -> Markup:
    if chosen is None:
        wanted = {
            "batch_tokens_max": ("largest batch, tokens", _whole),
            "eager_fraction": ("past the graphs, %", _percent),
        }
        return values_table(part, wanted, "Largest batch asked for, mean over seeds")
    rows = chosen.asked.rows(named=True)
    columns: list[Column] = [
        ("arm", [part.cast.label(row["arm"]) for row in rows]),
        (load_name(part.experiment), [load_text(row["load"]) for row in rows]),
        ("steps", [f"{row['steps']:,}" for row in rows]),
        *((name, [f"{row[name]:,.0f}" for row in rows]) for name in ("p10", "p50", "p90")),
        ("most often ran", [_commonest(chosen.executed, row["arm"], row["load"]) for row in rows]),
    ]
    return table(columns, "Batch tokens asked for in a step, and the executed size that ran most often")


def _commonest(executed: pl.DataFrame, arm: str, load: float) -> str:
    mine = executed.filter(pl.col("arm") == arm, pl.col("load") == load).sort(
        "steps", descending=True, maintain_order=True
    )
    return f"{mine['executed'][0]:,} ({100 * mine['steps'][0] / mine['steps'].to_numpy().sum():.0f} %)"


def waste_part(part: Part) -> Markup:
    """Return what the executed tokens were, by arm and load."""
    shares = waste_table(part.points, part.shown)
    if not len(shares):
        return notes(["No point has a verify budget and a padded fraction."])
    figure = reflow(waste_figure(shares, part.cast), 2, WIDTH, 1.7)
    caption = (
        f"Share of executed tokens by {load_name(part.experiment)}: anchors, accepted and rejected drafts, padding"
    )
    drawn = inline_figure(figure, part.figure_name("waste"), caption)
    columns: list[Column] = [
        ("arm", [part.cast.label(arm) for arm in shares["arm"]]),
        (load_name(part.experiment), [load_text(load) for load in shares["load"]]),
        *((f"{name}, %", [_percent(share) for share in shares[name]]) for name in PARTS),
    ]
    said = notes(["Rejected and padded tokens are waste. Each anchor gives one token, each accepted draft one more."])
    return beside(drawn, table(columns, "Share of executed tokens, mean over seeds"), said)


def _threshold_values(part: Part) -> Markup:
    values = threshold_table(part.points, part.experiment)
    columns: list[Column] = [
        ("benchmark", values["benchmark"].to_list()),
        ("threshold", [f"{each:g}" for each in values["threshold"]]),
        ("accepted", [_two(each) for each in values["accepted"]]),
        ("verified", [_two(each) for each in values["verified"]]),
        ("rate, %", [_percent(a / v) for a, v in zip(values["accepted"], values["verified"], strict=True)]),
    ]
    return table(columns, "Tokens per request and step, anchor included")


def _values_of(name: str, part: Part) -> Iterator[Markup]:
    """Yield the values of a figure that the run has drawn; most are kept beside it, in a table of the same name."""
    file = part.drawn / f"{name}.parquet"
    if name == "threshold":
        yield _threshold_values(part)
    elif file.is_file():
        values = pl.read_parquet(file)
        numbers = [column for column, kind in values.schema.items() if kind.is_numeric()]
        ordered = values.select(*(column for column in values.columns if column not in numbers), *numbers)
        columns: list[Column] = [(column, [_plain(each) for each in ordered[column]]) for column in ordered.columns]
        yield table(columns, f"Values of the figure {name}", len(columns) - len(numbers))


def _plain(value: float | str | None) -> str:
    if value is None:
        return NONE
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def further_parts(part: Part) -> Iterator[tuple[str, Markup]]:
    """Yield the other figures that the experiment asks for, as the run has drawn them."""
    for name in part.experiment.output.figures:
        file = part.drawn / f"{name}.svg"
        if name in ("frontier", "load"):
            continue
        if file.is_file():
            made = inline_file(file.read_text(encoding="utf-8"), part.figure_name(name), f"Figure {name} of the run")
            yield f"Figure: {name}", join([made, *_values_of(name, part)])
        else:
            yield f"Figure: {name}", notes([f"The run folder has no {name}.svg; --resume draws it."])


def _by_point(points: pl.DataFrame, arms: Iterable[str]) -> Iterator[tuple[str, float, pl.DataFrame]]:
    """Yield each arm's loads with the points of their seeds."""
    table = points.sort("load", "seed")
    for arm in arms:
        for (load,), part in table.filter(pl.col("arm") == arm).group_by("load", maintain_order=True):
            yield arm, float(str(load)), part


def _is_there(points: pl.DataFrame, name: str) -> bool:
    return name in points.columns and points[name].null_count() < len(points)


def _values(column: pl.Series) -> list[float]:
    return [float(value) for value in column.drop_nulls()]


def _mean(column: pl.Series, shown: Cells) -> str:
    values = _values(column)
    return shown(math.fsum(values) / len(values)) if values else NONE


def _mean_text(column: pl.Series) -> str:
    values = _values(column)
    interval = mean_interval(values)
    if interval is None:
        return _mean(column, number)
    return f"{_mean(column, number)} ±{half_width((interval.high - interval.low) / 2, math.fsum(values) / len(values))}"


def _interval_note(part: Part) -> Sequence[str]:
    seeds = len(part.points["seed"].unique())
    enough = seeds >= LEAST_SEEDS
    return [f"± is half of the 95 % interval over {seeds} seeds." if enough else f"{seeds} seeds: no intervals."]


def _milliseconds(value: float) -> str:
    return number(1e3 * value)


def _percent(value: float) -> str:
    return f"{100 * value:.1f}"


def _whole(value: float) -> str:
    return f"{value:,.0f}"


def _two(value: float) -> str:
    return f"{value:.2f}"
