"""What to hold a scheduler or a sampler of one's own to: a test class, tests of a law, small worlds to look into."""

from __future__ import annotations

from ..lossless.checker import Report, check
from ..lossless.length_maps import LengthMap, Pair, length_map, row_wise, stopping_set
from ..lossless.sampled import Fit, assert_law, chi_square, draws_needed, power, two_samples
from ..lossless.worlds import World, appendix_a
from .contract import PolicyContract, UndecidedByRule

__all__ = [
    "Fit",
    "LengthMap",
    "Pair",
    "PolicyContract",
    "Report",
    "UndecidedByRule",
    "World",
    "appendix_a",
    "assert_law",
    "check",
    "chi_square",
    "draws_needed",
    "length_map",
    "power",
    "row_wise",
    "stopping_set",
    "two_samples",
]
