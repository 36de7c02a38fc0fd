"""The right name for a wrong one."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(name: str, choices: Iterable[str]) -> str | None:
    """Return the choice most like ``name``, ignoring case and `-` against `_`; None if nothing is like it."""
    plain = {_plain(choice): choice for choice in choices}
    close = get_close_matches(_plain(name), plain, n=1, cutoff=0.6)
    return plain[close[0]] if close else None


def suggestion(name: str, choices: Iterable[str]) -> str:
    """Return how a message about the unknown ``name`` ends: the nearest choice, or the list of all."""
    names = list(choices)
    best = nearest(name, names)
    if best is not None:
        return f"did you mean {best!r}?"
    return f"choose from {', '.join(names)}" if names else "there is none to choose from"


def _plain(name: str) -> str:
    return name.lower().replace("_", "-")
