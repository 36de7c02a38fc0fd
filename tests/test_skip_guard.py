"""A skipped test fails the run unless its reason is listed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).with_name("conftest.py")


def run(folder: Path, body: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run pytest on one module beside a copy of the project's conftest and a list that allows `no wind`."""
    shutil.copy(CONFTEST, folder)
    (folder / "allowed_skips.txt").write_text("# a comment\n\nno wind | the weather is not ours\n")
    (folder / "test_case.py").write_text(f"import pytest\n{body}\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(folder), *options]
    return subprocess.run([*command, "test_case.py"], cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("options", [[], ["-n", "1"]], ids=["one process", "xdist"])
def test_an_unlisted_skip_fails_and_is_named(tmp_path: Path, options: list[str]) -> None:
    done = run(tmp_path, "def test_a(): pass\ndef test_b(): pytest.skip('no wind today')", *options)
    assert done.returncode == 1, done.stdout
    assert "test_case.py::test_b: no wind today" in done.stdout
    assert "1 passed, 1 skipped" in done.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    "body",
    [
        "pytest.skip('too early', allow_module_level=True)",
        "pytest.importorskip('no_such_module')",
        "def test_a(): pass\n@pytest.mark.skip\ndef test_b(): pass",
        "def test_a(): pass\n@pytest.mark.parametrize('x', [])\ndef test_b(x): pass",
    ],
    ids=["module", "importorskip", "mark without a reason", "empty parameter set"],
)
def test_every_way_to_skip_is_seen(tmp_path: Path, body: str) -> None:
    done = run(tmp_path, body)
    assert done.returncode != 0
    assert "skips that are not on the list" in done.stdout


@pytest.mark.parametrize(
    "body",
    ["def test_a(): pytest.skip('no wind')", "@pytest.mark.xfail\ndef test_a(): assert False"],
    ids=["listed", "expected failure"],
)
def test_listed_skips_and_expected_failures_pass(tmp_path: Path, body: str) -> None:
    assert run(tmp_path, body).returncode == 0


def test_a_listed_reason_must_say_why(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST.read_text())
    (tmp_path / "allowed_skips.txt").write_text("no wind\n")
    (tmp_path / "test_case.py").write_text("def test_a(): pass\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "allowed_skips.txt:1: expected `reason | why it is allowed`" in done.stderr
