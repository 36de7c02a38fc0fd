"""Finished points on disk. Every file appears whole or not at all, so a run may be stopped at any time."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from ...sim.metrics import LEADING
from ..config.errors import ConfigError
from ..config.text import load_text
from .points import PointResult

_ROWS_PER_GROUP = 1 << 18


@dataclass(frozen=True)
class Point:
    """One cell of the sweep and the key of its result."""

    arm: str
    load: float
    seed: int
    key: str
    cell: int = 0
    values: tuple[tuple[str, Any], ...] = ()

    @property
    def name(self) -> str:
        """The point as messages name it."""
        axes = "".join(f", {axis} {value}" for axis, value in self.values)
        return f"arm {self.arm}, load {load_text(self.load)}, seed {self.seed}{axes}"

    @property
    def file(self) -> str:
        """File name of the point's records; with axes it ends in the beginning of the point's key."""
        return record_file(self.arm, self.load, self.seed, self.key if self.values else "")


def record_file(arm: str, load: float, seed: int, key: str = "") -> str:
    """Return the file name of a point's records; ``key``, of which the beginning stands in it, only with axes."""
    return f"{arm}-{load_text(load)}-{seed}{f'-{key[:12]}' if key else ''}.parquet"


def save(folder: Path, point: Point, result: PointResult) -> None:
    """Write the records of a point, then its metrics, which make it finished."""
    for name in ("steps", "requests", "rows"):
        table: pl.DataFrame | None = getattr(result, name)
        if table is not None:
            write_parquet(folder / name / point.file, table)
    entry = {"arm": point.arm, "load": float(point.load), "seed": point.seed, "metrics": result.metrics}
    text = json.dumps(entry, indent=1, allow_nan=False)  # repr of a float reads back to the same float
    write_whole(_file(folder, point), text.encode())


def load(folder: Path, point: Point, records: Sequence[str]) -> dict[str, Any] | None:
    """Return the metrics of a finished point, or None if it is not finished.

    Raises:
        ConfigError: if its file is not what `save` wrote.
    """
    file = _file(folder, point)
    if not file.is_file() or not all((folder / name / point.file).is_file() for name in records):
        return None
    try:
        entry = json.loads(file.read_bytes())
        return dict(entry["metrics"])
    except (ValueError, KeyError, TypeError):
        raise ConfigError(f"{file} is damaged; delete it and use --resume to compute {point.name} again") from None


def _file(folder: Path, point: Point) -> Path:
    return folder / "points" / f"{point.key}.json"


def points_table(results: Iterable[tuple[Point, Mapping[str, Any]]]) -> pl.DataFrame:
    """Return one row a point, sorted by (cell, arm, load, seed), columns in a fixed order.

    Args:
        results: points and their metrics.
    """
    ordered = sorted(results, key=lambda pair: (pair[0].cell, pair[0].arm, pair[0].load, pair[0].seed))
    rows = [
        {"arm": point.arm, "load": float(point.load), "seed": point.seed, **dict(point.values), **metrics}
        for point, metrics in ordered
    ]
    axes = [axis for point, _ in ordered[:1] for axis, _ in point.values]
    for axis in axes:
        if any(axis in metrics for _, metrics in ordered) or axis in ("arm", "load", "seed", *LEADING):
            raise ConfigError(f"sweep.axes.{axis} is called like a column of the points table; rename it")
    columns = dict.fromkeys(["arm", "load", "seed", *axes, *LEADING, *(name for row in rows for name in row)])
    return pl.DataFrame([_column(name, [row.get(name) for row in rows]) for name in columns])


def _column(name: str, values: list[Any]) -> pl.Series:
    present = [value for value in values if value is not None]
    if present and all(isinstance(value, str) for value in present):
        return pl.Series(name, values, dtype=pl.String)
    if present and all(isinstance(value, bool) for value in present):
        return pl.Series(name, values, dtype=pl.Boolean)
    if present and all(isinstance(value, int) for value in present):
        return pl.Series(name, values, dtype=pl.Int64)
    return pl.Series(name, [None if value is None else float(value) for value in values], dtype=pl.Float64)


def write_parquet(file: Path, table: pl.DataFrame) -> None:
    """Write a table so that equal tables give equal bytes, whatever the threads that made them."""
    temporary = _temporary(file)
    table.rechunk().write_parquet(temporary, compression="zstd", compression_level=3, row_group_size=_ROWS_PER_GROUP)
    temporary.replace(file)


def write_whole(file: Path, content: bytes) -> None:
    """Write a file that is never seen half-written."""
    temporary = _temporary(file)
    temporary.write_bytes(content)
    temporary.replace(file)


def write_json(file: Path, data: Any, allow_nan: bool = False) -> None:
    """Write data as JSON in a file that is never seen half-written."""
    write_whole(file, (json.dumps(data, indent=1, allow_nan=allow_nan) + "\n").encode())


def remove_leftovers(folder: Path) -> None:
    """Delete what a killed run left unfinished."""
    for file in folder.rglob("*.unfinished"):
        file.unlink()


def _temporary(file: Path) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    return file.with_name(f".{file.name}.{os.getpid()}.unfinished")
