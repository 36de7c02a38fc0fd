"""The latent draft model: outcomes and confidences that match a published drafter, with difficulty in the text.

A draft of request i at text position t, drafted at depth j, is accepted with probability
``q[i, t, j] = sigmoid(m[domain, j] + offset of i + ease of t)`` and iff ``u[i, t] < q[i, t, j]``. Offset, ease and
``u`` are keyed by (seed, request, position) alone, so two policies, two block lengths, even two drafters meet the
same text; only the noise of a confidence is keyed by the depth too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal, NamedTuple

import numpy as np

from ..policies import Bools, Floats, Ints
from .acceptance import AcceptanceProfile, DomainAcceptance
from .draft_error import DraftError, unknown
from .hashing import Words, extend, key, logits, normal, normals, weyl, words

Confidence = Literal["sts", "raw"]

_TEXT, _REQUEST, _NOISE = 1, 2, 3
_DEPTHS = 256
"""Noise of (t, j) has counter ``t * _DEPTHS + j``."""


class TextParts(NamedTuple):
    """Raw material of a stretch of text: logits of ``u`` and the two standard normals of `Text.ease`, per token."""

    logit_u: Floats
    fast: Floats
    slow: Floats


class _Grid(NamedTuple):
    """Index arithmetic of ``count`` consecutive blocks, the same wherever they start."""

    place: Ints
    noise: Words
    text: Words
    accepted: Bools


class _Levels(NamedTuple):
    """What a domain adds at each depth: to the logit of ``q``, and to the logit of the confidence."""

    acceptance: Floats
    confidence: Floats


class LatentDrafts:
    """Drafts of a named drafter.

    Attributes:
        gamma: drafts in a block.
        profile: the drafter.
    """

    replays = False

    def __init__(
        self,
        profile: AcceptanceProfile,
        seed: int,
        gamma: int | None = None,
        confidence: Confidence = "sts",
        confidence_temperature: float = 1.0,
    ) -> None:
        """Prepare the tables of every domain.

        Args:
            profile: the drafter.
            seed: of the text; arms that share it decode the same text.
            gamma: drafts in a block, 1 to the profile's positions; None takes them all.
            confidence: ``raw`` as the confidence head gives it, ``sts`` after sequential temperature scaling.
            confidence_temperature: divides the logits of all confidences: under 1 they are too extreme, over 1 too
                timid, in the same order.

        Raises:
            DraftError: if a parameter is out of range.
        """
        self.profile = profile
        self.gamma = _gamma(profile, gamma)
        self._text = profile.text
        self._text_key, self._request_key, self._noise_key = (key(seed, stream) for stream in (_TEXT, _REQUEST, _NOISE))
        # A temperature divides the whole logit, so it goes into scale, noise and bias alike: the order of confidences
        # within a position stays.
        temperature = _temperatures(profile, confidence, confidence_temperature)[: self.gamma]
        self._scale = profile.view.scale / temperature
        self._noise = profile.view.noise / temperature
        self._bias = profile.view.bias / temperature
        self._levels = {name: self._level(domain) for name, domain in profile.domains.items()}
        self._grids: dict[int, _Grid] = {}

    def check(self, domains: Iterable[str]) -> None:
        """Raise DraftError for a domain the drafter has no figures for; the message lists those it has."""
        for domain in domains:
            if domain not in self._levels:
                raise self._unknown(domain)

    def blocks(self, request: int, domain: str, start: int, count: int) -> tuple[Floats, Ints]:
        """Return the ``count`` blocks that start at output index ``start`` and after.

        Returns:
            float64 ``[count, gamma]``, conditional confidences, and int64 ``[count]``, leading drafts that the
            target would accept.

        Raises:
            DraftError: for an unknown domain.
        """
        if domain not in self._levels:
            raise self._unknown(domain)
        levels = self._levels[domain]
        grid = self._grids.get(count) or self._grid(count)
        parts = text_parts(extend(self._text_key, request), start + 1, grid.text, self._text.window)
        ease = self._text.ease(parts.fast, parts.slow)
        ease += self._text.request_sd * normal(extend(self._request_key, request))
        # u < sigmoid(m + ease) iff logit(u) - ease < m: the left side belongs to the text alone.
        np.less((parts.logit_u - ease).take(grid.place), levels.acceptance, out=grid.accepted[:, :-1])
        # The one thing that depends on the depth beyond the level: two blocks see the same token differently.
        noise = normals(words(extend(self._noise_key, request), grid.noise, (start + 1) * _DEPTHS))
        noise *= self._noise
        # logit c = scale * (m + ease) + bias + noise, with scale * m + bias made once (`_level`). In place, since each
        # array holds up to 512 blocks and another one is another way through memory.
        confidence = ease.take(grid.place)
        confidence *= self._scale
        confidence += levels.confidence
        confidence += noise
        np.negative(confidence, out=confidence)
        np.exp(confidence, out=confidence)
        confidence += 1.0
        return np.reciprocal(confidence, out=confidence), grid.accepted.argmin(axis=1)

    def _unknown(self, domain: str) -> DraftError:
        return unknown(f"domain of drafter `{self.profile.name}`:", domain, self._levels)

    def _level(self, domain: DomainAcceptance) -> _Levels:
        acceptance = np.array(domain.level[: self.gamma])
        return _Levels(acceptance, acceptance * self._scale + self._bias)

    def _grid(self, count: int) -> _Grid:
        """Return the index arithmetic of ``count`` blocks; position and depth are counted from the first draft."""
        depth = np.arange(self.gamma)
        place = np.arange(count)[:, None] + depth
        accepted = np.zeros((count, self.gamma + 1), np.bool_)  # a last column that is never accepted ends every run
        grid = _Grid(
            place, weyl(place * _DEPTHS + depth + 1), text_steps(count + self.gamma - 1, self._text.window), accepted
        )
        # Nearly always a whole window; the ends of outputs make the other counts.
        self._grids[count] = grid
        return grid


def text_steps(tokens: int, window: int) -> Words:
    """Return the steps of `text_parts` for a stretch of ``tokens``."""
    return weyl(np.arange(tokens + window - 1))


def text_parts(stream: int, first: int, steps: Words, window: int) -> TextParts:
    """Return the raw material of a request's text from position ``first`` on, as far as ``steps`` (`text_steps`) reach.

    The slow part is a moving average of ``window`` normals, this token's and earlier ones', scaled to variance 1.

    Args:
        stream: `text_key` of the request.
        first: text position of the first token.
        steps: how far.
        window: of the moving average, a power of two.
    """
    word = words(stream, steps, first)
    slow = normals(word, 1)
    width = 1
    # By doubling: log2(window) additions instead of one for each neighbour.
    while width < window:
        slow = slow[width:] + slow[:-width]
        width *= 2
    slow *= 1.0 / math.sqrt(window)
    own = word[window - 1 :]
    return TextParts(logits(own), normals(own, 0), slow)


def text_key(seed: int, request: int) -> int:
    """Return the key of a request's text."""
    return key(seed, _TEXT, request)


