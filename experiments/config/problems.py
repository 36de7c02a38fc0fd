"""Say what is wrong with an experiment file: where, which key, the rule, the value and the remedy."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from ...policies.nearest import suggestion
from .document import Document, KeyPath
from .errors import ConfigError
from .schema import Experiment

_TYPES = {
    "int_type": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "a word",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}
_BOUNDS = {
    "greater_than": ("greater than", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than_equal": ("at most", "le"),
}


def to_config_error(error: ValidationError, document: Document) -> ConfigError:
    """Return the first problem of ``error`` as ``file:line: key.path: message``; unknown keys come first.

    A misspelt key is often both an unknown key and a missing one, and the first says what to do.
    """
    details = error.errors(include_url=False)
    found = min(details, key=lambda item: item["type"] != "extra_forbidden")
    path = _key_path(found, document.data)
    return document.error(path, _message(found, path, document.data))


def known_keys(path: KeyPath, data: Any) -> list[str] | None:
    """Return the keys that may stand under ``path`` of an experiment; None where any may.

    Where the file does not say which kind of mapping it is, the keys of all kinds are returned.
    """
    models = [Experiment] if not path else list(models_at(path, data))
    if not models:
        return None
    return list(dict.fromkeys(key for model in models for key in model.model_fields))


def models_at(path: KeyPath, data: Any) -> Iterator[type[BaseModel]]:
    """Yield the sections that may stand at ``path``, given what the file says there."""
    for annotation in annotations_at(path, data):
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            yield annotation


def annotations_at(path: KeyPath, data: Any) -> list[Any]:
    """Return the plain types (no unions) a value at ``path`` may have; empty if no such key exists."""
    found: list[Any] = [Experiment]
    for part in path:
        found = [plain for annotation in found for child in _child(annotation, part) for plain in _plain(child)]
        data = data.get(part) if isinstance(data, Mapping) else None
        found = _of_kind(found, data)
    return found


def _child(annotation: Any, part: str | int) -> Iterator[Any]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        if part in annotation.model_fields:
            yield annotation.model_fields[str(part)].annotation
    elif get_origin(annotation) is dict:
        yield get_args(annotation)[1]
    elif get_origin(annotation) is list and isinstance(part, int):
        yield get_args(annotation)[0]


def _plain(annotation: Any) -> Iterator[Any]:
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _plain(get_args(annotation)[0])
    elif origin in (Union, types.UnionType):
        for member in get_args(annotation):
            yield from _plain(member)
    else:
        yield annotation


def _of_kind(annotations: list[Any], data: Any) -> list[Any]:
    """Keep only the section whose `kind` the file names, if it names one of them."""
    kind = data.get("kind") if isinstance(data, Mapping) else None
    named = [item for item in annotations if kind is not None and kind in kinds([item])]
    return named or annotations


def kinds(annotations: list[Any]) -> list[str]:
    """Return the values of `kind` that sections of these types carry."""
    names: list[str] = []
    for annotation in annotations:
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            field = annotation.model_fields.get("kind")
            if field is not None and get_origin(field.annotation) is Literal:
                names.extend(get_args(field.annotation))
    return names


def _key_path(found: ErrorDetails, data: Any) -> KeyPath:
    """Return the key path of a problem; pydantic puts the names of union members between the keys."""
    path: list[str | int] = []
    for index, part in enumerate(found["loc"]):
        last = index == len(found["loc"]) - 1
        inside = isinstance(data, Mapping) and part in data
        if inside or (isinstance(data, list) and isinstance(part, int) and part < len(data)):
            path.append(part)
            data = data[part]
        elif last and found["type"] == "missing":
            path.append(part)
    if found["type"].startswith("union_tag") and isinstance(data, Mapping):
        path.append("kind")
    if found["type"] == "misfit":
        path.extend(int(part) if part.isdigit() else part for part in found["ctx"]["key"].split("."))
    return tuple(path)


def _message(found: ErrorDetails, path: KeyPath, data: Any) -> str:
    kind, value, context = found["type"], found["input"], found.get("ctx", {})
    if kind == "extra_forbidden":
        return f"unknown key; {suggestion(str(path[-1]), known_keys(path[:-1], data) or [])}"
    if kind == "missing":
        return "is required and missing"
    if kind == "misfit":
        return str(context["message"])
    if kind in _BOUNDS:
        words, bound = _BOUNDS[kind]
        return f"must be {words} {context[bound]:g}, got {value!r}"
    if kind in _TYPES or kind == "int_from_float":
        return f"must be {_TYPES.get(kind, 'a whole number')}, got {_shown(value)}"
    return _other_message(kind, value, context, path, data) or f"{found['msg'].lower()}, got {_shown(value)}"


def _other_message(kind: str, value: Any, context: Mapping[str, Any], path: KeyPath, data: Any) -> str | None:
    if kind == "literal_error":
        choices = [item for plain in annotations_at(path, data) for item in _choices(plain)]
        return f"must be one of {', '.join(choices)}; got {_shown(value)}"
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        names = ", ".join(kinds(annotations_at(path[:-1], {})))
        got = "it is missing" if kind == "union_tag_not_found" else f"got {_shown(value['kind'])}"
        return f"must be one of {names}; {got}"
    if kind in ("too_short", "string_too_short"):
        return f"must not be empty, got {_shown(value)}"
    if kind == "string_pattern_mismatch":
        return "a name is made of letters, digits, - and _, and begins with a letter or digit"
    return None


def _choices(annotation: Any) -> list[str]:
    return [str(item) for item in get_args(annotation)] if get_origin(annotation) is Literal else []


def _shown(value: Any) -> str:
    if isinstance(value, Mapping | list):
        return f"a {'list' if isinstance(value, list) else 'mapping'}"
    return "nothing" if value is None else repr(value)
