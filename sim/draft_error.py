"""The error of the draft models."""

from __future__ import annotations

from collections.abc import Iterable

from ..policies import closest


class DraftError(ValueError):
    """A draft model cannot be built, or is asked for drafts that it does not have."""


def unknown(what: str, name: object, choices: Iterable[str]) -> DraftError:
    """Return the error for a name that is not among the choices, which it lists, the nearest first."""
    names = sorted(choices)
    near = closest(str(name), names, most=len(names), cutoff=0.5)
    ordered = near + [choice for choice in names if choice not in near]
    return DraftError(f"unknown {what} `{name}`; it must be one of: {', '.join(ordered)}")
