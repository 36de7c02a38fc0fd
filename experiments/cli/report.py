"""The command ``specsched report RUN..``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..report.page import write_report


def report(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN", help="Folders of finished runs; the first is compared with.")
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="The HTML file.")] = Path("report.html"),
    title: Annotated[str | None, typer.Option(help="Heading of the page.  [default: the folders' names]")] = None,
) -> None:
    """Write one HTML page about finished runs: figures with their values, configuration, provenance."""
    typer.echo(f"report: {write_report(runs, output, title)}")
