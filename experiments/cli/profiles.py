"""The command ``specsched profiles [NAME]``."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from ...sim.analytic import GPUS
from ...sim.cost import StepCost
from ...sim.curve import Lookup
from ...sim.jaggedness import GreedyGap, Riser, greedy_gap, is_multimodal, jaggedness, risers, theta
from ...sim.profile import Profile, load_profile, profile_names
from ..show.curve import write_curve_figure

# Survivals of seven drafts, the same for every row: a typical chat block.
SURVIVALS = "0.67,0.42,0.26,0.17,0.12,0.09,0.07"
GAP_ROWS = (8, 32, 128, 192)

_PIPE_WIDTH = 150
_TEXT_WIDTH = 100
_FIGURES = Path("runs/profiles")


def profiles(
    name: Annotated[
        str | None, typer.Argument(help="A shipped profile, a .json file, or analytic:GPU:SIZE[:tpN][:DTYPE].")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help=f"Folder for the figure of NAME [default: {_FIGURES}].")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON instead of tables; the figure is then drawn only with -o.")
    ] = False,
    survivals: Annotated[
        str, typer.Option(help="Survival of each draft of a row, for the early-stop comparison.")
    ] = SURVIVALS,
) -> None:
    """List the step-cost profiles, or show one: its risers as a table and its curve as a figure."""
    if name is None:
        if output is not None:
            raise typer.BadParameter("a figure needs a profile NAME", param_hint="-o")
        _list(as_json)
    else:
        _show(load_profile(name), output, as_json, _survivals(survivals))


def profile_summary(profile: Profile) -> dict[str, Any]:
    """Return what the listing says of a profile; risers are counted up to the capture limit, where graphs run."""
    cost = _cost(profile)
    limit = max(profile.captured_sizes, default=None)
    shape = jaggedness(cost.verify_table[: (limit or cost.max_tokens) + 1])
    draft = profile.draft
    return {
        "name": profile.name,
        "source": profile.source,
        "hardware": profile.hardware,
        "gpus": profile.gpus,
        "model": profile.model,
        "sizes": len(set(profile.verify.tokens)),
        "samples": len(profile.verify.tokens),
        "largest_tokens": max(profile.verify.tokens),
        "extrapolated_from": profile.verify.extrapolated_from,
        "capture_limit": limit,
        "draft_source": draft.source if draft else None,
        "drafter": draft.drafter if draft else None,
        "risers_over_2pct": shape.drops_over_2pct,
        "risers_over_5pct": shape.drops_over_5pct,
        "biggest_riser_pct": round(100 * shape.biggest.drop, 2) if shape.biggest else None,
        "biggest_riser_at": shape.biggest.tokens if shape.biggest else None,
        "cliff_ratio": _cliff(cost, limit),
        "flat": cost.is_flat,
        "sla_anchors": list(profile.sla_anchors),
    }


def gap_report(profile: Profile, survivals: Sequence[float], rows: Sequence[int] = GAP_ROWS) -> list[dict[str, Any]]:
    """Return, for each number of rows, how the early stop fares against the argmax on equal rows of ``survivals``.

    Row counts without a price on the profile are left out.

    Raises:
        ProfileError: if the profile's cost cannot be built.
    """
    cost = _cost(profile)
    report = []
    for count in rows:
        if count <= cost.max_rows and count * (1 + len(survivals)) <= cost.max_tokens:
            block = np.tile(np.array(survivals), (count, 1))
            gap = greedy_gap(cost, count, block)
            report.append(_gap_row(count, gap, is_multimodal(theta(cost, count, block))))
    return report


def _gap_row(rows: int, gap: GreedyGap, multimodal: bool) -> dict[str, Any]:
    return {
        "rows": rows,
        "greedy_drafts": gap.greedy_budget,
        "argmax_drafts": gap.argmax_budget,
        "greedy_tok_s": round(gap.greedy_theta, 1),
        "argmax_tok_s": round(gap.argmax_theta, 1),
        "loss_pct": round(100 * gap.loss, 2),
        "multimodal": multimodal,
    }


def _cost(profile: Profile, lookup: Lookup = "ceil") -> StepCost:
    return StepCost(profile, lookup, drafts=profile.draft is not None)


def _cliff(cost: StepCost, limit: int | None) -> float | None:
    if limit is None or limit >= cost.max_tokens:
        return None
    return round(cost.verify_seconds(limit + 1) / cost.verify_seconds(limit), 2)


def _survivals(text: str) -> list[float]:
    try:
        values = [float(word) for word in text.split(",")]
    except ValueError:
        values = []
    if not values or any(not 0 <= v <= 1 for v in values) or sorted(values, reverse=True) != values:
        raise typer.BadParameter(
            f"must be numbers from 0 to 1 that do not rise, separated by commas, got `{text}`; e.g. {SURVIVALS}",
            param_hint="--survivals",
        )
    return values


def _list(as_json: bool) -> None:
    summaries = [profile_summary(load_profile(name)) for name in profile_names()]
    if as_json:
        typer.echo(json.dumps(summaries, indent=2))
        return
    console = _console()
    table = Table(box=SIMPLE_HEAD, title="Step-cost profiles", title_justify="left")
    table.add_column("name", no_wrap=True)
    for column in ("source", "hardware", "model"):
        table.add_column(column)
    for column in ("sizes", "graphs to", "past them", "draft", "risers >2 %", ">5 %"):
        table.add_column(column, justify="right")
    for row in summaries:
        cliff = "-" if row["cliff_ratio"] is None else f"x {row['cliff_ratio']:.2f}"
        graphs = (row["sizes"], row["capture_limit"] or "-", cliff, row["draft_source"] or "none")
        counts = (row["risers_over_2pct"], row["risers_over_5pct"])
        table.add_row(row["name"], row["source"], row["hardware"], row["model"], *map(str, graphs + counts))
    console.print(table)
    typer.echo(f"Rooflines on demand: analytic:GPU:SIZE[:tpN][:bf16|fp8], GPU one of {', '.join(GPUS)}.")


def _show(profile: Profile, output: Path | None, as_json: bool, survivals: list[float]) -> None:
    cost = _cost(profile)
    steps = risers(cost.verify_table)
    gaps = gap_report(profile, survivals)
    figures = [] if as_json and output is None else write_curve_figure(cost, output or _FIGURES)
    if as_json:
        typer.echo(json.dumps(_details(profile, steps, survivals, gaps, figures), indent=2))
        return
    console = _console()
    typer.echo(_heading(profile))
    console.print(_riser_table(profile, cost, steps))
    if gaps:
        console.print(_gap_table(survivals, gaps))
    for path in figures:
        typer.echo(f"figure: {path}")


def _details(
    profile: Profile, steps: list[Riser], survivals: list[float], gaps: list[dict[str, Any]], figures: list[Path]
) -> dict[str, Any]:
    return profile_summary(profile) | {
        "provenance": list(profile.provenance),
        "risers": [
            {
                "tokens": step.tokens,
                "before_s": step.before_seconds,
                "after_s": step.after_seconds,
                "drop_pct": round(100 * step.drop, 2),
            }
            for step in steps
        ],
        "survivals": survivals,
        "early_stop": gaps,
        "figures": [str(path) for path in figures],
    }


def _heading(profile: Profile) -> str:
    draft, context, host = profile.draft, profile.context, profile.host
    slope = "unknown (0)" if context.seconds_per_token is None else f"{context.seconds_per_token:.3g} s a token"
    lines = [
        f"{profile.name}: {profile.source}; {profile.hardware}; {profile.model}",
        *(f"  {line}" for line in profile.provenance),
        f"  draft: {draft.drafter}, {draft.source} ({draft.note})" if draft else "  draft: none",
        f"  context: slope {slope}, reference {context.reference_tokens} tokens ({context.note})",
        f"  host: {host.seconds:g} s a step, sync stall {host.sync_stall_seconds:g} s, {host.source} ({host.note})",
        f"  anchors: {', '.join(f'{anchor:g}' for anchor in profile.sla_anchors)} tok/s/user",
    ]
    return "\n".join(textwrap.fill(line, _TEXT_WIDTH, subsequent_indent="    ") for line in lines)


def _riser_table(profile: Profile, cost: StepCost, steps: list[Riser]) -> Table:
    title = f"Risers over 2 % of the steps per second, 1 to {cost.max_tokens} tokens ({cost.lookup} lookup)"
    table = Table(box=SIMPLE_HEAD, title=title, title_justify="left", min_width=len(title) + 2)
    for column in ("tokens", "ms before", "ms after", "SPS lost, %", ""):
        table.add_column(column, justify="right")
    limit = max(profile.captured_sizes, default=0)
    for step in steps:
        table.add_row(
            f"{step.tokens} -> {step.tokens + 1}",
            f"{step.before_seconds * 1e3:.3f}",
            f"{step.after_seconds * 1e3:.3f}",
            f"{100 * step.drop:.1f}",
            "graphs end" if step.tokens == limit else "",
        )
    return table


def _gap_table(survivals: list[float], gaps: list[dict[str, Any]]) -> Table:
    shown = " ".join(f"{value:g}" for value in survivals)
    title = f"Early stop against global search, every row with survivals {shown}"
    table = Table(box=SIMPLE_HEAD, title=title, title_justify="left", min_width=len(title) + 2)
    for column in ("rows", "greedy drafts", "argmax drafts", "greedy tok/s", "argmax tok/s", "lost, %", "multimodal"):
        table.add_column(column, justify="right")
    for gap in gaps:
        values = (gap["rows"], gap["greedy_drafts"], gap["argmax_drafts"], gap["greedy_tok_s"], gap["argmax_tok_s"])
        table.add_row(*map(str, values), f"{gap['loss_pct']:.1f}", "yes" if gap["multimodal"] else "no")
    return table


def _console() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=_PIPE_WIDTH)
