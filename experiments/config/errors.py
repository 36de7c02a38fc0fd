"""The errors of this room; the command prints them as one line and exits 2."""

from __future__ import annotations

import sys


class ConfigError(ValueError):
    """A configuration, an override or a run folder cannot be used as it is."""


class ExperimentWarning(UserWarning):
    """An experiment can run and is probably not what is meant."""


class PointError(ValueError):
    """One point (arm, load, seed) of a sweep could not be computed; the finished ones are kept.

    Attributes:
        trace: text of the traceback when the error is not one the user is expected to make, else None.
    """

    def __init__(self, message: str, trace: str | None = None) -> None:
        super().__init__(message)
        self.trace = trace


def known_errors() -> tuple[type[Exception], ...]:
    """Return the errors whose message is all a user needs; imported only when something went wrong."""
    from ...policies.interface import PolicyError
    from ...policies.lossless.worlds import WorldError
    from ...sim.drafts import DraftError
    from ...sim.profile import ProfileError
    from ...sim.requests import SimulationError
    from ...traces import TraceError

    # The kernel room may not be installed; its errors are known once it was imported.
    common = sys.modules.get("specsched.kernels.common")
    kernels = (common.KernelError,) if common is not None else ()
    return (
        *kernels,
        ConfigError,
        TraceError,
        PolicyError,
        WorldError,
        ProfileError,
        DraftError,
        SimulationError,
        OSError,
    )
