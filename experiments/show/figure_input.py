"""What a figure of a run is drawn from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from ..analysis.roles import Roles
from ..analysis.summary import cast_of, load_name
from ..config.schema import Experiment


@dataclass(frozen=True)
class FigureInput:
    """The points of an experiment, and where its figures go.

    Attributes:
        points: the points table.
        experiment: what they are of, resolved.
        folder: where the figures go; one may leave the table that it shows beside itself.
        run: the run folder, which holds the records of the points.
        values: the values of the axes that the experiment has in a sweep, by axis.
        title: heading.
    """

    points: pl.DataFrame
    experiment: Experiment
    folder: Path
    run: Path
    values: Iterable[tuple[str, Any]] = ()
    title: str = ""

    @property
    def cast(self) -> Roles:
        """The roles of the arms."""
        return cast_of(self.points, self.experiment)

    @property
    def load(self) -> str:
        """What a load is called."""
        return load_name(self.experiment)
