"""Problems of the benchmark: inputs, the lab's own call, the same in plain torch, and what the result should be.

A result is judged against the float64 reference in `<op>_reference.py`, on a CPU, whatever device it was computed on.
Where that would take minutes, it is judged on some rows only, the first and the last among them, and says on which.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch

from .roofline import Work
from .shapes import Shape

Tensors = dict[str, torch.Tensor]
"""Inputs or outputs by name."""

Run = Callable[[Tensors], Tensors]
"""A call: from inputs to outputs."""

TOLERANCE = {"fp32": 1e-6, "fp16": 1e-3, "bf16": 8e-3}
"""Relative L2 distance from float64 that is agreed."""

CLEAR = 1e-4
"""A draw nearer than this to another token may fall on either side."""

LEAST_CLEAR = 0.5
"""Share of draws that must be clear, or nothing is shown of the tokens."""

POISON_ID = -7777

SEED = 20


@dataclass(frozen=True)
class Verdict:
    """What the float64 reference says of a result.

    Attributes:
        relative_error: greatest relative L2 distance of an output of floats; None if there is none. NaN is an error.
        mismatches: integers that differ where they must not; None if none were compared.
        compared: integers that had to be equal.
        drawn: integers in all, those too near to another token included.
        rows: which rows were judged, in words; None for all.
    """

    relative_error: float | None = None
    mismatches: int | None = None
    compared: int = 0
    drawn: int = 0
    rows: str | None = None

    def problem(self, dtype: str) -> str | None:
        """Return why the result is wrong, None if it is right."""
        if self.relative_error is None and self.mismatches is None:
            return "it gives no output that could be compared"
        # Written so that NaN is a problem.
        if self.relative_error is not None and not self.relative_error <= TOLERANCE[dtype]:
            return f"relative error {self.relative_error:.2e} is over {TOLERANCE[dtype]:.0e}, agreed for {dtype}"
        if self.mismatches:
            return f"{self.mismatches} of {self.compared} integers differ from the float64 reference"
        if self.mismatches is not None and self.compared < LEAST_CLEAR * self.drawn:
            return f"only {self.compared} of {self.drawn} draws are further than {CLEAR:g} from another token"
        return None


class Case(ABC):
    """One shape of one operation; subclasses are in ``cases_<what>.py``."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self._expected: Tensors | None = None

    def once(self, make: Callable[[], Tensors]) -> Tensors:
        """Return what a reference gives, computed for the first provider alone: a case's inputs never differ."""
        if self._expected is None:
            self._expected = make()
        return self._expected

    @abstractmethod
    def work(self) -> Work:
        """Return the least traffic and arithmetic of a call."""

    @abstractmethod
    def inputs(self, device: torch.device) -> Tensors:
        """Return inputs on a device, the same each time on one device."""

    @abstractmethod
    def ours(self, device: torch.device) -> Run:
        """Return the lab's call, with outputs of its own that are poisoned, and with a workspace."""

    @abstractmethod
    def eager(self, given: Tensors) -> Tensors:
        """Return the outputs as an eager chain of torch operations computes them, without waiting for the device."""

    @abstractmethod
    def compare(self, given: Tensors, found: Tensors) -> Verdict:
        """Judge outputs; those that a provider does not give are left out."""

    def others(self) -> Shape:
        """Return the problem without what the lab alone chooses: shapes that agree in it are one call for others."""
        return self.shape

    def config(self, provider: str) -> str:
        """Return what was chosen for a provider, in words; empty for nothing."""
        return ""

    def memory(self) -> int:
        """Return about how many bytes inputs and an eager chain's intermediate results take."""
        return 4 * self.work().bytes


def poisoned(*shape: int, dtype: torch.dtype = torch.float32, device: torch.device) -> torch.Tensor:
    """Return an output full of NaN, or of an id that no kernel writes."""
    return torch.full(shape, float("nan") if dtype.is_floating_point else POISON_ID, dtype=dtype, device=device)


def generator(device: torch.device) -> torch.Generator:
    """Return the generator of a case's inputs."""
    return torch.Generator(device).manual_seed(SEED)


def relative_error(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Return the relative L2 distance from a float64 reference; NaN if the result holds one."""
    reference = expected.double()
    # An expected result of zeros must not make 0 / 0 of a right answer.
    return float((found.double().cpu() - reference).norm() / reference.norm().clamp_min(1e-300))


def worst(found: Tensors, expected: Tensors) -> float | None:
    """Return the greatest relative error of the outputs that both have; None if they share none."""
    errors = [relative_error(found[name], expected[name]) for name in expected if name in found]
    # A NaN anywhere must come through, which `max` does not promise.
    return float(torch.tensor(errors, dtype=torch.float64).max()) if errors else None


def unequal(found: Tensors, expected: Tensors) -> Verdict:
    """Judge integers that have to be equal."""
    shared = [name for name in expected if name in found]
    count = sum(expected[name].numel() for name in shared)
    wrong = sum(int((found[name].cpu().long() != expected[name].long()).sum()) for name in shared)
    return Verdict(mismatches=wrong, compared=count, drawn=count)


def product(x: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Return ``x weights^T`` in float32, as an eager chain would: in the tensor cores on a GPU, converted on a CPU."""
    # Asked for in float32, or the sum of a bf16 product would be rounded to bf16: kernels don't do that.
    if x.is_cuda and x.dtype != torch.float32:
        return torch.mm(x, weights.T, out_dtype=torch.float32)
    return x.float() @ weights.float().T


def draw_from(law: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """Return the first token whose share of a law ``[R, V]``, which need not sum to 1, exceeds a uniform ``[R]``."""
    cumulative = law.cumsum(1)
    # The uniform times the sum as it came out, which rounding may leave beside 1.
    tokens = torch.searchsorted(cumulative, uniform[:, None] * cumulative[:, -1:], right=True)
    return tokens[:, 0].clamp(max=law.shape[1] - 1)


def peaked(*shape: int, dtype: torch.dtype, draw: torch.Generator) -> torch.Tensor:
    """Return logits whose mass lies on 8 tokens, as a language model's does; else most draws are near another token.

    With the last axis the vocabulary: normal of variance 1, and 8 entries raised by the logarithm of its size plus 4.
    """
    device = draw.device
    logits = torch.randn(*shape, dtype=torch.float32, device=device, generator=draw)
    # In a flat law of 129,280 tokens every draw is within 1e-4 of an edge, and nothing could be judged (docs/LOG.md).
    places = torch.randint(0, shape[-1], (*shape[:-1], 8), device=device, generator=draw)
    raised = torch.full(places.shape, 4.0 + math.log(shape[-1]), device=device)
    return logits.scatter_add_(-1, places, raised).to(dtype)


def temperatures(rows: int, device: torch.device) -> torch.Tensor:
    """Return temperatures ``[R]``: 1, 0.7 and 1.3 in turn."""
    # Neighbours differ, so that a row which takes another's temperature comes out wrong.
    return torch.tensor([1.0, 0.7, 1.3], device=device).repeat(rows)[:rows].contiguous()


def some_rows(rows: int, most: int) -> torch.Tensor:
    """Return up to ``most`` row numbers, evenly spread, the first and the last among them."""
    if rows <= most:
        return torch.arange(rows)
    return torch.linspace(0, rows - 1, most).round().long()


def named_rows(chosen: torch.Tensor, rows: int) -> str | None:
    """Return in words which rows were judged, None for all."""
    if len(chosen) == rows:
        return None
    return f"{len(chosen)} of {rows} rows judged, {int(chosen[0])} to {int(chosen[-1])}"
