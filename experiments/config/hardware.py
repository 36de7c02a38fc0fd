"""The step-cost profile that an experiment's section ``hardware`` names."""

from __future__ import annotations

from ...sim.captured import with_captured_sizes
from ...sim.profile import Profile, load_profile
from .schema import Experiment, MultiplesOf


def profile_of(experiment: Experiment) -> Profile:
    """Return the experiment's step-cost profile, with the captured graphs that it leaves in it.

    Raises:
        ProfileError: see `load_profile` and `with_captured_sizes`.
    """
    sizes = experiment.hardware.captured_sizes
    chosen = sizes.model_dump() if isinstance(sizes, MultiplesOf) else sizes
    return with_captured_sizes(load_profile(experiment.hardware.profile), chosen)
