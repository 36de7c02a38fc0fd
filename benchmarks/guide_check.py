"""Write what ``specsched check`` prints about the guide's own scheduler into docs/guide.md.

Run ``python benchmarks/guide_check.py``. Class and command are taken from the guide itself; a test compares the output.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

GUIDE = Path(__file__).resolve().parents[1] / "docs" / "guide.md"
SECTION = re.compile(r"(?<=\n)## Check a scheduler\n.*?(?=\n## )", re.DOTALL)
CLASS = re.compile(r"```python\n(.*?)```", re.DOTALL)
RUN = re.compile(r"```console\n\$ specsched (check (\w+):.*?)\n(.*?)```", re.DOTALL)
MAIN = "from specsched.experiments.cli.main import main; main()"


def section(guide: str) -> str:
    """Return the guide's section."""
    found = SECTION.search(guide)
    if found is None:
        raise ValueError(f"{GUIDE.name} has no section `## Check a scheduler`; write it before running this")
    return found.group()


def printed(text: str) -> str:
    """Return the output that a section shows."""
    return RUN.findall(text)[0][2]


def produced(text: str) -> str:
    """Run the section's command on the section's class and return the output, blanks at line ends removed."""
    (command, module, _), (source, *_) = RUN.findall(text)[0], CLASS.findall(text)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, f"{module}.py").write_text(source, encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-c", MAIN, *command.split()],
            cwd=folder,
            env=os.environ | {"COLUMNS": "170", "PYTHONIOENCODING": "utf-8"},
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
    if done.returncode != 1:
        raise ValueError(f"specsched {command}: expected a counterexample and exit code 1, got {done.returncode}")
    return "".join(f"{line.rstrip()}\n" for line in done.stdout.splitlines())


def main() -> None:
    """Replace the output that the guide shows."""
    guide = GUIDE.read_text(encoding="utf-8")
    old = section(guide)
    GUIDE.write_text(guide.replace(old, old.replace(printed(old), produced(old))), encoding="utf-8")


if __name__ == "__main__":
    main()
