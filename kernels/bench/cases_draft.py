"""Problems of drafting: the Markov head, the RNN head's cell, confidences."""

from __future__ import annotations

import torch

from ..confidence import Confidence, confidence
from ..confidence_reference import confidence_reference
from ..markov import DraftBlock, MarkovWorkspace, draft_block
from ..markov_reference import draft_block_reference
from ..rnn import RnnStep, RnnWeights, rnn_step
from ..rnn_reference import rnn_step_reference
from .cases import (
    CLEAR,
    SEED,
    Case,
    Run,
    Tensors,
    Verdict,
    draw_from,
    generator,
    named_rows,
    peaked,
    poisoned,
    product,
    some_rows,
    temperatures,
    worst,
)
from .roofline import Work, confidence_work, markov_work, rnn_work

OTHER_TOKENS = "other_tokens"
"""Tokens drawn with another noise than the reference's, of which only the range can be judged."""

JUDGED_LOGITS = 1 << 22
"""Logits of a position that the float64 reference of a draft computes."""


class MarkovCase(Case):
    """A draft block of the Markov head (Eq. 4, 5); `Shape.choice` is the method."""

    def work(self) -> Work:
        """Return the work of all positions."""
        each = markov_work(self.shape["R"], self.shape["V"], self.shape["r"], self.shape.torch_dtype.itemsize)
        # W2 passes once more for every position, which can only begin when the token before it is drawn.
        return Work(self.shape["g"] * each.bytes, self.shape["g"] * each.flops)

    def inputs(self, device: torch.device) -> Tensors:
        """Return logits of a peaked law, a head that adds about one unit, temperatures 1, 0.7 and 1.3 in turn."""
        draw, dtype = generator(device), self.shape.torch_dtype
        rows, gamma, vocabulary, rank = (self.shape[name] for name in ("R", "g", "V", "r"))
        return {
            "U": peaked(rows, gamma, vocabulary, dtype=dtype, draw=draw),
            "W1": torch.randn(vocabulary, rank, generator=draw, device=device).to(dtype),
            "W2T": (torch.randn(vocabulary, rank, generator=draw, device=device) / rank**0.5).to(dtype),
            "x0": torch.randint(0, vocabulary, (rows,), generator=draw, device=device),
            "temperature": temperatures(rows, device),
            "uniforms": torch.rand(rows, gamma, generator=draw, device=device),
            "seed": torch.tensor([SEED], device=device),
        }

    def ours(self, device: torch.device) -> Run:
        """Return `draft_block`."""
        rows, gamma, vocabulary = (self.shape[name] for name in ("R", "g", "V"))
        method = str(self.shape.choice)
        floats = [poisoned(rows, gamma, device=device) for _ in range(2)]
        out = DraftBlock(poisoned(rows, gamma, dtype=torch.int32, device=device), *floats)
        space = MarkovWorkspace.allocate(rows, vocabulary, device, method)

        def run(given: Tensors) -> Tensors:
            seed = given["seed"] if method == "gumbel" else None
            draft_block(
                given["U"], given["W1"], given["W2T"], given["x0"], given["temperature"], given["uniforms"], method,
                seed=seed, out=out, workspace=space,
            )  # fmt: skip
            return dict(vars(out))

        return run

    def eager(self, given: Tensors) -> Tensors:
        """Return the block from logits that are written down; Gumbel's noise is torch's own."""
        columns, previous = [], given["x0"]
        for position in range(self.shape["g"]):
            logits = given["U"][:, position].float() + product(given["W1"][previous], given["W2T"])
            tokens, p, lse = self._draw(logits, given, position)
            columns.append((tokens, p, lse))
            previous = tokens
        names = (OTHER_TOKENS if self.shape.choice == "gumbel" else "tokens", "p_draft", "lse")
        return {name: torch.stack(each, 1) for name, each in zip(names, zip(*columns, strict=True), strict=True)}

    def _draw(self, logits: torch.Tensor, given: Tensors, position: int) -> tuple[torch.Tensor, ...]:
        if self.shape.choice == "greedy":
            return logits.argmax(1), torch.ones_like(logits[:, 0]), logits.logsumexp(1)
        scaled = logits / given["temperature"][:, None]
        lse = scaled.logsumexp(1)
        law = scaled.softmax(1)
        if self.shape.choice == "gumbel":
            # The argmax of p / E, E exponential, is Gumbel-max without the two logarithms.
            tokens = (law / torch.empty_like(law).exponential_()).argmax(1)
        else:
            tokens = draw_from(law, given["uniforms"][:, position])
        return tokens, law.gather(1, tokens[:, None])[:, 0], lse

    def compare(self, given: Tensors, found: Tensors) -> Verdict:
        """Judge tokens where the draw is clear, probabilities under the law of the token drawn, log-sum-exp."""
        rows, chosen = self.shape["R"], self._judged()
        names = ("U", "x0", "temperature", "uniforms")
        U, x0, heat, uniforms = (given[name][chosen.to(given[name].device)].cpu() for name in names)
        mine = {name: value[chosen.to(value.device)].cpu() for name, value in found.items()}
        drawn = mine[OTHER_TOKENS if OTHER_TOKENS in mine else "tokens"].long()
        # Conditioned on the tokens that were found, or one draw on an edge would condemn all that follow it.
        expected = draft_block_reference(
            U, given["W1"].cpu(), given["W2T"].cpu(), x0, heat, uniforms, str(self.shape.choice), seed=SEED,
            follow=drawn,
        )  # fmt: skip
        known = (drawn >= 0) & (drawn < self.shape["V"])
        law = expected.law.gather(2, drawn.clamp(0, self.shape["V"] - 1)[:, :, None])[:, :, 0]
        error = worst(mine, {"p_draft": law, "lse": expected.lse})
        if OTHER_TOKENS in found:
            return Verdict(error, int((~known).sum()), drawn.numel(), drawn.numel(), named_rows(chosen, rows))
        # Near an edge of the CDF float32 may land on either side; an id that doesn't exist is wrong anywhere.
        must = ~known | (expected.gap >= CLEAR)
        wrong = int((must & (drawn != expected.tokens)).sum())
        return Verdict(error, wrong, int(must.sum()), drawn.numel(), named_rows(chosen, rows))

    def _judged(self) -> torch.Tensor:
        most = max(1, JUDGED_LOGITS // self.shape["V"])
        # Noise is keyed by the number of the row, so the reference can only begin with the first.
        if self.shape.choice == "gumbel":
            return torch.arange(min(self.shape["R"], most))
        return some_rows(self.shape["R"], most)

    def config(self, provider: str) -> str:
        """Say when tokens cannot be compared."""
        return "noise of its own: ids checked for range" if provider != "ours" and self.shape.choice == "gumbel" else ""

    def memory(self) -> int:
        """Return the inputs and float32 copies of W2, logits, law and CDF."""
        rows, vocabulary, rank = (self.shape[name] for name in ("R", "V", "r"))
        # An eager chain writes down what the kernels never do.
        return 2 * self.work().bytes + 4 * vocabulary * (2 * rank + 6 * rows)


class RnnCase(Case):
    """One cell of the RNN head (Eq. 6), not the first of a block."""

    def work(self) -> Work:
        """Return the work of a cell."""
        return rnn_work(self.shape["R"], self.shape["r"], self.shape["D"], self.shape.torch_dtype.itemsize)

    def inputs(self, device: torch.device) -> Tensors:
        """Return activations of variance 1 and weights that keep it."""
        draw, dtype = generator(device), self.shape.torch_dtype
        rows, vocabulary, rank, width = (self.shape[name] for name in ("R", "V", "r", "D"))
        features = 2 * rank + width
        return {
            # Not the zeros of a block's start, which would hide a state that is never read.
            "state": torch.rand(rows, rank, generator=draw, device=device) - 0.5,
            "previous": torch.randint(0, vocabulary, (rows,), generator=draw, device=device),
            "h": torch.randn(rows, width, generator=draw, device=device).to(dtype),
            "W1": torch.randn(vocabulary, rank, generator=draw, device=device).to(dtype),
            "layer": (torch.randn(3 * rank, features, generator=draw, device=device) / features**0.5).to(dtype),
        }

    def ours(self, device: torch.device) -> Run:
        """Return `rnn_step`."""
        size = self.shape["R"], self.shape["r"]
        out = RnnStep(poisoned(*size, device=device), poisoned(*size, dtype=self.shape.torch_dtype, device=device))

        def run(given: Tensors) -> Tensors:
            weights = RnnWeights(given["W1"], given["layer"])
            rnn_step(given["state"], given["previous"], given["h"], weights, out=out)
            return dict(vars(out))

        return run

    def eager(self, given: Tensors) -> Tensors:
        """Return the cell as one product and its activations."""
        h = given["h"]
        z = torch.cat((given["state"].to(h.dtype), given["W1"][given["previous"]], h), 1)
        gate, candidate, output = product(z, given["layer"]).split(self.shape["r"], 1)
        opening = gate.sigmoid()
        state = opening * given["state"] + (1 - opening) * candidate.tanh()
        return {"state": state, "hidden": output.tanh().to(h.dtype)}

    def compare(self, given: Tensors, found: Tensors) -> Verdict:
        """Judge the state and the hidden vector."""
        return Verdict(worst(found, self.once(lambda: self._reference(given))))

    def _reference(self, given: Tensors) -> Tensors:
        state, previous, h, W1, layer = (given[name].cpu() for name in ("state", "previous", "h", "W1", "layer"))
        expected = rnn_step_reference(state, previous, h, RnnWeights(W1, layer))
        return dict(zip(("state", "hidden"), expected, strict=True))


class ConfidenceCase(Case):
    """Confidences and survivals of a batch of drafts (Eq. 7)."""

    def work(self) -> Work:
        """Return the work of all drafts."""
        rows, gamma, rank, width = (self.shape[name] for name in ("R", "g", "r", "D"))
        return confidence_work(rows, gamma, rank, width, self.shape.torch_dtype.itemsize)

    def inputs(self, device: torch.device) -> Tensors:
        """Return features of variance 1 and logits of about one unit, temperatures from 0.8 to 1.25."""
        draw, dtype = generator(device), self.shape.torch_dtype
        rows, gamma, vocabulary, rank, width = (self.shape[name] for name in ("R", "g", "V", "r", "D"))
        features = width + rank
        return {
            "hidden": torch.randn(rows, gamma, width, generator=draw, device=device).to(dtype),
            "w1": torch.randn(vocabulary, rank, generator=draw, device=device).to(dtype),
            "previous": torch.randint(0, vocabulary, (rows, gamma), generator=draw, device=device),
            "weight": (torch.randn(features, generator=draw, device=device) / features**0.5).to(dtype),
            # No two alike, so that a position which takes another's comes out wrong.
            "inv_temperature": torch.linspace(0.8, 1.25, gamma, device=device),
        }

    def ours(self, device: torch.device) -> Run:
        """Return `confidence`."""
        size = self.shape["R"], self.shape["g"]
        out = Confidence(poisoned(*size, device=device), poisoned(*size, device=device))

        def run(given: Tensors) -> Tensors:
            confidence(bias=None, out=out, **given)
            return dict(vars(out))

        return run

    def eager(self, given: Tensors) -> Tensors:
        """Return both as a gather, a product, a sigmoid and a cumulative product."""
        hidden, embedded = given["hidden"], given["w1"][given["previous"]]
        features = torch.cat((hidden, embedded), 2).flatten(0, 1)
        logits = product(features, given["weight"][None]).view(hidden.shape[:2])
        c = (logits * given["inv_temperature"]).sigmoid()
        # Fit to be timed, not to be used: a parallel product may rise along a row (see `survival`).
        return {"c": c, "a": c.cumprod(1)}

    def compare(self, given: Tensors, found: Tensors) -> Verdict:
        """Judge confidences and survivals."""
        there = {name: value.cpu() for name, value in given.items()}
        return Verdict(worst(found, self.once(lambda: dict(vars(confidence_reference(bias=None, **there))))))
