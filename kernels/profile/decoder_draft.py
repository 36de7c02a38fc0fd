"""The drafter that is timed beside the synthetic decoder: a small backbone and the Markov head (Eq. 4, 5).

The backbone runs once over the block of every row, in parallel, and sees few tokens of context; the head then draws
the block from left to right. The same form as the paper's drafter, not its weights, and not its exact sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from ..markov import draft_block
from .decoder import Decoder
from .decoder_attention import Batch
from .decoder_parts import Random

_T = torch.Tensor
Sample = Callable[[_T, _T, _T, _T, _T, _T], _T]
"""(U [R, g, V], W1 [V, r], W2T [V, r], x0 [R], temperature [R], uniforms [R, g]) -> tokens [R, g]."""


def device_sample(
    U: torch.Tensor,
    W1: torch.Tensor,
    W2T: torch.Tensor,
    x0: torch.Tensor,
    temperature: torch.Tensor,
    uniforms: torch.Tensor,
) -> torch.Tensor:
    """Draw with the lab's kernel; see `draft_block`."""
    return draft_block(U, W1, W2T, x0, temperature, uniforms).tokens


def host_sample(
    U: torch.Tensor,
    W1: torch.Tensor,
    W2T: torch.Tensor,
    x0: torch.Tensor,
    temperature: torch.Tensor,
    uniforms: torch.Tensor,
) -> torch.Tensor:
    """Draw the same block in plain torch: the first token whose cumulative probability is above the uniform.

    Temperatures must be positive.
    """
    # Written apart from `draft_block`, and by the same rule, since a CPU has no kernel to time.
    previous, block = x0.long(), []
    for position in range(U.shape[1]):
        logits = U[:, position] + W1[previous] @ W2T.T
        cdf = (logits / temperature[:, None]).softmax(-1).cumsum(-1)
        # Rounding may leave the last entry below the uniform.
        previous = (cdf <= uniforms[:, position, None]).sum(-1).clamp(max=U.shape[2] - 1)
        block.append(previous)
    return torch.stack(block, 1).to(torch.int32)


@dataclass(frozen=True)
class Drafter:
    """A backbone and the head's weights.

    Attributes:
        backbone: gives the base logits.
        W1: ``[V, r]``.
        W2T: ``[V, r]``.
        sample: draws a block.
    """

    backbone: Decoder
    W1: torch.Tensor
    W2T: torch.Tensor
    sample: Sample

    @classmethod
    def make(cls, backbone: Decoder, rank: int, sample: Sample, generator: torch.Generator) -> Drafter:
        """Return a drafter with a random head."""
        random = Random(generator, backbone.shape.dtype)
        return cls(
            backbone,
            random.tensor(backbone.shape.vocabulary, rank),
            random.matrix(backbone.shape.vocabulary, rank),
            sample,
        )

    def block(self, batch: Batch, uniforms: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
        """Return drafted tokens ``[R, g]`` for a batch of g tokens in each row; the first of a row is its anchor."""
        rows, gamma = uniforms.shape
        # g tokens give g drafts: the anchor's own position predicts the first one, so DSpark feeds g - 1 masks.
        logits = self.backbone.step(batch).view(rows, gamma, -1)
        anchors = batch.tokens.view(rows, gamma)[:, 0].contiguous()
        return self.sample(logits, self.W1, self.W2T, anchors, temperature, uniforms)
