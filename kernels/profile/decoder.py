"""A synthetic decoder: the parts of a language model that cost time, with random weights.

It is timed, never read: no rotary embedding, no norm weights, no trained numbers. A step writes keys and values of its
tokens to a paged cache, attends by marker tensors (section 5 of the paper: all tokens alike), and gives logits at every
token, as verification needs. Dense or a mixture of experts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F

from ..common import KernelError
from .decoder_attention import Attend, Batch
from .decoder_parts import Dense, Experts, Random


@dataclass(frozen=True)
class DecoderShape:
    """Sizes of a decoder.

    Attributes:
        layers: of attention and feed-forward.
        width: of a token's vector.
        query_heads: HQ.
        kv_heads: HKV.
        head_size: D.
        ffn: inner width of the feed-forward part, of each expert if there are any.
        vocabulary: rows of the embedding and of the output head.
        dtype: of weights, cache and activations.
        experts: of a layer; 0 for a dense decoder.
        active: experts a token is sent to.
        page: keys of a page of the cache.
    """

    layers: int
    width: int
    query_heads: int
    kv_heads: int
    head_size: int
    ffn: int
    vocabulary: int
    dtype: torch.dtype
    experts: int = 0
    active: int = 0
    page: int = 64

    def __post_init__(self) -> None:
        if self.query_heads % self.kv_heads:
            raise KernelError(
                f"`query_heads` must be a multiple of `kv_heads` ({self.kv_heads}), got {self.query_heads}"
            )
        if not 0 <= self.active <= self.experts or bool(self.active) != bool(self.experts):
            raise KernelError(f"`active` must be 1 to `experts` ({self.experts}), or both 0, got {self.active}")

    @property
    def weights(self) -> int:
        """Number of weights."""
        heads = self.query_heads + 2 * self.kv_heads
        attention = self.head_size * self.width * (heads + self.query_heads)
        # Gate, up and down of every expert, and the router.
        feed = 3 * self.width * self.ffn * max(self.experts, 1) + self.experts * self.width
        # Embedding and output head are two matrices here.
        return self.layers * (attention + feed) + 2 * self.vocabulary * self.width

    @property
    def weight_bytes(self) -> int:
        """Bytes of all weights."""
        return self.weights * self.dtype.itemsize

    def cache_bytes(self, tokens: int) -> int:
        """Return bytes of the keys and values of a number of tokens, all layers."""
        return 2 * self.layers * tokens * self.kv_heads * self.head_size * self.dtype.itemsize

    def dense(self, layers: int, ffn: int) -> DecoderShape:
        """Return a dense decoder of this width and these heads, as a drafter is."""
        return replace(self, layers=layers, ffn=ffn, experts=0, active=0)


@dataclass(frozen=True)
class Layer:
    """Weights and cache of one layer.

    Attributes:
        qkv: [(HQ + 2 HKV) D, width].
        out: [width, HQ D].
        feed: the feed-forward part.
        keys: [pages, page, HKV, D].
        values: as `keys`.
    """

    qkv: torch.Tensor
    out: torch.Tensor
    feed: Dense | Experts
    keys: torch.Tensor
    values: torch.Tensor

    @classmethod
    def make(cls, shape: DecoderShape, pages: int, random: Random) -> Layer:
        """Return random weights and a cache of random keys."""
        # Residual branches start small, as in trained models, so that depth does not blow activations up.
        small = (2 * shape.layers) ** -0.5
        cache = (pages, shape.page, shape.kv_heads, shape.head_size)
        return cls(
            qkv=random.matrix((shape.query_heads + 2 * shape.kv_heads) * shape.head_size, shape.width),
            out=random.matrix(shape.width, shape.query_heads * shape.head_size, small=small),
            feed=_feed(shape, small, random),
            keys=random.tensor(*cache),
            values=random.tensor(*cache),
        )


class Decoder:
    """Weights, a paged cache full of random keys, and a step.

    Args:
        shape: sizes.
        pages: of the cache; page 0 takes what padding writes.
        attend: attention over the cache.
        generator: of the random numbers; its device is the decoder's.
    """

    def __init__(self, shape: DecoderShape, pages: int, attend: Attend, generator: torch.Generator) -> None:
        random = Random(generator, shape.dtype)
        self.shape = shape
        self._attend = attend
        self.embedding = random.tensor(shape.vocabulary, shape.width)
        self.head = random.matrix(shape.vocabulary, shape.width)
        self.layers = [Layer.make(shape, pages, random) for _ in range(shape.layers)]

    def step(self, batch: Batch) -> torch.Tensor:
        """Return logits ``[B, V]`` of the batch's tokens; their keys and values are in the cache afterwards."""
        x = self.embedding[batch.tokens]
        for layer in self.layers:
            x = x + self._attention(layer, self._norm(x), batch)
            x = x + layer.feed(self._norm(x))
        # At every token, not at the last alone: verification judges a draft by the logits before it.
        return F.linear(self._norm(x), self.head)

    def _norm(self, x: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, (self.shape.width,))

    def _attention(self, layer: Layer, x: torch.Tensor, batch: Batch) -> torch.Tensor:
        shape = self.shape
        heads = F.linear(x, layer.qkv).view(len(x), -1, shape.head_size)
        q, k, v = heads.split([shape.query_heads, shape.kv_heads, shape.kv_heads], 1)
        # Before attention, since a token sees its own key; in place, since a captured graph goes on reading this
        # memory.
        layer.keys.view(-1, *k.shape[1:]).index_copy_(0, batch.slots, k)
        layer.values.view(-1, *v.shape[1:]).index_copy_(0, batch.slots, v)
        return F.linear(self._attend(q, layer.keys, layer.values, batch).flatten(1), layer.out)


def _feed(shape: DecoderShape, small: float, random: Random) -> Dense | Experts:
    if not shape.experts:
        return Dense.make(shape.width, shape.ffn, small, random)
    return Experts.make(shape.experts, shape.active, shape.width, shape.ffn, small, random)
