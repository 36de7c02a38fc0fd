"""An explanation as plain text: what the world is, the table of its paths, the laws, and what goes wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

from .explanation import Explanation, LawTable
from .notation import letters, number, rounded
from .paths import Path, PathStep, RowStep

Grid = tuple[list[str], list[list[str]]]
"""Column heads and rows of cells."""


def explanation_lines(explanation: Explanation) -> list[str]:
    """Return an explanation line by line."""
    lines = ["The world", *(f"  {line}" for line in explanation.world_lines), ""]
    lines += ["Its paths", *_aligned(path_grid(explanation)), *(f"  {line}" for line in path_notes(explanation)), ""]
    for table in explanation.laws:
        lines += [law_title(explanation, table), *_aligned(law_grid(table)), f"  {law_note(table)}", ""]
    return [*lines, "What goes wrong", f"  {explanation.reason}", f"  {arithmetic(explanation)}"]


def path_grid(explanation: Explanation) -> Grid:
    """Return the table of paths; a path takes a line for each row of each step."""
    columns = _columns(explanation)
    rows = []
    for place, path in enumerate(explanation.paths, start=1):
        cells = [cell for step in path.steps for cell in _step_cells(step)]
        # A path takes several lines; its number and its outcome stand once, where it begins and ends.
        for cell in cells[1:]:
            cell["path"] = ""
        cells[0]["path"] = str(place)
        cells[-1]["outcome"] = " | ".join(map(letters, path.outcome))
        cells[-1]["probability"] = str(path.probability)
        rows += [[cell.get(column, "") for column in columns] for cell in cells]
    return columns, rows


def _columns(explanation: Explanation) -> list[str]:
    """Return the columns that say something here."""
    steps = [step for path in explanation.paths for step in path.steps]
    several = len(explanation.world.rows) > 1
    columns = ["path"]
    columns += ["step"] if any(step.step for step in steps) else []
    columns += ["row"] if several else []
    columns += ["coin"] if any(step.coin is not None for step in steps) else []
    columns += ["drafted", "p", "c", "a"]
    # With flat costs Theta only repeats the survivals, and no optimum is at stake.
    columns += ["Theta(0, 1, ..)"] if len(set(explanation.world.seconds)) > 1 else []
    return [*columns, "verify", "emits", "how", "p'", "outcome", "probability"]


def _step_cells(step: PathStep) -> Iterator[dict[str, str]]:
    for place, row in enumerate(step.rows):
        cells = _row_cells(row)
        if not place:
            cells["step"] = str(step.step)
            cells["Theta(0, 1, ..)"] = " ".join(map(rounded, step.theta))
            if step.coin is not None:
                cells["coin"] = f"{number(step.coin)} (p {step.coin_share})"
        yield cells


def _row_cells(row: RowStep) -> dict[str, str]:
    several = len(row.ways) > 1
    return {
        "row": str(row.row),
        "drafted": row.drafted,
        "p": str(row.probability),
        "c": " ".join(map(number, row.confidence)),
        "a": " ".join(map(rounded, row.survival)),
        "verify": str(row.verified),
        "emits": "any" if row.emitted is None else row.emitted,
        "how": " + ".join(f"{way.text} {way.probability}" if several else way.text for way in row.ways),
        "p'": str(row.share),
    }


def path_notes(explanation: Explanation) -> Iterator[str]:
    """Yield how to read the table, and what it leaves out."""
    outcome = " | ".join(explanation.accused.outcome)
    yield "p: of drafting so; p': of emitting so, given that; their product over a path is its probability."
    hidden = explanation.hidden
    at_least = "" if hidden.counted else "at least "
    if hidden.accused:
        yield f"Not shown: {at_least}{hidden.accused} more paths to {outcome}, together {hidden.probability}."
    if hidden.others:
        yield f"Not shown: {at_least}{hidden.others} paths to other outcomes."


def law_title(explanation: Explanation, table: LawTable) -> str:
    """Return whose first tokens a table is about."""
    tokens = "token" if explanation.world.tokens == 1 else f"{explanation.world.tokens} tokens"
    if len(table.rows) > 1:
        return f"First {tokens} of rows {', '.join(map(str, table.rows))} together"
    return f"First {tokens} of row {table.rows[0]}"


def law_grid(table: LawTable) -> Grid:
    """Return the outcomes of a law."""
    rows = [
        [" | ".join(line.outcome), str(line.scheduler), str(line.target), _signed(line.difference)]
        for line in table.lines
    ]
    return ["outcome", "scheduler", "target", "difference"], rows


def law_note(table: LawTable) -> str:
    """Return the distance of a law from the target's."""
    return f"total variation {table.total_variation}" + ("" if table.total_variation else ": as the target's")


def arithmetic(explanation: Explanation) -> str:
    """Return the sum that gives the accused outcome its probability."""
    accused, hidden = explanation.accused, explanation.hidden
    terms = [_product(path) for path in explanation.accused_paths]
    if hidden.accused:
        terms.append(f"{hidden.probability} (not shown)")
    # A longer sum is checked in the table, not read in a sentence.
    sums = " + ".join(terms) + " = " if len(terms) <= 8 else ""
    # One term that is the result says nothing twice.
    if sums == f"{accused.scheduler} = ":
        sums = ""
    against = "as under the target" if not accused.difference else f"instead of {accused.target}"
    return f"{' | '.join(accused.outcome)} leaves with probability {sums}{accused.scheduler} {against}."


def _product(path: Path) -> str:
    # Certain steps only lengthen a product.
    factors = [str(factor) for step in path.steps for factor in step.factors if factor != 1]
    return " * ".join(factors) or "1"


def _signed(value: Fraction) -> str:
    return f"+{value}" if value > 0 else str(value)


def _aligned(grid: Grid) -> list[str]:
    """Return a table in columns, two blanks apart."""
    heads, rows = grid
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    return ["  " + _row(cells, widths) for cells in (heads, *rows)]


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
