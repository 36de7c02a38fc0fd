"""Reports: the page holds what the run folders say, needs nothing else, and refuses what is no finished run."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from matplotlib.figure import Figure
from typer.testing import CliRunner

from specsched.experiments.analysis.summary import cells_of
from specsched.experiments.cli.report import report as command
from specsched.experiments.config.columns import METRICS, SHARES
from specsched.experiments.config.errors import ConfigError
from specsched.experiments.report import html as report_html
from specsched.experiments.report.compare import differences, ratios
from specsched.experiments.report.page import write_report
from specsched.experiments.report.sizes import chosen_sizes, cost_of
from specsched.experiments.report.svg import inline_figure
from specsched.experiments.report.waste import waste_table
from specsched.experiments.sweep.finished import read_run
from specsched.experiments.sweep.plan import load_plan
from specsched.experiments.sweep.points import run_point


class Reader(HTMLParser):
    """Collects tables by caption, identifiers, references and the text of paragraphs."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.source = text
        self.tables: dict[str, list[list[str]]] = {}
        self.ids: list[str] = []
        self.references: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text: dict[str, list[str]] = {}
        self._caption = ""
        self._rows: list[list[str]] = []
        self.feed(text)
        assert self.open == [], self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        self.tags.append((tag, named))
        if tag not in ("meta", "wbr"):
            self.open.append(tag)
        if "id" in named:
            self.ids.append(str(named["id"]))
        self.references += [str(value) for key, value in attrs if key.endswith(("href", "src"))]
        self.references += re.findall(r"url\(([^)]*)\)", " ".join(str(value) for _, value in attrs))
        if tag == "table":
            self._caption, self._rows = "", []
        elif tag == "tr":
            self._rows.append([])
        elif tag in ("td", "th"):
            self._rows[-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        if tag == "table":
            self.tables.setdefault(self._caption, self._rows)

    def handle_data(self, data: str) -> None:
        if "caption" in self.open:
            self._caption += data
        elif self.open and self.open[-1] in ("td", "th"):
            self._rows[-1][-1] += data
        if self.open:
            self.text.setdefault(self.open[-1], []).append(data)

    def table(self, start: str) -> list[dict[str, str]]:
        """Return the rows of the first table whose caption begins so."""
        head, *rows = next(rows for caption, rows in self.tables.items() if caption.startswith(start))
        return [dict(zip(head, row, strict=True)) for row in rows]

    def row(self, start: str, **where: str) -> dict[str, str]:
        """Return the one row of a table that has these cells."""
        (found,) = (row for row in self.table(start) if where.items() <= row.items())
        return found

    def says(self, words: str) -> bool:
        """Return whether a text of the page has these words."""
        return any(words in text for texts in self.text.values() for text in texts)


def page(tmp_path: Path, *folders: Path, title: str | None = None) -> Reader:
    return Reader(write_report(folders, tmp_path / "report.html", title).read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def shown(report_runs: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Reader]:
    """Pages of the shared runs by their names, each made once."""
    folder = tmp_path_factory.mktemp("pages")

    @cache
    def show(*names: str) -> Reader:
        inside = folder / "-".join(names)
        inside.mkdir()
        return page(inside, *(getattr(report_runs, name) for name in names))

    return show


def copy(folder: Path, tmp_path: Path) -> Path:
    return shutil.copytree(folder, tmp_path / "run")


def change(file: Path, **values: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def test_the_page_needs_nothing_but_itself(tmp_path: Path, shown: Any) -> None:
    found = shown("plain", "sweep", "wide")
    assert {tag for tag, _ in found.tags} & {"script", "link", "img", "iframe", "image", "object"} == set()
    assert [each for each in found.references if not each.startswith("#")] == []
    assert {each[1:] for each in found.references} <= set(found.ids)
    assert len(found.ids) == len(set(found.ids))
    text = found.source
    assert set(re.findall(r"https?://[^\"' <]*", text)) == {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }
    assert "@import" not in text


def test_the_same_folders_give_the_same_bytes(tmp_path: Path, report_runs: Any, shown: Any) -> None:
    again = write_report([report_runs.plain, report_runs.other], tmp_path / "again.html")
    assert again.read_text(encoding="utf-8") == shown("plain", "other").source


def test_a_run_has_every_section_and_its_numbers(report_runs: Any, shown: Any) -> None:
    found = shown("plain")
    assert found.text["h3"] == [
        "Throughput at the SLA anchors",
        "Frontier",
        "Latency and goodput",
        "Verify budget against load",
        "Step cost and the batch sizes chosen",
        "Waste: what the executed tokens were",
        "Figure: threshold",
        "Configuration and provenance",
    ]
    points = pl.read_parquet(report_runs.plain / "points.parquet")
    mine = points.filter(pl.col("arm") == "async", pl.col("load") == 8)
    row = next(
        each for each in found.table("Interactivity and") if (each["arm"], each["concurrency"]) == ("async", "8")
    )
    assert row["tok/s/GPU"].split(" ±")[0] == f"{mine['throughput_tok_s_gpu'].mean():,.0f}"
    assert row["tok/s/user"].split(" ±")[0] == f"{mine['interactivity_tok_s_user'].mean():,.0f}"
    budget = found.row("Verify budget, tokens", arm="async")
    assert budget["8"] == f"{mine['verify_budget'].mean():.2f}"
    late = found.row("Latencies", arm="async", concurrency="8")
    assert float(late["goodput, requests/s"]) == pytest.approx(mine["goodput_req_s"].mean(), rel=5e-3)
    assert found.says("Goodput: requests that meet TPOT at most 0.01 s.")


def test_frontier_marks_are_those_of_the_summary(report_runs: Any, shown: Any) -> None:
    found = shown("plain")
    told = {
        (each["arm"], each["concurrency"]) for each in found.table("Interactivity and") if each["frontier"] == "yes"
    }
    summary = json.loads((report_runs.plain / "summary.json").read_text())
    assert told == {(each["arm"], f"{each['load']:g}") for each in summary["frontier"]}


def test_provenance_and_configuration_are_complete(report_runs: Any, shown: Any) -> None:
    found = shown("plain")
    rows = {each["entry"]: each["value"] for each in found.table("How these results")}
    manifest = json.loads((report_runs.plain / "manifest.json").read_text())
    assert rows["specsched"] == manifest["specsched"]
    assert manifest["files"]["hardware.profile"]["sha256"] in rows["hardware.profile"]
    assert rows["hash of the code: source"] == manifest["identity"]["code"]["source"]
    assert found.text["pre"] == [(report_runs.plain / "config.yaml").read_text(encoding="utf-8")]


def test_no_metric_is_negative_and_shares_are_at_most_1(report_runs: Any) -> None:
    """What `tune` refuses as a bound that no candidate can keep."""
    points = pl.read_parquet(report_runs.plain / "points.parquet")
    for name in METRICS:
        values = points[name].cast(pl.Float64).drop_nulls().to_numpy()
        assert (values >= 0).all(), name
        assert name not in SHARES or (values <= 1).all(), name
    assert points["regret"].max() > 0.05


def test_waste_is_what_the_counts_say() -> None:
    numbers = {"verify_budget": 4.0, "accepted_per_verified": 0.25, "padded_fraction": 0.2}
    plain = {"verify_budget": 1.0, "accepted_per_verified": None, "padded_fraction": 0.0}
    points = pl.DataFrame(
        [{"arm": "a", "load": 2.0, "seed": 0, **numbers}, {"arm": "b", "load": 2.0, "seed": 0, **plain}],
    )
    shares = waste_table(points, ["a", "b"]).drop("arm", "load").to_numpy()
    np.testing.assert_allclose(shares, [[0.2, 0.15, 0.45, 0.2], [1.0, 0.0, 0.0, 0.0]], atol=1e-15)


def test_waste_agrees_with_the_steps(report_runs: Any) -> None:
    run = read_run(report_runs.plain)
    shares = waste_table(run.points, ["static-3"]).filter(pl.col("load") == 8).row(0, named=True)
    files = sorted((report_runs.plain / "steps").glob("static-3-8-*.parquet"))
    sums = [
        pl.read_parquet(file).select(pl.sum("rows", "accepted", "verified", "executed_tokens")).row(0) for file in files
    ]
    rows, accepted, verified, executed = np.array(sums, float).mean(axis=0)
    # The steps of the ramps lie outside the window of the metrics, which is why this is no equality.
    assert shares["anchors"] == pytest.approx(rows / executed, abs=0.03)
    assert shares["accepted"] == pytest.approx(accepted / executed, abs=0.03)
    assert shares["rejected"] == pytest.approx((verified - accepted) / executed, abs=0.03)


def test_sizes_are_counted_from_the_records(tmp_path: Path, report_runs: Any) -> None:
    points = pl.read_parquet(report_runs.plain / "points.parquet")
    chosen = chosen_sizes(report_runs.plain, points, ["static-3", "async"])
    assert chosen is not None
    files = sorted((report_runs.plain / "steps").glob("async-8-*.parquet"))
    steps = pl.concat([pl.read_parquet(file) for file in files])
    mine = chosen.executed.filter(pl.col("arm") == "async", pl.col("load") == 8)
    assert dict(mine.select("executed", "steps").rows()) == dict(
        zip(*np.unique(steps["executed_tokens"], return_counts=True), strict=True)
    )
    asked = chosen.asked.filter(pl.col("arm") == "async", pl.col("load") == 8).row(0, named=True)
    assert (asked["steps"], asked["p50"]) == (len(steps), np.percentile(steps["batch_tokens"], 50))
    less = copy(report_runs.plain, tmp_path)
    next((less / "steps").glob("async-8-*.parquet")).unlink()
    assert chosen_sizes(less, points, ["static-3", "async"]) is None


def test_sizes_of_a_combination_are_its_own(report_runs: Any) -> None:
    run = read_run(report_runs.sweep)
    plan = load_plan(report_runs.sweep / "config.yaml")
    for (cell, points), again in zip(cells_of(run.points, run.plan), plan.cells, strict=True):
        chosen = chosen_sizes(report_runs.sweep, points, ["async"], keyed=True)
        assert chosen is not None
        steps = [run_point(again.experiment, "async", 8.0, seed).steps for seed in again.experiment.seeds]
        whole = pl.concat([each for each in steps if each is not None])
        mine = chosen.executed.filter(pl.col("load") == 8)
        counts = zip(*np.unique(whole["executed_tokens"], return_counts=True), strict=True)
        assert dict(mine.select("executed", "steps").rows()) == dict(counts), cell.name


def test_a_run_without_records_says_so(shown: Any) -> None:
    found = shown("other")
    assert found.says("Which batch sizes were chosen is not known")
    largest = next(
        each for each in found.table("Largest batch") if (each["arm"], each["concurrency"]) == ("static-3", "8")
    )
    assert largest["largest batch, tokens"] == "32"
    assert not shown("plain").says("Which batch sizes were chosen is not known")


def test_a_profile_that_has_changed_is_not_drawn(tmp_path: Path, report_runs: Any) -> None:
    folder = copy(report_runs.plain, tmp_path)
    files = json.loads((folder / "manifest.json").read_text())["files"]
    files["hardware.profile"]["sha256"] = "0" * 64
    change(folder / "manifest.json", files=files)
    assert page(tmp_path, folder).says("is no longer the one that the run used")


def test_a_profile_that_has_gone_is_not_drawn(tmp_path: Path, report_runs: Any) -> None:
    experiment = load_plan(report_runs.plain / "config.yaml").base
    hardware = experiment.hardware.model_copy(update={"profile": str(tmp_path / "gone.json")})
    found = cost_of(experiment.model_copy(update={"hardware": hardware}), None)
    assert isinstance(found, str)
    assert found.startswith("No step-cost curve: ")
    assert "gone.json" in found


def test_a_policy_that_has_gone_is_no_obstacle(tmp_path: Path, report_runs: Any) -> None:
    folder = copy(report_runs.plain, tmp_path)
    config = (folder / "config.yaml").read_text(encoding="utf-8")
    assert "kind: async_topk" in config
    text = re.sub(r"kind: async_topk", "kind: python\n      object: gone_module:Gone", config)
    (folder / "config.yaml").write_text(text, encoding="utf-8")
    assert page(tmp_path, folder).says("Waste")


def test_a_sweep_has_its_effects_and_every_combination(report_runs: Any, shown: Any) -> None:
    found = shown("sweep")
    summary = json.loads((report_runs.sweep / "summary.json").read_text())
    rows = found.table("Change of throughput_tok_s_gpu")
    told = [f"{100 * (row['ratio'] - 1):+.2f} %" for row in summary["effects"][0]["rows"]]
    assert [each["change"] for each in rows] == told
    assert len(rows) == 4
    assert len(found.table("Mean over seeds")) == 8
    assert "Combination 2: arms.async.policy.lag 2" in found.text["h3"]
    assert found.text["h4"].count("Waste: what the executed tokens were") == 2


def test_a_large_sweep_has_tables_and_says_what_is_left_out(shown: Any) -> None:
    found = shown("wide")
    assert found.says("6 combinations; at most 4 are shown here one by one")
    assert len(found.table("Mean over seeds")) == 12
    assert found.text["h3"].count("Step cost and the batch sizes chosen") == 1


def test_other_figures_come_with_their_values(tmp_path: Path, report_runs: Any) -> None:
    folder = copy(report_runs.plain, tmp_path)
    config = (folder / "config.yaml").read_text(encoding="utf-8")
    (folder / "config.yaml").write_text(config.replace("- threshold", "- transient"), encoding="utf-8")
    assert page(tmp_path, folder).says("The run folder has no transient.svg; --resume draws it.")
    shutil.copy(folder / "threshold.svg", folder / "transient.svg")
    pl.DataFrame({"mean": [1.25, None], "arm": ["a", "b"]}).write_parquet(folder / "transient.parquet")
    found = page(tmp_path, folder)
    assert found.table("Values of the figure transient") == [{"arm": "a", "mean": "1.25"}, {"arm": "b", "mean": "-"}]
    assert found.ids.count("r1-transient-figure_1") == 1


def test_the_threshold_figure_has_its_values(shown: Any, report_runs: Any) -> None:
    points = pl.read_parquet(report_runs.plain / "points.parquet").filter(arm="threshold-40")
    row = shown("plain").row("Tokens per request and step", threshold="0.4")
    assert row["accepted"] == f"{points['accepted_length'].mean():.2f}"


def test_long_tables_say_what_they_leave_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_html, "MOST_ROWS", 2)
    made = report_html.table([("a", ["1", "2", "3"])], "numbers")
    assert "1 more rows are left out here" in made
    assert "<td" in made
    assert made.count("<td") == 2


def test_runs_are_compared(shown: Any) -> None:
    found = shown("plain", "other")
    changed = {each["key"]: (each["plain"], each["other"]) for each in found.table("Keys with different")}
    assert changed["drafts.acceptance"] == ("0.7", "0.8")
    assert set(changed) == {"drafts.acceptance", "drafts.confidence", "output.records", "output.figures"}
    rows = {each["arm"]: each for each in found.table("other against plain")}
    assert rows["autoregressive"]["throughput_tok_s_gpu"] == "+0.00 %"
    assert rows["static-3"]["throughput_tok_s_gpu"].startswith("+")
    assert {each["run"] for each in found.table("Points of the frontiers")} == {"plain", "other"}
    assert "at 120, other" in found.table("Throughput, tok/s/GPU")[0]


def test_a_sweep_is_compared_as_it_was_run(shown: Any) -> None:
    """Defaults are written out on both sides, and a key that an axis sets has all of its values."""
    found = shown("plain", "sweep", "wide")
    changed = {each["key"]: (each["plain"], each["sweep"], each["wide"]) for each in found.table("Keys with different")}
    assert changed["arms.async.policy.lag"] == ("1", "1, 2", "1, 2")
    assert changed["hardware.noise_cv"] == ("0.0", "0.0", "0.0, 0.1, 0.2")
    assert not {"workload.mode", "workload.domains.chat", "arms.async.policy.joins", "sla.anchors"} & set(changed)


def test_ratios_are_paired_by_seed(report_runs: Any) -> None:
    first, other = read_run(report_runs.plain), read_run(report_runs.other)
    row = next(each for each in ratios(first, other) if each["arm"] == "static-3")
    name = "throughput_tok_s_gpu"
    logs = []
    for seed in range(5):
        mine = [run.points.filter(arm="static-3", seed=seed).sort("load")[name].to_numpy() for run in (first, other)]
        logs.append(np.log(mine[1] / mine[0]).mean())
    assert row[name] == pytest.approx(np.exp(np.mean(logs)), rel=1e-12)
    half = 2.7764451 * np.std(logs, ddof=1) / np.sqrt(5)  # Student's t, 4 degrees of freedom, 97.5 %
    assert np.log(row[f"{name}_interval"].high) == pytest.approx(np.mean(logs) + half, rel=1e-6)
    assert row["loads"] == 2
    assert differences([first, first]) == []


def test_runs_with_other_axes_share_no_points(shown: Any) -> None:
    found = shown("plain", "sweep", "wide")
    assert found.says("sweep has no point (arm, load, seed, axes) in common with plain.")
    assert found.says("Runs with axes have no frontier of their own")


def test_names_are_text(tmp_path: Path, report_runs: Any) -> None:
    folder = shutil.copytree(report_runs.plain, tmp_path / "<script>alert('1') & \"2\"")
    found = page(tmp_path, folder)
    assert "script" not in {tag for tag, _ in found.tags}
    assert found.text["h1"] == [f"specsched: {folder.name}"]
    assert page(tmp_path, folder, title="<i>x").text["h1"] == ["<i>x"]


def test_template_and_elements_escape_alike() -> None:
    """Two spellings of a quote on one page would mean that one of them went another way."""
    said = '<i>"it\'s" & so on'
    made = report_html.page(said, report_html.tag("p", said, class_=said), report_html.tag("p", report_html.text(said)))
    assert made.count("&lt;i&gt;&quot;it&#x27;s&quot; &amp; so on") == 4
    assert "<i>" not in made


def test_folders_of_one_name_are_told_apart(tmp_path: Path, report_runs: Any) -> None:
    found = page(tmp_path, report_runs.plain, copy(report_runs.plain, tmp_path).rename(tmp_path / "plain"))
    assert [each["name"] for each in found.table("Runs on this page")] == [
        str(report_runs.plain),
        str(tmp_path / "plain"),
    ]


def test_a_tuning_has_its_verdict_and_figures(report_runs: Any, shown: Any) -> None:
    summary = json.loads((report_runs.tuned / "summary.json").read_bytes())
    best, found = summary["best"], shown("tuned")
    assert found.says(summary["verdict"])
    parameters = {row["parameter"]: row for row in found.table(f"Trial {best['trial']}, chosen on the tuning seeds")}
    assert parameters["arms.static-1.policy.k"]["tuned"] == str(best["parameters"]["arms.static-1.policy.k"])
    assert parameters["sweep.load"]["default"] == "4"
    ratios = [best["testing"]["objectives"][0]["ratio"], best["testing_at_same_load"][0]["ratio"]]
    shown_ratios = [
        found.table(title)[0]["change"] for title in ("On 5 testing seeds", "The same, against the default")
    ]
    assert shown_ratios == [f"{100 * (ratio - 1):+.2f} %" for ratio in ratios]
    assert ratios[0] != ratios[1]
    constraints = [row["constraint"] for row in found.table("Constraints on the testing seeds")]
    assert constraints == ["interactivity_tok_s_user >= 150", "tpot_p99_s <= 0.02"]
    study = {row["entry"]: row["value"] for row in found.table("What was searched for")}
    assert study["constraints"] == ", ".join(constraints)
    failed = summary["trials"]["failed"]
    assert 0 < failed < 12
    assert f"{failed} failed" in study["trials"]
    trials = found.table("Every trial")
    assert len(trials) == 32
    assert sum("were all admitted at once" in row["failure"] for row in trials) == failed
    (overview,) = found.table("Runs on this page")
    assert (overview["size"], overview["seeds"], overview["load"]) == ("32 trials", "1 + 5 held out", "closed, 4")
    assert (report_runs.tuned / "best.yaml").read_text() in found.text["pre"]
    assert {"History", "Importance", "Slices"} <= set(found.text["h3"])


def test_a_study_of_several_objectives_has_its_set(report_runs: Any, shown: Any) -> None:
    front, found = json.loads((report_runs.pareto / "summary.json").read_bytes())["front"], shown("pareto")
    rows = found.table(f"{len(front)} candidates that no other beats, on the tuning seeds; the best in throughput_tok")
    assert [row["trial"] for row in rows] == [str(each["trial"]) for each in front]
    assert len(front) > 1
    assert found.says("No importance of parameters: too few complete trials")
    assert "Pareto" in found.text["h3"]


def test_a_tuning_that_found_nothing_says_so(shown: Any) -> None:
    found = shown("nothing")
    assert found.says("No candidate keeps every constraint: nothing was chosen.")
    assert found.says("No figures: no trial keeps every constraint.")
    assert found.says("The nearest to interactivity_tok_s_user >= 5000 misses it by ")


def test_an_empty_figure_is_a_sentence() -> None:
    figure = Figure()
    figure.subplots().text(0.5, 0.5, "nothing")
    assert inline_figure(figure, "x", "the caption") == '<p class="note">Nothing to draw: the caption</p>'


UNFINISHED = {
    "running": "is still running, or was killed",
    "interrupted": "was stopped",
    "failed": "has failed",
    "incomplete": "lacks points",
    "dancing": "has the status 'dancing'",
}


@pytest.mark.parametrize("status", UNFINISHED)
def test_an_unfinished_run_is_refused(tmp_path: Path, report_runs: Any, status: str) -> None:
    folder = copy(report_runs.plain, tmp_path)
    change(folder / "manifest.json", status=status)
    with pytest.raises(ConfigError, match="--resume") as error:
        write_report([folder], tmp_path / "report.html")
    assert UNFINISHED[status] in str(error.value)
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize("name", ["manifest.json", "summary.json", "config.yaml", "points.parquet", "cells.json"])
@pytest.mark.parametrize("damage", ["missing", "cut"])
def test_a_damaged_folder_is_refused(tmp_path: Path, report_runs: Any, name: str, damage: str) -> None:
    folder = copy(report_runs.sweep, tmp_path)
    file = folder / name
    content = file.read_bytes()
    file.unlink()
    if damage == "cut":
        file.write_bytes(content[: len(content) // 2] + b"\n - }")
    with pytest.raises(ConfigError, match=re.escape(name)):
        write_report([folder], tmp_path / "report.html")


def test_what_is_no_run_is_refused(tmp_path: Path, report_runs: Any) -> None:
    output = tmp_path / "report.html"
    (tmp_path / "empty").mkdir()
    wrong = {
        tmp_path / "nowhere": "no such folder",
        report_runs.plain / "points.parquet": "is a file",
        tmp_path / "empty": "no run folder; name what -o of `specsched run` named",
        report_runs.plain.parent: f"the runs in it are {report_runs.nothing}, {report_runs.other}",
    }
    for folder, message in wrong.items():
        with pytest.raises(ConfigError, match=re.escape(message)):
            write_report([folder], output)
    with pytest.raises(ConfigError, match="given twice"):
        write_report([report_runs.plain, report_runs.plain / "steps" / ".."], output)


def test_only_a_report_is_written_over(tmp_path: Path, report_runs: Any) -> None:
    kept = tmp_path / "config.yaml"
    kept.write_text("precious")
    with pytest.raises(ConfigError, match=r"exists and is no report; name another file with -o"):
        write_report([report_runs.plain], kept)
    assert kept.read_text() == "precious"
    with pytest.raises(ConfigError, match="is a folder; name a file"):
        write_report([report_runs.plain], tmp_path)
    output = write_report([report_runs.plain], tmp_path / "deep" / "report.html")
    assert write_report([report_runs.other], output) == output
    assert Reader(output.read_text(encoding="utf-8")).text["h1"] == ["specsched: other"]


def test_the_command_names_the_file(tmp_path: Path, report_runs: Any) -> None:
    import typer

    app = typer.Typer()
    app.command()(command)
    done = CliRunner().invoke(app, [str(report_runs.plain), "-o", str(tmp_path / "x.html"), "--title", "Mine"])
    assert done.exit_code == 0, done.output
    assert done.output == f"report: {tmp_path / 'x.html'}\n"
    assert "<h1>Mine</h1>" in (tmp_path / "x.html").read_text(encoding="utf-8")
