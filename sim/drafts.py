"""Draft models: who drafts, how confident they are, and what the target would accept."""

from __future__ import annotations

import inspect
import numbers
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from ..policies import Floats, Ints
from .acceptance import load_acceptance
from .draft_error import DraftError, check_fields, unknown
from .draft_model import DraftModel
from .hashing import key, uniforms, weyl, words
from .latent import Confidence, LatentDrafts
from .recorded import RecordedDrafts
from .user_drafts import UserDrafts, build_user_drafts

__all__ = [
    "ConstantDrafts",
    "DraftError",
    "DraftModel",
    "LatentDrafts",
    "RecordedDrafts",
    "UserDrafts",
    "checked",
    "make_draft_model",
]


# A stream of its own: the latent model has 1 to 3.
_CONSTANT = 4


class ConstantDrafts:
    """Every draft is accepted with the same probability, whatever the domain, independently along the text."""

    replays = False

    def __init__(self, acceptance: float, seed: int, gamma: int = 7, confidence: float | None = None) -> None:
        """Check the parameters.

        Args:
            acceptance: probability in [0, 1] that a draft is accepted, given that those before it were.
            seed: of the text.
            gamma: drafts in a block, at least 1.
            confidence: what the drafter says, in [0, 1]; None says ``acceptance``.

        Raises:
            DraftError: if a parameter is out of range.
        """
        self.acceptance = _probability("acceptance", acceptance)
        self.confidence = self.acceptance if confidence is None else _probability("confidence", confidence)
        if gamma < 1:
            raise DraftError(f"`gamma` must be at least 1, got {gamma}")
        self.gamma = gamma
        self._seed = seed

    def check(self, domains: Iterable[str]) -> None:
        """Accept every domain."""

    def blocks(self, request: int, domain: str, start: int, count: int) -> tuple[Floats, Ints]:
        """Return the ``count`` blocks from ``start`` on (see `DraftModel.blocks`)."""
        tokens = count + self.gamma - 1
        # A uniform for each text position, read at every depth that reaches it: difficulty belongs to the text (section
        # 5).
        u = uniforms(words(key(self._seed, _CONSTANT, request), weyl(np.arange(tokens)), start + 1))
        # The last column stays False, so that the first False is where a block that is accepted to its end ends.
        accepted = np.zeros((count, self.gamma + 1), np.bool_)
        np.less(np.lib.stride_tricks.sliding_window_view(u, self.gamma), self.acceptance, out=accepted[:, :-1])
        return np.full((count, self.gamma), self.confidence), accepted.argmin(axis=1)


def make_draft_model(spec: Mapping[str, Any], seed: int) -> DraftModel:
    """Return the draft model that a ``drafts`` mapping describes.

    Args:
        spec: ``kind`` and the parameters of that kind: ``constant`` (acceptance, confidence, gamma), ``latent``
            (profile, gamma, confidence, confidence_temperature), ``recorded`` (path) or ``python`` (``object``, a
            class as ``module:Class``, and that class's own).
        seed: of the text; arms that share it decode the same text.

    Raises:
        DraftError: for an unknown kind, parameter, drafter or file, a value out of range, or a class that cannot be
            imported or is no `DraftModel`.
    """
    fields = dict(spec)
    kind = fields.pop("kind", None)
    if kind == "python":
        return build_user_drafts(fields.pop("object", None), fields, seed)
    if kind not in _KINDS:
        raise unknown("draft model `kind`", kind, [*_KINDS, "python"])
    build = _KINDS[kind]
    check_fields(fields, inspect.signature(build).parameters, f"drafts of kind `{kind}`")
    return build(**fields, seed=seed)


def checked(model: DraftModel) -> DraftModel:
    """Return a model whose answers are checked: itself if it ships with the package, else held by `UserDrafts`.

    Raises:
        DraftError: if its attributes are not those of a draft model.
    """
    known = type(model) in (ConstantDrafts, LatentDrafts, RecordedDrafts, UserDrafts)
    return model if known else UserDrafts(model, type(model).__qualname__)


def _constant(acceptance: float, confidence: float | None = None, gamma: int | None = None, *, seed: int) -> DraftModel:
    return ConstantDrafts(acceptance, seed, 7 if gamma is None else _whole("gamma", gamma), confidence)


def _latent(
    profile: str,
    gamma: int | None = None,
    confidence: Confidence = "sts",
    confidence_temperature: float = 1.0,
    *,
    seed: int,
) -> DraftModel:
    length = None if gamma is None else _whole("gamma", gamma)
    temperature = _number("confidence_temperature", confidence_temperature)
    return LatentDrafts(load_acceptance(profile), seed, length, confidence, temperature)


def _recorded(path: str, *, seed: int) -> DraftModel:
    return RecordedDrafts(path)


_KINDS: dict[str, Callable[..., DraftModel]] = {"constant": _constant, "latent": _latent, "recorded": _recorded}


def _whole(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise DraftError(f"`{name}` must be a whole number, got {value!r}")
    return int(value)


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise DraftError(f"`{name}` must be a number, got {value!r}")
    return float(value)


def _probability(name: str, value: object) -> float:
    number = _number(name, value)
    if not 0.0 <= number <= 1.0:
        raise DraftError(f"`{name}` must be within [0, 1], got {number}")
    return number
