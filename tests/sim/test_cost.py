"""The curve from samples to seconds, and the step cost built on it."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specsched.sim.cost import PlannedStep, StepCost
from specsched.sim.curve import LOOKUPS, Lookup, build_curve
from specsched.sim.jaggedness import greedy_gap, is_multimodal, jaggedness, risers, theta
from specsched.sim.profile import FlatProfileWarning, Profile, ProfileError, load_profile, profile_from_samples

B300 = load_profile("vllm-dsv4flash-b300-tp4")


@st.composite
def profiles(draw: st.DrawFn) -> Profile:
    """Profiles of 2 to 8 sizes, 1 to 3 samples each, noisy, any subset of the sizes captured."""
    sizes = sorted(draw(st.sets(st.integers(1, 60), min_size=2, max_size=8)))
    tokens, micros = [], []
    for size in sizes:
        for _ in range(draw(st.integers(1, 3))):
            tokens.append(size)
            micros.append(draw(st.integers(1, 1000)))
    captured = sorted(draw(st.sets(st.sampled_from(sizes))))
    return profile_from_samples("random", tokens, [m * 1e-6 for m in micros], captured)


def everywhere(profile: Profile, lookup: Lookup) -> np.ndarray[Any, Any]:
    curve = build_curve(profile)
    return curve.at(np.arange(1, curve.largest + 1), lookup)


@given(profiles(), st.sampled_from(LOOKUPS))
def test_more_tokens_never_cost_less(profile: Profile, lookup: Lookup) -> None:
    assert (np.diff(everywhere(profile, lookup)) >= 0).all()


@given(profiles())
def test_ceil_never_undercuts_a_median_at_or_below(profile: Profile) -> None:
    seconds = everywhere(profile, "ceil")
    for size in set(profile.verify.tokens):
        samples = [s for n, s in zip(profile.verify.tokens, profile.verify.seconds, strict=True) if n == size]
        assert (seconds[size - 1 :] >= np.median(samples)).all()


@given(profiles())
def test_floor_linear_and_ceil_are_ordered(profile: Profile) -> None:
    floor, linear, ceil = (everywhere(profile, lookup) for lookup in ("floor", "linear", "ceil"))
    assert (floor <= linear).all()
    assert (linear <= ceil).all()


@given(profiles())
def test_padding_reaches_a_captured_size_once(profile: Profile) -> None:
    curve = build_curve(profile)
    tokens = np.arange(1, curve.largest + 1)
    executed = curve.executed(tokens)
    assert (executed >= tokens).all()
    assert (curve.executed(executed) == executed).all()
    assert (curve.at(executed) == curve.at(tokens)).all()
    inside = tokens <= curve.limit
    assert set(executed[inside].tolist()) <= set(profile.captured_sizes)
    assert (executed[~inside] == tokens[~inside]).all()


@given(profiles())
def test_nothing_is_blended_across_the_capture_limit(profile: Profile) -> None:
    curve = build_curve(profile)
    eager = curve.sizes[curve.sizes > curve.limit]
    seconds = curve.at(np.arange(1, curve.largest + 1))
    assert set(seconds[: curve.limit].tolist()) <= set(curve.seconds.tolist())
    if len(eager):
        gap = seconds[curve.limit : eager[0]]
        assert (gap == curve.seconds[np.searchsorted(curve.sizes, eager[0])]).all()


@given(profiles(), st.randoms(use_true_random=False))
def test_the_order_of_the_samples_does_not_matter(profile: Profile, random: Any) -> None:
    pairs = list(zip(profile.verify.tokens, profile.verify.seconds, strict=True))
    random.shuffle(pairs)
    shuffled = profile_from_samples("random", [n for n, _ in pairs], [s for _, s in pairs], profile.captured_sizes)
    assert (everywhere(profile, "ceil") == everywhere(shuffled, "ceil")).all()


def test_lookups_by_hand() -> None:
    # Captured 4 and 8; eager samples 12 and 16. The median at 8 is 2, the dip at 12 is lifted by the running maximum.
    profile = profile_from_samples(
        "hand", [4, 8, 8, 8, 12, 16, 20], [1.0, 2.0, 9.0, 1.5, 1.0, 4.0, 8.0], [4, 8], {1: 0.5}
    )
    cost = StepCost(profile)
    assert [cost.verify_seconds(n) for n in (1, 4, 5, 8, 9, 12)] == [1.0, 1.0, 2.0, 2.0, 2.0, 2.0]
    assert [cost.verify_seconds(n) for n in (14, 16, 19)] == [3.0, 4.0, 7.0]
    assert [cost.padded(n) for n in (0, 1, 4, 5, 8, 9, 20)] == [0, 4, 4, 8, 8, 9, 20]
    floor, linear = StepCost(profile, "floor"), StepCost(profile, "linear")
    assert [floor.verify_seconds(n) for n in (1, 7, 8, 15, 19, 20)] == [1.0, 1.0, 2.0, 2.0, 4.0, 8.0]
    assert [linear.verify_seconds(n) for n in (1, 4, 6, 10, 13)] == [1.0, 1.0, 1.5, 2.0, 2.5]
    assert [floor.padded(n) for n in (1, 5, 9)] == [4, 8, 9]


def test_capture_limit_jump_of_the_measured_profile() -> None:
    cost = StepCost(B300)
    assert cost.verify_seconds(1024) == pytest.approx(0.020634, abs=1e-9)
    assert cost.verify_seconds(1025) == cost.verify_seconds(1536) == pytest.approx(0.104489, abs=1e-9)
    assert cost.padded(1017) == 1024
    assert cost.padded(1025) == 1025


def test_table_adds_host_and_draft_seconds() -> None:
    profile = profile_from_samples(
        "hosted",
        [1, 2, 4],
        [1.0, 2.0, 4.0],
        draft={1: 0.5, 3: 0.9},
        host={"seconds": 0.25, "sync_stall_seconds": 0.125, "source": "assumed", "note": "test"},
    )
    cost = StepCost(profile, draft_scale=2.0)
    assert cost.table(2).tolist() == pytest.approx([2.65, 2.65, 3.65, 4.65, 5.65])
    assert cost.draft_seconds(2) == pytest.approx(1.4)
    assert cost.draft_seconds(0) == 0.0
    assert cost.max_rows == 3
    assert cost.sync_stall_seconds == 0.125
    assert StepCost(profile, sync_stall_seconds=0.5).sync_stall_seconds == 0.5
    bare = StepCost(profile, drafts=False)
    assert bare.table(4).tolist() == [1.25, 1.25, 2.25, 3.25, 4.25]
    assert bare.max_rows == bare.max_tokens == 4


def test_draft_cost_is_linear_between_the_measured_row_counts() -> None:
    cost = StepCost(B300)
    assert cost.draft_seconds(1) == pytest.approx(0.883e-3)
    assert cost.draft_seconds(256) == pytest.approx(5.38e-3)
    assert cost.draft_seconds(12) == pytest.approx((1.071e-3 + 1.317e-3) / 2)
    assert cost.max_rows == 256
    for rows in (257, -1):
        with pytest.raises(ProfileError, match=rf"no draft cost for {rows} rows \(samples from 1 to 256\)"):
            cost.table(rows)


def test_tables_are_shared_and_read_only() -> None:
    cost = StepCost(B300)
    assert cost.table(64) is cost.table(64)
    for array in (cost.table(64), cost.verify_table):
        with pytest.raises(ValueError, match="read-only"):
            array[1] = 0.0


def test_a_step_cost_travels_to_a_worker() -> None:
    cost = StepCost(B300, draft_scale=0.5)
    copy = pickle.loads(pickle.dumps(cost))
    assert (copy.table(8) == cost.table(8)).all()
    assert copy.profile == cost.profile


def test_context_term() -> None:
    context = {"reference_tokens": 100, "seconds_per_token": 1e-6, "source": "assumed", "note": "test"}
    cost = StepCost(profile_from_samples("ctx", [1, 8], [1.0, 1.5], context=context), drafts=False)
    assert cost.context_seconds(2, 250) == pytest.approx(50e-6)
    assert cost.context_seconds(2, 150) == pytest.approx(-50e-6)
    assert StepCost(B300).context_seconds(8, 10**6) == 0.0


def test_samples_are_moved_to_the_reference_context() -> None:
    context = {"reference_tokens": 100, "seconds_per_token": 1e-3, "source": "measured", "note": "test"}
    verify = {"tokens": [8, 8, 16], "seconds": [1.2, 1.0, 1.9], "rows": [2, 2, 4], "context": [200, 100, 150]}
    profile = profile_from_samples("grid", [1], [1.0], context=context, verify=verify)
    curve = build_curve(profile)
    assert curve.medians.tolist() == pytest.approx([1.0, 1.7])
    flat_context = context | {"seconds_per_token": None}
    only_reference = profile_from_samples("grid", [1], [1.0], context=flat_context, verify=verify)
    assert build_curve(only_reference).sizes.tolist() == [8]
    with pytest.raises(ProfileError, match=r"no entry of `verify.context` equals"):
        build_curve(
            profile_from_samples("g", [1], [1.0], context=flat_context | {"reference_tokens": 7}, verify=verify)
        )
    with pytest.raises(ProfileError, match="captured size 16 has no sample at the reference context of 100"):
        build_curve(profile_from_samples("g", [1], [1.0], [16], context=flat_context, verify=verify))
    with pytest.raises(ProfileError, match=r"`verify.seconds\[0\]` is -18.8 s at the reference"):
        build_curve(profile_from_samples("g", [1], [1.0], context=context | {"seconds_per_token": 0.1}, verify=verify))


def test_a_slope_that_makes_a_step_negative_is_refused() -> None:
    context = {"reference_tokens": 1000, "seconds_per_token": 1e-3, "source": "assumed", "note": "test"}
    with pytest.raises(ProfileError, match=r"2 rows without context would take -0\.5 s"):
        StepCost(profile_from_samples("ctx", [1, 2], [1.5, 1.5], context=context), drafts=False)


@pytest.mark.parametrize("name", ["llama31-8b-h100", "llama31-70b-h100-tp4"])
def test_composed_attention_belongs_to_the_rows_of_the_step(name: str) -> None:
    profile = load_profile(name)
    slope = profile.context.seconds_per_token
    assert slope is not None
    raw = dict(zip(profile.verify.tokens, profile.verify.seconds, strict=True))
    cost = StepCost(profile)
    # The raw sample at 64 tokens holds the attention of 64 rows at 1,024 tokens: the same step, the same seconds.
    # The running maximum may hold a spike from below 64: within 1 %.
    whole = cost.verify_seconds(64) + cost.context_seconds(64, 64 * 1024)
    assert raw[64] <= whole <= 1.01 * raw[64]
    # 8 rows of 8 tokens read an eighth of that.
    fewer = cost.verify_seconds(64) + cost.context_seconds(8, 8 * 1024)
    assert whole - fewer == pytest.approx(slope * 56 * 1024)


def planned(rows: int, verified: int, context_tokens: int = 0, waits: bool = False) -> PlannedStep:
    lengths = np.full(rows, verified // rows)
    lengths[0] += verified % rows
    return PlannedStep(lengths, rows, verified, 7, context_tokens, waits)


@given(
    st.integers(1, 64),
    st.integers(0, 300),
    st.integers(0, 100_000),
    st.sampled_from([None, 0.0, 1.7e-8]),
    st.sampled_from(LOOKUPS),
    st.booleans(),
)
def test_a_step_takes_what_a_planner_reads(
    rows: int, verified: int, context_tokens: int, slope: float | None, lookup: Lookup, drafts: bool
) -> None:
    """To the last bit: a sum in another order would move every table of a run."""
    sizes = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
    profile = profile_from_samples(
        "parts",
        sizes,
        [0.0051 + 0.0000137 * size for size in sizes],
        captured_sizes=sizes[:8],
        draft={1: 0.00383, 64: 0.00931},
        context={"reference_tokens": 37, "seconds_per_token": slope, "source": "assumed", "note": "x"},
        host={"seconds": 0.00129, "sync_stall_seconds": 0.00047, "source": "assumed", "note": "x"},
    )
    cost = StepCost(profile, lookup, draft_scale=0.7, drafts=drafts)
    context = cost.context_seconds(rows, context_tokens)
    assert cost.reads_context == (slope is not None)
    for waits in (False, True, False):  # made, and remembered
        took = cost.step(planned(rows, verified, context_tokens, waits))
        assert took.busy == float(cost.table(rows)[rows + verified]) + context
        assert took.busy == pytest.approx(took.verify + took.draft + took.host + took.context)
        assert took.stall == (0.00047 if waits else 0.0)
        assert took.host == 0.00129
        assert took.context == context
        assert took.verify == cost.verify_seconds(rows + verified)
        assert took.draft == cost.draft_seconds(rows)
        assert (took.draft > 0) == drafts
        assert took.executed_tokens == cost.padded(rows + verified)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lookup": "nearest"}, "`lookup` must be one of ceil, linear, floor, got 'nearest'"),
        ({"draft_scale": -1.0}, "`draft_scale` must be a finite number, 0 or more, got -1.0"),
        ({"draft_scale": float("nan")}, "`draft_scale`"),
        ({"sync_stall_seconds": float("inf")}, "`sync_stall_seconds`"),
        ({"max_tokens": 16385}, "no sample at or above 16385 tokens"),
        ({"max_tokens": 0}, "`max_tokens` must be at least 1"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ProfileError, match=message):
        StepCost(B300, **arguments)


def test_a_drafting_arm_needs_a_draft_cost() -> None:
    profile = profile_from_samples("bare", [1, 2], [1.0, 2.0])
    with pytest.raises(ProfileError, match=r"`bare` has no draft cost.*add a `draft` section"):
        StepCost(profile)
    assert StepCost(profile, drafts=False).draft_seconds(5) == 0.0


def test_unpriced_sizes_raise_and_say_what_to_do() -> None:
    cost = StepCost(B300)
    assert cost.max_tokens == 4096
    cost.require(2048, 256)
    with pytest.raises(ProfileError, match=r"no sample at or above 20000 tokens \(the largest has 16384\)"):
        cost.require(20000, 256)
    with pytest.raises(ProfileError, match="outside the priced range 1 to 4096; give `max_tokens`"):
        cost.require(5000, 256)
    with pytest.raises(ProfileError, match=r"no draft cost for 300 rows"):
        cost.require(2400, 300)
    for call, tokens in ((cost.padded, 4097), (cost.padded, -1), (cost.verify_seconds, 0), (cost.verify_seconds, -3)):
        with pytest.raises(ProfileError, match=f"a step of {tokens} tokens is outside"):
            call(tokens)
    assert StepCost(B300, max_tokens=16384).verify_seconds(16384) == pytest.approx(0.234892)
    late = profile_from_samples("late", [1, 64], [1.0, 2.0], draft={8: 0.1, 16: 0.2})
    with pytest.raises(ProfileError, match=r"no draft cost for 1 rows \(samples from 8 to 16\)"):
        StepCost(late).require(64, 16)


def test_only_flat_profiles_warn() -> None:
    with pytest.warns(FlatProfileWarning, match="`even` is flat.*every draft with survival > 0"):
        assert StepCost(profile_from_samples("even", [1, 8], [1.0, 1.0]), drafts=False).is_flat
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not StepCost(B300).is_flat
    # The running maximum flattens a falling curve too.
    with pytest.warns(FlatProfileWarning):
        assert StepCost(profile_from_samples("falling", [1, 8], [2.0, 1.0]), drafts=False).is_flat


def test_risers_and_jaggedness_by_hand() -> None:
    seconds = np.array([np.nan, 100.0, 101.0, 110.0, 110.0, 105.0])
    assert [(r.tokens, r.before_seconds, r.after_seconds) for r in risers(seconds)] == [(2, 101.0, 110.0)]
    assert [r.tokens for r in risers(seconds, 0.005)] == [1, 2]
    shape = jaggedness(seconds)
    assert (shape.drops_over_2pct, shape.drops_over_5pct, shape.rises_over_2pct) == (1, 1, 1)
    assert shape.biggest is not None
    assert shape.biggest.drop == pytest.approx(1 - 101 / 110)
    assert jaggedness(np.array([0.0, 1.0, 1.0])).biggest is None


@pytest.mark.parametrize(
    ("values", "expected"),
    [([1, 2, 3], False), ([3, 2, 1], False), ([1, 3, 2], False), ([1, 3, 2, 2, 4], True), ([2, 2, 2], False)],
)
def test_multimodal(values: list[float], expected: bool) -> None:
    assert is_multimodal(np.array(values, float)) is expected


def test_theta_prices_the_best_drafts_and_needs_a_price() -> None:
    cost = StepCost(profile_from_samples("steps", [1, 6], [1.0, 6.0]), drafts=False)
    survivals = np.array([[0.5, 0.25], [0.75, 0.0]])
    assert theta(cost, 2, survivals).tolist() == pytest.approx([2 / 2, 2.75 / 3, 3.25 / 4, 3.5 / 5])
    with pytest.raises(ProfileError, match="no sample at or above 7 tokens"):
        theta(cost, 2, np.full(5, 0.5))


def test_the_early_stop_stops_at_a_tie() -> None:
    """Algorithm 1 keeps a draft only if the objective rises: 1/1, 2/2, 3/2.5 tokens a second."""
    cost = StepCost(profile_from_samples("tie", [1, 2, 3], [1.0, 2.0, 2.5]), drafts=False)
    gap = greedy_gap(cost, 1, np.array([1.0, 1.0]))
    assert (gap.greedy_budget, gap.argmax_budget) == (0, 2)
    assert gap.loss == pytest.approx(1 - 2.5 / 3)


@settings(max_examples=50)
@given(profiles(), st.lists(st.floats(0.01, 1.0), min_size=1, max_size=12))
def test_the_early_stop_never_beats_the_argmax(profile: Profile, survivals: list[float]) -> None:
    rows = 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FlatProfileWarning)
        cost = StepCost(profile, drafts=False)
    candidates = np.array(survivals)[: max(cost.max_tokens - rows, 0)]
    if not len(candidates):
        return
    gap = greedy_gap(cost, rows, candidates)
    values = theta(cost, rows, candidates)
    assert 0 <= gap.loss < 1
    assert gap.argmax_theta == values.max()
    assert (np.diff(values[: gap.greedy_budget + 1]) > 0).all()
    if not is_multimodal(values) and (np.diff(values) != 0).all():
        assert gap.greedy_budget == gap.argmax_budget
