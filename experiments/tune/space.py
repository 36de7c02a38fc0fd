"""The search space of a study: from parameters to the experiment they make."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from ...policies.nearest import suggestion
from ..config.document import Document, KeyPath
from ..config.errors import ConfigError, known_errors
from ..config.metrics import no_metric
from ..config.overrides import check_path, overlap, replace
from ..config.resolve import experiment_of, read_document
from ..config.schema import Experiment
from ..config.schema_tune import AT_ANCHOR, MARGIN, MARGIN_BOUNDS, Constraint, Objective, Range, Tune
from ..sweep.plan import AXES, FIXED
from ..sweep.points import check_points

LOAD = "sweep.load"
SPACE: KeyPath = ("tune", "space")

Label = str | int | float | bool | None
Parameters = Mapping[str, Label]


@dataclass(frozen=True)
class Candidate:
    """One choice of parameters and the experiment it makes.

    Attributes:
        number: of its trial.
        parameters: label of each parameter, by key path.
        experiment: resolved, its seeds those of the file.
        margin: how far above an anchor it plans, as a fraction.
    """

    number: int
    parameters: Parameters
    experiment: Experiment
    margin: float = 0.0

    @property
    def name(self) -> str:
        """The candidate as messages name it."""
        return ", ".join(f"{key} {value}" for key, value in self.parameters.items())


@dataclass(frozen=True)
class Space:
    """An experiment file with a section ``tune``.

    Attributes:
        document: the file with its settings.
        base: the resolved experiment.
        tune: its section ``tune``.
        choices: values of each parameter that is a list, by key path and label: what Optuna and the tables see.
    """

    document: Document
    base: Experiment
    tune: Tune
    choices: Mapping[str, Mapping[Label, Any]]

    def default(self) -> Parameters | None:
        """Return the parameters that the file itself has; None if one of them is outside the space."""
        inside = all(self._holds(key, self._of_the_file(key)) for key in self.tune.space)
        return self.of_the_file() if inside else None

    def of_the_file(self) -> dict[str, Label]:
        """Return what the file itself has for each parameter, in the space or not, as tables show it."""
        values = {key: self._of_the_file(key) for key in self.tune.space}
        return {
            key: self._label(key, value) if self._holds(key, value) else label_of(value)
            for key, value in values.items()
        }

    def default_candidate(self) -> Candidate:
        """Return the file itself as a candidate."""
        return Candidate(-1, {}, self.base)

    def candidate(self, number: int, parameters: Parameters) -> Candidate:
        """Return the experiment that parameters make.

        Raises:
            ConfigError: if it is none; names the parameter.
        """
        changed = copy.deepcopy(self.document)
        for key, label in parameters.items():
            value = copy.deepcopy(self.choices[key][label]) if key in self.choices else label
            if key == LOAD and not isinstance(value, list):
                value = [value]
            if key != MARGIN:
                replace(changed, tuple(key.split(".")), value, _origin(self.document, key))
        margin = parameters.get(MARGIN, 0.0)
        return Candidate(number, dict(parameters), experiment_of(changed), float(margin or 0.0))

    def ends(self, key: str) -> list[Label]:
        """Return both ends of a range, or every choice."""
        dimension = self.tune.space[key]
        return [dimension.low, dimension.high] if isinstance(dimension, Range) else list(self.choices[key])

    def refusal(self, parameters: Parameters, arm: str | None = None) -> str | None:
        """Return why parameters make no experiment whose arm (by default the tuned one) can run; None if they do."""
        name = arm or self.tune.arm
        try:
            experiment = self.candidate(-1, parameters).experiment
            if name not in experiment.arms:
                return f"there is no arm {name} in it; the parameter must keep the arm that is tuned"
            check_points(experiment, [name])
        except OSError:
            raise  # a file that cannot be read now says nothing about the parameters
        except known_errors() as error:
            return str(error)
        return None

    def _of_the_file(self, key: str) -> Any:
        if key == MARGIN:
            return 0.0
        value: Any = self.base.model_dump()
        for part in key.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        single = key == LOAD and isinstance(value, list) and len(value) == 1
        return value[0] if single and not self._holds(key, value) else value

    def _holds(self, key: str, value: Any) -> bool:
        dimension = self.tune.space[key]
        if not isinstance(dimension, Range):
            return any(_same(value, choice) for choice in dimension)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        if dimension.whole and value != int(value):
            return False
        steps = (value - dimension.low) / dimension.step if dimension.step else 0.0
        return bool(dimension.low <= value <= dimension.high and abs(steps - round(steps)) < 1e-9)

    def _label(self, key: str, value: Any) -> Label:
        dimension = self.tune.space[key]
        if isinstance(dimension, Range):
            return int(value) if dimension.whole else float(value)
        return next(label for label, choice in self.choices[key].items() if _same(value, choice))


def load_space(path: Path, settings: Sequence[str] = (), trials: int | None = None) -> Space:
    """Read an experiment file with a section ``tune`` and check every end of its search space.

    Args:
        path: the file.
        settings: as for `load_experiment`.
        trials: replaces ``tune.trials``.

    Raises:
        ConfigError: for anything wrong in the file, the settings or the space, with its place.
    """
    document = read_document(path, settings)
    if trials is not None and isinstance(document.data.get("tune"), dict):
        replace(document, ("tune", "trials"), trials, "--trials")
    for given in document.origins:
        if given in (("seeds",), ("sweep", "repetitions")):
            raise document.error(given, "a study runs with tune.seeds.tuning and tune.seeds.testing; set these instead")
    base = experiment_of(document)
    if base.tune is None:
        raise ConfigError(f"{path}: there is no section `tune`, so there is nothing to tune; docs/tuning.md shows one")
    if base.sweep.axes:
        raise document.error(AXES, "a study varies what `tune.space` names; remove the axes, or use `specsched run`")
    _check_study(base, document)
    choices = {}
    _check_apart(base.tune.space, document)
    for key, dimension in base.tune.space.items():
        _check_key(key, document)
        if isinstance(dimension, list):
            choices[key] = _labels(key, dimension, document)
    space = Space(document, base, base.tune, choices)
    _check_ends(space)
    _check_metrics(space)
    return space


def _origin(document: Document, key: str) -> str:
    return f"{document.where((*SPACE, key))}: tune.space.{key}"


def _check_apart(space: Iterable[str], document: Document) -> None:
    """Refuse two parameters of which one is a part of the other."""
    found = overlap({key: tuple(key.split(".")) for key in space})
    if found is not None:
        raise ConfigError(f"{_origin(document, found[1])}: lies within {found[0]}, which is searched too; keep one")


def _check_key(key: str, document: Document) -> None:
    """Refuse a parameter that is no key of the file or that all candidates share."""
    path, origin = tuple(key.split(".")), _origin(document, key)
    if key == MARGIN:
        return
    if path[0] == "tune" or any(path[: len(fixed)] == fixed for fixed in FIXED):
        raise ConfigError(f"{origin}: is the same for the whole study; set it outside `tune.space`")
    check_path(path, None, document.data, origin)


def _labels(key: str, choices: Sequence[Any], document: Document) -> dict[Label, Any]:
    """Return the choices by what tables show of them: words, numbers, true, false and null, else JSON."""
    labels: dict[Label, Any] = {}
    for choice in choices:
        label = label_of(choice)
        if label in labels:
            raise document.error((*SPACE, key), f"{label} appears twice; keep one")
        labels[label] = choice
    return labels


def _check_ends(space: Space) -> None:
    """Build every choice and both ends of every range, the other keys as in the file or at an end of their own.

    Raises:
        ConfigError: for an end that fits neither the file nor any end of another parameter.
        TraceError, ProfileError, DraftError, PolicyError, SimulationError: what the file itself would fail with.
    """
    check_points(space.base, [space.tune.arm])
    ends = {key: space.ends(key) for key in space.tune.space if key != MARGIN}
    for key, values in ends.items():
        for value in values:
            alone = space.refusal({key: value})
            others = ({key: value, other: end} for other in ends if other != key for end in ends[other])
            if alone is not None and all(space.refusal(both) is not None for both in others):
                raise _misplaced(alone, key, value, space.document)


def _misplaced(reason: str, key: str, value: Label, document: Document) -> ConfigError:
    """Return the error of an end, at the place of its parameter."""
    origin = _origin(document, key)
    known = reason.startswith(origin)
    return ConfigError(reason if known else f"{origin}: {json.dumps(value)} is no value that {key} can have: {reason}")


def _check_study(base: Experiment, document: Document) -> None:
    """Refuse a study whose parts do not fit the rest of the file."""
    tune = base.tune
    if tune is None:
        return
    if tune.arm not in base.arms:
        raise document.error(("tune", "arm"), f"no arm is called {tune.arm!r}; {suggestion(tune.arm, base.arms)}")
    _check_loads(base, tune, document)
    found = tune.contradiction(single=LOAD in tune.space or len(base.sweep.load) == 1)
    if found is not None:
        raise document.error(("tune", *_parts(found[0])), found[1])
    if MARGIN in tune.space:
        _check_margin(base, tune, document)


def _check_loads(base: Experiment, tune: Tune, document: Document) -> None:
    """Every metric must be read at a load that is known."""
    anchored = any(objective.anchor is not None for objective in tune.objectives)
    one = LOAD in tune.space or len(base.sweep.load) == 1
    for where, reading in _readings(tune):
        if reading.load is not None and LOAD in tune.space:
            raise document.error((*where, "load"), "the load is searched, so every candidate has one; remove it")
        if reading.load is not None and reading.load not in base.sweep.load:
            listed = ", ".join(f"{load:g}" for load in base.sweep.load)
            raise document.error((*where, "load"), f"must be one of sweep.load {listed}, got {reading.load:g}")
        if reading.load is None and reading.metric != AT_ANCHOR and not (one or anchored):
            raise document.error(where, f"{reading.metric} has a value at every load; name one with `load`")


def _check_metrics(space: Space) -> None:
    """Every metric must be a column that has a value in the file's own experiment or at an end of the space."""
    ends = [{key: end} for key in space.tune.space if key != MARGIN for end in space.ends(key)]
    others = [space.candidate(-1, end).experiment for end in ends if space.refusal(end) is None]
    for where, reading in _readings(space.tune):
        reasons = [no_metric(reading.metric, each) for each in (space.base, *others) if reading.metric != AT_ANCHOR]
        if reasons and all(reasons):
            raise space.document.error(where, str(reasons[0]))


