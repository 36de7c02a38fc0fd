"""Write docs/api.md: every public name with its arguments and the first sentence of its docstring.

Run ``python benchmarks/api_page.py --write``, or ``--check`` to see whether the page is up to date (a test does). The
files are read and not imported: the page needs neither torch nor Triton.
"""

from __future__ import annotations

import argparse
import ast
import copy
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "api.md"
PATHS = ("experiments", "policies", "policies.testing", "sim", "sim.testing", "traces", "kernels.ops")
"""The public import paths, below ``specsched``."""

HEAD = """# Public names

What may be imported, and from where. These few paths are stable; every other module may move. Types are in the code
(`py.typed`); [shape.md](shape.md) tells how the rooms hang together. This page is made from the docstrings by
`python benchmarks/api_page.py --write`, and a test compares.
"""

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Found(NamedTuple):
    """A name's definition: the module it stands in, the statement, and the one after it."""

    module: str
    node: ast.stmt
    after: ast.stmt | None


@cache
def parsed(module: str) -> ast.Module:
    """Return a module's code, its name given below ``specsched``."""
    path = ROOT / module.replace(".", "/")
    return ast.parse((path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text(encoding="utf-8"))


def statements(module: str) -> list[ast.stmt]:
    """Return the statements of a module, what is imported for type checkers included."""
    return [each for node in parsed(module).body for each in (node.body if isinstance(node, ast.If) else [node])]


def find(module: str, name: str) -> Found | None:
    """Return where a name that a module has is defined; None if outside the project, or made when asked for."""
    body = statements(module)
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.ImportFrom) and node.level:
            for alias in node.names:
                if name == (alias.asname or alias.name):
                    return find(_absolute(module, node), alias.name)
        elif name in _bound(node):
            return Found(module, node, after)
    return None


def _absolute(module: str, node: ast.ImportFrom) -> str:
    is_package = (ROOT / module.replace(".", "/")).is_dir()
    parts = module.split(".")
    base = parts[: len(parts) + is_package - node.level]
    return ".".join([*base, *(node.module or "").split(".")]).strip(".")


