"""The commands that README and docs print, and how each is shortened before a test runs it.

A command is a line that begins with ``$`` in a ``console`` block, or a line of a ``bash`` block. A comment
``# not-run: reason`` says that it is not run at all. What ``.ci/run`` does itself (make, the dry GPU script) is left to
it.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

SPECSCHED = [sys.executable, "-c", "from specsched.experiments.cli.main import main; main()"]

EXIT_CODES = {"specsched check whole_blocks:WholeBlocks": (1,)}
"""Commands that end with another exit code than 0, and say so on their page."""

REFUSED = "the two passes are more than"
"""What the profiler says, with exit code 1, where other work on the machine disturbs it: an answer too."""

LEFT_TO_CI = ("make", "bash .ci/run", "benchmarks/gpu.sh --dry")


@dataclass(frozen=True)
class Command:
    """A printed command.

    Attributes:
        page: file it stands in.
        line: number of its line.
        text: the command without prompt and comment.
        reason: why it is not run, or None.
    """

    page: Path
    line: int
    text: str
    reason: str | None = None

    @property
    def where(self) -> str:
        """Place, for messages."""
        return f"{self.page.relative_to(ROOT)}:{self.line}: {self.text}"

    @property
    def left_to_ci(self) -> bool:
        """Whether `.ci/run` runs it."""
        return self.text.startswith(LEFT_TO_CI)


def commands(page: Path) -> Iterator[Command]:
    """Yield the commands of a page in their order."""
    language = None
    lines = page.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, start=1):
        fence = re.match(r"\s*```(\w*)", line)
        if fence:
            language = None if language is not None else fence[1]
            continue
        text = line.strip()
        if language == "console" and text.startswith("$ "):
            yield _command(page, number, text[2:])
        elif language == "bash" and text and not text.startswith("#"):
            yield _command(page, number, text)


def _command(page: Path, number: int, text: str) -> Command:
    reason = re.search(r"# not-run: *(.+)", text)
    return Command(page, number, re.split(r"\s+# ", text)[0].strip(), reason[1].strip() if reason else None)


def shortened(text: str) -> list[str]:
    """Return the words to execute for a printed command: the same call on less work."""
    words = shlex.split(text)
    program, *rest = words
    if program in ("python", "python3"):
        return [sys.executable, *rest, *_script(rest)]
    if program != "specsched":
        raise ValueError(f"no rule for `{text}`; add one here, or `# not-run: reason` to the page")
    return [*SPECSCHED, *_shorter(rest)]


def _shorter(words: list[str]) -> list[str]:
    kind = words[0]
    if kind == "run":
        return [*words, *_run(words)]
    if kind == "check":
        return [*words, "--examples", "400"]
    if kind == "kernels":
        return [*words, *_kernels(words)]
    if kind == "tune":
        return [*words, "--trials", "4"]
    return words


def _run(words: list[str]) -> list[str]:
    """One seed, one load unless the page names them, few requests; studies over axes have settings of their own."""
    settings = " ".join(words)
    short = ["--seed", "0", "--workers", "1", "-q", *STUDIES.get(words[1].removesuffix(".yaml").split("/")[-1], ())]
    if "workload.path" in settings or "trace_replay" in settings:
        return [*short, *([] if "sweep.load" in settings else ["--set", "sweep.load=[4]"])]
    if "sweep.load" not in settings and len(short) == 5:
        short += ["--set", "sweep.load=[4]"]
    return [*short, "--set", "workload.cohort=16"] if len(short) <= 7 else short


_BRIEF = ("--set", "workload.lengths={prompt: 100, output: 20}")
_ONE_JOIN = (
    "--set",
    "sweep.axes.joins={optimistic: {arms.lag-1.policy.joins: optimistic}, mean: {arms.lag-1.policy.joins: mean}}",
)

STUDIES: dict[str, tuple[str, ...]] = {
    "lag_bursts": (
        *_BRIEF,
        "--set",
        "workload.requests=100",
        *_ONE_JOIN,
        "--set",
        "sweep.axes.burst={waves: {workload.arrivals: {kind: waves, size: 64, share: 0.5}}}",
    ),
    "lag_short_answers": (
        *("--set", "workload.requests=100"),
        *_ONE_JOIN,
        *("--set", "sweep.axes.burst={waves: {workload.arrivals: {kind: waves, size: 32, share: 0.5}}}"),
    ),
    "lag_transient": (*_BRIEF, "--set", "workload.requests=260", *_ONE_JOIN),
    "calibration": (*_BRIEF, "--set", "workload.cohort=12", "--set", "sweep.load=[8]"),
    "jaggedness": (*_BRIEF, "--set", "workload.cohort=12", "--set", "sweep.load=[8]"),
}
"""Settings that shorten the experiments whose axes do not fit the general rule."""


def _kernels(words: list[str]) -> list[str]:
    if words[1] == "compile":
        return ["--arch", "sm_90", "--op", "admit", "--first", "1"]
    if words[1] == "bench":
        return ["--op", "admit", "--dry"]
    return ["--quick", "--limit", "64", "-q"]


def _script(words: list[str]) -> list[str]:
    return ["-q", "-p", "no:cacheprovider"] if words[:2] == ["-m", "pytest"] else []
