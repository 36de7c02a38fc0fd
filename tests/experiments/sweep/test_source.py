"""What a point runs through is hashed, and nothing else."""

from __future__ import annotations

import hashlib
import json
import pickle
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from specsched.experiments.config.given import shipped_experiments
from specsched.experiments.config.schema import Experiment, expanded_arms
from specsched.experiments.sweep import executors
from specsched.experiments.sweep.executors import _check_code
from specsched.experiments.sweep.identity import identity
from specsched.experiments.sweep.plan import load_plan
from specsched.experiments.sweep.source import (
    ROOT,
    data_files,
    hash_of,
    point_modules,
    shipped_hash,
    source_hash,
    user_hash,
)

MODULES = point_modules(ROOT)

Change = Callable[[str], str]


def added(text: str) -> Change:
    return lambda source: source + text


def replaced(old: str, new: str) -> Change:
    def change(source: str) -> str:
        assert source.count(old) >= 1, old
        return source.replace(old, new, 1)

    return change


CODE = added("\nLATER = 1\n")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the rooms."""
    root = tmp_path_factory.mktemp("tree")
    for room in ("experiments", "policies", "sim", "traces"):
        shutil.copytree(ROOT / room, root / room, ignore=shutil.ignore_patterns("__pycache__"))
    return root


@pytest.fixture
def edit(tree: Path) -> Iterator[Callable[[str, Change], str]]:
    """Changes a file of the copy, which may be new, and returns the hash; the file is as before afterwards."""
    before: dict[Path, bytes | None] = {}

    def edited(name: str, change: Change) -> str:
        file = tree / name
        before.setdefault(file, file.read_bytes() if file.is_file() else None)
        file.write_text(change(file.read_text(encoding="utf-8") if file.is_file() else ""), encoding="utf-8")
        return hash_of(point_modules(tree), tree)

    yield edited
    for file, content in before.items():
        file.unlink() if content is None else file.write_bytes(content)


def test_a_copy_elsewhere_has_the_same_hash(tree: Path) -> None:
    assert hash_of(point_modules(tree), tree) == source_hash()


@pytest.mark.parametrize(
    "name",
    [
        "experiments/analysis/frontier.py",
        "experiments/cli/main.py",
        "experiments/config/resolve.py",
        "experiments/fits/calibrate_latent.py",
        "experiments/report/page.py",
        "experiments/show/figures.py",
        "experiments/show/terminal.py",
        "experiments/sweep/identity.py",
        "experiments/sweep/runner.py",
        "experiments/sweep/store.py",
        "experiments/tune/study.py",
        "policies/lossless/checker.py",
        "policies/lossless/explain_text.py",
        "policies/testing/contract.py",
        "policies/of_a_user.py",
    ],
)
def test_what_no_point_runs_through_may_change(edit: Callable[[str, Change], str], name: str) -> None:
    assert edit(name, CODE) == source_hash()


@pytest.mark.parametrize("name", ["sim/profiles/new.json", "experiments/report/data/report.css", "sim/README.md"])
def test_so_may_files_that_no_point_reads_or_whose_content_is_hashed_by_itself(
    edit: Callable[[str, Change], str], name: str
) -> None:
    assert edit(name, added("{}")) == source_hash()


@pytest.mark.parametrize(
    "change",
    [
        added("\n# a remark\n"),
        replaced("\nfrom ", "\n# a remark\nfrom "),
        replaced('"""', '"""Another first sentence. '),
        replaced("\n\n\ndef ", "\n\n\n\n\ndef "),
        added("\n\n\n'''A text that stands alone.'''\n"),
    ],
)
@pytest.mark.parametrize("name", ["sim/engine.py", "policies/search.py", "experiments/sweep/points.py"])
def test_so_may_comments_docstrings_and_blank_lines(
    edit: Callable[[str, Change], str], name: str, change: Change
) -> None:
    assert edit(name, change) == source_hash()


@pytest.mark.parametrize(
    "name",
    [
        "experiments/config/hardware.py",
        "experiments/config/schema.py",
        "experiments/sweep/points.py",
        "policies/__init__.py",
        "policies/async_topk.py",
        "policies/lossless/rules.py",
        "policies/lossless/screening.py",
        "policies/search.py",
        "sim/engine.py",
        "sim/metrics.py",
        "traces/generate.py",
    ],
)
def test_what_a_point_runs_through_may_not(edit: Callable[[str, Change], str], name: str) -> None:
    assert edit(name, CODE) != source_hash()


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("experiments/sweep/points.py", replaced("POOL = 8192", "POOL = 8193")),
        ("sim/metrics.py", replaced("1.0 + accepted / rounds", "1.0 - accepted / rounds")),
        ("sim/metrics.py", replaced("np.percentile(seconds, 50)", "np.percentile(seconds, 50.0)")),
        ("sim/metrics.py", replaced('_total(steps, "emitted")', '_total(steps, "emitted ")')),
    ],
)
def test_not_even_by_a_letter(edit: Callable[[str, Change], str], name: str, change: Change) -> None:
    assert edit(name, change) != source_hash()


@pytest.mark.parametrize(
    "name", ["sim/data/latent.json", "sim/data/new.json", "traces/data/azure-code.csv", "traces/data/more/new.csv"]
)
def test_nor_may_the_data_that_it_reads(edit: Callable[[str, Change], str], tree: Path, name: str) -> None:
    (tree / name).parent.mkdir(exist_ok=True)
    assert edit(name, added(" ")) != source_hash()


def test_a_module_imported_only_in_a_function_counts(edit: Callable[[str, Change], str]) -> None:
    late = (
        "from .{0} import y\n\ndef later() -> None:\n    if y:\n        from ..policies import {0}\n        {0}.x()\n"
    )
    edit("sim/near.py", added("y = 1\n"))
    edit("policies/far.py", added("x = 1\n"))
    edit("policies/near.py", added("x = 1\n"))
    first = edit("sim/engine.py", added(late.format("near")))
    assert edit("policies/far.py", CODE) == first
    second = edit("policies/near.py", CODE)
    assert second != first
    assert edit("sim/near.py", CODE) != second


def test_an_import_for_types_alone_does_not_count(edit: Callable[[str, Change], str]) -> None:
    types = "\nfrom typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import {0}.far\nelse:\n    import {0}.near\n"
    edit("sim/near.py", added("y = 1\n"))
    edit("sim/far.py", added("y = 1\n"))
    first = edit("sim/engine.py", added(types.format("specsched.sim")))
    assert edit("sim/far.py", CODE) == first
    assert edit("sim/near.py", CODE) != first


def test_a_package_runs_but_its_functions_are_not_called(edit: Callable[[str, Change], str]) -> None:
    """The front door of a room may offer what no point runs through, if it imports it when it is asked for."""
    offer = "\n\ndef __getattr__(name: str) -> object:\n    from .show import terminal\n\n    return terminal\n"
    lazy = edit("experiments/__init__.py", added(offer))
    assert edit("experiments/show/terminal.py", CODE) == lazy
    eager = edit("experiments/__init__.py", added("\nfrom .show import terminal\n"))
    assert edit("experiments/show/terminal.py", CODE) != eager


def test_code_tells_nothing_but_errors_of_its_lines_and_docstrings() -> None:
    """Else a comment or a docstring could change a result, though not the hash."""
    reads = re.compile(r"__doc__|inspect\.(get|find|clean)|co_firstlineno|f_lineno|attribute_docstrings|linecache")
    for name, module in MODULES.items():
        assert not reads.search(module.file.read_text(encoding="utf-8")), name


def small(experiment: Experiment) -> Experiment:
    """The experiment with few requests, and every record kept."""
    closed = experiment.workload.mode == "closed"
    few: dict[str, Any] = {"cohort": 9, "warmup": 4} if closed else {"requests": 30, "cohort": None, "warmup": None}
    output = experiment.output.model_copy(update={"records": ["steps", "requests", "rows"]})
    return experiment.model_copy(update={"workload": experiment.workload.model_copy(update=few), "output": output})


TRACE = "arrived_at,num_prefill_tokens,num_decode_tokens\n" + "".join(f"{i}.0,10,9\n" for i in range(20))
POLICY = "from specsched.policies.static import Static\n\nclass Mine(Static):\n    pass\n"


def points(tmp_path: Path) -> Iterator[tuple[Experiment, str, float, int]]:
    """Yield every arm of the first and the last combination of every shipped experiment, and of one with files."""
    (tmp_path / "t.csv").write_text(TRACE)
    (tmp_path / "policy_of_a_user.py").write_text(POLICY)
    other = [
        f"workload={{path: {tmp_path / 't.csv'}, mode: open}}",
        "drafts={kind: constant, acceptance: 0.7}",
        "arms={mine: {policy: {kind: python, object: 'policy_of_a_user:Mine', k: 2}}}",
    ]
    plans = [load_plan(file) for file in shipped_experiments().values()]
    assert len(plans) > 8
    for experiment in (cell.experiment for plan in plans for cell in (plan.cells[0], plan.cells[-1])):
        for arm in expanded_arms(experiment):
            yield small(experiment), arm, 2.0 if experiment.workload.mode == "closed" else 100.0, 0
    yield load_plan(shipped_experiments()["trace_replay"], other).base, "mine", 2.0, 0


RUN = """
import json, pickle, sys
from specsched.experiments.sweep.points import run_point
for point in pickle.load(open(sys.argv[1], "rb")):
    run_point(*point)
