"""``specsched profiles``: listing, one profile, figures with stable bytes, errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from specsched.experiments.cli.profiles import GAP_ROWS, gap_report, profile_summary, profiles
from specsched.experiments.show.curve import write_curve_figure
from specsched.sim.cost import StepCost
from specsched.sim.profile import ProfileError, load_profile, profile_from_samples, profile_names

B300 = "vllm-dsv4flash-b300-tp4"


def invoke(*arguments: str) -> Result:
    app = typer.Typer()
    app.command()(profiles)
    return CliRunner().invoke(app, list(arguments))


def test_list_names_every_shipped_profile() -> None:
    result = invoke()
    assert result.exit_code == 0
    for name in profile_names():
        assert name in result.stdout
    assert "analytic:GPU:SIZE" in result.stdout


def test_list_as_json() -> None:
    rows = {row["name"]: row for row in json.loads(invoke("--json").stdout)}
    assert sorted(rows) == profile_names()
    b300 = rows[B300]
    assert (b300["sizes"], b300["samples"], b300["capture_limit"]) == (88, 439, 1024)
    assert (b300["risers_over_2pct"], b300["risers_over_5pct"]) == (24, 7)
    assert (b300["biggest_riser_at"], b300["biggest_riser_pct"]) == (144, 12.51)
    assert b300["cliff_ratio"] == 5.06
    assert b300["draft_source"] == "measured"


def test_show_one_profile(tmp_path: Path) -> None:
    result = invoke(B300, "-o", str(tmp_path))
    assert result.exit_code == 0
    assert "MEASURED" in result.stdout
    assert "144 -> 145" in result.stdout
    assert "1024 -> 1025" in result.stdout
    assert "graphs end" in result.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{B300}.png", f"{B300}.svg"]
    assert str(tmp_path / f"{B300}.svg") in result.stdout


def test_show_as_json_draws_only_when_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    details = json.loads(invoke(B300, "--json").stdout)
    assert details["figures"] == []
    assert list(tmp_path.iterdir()) == []
    gaps = {row["rows"]: row for row in details["early_stop"]}
    assert list(gaps) == list(GAP_ROWS)
    assert (gaps[128]["greedy_drafts"], gaps[128]["argmax_drafts"]) == (0, 672)
    assert gaps[128]["multimodal"] is True
    assert details["risers"][-1]["tokens"] == 1024
    drawn = json.loads(invoke(B300, "--json", "-o", str(tmp_path / "f")).stdout)
    assert [Path(path).suffix for path in drawn["figures"]] == [".svg", ".png"]


def test_figures_have_stable_bytes(tmp_path: Path) -> None:
    for name in (B300, "analytic:h100:8b"):
        cost = StepCost(load_profile(name))
        first = [path.read_bytes() for path in write_curve_figure(cost, tmp_path / "a")]
        second = [path.read_bytes() for path in write_curve_figure(cost, tmp_path / "b")]
        assert first == second
        assert b"<dc:date>" not in first[0]
    assert (tmp_path / "a" / "analytic-h100-8b.svg").is_file()


def test_a_profile_without_draft_cost_or_graphs_is_shown_too(tmp_path: Path) -> None:
    profile = profile_from_samples("bare", [1, 64], [1e-3, 2e-3])
    summary = profile_summary(profile)
    assert summary["capture_limit"] is None
    assert summary["draft_source"] is None
    assert summary["cliff_ratio"] is None
    assert [row["rows"] for row in gap_report(profile, [0.5, 0.25])] == [8]
    assert len(write_curve_figure(StepCost(profile, drafts=False), tmp_path)) == 2


def test_other_survivals() -> None:
    details = json.loads(invoke(B300, "--json", "--survivals", "0.9,0.8").stdout)
    assert details["survivals"] == [0.9, 0.8]
    for bad in ("0.5,0.9", "2", "x", ""):
        result = invoke(B300, "--survivals", bad)
        assert result.exit_code == 2
        assert "must be numbers from 0 to 1" in result.output


def test_errors_are_profile_errors() -> None:
    result = invoke("no-such-profile")
    assert isinstance(result.exception, ProfileError)
    result = invoke("-o", "somewhere")
    assert result.exit_code == 2
    assert "needs a profile NAME" in result.output
