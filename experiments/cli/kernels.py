"""The command ``specsched kernels compile``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from ..config.errors import ConfigError
from . import kernels_bench as cli_kernels_bench
from . import kernels_profile as cli_kernels_profile
from .options import INTERRUPTED, need_triton

app = typer.Typer(help="The Triton kernel lab (extra `kernels`).", no_args_is_help=True)
cli_kernels_bench.register(app)
cli_kernels_profile.register(app)

_WIDTH = 150

ARCHES = "sm_80,sm_90,sm_100,gfx942"
"""What is compiled by default, and what a table holds."""


@app.callback()
def _group() -> None:
    pass


@app.command(name="compile")
def compile_kernels(
    arch: Annotated[str, typer.Option(help="Architectures, separated by commas.", metavar="NAMES")] = ARCHES,
    op: Annotated[list[str] | None, typer.Option(help="Only this operation; may be repeated.")] = None,
    first: Annotated[int | None, typer.Option(min=1, help="Only so many configurations of a kernel.")] = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes.")] = 2,
    update: Annotated[
        Path | None, typer.Option(help="Write the table to this folder, under the name of the Triton version.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
) -> None:
    """Compile every kernel ahead of time, without a GPU, and judge the machine code.

    Spilled registers, too much shared memory, missing tensor-core instructions and instruction counts over 10 % from
    the committed table are problems; with any of them the exit code is 1. No figure here is a time.
    """
    need_triton()
    if update is not None:
        _check_update(update, whole=not op and first is None and set(_names(arch)) == set(_names(ARCHES)))
    from ...kernels import gate

    try:
        found = list(gate.compile_all(_names(arch), op or (), workers, first))
    except KeyboardInterrupt:
        typer.echo("specsched: interrupted; nothing was judged", err=True)
        raise typer.Exit(INTERRUPTED) from None
    golden = None if update is not None else gate.golden()
    wrong = gate.problems(found, golden)
    if update is not None:
        path = update / gate.golden_name()
        path.write_text(json.dumps(gate.as_table(found), indent=1) + "\n", encoding="utf-8")
    if as_json:
        typer.echo(json.dumps({"triton": gate.version(), "compiled": gate.as_table(found), "problems": wrong}))
    else:
        _print(found, wrong, golden is not None, gate.version())
    if wrong:
        raise typer.Exit(1)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


def _check_update(folder: Path, whole: bool) -> None:
    if not folder.is_dir():
        raise ConfigError(f"`--update` must be a folder that exists, got {folder}")
    if not whole:
        raise ConfigError("`--update` writes the whole table; leave out --op, --first and --arch")


def _print(found: list[Any], wrong: list[str], compared: bool, version: str) -> None:
    console = Console()
    console = console if console.is_terminal else Console(width=_WIDTH)
    table = Table(box=None, pad_edge=False)
    for head in ("arch", "kernel", "configuration", "regs", "shared", "spill", "tensor core", "instr", "occ", "issue"):
        table.add_column(head)
    for each in found:
        table.add_row(
            each.arch,
            each.kernel,
            each.configuration,
            str(each.registers),
            str(each.shared_bytes),
            str(each.spill_bytes),
            each.tensor_core or "-",
            str(each.instructions),
            f"{each.occupancy:.0%}",
            str(each.issue_cycles),
        )
    console.print(table)
    typer.echo("regs: of a thread. shared: bytes of a program. spill: bytes of a thread. occ: resident warps of a")
    typer.echo("multiprocessor. issue: cycles one pass over the code takes to issue, loops counted once; not a time.")
    against = f"compared with the committed table of Triton {version}" if compared else "compared with no table"
    typer.echo(f"{len(found)} compiled with Triton {version}, {against}: {len(wrong)} problems")
    for each in wrong:
        typer.echo(f"  {each}")
