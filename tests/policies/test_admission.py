from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specsched.policies import Floats, Ints, admit_top_k
from tests.policies.worlds import TableCost, ragged_batches


def brute_force(survival: Floats, available: Ints, budget: int, min_len: int) -> list[int]:
    """Sort every draft by (floor first, survival descending, position, row) in plain Python."""
    drafts = [(j >= min_len, -survival[r, j], j, r) for r, has in enumerate(available.tolist()) for j in range(has)]
    chosen = [r for *_, r in sorted(drafts)[:budget]]
    return [chosen.count(r) for r in range(len(available))]


@given(ragged_batches(), st.data())
@settings(max_examples=300, deadline=None)
def test_top_k_is_the_sorted_prefix(batch: tuple[Floats, Ints, TableCost], data: st.DataObject) -> None:
    confidence, available, _ = batch
    survival = np.multiply.accumulate(np.where(np.arange(confidence.shape[1]) < available[:, None], confidence, 0.0), 1)
    min_len = data.draw(st.integers(0, confidence.shape[1]))
    floor = int(np.minimum(available, min_len).sum())
    budget = data.draw(st.integers(floor, int(available.sum())))
    lengths = admit_top_k(survival, available, budget, min_len)
    assert lengths.tolist() == brute_force(survival, available, budget, min_len)
    assert lengths.dtype == np.int64


def test_ties_go_to_the_earlier_position_then_the_earlier_row() -> None:
    survival = np.array([[0.5, 0.5, 0.25], [0.5, 0.5, 0.25]])
    available = np.array([3, 3])
    lengths = [admit_top_k(survival, available, k).tolist() for k in range(7)]
    assert lengths == [[0, 0], [1, 0], [1, 1], [2, 1], [2, 2], [3, 2], [3, 3]]


def test_drafts_of_no_survival_still_fill_a_budget() -> None:
    assert admit_top_k(np.zeros((2, 2)), np.array([2, 1]), 3).tolist() == [2, 1]


@pytest.mark.parametrize(("budget", "min_len"), [(-1, 0), (5, 0), (1, 1)])
def test_impossible_budget_is_refused(budget: int, min_len: int) -> None:
    with pytest.raises(ValueError, match="budget must be"):
        admit_top_k(np.full((2, 2), 0.5), np.array([2, 2]), budget, min_len)


def test_fractional_budget_is_refused() -> None:
    with pytest.raises(ValueError, match=r"whole number of drafts, got 1\.5"):
        admit_top_k(np.full((2, 2), 0.5), np.array([2, 2]), 1.5)  # type: ignore[arg-type]


def test_generated_batches_are_ragged() -> None:
    """At least nine in ten generated batches get unequal lengths from a middling budget (engine case 12)."""
    unequal: list[bool] = []

    @given(ragged_batches())
    @settings(max_examples=400, deadline=None, derandomize=True, database=None)
    def collect(batch: tuple[Floats, Ints, TableCost]) -> None:
        confidence, available, _ = batch
        exists = np.arange(confidence.shape[1]) < available[:, None]
        survival = np.multiply.accumulate(np.where(exists, confidence, 0.0), 1)
        lengths = admit_top_k(survival, available, int(available.sum()) // 2)
        unequal.append(len(set(lengths.tolist())) > 1)

    collect()
    assert len(unequal) >= 400
    assert np.mean(unequal) >= 0.9