def request_offset(seed: int, request: int) -> float:
    """Return the standard normal that, times `Text.request_sd`, a request adds to the logit of every acceptance."""
    return normal(key(seed, _REQUEST, request))


def _gamma(profile: AcceptanceProfile, gamma: int | None) -> int:
    if gamma is None:
        return profile.positions
    # Levels of deeper positions could only be extrapolated from the published ones.
    if not 1 <= gamma <= profile.positions:
        raise DraftError(
            f"`gamma` must be within 1..{profile.positions} for drafter `{profile.name}`, got {gamma}; there are no"
            " published figures for deeper positions"
        )
    return gamma


def _temperatures(profile: AcceptanceProfile, confidence: Confidence, extra: float) -> Floats:
    """Return what divides the logit of a raw confidence at each position."""
    if confidence not in ("sts", "raw"):
        raise unknown("`confidence`", confidence, ("sts", "raw"))
    if not 0.1 <= extra <= 10.0:
        raise DraftError(
            f"`confidence_temperature` must be within 0.1..10, got {extra}; 1 leaves confidences as they are"
        )
    # Sequential temperature scaling divides the logit at each position by a temperature of its own.
    fitted = profile.temperatures if confidence == "sts" else (1.0,) * profile.positions
    return np.array(fitted) * extra
