"""Verification-length policies, their interface, and confidence calibration."""

from .admission import admit_top_k
from .arrays import Bools, Floats, Ints
from .generation import Generation
from .interface import (
    LaggedBudget,
    LaggedView,
    Policy,
    PolicyError,
    StepCost,
    View,
)
from .registry import POLICIES, build_policy
from .totals import total

__all__ = [
    "POLICIES",
    "Bools",
    "Floats",
    "Generation",
    "Ints",
    "LaggedBudget",
    "LaggedView",
    "Policy",
    "PolicyError",
    "StepCost",
    "View",
    "admit_top_k",
    "build_policy",
    "total",
]
