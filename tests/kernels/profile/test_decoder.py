"""The synthetic decoder: what runs on a CPU is what the lab's kernels compute, experts are those a loop would ask."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from specsched.kernels.attention_reference import varlen_attention_reference
from specsched.kernels.common import KernelError
from specsched.kernels.profile.decoder import Decoder, DecoderShape
from specsched.kernels.profile.decoder_attention import (
    HOST_BYTES,
    Batch,
    Pool,
    device_attention,
    host_attention,
    parts,
)
from specsched.kernels.profile.decoder_draft import Drafter, device_sample, host_sample
from specsched.kernels.profile.decoder_parts import Dense, Experts, Random
from tests.kernels.guards import relative_error

CPU = torch.device("cpu")
SMALL = DecoderShape(2, 32, 4, 2, 16, 48, 97, torch.float32, page=16)
MIXED = replace(SMALL, experts=5, active=2)


def pool(pages: int = 40, seed: int = 0) -> Pool:
    return Pool.make(pages, SMALL.page, SMALL.vocabulary, seed, CPU)


def decoder(shape: DecoderShape = SMALL, attend: object = host_attention, pages: int = 40) -> Decoder:
    return Decoder(shape, pages, attend, torch.Generator().manual_seed(1))  # type: ignore[arg-type]


def cache(pages: int = 40) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(2)
    return tuple(torch.randn(pages, 16, 2, 16, generator=generator) for _ in range(2))  # type: ignore[return-value]


@settings(max_examples=25, deadline=None)
@given(
    tokens=st.integers(1, 20),
    rows=st.integers(1, 6),
    context=st.integers(0, 40),
    empty=st.integers(0, 2),
    padding=st.integers(0, 5),
)
def test_host_attention_is_attention(tokens: int, rows: int, context: int, empty: int, padding: int) -> None:
    rows = min(rows, tokens)
    batch = pool().batch(tokens, rows, context, 20, tokens + padding, rows + empty)
    q = torch.randn(tokens + padding, 4, 16, generator=torch.Generator().manual_seed(3))
    keys, values = cache()
    markers = (batch.block_table, batch.request, batch.position)
    expected, _ = varlen_attention_reference(q, keys, values, *markers)
    assert relative_error(host_attention(q, keys, values, batch), expected) < 1e-6


def test_host_attention_in_several_turns_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = pool().batch(17, 5, 30, 8, 20, 6)
    q, (keys, values) = torch.randn(20, 4, 16), cache()
    whole = host_attention(q, keys, values, batch)
    assert HOST_BYTES > 6 * 3 * 16 * 2 * 16 * 4 * 2
    monkeypatch.setattr("specsched.kernels.profile.decoder_attention.HOST_BYTES", 1)
    assert relative_error(host_attention(q, keys, values, batch), whole.double()) < 1e-6


@pytest.mark.parametrize("shape", [SMALL, MIXED], ids=["dense", "experts"])
def test_a_step_on_the_cpu_is_a_step_through_the_kernel(shape: DecoderShape) -> None:
    """Same weights, same cache, same batch: logits agree, in whole and padded batches."""
    for form in ((11, 3, 20, 4, 11, 3), (9, 2, 33, 5, 16, 3)):
        batch = pool().batch(*form)
        plain = decoder(shape).step(batch)
        ours = decoder(shape, device_attention).step(batch)
        real = form[0]
        assert plain.shape == (form[4], shape.vocabulary)
        assert relative_error(ours[:real], plain[:real].double()) < 1e-5


def test_a_token_sees_what_came_before_it_alone() -> None:
    """Tokens of a block given one after the other, through the cache, are the block given at once."""
    whole, single = decoder(), decoder()
    block = pool().batch(3, 1, 10, 4)
    at_once = whole.step(block)
    for i in range(3):
        one = replace(
            block, tokens=block.tokens[i : i + 1], request=block.request[i : i + 1],
            position=block.position[i : i + 1], slots=block.slots[i : i + 1],
            offsets=torch.tensor([0, 1], dtype=torch.int32),
        )  # fmt: skip
        assert relative_error(single.step(one), at_once[i : i + 1].double()) < 1e-5


def by_the_book(model: Decoder, tokens: torch.Tensor) -> torch.Tensor:
    """Logits of a text of one row that begins with these tokens, in float64, without pages or markers."""
    shape, x = model.shape, model.embedding[tokens].double()
    ahead = torch.ones(len(tokens), len(tokens)).triu(1).bool()

    def norm(values: torch.Tensor) -> torch.Tensor:
        return values / (values.square().mean(-1, keepdim=True) + torch.finfo(torch.float32).eps).sqrt()

    for layer in model.layers:
        heads = (norm(x) @ layer.qkv.double().T).view(len(tokens), -1, shape.head_size).transpose(0, 1)
        q, k, v = heads.split([shape.query_heads, shape.kv_heads, shape.kv_heads])
        k, v = (each.repeat_interleave(shape.query_heads // shape.kv_heads, 0) for each in (k, v))
        scores = (q @ k.transpose(1, 2) / shape.head_size**0.5).masked_fill(ahead, -torch.inf)
        x = x + (scores.softmax(-1) @ v).transpose(0, 1).flatten(1) @ layer.out.double().T
        assert isinstance(layer.feed, Dense)
        gate, up = (norm(x) @ layer.feed.gate_up.double().T).chunk(2, 1)
        x = x + F.silu(gate) * up @ layer.feed.down.double().T
    return norm(x) @ model.head.double().T


def test_a_step_is_a_transformer() -> None:
    model, batch = decoder(), pool().batch(19, 1, 0, 19)
    assert relative_error(model.step(batch), by_the_book(model, batch.tokens)) < 1e-5


def test_padding_writes_to_the_first_page_alone() -> None:
    model = decoder()
    before = model.layers[0].keys.clone()
    batch = pool().batch(5, 2, 3, 4, 8, 2)
    model.step(batch)
    changed = (model.layers[0].keys != before).flatten(2).any(2)
    expected = torch.zeros_like(changed)
    expected.view(-1)[batch.slots] = True
    assert torch.equal(changed, expected)
    assert changed[0].sum() == 3


def test_weights_are_counted() -> None:
    for shape in (SMALL, MIXED):
        model = decoder(shape)
        tensors = [model.embedding, model.head]
        for layer in model.layers:
            tensors += [layer.qkv, layer.out, *(t for t in vars(layer.feed).values() if isinstance(t, torch.Tensor))]
        assert shape.weights == sum(each.numel() for each in tensors)
        assert shape.weight_bytes == 4 * shape.weights
        cached = sum(layer.keys.numel() + layer.values.numel() for layer in model.layers)
        assert shape.cache_bytes(40 * 16) == 4 * cached


def test_activations_keep_their_size() -> None:
    """Random weights neither blow up nor vanish: what is timed is arithmetic on ordinary numbers."""
    for shape in (SMALL, MIXED, replace(SMALL, layers=24)):
        logits = decoder(shape).step(pool().batch(30, 5, 20, 8))
        assert 0.5 < float(logits.std()) < 2


def test_equal_seeds_give_equal_models() -> None:
    batch = pool().batch(6, 2, 5, 4)
    assert torch.equal(decoder().step(batch), decoder().step(batch))
    assert not torch.equal(pool(seed=1).batch(6, 2, 5, 4).tokens, batch.tokens)


def looped(x: torch.Tensor, experts: Experts) -> torch.Tensor:
    """The mixture, token by token, in float64."""
    gate_up, down, router = experts.gate_up.double(), experts.down.double(), experts.router.double()
    out = torch.zeros(x.shape, dtype=torch.float64)
    for token, vector in enumerate(x.double()):
        likes = (router @ vector).softmax(0)
        best = likes.argsort(descending=True)[: experts.active]
        for expert in best.tolist():
            gate, up = (gate_up[expert] @ vector).chunk(2)
            out[token] += likes[expert] / likes[best].sum() * (down[expert] @ (F.silu(gate) * up))
    return out


@pytest.mark.parametrize("tokens", [1, 2, 33])
@pytest.mark.parametrize("active", [1, 3, 8])
def test_experts_are_those_the_router_likes(tokens: int, active: int) -> None:
    random = Random(torch.Generator().manual_seed(4), torch.float32)
    experts = Experts.make(8, active, 32, 16, 1.0, random)
    x = random.tensor(tokens, 32)
    assert relative_error(experts(x), looped(x, experts)) < 1e-5


def test_experts_nobody_likes_do_nothing() -> None:
    random = Random(torch.Generator().manual_seed(5), torch.float32)
    experts = Experts.make(4, 2, 16, 16, 1.0, random)
    experts.router[2:] = -100 * experts.router[:2].abs().sum(0)
    x = random.tensor(9, 16).abs()
    experts.down[2:] = torch.nan
    assert relative_error(experts(x), looped(x, experts)) < 1e-5


@pytest.mark.parametrize("form", [(1, 1), (3, 4), (5, 2)], ids=str)
def test_host_sampling_is_the_kernels(form: Sequence[int]) -> None:
    rows, gamma = form
    generator = torch.Generator().manual_seed(6)
    U, W1, W2T = (torch.randn(size, generator=generator) for size in ((rows, gamma, 97), (97, 16), (97, 16)))
    uniforms = torch.rand(rows, gamma, generator=generator)
    heat = 0.5 + torch.rand(rows, generator=generator)
    given = (U, W1, W2T / 4, torch.randint(97, (rows,), generator=generator), heat, uniforms)
    assert torch.equal(host_sample(*given), device_sample(*given))


def test_a_uniform_near_one_stays_in_the_vocabulary() -> None:
    last = torch.nextafter(torch.tensor(1.0), torch.tensor(0.0)).expand(1, 1)
    zeros = torch.zeros(97, 16)
    tokens = host_sample(torch.zeros(1, 1, 97), zeros, zeros, torch.tensor([0]), torch.ones(1), last)
    assert tokens.tolist() == [[96]]


def test_a_uniform_of_zero_does_not_draw_the_impossible() -> None:
    U, zeros = torch.zeros(1, 1, 97), torch.zeros(97, 16)
    U[..., :5] = -torch.inf
    given = (U, zeros, zeros, torch.tensor([0]), torch.ones(1), torch.zeros(1, 1))
    assert host_sample(*given).tolist() == device_sample(*given).tolist() == [[5]]


def test_a_block_is_drafted_for_every_row() -> None:
    drafters = [
        Drafter.make(decoder(attend=attend), 16, sample, torch.Generator().manual_seed(7))
        for attend, sample in ((host_attention, host_sample), (device_attention, device_sample))
    ]
    batch = pool().batch(3 * 4, 3, 20, 4)
    uniforms = torch.rand(3, 4, generator=torch.Generator().manual_seed(8))
    plain, ours = (drafter.block(batch, uniforms, torch.ones(3)) for drafter in drafters)
    assert torch.equal(plain, ours)
    assert plain.shape == (3, 4)
    first = drafters[0]
    logits, anchors = first.backbone.step(batch).view(3, 4, -1), batch.tokens[::4]
    expected = host_sample(logits, first.W1, first.W2T, anchors, torch.ones(3), uniforms)
    assert torch.equal(plain, expected)


def test_rows_own_their_pages() -> None:
    batch = pool().batch(10, 4, 30, 4)
    pages = batch.block_table.flatten().tolist()
    assert len(set(pages)) == len(pages) == 4 * 3
    assert 0 not in pages
    assert pages != sorted(pages)
    assert batch.offsets.tolist() == [0, 3, 6, 8, 10]
    assert batch.position.tolist() == [30, 31, 32] * 2 + [30, 31] * 2
    assert batch.slots.tolist() == [
        int(batch.block_table[row, place // 16]) * 16 + place % 16
        for row, place in zip(batch.request.tolist(), batch.position.tolist(), strict=True)
    ]


def test_a_padded_batch_fills_the_form_of_another() -> None:
    """As a captured graph needs it: the same tensors, other contents."""
    form = pool().batch(16, 2, 30, 8)
    fewer = pool().batch(9, 2, 30, 8, size=16, table=2)
    kept = form.tokens.data_ptr()
    form.load(fewer)
    assert form.tokens.data_ptr() == kept
    assert form.request.tolist() == [0] * 5 + [1] * 4 + [-1] * 7
    assert form.position[9:].tolist() == [-1] * 7
    assert torch.equal(form.slots, fewer.slots)


def test_batches_that_do_not_fit_are_refused() -> None:
    with pytest.raises(KernelError, match=r"`max_tokens` must be at least 5 for 9 tokens in 2 rows"):
        pool().batch(9, 2, 0, 4)
    with pytest.raises(KernelError, match=r"14 rows of 3 pages do not fit into a pool of 39; make a larger pool"):
        pool().batch(14, 14, 40, 8)


def test_shapes_that_make_no_decoder_are_refused() -> None:
    with pytest.raises(KernelError, match=r"`query_heads` must be a multiple of `kv_heads` \(3\), got 4"):
        replace(SMALL, kv_heads=3)
    for active, experts in ((3, 2), (0, 2), (1, 0)):
        with pytest.raises(KernelError, match=r"`active` must be 1 to `experts`"):
            replace(SMALL, active=active, experts=experts)


def test_parts_fill_the_device() -> None:
    assert parts(8, 1024) == 4
    assert parts(8, 16384) == 16
    assert parts(132, 16384) == 2
    assert parts(2048, 1024) == 1
    assert parts(1, 100) == 1


def test_a_batch_knows_its_rows() -> None:
    batch: Batch = pool().batch(3, 2, 5, 4, 8, 4)
    assert (batch.rows, batch.context, batch.max_tokens) == (4, 5, 4)
