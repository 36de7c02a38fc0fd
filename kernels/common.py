"""What the kernels share: argument checks, and the one place where reduced-precision operands are multiplied."""

from __future__ import annotations

import os
from collections.abc import Sequence

import torch
import triton
import triton.language as tl

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
"""Types in which activations and weights may come."""

IDS = (torch.int32, torch.int64)
"""Types in which token ids, lengths and positions may come."""

MAX_GAMMA = 16
"""Most drafts of a row in one step."""


class KernelError(ValueError):
    """A kernel was called with tensors it cannot work on."""


def interpreting() -> bool:
    """Return whether kernels run in the interpreter, as ``TRITON_INTERPRET=1`` before their import asks for."""
    return os.environ.get("TRITON_INTERPRET", "0") == "1"


def check_tensor(
    name: str,
    tensor: torch.Tensor,
    shape: Sequence[int | None],
    dtypes: Sequence[torch.dtype],
    device: torch.device | None = None,
) -> torch.Tensor:
    """Return a tensor that a kernel can take.

    Args:
        name: what the caller calls it.
        tensor: to be checked.
        shape: sizes; None where any size will do.
        dtypes: allowed types.
        device: where it must be; None allows any.

    Raises:
        KernelError: naming the tensor, the rule, what was given and the remedy.
    """
    if not isinstance(tensor, torch.Tensor):
        raise KernelError(f"`{name}` must be a tensor, got {type(tensor).__name__}")
    wanted = tuple(shape)
    given = tuple(tensor.shape)
    if len(given) != len(wanted) or any(want not in (None, got) for want, got in zip(wanted, given, strict=True)):
        sizes = ", ".join("any" if each is None else str(each) for each in wanted)
        raise KernelError(f"`{name}` must have shape [{sizes}], got {list(given)}")
    if tensor.dtype not in dtypes:
        names = ", ".join(str(each).removeprefix("torch.") for each in dtypes)
        raise KernelError(
            f"`{name}` must be of type {names}, got {str(tensor.dtype).removeprefix('torch.')}; convert it"
        )
    if device is not None and tensor.device != device:
        raise KernelError(f"`{name}` must be on {device}, got {tensor.device}; move it there")
    # The last axis alone: kernels take the other strides, so that views of a larger batch pass. Torch may give an axis
    # of one entry any stride.
    if tensor.numel() and given[-1] > 1 and tensor.stride(-1) != 1:
        raise KernelError(
            f"`{name}` must be contiguous along its last axis, got strides {tensor.stride()}; call .contiguous()"
        )
    return tensor


def check_whole(
    name: str,
    tensor: torch.Tensor,
    shape: Sequence[int | None],
    dtype: torch.dtype,
    device: torch.device,
    remedy: str,
) -> None:
    """Refuse a tensor that does not lie in memory without gaps; arguments as of `check_tensor`.

    Raises:
        KernelError: as there; with ``remedy`` for one that has gaps.
    """
    check_tensor(name, tensor, shape, (dtype,), device)
    if not tensor.is_contiguous():
        raise KernelError(f"`{name}` must be contiguous, got strides {tensor.stride()}; {remedy}")


def tiles(size: int, tile: int) -> int:
    """Return how many tiles cover a size."""
    return -(-size // tile)


@triton.jit
def dot(a, b, INTERPRETING: tl.constexpr):
    """Return the matrix product in float32.

    The interpreter computes bf16 arithmetic wrong without a word, so it gets float32 operands; a GPU multiplies float32
    operands in full precision and the others in its tensor cores.
    """
    # "ieee", for float32 would else be multiplied as TF32, which keeps 10 bits and misses the agreed 1e-6.
    if INTERPRETING:
        product = tl.dot(a.to(tl.float32), b.to(tl.float32), input_precision="ieee")
    else:
        product = tl.dot(a, b, input_precision="ieee")
    return product
