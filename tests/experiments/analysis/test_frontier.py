"""The frontier, throughput at anchors and speed-up at matched throughput."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specsched.experiments.analysis.frontier import (
    Line,
    frontier,
    interactivity_at_throughput,
    line,
    non_dominated,
    reference_points,
    seed_lines,
    speedup_at_matched,
    throughput_at_anchor,
    usable,
)


def curve(interactivity: list[float], throughput: list[float], eager: list[bool] | None = None, arm: str = "a") -> Line:
    loads = np.array([2.0**i for i in range(len(interactivity))])
    beyond = np.array(eager if eager is not None else [False] * len(loads), bool)
    return Line(arm, loads, np.array(interactivity, float), np.array(throughput, float), beyond)


def points(*rows: tuple[str, float, int, float | None, float | None, float | None]) -> pl.DataFrame:
    names = ["arm", "load", "seed", "interactivity_tok_s_user", "throughput_tok_s_gpu", "eager_fraction"]
    return pl.DataFrame(list(rows), schema=names, orient="row")


def test_line_is_the_mean_over_seeds_of_each_load_by_ascending_load() -> None:
    table = points(
        ("a", 4, 0, 80.0, 400.0, 0.0),
        ("a", 4, 1, 90.0, 420.0, 0.01),
        ("a", 1, 1, 130.0, 130.0, 0.0),
        ("a", 1, 0, 120.0, 120.0, 0.0),
        ("b", 1, 0, 1.0, 1.0, 1.0),
    )
    mean = line(table, "a")
    assert mean.loads.tolist() == [1.0, 4.0]
    assert mean.interactivity.tolist() == [125.0, 85.0]
    assert mean.throughput.tolist() == [125.0, 410.0]
    assert mean.eager.tolist() == [False, True]


def test_a_seed_s_line_has_the_arm_s_eager_loads() -> None:
    table = points(("a", 1, 0, 9.0, 1.0, 0.0), ("a", 2, 0, 8.0, 2.0, 0.0), ("a", 2, 1, 8.0, 2.0, 0.5))
    first = line(table, "a", seed=0)
    assert first.loads.tolist() == [1.0, 2.0]
    assert first.eager.tolist() == [False, True]


def test_unknown_eager_fractions_read_as_none_seen() -> None:
    table = points(("a", 1, 0, 9.0, 1.0, None))
    assert line(table.with_columns(pl.lit(None).alias("eager_fraction")), "a").eager.tolist() == [False]


@pytest.mark.parametrize("bad", [None, float("nan"), float("inf"), 0.0])
def test_points_without_both_coordinates_are_not_usable(bad: float | None) -> None:
    table = points(("a", 1, 0, 9.0, 1.0, 0.0), ("a", 2, 0, bad, 2.0, 0.0), ("a", 4, 0, 7.0, bad, 0.0))
    assert usable(table)["load"].to_list() == [1]


def test_all_null_coordinates_leave_no_point() -> None:
    table = points(("a", 1, 0, None, None, 0.0))
    assert len(usable(table)) == 0


def test_only_seeds_with_every_load_have_lines() -> None:
    rows = [(arm, load, seed, 9.0, 1.0, 0.0) for arm in "ab" for load in (1, 2) for seed in (0, 1, 2)]
    table = points(*(row for row in rows if row[:3] != ("b", 2, 1)))
    assert list(seed_lines(table, ["a"])) == [0, 1, 2]
    assert list(seed_lines(table, ["a", "b"])) == [0, 2]


def test_non_dominated_by_hand() -> None:
    x = np.array([1.0, 2.0, 3.0, 3.0, 2.0, 2.5])
    y = np.array([9.0, 8.0, 1.0, 2.0, 8.0, 0.5])
    # The equal points (2, 8) dominate neither each other nor lose; (3, 1) loses to (3, 2).
    assert non_dominated(x, y).tolist() == [True, True, False, True, True, False]


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=12))
@settings(max_examples=200, deadline=None)
def test_non_dominated_equals_the_definition(pairs: list[tuple[int, int]]) -> None:
    expected = [
        not any(u >= x and v >= y and (u > x or v > y) for j, (u, v) in enumerate(pairs) if j != i)
        for i, (x, y) in enumerate(pairs)
    ]
    x, y = (np.array([pair[axis] for pair in pairs], float) for axis in (0, 1))
    assert non_dominated(x, y).tolist() == expected


def test_frontier_names_arm_and_load_by_ascending_interactivity() -> None:
    table = frontier([curve([100, 50], [100, 300], arm="a"), curve([120, 40], [90, 290], arm="b")])
    assert table.select("arm", "load").rows() == [("a", 2.0), ("a", 1.0), ("b", 1.0)]


def test_frontier_of_nothing_is_an_empty_table() -> None:
    assert frontier([]).columns == ["arm", "load", "interactivity_tok_s_user", "throughput_tok_s_gpu"]


def test_anchor_between_two_loads_is_interpolated() -> None:
    found = throughput_at_anchor(curve([200, 150, 50], [200, 600, 1000]), 100)
    assert (found.status, found.throughput, found.loads) == ("met", 800.0, (2.0, 4.0))


def test_anchor_on_a_load_is_that_load() -> None:
    found = throughput_at_anchor(curve([200, 150, 50], [200, 600, 1000]), 150)
    assert (found.status, found.throughput, found.loads) == ("met", 600.0, (2.0, 2.0))


def test_anchor_above_the_lowest_load_is_not_met() -> None:
    found = throughput_at_anchor(curve([200, 150], [200, 600]), 201)
    assert (found.status, found.throughput, found.loads) == ("not_met", None, None)


def test_anchor_below_the_whole_curve_is_met_at_least() -> None:
    found = throughput_at_anchor(curve([200, 150], [200, 600]), 100)
    assert (found.status, found.throughput, found.loads) == ("at_least", 600.0, (2.0, 2.0))


def test_a_single_load_is_met_at_least_or_not() -> None:
    assert throughput_at_anchor(curve([200], [10]), 200).status == "at_least"
    assert throughput_at_anchor(curve([200], [10]), 200.5).status == "not_met"


def test_an_empty_line_meets_nothing() -> None:
    assert throughput_at_anchor(curve([], []), 100).status == "not_met"


def test_throughput_that_falls_with_load_keeps_the_better_load() -> None:
    # At anchor 60 the crossing lies at (60, 520); load 2 with 700 is faster in both.
    found = throughput_at_anchor(curve([200, 100, 50], [200, 700, 475]), 60)
    assert (found.status, found.throughput, found.loads) == ("met", 700.0, (2.0, 2.0))


def test_interactivity_that_rises_again_counts_every_branch() -> None:
    # Anchor 100 is crossed three times: at 300 (down), 650 (up) and 950 (down).
    found = throughput_at_anchor(curve([150, 50, 150, 50], [200, 400, 900, 1000]), 100)
    assert (found.status, found.throughput, found.loads) == ("met", 950.0, (4.0, 8.0))


def test_lowest_load_slower_than_the_anchor_but_a_higher_one_not() -> None:
    found = throughput_at_anchor(curve([90, 110, 50], [90, 300, 700]), 100)
    assert found.status == "met"
    assert found.throughput == pytest.approx(300 + 400 / 6)


def test_nothing_is_interpolated_across_the_capture_limit() -> None:
    captured = curve([200, 150, 50], [200, 600, 1000], [False, False, False])
    mixed = curve([200, 150, 50], [200, 600, 1000], [False, False, True])
    found = throughput_at_anchor(mixed, 100)
    assert throughput_at_anchor(captured, 100).throughput == 800.0
    assert (found.status, found.throughput, found.loads, found.at_capture_limit) == ("met", 600.0, (2.0, 2.0), True)


def test_eager_end_points_count_and_eager_neighbours_are_joined() -> None:
    line_ = curve([200, 100, 80, 40], [200, 400, 900, 1100], [False, False, True, True])
    assert throughput_at_anchor(line_, 80).throughput == 900.0
    assert throughput_at_anchor(line_, 60).throughput == 1000.0
    assert not throughput_at_anchor(line_, 60).at_capture_limit
    assert throughput_at_anchor(line_, 90).at_capture_limit


finite = st.floats(1.0, 500.0, allow_nan=False)


@given(
    st.lists(st.tuples(finite, finite, st.booleans()), min_size=1, max_size=7), st.floats(0.5, 510.0, allow_nan=False)
)
@settings(max_examples=200, deadline=None)
def test_anchor_equals_a_dense_walk_along_the_usable_line(
    loads: list[tuple[float, float, bool]], anchor: float
) -> None:
    x, y, eager = (list(column) for column in zip(*loads, strict=True))
    best = max((b for a, b in zip(x, y, strict=True) if a >= anchor), default=None)
    for i in range(len(x) - 1):
        share = np.linspace(0.0, 1.0, 2001)
        a, b = x[i] + share * (x[i + 1] - x[i]), y[i] + share * (y[i + 1] - y[i])
        if eager[i] == eager[i + 1] and (a >= anchor).any():
            best = max(b[a >= anchor].max(), best if best is not None else 0.0)
    found = throughput_at_anchor(curve(x, y, eager), anchor)
    assert (found.throughput is None) == (best is None)
    # A walk in 2,000 paces stops at most one pace (500 / 2,000) short of a crossing.
    assert best is None or best - 1e-9 <= found.throughput <= best + 0.25


def test_interactivity_at_a_throughput_by_hand() -> None:
    line_ = curve([200, 150, 50], [200, 600, 1000])
    assert interactivity_at_throughput(line_, 800) == 100.0
    assert interactivity_at_throughput(line_, 100) == 200.0
    assert interactivity_at_throughput(line_, 1000) == 50.0
    assert interactivity_at_throughput(line_, 1001) is None


def test_an_arm_that_is_twice_as_fast_per_user_has_speed_up_two() -> None:
    slow = curve([100, 80, 40], [100, 300, 500], arm="mtp-1")
    fast = curve([200, 160, 80], [100, 300, 500], arm="async")
    assert [found.speedup for found in speedup_at_matched(fast, [slow])] == [2.0, 2.0, 2.0]
    assert [found.key for found in speedup_at_matched(fast, [slow])] == [("mtp-1", 1.0), ("mtp-1", 2.0), ("mtp-1", 4.0)]


def test_throughputs_outside_the_arm_s_range_are_left_out() -> None:
    reference = curve([100, 80, 40], [100, 300, 500], arm="mtp-1")
    arm = curve([150, 90], [200, 400])
    found = speedup_at_matched(arm, [reference])
    assert [each.throughput for each in found] == [300.0]
    assert found[0].speedup == 120.0 / 80.0


def test_ranges_that_do_not_meet_give_nothing() -> None:
    assert speedup_at_matched(curve([9], [50]), [curve([100, 80], [100, 300], arm="r")]) == []
    assert speedup_at_matched(curve([], []), [curve([100, 80], [100, 300], arm="r")]) == []


def test_dominated_points_of_the_reference_fix_no_throughput() -> None:
    reference = curve([100, 80, 60, 50], [100, 300, 280, 400], arm="r")
    assert reference_points([reference]) == [("r", 1.0), ("r", 2.0), ("r", 8.0)]


def test_the_best_of_several_references_is_taken_at_every_throughput() -> None:
    few, many = curve([120, 60], [120, 400], arm="static-1"), curve([160, 40], [160, 320], arm="static-7")
    arm = curve([170, 30], [100, 420])
    found = {each.key: each for each in speedup_at_matched(arm, [few, many])}
    # static-7 at load 2 (40, 320) loses to static-1, and so does static-1 at load 1 to static-7.
    assert set(found) == {("static-7", 1.0), ("static-1", 2.0)}
    assert found["static-7", 1.0].reference == 160.0
    at_320 = speedup_at_matched(arm, [few, many], at=[("static-7", 2.0)])[0]
    assert at_320.reference == pytest.approx(120 - 60 * 200 / 280)


def test_a_reference_against_itself_has_speed_up_one() -> None:
    reference = curve([100, 80, 60, 50], [100, 300, 280, 400], [False, True, False, True], arm="r")
    assert [found.speedup for found in speedup_at_matched(reference, [reference])] == [1.0] * 3
