"""The models that can be profiled: synthetic decoders of known sizes, and what is asked of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..attention_checks import MAX_TOKENS
from ..common import KernelError, tiles
from .decoder import DecoderShape

MAX_ROWS = 256
"""Most rows in a step."""


@dataclass(frozen=True)
class ProfiledModel:
    """A synthetic target, its drafter, and the contexts that fit beside it.

    Attributes:
        name: what the command calls it.
        target: sizes of the decoder.
        drafter: sizes of the drafter's backbone.
        rank: of the drafter's Markov head.
        device: ``cuda`` or ``cpu``.
        gpus: GPUs that share a step; only one of them is timed, and no communication.
        context: tokens of each row in the sweep over sizes.
        draft_context: tokens of each row that the drafter's backbone sees.
        grid_tokens: most tokens of context of all rows together in the grid.
        limit: largest batch by default.
        like: whose sizes these are.
    """

    name: str
    target: DecoderShape
    drafter: DecoderShape
    rank: int
    device: str
    gpus: int
    context: int
    draft_context: int
    grid_tokens: int
    limit: int
    like: str

    def device_bytes(self, gamma: int) -> int:
        """Return bytes of weights and caches of target and drafter; activations and graphs come on top."""
        head = 2 * self.target.vocabulary * self.rank * self.target.dtype.itemsize
        target = self.target.cache_bytes(self.pages() * self.target.page)
        drafter = self.drafter.cache_bytes(self.draft_pages(gamma) * self.drafter.page)
        return self.target.weight_bytes + self.drafter.weight_bytes + head + target + drafter

    def pages(self) -> int:
        """Return pages of the target's cache that the sweep and the grid need."""
        sweep = MAX_ROWS * tiles(self.context + MAX_TOKENS, self.target.page)
        # A row of the grid may hang over into one page more.
        grid = self.grid_tokens // self.target.page + MAX_ROWS
        # And page 0, for what padding writes.
        return 1 + max(sweep, grid)

    def draft_pages(self, gamma: int) -> int:
        """Return pages of the drafter's cache."""
        return 1 + MAX_ROWS * tiles(self.draft_context + gamma, self.drafter.page)


def _on_gpu(name: str, target: DecoderShape, ffn: int, like: str, gpus: int = 1) -> ProfiledModel:
    return ProfiledModel(
        name=name,
        target=target,
        # Three layers that see 128 tokens, as the paper's production drafter has; dense, whatever the target is.
        drafter=target.dense(layers=3, ffn=ffn),
        rank=256,
        device="cuda",
        gpus=gpus,
        context=1024,
        draft_context=128,
        grid_tokens=1 << 18,
        limit=4096,
        like=like,
    )


_DENSE_8B = DecoderShape(32, 4096, 32, 8, 128, 14336, 128_256, torch.bfloat16)
_DENSE_70B_QUARTER = DecoderShape(80, 8192, 16, 2, 128, 7168, 32_064, torch.bfloat16)
_MOE_30B = DecoderShape(48, 2048, 32, 4, 128, 768, 151_936, torch.bfloat16, experts=128, active=8)
_TINY = DecoderShape(4, 256, 8, 4, 32, 768, 4096, torch.float32)

MODELS = {
    model.name: model
    for model in (
        _on_gpu("dense-8b", _DENSE_8B, 14336, "sizes of Llama 3.1 8B"),
        _on_gpu(
            "dense-70b-tp-shard", _DENSE_70B_QUARTER, 7168,
            "a quarter of the heads, feed-forward widths and vocabulary of Llama 3.1 70B", gpus=4,
        ),
        # The drafter's 6,144 are 8 experts of 768: as many active weights as a layer of the target's.
        _on_gpu("moe-30b-a3b-like", _MOE_30B, 6144, "sizes of Qwen3 30B-A3B: 128 experts, 8 of them for a token"),
        ProfiledModel(
            name="tiny-cpu", target=_TINY, drafter=_TINY.dense(layers=1, ffn=768), rank=64, device="cpu", gpus=1,
            context=256, draft_context=128, grid_tokens=1 << 16, limit=2048,
            like="a toy of 5 million weights, to try the simulator on the machine at hand",
        ),
    )
}  # fmt: skip


def model_named(name: str) -> ProfiledModel:
    """Return a model.

    Raises:
        KernelError: if there is none of this name; the message lists them.
    """
    if name not in MODELS:
        raise KernelError(f"`model` must be one of {', '.join(MODELS)}, got {name!r}")
    return MODELS[name]
