"""The contract of a draft model, as a test suite: subclass it in a test file of your own, and pytest runs it.

::

    from specsched.sim.testing import DraftModelContract

    class TestMine(DraftModelContract):
        def model(self, seed):
            return Mine(acceptance=0.7, seed=seed)

Every failure is an AssertionError that names what is wrong, where it was seen and what to do about it. Nothing here
needs pytest; calling the methods of an instance does as well.
"""

from __future__ import annotations

import copy
import pickle
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

import numpy as np

from ..policies import Floats, Ints
from .draft_error import DraftError
from .draft_model import DraftModel
from .user_drafts import UserDrafts

__all__ = ["DraftModelContract"]

Blocks = tuple[Floats, Ints]

WINDOW = 512
"""Blocks that the simulator asks for at once, at most."""

_PURE = "blocks must be a function of (seed, request, text position, depth) alone; `text_uniforms` gives such numbers"


class DraftModelContract:
    """What every draft model must keep (see `specsched.sim.DraftModel`).

    Attributes:
        model: called with ``seed=..``, returns a draft model: its class, or a method with that parameter.
        domains: kinds of text that the model knows; it is tested in each.
        requests: whose drafts are asked for. A model that replays names requests that it has.
        last: last block start that is asked for; a model that replays must have all from 1 to it.
        seed: of the texts.
        one_text: accept a model whose drafts are the same for every seed, or for every request.
    """

    model: Any = None
    domains: Sequence[str] = ("chat",)
    requests: Sequence[int] = (0, 1, 2, 1_000_000)
    last: int = 1200
    seed: int = 0
    one_text: bool = False

    def test_answers_can_be_used(self) -> None:
        """Confidences are float64 ``[count, gamma]`` in [0, 1], outcomes whole numbers ``[count]`` in 0..gamma.

        Asked for one block, a few, and as many as the simulator ever does, at the beginning of the text and far in it.
        """
        model = self._model()
        for request, domain in self._texts():
            for start, count in self._stretches():
                _ask(model, request, domain, start, count)

    def test_pure(self) -> None:
        """The same call gives the same answer: again, from a copy, and from another model of the same seed."""
        model = self._model()
        with _told("cannot be copied; keep it a frozen dataclass of plain values"):
            twin = copy.deepcopy(model)
        others = {"when asked again": model, "from a copy": twin, "from another model of the same seed": self._model()}
        for request, domain in self._texts():
            for start, count in self._stretches():
                first = _ask(model, request, domain, start, count)
                for when, other in others.items():
                    _same(first, _ask(other, request, domain, start, count), request, start, when)

    def test_count_does_not_matter(self) -> None:
        """A stretch of blocks is the same in one call, block by block, and cut at other places."""
        model, count = self._model(), min(WINDOW, self.last)
        for request, domain in self._texts():
            for start in {1, self.last - count + 1}:
                whole = _ask(model, request, domain, start, count)
                # Block by block, as a naive engine asks, a size that fits no window, and one that leaves a short rest.
                for size in (1, 7, 300):
                    calls = [(start + at, min(size, count - at)) for at in range(0, count, size)]
                    parts = [_ask(model, request, domain, *call) for call in calls]
                    joined = np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])
                    _same(whole, joined, request, start, f"between one call for {count} blocks and calls for {size}")

    def test_order_does_not_matter(self) -> None:
        """Blocks are the same whatever was asked before: other requests, other domains, later blocks."""
        calls = [(request, domain, *each) for request, domain in self._texts() for each in self._stretches()]
        model = self._model()
        answers = {call: _ask(model, *call) for call in calls}
        # Each in a fresh model: what an earlier order left behind must not help.
        for order in (calls[::-1], self._shuffled(calls)):
            other = self._model()
            for call in order:
                _same(answers[call], _ask(other, *call), call[0], call[2], "if calls come in another order")

    def test_global_state_stays(self) -> None:
        """The generators of ``random`` and ``numpy.random`` are neither used nor seeded."""
        model = self._model()
        random.random(), np.random.random()  # noqa: NPY002  (away from where a seed of the model's would lead)
        before = _dice()
        for request, domain in self._texts():
            _ask(model, request, domain, 1, min(8, self.last))
        if _dice() != before:
            _fail("the model uses or seeds a global random generator (`random` or `numpy.random`)", _PURE)

    def test_texts_differ(self) -> None:
        """Another seed and another request are another text, unless the model replays one or there is `one_text`."""
        if self.one_text or self._model().replays:
            return
        models = [self._model(self.seed + step) for step in range(3)]
        texts = [[_ask(each, *text, 1, min(200, self.last)) for text in self._texts()] for each in models]
        first, *others = texts
        if all(_equal(ours, theirs) for other in others for ours, theirs in zip(first, other, strict=True)):
            _fail("three seeds give the same drafts", "let them depend on `seed`, or set `one_text = True`")
        mine = first[: len(self.requests)]
        if len(mine) > 1 and all(_equal(mine[0], other) for other in mine[1:]):
            _fail("all requests have the same drafts", "let them depend on `request`, or set `one_text = True`")

    def test_domains_are_checked(self) -> None:
        """The domains of the test class are accepted; one that is not known is refused with a DraftError, or taken."""
        with _told("refuses a domain it is tested in (`domains` of the test class)"):
            self._raw().check(list(self.domains))
        with _told("fails at an unknown domain, where it should raise specsched.sim.DraftError"), suppress(DraftError):
            self._raw().check(["no such kind of text"])

    def _raw(self, seed: int | None = None) -> DraftModel:
        """Return the model itself."""
        if self.model is None:
            _fail(f"`model` of {type(self).__name__} is not set", "set it to a class, or a method that takes `seed`")
        with _told("cannot be built with `seed=..`"):
            made: DraftModel = self.model(seed=self.seed if seed is None else seed)
        return made

    def _model(self, seed: int | None = None) -> UserDrafts:
        """Return the model as the simulator has it: every answer is checked."""
        made = self._raw(seed)
        with _told("cannot be used"):
            return made if isinstance(made, UserDrafts) else UserDrafts(made, type(made).__qualname__)

    def _texts(self) -> list[tuple[int, str]]:
        return [(request, domain) for domain in self.domains for request in self.requests]

    def _stretches(self) -> list[tuple[int, int]]:
        """Return starts and counts of stretches that end by the last block."""
        wanted = [(1, 1), (1, 2), (2, 9), (17, WINDOW), (self.last // 2 + 1, 64), (self.last, 1)]
        return [(start, max(min(count, self.last + 1 - start), 1)) for start, count in wanted if start <= self.last]

    def _shuffled(self, calls: Sequence[Any]) -> list[Any]:
        return [calls[at] for at in np.random.default_rng(self.seed).permutation(len(calls))]


def _ask(model: DraftModel, request: int, domain: str, start: int, count: int) -> Blocks:
    with _told("gives an answer that cannot be used"):
        return model.blocks(request, domain, start, count)


def _same(ours: Blocks, theirs: Blocks, request: int, start: int, when: str) -> None:
    """Fail unless two answers are the same, naming the first block that is not."""
    for what, first, second in zip(("confidences", "outcomes"), ours, theirs, strict=True):
        differ = np.flatnonzero((first != second).reshape(len(first), -1).any(axis=1))
        if len(differ):
            block = int(differ[0])
            _fail(
                f"request {request}, block anchored at output token {start + block}: the {what} differ {when}: "
                f"{second[block]} and {first[block]}",
                _PURE,
            )


def _equal(ours: Blocks, theirs: Blocks) -> bool:
    return all(np.array_equal(first, second) for first, second in zip(ours, theirs, strict=True))


def _dice() -> tuple[Any, Any]:
    """Return the state of the global random generators, in a form that can be compared."""
    return random.getstate(), pickle.dumps(np.random.get_state())  # noqa: NPY002  (watched, not used)


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Turn any error into a failure that says what it means."""
    try:
        yield
    except AssertionError:
        raise
    except Exception as error:
        reason = str(error) if isinstance(error, DraftError) else f"{type(error).__name__}: {error}"
        raise AssertionError(f"the draft model {what}: {reason}") from error


def _fail(message: str, remedy: str) -> NoReturn:
    __tracebackhide__ = True  # pytest then points at the test
    raise AssertionError(f"{message}; {remedy}")
