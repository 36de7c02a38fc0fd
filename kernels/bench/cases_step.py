"""Problems of a step's two ends: admission and layout, verification."""

from __future__ import annotations

import torch

from ..admit import Admission, Layout, admit, layout
from ..admit_reference import admit_reference, layout_reference
from ..verify import Verified, VerifyWorkspace, verify_chain
from ..verify_reference import verify_chain_reference
from .cases import (
    CLEAR,
    Case,
    Run,
    Tensors,
    Verdict,
    draw_from,
    generator,
    named_rows,
    peaked,
    poisoned,
    some_rows,
    temperatures,
    unequal,
)
from .roofline import Work, admit_work, layout_work, verify_work
from .shapes import Shape

LAST = 1 - 2**-24
"""The greatest uniform."""

JUDGED_ROWS = 33
"""Rows that the float64 reference of verification takes."""


class AdmitCase(Case):
    """Admission of the best K drafts of a batch."""

    def work(self) -> Work:
        """Return the work of an admission."""
        return admit_work(self.shape["R"], self.shape["g"])

    def inputs(self, device: torch.device) -> Tensors:
        """Return survivals on a grid of 64 values, so that ties abound, and the budget."""
        draw = generator(device)
        c = torch.rand(self.shape["R"], self.shape["g"], generator=draw, device=device)
        return {
            # Rounded down after the product, which keeps survivals from rising along a row.
            "a": (c.cumprod(1) * 64).floor() / 64,
            "budget": torch.tensor([self.shape["K"]], device=device),
        }

    def ours(self, device: torch.device) -> Run:
        """Return `admit`."""
        rows = self.shape["R"]
        out = Admission(*(poisoned(size, dtype=torch.int32, device=device) for size in (rows, rows + 1)))

        def run(given: Tensors) -> Tensors:
            admit(given["a"], given["budget"], out=out)
            return dict(vars(out))

        return run

    def eager(self, given: Tensors) -> Tensors:
        """Return lengths and offsets from a stable sort, position by position."""
        a = given["a"]
        # Position by position: among equals a stable sort then leaves position before row, which is the rule.
        order = a.T.flatten().sort(descending=True, stable=True).indices
        rank = torch.empty_like(order).scatter_(0, order, torch.arange(a.numel(), device=a.device))
        lengths = (rank < given["budget"]).view(a.shape[1], a.shape[0]).sum(0)
        return {"lengths": lengths, "offsets": torch.nn.functional.pad((1 + lengths).cumsum(0), (1, 0))}

    def compare(self, given: Tensors, found: Tensors) -> Verdict:
        """Judge lengths and offsets."""
        return unequal(found, dict(vars(admit_reference(given["a"].cpu(), self.shape["K"]))))


class LayoutCase(Case):
    """Layout of an admitted batch."""

    def work(self) -> Work:
        """Return the work of a layout."""
        return layout_work(self.shape["R"], self.shape["B"])

    def inputs(self, device: torch.device) -> Tensors:
        """Return lengths that nearly fill the batch, and contexts."""
        rows, batch = self.shape["R"], self.shape["B"]
        draw = generator(device)
        # A few places stay empty, so that there is padding to get wrong.
        drafts = batch - rows - min(7, batch - rows)
        owners = torch.randint(0, rows, (drafts,), generator=draw, device=device)
        return {
            "lengths": torch.bincount(owners, minlength=rows).int(),
            "context": torch.randint(0, 4096, (rows,), generator=draw, device=device).int(),
        }

    def ours(self, device: torch.device) -> Run:
        """Return `layout`."""
        batch = self.shape["B"]
        request, position = (poisoned(batch, dtype=torch.int32, device=device) for _ in range(2))
        out = Layout(request, position, poisoned(1, dtype=torch.int64, device=device))

        def run(given: Tensors) -> Tensors:
            layout(given["lengths"], given["context"], batch, out=out)
            return dict(vars(out))

        return run

    def eager(self, given: Tensors) -> Tensors:
        """Return both by a search in the rows' ends."""
        lengths, batch = given["lengths"], self.shape["B"]
        ends = (1 + lengths).cumsum(0)
        tokens = torch.arange(batch, device=lengths.device)
        owner = torch.searchsorted(ends, tokens, right=True)
        # Padding has no owner; it borrows the last row's numbers and is overwritten.
        row = owner.clamp(max=len(lengths) - 1)
        place = given["context"][row] + tokens - (ends[row] - 1 - lengths[row])
        real = tokens < ends[-1]
        overflow = (ends[-1:] - batch).clamp(min=0)
        return {
            "request": torch.where(real, owner, -1),
            "position": torch.where(real, place, -1),
            "overflow": overflow,
        }

    def compare(self, given: Tensors, found: Tensors) -> Verdict:
        """Judge rows, positions and overflow."""
        expected = layout_reference(given["lengths"].cpu(), given["context"].cpu(), self.shape["B"])
        return unequal(found, dict(vars(expected)))


