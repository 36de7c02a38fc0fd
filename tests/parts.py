"""Parameters of which `make test` takes a few and `make test-deep` the others."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def deep_except(light: Collection[Any], values: Iterable[Any]) -> list[Any]:
    """Return the parameters, with the mark `deep` on those that are not among the light ones.

    Raises:
        ValueError: if a light one is not among the parameters.
    """
    values = list(values)
    strange = [value for value in light if value not in values]
    if strange:
        raise ValueError(f"`light` names what is not among the parameters: {strange}")
    return [value if value in light else _deep(value) for value in values]


def deep_of(deep: Collection[Any], values: Iterable[Any]) -> list[Any]:
    """Return the parameters, with the mark `deep` on those named.

    Raises:
        ValueError: if one that is named is not among the parameters.
    """
    values = list(values)
    strange = [value for value in deep if value not in values]
    if strange:
        raise ValueError(f"`deep` names what is not among the parameters: {strange}")
    return [_deep(value) if value in deep else value for value in values]


def _deep(value: Any) -> Any:
    return pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.deep)
