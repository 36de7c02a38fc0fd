"""Draft models that an outsider might write: a good one, and what goes wrong with others."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from specsched.sim import DraftError, DraftModel, text_uniforms


@dataclass(frozen=True)
class Fading(DraftModel):
    """Drafts get worse with depth, and the drafter says so."""

    seed: int
    first: float = 0.9
    fade: float = 0.1
    gamma: int = 4

    def blocks(self, request: int, domain: str, start: int, count: int) -> tuple[Any, Any]:
        odds = self.first - self.fade * np.arange(self.gamma)
        u = text_uniforms(self.seed, request, start + 1, count + self.gamma - 1)
        accepted = np.lib.stride_tricks.sliding_window_view(u, self.gamma) < odds
        return np.tile(odds, (count, 1)), accepted.cumprod(axis=1).sum(axis=1)


class Replaying(Fading):
    """Reads the trace's request ids."""

    replays = True


class OnlyChat(Fading):
    """Knows one domain."""

    def check(self, domains: Iterable[str]) -> None:
        for domain in domains:
            if domain != "chat":
                raise DraftError(f"no figures for `{domain}`; there are some for chat")


class Forgetful(Fading):
    """Leaves the promise of `blocks` to its parts: what subclasses change of a good answer."""

    def change(self, confidence: Any, outcomes: Any, request: int, start: int, count: int) -> Any:
        raise NotImplementedError

    def blocks(self, request: int, domain: str, start: int, count: int) -> tuple[Any, Any]:
        answer: tuple[Any, Any] = self.change(*super().blocks(request, domain, start, count), request, start, count)
        return answer


class Dicing(Forgetful):
    """Draws from an unseeded generator."""

    def change(self, confidence: Any, outcomes: Any, request: int, start: int, count: int) -> Any:
        return np.random.default_rng().random(confidence.shape), outcomes


class Global(Forgetful):
    """Seeds the global generator before each use: repeatable, and a trap for whoever else uses it."""

    def change(self, confidence: Any, outcomes: Any, request: int, start: int, count: int) -> Any:
        np.random.seed(self.seed + request)  # noqa: NPY002  (what the test is about)
        return confidence, outcomes


class Flat(Forgetful):
    """Gives one confidence a block."""

    def change(self, confidence: Any, outcomes: Any, request: int, start: int, count: int) -> Any:
        return confidence[:, 0], outcomes


class Short(Forgetful):
    """Forgets the last block of a long answer."""

    def change(self, confidence: Any, outcomes: Any, request: int, start: int, count: int) -> Any:
        return confidence, outcomes[:100]


class Single(Forgetful):
    """Gives float32."""

    def change(self, confidence: Any, outcomes: Any, request: int, start: int, count: int) -> Any:
        return confidence.astype(np.float32), outcomes


class Eager(Forgetful):
    """Is surer than sure at one place of the text."""

    def change(self, confidence: Any, outcomes: Any, request: int, start: int, count: int) -> Any:
        return np.where((np.arange(count) + start == 20)[:, None], 1.5, confidence), outcomes


class Unsure(Forgetful):
    """Divides nothing by nothing at one place of the text."""

    def change(self, confidence: Any, outcomes: Any, request: int, start: int, count: int) -> Any:
        return np.where((np.arange(count) + start == 20)[:, None], np.nan, confidence), outcomes


class Counting(Forgetful):
    """Counts the bonus token as an accepted draft."""

    def change(self, confidence: Any, outcomes: Any, request: int, start: int, count: int) -> Any:
        return confidence, outcomes + 1


class Halves(Forgetful):
    """Gives expected numbers of accepted drafts."""

    def change(self, confidence: Any, outcomes: Any, request: int, start: int, count: int) -> Any:
        return confidence, outcomes / 2


class Bare(Forgetful):
    """Forgets the confidences."""

    def change(self, confidence: Any, outcomes: Any, request: int, start: int, count: int) -> Any:
        return outcomes


