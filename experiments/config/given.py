"""An experiment as callers give it: the path of a file, the name of a shipped one, or a mapping."""

from __future__ import annotations

import os
from collections.abc import Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from ...policies.nearest import suggestion
from .document import Document, KeyPath, load_document
from .errors import ConfigError

Given = str | Path | Mapping[str, Any]


def shipped_experiments() -> dict[str, Path]:
    """Return the experiment files that come with the package, by name."""
    return {path.stem: path for path in sorted(Path(__file__).parents[1].glob("*.yaml"))}


def find_config(config: str) -> Path:
    """Return the file that ``config`` names: a path, or the name of a shipped experiment.

    Raises:
        ConfigError: if it is neither.
    """
    path, shipped = Path(config).expanduser(), shipped_experiments()
    if path.is_file():
        return path
    if config in shipped:
        return shipped[config]
    if path.is_dir():
        raise ConfigError(f"{config} is a folder; name an experiment file, such as {config}/config.yaml")
    raise ConfigError(
        f"there is no file {config}, and no shipped experiment of this name; {suggestion(config, shipped)}"
    )


def document_of(given: Given) -> Document:
    """Return the document of an experiment. Relative paths are looked up beside the file, those of a mapping in the
    working directory; the mapping is copied.

    Raises:
        ConfigError: if there is no such file, it is not YAML, or the mapping holds what YAML would not give.
    """
    if isinstance(given, str | Path):
        return load_document(find_config(str(given)))
    document = Document("experiment", {})
    try:
        data = _plain(given, (), document)
    except RecursionError:
        raise ConfigError("experiment: nested too deeply, or a mapping that contains itself") from None
    if not isinstance(data, dict):
        raise ConfigError(
            f"an experiment is a path, the name of a shipped one or a mapping, got a {type(given).__name__}"
        )
    document.data = data
    return document


def _plain(value: Any, path: KeyPath, document: Document) -> Any:
    """Return a copy of a value made of dict, list, str, int, float, bool and None alone: what can be written as YAML.

    Tuples become lists, numbers of NumPy become Python's, and paths become text.
    """
    if isinstance(value, Mapping):
        return {_word(key, path, document): _plain(each, (*path, key), document) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each, (*path, index), document) for index, each in enumerate(value)]
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str | os.PathLike):
        return str(value)
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    raise document.error(path, f"must be plain data (mapping, list, text, number, bool or None), got {value!r:.60}")


def _word(key: Any, path: KeyPath, document: Document) -> str:
    if not isinstance(key, str):
        raise document.error(path, f"the key {key!r} is not a word; put it in quotes")
    return str(key)
