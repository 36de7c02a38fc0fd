"""Whether what `output.effects` names occurs in a sweep, before anything is computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..config.document import Document, KeyPath
from ..config.metrics import no_metric
from ..config.schema import AgainstArm, Effect, Experiment


def check_effects(
    effects: Sequence[Effect],
    values: Mapping[str, Sequence[Any]],
    experiments: Sequence[Experiment],
    document: Document,
) -> None:
    """Check that what effects name, are compared with and are restricted to occurs.

    Args:
        effects: `output.effects`.
        values: the values of every axis, of ``load`` and of ``arm``.
        experiments: that of every combination of the axes.
        document: where they stand.

    Raises:
        ConfigError: with the place, the value and those there are.
    """
    for index, effect in enumerate(effects):
        place: KeyPath = ("output", "effects", index)
        _check_names(effect, values, place, document)
        reasons = [no_metric(effect.metric, experiment) for experiment in experiments]
        if all(reasons):
            raise document.error((*place, "metric"), str(reasons[0]))
        wanted: list[tuple[KeyPath, str, Any]] = [
            (("where", name), name, value) for name, chosen in effect.where.items() for value in chosen
        ]
        if not isinstance(effect.against, AgainstArm):
            wanted.append((("against",), effect.along, effect.against))
        for path, name, value in wanted:
            if value not in values[name]:
                known = ", ".join(f"{each:g}" if isinstance(each, float) else str(each) for each in values[name])
                raise document.error((*place, *path), f"{name} is never {value!r}; its values are {known}")
        by_arm = isinstance(effect.against, AgainstArm)
        column = "arm" if by_arm else effect.along
        other = effect.against.arm if isinstance(effect.against, AgainstArm) else effect.against
        if other not in effect.where.get(column, [other]):
            rule = f"leaves out {other!r}, which the others are compared with; name it too"
            raise document.error((*place, "where", column), rule)


def _check_names(effect: Effect, values: Mapping[str, Sequence[Any]], place: KeyPath, document: Document) -> None:
    """Check that the axes and arms that an effect names are there."""
    known = ", ".join(values)
    named: dict[KeyPath, str | None] = {(key,): getattr(effect, key) for key in ("along", "lines", "panels")}
    named |= {("where", name): name for name in effect.where}
    for key, name in named.items():
        if name is not None and name not in values:
            rule = f"must be one of {known}; got {name!r}. With other axes set other effects, or output.effects=[]"
            raise document.error((*place, *key), rule)
    arms: list[tuple[KeyPath, str]] = [(("arms", index), arm) for index, arm in enumerate(effect.arms or ())]
    if isinstance(effect.against, AgainstArm):
        arms.append((("against", "arm"), effect.against.arm))
    for path, arm in arms:
        if arm not in values["arm"]:
            raise document.error((*place, *path), f"no arm is called {arm!r}; there are {', '.join(values['arm'])}")
