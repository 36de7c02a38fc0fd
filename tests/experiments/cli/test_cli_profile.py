"""``specsched kernels profile``, in processes of their own: what is written, what a run makes of it, what is refused.

Kernels must not be imported here: other tests choose Triton's interpreter before their import. The machine's clock is
replaced by a law; one run with the real clock asks only for what holds whatever the times are.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from specsched.sim.cost import StepCost
from specsched.sim.profile import load_profile

pytestmark = pytest.mark.kernels

LAW = """
import json, sys
from pathlib import Path
from specsched.experiments.cli import main as cli
from specsched.kernels.profile.machines import HostMachine

def law(self, point, warm, timed):
    global calls
    calls += 1
    if calls == stop:
        raise KeyboardInterrupt
    late = 1.5 if slow and (calls - 1) // slow % 2 == 0 else 1.0
    base = 1e-3 * (1 + 0.1 * point.rows) if point.part == "draft" else 4e-3 + rise * point.tokens
    return [late * (base + 1e-7 * point.rows * point.context + 1e-9 * i) for i in range(timed)]

HostMachine.time = law
results = []
for (stop, slow, rise), command in json.loads(sys.argv[1]):
    calls = 0
    sys.argv = ["specsched", *command]
    try:
        cli.main()
        results.append(0)
    except SystemExit as left:
        results.append(left.code)
    print("<<next>>", flush=True)
    print("<<next>>", file=sys.stderr, flush=True)
Path("codes.json").write_text(json.dumps(results))
"""
RISING = (None, 0, 1e-4)
PROFILE = ["kernels", "profile", "--model", "tiny-cpu", "--quick", "-q"]
SMALL = ("sweep.load=[1,2]", "seeds=[0,1]", "workload.cohort=4", "workload.warmup=0", "hardware.profile=made.json")
RUN = ["run", "frontier", "--workers", "1", "-q", "-o", "ran", *(word for each in SMALL for word in ("--set", each))]
CASES: dict[str, tuple[tuple[Any, ...], list[str]]] = {
    "written": (RISING, [*PROFILE, "--limit", "16", "-o", "made.json"]),
    "run": (RISING, RUN),
    "shown": (RISING, ["profiles", "made.json", "-o", "shown"]),
    "gamma": (RISING, [*PROFILE, "--limit", "64", "--gamma", "3", "-o", "three.json"]),
    "flat": ((None, 0, 0.0), [*PROFILE, "--limit", "16", "-o", "flat.json"]),
    "apart": ((None, 9, 1e-4), [*PROFILE, "--limit", "16", "-o", "apart.json"]),
    "stopped": ((4, 0, 1e-4), [*PROFILE, "--limit", "16", "-o", "stopped.json"]),
    "kept": ((4, 0, 1e-4), [*PROFILE, "--limit", "16", "-o", "made.json"]),
    "ending": (RISING, [*PROFILE, "-o", "made.yaml"]),
    "folder": (RISING, [*PROFILE, "-o", "nowhere/made.json"]),
    "unknown": (RISING, ["kernels", "profile", "--model", "tiny", "-o", "made.json"]),
    "limit": (RISING, [*PROFILE, "--limit", "5000", "-o", "made.json"]),
}


class Ran:
    """What the commands printed, and the folder they worked in."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        command = [sys.executable, "-c", LAW, json.dumps(list(CASES.values()))]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
        codes = json.loads((folder / "codes.json").read_text())
        printed = zip(codes, done.stdout.split("<<next>>\n"), done.stderr.split("<<next>>\n"), strict=False)
        self.results: dict[str, tuple[int, str, str]] = dict(zip(CASES, printed, strict=True))

    def __getitem__(self, case: str) -> tuple[int, str, str]:
        return self.results[case]

    def lines(self, name: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / name).read_text().splitlines()]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return Ran(tmp_path_factory.mktemp("profiled"))


def test_a_profile_is_written_and_says_where_it_comes_from(ran: Ran) -> None:
    code, out, _ = ran["written"]
    assert code == 0
    assert "specsched run frontier --set hardware.profile=made.json" in out
    profile = load_profile(ran.folder / "made.json")
    assert (profile.name, profile.source, profile.gpus, profile.captured_sizes) == ("made", "measured", 1, ())
    assert sorted(set(profile.verify.tokens)) == [1, 2, 4, 8, 16]
    text = " ".join(profile.provenance)
    for words in ("MEASURED on this machine", "QUICK", "SYNTHETIC", "Random weights", "Eager calls", "No GPU"):
        assert words in text
    assert "threads" in profile.hardware
    assert {"torch", "triton", "python"} <= set(profile.versions)


