"""The study: which candidates are tried. With `tune_sampler.py` the only module that knows Optuna.

Candidates come in batches of fixed size. Before each batch the sampler is made anew from (study seed, batch number),
and all of a batch is asked before any of it is told. So a study is a function of its configuration: neither the number
of workers nor an interruption can change a trial. What is told last in the journal is a whole batch; the rest of a
batch that was interrupted is cut off and asked again, and finds its points already computed.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import polars as pl

from ..config.errors import ConfigError
from ..config.schema_tune import Range, Tune
from ..sweep import store
from .measure import Measured
from .space import Candidate, Parameters, Space, column_value

if TYPE_CHECKING:
    import optuna

NAME = "specsched"
"""The study's name in the journal."""

JOURNAL = "journal.log"
POSITION = "journal.json"
FINGERPRINT = "specsched:fingerprint"
FAILURE = "failure"
"""Attribute of a trial that has failed: why."""

PRUNED = ""
"""Outcome of a trial that was given up; any other text says why one has failed."""

JUDGED_AFTER = 2
"""Seeds after which a candidate may be pruned."""

STARTUP = 10
"""Trials before the sampler and the pruner use what they have seen."""

Evaluate = Callable[[Sequence[Candidate], Sequence[int]], Sequence[Measured | str]]


@dataclass(frozen=True)
class Study:
    """A study on disk.

    Attributes:
        folder: with the journal.
        trials: the Optuna study.
    """

    folder: Path
    trials: optuna.Study

    def finished_batches(self, tune: Tune) -> int:
        """Return how many batches have been told."""
        return sum(trial.state.is_finished() for trial in self.trials.get_trials(deepcopy=False)) // tune.batch


def require_optuna() -> None:
    """Raise ConfigError if Optuna is not installed."""
    if find_spec("optuna") is None:
        raise ConfigError("tuning needs Optuna 5 or newer; install specsched[tune]")
    import optuna

    if not hasattr(optuna.trial.Trial, "set_constraint"):
        raise ConfigError(f"tuning needs Optuna 5 or newer, found {optuna.__version__}; install specsched[tune]")


def open_study(folder: Path, space: Space, fingerprint: str) -> Study:
    """Return the study in ``folder`` with its whole batches, or a new one.

    Args:
        folder: exists.
        space: the study's configuration.
        fingerprint: of everything that a trial depends on.

    Raises:
        ConfigError: if the folder holds the journal of another study, one that is damaged, or one with more trials.
    """
    journal, position = folder / JOURNAL, folder / POSITION
    for lock in folder.glob(f"{JOURNAL}.lock*"):
        lock.unlink()  # left by a command that was stopped; Optuna would wait for whoever holds it
    if not position.is_file():
        journal.unlink(missing_ok=True)
        return _new_study(folder, space, fingerprint)
    _check_fingerprint(journal, fingerprint)
    end = int(json.loads(position.read_bytes())["bytes"])
    if journal.stat().st_size < end:
        raise ConfigError(f"{journal} is shorter than it was; remove it and {position} to start the study again")
    os.truncate(journal, end)
    study = Study(folder, _load(journal))
    done = study.finished_batches(space.tune) * space.tune.batch
    if done > space.tune.trials:
        raise ConfigError(f"the study in {folder} has {done} trials already; give --trials {done} or more")
    return study


