"""What attention takes: its limits, the sizes of a call, and the checks of its arguments before a launch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from .attention_kernels import FAR as FARTHEST
from .common import FLOATS, MAX_GAMMA, KernelError, check_tensor

MAX_TOKENS = 1 + MAX_GAMMA
"""Most tokens of a request in one step: a bonus token and its drafts."""

VARIANTS = ("token", "packed")
# Powers of two on either side of a step of 32 keys: a step lies in one page or covers whole ones.
PAGE_SIZES = (16, 32, 64)
# Powers of two, as the blocks of a kernel are.
HEAD_SIZES = (16, 32, 64, 128)

FAR: int = FARTHEST.value
"""Bound of positions, and of what a table may hold, so that sums of two stay in int32."""


@dataclass(frozen=True)
class Sizes:
    """Sizes of a call, in the letters of `varlen_attention`."""

    batch: int
    query_heads: int
    kv_heads: int
    head: int
    page: int
    pages: int
    requests: int
    width: int
    packed: bool = False
    tokens: int = 1
    split: int = 1

    @property
    def group(self) -> int:
        """Query heads that share a key/value head."""
        return self.query_heads // self.kv_heads


def require(holds: bool, name: str, rule: str, given: object, remedy: str) -> None:
    """Raise a KernelError that names the argument, the rule, what was given and the remedy, unless the rule holds."""
    if not holds:
        raise KernelError(f"`{name}` must be {rule}, got {given}; {remedy}")


def listed(choices: Sequence[object]) -> str:
    """Return ``1, 2 or 3``."""
    return ", ".join(str(each) for each in choices[:-1]) + f" or {choices[-1]}"


def check_sizes(q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, block_table: torch.Tensor) -> Sizes:
    """Return the sizes of a call once its tensors of queries, cache and table are checked."""
    check_tensor("q", q, [None, None, None], FLOATS)
    batch, query_heads, head = q.shape
    check_tensor("k_cache", k_cache, [None, None, None, head], [q.dtype], q.device)
    check_tensor("v_cache", v_cache, k_cache.shape, [q.dtype], q.device)
    check_tensor("block_table", block_table, [None, None], [torch.int32], q.device)
    pages, page, kv_heads, _ = k_cache.shape
    require(head in HEAD_SIZES, "q", f"of head size {listed(HEAD_SIZES)}", head, "pad the heads with zeros")
    require(page in PAGE_SIZES, "k_cache", f"of page size {listed(PAGE_SIZES)}", page, "page the cache anew")
    shared = kv_heads > 0 and query_heads > 0 and query_heads % kv_heads == 0
    require(shared, "q", f"of a multiple of the cache's {kv_heads} heads", query_heads, "give every group whole")
    # The kernel takes strides in sixteenths; what is left of a division would address other elements.
    for name, tensor in (("q", q), ("k_cache", k_cache), ("v_cache", v_cache)):
        aligned = all(stride % 16 == 0 for stride in tensor.stride()[:-1])
        require(aligned, name, "strided by multiples of 16", tensor.stride(), "call .contiguous()")
    requests, width = block_table.shape
    held = width * page
    require(held <= FAR, "block_table", f"for {FAR} keys a row at most", held, "give fewer columns")
    return Sizes(batch, query_heads, kv_heads, head, page, pages, requests, width)


def check_markers(
    sizes: Sizes,
    request: torch.Tensor,
    position: torch.Tensor,
    offsets: torch.Tensor | None,
    variant: str,
    device: torch.device,
) -> None:
    """Check the markers of the tokens, and the offsets that `packed` needs."""
    # Types and sizes alone: markers lie on the device, and reading them would wait for it. Odd values give NaN there.
    check_tensor("request", request, [sizes.batch], [torch.int32], device)
    check_tensor("position", position, [sizes.batch], [torch.int32], device)
    require(variant in VARIANTS, "variant", listed(VARIANTS), repr(variant), "choose one")
    if offsets is not None:
        check_tensor("offsets", offsets, [sizes.requests + 1], [torch.int32], device)
    require(variant == "token" or offsets is not None, "offsets", "given to `packed`", None, "pass those of `admit`")


def check_numbers(window: int | None, split_kv: int, scale: float | None, max_tokens: int) -> None:
    """Check what is no tensor."""
    require(window is None or window >= 1, "window", "1 or more, or None for all keys", window, "see one key at least")
    require(split_kv >= 1, "split_kv", "1 or more", split_kv, "take the context in one part at least")
    # The running maximum is of scores before scaling: under a negative scale it would be the least exponent, not the
    # greatest.
    finite = scale is None or (0 < scale < math.inf)
    require(finite, "scale", "positive and finite", scale, "negate the queries to turn the sign")
    require(1 <= max_tokens <= MAX_TOKENS, "max_tokens", f"1 to {MAX_TOKENS}", max_tokens, "verify fewer drafts")


def check_dense(
    name: str, tensor: torch.Tensor, shape: Sequence[int], dtype: torch.dtype, device: torch.device
) -> None:
    """Check an output or a workspace, whose cells the kernels address without strides."""
    # A view that lies otherwise would be filled at the wrong places, in silence.
    check_tensor(name, tensor, shape, [dtype], device)
    require(tensor.is_contiguous(), name, "contiguous", tensor.stride(), "allocate it whole")
