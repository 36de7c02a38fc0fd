"""One point of a sweep: an arm at a load with a seed, from its configuration to its metrics.

The only module of this room that builds simulations; everything else treats a point as a function call.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from ...policies.interface import Policy, PolicyError
from ...policies.registry import build_policy
from ...sim.cost import StepCost
from ...sim.curve import Lookup
from ...sim.drafts import DraftError, make_draft_model
from ...sim.engine import run
from ...sim.metrics import point_metrics
from ...sim.profile import FlatProfileWarning
from ...sim.requests import Requests
from ...sim.scenario import Prefill, Scenario
from ...traces import (
    Arrivals,
    LengthTable,
    flash_arrivals,
    gamma_arrivals,
    generate_trace,
    load_lengths,
    poisson_arrivals,
    read_trace,
    scale_rate,
    wave_arrivals,
    window,
)
from ..config.hardware import profile_of
from ..config.schema import (
    Arm,
    DisaggregatedPrefill,
    Drafts,
    Experiment,
    FixedLengths,
    FlashArrivals,
    GammaArrivals,
    PythonFormat,
    RecordedDrafts,
    WaveArrivals,
    Workload,
    expanded_arms,
)
from ..config.trace_formats import formats_of

POOL = 8192
"""Requests generated for a closed loop, which starts over with new texts when they run out."""

_SHUFFLE = 0x7368756666  # names the random stream that orders a trace's requests for a closed loop


@dataclass(frozen=True)
class PointResult:
    """What a point gives: its row of ``points.parquet`` and the records asked for in `output.records`."""

    metrics: dict[str, float | int | str | bool | None]
    steps: pl.DataFrame | None = None
    requests: pl.DataFrame | None = None
    rows: pl.DataFrame | None = None


def run_point(experiment: Experiment, arm: str, load: float, seed: int) -> PointResult:
    """Simulate ``arm`` of a resolved experiment at ``load`` with ``seed``.

    Raises:
        TraceError, ProfileError, DraftError, PolicyError, SimulationError: see the rooms.
    """
    scenario = build_scenario(experiment, arm, load, seed)
    result = run(scenario)
    metrics = point_metrics(result, scenario.cost, experiment.sla.bounds, with_regret=experiment.with_oracle)
    records = experiment.output.records
    return PointResult(
        metrics={**metrics, "safety": scenario.safety, "bound": scenario.policy.needs_outcomes},
        steps=result.steps if "steps" in records else None,
        requests=result.requests if "requests" in records else None,
        rows=result.rows if "rows" in records else None,
    )


def build_scenario(experiment: Experiment, arm: str, load: float, seed: int) -> Scenario:
    """Build what the engine runs for one point; raises as `run_point`."""
    chosen, workload, hardware = expanded_arms(experiment)[arm], experiment.workload, experiment.hardware
    policy = build_policy(chosen.policy, unsafe=chosen.unsafe)
    drafts = chosen.drafts or experiment.drafts
    model = make_draft_model(drafts.model_dump(), seed)
    if model.replays and workload.window is not None:
        raise DraftError(
            f"arm {arm}: `workload.window` numbers the requests anew, so {_replayed(drafts)} no longer fits them; cut "
            "the trace file itself"
        )
    return Scenario(
        policy=policy,
        cost=_cost(experiment, chosen, policy, hardware.lookup),
        planning=_cost(experiment, chosen, policy, hardware.planning_lookup) if hardware.planning_lookup else None,
        drafts=model,
        requests=build_requests(workload, chosen.domains or workload.domains, load, seed),
        mode=workload.mode,
        concurrency=int(load) if workload.mode == "closed" else hardware.max_num_seqs,
        prefill=_prefill(experiment),
        noise_cv=hardware.noise_cv,
        seed=seed,
        keep_rows="rows" in experiment.output.records,
        cohort=workload.cohort,
        warmup=workload.warmup,
        unsafe=chosen.unsafe,
    )


def _replayed(drafts: Drafts) -> str:
    if isinstance(drafts, RecordedDrafts):
        return f"a recording (`drafts.path` {drafts.path})"
    return f"what `{getattr(drafts, 'object', drafts.kind)}` replays"


def build_requests(workload: Workload, mix: dict[str, float] | None, load: float, seed: int) -> Requests:
    """Return the requests of a point: those of the trace file, or generated ones.

    A closed loop takes a trace's requests in an order drawn by ``seed``; an open one keeps their order and scales
    their arrivals to ``load`` requests a second. ``mix`` gives shares of domains; None takes the trace's own.
    """
    closed = workload.mode == "closed"
    table = _generated(workload, load, seed) if workload.path is None else _from_file(workload, load, seed)
    if closed:
        table = table.drop("arrival_s")
    if mix is not None and "domain" in table.columns:
        table = table.drop("domain")
    return Requests.from_table(table, mix or {"chat": 1.0}, seed)


def _generated(workload: Workload, load: float, seed: int) -> pl.DataFrame:
    count = workload.requests or POOL
    return generate_trace(count, load, _lengths(workload), seed, arrivals=_arrivals(workload))


def _lengths(workload: Workload) -> LengthTable:
    if isinstance(workload.lengths, FixedLengths):
        return LengthTable.constant(workload.lengths.prompt, workload.lengths.output)
    return load_lengths(workload.lengths or "azure-conversation")


def _arrivals(workload: Workload) -> Arrivals:
    """Return what makes the arrival times of generated requests."""
    given = workload.arrivals
    if isinstance(given, GammaArrivals) and given.cv != 1:
        cv = given.cv
        return lambda n, rate, rng: gamma_arrivals(n, rate, cv, rng)
    if isinstance(given, FlashArrivals):
        flash = given
        return lambda n, rate, rng: flash_arrivals(n, rate, flash.peak, flash.start_s, flash.seconds, rng)
    if isinstance(given, WaveArrivals):
        waves = given
        return lambda n, rate, rng: wave_arrivals(n, rate, waves.size, waves.share, rng)
    return poisson_arrivals


def _from_file(workload: Workload, load: float, seed: int) -> pl.DataFrame:
    """Return the trace's requests in the order, and at the times, at which they are asked for."""
    trace = _trace(workload)
    if workload.mode == "closed":
        order = np.random.default_rng([seed, _SHUFFLE]).permutation(len(trace))
        return trace.select(pl.all().gather(order.tolist()))
    if workload.arrivals is None or workload.arrivals.kind == "trace":
        return scale_rate(trace, load)
    times = generate_trace(len(trace), load, LengthTable.constant(1, 1), seed, arrivals=_arrivals(workload))
    return trace.with_columns(times["arrival_s"])


