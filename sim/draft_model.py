"""What the simulator asks of a draft model, and what one of a user's own must keep."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Protocol

import numpy as np

from ..policies import Floats, Ints
from .hashing import key, uniforms, weyl, words


class DraftModel(Protocol):
    """Produces the drafts of any request from any place in its output.

    A model of your own is a class derived from this one, best a frozen dataclass with a field ``seed: int``. It needs
    ``gamma`` and `blocks`; the rest has defaults. The simulator builds it as ``cls(**parameters, seed=seed)``: the
    parameters are the keys beside ``kind: python`` and ``object`` in YAML, ``seed`` is that of the point. What
    `blocks` returns is checked at every call, and `specsched.sim.testing.DraftModelContract` tests a class for the
    rules that no single call can show:

    - **Pure.** The drafts at depth ``j`` of the block anchored at ``start`` are a function of the parameters and of
      (seed, request, text position ``start + j``, ``j``) alone, never of the calls before, of ``count`` or of a global
      random generator. Arms of one seed then decode the same text, however differently they cut it into blocks, and a
      run is the same for any number of workers, each of which builds a model of its own. Whether a draft is accepted
      should hang on the text position far more than on the depth, as in a real text. `text_uniforms` gives random
      numbers of this kind.
    - **Confidences come before their drafts.** A confidence may know the text up to the draft it belongs to, never
      the draft itself: not its token, so not whether it will be accepted, beyond the odds of that. A scheduler that
      is lossless for such confidences need not be for others, and the simulator cannot see the difference, since it
      has no tokens: an arm would be called safe and do better than it ever could. ``specsched check --own-token``
      tries a scheduler under confidences that break this rule.

    Attributes:
        gamma: drafts in a block, at least 1; never changes.
        replays: whether ``request`` means the trace's request id, and the same text each time; otherwise it is the
            number of the request in the run, and a text of its own.
    """

    gamma: int
    replays: bool = False

    def check(self, domains: Iterable[str]) -> None:
        """Raise DraftError if a domain is not known to the model. By default all are.

        Asked before a run, of every kind of text in its requests.
        """

    @abstractmethod
    def blocks(self, request: int, domain: str, start: int, count: int) -> tuple[Floats, Ints]:
        """Return ``count`` consecutive blocks, the first anchored at output index ``start`` (from 1).

        Depth ``j`` (from 1) of the block at ``start`` drafts text position ``start + j``. The answer is a pure
        function of (seed, request, text position, depth): neither the order of calls nor ``count`` matters.

        Args:
            request: number of the request in the run, from 0; where the model `replays`, its id in the trace.
            domain: what kind of text it is.
            start: output index of the first block's anchor.
            count: at least 1 and at most 512 in a run.

        Returns:
            float64 ``[count, gamma]``, conditional confidences in [0, 1], and whole numbers ``[count]`` (int64, or
            another integer type) within ``0..gamma``, how many leading drafts the target would accept if it verified
            the whole block.

        Raises:
            DraftError: where the model has no drafts for these arguments.
        """
        ...


_OWN = 0x6F776E
"""Keeps these streams apart from those of the models that ship with the package."""


def text_uniforms(seed: int, request: int, first: int, count: int, stream: int = 0) -> Floats:
    """Return float64 ``[count]``, a uniform in (0, 1) for each text position of a request from ``first`` on.

    Each is a function of (seed, stream, request, position) alone, whatever is asked for in one call.

    Args:
        seed: of the text.
        request: whose text.
        first: first text position.
        count: how many positions.
        stream: another number gives numbers that are independent of these, for a second use at the same positions.

    >>> a, b = text_uniforms(0, 7, 2, 5), text_uniforms(0, 7, 4, 1)
    >>> bool(a[2] == b[0])
    True
    """
    return uniforms(words(key(seed, _OWN, stream, request), weyl(np.arange(count)), first))
