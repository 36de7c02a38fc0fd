"""Which drafts fill the budget, and where each token of the flattened batch comes from."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from .common import IDS, MAX_GAMMA, KernelError, check_tensor, tiles
from .registry import Configuration, Kernel

MAX_ROWS = 1024
# Drafts that a program ranks: whole rows of up to MAX_GAMMA, since it also adds up what is admitted of each.
CANDIDATES = 16
OTHERS = 256
PAIRS = 2048

# Above the bits of every float that is a number, and positive, so that no key of the floor is the -1 of an absent
# draft.
FLOOR_BITS = tl.constexpr(0x7FFFFFFF)


@dataclass(frozen=True)
class Admission:
    """What `admit` returns, and where it can be told to put it.

    Attributes:
        lengths: int32 ``[R]``, drafts of each row to verify.
        offsets: int32 ``[R + 1]``, where a row starts in the flattened batch of ``1 + length`` tokens a row; the last
            entry is the size of the batch.
    """

    lengths: torch.Tensor
    offsets: torch.Tensor

    @classmethod
    def allocate(cls, rows: int, device: torch.device | str = "cpu") -> Admission:
        """Return room for a batch, contents undefined."""
        lengths, offsets = (torch.empty(size, dtype=torch.int32, device=device) for size in (rows, rows + 1))
        return cls(lengths, offsets)


@dataclass(frozen=True)
class Layout:
    """What `layout` returns, and where it can be told to put it.

    Attributes:
        request: int32 ``[B]``, row of each token of the flattened batch; -1 in the padding.
        position: int32 ``[B]``, its place in the row's text; -1 in the padding.
        overflow: int64 ``[1]``, tokens that found no place; above 0 the batch must not be run.
    """

    request: torch.Tensor
    position: torch.Tensor
    overflow: torch.Tensor

    @classmethod
    def allocate(cls, size: int, device: torch.device | str = "cpu") -> Layout:
        """Return room for a batch size, contents undefined."""
        request, position = (torch.empty(size, dtype=torch.int32, device=device) for _ in range(2))
        return cls(request, position, torch.empty(1, dtype=torch.int64, device=device))


def admit(
    a: torch.Tensor,
    budget: torch.Tensor,
    available: torch.Tensor | None = None,
    min_len: int = 0,
    out: Admission | None = None,
    check: bool = False,
) -> Admission:
    """Return verify lengths that admit the best drafts, and the row offsets of the flattened batch.

    The rule is ``specsched.policies.admit_top_k``: survival descending, position ascending, row ascending, over the
    drafts that exist; the first ``min_len`` drafts of every row come before all others and count. The device counts
    how many drafts precede each one and admits those with fewer than ``budget``: no sort, no atomics. Nothing is
    allocated when ``out`` is given; nothing waits for the device unless ``check`` is set.

    A row's length is the number of its drafts among the best. With survivals that never rise along a row these are its
    first ones; with survivals that do, the length is still a length and the lengths still sum to the budget, but the
    verified drafts are not the ones that earned it (`check` refuses such a batch). NaN and negative survivals rank as
    0. A budget under 0 admits nothing, one over the number of drafts admits all, and one under what ``min_len`` takes
    admits that many of the floor: a caller's mistakes, which only ``check`` reports.

    Args:
        a: float32 ``[R, g]``, survivals; R at most 1,024, g at most 16.
        budget: int32 or int64 ``[1]`` on the device, drafts to admit in all.
        available: int32 or int64 ``[R]``, drafts that a row has (under 0 is taken as 0, over g as g); None for g.
        min_len: drafts of every row that are admitted whatever their survival.
        out: where to put the result.
        check: wait for the device and refuse values that break the rules above.

    Raises:
        KernelError: if an argument has a shape, type, device, stride or value that does not do.
    """
    rows, gamma = _check_admit(a, budget, available, min_len)
    if check:
        # `int` reads the device: without `check` the budget stays where an earlier step has left it.
        _check_values(a, int(budget), available, min_len)
    if out is None:
        out = Admission.allocate(rows, a.device)
    check_tensor("out.lengths", out.lengths, (rows,), (torch.int32,), a.device)
    check_tensor("out.offsets", out.offsets, (rows + 1,), (torch.int32,), a.device)
    span = triton.next_power_of_2(gamma)
    count = max(1, CANDIDATES // span)
    admit_kernel[(tiles(rows, count),)](
        a, budget, available, out.lengths, rows, min_len, a.stride(0),
        GAMMA=gamma, SPAN=span, ROWS=count, OTHERS=OTHERS,
    )  # fmt: skip
    offsets_kernel[(1,)](out.lengths, out.offsets, rows, ROWS=triton.next_power_of_2(rows))
    return out


def layout(
    lengths: torch.Tensor, context: torch.Tensor, size: int, out: Layout | None = None, check: bool = False
) -> Layout:
    """Return the row and the text position of every token of a flattened batch, padded to a captured size.

    Row r gives ``1 + lengths[r]`` tokens, the anchor first, at positions ``context[r]``, ``context[r] + 1``, and so on;
    rows follow each other as in ``Admission.offsets``. Nothing is allocated when ``out`` is given; nothing waits for
    the device unless ``check`` is set.

    Tokens past ``size`` are left out and counted in ``overflow``; nothing is written outside the result. A negative
    length is taken as 0. Both are a caller's mistakes, which ``check`` refuses.

    Args:
        lengths: int32 or int64 ``[R]``, as from `admit`; R at most 1,024.
        context: int32 or int64 ``[R]``, tokens before the anchor, whose positions run from 0.
        size: number of tokens ``B``.
        out: where to put the result.
        check: wait for the device and refuse a batch that does not fit.

    Raises:
        KernelError: if an argument has a shape, type, device, stride or value that does not do.
    """
    rows = _check_rows(*check_tensor("lengths", lengths, (None,), IDS).shape)
    check_tensor("context", context, (rows,), IDS, lengths.device)
    if size < 1:
        raise KernelError(f"`size` must be at least 1, got {size}")
    if check:
        _check_fit(lengths, size)
    if out is None:
        out = Layout.allocate(size, lengths.device)
    check_tensor("out.request", out.request, (size,), (torch.int32,), lengths.device)
    check_tensor("out.position", out.position, (size,), (torch.int32,), lengths.device)
    check_tensor("out.overflow", out.overflow, (1,), (torch.int64,), lengths.device)
    span = triton.next_power_of_2(rows)
    tokens = _tokens(span)
    layout_kernel[(tiles(size, tokens),)](
        lengths, context, out.request, out.position, out.overflow, rows, size, ROWS=span, TOKENS=tokens
    )
    return out


@triton.jit
def draft_key(a, available, row, position, inside, rows, min_len, stride_row):
    """Return an int64 per draft, larger for one that comes earlier in the order, -1 for one that does not exist.

    The bits of a float that is not negative rise with it, so survival fills the upper half; the lower half falls with
    position, then row, and makes keys distinct. Drafts of the floor get more than any float has.
    """
    exists = inside
    if available is not None:
        exists = exists & (position < tl.load(available + row, mask=inside, other=0))
    survival = tl.load(a + row * stride_row + position, mask=exists, other=0.0)
    # A comparison that NaN fails; it also turns -0.0, whose bits are no small number, into 0.
    bits = tl.where(survival > 0.0, survival, 0.0).to(tl.int32, bitcast=True).to(tl.int64)
    bits = tl.where(position < min_len, FLOOR_BITS, bits)
    # Makes keys distinct. Where c = 1 survivals tie along a row: the earlier draft must win, or prefixes break.
    place = position.to(tl.int64) * rows + row
    return tl.where(exists, (bits << 32) | (0x7FFFFFFF - place), -1)


@triton.jit
def admit_kernel(
    a, budget, available, lengths, rows, min_len, stride_row,
    GAMMA: tl.constexpr, SPAN: tl.constexpr, ROWS: tl.constexpr, OTHERS: tl.constexpr,
):  # fmt: skip
    """Lengths of a few rows: count the drafts before each of theirs; grid ``(tiles(R, ROWS),)``, SPAN >= GAMMA."""
    mine = tl.program_id(0) * (ROWS * SPAN) + tl.arange(0, ROWS * SPAN)
    # int64, since rows times a caller's stride can pass 2^31 elements.
    row = (mine // SPAN).to(tl.int64)
    # Own drafts are padded to a power of two a row, so that they reshape into rows below; the others need no such
    # padding.
    position = mine % SPAN
    key = draft_key(a, available, row, position, (row < rows) & (position < GAMMA), rows, min_len, stride_row)
    # Every program goes over all drafts by itself: nothing to sort, nobody to wait for, and counting in any order is
    # exact.
    earlier = tl.zeros((ROWS * SPAN, OTHERS), tl.int32)
    for start in range(0, rows * GAMMA, OTHERS):
        other = start + tl.arange(0, OTHERS)
        other_row = (other // GAMMA).to(tl.int64)
        inside = other_row < rows
        other_key = draft_key(a, available, other_row, other % GAMMA, inside, rows, min_len, stride_row)
        earlier += (other_key[None, :] > key[:, None]).to(tl.int32)
    rank = tl.sum(earlier, 1)
    # The budget comes from the device, where confidences of an earlier step have set it (section 5.2): no wait for the
    # host.
    admitted = ((key >= 0) & (rank < tl.load(budget))).to(tl.int32)
    count = tl.sum(tl.reshape(admitted, (ROWS, SPAN)), 1)
    own = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    tl.store(lengths + own, count, mask=own < rows)


@triton.jit
def offsets_kernel(lengths, offsets, rows, ROWS: tl.constexpr):
    """Sums of ``1 + length`` before each row, and in all; one program."""
    row = tl.arange(0, ROWS)
    inside = row < rows
    # 1 for the anchor, which is verified in any case; it also gives rows without drafts a place in the batch.
    tokens = tl.where(inside, 1 + tl.load(lengths + row, mask=inside, other=0), 0)
    end = tl.cumsum(tokens.to(tl.int32), 0)
    tl.store(offsets + row + 1, end, mask=inside)
    tl.store(offsets + row, 0, mask=row == 0)


@triton.jit
def layout_kernel(
    lengths, context, request, position, overflow, rows, size, ROWS: tl.constexpr, TOKENS: tl.constexpr
):  # fmt: skip
    """Row and position of a few tokens: count the rows that end before each; grid ``(tiles(B, TOKENS),)``."""
    row = tl.arange(0, ROWS)
    inside = row < rows
    length = tl.load(lengths + row, mask=inside, other=0).to(tl.int64)
    tokens = tl.where(inside, 1 + tl.maximum(length, 0), 0)
    # int64, so that lengths full of garbage overflow nothing.
    end = tl.cumsum(tokens.to(tl.int64), 0)
    total = tl.sum(tokens, 0)
    token = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
    # Each row holds an anchor, so ends are distinct, and the number of ends at or before a token names its row.
    before = inside[None, :] & (end[None, :] <= token[:, None])
    owner = tl.sum(before.to(tl.int32), 1)
    start = tl.sum(tl.where(before, tokens[None, :], 0), 1)
    real = token < total
    place = tl.load(context + owner, mask=real, other=0) + (token - start)
    tl.store(request + token, tl.where(real, owner, -1), mask=token < size)
    tl.store(position + token, tl.where(real, place, -1).to(tl.int32), mask=token < size)
    # All programs know the total; one reports it.
    if tl.program_id(0) == 0:
        tl.store(overflow, tl.maximum(total - size, 0))


def _check_admit(
    a: torch.Tensor, budget: torch.Tensor, available: torch.Tensor | None, min_len: int
) -> tuple[int, int]:
    rows, gamma = check_tensor("a", a, (None, None), (torch.float32,)).shape
    _check_rows(rows)
    if not 1 <= gamma <= MAX_GAMMA:
        raise KernelError(f"`a` must have 1..{MAX_GAMMA} positions, got {gamma}")
    check_tensor("budget", budget, (1,), IDS, a.device)
    if available is not None:
        check_tensor("available", available, (rows,), IDS, a.device)
    if min_len < 0:
        raise KernelError(f"`min_len` must be at least 0, got {min_len}")
    return rows, gamma


def _check_rows(rows: int) -> int:
    if not 1 <= rows <= MAX_ROWS:
        raise KernelError(f"a batch must have 1..{MAX_ROWS} rows, got {rows}")
    return rows


def _check_values(a: torch.Tensor, budget: int, available: torch.Tensor | None, min_len: int) -> None:
    """Refuse what only the values show; waits for the device."""
    rows, gamma = a.shape
    drafts = torch.full((rows,), gamma) if available is None else available.long().cpu()
    wrong = torch.nonzero((drafts < 0) | (drafts > gamma)).flatten().tolist()
    if wrong:
        raise KernelError(f"`available[{wrong[0]}]` must be within 0..{gamma}, got {int(drafts[wrong[0]])}")
    # The floor takes min(min_len, available) of every row and counts in the budget (`admit_top_k`).
    least, most = int(drafts.clamp(max=min_len).sum()), int(drafts.sum())
    if not least <= budget <= most:
        raise KernelError(
            f"`budget` must be within {least}..{most} (min_len {min_len}, drafts available), got {budget}"
        )
    exists = torch.arange(gamma) < drafts[:, None]
    # A column of ones in front, so that the first survival is held against 1 by the same comparison.
    survivals = torch.cat((torch.ones(rows, 1), a.cpu()), 1)
    bad = torch.nonzero(exists & ~((survivals[:, 1:] >= 0.0) & (survivals[:, 1:] <= survivals[:, :-1]))).tolist()
    if bad:
        row, position = bad[0]
        raise KernelError(
            f"`a[{row}, {position}]` must be within 0..{float(survivals[row, position])} (survivals never rise along a"
            f" row), got {float(a[row, position])}; multiply confidences with `survival`"
        )


def _check_fit(lengths: torch.Tensor, size: int) -> None:
    """Refuse lengths that no batch of a size can hold; waits for the device."""
    values = lengths.cpu().tolist()
    if min(values) < 0:
        raise KernelError(f"`lengths[{values.index(min(values))}]` must be at least 0, got {min(values)}")
    total = len(values) + sum(values)
    if total > size:
        raise KernelError(f"`size` must hold all {total} tokens, got {size}; pad to a larger captured size")


# Triton types a stride i64 only where it does not fit into i32; both forms must compile.
def _admit_form(gamma: int, strides: str = "i32") -> Configuration:
    span = triton.next_power_of_2(gamma)
    return Configuration(
        label=f"g={gamma} strides {strides}",
        signature={
            "a": "*fp32",
            "budget": "*i32",
            "available": "*i32",
            "lengths": "*i32",
            "rows": "i32",
            "min_len": "i32",
            "stride_row": strides,
        },
        constants={"GAMMA": gamma, "SPAN": span, "ROWS": CANDIDATES // span, "OTHERS": OTHERS},
    )


def _offsets_form(rows: int) -> Configuration:
    return Configuration(
        label=f"R={rows}", signature={"lengths": "*i32", "offsets": "*i32", "rows": "i32"}, constants={"ROWS": rows}
    )


def _tokens(span: int) -> int:
    """Return how many tokens a program lays out, so that it compares as many pairs of token and row however many."""
    return min(64, PAIRS // span)


def _layout_form(rows: int) -> Configuration:
    return Configuration(
        label=f"R={rows}",
        signature={
            "lengths": "*i32",
            "context": "*i32",
            "request": "*i32",
            "position": "*i32",
            "overflow": "*i64",
            "rows": "i32",
            "size": "i32",
        },
        constants={"ROWS": rows, "TOKENS": _tokens(rows)},
    )


KERNELS = (
    Kernel("admit", "admit", admit_kernel, (_admit_form(5), _admit_form(7), _admit_form(16, strides="i64"))),
    Kernel("admit", "offsets", offsets_kernel, (_offsets_form(64), _offsets_form(MAX_ROWS))),
    Kernel("admit", "layout", layout_kernel, (_layout_form(64), _layout_form(256), _layout_form(MAX_ROWS))),
)
