"""Roofline profiles on demand."""

from __future__ import annotations

import numpy as np
import pytest

from specsched.sim.analytic import GPUS, analytic_profile
from specsched.sim.cost import StepCost
from specsched.sim.profile import ProfileError, load_profile


def test_an_analytic_profile_says_what_it_is() -> None:
    profile = load_profile("analytic:h100:8b")
    assert profile.source == "analytic"
    assert profile.draft is not None
    assert profile.draft.source == "assumed"
    text = "\n".join(profile.provenance)
    assert "not a measurement" in text
    assert "max(P bytes" in text
    assert "NVIDIA H100 data sheet" in text
    assert profile.gpus == 1


def test_both_sides_of_the_roofline_by_hand() -> None:
    cost = StepCost(load_profile("analytic:h100:8b"))
    assert cost.verify_seconds(1) == pytest.approx(16e9 / (3.35e12 * 0.8))
    assert cost.verify_seconds(4096) == pytest.approx(2 * 8e9 * 4096 / (989.4e12 * 0.7))
    quarter = StepCost(load_profile("analytic:h100:8b:tp4"))
    # A quarter of the weights a GPU, and 64 all-reduces of at least 5 us.
    assert quarter.verify_seconds(1) == pytest.approx(16e9 / (4 * 3.35e12 * 0.8) + 64 * 5e-6, rel=0.01)
    assert quarter.gpus == 4


def test_context_slope_is_the_cache_read() -> None:
    profile = load_profile("analytic:a100:8b")
    assert profile.context.reference_tokens == 0
    # 32 layers, keys and values, 8 heads of 128, 2 bytes.
    assert profile.context.seconds_per_token == pytest.approx(32 * 2 * 8 * 128 * 2 / (2.039e12 * 0.8))


@pytest.mark.parametrize("gpu", sorted(GPUS))
def test_every_gpu_makes_a_curve_without_a_cliff(gpu: str) -> None:
    cost = StepCost(load_profile(f"analytic:{gpu}:8b"))
    assert not cost.is_flat
    assert cost.verify_seconds(513) == pytest.approx(cost.verify_seconds(512), rel=0.01)
    assert (np.diff(cost.verify_table) >= 0).all()
    cost.require(4096, 512)


def test_options_in_any_order_and_aliases() -> None:
    profile = analytic_profile("analytic:H100-SXM:70B:fp8:tp2")
    assert profile.gpus == 2
    assert "fp8" in profile.model
    assert profile.verify == analytic_profile("analytic:h100:70b:tp2:fp8").verify


def test_composed_llama_lies_near_the_roofline() -> None:
    """A sanity check of the assumed efficiencies, not a fit: weight streaming within 15 %, arithmetic within 30 %."""
    roofline = StepCost(load_profile("analytic:h100:8b"))
    composed = StepCost(load_profile("llama31-8b-h100"))
    assert roofline.verify_seconds(1) == pytest.approx(composed.verify_seconds(1), rel=0.15)
    assert roofline.verify_seconds(1024) == pytest.approx(composed.verify_seconds(1024), rel=0.30)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("analytic:h1000:8b", "unknown GPU `h1000`; did you mean `h100`"),
        ("analytic:tpu:8b", "unknown GPU `tpu`; known are a100"),
        ("analytic:h100", "write analytic:GPU:SIZE"),
        ("analytic:", "write analytic:GPU:SIZE"),
        ("analytic:h100:big", "the size must be 0.1b to 2000b .*, got `big`"),
        ("analytic:h100:0b", "the size must be"),
        ("analytic:h100:-8b", "the size must be"),
        ("analytic:h100:8b:tp0", "`tp0` is no option"),
        ("analytic:h100:8b:int3", "`int3` is no option"),
        ("analytic:a100:8b:fp8", "A100-SXM 80 GB has no fp8 arithmetic; use bf16"),
        ("analytic:h100:70b", "140 GB of weights do not fit in 1 x 80 GB; split them over at least 2 GPUs"),
    ],
)
def test_names_that_cannot_be_built(name: str, message: str) -> None:
    with pytest.raises(ProfileError, match=message):
        load_profile(name)
