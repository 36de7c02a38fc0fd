"""Feed-forward parts of the synthetic decoder, dense and as a mixture of experts, and its random numbers."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F


@dataclass(frozen=True)
class Random:
    """Where weights and cached keys come from.

    Attributes:
        generator: its device is the tensors'.
        dtype: of the tensors.
    """

    generator: torch.Generator
    dtype: torch.dtype

    def tensor(self, *sizes: int, scale: float = 1.0) -> torch.Tensor:
        """Return normal numbers of a standard deviation, made in place: the largest tensors fill half a GPU."""
        empty = torch.empty(sizes, dtype=self.dtype, device=self.generator.device)
        return empty.normal_(0.0, scale, generator=self.generator)

    def matrix(self, *sizes: int, small: float = 1.0) -> torch.Tensor:
        """Return weights ``[.., outputs, inputs]`` that keep the size of what they multiply, times ``small``."""
        return self.tensor(*sizes, scale=small * sizes[-1] ** -0.5)


@dataclass(frozen=True)
class Dense:
    """A gated feed-forward part.

    Attributes:
        gate_up: ``[2 ffn, width]``.
        down: ``[width, ffn]``.
    """

    gate_up: torch.Tensor
    down: torch.Tensor

    @classmethod
    def make(cls, width: int, ffn: int, small: float, random: Random) -> Dense:
        """Return random weights; the branch is scaled by ``small``."""
        return cls(random.matrix(2 * ffn, width), random.matrix(width, ffn, small=small))

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Return ``[B, width]`` for ``[B, width]``."""
        gate, up = F.linear(x, self.gate_up).chunk(2, -1)
        return F.linear(F.silu(gate) * up, self.down)


@dataclass(frozen=True)
class Experts:
    """A mixture of gated experts. Every token, padding too, goes to the ``active`` experts its router likes best.

    With random weights they are liked about equally: a balanced load, which trained routers only approach.

    Attributes:
        router: ``[E, width]``.
        gate_up: ``[E, 2 ffn, width]``.
        down: ``[E, width, ffn]``.
        active: experts of a token.
    """

    router: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor
    active: int

    @classmethod
    def make(cls, experts: int, active: int, width: int, ffn: int, small: float, random: Random) -> Experts:
        """Return random weights; the branch is scaled by ``small``."""
        return cls(
            router=random.matrix(experts, width),
            gate_up=random.matrix(experts, 2 * ffn, width),
            down=random.matrix(experts, width, ffn, small=small),
            active=active,
        )

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Return ``[B, width]`` for ``[B, width]``.

        Tokens are sorted by expert and multiplied in one grouped product. Nothing is read back: sizes of groups stay on
        the device, so that on sm_90 and sm_100 this can be captured (elsewhere torch's grouped product waits for them:
        https://github.com/pytorch/pytorch/issues/169970).
        """
        weights, chosen = F.linear(x, self.router).softmax(-1).topk(self.active, -1)
        # By expert, so that the tokens of each lie together and one grouped product takes them all.
        experts, order = chosen.flatten().sort(stable=True)
        every = torch.arange(len(self.router), device=x.device)
        ends = torch.searchsorted(experts, every, right=True).to(torch.int32)
        # A token stands `active` times among the pairs, one for each of its experts.
        gate, up = F.grouped_mm(x[order // self.active], self.gate_up.transpose(1, 2), offs=ends).chunk(2, -1)
        sorted_ = F.grouped_mm(F.silu(gate) * up, self.down.transpose(1, 2), offs=ends)
        given = torch.empty_like(sorted_).index_copy_(0, order, sorted_).view(*chosen.shape, -1)
        # The shares of the chosen experts sum to 1.
        return (given * (weights / weights.sum(-1, keepdim=True))[..., None]).sum(1)
