"""From a YAML mapping to a policy object."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeGuard

from .interface import Policy, PolicyError
from .nearest import did_you_mean
from .objects import load_object

_FIRST = (
    *("autoregressive", "static", "threshold", "greedy_early_stop"),
    *("async_topk", "retrospective", "oracle", "oracle_rate"),
)
"""The order in which messages list the kinds. One that is not named here follows, by its name."""


def shipped() -> Iterator[type[Policy]]:
    """Yield the policies of this room: every class derived from `Policy` in a file of it, abstract ones left out.

    So a policy is one file here. Nothing else has to name it.
    """
    for found in pkgutil.iter_modules([str(Path(__file__).parent)]):
        if found.ispkg or found.name == Path(__file__).stem:
            continue
        module = importlib.import_module(f".{found.name}", __package__)
        yield from (cls for cls in vars(module).values() if _is_policy(cls) and cls.__module__ == module.__name__)


def _is_policy(value: object) -> TypeGuard[type[Policy]]:
    return inspect.isclass(value) and issubclass(value, Policy) and not inspect.isabstract(value)


def collect(classes: Iterable[type[Policy]]) -> dict[str, type[Policy]]:
    """Return the classes by ``kind``.

    Raises:
        PolicyError: if two classes share a kind, or one has none.
    """
    table: dict[str, type[Policy]] = {}
    for cls in classes:
        if not cls.kind:
            raise PolicyError(f"policy class `{cls.__name__}` has no `kind`; give it a name for YAML")
        if cls.kind in table:
            raise PolicyError(f"policy kind `{cls.kind}` is declared by {table[cls.kind].__name__} and {cls.__name__}")
        table[cls.kind] = cls
    return table


def _place(cls: type[Policy]) -> tuple[int, str]:
    return (_FIRST.index(cls.kind) if cls.kind in _FIRST else len(_FIRST), cls.kind)


POLICIES: dict[str, type[Policy]] = collect(sorted(shipped(), key=_place))
"""The project's schedulers by the ``kind`` that names them in YAML."""


def build_policy(spec: Mapping[str, Any], unsafe: bool = False) -> Policy:
    """Build a policy from its YAML mapping.

    Args:
        spec: ``{"kind": name, **parameters}`` or ``{"kind": "python", "object": "module:Class", **parameters}``.
        unsafe: accept a policy that is declared to change the output distribution.

    Raises:
        PolicyError: for an unknown kind or parameter, a value out of bounds, an object that cannot be imported or
            is no Policy, or an unsafe policy that was not asked for.
    """
    parameters = dict(spec)
    kind = parameters.pop("kind", None)
    if kind is None:
        raise PolicyError(f"a policy needs `kind`, one of {', '.join([*POLICIES, 'python'])}")
    cls = _load_object(parameters.pop("object", None)) if kind == "python" else _lookup(kind)
    policy = _construct(cls, parameters)
    if policy.safety == "unsafe" and not unsafe:
        raise PolicyError(
            f"policy `{policy.kind or cls.__name__}` changes the output distribution or knows the outcomes; "
            "set `unsafe: true` on its arm to run it as a bound"
        )
    return policy


def _lookup(kind: object) -> type[Policy]:
    """Return the class of a shipped kind."""
    if not isinstance(kind, str) or kind not in POLICIES:
        raise PolicyError(f"unknown policy kind {kind!r}{_nearest(str(kind), [*POLICIES, 'python'])}")
    return POLICIES[str(kind)]


def _nearest(name: str, choices: list[str]) -> str:
    """Return the end of a message: the nearest choice, then all of them."""
    hint = f"{did_you_mean(name, choices)} choices: {', '.join(choices) or 'none'}"
    return f"; {hint.strip()}"


def _load_object(path: object) -> type[Policy]:
    """Import ``module:Class``."""
    cls = load_object(path, "policy", PolicyError)
    if not (inspect.isclass(cls) and issubclass(cls, Policy)):
        raise PolicyError(f"'{path}' must be a class derived from specsched.policies.Policy, got {cls!r}")
    return cls


def _construct(cls: type[Policy], parameters: dict[str, Any]) -> Policy:
    """Call the class with its parameters, naming any that do not fit."""
    name = cls.kind or cls.__name__
    if dataclasses.is_dataclass(cls):
        fields = [field for field in dataclasses.fields(cls) if field.init]
        known = [field.name for field in fields]
        for key in parameters:
            if key not in known:
                raise PolicyError(f"policy `{name}` has no parameter `{key}`{_nearest(key, known)}")
        for field in fields:
            required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
            if required and field.name not in parameters:
                raise PolicyError(f"policy `{name}` needs parameter `{field.name}`")
    try:
        return cls(**parameters)
    except PolicyError:
        raise
    except (Exception, SystemExit) as error:
        raise PolicyError(
            f"policy `{name}` cannot be built from {parameters}: {type(error).__name__}: {error}"
        ) from error
