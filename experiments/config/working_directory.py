"""Where users' own classes are found."""

from __future__ import annotations

import sys
from pathlib import Path


def make_working_directory_importable() -> None:
    """Let ``my_module:MyPolicy`` find a module beside which the command is run; workers inherit the path."""
    make_importable(str(Path.cwd()))


def make_importable(folder: str) -> None:
    """Let modules in a folder be imported, after all others."""
    if folder not in sys.path:
        sys.path.append(folder)
