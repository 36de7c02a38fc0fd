"""Verification-length policies, their interface, and confidence calibration."""

from .admission import admit_top_k
from .arrays import Bools, Floats, Ints
from .async_topk import AsyncTopK
from .autoregressive import Autoregressive
from .calibration import STS, CalibrationError, Reliability, auroc, brier, ece, fit_sts, reliability_table
from .checks import check_lengths, check_policy, start_state
from .checks import failed as failed
from .checks import unpacked as unpacked
from .generation import Generation
from .greedy_early_stop import GreedyEarlyStop
from .interface import LaggedBudget, LaggedView, Policy, PolicyError, Safety, StepCost, View
from .lossless.screening import Screening, screen
from .nearest import closest as closest
from .nearest import did_you_mean as did_you_mean
from .objects import load_object as load_object
from .oracle import Oracle, OracleRate
from .problems import describe as describe
from .registry import POLICIES, build_policy
from .retrospective import Retrospective
from .static import Static
from .threshold import Threshold
from .totals import total as total

# What is imported `as` itself is for the other rooms; `__all__` is what users may stand on.

__all__ = [
    "POLICIES",
    "STS",
    "AsyncTopK",
    "Autoregressive",
    "Bools",
    "CalibrationError",
    "Floats",
    "Generation",
    "GreedyEarlyStop",
    "Ints",
    "LaggedBudget",
    "LaggedView",
    "Oracle",
    "OracleRate",
    "Policy",
    "PolicyError",
    "Reliability",
    "Retrospective",
    "Safety",
    "Screening",
    "Static",
    "StepCost",
    "Threshold",
    "View",
    "admit_top_k",
    "auroc",
    "brier",
    "build_policy",
    "check_lengths",
    "check_policy",
    "ece",
    "fit_sts",
    "reliability_table",
    "screen",
    "start_state",
]
