"""Float64 references of the RNN head, written from Eq. 6."""

from __future__ import annotations

import torch

from .markov_reference import DraftBlockReference, block_reference
from .rnn import RnnWeights


def rnn_step_reference(
    state: torch.Tensor | None, previous: torch.Tensor, h: torch.Tensor, weights: RnnWeights
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ``s_k`` and ``tanh(W_o z_k)``, ``[R, r]`` in float64; arguments as `rnn.rnn_step`."""
    vocabulary, rank = weights.W1.shape
    known = (previous >= 0) & (previous < vocabulary)
    # Multiplied by 0 where the id is unknown, which then embeds to zero as in the kernel.
    embedded = weights.W1.double()[torch.where(known, previous, 0).long()] * known[:, None]
    before = torch.zeros(len(h), rank, dtype=torch.float64) if state is None else state.double()
    linear = torch.cat((before, embedded, h.double()), 1) @ weights.layer.double().T
    if weights.bias is not None:
        linear += weights.bias.double()
    gate, candidate, output = linear.split(rank, 1)
    return gate.sigmoid() * before + (1 - gate.sigmoid()) * candidate.tanh(), output.tanh()


def rnn_draft_block_reference(
    U: torch.Tensor,
    weights: RnnWeights,
    W2T: torch.Tensor,
    h: torch.Tensor,
    x0: torch.Tensor,
    temperature: torch.Tensor | None,
    uniforms: torch.Tensor | None,
    method: str = "inverse_cdf",
    *,
    seed: int = 0,
    follow: torch.Tensor | None = None,
) -> DraftBlockReference:
    """Return what `rnn.rnn_draft_block` should; ``follow`` as in `markov_reference.draft_block_reference`."""
    # Grows by one a position: `block_reference` asks from left to right, once for each.
    states: list[torch.Tensor | None] = [None]

    def bias(position: int, previous: torch.Tensor) -> torch.Tensor:
        state, hidden = rnn_step_reference(states[-1], previous, h[:, position], weights)
        states.append(state)
        return hidden @ W2T.double().T

    return block_reference(U, bias, x0, temperature, uniforms, method, seed=seed, follow=follow)
