"""What went wrong in somebody else's code, in one line."""

from __future__ import annotations

import traceback


def describe(error: BaseException) -> str:
    """Return an exception's type and message, and the file and line it comes from."""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    frames = traceback.extract_tb(error.__traceback__)
    return f"{text} ({frames[-1].filename}:{frames[-1].lineno})" if frames else text
