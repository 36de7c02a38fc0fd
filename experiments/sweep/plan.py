"""The combinations of a sweep's axes, each an experiment of its own."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

from ..config.columns import METRICS, OTHERS
from ..config.document import Document, KeyPath
from ..config.errors import ConfigError, known_errors
from ..config.given import Given
from ..config.overrides import check_path, has, overlap, replace
from ..config.resolve import experiment_of, is_file_key, read_document, replace_by_file
from ..config.schema import Experiment, expanded_arms
from .effect_names import check_effects
from .identity import digest, identity
from .points import check_points

MOST_CELLS = 10_000

AXES: KeyPath = ("sweep", "axes")
EFFECTS: KeyPath = ("output", "effects")

FIXED = (("seeds",), ("output",), ("tune",), ("sweep", "axes"), ("sweep", "repetitions"))
"""What all cells of a sweep share, and no axis may set."""

Value = str | int | float | bool | None
Settings = Mapping[str, Any]
Case = tuple[Value, Settings]
Blame = Callable[[int, str], ConfigError]


@dataclass(frozen=True)
class Cell:
    """One combination of the axes' values.

    Attributes:
        values: what tables show of it, by axis; empty in an experiment without axes.
        experiment: the resolved experiment, without axes.
    """

    values: Mapping[str, Value]
    experiment: Experiment

    @property
    def name(self) -> str:
        """The combination as messages name it."""
        return ", ".join(f"{axis} {value}" for axis, value in self.values.items())


@dataclass(frozen=True)
class Plan:
    """An experiment file as it is run.

    Attributes:
        base: the resolved experiment with its axes.
        cells: every combination, the first axis varying slowest.
        config: what to run to get the same cells again: ``base``, or with axes the file as it was given (a default may
            depend on what an axis sets) with absolute paths.
        blame: from the number of a cell that cannot run, and the reason, to the error at the place of the axis.
    """

    base: Experiment
    cells: tuple[Cell, ...]
    config: Mapping[str, Any]
    blame: Blame | None = None


def load_plan(experiment: Given, settings: Sequence[str] = (), seed: int | None = None) -> Plan:
    """Read an experiment and every combination of its axes. Arguments as `load_experiment`'s.

    Raises:
        ConfigError: for anything wrong in the file, the settings or a combination, with its place.
    """
    document = read_document(experiment, settings, seed)
    base = experiment_of(document)
    axes = dict(_axes(document))
    _check_no_vain_setting(document, axes)
    count = prod(len(cases) for cases in axes.values())
    if count > MOST_CELLS:
        raise document.error(AXES, f"{count} combinations, at most {MOST_CELLS} are run; take values out")
    cells = tuple(_cells(document, axes)) if axes else (Cell({}, base),)
    check_effects(base.output.effects, _values(cells), [cell.experiment for cell in cells], document)
    if not axes:
        return Plan(base, cells, base.model_dump())
    chosen = list(_combinations(axes))
    blame = lambda number, reason: _misplaced(reason, document, chosen[number])  # noqa: E731
    return Plan(base, cells, document.data, blame)


def _check_no_vain_setting(document: Document, axes: Mapping[str, Sequence[Case]]) -> None:
    """Refuse a setting of the command line that every combination replaces."""
    for path in (path for path, origin in document.origins.items() if origin == "--set"):
        for axis, cases in axes.items():
            vain = [next(_replaced(path, document, settings), None) for _, settings in cases]
            if vain[0] is not None and None not in vain:
                what = "has no effect" if vain[0] == path else f"sets {'.'.join(map(str, vain[0]))} without effect"
                rule = f"{what}, since the axis {axis} sets it in every combination"
                raise document.error(path, f"{rule}; set sweep.axes.{axis} instead")


def _replaced(path: KeyPath, document: Document, settings: Settings) -> Iterator[KeyPath]:
    """Yield what a setting of the command line says that settings of an axis replace."""
    for key in (tuple(dotted.split(".")) for dotted in settings):
        if path[: len(key)] == key:
            yield path
        elif key[: len(path)] == path and has(document.data, key):
            yield key


def _values(cells: Sequence[Cell]) -> dict[str, list[Any]]:
    """Return every value of each axis, of the load and of the arm."""
    values: dict[str, list[Any]] = {
        axis: list(dict.fromkeys(cell.values[axis] for cell in cells)) for axis in cells[0].values
    }
    values["load"] = sorted({load for cell in cells for load in cell.experiment.sweep.load})
    values["arm"] = list(dict.fromkeys(arm for cell in cells for arm in expanded_arms(cell.experiment)))
    return values


def plan_identity(plan: Plan, identities: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what the results of a plan depend on, given the `identity` of each cell.

    Without axes it is that of the one cell; with them, the file as it stands and a hash of each combination.
    """
    if not plan.base.sweep.axes:
        return dict(identities[0])
    config = identity(plan.base)["config"]
    code = {name: value for known in identities for name, value in known["code"].items()}
    cells = {cell.name: digest(known["config"]) for cell, known in zip(plan.cells, identities, strict=True)}
    return {"config": config, "cells": cells, "code": code}


def _cells(document: Document, axes: Mapping[str, list[tuple[Value, Settings]]]) -> Iterator[Cell]:
    for chosen in _combinations(axes):
        try:
            experiment = _experiment(document, chosen)
        except ConfigError as error:
            raise _misplaced(str(error), document, chosen) from None
        yield Cell({axis: shown for axis, (shown, _) in chosen.items()}, experiment)


