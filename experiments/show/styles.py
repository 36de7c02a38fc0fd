"""Colours, markers and dashes of arms, told apart without colour vision and in print.

Colours are those of Okabe and Ito (https://jfly.uni-koeln.de/color/) without yellow, which is lost on white; static
arms share one ramp of blue, light to dark, because they are one family; markers differ throughout.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import matplotlib
import numpy as np
from matplotlib.colors import to_hex

from ..analysis.roles import Roles

BOUND = "#8c8c8c"
_BY_WORD = {"autoregressive": "#000000", "mtp": "#E69F00", "async": "#D55E00", "greedy": "#009E73", "thresh": "#CC79A7"}
_OTHERS = ("#56B4E9", "#7a5230", "#8d6fc4", *_BY_WORD.values())
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#7a5230")
"""Colours of lines that are no arms."""

MARKERS = "osD^vPX<>*ph"


@dataclass(frozen=True)
class Style:
    """How one arm is drawn."""

    colour: str
    marker: str
    dashes: str
    width: float

    @property
    def drawn(self) -> dict[str, Any]:
        """Keyword arguments of a line."""
        return {"color": self.colour, "linestyle": self.dashes, "linewidth": self.width}

    def marked(self, filled: bool = True) -> dict[str, Any]:
        """Return keyword arguments of markers, filled or hollow."""
        face = self.colour if filled else "white"
        return {
            "marker": self.marker,
            "markersize": 7 if self.marker == "*" else 5,
            "markeredgecolor": self.colour,
            "markerfacecolor": face,
        }


def styles(cast: Roles) -> dict[str, Style]:
    """Return a style for every arm but band ends: a colour by a word in its name, else a free one; its own marker."""
    colours = _colours(cast)
    shown = [arm for arm in cast.arms if arm not in cast.band_ends]
    return {
        arm: Style(colours[arm], marker, _dashes(cast, arm), 2.2 if "async" in arm.lower() else 1.3)
        for arm, marker in zip(shown, cycle(MARKERS), strict=False)
    }


def _dashes(cast: Roles, arm: str) -> str:
    if arm in cast.bounds:
        return "--"
    return "-." if arm in cast.biased else "-"


def _colours(cast: Roles) -> dict[str, str]:
    colours = dict.fromkeys(cast.bounds, BOUND) | dict(zip(cast.statics, _blues(len(cast.statics)), strict=True))
    for word, colour in _BY_WORD.items():
        first = next((arm for arm in cast.contenders if word in arm.lower() and arm not in colours), None)
        if first is not None:
            colours[first] = colour
    free = _free(set(colours.values()))
    return {arm: colours[arm] if arm in colours else next(free) for arm in cast.arms}


def _blues(count: int) -> list[str]:
    return [to_hex(colour) for colour in matplotlib.colormaps["Blues"](np.linspace(0.45, 1.0, count))]


def _free(taken: set[str]) -> Iterator[str]:
    """Yield colours that are not taken, then all of them over and over: markers tell those apart."""
    yield from (colour for colour in _OTHERS if colour not in taken)
    yield from cycle(_OTHERS)
