"""Prompt and output lengths drawn from the quantile tables of public traces.

Single lognormal laws fit these traces badly (Kolmogorov-Smirnov distance 0.07 to 0.21), so the inverse
distribution function itself is tabulated and interpolated.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from importlib.resources import files

import numpy as np

from .arrays import Floats, Ints
from .table import TraceError, listed

LENGTH_TABLES = ("azure-conversation", "azure-code", "mooncake-conversation")
"""Names of the shipped length tables."""


@dataclass(frozen=True, eq=False)
class LengthTable:
    """Percentiles of prompt and output lengths.

    Attributes:
        name: what messages call it.
        percentiles: float64 ``[k]``, from 0 to 100, increasing.
        prompt, output: float64 ``[k]``, tokens at those percentiles, >= 1, not decreasing.
        source, licence: where the figures come from and under what terms; None for a table of your own.

    Raises:
        TraceError: if the arrays break one of these rules.
    """

    name: str
    percentiles: Floats
    prompt: Floats
    output: Floats
    source: str | None = None
    licence: str | None = None

    def __post_init__(self) -> None:
        steps = np.diff(self.percentiles)
        if self.percentiles[0] != 0 or self.percentiles[-1] != 100 or not (steps > 0).all():
            raise TraceError(f"length table `{self.name}`: `percentiles` must increase from 0 to 100")
        for column, tokens in (("prompt", self.prompt), ("output", self.output)):
            if tokens.shape != self.percentiles.shape:
                raise TraceError(f"length table `{self.name}`: `{column}` must hold one value a percentile")
            if not (np.isfinite(tokens).all() and (tokens >= 1).all() and (np.diff(tokens) >= 0).all()):
                raise TraceError(f"length table `{self.name}`: `{column}` must be finite, >= 1 and never decrease")

    @classmethod
    def constant(cls, prompt: int, output: int) -> LengthTable:
        """Return the table of requests that all have the same lengths, in tokens, each at least 1.

        Raises:
            TraceError: if a length is under 1.
        """
        return cls("constant", np.array([0.0, 100.0]), np.full(2, float(prompt)), np.full(2, float(output)))

    def sample(self, n: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
        """Draw ``n`` prompt and ``n`` output lengths, int64, tokens, each >= 1, independent of each other.

        A uniform draw is looked up in the percentiles with linear interpolation between them and rounded to the
        nearest integer. (In the shipped traces the logarithms of the two lengths correlate by less than 0.1.)
        """
        return self._draw(self.prompt, n, rng), self._draw(self.output, n, rng)

    def _draw(self, tokens: Floats, n: int, rng: np.random.Generator) -> Ints:
        return np.rint(np.interp(100 * rng.random(n), self.percentiles, tokens)).astype(np.int64)


def load_lengths(name: str) -> LengthTable:
    """Return a shipped table by name, one of `LENGTH_TABLES`.

    Raises:
        TraceError: if there is no such table.
    """
    if name not in LENGTH_TABLES:
        raise TraceError(f"no length table is called `{name}`; choose one of {listed(LENGTH_TABLES)}")
    lines = files(__package__).joinpath("data", f"{name}.csv").read_text("utf-8").splitlines()
    notes = dict(line.removeprefix("# ").split(": ", 1) for line in lines if line.startswith("#"))
    rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
    columns = {
        column: np.array([float(row[column]) for row in rows])
        for column in ("percentile", "prompt_tokens", "output_tokens")
    }
    return LengthTable(
        name=name,
        percentiles=columns["percentile"],
        prompt=columns["prompt_tokens"],
        output=columns["output_tokens"],
        source=notes["source"],
        licence=notes["licence"],
    )
