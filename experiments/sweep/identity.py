"""What a result depends on, as plain data: the same identity gives the same bytes."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import platform
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy
import polars

from ...policies.registry import POLICIES
from ...sim.profile import Profile, dump_profile, load_profile
from ..config.errors import ConfigError
from ..config.schema import Drafts, Experiment, PythonDrafts, PythonFormat, RecordedDrafts, expanded_arms
from .source import shipped_hash, source_hash, user_hash


def identity(experiment: Experiment) -> dict[str, Any]:
    """Return the configuration with every file replaced by the hash of its content, and the code that runs it.

    What is only drawn or compared afterwards is left out: no point depends on it.
    """
    config = experiment.model_dump()
    config["output"] = {"records": config["output"]["records"]}
    for path, digest in file_hashes(experiment).items():
        _set(config, path, f"sha256:{digest}")
    return {"config": config, "code": {**versions(), "source": source_hash(), **_listed_code(experiment)}}


def point_key(whole: Mapping[str, Any], experiment: Experiment, arm: str, load: float, seed: int) -> str:
    """Return the hash of everything that one point's metrics and records depend on."""
    config = whole["config"]
    chosen = expanded_arms(experiment)[arm].model_dump()
    base = config["arms"].get(arm) or config["arms"][arm.rpartition("-")[0]]
    chosen["drafts"] = base["drafts"] or config["drafts"]
    kept = {name: config[name] for name in ("workload", "hardware", "prefill", "sla")}
    point = {**kept, "name": arm, "arm": chosen, "load": load, "seed": seed, "records": config["output"]["records"]}
    return digest({**point, "regret": experiment.with_oracle, "code": whole["code"]})[:32]


def digest(data: Any) -> str:
    """Return the SHA-256 of ``data`` as JSON with sorted keys."""
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def file_hashes(experiment: Experiment) -> dict[str, str]:
    """Return the SHA-256 of each file the experiment reads, by key path; the profile's is that of its content."""
    hashes = {"hardware.profile": profile_hash(load_profile(experiment.hardware.profile))}
    for path, file in _files(experiment):
        hashes[path] = hashlib.sha256(Path(file).read_bytes()).hexdigest()
    return hashes


def profile_hash(profile: Profile) -> str:
    """Return the SHA-256 of a profile's content, however its file writes it."""
    return hashlib.sha256(dump_profile(profile).encode()).hexdigest()


def _files(experiment: Experiment) -> Iterator[tuple[str, str]]:
    if experiment.workload.path is not None:
        yield "workload.path", experiment.workload.path
    for key, drafts in _drafts(experiment):
        if isinstance(drafts, RecordedDrafts):
            yield f"{key}.path", drafts.path
        if isinstance(drafts, PythonDrafts) and isinstance(drafts.parameters.get("path"), str):
            yield f"{key}.path", drafts.parameters["path"]


def _drafts(experiment: Experiment) -> Iterator[tuple[str, Drafts]]:
    """Yield the drafters and their key paths."""
    yield "drafts", experiment.drafts
    for name, arm in experiment.arms.items():
        if arm.drafts is not None:
            yield f"arms.{name}.drafts", arm.drafts


def _set(data: dict[str, Any], path: str, value: str) -> None:
    *parents, last = path.split(".")
    for part in parents:
        data = data[part]
    data[last] = value


def versions() -> dict[str, str]:
    """Return the versions of what computes the results."""
    return {
        "specsched": version("specsched"),
        "python": platform.python_version(),
        "numpy": numpy.__version__,
        "polars": polars.__version__,
    }


def _listed_code(experiment: Experiment) -> dict[str, str]:
    """Return the hashes of files that no import statement names: the user's, and policies found by the registry."""
    hashes = {}
    for what, path in _user_objects(experiment):
        module = path.partition(":")[0]
        hashes[module] = user_hash(Path(_origin(module, what)))
    for arm in experiment.arms.values():
        if arm.policy["kind"] != "python":
            module = POLICIES[arm.policy["kind"]].__module__
            listed = shipped_hash(module)
            hashes |= {} if listed is None else {module: listed}
    return hashes


def _user_objects(experiment: Experiment) -> Iterator[tuple[str, str]]:
    """Yield what each object of the user's is, and its ``module:Name``."""
    for arm in experiment.arms.values():
        if arm.policy["kind"] == "python":
            yield "policy", str(arm.policy["object"])
    for _, drafts in _drafts(experiment):
        if isinstance(drafts, PythonDrafts):
            yield "draft model", drafts.object
    if isinstance(experiment.workload.format, PythonFormat):
        yield "trace format", experiment.workload.format.object


def _origin(module: str, what: str = "policy") -> str:
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        thing = "object" if what == "trace format" else "class"
        raise ConfigError(f"{what} module {module} has no source file; put the {thing} in a file of its own")
    return spec.origin
