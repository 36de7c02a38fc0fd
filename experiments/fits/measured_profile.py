"""Times taken by the profiler, in the simulator's schema. Needs the extra `kernels`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ...sim.cost import StepCost
from ...sim.profile import Profile, parse_profile

if TYPE_CHECKING:
    from ...kernels.profile.machines import Facts
    from ...kernels.profile.models import ProfiledModel
    from ...kernels.profile.profiler import ContextFit, Measured

GPU_STALL_S = 5e-4
"""Assumed on a GPU, as in every shipped profile: one copy to the host, planning and launching."""


def measured_profile(
    name: str, model: ProfiledModel, measured: Measured, facts: Sequence[Facts], when: datetime, quick: bool
) -> Profile:
    """Return a profile, once a step can be priced with it.

    Args:
        name: of the profile.
        model: what was timed.
        measured: the times, accepted by `judge`.
        facts: of the machine, before and after.
        when: it was timed.
        quick: whether the plan was the short one.

    Raises:
        ProfileError: if the samples make no profile.
    """
    from ...kernels.profile.profiler import anchors, fit_context

    fields = {
        "schema_version": 1,
        "name": name,
        "source": "measured",
        "hardware": _hardware(model, facts[0]),
        "gpus": model.gpus,
        "model": f"{model.name} (synthetic: random weights; {model.like})",
        "versions": facts[0].versions,
        "provenance": _provenance(model, measured, facts, when, quick),
        "verify": _verify(measured),
        "captured_sizes": measured.plan.captured_sizes,
        "draft": _draft(model, measured),
        "context": _context(model, fit_context(measured)),
        "host": _host(model),
        "sla_anchors": anchors(measured),
    }
    profile = parse_profile(json.dumps(fields), f"profile `{name}`")
    StepCost(profile)
    return profile


def _verify(measured: Measured) -> dict[str, list[Any]]:
    samples = measured.samples("verify")
    return {
        "tokens": [point.tokens for point, _ in samples],
        "seconds": [seconds for _, seconds in samples],
        "rows": [point.rows for point, _ in samples],
        "context": [point.context for point, _ in samples],
    }


def _hardware(model: ProfiledModel, facts: Facts) -> str:
    if model.gpus == 1:
        return facts.hardware
    return f"{model.gpus} x {facts.hardware}, of which one shard was timed, without communication"


def _provenance(
    model: ProfiledModel, measured: Measured, facts: Sequence[Facts], when: datetime, quick: bool
) -> list[str]:
    from ...kernels.profile.models import MAX_ROWS
    from ...kernels.profile.profiler import ANCHORS

    shards, plan = model.gpus, measured.plan
    lines = {
        f"MEASURED on this machine, {when:%Y-%m-%d}, by `specsched kernels profile`.": True,
        "QUICK: few sizes and few runs, for a try.": quick,
        f"SYNTHETIC decoder, {model.like}: {_size(model)}. Random weights, no rotary embedding, elementwise parts not "
        "fused. Logits of every token are computed; sampling and acceptance are not.": True,
        f"A batch has as few rows as verify whole blocks of {plan.gamma}, {MAX_ROWS} at most, each with "
        f"{model.context} tokens of context.": True,
        _how(measured): True,
        f"sla_anchors: {', '.join(f'{share:g}' for share in ANCHORS)} times the tokens a second of a lone row without "
        "drafts, in two digits.": True,
        f"Before: {facts[0].clocks}. After: {facts[-1].clocks}.": True,
        "Experts are chosen by a random router, so about equally often.": bool(model.target.experts),
        f"One shard of {shards}; ALL-REDUCES ARE LEFT OUT, so steps of the whole are longer.": shards > 1,
        "No GPU: the CPU counts as one where throughput is given per GPU.": model.device == "cpu",
    }
    return [line for line, holds in lines.items() if holds]


def _how(measured: Measured) -> str:
    from ...kernels.profile.profiler import APART

    plan, kept = measured.plan, [timing for both in measured.timings.values() for timing in both]
    counts = sorted(len(timing.seconds) for timing in kept)
    calls = "Replays of graphs, eager calls beyond, timed on the device" if plan.captured_sizes else "Eager calls"
    return (
        f"{calls}: up to {plan.warm} to warm up and {counts[0]} to {counts[-1]} that count, in each of two passes over "
        f"{len(plan.points)} points, the second in reverse order. Passes over {APART:.0%} apart: "
        f"{len(measured.repeated)} points, timed again; {_names(measured.apart)} after that."
    )


def _size(model: ProfiledModel) -> str:
    return f"{model.target.weights / 1e9:.3g} billion weights, {model.target.weight_bytes / 1e9:.3g} GB"


def _names(points: Sequence[Any]) -> str:
    return "none" if not points else f"still {len(points)} ({', '.join(point.label for point in points)})"


def _draft(model: ProfiledModel, measured: Measured) -> dict[str, Any]:
    samples, shape = measured.samples("draft"), model.drafter
    return {
        "drafter": f"synthetic block drafter: {shape.layers}-layer backbone, Markov head of rank {model.rank}",
        "layers": shape.layers,
        "gamma": measured.plan.gamma,
        "rows": [point.rows for point, _ in samples],
        "seconds": [seconds for _, seconds in samples],
        "source": "measured",
        "note": f"one pass of the backbone over the block, with {model.draft_context} tokens of context, then one draw "
        "after the other; random weights",
    }


def _context(model: ProfiledModel, fit: ContextFit | None) -> dict[str, Any]:
    if fit is None:
        note = "the grid over rows and context gave no rising line, or the limit left no grid; unknown"
        return {"reference_tokens": model.context, "seconds_per_token": None, "source": "measured", "note": note}
    note = (
        f"least squares of relative errors over {fit.points} medians of a grid of rows and contexts, with an intercept "
        f"for each number of rows, the worst {fit.worst:.0%} off. The samples' own context is taken out of them "
        "(reference 0); rows pay for theirs"
    )
    return {"reference_tokens": 0, "seconds_per_token": fit.seconds_per_token, "source": "measured", "note": note}


def _host(model: ProfiledModel) -> dict[str, Any]:
    gpu = model.device == "cuda"
    stall = "0.5 ms of stall, as in every shipped profile" if gpu else "no stall, since nothing is copied to a host"
    return {
        "seconds": 0.0,
        "sync_stall_seconds": GPU_STALL_S if gpu else 0.0,
        "source": "assumed",
        "note": f"not measured: no time for scheduling, and {stall}",
    }
