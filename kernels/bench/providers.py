"""Who computes: the lab, torch eager and compiled, FlashInfer, flash-attn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch

from ..common import tiles
from .cases import Case, Run, Tensors
from .cases_attention import CHUNK, AttentionCase
from .cases_draft import ConfidenceCase, MarkovCase, RnnCase
from .cases_step import AdmitCase, LayoutCase, VerifyCase
from .shapes import Shape

PROVIDERS = ("ours", "torch", "compile", "flashinfer", "flash-attn")

_CASES: dict[str, Callable[[Shape], Case]] = {
    "markov": MarkovCase,
    "rnn": RnnCase,
    "confidence": ConfidenceCase,
    "attention": AttentionCase,
    "verify": VerifyCase,
}


class Unavailable(Exception):
    """A provider cannot take a case on this machine; the message names what is missing."""


def case_of(shape: Shape) -> Case:
    """Return the case of a shape."""
    if shape.op == "admit":
        return LayoutCase(shape) if shape.choice == "layout" else AdmitCase(shape)
    return _CASES[shape.op](shape)


def bind(provider: str, case: Case, given: Tensors) -> Run:
    """Return a provider's call for inputs like those given, whose values may differ but for tables and counts.

    Raises:
        Unavailable: naming what is missing.
    """
    device = next(iter(given.values())).device
    if provider == "ours":
        return case.ours(device)
    if provider == "torch":
        return case.eager
    # Before anybody looks for packages: what cannot run here is not a missing package.
    if device.type == "cpu":
        raise Unavailable("needs a GPU")
    if provider == "compile":
        # Each shape is compiled for itself: torch would else try sizes as variables, and give up after eight.
        torch.compiler.reset()
        return torch.compile(case.eager, dynamic=False)
    if not isinstance(case, AttentionCase):
        raise Unavailable(f"{provider} has no call of this kind whose result could be compared")
    with _named(provider):
        return _flashinfer(case, given) if provider == "flashinfer" else _flash_attn(case, given)


@contextmanager
def _named(provider: str) -> Iterator[None]:
    """Turn the failure of somebody else's package into the reason why it is unavailable."""
    try:
        yield
    except Unavailable:
        raise
    except Exception as error:
        raise Unavailable(f"{provider} failed: {type(error).__name__}: {first_line(error)}") from error


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message."""
    return (str(error).splitlines() or [""])[0]


def _module(name: str) -> Any:
    # Looked for, not imported and caught: a package that is there and fails is reported as that.
    if find_spec(name) is None:
        raise Unavailable(f"the package {name} is not installed")
    return import_module(name)


def _flashinfer(case: AttentionCase, given: Tensors) -> Run:
    """Return FlashInfer's paged prefill, planned outside of what is timed.

    https://docs.flashinfer.ai/api/attention.html
    """
    package = _module("flashinfer")
    shape, device = case.shape, given["q"].device
    page, table = shape["page"], given["block_table"]
    keys = [context + tokens for context, tokens in zip(case.contexts, case.tokens, strict=True)]
    used = [tiles(each, page) for each in keys]
    starts = torch.nn.functional.pad(torch.tensor(used).cumsum(0), (1, 0)).int().to(device)
    pages = torch.cat([table[row, :count] for row, count in enumerate(used)])
    # 1 to page: a full last page is a page, not 0.
    last = torch.tensor([(each - 1) % page + 1 for each in keys], dtype=torch.int32, device=device)
    room = torch.empty(256 << 20, dtype=torch.uint8, device=device)
    wrapper = package.BatchPrefillWithPagedKVCacheWrapper(room, "NHD")
    wrapper.plan(
        given["offsets"], starts, pages, last, shape["HQ"], shape["HKV"], shape["D"], page, causal=True,
        q_data_type=shape.torch_dtype, kv_data_type=shape.torch_dtype,
    )  # fmt: skip
    return lambda each: {"o": wrapper.run(each["q"], (each["k_cache"], each["v_cache"]))}


def _flash_attn(case: AttentionCase, given: Tensors) -> Run:
    """Return flash-attn 2's attention over a cache, the same memory seen in pages of 256, which it wants."""
    package = _module("flash_attn")
    if case.shape["ragged"]:
        raise Unavailable("flash-attn 2 wants as many tokens of each row")
    rows, tokens = case.shape["R"], case.shape["T"]
    pages = CHUNK // case.shape["page"]
    # Pages of a chunk follow each other, so the first one's number tells the chunk's.
    table = (given["block_table"][:, ::pages] // pages).contiguous()
    lengths = (given["position"].view(rows, tokens)[:, -1] + 1).contiguous()

    def run(each: Tensors) -> Tensors:
        cache = [each[name].view(-1, CHUNK, *each[name].shape[2:]) for name in ("k_cache", "v_cache")]
        found = package.flash_attn_with_kvcache(
            each["q"].view(rows, tokens, *each["q"].shape[1:]), *cache,
            cache_seqlens=lengths, block_table=table, causal=True,
        )  # fmt: skip
        return {"o": found.flatten(0, 1)}

    return run
