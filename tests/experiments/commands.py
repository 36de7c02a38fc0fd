"""`specsched run` in a process of its own, and what its folder holds."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def command(*arguments: str, threads: int = 1) -> tuple[list[str], dict[str, str]]:
    code = "from specsched.experiments.cli.main import main; main()"
    environment = {**os.environ, "POLARS_MAX_THREADS": str(threads), "OMP_NUM_THREADS": "1"}
    return [sys.executable, "-c", code, "run", *arguments], environment


def run_command(*arguments: str, threads: int = 1) -> None:
    line, environment = command(*arguments, "-q", threads=threads)
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr


def contents(folder: Path) -> dict[str, str]:
    """Hashes of everything that must not depend on how the run went."""
    files = [file for file in sorted(folder.rglob("*")) if file.is_file() and file.name != "manifest.json"]
    return {str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def wait_until(true: Any, seconds: float = 60.0) -> Iterator[None]:
    limit = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < limit, "nothing happened in time"
        yield
        time.sleep(0.02)
