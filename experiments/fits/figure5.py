"""Predicts Figure 5 of the DSpark paper: accepted and rejected tokens per step against the confidence threshold.

The three panels are GSM8K, HumanEval and MT-Bench. What goes in: the accepted length at threshold 0 (Table 1) and the
shape of the acceptance along the block (Figure 2), both in the levels of the latent model, and the confidences of
another benchmark, Alpaca (Figure 6). The published Figure 5 is neither read nor used here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from ...policies import Floats, Ints
from ...sim.drafts import make_draft_model
from ...sim.latent import Confidence
from .chain_walk import BlockTable, block_table, walk_table

PANELS = {"gsm8k": "math", "humaneval": "code", "mt-bench": "chat"}
THRESHOLDS = tuple(round(0.1 * step, 1) for step in range(10))


def figure5_benchmarks(confidence: Confidence = "sts") -> dict[str, dict[str, Any]]:
    """Return a ``drafts`` mapping for each benchmark of Figure 5; the key is the domain to decode."""
    return {
        name: {"kind": "latent", "profile": "dspark-qwen3-4b", "gamma": 7, "confidence": confidence} for name in PANELS
    }


def predict(
    confidence: Confidence = "sts",
    requests: int = 2000,
    output_tokens: int = 256,
    seed: int = 0,
    thresholds: Sequence[float] = THRESHOLDS,
) -> pl.DataFrame:
    """Return the prediction, one row a benchmark and threshold.

    A threshold verifies the longest prefix whose conditional confidences all reach it; a step is one verification
    round, pooled over requests of equal length.

    Args:
        confidence: ``sts`` or ``raw``.
        requests: requests of each benchmark; 2,000 of 256 tokens are 84,000 to 300,000 steps a point.
        output_tokens: length of every output.
        seed: of the texts.
        thresholds: to be swept.

    Returns:
        Columns ``benchmark``, ``panel``, ``confidence``, ``threshold``, ``steps``, ``accepted_per_step`` (the bonus
        token included), ``rejected_per_step`` and ``rate`` = (accepted + 1) / (verified + 1), the anchor counted on
        both sides as the figure does.
    """
    rows = []
    for benchmark, spec in figure5_benchmarks(confidence).items():
        table = block_table(make_draft_model(spec, seed), benchmark, requests, output_tokens)
        for threshold in thresholds:
            point = {"benchmark": benchmark, "panel": PANELS[benchmark], "confidence": confidence}
            rows.append({**point, "threshold": threshold, **threshold_point(table, threshold)})
    return pl.DataFrame(rows)


def threshold_point(table: BlockTable, threshold: float) -> dict[str, float]:
    """Return steps, accepted and rejected tokens per step and the rate of one threshold on one table of blocks."""
    lengths = prefix_lengths(table.confidence, threshold)
    row, start, accepted = walk_table(table, lengths)
    emitted = float(np.mean(accepted)) + 1.0
    rejected = float(np.mean(lengths[row, start - 1] - accepted))
    return {
        "steps": len(row),
        "accepted_per_step": emitted,
        "rejected_per_step": rejected,
        "rate": emitted / (emitted + rejected),
    }


def prefix_lengths(confidence: Floats, threshold: float) -> Ints:
    """Return the length of the longest prefix, along the last axis, in which every value reaches the threshold."""
    reaches = np.logical_and.accumulate(confidence >= threshold, axis=-1)
    lengths: Ints = reaches.sum(axis=-1, dtype=np.int64)
    return lengths
