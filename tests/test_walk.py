"""docs/development.md: the walk of one run names ten files, and a run enters them in that order."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "development.md").read_text(encoding="utf-8")
STOPS = re.findall(r"^\| \d+ \| `([\w/]+\.py)` `(\w+)` \|", PAGE, re.MULTILINE)
MOST = 10

TRACE = """
import sys
from pathlib import Path
from specsched.experiments.cli.main import main
seen = {}
def note(frame, event, argument):
    if event == "call":
        seen.setdefault((frame.f_code.co_filename, frame.f_code.co_name))
sys.setprofile(note)
try:
    main()
finally:
    sys.setprofile(None)
    Path("seen.txt").write_text("".join(f"{file}\\t{name}\\n" for file, name in seen))
"""
SETTINGS = (
    *("sweep.load=[1]", "seeds=[0]", "workload.cohort=2", "workload.warmup=0"),
    "arms={a: {policy: {kind: static, k: 3}}}",
)


def test_a_run_enters_the_files_of_the_walk_in_order(tmp_path: Path) -> None:
    changed = [word for each in SETTINGS for word in ("--set", each)]
    command = [sys.executable, "-c", TRACE, "run", "frontier", "-o", "out", "-q", "--workers", "1", *changed]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    seen = [tuple(line.split("\t")) for line in (tmp_path / "seen.txt").read_text(encoding="utf-8").splitlines()]
    places = [seen.index((str(ROOT / file), name)) for file, name in STOPS]
    assert places == sorted(places)


def test_the_walk_is_short() -> None:
    assert 8 <= len(STOPS) <= MOST
    assert all((ROOT / file).is_file() for file, _ in STOPS)
