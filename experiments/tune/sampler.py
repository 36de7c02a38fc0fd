"""Which candidates are proposed: most by a Parzen estimator, some beside the best so far, none twice.

Imported by `tune_study.py` alone, since it needs Optuna.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

TRIES = 10
"""Known proposals of a kind before the next kind is asked."""

UNIFORM_TRIES = 200
"""The same of the last kind, which is cheap; a space that is used up is then proposed from again."""

NEIGHBOUR_EVERY = 4
"""One proposal in so many lies beside the best so far."""

Parameters = dict[str, Any]
Propose = Callable[[], Parameters]


class FreshSampler(BaseSampler):
    """Proposes uniformly at first, then by the tree-structured Parzen estimator (TPE), every fourth time a neighbour.

    A neighbour differs from the best candidate that keeps the constraints in one parameter, by one step. TPE finds
    the region; step costs have cliffs, and the best setting often stands right before one, where TPE's smooth
    densities seldom land. A proposal that a trial has already is drawn again, since on the same seeds it would give the
    same numbers, and so is one that ``refuse`` says makes no experiment.
    """

    def __init__(
        self,
        seed: int,
        distributions: Mapping[str, BaseDistribution],
        startup: int,
        guided: bool = True,
        refuse: Callable[[Parameters], bool] = lambda _: False,
    ) -> None:
        self._distributions = dict(distributions)
        self._startup = startup
        self._guided = guided
        self._refuse = refuse
        uniform, parzen, neighbour = np.random.SeedSequence(seed).generate_state(3)
        self._random = RandomSampler(seed=int(uniform))
        self._parzen = TPESampler(seed=int(parzen), n_startup_trials=startup, multivariate=True)
        self._rng = np.random.default_rng(int(neighbour))

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Return all parameters: they are proposed together."""
        return {name: each for name, each in self._distributions.items() if not each.single()}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> Parameters:
        """Return a proposal that no trial has and that makes an experiment, if one is found."""
        others = [each for each in study.get_trials(deepcopy=False) if each.number != trial.number]
        known = {_key(each.params, search_space) for each in others}
        *kinds, last = self._kinds(study, trial, search_space, others)
        proposals = [*(propose for propose in kinds for _ in range(TRIES)), *[last] * UNIFORM_TRIES]
        proposal: Parameters = {}
        sound: Parameters | None = None
        for propose in proposals:
            proposal = propose()
            if self._refuse(proposal):
                continue
            if _key(proposal, search_space) not in known:
                return proposal
            sound = proposal
        return proposal if sound is None else sound

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Return a value of a parameter that has only one."""
        return self._random.sample_independent(study, trial, param_name, param_distribution)

    def _kinds(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution], others: list[FrozenTrial]
    ) -> list[Propose]:
        """Return the ways to propose, in the order in which they are tried."""

        def uniform() -> Parameters:
            return {
                name: self._random.sample_independent(study, trial, name, each) for name, each in search_space.items()
            }

        told = sum(each.state in (TrialState.COMPLETE, TrialState.PRUNED) for each in others)
        if not self._guided or told < self._startup:
            return [uniform]
        parzen: Propose = lambda: self._parzen.sample_relative(study, trial, search_space)  # noqa: E731
        best = _best(study)
        if best and trial.number % NEIGHBOUR_EVERY == NEIGHBOUR_EVERY - 1:
            return [lambda: self._neighbour(best, search_space), parzen, uniform]
        return [parzen, uniform]

    def _neighbour(self, best: list[FrozenTrial], search_space: Mapping[str, BaseDistribution]) -> Parameters:
        chosen = best[int(self._rng.integers(len(best)))].params
        name = list(search_space)[int(self._rng.integers(len(search_space)))]
        return {**{key: chosen[key] for key in search_space}, name: self._beside(chosen[name], search_space[name])}

    def _beside(self, value: Any, distribution: BaseDistribution) -> Any:
        """Return another value of a parameter: one step up or down, any other choice, within a tenth of a range."""
        if isinstance(distribution, CategoricalDistribution):
            others = [each for each in distribution.choices if repr(each) != repr(value)]
            return others[int(self._rng.integers(len(others)))]
        if not isinstance(distribution, IntDistribution | FloatDistribution):
            return value
        low, high, step = distribution.low, distribution.high, distribution.step
        sign = 1 if self._rng.random() < 0.5 else -1
        if distribution.log:
            moved = value * (high / low) ** (0.1 * sign * self._rng.random())
        else:
            moved = value + sign * (step or 0.1 * (high - low) * self._rng.random())
        if isinstance(distribution, IntDistribution) and distribution.log:
            moved = max(value + 1, round(moved)) if sign > 0 else min(value - 1, round(moved))
        return moved if low <= moved <= high else value


def _best(study: Study) -> list[FrozenTrial]:
    """Return the trials that keep the constraints and that no other beats; none if nothing does."""
    if len(study.directions) > 1:
        return study.best_trials
    try:
        return [study.best_trial]
    except ValueError:
        return []


def _key(parameters: Mapping[str, Any], search_space: Mapping[str, BaseDistribution]) -> tuple[Any, ...]:
    return tuple((name, repr(parameters.get(name))) for name in sorted(search_space))
