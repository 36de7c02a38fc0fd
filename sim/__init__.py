"""The simulator: requests, drafts, step costs and the step loop; tables out."""

from .cost import StepCost
from .drafts import DraftError, DraftModel, make_draft_model
from .engine import run
from .metrics import Sla, point_metrics
from .profile import ProfileError, load_profile, profile_names
from .requests import Requests, SimulationError
from .scenario import Prefill, Result, Scenario

__all__ = [
    "DraftError",
    "DraftModel",
    "Prefill",
    "ProfileError",
    "Requests",
    "Result",
    "Scenario",
    "SimulationError",
    "Sla",
    "StepCost",
    "load_profile",
    "make_draft_model",
    "point_metrics",
    "profile_names",
    "run",
]
