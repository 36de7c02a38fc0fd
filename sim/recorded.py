"""Drafts replayed from a recording of a real drafter."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import polars as pl

from ..policies import Floats, Ints
from .draft_error import DraftError

COLUMNS = ("request", "position", "depth", "confidence", "accepted")


class RecordedDrafts:
    """Replays a parquet file of drafts, one a row.

    Columns: ``request`` (the request id), ``position`` (output index of the drafted token), ``depth`` (its place in
    the block, from 1, so that the block's anchor is output token ``position - depth``), ``confidence`` (conditional,
    in [0, 1]) and ``accepted`` (boolean: the target accepts it, all drafts before it in the block being accepted).
    After the first rejection of a block ``accepted`` is false or null. Every block has depths 1 to gamma.

    Attributes:
        gamma: drafts in a block.
        path: the file.
    """

    replays = True

    def __init__(self, path: str | Path) -> None:
        """Read and check the whole recording.

        Raises:
            DraftError: if the file cannot be read, lacks a column, or a row breaks a rule; the message names it.
        """
        self.path = Path(path)
        table = _checked(_read(self.path), self.path)
        self.gamma = int(table["depth"].max() or 0)  # type: ignore[arg-type]
        request = table["request"].to_numpy()
        start = (table["position"] - table["depth"]).to_numpy()
        self._check_complete(request, start, table["depth"].to_numpy())
        confidence = table["confidence"].to_numpy().reshape(-1, self.gamma)
        outcome = table["accepted"].fill_null(False).to_numpy().reshape(-1, self.gamma)
        self._check_outcomes(table, request, start)
        # A column of False at the end: the first False then counts the accepted of a block accepted as a whole, too.
        accepted = np.pad(outcome, ((0, 0), (0, 1))).argmin(axis=1)
        # Where a request begins, seen in the ids of the block heads; rows are sorted by request.
        first = np.flatnonzero(np.diff(request[:: self.gamma], prepend=request[0] - 1))
        last = np.append(first[1:], len(accepted))
        self._blocks = {
            int(request[a * self.gamma]): (
                start[a * self.gamma : b * self.gamma : self.gamma],
                confidence[a:b],
                accepted[a:b],
            )
            for a, b in zip(first, last, strict=True)
        }

    def check(self, domains: Iterable[str]) -> None:
        """Accept every domain: what was recorded is replayed, whatever the text is called."""

    def blocks(self, request: int, domain: str, start: int, count: int) -> tuple[Floats, Ints]:
        """Return the ``count`` blocks from ``start`` on (see `DraftModel.blocks`).

        Raises:
            DraftError: if one of them was not recorded; the message names file, request and position.
        """
        if request not in self._blocks:
            raise DraftError(
                f"recording `{self.path}` holds no block of request {request}; record it, or replay only requests"
                f" that were recorded (ids {min(self._blocks)} to {max(self._blocks)})"
            )
        starts, confidence, accepted = self._blocks[request]
        # Starts ascend but may have gaps; a replay asks for every block of a stretch, as another policy stops at other
        # places.
        at = int(np.searchsorted(starts, start))
        wanted = np.arange(start, start + count)
        found = starts[at : at + count]
        if len(found) < count or not np.array_equal(found, wanted):
            missing = int(np.setdiff1d(wanted, found)[0])
            raise DraftError(
                f"recording `{self.path}`, request {request}: no block is anchored at output token {missing} (its"
                f" drafts are positions {missing + 1} to {missing + self.gamma}); record every block start up to the"
                " last output token but one, or shorten the outputs"
            )
        return confidence[at : at + count], accepted[at : at + count]

    def _check_complete(self, request: Ints, start: Ints, depth: Ints) -> None:
        """Refuse a block that lacks a depth or has one twice; rows are sorted by request, start, depth."""
        size = len(depth) // self.gamma * self.gamma
        expected = np.arange(len(depth)) % self.gamma + 1
        same = np.ones(len(depth), np.bool_)
        same[1:] = (depth[1:] == 1) | ((request[1:] == request[:-1]) & (start[1:] == start[:-1]))
        wrong = (depth != expected) | ~same
        # A last block that was cut short has no wrong row of its own.
        if size < len(depth):
            wrong[-1] = True
        if wrong.any():
            row = int(np.argmax(wrong))
            raise DraftError(
                f"recording `{self.path}`, request {request[row]}, block anchored at output token {start[row]}: depths"
                f" must be 1 to {self.gamma}, each once, and depth {expected[row]} is missing or repeated; record"
                " whole blocks"
            )

    def _check_outcomes(self, table: pl.DataFrame, request: Ints, start: Ints) -> None:
        """Refuse an outcome that is unknown, or an acceptance, where the drafts before it do not allow it."""
        outcome = table["accepted"]
        # 0 rejected, 1 accepted, 2 unknown. Unknown is right after a rejection, where no engine looks, and nowhere
        # else.
        code = outcome.cast(pl.Int8).fill_null(2).to_numpy().reshape(-1, self.gamma)
        alive = np.ones_like(code, np.bool_)
        alive[:, 1:] = np.logical_and.accumulate(code[:, :-1] == 1, axis=1)
        for bad, why in (
            (
                (code == 2) & alive,
                "`accepted` is null where all drafts before it are accepted; record with every draft verified",
            ),
            (
                (code == 1) & ~alive,
                "`accepted` is true after a rejection; it presumes the drafts before it, so record false or null there",
            ),
        ):
            if bad.any():
                row = int(np.argmax(bad.ravel()))
                raise DraftError(
                    f"recording `{self.path}`, request {request[row]}, position {table['position'][row]}, depth"
                    f" {table['depth'][row]} (block anchored at {start[row]}): {why}"
                )


def _read(path: Path) -> pl.DataFrame:
    try:
        table = pl.read_parquet(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise DraftError(f"recording `{path}` cannot be read as parquet: {error}; give a parquet file") from None
    missing = [name for name in COLUMNS if name not in table.columns]
    if missing:
        raise DraftError(
            f"recording `{path}` lacks the column `{missing[0]}`; it needs {', '.join(COLUMNS)} and has"
            f" {', '.join(table.columns)}"
        )
    if table.is_empty():
        raise DraftError(f"recording `{path}` is empty; record at least one block")
    return table.select(COLUMNS)


def _checked(table: pl.DataFrame, path: Path) -> pl.DataFrame:
    """Return the table in the types used here, sorted by request, block and depth."""
    schema = table.schema
    for name in ("request", "position", "depth"):
        if not schema[name].is_integer():
            raise DraftError(f"recording `{path}`: column `{name}` must hold whole numbers, got {schema[name]}")
    if not schema["confidence"].is_float():
        raise DraftError(f"recording `{path}`: column `confidence` must hold floats, got {schema['confidence']}")
    if schema["accepted"] != pl.Boolean:
        raise DraftError(f"recording `{path}`: column `accepted` must hold booleans, got {schema['accepted']}")
    # Nulls fail every rule: a comparison with one is null, and counts as broken.
    rules = {
        "request": (pl.col("request") >= 0, "at least 0"),
        "depth": (pl.col("depth") >= 1, "at least 1"),
        "position": (pl.col("position") > pl.col("depth"), "over `depth`: the first anchor is output token 1"),
        "confidence": (pl.col("confidence").is_between(0.0, 1.0), "within [0, 1]"),
    }
    for name, (rule, words) in rules.items():
        bad = table.with_row_index("row").filter(~rule.fill_null(False))
        if len(bad):
            raise DraftError(f"recording `{path}`, row {bad['row'][0]}: `{name}` must be {words}, got {bad[name][0]}")
    table = table.with_columns(
        pl.col("request", "position", "depth").cast(pl.Int64), pl.col("confidence").cast(pl.Float64)
    )
    return table.sort("request", pl.col("position") - pl.col("depth"), "depth")
