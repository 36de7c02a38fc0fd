"""Fixtures shared by all tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of public traces, step-time curves and published figures; tests that need it skip where it is absent."""
    folder = Path(os.environ.get("SPECSCHED_DATA", ROOT.parent / "shared" / "data"))
    if not (folder / "README.md").is_file():
        pytest.skip("public data folder not present")
    return folder