def _parts(dotted: str) -> KeyPath:
    return tuple(int(part) if part.isdigit() else part for part in dotted.split("."))


def _readings(tune: Tune) -> Iterator[tuple[KeyPath, Objective | Constraint]]:
    for kind, readings in (("objectives", tune.objectives), ("constraints", tune.constraints)):
        for index, reading in enumerate(cast("Sequence[Objective | Constraint]", readings)):
            yield ("tune", kind, index), reading


def _check_margin(base: Experiment, tune: Tune, document: Document) -> None:
    where, dimension = (*SPACE, MARGIN), tune.space[MARGIN]
    if not any(objective.anchor is not None for objective in tune.objectives):
        raise document.error(where, "plans above an anchor, so an objective must be throughput_at_anchor")
    if LOAD in tune.space or len(base.sweep.load) == 1:
        raise document.error(
            where,
            "chooses among the loads of a line; with a single or a searched load, give the objective a fixed `margin`",
        )
    ends = (dimension.low, dimension.high) if isinstance(dimension, Range) else tuple(dimension)
    for end in ends:
        low, high = MARGIN_BOUNDS
        if isinstance(end, bool) or not isinstance(end, int | float) or not low <= end <= high:
            raise document.error(where, f"a margin is a fraction within [{low:g}, {high:g}], got {end!r}")


def column_value(label: Label, labels: Iterable[Label]) -> Label:
    """Return a choice as its column of ``trials.parquet`` holds it: JSON where choices are of several types."""
    return label if len({type(each) for each in labels}) <= 1 else json.dumps(label)


def label_of(value: Any) -> Label:
    """Return what tables show of a choice: words, numbers, true, false and null as they are, else JSON."""
    plain = value is None or isinstance(value, str | int | float | bool)
    return value if plain else json.dumps(value)


def _same(value: Any, other: Any) -> bool:
    """Equality that tells true from 1."""
    return isinstance(value, bool) == isinstance(other, bool) and bool(value == other)