print(json.dumps([name for name in sys.modules if name.startswith("specsched.")]))
"""


def test_no_point_runs_anything_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "points").write_bytes(pickle.dumps(list(points(tmp_path))))
    line = [sys.executable, "-c", RUN, str(tmp_path / "points")]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    ran = set(json.loads(done.stdout))
    assert "specsched.policies.lossless.rules" in ran  # imported in a function, and only for a policy of a user's
    assert ran <= MODULES.keys()


def test_the_data_are_those_of_the_simulator_and_the_traces() -> None:
    assert {file.parent.relative_to(ROOT).as_posix() for file in data_files(MODULES)} == {"sim/data", "traces/data"}


def test_a_users_module_counts_with_what_it_runs_of_the_project(tmp_path: Path) -> None:
    common, more = tmp_path / "common.py", tmp_path / "more.py"
    common.write_text("from specsched.policies import Policy\n")
    more.write_text("def f():\n    import specsched.policies.testing.batches\n")
    assert "specsched.policies.testing.batches" not in MODULES
    assert user_hash(common) == hashlib.sha256(common.read_bytes()).hexdigest()
    assert user_hash(more) != hashlib.sha256(more.read_bytes()).hexdigest()


def test_a_policy_that_only_the_registry_finds_counts_with_what_it_runs() -> None:
    assert shipped_hash("specsched.policies.static") is None
    alone = {"specsched.policies.lossless.checker", "specsched.policies.lossless.tails"}
    hashes = {shipped_hash(name) for name in alone}
    assert None not in hashes
    assert len(hashes) == 2


def test_workers_of_other_code_are_refused_those_of_another_python_judged_by_their_keys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Client:
        def run(self, asked: Callable[[], tuple[str, str]]) -> dict[str, tuple[str, str]]:
            version, own = asked()
            return {"one": (version, own), "two": found or (version, own)}

    found: tuple[str, str] | None = None
    _check_code(Client(), "tcp://h:1")
    found = ("2.7.18", "other")
    _check_code(Client(), "tcp://h:1")
    found = (executors._code()[0], "other")
    with pytest.raises(executors.ConfigError, match="worker two has another version of specsched"):
        _check_code(Client(), "tcp://h:1")


def test_the_hash_is_part_of_every_identity() -> None:
    experiment = load_plan(shipped_experiments()["frontier"]).base
    assert identity(experiment)["code"]["source"] == source_hash()
