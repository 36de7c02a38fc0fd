"""Named drafters: how often their drafts are accepted, by domain and position, and the text model they share."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..policies import Floats
from .draft_error import unknown

LATENT_FILE = Path(__file__).with_name("data") / "latent.json"
PUBLISHED_FILE = Path(__file__).with_name("data") / "published_acceptance.json"
CONFIDENCE_FILE = Path(__file__).with_name("data") / "published_confidence.json"


@dataclass(frozen=True, slots=True)
class Text:
    """Difficulty that belongs to the text, the same for every drafter.

    Attributes:
        request_sd: standard deviation of a request's offset, in logits.
        spread: slope of a token's difficulty at its median, in logits a standard deviation.
        skew: Tukey's g, positive: easy tokens are far easier than hard ones are hard.
        easiest: largest ease of a token, logits. Figure 6 says nothing beyond its top bin; without an end a tenth of
            the confidences would be 1 in float64.
        memory: share of the variance, before the skew, that neighbouring tokens have in common.
        window: tokens over which that part is a moving average, a power of two.
    """

    request_sd: float
    spread: float
    skew: float
    easiest: float
    memory: float
    window: int

    def ease(self, fast: Floats, slow: Floats) -> Floats:
        """Return what a token adds to the logit of its acceptance, from two standard normals."""
        # Tukey's g of a standard normal z = sqrt(1 - memory) fast + sqrt(memory) slow: (exp(g z) - 1) / g.
        result = fast * (self.skew * math.sqrt(1.0 - self.memory))
        result += slow * (self.skew * math.sqrt(self.memory))
        np.expm1(result, out=result)
        result *= self.spread / self.skew
        # One end only: the distribution has a long tail towards easy tokens, which expm1 lets grow without end.
        np.minimum(result, self.easiest, out=result)
        return result


@dataclass(frozen=True, slots=True)
class ConfidenceView:
    """How a confidence head sees the probability ``q``: logit c = scale * logit q + bias + noise * normal."""

    scale: float
    bias: float
    noise: float


@dataclass(frozen=True, slots=True)
class DomainAcceptance:
    """Acceptance of one drafter in one domain.

    Attributes:
        level: ``m[j]``, logits; position 1 first.
        conditional: the published P(j accepted | all before accepted) that ``level`` reproduces.
        source: where the published numbers come from.
    """

    level: tuple[float, ...]
    conditional: tuple[float, ...]
    source: str


@dataclass(frozen=True, slots=True)
class AcceptanceProfile:
    """A named drafter.

    Attributes:
        name: as in YAML.
        drafter: what it is and on which target.
        text: the text model.
        view: its confidences before STS.
        temperatures: STS, one a position.
        domains: acceptance by domain.
    """

    name: str
    drafter: str
    text: Text
    view: ConfidenceView
    temperatures: tuple[float, ...]
    domains: Mapping[str, DomainAcceptance]

    @property
    def positions(self) -> int:
        """The longest block there are figures for."""
        return len(self.temperatures)


def acceptance_names() -> list[str]:
    """Return the names of the shipped drafters, sorted."""
    return sorted(_shipped())


def load_acceptance(name: str) -> AcceptanceProfile:
    """Return a shipped drafter.

    Raises:
        DraftError: if there is none of this name; the message lists the names, the nearest first.
    """
    profiles = _shipped()
    if name not in profiles:
        raise unknown("drafter profile", name, profiles)
    return profiles[name]


def parse_acceptance(data: Mapping[str, Any]) -> dict[str, AcceptanceProfile]:
    """Return the drafters of a file like the shipped ``latent.json`` by name."""
    # One text for all of the file: two drafters that meet the same tokens find the same ones hard.
    text, view = Text(**data["text"]), ConfidenceView(**data["confidence"])
    return {name: _profile(name, fields, text, view) for name, fields in data["profiles"].items()}


@functools.cache
def _shipped() -> dict[str, AcceptanceProfile]:
    return parse_acceptance(json.loads(LATENT_FILE.read_text(encoding="utf-8")))


def _profile(name: str, fields: Mapping[str, Any], text: Text, view: ConfidenceView) -> AcceptanceProfile:
    domains = {
        domain: DomainAcceptance(tuple(entry["level"]), tuple(entry["conditional"]), entry["source"])
        for domain, entry in fields["domains"].items()
    }
    return AcceptanceProfile(name, fields["drafter"], text, view, tuple(fields["temperatures"]), domains)
