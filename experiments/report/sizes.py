"""What a step costs by its batch tokens, and which sizes the policies chose, from the step records of a run."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ...sim.cost import StepCost
from ...sim.curve import reference_samples
from ...sim.profile import FlatProfileWarning, ProfileError, load_profile
from ..analysis.roles import Roles
from ..config.hardware import profile_of
from ..config.schema import Experiment
from ..show.canvas import canvas
from ..show.styles import styles
from ..sweep.identity import profile_hash
from ..sweep.store import record_file

_COLUMNS = ["batch_tokens", "executed_tokens"]
_SCHEMA: dict[str, Any] = {"arm": pl.String, "load": pl.Float64, "executed": pl.Int64, "steps": pl.Int64}


@dataclass(frozen=True)
class Chosen:
    """The sizes of the steps that a run recorded, warm-up included, all seeds together.

    Attributes:
        executed: ``arm, load, executed, steps``: how many steps ran at each size.
        asked: ``arm, load, steps, p10, p50, p90`` of the batch tokens that were asked for.
    """

    executed: pl.DataFrame
    asked: pl.DataFrame


def chosen_sizes(folder: Path, points: pl.DataFrame, arms: Sequence[str], keyed: bool = False) -> Chosen | None:
    """Return the sizes of the steps of some points, or None if the run kept no step records of all of them.

    Args:
        folder: the run folder.
        points: the points, as in ``points.parquet``.
        arms: whose, in this order.
        keyed: whether the names of records end in the beginning of the point's key, as in a run with axes.

    Raises:
        OSError, polars.exceptions.PolarsError: if records are damaged.
    """
    keys = point_keys(folder) if keyed else {}
    executed, asked = [], []
    for arm in arms:
        mine = points.filter(pl.col("arm") == arm).sort("load", "seed")
        for (load,), part in mine.group_by("load", maintain_order=True):
            files = [_file(folder, row, keys if keyed else None) for row in part.iter_rows(named=True)]
            if not all(file is not None and file.is_file() for file in files):
                return None
            steps = pl.concat([pl.read_parquet(file, columns=_COLUMNS) for file in files if file is not None])
            counts = steps.group_by("executed_tokens").len().sort("executed_tokens")
            executed += [(arm, load, size, count) for size, count in counts.rows()]
            asked.append((arm, load, len(steps), *np.percentile(steps["batch_tokens"].to_numpy(), (10, 50, 90))))
    schema = {"arm": pl.String, "load": pl.Float64, "steps": pl.Int64} | dict.fromkeys(
        ("p10", "p50", "p90"), pl.Float64
    )
    if not asked:
        return None
    return Chosen(pl.DataFrame(executed, _SCHEMA, orient="row"), pl.DataFrame(asked, schema, orient="row"))


def point_keys(folder: Path) -> dict[tuple[Any, ...], str]:
    """Return the key of each finished point by its row: equal rows come from equal simulations."""
    keys = {}
    for file in sorted((folder / "points").glob("*.json")):
        entry = json.loads(file.read_bytes())
        keys[_row_of({**entry, **entry["metrics"]})] = file.stem
    return keys


def _row_of(row: Mapping[str, Any]) -> tuple[Any, ...]:
    names = ("arm", "load", "seed", "throughput_tok_s_gpu", "interactivity_tok_s_user", "steps", "window_s")
    return tuple(row.get(name) for name in names)


def _file(folder: Path, row: Mapping[str, Any], keys: Mapping[tuple[Any, ...], str] | None) -> Path | None:
    key = "" if keys is None else keys.get(_row_of(row))
    return None if key is None else folder / "steps" / record_file(row["arm"], row["load"], row["seed"], key)


def cost_of(experiment: Experiment, digest: str | None) -> StepCost | str:
    """Return the step cost of a run, or why there is none: its profile is gone, or is no longer the run's.

    Args:
        experiment: what was run.
        digest: SHA-256 of the profile's content that the run's manifest names; None if it names none.
    """
    name = experiment.hardware.profile
    try:
        given, profile = load_profile(name), profile_of(experiment)
    except (ProfileError, OSError) as error:
        return f"No step-cost curve: {error}"
    if digest is not None and profile_hash(given) != digest:
        return f"No step-cost curve: the profile {name} is no longer the one that the run used."
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FlatProfileWarning)
        return StepCost(profile, lookup=experiment.hardware.lookup, drafts=False)


def sizes_figure(cost: StepCost, chosen: Chosen | None, cast: Roles) -> Figure:
    """Return the step-time curve, and below it for each arm the sizes that ran, larger where more steps did."""
    arms = [] if chosen is None else [arm for arm in cast.arms if arm not in cast.band_ends]
    last = _last(cost, chosen)
    figure, (top, *below) = canvas(5.6, 3.0 + 0.24 * len(arms), 2 if chosen else 1)
    if chosen:
        grid = figure.add_gridspec(2, 1, height_ratios=(3.2, 0.6 + 0.24 * len(arms)))
        top.set_subplotspec(grid[0])
        below[0].set_subplotspec(grid[1])
        below[0].sharex(top)
        _sizes(below[0], chosen.executed, arms, cast)
    _curve(top, cost, last)
    (below[0] if chosen else top).set_xlabel("batch tokens of a step (executed size)")
    return figure


def _last(cost: StepCost, chosen: Chosen | None) -> int:
    """Return the size up to which the curve is drawn: the graphs' end, or further if steps went further."""
    limit = max(cost.profile.captured_sizes, default=cost.max_tokens)
    ran = 0 if chosen is None else int(chosen.executed["executed"].to_numpy().max())
    return min(cost.max_tokens, max(limit, ran))


