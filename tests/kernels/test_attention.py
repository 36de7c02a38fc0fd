"""Attention against float64, token by token; slots of the cache that hold no key are NaN, table entries wild."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from specsched.kernels.attention import (
    KERNELS,
    KEYS,
    Attention,
    AttentionTiles,
    AttentionWorkspace,
    varlen_attention,
)
from specsched.kernels.attention_reference import varlen_attention_reference
from specsched.kernels.attention_work import attention_work
from specsched.kernels.common import KernelError

from .guards import Guards, relative_error

TOLERANCE = {torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}
WILD = (-1, 1 << 30, -(1 << 31), 7777)
VARIANTS = ("token", "packed")
F32 = torch.float32


@dataclass(frozen=True)
class Scene:
    """A step: rows of some context, each with some tokens, flattened, with padding at the end."""

    q: torch.Tensor
    k_cache: torch.Tensor
    v_cache: torch.Tensor
    block_table: torch.Tensor
    request: torch.Tensor
    position: torch.Tensor
    offsets: torch.Tensor

    def attend(self, variant: str, **options: Any) -> Attention:
        if variant == "packed":
            options = {"max_tokens": max(self.offsets.diff().tolist(), default=1), **options}
        inputs = (self.q, self.k_cache, self.v_cache, self.block_table, self.request, self.position, self.offsets)
        return varlen_attention(*inputs, variant=variant, **options)

    def expected(self, **options: Any) -> tuple[torch.Tensor, torch.Tensor]:
        inputs = (self.q, self.k_cache, self.v_cache, self.block_table, self.request, self.position)
        return varlen_attention_reference(*inputs, **options)

    def slot(self, row: int, key: int) -> tuple[int, int]:
        page = self.k_cache.shape[1]
        return int(self.block_table[row, key // page]), key % page

    def with_keys(self, row: int, keys: Sequence[int], value: float) -> Scene:
        """The scene with some keys of a row, and their values, overwritten."""
        k_cache, v_cache = self.k_cache.clone(), self.v_cache.clone()
        for key in keys:
            k_cache[self.slot(row, key)] = value
            v_cache[self.slot(row, key)] = value
        return replace(self, k_cache=k_cache, v_cache=v_cache)

    def with_markers(self, token: int, request: int | None = None, position: int | None = None) -> Scene:
        requests, positions = self.request.clone(), self.position.clone()
        if request is not None:
            requests[token] = request
        if position is not None:
            positions[token] = position
        return replace(self, request=requests, position=positions)


def scene(
    contexts: Sequence[int],
    counts: Sequence[int],
    dtype: torch.dtype = F32,
    *,
    group: int = 2,
    kv_heads: int = 1,
    head: int = 16,
    page: int = 16,
    padding: int = 2,
    draw: Callable[..., torch.Tensor] = torch.randn,
) -> Scene:
    """Rows whose first token stands at the end of their context; slots and table entries that nobody needs are wild."""
    generator = torch.Generator().manual_seed(20)
    rows = len(contexts)
    lengths = [context + count for context, count in zip(contexts, counts, strict=True)]
    # One column more than needed, so that the table has wild entries in every row.
    width = max(-(-length // page) for length in lengths) + 1
    batch = sum(counts)
    q = draw(batch + padding, kv_heads * group, head, generator=generator).to(dtype)
    dense = [draw(2, length, kv_heads, head, generator=generator).to(dtype) for length in lengths]
    order = torch.randperm(rows * width + 2, generator=torch.Generator().manual_seed(21)).tolist()
    k_cache = torch.full((len(order), page, kv_heads, head), float("nan"), dtype=dtype)
    v_cache = k_cache.clone()
    table = torch.tensor([[WILD[(row + i) % 4] for i in range(width)] for row in range(rows)], dtype=torch.int32)
    for row, (length, (k, v)) in enumerate(zip(lengths, dense, strict=True)):
        for first in range(0, length, page):
            page_id = order.pop()
            table[row, first // page] = page_id
            k_cache[page_id, : length - first] = k[first : first + page]
            v_cache[page_id, : length - first] = v[first : first + page]
    request = [row for row, count in enumerate(counts) for _ in range(count)] + [-1] * padding
    position = [context + j for context, count in zip(contexts, counts, strict=True) for j in range(count)]
    offsets = [sum(counts[:row]) for row in range(rows + 1)]
    integers = (torch.tensor(each, dtype=torch.int32) for each in (request, position + [-1] * padding, offsets))
    return Scene(q, k_cache, v_cache, table, *integers)


def guarded(given: Scene, split_kv: int) -> tuple[Guards, Attention, AttentionWorkspace]:
    guards = Guards()
    batch, heads, head = given.q.shape
    cells = (split_kv, batch, heads)
    out = Attention(guards.empty("o", *given.q.shape, dtype=given.q.dtype), guards.empty("lse", batch, heads))
    workspace = AttentionWorkspace(
        guards.empty("parts", *cells, head), guards.empty("tops", *cells), guards.empty("totals", *cells)
    )
    return guards, out, workspace


def check(given: Scene, variant: str, split_kv: int = 1, scale: float | None = None, **options: Any) -> Attention:
    """Attend between canaries into poisoned outputs, and compare with the reference."""
    guards, out, workspace = guarded(given, split_kv)
    found = given.attend(variant, split_kv=split_kv, scale=scale, out=out, workspace=workspace, **options)
    assert found.o is out.o
    assert found.lse is out.lse
    # Nothing is computed for padding, so its cells of the workspace stay as they were; its results may not.
    guards.check(unwritten=("parts", "tops", "totals"))
    o, lse = given.expected(window=options.get("window"), scale=scale)
    empty = lse == -torch.inf
    assert relative_error(found.o, o) <= TOLERANCE[given.q.dtype]
    assert torch.equal(found.lse == -torch.inf, empty)
    assert relative_error(found.lse[~empty], lse[~empty]) <= TOLERANCE[F32]
    assert bool((found.o[empty] == 0).all())
    return found


def same(left: Attention, right: Attention, tokens: slice | list[int] = slice(None)) -> bool:
    """Whether results are equal bit by bit."""
    return torch.equal(left.o[tokens], right.o[tokens]) and torch.equal(left.lse[tokens], right.lse[tokens])


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(
    ("dtype", "group", "kv_heads", "head", "page", "window"),
    [
        (F32, 4, 2, 64, 16, None),
        (F32, 1, 2, 128, 64, 24),
        (F32, 8, 1, 64, 32, None),
        (torch.float16, 4, 1, 64, 16, None),
        (torch.float16, 8, 1, 128, 64, 40),
        (torch.bfloat16, 8, 1, 128, 64, None),
        (torch.bfloat16, 4, 1, 64, 16, 24),
        (torch.bfloat16, 3, 1, 32, 32, None),
    ],
)
def test_agrees_with_float64(
    variant: str, dtype: torch.dtype, group: int, kv_heads: int, head: int, page: int, window: int | None
) -> None:
    given = scene([0, 30, 97], [1, 3, 2], dtype, group=group, kv_heads=kv_heads, head=head, page=page)
    check(given, variant, window=window)


EDGES = [0, 1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 95, 127, 128, 200]


@pytest.mark.parametrize(("variant", "page"), [("token", 16), ("packed", 16), ("packed", 64)])
def test_contexts_around_the_edges_of_pages_and_steps(variant: str, page: int) -> None:
    given = scene(EDGES, [1] * len(EDGES), page=page)
    found = check(given, variant)
    o, _ = given.expected()
    for token, context in enumerate(EDGES):
        assert relative_error(found.o[token], o[token]) <= TOLERANCE[F32], f"context {context}"


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("window", [1, 32, 33, 70, 1000])
def test_windows_smaller_and_larger_than_the_context(variant: str, window: int) -> None:
    check(scene([40, 101], [2, 3]), variant, split_kv=2, window=window)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("split_kv", [1, 2, 3, 4, 6])
def test_any_number_of_parts(variant: str, split_kv: int) -> None:
    """Six parts are more than there are steps: the last ones are empty."""
    check(scene([0, 33, 110], [1, 2, 1]), variant, split_kv=split_kv)


def test_ragged_rows_agree_between_variants() -> None:
    """Zero to four drafts a row, in one batch."""
    given = scene([31, 5, 64, 13, 90], [1, 2, 3, 4, 5], group=4)
    token, packed = check(given, "token"), check(given, "packed")
    assert relative_error(packed.o, token.o) <= TOLERANCE[F32]


@pytest.mark.parametrize(("group", "rows", "tokens"), [(8, 16, 5), (1, 16, 17), (3, 32, 11), (8, 64, 9)])
def test_a_row_may_take_several_tiles(group: int, rows: int, tokens: int) -> None:
    assert tokens * group > rows
    given = scene([20, 70], [tokens, 1], group=group)
    check(given, "packed", tiles=AttentionTiles(rows), max_tokens=tokens)


@pytest.mark.parametrize("rows", [16, 32, 64])
@pytest.mark.parametrize("variant", VARIANTS)
def test_tiles_with_room_to_spare(variant: str, rows: int) -> None:
    check(scene([40], [3], group=4), variant, tiles=AttentionTiles(rows))


def test_a_workspace_left_from_another_step_does_not_show() -> None:
    given = scene([40, 9], [3, 1])
    guards, out, workspace = guarded(given, 3)
    for each in (workspace.parts, workspace.tops, workspace.totals):
        each.fill_(1e30)
    found = given.attend("packed", split_kv=3, out=out, workspace=workspace)
    guards.check()
    assert same(found, given.attend("packed", split_kv=3))


def test_nothing_to_do() -> None:
    none = scene([3], [1], padding=0)
    for variant in VARIANTS:
        empty = replace(none, q=none.q[:0], request=none.request[:0], position=none.position[:0])
        assert empty.attend(variant).o.shape == (0, 2, 16)
        idle = replace(none, request=torch.tensor([-1], dtype=torch.int32), block_table=none.block_table[:0])
        idle = replace(idle, position=idle.request, offsets=torch.zeros(1, dtype=torch.int32))
        found = idle.attend(variant)
        assert bool((found.o == 0).all())
        assert bool((found.lse == -torch.inf).all())


# What is bitwise invariant.


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("window", "split_kv", "dtype"), [(None, 1, F32), (70, 2, torch.bfloat16)])
def test_keys_a_turn_change_no_bit(variant: str, window: int | None, split_kv: int, dtype: torch.dtype) -> None:
    given = scene([200, 31], [2, 1], dtype, padding=0)
    first, *others = [
        given.attend(variant, window=window, split_kv=split_kv, tiles=AttentionTiles(16, turn=turn))
        for turn in (KEYS, KEYS, 2 * KEYS, 4 * KEYS)
    ]
    assert all(same(first, other) for other in others)


@pytest.mark.parametrize("variant", VARIANTS)
def test_pages_change_no_bit(variant: str) -> None:
    first, *others = [
        scene([100, 31], [1, 2], padding=0, page=page).attend(variant, split_kv=2) for page in (16, 32, 64)
    ]
    assert all(same(first, other) for other in others)


@pytest.mark.parametrize(("context", "window"), [(30, None), (63, None), (30, 34), (63, 34)])
def test_drafts_that_follow_change_no_bit(context: int, window: int | None) -> None:
    """A token's result is the same whether no draft is verified or four, wherever the edge of a step lies.

    After 63 keys the drafts begin a step of their own; counted in, it would move the cut between the two parts.
    """
    whole = scene([context], [5])
    every = whole.attend("packed", split_kv=2, window=window)
    for count in (1, 3):
        fewer = replace(
            whole,
            q=whole.q[:count],
            request=whole.request[:count],
            position=whole.position[:count],
            offsets=torch.tensor([0, count], dtype=torch.int32),
        ).attend("packed", split_kv=2, window=window, max_tokens=5)
        assert same(fewer, Attention(every.o[:count], every.lse[:count]))


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_row_does_not_feel_the_others(variant: str) -> None:
    """Bitwise alone, in company, and among rows that hold nothing but NaN or huge values."""
    given = scene([17, 40, 5], [1, 2, 1])
    found = given.attend(variant, split_kv=2)
    for value in (math.nan, 1e30):
        spoilt = given.with_keys(0, range(18), value).with_keys(2, range(6), value)
        assert same(spoilt.attend(variant, split_kv=2), found, slice(1, 3))
    alone = replace(
        given,
        q=given.q[1:3],
        request=torch.zeros(2, dtype=torch.int32),
        position=given.position[1:3],
        block_table=given.block_table[1:2],
        offsets=torch.tensor([0, 2], dtype=torch.int32),
    )
    assert same(alone.attend(variant, split_kv=2), Attention(found.o[1:3], found.lse[1:3]))


# What a token must not see.


@pytest.mark.parametrize(
    ("variant", "value", "context", "window"),
    [
        ("token", math.nan, 30, None),
        ("token", 1e30, 95, 34),
        *[("packed", value, 30, None) for value in (math.nan, math.inf, -math.inf, 1e30)],
        *[("packed", value, 95, 34) for value in (math.nan, math.inf, -math.inf, 1e30)],
    ],
)
def test_a_future_token_does_not_matter(variant: str, value: float, context: int, window: int | None) -> None:
    """The last two of five tokens are broken; the three before them do not notice."""
    given = scene([context], [5], padding=0)
    found = given.attend(variant, window=window)
    spoilt = given.with_keys(0, [context + 3, context + 4], value).attend(variant, window=window)
    assert same(spoilt, found, slice(0, 3))
    assert not same(spoilt, found, [3])
    assert not same(spoilt, found, [4])
    assert bool(spoilt.o[3:5].isfinite().all()) == math.isfinite(value)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_broken_value_reaches_those_who_see_it_alone(variant: str) -> None:
    """Only v is broken, so that scores stay finite: a weight of 0 must not turn an infinite value into NaN."""
    given = scene([62], [4])
    v_cache = given.v_cache.clone()
    v_cache[given.slot(0, 64)] = math.inf
    spoilt = replace(given, v_cache=v_cache).attend(variant)
    assert same(spoilt, given.attend(variant), slice(0, 2))
    assert not bool(spoilt.o[2:4].isfinite().any())
    assert torch.equal(spoilt.lse, given.attend(variant).lse)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("value", [math.nan, 1e30])
def test_keys_before_the_window_do_not_matter(variant: str, value: float) -> None:
    """Key 42 leaves the window between the first and the second token."""
    given = scene([75], [3])
    found = given.attend(variant, window=34, split_kv=2)
    spoilt = given.with_keys(0, range(43), value).attend(variant, window=34, split_kv=2)
    assert same(spoilt, found, [1, 2])
    assert not same(spoilt, found, [0])


@pytest.mark.parametrize("variant", VARIANTS)
def test_pages_before_the_window_may_be_gone(variant: str) -> None:
    given = scene([75], [3])
    table = given.block_table.clone()
    table[0, :2] = -1
    found = given.attend(variant, window=34)
    assert same(replace(given, block_table=table).attend(variant, window=34), found)
    assert bool(found.o.isfinite().all())


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("marker", [-1, -5])
def test_padding_may_stand_anywhere(variant: str, marker: int) -> None:
    given = scene([20, 40], [3, 2])
    holes = given.with_markers(1, request=marker).with_markers(4, request=marker)
    check(holes, variant)
    assert same(holes.attend(variant), given.attend(variant), [0, 2, 3])


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("position", [-1, -40])
def test_an_empty_context_gives_nothing(variant: str, position: int) -> None:
    check(scene([20, 40], [2, 1]).with_markers(2, position=position).with_markers(0, position=position), variant, 2)


@pytest.mark.parametrize("variant", VARIANTS)
def test_position_says_what_is_seen(variant: str) -> None:
    """Markers need neither rise nor follow on each other."""
    given = scene([40], [4]).with_markers(0, position=43).with_markers(2, position=3)
    check(given, variant, split_kv=2)
    check(given, variant, split_kv=2, window=6)


# Extreme scores.


def eighths(*size: int, generator: torch.Generator) -> torch.Tensor:
    """Small multiples of 1/8: float32 sums of their products are exact, so only the softmax itself is tried."""
    return torch.randint(-16, 17, size, generator=generator) / 8.0


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("shift", [-100.0, 100.0, -1e4, 1e4])
def test_shifted_scores(variant: str, shift: float) -> None:
    """All scores of a head moved by a constant, through one component: weights stay what they were."""
    given = scene([50], [3], draw=eighths)
    q, k_cache = given.q.clone(), given.k_cache.clone()
    q[..., 0] = 4.0
    k_cache[..., 0] = torch.where(k_cache[..., 0].isnan(), k_cache[..., 0], shift)
    moved = replace(given, q=q, k_cache=k_cache)
    found = check(moved, variant, split_kv=2)
    k_cache[..., 0] = torch.where(k_cache[..., 0].isnan(), k_cache[..., 0], 0.0)
    o, lse = moved.expected()
    assert relative_error(found.o, o) <= TOLERANCE[F32]
    assert torch.allclose(found.lse[:3].double(), lse[:3] + shift, rtol=1e-6)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("scale", [1e-6, 300.0, 1e30])
def test_flat_and_one_hot_softmax(variant: str, scale: float) -> None:
    check(scene([50, 0], [3, 1], draw=eighths), variant, split_kv=2, scale=scale)


# What cannot be served is marked.


def between_zeros(cache: torch.Tensor) -> torch.Tensor:
    """The cache with a page of zeros before and after it in memory."""
    page = torch.zeros_like(cache[:1])
    return torch.cat((page, cache, page))[1:-1]


def beside_pages(given: Scene) -> Scene:
    """The scene with good entries in all of its table and beside it in memory, so that reading there gives a result."""
    table = given.block_table
    good = torch.zeros(len(table) + 1, table.shape[1] + 1, dtype=torch.int32)
    good[:-1, :-1] = torch.where((table >= 0) & (table < len(given.k_cache)), table, 0)
    caches = {"k_cache": given.k_cache.nan_to_num(0.0), "v_cache": given.v_cache.nan_to_num(0.0)}
    return replace(given, block_table=good[:-1, :-1], **caches)


def assert_marked(found: Attention, broken: Sequence[int], clean: Attention) -> None:
    whole = [token for token in range(len(found.o)) if token not in broken]
    assert same(found, clean, whole)
    assert bool(found.o[list(broken)].isnan().all())
    assert bool(found.lse[list(broken)].isnan().all())


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("page", [16, 32])
@pytest.mark.parametrize("entry", [-1, None])
def test_a_page_that_is_not_there_is_not_read(variant: str, page: int, entry: int | None) -> None:
    """The page of row 1's key 64 lies just outside the cache: the first two tokens do not see it, the last two do.

    What lies there in memory are zeros, which would give a result.
    """
    given = scene([5, 62], [1, 4], page=page)
    given = replace(given, k_cache=between_zeros(given.k_cache), v_cache=between_zeros(given.v_cache))
    table = given.block_table.clone()
    table[1, 64 // page] = len(given.k_cache) if entry is None else entry
    found = replace(given, block_table=table).attend(variant, split_kv=2)
    assert_marked(found, [3, 4], given.attend(variant, split_kv=2))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("row", [3, 1 << 30])
def test_a_request_that_is_not_there(variant: str, row: int) -> None:
    given = beside_pages(scene([5, 40, 3], [1, 3, 1]))
    assert_marked(given.with_markers(2, request=row).attend(variant), [2], given.attend(variant))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("position", [64, 1 << 30, (1 << 31) - 1])
def test_a_position_beyond_the_table(variant: str, position: int) -> None:
    """The table has four columns of 16 keys."""
    given = beside_pages(scene([5, 40], [1, 3]))
    assert given.block_table.shape[1] == 4
    found = given.with_markers(3, position=position).attend(variant, window=30)
    assert_marked(found, [3], given.attend(variant, window=30))


@pytest.mark.parametrize(
    ("offsets", "max_tokens", "broken"),
    [
        ([0, 2, 5], 2, [4]),
        ([0, 2, 4], 3, [4]),
        ([0, 1, 5], 4, [1]),
        ([0, 0, 0], 3, [0, 1, 2, 3, 4]),
        ([0, 2, 900], 3, []),
    ],
)
def test_tokens_outside_their_rows_offsets(offsets: list[int], max_tokens: int, broken: list[int]) -> None:
    given = scene([20, 70], [2, 3])
    cut = replace(given, offsets=torch.tensor(offsets, dtype=torch.int32))
    guards, out, workspace = guarded(given, 2)
    for each in (workspace.parts, workspace.tops, workspace.totals):
        each.fill_(1.0)
    found = cut.attend("packed", split_kv=2, max_tokens=max_tokens, out=out, workspace=workspace)
    guards.check(unwritten=("o", "lse", "parts", "tops", "totals"))
    assert_marked(found, broken, given.attend("packed", split_kv=2, max_tokens=max_tokens))


# Offsets beyond 2^31.


def test_strides_beyond_int32(tmp_path: Path) -> None:
    """The second page, the third token and the third table row lie past 2^31 elements, in a file of holes."""
    stride, path = 1 << 30, tmp_path / "holes"
    path.touch()
    floats = torch.from_file(str(path), shared=True, size=2 * stride + (1 << 14), dtype=F32)
    integers = torch.from_file(str(path), shared=True, size=floats.numel(), dtype=torch.int32)
    plain = scene([0, 0, 19], [1, 1, 1], padding=0)

    def far(buffer: torch.Tensor, tensor: torch.Tensor, offset: int) -> torch.Tensor:
        inner = tensor[0].contiguous().stride()
        view = buffer.as_strided((3, *tensor.shape[1:]), (stride, *inner), offset)
        return view.copy_(tensor)

    pages = torch.tensor([[0, -1], [1, -1], [1, 2]], dtype=torch.int32)
    plain = replace(plain, k_cache=torch.randn(3, 16, 1, 16), v_cache=torch.randn(3, 16, 1, 16), block_table=pages)
    distant = replace(
        plain,
        q=far(floats, plain.q, 0),
        k_cache=far(floats, plain.k_cache, 1 << 10),
        v_cache=far(floats, plain.v_cache, 1 << 11),
        block_table=far(integers, pages, 1 << 12),
    )
    for variant in VARIANTS:
        assert same(distant.attend(variant), check(plain, variant))


# Arguments.


def int32(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


TOO_WIDE = (1 << 30) // 16 + 1


def caches(*shape: int) -> dict[str, torch.Tensor]:
    return {"k_cache": torch.zeros(shape), "v_cache": torch.zeros(shape)}


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({"q": torch.zeros(4, 2, 16, dtype=torch.float64)}, {}, "`q` must be of type float32, float16, bfloat16"),
        ({"q": torch.zeros(4, 32)}, {}, r"`q` must have shape \[any, any, any\]"),
        ({"q": torch.zeros(4, 2, 16, dtype=torch.float16)}, {}, "`k_cache` must be of type float16, got float32"),
        ({"q": torch.zeros(4, 2, 24)}, {}, r"`k_cache` must have shape \[any, any, any, 24\]"),
        ({"q": torch.zeros(4, 0, 16)}, {}, "`q` must be of a multiple of the cache's 1 heads, got 0"),
        ({"q": torch.zeros(4, 2, 20)[..., :16]}, {}, r"`q` must be strided by multiples of 16, got \(40, 20, 1\)"),
        ({"q": torch.zeros(4, 16, 2).mT}, {}, "`q` must be contiguous along its last axis"),
        ({"v_cache": torch.zeros(1, 16, 1, 16)}, {}, r"`v_cache` must have shape \[\d+, 16, 1, 16\]"),
        (caches(1, 8, 1, 16), {}, "`k_cache` must be of page size 16, 32 or 64, got 8"),
        (caches(1, 16, 3, 16), {}, "`q` must be of a multiple of the cache's 3 heads, got 2"),
        ({"block_table": torch.zeros(1, 2, dtype=torch.int64)}, {}, "`block_table` must be of type int32, got int64"),
        ({"block_table": torch.empty(1, TOO_WIDE, dtype=torch.int32)}, {}, "`block_table` must be for 1073741824 keys"),
        ({"request": int32(0)}, {}, r"`request` must have shape \[4\], got \[1\]"),
        ({"position": torch.zeros(4)}, {}, "`position` must be of type int32, got float32"),
        ({"offsets": int32(0, 1, 2)}, {}, r"`offsets` must have shape \[2\], got \[3\]"),
        ({"offsets": None}, {"variant": "packed"}, "`offsets` must be given to `packed`"),
        ({}, {"variant": "padded"}, "`variant` must be token or packed, got 'padded'"),
        ({}, {"window": 0}, "`window` must be 1 or more, or None for all keys, got 0"),
        ({}, {"split_kv": 0}, "`split_kv` must be 1 or more, got 0"),
        ({}, {"scale": 0.0}, "`scale` must be positive and finite, got 0.0"),
        ({}, {"scale": math.nan}, "`scale` must be positive and finite, got nan"),
        ({}, {"max_tokens": 18}, "`max_tokens` must be 1 to 17, got 18"),
        ({}, {"tiles": AttentionTiles(48)}, "`tiles.rows` must be 16, 32 or 64, got 48"),
        ({}, {"tiles": AttentionTiles(16, turn=16)}, "`tiles.turn` must be 32, 64 or 128, got 16"),
        ({}, {"workspace": AttentionWorkspace.allocate(2, 4, 2, 16)}, r"`workspace.parts` must have shape \[1, 4, 2"),
        ({}, {"out": Attention(torch.zeros(4, 2, 16), torch.zeros(2, 4).mT)}, "`out.lse` must be contiguous"),
    ],
)  # fmt: skip
def test_what_is_refused(change: dict[str, Any], options: dict[str, Any], message: str) -> None:
    given = scene([5], [2])
    names = ("q", "k_cache", "v_cache", "block_table", "request", "position", "offsets")
    arguments = {**{name: getattr(given, name) for name in names}, **change}
    with pytest.raises(KernelError, match=message):
        varlen_attention(**arguments, **options)


def test_the_reference_refuses_a_page_that_is_not_there() -> None:
    given = scene([20], [1])
    given.block_table[0, 1] = -1
    with pytest.raises(KernelError, match="`block_table` must name pages 0 to"):
        given.expected()


# Bytes and flops.


@pytest.mark.parametrize("window", [None, 10])
def test_work_counts_what_is_seen(window: int | None) -> None:
    """Pairs by brute force: one flop pair a component for q k^T, one for the sum of values."""
    tokens, contexts = [1, 4, 3], [0, 7, 50]
    sees = [
        [set(range(max(0, c + j + 1 - (window or 10**6)), c + j + 1)) for j in range(n)]
        for n, c in zip(tokens, contexts, strict=True)
    ]
    pairs = sum(len(each) for row in sees for each in row)
    shared = sum(len(set().union(*row)) for row in sees)
    sizes = {"query_heads": 8, "kv_heads": 2, "head_size": 64, "element_bytes": 2, "window": window}
    token = attention_work(tokens, contexts, variant="token", **sizes)
    packed = attention_work(tokens, contexts, variant="packed", **sizes)
    assert token.flops == packed.flops == 4 * 64 * 8 * pairs
    # A key and its value: two vectors for each key/value head; tables count per 64 keys and head.
    cached = 2 * 64 * 2 * 2
    tables = 4 * 2 * (-(-pairs // 64) - -(-shared // 64))
    assert token.read - packed.read == (pairs - shared) * cached + tables
    assert token.written == packed.written == 8 * 8 * (64 * 2 + 4)


def test_work_of_several_tiles_and_parts() -> None:
    """17 tokens of 8 heads take tiles of tokens 0-7, 8-15 and 16: each reads what its last token sees."""
    sizes = {"query_heads": 8, "kv_heads": 1, "head_size": 128, "element_bytes": 2, "split_kv": 4}
    one = attention_work([1], [99], **sizes)
    many = attention_work([17], [100], **sizes)
    keys = 108 + 116 + 117
    assert many.read == keys * 512 + 4 * 6 + 17 * 8 * 256 + 4 * (2 * 17 + 2)
    assert one.read == 100 * 512 + 4 * 2 + 8 * 256 + 4 * (2 + 2)
    assert many.between == 2 * 4 * 17 * 8 * 4 * 130
    assert many.bytes == many.read + many.written + many.between


def test_work_matches_the_design_floor() -> None:
    """64 rows of 4,096 keys, 8 key/value heads of 128, bf16: 1.07 GB, 250 us at 4.3 TB/s."""
    work = attention_work([6] * 64, [4090] * 64, query_heads=32, kv_heads=8, head_size=128, element_bytes=2)
    assert work.read / 4.3e12 == pytest.approx(250e-6, rel=0.01)


def test_shipped_configurations_name_the_arguments() -> None:
    for kernel in KERNELS:
        for configuration in kernel.configurations:
            assert {*configuration.signature, *configuration.constants} == set(kernel.function.arg_names)
