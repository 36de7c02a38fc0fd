from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from specsched.experiments.config.document import Document, load_document
from specsched.experiments.config.errors import ConfigError
from specsched.experiments.config.given import shipped_experiments
from specsched.experiments.config.overrides import override
from specsched.experiments.config.resolve import load_experiment

TEXT = """\
workload: {mode: closed}
hardware: {profile: vllm-dsv4flash-b300-tp4}
drafts: {kind: constant, acceptance: 0.8}
arms:
  one: {policy: {kind: static, k: 1}}
  async-lag2: {policy: {kind: async_topk, lag: 2}}
sweep: {load: [1]}
"""


@pytest.fixture
def document(tmp_path: Path) -> Document:
    (tmp_path / "x.yaml").write_text(TEXT)
    return load_document(tmp_path / "x.yaml", "x.yaml")


def at(document: Document, path: str) -> Any:
    data: Any = document.data
    for part in path.split("."):
        data = data[part]
    return data


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("sweep.load=[1,2]", [1, 2]),
        ("seeds=[0]", [0]),
        ("sla.anchors=[80]", [80]),
        ("sla.anchors=[1e2, 0x10]", [100.0, 16]),
        ("workload.path=x.csv", "x.csv"),
        ("hardware.profile=llama31-8b-h100", "llama31-8b-h100"),
        ("workload.domains.math=0.5", 0.5),
        ("workload.window.limit=100", 100),
        ("arms.async-lag2.policy.lag=3", 3),
        ("arms.async-lag2.policy.min_gain=0.01", 0.01),
        ("arms.one.drafts={kind: constant, acceptance: 0.5}", {"kind": "constant", "acceptance": 0.5}),
        ("arms.one.draft_cost.band=[0, 1]", [0, 1]),
        ("prefill.tokens_per_s=5", 5),
        ("hardware.lookup=on", "on"),
        ("hardware.sync_stall_seconds=", None),
        ("workload.path=a=b.csv", "a=b.csv"),
    ],
)
def test_a_setting_replaces_the_value_and_is_read_as_yaml_1_2(document: Document, setting: str, value: Any) -> None:
    changed = override(document, [setting])
    assert at(changed, setting.partition("=")[0]) == value
    assert document.data["sweep"] == {"load": [1]}, "the original stays as it was"


def test_the_last_of_two_settings_counts(document: Document) -> None:
    assert at(override(document, ["seeds=[1]", "seeds=[2]"]), "seeds") == [2]


def test_a_parameter_may_be_set_after_its_policy(document: Document) -> None:
    changed = override(document, ["arms.one.policy={kind: async_topk}", "arms.one.policy.lag=4"])
    assert at(changed, "arms.one.policy") == {"kind": "async_topk", "lag": 4}


@pytest.mark.parametrize(
    ("setting", "nearest"),
    [
        ("sweep.loads=[1]", "sweep.load"),
        ("sweep.lod=[1]", "sweep.load"),
        ("load=[1]", "sweep.load"),
        ("seed=3", "seeds"),
        ("anchors=[80]", "sla.anchors"),
        ("sla.anchor=[80]", "sla.anchors"),
        ("workload.pth=x.csv", "workload.path"),
        ("hardware.profle=x", "hardware.profile"),
        ("hardwre.profile=x", "hardware.profile"),
        ("arms.two.policy.k=1", "arms.one.policy.k"),
        ("arms.async-lag2.policy.lagg=1", "arms.async-lag2.policy.lag"),
        ("arms.async.policy.lag=1", "arms.async-lag2.policy.lag"),
        ("sweep.load.0=1", "sweep.load"),
        ("hardware.profile.name=x", "hardware.profile"),
        ("output.record=[steps]", "output.records"),
    ],
)
def test_an_unknown_path_is_refused_with_the_nearest_right_one(document: Document, setting: str, nearest: str) -> None:
    with pytest.raises(ConfigError) as caught:
        override(document, [setting])
    path = setting.partition("=")[0]
    assert str(caught.value) == f"--set {path}: there is no such key; the nearest is {nearest}"


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("seeds", "--set seeds: write it as key.path=value"),
        ("=3", "--set =3: write it as key.path=value"),
        ("seeds=[1", "--set seeds:1:3: not valid YAML"),
        ("seeds={a: 1, a: 2}", "--set seeds:1:8: key 'a' appears twice"),
        ("drafts={kind: constant}", "--set: drafts.acceptance: is required and missing"),
        ("drafts.profile=x", "--set: drafts.profile: unknown key; choose from kind, acceptance, confidence, gamma"),
        ("sla.anchors=[0]", "--set: sla.anchors.0: must be greater than 0, got 0"),
        ("sweep.load=4", "--set: sweep.load: must be a list, got 4"),
        ("workload.path=none.csv", "--set: workload.path: there is no file 'none.csv'; tried "),
        ("arms.one.policy.k=-1", "--set: arms.one.policy.k: .*at least 0, got -1"),
    ],
)
def test_a_wrong_value_is_refused_in_the_name_of_the_option(tmp_path: Path, setting: str, message: str) -> None:
    (tmp_path / "x.yaml").write_text(TEXT)
    with pytest.raises(ConfigError, match=f"^{message}".replace("[", r"\[")):
        load_experiment(tmp_path / "x.yaml", [setting])


def test_keys_cannot_be_set_inside_a_value(document: Document) -> None:
    with pytest.raises(ConfigError, match=r"workload.lengths is 'azure-code' and has no keys; set workload.lengths="):
        override(document, ["workload.lengths=azure-code", "workload.lengths.prompt=3"])


def test_a_seed_replaces_the_seeds(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(TEXT)
    assert load_experiment(tmp_path / "x.yaml", seed=7).seeds == [7]
    with pytest.raises(ConfigError, match=r"^--seed: seeds.0: must be at least 0, got -1"):
        load_experiment(tmp_path / "x.yaml", seed=-1)


@pytest.mark.parametrize("name", sorted(shipped_experiments()))
def test_what_people_override_works_on_every_shipped_file(name: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").touch()
    settings = [
        f"workload.path={tmp_path / 't.csv'}",
        "hardware.profile=llama31-8b-h100",
        "sweep.load=[2]",
        "seeds=[5]",
        "sla.anchors=[80]",
        "output.records=[steps, requests]",
    ]
    experiment = load_experiment(shipped_experiments()[name], settings)
    assert experiment.workload.path == str(tmp_path / "t.csv")
    assert experiment.hardware.profile == "llama31-8b-h100"
    assert (experiment.sweep.load, experiment.seeds, experiment.sla.anchors) == ([2.0], [5], [80.0])


def test_a_whole_arm_may_be_added(document: Document) -> None:
    changed = override(document, ["arms.mine={policy: {kind: static, k: 2}}", "arms.mine.policy.k=4"])
    assert at(changed, "arms.mine") == {"policy": {"kind": "static", "k": 4}}
    with pytest.raises(ConfigError, match="nearest"):
        override(document, ["arms.mine.policy={kind: static, k: 2}"])
    with pytest.raises(ConfigError, match="nearest"):
        override(document, ["arms.mine=3"])
