"""What ``specsched tune`` does: read, check, search, judge on held-out seeds, write, draw."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
from rich.console import Console

from ..config.document import dump
from ..config.given import find_config
from ..config.schema import Experiment
from ..config.schema_tune import Objective, Tune
from ..config.working_directory import make_working_directory_importable
from ..show.terminal import say
from ..sweep import store
from ..sweep.course import Facts, begun, under_way
from ..sweep.executors import Site, site_of
from ..sweep.identity import digest, identity
from ..sweep.manifest import open_folder, write_manifest
from ..sweep.points import check_points
from ..sweep.progress import print_warnings, show_progress
from . import figures as tune_figures
from . import study as tune_study
from .measure import Measured, NoValueError, measure
from .points import Evaluator, kept_open
from .space import LOAD, Candidate, Space, load_space
from .terminal import print_study
from .verdict import in_words, seeds_table, verdict

Summary = dict[str, Any]


class NothingFoundError(Exception):
    """A study ended without a candidate that keeps every constraint."""


@dataclass(frozen=True)
class Found:
    """What a study came to.

    Attributes:
        trials: as `trials_table` gives it.
        front: the chosen candidates, the best in the first objective first; one of them if there is one objective.
        measured: the default and the front on the testing seeds, by name; without those that could not be computed.
        weights: importance of each parameter.
    """

    trials: pl.DataFrame
    front: tuple[Candidate, ...]
    measured: dict[str, Measured]
    weights: dict[str, float] | None


def run_tuning(
    config: str,
    settings: Sequence[str] = (),
    output: Path | None = None,
    workers: int | None = None,
    trials: int | None = None,
    resume: bool = False,
    quiet: bool = False,
    scheduler: str | None = None,
) -> Path:
    """Run a study into a folder and print what it found; returns the folder. Arguments as the command's.

    Raises:
        ConfigError, TraceError, PolicyError, ProfileError, DraftError, SimulationError: before anything is computed.
        PointError: if a point fails; told trials stay.
        NothingFoundError: if no candidate keeps every constraint; the trials are written all the same.
        Interrupted: on SIGINT or SIGTERM; told trials and finished points stay.
    """
    tune_study.require_optuna()
    make_working_directory_importable()
    file = find_config(config)
    space = load_space(file, settings, trials)
    folder = output or Path("runs") / f"tune-{file.stem}"
    whole = study_identity(space)
    open_folder(folder, whole, resume)
    print_warnings(check_points(space.base, [space.tune.arm]))
    with site_of(workers, scheduler) as site:
        facts = begun(config, settings, site, scheduler)
        folder.mkdir(parents=True, exist_ok=True)
        study = tune_study.open_study(folder, space, digest(whole))
        _write_run(folder, space, whole, status="running", **facts)
        found = _compute(study, space, whole, facts, quiet, site)
    _report(found, space, folder)
    if not found.front:
        raise NothingFoundError(f"no candidate of {config} keeps every constraint; the trials are in {folder}")
    return folder


def study_identity(space: Space) -> dict[str, Any]:
    """Return what the trials of a study depend on: all of its configuration but how many there are, and the code."""
    base = identity(space.base)
    searched = space.tune.model_dump(exclude={"trials"})
    return {"config": {**base["config"], "tune": searched}, "code": {**base["code"], "optuna": _optuna_version()}}


def _optuna_version() -> str:
    import optuna

    return str(optuna.__version__)


def _compute(
    study: tune_study.Study, space: Space, whole: Mapping[str, Any], facts: Facts, quiet: bool, site: Site
) -> Found:
    """Search and judge; says in the manifest how it went."""
    tune, folder = space.tune, study.folder

    def finished() -> str:
        return f"{study.finished_batches(tune) * tune.batch} of {tune.trials} trials"

    with under_way(folder, facts, partial(_write_run, folder, space, whole), finished), kept_open(site) as kept:
        evaluator = Evaluator(folder, tune.arm, kept)
        left = tune.trials - study.finished_batches(tune) * tune.batch
        with show_progress(max(left, 0), quiet, Console(stderr=True), "trials") as advance:
            tune_study.search(study, space, measuring(evaluator, tune), advance)
        return _judge(study, space, evaluator, quiet)


def measuring(evaluator: Evaluator, tune: Tune) -> tune_study.Evaluate:
    """Return what measures candidates on seeds with an evaluator, or says why one has no measure."""

    def evaluate(candidates: Sequence[Candidate], seeds: Sequence[int]) -> list[Measured | str]:
        tables = evaluator.tables(candidates, seeds)
        return [measured(table, tune, each.margin) for each, table in zip(candidates, tables, strict=True)]

    return evaluate


def measured(table: pl.DataFrame | str, tune: Tune, margin: float, planning: bool = True) -> Measured | str:
    """Return the measures of a candidate's points, as `measure` does, or why there are none."""
    if isinstance(table, str):
        return table
    try:
        return measure(table, tune, margin, planning)
    except NoValueError as error:
        return str(error)


