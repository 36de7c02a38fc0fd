"""One page from finished runs: read, arrange, write. Nothing is computed again, and no time of day enters."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from ..config.errors import ConfigError
from ..config.schema import Experiment
from ..config.schema_tune import Tune
from ..config.text import load_text
from ..sweep import store
from ..sweep.finished import Finished, Run
from .compare import comparison
from .html import MARK, Column, join, link, notes, page, preformatted, section, table, tag
from .parts import NONE, Part, anchors_part, sections
from .read import TuneRun, read_runs
from .sweep import effect_sections, sweep_sections
from .tuning import tune_sections

_HEAD = 400
"""Bytes at the start of a file among which a report's mark stands."""


def write_report(folders: Sequence[Path], output: Path, title: str | None = None) -> Path:
    """Write the report of finished runs to one HTML file that needs nothing else; returns its path.

    Args:
        folders: run or tune folders; the first is what others are compared with.
        output: the file; a report that is there is replaced, any other file is not.
        title: heading of the page; by default the names of the folders.

    Raises:
        ConfigError: if a folder holds no finished run, or ``output`` is something else than a report.
        OSError: if the file cannot be written.
    """
    sources = read_runs(folders)
    _check_output(output)
    store.write_whole(output, report(sources, title).encode())
    return output


def report(sources: Sequence[Finished], title: str | None = None) -> Markup:
    """Return the page of runs that `read_runs` has read."""
    named = title or "specsched: " + ", ".join(source.name for source in sources)
    runs = [source for source in sources if isinstance(source, Run)]
    parts: list[Markup] = [tag("header", tag("h1", named), _overview(sources), _contents(sources, len(runs) > 1))]
    if len(runs) > 1:
        parts.append(section("The runs compared", comparison(runs), anchor="compared"))
    for number, source in enumerate(sources, start=1):
        parts.append(section(f"{_kind(source)} {source.name}", *_one(source, f"r{number}"), anchor=f"r{number}"))
    return page(named, tag("main", join(parts)))


def _check_output(output: Path) -> None:
    if output.is_dir():
        raise ConfigError(f"{output} is a folder; name a file with -o, such as {output / 'report.html'}")
    if output.exists():
        with output.open("rb") as file:
            if MARK.encode() not in file.read(_HEAD):
                raise ConfigError(f"{output} exists and is no report; name another file with -o")


def _kind(source: Finished) -> str:
    if isinstance(source, TuneRun):
        return "Tuning"
    return "Sweep" if isinstance(source, Run) and source.plan.base.sweep.axes else "Run"


def _overview(sources: Sequence[Finished]) -> Markup:
    columns: list[Column] = [
        ("name", [source.name for source in sources]),
        ("kind", [_kind(source).lower() for source in sources]),
        *_facts([_experiments(source) for source in sources]),
        ("size", [_size(source) for source in sources]),
        ("started", [_time(source.manifest.get("started", NONE)) for source in sources]),
        ("specsched", [str(source.manifest.get("specsched", NONE)) for source in sources]),
    ]
    return table(columns, "Runs on this page", len(columns))


def _experiments(source: Finished) -> list[Experiment]:
    """Return what was run: the experiment of every combination, or the one that was tuned."""
    if isinstance(source, Run):
        return [cell.experiment for cell in source.plan.cells]
    return [source.base] if isinstance(source, TuneRun) else []


def _size(source: Finished) -> str:
    if isinstance(source, Run):
        return f"{len(source.points):,} points"
    return f"{source.summary['trials']['asked']:,} trials"


def _time(value: Any) -> str:
    """Return a time of day as people read it, anything else as it is."""
    return re.sub(r"^(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)\+00:00$", r"\1 \2 UTC", str(value))


def _facts(runs: Sequence[Sequence[Experiment]]) -> Iterator[Column]:
    """Yield what runs are about, a column each; where the combinations of a sweep differ, all they have."""
    tell: dict[str, Callable[[Experiment], str]] = {
        "profile": lambda each: each.hardware.profile,
        "load": lambda each: f"{each.workload.mode}, {', '.join(map(load_text, each.sweep.load))}",
        "drafts": _drafter,
        "arms": lambda each: ", ".join(each.arms),
        "seeds": lambda each: str(len(each.seeds) * each.sweep.repetitions) if each.tune is None else _seeds(each.tune),
    }
    for name, told in tell.items():
        yield name, ["; ".join(dict.fromkeys(map(told, each))) or NONE for each in runs]


def _drafter(experiment: Experiment) -> str:
    drafts = experiment.drafts
    named = drafts.object if drafts.kind == "python" else getattr(drafts, "profile", None)
    return " ".join(filter(None, (drafts.kind, named)))


def _seeds(tune: Tune) -> str:
    return f"{len(tune.seeds.tuning)} + {len(tune.seeds.testing)} held out"


def _contents(sources: Sequence[Finished], compared: bool) -> Markup:
    entries = [link("The runs compared", "compared")] if compared else []
    entries += [link(f"{_kind(each)} {each.name}", f"r{number}") for number, each in enumerate(sources, start=1)]
    return tag("nav", tag("ul", *(tag("li", entry) for entry in entries)), aria_label="Contents")


def _one(source: Finished, prefix: str) -> Iterator[Markup]:
    if isinstance(source, Run):
        yield from sweep_sections(source, prefix) if source.plan.base.sweep.axes else _run(source, prefix)
    elif isinstance(source, TuneRun):
        yield from tune_sections(source, prefix)
    yield section("Configuration and provenance", *_provenance(source), level=3)


def _run(run: Run, prefix: str) -> Iterator[Markup]:
    digest = run.manifest.get("files", {}).get("hardware.profile", {}).get("sha256")
    part = Part(run.plan.base, run.points, prefix, run.folder, run.folder, digest=digest)
    yield section("Throughput at the SLA anchors", anchors_part(run.summary), level=3)
    yield from effect_sections(run, prefix)
    yield from sections(part)


def _provenance(source: Finished) -> Iterator[Markup]:
    rows = list(_origin(source.manifest))
    columns: list[Column] = [("entry", [name for name, _ in rows]), ("value", [value for _, value in rows])]
    yield tag("div", table(columns, "How these results came about", 2), class_="long")
    yield notes(["The experiment file, which gives the same results when it is run again:"])
    yield preformatted(source.config, f"experiment file of {source.name}")


def _told(value: Any) -> str:
    if isinstance(value, Mapping):
        return "; ".join(f"{key} {_told(each)}" for key, each in value.items())
    return ", ".join(map(str, value)) or "none" if isinstance(value, list) else _time(value)


def _origin(manifest: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name in ("status", "config", "settings", "started", "ended", "wall_seconds", "workers", "cluster", "seeds"):
        if name in manifest:
            value = manifest[name]
            yield name.replace("_", " "), _told(value)
    git = manifest.get("git")
    yield "commit", NONE if not git else git["commit"] + ("" if git["clean"] else ", with changes not committed")
    for name in ("specsched", "python", "numpy", "polars", "platform"):
        yield name, str(manifest.get(name, NONE))
    for key, file in manifest.get("files", {}).items():
        yield key, f"{file['name']} (sha256 {file['sha256']})"
    for name, value in manifest.get("identity", {}).get("code", {}).items():
        if name not in ("specsched", "python", "numpy", "polars"):
            yield (name if name == "optuna" else f"hash of the code: {name}"), str(value)
