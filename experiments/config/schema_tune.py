"""What the section ``tune`` of an experiment file may say. ``docs/tuning.md`` explains each key."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from ...sim.metrics import INTERACTIVITY
from .columns import SHARES
from .section import Count, Positive, Section, Seed, misfit, without_repeats

AT_ANCHOR = "throughput_at_anchor"
"""The objective that is read off the line through the loads; every other is a column of ``points.parquet``."""

MARGIN = "tune.margin"
"""The parameter that is no key of the file: how far above an anchor a candidate plans."""

MARGIN_BOUNDS = (0.0, 1.0)
Margin = Annotated[float, Field(ge=MARGIN_BOUNDS[0], le=MARGIN_BOUNDS[1])]


class Range(Section):
    """A parameter between two numbers, both included; whole numbers if ``low``, ``high`` and ``step`` are."""

    low: Any
    high: Any
    step: Any = None
    log: bool = False

    @model_validator(mode="after")
    def _ordered(self) -> Range:
        given = {"low": self.low, "high": self.high, **({} if self.step is None else {"step": self.step})}
        for key, value in given.items():
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise misfit(key, f"must be a finite number, got {value!r}")
        if not self.low < self.high:
            raise misfit("high", f"must be greater than low {self.low:g}, got {self.high:g}")
        if self.step is not None and not 0 < self.step <= self.high - self.low:
            raise misfit("step", f"must be above 0 and at most high - low {self.high - self.low:g}, got {self.step:g}")
        steps = (self.high - self.low) / self.step if self.step is not None else 0.0
        if abs(steps - round(steps)) > 1e-9 * max(1.0, steps):
            last = self.low + math.floor(steps) * (self.step or 0)
            raise misfit("high", f"must be low plus a whole number of steps, got {self.high:g}; {last:g} is one")
        if self.log and (self.step is not None or self.low <= 0):
            key, rule = (
                ("step", "a logarithmic range has none") if self.step is not None else ("low", "must be above 0")
            )
            raise misfit(key, f"{rule} with `log: true`, got {getattr(self, key):g}")
        return self

    @property
    def whole(self) -> bool:
        """Whether all of its values are whole numbers."""
        return all(isinstance(value, int) for value in (self.low, self.high, self.step) if value is not None)


Dimension = Annotated[Range, Tag("range")] | Annotated[Annotated[list[Any], Field(min_length=1)], Tag("choices")]


class Objective(Section):
    """What is wanted: the largest or smallest of a metric, at one load or at an interactivity anchor.

    Attributes:
        maximize, minimize: a column of ``points.parquet``, or ``throughput_at_anchor``; one of the two.
        anchor: interactivity, tokens per second per user, for ``throughput_at_anchor``.
        load: load at which a column is read; None where there is one load, or an anchor chooses it.
        margin: how far above the anchor candidates plan, as a fraction.
    """

    maximize: str | None = None
    minimize: str | None = None
    anchor: Positive | None = None
    load: Positive | None = None
    margin: Margin = 0.0

    @model_validator(mode="after")
    def _one_metric(self) -> Objective:
        if (self.maximize is None) == (self.minimize is None):
            raise misfit("maximize", "give either `maximize` or `minimize`, with the name of a metric")
        if self.metric == AT_ANCHOR and (self.anchor is None or self.maximize is None):
            raise misfit("anchor", f"write {{maximize: {AT_ANCHOR}, anchor: TOKENS_PER_S}}")
        if self.anchor is not None and (self.metric != AT_ANCHOR or self.load is not None):
            raise misfit("anchor", f"goes with {AT_ANCHOR} alone, and without `load`; remove it")
        if self.margin and self.anchor is None:
            raise misfit("margin", "is above an anchor, and this objective has none; remove it")
        return self

    @property
    def metric(self) -> str:
        """The metric's name."""
        return str(self.maximize or self.minimize)

    @property
    def name(self) -> str:
        """The objective as tables name it."""
        if self.anchor is not None:
            return f"{AT_ANCHOR}_{self.anchor:g}"
        return self.metric if self.load is None else f"{self.metric}_at_load_{self.load:g}"

    @property
    def condition(self) -> str | None:
        """The constraint that an anchor is, as tables name it; None without an anchor."""
        return None if self.anchor is None else f"{INTERACTIVITY} >= {self.anchor:g}"