class VerifyCase(Case):
    """Rejection sampling of a flattened batch, of which a given number of rows reject their last draft."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        gamma = self.shape["g"]
        ragged = [1 + row % gamma for row in range(self.shape["R"])]
        # The last row of a ragged batch verifies nothing.
        self.lengths = [*ragged[:-1], 0] if self.shape["ragged"] else [gamma] * self.shape["R"]
        self.batch = sum(self.lengths) + self.shape["R"]

    def work(self) -> Work:
        """Return the work of a verification in which that many rows reject."""
        return verify_work(self.batch, self.shape["rejecting"], self.shape["V"], self.shape.torch_dtype.itemsize)

    def inputs(self, device: torch.device) -> Tensors:
        """Return peaked target logits and draft logits that differ from them by half a unit.

        The uniforms of acceptance are 0, which accepts anything, but for the last draft of the rows that reject: that
        is the token that the drafter overrates most, and its uniform the greatest there is.
        """
        draw = generator(device)
        lengths = torch.tensor(self.lengths, device=device)
        offsets = torch.nn.functional.pad((1 + lengths).cumsum(0), (1, 0))
        target = peaked(self.batch, self.shape["V"], dtype=self.shape.torch_dtype, draw=draw)
        rows = self.shape["R"]
        uniforms = torch.rand(2, rows, generator=draw, device=device)
        given = {
            "target_logits": target,
            "lengths": lengths.int(),
            "offsets": offsets.int(),
            "temperature": temperatures(rows, device),
            "residual": uniforms[0],
            "bonus": uniforms[1],
        }
        return given | self._drafts(given, draw)

    def _drafts(self, given: Tensors, draw: torch.Generator) -> Tensors:
        """Return drafts, their laws and the uniforms that accept them or not."""
        target, heat, device = given["target_logits"], given["temperature"], draw.device
        rows, gamma, vocabulary = (self.shape[name] for name in ("R", "g", "V"))
        judged = (given["offsets"][:-1, None] + torch.arange(gamma, device=device)).clamp(max=self.batch - 1)
        noise = 0.5 * torch.randn(rows, gamma, vocabulary, generator=draw, device=device)
        logits = (target[judged].float() + noise).to(target.dtype)
        # Of the rounded logits: a draft must come from the law that verification is given, or the output is biased.
        law = (logits.float() / heat[:, None, None]).softmax(2)
        tokens = torch.multinomial(law.flatten(0, 1), 1, generator=draw).view(rows, gamma)
        accept = torch.zeros(rows, gamma, device=device)
        for row in range(self.shape["rejecting"]):
            last = self.lengths[row] - 1
            # Where p_d is above p_t the ratio is below 1, and the greatest uniform rejects for sure.
            overrated = law[row, last] - (target[judged[row, last]].float() / heat[row]).softmax(0)
            tokens[row, last] = overrated.argmax()
            accept[row, last] = LAST
        return {
            "draft_tokens": tokens.int(),
            "p_draft": law.gather(2, tokens[:, :, None])[:, :, 0],
            "draft_logits": logits,
            "accept": accept,
        }

    def ours(self, device: torch.device) -> Run:
        """Return `verify_chain`."""
        rows, gamma, vocabulary = (self.shape[name] for name in ("R", "g", "V"))
        sizes = ((rows,), (rows,), (rows, gamma + 1))
        out = Verified(*(poisoned(*size, dtype=torch.int32, device=device) for size in sizes))
        space = VerifyWorkspace.allocate(rows, gamma, vocabulary, device)

        def run(given: Tensors) -> Tensors:
            verify_chain(
                given["target_logits"], given["draft_tokens"], given["p_draft"], given["draft_logits"],
                given["lengths"], given["offsets"], given["temperature"], given["accept"], given["residual"],
                given["bonus"], out=out, workspace=space,
            )  # fmt: skip
            return {"n_accepted": out.n_accepted, "next_token": out.next_token}

        return run

    def eager(self, given: Tensors) -> Tensors:
        """Return both from laws that are written down, rows padded to one length."""
        rows, gamma = given["draft_tokens"].shape
        device, lengths = given["lengths"].device, given["lengths"]
        index = given["offsets"][:-1, None] + torch.arange(gamma + 1, device=device)
        heat = given["temperature"][:, None, None]
        target = (given["target_logits"][index.clamp(max=self.batch - 1)].float() / heat).softmax(2)
        draft = (given["draft_logits"].float() / heat).softmax(2)
        tokens = given["draft_tokens"].long()[:, :, None]
        ratio = (target[:, :-1].gather(2, tokens) / draft.gather(2, tokens))[:, :, 0]
        kept = (given["accept"] < ratio) & (torch.arange(gamma, device=device) < lengths[:, None])
        # Leading ones: the first rejection ends a row, whatever the uniforms behind it say.
        count = kept.int().cumprod(1).sum(1)
        row = torch.arange(rows, device=device)
        bonus = target[row, count]
        # Rows that kept all have no draft in that place; their clamped one is not used.
        over = (bonus - draft[row, count.clamp(max=gamma - 1)]).clamp(min=0)
        ended = count == lengths
        law = torch.where(ended[:, None], bonus, over)
        token = draw_from(law, torch.where(ended, given["bonus"], given["residual"]))
        return {"n_accepted": count, "next_token": token}

    def compare(self, given: Tensors, found: Tensors) -> Verdict:
        """Judge counts and tokens of rows whose uniforms are clear of every breakpoint."""
        rows = self.shape["R"]
        chosen = some_rows(rows, JUDGED_ROWS)
        expected = self.once(lambda: self._reference(given, chosen))
        mine = {name: value[chosen.to(value.device)].cpu().long() for name, value in found.items()}
        known = (mine["next_token"] >= 0) & (mine["next_token"] < self.shape["V"])
        must = ~known | (expected["gap"] >= CLEAR)
        same = (mine["n_accepted"] == expected["n_accepted"]) & (mine["next_token"] == expected["next_token"])
        return Verdict(None, int((must & ~same).sum()), int(must.sum()), len(chosen), named_rows(chosen, rows))

    def _reference(self, given: Tensors, chosen: torch.Tensor) -> Tensors:
        """Return what some rows should give, from a batch of theirs alone."""
        offsets = given["offsets"].cpu().long()
        owned = torch.cat([torch.arange(int(offsets[row]), int(offsets[row + 1])) for row in chosen])
        flat, device = {"target_logits": owned}, given["offsets"].device
        # Logits go by token of the flattened batch, everything else by row.
        part = {
            name: value[flat.get(name, chosen).to(device)].cpu() for name, value in given.items() if name != "offsets"
        }
        starts = torch.nn.functional.pad((1 + part["lengths"].long()).cumsum(0), (1, 0))
        return dict(vars(verify_chain_reference(offsets=starts, **part)))

    def memory(self) -> int:
        """Return inputs, and float32 laws of target, draft and last token with their intermediate results."""
        laws = self.shape["R"] * self.shape["V"] * (2 * self.shape["g"] + 4)
        return 2 * self.work().bytes + 4 * 3 * laws
