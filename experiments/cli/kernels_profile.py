"""The command ``specsched kernels profile``."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from ..config.errors import ConfigError
from ..sweep.progress import show_progress
from .options import INTERRUPTED, need_triton

if TYPE_CHECKING:
    from ...kernels.profile.machines import CudaMachine, HostMachine
    from ...kernels.profile.profiler import Measured, Plan, Timing


def register(app: typer.Typer) -> None:
    """Add the command to the group `kernels`."""
    app.command()(profile)


def profile(
    model: Annotated[
        str, typer.Option(help="On a GPU: dense-8b, dense-70b-tp-shard or moe-30b-a3b-like. On a CPU: tiny-cpu.")
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="The profile to write, a .json file.")],
    gamma: Annotated[int, typer.Option(min=1, help="Drafts of a block.")] = 7,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Largest batch, in tokens.  [default: 4096 on a GPU, tiny-cpu 2048]")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Few sizes and few runs, for a try.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Of the random weights.")] = 0,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Show no progress.")] = False,
) -> None:
    """Time a synthetic decoder on this machine and write a step-cost profile for the simulator.

    A flat curve, or two passes that disagree, make no profile: the exit code is then 1. Every time is written to
    FILE.unfinished.jsonl at once, which becomes FILE.samples.jsonl with the profile.
    """

    need_triton()
    _write_profile(model, output, gamma, limit, quick, seed, quiet)


def _write_profile(name: str, output: Path, gamma: int, limit: int | None, quick: bool, seed: int, quiet: bool) -> None:
    from ...kernels.profile.machines import machine
    from ...kernels.profile.models import model_named
    from ...kernels.profile.profiler import ProfileRefused, judge, make_plan
    from ...sim.profile import dump_profile
    from ..fits.measured_profile import measured_profile

    if output.suffix != ".json":
        raise ConfigError(f"`--output` must be a .json file, got {output}; scenarios know profiles by that ending")
    if output.is_dir() or not output.parent.is_dir():
        raise ConfigError(f"`--output` must be a file in a folder that exists, got {output}; make the folder first")
    model = model_named(name)
    plan = make_plan(model, gamma, model.limit if limit is None else limit, quick)
    made = machine(model, gamma, seed)
    samples, unfinished = output.with_suffix(".samples.jsonl"), output.with_suffix(".unfinished.jsonl")
    before, started = made.facts(), datetime.now(UTC)
    with unfinished.open("w", encoding="utf-8") as file:
        _line(file, {"model": name, "gamma": gamma, "seed": seed, "started": started.isoformat(), **asdict(before)})
        measured = _measure(plan, made, file, quiet)
    try:
        judge(measured)
    except ProfileRefused as refused:
        typer.echo(f"error: {refused}. No profile was written; the times are in {unfinished}", err=True)
        raise typer.Exit(1) from None
    written = measured_profile(output.stem, model, measured, (before, made.facts()), started, quick)
    output.write_text(dump_profile(written), encoding="utf-8")
    unfinished.replace(samples)
    typer.echo(f"{output}: {len(written.verify.tokens)} samples, largest batch {max(written.verify.tokens)} tokens")
    typer.echo(f"specsched profiles {output}")
    typer.echo(f"specsched run frontier --set hardware.profile={output}")


def _measure(plan: Plan, made: HostMachine | CudaMachine, file: IO[str], quiet: bool) -> Measured:
    """Time everything; each result is in the file before the next is begun."""
    from ...kernels.profile.profiler import measure

    done = 0
    with show_progress(2 * len(plan.points), quiet, Console(stderr=True, soft_wrap=True)) as advance:

        def keep(timing: Timing) -> None:
            nonlocal done
            _line(file, {**asdict(timing.point), "run": timing.run, "seconds": timing.seconds})
            done += 1
            if timing.run <= 2:
                advance()

        try:
            return measure(plan, made.time, keep)
        except KeyboardInterrupt:
            reached = f"stopped after {done} of {2 * len(plan.points)} timings"
            typer.echo(f"specsched: {reached}; they are in {file.name}, and no profile was written", err=True)
            raise typer.Exit(INTERRUPTED) from None


def _line(file: IO[str], fields: dict[str, Any]) -> None:
    file.write(json.dumps(fields) + "\n")
    file.flush()
