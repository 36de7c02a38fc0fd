"""What ``specsched.experiments`` promises to those who import it: the same results as the command, and light."""

from __future__ import annotations

import ast
import copy
import dataclasses
import importlib
import importlib.metadata
import json
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import yaml
from polars.testing import assert_frame_equal
from typer.testing import CliRunner

import specsched.experiments as api
from specsched.experiments import runs
from specsched.experiments.cli.main import app
from specsched.experiments.sweep.runner import Failure, Sweep

PLAIN: dict[str, Any] = {
    "workload": {"lengths": {"prompt": 20, "output": 12}, "cohort": 8, "warmup": 2},
    "hardware": {"profile": "vllm-dsv4flash-b300-tp4"},
    "drafts": {"kind": "constant", "acceptance": 0.7, "gamma": 4},
    "arms": {
        "autoregressive": {"policy": {"kind": "autoregressive"}},
        "static-3": {"policy": {"kind": "static", "k": 3}},
    },
    "sweep": {"load": [2, 4]},
    "seeds": [0, 1],
}
SWEEP: dict[str, Any] = {
    **PLAIN,
    "sweep": {"load": [4], "axes": {"arms.static-3.policy.k": [1, 3]}},
    "output": {"effects": [{"metric": "mean_rows", "along": "arms.static-3.policy.k", "against": 1}]},
}
OF_THE_CALL = {"started", "ended", "wall_seconds", "config", "settings"}
"""What two manifests of the same run may differ in."""


def command(*words: str | Path) -> str:
    """Return what ``specsched`` prints."""
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done.output


