"""What every section of an experiment file has in common: strictness, bounds, and how a misfit is told."""

from __future__ import annotations

from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Probability = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0, le=2**63 - 1)]
T = TypeVar("T", str, int, float)


class Section(BaseModel):
    """A mapping of the file: unknown keys refused, nothing converted, never changed after reading."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


def without_repeats(values: list[T]) -> list[T]:
    """Return the values as they are.

    Raises:
        PydanticCustomError: if one appears twice; points at the second.
    """
    for index, value in enumerate(values):
        if value in values[:index]:
            shown = value if isinstance(value, str) else f"{value:g}"
            raise misfit(str(index), f"{shown} appears twice; keep one")
    return values


def misfit(key: str, message: str) -> PydanticCustomError:
    """Return the error of a key that does not fit its neighbours; ``key`` is relative to the validated value."""
    return PydanticCustomError("misfit", "{message}", {"key": key, "message": message})
