"""What commands share: exit codes, and the options of those that compute points."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Annotated, Any

import typer

from ..config.errors import ConfigError
from ..sweep.signals import Interrupted

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""

Workers = Annotated[int | None, typer.Option(min=1, help="Processes.  [default: the number of processors]")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Show no progress.")]
Cluster = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="Compute on a Dask cluster, such as tcp://host:8786 (extra `cluster`)."),
]


def settings_option(example: str) -> Any:
    """Return the option ``--set`` with an example of a setting."""
    return typer.Option("--set", metavar="KEY=VALUE", help=f"Change a value, such as {example}; may be repeated.")


def output_option(what: str, default: str) -> Any:
    """Return the option ``-o``: the folder for the results or the study."""
    return typer.Option("-o", "--output", help=f"Folder for the {what}.  [default: {default}]")


def resume_option(what: str) -> Any:
    """Return the option ``--resume``: going on with a run or a study."""
    return typer.Option("--resume", help=f"Go on in a folder that holds part of this {what}.")


@contextmanager
def exit_if_stopped() -> Iterator[None]:
    """Say how to go on, and exit with `INTERRUPTED`, if a signal stops what is computed inside."""
    try:
        yield
    except Interrupted as stopped:
        typer.echo(f"specsched: {stopped}", err=True)
        raise typer.Exit(INTERRUPTED) from None


def need_triton() -> None:
    """Check that the kernel lab can be imported.

    Raises:
        ConfigError: if torch or triton is missing.
    """
    if find_spec("triton") is None or find_spec("torch") is None:
        raise ConfigError("the kernel lab needs torch and triton; install specsched[kernels]")
    # Triton 3.9 asks for a choice; the one it makes by itself is kept.
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
