"""Fixtures shared by all tests, which of them share a worker, and the rule that a skip needs a reason on a list."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
ALLOWED_SKIPS = Path(__file__).with_name("allowed_skips.txt")

ONE_WORKER = (
    "tests/experiments/cli/test_cli_bench.py",
    "tests/experiments/cli/test_cli_profile.py",
    "tests/experiments/fits/test_figure5.py",
    "tests/experiments/report",
    "tests/kernels/test_joint_law.py",
    "tests/test_commands_in_docs.py",
    "tests/test_packaging.py",
)
"""Files and folders whose tests go to one worker: they make something once that takes seconds, or are long."""


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of public traces, step-time curves and published figures; without it a test skips."""
    folder = Path(os.environ.get("SPECSCHED_DATA", ROOT.parent / "shared" / "data"))
    if not (folder / "README.md").is_file():
        pytest.skip("public data folder not present")
    return folder


def read_allowed_skips(path: Path) -> set[str]:
    """Return the reasons listed in a file of ``reason | why it is allowed`` lines.

    Raises:
        pytest.UsageError: for a line without both parts.
    """
    reasons = set()
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        reason, _, why = line.partition(" | ")
        if not reason.strip() or not why.strip():
            raise pytest.UsageError(f"{path}:{number}: expected `reason | why it is allowed`, got {line!r}")
        reasons.add(reason.strip())
    return reasons


class SkipGuard:
    """Fails a run in which a test or module was skipped for a reason that is not allowed."""

    def __init__(self, allowed: set[str]) -> None:
        self.allowed = allowed
        self.refused: list[str] = []

    def _see(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if not report.skipped or hasattr(report, "wasxfail"):
            return
        where = report.longrepr
        reason = str(where[2] if isinstance(where, tuple) else where).removeprefix("Skipped: ")
        line = f"{report.nodeid}: {reason}"
        if reason not in self.allowed and line not in self.refused:
            self.refused.append(line)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._see(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._see(report)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.refused and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.refused:
            terminalreporter.section("skips that are not on the list", red=True)
            terminalreporter.line("\n".join(self.refused))
            terminalreporter.line(f"run what they need, or list the reason in {ALLOWED_SKIPS.name} and say why")


def together(nodeid: str) -> str:
    """Return what a test must share a worker with: its entry of ``ONE_WORKER``, or itself."""
    path = nodeid.partition("::")[0]
    return next((place for place in ONE_WORKER if path == place or path.startswith(f"{place}/")), nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give each worker the next test when it is free, those of one entry together and the entries first.

    The mark `xdist_group` would say the same, but pytest 9.2 and xdist 3.8 ignore it without a word.
    """
    from xdist.scheduler import LoadScopeScheduling

    class ByNeed(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return together(nodeid)

    return ByNeed(config, log)


def pytest_configure(config: pytest.Config) -> None:
    # With xdist the controller sees every worker's reports; the workers need no guard of their own.
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(SkipGuard(read_allowed_skips(ALLOWED_SKIPS)), "skip-guard")
