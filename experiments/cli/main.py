"""The ``specsched`` command."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from .options import Cluster, Quiet, Workers, output_option, resume_option, settings_option

app = typer.Typer(
    help="Decide how many drafted tokens a speculative decoder should verify: simulate policies, compare them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

# Commands whose modules are imported when they are called take their arguments, --help included, unread.
_UNREAD = {"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False}


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"specsched {version('specsched')}")
        raise typer.Exit


@app.callback()
def _specsched(
    _: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


@app.command()
def run(
    config: Annotated[str, typer.Argument(help="An experiment file, or the name of a shipped one, such as frontier.")],
    settings: Annotated[list[str] | None, settings_option("sweep.load=[1,2]")] = None,
    output: Annotated[Path | None, output_option("results", "runs/CONFIG")] = None,
    workers: Workers = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Run this seed instead of `seeds`.")] = None,
    resume: Annotated[bool, resume_option("run")] = False,
    quiet: Quiet = False,
    cluster: Cluster = None,
) -> None:
    """Run an experiment: every arm at every load with every seed, then print the summary and draw the figures."""
    from .run import run_and_print

    run_and_print(
        config,
        output=output,
        settings=settings or (),
        workers=workers,
        seed=seed,
        resume=resume,
        cluster=cluster,
        progress=not quiet,
    )


def _run_alone(command: Callable[..., None], context: typer.Context) -> None:
    """Hand the words of a command, unread so far, to the function that knows their meaning."""
    alone = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
    alone.command()(command)
    alone(args=context.args, prog_name=f"specsched {context.info_name}")


@app.command(context_settings=_UNREAD, add_help_option=False)
def report(context: typer.Context) -> None:
    """Write one HTML page about finished runs."""
    from . import report as cli_report

    _run_alone(cli_report.report, context)


@app.command(context_settings=_UNREAD, add_help_option=False)
def tune(context: typer.Context) -> None:
    """Search the parameters of an arm and compare the best with the default on held-out seeds (extra `tune`)."""
    from . import tune as cli_tune

    _run_alone(cli_tune.tune, context)


@app.command(context_settings=_UNREAD, add_help_option=False)
def traces(context: typer.Context) -> None:
    """Look at request traces and generate synthetic ones."""
    from . import traces as cli_traces

    cli_traces.app(args=context.args, prog_name="specsched traces")


@app.command(context_settings=_UNREAD, add_help_option=False)
def profiles(context: typer.Context) -> None:
    """List the step-cost profiles, or show one: its risers as a table and its curve as a figure."""
    from . import profiles as cli_profiles

    _run_alone(cli_profiles.profiles, context)


@app.command(context_settings=_UNREAD, add_help_option=False)
def check(context: typer.Context) -> None:
    """Look for a world in which a scheduler changes the output distribution; exit code 1 if there is one."""
    from . import check as cli_check

    _run_alone(cli_check.check, context)


@app.command(context_settings=_UNREAD, add_help_option=False)
def kernels(context: typer.Context) -> None:
    """Compile the Triton kernels for real GPUs and look at the machine code (extra `kernels`)."""
    from . import kernels as cli_kernels

    cli_kernels.app(args=context.args, prog_name="specsched kernels")


def main() -> None:
    """Run the command. An error that a user can act on is one line on standard error and exit code 2."""
    try:
        app()
    except Exception as error:
        from ..config.errors import PointError, known_errors

        if not isinstance(error, (PointError, *known_errors())):
            raise
        unforeseen = error.trace if isinstance(error, PointError) else None
        if unforeseen:
            typer.echo(unforeseen, err=True, nl=False)
        typer.echo(f"error: {' '.join(str(error).split())}", err=True)
        sys.exit(1 if unforeseen else 2)
