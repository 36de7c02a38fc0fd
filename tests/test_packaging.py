"""What is shipped: the tree, the map and the wheel agree, and the wheel works where nothing else is installed.

What can be read off the tree is in `make test`. The archives are built from a copy of the checkout and installed into
an environment of their own, once for all tests of this file, in `make test-deep`. Nothing here imports the checkout.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
ROOMS: dict[str, str] = PROJECT["tool"]["setuptools"]["package-dir"]
PACKAGES: list[str] = PROJECT["tool"]["setuptools"]["packages"]
EXTRAS = ("specsched.kernels.", "specsched.experiments.tune.sampler")
"""Modules that need an extra; the tests of their rooms import them."""
NOT_SHIPPED = {"tests", "docs", "benchmarks", "build", "dist", "runs"}
GENERATED = shutil.ignore_patterns(
    ".git", ".venv*", ".*_cache", ".hypothesis", "__pycache__", "*.egg-info", "build", "dist", "runs"
)

# A command's module is imported when it is called; its own commands are those of the `app` in `cli/<command>.py`.
LIST_COMMANDS = """
import importlib.util, json, typer
from specsched.experiments.cli.main import app
def commands(app):
    found = typer.main.get_command(app)
    return getattr(found, "commands", {})
def parts(name):
    module = f"specsched.experiments.cli.{name}"
    app = getattr(importlib.import_module(module), "app", None) if importlib.util.find_spec(module) else None
    return [f"{name} {part}" for part in commands(app)] if app is not None else [name]
print(json.dumps([part for name in commands(app) for part in parts(name)]))
"""

# One small run of every command; `{shipped}` is where the installed experiment files lie.
SHORT = "--set workload.cohort=2 --set workload.warmup=0"
COMMANDS = {
    "run": ["run {shipped}/frontier.yaml -o out --workers 2 -q --set sweep.load=[1] --set seeds=[0,1] " + SHORT],
    "report": ["report out -o report.html"],
    "check": ["check async_topk --examples 50"],
    # The extra is not installed there; what the command does is tested in tests/experiments.
    "tune": ["tune --help"],
    "profiles": ["profiles", "profiles vllm-dsv4flash-b300-tp4"],
    # The extra is not installed there; what the commands do is tested in tests/kernels.
    "kernels compile": ["kernels compile --help"],
    "kernels bench": ["kernels bench --help"],
    "kernels profile": ["kernels profile --help"],
    "traces show": ["traces show trace.csv"],
    "traces generate": ["traces generate -o made.csv -n 20 --rate 4", "traces show made.csv"],
}
TRACE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
2023-11-16 18:15:51.2224670,879,55
"""


@dataclass(frozen=True)
class Shipped:
    """The archives and the environment in which the wheel is installed."""

    sdist: Path
    wheel_of_sdist: Path
    wheel_of_tree: Path
    bin: Path
    folder: Path

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment in a folder that holds no source."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        return subprocess.run(
            [str(self.bin / command[0]), *command[1:]],
            cwd=self.folder,
            env=clean,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def python(self, script: str) -> str:
        """Return what a script prints."""
        done = self.run("python", "-c", script)
        assert done.returncode == 0, done.stderr
        return done.stdout


def needs_the_wheel(test: Callable[[Shipped], None]) -> Callable[[Shipped], None]:
    """Mark a test that looks at what is built, which takes half a minute for the first of them."""
    marked: Callable[[Shipped], None] = pytest.mark.deep(test)
    return marked


def call(*command: str | Path) -> None:
    """Run a build step and show its output if it fails."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shipped]:
    folder = tmp_path_factory.mktemp("shipped")
    tree = shutil.copytree(ROOT, folder / "tree", ignore=GENERATED, symlinks=True)
    build = [sys.executable, "-m", "build", "--outdir"]
    call(*build, folder / "from-sdist", tree)
    call(*build, folder / "from-tree", "--wheel", tree)
    wheel = next((folder / "from-sdist").glob("*.whl"))
    venv.create(folder / "venv", with_pip=True)
    bin_folder = folder / "venv" / "bin"
    call(bin_folder / "python", "-m", "pip", "install", "-c", ROOT / "constraints.txt", wheel)
    (folder / "work").mkdir()
    yield Shipped(
        sdist=next((folder / "from-sdist").glob("*.tar.gz")),
        wheel_of_sdist=wheel,
        wheel_of_tree=next((folder / "from-tree").glob("*.whl")),
        bin=bin_folder,
        folder=folder / "work",
    )
    shutil.rmtree(folder)


def files_of_tree() -> set[str]:
    """Return every file of every room, by its path in the wheel."""
    return {
        f"{package.replace('.', '/')}/{path.relative_to(ROOT / room).as_posix()}"
        for package, room in ROOMS.items()
        for path in (ROOT / room).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def contents(wheel: Path) -> dict[str, int]:
    """Return the wheel's files, dist-info left out, with their checksums."""
    with zipfile.ZipFile(wheel) as archive:
        return {item.filename: item.CRC for item in archive.infolist() if ".dist-info/" not in item.filename}


