"""Checks of policy parameters, with one form of message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .interface import PolicyError


def at_least(kind: str, name: str, value: Any, low: int) -> None:
    """Raise PolicyError unless ``value`` is an int of at least ``low``."""
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise PolicyError(f"`{name}` of policy `{kind}` must be a whole number of at least {low}, got {value!r}")


def within(kind: str, name: str, value: Any, low: float, high: float) -> None:
    """Raise PolicyError unless ``value`` is a number in [low, high]."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise PolicyError(f"`{name}` of policy `{kind}` must be a number within [{low}, {high}], got {value!r}")


def one_of(kind: str, name: str, value: Any, choices: Sequence[Any]) -> None:
    """Raise PolicyError unless ``value`` is one of ``choices``."""
    if value not in choices:
        listed = ", ".join(repr(choice) for choice in choices)
        raise PolicyError(f"`{name}` of policy `{kind}` must be one of {listed}, got {value!r}")
