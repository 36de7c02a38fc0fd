from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from specsched.experiments.config.document import dump
from specsched.experiments.config.errors import ConfigError
from specsched.experiments.config.given import find_config, shipped_experiments
from specsched.experiments.config.resolve import load_experiment
from specsched.experiments.config.schema import Experiment, band_names, expanded_arms

TEXT = """\
workload:
  mode: closed
hardware: {profile: vllm-dsv4flash-b300-tp4}
drafts: {kind: constant, acceptance: 0.8}
arms:
  one: {policy: {kind: static, k: 1}}
  async:
    policy:
      kind: async_topk
      lag: 2
sweep: {load: [1, 2]}
"""


def load(tmp_path: Path, *changes: tuple[str, str], more: str = "", settings: tuple[str, ...] = ()) -> Experiment:
    text = TEXT + more
    for old, new in changes:
        assert text.count(old) == 1
        text = text.replace(old, new)
    file = tmp_path / "x.yaml"
    file.write_text(text)
    return load_experiment(file, settings)


def refusal(tmp_path: Path, *changes: tuple[str, str], more: str = "") -> str:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, *changes, more=more)
    message = str(caught.value)
    assert "\n" not in message
    return message.removeprefix(f"{tmp_path}/")


def test_every_default_is_filled_in(tmp_path: Path) -> None:
    experiment = load(tmp_path)
    assert experiment.model_dump() == {
        "workload": {
            "mode": "closed",
            "path": None,
            "lengths": "azure-conversation",
            "domains": {"chat": 1.0},
            "arrivals": None,
            "window": None,
            "requests": None,
            "cohort": None,
            "warmup": None,
        },
        "hardware": {
            "profile": "vllm-dsv4flash-b300-tp4",
            "captured_sizes": "all",
            "lookup": "ceil",
            "planning_lookup": None,
            "max_num_seqs": 256,
            "sync_stall_seconds": None,
            "noise_cv": 0.0,
        },
        "prefill": {"kind": "none"},
        "drafts": {"kind": "constant", "acceptance": 0.8, "confidence": 0.8, "gamma": 7},
        "arms": {
            "one": {
                "policy": {"kind": "static", "k": 1},
                "drafts": None,
                "draft_cost": None,
                "domains": None,
                "unsafe": False,
            },
            "async": {
                "policy": {
                    "kind": "async_topk",
                    "lag": 2,
                    "ema": 0.0,
                    "joins": "optimistic",
                    "min_len": 0,
                    "min_gain": 0.0,
                    "align": False,
                    "allowed": None,
                },
                "drafts": None,
                "draft_cost": None,
                "domains": None,
                "unsafe": False,
            },
        },
        "sweep": {"load": [1, 2], "axes": {}, "repetitions": 1},
        "seeds": [0, 1, 2, 3, 4],
        "sla": {"anchors": [120.0, 200.0, 300.0], "ttft_s": None, "tpot_s": None},
        "output": {"records": [], "figures": ["frontier"], "effects": []},
    }


def test_an_open_loop_fills_in_its_arrivals(tmp_path: Path) -> None:
    workload = load(tmp_path, ("mode: closed", "mode: open")).workload
    assert workload.arrivals is not None
    assert workload.arrivals.kind == "poisson"
    assert workload.requests == 2000


def test_a_resolved_experiment_resolves_to_itself(tmp_path: Path) -> None:
    for settings in ((), ("workload.mode=open", "workload.arrivals={kind: gamma, cv: 3}", "sweep.load=[0.5, 4]")):
        first = load(tmp_path, settings=settings)
        again = tmp_path / "again.yaml"
        again.write_text(dump(first.model_dump()))
        assert load_experiment(again) == first


def test_a_drafter_fills_in_its_block_length(tmp_path: Path) -> None:
    drafts = load(tmp_path, ("constant, acceptance: 0.8", "latent, profile: dspark-qwen3-4b")).model_dump()["drafts"]
    assert (drafts["gamma"], drafts["confidence"]) == (7, "sts")


