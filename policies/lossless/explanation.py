"""What is said of a counterexample: the world, its paths, the laws and the reason, as data."""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass
from fractions import Fraction
from typing import Any

from .exact import Verdict
from .notation import letters, world_lines
from .paths import Path
from .worlds import World


@dataclass(frozen=True)
class LawLine:
    """One outcome: first tokens of a row (of all rows, in a joint law) and its probabilities."""

    outcome: tuple[str, ...]
    scheduler: Fraction
    target: Fraction

    @property
    def difference(self) -> Fraction:
        """How much too likely it is."""
        return self.scheduler - self.target


@dataclass(frozen=True)
class LawTable:
    """A law beside the target's.

    Attributes:
        rows: whose first tokens; several in a joint law.
        lines: its outcomes.
        total_variation: half the sum of the absolute differences.
    """

    rows: tuple[int, ...]
    lines: tuple[LawLine, ...]
    total_variation: Fraction


@dataclass(frozen=True)
class Hidden:
    """Paths that are not shown.

    Attributes:
        accused: those to the accused outcome; ``probability`` is their sum.
        others: those to other outcomes.
        counted: False if there are more of either than were counted.
    """

    accused: int
    probability: Fraction
    others: int
    counted: bool


@dataclass(frozen=True)
class Explanation:
    """A world and what a policy does in it.

    Attributes:
        policy, decoder: their names.
        world: the world.
        verdict: which law is wrong, if any.
        watched: rows whose first tokens are compared: the one whose law is wrong, or all.
        accused: the outcome with the largest excess.
        paths: ways through the world; those to the accused outcome come first.
        hidden: what was left out.
        laws: the law that is wrong; for a joint one, those of the single rows as well.
        reason: what goes wrong, in a sentence.
    """

    policy: str
    decoder: str
    world: World
    verdict: Verdict
    watched: tuple[int, ...]
    accused: LawLine
    paths: tuple[Path, ...]
    hidden: Hidden
    laws: tuple[LawTable, ...]
    reason: str

    @property
    def world_lines(self) -> tuple[str, ...]:
        """The world in words."""
        return tuple(world_lines(self.world))

    @property
    def accused_paths(self) -> tuple[Path, ...]:
        """The shown paths to the accused outcome."""
        return tuple(path for path in self.paths if tuple(map(letters, path.outcome)) == self.accused.outcome)

    def to_json(self) -> dict[str, Any]:
        """Return the whole as JSON data; probabilities are strings such as ``17/20``."""
        found: dict[str, Any] = plain(self)
        # Properties, which `plain` does not see since they are no fields.
        found["world_in_words"] = list(self.world_lines)
        for path, data in zip(self.paths, found["paths"], strict=True):
            data["probability"] = str(path.probability)
            data["outcome"] = list(map(letters, path.outcome))
        return found


def plain(value: Any) -> Any:
    """Return JSON data for dataclasses, tuples and fractions."""
    if isinstance(value, Fraction):
        # As text: JSON has no fractions, and a float would lose what makes the law exact.
        return str(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, tuple | list):
        return [plain(each) for each in value]
    return value