def files(folder: Path) -> dict[str, bytes]:
    """Return the bytes of every file of a run but its manifest, of which only what the call says is left out."""
    found = {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    manifest = json.loads(found.pop("manifest.json"))
    kept = {key: value for key, value in manifest.items() if key not in OF_THE_CALL}
    return {**found, "manifest": json.dumps(kept).encode()}


def same(one: api.Run, other: api.Run) -> None:
    assert_frame_equal(one.points, other.points, check_exact=True)
    assert one.experiment == other.experiment
    assert one.plan.cells == other.plan.cells
    assert (one.folder, one.summary, one.manifest, one.config) == (
        other.folder,
        other.summary,
        other.manifest,
        other.config,
    )
    assert one.figures == other.figures


@pytest.mark.parametrize("given", [PLAIN, SWEEP], ids=["plain", "sweep"])
def test_a_mapping_gives_what_the_command_gives(
    tmp_path: Path, given: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    before = copy.deepcopy(given)
    run = api.run_experiment(given, tmp_path / "mapping", workers=1)
    assert given == before
    assert capsys.readouterr() == ("", "")
    (tmp_path / "x.yaml").write_text(yaml.safe_dump(given, sort_keys=False))
    printed = command("run", tmp_path / "x.yaml", "-o", tmp_path / "command", "--workers", "1", "-q")
    by_command = files(tmp_path / "command")
    assert files(run.folder) == by_command
    from_file = api.run_experiment(tmp_path / "x.yaml", tmp_path / "file", workers=2)
    assert {**files(from_file.folder), "manifest": b""} == {**by_command, "manifest": b""}
    told = [line.removeprefix("figure: ") for line in printed.splitlines() if line.startswith("figure: ")]
    assert [str(file.relative_to(run.folder)) for file in run.figures] == [
        str(Path(file).relative_to(tmp_path / "command")) for file in told
    ]
    assert len(told) >= 2


@pytest.mark.parametrize("given", [PLAIN, SWEEP], ids=["plain", "sweep"])
def test_a_run_is_read_back_as_it_was_returned(tmp_path: Path, given: dict[str, Any]) -> None:
    run = api.run_experiment(given, str(tmp_path / "run"), workers=1, settings=["seeds=[3]"])
    same(run, api.read_run(str(tmp_path / "run")))
    assert run.folder == tmp_path / "run"
    assert_frame_equal(run.points, pl.read_parquet(run.folder / "points.parquet"))
    assert run.summary == json.loads((run.folder / "summary.json").read_bytes())
    assert run.points["seed"].unique().to_list() == [3]
    with pytest.raises(dataclasses.FrozenInstanceError):
        run.folder = tmp_path  # type: ignore[misc]
    assert "manifest" not in repr(run)


@pytest.mark.parametrize("given", [PLAIN, SWEEP], ids=["plain", "sweep"])
def test_the_file_of_a_mapping_runs_again(
    tmp_path: Path, given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = api.run_experiment(given, tmp_path / "run", workers=1)
    again = tmp_path / "again"
    monkeypatch.chdir(tmp_path)
    command("run", run.folder / "config.yaml", "-o", again, "--workers", "1", "-q")
    assert files(again) == files(run.folder)
    # What the manifest says of a mapping can be repeated in its folder.
    assert run.manifest["config"] == str(run.folder / "config.yaml")
    command("run", run.manifest["config"], "-o", run.folder, "--resume", "-q")
    assert files(again).keys() == files(run.folder).keys()


def test_an_experiment_is_loaded_as_it_runs(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(yaml.safe_dump(PLAIN))
    loaded = api.load_experiment(PLAIN, ["sweep.load=[8]"], seed=7)
    assert loaded == api.load_experiment(str(tmp_path / "x.yaml"), ["sweep.load=[8]"], seed=7)
    assert (loaded.sweep.load, loaded.seeds) == ([8.0], [7])
    assert api.load_experiment("frontier") == api.load_experiment(api.shipped_experiments()["frontier"])
    run = api.run_experiment(PLAIN, tmp_path / "run", settings=["sweep.load=[8]"], seed=7, workers=1)
    assert run.experiment == loaded == api.load_experiment(run.folder / "config.yaml")


def test_a_mapping_may_hold_what_python_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tuples, NumPy's numbers and paths, which are looked up in the working directory."""
    (tmp_path / "t.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0.0,10,5\n0.5,10,3\n")
    monkeypatch.chdir(tmp_path)
    rich = {
        **PLAIN,
        "workload": {"path": Path("t.csv")},
        "sweep": {"load": tuple(np.arange(1, 3))},
        "hardware": {**PLAIN["hardware"], "noise_cv": np.float32(0.5)},
    }
    loaded = api.load_experiment(rich)
    assert loaded.workload.path == str(tmp_path / "t.csv")
    assert (loaded.sweep.load, loaded.hardware.noise_cv) == ([1, 2], 0.5)
    yaml.safe_dump(loaded.model_dump())


def circle() -> dict[str, Any]:
    inside: dict[str, Any] = {}
    inside["inside"] = inside
    return inside


WRONG: dict[str, tuple[Any, str]] = {
    "bound": ({**PLAIN, "sweep": {"load": [2, -1]}}, "experiment: sweep.load.1: must be greater than 0, got -1"),
    "unknown": ({**PLAIN, "sweep": {"laod": [2]}}, "experiment: sweep.laod: unknown key; "),
    "missing": ({"seeds": [0]}, "experiment: hardware: is required and missing"),
    "object": ({**PLAIN, "seeds": {1, 2}}, "experiment: seeds: must be plain data (mapping, list, text, number"),
    "key": ({**PLAIN, "arms": {3: {}}}, "experiment: arms: the key 3 is not a word"),
    "file": ({**PLAIN, "workload": {"path": "no.csv"}}, "experiment: workload.path: there is no file 'no.csv'"),
    "circle": (circle(), "experiment: nested too deeply, or a mapping that contains itself"),
    "kind": (7, "an experiment is a path, the name of a shipped one or a mapping, got a int"),
    "name": ("fronteir", "there is no file fronteir, and no shipped experiment of this name"),
}


@pytest.mark.parametrize("name", WRONG)
def test_errors_name_the_place(name: str) -> None:
    given, message = WRONG[name]
    with pytest.raises(api.ConfigError) as error:
        api.load_experiment(given)
    assert str(error.value).startswith(message)


def test_a_setting_is_named_as_the_command_names_it() -> None:
    with pytest.raises(api.ConfigError, match=r"^--set: seeds: must be a list, got 'x'"):
        api.load_experiment(PLAIN, ["seeds=x"])


def test_a_mapping_needs_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(api.ConfigError, match="has no name to call its folder after; give `output`"):
        api.run_experiment(PLAIN)
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(PLAIN))
    assert api.run_experiment("mine.yaml", workers=1).folder == Path("runs/mine")
    with pytest.raises(api.ConfigError, match="is not empty"):
        api.run_experiment("mine.yaml", workers=1)


def test_what_is_probably_not_meant_is_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    vain = "sla.ttft_s does not apply"
    with pytest.warns(api.ExperimentWarning, match=vain) as caught:
        api.run_experiment({**PLAIN, "sla": {"ttft_s": 1.0}}, tmp_path / "run", workers=1)
    assert [each.filename for each in caught] == [__file__]
    assert capsys.readouterr() == ("", "")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        printed = command("run", tmp_path / "run" / "config.yaml", "-o", tmp_path / "again", "-q", "--workers", "1")
    assert f"warning: {vain}" in printed


def test_what_is_not_finished_is_not_read(tmp_path: Path) -> None:
    run = api.run_experiment(PLAIN, tmp_path / "run", workers=1)
    manifest = run.folder / "manifest.json"
    manifest.write_text(json.dumps({**run.manifest, "status": "interrupted"}))
    with pytest.raises(
        api.ConfigError, match=r"the run in it was stopped, and `read_run` needs a finished one; repeat"
    ):
        api.read_run(run.folder)
    with pytest.raises(api.ConfigError, match="no such folder"):
        api.read_run(tmp_path / "nowhere")
    (run.folder / "summary.json").write_text('{"kind": "tune"}')
    manifest.write_text(json.dumps(run.manifest))
    with pytest.raises(api.ConfigError, match=r"holds a study of `specsched tune` and no run; its trials are in "):
        api.read_run(run.folder)


def test_points_of_killed_workers_are_missing_and_the_others_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = runs.run_points

    def some(*arguments: Any) -> Sweep:
        killed = Failure("arm x, load 4, seed 0", "killed twice", killed=True)
        return Sweep(whole(*arguments).table.filter(pl.col("load") == 2), (killed,))

    monkeypatch.setattr(runs, "run_points", some)
    with pytest.raises(api.IncompleteError, match="killed twice; the 4 others are in") as error:
        api.run_experiment(PLAIN, tmp_path / "run", workers=1)
    run = error.value.run
    assert run.points["load"].unique().to_list() == [2]
    assert run.manifest["status"] == "incomplete"
    with pytest.raises(api.ConfigError, match="lacks points whose workers were killed"):
        api.read_run(run.folder)
    (tmp_path / "x.yaml").write_text(yaml.safe_dump(PLAIN))
    done = CliRunner().invoke(app, ["run", str(tmp_path / "x.yaml"), "-o", str(tmp_path / "out"), "-q"])
    assert isinstance(done.exception, api.PointError)
    assert f"figure: {tmp_path / 'out' / 'frontier.svg'}" in done.output


SCRIPT = """
from specsched.experiments import run_experiment
{guard}run_experiment({given!r}, "out", workers={workers})
"""


@pytest.mark.parametrize(("guard", "workers"), [("", 1), ("if __name__ == '__main__': ", 2)])
def test_a_script_runs(tmp_path: Path, guard: str, workers: int) -> None:
    (tmp_path / "mine.py").write_text(SCRIPT.format(guard=guard, given=PLAIN, workers=workers))
    done = subprocess.run([sys.executable, "mine.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert len(api.read_run(tmp_path / "out").points) == 8


def test_a_script_without_its_guard_is_told(tmp_path: Path) -> None:
    one_point = {
        **PLAIN,
        "arms": {"auto": {"policy": {"kind": "autoregressive"}}},
        "sweep": {"load": [2]},
        "seeds": [0],
    }
    (tmp_path / "mine.py").write_text(SCRIPT.format(guard="", given=one_point, workers=2))
    done = subprocess.run([sys.executable, "mine.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert 'put the call under `if __name__ == "__main__":`, or give `workers=1`' in done.stderr


HEAVY = ("matplotlib", "optuna", "torch", "specsched.experiments.show", "specsched.experiments.runs")


def loaded(script: str, *modules: str) -> list[str]:
    """Return which of some modules a script has imported."""
    script += f"\nimport sys\nprint(*sorted(set({modules!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.parametrize(
    "script",
    [
        "import specsched.experiments",
        "from specsched.experiments import load_experiment; load_experiment('frontier')",
        "from specsched.experiments import read_run, shipped_experiments, ConfigError, __version__",
        "import specsched.experiments.sweep.runner",
        "import specsched.experiments.cli.main",
    ],
)
def test_nothing_heavy_is_imported_before_it_is_used(script: str) -> None:
    assert loaded(script, *HEAVY) == []


def test_the_package_itself_imports_nothing() -> None:
    assert loaded("import specsched.experiments", "numpy", "polars", "pydantic", "yaml") == []
    assert loaded("from specsched.experiments import run_experiment", "matplotlib", "optuna") == ["matplotlib"]


def test_every_public_name_is_there_and_at_home() -> None:
    source = ast.parse(Path(str(api.__file__)).read_text(encoding="utf-8"))
    (choice,) = (node for node in source.body if isinstance(node, ast.If))
    homes = {
        alias.name: node.module for node in choice.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert homes == api._HOMES  # type: ignore[attr-defined]
    assert set(api.__all__) == {*homes, "__version__"}
    for name, home in homes.items():
        module = importlib.import_module(f"specsched.experiments.{home}")
        assert getattr(api, name) is getattr(module, name)
        assert getattr(api, name).__module__ == module.__name__
    assert set(api.__all__) <= set(dir(api))
    with pytest.raises(AttributeError, match=r"module 'specsched.experiments' has no attribute 'rnu_experiment'"):
        api.rnu_experiment  # type: ignore[attr-defined]  # noqa: B018


def test_the_version_is_that_of_the_package() -> None:
    version = importlib.metadata.version("specsched")
    assert api.__version__ == version
    assert command("--version") == f"specsched {version}\n"
