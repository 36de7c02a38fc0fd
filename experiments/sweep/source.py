"""The code and the data that a point runs through, and their hash.

They are found from import statements alone, beginning at `points.py`: nothing is executed, and what only prints, draws
or explains is not among them.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PROJECT = "specsched"
ENTRY = f"{PROJECT}.experiments.sweep.points"
ROOT = Path(__file__).resolve().parents[2]
"""The folder that holds the rooms, in a checkout as in an installed package."""

Import = ast.Import | ast.ImportFrom


@dataclass(frozen=True)
class Module:
    """What is read of a module.

    Attributes:
        file: its source.
        shape: hash of its syntax tree, in which no comment, no line number and no docstring is left.
        imports: dotted names that it imports when it is run itself.
        late: dotted names that its functions import when they are called.
    """

    file: Path
    shape: bytes
    imports: tuple[str, ...]
    late: tuple[str, ...]


@cache
def source_hash() -> str:
    """Return the hash of the code and the data that a point runs through, as they were when first asked for."""
    return hash_of(_own_modules(), ROOT)


@cache
def _own_modules() -> dict[str, Module]:
    return point_modules(ROOT)


def point_modules(root: Path) -> dict[str, Module]:
    """Return every module of the project that computing a point may run, by name.

    Args:
        root: the folder that holds the rooms.
    """
    return _reached([ENTRY], root)


def hash_of(modules: Mapping[str, Module], root: Path) -> str:
    """Return the hash of modules, and of the data beside them, for a project whose rooms are in ``root``.

    Profiles are left out: `file_hashes` hashes the content of the one that is used.
    """
    whole = hashlib.sha256()
    for name in sorted(modules):
        whole.update(name.encode() + modules[name].shape)
    for file in data_files(modules):
        whole.update(file.relative_to(root).as_posix().encode() + hashlib.sha256(file.read_bytes()).digest())
    return whole.hexdigest()


def data_files(modules: Mapping[str, Module]) -> list[Path]:
    """Return the files in the folders ``data`` beside modules; a package alone, as it does nothing, has none."""
    folders = {module.file.parent / "data" for module in modules.values() if module.file.name != "__init__.py"}
    files = [file for folder in folders for file in folder.rglob("*")]
    return sorted(file for file in files if file.is_file() and not file.name.startswith("."))


def user_hash(file: Path) -> str:
    """Return the hash of a user's module, with the project's modules that it runs and other points do not."""
    content = file.read_bytes()
    whole = hashlib.sha256(content)
    if file.suffix == ".py":
        named = read_module(content, file, "")
        others = _reached([*named.imports, *named.late], ROOT)
        for name in sorted(others.keys() - _own_modules().keys()):
            whole.update(name.encode() + others[name].shape)
    return whole.hexdigest()


def shipped_hash(module: str) -> str | None:
    """Return the hash of a module that the registry found by listing its room, which no import statement shows.

    None for one that every point runs through anyway.
    """
    own = _own_modules()
    if module in own:
        return None
    others = _reached([module], ROOT)
    return hash_of({name: others[name] for name in others.keys() - own.keys()}, ROOT)


def _reached(names: list[str], root: Path) -> dict[str, Module]:
    """Return the modules of the project that named ones run.

    A package runs when something in it is imported, but its functions are not called for that: what they import counts
    only if the package itself is named.
    """
    modules: dict[str, Module] = {}
    called: set[str] = set()
    todo = [(name, True) for name in names]
    while todo:
        dotted, by_name = todo.pop()
        name = _module_name(dotted, root)
        if name is None or name in called or (name in modules and not by_name):
            continue
        if name not in modules:
            file = _file(name, root)
            package = name if file.name == "__init__.py" else name.rpartition(".")[0]
            modules[name] = read_module(file.read_bytes(), file, package)
            todo.append((name.rpartition(".")[0], False))
            todo += [(each, True) for each in modules[name].imports]
        if by_name:
            called.add(name)
            todo += [(each, True) for each in modules[name].late]
    return modules


def _module_name(dotted: str, root: Path) -> str | None:
    """Return the module that an imported name is or stands in; None if it is none of the project's."""
    for name in (dotted, dotted.rpartition(".")[0]):
        if name.startswith(f"{PROJECT}.") and _file(name, root).is_file():
            return name
    return None


def _file(name: str, root: Path) -> Path:
    path = root.joinpath(*name.split(".")[1:])
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def read_module(content: bytes, file: Path, package: str) -> Module:
    """Read a module without running it.

    The tree stands for the code: whatever else the text holds leaves no trace in what a point computes, as long as no
    code reads docstrings or line numbers but to tell of an error.

    Args:
        content: its source.
        file: where it is.
        package: the package that its relative imports start from; empty for a module outside the project.
    """
    words: list[str] = []
    found: list[tuple[Import, bool]] = []
    _read(ast.parse(content, str(file)), words, found)
    names = [(name, late) for statement, late in found for name in _names(statement, package)]
    return Module(
        file=file,
        shape=hashlib.sha256(" ".join(words).encode()).digest(),
        imports=tuple(name for name, late in names if not late),
        late=tuple(name for name, late in names if late),
    )


def _read(node: ast.AST, words: list[str], found: list[tuple[Import, bool]], late: bool = False) -> None:
    """Write out a tree but for the texts that stand alone in it, and collect its imports.

    `ast.dump` does the same, and texts and imports would take two more walks.

    Args:
        node: root of the tree.
        words: gets the names of the nodes and what they hold.
        found: gets the import statements that may run, and whether each stands in a function.
        late: whether the node does.
    """
    if isinstance(node, Import):
        found.append((node, late))
    late = late or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    words.append(type(node).__name__)
    for field in node._fields:
        value = getattr(node, field)
        for each in ("[", *value, "]") if isinstance(value, list) else (value,):
            if not isinstance(each, ast.AST):
                words.append(repr(each))
            elif not _is_text(each):
                _read(each, words, [] if field == "body" and _for_types(node) else found, late)


def _for_types(node: ast.AST) -> bool:
    """Return whether a node is ``if TYPE_CHECKING:``, whose imports never run."""
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _is_text(node: ast.AST) -> bool:
    """Return whether a statement is nothing but a text: a docstring, or that of an attribute."""
    value = node.value if isinstance(node, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def _names(statement: Import, package: str) -> Iterator[str]:
    """Yield the absolute dotted names that a statement imports."""
    if isinstance(statement, ast.Import):
        yield from (each.name for each in statement.names)
        return
    above = package.split(".")[: len(package.split(".")) - statement.level + 1] if statement.level else []
    base = [*above, *([statement.module] if statement.module else [])]
    yield from (".".join([*base, each.name]) for each in statement.names)
