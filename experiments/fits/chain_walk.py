"""Walks of many requests through their texts, one verification round at a time, without costs, batches or time.

Independent of the engine: it calibrates the latent draft model, measures it, and predicts the paper's Figure 5.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ...policies import Floats, Ints
from ...sim.drafts import DraftModel


class Rounds(NamedTuple):
    """Verification rounds of all requests, int64 ``[steps]`` each.

    Attributes:
        row: which request, by its place.
        start: output index of the round's anchor.
        accepted: drafts accepted, not cut at the end of the output.
    """

    row: Ints
    start: Ints
    accepted: Ints


class BlockTable(NamedTuple):
    """Every block of every request: entry ``[i, s - 1]`` is the one of request ``i`` that starts at ``s``.

    Attributes:
        confidence: float64 ``[N, output - 1, gamma]``.
        acceptable: int64 ``[N, output - 1]``.
    """

    confidence: Floats
    acceptable: Ints


def walk(rows: int, output_tokens: int, accepted_at: Callable[[Ints, Ints], Ints]) -> Rounds:
    """Decode ``rows`` requests of equal output length.

    Output token 1 is there at the start (it comes from prefill) and anchors the first round; every round emits what
    it accepted and one more token, until the output is complete.

    Args:
        rows: requests.
        output_tokens: length of every output.
        accepted_at: accepted drafts, int64 ``[n]``, of the blocks of ``n`` rows that start at ``n`` output indices.
    """
    row = np.arange(rows)
    start = np.ones(rows, np.int64)
    rounds: list[Rounds] = []
    while len(row):
        accepted = accepted_at(row, start)
        rounds.append(Rounds(row, start, accepted))
        following = start + accepted + 1
        open_ = following < output_tokens
        row, start = row[open_], following[open_]
    return Rounds(*(np.concatenate(column) for column in zip(*rounds, strict=True)))


def block_table(drafts: DraftModel, domain: str, rows: int, output_tokens: int) -> BlockTable:
    """Return every block that requests 0 to ``rows - 1`` of a domain can draft."""
    blocks = [drafts.blocks(request, domain, 1, output_tokens - 1) for request in range(rows)]
    return BlockTable(
        np.stack([confidence for confidence, _ in blocks]), np.stack([accepted for _, accepted in blocks])
    )


def walk_table(table: BlockTable, lengths: Ints | int) -> Rounds:
    """Decode the requests of a table, verifying ``lengths`` drafts: a number, or int64 ``[N, output - 1]``."""
    accepted = np.minimum(table.acceptable, lengths)
    rows, starts = accepted.shape
    return walk(rows, starts + 1, lambda row, start: accepted[row, start - 1])


def survival_counts(accepted: Ints, gamma: int) -> Ints:
    """Return int64 ``[gamma + 1]``: rounds that accepted at least 0, 1, .., gamma drafts."""
    counts = np.bincount(accepted, minlength=gamma + 1)
    return counts[::-1].cumsum()[::-1]


def conditional_acceptance(accepted: Ints, gamma: int) -> Floats:
    """Return float64 ``[gamma]``: P(j accepted | all before accepted), rounds pooled (survivorship included)."""
    reached = survival_counts(accepted, gamma)
    return reached[1:] / reached[:-1]
