"""Values of an experiment file as people write them."""

from __future__ import annotations

from typing import Any


def load_text(load: float) -> str:
    """Return a load as people write it: 4, not 4.0."""
    return str(int(load)) if float(load).is_integer() else repr(float(load))


def value_text(value: Any) -> str:
    """Return a value of an axis as people write it: 8, not 8.0."""
    return load_text(value) if isinstance(value, float) else str(value)
