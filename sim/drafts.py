"""Draft models: who drafts, how confident they are, and what the target would accept."""

from __future__ import annotations

import inspect
import numbers
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import numpy as np

from ..policies import Floats, Ints
from .acceptance import load_acceptance
from .draft_error import DraftError, unknown
from .hashing import key, uniforms, weyl, words
from .latent import Confidence, LatentDrafts
from .recorded import RecordedDrafts

__all__ = ["ConstantDrafts", "DraftError", "DraftModel", "LatentDrafts", "RecordedDrafts", "make_draft_model"]


_CONSTANT = 4


class DraftModel(Protocol):
    """Produces the drafts of any request from any place in its output.

    Attributes:
        gamma: drafts in a block.
        replays: whether ``request`` means the trace's request id, and the same text each time; otherwise it is the
            number of the request in the run, and a text of its own.
    """

    gamma: int
    replays: bool

    def check(self, domains: Iterable[str]) -> None:
        """Raise DraftError if a domain is not known to the model."""
        ...

    def blocks(self, request: int, domain: str, start: int, count: int) -> tuple[Floats, Ints]:
        """Return ``count`` consecutive blocks, the first anchored at output index ``start`` (from 1).

        Depth ``j`` (from 1) of the block at ``start`` drafts text position ``start + j``. The answer is a pure
        function of (seed, request, text position, depth): neither the order of calls nor ``count`` matters.

        Returns:
            float64 ``[count, gamma]``, conditional confidences in [0, 1], and int64 ``[count]``, how many leading
            drafts the target would accept if it verified the whole block.
        """
        ...


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
        u = uniforms(words(key(self._seed, _CONSTANT, request), weyl(np.arange(tokens)), start + 1))
        accepted = np.zeros((count, self.gamma + 1), np.bool_)
        np.less(np.lib.stride_tricks.sliding_window_view(u, self.gamma), self.acceptance, out=accepted[:, :-1])
        return np.full((count, self.gamma), self.confidence), accepted.argmin(axis=1)


def make_draft_model(spec: Mapping[str, Any], seed: int) -> DraftModel:
    """Return the draft model that a ``drafts`` mapping describes.

    Args:
        spec: ``kind`` and the parameters of that kind: ``constant`` (acceptance, confidence, gamma), ``latent``
            (profile, gamma, confidence, confidence_temperature) or ``recorded`` (path).
        seed: of the text; arms that share it decode the same text.

    Raises:
        DraftError: for an unknown kind, parameter, drafter or file, or a value out of range.
    """
    fields = dict(spec)
    kind = fields.pop("kind", None)
    if kind not in _KINDS:
        raise unknown("draft model `kind`", kind, _KINDS)
    build = _KINDS[kind]
    accepted = inspect.signature(build).parameters
    for name in fields:
        if name not in accepted or name == "seed":
            raise unknown(f"parameter of drafts of kind `{kind}`:", name, [p for p in accepted if p != "seed"])
    for name, parameter in accepted.items():
        if name not in fields and name != "seed" and parameter.default is parameter.empty:
            raise DraftError(f"drafts of kind `{kind}` need `{name}`; add it")
    return build(**fields, seed=seed)


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