class Remembering(Fading):
    """Draws the next numbers of one generator, so the order of calls decides."""

    def blocks(self, request: int, domain: str, start: int, count: int) -> tuple[Any, Any]:
        if not hasattr(self, "_rng"):
            object.__setattr__(self, "_rng", np.random.default_rng(self.seed))
        rng: np.random.Generator = self._rng  # type: ignore[attr-defined]
        return rng.random((count, self.gamma)), np.zeros(count, np.int64)


class FirstCall(Fading):
    """Keeps the first request it is asked for as a yardstick of all others."""

    def blocks(self, request: int, domain: str, start: int, count: int) -> tuple[Any, Any]:
        if not hasattr(self, "_first"):
            object.__setattr__(self, "_first", request)
        return super().blocks(request - self._first, domain, start, count)  # type: ignore[attr-defined]


class PerCall(Fading):
    """Seeds a generator for each call, so the cut of the calls decides."""

    def blocks(self, request: int, domain: str, start: int, count: int) -> tuple[Any, Any]:
        rng = np.random.default_rng([self.seed, request, start])
        return rng.random((count, self.gamma)), np.zeros(count, np.int64)


class Windowed(Fading):
    """Looks at the mean of what it is asked for at once."""

    def blocks(self, request: int, domain: str, start: int, count: int) -> tuple[Any, Any]:
        confidence, outcomes = super().blocks(request, domain, start, count)
        return confidence, np.minimum(outcomes, np.int64(round(outcomes.mean())))


class Reusing(Fading):
    """Fills the same arrays again."""

    def blocks(self, request: int, domain: str, start: int, count: int) -> tuple[Any, Any]:
        confidence, outcomes = super().blocks(request, domain, start, count)
        if not hasattr(self, "_store"):
            object.__setattr__(self, "_store", (np.zeros((512, self.gamma)), np.zeros(512, np.int64)))
        store: tuple[Any, Any] = self._store  # type: ignore[attr-defined]
        store[0][:count], store[1][:count] = confidence, outcomes
        return store[0][:count], store[1][:count]


class Seedless(Fading):
    """Takes a seed and does nothing with it."""

    def blocks(self, request: int, domain: str, start: int, count: int) -> tuple[Any, Any]:
        return Fading(0, gamma=self.gamma).blocks(request, domain, start, count)


class OneText(Fading):
    """Gives all requests the same text."""

    def blocks(self, request: int, domain: str, start: int, count: int) -> tuple[Any, Any]:
        return super().blocks(0, domain, start, count)


class Choking(Fading):
    """Fails at an unknown domain, and far in the text."""

    def check(self, domains: Iterable[str]) -> None:
        _ = [{"chat": 1}[domain] for domain in domains]

    def blocks(self, request: int, domain: str, start: int, count: int) -> tuple[Any, Any]:
        if start > 500:
            raise KeyError(start)
        return super().blocks(request, domain, start, count)


class NoBlocks(DraftModel):
    """Lacks the one thing that it is for."""

    def __init__(self, seed: int) -> None:
        self.gamma = 4


class NoSeed(DraftModel):
    """Cannot be told a seed."""

    gamma = 4

    def __init__(self, first: float = 0.5) -> None:
        self.first = first

    def blocks(self, request: int, domain: str, start: int, count: int) -> tuple[Any, Any]:
        return np.full((count, 4), self.first), np.zeros(count, np.int64)


class NoInit(DraftModel):
    """Takes nothing at all."""

    gamma = 4

    def blocks(self, request: int, domain: str, start: int, count: int) -> tuple[Any, Any]:
        return np.zeros((count, 4)), np.zeros(count, np.int64)


class Anything(Fading):
    """Takes whatever it is given."""

    def __init__(self, seed: int, **more: Any) -> None:
        super().__init__(seed, **{name: value for name, value in more.items() if name == "gamma"})


class NotDerived:
    """Has the right methods and says nothing of it."""

    gamma, replays = 4, False

    def __init__(self, seed: int = 0) -> None:
        self.inner = Fading(seed)

    def check(self, domains: Iterable[str]) -> None:
        """Accept every domain."""

    def blocks(self, request: int, domain: str, start: int, count: int) -> tuple[Any, Any]:
        return self.inner.blocks(request, domain, start, count)


numbers = itertools.count()
"""An object that is no class."""
