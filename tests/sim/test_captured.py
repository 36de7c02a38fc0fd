"""Fewer captured graphs than the profile has."""

from __future__ import annotations

import numpy as np
import pytest

from specsched.sim.captured import with_captured_sizes
from specsched.sim.cost import StepCost
from specsched.sim.profile import ProfileError, load_profile, profile_from_samples

SMALL = profile_from_samples(
    "small", [1, 8, 16, 24, 32, 64], [1.0, 2.0, 3.0, 4.0, 5.0, 9.0], captured_sizes=[8, 16, 24, 32], draft={1: 0.1}
)


def test_a_step_pays_for_the_next_graph_that_is_left() -> None:
    cost = StepCost(with_captured_sizes(SMALL, [16, 32]))
    assert [cost.padded(size) for size in (1, 8, 16, 17, 24, 32, 33)] == [16, 16, 16, 32, 32, 32, 33]
    assert [cost.verify_seconds(size) for size in (1, 16, 17, 24, 32)] == [3.0, 3.0, 5.0, 5.0, 5.0]
    # Without graphs nothing changes: the first eager sample is the same.
    assert cost.verify_seconds(33) == StepCost(SMALL).verify_seconds(33) == 9.0


def test_powers_of_two_keep_the_capture_limit() -> None:
    profile = load_profile("vllm-dsv4flash-b300-tp4")
    kept = with_captured_sizes(profile, "powers_of_two")
    assert kept.captured_sizes == (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
    assert kept.verify == profile.verify
    assert with_captured_sizes(
        SMALL.model_copy(update={"captured_sizes": (8, 16, 24)}), "powers_of_two"
    ).captured_sizes == (
        8,
        16,
        24,
    )


def test_multiples_keep_the_capture_limit() -> None:
    assert with_captured_sizes(SMALL, {"multiples_of": 16}).captured_sizes == (16, 32)
    assert with_captured_sizes(SMALL, {"multiples_of": 24}).captured_sizes == (24, 32)


@pytest.mark.parametrize("name", ["vllm-dsv4flash-b300-tp4", "llama31-8b-h100"])
def test_fewer_graphs_never_make_a_step_cheaper(name: str) -> None:
    profile = load_profile(name)
    whole, few = StepCost(profile), StepCost(with_captured_sizes(profile, "powers_of_two"))
    assert (few.verify_table >= whole.verify_table).all()
    assert np.any(few.verify_table > whole.verify_table)


def test_all_is_the_profile_itself() -> None:
    assert with_captured_sizes(SMALL, "all") is SMALL


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ([8, 20, 32], r"20 has no captured graph; the nearest that has is 16"),
        ([8, 16], r"must hold the largest, 32: the profile does not say"),
        ([16, 8, 32], r"must ascend from 1 without repeats, got 8 after 16"),
        ([8, 8, 32], r"got 8 after 8"),
        ([0, 32], r"got 0 after 0"),
    ],
)
def test_sizes_that_the_profile_cannot_price_are_refused(sizes: list[int], message: str) -> None:
    with pytest.raises(ProfileError, match=message):
        with_captured_sizes(SMALL, sizes)


def test_without_graphs_there_is_nothing_to_choose() -> None:
    bare = SMALL.model_copy(update={"captured_sizes": ()})
    with pytest.raises(ProfileError, match="no captured sizes to choose from"):
        with_captured_sizes(bare, "powers_of_two")
