"""Users' own objects, named as ``module:Name`` in YAML and on the command line."""

from __future__ import annotations

import importlib
from typing import Any

from .problems import describe


def load_object(path: object, what: str, error: type[ValueError], form: str = "module:Class") -> Any:
    """Import the object that ``path`` names.

    Args:
        path: ``module:Name``, as the user wrote it.
        what: what messages call it, such as "policy".
        error: what is raised.
        form: how messages say that a path is written.

    Raises:
        ValueError: as ``error``, for a path of another form, a module that cannot be imported, or a name that it
            lacks.
    """
    if not isinstance(path, str) or path.count(":") != 1 or not all(path.split(":")):
        raise error(f"`object` of a python {what} must be '{form}', got {path!r}")
    module_name, name = path.split(":")
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as failure:
        raise error(
            f"cannot import `{module_name}` of {what} object '{path}': {describe(failure)}{_remedy(failure)}"
        ) from failure
    found = getattr(module, name, None)
    if found is None:
        where = getattr(module, "__file__", None) or "built in"
        raise error(f"module `{module_name}` ({where}) has no `{name}` ({what} object '{path}')")
    return found


def _remedy(failure: BaseException) -> str:
    missing = isinstance(failure, ModuleNotFoundError)
    return "; run from the folder that holds it, or install it" if missing else ""
