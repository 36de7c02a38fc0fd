"""Pieces of a report page. Text is escaped on its way in; what is already HTML has a type of its own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from string import Template

Column = tuple[str, Sequence[str]]

MOST_ROWS = 1000
"""Rows of a table on the page."""

_BRIEF = 28
"""Characters of a cell that is never broken over lines."""

MARK = '<meta name="generator" content="specsched report">'
"""What tells a report from other files."""

_PAGE = Template(
    f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
{MARK}
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>$title</title>
<style>
$style</style>
</head>
<body>
$body
</body>
</html>
"""
)


class Html(str):
    """A piece of HTML; every other text is escaped before it becomes one."""

    __slots__ = ()


def join(parts: Iterable[str]) -> Html:
    """Return pieces one after the other, a line each; plain text is escaped."""
    return Html("\n".join(_safe(part) for part in parts if part))


def tag(name: str, *parts: str, **attributes: str) -> Html:
    """Return an element around its parts; ``class_`` is the attribute ``class``, ``aria_label`` is ``aria-label``."""
    given = "".join(f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"' for key, value in attributes.items())
    return Html(f"<{name}{given}>{''.join(_safe(part) for part in parts)}</{name}>")


def page(title: str, *parts: str) -> Html:
    """Return the whole document, its style inside."""
    style = (Path(__file__).parent / "data" / "report.css").read_text(encoding="utf-8")
    return Html(_PAGE.substitute(title=escape(title), style=style, body=join(parts)))


def section(title: str, *parts: str, level: int = 2, anchor: str | None = None) -> Html:
    """Return a heading with what belongs to it."""
    marked = {} if anchor is None else {"id": anchor}
    return tag("section", tag(f"h{level}", title), "\n", join(parts), **marked)


def notes(lines: Iterable[str]) -> Html:
    """Return lines of explanation, a paragraph each."""
    return join(tag("p", line, class_="note") for line in lines)


def table(columns: Sequence[Column], caption: str, words: int = 1) -> Html:
    """Return columns of cells as a table that scrolls by itself where the screen is too small.

    Args:
        columns: a heading and its cells each, all of one length.
        caption: what the numbers are; also the name of the scrolled region.
        words: columns from the left that hold words; the others hold numbers and stand to the right.
    """
    rows = list(zip(*(cells for _, cells in columns), strict=True))
    kinds = [_kind(cells) if i < words else "number" for i, (_, cells) in enumerate(columns)]
    head = tag(
        "tr", *(tag("th", _breakable(name), scope="col", class_=k) for (name, _), k in zip(columns, kinds, strict=True))
    )
    body = join(
        tag("tr", *(tag("td", cell, class_=k) for cell, k in zip(row, kinds, strict=True))) for row in rows[:MOST_ROWS]
    )
    whole = tag("table", tag("caption", tag("span", caption)), tag("thead", head), "\n", tag("tbody", body))
    lost = len(rows) - MOST_ROWS
    more = [tag("p", f"{lost} more rows are left out here; the tables in the run folder have them all.", class_="note")]
    box = tag("div", whole, class_="scroll", role="region", tabindex="0", aria_label=caption)
    return join([box, *(more if lost > 0 else [])])


def _breakable(name: str) -> Html:
    """Return a key path or a column's name that may be broken after its dots and underscores."""
    return Html(re.sub(r"([._])(?=\w)", r"\1<wbr>", escape(name)))


def _kind(cells: Sequence[str]) -> str:
    return "word brief" if max(map(len, cells), default=0) <= _BRIEF else "word"


def beside(figure: str, *values: str) -> Html:
    """Return a figure with its values beside it, or below where the screen is narrow."""
    return tag("div", tag("div", figure), "\n", tag("div", join(values)), class_="pair")


def preformatted(text: str, label: str) -> Html:
    """Return a text as it is."""
    return tag("pre", text, tabindex="0", role="region", aria_label=label)


def link(text: str, anchor: str) -> Html:
    """Return a link to a place of the page."""
    return tag("a", text, href=f"#{anchor}")


def _safe(part: str) -> str:
    return part if isinstance(part, Html) else escape(part)
