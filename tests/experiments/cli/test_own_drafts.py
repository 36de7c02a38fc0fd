"""A draft model of the user's own, from the experiment file to the points: everywhere a shipped one may stand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
import yaml

Command = Callable[..., tuple[int, str, str]]

MODULE = '''
import numpy as np
from dataclasses import dataclass
from specsched.sim import DraftError, DraftModel, text_uniforms

@dataclass(frozen=True)
class Fading(DraftModel):
    seed: int
    first: float = 0.9
    fade: float = 0.1
    gamma: int = 4
    replays = False

    def check(self, domains):
        if "math" in domains:
            raise DraftError("no figures for `math`; there are some for all others")

    def blocks(self, request, domain, start, count):
        odds = self.first - self.fade * np.arange(self.gamma)
        u = text_uniforms(self.seed, request, start + 1, count + self.gamma - 1)
        accepted = np.lib.stride_tricks.sliding_window_view(u, self.gamma) < odds
        return {confidence}, {outcomes}

class Plain(DraftModel):
    """No dataclass: its parameters are those of ``__init__``."""
    def __init__(self, seed, odds, path=None):
        self.inner, self.gamma, self.path = Fading(seed, odds, 0.0), 4, path
    def blocks(self, *where):
        return self.inner.blocks(*where)
'''
GOOD = {"confidence": "np.tile(odds, (count, 1))", "outcomes": "accepted.cumprod(axis=1).sum(axis=1)"}

OWN = "{kind: python, object: 'my_drafts:Fading', fade: 0.05}"

TEXT = f"""\
workload: {{lengths: {{prompt: 100, output: 40}}, cohort: 16}}
hardware: {{profile: vllm-dsv4flash-b300-tp4}}
drafts: {OWN}
arms:
  static-3: {{policy: {{kind: static, k: 3}}}}
  async-lag2: {{policy: {{kind: async_topk, lag: 2}}}}