def _curve(axes: Axes, cost: StepCost, last: int) -> None:
    tokens, seconds = reference_samples(cost.profile)
    shown = tokens <= last
    axes.plot(tokens[shown], 1e3 * seconds[shown], ".", color="#9aa5b1", markersize=3, label="samples")
    sizes = np.arange(1, last + 1)
    axes.step(sizes, 1e3 * cost.verify_table[1 : last + 1], where="post", color="#1f4e79", linewidth=1.2, label="curve")
    limit = max(cost.profile.captured_sizes, default=None)
    if limit is not None and limit < last:
        axes.axvline(limit, color="#7a7a7a", linestyle=":", linewidth=1, label=f"capture limit {limit}")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_ylabel("verify step, ms")
    axes.legend(fontsize=8, loc="upper left", frameon=False)


def _sizes(axes: Axes, executed: pl.DataFrame, arms: Sequence[str], cast: Roles) -> None:
    look = styles(cast)
    for place, (arm, sizes, shares) in enumerate(_by_arm(executed, arms)):
        # The area of a disc is its share of the arm's steps; a size that hardly ever ran stays visible.
        area = np.maximum(180.0 * shares, 1.5)
        axes.scatter(sizes, np.full(len(sizes), place), s=area, color=look[arm].colour, alpha=0.75, linewidth=0)
    axes.set_yticks(range(len(arms)), [cast.label(arm) for arm in arms], fontsize=8)
    axes.set_ylim(len(arms) - 0.4, -0.6)


def _by_arm(executed: pl.DataFrame, arms: Sequence[str]) -> Iterator[tuple[str, Any, Any]]:
    """Yield each arm with its sizes and their shares of the steps, averaged over loads: low loads have most steps."""
    shares = executed.with_columns((pl.col("steps") / pl.col("steps").sum().over("arm", "load")).alias("share"))
    for arm in arms:
        mine = shares.filter(pl.col("arm") == arm)
        sizes = np.unique(mine["executed"].to_numpy())
        sums = [mine.filter(pl.col("executed") == size)["share"].to_numpy().sum() for size in sizes]
        yield arm, sizes, np.array(sums) / max(1, mine["load"].n_unique())
