"""Tests that share something expensive run in one worker, the others in whichever is free."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from tests.conftest import ONE_WORKER, together

HERE = Path(__file__).resolve().parent
SLEEPING = "import pytest, time\n@pytest.mark.parametrize('n', range({}))\ndef test_it(n): time.sleep(0.05)\n"


def test_what_goes_to_one_worker_exists() -> None:
    assert [place for place in ONE_WORKER if not (HERE.parent / place).exists()] == []


def test_files_of_a_folder_go_together() -> None:
    assert together("tests/experiments/report/test_report.py::test_x[a/b]") == "tests/experiments/report"
    assert together("tests/test_packaging.py::test_x") == "tests/test_packaging.py"
    assert together("tests/test_packaging_more.py::test_x") == "tests/test_packaging_more.py::test_x"


def test_two_workers_keep_to_it(tmp_path: Path) -> None:
    shutil.copy(HERE / "conftest.py", tmp_path)
    shutil.copy(HERE / "allowed_skips.txt", tmp_path)
    report = tmp_path / "tests" / "experiments" / "report"
    report.mkdir(parents=True)
    for name in ("test_a.py", "test_b.py"):
        (report / name).write_text(SLEEPING.format(5))
    (tmp_path / "tests" / "test_c.py").write_text(SLEEPING.format(60))
    command = [sys.executable, "-m", "pytest", "-v", "-n", "2", "-p", "no:cacheprovider", "--import-mode=importlib"]
    done = subprocess.run([*command, "--rootdir", "."], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    workers = defaultdict(set)
    for worker, file in re.findall(r"^\[(gw\d)\].* PASSED (tests/\S+?)::", done.stdout, re.MULTILINE):
        workers[Path(file).name].add(worker)
    assert len(workers["test_a.py"]) == 1
    assert workers["test_a.py"] == workers["test_b.py"]
    assert workers["test_c.py"] == {"gw0", "gw1"}
