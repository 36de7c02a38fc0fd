"""Finding, reading and writing step-cost profiles."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

from ..policies import closest
from .analytic import ANALYTIC_PREFIX, analytic_profile
from .profile_schema import (
    ContextCost,
    DraftSamples,
    FlatProfileWarning,
    HostCost,
    Profile,
    ProfileError,
    VerifySamples,
    default_captured_sizes,
    parse_profile,
    profile_from_samples,
)

__all__ = [
    "ContextCost",
    "DraftSamples",
    "FlatProfileWarning",
    "HostCost",
    "Profile",
    "ProfileError",
    "VerifySamples",
    "default_captured_sizes",
    "dump_profile",
    "load_profile",
    "parse_profile",
    "profile_from_samples",
    "profile_names",
]

_SHIPPED = Path(__file__).with_name("profiles")
_WIDTH = 110


def profile_names() -> list[str]:
    """Return the names of the shipped profiles, sorted. Analytic ones (``analytic:h100:8b``) are made on demand."""
    return sorted(path.stem for path in _SHIPPED.glob("*.json"))


def load_profile(name_or_path: str | Path) -> Profile:
    """Return a profile by shipped name, by analytic name (``analytic:GPU:SIZE[:tpN][:DTYPE]``) or from a JSON file.

    Raises:
        ProfileError: if there is no such profile (the message lists the nearest names) or its file breaks a rule.
    """
    name = str(name_or_path)
    if name.startswith(ANALYTIC_PREFIX):
        return analytic_profile(name)
    path = Path(name_or_path)
    # A bare word is a shipped name even where a file of that name lies about; what looks like a path is one.
    if not (path.suffix == ".json" or len(path.parts) > 1):
        path = _SHIPPED / f"{name}.json"
        if not path.is_file():
            raise ProfileError(_unknown(name))
    try:
        text = path.read_bytes()
    except OSError as error:
        reason = error.strerror or "cannot be read"
        raise ProfileError(f"profile file `{path}`: {reason}; give a shipped name or a readable file") from None
    return parse_profile(text, f"profile file `{path}`")


def dump_profile(profile: Profile) -> str:
    """Return the profile as JSON text, the same text for equal profiles; `parse_profile` reads it back."""
    data = profile.model_dump(mode="json")
    # Left out where absent: the committed files read as they were written.
    for name in ("rows", "context", "extrapolated_from"):
        if data["verify"][name] is None:
            del data["verify"][name]
    return _pretty(data, 0) + "\n"


def _unknown(name: str) -> str:
    names = profile_names()
    near = closest(name, names, most=3, cutoff=0.4)
    choices = f"the nearest are {', '.join(near)}" if near else f"shipped are {', '.join(names)}"
    return f"no profile named `{name}`; {choices}; or give a .json file, or a roofline such as {ANALYTIC_PREFIX}h100:8b"


def _pretty(value: Any, depth: int) -> str:
    pad = "  " * (depth + 1)
    if isinstance(value, dict) and value:
        fields = (f"{pad}{json.dumps(key)}: {_pretty(item, depth + 1)}" for key, item in value.items())
        return "{\n" + ",\n".join(fields) + "\n" + "  " * depth + "}"
    if isinstance(value, list) and value and isinstance(value[0], str):
        return "[\n" + ",\n".join(pad + json.dumps(item) for item in value) + "\n" + "  " * depth + "]"
    # Numbers run on, one after the other, or the samples would hide the rest of the file.
    text = json.dumps(value)
    if isinstance(value, list) and len(text) > _WIDTH - 30:
        body = textwrap.fill(text[1:-1], _WIDTH, initial_indent=pad, subsequent_indent=pad)
        return "[\n" + body + "\n" + "  " * depth + "]"
    return text
