from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
import yaml

from specsched.experiments.cli import main as cli
from specsched.experiments.config.schema import Experiment
from specsched.sim.profile import dump_profile, load_profile

TEXT = """\
workload: {lengths: {prompt: 100, output: 40}, cohort: 20}
hardware: {profile: vllm-dsv4flash-b300-tp4}
drafts: {kind: constant, acceptance: 0.7}
arms:
  static-3: {policy: {kind: static, k: 3}}
  async-lag2: {policy: {kind: async_topk, lag: 2}}
sweep: {load: [1, 4]}
seeds: [0, 1]
sla: {tpot_s: 0.01}
"""
TRACE = "arrived_at,num_prefill_tokens,num_decode_tokens\n" + "".join(f"{n}.5,{50 + n},{10 + n}\n" for n in range(30))

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def specsched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Command:
    """Run the command in an empty folder that holds ``x.yaml`` and ``t.csv``; returns exit code, output, errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "x.yaml").write_text(TEXT)
    (tmp_path / "t.csv").write_text(TRACE)

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["specsched", *arguments])
        with pytest.raises(SystemExit) as end:
            cli.main()
        out, errors = capfd.readouterr()
        return int(end.value.code or 0), out, errors

    return run


def refused(result: tuple[int, str, str]) -> str:
    """Return the message of a run that ended with one clear error."""
    code, _, errors = result
    assert code == 2, errors
    lines = [line for line in errors.splitlines() if line]
    assert len(lines) == 1, errors
    assert lines[0].startswith("error: ")
    return lines[0].removeprefix("error: ")


def test_a_run_folder_holds_what_is_promised(specsched: Command, tmp_path: Path) -> None:
    code, out, _ = specsched("run", "x.yaml", "--set", "output.records=[steps, requests]", "--workers", "1", "-q")
    assert code == 0
    folder = tmp_path / "runs" / "x"
    assert {path.name for path in folder.iterdir()} == {
        "config.yaml",
        "manifest.json",
        "points",
        "points.parquet",
        "steps",
        "requests",
        "frontier.svg",
        "frontier.png",
        "summary.json",
    }
    points = pl.read_parquet(folder / "points.parquet")
    assert points.select("arm", "load", "seed").rows() == [
        (arm, load, seed) for arm in ("async-lag2", "static-3") for load in (1.0, 4.0) for seed in (0, 1)
    ]
    assert points["regret"].to_list() == [None] * 8, "there is no oracle arm"
    assert points["ttft_p50_s"].to_list() == [None] * 8, "there is no prefill"
    given = ["throughput_tok_s_gpu", "interactivity_tok_s_user", "accepted_length", "verify_budget", "goodput_req_s"]
    assert all((points[name] > 0).all() for name in given)
    assert len(list((folder / "steps").iterdir())) == len(list((folder / "requests").iterdir())) == 8
    assert "static-3" in out
    assert "frontier.svg" in out
    summary = json.loads((folder / "summary.json").read_bytes())
    assert summary["anchors"] == [120.0, 200.0, 300.0]


def test_the_manifest_names_versions_seeds_and_hashes(specsched: Command, tmp_path: Path) -> None:
    assert specsched("run", "x.yaml", "--workers", "1", "-q", "--seed", "3", "--set", "workload.path=t.csv")[0] == 0
    manifest = json.loads((tmp_path / "runs" / "x" / "manifest.json").read_bytes())
    assert {"specsched", "python", "numpy", "polars", "git", "started", "wall_seconds"} <= set(manifest)
    assert manifest["seeds"] == [3]
    assert manifest["status"] == "complete"
    assert set(manifest["files"]) == {"hardware.profile", "workload.path"}
    assert all(re.fullmatch("[0-9a-f]{64}", file["sha256"]) for file in manifest["files"].values())


def test_running_the_resolved_configuration_again_gives_the_same_points(specsched: Command, tmp_path: Path) -> None:
    assert specsched("run", "x.yaml", "--workers", "1", "-q", "-o", "a", "--set", "arms.static-3.policy.k=2")[0] == 0
    assert specsched("run", "a/config.yaml", "--workers", "1", "-q", "-o", "b")[0] == 0
    for name in ("points.parquet", "config.yaml", "summary.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_regret_is_measured_with_an_oracle_arm(specsched: Command, tmp_path: Path) -> None:
    oracle = "arms={oracle: {policy: {kind: oracle}, unsafe: true}, static-7: {policy: {kind: static, k: 7}}}"
    assert specsched("run", "x.yaml", "--workers", "1", "-q", "--set", oracle)[0] == 0
    points = pl.read_parquet(tmp_path / "runs" / "x" / "points.parquet")
    regret = {arm: rows["regret"].to_list() for (arm,), rows in points.group_by("arm")}
    assert all(value == pytest.approx(0.0, abs=1e-12) for value in regret["oracle"])
    assert all(0.0 < value <= 1.0 for value in regret["static-7"])
    assert dict(points.select("arm", "bound").rows()) == {"oracle": True, "static-7": False}


def test_a_trace_gives_lengths_in_a_closed_loop_and_arrivals_too_in_an_open_one(
    specsched: Command, tmp_path: Path
) -> None:
    records = ("--set", "output.records=[requests]", "--workers", "1", "-q", "--seed", "0")
    closed = ("--set", "workload.path=t.csv", "--set", "sweep.load=[2]", "-o", "closed")
    assert specsched("run", "x.yaml", *closed, *records)[0] == 0
    requests = pl.read_parquet(tmp_path / "closed" / "requests" / "static-3-2-0.parquet")
    assert set(requests["output_tokens"].to_list()) <= {10 + n for n in range(30)}
    assert len(set(requests["output_tokens"].to_list())) > 10

    opened = ("--set", "workload={mode: open, path: t.csv}", "--set", "sweep.load=[4]", "-o", "open")
    assert specsched("run", "x.yaml", *opened, *records)[0] == 0
    requests = pl.read_parquet(tmp_path / "open" / "requests" / "static-3-4-0.parquet").sort("arrival_s")
    assert requests["output_tokens"].to_list() == [10 + n for n in range(30)]
    gaps = requests["arrival_s"].diff().drop_nulls().to_list()
    assert gaps == pytest.approx([30 / 29 / 4] * 29), "30 requests over 29 equal gaps, at 4 a second"


def test_a_band_of_draft_costs_is_run(specsched: Command, tmp_path: Path) -> None:
    band = "arms.static-3.draft_cost={scale: 0.5, band: [0.25, 1]}"
    assert specsched("run", "x.yaml", "--set", band, "--seed", "0", "--workers", "1", "-q")[0] == 0
    points = pl.read_parquet(tmp_path / "runs" / "x" / "points.parquet").filter(pl.col("load") == 4)
    speed = dict(points.select("arm", "throughput_tok_s_gpu").rows())
    assert speed["static-3-low"] > speed["static-3"] > speed["static-3-high"]


def test_a_policy_of_the_working_directory_runs_in_workers(specsched: Command, tmp_path: Path) -> None:
    (tmp_path / "my_policies.py").write_text(USER_POLICY.format(lengths="np.minimum(view.available, self.depth)"))
    arms = "arms={mine: {policy: {kind: python, object: 'my_policies:Mine', depth: 3}}}"
    code, out, errors = specsched("run", "x.yaml", "--set", arms, "--workers", "2", "-q", "-o", "mine")
    assert (code, errors) == (0, "")
    assert "mine (rule-checked)" in out
    assert specsched("run", "x.yaml", "--workers", "1", "-q", "-o", "static")[0] == 0
    columns = ["load", "seed", "throughput_tok_s_gpu", "verify_budget", "accepted_length"]
    theirs = pl.read_parquet(tmp_path / "mine" / "points.parquet").select(columns)
    ours = pl.read_parquet(tmp_path / "static" / "points.parquet").filter(pl.col("arm") == "static-3").select(columns)
    assert theirs.equals(ours)


USER_POLICY = """
import numpy as np
from dataclasses import dataclass
from specsched.policies.interface import Policy

