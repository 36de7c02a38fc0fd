"""``specsched tune``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""


def tune(
    config: Annotated[str, typer.Argument(help="An experiment file with a section `tune`, or a shipped one's name.")],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a value, such as tune.batch=8; may be repeated."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Folder for the study.  [default: runs/tune-CONFIG]")
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes.  [default: the number of processors]")] = None,
    trials: Annotated[int | None, typer.Option(min=1, help="Candidates tried, instead of `tune.trials`.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on in a folder that holds part of this study.")] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Show no progress.")] = False,
    cluster: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Compute on a Dask cluster, such as tcp://host:8786 (extra `cluster`)."),
    ] = None,
) -> None:
    """Search the parameters of an arm and compare the best with the default on held-out seeds (extra `tune`).

    If no candidate keeps every constraint, nothing is chosen and the exit code is 1.
    """
    from ..runs import Interrupted
    from ..tune.run import NothingFoundError, run_tuning

    try:
        run_tuning(config, settings or (), output, workers, trials, resume, quiet, cluster)
    except Interrupted as stopped:
        typer.echo(f"specsched: {stopped}", err=True)
        raise typer.Exit(INTERRUPTED) from None
    except NothingFoundError as nothing:
        typer.echo(f"specsched: {nothing}", err=True)
        raise typer.Exit(1) from None
