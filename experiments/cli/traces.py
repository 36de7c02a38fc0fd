"""The commands ``specsched traces show`` and ``specsched traces generate``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from ...traces import (
    FORMATS,
    LENGTH_TABLES,
    NAMED_FORMATS,
    TraceError,
    generate_trace,
    read_trace,
    rounded_statistics,
    trace_format,
    trace_statistics,
    write_trace,
)
from ..config.trace_formats import format_named
from ..config.working_directory import make_working_directory_importable

app = typer.Typer(help="Look at request traces and generate synthetic ones.", no_args_is_help=True)

_FORMAT_HELP = (
    f"How the file is written: {', '.join(NAMED_FORMATS)}, or module:NAME, a TraceFormat of your own.  "
    "[default: told from the content]"
)

Statistics = dict[str, float | int | None]

_ARRIVAL_ROWS = {
    "n": "requests",
    "duration_s": "last - first arrival, s",
    "rate_rps": "requests per second",
    "iat_cv": "CV of the gaps between arrivals",
    "iat_zero_frac": "share of gaps of 0",
    "gamma_shape_from_cv": "Gamma shape of that CV",
    "peak_to_mean_10s": "largest / mean count in 10 s",
    "p99_to_mean_10s": "p99 / mean count in 10 s",
    "idc_1s": "variance / mean of counts in 1 s",
    "idc_10s": "the same in 10 s",
    "idc_60s": "the same in 60 s",
    "idc_600s": "the same in 600 s",
    "log_corr_in_out": "correlation of log prompt and log output",
}
_LENGTH_ROWS = {
    "mean": "mean tokens",
    "p50": "median",
    "p90": "90th percentile",
    "p99": "99th percentile",
    "max": "largest",
    "zero_frac": "share of 0",
    "lognorm_mu": "mean of logs",
    "lognorm_sigma": "deviation of logs",
    "log_skew": "skew of logs",
    "lognorm_KS": "KS distance to that lognormal",
}


@app.command()
def show(
    file: Annotated[Path, typer.Argument(help="Azure CSV, Vidur CSV, Mooncake JSON lines, specsched CSV or parquet.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
    given: Annotated[str | None, typer.Option("--format", metavar="NAME", help=_FORMAT_HELP)] = None,
) -> None:
    """Print the statistics of a trace: rate, burstiness, lengths."""
    if given is not None:
        make_working_directory_importable()
    formats = FORMATS if given is None else format_named(given)
    kind = trace_format(file, formats).name
    statistics = rounded_statistics(trace_statistics(read_trace(file, formats)))
    if as_json:
        typer.echo(json.dumps({"trace": file.name, "format": kind, **statistics}, allow_nan=False))
        return
    console = Console(soft_wrap=True)
    console.print(f"{file} ({kind})", markup=False, highlight=False)
    console.print(_arrival_table(statistics))
    console.print(_length_table(statistics))


@app.command()
def generate(
    output: Annotated[Path, typer.Option("-o", "--output", help="CSV to write; parquet if it ends so.")],
    requests: Annotated[int, typer.Option("-n", "--requests", help="How many requests.")],
    rate: Annotated[float, typer.Option(help="Mean requests per second.")],
    lengths: Annotated[str, typer.Option(help=f"One of {', '.join(LENGTH_TABLES)}.")] = LENGTH_TABLES[0],
    cv: Annotated[float, typer.Option(help="CV of the gaps: 1 is Poisson, others Gamma.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
) -> None:
    """Write a synthetic trace: Poisson or Gamma arrivals, lengths of a public trace."""
    if output.exists():
        raise TraceError(f"{output} exists; remove it or choose another name")
    write_trace(generate_trace(requests, rate, lengths, seed, cv), output)
    typer.echo(f"{requests} requests written to {output}")


def _arrival_table(statistics: Statistics) -> Table:
    table = _table("arrivals", "value")
    for name, meaning in _ARRIVAL_ROWS.items():
        table.add_row(name, _shown(statistics[name]), meaning)
    return table


def _length_table(statistics: Statistics) -> Table:
    table = _table("lengths", "prompt (in_)", "output (out_)")
    for name, meaning in _LENGTH_ROWS.items():
        table.add_row(name, _shown(statistics[f"in_{name}"]), _shown(statistics[f"out_{name}"]), meaning)
    return table


def _table(title: str, *values: str) -> Table:
    table = Table(title)
    for name in values:
        table.add_column(name, justify="right")
    table.add_column("meaning")
    return table


def _shown(value: float | int | None) -> str:
    return "-" if value is None else str(value)
