"""Pieces of a report page. Text is escaped on its way in; what is already HTML is `Markup`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

Column = tuple[str, Sequence[str]]

MOST_ROWS = 1000
"""Rows of a table on the page."""

_BRIEF = 28
"""Characters of a cell that is never broken over lines."""

MARK = Markup('<meta name="generator" content="specsched report">')
"""What tells a report from other files."""


def text(part: str) -> Markup:
    """Return a piece of HTML: text escaped, HTML as it is.

    Quotes become ``&quot;`` and ``&#x27;``, as `html.escape` of the standard library writes them; `markupsafe.escape`
    writes ``&#34;`` and ``&#39;``. Templates escape with this one too, so that a page has one spelling.
    """
    return part if isinstance(part, Markup) else Markup(escape(part))


_TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "data"),
    autoescape=True,
    finalize=text,
    keep_trailing_newline=True,
    undefined=StrictUndefined,
)


def join(parts: Iterable[str]) -> Markup:
    """Return pieces one after the other, a line each; plain text is escaped."""
    return Markup("\n").join(text(part) for part in parts if part)


def tag(name: str, *parts: str, **attributes: str) -> Markup:
    """Return an element around its parts; ``class_`` is the attribute ``class``, ``aria_label`` is ``aria-label``."""
    given = "".join(f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"' for key, value in attributes.items())
    return Markup(f"<{name}{given}>{''.join(text(part) for part in parts)}</{name}>")


def page(title: str, *parts: str) -> Markup:
    """Return the whole document, its style inside."""
    return Markup(_TEMPLATES.get_template("page.html").render(title=title, mark=MARK, body=join(parts)))


def section(title: str, *parts: str, level: int = 2, anchor: str | None = None) -> Markup:
    """Return a heading with what belongs to it."""
    marked = {} if anchor is None else {"id": anchor}
    return tag("section", tag(f"h{level}", title), "\n", join(parts), **marked)


def notes(lines: Iterable[str]) -> Markup:
    """Return lines of explanation, a paragraph each."""
    return join(tag("p", line, class_="note") for line in lines)


def table(columns: Sequence[Column], caption: str, words: int = 1) -> Markup:
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


def _breakable(name: str) -> Markup:
    """Return a key path or a column's name that may be broken after its dots and underscores."""
    return Markup(re.sub(r"([._])(?=\w)", r"\1<wbr>", escape(name)))


def _kind(cells: Sequence[str]) -> str:
    return "word brief" if max(map(len, cells), default=0) <= _BRIEF else "word"


def beside(figure: str, *values: str) -> Markup:
    """Return a figure with its values beside it, or below where the screen is narrow."""
    return tag("div", tag("div", figure), "\n", tag("div", join(values)), class_="pair")


def preformatted(content: str, label: str) -> Markup:
    """Return a text as it is."""
    return tag("pre", content, tabindex="0", role="region", aria_label=label)


def link(words: str, anchor: str) -> Markup:
    """Return a link to a place of the page."""
    return tag("a", words, href=f"#{anchor}")
