"""The benchmark's table, and its figure: how near each call comes to the least time that its device allows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import polars as pl
from matplotlib.figure import Figure

from ..config.errors import ConfigError
from .canvas import canvas

TIMED = ("gpu", "cpu")
"""Modes in which a time means something."""

SCHEMA: dict[str, Any] = {
    "op": pl.String,
    "shape": pl.String,
    "provider": pl.String,
    "mode": pl.String,
    "status": pl.String,
    "reason": pl.String,
    "p20_us": pl.Float64,
    "p50_us": pl.Float64,
    "p80_us": pl.Float64,
    "repeats": pl.Int64,
    "bytes": pl.Int64,
    "flops": pl.Int64,
    "floor_us": pl.Float64,
    "floor_over_p50": pl.Float64,
    "relative_error": pl.Float64,
    "mismatches": pl.Int64,
    "compared": pl.Int64,
    "config": pl.String,
    "triton": pl.String,
    "torch": pl.String,
    "device": pl.String,
    "commit": pl.String,
}
"""Columns of ``bench.parquet``, alike on every machine."""

_MARKERS = {"ours": "o", "torch": "s", "compile": "^", "flashinfer": "D", "flash-attn": "v"}


def bench_table(rows: Iterable[Mapping[str, Any]]) -> pl.DataFrame:
    """Return rows of the benchmark as a table with the columns of `SCHEMA`."""
    return pl.DataFrame(list(rows), schema=SCHEMA)


def write_table(table: pl.DataFrame, path: Path) -> None:
    """Write a table; whoever reads the file meanwhile finds the old one or the new one, whole.

    Raises:
        OSError: if the folder cannot be written.
    """
    part = path.with_suffix(".part")
    table.write_parquet(part)
    part.replace(path)


def timed(table: pl.DataFrame) -> pl.DataFrame:
    """Return the rows that have a time and a floor, taken on a device."""
    return table.filter(pl.col("mode").is_in(TIMED) & pl.col("floor_over_p50").is_not_null())


def bench_figure(table: pl.DataFrame) -> Figure:
    """Return the floor over the median time by operation and shape, a mark a provider; 1 is as fast as can be.

    Raises:
        ConfigError: if a row has no time, none is given, or rows are of different devices.
    """
    if table.is_empty():
        raise ConfigError("no row of the benchmark has a time; run it where it can be timed, without --dry")
    rest = table.join(timed(table), on=["op", "shape", "provider", "mode"], how="anti")
    if len(rest):
        op, shape, provider, mode = rest.select("op", "shape", "provider", "mode").row(0)
        raise ConfigError(
            f"rows must have a time and be of mode {' or '.join(TIMED)}, got {op} {shape} {provider} of mode {mode}"
            " without one; keep those of `timed`"
        )
    devices = table.select("device", "mode").unique().sort("device").rows()
    if len(devices) > 1:
        raise ConfigError(f"rows must be of one device, got {', '.join(name for name, _ in devices)}; draw each alone")
    return _draw(table, *devices[0])


def _draw(table: pl.DataFrame, device: str, mode: str) -> Figure:
    places = table.select("op", "shape").unique(maintain_order=True).rows()
    figure, (axes,) = canvas(10.0, 1.4 + 0.32 * len(places), 1)
    for provider, marker in _MARKERS.items():
        rows = table.filter(pl.col("provider") == provider)
        heights = [-places.index(place) for place in rows.select("op", "shape").rows()]
        if heights:
            axes.plot(rows["floor_over_p50"].to_list(), heights, marker, label=provider, alpha=0.8, clip_on=False)
    axes.set_yticks([-i for i in range(len(places))], [f"{op}  {shape}" for op, shape in places], fontsize=7)
    axes.set_xlim(left=0, right=max(1.05, 1.05 * float(table["floor_over_p50"].max() or 0)))  # type: ignore[arg-type]
    axes.axvline(1, color="#888888", linewidth=0.8)
    axes.set(xlabel="floor / median time (1: as fast as the device allows)", title=f"{device} ({mode})")
    axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    return figure
