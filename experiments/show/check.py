"""What ``specsched check`` prints: what was covered, or the counterexample as tables that can be redone by hand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from ...policies.lossless.checker import Report
from ...policies.lossless.explain_text import Grid, arithmetic, law_grid, law_note, law_title, path_grid, path_notes
from ...policies.lossless.explanation import Explanation
from ...policies.lossless.rules import RuleReport

Cells = list[str]

_BIASED = {
    "marginal": "a row's own law is not the target's",
    "joint": "every row's own law is the target's, their joint law is not: rows are coupled",
}


_BY_PAIR = (
    "The row-wise rule is broken by the two batches below, after a history that the little worlds do not reach; a "
    "drafter whose confidences differ so makes the row's law wrong (docs/lossless.md)."
)

_COLUMNS = (
    "verifying: worlds with a draft verified on some path. varying budget: the same batch verified more or less.",
    "verified and refused: some draft was one on one path and the other on another. A pass without these says little.",
    "In histories batches change: the budget varied from step to step; a step verified some drafts and refused others.",
)


_OWN_TOKEN = "The rules assume confidences that do not know their own draft, so here they prove nothing."


def print_report(report: Report, explanation: Explanation | None, console: Console, own_token: bool = False) -> None:
    """Print a report; with a counterexample, that comes first.

    Args:
        report: what the check found.
        explanation: the counterexample, written out, if there is one.
        console: where to.
        own_token: whether confidences knew the draft they belong to, which the rules take to be impossible.
    """
    rules = [*_rule_lines(report.rules, brief=explanation is not None), *([_OWN_TOKEN] if own_token else [])]
    if explanation is not None and report.counterexample is not None:
        _say([f"{report.policy} changes the output: {_BIASED[explanation.verdict]}."], console)
        _say([_how_found(report, report.counterexample.examples), ""], console)
        _print_explanation(explanation, console)
        _say(rules, console)
        return
    if report.verdict == "marginal":
        _say([f"{report.policy} changes the output: {_BIASED['marginal']}. {_BY_PAIR}", ""], console)
    _say([*rules, ""], console)
    console.print(_table("What was covered", _coverage(report)))
    _say([*_COLUMNS, "", _closing(report)], console)


def _how_found(report: Report, examples: int) -> str:
    if report.counterexample is not None and report.counterexample.by_rule:
        return (
            f"None of {report.worlds:,} enumerated worlds shows it; this one is built from the broken row-wise rule "
            "below. All probabilities are fractions."
        )
    return f"Found in world {examples:,} of those tried, then shrunk; all probabilities are recomputed in fractions."


def _print_explanation(explanation: Explanation, console: Console) -> None:
    _say(["The world", *(f"  {line}" for line in explanation.world_lines), ""], console)
    console.print(_table("Its paths", path_grid(explanation)))
    _say([*path_notes(explanation), ""], console)
    for law in explanation.laws:
        console.print(_table(law_title(explanation, law), law_grid(law)))
        _say([law_note(law), ""], console)
    _say(["What goes wrong", f"  {explanation.reason}", f"  {arithmetic(explanation)}", ""], console)


def _rule_lines(rules: RuleReport, brief: bool) -> Iterator[str]:
    """Yield the verdicts of both rules."""
    if not rules.applicable:
        yield "Rules: not applicable, the scheduler knows the outcomes."
        return
    for name, violation in (("row-wise", rules.row_wise), ("stopping set", rules.stopping_set)):
        if violation is None:
            yield f"Rule `{name}`: kept in {rules.scripts:,} random histories"
        else:
            yield f"Rule `{name}`: broken{f' at {violation.brief}' if brief else f'. {violation}'}"


def _coverage(report: Report) -> Grid:
    """Return what was covered by size; histories of the rules come last."""
    heads = ["rows", "vocabulary", "gamma", "tokens", "method", "worlds"]
    heads += ["verifying", "varying budget", "verified and refused", "too large"]
    rows: list[Cells] = []
    for each in report.tallies:
        size = (each.rows, each.vocabulary, each.gamma, f"up to {each.tokens}", "exact law")
        counts = (each.worlds, each.admitted, each.varied, each.split, each.too_large)
        rows.append([*map(str, size), *(f"{count:,}" for count in counts)])
    if report.rules.applicable:
        rules = report.rules
        histories = f"{rules.scripts:,} histories"
        rows.append(["up to 4", "-", "up to 5", "-", "rules", histories, "-", str(rules.varied), str(rules.split), "-"])
    return heads, rows


def _closing(report: Report) -> str:
    if report.verdict == "vacuous":
        return f"vacuous: no draft was verified in any of {report.worlds:,} worlds, so there was nothing to find"
    if report.verdict == "marginal":
        return f"no enumerated world of {report.worlds:,} shows it, the broken row-wise rule does"
    met = [f"{each.rows}x{each.vocabulary}x{each.gamma}" for each in report.tallies if each.worlds]
    sizes = ", ".join(dict.fromkeys(met))
    undecided = "; undecided by rule" if report.verdict == "undecided" else ""
    return f"no counterexample in {report.worlds:,} worlds of sizes {sizes} (rows x vocabulary x gamma){undecided}"


def _table(title: str, grid: Grid) -> Table:
    heads, rows = grid
    table = Table(
        box=SIMPLE_HEAD, title=title, title_justify="left", min_width=len(title), pad_edge=False, show_edge=False
    )
    for head in heads:
        table.add_column(head)
    for row in rows:
        table.add_row(*row)
    return table


def _say(lines: Iterable[str], console: Console) -> None:
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