@dataclass(frozen=True)
class Mine(Policy):
    depth: int
    lag = None
    def plan(self, view, state):
        return {lengths}, state
"""
# The histories tried before a run are either shorter, or begin at a step of their own.
GOOD_AT_FIRST = "view.available if not 30 <= view.step < 40 else {}"


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ("view.available + 1", "row"),
        ("view.available * 0.5", "int"),
        ("np.zeros(99, np.int64)", "99"),
        ("1 / 0", "ZeroDivisionError"),
    ],
)
def test_a_policy_that_breaks_its_contract_is_one_error_and_finished_points_stay(
    specsched: Command, tmp_path: Path, lengths: str, message: str
) -> None:
    name = f"broken_{abs(hash(lengths))}"
    (tmp_path / f"{name}.py").write_text(USER_POLICY.format(lengths=GOOD_AT_FIRST.format(lengths)))
    arms = (
        "arms={static-3: {policy: {kind: static, k: 3}}, "
        f"mine: {{policy: {{kind: python, object: '{name}:Mine', depth: 1}}}}}}"
    )
    said = refused(specsched("run", "x.yaml", "--set", arms, "--workers", "1", "-q", "-o", "out"))
    assert said.startswith("arm mine, load 4, seed 0: ")
    assert message in said
    finished = [json.loads(file.read_bytes()) for file in (tmp_path / "out" / "points").iterdir()]
    assert {(entry["arm"], entry["load"]) for entry in finished} == {("static-3", 4.0)}
    assert not (tmp_path / "out" / "points.parquet").exists()
    assert json.loads((tmp_path / "out" / "manifest.json").read_bytes())["status"] == "failed"


def test_a_cohort_that_is_admitted_at_once_is_one_error(specsched: Command) -> None:
    short = "workload={lengths: {prompt: 9, output: 2}, cohort: 2}"
    said = refused(specsched("run", "x.yaml", "--set", short, "--workers", "1", "-q"))
    assert said.startswith(
        "arm static-3, load 4, seed 0: the requests that the metrics follow were all admitted at once"
    )


def test_a_failing_point_is_one_error_with_workers_too(specsched: Command, tmp_path: Path) -> None:
    (tmp_path / "broken_in_a_pool.py").write_text(
        USER_POLICY.format(lengths=GOOD_AT_FIRST.format("view.available + 1"))
    )
    arms = "arms={mine: {policy: {kind: python, object: 'broken_in_a_pool:Mine', depth: 1}}}"
    said = refused(specsched("run", "x.yaml", "--set", arms, "--workers", "2", "-q"))
    assert re.match(r"arm mine, load \d, seed \d: ", said)


@pytest.mark.parametrize(
    ("trace", "message"),
    [
        ("arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,10,-5\n", "line 2.*num_decode_tokens.*got '-5'"),
        ("arrived_at,num_prefill_tokens\n0.0,10\n", "t.csv"),
        ("arrived_at,num_prefill_tokens,num_decode_tokens\n5.0,10,5\n1.0,10,5\n", "line 3.*arrived_at"),
        ("arrived_at,num_prefill_tokens,num_decode_tokens\nNaN,10,5\n", "line 2.*arrived_at"),
        ("arrived_at,num_prefill_tokens,num_decode_tokens\n", "no requests"),
        ("", "t.csv"),
    ],
    ids=["negative length", "missing column", "unsorted", "NaN", "header only", "empty"],
)
def test_a_bad_trace_is_one_error_and_leaves_no_folder(
    specsched: Command, tmp_path: Path, trace: str, message: str
) -> None:
    (tmp_path / "t.csv").write_text(trace)
    said = refused(specsched("run", "x.yaml", "--set", "workload.path=t.csv", "--workers", "1"))
    assert re.search(message, said), said
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("seconds", [0.0, -0.001])
def test_a_profile_with_times_that_are_not_positive_is_one_error(
    specsched: Command, tmp_path: Path, seconds: float
) -> None:
    profile = json.loads(dump_profile(load_profile("vllm-dsv4flash-b300-tp4")))
    profile["verify"]["seconds"][3] = seconds
    (tmp_path / "p.json").write_text(json.dumps(profile))
    said = refused(specsched("run", "x.yaml", "--set", "hardware.profile=p.json"))
    assert "verify.seconds[3]" in said
    assert str(seconds) in said


def test_a_profile_without_a_sample_at_a_needed_size_is_one_error(specsched: Command, tmp_path: Path) -> None:
    profile = json.loads(dump_profile(load_profile("vllm-dsv4flash-b300-tp4")))
    verify = profile["verify"]
    kept = [n for n, tokens in enumerate(verify["tokens"]) if tokens <= 512]
    profile["verify"] = {name: [verify[name][n] for n in kept] for name in ("tokens", "seconds")}
    profile["captured_sizes"] = [size for size in profile["captured_sizes"] if size <= 512]
    (tmp_path / "p.json").write_text(json.dumps(profile))
    said = refused(specsched("run", "x.yaml", "--set", "hardware.profile=p.json", "--set", "sweep.load=[256]"))
    assert "512" in said


def test_a_flat_profile_is_a_warning(specsched: Command, tmp_path: Path) -> None:
    profile = json.loads(dump_profile(load_profile("vllm-dsv4flash-b300-tp4")))
    profile["verify"]["seconds"] = [0.01] * len(profile["verify"]["seconds"])
    (tmp_path / "p.json").write_text(json.dumps(profile))
    code, _, errors = specsched(
        "run", "x.yaml", "--set", "hardware.profile=p.json", "--seed", "0", "--workers", "1", "-q"
    )
    assert code == 0
    assert errors.startswith("warning: ")
    assert errors.count("warning: ") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--set", "sla.anchors=[0]"), "--set: sla.anchors.0: must be greater than 0, got 0"),
        (("--set", "sweep.loads=[1]"), "--set sweep.loads: there is no such key; the nearest is sweep.load"),
        (("--set", "workload.path=no.csv"), "--set: workload.path: there is no file 'no.csv'; tried "),
        (("--set", "hardware.profile=no"), "--set: hardware.profile: no profile named `no`"),
        (("--set", "drafts={kind: latent, profile: no}"), "no"),
        (("-o", "full"), "full is not empty; add --resume to go on with the run in it, or choose another -o"),
        (("-o", "full", "--resume"), "full holds no readable manifest.json"),
        (("-o", "t.csv"), "t.csv is a file; give a folder with -o"),
    ],
)
def test_bad_settings_are_one_error(
    specsched: Command, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "something").touch()
    assert message in refused(specsched("run", "x.yaml", *arguments))
    assert not (tmp_path / "runs").exists()


def test_a_typo_in_the_file_is_one_error_with_its_place(specsched: Command, tmp_path: Path) -> None:
    (tmp_path / "y.yaml").write_text(TEXT.replace("lag: 2", "lagg: 2"))
    said = refused(specsched("run", "y.yaml"))
    assert said == "y.yaml:6: arms.async-lag2.policy.lagg: unknown key; did you mean 'lag'?"
    assert refused(specsched("run", "z.yaml")).startswith("there is no file z.yaml")


@pytest.mark.parametrize("arguments", [("run",), ("run", "x.yaml", "--workers", "0"), ("walk",), ("run", "x", "-z")])
def test_wrong_usage_exits_with_2(specsched: Command, arguments: tuple[str, ...]) -> None:
    code, _, errors = specsched(*arguments)
    assert code == 2
    assert "Traceback" not in errors


def test_resuming_needs_the_same_configuration(specsched: Command, tmp_path: Path) -> None:
    run = ("run", "x.yaml", "--workers", "1", "-q", "-o", "out", "--seed", "0")
    assert specsched(*run)[0] == 0
    before = (tmp_path / "out" / "points.parquet").read_bytes()
    said = refused(specsched(*run, "--resume", "--set", "sweep.load=[1, 2]"))
    assert said.startswith("out holds a run of another configuration: sweep.load was [1, 4] and is [1, 2];")
    assert specsched(*run, "--resume")[0] == 0
    assert (tmp_path / "out" / "points.parquet").read_bytes() == before
    assert json.loads((tmp_path / "out" / "manifest.json").read_bytes())["computed"] == 0


def test_resuming_notices_a_trace_that_has_changed(specsched: Command, tmp_path: Path) -> None:
    run = ("run", "x.yaml", "--workers", "1", "-q", "-o", "out", "--seed", "0", "--set", "workload.path=t.csv")
    assert specsched(*run)[0] == 0
    (tmp_path / "t.csv").write_text(TRACE + "40.0,5,5\n")
    assert "workload.path has changed" in refused(specsched(*run, "--resume"))


def test_progress_goes_to_standard_error_and_can_be_turned_off(specsched: Command) -> None:
    run = ("run", "x.yaml", "--workers", "1", "--seed", "0")
    _, out, errors = specsched(*run, "-o", "a")
    assert "4 of 4 points" in errors
    assert "of 4 points" not in out
    assert specsched(*run, "-o", "b", "-q")[2] == ""


def test_help_and_version(specsched: Command) -> None:
    code, out, _ = specsched("--help")
    assert code == 0
    assert all(command in out for command in ("run", "traces", "profiles"))
    code, out, _ = specsched("run", "--help")
    assert all(option in out for option in ("--set", "--workers", "--seed", "--resume", "-o", "-q"))
    assert re.fullmatch(r"specsched \d+\.\d+\.\d+\S*\n", specsched("--version")[1])


def test_the_other_commands_take_their_own_options(specsched: Command, tmp_path: Path) -> None:
    code, out, _ = specsched("traces", "show", "t.csv", "--json")
    assert (code, json.loads(out)["n"]) == (0, 30)
    code, out, _ = specsched("profiles", "llama31-8b-h100", "--json", "-o", "figures")
    assert (code, json.loads(out)["name"]) == (0, "llama31-8b-h100")
    assert list((tmp_path / "figures").iterdir())
    assert "Usage: specsched profiles" in specsched("profiles", "--help")[1]
    assert "Usage: specsched traces" in specsched("traces", "--help")[1]
    assert "no profile named" in refused(specsched("profiles", "nope"))
    assert "nope.csv" in refused(specsched("traces", "show", "nope.csv"))


def test_help_starts_without_what_computes() -> None:
    code = (
        "import sys, specsched.experiments.cli.main; "
        "print([name for name in ('numpy', 'polars', 'simpy', 'matplotlib', 'torch') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_key_is_documented() -> None:
    docs = Path(__file__).resolve().parents[3] / "docs"
    text = (docs / "scenario.md").read_text() + (docs / "tuning.md").read_text()
    names = set(Experiment.model_fields)
    for definition in Experiment.model_json_schema()["$defs"].values():
        names |= set(definition.get("properties", {}))
    assert len(names) > 30
    assert [name for name in sorted(names) if not re.search(rf"\b{name}\b", text)] == []


def test_the_smallest_file_of_the_documentation_is_an_experiment(specsched: Command, tmp_path: Path) -> None:
    text = (Path(__file__).resolve().parents[3] / "docs" / "scenario.md").read_text()
    example = text.split("```yaml\n")[1].split("```")[0]
    assert set(yaml.safe_load(example)) <= set(Experiment.model_fields)
    (tmp_path / "y.yaml").write_text(example)
    short = ("--set", "workload={lengths: {prompt: 9, output: 9}, cohort: 200}", "--seed", "0", "--workers", "1", "-q")
    assert specsched("run", "y.yaml", *short)[0] == 0


@pytest.mark.parametrize(
    ("name", "figure", "settings"),
    [
        ("frontier", "frontier", ["sweep.load=[2]", "workload.cohort=20", "workload.lengths=azure-code"]),
        ("load_adaptation", "load", ["sweep.load=[2, 4]", "workload.cohort=20", "workload.lengths=azure-code"]),
        ("trace_replay", "frontier", ["sweep.load=[4]", "workload.path=t.csv"]),
        ("threshold_sweep", "threshold", ["sweep.load=[2]", "workload.lengths={prompt: 9, output: 20}"]),
    ],
)
def test_every_shipped_experiment_runs(
    specsched: Command, tmp_path: Path, name: str, figure: str, settings: list[str]
) -> None:
    options = [word for setting in settings for word in ("--set", setting)]
    code, _, errors = specsched("run", name, *options, "--seed", "0", "--workers", "1", "-q")
    assert (code, errors) == (0, "")
    folder = tmp_path / "runs" / name
    assert (folder / f"{figure}.svg").is_file()
    points = pl.read_parquet(folder / "points.parquet")
    named = {
        word for word in ("async", "greedy", "oracle", "static", "mtp-1") if points["arm"].str.contains(word).any()
    }
    assert named == {"frontier": {"async", "greedy", "oracle", "static", "mtp-1"}, "threshold_sweep": set()}.get(
        name, {"async", "static", "mtp-1"}
    )
    assert points["regret"].is_null().all() == (name != "frontier")
    assert points["ttft_p50_s"].is_null().all() == (name != "trace_replay")
