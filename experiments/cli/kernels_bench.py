"""The command ``specsched kernels bench``."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..config.errors import ConfigError
from .options import INTERRUPTED, need_triton

if TYPE_CHECKING:
    from ...kernels.bench.bench import Bench, Row

TABLE, ENVIRONMENT, FIGURE = "bench.parquet", "environment.json", "bench"


def register(app: typer.Typer) -> None:
    """Add the command to the app of ``specsched kernels``."""
    app.command(name="bench")(bench)


def bench(
    op: Annotated[list[str] | None, typer.Option(help="Only this operation; may be repeated.")] = None,
    shapes: Annotated[str, typer.Option(help="`ci` (small) or `real`.")] = "ci",
    providers: Annotated[
        str, typer.Option(help="Who computes, separated by commas.", metavar="NAMES")
    ] = "ours,torch,compile,flashinfer,flash-attn",
    dry: Annotated[bool, typer.Option("--dry", help="Judge, but time nothing, on any machine.")] = False,
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the results.")] = Path(
        "runs/kernels-bench"
    ),
) -> None:
    """Judge every kernel against float64, then time it and its rivals; exit code 1 if one of them is wrong.

    Without a GPU the kernels run in Triton's interpreter, which has no times, and plain torch is timed on the CPU.
    """

    need_triton()
    _choose_interpreter(dry)
    from ...kernels.bench.bench import prepare, run
    from ...kernels.bench.shapes import OPS

    found: list[Row] = []
    prepared = prepare(dry)
    rows = run(op or OPS, shapes, providers.split(","), dry, prepared)
    if output.exists() and not output.is_dir():
        raise ConfigError(f"`-o` must be a folder, {output} is a file; name another")
    output.mkdir(parents=True, exist_ok=True)
    try:
        for row in _kept(rows, prepared, output):
            found.append(row)
            typer.echo(_line(row))
    except KeyboardInterrupt:
        typer.echo(f"specsched: interrupted; {len(found)} rows are in {output / TABLE}", err=True)
        raise typer.Exit(INTERRUPTED) from None
    _finish(found, output)


def _choose_interpreter(dry: bool) -> None:
    """Choose, before Triton is imported, whether kernels are compiled or interpreted."""
    import torch

    if dry or not torch.cuda.is_available():
        os.environ["TRITON_INTERPRET"] = "1"
    if os.environ.get("TRITON_INTERPRET") == "1":
        # Calls of some microseconds would wait for a second thread more often than they gain by it.
        torch.set_num_threads(1)


def _kept(rows: Iterator[Row], prepared: Bench, output: Path) -> Iterator[Row]:
    """Yield rows, all so far written to the folder before each."""
    from ..show.bench import bench_table, write_table

    for ending in (".svg", ".png"):
        # A figure of an earlier run would not be of this table.
        (output / (FIGURE + ending)).unlink(missing_ok=True)
    _write_environment(prepared, output)
    found: list[dict[str, Any]] = []
    write_table(bench_table(found), output / TABLE)
    for row in rows:
        if not found:
            _write_environment(prepared, output)
        found.append(asdict(row))
        write_table(bench_table(found), output / TABLE)
        yield row


def _write_environment(prepared: Bench, output: Path) -> None:
    """Write what the machine is, and its ceilings once they are known."""
    from ...kernels.bench.machine import environment

    ceilings = None if prepared.ceilings is None else asdict(prepared.ceilings)
    text = json.dumps(environment(prepared.machine) | {"ceilings": ceilings}, indent=1)
    (output / ENVIRONMENT).write_text(text + "\n", encoding="utf-8")


def _line(row: Row) -> str:
    """Return a row as a line of progress."""
    parts = [row.op, row.shape, "|", row.provider, row.mode, row.status]
    if row.p50_us is not None:
        parts.append(f"{row.p50_us:.1f} us")
    if row.floor_over_p50 is not None:
        parts.append(f"floor/p50 {row.floor_over_p50:.2f}")
    if row.relative_error is not None:
        parts.append(f"error {row.relative_error:.1e}")
    if row.mismatches is not None:
        parts.append(f"{row.mismatches} of {row.compared} differ")
    return " ".join(parts + ([f"({row.reason})"] if row.reason else []))


def _finish(found: list[Row], output: Path) -> None:
    """Draw the figure or say why not, sum up, and fail if something is wrong."""
    from ..show.bench import bench_figure, bench_table, timed
    from ..show.canvas import save

    try:
        save(bench_figure(timed(bench_table(map(asdict, found)))), output / FIGURE)
    except ConfigError as reason:
        typer.echo(f"no figure: {reason}")
    counts = Counter(row.status for row in found)
    typer.echo(f"{len(found)} rows ({', '.join(f'{n} {each}' for each, n in sorted(counts.items()))}) in {output}")
    if counts["wrong"]:
        raise typer.Exit(1)
