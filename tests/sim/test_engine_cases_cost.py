"""Cases that users of shipped engines asked about, on the cost tables alone.

The search here is written out on its own (no policy code): sort, sum, divide, take the first maximum.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsched.policies import Floats
from specsched.sim.cost import StepCost
from specsched.sim.curve import Lookup
from specsched.sim.jaggedness import greedy_gap
from specsched.sim.profile import FlatProfileWarning, ProfileError, load_profile, profile_from_samples

B300 = load_profile("vllm-dsv4flash-b300-tp4")
CHAT = [0.67, 0.42, 0.26, 0.17, 0.12, 0.09, 0.07]


def rates(seconds: Floats, rows: int, survivals: list[float]) -> Floats:
    """Return expected tokens per second of admitting the best 0, 1, .. drafts; ``seconds[B]`` prices B tokens."""
    best_first = sorted((value for value in survivals if value > 0), reverse=True)
    values, expected = [rows / seconds[rows]], float(rows)
    for admitted, survival in enumerate(best_first, start=1):
        expected += survival
        values.append(expected / seconds[rows + admitted])
    return np.array(values)


def argmax(values: Floats) -> int:
    return int(np.flatnonzero(values == values.max())[0])


def greedy(values: Floats) -> int:
    for admitted in range(1, len(values)):
        if values[admitted] <= values[admitted - 1]:
            return admitted - 1
    return len(values) - 1


def test_case_2_greedy_is_stuck_before_a_riser() -> None:
    values = rates(StepCost(B300).table(128), 128, CHAT * 128)
    assert greedy(values) == 0
    assert argmax(values) == 672
    gap = greedy_gap(StepCost(B300), 128, np.tile(CHAT, (128, 1)))
    assert (gap.greedy_budget, gap.argmax_budget) == (0, 672)
    assert gap.loss == pytest.approx(1 - values[0] / values[672])


def test_case_4_flat_profile_verifies_everything_with_survival() -> None:
    flat = profile_from_samples("even", [1, 512], [0.01, 0.01], draft={1: 0.001, 64: 0.002})
    with pytest.warns(FlatProfileWarning, match="every draft with survival > 0"):
        cost = StepCost(flat)
    survivals = [0.9, 0.3, 1e-9, 0.0] * 16
    assert argmax(rates(cost.table(16), 16, survivals)) == 48


def test_case_4_missing_profile_is_an_error() -> None:
    with pytest.raises(ProfileError, match="no profile named `b300`"):
        load_profile("b300")


def test_case_5_floor_believes_that_tokens_before_a_riser_are_free() -> None:
    profile = profile_from_samples("probes", [8, 16, 24], [10e-3, 10e-3, 20e-3], [8, 16, 24])
    survivals = [0.9, 0.5, 0.3, 0.25] * 4
    floor = rates(StepCost(profile, "floor", drafts=False).table(8), 8, survivals)
    truth = rates(StepCost(profile, "ceil", drafts=False).table(8), 8, survivals)
    assert argmax(floor) == 15
    assert floor[15] / 1e3 == pytest.approx(1.555)
    assert truth[15] / 1e3 == pytest.approx(0.7775)
    assert argmax(truth) == 8
    assert truth[8] / 1e3 == pytest.approx(1.36)


def test_case_6_seventeen_tokens_run_as_thirty_two() -> None:
    cost = StepCost(profile_from_samples("two", [16, 32], [10e-3, 14e-3], [16, 32]), drafts=False)
    assert cost.padded(17) == 32
    assert cost.verify_seconds(17) == cost.verify_seconds(32) > cost.verify_seconds(16)


@given(
    st.integers(1, 15),
    st.lists(st.floats(0.01, 1.0), min_size=31, max_size=60),
    st.integers(1, 1000),
    st.integers(1, 1000),
)
def test_case_6_the_argmax_fills_a_captured_size(rows: int, survivals: list[float], low: int, more: int) -> None:
    """With enough candidates the best batch has 16 or 32 tokens, whatever the two times are: never 17."""
    profile = profile_from_samples("two", [16, 32], [low * 1e-5, (low + more) * 1e-5], [16, 32])
    values = rates(StepCost(profile, drafts=False).table(rows), rows, survivals[: 32 - rows])
    assert rows + argmax(values) in (16, 32)


@pytest.mark.parametrize(("bias_ms", "budget"), [(0, 0), (2, 32), (5, 64), (10, 80)])
@pytest.mark.parametrize("lookup", ["ceil", "linear"])
def test_case_7_what_trimming_cannot_save_does_not_cancel(bias_ms: float, budget: int, lookup: Lookup) -> None:
    sizes = [1, 50, 100]
    profile = profile_from_samples("line", sizes, [(bias_ms + 0.05 * n) * 1e-3 for n in sizes])
    values = rates(StepCost(profile, lookup, drafts=False).table(16), 16, [0.7, 0.5, 0.35, 0.25, 0.17] * 16)
    assert argmax(values) == budget


def test_case_8_fixed_blocks_jump_over_the_capture_limit() -> None:
    cost = StepCost(B300)
    assert cost.padded(192 * 8) == 1536
    assert f"{cost.verify_seconds(1024) * 1e3:.1f}" == "20.6"
    assert f"{cost.verify_seconds(192 * 8) * 1e3:.1f}" == "104.5"


def test_case_8_the_argmax_stays_below_the_capture_limit() -> None:
    """640 drafts (832 tokens) on the curve that is paid for, the running maximum."""
    values = rates(StepCost(B300).table(192), 192, CHAT * 192)
    assert argmax(values) == 640
    # On that curve 544 to 768 tokens hold two shelves that start at 512 and 657 tokens: a budget of 544 (736 tokens)
    # costs what 576 (768 tokens) does, so it cannot be the argmax.
    assert StepCost(B300).verify_seconds(736) == StepCost(B300).verify_seconds(768)
    assert values[576] > values[544]


def test_case_8_on_plain_medians_the_argmax_is_544() -> None:
    """The published answer 544 is that of the medians padded to captured sizes, without the running maximum."""
    medians = {size: float(np.median(group)) for size, group in samples_by_size(B300).items()}
    captured = sorted(B300.captured_sizes)
    seconds = np.full(1025, np.nan)
    for tokens in range(1, 1025):
        seconds[tokens] = medians[next(size for size in captured if size >= tokens)]
    seconds += StepCost(B300).draft_seconds(192)
    survivals = (CHAT * 192)[: 7 * 192]
    inside = sorted(survivals, reverse=True)[: 1024 - 192]
    assert argmax(rates(seconds, 192, inside)) == 544


def samples_by_size(profile: Any) -> dict[int, list[float]]:
    groups: dict[int, list[float]] = {}
    for tokens, seconds in zip(profile.verify.tokens, profile.verify.seconds, strict=True):
        groups.setdefault(tokens, []).append(seconds)
    return groups
