"""Every command of README and docs runs, page by page, in the order in which a reader meets them."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .doc_commands import EXIT_CODES, PAGES, REFUSED, ROOT, Command, commands, shortened

MOST_NOT_RUN = 5

GUIDE = (ROOT / "docs" / "guide.md").read_text(encoding="utf-8")


def workshop(folder: Path, page: Path) -> None:
    """Put into a folder what the guide and a page tell the reader to save, and a trace and a profile of their own."""
    for text in (GUIDE, page.read_text(encoding="utf-8")):
        for name, source in re.findall(r"[Ss]ave this as `([\w.]+)`:\n+```\w+\n(.*?)```", text, re.DOTALL):
            (folder / name).write_text(source, encoding="utf-8")
    contract = next(
        block for block in re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL) if "PolicyContract" in block
    )
    (folder / "test_my_policy.py").write_text(contract, encoding="utf-8")
    policy = (folder / "my_policy.py").read_text(encoding="utf-8")
    (folder / "my_module.py").write_text(policy.replace("CountLikely", "MyPolicy"), encoding="utf-8")
    rows = re.findall(r"```csv\n(.*?)```", GUIDE, re.DOTALL)[0]
    rows += "".join(f"{number},{number / 2},300,{20 + number}\n" for number in range(3, 60))
    for name in ("my_trace.csv", "trace.csv"):
        (folder / name).write_text(rows, encoding="utf-8")
    profile = json.loads((ROOT / "sim" / "profiles" / "vllm-dsv4flash-b300-tp4.json").read_text(encoding="utf-8"))
    # mine.json is overwritten by the profiler, unless it refuses what it measured.
    for name in ("my_profile.json", "mine.json"):
        (folder / name).write_text(json.dumps(profile | {"name": "mine"}), encoding="utf-8")


ALL = [command for page in PAGES for command in commands(page)]
RUN = [command for command in ALL if command.reason is None and not command.left_to_ci]


def test_there_are_commands_and_few_are_not_run() -> None:
    assert len(RUN) >= 20
    left_out = [command.where for command in ALL if command.reason is not None]
    assert len(left_out) <= MOST_NOT_RUN, left_out
    assert all(command.reason for command in ALL if command.reason is not None)


def test_what_is_left_to_ci_is_run_by_it() -> None:
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = {command.text.split()[1] for command in ALL if command.text.startswith("make ")}
    assert targets
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"the Makefile has no {target}"
        assert f"make -s {target}" in ci or target in ("frontier", "picture", "format", "help"), (
            f".ci/run lacks {target}"
        )
    if any("gpu.sh" in command.text for command in ALL):
        assert "benchmarks/gpu.sh --dry" in ci


def needs_torch(command: Command) -> bool:
    """Whether a command is one of the kernel lab's."""
    return command.text.startswith("specsched kernels")


def cases() -> Iterator[Any]:
    """Yield for every page its commands, those of the kernel lab apart: the README's are a visitor's first."""
    for page in sorted({command.page for command in RUN}):
        ours = [command for command in RUN if command.page == page]
        light = () if page.stem == "README" else pytest.mark.deep
        for lab, marks in ((False, light), (True, pytest.mark.kernels)):
            chosen = [command for command in ours if needs_torch(command) == lab]
            if chosen:
                yield pytest.param(chosen, marks=marks, id=f"{page.name} kernels" if lab else page.name)


@pytest.mark.parametrize("chosen", list(cases()))
def test_the_commands_of_a_page_run(chosen: list[Command], tmp_path: Path) -> None:
    workshop(tmp_path, chosen[0].page)
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(tmp_path)}
    for command in chosen:
        done = subprocess.run(
            shortened(command.text),
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        if "kernels profile" in command.text and done.returncode == 1:
            assert REFUSED in done.stderr, f"{command.where}\n{done.stderr}"
            continue
        expected = EXIT_CODES.get(command.text, (0,))
        assert done.returncode in expected, f"{command.where}\n{done.stdout[-500:]}{done.stderr}"


def test_a_command_without_a_rule_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"no rule for `rm -r \.`"):
        shortened("rm -r .")
    assert Command(ROOT / "README.md", 1, "make test").left_to_ci
