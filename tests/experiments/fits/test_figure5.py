"""Figure 5 is predicted, never seen; the calibration reproduces what ships; walks against hand-made worlds."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import polars as pl
import pytest

from specsched.experiments.fits.calibrate_latent import (
    Sizes,
    fit_level,
    fit_temperatures,
    load_figures,
    published_conditionals,
    sample_text,
    shift_to_length,
)
from specsched.experiments.fits.chain_walk import BlockTable, conditional_acceptance, survival_counts, walk, walk_table
from specsched.experiments.fits.figure5 import PANELS, figure5_benchmarks, predict, prefix_lengths, threshold_point
from specsched.experiments.fits.simplex import minimize
from specsched.sim.acceptance import LATENT_FILE, Text
from specsched.sim.drafts import make_draft_model

ROOT = Path(__file__).resolve().parents[3]
FIGURE = "figure5_published.csv"


@pytest.fixture(scope="module")
def errors() -> ModuleType:
    spec = importlib.util.spec_from_file_location("figure5_errors", ROOT / "benchmarks" / "figure5_errors.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def predictions() -> dict[str, pl.DataFrame]:
    return {kind: predict(kind, requests=1500, seed=3) for kind in ("raw", "sts")}


# --- the figure is not seen ---------------------------------------------------------------------------------------

GUARDED = f"""
import json, sys
opened = []
sys.addaudithook(lambda event, arguments: opened.append(str(arguments[0])) if event == "open" else None)
from specsched.experiments.fits.calibrate_latent import Sizes, calibrate, load_figures
from specsched.experiments.fits.figure5 import predict
import specsched.experiments.fits.figure5 as module
fitted = calibrate(load_figures(), Sizes(text=20, view=20, level=60, sts=70))
points = predict("raw", requests=5, output_tokens=64).rows()
seen = [name for name in opened if "fig5" in name or "figure5" in name and not name.endswith((".py", ".pyc"))]
data = sorted({{name for name in opened if name.endswith((".json", ".csv"))}})
print(json.dumps([module.__file__, seen, [name.rsplit("/", 1)[1] for name in data], fitted, points]))
if len(sys.argv) > 1:
    open(sys.argv[1]).close()
    assert opened[-1].endswith("{FIGURE}")
