"""The right name for a wrong one: the one place that says "did you mean", for every room."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher, get_close_matches


def closest(name: str, choices: Iterable[str], most: int = 1, cutoff: float = 0.6) -> list[str]:
    """Return at most ``most`` choices that are like ``name`` (likeness of ``cutoff`` or more), the likest first."""
    return get_close_matches(name, list(choices), n=most, cutoff=cutoff)


def did_you_mean(name: str, choices: Iterable[str]) -> str:
    """Return a question with the choice most like ``name``; empty if nothing is like it."""
    return "".join(f"did you mean `{near}`?" for near in closest(name, choices))


def suggestion(name: str, choices: Iterable[str]) -> str:
    """Return how a message about the unknown ``name`` ends: the nearest choice, or the list of all.

    Case, and `-` against `_`, make no difference.
    """
    names = list(choices)
    plain = {_plain(choice): choice for choice in names}
    for near in closest(_plain(name), plain):
        return f"did you mean {plain[near]!r}?"
    return f"choose from {', '.join(names)}" if names else "there is none to choose from"


def likeness(one: str, other: str) -> float:
    """Return how alike two names are, within [0, 1]; not always the same in the other order."""
    return SequenceMatcher(None, one, other).ratio()


def _plain(name: str) -> str:
    return name.lower().replace("_", "-")
