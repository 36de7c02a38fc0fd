"""Figures inside a page: one SVG each, without scripts, links, metadata or identifiers that could meet."""

from __future__ import annotations

import io
import re

import matplotlib
from markupsafe import Markup
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .html import tag

MARK = "mark-"
"""How the identifiers of what shows data begin, after the figure's prefix."""

_LEFT_OUT = re.compile(r"<!--.*?-->|<metadata>.*?</metadata>\s*|<\?xml.*?\?>|<!DOCTYPE.*?>\s*", re.DOTALL)
_SIZE = re.compile(r'viewBox="0 0 ([\d.]+) ')
_WIDE = 560.0
"""Points from which on a figure takes the whole width of the page."""

_NAMES = re.compile(r'(\bid="|\bhref="#|url\(#)')


def inline_figure(figure: Figure, prefix: str, caption: str) -> Markup:
    """Return a figure with its caption, or a line that says that there is nothing to draw.

    Args:
        figure: what is drawn; its data get identifiers that begin with `MARK`.
        prefix: a word that no other figure of the page has.
        caption: what it shows.
    """
    if not name_marks(figure):
        return tag("p", f"Nothing to draw: {caption}", class_="note")
    text = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "specsched", "svg.fonttype": "path"}):
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    return _framed(text.getvalue(), prefix, caption)


def inline_file(text: str, prefix: str, caption: str) -> Markup:
    """Return a figure that a run has drawn, from the text of its SVG file."""
    return _framed(text, prefix, caption)


def name_marks(figure: Figure) -> int:
    """Give everything that shows data an identifier; returns how much there is (ticks and grids do not count)."""
    marks = [artist for axes in figure.axes for artist in _data(axes)]
    for number, artist in enumerate(marks):
        artist.set_gid(f"{MARK}{number}")
    return len(marks)


def reflow(figure: Figure, columns: int, width: float, height: float) -> Figure:
    """Set the panels of a figure in so many columns and its legend below, so that it can be read in a narrow page.

    Args:
        figure: as the run's figures are drawn, panels in one row.
        columns: panels side by side.
        width: of the whole, inches.
        height: of a row of panels, inches.
    """
    count = 1 + max(_place(axes) for axes in figure.axes)
    rows = -(-count // columns)
    grid = figure.add_gridspec(rows, min(columns, count))
    for axes in figure.axes:
        row, column = divmod(_place(axes), columns)
        axes.set_subplotspec(grid[row, column])
        if column == 0 and axes.yaxis.get_ticks_position() != "right":
            axes.tick_params(labelleft=True)
    figure.set_size_inches(width, height * rows + _legend_below(figure, width))
    return figure


def _legend_below(figure: Figure, width: float) -> float:
    """Move legends beside the axes below them; returns the inches they may take."""
    legends = [legend for axes in figure.axes if (legend := axes.get_legend()) is not None]
    for legend in legends:
        handles, labels = legend.legend_handles, [text.get_text() for text in legend.get_texts()]
        shown = [handle for handle in handles if handle is not None]
        legend.remove()
        across = max(1, int(width / (0.5 + 0.055 * max(map(len, labels), default=1))))
        figure.legend(shown, labels, loc="outside lower center", ncols=across, frameon=False, fontsize=9)
        return 0.22 * -(-len(labels) // across)
    return 0.0


def _place(axes: Axes) -> int:
    place = axes.get_subplotspec()
    return 0 if place is None else place.num1


def _data(axes: Axes) -> list[Artist]:
    return [*axes.lines, *axes.collections, *axes.patches, *axes.images]


def _framed(text: str, prefix: str, caption: str) -> Markup:
    bare = _LEFT_OUT.sub("", text)
    named = _NAMES.sub(rf"\g<1>{prefix}-", bare[bare.index("<svg") :])
    wide = (size := _SIZE.search(named)) is not None and float(size[1]) > _WIDE
    label = tag("figcaption", caption, id=f"{prefix}-caption")
    drawn = named.replace("<svg ", f'<svg role="img" aria-labelledby="{prefix}-caption" ', 1)
    return tag("figure", tag("div", Markup(drawn), class_="drawing wide" if wide else "drawing", tabindex="0"), label)
