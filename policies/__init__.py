"""Verification-length policies, their interface, and confidence calibration."""

from .admission import admit_top_k
from .arrays import Bools, Floats, Ints
from .calibration import STS, CalibrationError, auroc, brier, ece, fit_sts, reliability_table
from .checks import check_lengths, check_policy, failed, policy_name, start_state, unpacked
from .generation import Generation
from .interface import LaggedBudget, LaggedView, Policy, PolicyError, Safety, StepCost, View
from .lossless.screening import Screening, screen
from .nearest import closest, did_you_mean
from .problems import describe
from .registry import POLICIES, build_policy
from .totals import total

__all__ = [
    "POLICIES",
    "STS",
    "Bools",
    "CalibrationError",
    "Floats",
    "Generation",
    "Ints",
    "LaggedBudget",
    "LaggedView",
    "Policy",
    "PolicyError",
    "Safety",
    "Screening",
    "StepCost",
    "View",
    "admit_top_k",
    "auroc",
    "brier",
    "build_policy",
    "check_lengths",
    "check_policy",
    "closest",
    "describe",
    "did_you_mean",
    "ece",
    "failed",
    "fit_sts",
    "policy_name",
    "reliability_table",
    "screen",
    "start_state",
    "total",
    "unpacked",
]
