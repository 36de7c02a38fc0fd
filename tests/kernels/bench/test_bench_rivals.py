"""How other packages are called: stand-ins that attend by their documented rules must agree with the lab's float64."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import pytest
import torch

from specsched.kernels.bench import providers
from specsched.kernels.bench.cases import Tensors
from specsched.kernels.bench.cases_attention import CHUNK, AttentionCase
from specsched.kernels.bench.providers import Unavailable
from specsched.kernels.bench.shapes import Shape

CPU = torch.device("cpu")
SIZES = {"R": 3, "T": 3, "context": 300, "HQ": 4, "HKV": 2, "D": 16, "page": 64, "split": 1}
EQUAL = Shape("attention", SIZES | {"ragged": 0}, "fp32", "packed")
RAGGED = Shape("attention", SIZES | {"ragged": 1}, "fp32", "packed")


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """The last tokens ``[T, HQ, D]`` of a row over all its keys ``[N, HKV, D]``, causal from the end."""
    group = q.shape[1] // k.shape[1]
    k, v = (each.repeat_interleave(group, 1) for each in (k, v))
    scores = torch.einsum("thd,nhd->htn", q, k) / q.shape[2] ** 0.5
    ahead = torch.ones(len(q), len(k), dtype=torch.bool).triu(len(k) - len(q) + 1)
    return torch.einsum("htn,nhd->thd", scores.masked_fill(ahead, -torch.inf).softmax(2), v)


def flash_attn_with_kvcache(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    *,
    cache_seqlens: torch.Tensor,
    block_table: torch.Tensor,
    causal: bool,
) -> torch.Tensor:
    """By flash-attn 2's rules: pages of a multiple of 256, int32 tables, as many tokens a row."""
    assert causal
    assert k_cache.shape[1] % 256 == 0
    assert block_table.dtype == cache_seqlens.dtype == torch.int32
    rows = []
    for row, length in enumerate(cache_seqlens.tolist()):
        k, v = (cache[block_table[row].long()].flatten(0, 1)[:length] for cache in (k_cache, v_cache))
        rows.append(attend(q[row], k, v))
    return torch.stack(rows)


class Wrapper:
    """By FlashInfer's rules: pages of a row at ``indices[indptr[r] : indptr[r + 1]]``, the last one partly full."""

    def __init__(self, room: torch.Tensor, layout: str) -> None:
        assert (room.dtype, layout) == (torch.uint8, "NHD")

    def plan(self, *arguments: Any, causal: bool, q_data_type: torch.dtype, kv_data_type: torch.dtype) -> None:
        self.starts, self.indptr, self.indices, self.last, *sizes = arguments
        assert causal
        assert q_data_type == kv_data_type == torch.float32
        assert sizes == [4, 2, 16, 64]
        assert {each.dtype for each in arguments[:4]} == {torch.int32}

    def run(self, q: torch.Tensor, cache: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        rows = []
        for row, last in enumerate(self.last.tolist()):
            pages = self.indices[self.indptr[row] : self.indptr[row + 1]].long()
            keys = (len(pages) - 1) * cache[0].shape[1] + last
            k, v = (each[pages].flatten(0, 1)[:keys] for each in cache)
            rows.append(attend(q[self.starts[row] : self.starts[row + 1]], k, v))
        return torch.cat(rows)


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, member in (("flashinfer", Wrapper), ("flash_attn", flash_attn_with_kvcache)):
        module = ModuleType(name)
        module.__spec__ = ModuleSpec(name, None)
        setattr(module, "BatchPrefillWithPagedKVCacheWrapper" if name == "flashinfer" else member.__name__, member)
        monkeypatch.setitem(sys.modules, name, module)
    # The room that FlashInfer asks for is large.
    empty = torch.empty
    monkeypatch.setattr(
        providers.torch, "empty", lambda *size, **kind: empty(1 if size == (256 << 20,) else size, **kind)
    )


@pytest.mark.parametrize("shape", [EQUAL, RAGGED], ids=["equal", "ragged"])
def test_flashinfer_is_asked_the_same(shape: Shape) -> None:
    case = AttentionCase(shape)
    given = case.inputs(CPU)
    assert case.compare(given, providers._flashinfer(case, given)(given)).problem("fp32") is None


def test_flash_attn_is_asked_the_same() -> None:
    case = AttentionCase(EQUAL)
    given = case.inputs(CPU)
    assert case.chunks == 2
    assert given["block_table"].shape == (3, 2 * CHUNK // 64)
    assert case.compare(given, providers._flash_attn(case, given)(given)).problem("fp32") is None


def test_flash_attn_takes_no_ragged_batch() -> None:
    case = AttentionCase(RAGGED)
    with pytest.raises(Unavailable, match="as many tokens of each row"):
        providers._flash_attn(case, case.inputs(CPU))


def test_the_failure_of_a_package_is_its_absence(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> Tensors:
        raise OSError("libcudart.so.99: cannot open\nmore")

    monkeypatch.setattr(Wrapper, "plan", broken)
    case = AttentionCase(EQUAL)
    with (
        pytest.raises(Unavailable, match=r"flashinfer failed: OSError: libcudart\.so\.99: cannot open$"),
        providers._named("flashinfer"),
    ):
        providers._flashinfer(case, case.inputs(CPU))