def _combinations(axes: Mapping[str, Sequence[Case]]) -> Iterator[dict[str, Case]]:
    for combination in product(*axes.values()):
        yield dict(zip(axes, combination, strict=True))


def _experiment(document: Document, chosen: Mapping[str, Case]) -> Experiment:
    """Return the experiment that cases of axes make of a file."""
    changed = copy.deepcopy(document)
    replace(changed, AXES, {}, document.where(AXES))
    if EFFECTS[0] in changed.data:
        replace(changed, EFFECTS, [], document.where(EFFECTS))
    for axis, (_, settings) in chosen.items():
        for dotted, value in settings.items():
            replace(changed, tuple(dotted.split(".")), copy.deepcopy(value), _origin(document, axis))
    return experiment_of(changed)


def _misplaced(reason: str, document: Document, chosen: Mapping[str, Case]) -> ConfigError:
    """Return the error of a combination, at the place of the axis without which it could run, if there is one."""
    for axis, case in chosen.items():
        origin = _origin(document, axis)
        alone = _refusal(document, {axis: case})
        others = _refusal(document, {name: other for name, other in chosen.items() if name != axis})
        if alone is not None and alone.startswith(origin):
            return ConfigError(alone)
        if alone is not None and others is None:
            return ConfigError(f"{origin}: {case[0]} does not fit the file: {alone}")
    name = ", ".join(f"{axis} {shown}" for axis, (shown, _) in chosen.items())
    return document.error(AXES, f"{name} do not go together: {reason}")


def _refusal(document: Document, chosen: Mapping[str, Case]) -> str | None:
    """Return why cases of axes make no experiment that can run; None if they do."""
    try:
        experiment = _experiment(document, chosen)
        check_points(experiment, expanded_arms(experiment))
    except known_errors() as error:
        return str(error)
    return None


def _origin(document: Document, axis: str) -> str:
    return f"{document.where((*AXES, axis))}: sweep.axes.{axis}"


def _axes(document: Document) -> Iterator[tuple[str, list[tuple[Value, Settings]]]]:
    """Yield each axis with what tables show and what is set, case by case; files it names become absolute paths."""
    sweep = document.data.get("sweep")
    axes = (sweep.get("axes") if isinstance(sweep, Mapping) else None) or {}
    _check_apart(axes, document)
    for axis, given in axes.items():
        if axis in (*METRICS, *OTHERS):
            raise document.error((*AXES, axis), "is the name of a column of points.parquet; rename the axis")
        cases = [{axis: value} for value in given] if isinstance(given, list) else list(given.values())
        for settings in cases:
            _check_settings(axis, settings, document)
        _find_files(axis, given, document)
        cases = [{axis: value} for value in given] if isinstance(given, list) else list(given.values())
        yield axis, list(zip(_shown(axis, given, document), cases, strict=True))


def _check_apart(axes: Mapping[str, Any], document: Document) -> None:
    """Refuse axes that set the same key, or a key and a part of it, and a case that does."""
    owners: dict[str, str] = {}
    for axis, given in axes.items():
        cases = [{axis: None}] if isinstance(given, list) else list(given.values())
        for settings in cases:
            found = overlap({key: tuple(key.split(".")) for key in settings})
            if found is not None:
                raise document.error((*AXES, axis), f"{found[1]} lies within {found[0]}, which it sets too; keep one")
        for dotted in dict.fromkeys(key for settings in cases for key in settings):
            if dotted in owners:
                raise document.error((*AXES, axis), f"{dotted} is set by {owners[dotted]} too; leave it to one axis")
            found = overlap({known: tuple(known.split(".")) for known in (*owners, dotted)})
            if found is not None:
                (other,) = set(found) - {dotted}
                rule = f"{dotted} overlaps {other} of the axis {owners[other]}; leave both to one axis"
                raise document.error((*AXES, axis), rule)
        owners |= {key: axis for settings in cases for key in settings}


def _check_settings(axis: str, settings: Settings, document: Document) -> None:
    origin = _origin(document, axis)
    for dotted, value in settings.items():
        path = tuple(dotted.split("."))
        if any(path[: len(fixed)] == fixed for fixed in FIXED):
            raise ConfigError(f"{origin}: {dotted} is the same for the whole sweep; set it outside `sweep.axes`")
        check_path(path, value, document.data, f"{origin}: {dotted}" if dotted != axis else origin)


def _find_files(axis: str, given: Any, document: Document) -> None:
    """Write absolute paths in the place of the files that an axis names."""
    if isinstance(given, list):
        places = [(axis, (*AXES, axis, index), value) for index, value in enumerate(given)]
    else:
        places = [
            (dotted, (*AXES, axis, label, dotted), value)
            for label, settings in given.items()
            for dotted, value in settings.items()
        ]
    for dotted, key, value in places:
        if is_file_key(tuple(dotted.split(".")), value):
            replace_by_file(document, key)


def _shown(axis: str, given: Any, document: Document) -> list[Value]:
    """Return what tables show of an axis' cases: numbers, words, true or false, else text."""
    if not isinstance(given, list):
        return list(given)
    plain = all(isinstance(value, bool) for value in given) or all(_is_number(value) for value in given)
    shown = given if plain else [value if isinstance(value, str) else json.dumps(value) for value in given]
    for index, value in enumerate(shown):
        if value in shown[:index]:
            raise document.error((*AXES, axis), f"{value} appears twice; keep one")
    return list(shown)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
