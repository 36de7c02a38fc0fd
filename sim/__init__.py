"""The simulator: requests, drafts, step costs and the step loop; tables out."""

from .cost import PlannedStep, StepCost, StepTime
from .draft_model import text_uniforms
from .drafts import DraftError, DraftModel, make_draft_model
from .engine import run
from .metrics import Sla, point_metrics
from .profile import (
    FlatProfileWarning,
    Profile,
    ProfileError,
    dump_profile,
    load_profile,
    profile_from_samples,
    profile_names,
)
from .requests import Requests, SimulationError
from .scenario import Prefill, Result, Scenario

__all__ = [
    "DraftError",
    "DraftModel",
    "FlatProfileWarning",
    "PlannedStep",
    "Prefill",
    "Profile",
    "ProfileError",
    "Requests",
    "Result",
    "Scenario",
    "SimulationError",
    "Sla",
    "StepCost",
    "StepTime",
    "dump_profile",
    "load_profile",
    "make_draft_model",
    "point_metrics",
    "profile_from_samples",
    "profile_names",
    "run",
    "text_uniforms",
]