def _judge(study: tune_study.Study, space: Space, evaluator: Evaluator, quiet: bool) -> Found:
    """Choose on the tuning seeds and compare with the default on the testing seeds."""
    tune = space.tune
    trials = tune_study.trials_table(study, space)
    parameters = {trial.number: trial.params for trial in study.trials.get_trials(deepcopy=False)}
    front = tuple(space.candidate(number, parameters[number]) for number in front_of(trials, tune.objectives))
    judged = {"default": space.default_candidate(), **{f"trial {each.number}": each for each in front}}
    judged |= dict(_at_their_loads(front, space))
    points = sum(len(each.experiment.sweep.load) for each in judged.values()) * len(tune.seeds.testing)
    with show_progress(points, quiet, Console(stderr=True), "testing points") as advance:
        tables = evaluator.tables(list(judged.values()), tune.seeds.testing, advance)
    found = {
        name: measured(table, tune, each.margin, planning=False)
        for (name, each), table in zip(judged.items(), tables, strict=True)
    }
    known = {name: each for name, each in found.items() if isinstance(each, Measured)}
    return Found(trials, front, known, tune_study.importance(study, trials, tune))


def _at_their_loads(front: Sequence[Candidate], space: Space) -> Iterator[tuple[str, Candidate]]:
    """Yield the default at each searched load that was chosen, so that the load's share of an advantage is known.

    A load that the default cannot have (more requests than its `max_num_seqs`) is left out.
    """
    if LOAD in space.tune.space:
        for each in front:
            load, parameters = each.experiment.sweep.load, {LOAD: each.parameters[LOAD]}
            if load != space.base.sweep.load and space.refusal(parameters) is None:
                yield at_load(load[0]), space.candidate(-2 - each.number, parameters)


def at_load(load: float) -> str:
    """Return the name of the default at another load."""
    return f"default at load {load:g}"


def front_of(trials: pl.DataFrame, objectives: Sequence[Objective]) -> list[int]:
    """Return the trials that keep every constraint and that no other beats, the best in the first objective first.

    With one objective that is the best trial; of equal ones the first counts.
    """
    fine = trials.filter(pl.col("feasible").fill_null(value=False)).sort("trial")
    signed = [
        (number, tuple(value if each.maximize else -value for each, value in zip(objectives, values, strict=True)))
        for number, *values in fine.select("trial", *(each.name for each in objectives)).rows()
    ]
    distinct = {values: number for number, values in reversed(signed)}
    front = [(values, number) for values, number in distinct.items() if not any(_beats(a, values) for a in distinct)]
    return [number for values, number in sorted(front, key=lambda each: (*(-value for value in each[0]), each[1]))]


def _beats(values: tuple[float, ...], others: tuple[float, ...]) -> bool:
    return values != others and all(mine >= other for mine, other in zip(values, others, strict=True))


def _report(found: Found, space: Space, folder: Path) -> None:
    """Write tables, scenarios, the summary and figures, and print what was found."""
    store.write_parquet(folder / "trials.parquet", found.trials)
    store.write_parquet(folder / "testing.parquet", seeds_table(found.measured))
    summary = summarize(found, space)
    store.write_json(folder / "summary.json", summary)
    for each in found.front if len(space.tune.objectives) > 1 else ():
        _write_scenario(folder / "front" / f"trial-{each.number}.yaml", each, space)
    if found.front:
        _write_scenario(folder / "best.yaml", found.front[0], space)
    chosen = [each.number for each in found.front]
    drawn = tune_figures.draw_study(found.trials, space.tune, found.weights, chosen, folder)
    console = Console(soft_wrap=True)
    print_study(summary, console)
    files = [folder / "best.yaml"] if found.front else []
    say([*(f"scenario: {file}" for file in files), *(f"figure: {file}" for file in drawn)], console)