def test_whole_loads_are_written_as_such(tmp_path: Path) -> None:
    experiment = load(tmp_path, ("mode: closed", "mode: open"), ("[1, 2]", "[0.5, 2.0]"))
    assert [repr(value) for value in experiment.model_dump()["sweep"]["load"]] == ["0.5", "2"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("mode: closed", "mod: closed", "x.yaml:2: workload.mod: unknown key; did you mean 'mode'?"),
        ("drafts:", "draft:", "x.yaml:4: draft: unknown key; did you mean 'drafts'?"),
        (
            "sweep:",
            "extra: 1\nsweep:",
            "x.yaml:11: extra: unknown key; choose from workload, hardware, prefill, drafts",
        ),
        (
            "mode: closed",
            "mode: open\n  arrivals: {kind: waves, size: 8, share: 2}",
            "x.yaml:3: workload.arrivals.share: must be at most 1, got 2",
        ),
        ("mode: closed", "mode: opn", "x.yaml:2: workload.mode: must be one of closed, open; got 'opn'"),
        ("lag: 2", "lagg: 2", "x.yaml:10: arms.async.policy.lagg: unknown key; did you mean 'lag'?"),
        ("lag: 2", "lag: 0", "x.yaml:10: arms.async.policy.lag: .*at least 1, got 0"),
        ("lag: 2", "lag: 'two'", "x.yaml:10: arms.async.policy.lag: .*got 'two'"),
        ("kind: async_topk", "kind: async_topp", "x.yaml:8: arms.async.policy: unknown policy kind 'async_topp'"),
        ("static, k: 1", "static", "x.yaml:6: arms.one.policy: .*needs parameter `k`"),
        ("static, k: 1", "oracle", "x.yaml:6: arms.one.policy: .*set `unsafe: true`"),
        ("static, k: 1", "retrospective", "x.yaml:6: arms.one.policy: .*set `unsafe: true`"),
        ("one: {", "one.1: {", "x.yaml:6: arms.one.1: a name is made of"),
        ("k: 1}}", "k: 1}, unsafe: yes}", "x.yaml:6: arms.one.unsafe: must be true or false, got 'yes'"),
        ("load: [1, 2]", "lod: [1, 2]", "x.yaml:11: sweep.lod: unknown key; did you mean 'load'?"),
        ("load: [1, 2]", "load: []", "x.yaml:11: sweep.load: must not be empty"),
        ("load: [1, 2]", "load: 1", "x.yaml:11: sweep.load: must be a list, got 1"),
        ("load: [1, 2]", "load: [1, 0]", "x.yaml:11: sweep.load.1: must be greater than 0, got 0"),
        ("load: [1, 2]", "load: [1, 1]", "x.yaml:11: sweep.load.1: 1 appears twice"),
        ("load: [1, 2]", "load: [1, 1.5]", "x.yaml:11: sweep.load.1: .*whole number of running requests, got 1.5"),
        ("load: [1, 2]", "load: [1, 257]", "x.yaml:11: sweep.load.1: must not exceed hardware.max_num_seqs 256"),
        ("load: [1, 2]", "load: ['1']", "x.yaml:11: sweep.load.0: must be a number, got '1'"),
        ("load: [1, 2]", "load: [true]", "x.yaml:11: sweep.load.0: must be a number, got True"),
        ("load: [1, 2]", "load: [.nan]", "x.yaml:11: sweep.load.0: must be a finite number"),
        ("acceptance: 0.8", "acceptance: 1.5", "x.yaml:4: drafts.acceptance: must be at most 1, got 1.5"),
        ("acceptance: 0.8", "accept: 0.8", "x.yaml:4: drafts.accept: unknown key; did you mean 'acceptance'?"),
        (", acceptance: 0.8", "", "x.yaml:4: drafts.acceptance: is required and missing"),
        ("constant, acceptance: 0.8", "latent, profile: no", "x.yaml:4: drafts: unknown drafter profile `no`; it must"),
        (
            "constant, acceptance: 0.8",
            "latent, profile: mtp-1, gamma: 9",
            "x.yaml:4: drafts: `gamma` must be within",
        ),
        (
            "kind: constant, ",
            "",
            "x.yaml:4: drafts.kind: must be one of latent, constant, recorded, python; it is missing",
        ),
        ("kind: constant", "kind: const", "x.yaml:4: drafts.kind: must be one of .*; got 'const'"),
        ("{kind: constant, acceptance: 0.8}", "some", "x.yaml:4: drafts: must be a mapping, got 'some'"),
        ("profile: vllm-dsv4flash-b300-tp4", "lookup: ceil", "x.yaml:3: hardware.profile: is required and missing"),
        ("vllm-dsv4flash-b300-tp4", "vllm-dsv4flash", "x.yaml:3: hardware.profile: no profile named `vllm-dsv4flash`"),
        (
            "mode: closed",
            "lengths: azure-conversaton",
            "x.yaml:2: workload.lengths: .*did you mean 'azure-conversation'?",
        ),
        ("mode: closed", "lengths: {prompt: 3}", "x.yaml:2: workload.lengths.output: is required and missing"),
        ("mode: closed", "lengths: {prompt: 3, output: 0}", "x.yaml:2: workload.lengths.output: must be at least 1"),
        ("mode: closed", "arrivals: {kind: poisson}", "x.yaml:2: workload.arrivals: a closed loop admits"),
        ("mode: closed", "requests: 10", "x.yaml:2: workload.requests: a closed loop runs until"),
        ("mode: closed", "window: {limit: 5}", "x.yaml:2: workload.window: .*needs `workload.path`"),
        ("mode: closed", "domains: {}", "x.yaml:2: workload.domains: must not be empty"),
        ("mode: closed", "path: no.csv", "x.yaml:2: workload.path: there is no file 'no.csv'"),
        ("workload:\n  mode: closed", "workload:", "x.yaml:1: workload: must be a mapping, got nothing"),
    ],
)
def test_a_wrong_value_is_refused_with_file_line_key_and_rule(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert re.match(message, refusal(tmp_path, (old, new))), refusal(tmp_path, (old, new))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("sla: {anchors: [80, 0]}", "x.yaml:12: sla.anchors.1: must be greater than 0, got 0"),
        ("sla: {ttft_s: 0}", "x.yaml:12: sla.ttft_s: must be greater than 0, got 0"),
        ("sla: {tpot_s: -0.1}", "x.yaml:12: sla.tpot_s: must be greater than 0, got -0.1"),
        ("seeds: [0, -1]", "x.yaml:12: seeds.1: must be at least 0, got -1"),
        ("seeds: [0, 0]", "x.yaml:12: seeds.1: 0 appears twice; keep one"),
        ("seeds: [1.0]", "x.yaml:12: seeds.0: must be a whole number, got 1.0"),
        ("seeds: []", "x.yaml:12: seeds: must not be empty, got a list"),
        ("output: {records: [step]}", "x.yaml:12: output.records.0: must be one of steps, requests, rows; got 'step'"),
        ("prefill: {kind: none, slots: 2}", "x.yaml:12: prefill.slots: unknown key; choose from kind"),
        ("prefill: {kind: disaggregated, slots: 2}", "x.yaml:12: prefill.tokens_per_s: is required and missing"),
        ("hardware: {profile: x}", "x.yaml:12:1: key 'hardware' appears twice, first on line 3; keep one"),
    ],
)
def test_a_wrong_section_is_refused_with_file_line_key_and_rule(tmp_path: Path, more: str, message: str) -> None:
    assert refusal(tmp_path, more=more + "\n") == message