sweep: {{load: [2]}}
seeds: [0, 1]
output: {{figures: []}}
"""


def write(folder: Path, text: str = TEXT, **answer: str) -> None:
    module = MODULE
    for name, value in (GOOD | answer).items():
        module = module.replace(f"{{{name}}}", value)
    (folder / "my_drafts.py").write_text(module)
    (folder / "x.yaml").write_text(text)


def points(folder: Path) -> pl.DataFrame:
    return pl.read_parquet(folder / "points.parquet")


def refused(result: tuple[int, str, str]) -> str:
    code, _, errors = result
    assert code == 2, errors
    (line,) = [line for line in errors.splitlines() if line]
    return line.removeprefix("error: ")


def test_it_runs_in_workers_and_every_number_of_them_gives_the_same_bytes(here: Command, tmp_path: Path) -> None:
    write(tmp_path)
    code, out, errors = here("run", "x.yaml", "-q", "--workers", "2", "-o", "two")
    assert (code, errors) == (0, "")
    assert "static-3" in out
    assert here("run", "x.yaml", "-q", "--workers", "1", "-o", "one")[0] == 0
    assert (tmp_path / "one/points.parquet").read_bytes() == (tmp_path / "two/points.parquet").read_bytes()
    # 1 + .9 + .9 * .85 + .9 * .85 * .8, were every block drawn anew
    length = points(tmp_path / "two").filter(pl.col("arm") == "static-3")["accepted_length"].mean()
    assert length == pytest.approx(3.28, abs=0.3)


def test_the_resolved_file_has_every_parameter_and_gives_the_same_points(here: Command, tmp_path: Path) -> None:
    write(tmp_path)
    assert here("run", "x.yaml", "-q", "--workers", "1", "-o", "one")[0] == 0
    config = yaml.safe_load((tmp_path / "one/config.yaml").read_text())
    assert config["drafts"] == {
        "kind": "python",
        "object": "my_drafts:Fading",
        "fade": 0.05,
        "first": 0.9,
        "gamma": 4,
    }
    assert here("run", "one/config.yaml", "-q", "--workers", "1", "-o", "again")[0] == 0
    for name in ("points.parquet", "config.yaml"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "again" / name).read_bytes()


def test_an_arm_may_have_one_of_its_own(here: Command, tmp_path: Path) -> None:
    write(
        tmp_path,
        TEXT.replace("kind: python, object: 'my_drafts:Fading', fade: 0.05", "kind: constant, acceptance: 0.5"),
    )
    arms = "{policy: {kind: static, k: 3}, drafts: {kind: python, object: 'my_drafts:Fading'}}"
    run = ("run", "x.yaml", "-q", "--workers", "1", "-o", "out", "--set", f"arms.mine={arms}")
    assert here(*run, "--set", "arms.mine.drafts.first=0.95", "--set", "arms.mine.drafts.fade=0")[0] == 0
    config = yaml.safe_load((tmp_path / "out/config.yaml").read_text())
    assert config["arms"]["mine"]["drafts"]["first"] == 0.95
    assert config["drafts"]["kind"] == "constant"
    lengths = dict(points(tmp_path / "out").group_by("arm").agg(pl.col("accepted_length").mean()).rows())
    assert lengths["static-3"] == pytest.approx(1.875, abs=0.2)
    assert lengths["mine"] == pytest.approx(3.71, abs=0.2)


def test_axes_vary_its_parameters_and_the_class(here: Command, tmp_path: Path) -> None:
    write(tmp_path, TEXT.replace("{load: [2]}", "{load: [2], axes: {drafts.first: [0.5, 0.9]}}"))
    assert here("run", "x.yaml", "-q", "--workers", "1", "-o", "out")[0] == 0
    found = dict(points(tmp_path / "out").group_by("drafts.first").agg(pl.col("accepted_length").mean()).rows())
    assert found[0.5] < found[0.9]
    plain = "{kind: python, object: 'my_drafts:Plain', odds: 0.9}"
    axes = f"sweep.axes={{drafts: [{{kind: constant, acceptance: 0.9}}, {plain}]}}"
    assert here("run", "x.yaml", "-q", "--workers", "1", "-o", "kinds", "--set", axes)[0] == 0
    assert points(tmp_path / "kinds")["drafts"].n_unique() == 2


def test_a_study_searches_its_parameters(here: Command, tmp_path: Path) -> None:
    study = (
        "tune: {arm: static-3, trials: 4, space: {drafts.fade: [0.05, 0.2], arms.static-3.policy.k: {low: 1, high: 4}},"
        " objectives: [{maximize: throughput_tok_s_gpu}], seeds: {tuning: [0], testing: [5, 6, 7, 8, 9]}}\n"
    )
    write(tmp_path, TEXT + study)
    code, _, errors = here("tune", "x.yaml", "-q", "--workers", "1", "-o", "out")
    assert code == 0, errors
    trials = pl.read_parquet(tmp_path / "out/trials.parquet")
    assert set(trials["drafts.fade"].to_list()) <= {0.05, 0.2}
    assert "my_drafts:Fading" in (tmp_path / "out/best.yaml").read_text()


def test_a_changed_file_refuses_to_resume(here: Command, tmp_path: Path) -> None:
    write(tmp_path)
    run = ("run", "x.yaml", "-q", "--workers", "1", "-o", "out")
    assert here(*run)[0] == 0
    assert here(*run, "--resume")[0] == 0
    write(tmp_path, confidence="np.tile(odds * 0.5, (count, 1))")
    assert "code.my_drafts has changed; resume with the configuration" in refused(here(*run, "--resume"))


def test_a_parameter_called_path_names_a_file_and_its_content_counts(here: Command, tmp_path: Path) -> None:
    write(tmp_path, TEXT.replace(":Fading', fade: 0.05", ":Plain', odds: 0.5, path: odds.txt"))
    run = ("run", "x.yaml", "-q", "--workers", "1", "-o", "out")
    assert "drafts.path: there is no file 'odds.txt'; tried" in refused(here(*run))
    (tmp_path / "odds.txt").write_text("0.5")
    assert here(*run)[0] == 0
    manifest = json.loads((tmp_path / "out/manifest.json").read_bytes())
    assert "drafts.path" in manifest["files"]
    assert yaml.safe_load((tmp_path / "out/config.yaml").read_text())["drafts"]["path"] == str(tmp_path / "odds.txt")
    (tmp_path / "odds.txt").write_text("0.6")
    assert "drafts.path has changed" in refused(here(*run, "--resume"))


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("drafts={kind: python}", "--set: drafts.object: is required and missing"),
        ("drafts.object=my_drafts", "--set: drafts.object: `object` of a python draft model must be 'module:Class'"),
        (
            "drafts.object=my_draft:Fading",
            "x.yaml:3: drafts: cannot import `my_draft` of draft model object 'my_draft:Fading': ",
        ),
        ("drafts.object=my_drafts:Fadin", "drafts: module `my_drafts` ("),
        ("drafts.object=my_drafts:np", "drafts: 'my_drafts:np' must be a class derived from specsched.sim.DraftModel"),
        ("drafts.fad=1", "--set: drafts.fad: unknown parameter of drafts of `my_drafts:Fading`: `fad`; it must be one"),
        ("drafts.seed=1", "--set: drafts.seed: `seed` of drafts of `my_drafts:Fading` is that of each point of the"),
        ("drafts.gamma=0", "--set: drafts.gamma: draft model `my_drafts:Fading`: `gamma` must be a whole number of at"),
        ("drafts.first=high", "arm static-3, load 2, seed 0: draft model `my_drafts:Fading` failed at request 0"),
        ("workload.domains={math: 1}", "arm static-3: draft model `my_drafts:Fading` failed at domains math: no"),
        ("drafts={kind: pyton, object: 'a:B'}", "drafts.kind: must be one of latent, constant, recorded, python; got"),
        ("drafts={kind: python, object: 'my_drafts:Plain'}", "drafts: drafts of `my_drafts:Plain` need `odds`; add it"),
    ],
)
def test_a_bad_setting_is_one_line(here: Command, tmp_path: Path, setting: str, message: str) -> None:
    write(tmp_path)
    said = refused(here("run", "x.yaml", "-q", "--workers", "1", "--seed", "0", "--set", setting, "-o", "out"))
    assert message in said


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"confidence": "odds"}, "confidences must be a float64 array of shape (39, 4), a row for each block, got"),
        ({"confidence": "np.tile(odds + 1, (count, 1))"}, "depth 1: the confidence must be within [0, 1], got 1.9"),
        ({"outcomes": "accepted.sum(axis=1) + 1"}, "the outcome must be within 0..4, how many leading drafts are"),
        ({"outcomes": "accepted.mean(axis=1)"}, "outcomes must be an array of whole numbers of shape (39,)"),
        ({"outcomes": "1 / 0"}, "failed at request 0 (domain chat), blocks 1 to 39: ZeroDivisionError: division"),
    ],
)
@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_bad_answer_is_one_line(
    here: Command, tmp_path: Path, answer: dict[str, str], message: str, workers: str
) -> None:
    write(tmp_path, **answer)
    said = refused(here("run", "x.yaml", "-q", "--workers", workers, "-o", "out"))
    assert said.startswith("arm ")
    assert ": draft model `my_drafts:Fading`" in said
    assert message in said


def test_a_window_does_not_go_with_what_is_replayed(here: Command, tmp_path: Path) -> None:
    write(tmp_path)
    module = tmp_path / "my_drafts.py"
    module.write_text(module.read_text().replace("replays = False", "replays = True"))
    (tmp_path / "t.csv").write_text(
        "arrival_s,prompt_tokens,output_tokens\n" + "".join(f"{n},9,30\n" for n in range(60))
    )
    trace = ("--set", "workload.path=t.csv", "--set", "workload.lengths=null")
    assert here("run", "x.yaml", "-q", "--workers", "1", "-o", "whole", *trace)[0] == 0
    said = refused(here("run", "x.yaml", "-q", "-o", "cut", *trace, "--set", "workload.window.limit=40"))
    assert "so what `my_drafts:Fading` replays no longer fits them; cut the trace file itself" in said


def test_a_report_names_the_class(here: Command, tmp_path: Path) -> None:
    write(tmp_path)
    assert here("run", "x.yaml", "-q", "--workers", "1", "--seed", "0", "-o", "out")[0] == 0
    (tmp_path / "my_drafts.py").unlink()  # gone since
    assert here("report", "out", "-o", "page.html")[0] == 0
    assert "python my_drafts:Fading" in (tmp_path / "page.html").read_text()