def _trace(workload: Workload) -> pl.DataFrame:
    trace = read_trace_once(Path(str(workload.path)), workload.format)
    cut = workload.window
    return trace if cut is None else window(trace, cut.start_s, cut.end_s, cut.limit)


def read_trace_once(path: Path, given: str | PythonFormat | None = None) -> pl.DataFrame:
    """Read a trace file, once in each process as long as its content is the same: all points of a sweep replay it.

    A worker of a cluster outlives the command, and the file may change in between.

    Args:
        path: of the file.
        given: its format (`formats_of`).
    """
    content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
    return _read_trace(path, content, given)


@lru_cache(maxsize=2)
def _read_trace(path: Path, content: str, given: str | PythonFormat | None) -> pl.DataFrame:
    return read_trace(path, formats_of(given))


def _cost(experiment: Experiment, arm: Arm, policy: Policy, lookup: Lookup) -> StepCost:
    hardware = experiment.hardware
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FlatProfileWarning)  # `check_points` reports it, once for all points
        return StepCost(
            profile_of(experiment),
            lookup=lookup,
            draft_scale=arm.draft_cost.scale if arm.draft_cost else 1.0,
            drafts=policy.drafts,
            sync_stall_seconds=hardware.sync_stall_seconds,
        )


def check_points(experiment: Experiment, arms: Iterable[str]) -> list[str]:
    """Build arms at their smallest and largest load without running them, and return warnings.

    Raises:
        TraceError, ProfileError, DraftError, PolicyError, SimulationError: what a point would fail with at once.
    """
    loads = {min(experiment.sweep.load), max(experiment.sweep.load)}
    for arm in arms:
        for load in sorted(loads):
            try:
                build_scenario(experiment, arm, load, experiment.seeds[0])
            except (PolicyError, DraftError) as error:
                named = str(error) if f"arm {arm}:" in str(error) else f"arm {arm}: {error}"
                raise type(error)(named) from error
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", FlatProfileWarning)
        StepCost(profile_of(experiment), lookup=experiment.hardware.lookup, drafts=False)
    vain = experiment.sla.ttft_s is not None and not experiment.with_prefill
    unused = ["sla.ttft_s does not apply: without a prefill stage there is no time to first token"] if vain else []
    return [*(str(warning.message) for warning in caught), *unused]


def _prefill(experiment: Experiment) -> Prefill | None:
    stage: Any = experiment.prefill
    if isinstance(stage, DisaggregatedPrefill):
        return Prefill(tokens_per_s=stage.tokens_per_s, slots=stage.slots)
    return None
