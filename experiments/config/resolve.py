"""From an experiment file and its overrides to an `Experiment` in which every default stands written out."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from ...policies.interface import PolicyError
from ...policies.nearest import suggestion
from ...policies.registry import POLICIES, build_policy
from ...sim.drafts import DraftError, UserDrafts, make_draft_model
from ...sim.profile import ProfileError, load_profile
from ...traces import LENGTH_TABLES, TraceError
from .document import Document, KeyPath
from .given import Given, document_of
from .hardware import profile_of
from .overrides import override, policy_keys, replace
from .problems import to_config_error
from .schema import Arm, ConstantDrafts, Drafts, Experiment, LatentDrafts, PythonDrafts, Sla, Workload
from .trace_formats import formats_of

GENERATED_REQUESTS = 2000
"""Requests of an open loop that has no trace file and does not say how many."""


def load_experiment(experiment: Given, settings: Sequence[str] = (), seed: int | None = None) -> Experiment:
    """Read an experiment, apply settings, and fill in every default.

    Args:
        experiment: a path, the name of a shipped experiment, or a mapping as YAML would give it.
        settings: as the command's ``--set``: ``a.b=value``, the value in YAML.
        seed: this seed instead of ``seeds``.

    Raises:
        ConfigError: for anything wrong in it, with its place: ``file:line: key.path``, or of a mapping the key path.
    """
    return experiment_of(read_document(experiment, settings, seed))


def read_document(experiment: Given, settings: Sequence[str] = (), seed: int | None = None) -> Document:
    """Return what is given as a document in which settings and the seed hold; arguments as `load_experiment`'s.

    Raises:
        ConfigError: if it is no YAML, or a setting does not fit.
    """
    document = override(document_of(experiment), settings)
    if seed is not None:
        replace(document, ("seeds",), [seed], "--seed")
    return document


def experiment_of(document: Document) -> Experiment:
    """Return the experiment that a document describes, every default filled in; paths of files in it become absolute.

    Raises:
        ConfigError: for anything wrong in it, with its place.
    """
    for key in _file_keys(document):
        replace_by_file(document, key)
    try:
        experiment = Experiment.model_validate(document.data)
    except ValidationError as error:
        raise to_config_error(error, document) from None
    return _fill(experiment, document)


def replace_by_file(document: Document, key: KeyPath) -> None:
    """Write the absolute path of the file that ``key`` names in its place.

    A path in the file is looked up beside the file and then in the working directory, one from the command line the
    other way round.

    Raises:
        ConfigError: if there is no such file; names every place tried.
    """
    value = _at(document.data, key)
    path = Path(value).expanduser()
    folders = [document.folder.resolve(), Path.cwd()]
    if document.where(key).startswith("--"):
        folders.reverse()
    tried = list(dict.fromkeys(place / path for place in folders))
    found = next((place for place in tried if place.is_file()), None)
    if found is None:
        raise document.error(key, f"there is no file {value!r}; tried {' and '.join(map(str, tried))}")
    _at(document.data, key[:-1])[key[-1]] = str(found.resolve())


def _file_keys(document: Document) -> Iterator[KeyPath]:
    """Yield the key paths whose values name files."""
    arms = document.data.get("arms")
    names = list(arms) if isinstance(arms, dict) else []
    keys: list[KeyPath] = [
        ("workload", "path"),
        ("drafts", "path"),
        *(("arms", name, "drafts", "path") for name in names),
    ]
    yield from (key for key in keys if isinstance(_at(document.data, key), str))
    profile = _at(document.data, ("hardware", "profile"))
    if isinstance(profile, str) and _looks_like_a_file(profile):
        yield ("hardware", "profile")


def is_file_key(key: KeyPath, value: Any) -> bool:
    """Return whether a value at a key path names a file."""
    named = key[-1] == "path" and key[0] in ("workload", "drafts", "arms") and isinstance(value, str)
    return named or (key == ("hardware", "profile") and isinstance(value, str) and _looks_like_a_file(value))


def _looks_like_a_file(profile: str) -> bool:
    return profile.endswith(".json") or "/" in profile or "\\" in profile


def _at(data: Any, path: KeyPath) -> Any:
    for part in path:
        inside = isinstance(data, dict) and part in data
        inside = inside or (isinstance(data, list) and isinstance(part, int) and part < len(data))
        data = data[part] if inside else None
    return data


def _fill(experiment: Experiment, document: Document) -> Experiment:
    """Return the experiment with the defaults that depend on other keys."""
    lengths = experiment.workload.lengths
    if isinstance(lengths, str) and lengths not in LENGTH_TABLES:
        hint = suggestion(lengths, LENGTH_TABLES)
        raise document.error(("workload", "lengths"), f"no length table is called {lengths!r}; {hint}")
    _check_format(experiment.workload, document)
    filled = {
        "arms": {name: _filled_arm(arm, name, document) for name, arm in experiment.arms.items()},
        "drafts": _filled_drafts(experiment.drafts, ("drafts",), document),
        "workload": _filled_workload(experiment.workload),
        "sla": _filled_sla(experiment, document),
        "seeds": repeated(experiment.seeds, experiment.sweep.repetitions),
        "sweep": experiment.sweep.model_copy(update={"repetitions": 1}),
    }
    return experiment.model_copy(update=filled)


def _check_format(workload: Workload, document: Document) -> None:
    """Refuse a trace format that there is not."""
    try:
        formats_of(workload.format)
    except TraceError as error:
        raise document.error(("workload", "format"), str(error)) from None


def repeated(seeds: Sequence[int], repetitions: int) -> list[int]:
    """Return each seed followed by the seeds of its further repetitions, which are derived from it."""
    return [_repetition(seed, number) for seed in seeds for number in range(repetitions)]


def _repetition(seed: int, number: int) -> int:
    if number == 0:
        return seed
    return int(np.random.SeedSequence([seed, number]).generate_state(1, np.uint64)[0] >> 1)


def _filled_arm(arm: Arm, name: str, document: Document) -> Arm:
    policy = _with_parameters(arm, name, document)
    drafts = _filled_drafts(arm.drafts, ("arms", name, "drafts"), document) if arm.drafts else None
    return arm.model_copy(update={"policy": policy, "drafts": drafts})


def _filled_drafts(drafts: Drafts, key: KeyPath, document: Document) -> Drafts:
    """Write out a drafter's own block length, what a constant one says, and the parameters of the user's own."""
    given = drafts.model_dump()
    try:
        model = make_draft_model(given, seed=0)
    except DraftError as error:
        guilty = _guilty(given, error) if isinstance(drafts, PythonDrafts) else None
        raise document.error(key if guilty is None else (*key, guilty), str(error)) from None
    if isinstance(model, UserDrafts):
        return PythonDrafts.model_validate(_with_fields(model.model, given, but=("seed",)))
    if isinstance(drafts, LatentDrafts):
        return drafts.model_copy(update={"gamma": model.gamma})
    if isinstance(drafts, ConstantDrafts) and drafts.confidence is None:
        return drafts.model_copy(update={"confidence": drafts.acceptance})
    return drafts


def _filled_sla(experiment: Experiment, document: Document) -> Sla:
    """Take the anchors of the profile where the file names none; check that it has the captured sizes asked for."""
    try:
        profile = load_profile(experiment.hardware.profile)
    except ProfileError as error:
        raise document.error(("hardware", "profile"), str(error)) from None
    try:
        profile_of(experiment)
    except ProfileError as error:
        raise document.error(("hardware", "captured_sizes"), str(error)) from None
    if experiment.sla.anchors is not None:
        return experiment.sla
    return experiment.sla.model_copy(update={"anchors": list(profile.sla_anchors)})


def _filled_workload(workload: Workload) -> Workload:
    """Write out what is generated without a trace file; with one, what the file replaces becomes null."""
    if workload.path is not None:
        filled: dict[str, Any] = {"lengths": None, "requests": None}
        if workload.mode == "open" and workload.arrivals is None:
            filled["arrivals"] = {"kind": "trace"}
    else:
        filled = {"lengths": workload.lengths or "azure-conversation", "domains": workload.domains or {"chat": 1.0}}
        if workload.mode == "open":
            filled["arrivals"] = workload.arrivals or {"kind": "poisson"}
            filled["requests"] = workload.requests or GENERATED_REQUESTS
    return Workload.model_validate(workload.model_dump() | _plain(filled))


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value.model_dump() if hasattr(value, "model_dump") else value for key, value in values.items()}


def _with_parameters(arm: Arm, name: str, document: Document) -> dict[str, Any]:
    """Return the arm's policy with every parameter written out.

    Raises:
        ConfigError: if the policy cannot be built; points at the parameter that the reason names.
    """
    where: KeyPath = ("arms", name, "policy")
    known = policy_keys(arm.policy) if arm.policy.get("kind") in POLICIES else None
    for key in arm.policy:
        if known is not None and key not in known:
            raise document.error((*where, key), f"unknown key; {suggestion(key, known)}")
    try:
        policy = build_policy(arm.policy, unsafe=arm.unsafe)
    except PolicyError as error:
        guilty = _guilty(arm.policy, error)
        raise document.error(where if guilty is None else (*where, guilty), str(error)) from None
    return _with_fields(policy, arm.policy)


def _guilty(given: dict[str, Any], error: Exception) -> str | None:
    """Return the key that a message names, or None."""
    return next((key for key in given if f"`{key}`" in str(error) and key != "kind"), None)


def _with_fields(built: object, given: dict[str, Any], but: Sequence[str] = ()) -> dict[str, Any]:
    """Return the YAML mapping that builds an object with no default left open, if it is a dataclass."""
    if not dataclasses.is_dataclass(built):
        return given
    spec: dict[str, Any] = {key: given[key] for key in ("kind", "object") if key in given}
    for item in dataclasses.fields(built):
        value = getattr(built, item.name)
        wanted = item.init and item.name not in given and item.name not in but
        if wanted and isinstance(value, str | int | float | tuple | None):
            spec[item.name] = list(value) if isinstance(value, tuple) else value
    return given | spec
