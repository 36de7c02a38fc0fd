"""``specsched check``: exit codes, what is said in each case, JSON, errors that name what is wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from fractions import Fraction
from math import prod
from pathlib import Path
from typing import Any

import pytest

from specsched.experiments.cli import check as cli_check
from specsched.experiments.cli.main import main
from specsched.policies.lossless import checker

MODULE = '''
from dataclasses import dataclass
import numpy as np
from specsched.policies import LaggedBudget, Policy

print("a user's module may print")

@dataclass(frozen=True)
class Whole(Policy):
    """Verifies a block whole if its last draft is likely: that depends on the drafts before."""

    least: float = 0.5

    def plan(self, view, state):
        likely = view.confidence.min(axis=1, initial=1.0) >= self.least
        return np.where(likely, view.available, 0), state

class Fixed(LaggedBudget):
    def budget(self, view, state):
        return min(1, view.drafted), state

class Nonsense(Policy):
    def plan(self, view, state):
        return view.available + 1, state

class Strange(Policy):
    def plan(self, view, state):
        return [0] * view.rows, state

class Impure(Policy):
    calls = 0

    def plan(self, view, state):
        Impure.calls += 1
        return np.minimum(view.available, Impure.calls % 2), state
'''


@pytest.fixture(autouse=True)
def _user_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "checked_by_test", raising=False)
    (tmp_path / "checked_by_test.py").write_text(MODULE)


def check(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Run the command; return exit code, standard output and standard error."""
    monkeypatch.setattr(sys, "argv", ["specsched", "check", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    return lambda *words: check(monkeypatch, capsys, *words)


def test_a_safe_scheduler_passes_and_says_what_was_covered(run: Any) -> None:
    code, out, err = run("async_topk", "--lag", "1", "--examples", "60")
    assert (code, err) == (0, "")
    assert "Rule `row-wise`: kept in" in out
    assert "Rule `stopping set`: kept in" in out
    assert "verified and refused: " in out
    closing = out.splitlines()[-1]
    assert closing.startswith("no counterexample in ")
    assert "1x2x1, 1x2x2" in closing


def test_a_biased_class_is_shown_its_counterexample(run: Any) -> None:
    code, out, err = run("checked_by_test:Whole", "--set", "least=0.6")
    assert (code, err) == (1, "")
    assert "Whole changes the output" in out
    assert "recomputed in fractions" in out
    assert "Row 0's draft 1 is verified if x1 = " in out
    assert "instead of" in out
    assert "Rule `row-wise`: broken" in out
    assert "no counterexample" not in out


def test_the_counterexample_as_json(run: Any) -> None:
    code, out, err = run("checked_by_test:Whole", "--json", "--seed", "3")
    data = json.loads(out)
    assert code == 1
    assert "may print" in err
    assert (data["verdict"], data["seed"], data["parameters"]) == ("marginal", 3, {"least": 0.5})
    assert set(data["versions"]) == {"specsched", "hypothesis"}
    found = data["counterexample"]
    assert found["found_after_worlds"] <= data["worlds"]
    assert (len(found["world"]["rows"]), found["world"]["gamma"], found["world"]["vocabulary"]) == (1, 2, 2)
    total = Fraction(found["hidden"]["probability"])
    for path in found["paths"]:
        rows = [row for step in path["steps"] for row in step["rows"]]
        product = prod(Fraction(row["probability"]) * Fraction(row["share"]) for row in rows)
        assert product == Fraction(path["probability"])
        total += product if path["outcome"] == found["accused"]["outcome"] else 0
    assert total == Fraction(found["accused"]["scheduler"]) > Fraction(found["accused"]["target"])
    assert data["rules"]["row_wise"]["text"]


def test_a_pass_as_json(run: Any) -> None:
    code, out, _ = run("checked_by_test:Fixed", "--json", "--examples", "40")
    data = json.loads(out)
    assert (code, data["verdict"], data["counterexample"]) == (0, "lossless", None)
    assert data["worlds"] == sum(tally["worlds"] for tally in data["tallies"]) > 0
    assert {"rows", "vocabulary", "gamma", "worlds", "admitted", "varied", "split"} <= set(data["tallies"][0])


def test_one_seed_gives_one_answer(run: Any) -> None:
    words = ("checked_by_test:Whole", "--json", "--seed", "5")
    assert run(*words)[1] == run(*words)[1]


def test_confidences_that_know_their_own_draft(run: Any) -> None:
    """A threshold is safe as long as a confidence does not depend on the draft it belongs to."""
    words = ("threshold", "--set", "t=0.5", "--examples", "60")
    assert run(*words)[0] == 0
    code, out, _ = run(*words, "--own-token")
    assert code == 1
    assert "here they prove nothing" in out


def test_never_verifying_is_vacuous(run: Any) -> None:
    code, out, _ = run("autoregressive", "--examples", "20")
    assert code == 0
    assert out.splitlines()[-1].startswith("vacuous: no draft was verified")
    assert "lossless" not in out


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["asinc_topk"], ["asinc_topk", "did you mean `async_topk`", "greedy_early_stop"]),
        (["async_topk", "--lag", "0"], ["`lag`", "at least 1", "got 0"]),
        (["async_topk", "--set", "lag=soon"], ["`lag`", "at least 1", "'soon'"]),
        (["static", "--lag", "2"], ["static", "no parameter `lag`", "choices: k"]),
        (["async_topk", "--set", "joins=all"], ["`joins`", "'optimistic'", "'all'"]),
        (["async_topk", "--set", "gain=1"], ["no parameter `gain`", "min_gain"]),
        (["async_topk", "--set", "lag"], ["--set lag", "param=value"]),
        (["async_topk", "--lag", "1", "--set", "lag=2"], ["`lag` is set twice", "first to 1"]),
        (["async_topk", "--set", "kind=static"], ["first argument"]),
        (["async_topk", "--set", "allowed=[1"], ["--set allowed", "not valid YAML"]),
        (["python"], ["module:Class"]),
        (["nowhere_to_be_found:Mine"], ["nowhere_to_be_found", "run from the folder that holds it"]),
        (["checked_by_test:Missing"], ["checked_by_test.py", "no `Missing`"]),
        (["checked_by_test:MODULE"], ["no `MODULE`"]),
        (["checked_by_test:Nonsense"], ["`Nonsense`", "drafts available", "clip to `view.available`"]),
        (["checked_by_test:Strange"], ["`Strange`", "numpy array", "list"]),
        (["checked_by_test:Impure"], ["`Impure`", "pure function", "view.coin"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) and len(value) < 6 else "",
)
def test_errors_are_one_line_that_names_what_is_wrong(run: Any, words: list[str], parts: list[str]) -> None:
    code, out, err = run(*words)
    assert code == 2
    assert "Traceback" not in err
    line = err.splitlines()[-1]
    assert line.startswith("error: ")
    for part in parts:
        assert part in line
    assert "changes the output" not in out


@pytest.mark.parametrize("words", [["async_topk", "--examples", "0"], ["async_topk", "--seed", "-1"], []])
def test_bad_options_are_usage_errors(run: Any, words: list[str]) -> None:
    assert run(*words)[0] == 2


def test_ctrl_c_tells_how_far_it_came(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(policy: Any, examples: int, seed: int, own_token: bool, progress: Any) -> None:
        progress(41, examples)
        raise KeyboardInterrupt

    monkeypatch.setattr(checker, "check", interrupted)
    code, out, err = run("async_topk", "--examples", "70")
    assert (code, out) == (cli_check.INTERRUPTED, "")
    assert "after 41 of 70 worlds" in err


def test_help_needs_no_search_and_names_the_exit_codes() -> None:
    script = (
        "import sys; sys.argv = ['specsched', 'check', '--help']\n"
        "from specsched.experiments.cli.main import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "Exit code 0 if none is found" in done.stdout
