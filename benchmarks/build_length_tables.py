"""Derive the shipped length tables from a file of trace quantiles.

    python benchmarks/build_length_tables.py trace_quantiles.csv [--out traces/data]

The input has the columns ``trace, column, percentile, value``; the rows with column ``input`` and ``output`` of
three public traces become one table each.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import polars as pl

AZURE = (
    "Azure Public Dataset, LLM inference trace 2023 ({part}), https://github.com/Azure/AzurePublicDataset",
    "CC-BY-4.0, https://creativecommons.org/licenses/by/4.0/",
    "P. Patel et al., Splitwise: Efficient generative LLM inference using phase splitting, ISCA 2024",
)
MOONCAKE = (
    "Mooncake conversation trace, https://github.com/kvcache-ai/Mooncake",
    "Apache-2.0, https://www.apache.org/licenses/LICENSE-2.0",
    "R. Qin et al., Mooncake: Trading more storage for less computation, FAST 2025",
)
TABLES = {
    "azure-conversation": ("azure2023_conv", AZURE[0].format(part="conversation"), *AZURE[1:]),
    "azure-code": ("azure2023_code", AZURE[0].format(part="code"), *AZURE[1:]),
    "mooncake-conversation": ("mooncake_conversation", *MOONCAKE),
}


def table(quantiles: pl.DataFrame, trace: str) -> pl.DataFrame:
    of_trace = quantiles.filter(pl.col("trace") == trace, pl.col("column").is_in(["input", "output"]))
    wide = of_trace.pivot("column", index="percentile", values="value").sort("percentile")
    if wide.is_empty() or wide.null_count().sum_horizontal().item():
        raise SystemExit(f"error: the quantiles of {trace} are incomplete")
    return wide.select("percentile", pl.col("input").alias("prompt_tokens"), pl.col("output").alias("output_tokens"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("quantiles", type=Path)
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parents[1] / "traces" / "data")
    arguments = parser.parse_args()
    quantiles = pl.read_csv(arguments.quantiles)
    for name, (trace, source, licence, cite) in TABLES.items():
        notes = {
            "source": source,
            "licence": licence,
            "cite": cite,
            "changes": "percentiles of the two token counts, computed from the published requests",
        }
        head = "".join(f"# {key}: {value}\n" for key, value in notes.items())
        (arguments.out / f"{name}.csv").write_text(head + table(quantiles, trace).write_csv(), encoding="utf-8")


if __name__ == "__main__":
    main()
