"""The import contract holds, and every rule in it is red when it is broken."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
ROOMS: dict[str, str] = PROJECT["tool"]["setuptools"]["package-dir"]
CONTRACTS: list[str] = [contract["name"] for contract in PROJECT["tool"]["importlinter"]["contracts"]]

LAYERS = "rooms import downwards only"
NO_KERNELS = "sim stays off kernels"
NO_TRACES = "drafter stays off traces"
INTERFACE = "sim sees only the interface of policies"
LIGHT = "sim, policies and traces stay light"
TEST_TOOLS = "test tools stay in tests"

# (contract, module that breaks it, the line that does). Modules are new files, also in rooms not written yet.
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
    (LAYERS, "kernels/breach.py", "from ..policies import x"),
    (LAYERS, "drafter/breach.py", "from ..sim import x"),
    (LAYERS, "sim/breach.py", "from ..drafter import stub"),
    (NO_KERNELS, "sim/breach.py", "from ..kernels import stub"),
    (NO_KERNELS, "sim/breach.py", "def late() -> None:\n    from ..kernels.stub import x"),
    (NO_TRACES, "drafter/breach.py", "from ..traces import x"),
    (INTERFACE, "sim/breach.py", "from ..policies.static import Static"),
    (INTERFACE, "sim/breach.py", "from ..policies import registry"),
    *[
        (LIGHT, f"{room}/breach.py", f"import {package}")
        for room in ("sim", "policies", "traces")
        for package in ("torch", "triton", "matplotlib.pyplot", "optuna")
    ],
    *[
        (TEST_TOOLS, "experiments/breach.py", f"import {tool}")
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


@pytest.mark.parametrize(("contract", "path", "line"), BREACHES, ids=lambda value: str(value).replace("\n", " "))
def test_a_breach_is_red(copy: Path, contract: str, path: str, line: str) -> None:
    breach = copy / path
    breach.write_text(line + "\n")
    try:
        done = lint(copy)
    finally:
        breach.unlink()
    assert done.returncode == 1
    assert f"{contract} BROKEN" in done.stdout


def test_every_contract_has_a_breach() -> None:
    assert {contract for contract, _, _ in BREACHES} == set(CONTRACTS)


def test_the_interface_is_open_to_sim(copy: Path) -> None:
    breach = copy / "sim/breach.py"
    breach.write_text("from ..policies import Policy\nfrom ..policies.interface import View\n")
    try:
        done = lint(copy)
    finally:
        breach.unlink()
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
