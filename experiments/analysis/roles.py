"""What an arm is in tables and figures: contender, bound, biased, one end of a cost band, reference.

The two references are found by name: the MTP-1 arm's contains ``mtp``, a static arm's contains ``static``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl


@dataclass(frozen=True)
class Roles:
    """The arms of a points table, in the order they are shown.

    Attributes:
        arms: names of the arms that have points.
        bounds: arms that know the outcomes; drawn and tabled as bounds, never on the frontier.
        biased: arms whose policy is declared unsafe or failed the stopping-set rule (and is no bound); never on the
            frontier either.
        rule_checked: arms whose policy declares nothing about losslessness and passed that rule on random histories.
        bands: low and high end of an arm's draft cost band, by arm.
    """

    arms: tuple[str, ...]
    bounds: frozenset[str] = frozenset()
    biased: frozenset[str] = frozenset()
    rule_checked: frozenset[str] = frozenset()
    bands: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def band_ends(self) -> frozenset[str]:
        """Arms that only say what another arm would be at a cheaper or dearer draft."""
        return frozenset(end for ends in self.bands.values() for end in ends)

    @property
    def contenders(self) -> tuple[str, ...]:
        """Arms that may stand on the frontier."""
        return tuple(arm for arm in self.arms if arm not in self.bounds | self.biased | self.band_ends)

    @property
    def mtp(self) -> str | None:
        """The MTP-1 arm: the one called ``mtp-1``, else the first contender with ``mtp`` in its name."""
        named = [arm for arm in self.contenders if "mtp" in arm.lower()]
        return "mtp-1" if "mtp-1" in named else next(iter(named), None)

    @property
    def statics(self) -> tuple[str, ...]:
        """Contenders that verify a fixed number of drafts, without the MTP-1 arm."""
        return tuple(arm for arm in self.contenders if "static" in arm.lower() and arm != self.mtp)

    def label(self, arm: str) -> str:
        """Return the arm's name with what a reader must know about it."""
        if arm in self.bounds:
            return f"{arm} (bound)"
        if arm in self.biased:
            return f"{arm} (biased)"
        return f"{arm} (rule-checked)" if arm in self.rule_checked else arm


def roles(points: pl.DataFrame, order: Sequence[str] = (), bands: Mapping[str, tuple[str, str]] | None = None) -> Roles:
    """Return the roles of the arms of a points table.

    Args:
        points: needs ``arm``, ``bound`` (bool) and ``safety`` (safe, unsafe or unknown).
        order: arm names in the order to show; arms that are not in it follow, sorted.
        bands: names of the low and high ends by arm; ends without points are left out.
    """
    present = set(points["arm"].to_list())
    arms = tuple(arm for arm in order if arm in present)
    arms += tuple(sorted(present - set(arms)))
    bounds = _arms(points, pl.col("bound").cast(pl.Boolean))
    kept = {arm: ends for arm, ends in (bands or {}).items() if {arm, *ends} <= present}
    unsafe = _arms(points, pl.col("safety") == "unsafe") - bounds
    return Roles(arms, bounds, unsafe, _arms(points, pl.col("safety") == "unknown") - bounds - unsafe, kept)


def _arms(points: pl.DataFrame, which: pl.Expr) -> frozenset[str]:
    return frozenset(points.filter(which)["arm"].to_list())
