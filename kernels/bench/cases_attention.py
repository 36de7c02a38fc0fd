"""Problems of attention: the tokens of a step over a paged cache."""

from __future__ import annotations

from dataclasses import replace

import torch

from ..attention import Attention, AttentionTiles, AttentionWorkspace, varlen_attention
from ..attention_reference import varlen_attention_reference
from ..attention_work import attention_work
from ..common import tiles
from .cases import Case, Run, Tensors, Verdict, generator, named_rows, poisoned, some_rows, worst
from .roofline import Work
from .shapes import Shape

JUDGED_KEYS = 20_000
"""Pairs of token and key that the float64 reference goes through, one token after the other."""

CHUNK = 256
"""Keys that lie side by side in the cache, so that the same memory can be read in pages of up to so many."""


class AttentionCase(Case):
    """Attention of ``T`` tokens a row over a context of so many keys; `Shape.choice` is the variant."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        rows, most = range(shape["R"]), shape["T"]
        self.tokens = [1 + row % most if shape["ragged"] else most for row in rows]
        # 7 divides neither pages nor steps of keys, so that rows of a ragged batch end anywhere in them.
        self.contexts = [shape["context"] - (7 * row if shape["ragged"] else 0) for row in rows]
        self.chunks = tiles(shape["context"] + most, CHUNK)

    def work(self) -> Work:
        """Return the work of the variant: all that it reads, if nothing is cached, and writes."""
        found = attention_work(
            self.tokens, self.contexts, query_heads=self.shape["HQ"], kv_heads=self.shape["HKV"],
            head_size=self.shape["D"], element_bytes=self.shape.torch_dtype.itemsize, variant=str(self.shape.choice),
            page_size=self.shape["page"], row_tile=self._tiles().rows,
        )  # fmt: skip
        # What passes between the two kernels is this way of cutting's own, and no floor.
        return Work(found.read + found.written, found.flops)

    def _tiles(self) -> AttentionTiles:
        tokens = self.shape["T"] if self.shape.choice == "packed" else 1
        return AttentionTiles.choose(self.shape["HQ"] // self.shape["HKV"], tokens)

    def inputs(self, device: torch.device) -> Tensors:
        """Return normal queries, keys and values; chunks of a row's pages lie anywhere in the cache."""
        draw, dtype = generator(device), self.shape.torch_dtype
        rows, page = self.shape["R"], self.shape["page"]
        pages = CHUNK // page
        # Pages lie as an allocator leaves them, but those of a chunk side by side: rivals see the same memory in larger
        # pages.
        order = torch.randperm(rows * self.chunks, generator=draw, device=device).view(rows, self.chunks, 1)
        table = (order * pages + torch.arange(pages, device=device)).view(rows, -1).int()
        cache = (table.numel(), page, self.shape["HKV"], self.shape["D"])
        counts = torch.tensor(self.tokens, device=device)
        request = torch.arange(rows, device=device).repeat_interleave(counts)
        offsets = torch.nn.functional.pad(counts.cumsum(0), (1, 0))
        place = torch.arange(len(request), device=device) - offsets[request]
        return {
            "q": torch.randn(len(request), self.shape["HQ"], cache[3], dtype=dtype, generator=draw, device=device),
            "k_cache": torch.randn(*cache, dtype=dtype, generator=draw, device=device),
            "v_cache": torch.randn(*cache, dtype=dtype, generator=draw, device=device),
            "block_table": table,
            "request": request.int(),
            "position": (torch.tensor(self.contexts, device=device)[request] + place).int(),
            "offsets": offsets.int(),
        }

    def ours(self, device: torch.device) -> Run:
        """Return `varlen_attention`."""
        batch, heads, split = sum(self.tokens), self.shape["HQ"], self.shape["split"]
        size = batch, heads, self.shape["D"]
        lse = poisoned(batch, heads, device=device)
        out = Attention(poisoned(*size, dtype=self.shape.torch_dtype, device=device), lse)
        space = AttentionWorkspace.allocate(split, *size, device)

        def run(given: Tensors) -> Tensors:
            varlen_attention(
                given["q"], given["k_cache"], given["v_cache"], given["block_table"], given["request"],
                given["position"], given["offsets"], split_kv=split, variant=str(self.shape.choice),
                max_tokens=self.shape["T"], tiles=self._tiles(), workspace=space, out=out,
            )  # fmt: skip
            return out._asdict()

        return run

    def eager(self, given: Tensors) -> Tensors:
        """Return outputs of scaled_dot_product_attention over gathered pages, rows padded to one number of tokens."""
        table, request = given["block_table"].long(), given["request"].long()
        rows, tokens = len(table), torch.arange(self.shape["T"], device=table.device)
        offsets = given["offsets"].long()
        # Rows with fewer tokens are padded with the batch's last ones, whose results are not read.
        index = (offsets[:-1, None] + tokens).clamp(max=len(request) - 1)
        k, v = (given[name][table].flatten(1, 2).transpose(1, 2) for name in ("k_cache", "v_cache"))
        keys = torch.arange(k.shape[2], device=table.device)
        mask = keys <= given["position"][index][:, :, None]
        found = torch.nn.functional.scaled_dot_product_attention(
            given["q"][index].transpose(1, 2), k, v, mask.view(rows, 1, len(tokens), len(keys)), enable_gqa=True
        )
        place = torch.arange(len(request), device=table.device) - offsets[request]
        return {"o": found.transpose(1, 2)[request, place]}

    def compare(self, given: Tensors, found: Tensors) -> Verdict:
        """Judge outputs and log-sum-exp of all tokens of some rows."""
        rows = self.shape["R"]
        # Two at least, the first and the last: offsets go wrong at the far end of a batch.
        chosen = some_rows(rows, max(2, JUDGED_KEYS // (self.shape["T"] * self.shape["context"])))
        tokens = torch.isin(given["request"].cpu(), chosen).nonzero()[:, 0]
        expected = self.once(lambda: self._reference(given, chosen, tokens))
        mine = {name: value[tokens.to(value.device)].cpu() for name, value in found.items()}
        return Verdict(worst(mine, expected), rows=named_rows(chosen, rows))

    def _reference(self, given: Tensors, chosen: torch.Tensor, tokens: torch.Tensor) -> Tensors:
        """Return outputs and log-sum-exp of the tokens of some rows, from a cache of theirs alone."""
        device = given["q"].device
        pages = given["block_table"][chosen.to(device)].cpu()
        k, v = (given[name][pages.flatten().to(device)].cpu() for name in ("k_cache", "v_cache"))
        # The judged rows' pages alone come to the CPU, under new numbers: the cache may fill a GPU.
        renumbered = torch.arange(pages.numel(), dtype=torch.int32).view(pages.shape)
        q, position = (given[name][tokens.to(device)].cpu() for name in ("q", "position"))
        owner = torch.searchsorted(chosen, given["request"][tokens.to(device)].cpu().long()).int()
        o, lse = varlen_attention_reference(q, k, v, renumbered, owner, position)
        return {"o": o, "lse": lse}

    def others(self) -> Shape:
        """Return the shape without variant and parts."""
        sizes = {name: size for name, size in self.shape.sizes.items() if name != "split"}
        return replace(self.shape, sizes=sizes, choice=None)

    def config(self, provider: str) -> str:
        """Return the tiles of the lab's kernel."""
        return f"tile rows {self._tiles().rows}" if provider == "ours" else ""

    def memory(self) -> int:
        """Return the cache, its gathered copy and what may be converted of it."""
        chunk = CHUNK * self.shape["HKV"] * self.shape["D"]
        return 2 * self.shape["R"] * self.chunks * chunk * (3 * self.shape.torch_dtype.itemsize + 4)
