"""Float64 references of the Markov head's draft block, written from Eq. 4 and 5 and from the definition of Philox."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

_WORD = 0xFFFFFFFF


@dataclass(frozen=True)
class DraftBlockReference:
    """What a block should be.

    Attributes:
        tokens: ``[R, g]`` int64; -1 in rows without a law.
        p_draft: ``[R, g]`` float64.
        lse: ``[R, g]`` float64; NaN in rows without a law.
        law: ``[R, g, V]`` float64, what each token is drawn from.
        gap: ``[R, g]`` float64, how far the draw was from another token: the distance of the uniform to the nearest
            edge of the CDF; of the two best noisy logits (Gumbel); of the two best logits (greedy).
    """

    tokens: torch.Tensor
    p_draft: torch.Tensor
    lse: torch.Tensor
    law: torch.Tensor
    gap: torch.Tensor


Bias = Callable[[int, torch.Tensor], torch.Tensor]
"""``bias(position, previous)``: the head's logits ``[R, V]`` in float64, for tokens all within the vocabulary."""


def draft_block_reference(
    U: torch.Tensor,
    W1: torch.Tensor,
    W2T: torch.Tensor,
    x0: torch.Tensor,
    temperature: torch.Tensor | None,
    uniforms: torch.Tensor | None,
    method: str = "inverse_cdf",
    *,
    seed: int = 0,
    follow: torch.Tensor | None = None,
) -> DraftBlockReference:
    """Return what `markov.draft_block` should; arguments as there.

    Args:
        U: base logits ``[R, g, V]``.
        W1: ``[V, r]``.
        W2T: ``[V, r]``.
        x0: anchors ``[R]``.
        temperature: ``[R]``.
        uniforms: ``[R, g]``.
        method: how tokens are drawn.
        seed: of the noise.
        follow: tokens ``[R, g]`` that positions are conditioned on, instead of those drawn here: with those of a
            kernel, one draw on an edge doesn't make all that follows incomparable.
    """
    embeddings, weights = W1.double(), W2T.double()
    return block_reference(
        U, lambda _, x: embeddings[x] @ weights.T, x0, temperature, uniforms, method, seed=seed, follow=follow
    )


def block_reference(
    U: torch.Tensor,
    bias: Bias,
    x0: torch.Tensor,
    temperature: torch.Tensor | None,
    uniforms: torch.Tensor | None,
    method: str,
    *,
    seed: int = 0,
    follow: torch.Tensor | None = None,
) -> DraftBlockReference:
    """Return the block of any head, given as its ``bias``; else as `draft_block_reference`."""
    rows, gamma, vocabulary = U.shape
    heat = torch.zeros(rows, dtype=torch.float64) if temperature is None or method == "greedy" else temperature.double()
    columns = []
    previous = x0.long()
    for position in range(gamma):
        known = (previous >= 0) & (previous < vocabulary)
        logits = U[:, position].double() + bias(position, torch.where(known, previous, 0))
        uniform = uniforms[:, position].double() if method == "inverse_cdf" and uniforms is not None else None
        noise = gumbel_reference(seed, rows, position, vocabulary) if method == "gumbel" else None
        columns.append(_position(logits, known, heat, uniform, noise))
        previous = columns[-1][0] if follow is None else follow[:, position].long()
    return DraftBlockReference(*(torch.stack(each, 1) for each in zip(*columns, strict=True)))