def packages_of(tree: Path) -> set[str]:
    """Return the import names of all folders of modules, rooms inside rooms included."""
    folders = {path.parent.relative_to(tree) for path in tree.glob("[!.]*/**/*.py")}
    return {".".join(("specsched", *folder.parts)) for folder in folders if folder.parts[0] not in NOT_SHIPPED}


def test_the_map_names_every_room_of_the_tree() -> None:
    assert sorted(PACKAGES) == sorted(packages_of(ROOT)), "list new rooms in `packages` of pyproject.toml"
    assert sorted(ROOMS) == sorted(package for package in PACKAGES if package.count(".") == 1)
    assert all(package == f"specsched.{room}" for package, room in ROOMS.items())


@pytest.mark.parametrize("room", ["lab", "experiments/fits/lab", "policies/lossless/lab"])
def test_a_room_that_is_not_listed_is_noticed(room: str, tmp_path: Path) -> None:
    for package in PACKAGES:
        folder = tmp_path.joinpath(*package.split(".")[1:])
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "module.py").touch()
    assert packages_of(tmp_path) == set(PACKAGES)
    (tmp_path / room).mkdir(parents=True)
    (tmp_path / room / "module.py").touch()
    assert packages_of(tmp_path) - set(PACKAGES) == {f"specsched.{room.replace('/', '.')}"}


def test_inner_rooms_are_packages() -> None:
    """The linter and mypy see a folder below a room only if it has an `__init__.py`."""
    inner = [package.split(".")[1:] for package in PACKAGES if package.count(".") > 1]
    assert inner
    assert [parts for parts in inner if not ROOT.joinpath(*parts, "__init__.py").is_file()] == []


def test_type_checkers_find_every_room() -> None:
    links = {link.name: link.resolve() for link in (ROOT / ".typing/specsched").iterdir()}
    assert links == {room: ROOT / room for room in ROOMS.values()}
    for package in PACKAGES:
        assert (ROOT / ".typing").joinpath(*package.split(".")).is_dir()


def test_kernels_stays_importable_for_others() -> None:
    """`import kernels` at the root of the checkout must go on finding the package of that name."""
    assert not (ROOT / "kernels/__init__.py").exists()


@needs_the_wheel
def test_the_wheel_holds_the_tree_and_nothing_else(shipped: Shipped) -> None:
    files = set(contents(shipped.wheel_of_sdist))
    assert files == files_of_tree()
    assert {f"specsched/{room}/py.typed" for room in ROOMS.values()} <= files


@needs_the_wheel
def test_the_source_archive_builds_the_same_wheel(shipped: Shipped) -> None:
    assert contents(shipped.wheel_of_sdist) == contents(shipped.wheel_of_tree)
    with tarfile.open(shipped.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "README.md", "pyproject.toml"} <= names


@needs_the_wheel
def test_the_environment_is_whole_and_light(shipped: Shipped) -> None:
    assert shipped.run("python", "-m", "pip", "check").returncode == 0
    script = "import importlib.util as u; print([n for n in ('torch', 'triton', 'scipy', 'pytest') if u.find_spec(n)])"
    assert shipped.python(script).strip() == "[]"


@needs_the_wheel
def test_every_module_of_the_core_imports_from_the_wheel(shipped: Shipped) -> None:
    paths = sorted(path for path in contents(shipped.wheel_of_sdist) if path.endswith(".py"))
    names = [path.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for path in paths]
    names = [name for name in names if not name.endswith(".__main__") and not name.startswith(EXTRAS)]
    script = f"""
import importlib, sys
modules = [importlib.import_module(name) for name in {names!r}]
print(len(modules), all(module.__file__.startswith(sys.prefix) for module in modules))
"""
    assert shipped.python(script).split() == [str(len(names)), "True"]


@needs_the_wheel
def test_without_the_extra_the_kernel_lab_says_what_to_install(shipped: Shipped) -> None:
    done = shipped.run("specsched", "kernels", "compile")
    assert done.returncode == 2
    assert done.stderr == "error: the kernel lab needs torch and triton; install specsched[kernels]\n"


@needs_the_wheel
def test_help(shipped: Shipped) -> None:
    done = shipped.run("specsched", "--help")
    assert done.returncode == 0, done.stderr
    assert "specsched" in done.stdout


@needs_the_wheel
def test_every_command_runs(shipped: Shipped) -> None:
    found = json.loads(shipped.python(LIST_COMMANDS))
    assert sorted(found) == sorted(COMMANDS), "give every command a small run in COMMANDS"
    (shipped.folder / "trace.csv").write_text(TRACE)
    where = shipped.python("import specsched.experiments as e; print(e.__path__[0])").strip()
    for line in [line for lines in COMMANDS.values() for line in lines]:
        done = shipped.run("specsched", *line.format(shipped=where).split())
        assert done.returncode == 0, f"specsched {line}\n{done.stdout}{done.stderr}"
    assert (shipped.folder / "out/points.parquet").is_file()


@needs_the_wheel
def test_the_twenty_commands_do_the_same_from_the_wheel(shipped: Shipped) -> None:
    """Exit codes, texts and, on the machine of the record, the bytes of every file."""
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks/same_outputs.py", "--specsched", shipped.bin / "specsched"],
        cwd=shipped.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith(" commands, 0 differences\n")
