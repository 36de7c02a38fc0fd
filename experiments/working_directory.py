"""Where users' own classes are found."""

from __future__ import annotations

import sys
from pathlib import Path


def make_working_directory_importable() -> None:
    """Let ``my_module:MyPolicy`` find a module beside which the command is run; workers inherit the path."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
