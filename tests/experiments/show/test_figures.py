"""Figures: the same points give the same bytes, and what is drawn is what the points say."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba

from specsched.experiments.analysis.roles import Roles, roles
from specsched.experiments.analysis.threshold import threshold_table
from specsched.experiments.config.schema import Experiment
from specsched.experiments.show.canvas import save
from specsched.experiments.show.figures import draw
from specsched.experiments.show.frontier import frontier_figure
from specsched.experiments.show.load import load_figure
from specsched.experiments.show.styles import styles
from specsched.experiments.show.threshold import threshold_figure

BANDS = {"mtp-1": ("mtp-1-low", "mtp-1-high")}
SPEEDS = {"autoregressive": 100, "mtp-1": 150, "mtp-1-low": 160, "mtp-1-high": 140, "static-3": 200, "static-7": 190}
SPEEDS |= {"threshold-40": 195, "threshold-80": 198, "greedy": 210, "async-lag2": 240, "retro": 300, "oracle": 320}


@pytest.fixture(autouse=True)
def no_warnings() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def make_points(
    arms: dict[str, int] = SPEEDS, loads: tuple[int, ...] = (1, 8, 64, 128), seeds: int = 2
) -> pl.DataFrame:
    rows: list[dict[str, Any]] = []
    for arm, speed in arms.items():
        for load in loads:
            for seed in range(seeds):
                eager = arm == "static-7" and load == 128
                x = (speed + seed) / (1 + load / 40) / (4 if eager else 1)
                rows.append(
                    {
                        "arm": arm,
                        "load": float(load),
                        "seed": seed,
                        "interactivity_tok_s_user": x,
                        "throughput_tok_s_gpu": x * load / 4,
                        "eager_fraction": float(eager),
                        "accepted_length": 3.0,
                        "rejected_per_step": 1.0,
                        "verify_budget": 8.0 - np.log2(load),
                        "safety": "unsafe" if arm in ("retro", "oracle") else "safe",
                        "bound": arm == "oracle",
                    }
                )
    return pl.DataFrame(rows)


def make_experiment(figures: list[str], arms: dict[str, Any] | None = None) -> Experiment:
    static = {"policy": {"kind": "static", "k": 3}}
    return Experiment.model_validate(
        {
            "hardware": {"profile": "llama31-8b-h100"},
            "drafts": {"kind": "constant", "acceptance": 0.8},
            "arms": arms or {name: static for name in SPEEDS if "mtp-1-" not in name},
            "sweep": {"load": [1.0]},
            "sla": {"anchors": [120.0, 200.0]},
            "output": {"figures": figures},
        }
    )


def cast(points: pl.DataFrame) -> Roles:
    return roles(points, list(SPEEDS), BANDS)


def markers(axes: Axes, colour: str, filled: bool) -> list[list[float]]:
    face = to_rgba(colour if filled else "white")
    found = [line for line in axes.lines if line.get_linestyle() == "None" and line.get_markeredgecolor() == colour]
    return [
        [float(x), float(y)]
        for line in found
        if to_rgba(line.get_markerfacecolor()) == face
        for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)
    ]


def test_two_processes_write_the_same_bytes(tmp_path: Path) -> None:
    make_points().write_parquet(tmp_path / "points.parquet")
    code = (
        "import sys, polars as pl; from pathlib import Path\n"
        "from specsched.experiments.show.canvas import save\n"
        "from specsched.experiments.show.frontier import frontier_figure\n"
        "from specsched.experiments.show.load import load_figure\n"
        "from specsched.experiments.analysis.roles import roles\n"
        "points, folder = pl.read_parquet(sys.argv[1]), Path(sys.argv[2])\n"
        "cast = roles(points, bands={'mtp-1': ('mtp-1-low', 'mtp-1-high')})\n"
        "save(frontier_figure(points, [120.0], cast), folder / 'frontier')\n"
        "save(load_figure(points, cast), folder / 'load')\n"
    )
    digests = []
    for run in ("1", "2"):
        command = [sys.executable, "-c", code, str(tmp_path / "points.parquet"), str(tmp_path / run)]
        subprocess.run(command, check=True, env=os.environ | {"PYTHONHASHSEED": run})
        files = sorted((tmp_path / run).iterdir())
        digests.append([(file.name, hashlib.sha256(file.read_bytes()).hexdigest()) for file in files])
    assert [name for name, _ in digests[0]] == ["frontier.png", "frontier.svg", "load.png", "load.svg"]
    assert digests[0] == digests[1]


def test_files_carry_no_date_and_no_version(tmp_path: Path) -> None:
    points = make_points(loads=(1, 8), seeds=1)
    svg, png = save(frontier_figure(points, [], cast(points)), tmp_path / "frontier")
    assert b"<dc:date>" not in svg.read_bytes()
    assert b"Matplotlib" not in svg.read_bytes() + png.read_bytes()


def test_draw_writes_the_figures_that_the_experiment_names(tmp_path: Path) -> None:
    points = make_points(loads=(1, 8), seeds=1)
    paths = draw(points, make_experiment(["load", "frontier"]), tmp_path / "run")
    assert [path.name for path in paths] == ["load.svg", "load.png", "frontier.svg", "frontier.png"]
    assert all(path.stat().st_size > 1000 for path in paths)


def test_filled_markers_are_the_frontier_and_bounds_are_none_of_it() -> None:
    points = make_points()
    axes = frontier_figure(points, [], cast(points)).axes[0]
    look = styles(cast(points))
    mine = points.filter(pl.col("arm") == "async-lag2").drop("arm", "safety")
    mean = mine.group_by("load").mean().sort("load")
    expected = mean.select("interactivity_tok_s_user", "throughput_tok_s_gpu").to_numpy()
    np.testing.assert_allclose(markers(axes, look["async-lag2"].colour, filled=True), expected)
    for arm in ("greedy", "retro", "oracle"):
        assert markers(axes, look[arm].colour, filled=True) == []
        assert len(markers(axes, look[arm].colour, filled=False)) == 4


def test_loads_are_joined_across_the_capture_limit_by_dots_alone() -> None:
    points = make_points()
    axes = frontier_figure(points, [], cast(points)).axes[0]
    colour = styles(cast(points))["static-7"].colour
    joined = [line for line in axes.lines if line.get_color() == colour and line.get_linestyle() != "None"]
    assert {(line.get_linestyle(), len(line.get_xdata())) for line in joined} == {("-", 3), ("-", 1), (":", 2)}


def test_anchors_and_the_cost_band_lie_where_they_should() -> None:
    points = make_points()
    axes = frontier_figure(points, [120.0, 200.0], cast(points)).axes[0]
    dashed = [line.get_xdata() for line in axes.lines if line.get_zorder() == 0.5]
    assert [list(x) for x in dashed] == [[120.0, 120.0], [200.0, 200.0]]
    (band,) = axes.patches
    corners = band.get_path().vertices
    assert len(corners) == 9
    assert corners[0] == pytest.approx([160.5 / (1 + 1 / 40), 160.5 / (1 + 1 / 40) / 4])
    assert corners[4] == pytest.approx([140.5 / (1 + 128 / 40), 140.5 / (1 + 128 / 40) * 32])


def test_legend_names_bounds_biased_arms_and_the_band() -> None:
    points = make_points()
    legend = frontier_figure(points, [], cast(points)).axes[0].get_legend()
    assert legend is not None
    texts = [text.get_text() for text in legend.get_texts()]
    for text in ("oracle (bound)", "retro (biased)", "mtp-1, draft cost band", "across the capture limit"):
        assert text in texts
    assert "mtp-1-low" not in texts


def test_load_figure_shows_throughput_and_budget() -> None:
    points = make_points({"async-lag2": 240})
    left, right = load_figure(points, cast(points)).axes
    budget = next(line for line in right.lines if line.get_linestyle() == "-")
    assert list(budget.get_xdata()) == [1.0, 8.0, 64.0, 128.0]
    assert list(budget.get_ydata()) == pytest.approx([8.0, 5.0, 2.0, 1.0])
    assert left.get_xscale() == "log"


@pytest.mark.parametrize(
    "points",
    [
        make_points({"async-lag2": 240}, loads=(8,), seeds=1),
        make_points({"async-lag2": 240}),
        make_points(loads=(8,)),
        make_points({"oracle": 320}),
        make_points().clear(),
        make_points(seeds=1).with_columns(pl.lit(None).alias("verify_budget")),
        make_points(seeds=1).with_columns(pl.lit(None).alias(name) for name in make_points().columns[3:]),
    ],
    ids=["one point", "one arm", "one load", "only a bound", "no point", "no budget", "all null"],
)
def test_thin_runs_still_give_figures(points: pl.DataFrame, tmp_path: Path) -> None:
    for figure in (frontier_figure(points, [120.0], cast(points)), load_figure(points, cast(points))):
        assert all(path.stat().st_size > 1000 for path in save(figure, tmp_path / "figure"))


def test_arms_differ_in_marker_and_in_colour() -> None:
    points = make_points()
    look = styles(cast(points))
    assert len({style.marker for style in look.values()}) == len(look) == len(SPEEDS) - 2
    assert len({style.colour for style in look.values()}) == len(look)


def threshold_arms(**extra: Any) -> dict[str, Any]:
    return {
        f"{benchmark}-{100 * t:.0f}": {"policy": {"kind": "threshold", "t": t}, "domains": {benchmark: 1.0}, **extra}
        for benchmark in ("math", "chat")
        for t in (0.8, 0.0)
    } | {"static-3": {"policy": {"kind": "static", "k": 3}}}


def test_threshold_table_has_a_benchmark_a_domain_and_ascending_thresholds() -> None:
    experiment = make_experiment(["threshold"], threshold_arms())
    table = threshold_table(make_points(dict.fromkeys(experiment.arms, 100), loads=(8,)), experiment)
    assert table.rows() == [
        ("math", 0.0, 3.0, 4.0),
        ("math", 0.8, 3.0, 4.0),
        ("chat", 0.0, 3.0, 4.0),
        ("chat", 0.8, 3.0, 4.0),
    ]


def test_threshold_arms_that_differ_in_more_than_domains_get_panels_of_their_own() -> None:
    arms = threshold_arms() | {
        f"raw-{name}": {**arm, "drafts": {"kind": "latent", "profile": "dspark-qwen3-4b", "confidence": "raw"}}
        for name, arm in threshold_arms().items()
    }
    experiment = make_experiment(["threshold"], arms)
    table = threshold_table(make_points(dict.fromkeys(arms, 100), loads=(8,)), experiment)
    assert table["benchmark"].n_unique() == 4
    assert any("raw" in name for name in table["benchmark"])


def test_threshold_bars_and_rate_follow_the_table() -> None:
    table = pl.DataFrame(
        {"benchmark": ["math"] * 2, "threshold": [0.0, 0.5], "accepted": [6.0, 5.0], "verified": [8.0, 5.5]}
    )
    figure = threshold_figure(table)
    bars, rate = figure.axes
    heights = [[bar.get_height() for bar in group] for group in bars.containers]
    assert heights == [[6.0, 5.0], [2.0, 0.5]]
    assert list(rate.lines[0].get_ydata()) == pytest.approx([75.0, 100 * 5 / 5.5])


@pytest.mark.parametrize("rows", [0, 1], ids=["none", "one"])
def test_few_thresholds_still_give_a_figure(rows: int, tmp_path: Path) -> None:
    experiment = make_experiment(["threshold"], threshold_arms())
    points = make_points({"math-0": 100}, loads=(8,), seeds=1).head(rows)
    svg, png = draw(points, experiment, tmp_path)
    assert (svg.name, png.name) == ("threshold.svg", "threshold.png")