def test_prices_are_the_law_that_the_clock_followed(ran: Ran) -> None:
    """Samples are moved to no context, and rows pay for theirs: together the step that was timed."""
    profile = load_profile(ran.folder / "made.json")
    assert profile.context.reference_tokens == 0
    assert profile.context.seconds_per_token == pytest.approx(1e-7)
    assert "2 medians of a grid" in profile.context.note
    cost = StepCost(profile)
    assert cost.verify_seconds(16) == pytest.approx(4e-3 + 16e-4, rel=1e-4)
    assert cost.context_seconds(2, 2 * 256) == pytest.approx(2 * 256 * 1e-7)
    assert cost.draft_seconds(2) == pytest.approx(1.2e-3 + 2 * 128 * 1e-7, rel=1e-4)
    assert profile.host.source == "assumed"
    alone = 1 / (4e-3 + 1e-4 + 256 * 1e-7)
    assert profile.sla_anchors == tuple(float(f"{share * alone:.2g}") for share in (0.6, 1, 1.5))


@pytest.mark.parametrize(("name", "gamma", "rows"), [("made", 7, 2), ("three", 3, 16)])
def test_every_sample_is_in_the_profile_and_in_the_file(name: str, gamma: int, rows: int, ran: Ran) -> None:
    header, *timings = ran.lines(f"{name}.samples.jsonl")
    profile = load_profile(ran.folder / f"{name}.json")
    assert profile.draft is not None
    assert (header["model"], header["gamma"], profile.draft.gamma) == ("tiny-cpu", gamma, gamma)
    for part, samples in (("verify", profile.verify.seconds), ("draft", profile.draft.seconds)):
        assert sorted(s for each in timings if each["part"] == part for s in each["seconds"]) == sorted(samples)
    assert max(profile.draft.rows) == rows


def test_a_frontier_runs_on_it(ran: Ran) -> None:
    code, out, err = ran["run"]
    assert code == 0, err
    assert "async-lag2" in out
    points = pl.read_parquet(ran.folder / "ran/points.parquet")
    assert set(points["load"]) == {1, 2}
    assert points["throughput_tok_s_gpu"].min() > 0


def test_it_can_be_shown(ran: Ran) -> None:
    code, out, err = ran["shown"]
    assert code == 0, err
    assert "SYNTHETIC" in out


def test_a_flat_curve_gives_no_profile(ran: Ran) -> None:
    code, _, err = ran["flat"]
    assert code == 1
    assert "the curve is flat" in err
    assert "the times are in flat.unfinished.jsonl" in err
    assert not (ran.folder / "flat.json").exists()
    assert not (ran.folder / "flat.samples.jsonl").exists()
    timings = ran.lines("flat.unfinished.jsonl")[1:]
    assert [each["run"] for each in timings] == [1] * (len(timings) // 2) + [2] * (len(timings) // 2)


def test_passes_that_disagree_give_no_profile(ran: Ran) -> None:
    """The first half of all calls is slow, in the repetition too."""
    code, _, err = ran["apart"]
    assert code == 1
    assert "more than 25% apart at 9 of 9 points" in err
    assert {each["run"] for each in ran.lines("apart.unfinished.jsonl")[1:]} == {1, 2, 3, 4}
    assert not (ran.folder / "apart.json").exists()


def test_a_stopped_run_keeps_its_samples_and_an_older_profile(ran: Ran) -> None:
    code, _, err = ran["stopped"]
    assert code == 130
    assert "stopped after 3 of" in err
    assert len(ran.lines("stopped.unfinished.jsonl")) == 1 + 3
    assert not (ran.folder / "stopped.json").exists()
    assert ran["kept"][0] == 130
    assert load_profile(ran.folder / "made.json").name == "made"
    assert len(ran.lines("made.samples.jsonl")) > 1 + 3


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("ending", "error: `--output` must be a .json file, got made.yaml"),
        ("folder", "error: `--output` must be a file in a folder that exists, got nowhere/made.json"),
        ("unknown", "error: `model` must be one of dense-8b"),
        ("limit", "error: `limit` must be 1 + gamma (8) to 4096 tokens, got 5000"),
    ],
)
def test_what_cannot_be_done_is_one_line(case: str, message: str, ran: Ran) -> None:
    code, _, err = ran[case]
    assert code == 2
    assert message in err
    assert err.strip().count("\n") == 0


def test_the_real_clock_gives_a_profile_or_a_reason(tmp_path: Path) -> None:
    code = "from specsched.experiments.cli.main import main; main()"
    command = [sys.executable, "-c", code, *PROFILE, "--limit", "8", "-o", "real.json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    (file,) = tmp_path.glob("real.*.jsonl")
    timings = [json.loads(line) for line in file.read_text().splitlines()[1:]]
    assert all(seconds > 0 for timing in timings for seconds in timing["seconds"])
    points = [timing for timing in timings if timing["run"] == 1]
    assert sum(timing["run"] <= 2 for timing in timings) == 2 * len(points)
    assert (done.returncode == 0) == (tmp_path / "real.json").exists()
    if done.returncode:
        # Refused as no measurement, or as no profile: a price of context that other work on the machine made up.
        reasons = {"25% apart": 1, "the curve is flat": 1, "is too large for the sample's rows and context": 2}
        assert done.returncode in [code for reason, code in reasons.items() if reason in done.stderr], done.stderr
    else:
        assert StepCost(load_profile(tmp_path / "real.json")).max_tokens == 8
