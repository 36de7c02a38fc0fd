"""What ``specsched run`` prints: warnings, the tables of the summary, and where the figures are."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from rich.console import Console

from ..config.errors import ExperimentWarning
from ..runs import IncompleteError, run_experiment
from ..show.terminal import print_summary, say
from ..show.terminal_sweep import print_cells, print_effects
from ..sweep.finished import Run
from ..sweep.progress import print_warnings
from .options import exit_if_stopped


def run_and_print(config: str, **options: Any) -> None:
    """Run an experiment and print what it came to; options as `run_experiment`'s."""
    try:
        with exit_if_stopped(), _warnings_printed():
            run = run_experiment(config, **options)
    except IncompleteError as error:
        print_run(error.run)
        raise
    print_run(run)


def print_run(run: Run) -> None:
    """Print the summary of a run and where its figures are."""
    console = Console(soft_wrap=True)
    if run.experiment.sweep.axes:
        print_cells(run.summary, console)
    else:
        print_effects(run.summary, console)
        print_summary(run.summary, console)
    say([f"figure: {file}" for file in run.figures], console)


@contextmanager
def _warnings_printed() -> Iterator[None]:
    """Print warnings about the experiment on standard error, a line each; others look as Python shows them."""
    show = warnings.showwarning

    def printed(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if issubclass(category, ExperimentWarning):
            print_warnings([str(message)])
        else:
            show(message, category, filename, lineno, file, line)

    with warnings.catch_warnings():
        warnings.simplefilter("always", ExperimentWarning)
        warnings.showwarning = printed
        yield
