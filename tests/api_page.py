"""What docs/api.md says of public names, and what Python knows of them."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import runpy
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = runpy.run_path(str(ROOT / "benchmarks" / "api_page.py"))


def spoken(thing: Any) -> str:
    """The arguments that Python knows of, without types and values."""
    names = []
    for each in inspect.signature(thing).parameters.values():
        stars = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "")
        names.append(f"{stars}{each.name}{'=' if each.default is not each.empty else ''}")
    return ", ".join(names)


def written(arguments: str) -> str:
    """The arguments of the page, without values and what they return."""
    tree = SCRIPT["ast"].parse(f"def f{arguments.partition(' -> ')[0]}: ...").body[0].args
    with_defaults = {id(each) for each in tree.args[len(tree.args) - len(tree.defaults) :]}
    with_defaults |= {id(each) for each, value in zip(tree.kwonlyargs, tree.kw_defaults, strict=True) if value}
    names = [each.arg + ("=" if id(each) in with_defaults else "") for each in (*tree.args, *tree.kwonlyargs)]
    return ", ".join([*names, *([f"**{tree.kwarg.arg}"] if tree.kwarg else [])])


def differences(path: str) -> dict[str, tuple[str | None, str]]:
    """Return for each name of a public path what the page says of its arguments, where Python says something else."""
    module = importlib.import_module(f"specsched.{path}")
    found = {}
    for name in SCRIPT["public_names"](path):
        thing, said = getattr(module, name), SCRIPT["parameters"](path, name)
        if said is not None and not (inspect.isclass(thing) and issubclass(thing, BaseException)):
            known = spoken(thing)
            if written(said) != known:
                found[name] = (said, known)
        elif inspect.isfunction(thing) or (dataclasses.is_dataclass(thing) and dataclasses.fields(thing)):
            found[name] = (said, spoken(thing))
    return found
