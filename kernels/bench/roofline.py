"""What an operation must move and multiply, and the least time that this takes: the floors of docs/kernels.md.

Bytes are those that must cross memory once. A kernel can be slower, not faster, unless a cache holds the operands.
Flops are the multiplications and additions of products (of verification: scale, subtract and add, one each a logit);
comparisons, exponentials and noise count as nothing, so a floor says nothing of them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Work:
    """Least traffic and arithmetic of one call.

    Attributes:
        bytes: read and written.
        flops: multiplications and additions.
    """

    bytes: int
    flops: int


@dataclass(frozen=True)
class Ceilings:
    """What a device reached in the same run.

    Attributes:
        bytes_per_s: of a large copy, read and written bytes both counted.
        flops_per_s: of a large matrix product.
        product: type of that product, such as ``bf16 8192``.
    """

    bytes_per_s: float
    flops_per_s: float
    product: str


def floor_us(work: Work, ceilings: Ceilings) -> float:
    """Return the least time of a call in microseconds: of its bytes or of its flops, whichever takes longer."""
    return 1e6 * max(work.bytes / ceilings.bytes_per_s, work.flops / ceilings.flops_per_s)


def markov_work(rows: int, vocabulary: int, rank: int, element_bytes: int) -> Work:
    """Return the work of one position of the Markov head: W2, base logits and ``W1[x]`` read, 24 bytes a row."""
    # The 24 bytes: previous token, temperature and uniform in; token, probability and log-sum-exp out.
    elements = vocabulary * rank + rows * vocabulary + rows * rank
    return Work(element_bytes * elements + 24 * rows, 2 * rows * vocabulary * rank)


def rnn_work(rows: int, rank: int, width: int, element_bytes: int) -> Work:
    """Return the work of one cell of the RNN head: three products of ``z`` (2r + D), the state in float32."""
    features = 2 * rank + width
    # Of a row: embedding and h in, hidden out, which is 2r + D elements; its state in and out in float32.
    moved = 3 * element_bytes * rank * features + rows * (element_bytes * features + 8 * rank)
    return Work(moved, 2 * rows * 3 * rank * features)


def confidence_work(rows: int, gamma: int, rank: int, width: int, element_bytes: int) -> Work:
    """Return the work of confidences and survivals of all drafts."""
    weights = element_bytes * (width + rank) + 4 * gamma
    # The 12 bytes of a draft: previous token in, confidence and survival out.
    return Work(rows * gamma * (element_bytes * (width + rank) + 12) + weights, 2 * rows * gamma * (width + rank))


def admit_work(rows: int, gamma: int) -> Work:
    """Return the work of admission: survivals in, lengths and offsets out; made of comparisons, hence no flops."""
    # Lengths are written by one kernel and read by the one that sums them.
    return Work(4 * rows * gamma + 4 + 4 * rows + 4 * (2 * rows + 1), 0)


def layout_work(rows: int, batch: int) -> Work:
    """Return the work of laying out a batch; no flops."""
    return Work(8 * rows + 8 * batch + 8, 0)


def verify_work(batch: int, rejecting: int, vocabulary: int, element_bytes: int) -> Work:
    """Return the work of verification: each rejecting row reads one more row of target and of draft logits."""
    logits = vocabulary * (batch + 2 * rejecting)
    return Work(element_bytes * logits, 3 * logits)
