"""The command in a folder of the test's own."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from specsched.experiments.cli import main as cli

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Iterator[Command]:
    """Run the command in an empty folder, from which modules can be imported; returns exit code, output, errors.

    Modules of the folder are forgotten with the test, so that another may have their names.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")

    def run(*arguments: str) -> tuple[int, str, str]:
        importlib.invalidate_caches()
        monkeypatch.setattr(sys, "argv", ["specsched", *arguments])
        with pytest.raises(SystemExit) as end:
            cli.main()
        out, errors = capfd.readouterr()
        return int(end.value.code or 0), out, errors

    before = set(sys.modules)
    yield run
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
