"""The import contract holds, and every rule in it is red when it is broken."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise, permutations, product
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
ROOMS: dict[str, str] = PROJECT["tool"]["setuptools"]["package-dir"]
CONTRACTS_READ: list[dict[str, Any]] = PROJECT["tool"]["importlinter"]["contracts"]
CONTRACTS: list[str] = [contract["name"] for contract in CONTRACTS_READ]

LAYERS = "rooms import downwards only"
ROOMS_INSIDE = "the rooms of experiments call to their left only"
NO_CHECKER = "schedulers stay off the checker, and both off the contract"
NO_CONTRACT = "nothing in the project stands on the public contract"
NO_BENCH = "kernels stay off their bench and profiler, and these off each other"
NO_CIRCLES = "no circles, at any depth"
NO_KERNELS = "sim stays off kernels"
NO_TRACES = "drafter stays off traces"
INTERFACE = "sim sees only the interface of policies"
LIGHT = "sim, policies and traces stay light"
TEST_TOOLS = "test tools stay in tests"

INSIDE: list[list[str]] = next(
    [layer.split(" | ") for layer in each["layers"]] for each in CONTRACTS_READ if each["name"] == ROOMS_INSIDE
)
"""The rooms of experiments from `cli`, which nothing calls, down; rooms that stand beside each other together."""


def inside(room: str) -> str:
    """Return a file in a room of experiments: a new one, or the module itself where the room is a single file."""
    return f"experiments/{room}.py" if (ROOT / f"experiments/{room}.py").is_file() else f"experiments/{room}/breach.py"


# (contract, module that breaks it, the line that does). Modules are new files, also in rooms not written yet; where a
# file of that name exists, the line is added to it.
BREACHES = [
    *[
        (LAYERS, f"{room}/breach.py", "from ..experiments import x")
        for room in ("policies", "traces", "sim", "drafter", "kernels")
    ],
    (LAYERS, "traces/breach.py", "import specsched.experiments"),
    (LAYERS, "traces/breach.py", "from ..policies import x"),
    (LAYERS, "traces/breach.py", "from ..sim import x"),
    (LAYERS, "policies/breach.py", "from ..traces import x"),
    (LAYERS, "policies/breach.py", "from ..sim import x"),
    (LAYERS, "policies/breach.py", "from ..kernels import stub"),
    (LAYERS, "policies/breach.py", "from ..drafter import stub"),
    (LAYERS, "policies/lossless/breach.py", "from ...sim import x"),
    (LAYERS, "kernels/breach.py", "from ..policies import x"),
    (LAYERS, "kernels/bench/breach.py", "from ...policies import x"),
    (LAYERS, "drafter/breach.py", "from ..sim import x"),
    (LAYERS, "sim/breach.py", "from ..drafter import stub"),
    *[
        (ROOMS_INSIDE, inside(low), f"import specsched.experiments.{high}")
        for above, below in pairwise(INSIDE)
        for high, low in product(above, below)
    ],
    *[
        (ROOMS_INSIDE, inside(one), f"import specsched.experiments.{other}")
        for beside in INSIDE
        for one, other in permutations(beside, 2)
    ],
    (ROOMS_INSIDE, inside(INSIDE[-1][0]), f"import specsched.experiments.{INSIDE[0][0]}"),
    (ROOMS_INSIDE, "experiments/config/breach.py", "def late() -> None:\n    from ..report.page import x"),
    (ROOMS_INSIDE, "experiments/breach.py", "x = 1"),
    (ROOMS_INSIDE, "experiments/breach/__init__.py", "x = 1"),
    (NO_CHECKER, "policies/breach.py", "from .lossless.exact import law"),
    (NO_CHECKER, "policies/breach.py", "from .lossless import screening"),
    (NO_CHECKER, "policies/static.py", "def late() -> None:\n    from .lossless import rules"),
    (NO_CHECKER, "sim/breach.py", "from ..policies.lossless.exact import law"),
    *[
        (NO_CONTRACT, f"{room}/breach.py", "from specsched.policies.testing import x")
        for room in ("policies", "policies/lossless", "sim", "experiments/cli", "traces", "kernels")
    ],
    (NO_CONTRACT, "sim/breach.py", "from .testing import x"),
    (NO_CONTRACT, "experiments/sweep/breach.py", "from ...sim import testing"),
    *[
        (NO_BENCH, f"{room}/breach.py", f"from specsched.kernels.{target} import x")
        for room, target in [
            ("kernels", "bench"),
            ("kernels", "profile"),
            ("kernels/bench", "profile"),
            ("kernels/profile", "bench"),
            ("sim", "profile"),
        ]
    ],
    *[
        (NO_CIRCLES, path, line)
        for path, line in [
            ("sim/profile_schema.py", "from . import profile"),
            ("policies/interface.py", "from . import static"),
            ("policies/lossless/worlds.py", "def late() -> None:\n    from . import exact"),
            ("experiments/config/errors.py", "from . import resolve"),
            ("kernels/common.py", "from .bench import cases"),
            ("traces/__init__.py", "from ..experiments.config import schema"),
        ]
    ],
    (NO_KERNELS, "sim/breach.py", "from ..kernels import stub"),
    (NO_KERNELS, "sim/breach.py", "def late() -> None:\n    from ..kernels.stub import x"),
    (NO_TRACES, "drafter/breach.py", "from ..traces import x"),
    (INTERFACE, "sim/breach.py", "from ..policies.static import Static"),
    (INTERFACE, "sim/breach.py", "from ..policies import registry"),
    (INTERFACE, "sim/breach.py", "from ..policies.lossless import exact"),
    *[
        (LIGHT, f"{room}/breach.py", f"import {package}")
        for room in ("sim", "policies", "policies/testing", "traces")
        for package in ("torch", "triton", "matplotlib.pyplot", "optuna")
    ],
    *[
        (TEST_TOOLS, "experiments/cli/breach.py", f"import {tool}")
        for tool in ("scipy.stats", "sklearn", "pytest", "selenium")
    ],
]


def lint(tree: Path) -> subprocess.CompletedProcess[str]:
    """Run the import linter on a tree."""
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    environment = {**os.environ, "PYTHONPATH": str(tree / ".typing"), "COLUMNS": "200"}
    return subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the rooms, with stand-ins for those not written yet."""
    tree = tmp_path_factory.mktemp("tree")
    shutil.copy(ROOT / "pyproject.toml", tree)
    (tree / ".typing/specsched").mkdir(parents=True)
    for room in sorted({*ROOMS.values(), "kernels", "drafter"}):
        if (ROOT / room).is_dir():
            shutil.copytree(ROOT / room, tree / room, ignore=shutil.ignore_patterns("__pycache__"))
        (tree / room).mkdir(exist_ok=True)
        (tree / ".typing/specsched" / room).symlink_to(f"../../{room}")
    (tree / "kernels/stub.py").write_text("x = 1\n")
    (tree / "drafter/stub.py").write_text("x = 1\n")
    return tree