def _bound(node: ast.stmt) -> list[str]:
    if isinstance(node, Function | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def public_names(path: str) -> list[str]:
    """Return ``__all__`` of a public path."""
    found = find(path, "__all__")
    return list(ast.literal_eval(found.node.value)) if found and isinstance(found.node, ast.Assign) else []


def parameters(path: str, name: str) -> str | None:
    """Return the arguments of a function or a class, ``(a, b=1) -> c``; None where there are none to give."""
    found = find(path, name)
    if found is None or not isinstance(found.node, Function | ast.ClassDef):
        return None
    if isinstance(found.node, Function):
        return _call(found.node)
    made = next((each for each in found.node.body if isinstance(each, Function) and each.name == "__init__"), None)
    if made is not None:
        return _call(made, method=True)
    fields = _fields(found.module, found.node).values()
    named = [text for text, keyword in fields if keyword]
    given = [*(text for text, keyword in fields if not keyword), *(["*", *named] if named else [])]
    return f"({', '.join(given)})" if given else None


def _call(node: Function, method: bool = False) -> str:
    arguments = copy.deepcopy(node.args)
    for each in ast.walk(arguments):
        if isinstance(each, ast.arg):
            each.annotation = None
    if method:
        del (arguments.posonlyargs or arguments.args)[0]
    given = f"({ast.unparse(arguments)})"
    return given if node.returns is None or node.name == "__init__" else f"{given} -> {ast.unparse(node.returns)}"


def _fields(module: str, node: ast.ClassDef) -> dict[str, tuple[str, bool]]:
    """Return the fields of a dataclass or a named tuple, those of its bases first, and whether they go by keyword."""
    fields: dict[str, tuple[str, bool]] = {}
    for base in (find(module, ast.unparse(each)) for each in node.bases):
        if base is not None and isinstance(base.node, ast.ClassDef):
            fields |= _fields(base.module, base.node)
    if _is_record(module, node):
        for each in node.body:
            if isinstance(each, ast.AnnAssign) and not ast.unparse(each.annotation).startswith("ClassVar"):
                fields |= _field(ast.unparse(each.target), each.value)
    return fields


def _is_record(module: str, node: ast.ClassDef) -> bool:
    """Whether a class is a dataclass or a named tuple; a decorator of the project's own may make it one."""
    marks = [ast.unparse(each) for each in node.decorator_list]
    made_by = [found.node for mark in marks if (found := find(module, mark)) is not None]
    marks += [ast.unparse(each) for made in made_by if isinstance(made, Function) for each in made.decorator_list]
    return any("dataclass" in mark for mark in marks) or any(ast.unparse(each) == "NamedTuple" for each in node.bases)


def _field(name: str, value: ast.expr | None) -> dict[str, tuple[str, bool]]:
    """Return a field as an argument, with its default; none if it is not one."""
    if not isinstance(value, ast.Call) or ast.unparse(value.func) not in ("field", "dataclasses.field"):
        return {name: (name if value is None else f"{name}={ast.unparse(value)}", False)}
    said = {each.arg: ast.unparse(each.value) for each in value.keywords}
    if said.get("init") == "False":
        return {}
    default = said.get("default", f"{said['default_factory']}()" if "default_factory" in said else None)
    return {name: (name if default is None else f"{name}={default}", said.get("kw_only") == "True")}


def told(found: Found | None) -> str:
    """Return the first sentence of a docstring, or of the text below a constant."""
    if found is None:
        return ""
    if isinstance(found.node, Function | ast.ClassDef):
        return first_sentence(ast.get_docstring(found.node))
    text = found.after.value if isinstance(found.after, ast.Expr) else None
    return first_sentence(text.value if isinstance(text, ast.Constant) and isinstance(text.value, str) else None)


def first_sentence(text: str | None) -> str:
    """Return the first sentence of a text, on one line."""
    whole = " ".join((text or "").split("\n\n")[0].split())
    return re.split(r"(?<=\.)(?<!Eq\.) ", whole, maxsplit=1)[0]


def rows(path: str) -> Iterator[tuple[str, str]]:
    """Yield each name of a public path with its arguments, and what it is; a class is followed by its methods."""
    for name in public_names(path):
        found = find(path, name)
        yield name + (parameters(path, name) or ""), told(found)
        if found is not None and isinstance(found.node, ast.ClassDef):
            yield from ((f"{name}.{method}", what) for method, what in _methods(found.node))


def _methods(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for method in node.body:
        if isinstance(method, Function) and not method.name.startswith(("_", "test_")):
            marks = [ast.unparse(each) for each in method.decorator_list]
            call = "" if "property" in marks else _call(method, method="staticmethod" not in marks)
            yield method.name + call, first_sentence(ast.get_docstring(method))


def section(path: str) -> str:
    """Return the part of the page about one public path."""
    lines = [f"\n## `specsched.{path}`\n", f"{_cell(first_sentence(ast.get_docstring(parsed(path))))}\n"]
    lines += ["| name | what it is |", "|---|---|"]
    lines += [f"| `{_cell(name)}` | {_cell(what)} |" for name, what in rows(path)]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("``", "`").replace("|", "\\|")


def page() -> str:
    """Return the whole page."""
    return HEAD + "".join(map(section, PATHS))


def main() -> None:
    """Write the page, or say whether it is up to date."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--write", action="store_true", help="write docs/api.md")
    parser.add_argument("--check", action="store_true", help="exit with 1 if docs/api.md is not up to date")
    options = parser.parse_args()
    if options.write:
        PAGE.write_text(page(), encoding="utf-8")
    elif not PAGE.is_file() or PAGE.read_text(encoding="utf-8") != page():
        sys.exit("docs/api.md is not up to date; run `python benchmarks/api_page.py --write`")


if __name__ == "__main__":
    main()
