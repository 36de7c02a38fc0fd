"""Change values of an experiment file from the command line: ``--set sweep.load=[1,2]``."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_origin

from ...policies.nearest import likeness
from ...policies.registry import POLICIES
from .document import Document, KeyPath, parse_value
from .errors import ConfigError
from .problems import annotations_at, known_keys

_NAMED_BY_PATHS = (("sweep", "axes"), ("tune", "space"))
"""Sections whose keys are key paths themselves."""


def override(document: Document, settings: Sequence[str]) -> Document:
    """Return a copy of ``document`` in which each ``a.b=value`` of ``settings`` holds; values are YAML 1.2.

    Any key of the schema may be set, whether the file has it or not. A new arm is added whole, as in
    ``arms.mine={policy: {kind: static, k: 2}}``, and so is an axis: ``sweep.axes.hardware.noise_cv=[0, 0.1]``.

    Raises:
        ConfigError: for a setting without ``=``, a path that does not exist, or a value that is no YAML.
    """
    changed = copy.deepcopy(document)
    for setting in settings:
        dotted, equals, text = setting.partition("=")
        if not equals or not dotted.strip():
            raise ConfigError(f"--set {setting}: write it as key.path=value, such as sweep.load=[1,2]")
        origin = f"--set {dotted.strip()}"
        path = _key_path(dotted.strip())
        value = parse_value(text, origin)
        check_path(path, value, changed.data, origin)
        replace(changed, path, value, "--set")
    return changed


def _key_path(dotted: str) -> KeyPath:
    """Return the keys of a dotted path; what follows a section of key paths is one name, dots and all."""
    parts = dotted.split(".")
    return (*parts[:2], ".".join(parts[2:])) if tuple(parts[:2]) in _NAMED_BY_PATHS and len(parts) > 2 else tuple(parts)


def check_path(path: KeyPath, value: Any, data: Mapping[str, Any], origin: str) -> None:
    """Refuse a key path that an experiment cannot have.

    Raises:
        ConfigError: naming ``origin`` and the nearest path there is.
    """
    if not _adds_an_arm(path, value) and path[:2] not in _NAMED_BY_PATHS:
        _check(path, data, origin)


def has(data: Any, path: KeyPath) -> bool:
    """Return whether a mapping of mappings has a key path."""
    for part in path:
        if not isinstance(data, Mapping) or part not in data:
            return False
        data = data[part]
    return True


def overlap(paths: Mapping[str, KeyPath]) -> tuple[str, str] | None:
    """Return the names of two key paths of which the first leads to the second or is the same; None if none does."""
    for name, path in paths.items():
        for other, longer in paths.items():
            if name != other and longer[: len(path)] == path:
                return name, other
    return None


def _adds_an_arm(path: KeyPath, value: Any) -> bool:
    """Whether a setting gives a whole arm, which may have any name: ``arms.mine={policy: {..}}``."""
    return len(path) == 2 and path[0] == "arms" and isinstance(value, Mapping) and "policy" in value


def replace(document: Document, path: KeyPath, value: Any, origin: str) -> None:
    """Set ``path`` in place, making the mappings that lead to it, and note where the value comes from.

    Raises:
        ConfigError: if a value on the way is not a mapping.
    """
    parent: Any = document.data
    for end, part in enumerate(path[:-1], start=1):
        if parent.get(part) is None:
            parent[part] = {}
        parent = parent[part]
        if not isinstance(parent, dict):
            here = ".".join(map(str, path[:end]))
            raise ConfigError(f"{origin}: {here} is {parent!r} and has no keys; set {here}={{..}} as a whole")
    parent[path[-1]] = value
    document.lines = {key: line for key, line in document.lines.items() if key[: len(path)] != path}
    document.origins = {key: name for key, name in document.origins.items() if key[: len(path)] != path}
    document.origins[path] = origin


def _check(path: KeyPath, data: Mapping[str, Any], origin: str) -> None:
    """Refuse a path that no experiment has, naming the nearest one that it has."""
    for end in range(len(path)):
        keys = _keys(path[:end], data)
        if keys is not None and path[end] not in keys:
            best = max(_paths((), data), key=lambda known: _likeness(".".join(map(str, path)), known))
            raise ConfigError(f"{origin}: there is no such key; the nearest is {best}")


def _keys(path: KeyPath, data: Mapping[str, Any]) -> list[str] | None:
    """Return what may stand under ``path``; None if anything may, an empty list if nothing."""
    here = _at(path, data)
    if path == ("arms",):
        return list(here) if isinstance(here, Mapping) else []
    if len(path) == 3 and path[0] == "arms" and path[2] == "policy":
        return policy_keys(here)
    if path and path[-1] == "drafts" and isinstance(here, Mapping) and here.get("kind") == "python":
        return None
    keys = known_keys(path, {})  # whatever kinds the file names: another setting may change them
    if keys is not None:
        return keys
    return None if any(get_origin(item) is dict for item in annotations_at(path, {})) else []


def policy_keys(spec: Any) -> list[str] | None:
    """Return the parameters of the policy in ``spec`` and ``kind``; None for a user's class, which has its own."""
    kind = spec.get("kind") if isinstance(spec, Mapping) else None
    if kind == "python":
        return None
    if kind not in POLICIES:
        return ["kind"]
    cls: Any = POLICIES[str(kind)]
    return ["kind", *(field.name for field in dataclasses.fields(cls) if field.init)]


def _at(path: KeyPath, data: Any) -> Any:
    for part in path:
        data = data.get(part) if isinstance(data, Mapping) else None
    return data


def _paths(prefix: KeyPath, data: Mapping[str, Any]) -> Iterator[str]:
    """Yield every path below ``prefix`` that may be set, in dotted form."""
    for key in _keys(prefix, data) or []:
        path = (*prefix, key)
        yield ".".join(map(str, path))
        yield from _paths(path, data)


def _likeness(wrong: str, known: str) -> float:
    """Score how likely ``known`` is meant: as a whole, by its last word, and by the sections it lies in."""
    parts, others = wrong.split("."), known.split(".")
    shared = next((n for n, (a, b) in enumerate(zip(parts, others, strict=False)) if a != b), len(others))
    return likeness(wrong, known) + likeness(parts[-1], others[-1]) + shared / len(parts)
