"""The requests a run replays, as columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from ..policies import Floats, Ints


class SimulationError(ValueError):
    """A scenario cannot be simulated, or a policy returned what a step cannot execute."""


@dataclass(frozen=True, eq=False)
class Requests:
    """Requests by column; entry ``i`` of every column is one request.

    Attributes:
        prompt_tokens: int64 ``[n]``, at least 0.
        output_tokens: int64 ``[n]``, at least 1; token 1 comes from prefill, decode emits the rest.
        domain: int64 ``[n]``, index into ``domains``.
        domains: names of the kinds of text.
        arrival_s: float64 ``[n]``, seconds, not decreasing; None where requests have no arrival time of their own.
        name: int64 ``[n]``, request ids of the trace.
    """

    prompt_tokens: Ints
    output_tokens: Ints
    domain: Ints
    domains: tuple[str, ...]
    arrival_s: Floats | None
    name: Ints

    def __post_init__(self) -> None:
        if not len(self.output_tokens):
            raise SimulationError("a workload needs at least one request, got none")
        if int(self.output_tokens.min()) < 1:
            at = int(np.argmin(self.output_tokens))
            raise SimulationError(
                f"output_tokens must be at least 1, got {int(self.output_tokens[at])} for request "
                f"{int(self.name[at])}; drop such requests from the trace"
            )

    def arrivals(self) -> Floats:
        """Return the arrival times.

        Raises:
            SimulationError: if the requests have none.
        """
        if self.arrival_s is None:
            raise SimulationError("an open loop needs requests with arrival times")
        return self.arrival_s

    def __len__(self) -> int:
        return len(self.output_tokens)

    @classmethod
    def from_table(cls, table: pl.DataFrame, mix: Mapping[str, float] | None = None, seed: int = 0) -> Requests:
        """Build from a canonical trace table.

        Args:
            table: see `specsched.traces`; an optional ``domain`` column names each request's kind of text.
            mix: shares by domain for a table without that column; each request draws its own.
            seed: seeds that draw.

        Raises:
            SimulationError: if there is neither a ``domain`` column nor a mix, or the table is empty.
        """
        if "domain" in table.columns:
            names = table["domain"].to_list()
            # In order of first appearance, which is the trace's own and the same in every process.
            domains = tuple(dict.fromkeys(names))
            codes = np.array([domains.index(name) for name in names], np.int64)
        elif mix:
            domains = tuple(mix)
            shares = np.cumsum([mix[name] for name in domains])
            # "dom": a stream apart from the lengths and arrivals that were drawn with the same seed.
            draws = np.random.default_rng([seed, 0x646F6D]).random(len(table)) * shares[-1]
            codes = np.searchsorted(shares, draws, side="right").astype(np.int64)
        else:
            raise SimulationError("requests need a domain: a `domain` column in the trace, or shares by domain")
        return cls(
            prompt_tokens=table["prompt_tokens"].to_numpy().astype(np.int64),
            output_tokens=table["output_tokens"].to_numpy().astype(np.int64),
            domain=codes,
            domains=domains,
            arrival_s=table["arrival_s"].to_numpy().astype(np.float64) if "arrival_s" in table.columns else None,
            name=table["request_id"].to_numpy().astype(np.int64),
        )
