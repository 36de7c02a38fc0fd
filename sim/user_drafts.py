"""Draft models that do not ship with the package: building them, and checking every answer they give."""

from __future__ import annotations

import inspect
import numbers
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

import numpy as np

from ..policies import Floats, Ints, describe, load_object
from .draft_error import DraftError, check_fields
from .draft_model import DraftModel


class UserDrafts:
    """A draft model held to what `DraftModel` promises: an answer that breaks it is an error that names the place.

    Attributes:
        model: the model itself.
        name: what messages call it.
        gamma, replays: as the model had them at first.
    """

    def __init__(self, model: DraftModel, name: str) -> None:
        """Check the model's attributes.

        Raises:
            DraftError: if one is missing or of the wrong kind.
        """
        self.model, self.name = model, name
        gamma, replays = getattr(model, "gamma", None), getattr(model, "replays", None)
        # True is a number to Python, and 7.0 would do until it is a shape.
        if isinstance(gamma, bool) or not isinstance(gamma, numbers.Integral) or gamma < 1:
            self._refuse("", "`gamma` must be a whole number of at least 1, the drafts in a block", gamma, "set it")
        if not isinstance(replays, bool):
            self._refuse("", "`replays` must be True or False", replays, "derive from specsched.sim.DraftModel")
        self.gamma, self.replays = int(gamma), replays

    def check(self, domains: Iterable[str]) -> None:
        """Ask the model whether it knows the domains; raises DraftError as it does, or if it fails."""
        names = tuple(domains)
        try:
            self.model.check(names)
        except (Exception, SystemExit) as error:
            raise self._failed(f"at domains {', '.join(names)}", error) from error

    def blocks(self, request: int, domain: str, start: int, count: int) -> tuple[Floats, Ints]:
        """Return the model's blocks (see `DraftModel.blocks`) as arrays that no later call can change.

        Raises:
            DraftError: if the model fails, or its answer has another form or a value out of range; names model,
                request, block, depth and value.
        """
        try:
            answer = self.model.blocks(request, domain, start, count)
        except (Exception, SystemExit) as error:
            where = f"at request {request} (domain {domain}), blocks {start} to {start + count - 1}"
            raise self._failed(where, error) from error
        self._check_form(answer, request, start, count)
        confidence, outcomes = answer
        # Written so that a NaN, which compares as False with everything, is refused.
        if not (confidence.min() >= 0.0 and confidence.max() <= 1.0):
            self._refuse_confidence(confidence, request, start)
        if not (outcomes.min() >= 0 and outcomes.max() <= self.gamma):
            block = int(np.flatnonzero((outcomes < 0) | (outcomes > self.gamma))[0])
            rule = f"the outcome must be within 0..{self.gamma}, how many leading drafts are accepted"
            self._refuse(_place(request, start + block), rule, outcomes[block], "count no further than `gamma`")
        # Copies: the model may fill the same arrays again.
        return np.array(confidence), outcomes.astype(np.int64)

    def _refuse_confidence(self, confidence: Floats, request: int, start: int) -> NoReturn:
        inside = (confidence >= 0.0) & (confidence <= 1.0)
        block, depth = (int(at) for at in np.argwhere(~inside)[0])
        where = f"{_place(request, start + block)}, depth {depth + 1}"
        value = confidence[block, depth]
        self._refuse(where, "the confidence must be within [0, 1]", value, "it is a probability; clip it")

    def _check_form(self, answer: Any, request: int, start: int, count: int) -> None:
        """Refuse an answer that is not float64 ``[count, gamma]`` and whole numbers ``[count]``."""
        where = f"request {request}, blocks {start} to {start + count - 1}"
        if type(answer) is not tuple or len(answer) != 2:
            self._refuse(where, "blocks must return (confidences, outcomes)", answer, "return both arrays in a tuple")
        confidence, outcomes = answer
        if not _is_array(confidence, "f", (count, self.gamma)) or confidence.dtype != np.float64:
            rule = f"confidences must be a float64 array of shape ({count}, {self.gamma}), a row for each block"
            self._refuse(where, rule, confidence, "return one value for each draft, .astype(np.float64)")
        if not _is_array(outcomes, "iu", (count,)):
            rule = f"outcomes must be an array of whole numbers of shape ({count},), one for each block"
            self._refuse(where, rule, outcomes, "return how many leading drafts are accepted, .astype(np.int64)")

    def _failed(self, where: str, error: BaseException) -> DraftError:
        what = str(error) if isinstance(error, DraftError) else describe(error)
        return DraftError(f"draft model `{self.name}` failed {where}: {what}")

    def _refuse(self, where: str, rule: str, value: Any, remedy: str) -> NoReturn:
        place = f", {where}" if where else ""
        raise DraftError(f"draft model `{self.name}`{place}: {rule}, got {_shown(value)}; {remedy}")


def build_user_drafts(path: object, fields: Mapping[str, Any], seed: int) -> UserDrafts:
    """Return the draft model of a class of the user's own.

    Args:
        path: ``module:Class``, derived from `DraftModel`.
        fields: parameters of the class but ``seed``.
        seed: of the text.

    Raises:
        DraftError: if the class cannot be imported, is none, does not take these parameters and a seed, or fails.
    """
    cls: Any = load_object(path, "draft model", DraftError)
    if not _is_model(cls):
        raise DraftError(f"'{path}' must be a class derived from specsched.sim.DraftModel, got {cls!r}")
    accepted = _parameters(cls)
    # A seed in the file would give every seed of the experiment the same text, and intervals of width 0.
    if "seed" in fields:
        raise DraftError(f"`seed` of drafts of `{path}` is that of each point of the experiment; set `seeds` instead")
    if "seed" not in accepted and not any(each.kind is each.VAR_KEYWORD for each in accepted.values()):
        raise DraftError(
            f"draft model `{path}` takes no `seed`; give it a parameter of this name (a dataclass: the field "
            "`seed: int`), on which its texts depend"
        )
    check_fields(fields, accepted, f"drafts of `{path}`")
    try:
        model = cls(**fields, seed=seed)
    except DraftError as error:
        raise DraftError(f"draft model `{path}`: {error}") from error
    except (Exception, SystemExit) as error:
        raise DraftError(f"draft model `{path}` cannot be built from {dict(fields)}: {describe(error)}") from error
    return UserDrafts(model, str(path))


def _is_model(found: Any) -> bool:
    return inspect.isclass(found) and DraftModel in found.__mro__ and found is not DraftModel


def _parameters(cls: Any) -> Mapping[str, inspect.Parameter]:
    """Return the parameters that building a class takes; those of a protocol's stand-in for ``__init__`` are none."""
    return {} if cls.__init__ is DraftModel.__init__ else inspect.signature(cls).parameters


def _place(request: int, block: int) -> str:
    return f"request {request}, block anchored at output token {block}"


def _is_array(value: Any, kinds: str, shape: tuple[int, ...]) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind in kinds and value.shape == shape


def _shown(value: Any) -> str:
    """Return a value as a message has it: a number as it is, an array by type and shape, long texts cut."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype} of shape {value.shape}"
    plain = value.item() if isinstance(value, np.generic) else value
    text = repr(plain)
    short = text if len(text) <= 60 else text[:57] + "..."
    return short if plain is None or isinstance(plain, bool | int | float) else f"{type(plain).__name__} {short}"