class Constraint(Section):
    """What must hold of a metric, averaged over seeds; a candidate that breaks it is never chosen.

    Attributes:
        metric: a column of ``points.parquet``.
        at_most, at_least: the bound; one of the two.
        load: as an objective's.
        margin: by which fraction the bound is tightened on the tuning seeds; the testing seeds are held to the bound.
    """

    metric: str
    at_most: float | None = None
    at_least: float | None = None
    load: Positive | None = None
    margin: Margin = 0.0

    @model_validator(mode="after")
    def _one_bound(self) -> Constraint:
        if (self.at_most is None) == (self.at_least is None):
            raise misfit("metric", "give either `at_most` or `at_least`")
        if self.metric == AT_ANCHOR:
            raise misfit("metric", f"{AT_ANCHOR} is an objective; bound a column of points.parquet")
        return self

    @property
    def name(self) -> str:
        """The constraint as tables name it."""
        bound = f"<= {self.at_most:g}" if self.at_most is not None else f">= {self.at_least:g}"
        return f"{self.metric} {bound}" + ("" if self.load is None else f" at load {self.load:g}")

    def planned(self, bound: float) -> float:
        """Return a bound as it holds on the tuning seeds, tightened by the margin."""
        step = self.margin * (abs(bound) or 1.0)
        return bound - step if self.at_most is not None else bound + step

    def violation(self, value: float, margin: float = 0.0) -> float:
        """Return by how much a value breaks the bound, as a fraction of it (absolute at 0); at most 0 if it holds."""
        bound, sign = (self.at_most, 1.0) if self.at_most is not None else (self.at_least or 0.0, -1.0)
        return sign * (value - bound) / (abs(bound) or 1.0) + margin


class TuneSeeds(Section):
    """Seeds that candidates are tried with, the same for all, and seeds on which the outcome is judged."""

    tuning: Annotated[list[Seed], Field(min_length=1)] = Field(default=[0, 1, 2, 3, 4])
    testing: Annotated[list[Seed], Field(min_length=1)] = Field(default=list(range(100, 120)))

    @field_validator("tuning", "testing")
    @classmethod
    def _distinct(cls, seeds: list[int]) -> list[int]:
        return without_repeats(seeds)

    @model_validator(mode="after")
    def _apart(self) -> TuneSeeds:
        for index, seed in enumerate(self.testing):
            if seed in self.tuning:
                raise misfit(f"testing.{index}", f"seed {seed} is a tuning seed too; judge the outcome on other seeds")
        return self