"""


def guarded(tree: Path, *arguments: str) -> list:
    """Calibrate and predict in a process that reports the files it opens, on the rooms under ``tree``."""
    environment = {**os.environ, "PYTHONPATH": str(tree), "SPECSCHED_DATA": os.devnull, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", GUARDED, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.deep
def test_neither_calibration_nor_prediction_can_see_figure_5(tmp_path: Path) -> None:
    """In a copy without the published figure both run and give the same numbers as beside it.

    The absence of the file guards every way to open one; the audit hook, which sees Python's, names what was read.
    """
    for room in ("policies", "sim", "traces", "experiments"):
        shutil.copytree(
            ROOT / room, tmp_path / "specsched" / room, ignore=shutil.ignore_patterns("__pycache__", FIGURE)
        )
    assert not list(tmp_path.rglob(FIGURE))
    file, seen, data, fitted, points = guarded(tmp_path)
    assert file.startswith(str(tmp_path))
    assert seen == []
    assert data == ["latent.json", "published_acceptance.json", "published_confidence.json"]
    published = ROOT / "experiments" / "fits" / "data" / FIGURE
    _, seen_beside, _, fitted_beside, points_beside = guarded(ROOT / ".typing", str(published))
    assert seen_beside == []
    assert (fitted, points) == (fitted_beside, points_beside)


def test_the_figures_a_calibration_gets_hold_no_figure_5() -> None:
    text = json.dumps(load_figures())
    published = (ROOT / "experiments" / "fits" / "data" / FIGURE).read_text(encoding="utf-8")
    rejected = [line.split(",")[3] for line in published.splitlines()[3:] if float(line.split(",")[1]) > 0.1]
    assert len(rejected) == 24
    assert not [number for number in rejected if f" {number}," in text]


# --- what the calibration does ------------------------------------------------------------------------------------


def test_shifted_curves_have_the_accepted_length_of_table_1() -> None:
    targets = published_conditionals(load_figures())["dspark-qwen3-4b"]
    for benchmark, length in (("gsm8k", 6.11), ("humaneval", 5.38), ("mt-bench", 3.64)):
        shape = np.array(targets[PANELS[benchmark]]["conditional"])
        curve = shift_to_length(shape, length)
        assert 1.0 + np.cumprod(curve).sum() == pytest.approx(length, abs=1e-9)
        shift = np.log(curve / (1 - curve)) - np.log(shape / (1 - shape))
        np.testing.assert_allclose(shift, shift[0], rtol=1e-9)
        np.testing.assert_allclose(targets[benchmark]["conditional"], curve, atol=5.1e-5)


def test_alpaca_survives_as_figure_6_says() -> None:
    """Survival at positions 1, 3, 5, 7 is the mean of the observed curve over the histogram: .769 .418 .221 .116."""
    curve = published_conditionals(load_figures())["dspark-qwen3-4b"]["alpaca"]["conditional"]
    np.testing.assert_allclose(np.cumprod(curve)[[0, 2, 4, 6]], [0.7687, 0.4177, 0.2205, 0.116], atol=2e-4)


def test_the_shipped_levels_and_temperatures_are_those_the_calibration_computes() -> None:
    """One domain at full size; `python benchmarks/build_latent.py` computes all again."""
    shipped = json.loads(LATENT_FILE.read_text(encoding="utf-8"))
    assert shipped["calibration"]["requests"] == {name: getattr(Sizes(), name) for name in Sizes.__slots__}
    text = Text(**shipped["text"])
    domains = shipped["profiles"]["mtp-1"]["domains"]
    sample = sample_text(20_260_705, Sizes().level, text.window)
    for entry in domains.values():
        np.testing.assert_allclose(fit_level(text, sample, entry["conditional"]), entry["level"], atol=5.1e-5)
    temperatures = shipped["profiles"]["mtp-1"]["temperatures"]
    assert fit_temperatures(shipped, "mtp-1", Sizes().sts) == temperatures


def test_levels_are_found_whatever_the_start() -> None:
    text = Text(request_sd=0.5, spread=2.0, skew=1.0, easiest=12.0, memory=0.3, window=8)
    sample = sample_text(5, 300, 8)
    near = fit_level(text, sample, [0.8, 0.7, 0.6])
    far = fit_level(text, sample, [0.8, 0.7, 0.6], start=np.array([4.0, -3.0, 0.0]), rounds=30)
    np.testing.assert_allclose(near, far, atol=0.02)


def test_the_simplex_finds_a_minimum() -> None:
    found, least = minimize(lambda x: (x[0] - 3) ** 2 + 10 * (x[1] + x[0]) ** 2, (0.0, 0.0), (1.0, 1.0), 120)
    np.testing.assert_allclose(found, [3.0, -3.0], atol=1e-4)
    assert least < 1e-7


# --- walks --------------------------------------------------------------------------------------------------------


def test_a_walk_by_hand() -> None:
    """Output of 8 tokens: anchors at 1, 1+2+1 = 4, 4+0+1 = 5; the last round's 3 drafts reach past the end, uncut."""
    accepted = {1: 2, 4: 0, 5: 3}
    rounds = walk(1, 8, lambda row, start: np.array([accepted[int(s)] for s in start]))
    assert [list(map(int, column)) for column in rounds] == [[0, 0, 0], [1, 4, 5], [2, 0, 3]]
    table = BlockTable(np.zeros((1, 7, 3)), np.array([[2, 9, 9, 0, 3, 9, 9]]))
    assert walk_table(table, 3).accepted.tolist() == [2, 0, 3]
    assert walk_table(table, 1).start.tolist() == [1, 3, 5, 7]


def test_counts_by_hand() -> None:
    accepted = np.array([0, 2, 2, 1, 3])
    assert survival_counts(accepted, 3).tolist() == [5, 4, 3, 1]
    np.testing.assert_allclose(conditional_acceptance(accepted, 3), [4 / 5, 3 / 4, 1 / 3])