def _position(
    logits: torch.Tensor,
    known: torch.Tensor,
    heat: torch.Tensor,
    uniform: torch.Tensor | None,
    noise: torch.Tensor | None,
) -> tuple[torch.Tensor, ...]:
    """Return tokens, probabilities, log-sum-exp, laws and gaps of one position."""
    lawful = known & ~logits.isnan().any(1) & (logits < torch.inf).all(1) & (logits > -torch.inf).any(1)
    # The kernel compares in float32, in which 1e-6 is not the double of that name.
    lawful &= (heat == 0) | ((heat >= float(np.float32(1e-6))) & (heat <= 1e6))
    if uniform is not None:
        lawful &= (uniform >= 0) & (uniform < 1)
    # Rows without a law are given one and masked at the end, so that none of them spoils a batched operation.
    logits = torch.where(lawful[:, None], logits, 0.0)
    heat = torch.where(lawful, heat, 1.0)
    scaled = logits / torch.where(heat > 0, heat, 1.0)[:, None]
    lse = scaled.logsumexp(1)
    greedy = torch.nn.functional.one_hot(logits.argmax(1), logits.shape[1]).double()
    law = torch.where((heat == 0)[:, None], greedy, (scaled - lse[:, None]).exp())
    token, gap = _best(logits if noise is None else logits + heat[:, None] * noise)
    if uniform is not None:
        drawn, distance = _invert(law, uniform)
        token, gap = torch.where(heat == 0, token, drawn), torch.where(heat == 0, gap, distance)
    p = law.gather(1, token[:, None])[:, 0]
    unlawful = ~lawful
    return token.masked_fill(unlawful, -1), p.masked_fill(unlawful, 0.0), lse.masked_fill(unlawful, torch.nan), law, gap


def _best(scores: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the leftmost best, and how far the second best is behind."""
    if scores.shape[1] == 1:
        return torch.zeros(len(scores), dtype=torch.int64), torch.full((len(scores),), torch.inf, dtype=torch.float64)
    two = scores.topk(2, 1).values
    return scores.argmax(1), two[:, 0] - two[:, 1]


def _invert(law: torch.Tensor, uniform: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the first token whose cumulative probability is above a uniform, and the distance to the nearest edge."""
    cumulative = law.cumsum(1)
    # Rounding may leave the whole sum below the uniform; the token is then the last with mass, never one behind it.
    last = (law > 0).double().cumsum(1).argmax(1)
    drawn = torch.minimum((cumulative <= uniform[:, None]).sum(1), last)
    return drawn, (cumulative - uniform[:, None]).abs().min(1).values


def gumbel_reference(seed: int, rows: int, position: int, vocabulary: int) -> torch.Tensor:
    """Return the noise ``[rows, V]`` of a position: ``-log(-log(1 - u))`` with u from Philox, spaced 2^-32."""
    token = np.arange(vocabulary, dtype=np.uint64)[None, :]
    row = np.arange(rows, dtype=np.uint64)[:, None]
    # The kernel's order of counters. The upper cut is also the kernel's: float32 has no number between it and 1.
    bits = philox(seed, token, row, position, 0)[0]
    u = np.minimum((bits.astype(np.float64) + 0.5) * 2.0**-32, 0.99999994)
    return torch.from_numpy(-np.log(-np.log1p(-u)))


def philox(seed: int, *counters: np.ndarray | int) -> list[np.ndarray]:
    """Return four words of Philox 4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3").

    Args:
        seed: key of 64 bits.
        *counters: four words, as arrays that broadcast.

    >>> [hex(int(word)) for word in philox(0, 0, 0, 0, 0)]
    ['0x6627e8d5', '0xe169c58d', '0xbc57ac4c', '0x9b00dbd8']
    """
    # In 64 bits, so that products of two words keep their upper halves.
    words = [np.asarray(each, dtype=np.uint64) for each in counters]
    low, high = seed & _WORD, seed >> 32 & _WORD
    for _ in range(10):
        one, other = words[0] * np.uint64(0xD2511F53), words[2] * np.uint64(0xCD9E8D57)
        words = [
            other >> np.uint64(32) ^ words[1] ^ np.uint64(low),
            other & np.uint64(_WORD),
            one >> np.uint64(32) ^ words[3] ^ np.uint64(high),
            one & np.uint64(_WORD),
        ]
        low, high = low + 0x9E3779B9 & _WORD, high + 0xBB67AE85 & _WORD
    return words
