"""Experiments: YAML files and their schema, the ``specsched`` command, sweeps, summaries and figures.

The public names are imported when they are first asked for: every worker and ``specsched --help`` import this module,
and neither draws or tunes.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = [
    "ConfigError",
    "Experiment",
    "ExperimentWarning",
    "IncompleteError",
    "Interrupted",
    "PointError",
    "Run",
    "__version__",
    "load_experiment",
    "read_run",
    "run_experiment",
    "shipped_experiments",
]

if TYPE_CHECKING:
    from .config.errors import ConfigError, ExperimentWarning, PointError
    from .config.given import shipped_experiments
    from .config.resolve import load_experiment
    from .config.schema import Experiment
    from .runs import IncompleteError, run_experiment
    from .sweep.finished import Run, read_run
    from .sweep.signals import Interrupted

    __version__: str
    """Version of the package."""
else:
    _HOMES = {
        "ConfigError": "config.errors",
        "Experiment": "config.schema",
        "ExperimentWarning": "config.errors",
        "IncompleteError": "runs",
        "Interrupted": "sweep.signals",
        "PointError": "config.errors",
        "Run": "sweep.finished",
        "load_experiment": "config.resolve",
        "read_run": "sweep.finished",
        "run_experiment": "runs",
        "shipped_experiments": "config.given",
    }

    def __getattr__(name: str) -> Any:
        """Import a public name, or say that there is none; hidden from type checkers, which would believe any name."""
        if name == "__version__":
            from importlib.metadata import version

            return version("specsched")
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f".{_HOMES[name]}", __name__), name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