def test_a_threshold_stops_at_the_first_low_confidence() -> None:
    confidence = np.array([[0.9, 0.5, 0.9], [0.4, 0.9, 0.9], [0.5, 0.6, 0.7]])
    assert prefix_lengths(confidence, 0.5).tolist() == [3, 0, 3]
    assert prefix_lengths(confidence, 0.55).tolist() == [1, 0, 0]
    assert prefix_lengths(confidence, 0.0).tolist() == [3, 3, 3]


def test_a_point_by_hand() -> None:
    """Rounds at 1 (2 of 2 verified accepted) and 4 (none of 1): emitted 3 + 1, rejected 0 + 1."""
    confidence = np.array([[[0.9, 0.9], [0, 0], [0, 0], [0.9, 0.1]]], np.float64)
    table = BlockTable(confidence, np.array([[2, 0, 0, 0]]))
    point = threshold_point(table, 0.5)
    assert point == {"steps": 2, "accepted_per_step": 2.0, "rejected_per_step": 0.5, "rate": 0.8}


# --- the prediction -----------------------------------------------------------------------------------------------


def test_the_benchmarks_are_draft_models() -> None:
    for benchmark, spec in figure5_benchmarks("raw").items():
        model = make_draft_model(spec, 0)
        model.check([benchmark])
        assert model.gamma == 7


def test_threshold_0_is_table_1(predictions: dict[str, pl.DataFrame]) -> None:
    """No prediction: the accepted length is put in. 1,500 requests: 1.5 % is 2.8 standard errors."""
    for benchmark, length in (("gsm8k", 6.11), ("humaneval", 5.38), ("mt-bench", 3.64)):
        row = predictions["sts"].row(
            by_predicate=(pl.col("benchmark") == benchmark) & (pl.col("threshold") == 0.0), named=True
        )
        assert row["steps"] > 60_000
        assert row["accepted_per_step"] == pytest.approx(length, rel=0.015)
        assert row["accepted_per_step"] + row["rejected_per_step"] == pytest.approx(8.0, abs=1e-9)


def test_the_prediction_is_as_good_as_the_documents_say(
    predictions: dict[str, pl.DataFrame], errors: ModuleType
) -> None:
    """Mean and largest error of the rate above threshold 0 in percentage points, as docs/figure5.md reports them."""
    published = errors.load_published()
    summary = errors.summary(errors.compare(pl.concat(list(predictions.values())), published))
    found = {(row["benchmark"], row["confidence"]): row for row in summary.iter_rows(named=True)}
    assert len(found) == 6
    for row in found.values():
        assert row["mean_abs_points"] < 4.0
        assert row["max_abs_points"] < 7.5
    assert found["mt-bench", "raw"]["max_abs_points"] < 3.5


def test_more_threshold_less_of_both(predictions: dict[str, pl.DataFrame]) -> None:
    for kind in ("raw", "sts"):
        for benchmark in PANELS:
            rows = predictions[kind].filter(pl.col("benchmark") == benchmark).sort("threshold")
            assert (np.diff(rows["rejected_per_step"].to_numpy()) <= 0.02).all()
            assert (np.diff(rows["rate"].to_numpy()) >= -0.005).all()
            assert rows["rate"][-1] > rows["rate"][0] + 0.05


def test_a_threshold_the_figure_lacks_is_refused(errors: ModuleType) -> None:
    odd = predict("raw", requests=2, output_tokens=32, thresholds=(0.45,))
    with pytest.raises(SystemExit, match="lacks a predicted point"):
        errors.compare(odd, errors.load_published())


@pytest.mark.shared_data
def test_the_shipped_figure_is_the_published_one(shared_data: Path, errors: ModuleType) -> None:
    source = pl.read_csv(shared_data / "paper" / "fig5_threshold_sweep.csv")
    shipped = errors.load_published()
    assert shipped["panel"].to_list() == source["domain"].to_list()
    for name, original in (
        ("threshold", "threshold"),
        ("accepted_per_step", "accepted_tokens_per_step"),
        ("rejected_per_step", "rejected_tokens_per_step"),
        ("rate_percent", "acceptance_rate_from_bars_pct"),
    ):
        assert shipped[name].to_list() == source[original].to_list()
