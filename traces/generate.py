"""Synthetic traces: arrivals, lengths and domains, each from its own random stream."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import polars as pl

from .arrays import Floats
from .arrivals import gamma_arrivals, poisson_arrivals
from .lengths import LengthTable, load_lengths
from .table import TraceError

Arrivals = Callable[[int, float, np.random.Generator], Floats]
"""From number, rate (requests a second) and random generator to ascending times (seconds)."""

_TOLERANCE = 1e-9


def draw_domains(n: int, mix: dict[str, float], rng: np.random.Generator) -> list[str]:
    """Draw ``n`` domains, independently, with the given weights; the order of ``mix`` does not matter.

    Raises:
        TraceError: if the mix is empty, a weight is not positive, or the weights do not sum to 1 within 1e-9.
    """
    _check_mix(mix)
    names = sorted(mix)
    edges = np.cumsum([mix[name] for name in names])[:-1]
    return [names[place] for place in np.searchsorted(edges, rng.random(n), side="right")]


def generate_trace(
    n: int,
    rate: float,
    lengths: LengthTable | str,
    seed: int,
    cv: float = 1.0,
    domains: dict[str, float] | None = None,
    arrivals: Arrivals | None = None,
) -> pl.DataFrame:
    """Generate a canonical trace.

    Args:
        n: number of requests.
        rate: mean requests per second.
        lengths: a `LengthTable` or the name of a shipped one.
        seed: an integer >= 0; same arguments, same trace. Arrivals, lengths and domains have streams of their own,
            so that changing one leaves the others as they are.
        cv: coefficient of variation of the gaps between arrivals: 1 gives a Poisson process, others a Gamma one.
        domains: weights by domain, positive, summing to 1; None leaves the column out.
        arrivals: makes the arrival times from number, rate and random generator; None takes ``cv``.

    Returns:
        The table; the first request arrives one gap after 0 s.

    Raises:
        TraceError: naming the argument that is out of range.
    """
    if seed < 0:
        raise TraceError(f"`seed` must be an integer >= 0, got {seed}")
    arrival_rng, length_rng, domain_rng = (np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(3))
    table = load_lengths(lengths) if isinstance(lengths, str) else lengths
    make = arrivals or (poisson_arrivals if cv == 1 else partial(_gamma, cv=cv))
    prompt, output = table.sample(n, length_rng)
    columns = {
        "request_id": np.arange(n, dtype=np.int64),
        "arrival_s": make(n, rate, arrival_rng),
        "prompt_tokens": prompt,
        "output_tokens": output,
    }
    trace = pl.DataFrame(columns)
    if domains is None:
        return trace
    return trace.with_columns(pl.Series("domain", draw_domains(n, domains, domain_rng), pl.String))


def _gamma(n: int, rate: float, rng: np.random.Generator, cv: float) -> Floats:
    return gamma_arrivals(n, rate, cv, rng)


def _check_mix(mix: dict[str, float]) -> None:
    if not mix:
        raise TraceError("`domains` is empty; give weights by domain, such as {chat: 1.0}, or leave it out")
    for name, weight in mix.items():
        if not name:
            raise TraceError("`domains`: a domain must have a name, got ''")
        if not (math.isfinite(weight) and weight > 0):
            raise TraceError(f"`domains`: the weight of `{name}` must be positive, got {weight}; leave unused ones out")
    total = math.fsum(mix.values())
    if abs(total - 1) > _TOLERANCE:
        raise TraceError(f"`domains`: the weights must sum to 1, got {total}; divide each by that sum")
