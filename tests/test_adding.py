"""docs/development.md: every diff under "Adding" applies to a copy of the tree, and what it adds can be used there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import polars as pl
import pytest

from specsched.policies import POLICIES

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
ROOMS: list[str] = sorted(PROJECT["tool"]["setuptools"]["package-dir"].values())
PAGE = (ROOT / "docs" / "development.md").read_text(encoding="utf-8")
ADDING = PAGE.split("\n## Adding\n")[1].split("\n## ")[0]
PARTS = re.split(r"^\*\*(.+?)\*\*", ADDING, flags=re.MULTILINE)[1:]
TEXTS = dict(zip(PARTS[::2], PARTS[1::2], strict=True))

MAIN = "from specsched.experiments.cli.main import main; main()"
SHORT = ["--workers", "1", "-q", "--set", "seeds=[0]", "--set", "sweep.load=[4]", "--set", "workload.cohort=8"]


def blocks(what: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXTS[what], re.DOTALL)


class Tree:
    """A copy of the rooms in which something was added."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in (*ROOMS, ".typing", "docs"):
            shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", folder)

    def apply(self, diff: str) -> list[str]:
        """Apply a diff; return the files that it touches."""
        (self.folder / "added.diff").write_text(diff, encoding="utf-8")
        settings = os.environ | {"GIT_CEILING_DIRECTORIES": str(self.folder.parent)}
        command = ["git", "apply", "added.diff"]
        done = subprocess.run(command, cwd=self.folder, env=settings, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        touched = re.findall(r"^\+\+\+ b/(.*)$", diff, re.MULTILINE)
        for name in touched:
            if name.endswith(".py"):
                self.lint(name)
        return sorted(touched)

    def lint(self, file: str) -> None:
        """Hold a file to the rules of the project; one of a user's lies beside the rooms and says `specsched.x`."""
        check = ["check"] if "/" in file else ["check", "--ignore", "TID251"]
        for command in (check, ["format", "--check"]):
            ruff = [sys.executable, "-m", "ruff", *command, "--no-cache", file]
            done = subprocess.run(ruff, cwd=self.folder, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout + done.stderr

    def python(self, script: str, *arguments: str) -> str:
        """Run a script that sees the copy's rooms; return what it prints."""
        place = f"import specsched.sim as s, sys; assert s.__file__.startswith({str(self.folder)!r}), s.__file__\n"
        settings = os.environ | {"PYTHONPATH": os.pathsep.join((str(self.folder / ".typing"), str(self.folder)))}
        done = subprocess.run(
            [sys.executable, "-c", place + script, *arguments],
            cwd=self.folder,
            env=settings,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def run(self, *settings: str) -> pl.DataFrame:
        """Run the shipped frontier in a small form; return its points."""
        changed = [word for each in settings for word in ("--set", each)]
        self.python(MAIN, "run", "frontier", "-o", "out", *SHORT, *changed)
        return pl.read_parquet(self.folder / "out" / "points.parquet")


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_a_policy_is_one_file(tree: Tree) -> None:
    assert tree.apply(*blocks("A policy", "diff")) == ["policies/half.py"]
    points = tree.run("arms={mine: {policy: {kind: half}}, static-3: {policy: {kind: static, k: 3}}}")
    budget = dict(points.select("arm", "verify_budget").iter_rows())
    assert budget["mine"] == pytest.approx(budget["static-3"], rel=0.02)  # half of 7 is 3
    assert points.filter(arm="mine")["safety"].to_list() == ["safe"]
    kinds = tree.python("from specsched.policies import POLICIES; print(*POLICIES)").split()
    assert kinds == [*POLICIES, "half"]


def test_a_draft_model_of_the_users_needs_no_file_of_the_project(tree: Tree) -> None:
    assert tree.apply(*blocks("A draft model", "diff")) == ["my_drafts.py"]
    (text,) = blocks("A draft model", "yaml")
    points = tree.run(
        text.strip().replace(": ", "=", 1),
        "arms={static-4: {policy: {kind: static, k: 4}}}",
        "workload.cohort=60",
    )
    assert points["accepted_length"].item() == pytest.approx(sum(0.6**n for n in range(5)), rel=0.05)


def test_a_trace_format_is_one_file(tree: Tree) -> None:
    assert tree.apply(*blocks("A trace format", "diff")) == ["traces/formats.py"]
    rows = (
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,472,18,490,Conversation log\n"
    )
    (tree.folder / "burst.csv").write_text(rows + "45.5,ChatGPT,1087,230,1317,Conversation log\n", encoding="utf-8")
    script = "from specsched.traces import read_trace; print(read_trace('burst.csv').rows())"
    assert tree.python(script) == "[(0, 0.0, 472, 18), (1, 40.5, 1087, 230)]\n"
    named = tree.python(MAIN, "traces", "show", "burst.csv", "--format", "burst-gpt", "--json")
    assert '"format": "BurstGPT CSV", "n": 2' in named


def test_a_metric_is_one_file_and_its_page(tree: Tree) -> None:
    assert tree.apply(*blocks("A metric", "diff")) == ["docs/metrics.md", "sim/metrics.py"]
    points = tree.run(
        "arms={static-3: {policy: {kind: static, k: 3}}}",
        "output.effects=[{metric: rejected_per_emitted, along: load, against: 4}]",
    )
    per_round, accepted = points["rejected_per_step"].item(), points["accepted_length"].item()
    assert points["rejected_per_emitted"].item() == pytest.approx(per_round / accepted, rel=0.05)
    (tree.folder / "tests" / "experiments").mkdir(parents=True)
    test = tree.folder / "tests" / "experiments" / "test_metrics_doc.py"
    shutil.copy(ROOT / "tests" / "experiments" / test.name, test)
    tree.python("import pytest; sys.exit(pytest.main(sys.argv[1:]))", "-q", "-p", "no:cacheprovider", str(test))


def test_a_figure_is_one_file_and_its_name(tree: Tree) -> None:
    (diff,) = blocks("A figure", "diff")
    assert tree.apply(diff) == ["experiments/config/schema.py", "experiments/show/acceptance.py"]
    changed = [line for line in diff.partition("--- /dev/null")[0].splitlines() if re.match(r"[+-](?![+-])", line)]
    assert len(changed) == 2
    assert changed[1] == "+" + changed[0][1:].replace('"]', '", "acceptance"]')
    tree.run("output.figures=[acceptance]", "arms={static-3: {policy: {kind: static, k: 3}}}")
    assert "accepted length" in (tree.folder / "out" / "acceptance.svg").read_text(encoding="utf-8")
    assert (tree.folder / "out" / "acceptance.png").stat().st_size > 5000