def test_a_draft_cost_band_makes_two_more_arms(tmp_path: Path) -> None:
    band = "k: 1}, draft_cost: {scale: 0.3, band: [0.2, 0.5]}}"
    arms = expanded_arms(load(tmp_path, ("k: 1}}", band)))
    assert list(arms) == ["one", "one-low", "one-high", "async"]
    scales = [arms[name].draft_cost for name in ("one", *band_names("one"))]
    assert [cost and cost.scale for cost in scales] == [0.3, 0.2, 0.5]
    assert all(arms[name].policy == arms["one"].policy for name in band_names("one"))


def test_a_band_must_hold_its_scale_and_find_its_names_free(tmp_path: Path) -> None:
    outside = refusal(tmp_path, ("k: 1}}", "k: 1}, draft_cost: {scale: 0.1, band: [0.2, 0.5]}}"))
    assert outside.startswith("x.yaml:6: arms.one.draft_cost.band: must be [low, high] around the scale 0.1")
    taken = "k: 1}, draft_cost: {scale: 0.3, band: [0.2, 0.5]}}\n  one-low: {policy: {kind: autoregressive}}"
    assert refusal(tmp_path, ("k: 1}}", taken)).startswith("x.yaml:7: arms.one-low: the draft cost band of `one`")


def test_unsafe_policies_run_where_the_arm_says_so(tmp_path: Path) -> None:
    experiment = load(tmp_path, ("static, k: 1}}", "oracle}, unsafe: true}"))
    assert experiment.arms["one"].policy == {"kind": "oracle"}


