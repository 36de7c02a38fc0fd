"""Do the three predictions of docs/kernels.md hold? Written before any measurement, judged from a bench folder's rows.

Usage: python benchmarks/gpu_predictions.py FOLDER, where `specsched kernels bench --shapes real -o FOLDER` wrote.
Prints a line each and writes FOLDER/predictions.json. A prediction is ``not measured`` unless the rows it needs are of
a GPU, right and timed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

POSITION_US = 31.5
"""One Markov position at R = 256, computed from 4.3 TB/s."""

LAYER_US = 250.0
"""One layer of packed attention at R = 64 and a context of 4,096, computed from 4.3 TB/s."""

Row = Mapping[str, Any]


def judge(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return each prediction with what was measured, its limit, and whether it held (None: not measured).

    Args:
        rows: of ``bench.parquet``.
    """
    timed = [row for row in rows if _counts(row)]
    inverse = _fastest(timed, "markov", "inverse_cdf R=256 g=1 V=129280 r=256 bf16")
    gumbel = _fastest(timed, "markov", "gumbel R=256 g=1 V=129280 r=256 bf16")
    packed = _fastest(timed, "attention", "packed R=64 T=6 context=4090 HQ=32 HKV=8 D=128")
    slower = None if inverse is None or gumbel is None else gumbel / inverse
    return [
        _verdict(
            f"inverse CDF at R = 256 takes at most 1.3 x {POSITION_US} us a position", inverse, most=1.3 * POSITION_US
        ),
        _verdict("Gumbel-max is at least 3 times slower than that", slower, least=3.0),
        _verdict(f"packed attention takes at most 1.25 x {LAYER_US:g} us a layer", packed, most=1.25 * LAYER_US),
    ]


def _counts(row: Row) -> bool:
    return row["mode"] == "gpu" and row["status"] == "ok" and row["provider"] == "ours" and row["p50_us"] is not None


def _fastest(rows: Sequence[Row], op: str, shape: str) -> float | None:
    """Return the least median time in microseconds of the shapes that begin so: the parts of attention are a choice."""
    found = [float(row["p50_us"]) for row in rows if row["op"] == op and str(row["shape"]).startswith(shape)]
    return min(found, default=None)


def _verdict(
    text: str, measured: float | None, most: float | None = None, least: float | None = None
) -> dict[str, Any]:
    held = None
    if measured is not None:
        held = (most is None or measured <= most) and (least is None or measured >= least)
    return {"prediction": text, "measured": measured, "at_most": most, "at_least": least, "held": held}


def main() -> int:
    """Judge a folder; 2 if it holds no rows."""
    parser = argparse.ArgumentParser(description="Judge the three predictions of docs/kernels.md.")
    parser.add_argument("folder", type=Path, help="what `specsched kernels bench -o` wrote")
    folder = parser.parse_args().folder
    file = folder / "bench.parquet"
    if not file.is_file():
        print(f"error: {file} is not there; run `specsched kernels bench --shapes real -o {folder}`", file=sys.stderr)
        return 2
    verdicts = judge(pl.read_parquet(file).to_dicts())
    (folder / "predictions.json").write_text(json.dumps(verdicts, indent=1) + "\n", encoding="utf-8")
    for number, each in enumerate(verdicts, start=1):
        words = {True: "held", False: "failed", None: "not measured"}[each["held"]]
        shown = "" if each["measured"] is None else f" ({each['measured']:.4g})"
        print(f"{number}. {each['prediction']}: {words}{shown}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