def search(study: Study, space: Space, evaluate: Evaluate, advance: Callable[[], None] = lambda: None) -> None:
    """Try candidates, batch by batch, until the study has its trials.

    A combination of parameters that is no experiment, though each of them alone is one, is a failed trial.

    Args:
        study: where it stands.
        space: what is searched.
        evaluate: measures candidates on seeds, or says why one has no measure: such a trial has failed.
        advance: called once for each trial told.
    """
    for batch in range(study.finished_batches(space.tune), space.tune.trials // space.tune.batch):
        with _quiet():
            study.trials.sampler = _sampler(space, batch)
            study.trials.pruner = _pruner()
            trials = [study.trials.ask(_distributions(space)) for _ in range(space.tune.batch)]
        reasons = {trial.number: space.refusal(trial.params) for trial in trials}
        refused = {number: reason for number, reason in reasons.items() if reason is not None}
        sound = [trial for trial in trials if trial.number not in refused]
        candidates = [space.candidate(trial.number, trial.params) for trial in sound]
        judged = _judge(sound, candidates, space.tune, evaluate) if sound else []
        outcomes = {trial.number: outcome for trial, outcome in zip(sound, judged, strict=True)}
        for trial in trials:
            _tell(study.trials, trial, refused.get(trial.number) or outcomes[trial.number])
            advance()
        _note_position(study.folder)


def _judge(
    trials: Sequence[optuna.Trial], candidates: Sequence[Candidate], tune: Tune, evaluate: Evaluate
) -> list[Measured | str]:
    """Measure a batch; with pruning, on the other seeds only what is not below the median after the first ones."""
    kept = list(range(len(trials)))
    outcomes: list[Measured | str] = [PRUNED] * len(trials)
    if tune.pruning:
        early = evaluate(candidates, tune.seeds.tuning[:JUDGED_AFTER])
        for index, (trial, found) in enumerate(zip(trials, early, strict=True)):
            # What breaks a constraint says nothing about the objective: it is neither judged nor a judge.
            if isinstance(found, Measured) and found.feasible:
                trial.report(found.values[0], JUDGED_AFTER)
                if trial.should_prune():
                    kept.remove(index)
    measured = evaluate([candidates[index] for index in kept], tune.seeds.tuning) if kept else ()
    for index, whole in zip(kept, measured, strict=True):
        outcomes[index] = whole
    return outcomes


def _tell(study: optuna.Study, trial: optuna.Trial, outcome: Measured | str) -> None:
    from optuna.trial import TrialState

    if isinstance(outcome, str):
        if outcome != PRUNED:
            trial.set_user_attr(FAILURE, outcome)
        study.tell(trial, state=TrialState.PRUNED if outcome == PRUNED else TrialState.FAIL)
        return
    for name, violation in outcome.violations.items():
        trial.set_constraint(name, violation)
    trial.set_user_attr("load", outcome.load)
    trial.set_user_attr("at_least", outcome.at_least)
    study.tell(trial, list(outcome.values))


def _new_study(folder: Path, space: Space, fingerprint: str) -> Study:
    import optuna

    directions: list[Literal["maximize", "minimize"]] = [
        "maximize" if each.maximize else "minimize" for each in space.tune.objectives
    ]
    with _quiet():
        study = optuna.create_study(storage=_storage(folder / JOURNAL), study_name=NAME, directions=directions)
        study.set_user_attr(FINGERPRINT, fingerprint)
        study.set_metric_names([each.name for each in space.tune.objectives])
        default = space.default()
        if default is not None:
            study.enqueue_trial(dict(default))
    _note_position(folder)
    return Study(folder, study)


def _check_fingerprint(journal: Path, fingerprint: str) -> None:
    try:
        found = _load(journal).user_attrs.get(FINGERPRINT)
    except (OSError, KeyError, ValueError) as error:
        raise ConfigError(f"{journal} is no journal of a study ({error}); choose another -o") from None
    if found != fingerprint:
        raise ConfigError(
            f"{journal} is the journal of another study; resume with the configuration it was started with, or choose "
            "another -o"
        )


def _load(journal: Path) -> optuna.Study:
    import optuna

    if not journal.is_file():
        raise FileNotFoundError("there is no such file")
    with _quiet():
        return optuna.load_study(study_name=NAME, storage=_storage(journal))


def _storage(journal: Path) -> optuna.storages.JournalStorage:
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    return JournalStorage(JournalFileBackend(str(journal.resolve())))


def _note_position(folder: Path) -> None:
    """Note how long the journal is now that its last batch is whole."""
    size = (folder / JOURNAL).stat().st_size
    store.write_whole(folder / POSITION, (json.dumps({"bytes": size}) + "\n").encode())


def _sampler(space: Space, batch: int) -> optuna.samplers.BaseSampler:
    from .sampler import FreshSampler

    seed = int(np.random.SeedSequence([space.tune.seed, batch]).generate_state(1)[0])
    return FreshSampler(seed, _distributions(space), STARTUP, space.tune.sampler == "tpe", _refuser(space))


def _refuser(space: Space) -> Callable[[Parameters], bool]:
    """Return what says whether parameters make no experiment; what a range or list of one value has is added."""
    single = {key: _single(each) for key, each in _distributions(space).items() if each.single()}
    known: dict[tuple[Any, ...], bool] = {}

    def refuse(parameters: Parameters) -> bool:
        whole = {**single, **parameters}
        key = tuple(whole[name] for name in space.tune.space)
        if key not in known:
            known[key] = space.refusal(whole) is not None
        return known[key]

    return refuse


def _single(distribution: Any) -> Any:
    return distribution.choices[0] if hasattr(distribution, "choices") else distribution.low


def _pruner() -> optuna.pruners.BasePruner:
    import optuna

    return optuna.pruners.MedianPruner(n_startup_trials=STARTUP)


def _distributions(space: Space) -> dict[str, optuna.distributions.BaseDistribution]:
    return {key: _distribution(space, key) for key in space.tune.space}


def _distribution(space: Space, key: str) -> optuna.distributions.BaseDistribution:
    from optuna import distributions as d

    given = space.tune.space[key]
    if not isinstance(given, Range):
        return d.CategoricalDistribution(list(space.choices[key]))
    if given.whole:
        return d.IntDistribution(given.low, given.high, log=given.log, step=given.step or 1)
    return d.FloatDistribution(given.low, given.high, log=given.log, step=given.step)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence Optuna's log and its remarks that a method is experimental."""
    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        warnings.filterwarnings("ignore", message="PedAnova.* computes the importances of params to achieve low")
        try:
            yield
        finally:
            optuna.logging.set_verbosity(before)


def trials_table(study: Study, space: Space) -> pl.DataFrame:
    """Return one row a trial: number, batch, state, feasible, load, failure, parameters, objectives, violations."""
    rows = []
    for trial in study.trials.get_trials(deepcopy=False):
        if not trial.state.is_finished():
            continue
        complete = trial.state.name == "COMPLETE"
        values: list[Any] = list(trial.values) if complete else [None] * len(space.tune.objectives)
        rows.append(
            {
                "trial": trial.number,
                "batch": trial.number // space.tune.batch,
                "state": trial.state.name.lower(),
                "feasible": all(value <= 0 for value in trial.constraints.values()) if complete else None,
                "at_least": trial.user_attrs.get("at_least"),
                "load": trial.user_attrs.get("load"),
                "failure": trial.user_attrs.get(FAILURE),
                **{key: _column(trial.params[key], space, key) for key in space.tune.space},
                **{each.name: value for each, value in zip(space.tune.objectives, values, strict=True)},
                **{f"violation: {name}": value for name, value in sorted(trial.constraints.items())},
            }
        )
    types = {"feasible": pl.Boolean, "at_least": pl.Boolean, "load": pl.Float64, "failure": pl.String}
    types |= {each.name: pl.Float64 for each in space.tune.objectives}
    return pl.DataFrame(rows, infer_schema_length=None, schema_overrides=types)


def _column(label: Any, space: Space, key: str) -> Any:
    return column_value(label, space.choices.get(key, (label,)))


def importance(study: Study, table: pl.DataFrame, tune: Tune) -> dict[str, float] | None:
    """Return how much each parameter decides whether a candidate is among the best tenth (PED-ANOVA), summing to 1.

    A candidate that breaks a constraint counts as the worst. It is that of the first objective; None if all
    candidates are worth the same or fewer than twice ten are complete.
    """
    import optuna

    first = tune.objectives[0]
    complete = table.filter(pl.col("state") == "complete")
    kept = complete.filter("feasible")[first.name]
    if len(complete) < 2 * STARTUP or not len(kept) or kept.n_unique() == 1:
        return None
    worst = float(kept.min() if first.maximize else kept.max())  # type: ignore[arg-type]
    worth = {
        number: value if fine else worst for number, value, fine in complete["trial", first.name, "feasible"].rows()
    }
    sign = 1.0 if first.maximize else -1.0
    with _quiet():
        found = optuna.importance.get_param_importances(
            study.trials,
            evaluator=optuna.importance.PedAnovaImportanceEvaluator(),
            target=lambda trial: -sign * worth[trial.number],
        )
    return {key: float(found[key]) for key in sorted(tune.space, key=lambda key: -found.get(key, 0.0)) if key in found}