USER_POLICY = """
from dataclasses import dataclass
from specsched.policies.interface import Policy

@dataclass(frozen=True)
class Mine(Policy):
    depth: int
    extra: float = 0.5
    {fact}
    def plan(self, view, state):
        return view.available, state
"""


@pytest.fixture
def user_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Write a policy module with a line in its class and make it importable."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(name: str, fact: str = "") -> str:
        (tmp_path / f"{name}.py").write_text(USER_POLICY.format(fact=fact))
        return f"kind: python, object: '{name}:Mine'"

    return write


def test_a_policy_of_the_user_gets_its_parameters_and_defaults(tmp_path: Path, user_module: Any) -> None:
    spec = user_module("mine_good")
    experiment = load(tmp_path, ("kind: static, k: 1", f"{spec}, depth: 3"))
    assert experiment.arms["one"].policy == {"kind": "python", "object": "mine_good:Mine", "depth": 3, "extra": 0.5}


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        ("", "x.yaml:6: arms.one.policy: policy `Mine` needs parameter `depth`"),
        (", depth: 1, wide: 2", "x.yaml:6: arms.one.policy.wide: policy `Mine` has no parameter `wide`"),
        (", depth: 1, depth: 2", "x.yaml:6:67: key 'depth' appears twice"),
    ],
)
def test_parameters_of_a_users_policy_are_checked(tmp_path: Path, user_module: Any, rest: str, message: str) -> None:
    assert refusal(tmp_path, ("kind: static, k: 1", user_module("mine_bad") + rest)).startswith(message)


def test_a_users_policy_that_calls_itself_unsafe_needs_the_word(tmp_path: Path, user_module: Any) -> None:
    spec = user_module("mine_unsafe", "safety = 'unsafe'") + ", depth: 1"
    assert "set `unsafe: true`" in refusal(tmp_path, ("kind: static, k: 1", spec))
    load(tmp_path, ("kind: static, k: 1}", spec + "}, unsafe: true"))


def test_a_module_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    message = refusal(tmp_path, ("kind: static, k: 1", "kind: python, object: 'nowhere_at_all:Mine'"))
    assert message.startswith("x.yaml:6: arms.one.policy: cannot import `nowhere_at_all`")


def test_a_file_is_looked_up_beside_the_experiment_then_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    monkeypatch.chdir(here)
    change = ("mode: closed", "path: t.csv")
    with pytest.raises(ConfigError, match=f"tried {there}/t.csv and {here}/t.csv"):
        load(there, change)
    (here / "t.csv").touch()
    assert load(there, change).workload.path == str(here / "t.csv")
    (there / "t.csv").touch()
    assert load(there, change).workload.path == str(there / "t.csv")
    assert load(there, settings=("workload.path=t.csv",)).workload.path == str(here / "t.csv")


def test_with_a_trace_file_what_it_replaces_is_null(tmp_path: Path) -> None:
    (tmp_path / "t.csv").touch()
    change = ("mode: closed", "path: t.csv\n  lengths: azure-code\n  mode: open\n  requests: 7")
    workload = load(tmp_path, change).workload
    assert (workload.lengths, workload.requests, workload.domains) == (None, None, None)
    assert workload.arrivals is not None
    assert workload.arrivals.kind == "trace"


def test_a_profile_may_be_a_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"hardware.profile: there is no file 'mine.json'; tried "):
        load(tmp_path, ("vllm-dsv4flash-b300-tp4", "mine.json"))


def test_a_config_is_a_file_or_a_shipped_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_config("frontier") == shipped_experiments()["frontier"]
    with pytest.raises(ConfigError, match=r"no shipped experiment of this name; did you mean 'frontier'?"):
        find_config("fronteir")
    with pytest.raises(ConfigError, match="is a folder"):
        find_config(str(tmp_path))