def summarize(found: Found, space: Space) -> Summary:
    """Return ``summary.json``."""
    tune, trials = space.tune, found.trials
    front = [_chosen(each, found, tune) for each in found.front]
    best = front[0] if front else None
    state, anchors = trials["state"], [each.condition for each in tune.objectives]
    return {
        "kind": "tune",
        "arm": tune.arm,
        "objectives": [each.name for each in tune.objectives],
        "constraints": [each for each in anchors if each] + [each.name for each in tune.constraints],
        "seeds": tune.seeds.model_dump(),
        "trials": {
            "asked": len(trials),
            "complete": int((state == "complete").sum()),
            "pruned": int((state == "pruned").sum()),
            "failed": int((state == "fail").sum()),
            "feasible": int(trials["feasible"].sum() or 0),
            "at_least": int(trials["at_least"].sum() or 0),
        },
        "best": best,
        "failures": trials["failure"].drop_nulls().unique(maintain_order=True).to_list(),
        "default": {"parameters": space.of_the_file(), "in_space": space.default() is not None},
        "front": front,
        "nearest": nearest_misses(trials),
        "importance": found.weights,
        "verdict": None if best is None else in_words(best, len(tune.seeds.testing)) + _alone(best, space),
    }


def nearest_misses(trials: pl.DataFrame) -> dict[str, float]:
    """Return for each constraint that no trial keeps by what fraction of its bound the nearest one misses it."""
    prefix = "violation: "
    names = [name for name in trials.columns if name.startswith(prefix)]
    least = {name.removeprefix(prefix): trials[name].drop_nulls().min() for name in names}
    return {name: float(value) for name, value in least.items() if value is not None and float(value) > 0.0}  # type: ignore[arg-type]


def _alone(best: Summary, space: Space) -> str:
    """Return why a comparison at equal load is missing, if it is."""
    searched = LOAD in space.tune.space and best["load"] is not None and [best["load"]] != space.base.sweep.load
    if not searched or best["testing_at_same_load"] is not None:
        return ""
    cannot = space.refusal({LOAD: best["parameters"][LOAD]}) is not None
    why = "cannot run" if cannot else "has no value"
    return f" The default {why} at the load {best['load']:g}, so the load's share of this is not known."


def _chosen(candidate: Candidate, found: Found, tune: Tune) -> Summary:
    row = found.trials.row(by_predicate=pl.col("trial") == candidate.number, named=True)
    tuned = found.measured.get(f"trial {candidate.number}")
    testing = verdict(tuned, found.measured.get("default"), tune)
    beside = found.measured.get(at_load(row["load"])) if LOAD in tune.space else None
    return {
        "trial": candidate.number,
        "parameters": dict(candidate.parameters),
        "load": row["load"],
        "tuning": {each.name: row[each.name] for each in tune.objectives},
        "testing": testing,
        "testing_at_same_load": None if beside is None else verdict(tuned, beside, tune)["objectives"],
    }


def _write_scenario(file: Path, candidate: Candidate, space: Space) -> None:
    """Write a candidate as an experiment file, with the testing seeds."""
    experiment: Experiment = candidate.experiment
    lines = [f"# Trial {candidate.number} of a study of the arm {space.tune.arm}; the seeds are the testing seeds."]
    lines += [f"#   {key}: {json.dumps(value)}" for key, value in candidate.parameters.items()]
    arms = dict(experiment.arms)
    for name in experiment.arms:
        reason = space.refusal(candidate.parameters, name)
        if reason is not None:
            lines.append(f"# Without the arm {name}, which cannot run so: {reason}")
            del arms[name]
    output = experiment.output.model_copy(update={"effects": []})  # they may name loads or arms that are not in it
    changed = {"seeds": space.tune.seeds.testing, "arms": arms, "output": output}
    config = experiment.model_copy(update=changed).model_dump()
    store.write_whole(file, ("\n".join(lines) + "\n" + dump(config)).encode())


def _write_run(folder: Path, space: Space, whole: Mapping[str, Any], **facts: Any) -> None:
    """Write ``config.yaml`` and ``manifest.json``, the only file that knows the time of day beside the journal."""
    config = {**space.base.model_dump(), "tune": space.tune.model_dump(exclude_none=True)}
    head = "# Every default written out; tuning this file again gives the same trials.\n"
    store.write_whole(folder / "config.yaml", (head + dump(config)).encode())
    write_manifest(folder, whole, space.tune.seeds.model_dump(), {"optuna": _optuna_version()}, **facts)
