"""Read and write YAML 1.2 with line numbers.

PyYAML implements YAML 1.1, where ``on`` is true, ``1e-3`` is a word and ``1_000`` is a number. Scalars here follow the
core schema of YAML 1.2.2 (section 10.3.2). Duplicate keys, merge keys (``<<``, not in 1.2), tags beyond the core and
keys that are not words are refused. Anchors and aliases work.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from .errors import ConfigError

KeyPath = tuple[str | int, ...]

_TAG = "tag:yaml.org,2002:"
_MOST_NODES = 100_000  # aliases of aliases can make a kilobyte of text into gigabytes of data
_SCALARS = (
    ("null", r"null|Null|NULL|~|", ["n", "N", "~", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    (
        "float",
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        list("-+.0123456789"),
    ),
)


class _Loader(yaml.SafeLoader):
    """Composes nodes with the scalars of YAML 1.2."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012  (PyYAML's class table)


class _Dumper(yaml.SafeDumper):
    """Quotes every word that YAML 1.1 or 1.2 would take for something else."""

    def ignore_aliases(self, data: Any) -> bool:
        """Write values out where they stand."""
        return True


_PATTERNS = {name: re.compile(rf"(?:{pattern})\Z") for name, pattern, _ in _SCALARS}
for _name, _, _first in _SCALARS:
    _Loader.add_implicit_resolver(_TAG + _name, _PATTERNS[_name], _first)
    _Dumper.add_implicit_resolver(_TAG + _name, _PATTERNS[_name], _first)


@dataclass
class Document:
    """A mapping read from YAML and where each of its keys stands.

    Attributes:
        source: what error messages call the text, usually the file as the user named it.
        data: the mapping, of dict, list, str, int, float, bool and None.
        lines: line number (from 1) of each key path.
        origins: key paths that were set by something else than the file, with its name (``--set a.b``).
        folder: where relative paths in it are looked up first.
    """

    source: str
    data: dict[str, Any]
    lines: dict[KeyPath, int] = field(default_factory=dict)
    origins: dict[KeyPath, str] = field(default_factory=dict)
    folder: Path = Path()

    def where(self, path: KeyPath) -> str:
        """Return the place to name in a message about ``path``: `file:line` of it or its nearest parent."""
        for end in range(len(path), -1, -1):
            if path[:end] in self.origins:
                return self.origins[path[:end]]
            if path[:end] in self.lines:
                return f"{self.source}:{self.lines[path[:end]]}"
        return self.source

    def error(self, path: KeyPath, message: str) -> ConfigError:
        """Return the error ``where: key.path: message``."""
        dotted = ".".join(map(str, path))
        return ConfigError(f"{self.where(path)}: {dotted + ': ' if dotted else ''}{message}")


def load_document(path: Path, source: str | None = None) -> Document:
    """Read the YAML file at ``path``, whose top level must be a mapping.

    Raises:
        ConfigError: if the file cannot be read or is not such YAML, with file, line and column.
    """
    source = source or str(path)
    try:
        text = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{source}: cannot be read: {error.strerror or error}") from None
    node = _compose(text, source)
    if not isinstance(node, yaml.MappingNode):
        raise ConfigError(f"{source}: the top level must be a mapping of keys to values (`workload: ..`)")
    reader = _Reader(source)
    data = reader.value(node, ())
    return Document(source, data, reader.lines, folder=path.parent)


def parse_value(text: str, source: str) -> Any:
    """Return the value that ``text``, such as ``[1, 2]``, stands for in YAML 1.2.

    Raises:
        ConfigError: if it is no YAML value; ``source`` names it.
    """
    node = _compose(text, source)
    return None if node is None else _Reader(source).value(node, ())


def dump(data: Any) -> str:
    """Return ``data`` as YAML which `load_document` and readers of YAML 1.1 both read back to equal values."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)


def _compose(text: str | bytes, source: str) -> yaml.Node | None:
    try:
        node: yaml.Node | None = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{source}:{mark.line + 1}:{mark.column + 1}" if mark else source
        reason = " ".join(part for part in (error.context, error.problem) if part)
        raise ConfigError(f"{place}: not valid YAML: {' '.join(reason.split())}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{source}: not valid YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise ConfigError(f"{source}: nested too deeply") from None
    return node


class _Reader:
    """Turns composed nodes into plain data and notes the line of each key path."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.lines: dict[KeyPath, int] = {}
        self._open: list[yaml.Node] = []
        self._nodes = 0

    def value(self, node: yaml.Node, path: KeyPath) -> Any:
        self._nodes += 1
        if self._nodes > _MOST_NODES:
            raise self._error(node, f"more than {_MOST_NODES} values once aliases are written out")
        if any(node is parent for parent in self._open):
            raise self._error(node, "an alias that contains itself")
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node)
        self._open.append(node)
        value = self._mapping(node, path) if isinstance(node, yaml.MappingNode) else self._sequence(node, path)
        self._open.pop()
        return value

    def _mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        self._expect_tag(node, "map")
        values: dict[str, Any] = {}
        for key, key_node, value_node in self._pairs(node):
            here = (*path, key)
            if key in values:
                first = self.lines[here]
                raise self._error(key_node, f"key {key!r} appears twice, first on line {first}; keep one")
            self.lines[here] = key_node.start_mark.line + 1
            values[key] = self.value(value_node, here)
        return values

    def _pairs(self, node: yaml.MappingNode) -> Iterator[tuple[str, yaml.Node, yaml.Node]]:
        for key_node, value_node in node.value:
            key = self._scalar(key_node) if isinstance(key_node, yaml.ScalarNode) else None
            if not isinstance(key, str):
                shown = getattr(key_node, "value", None)
                word = f" {shown}" if isinstance(shown, str) and shown else ""
                raise self._error(key_node, f"the key{word} is not a word; put it in quotes")
            if key == "<<" and key_node.style is None:
                raise self._error(key_node, "merge keys (<<) are not part of YAML 1.2; write the keys out")
            yield key, key_node, value_node

    def _sequence(self, node: yaml.Node, path: KeyPath) -> list[Any]:
        self._expect_tag(node, "seq")
        items = []
        for index, item in enumerate(node.value):
            self.lines[(*path, index)] = item.start_mark.line + 1
            items.append(self.value(item, (*path, index)))
        return items

    def _scalar(self, node: yaml.ScalarNode) -> Any:
        kind, text = node.tag.removeprefix(_TAG), node.value
        if kind == "str":
            return text
        if kind not in _CONVERT:
            raise self._error(node, f"the tag {node.tag} is not supported; write plain data")
        if not _PATTERNS[kind].match(text):
            raise self._error(node, f"{text[:40]!r} is not of the kind {kind}")
        try:
            return _CONVERT[kind](text)
        except ValueError as error:
            raise self._error(node, f"{text[:40]}.. is not a usable number: {error}") from None

    def _expect_tag(self, node: yaml.Node, kind: str) -> None:
        if node.tag != _TAG + kind:
            raise self._error(node, f"the tag {node.tag} is not supported; write plain data")

    def _error(self, node: yaml.Node, message: str) -> ConfigError:
        mark = node.start_mark
        return ConfigError(f"{self.source}:{mark.line + 1}:{mark.column + 1}: {message}")


def _int(text: str) -> int:
    return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))


def _float(text: str) -> float:
    return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))


def _bool(text: str) -> bool:
    return text.lower() == "true"


def _null(text: str) -> None:
    return None


_CONVERT: dict[str, Callable[[str], Any]] = {"null": _null, "bool": _bool, "int": _int, "float": _float}
