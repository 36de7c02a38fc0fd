"""The run folder: what it says about itself, and whether a run may go on in it."""

from __future__ import annotations

import json
import platform
import re
import subprocess
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..config.document import dump
from ..config.errors import ConfigError
from ..config.schema import Experiment
from . import store
from .identity import file_hashes, versions
from .plan import Plan

_HASH = re.compile("(sha256:)?[0-9a-f]{64}")


def open_folder(folder: Path, whole: Mapping[str, Any], resume: bool) -> None:
    """Check that a run with the identity ``whole`` may write into ``folder``.

    Raises:
        ConfigError: if the folder holds anything and ``resume`` is False, or holds another run.
    """
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file; give a folder with -o")
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    if not resume:
        raise ConfigError(f"{folder} is not empty; add --resume to go on with the run in it, or choose another -o")
    before = read_manifest(folder).get("identity", {})
    changes = list(_differences(before, json.loads(json.dumps(whole))))
    if changes:
        more = f" (and {len(changes) - 1} more)" if len(changes) > 1 else ""
        raise ConfigError(
            f"{folder} holds a run of another configuration: {changes[0]}{more}; "
            "resume with the configuration it was started with, or choose another -o"
        )
    store.remove_leftovers(folder)


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest of a run folder.

    Raises:
        ConfigError: if there is none.
    """
    try:
        manifest: dict[str, Any] = json.loads((folder / "manifest.json").read_bytes())
    except (OSError, ValueError):
        raise ConfigError(
            f"{folder} holds no readable manifest.json, so it is no run folder; choose another -o"
        ) from None
    return manifest


def write_run(folder: Path, plan: Plan, whole: Mapping[str, Any], **facts: Any) -> None:
    """Write ``config.yaml``, with axes ``cells.json``, and ``manifest.json``, to which ``facts`` are added as they are.

    The manifest is the only file of a run folder that knows the time of day.
    """
    experiment, axes = plan.base, plan.base.sweep.axes
    state = "Paths made absolute, cells.json has every default" if axes else "Every default written out"
    config = f"# {state}; running this file again gives the same results.\n"
    store.write_whole(folder / "config.yaml", (config + dump(plan.config)).encode())
    if axes:
        cells = [{"values": dict(cell.values), "config": cell.experiment.model_dump()} for cell in plan.cells]
        store.write_json(folder / "cells.json", cells, allow_nan=True)
    write_manifest(folder, whole, experiment.seeds, files=_files(experiment), **facts)


def write_manifest(
    folder: Path, whole: Mapping[str, Any], seeds: Any, packages: Mapping[str, str] | None = None, **facts: Any
) -> None:
    """Write ``manifest.json``: versions, the machine, the seeds, ``facts`` as they are, and the identity ``whole``.

    Args:
        folder: of the run.
        whole: what its results depend on.
        seeds: as the file gives them.
        packages: versions of others than every run uses.
        facts: how the run goes.
    """
    manifest = {
        **versions(),
        **(packages or {}),
        "platform": platform.platform(),
        "git": git_state(Path(__file__).resolve().parents[2]),
        "seeds": seeds,
        **facts,
        "identity": whole,
    }
    store.write_json(folder / "manifest.json", manifest, allow_nan=True)


def _files(experiment: Experiment) -> dict[str, dict[str, str]]:
    names = {"hardware.profile": experiment.hardware.profile, "workload.path": experiment.workload.path}
    hashes = file_hashes(experiment)
    return {path: {"name": str(names.get(path) or path), "sha256": digest} for path, digest in hashes.items()}


def now() -> str:
    """Return the time of day in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def git_state(folder: Path) -> dict[str, Any] | None:
    """Return commit and cleanness of the checkout whose root is ``folder``; None where there is none."""
    if not (folder / ".git").exists():
        return None
    try:
        commit = _git(folder, "rev-parse", "HEAD")
        return {"commit": commit, "clean": not _git(folder, "status", "--porcelain")}
    except (OSError, subprocess.SubprocessError):
        return None


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout.strip()


def _differences(before: Any, after: Any, path: str = "") -> Iterator[str]:
    """Yield each value in which two identities differ, in words."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in dict.fromkeys([*before, *after]):
            yield from _differences(before.get(key), after.get(key), f"{path}.{key}" if path else key)
    elif before != after:
        name = path.removeprefix("config.").replace("code.source", "specsched's own code")
        hashed = all(isinstance(value, str) and _HASH.fullmatch(value) for value in (before, after))
        yield f"{name} has changed" if hashed else f"{name} was {_short(before)} and is {_short(after)}"


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else text[:77] + ".."