class Tune(Section):
    """A study: which keys are searched for one arm, for what, and under which conditions.

    Attributes:
        arm: the arm whose values in the file are the default.
        space: key path of the file to a range of numbers or a list of choices.
        objectives: with several, the candidates that no other beats in all of them are shown.
        constraints: what a candidate must keep.
        seeds: tuning and testing seeds, without overlap.
        trials: candidates tried, a multiple of ``batch``.
        batch: candidates chosen before any of them is computed.
        seed: of the sampler.
        sampler: ``tpe`` (tree-structured Parzen estimator) or ``random``.
        pruning: whether a candidate below the median after two seeds is given up.
    """

    arm: str
    space: Annotated[
        dict[str, Annotated[Dimension, Discriminator(lambda value: "choices" if isinstance(value, list) else "range")]],
        Field(min_length=1),
    ]
    objectives: Annotated[list[Objective], Field(min_length=1)]
    constraints: list[Constraint] = Field(default=[])
    seeds: TuneSeeds = Field(default_factory=TuneSeeds)
    trials: Count = 60
    batch: Annotated[int, Field(ge=1, le=1000)] = 4
    seed: Seed = 0
    sampler: Literal["tpe", "random"] = "tpe"
    pruning: bool = False

    @model_validator(mode="after")
    def _whole_batches(self) -> Tune:
        if self.trials % self.batch:
            near = max(self.batch, self.trials - self.trials % self.batch)
            raise misfit("trials", f"must be a multiple of batch {self.batch}, got {self.trials}; {near} is one")
        return self

    @model_validator(mode="after")
    def _pruning_fits(self) -> Tune:
        if self.pruning and len(self.objectives) > 1:
            raise misfit("pruning", "candidates with several objectives have no order to prune by; set it to false")
        if self.pruning and len(self.seeds.tuning) < 3:
            raise misfit("pruning", "a candidate is judged after two tuning seeds; give at least 3, or set it to false")
        return self

    @model_validator(mode="after")
    def _names_differ(self) -> Tune:
        for key, names in (("objectives", self.objectives), ("constraints", self.constraints)):
            seen = [each.name for each in names]
            for index, name in enumerate(seen):
                if name in seen[:index]:
                    raise misfit(f"{key}.{index}", f"{name} appears twice; keep one")
        return self

    @model_validator(mode="after")
    def _can_be_met(self) -> Tune:
        for index, constraint in enumerate(self.constraints):
            self._within_range(index, constraint)
        found = self.contradiction()
        if found is not None:
            raise misfit(*found)
        return self

    def contradiction(self, single: bool = False) -> tuple[str, str] | None:
        """Return the key of a constraint that contradicts another or an anchor, and what is wrong; None if none does.

        Args:
            single: whether a candidate has a single load, at which everything is read.
        """
        for index, constraint in enumerate(self.constraints):
            most = None if constraint.at_most is None else constraint.planned(constraint.at_most)
            for other, least in self._lower_bounds(constraint, single) if most is not None else ():
                if most is not None and least > most:
                    rule = f"{constraint.metric} at most {most:g} contradicts {other}, which asks for"
                    margins = [*(each.margin for each in self.constraints), *(each.margin for each in self.objectives)]
                    told = " (bounds with their margins)" if any(margins) or MARGIN in self.space else ""
                    return f"constraints.{index}", f"{rule} at least {least:g}{told}; no candidate can keep both"
        return None

    @staticmethod
    def _within_range(index: int, constraint: Constraint) -> None:
        """Refuse a bound that no value of the metric keeps: none is negative, and a share is at most 1."""
        most = None if constraint.at_most is None else constraint.planned(constraint.at_most)
        least = None if constraint.at_least is None else constraint.planned(constraint.at_least)
        if most is not None and most < 0.0:
            wrong = f"is never negative, so it cannot be at most {most:g}"
        elif least is not None and least > 1.0 and constraint.metric in SHARES:
            wrong = f"is a share of at most 1, so it cannot be at least {least:g}"
        else:
            return
        margin = f" ({constraint.name} with its margin of {constraint.margin:g})" if constraint.margin else ""
        raise misfit(f"constraints.{index}", f"{constraint.metric} {wrong}{margin}; no candidate can keep it")

    def _lower_bounds(self, against: Constraint, single: bool) -> Iterator[tuple[str, float]]:
        """Yield what must be at least how much, on the tuning seeds, of the metric that ``against`` bounds above."""
        for index, other in enumerate(self.constraints):
            same = other.metric == against.metric and (single or other.load == against.load)
            if same and other.at_least is not None:
                yield f"constraints.{index}", other.planned(other.at_least)
        # What has no load of its own is read where the first anchor is met, at another load than the other anchors.
        anchored = [(index, each) for index, each in enumerate(self.objectives) if each.anchor is not None]
        for index, objective in anchored if single else anchored[:1]:
            at_anchor = against.metric == INTERACTIVITY and (single or against.load is None)
            if objective.anchor is not None and at_anchor:
                headroom = (1.0 + objective.margin) * (1.0 + self._least_margin())
                yield f"objectives.{index}.anchor", objective.anchor * headroom

    def _least_margin(self) -> float:
        """Return the smallest margin that is searched; 0 if none is."""
        dimension = self.space.get(MARGIN, [0.0])
        values = [dimension.low] if isinstance(dimension, Range) else dimension
        return min((float(each) for each in values if isinstance(each, int | float)), default=0.0)