def test_the_contract_holds() -> None:
    done = lint(ROOT)
    assert done.returncode == 0, done.stdout
    assert f"{len(CONTRACTS)} kept, 0 broken" in done.stdout


def test_the_contract_holds_in_the_copy(copy: Path) -> None:
    done = lint(copy)
    assert done.returncode == 0, done.stdout


@contextmanager
def broken(path: Path, line: str) -> Iterator[None]:
    """Add a line to a file, which may be a new one, and take it away again."""
    before = path.read_text(encoding="utf-8") if path.exists() else None
    made = not path.parent.exists()
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"{before or ''}\n{line}\n", encoding="utf-8")
    try:
        yield
    finally:
        path.unlink() if before is None else path.write_text(before, encoding="utf-8")
        if made:
            path.parent.rmdir()


@pytest.mark.parametrize(("contract", "path", "line"), BREACHES, ids=lambda value: str(value).replace("\n", " "))
def test_a_breach_is_red(copy: Path, contract: str, path: str, line: str) -> None:
    with broken(copy / path, line):
        done = lint(copy)
    assert done.returncode == 1
    assert f"{contract} BROKEN" in done.stdout


def test_every_contract_has_a_breach() -> None:
    assert {contract for contract, _, _ in BREACHES} == set(CONTRACTS)


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("sim/breach.py", "from ..policies import Policy\nfrom ..policies.interface import View"),
        ("experiments/cli/breach.py", "from ...policies.lossless import rules"),
        ("policies/lossless/breach.py", "from ..interface import View"),
        ("policies/testing/breach.py", "from ..lossless import rules"),
        ("kernels/bench/breach.py", "from .. import common"),
        ("experiments/cli/breach.py", "from ...kernels.bench import cases\nfrom ..config import errors"),
    ],
)
def test_what_is_open_stays_open(copy: Path, path: str, line: str) -> None:
    with broken(copy / path, line):
        done = lint(copy)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("room", ["sim", "policies", "traces"])
def test_importing_a_room_loads_nothing_heavy(room: str) -> None:
    """What the linter cannot see: packages that reach torch and the like through other packages."""
    paths = [path.relative_to(ROOT).with_suffix("") for path in (ROOT / room).rglob("*.py") if path.stem[0] != "_"]
    modules = [".".join(("specsched", *path.parts)) for path in paths]
    script = (
        f"import importlib, sys\nfor name in {modules!r}: importlib.import_module(name)\n"
        "print(*sorted({'torch', 'triton', 'matplotlib', 'optuna'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert modules
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []
