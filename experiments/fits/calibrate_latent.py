"""Computes the parameters of the latent draft model from published figures. Nothing here reads Figure 5.

Order of the fit, each step with the earlier ones fixed (and the first two repeated once):

1. **Text memory and per-request spread**, from chains of EAGLE on Llama-3.1-8B: the spread gives the middle of the
   published range of coefficients of variation of the accepted length between requests, the memory gives the climb
   of conditional acceptance with depth that a level independent of depth leaves over.
2. **Difficulty of tokens and view of the confidence head**, from Figure 6 (Alpaca).
3. **Levels** m[domain, position], so that static chains reproduce the published conditional acceptance.
4. **STS**, fitted on held-out simulated texts of each drafter's domains.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...policies import Floats, Ints
from ...policies.calibration import ece, fit_sts
from ...sim.acceptance import CONFIDENCE_FILE, PUBLISHED_FILE, ConfidenceView, Text, parse_acceptance
from ...sim.hashing import key, normals, weyl, words
from ...sim.latent import LatentDrafts, request_offset, text_key, text_parts, text_steps
from .chain_walk import Rounds, block_table, conditional_acceptance, walk, walk_table
from .simplex import minimize

NOISE = 0.3
"""Noise of a confidence in logits: an assumption, since Figure 6 hardly tells it from the spread of difficulties."""

WINDOW = 8
"""Tokens over which the memory of the text reaches; shorter ones climb too little, longer ones no better."""

EASIEST = 12.0
"""Ease of the easiest tokens in logits, a probability of rejection of about 10^-6: an assumption of no consequence."""

CHAIN = "sharegpt"
"""The chain that fixes the memory: chat, as are the confidences of Figure 6."""

AFTER_STS_ECE = 0.01
"""Mean ECE of prefix survival at positions 1, 3, 5 and 7 after STS, as the paper states it."""

_SEED = 20_260_705
_OUTPUT = 256
_BINS = 20
_FIGURE_6_POSITIONS = (1, 3, 5, 7)


class Figures(NamedTuple):
    """The published figures a calibration may see.

    Attributes:
        acceptance: `PUBLISHED_FILE`.
        confidence: `CONFIDENCE_FILE`.
    """

    acceptance: Mapping[str, Any]
    confidence: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Sizes:
    """Simulated requests in each step of the fit, `_OUTPUT` tokens each."""

    text: int = 2000
    view: int = 1500
    level: int = 8000
    sts: int = 3000


class TextSample(NamedTuple):
    """Raw material of ``[N, output + gamma]`` tokens: standard uniforms' logits, normals, and offsets ``[N, 1]``."""

    logit_u: Floats
    fast: Floats
    slow: Floats
    offset: Floats


def load_figures() -> Figures:
    """Return the published figures that ship with the package; no other file is opened."""
    files = (json.loads(path.read_text(encoding="utf-8")) for path in (PUBLISHED_FILE, CONFIDENCE_FILE))
    return Figures(*files)


def calibrate(figures: Figures, sizes: Sizes = Sizes(), noise: float = NOISE) -> dict[str, Any]:
    """Return the content of ``sim/data/latent.json``; the same figures and sizes give the same numbers."""
    text, view = fit_text_and_view(figures, sizes, noise)
    fitted = {"text": dataclasses.asdict(text), "confidence": dataclasses.asdict(view)}
    targets = published_conditionals(figures)
    sample = sample_text(_SEED, sizes.level, WINDOW)
    profiles = {
        name: {
            "drafter": figures.acceptance["profiles"][name]["drafter"],
            "temperatures": [1.0] * len(next(iter(domains.values()))["conditional"]),
            "domains": {
                domain: {"level": _rounded(fit_level(text, sample, entry["conditional"])), **entry}
                for domain, entry in domains.items()
            },
        }
        for name, domains in targets.items()
    }
    for name, profile in profiles.items():
        profile["temperatures"] = fit_temperatures({**fitted, "profiles": {name: profile}}, name, sizes.sts)
    return {**fitted, "profiles": profiles}


def published_conditionals(figures: Figures) -> dict[str, dict[str, dict[str, Any]]]:
    """Return conditional acceptance and its source by drafter and domain.

    Three benchmarks and Alpaca join the domains of DSpark on Qwen3-4B: the benchmarks are Figure 2's curve of their
    kind with its logits shifted by one constant so that the accepted length is Table 1's; Alpaca is Figure 6's.
    """
    profiles = figures.acceptance["profiles"]
    targets = {name: dict(profile["domains"]) for name, profile in profiles.items()}
    benchmarks = dict(figures.acceptance["benchmarks"])
    source, owner = benchmarks.pop("source"), benchmarks.pop("profile")
    for name, fields in benchmarks.items():
        curve = shift_to_length(profiles[owner]["domains"][fields["shape"]]["conditional"], fields["accepted_length"])
        note = f"Figure 2 ({fields['shape']}), logits shifted to accepted length {fields['accepted_length']}; {source}"
        targets[owner][name] = {"conditional": _rounded(curve), "source": note}
    note = "Figure 6: prefix survival at positions 1, 3, 5 and 7, geometric in between"
    targets[owner]["alpaca"] = {"conditional": _rounded(alpaca_conditional(figures)), "source": note}
    return targets


def shift_to_length(conditional: Sequence[float], accepted_length: float) -> Floats:
    """Return the curve whose logits differ from ``conditional``'s by one constant and whose accepted length fits.

    The accepted length counts the bonus token: 1 + the sum of the prefix products.
    """
    logits = _logit(np.asarray(conditional))
    low, high = -5.0, 5.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        if 1.0 + float(np.cumprod(_sigmoid(logits + middle)).sum()) < accepted_length:
            low = middle
        else:
            high = middle
    return _sigmoid(logits + low)


def alpaca_conditional(figures: Figures) -> Floats:
    """Return conditional acceptance at positions 1 to 7 from Figure 6's histograms and reliability curves."""
    survival = {}
    for position, entry in figures.confidence["positions"].items():
        weight = np.asarray(entry["histogram_before"])
        survival[int(position)] = float((weight * np.asarray(entry["before"]["observed"])).sum() / weight.sum())
    first = survival[1]
    pairs = [np.sqrt(survival[k] / survival[k - 2]) for k in (3, 5, 7)]
    return np.array([first, *np.repeat(pairs, 2)])


def sample_text(seed: int, requests: int, window: int) -> TextSample:
    """Return the raw material of the texts of requests 0 to ``requests - 1``."""
    steps = text_steps(_OUTPUT + len(_FIGURE_6_POSITIONS) * 2, window)
    parts = [text_parts(text_key(seed, request), 2, steps, window) for request in range(requests)]
    offset = np.array([[request_offset(seed, request)] for request in range(requests)])
    logit_u, fast, slow = (np.stack(column) for column in zip(*parts, strict=True))
    return TextSample(logit_u, fast, slow, offset)


def ease_of(text: Text, sample: TextSample) -> Floats:
    """Return float64 ``[N, output + gamma]``: offset plus ease of every token from position 2 on."""
    return text.ease(sample.fast, sample.slow) + text.request_sd * sample.offset


def static_rounds(threshold: Floats, level: Floats) -> Rounds:
    """Decode with every draft verified; a token is accepted at depth j iff ``threshold[row, token] < level[j]``."""
    gamma = len(level)
    depth = np.arange(gamma)

    def accepted_at(row: Ints, start: Ints) -> Ints:
        accepted = np.zeros((len(row), gamma + 1), np.bool_)
        accepted[:, :-1] = threshold[row[:, None], start[:, None] - 1 + depth] < level
        first_rejected: Ints = accepted.argmin(axis=1)
        return first_rejected

    return walk(len(threshold), _OUTPUT, accepted_at)


def fit_level(
    text: Text, sample: TextSample, conditional: npt.ArrayLike, start: Floats | None = None, rounds: int = 10
) -> Floats:
    """Return the levels under which static chains reproduce a conditional acceptance.

    The conditional acceptance of a walk is estimated without the luck of the last draft: the mean over rounds of
    the product of the first j acceptance probabilities, divided by the same with j - 1.
    """
    target = _logit(np.asarray(conditional, np.float64))
    ease = ease_of(text, sample)
    threshold = sample.logit_u - ease
    level = target * 1.3 if start is None else start
    for _ in range(rounds):
        rows, begin, _ = static_rounds(threshold, level)
        q = _sigmoid(level + ease[rows[:, None], begin[:, None] - 1 + np.arange(len(level))])
        prefix = np.cumprod(q, axis=1).mean(axis=0)
        level = level + 1.3 * (target - _logit(prefix / np.concatenate(([1.0], prefix[:-1]))))
    return level


def fit_text_and_view(figures: Figures, sizes: Sizes, noise: float) -> tuple[Text, ConfidenceView]:
    """Fit steps 1 and 2: each round refits the chains, then Figure 6."""
    chains = sample_text(_SEED + 1, sizes.text, WINDOW)
    figure = Figure6(figures, sample_text(_SEED + 2, sizes.view, WINDOW), noise)
    text = Text(request_sd=0.5, spread=3.0, skew=2.0, easiest=EASIEST, memory=0.3, window=WINDOW)
    view = ConfidenceView(1.4, 0.15, noise)
    for _ in range(2):
        text = fit_chain(figures, chains, text)
        text, view = figure.fit(text, view)
    return text, view


def fit_chain(figures: Figures, sample: TextSample, text: Text) -> Text:
    """Return the text with the memory and the per-request spread of the published chains."""
    published = np.asarray(figures.acceptance["chains"]["conditional"][CHAIN])[:7]
    variation = float(np.mean(figures.acceptance["chains"]["request_cv"]))
    best, least = text, np.inf
    for memory in np.arange(0.0, 0.61, 0.05):
        candidate = dataclasses.replace(text, memory=round(float(memory), 2))
        candidate = dataclasses.replace(candidate, request_sd=_spread_for(candidate, sample, published, variation))
        chain = conditional_acceptance(flat_chain(candidate, sample, published).accepted, 7)
        error = float(np.mean((_logit(chain) - _logit(published)) ** 2))
        if error < least:
            best, least = candidate, error
    return best


def flat_chain(text: Text, sample: TextSample, published: Floats) -> Rounds:
    """Return a static chain with one level for all depths, the level that gives the published accepted length."""
    length = float(np.cumprod(published).sum())
    threshold = sample.logit_u - ease_of(text, sample)
    level = 0.0
    for _ in range(12):
        rounds = static_rounds(threshold, np.full(len(published), level))
        level += 1.2 * (length - float(rounds.accepted.mean())) / (1.0 + length)
    return rounds


def request_variation(rounds: Rounds) -> float:
    """Return the coefficient of variation between requests of the mean accepted length, bonus token included."""
    steps = np.bincount(rounds.row)
    mean = np.bincount(rounds.row, rounds.accepted) / steps + 1.0
    return float(mean.std() / mean.mean())


def _spread_for(text: Text, sample: TextSample, published: Floats, variation: float) -> float:
    """Return the per-request spread, to two digits, that gives a coefficient of variation."""
    low, high = 0.0, 1.5
    for _ in range(8):
        middle = 0.5 * (low + high)
        rounds = flat_chain(dataclasses.replace(text, request_sd=middle), sample, published)
        low, high = (middle, high) if request_variation(rounds) < variation else (low, middle)
    return round(0.5 * (low + high), 2)


class Figure6:
    """Fits the spread of difficulties and the view of the confidence head to Figure 6."""

    def __init__(self, figures: Figures, sample: TextSample, noise: float) -> None:
        self._entries = {int(k): entry for k, entry in figures.confidence["positions"].items()}
        self._target = alpaca_conditional(figures)
        self._sample = sample
        self._noise = noise
        shape = (*sample.fast[:, : _OUTPUT - 1].shape, len(self._target))
        counters = weyl(np.arange(np.prod(shape[1:])))
        self._normals = np.stack(
            [normals(words(key(_SEED + 3, row), counters)).reshape(shape[1:]) for row in range(shape[0])]
        )
        self._level: Floats | None = None

    def fit(self, text: Text, view: ConfidenceView) -> tuple[Text, ConfidenceView]:
        """Return the fit with the largest bias that STS still calibrates to `AFTER_STS_ECE`.

        A temperature can't move a confidence of 1/2, so whatever bias the raw confidences have remains. Figure 6
        has one (at position 1 a confidence of .58 means .50), the paper's ECE after STS bounds it.
        """
        best = None
        for bias in np.arange(0.0, 0.41, 0.05):
            text, view = self._fit_shape(text, dataclasses.replace(view, bias=round(float(bias), 2)))
            if best is not None and self.after_sts(text, view) > AFTER_STS_ECE:
                break
            best = text, view
        return best or (text, view)

    def _fit_shape(self, text: Text, view: ConfidenceView) -> tuple[Text, ConfidenceView]:
        def of(parameters: Floats) -> tuple[Text, ConfidenceView]:
            spread, skew, scale = (round(float(value), 3) for value in parameters)
            return dataclasses.replace(text, spread=spread, skew=skew), dataclasses.replace(view, scale=scale)

        def loss(parameters: Floats) -> float:
            return self.loss(*of(parameters)) if min(parameters) > 0.0 else np.inf

        found, _ = minimize(loss, (text.spread, text.skew, view.scale), (0.3, 0.3, 0.1), rounds=40)
        return of(found)

    def blocks(self, text: Text, view: ConfidenceView) -> tuple[Floats, Floats, Ints]:
        """Return logits of q and of raw confidences, ``[rounds, 7]``, and accepted drafts of a static walk."""
        rounds = 10 if self._level is None else 2
        self._level = fit_level(text, self._sample, self._target, self._level, rounds)
        ease = ease_of(text, self._sample)
        row, start, accepted = static_rounds(self._sample.logit_u - ease, self._level)
        q = self._level + ease[row[:, None], start[:, None] - 1 + np.arange(len(self._level))]
        return q, view.scale * q + view.bias + self._noise * self._normals[row, start - 1], accepted

    def loss(self, text: Text, view: ConfidenceView) -> float:
        """Return how far histogram, reliability and AUC are from Figure 6; position 1 counts double."""
        q, raw, _ = self.blocks(text, view)
        survives = np.multiply.accumulate(_sigmoid(q), axis=1)
        predicted = np.multiply.accumulate(_sigmoid(raw), axis=1)
        total = 0.0
        for k, entry in self._entries.items():
            gaps = figure6_distance(entry, predicted[:, k - 1], survives[:, k - 1])
            total += (2.0 if k == 1 else 1.0) * (gaps["histogram"] + gaps["reliability"] + gaps["auc"])
        return total

    def after_sts(self, text: Text, view: ConfidenceView) -> float:
        """Return the mean ECE of prefix survival after STS over Figure 6's positions."""
        _, raw, accepted = self.blocks(text, view)
        outcome = np.arange(raw.shape[1]) < accepted[:, None]
        calibrated = np.cumprod(fit_sts(_sigmoid(raw), outcome).apply(_sigmoid(raw)), axis=1)
        return float(np.mean([ece(calibrated[:, k - 1], outcome[:, k - 1]) for k in self._entries]))


def figure6_distance(entry: Mapping[str, Any], predicted: Floats, survives: Floats) -> dict[str, float]:
    """Return how far simulated prefix survivals are from one position of Figure 6.

    Args:
        entry: ``histogram_before`` and ``before`` of the position.
        predicted: ``[N]`` raw prefix survivals.
        survives: ``[N]`` their outcomes, or probabilities of them.

    Returns:
        ``histogram``: mean distance of the two distribution functions (Wasserstein-1); ``reliability``: mean gap of
        observed survival by bin, weighted by the published histogram; ``auc``: gap of the AUC of the binned data.
    """
    published = np.asarray(entry["histogram_before"])
    published = published / published.sum()
    observed = np.asarray(entry["before"]["observed"])
    index = np.minimum((predicted * _BINS).astype(np.int64), _BINS - 1)
    count = np.bincount(index, minlength=_BINS)
    mean = np.bincount(index, survives, _BINS) / np.maximum(count, 1)
    share = count / count.sum()
    return {
        "histogram": float(np.abs(np.cumsum(share - published)).sum() / _BINS),
        "reliability": float((published * np.abs(mean - observed)).sum()),
        "auc": abs(binned_auc(share, mean) - binned_auc(published, observed)),
    }


def binned_auc(share: Floats, observed: Floats) -> float:
    """Return the AUROC of binned predictions, lowest bin first, members of one bin counting as ties."""
    accepted, rejected = share * observed, share * (1.0 - observed)
    below = np.cumsum(rejected) - 0.5 * rejected
    return float((accepted * below).sum() / (accepted.sum() * rejected.sum()))


def fit_temperatures(latent: Mapping[str, Any], name: str, requests: int) -> list[float]:
    """Return one STS temperature a position, fitted on a drafter's domains in equal parts, on texts of their own."""
    profile = parse_acceptance(latent)[name]
    drafts = LatentDrafts(profile, seed=_SEED + 4, confidence="raw")
    confidence, accepted = [], []
    for domain in profile.domains:
        table = block_table(drafts, domain, requests // len(profile.domains), _OUTPUT)
        rounds = walk_table(table, drafts.gamma)
        confidence.append(table.confidence[rounds.row, rounds.start - 1])
        accepted.append(rounds.accepted)
    outcome = np.arange(drafts.gamma) < np.concatenate(accepted)[:, None]
    return _rounded(fit_sts(np.concatenate(confidence), outcome).temperatures)


def _rounded(values: Any) -> list[float]:
    return [round(float(value), 4) for value in values]


def _logit(probability: Floats) -> Floats:
    result: Floats = np.log(probability) - np.log1p(-probability)
    return result


def _sigmoid(logit: Floats) -> Floats:
    result: Floats = 1.0 / (1.0 + np.exp(-logit))
    return result
