"""The error of the draft models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from inspect import Parameter
from typing import Any

from ..policies import closest


class DraftError(ValueError):
    """A draft model cannot be built, or is asked for drafts that it does not have."""


def unknown(what: str, name: object, choices: Iterable[str]) -> DraftError:
    """Return the error for a name that is not among the choices, which it lists, the nearest first."""
    names = sorted(choices)
    near = closest(str(name), names, most=len(names), cutoff=0.5)
    ordered = near + [choice for choice in names if choice not in near]
    return DraftError(f"unknown {what} `{name}`; it must be one of: {', '.join(ordered) or 'none'}")


def check_fields(fields: Mapping[str, Any], accepted: Mapping[str, Parameter], what: str) -> None:
    """Check that the parameters of a ``drafts`` mapping are those that building the model takes.

    Args:
        fields: what is given; ``seed`` is none of it.
        accepted: parameters of what builds the model, by name.
        what: what messages call the drafts.

    Raises:
        DraftError: for a parameter that is unknown, or required and missing.
    """
    named = {name: each for name, each in accepted.items() if each.kind not in _VARIABLE and name != "seed"}
    # `**parameters` in a user's class: nothing can be unknown to it.
    anything = any(each.kind is Parameter.VAR_KEYWORD for each in accepted.values())
    for name in fields:
        if name not in named and not (anything and name != "seed"):
            raise unknown(f"parameter of {what}:", name, named)
    for name, each in named.items():
        if name not in fields and each.default is each.empty:
            raise DraftError(f"{what} need `{name}`; add it")


_VARIABLE = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
