"""Picture of a step-time curve: raw samples, the curve a step pays for, and its risers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ...sim.cost import StepCost
from ...sim.curve import reference_samples
from ...sim.jaggedness import Riser, risers

_LABELLED = 3
_SAMPLE, _CURVE, _RISER, _LIMIT = "#9aa5b1", "#1f4e79", "#c0392b", "#7a7a7a"


def write_curve_figure(cost: StepCost, folder: Path) -> list[Path]:
    """Write ``<profile name>.svg`` and ``.png`` into a folder and return the paths; equal profiles give equal bytes.

    The left panel shows the sizes up to the capture limit (or all without graphs) with every riser over 2 % of the
    steps per second marked; the right panel the whole priced range on logarithmic axes.

    Raises:
        OSError: if the folder cannot be written.
    """
    figure = curve_figure(cost)
    stem = cost.profile.name.replace(":", "-").replace("/", "-")
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{stem}.svg", folder / f"{stem}.png"]
    with matplotlib.rc_context({"svg.hashsalt": "specsched"}):
        figure.savefig(paths[0], metadata={"Date": None, "Creator": None})
        figure.savefig(paths[1], dpi=120, metadata={"Software": None})
    return paths


def curve_figure(cost: StepCost) -> Figure:
    """Return the figure that `write_curve_figure` writes."""
    profile = cost.profile
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    near, far = figure.subplots(1, 2)
    limit = max(profile.captured_sizes, default=cost.max_tokens)
    last = min(limit, cost.max_tokens)
    steps = [riser for riser in risers(cost.verify_table) if riser.tokens < last]
    _panel(near, cost, last)
    _mark(near, steps)
    _panel(far, cost, cost.max_tokens)
    far.set_xscale("log", base=2)
    far.set_yscale("log")
    if profile.captured_sizes:
        far.axvline(limit, color=_LIMIT, linestyle=":", linewidth=1, label=f"capture limit {limit}")
    _shade_extrapolation(far, cost)
    near.set_title(f"{profile.name} ({profile.source}), lookup {cost.lookup}", fontsize=10)
    far.set_title(f"{profile.hardware}, {profile.model}", fontsize=10)
    for axes in (near, far):
        axes.legend(fontsize=8, loc="upper left", frameon=False)
    return figure


def _panel(axes: Axes, cost: StepCost, last: int) -> None:
    tokens, seconds = reference_samples(cost.profile)
    shown = tokens <= last
    axes.plot(tokens[shown], seconds[shown] * 1e3, ".", color=_SAMPLE, markersize=3, label="samples")
    sizes = np.arange(1, last + 1)
    axes.step(sizes, cost.verify_table[1 : last + 1] * 1e3, where="post", color=_CURVE, linewidth=1.2, label="curve")
    axes.set_xlabel("batch tokens B")
    axes.set_ylabel("verify step, ms")


def _shade_extrapolation(axes: Axes, cost: StepCost) -> None:
    samples = cost.profile.verify
    if samples.extrapolated_from is None:
        return
    real = max((size for size in samples.tokens if size < samples.extrapolated_from), default=1)
    if real < cost.max_tokens:
        axes.axvspan(real, cost.max_tokens, color="#f3e6c4", label="extrapolated")


def _mark(axes: Axes, steps: list[Riser]) -> None:
    style: dict[str, Any] = {"color": _RISER, "linewidth": 1.4}
    for i, riser in enumerate(steps):
        label = "risers over 2 %" if i == 0 else ""
        axes.vlines(riser.tokens + 1, riser.before_seconds * 1e3, riser.after_seconds * 1e3, label=label, **style)
    for riser in sorted(steps, key=lambda riser: -riser.drop)[:_LABELLED]:
        axes.annotate(
            f"{riser.tokens}→{riser.tokens + 1}: -{100 * riser.drop:.1f} %",
            (riser.tokens + 1, (riser.before_seconds + riser.after_seconds) / 2 * 1e3),
            xytext=(5, -3),
            textcoords="offset points",
            fontsize=7,
            color=_RISER,
        )
