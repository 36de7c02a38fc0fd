"""The sizes that the benchmark runs: small ones for correctness anywhere, real ones for speed on a GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from ..common import KernelError

OPS = ("markov", "rnn", "confidence", "admit", "attention", "verify")

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


@dataclass(frozen=True)
class Shape:
    """One problem.

    Attributes:
        op: one of `OPS`.
        sizes: by the letters of docs/kernels.md, such as ``{"R": 64, "V": 129280}``.
        dtype: of activations and weights, a key of `DTYPES`.
        choice: what the operation lets one choose: method of drafting, variant of attention, ``admit`` or ``layout``.
    """

    op: str
    sizes: Mapping[str, int]
    dtype: str = "bf16"
    choice: str | None = None

    def __getitem__(self, name: str) -> int:
        return self.sizes[name]

    @property
    def label(self) -> str:
        """All of it but the operation, readable and unique within one."""
        sizes = [f"{name}={size}" for name, size in self.sizes.items() if name != "ragged"]
        ragged = "ragged" if self.sizes.get("ragged") else None
        return " ".join(part for part in (self.choice, *sizes, ragged, self.dtype) if part)

    @property
    def torch_dtype(self) -> torch.dtype:
        """The type as torch has it."""
        return DTYPES[self.dtype]


def _markov(method: str, dtype: str, rows: int, gamma: int, vocabulary: int, rank: int) -> Shape:
    return Shape("markov", {"R": rows, "g": gamma, "V": vocabulary, "r": rank}, dtype, method)


def _attention(variant: str, dtype: str, split: int, **sizes: int) -> Shape:
    return Shape("attention", {**sizes, "split": split}, dtype, variant)


def _verify(dtype: str, rows: int, gamma: int, vocabulary: int, rejecting: int, ragged: int = 0) -> Shape:
    sizes = {"R": rows, "g": gamma, "V": vocabulary, "rejecting": rejecting, "ragged": ragged}
    return Shape("verify", sizes, dtype)


_SMALL = {"R": 3, "T": 3, "context": 70, "HQ": 4, "HKV": 2, "D": 16, "page": 16, "ragged": 1}
# Six tokens behind 4,090: the last one sees 4,096 keys, as in the third prediction.
_LARGE = {"R": 64, "T": 6, "context": 4090, "HQ": 32, "HKV": 8, "D": 128, "page": 64, "ragged": 0}

CI = (
    # 257 and 515 leave a nearly empty last block, 33 rows a nearly empty tile: edges are where kernels go wrong.
    _markov("inverse_cdf", "fp32", 33, 2, 257, 64),
    _markov("inverse_cdf", "bf16", 3, 1, 4096, 64),
    _markov("gumbel", "fp32", 5, 2, 515, 64),
    _markov("greedy", "fp16", 5, 2, 515, 64),
    Shape("rnn", {"R": 33, "V": 257, "r": 64, "D": 96}, "fp32"),
    Shape("rnn", {"R": 5, "V": 257, "r": 64, "D": 96}, "bf16"),
    Shape("confidence", {"R": 33, "g": 4, "V": 257, "r": 64, "D": 96}, "fp32"),
    Shape("confidence", {"R": 5, "g": 4, "V": 257, "r": 64, "D": 600}, "bf16"),
    Shape("admit", {"R": 33, "g": 4, "K": 50}, "fp32", "admit"),
    Shape("admit", {"R": 33, "B": 96}, "fp32", "layout"),
    *(_attention(variant, dtype, split, **_SMALL) for variant in ("packed", "token")
      for dtype, split in (("fp32", 1), ("bf16", 2))),
    _verify("fp32", 9, 3, 257, 3, ragged=1),
    _verify("bf16", 4, 3, 4096, 2),
)  # fmt: skip
"""What the interpreter gets through in well under a minute."""

REAL = (
    # One position each: floors and predictions are of a position, and a block is g of them.
    *(_markov("inverse_cdf", "bf16", rows, 1, 129_280, 256) for rows in (1, 64, 256)),
    _markov("gumbel", "bf16", 256, 1, 129_280, 256),
    Shape("rnn", {"R": 64, "V": 129_280, "r": 256, "D": 4096}),
    Shape("confidence", {"R": 256, "g": 5, "V": 129_280, "r": 256, "D": 4096}),
    Shape("admit", {"R": 256, "g": 5, "K": 256}, "fp32", "admit"),
    Shape("admit", {"R": 256, "B": 512}, "fp32", "layout"),
    _attention("packed", "bf16", 1, **_LARGE),
    _attention("packed", "bf16", 4, **_LARGE),
    _attention("token", "bf16", 1, **_LARGE),
    _verify("bf16", 64, 3, 129_280, 0),
    _verify("bf16", 64, 3, 129_280, 64),
)
"""The examples of the table of floors, and what the three predictions are about."""

SETS = {"ci": CI, "real": REAL}


def select(shapes: str, ops: Sequence[str] = OPS) -> list[Shape]:
    """Return the shapes of a set for some operations, operations in the order of `OPS`.

    Raises:
        KernelError: if the set or an operation is unknown.
    """
    if shapes not in SETS:
        raise KernelError(f"`shapes` must be one of {', '.join(SETS)}, got {shapes!r}")
    unknown = [op for op in ops if op not in OPS]
    if unknown:
        raise KernelError(f"`op` must be one of {', '.join(OPS)}, got {unknown[0]!r}")
    return [shape for op in OPS if op in ops for shape in SETS[shapes] if shape.op == op]
