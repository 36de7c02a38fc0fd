"""Compare the prediction of the DSpark paper's Figure 5 with the published one, for raw and for STS confidences.

    python benchmarks/figure5_errors.py [--requests 2000] [--seed 0]

Prints the tables of docs/figure5.md. The published points are read here, after the prediction, and nowhere else.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import polars as pl

from specsched.experiments.fits.figure5 import predict
from specsched.sim.latent import Confidence

PUBLISHED = Path(__file__).resolve().parents[1] / "experiments" / "fits" / "data" / "figure5_published.csv"
KINDS: tuple[Confidence, ...] = ("raw", "sts")


def load_published(path: Path = PUBLISHED) -> pl.DataFrame:
    return pl.read_csv(path, comment_prefix="#")


def compare(prediction: pl.DataFrame, published: pl.DataFrame) -> pl.DataFrame:
    """Return the prediction beside the published points; ``error_points`` is predicted - published rate in percent."""
    joined = prediction.join(published, on=["panel", "threshold"], how="inner", suffix="_published")
    if len(joined) != len(prediction):
        raise SystemExit("error: the published figure lacks a predicted point; predict its panels and thresholds only")
    return joined.with_columns((100.0 * pl.col("rate") - pl.col("rate_percent")).alias("error_points"))


def summary(compared: pl.DataFrame) -> pl.DataFrame:
    """Return errors by benchmark and confidence over thresholds above 0: mean and largest of the rate, in points."""
    above = compared.filter(pl.col("threshold") > 0.0)
    emitted = (pl.col("accepted_per_step") / pl.col("accepted_per_step_published") - 1.0).abs()
    return above.group_by("benchmark", "confidence", maintain_order=True).agg(
        pl.col("error_points").abs().mean().round(2).alias("mean_abs_points"),
        pl.col("error_points").abs().max().round(2).alias("max_abs_points"),
        (100.0 * emitted.max()).round(1).alias("max_accepted_error_percent"),
        pl.col("steps").min().alias("fewest_steps"),
    )


def table(compared: pl.DataFrame, confidence: str) -> str:
    lines = [
        "| benchmark | t | accepted | published | rejected | published | rate % | published | error |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['benchmark']} | {row['threshold']:.1f} | {row['accepted_per_step']:.2f} |"
        f" {row['accepted_per_step_published']:.2f} | {row['rejected_per_step']:.2f} |"
        f" {row['rejected_per_step_published']:.2f} | {100 * row['rate']:.1f} | {row['rate_percent']:.1f} |"
        f" {row['error_points']:+.1f} |"
        for row in compared.filter(pl.col("confidence") == confidence).iter_rows(named=True)
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    prediction = pl.concat([predict(kind, options.requests, seed=options.seed) for kind in KINDS])
    compared = compare(prediction, load_published())
    style = {"tbl_formatting": "MARKDOWN", "tbl_hide_dataframe_shape": True, "tbl_hide_column_data_types": True}
    with pl.Config(tbl_rows=-1, tbl_cols=-1, tbl_width_chars=200, **style):
        print(summary(compared))
    for kind in KINDS:
        print(f"\n{kind} confidences\n\n{table(compared, kind)}")


if __name__ == "__main__":
    main()
