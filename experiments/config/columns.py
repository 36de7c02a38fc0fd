"""What is known of the columns of ``points.parquet`` before a point is computed: names and ranges."""

from __future__ import annotations

from ...sim import metrics

SHARES = tuple(each.name for each in metrics.METRICS if each.share)
"""Metrics within 0 and 1."""

METRICS = (*(each.name for each in metrics.METRICS if not each.share), *SHARES)
"""Columns that are numbers; none is ever negative. docs/metrics.md says what they mean."""

OTHERS = ("arm", "load", "seed", "safety", "bound")
"""Columns that name a point or say what is known of its policy."""
