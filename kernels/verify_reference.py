"""Rejection sampling in float64, straight from the equations, one row after the other."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class VerifiedReference:
    """What `verify_chain_reference` returns.

    Attributes:
        n_accepted: int32 ``[R]``.
        next_token: int32 ``[R]``.
        tokens: int32 ``[R, g + 1]``.
        gap: float64 ``[R]``, distance of a row's uniforms from the nearest breakpoint that would change what leaves
            (of an acceptance, or of the CDF that the last token was drawn from); infinite where nothing was drawn.
    """

    n_accepted: torch.Tensor
    next_token: torch.Tensor
    tokens: torch.Tensor
    gap: torch.Tensor


@dataclass(frozen=True)
class _Row:
    """One row: target logits ``[1 + length, V]``, its drafts and their laws, its uniforms."""

    target: torch.Tensor
    drafts: list[int]
    p_draft: list[float]
    draft_logits: torch.Tensor
    temperature: float
    draft_temperature: float
    accept: list[float]
    residual: float
    bonus: float


def verify_chain_reference(
    target_logits: torch.Tensor,
    draft_tokens: torch.Tensor,
    p_draft: torch.Tensor,
    draft_logits: torch.Tensor,
    lengths: torch.Tensor,
    offsets: torch.Tensor,
    temperature: torch.Tensor,
    accept: torch.Tensor,
    residual: torch.Tensor,
    bonus: torch.Tensor,
    draft_temperature: torch.Tensor | None = None,
) -> VerifiedReference:
    """Return what ``verify_chain`` should, and how far its uniforms are from changing it.

    Shapes, types and rules are those of ``verify_chain``. ``p_d`` is the softmax of ``draft_logits`` here;
    ``p_draft`` only tells which drafts have no law.
    """
    if draft_temperature is None:
        draft_temperature = temperature
    rows, gamma = draft_tokens.shape
    tokens = torch.full((rows, gamma + 1), -1, dtype=torch.int32)
    counts, following = torch.zeros(rows, dtype=torch.int32), torch.full((rows,), -1, dtype=torch.int32)
    gaps = torch.full((rows,), math.inf, dtype=torch.float64)
    for row in range(rows):
        length, first, after = int(lengths[row]), int(offsets[row]), int(offsets[row + 1])
        heat = float(temperature[row])
        # As the kernel reads them: a row whose numbers contradict each other gives nothing and harms nobody.
        there = 0 <= length <= gamma and first >= 0 and after <= len(target_logits) and after - first == 1 + length
        if not there or not 0.0 <= heat < math.inf:
            continue
        each = _Row(
            target_logits[first:after].double(),
            draft_tokens[row, :length].tolist(),
            p_draft[row].tolist(),
            draft_logits[row].double(),
            heat,
            float(draft_temperature[row]),
            accept[row].double().tolist(),
            float(residual[row]),
            float(bonus[row]),
        )
        kept, token, gap = _verify(each)
        counts[row], gaps[row] = len(kept), gap
        following[row] = -1 if token is None else token
        emitted = [*kept, int(following[row])]
        tokens[row, : len(emitted)] = torch.tensor(emitted, dtype=torch.int32)
    return VerifiedReference(counts, following, tokens, gaps)


def _verify(row: _Row) -> tuple[list[int], int | None, float]:
    """Return a row's accepted drafts, the token that follows (None without a law), and the gap."""
    gap = math.inf
    for position, draft in enumerate(row.drafts):
        logits = row.target[position]
        if not _lawful(logits):
            return row.drafts[:position], None, gap
        if row.temperature == 0.0:
            if draft == int(logits.argmax()):
                continue
            return row.drafts[:position], int(logits.argmax()), gap
        p_t = torch.softmax(logits / row.temperature, 0)
        if not 0 <= draft < len(logits) or not row.p_draft[position] >= 0.0:
            token, near = inverse_cdf(p_t, row.residual)
            return row.drafts[:position], token, min(gap, near)
        p_d = _draft_law(row, position)
        # Not cut at 1: uniforms lie below 1, so anything above it accepts.
        ratio = float(p_t[draft] / p_d[draft])
        # A uniform this near to the ratio may fall on the other side in float32: callers leave such rows out.
        gap = min(gap, abs(row.accept[position] - ratio))
        if row.accept[position] < ratio:
            continue
        # Without mass where the laws agree. A rejection is then rounding's, and p_t is the law to draw from.
        over = (p_t - p_d).clamp_min(0.0)
        token, near = inverse_cdf(over / over.sum() if over.sum() > 0.0 else p_t, row.residual)
        return row.drafts[:position], token, min(gap, near)
    # Behind the last verified draft, or behind the anchor where none was verified.
    logits = row.target[-1]
    if not _lawful(logits):
        return row.drafts, None, gap
    if row.temperature == 0.0:
        return row.drafts, int(logits.argmax()), gap
    token, near = inverse_cdf(torch.softmax(logits / row.temperature, 0), row.bonus)
    return row.drafts, token, min(gap, near)


def inverse_cdf(law: torch.Tensor, uniform: float) -> tuple[int, float]:
    """Return the first token at which the CDF exceeds a uniform, and how far the uniform is from the CDF's next edge.

    Edges 0 and 1 do not count: no token lies beyond them.
    """
    edges = law.cumsum(0)
    token = int((edges > uniform).to(torch.int8).argmax()) if bool(edges[-1] > uniform) else int(law.nonzero().max())
    inner = edges[(edges > 0.0) & (edges < float(edges[-1]))]
    return token, float((inner - uniform).abs().min()) if len(inner) else math.inf


def _lawful(logits: torch.Tensor) -> bool:
    return not bool(logits.isnan().any()) and math.isfinite(float(logits.max()))


def _draft_law(row: _Row, position: int) -> torch.Tensor:
    logits = row.draft_logits[position]
    if row.draft_temperature == 0.0:
        return torch.nn.functional.one_hot(torch.tensor(row.drafts[position]), len(logits)).double()
    return torch.softmax(logits / row.draft_temperature, 0)
