"""``specsched tune``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import Cluster, Quiet, Workers, exit_if_stopped, output_option, resume_option, settings_option


def tune(
    config: Annotated[str, typer.Argument(help="An experiment file with a section `tune`, or a shipped one's name.")],
    settings: Annotated[list[str] | None, settings_option("tune.batch=8")] = None,
    output: Annotated[Path | None, output_option("study", "runs/tune-CONFIG")] = None,
    workers: Workers = None,
    trials: Annotated[int | None, typer.Option(min=1, help="Candidates tried, instead of `tune.trials`.")] = None,
    resume: Annotated[bool, resume_option("study")] = False,
    quiet: Quiet = False,
    cluster: Cluster = None,
) -> None:
    """Search the parameters of an arm and compare the best with the default on held-out seeds (extra `tune`).

    If no candidate keeps every constraint, nothing is chosen and the exit code is 1.
    """
    from ..tune.run import NothingFoundError, run_tuning

    try:
        with exit_if_stopped():
            run_tuning(config, settings or (), output, workers, trials, resume, quiet, cluster)
    except NothingFoundError as nothing:
        typer.echo(f"specsched: {nothing}", err=True)
        raise typer.Exit(1) from None
