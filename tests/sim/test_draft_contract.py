"""The contract of draft models: good ones pass all of it, and each fault is found by the test that is meant for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from specsched.sim.drafts import ConstantDrafts, DraftModel, make_draft_model
from specsched.sim.testing import DraftModelContract

from . import user_models


class TestFading(DraftModelContract):
    model = user_models.Fading


class TestReusedArrays(DraftModelContract):
    """What the simulator gets are copies."""

    model = user_models.Reusing


class TestOneDomain(DraftModelContract):
    model = user_models.OnlyChat


class TestConstant(DraftModelContract):
    def model(self, seed: int) -> DraftModel:
        return ConstantDrafts(0.7, seed)


class TestLatent(DraftModelContract):
    domains = ("chat", "math")

    def model(self, seed: int) -> DraftModel:
        return make_draft_model({"kind": "latent", "profile": "dspark-qwen3-4b"}, seed)


class TestOfYaml(DraftModelContract):
    def model(self, seed: int) -> DraftModel:
        return make_draft_model({"kind": "python", "object": f"{user_models.__name__}:Fading"}, seed)


class TestRecorded(DraftModelContract):
    requests = (0, 2)
    last = 40

    @pytest.fixture(autouse=True)
    def _record(self, tmp_path: Path) -> None:
        source, rows = ConstantDrafts(0.6, 1, 3), []
        for request in self.requests:
            confidence, outcomes = source.blocks(request, "chat", 1, self.last)
            for start in range(1, self.last + 1):
                for depth in range(1, 4):
                    accepted = depth <= outcomes[start - 1]
                    rows.append(
                        (request, start + depth, depth, float(confidence[start - 1, depth - 1]), bool(accepted))
                    )
        names = ["request", "position", "depth", "confidence", "accepted"]
        pl.DataFrame(rows, schema=names, orient="row").write_parquet(tmp_path / "drafts.parquet")
        self.path = str(tmp_path / "drafts.parquet")

    def model(self, seed: int) -> DraftModel:
        return make_draft_model({"kind": "recorded", "path": self.path}, seed)


USABLE, PURE, COUNT = "test_answers_can_be_used", "test_pure", "test_count_does_not_matter"
ORDER, STATE, TEXTS, DOMAINS = (
    "test_order_does_not_matter",
    "test_global_state_stays",
    "test_texts_differ",
    "test_domains_are_checked",
)
ALL = [name for name in dir(DraftModelContract) if name.startswith("test_")]


def failures(model: Any, **facts: Any) -> dict[str, str]:
    """Run the whole contract on a model; returns the tests that fail, with their messages."""
    suite: Any = type("Suite", (DraftModelContract,), {"model": model, **facts})()
    found = {}
    for name in ALL:
        try:
            getattr(suite, name)()
        except AssertionError as error:
            found[name] = str(error)
    return found


@pytest.mark.parametrize(
    ("model", "test", "message"),
    [
        (user_models.Dicing, PURE, "block anchored at output token 1: the confidences differ when asked again"),
        (user_models.Flat, USABLE, "confidences must be a float64 array of shape (1, 4), a row for each block"),
        (user_models.Short, USABLE, "outcomes must be an array of whole numbers of shape (512,)"),
        (user_models.Single, USABLE, "got float32 of shape (1, 4); return one value for each draft"),
        (user_models.Eager, USABLE, "token 20, depth 1: the confidence must be within [0, 1], got 1.5"),
        (user_models.Unsure, USABLE, "token 20, depth 1: the confidence must be within [0, 1], got nan"),
        (user_models.Counting, USABLE, "the outcome must be within 0..4, how many leading drafts are accepted, got 5"),
        (user_models.Halves, USABLE, "outcomes must be an array of whole numbers of shape (1,), one for each block"),
        (user_models.Bare, USABLE, "blocks must return (confidences, outcomes)"),
        (user_models.Remembering, ORDER, "the confidences differ if calls come in another order"),
        (user_models.FirstCall, ORDER, "the outcomes differ if calls come in another order"),
        (user_models.PerCall, COUNT, "the confidences differ between one call for 512 blocks and calls for 1"),
        (user_models.Windowed, COUNT, "the outcomes differ between one call for 512 blocks and calls for 1"),
        (user_models.Global, STATE, "uses or seeds a global random generator"),
        (user_models.Seedless, TEXTS, "three seeds give the same drafts; let them depend on `seed`"),
        (user_models.OneText, TEXTS, "all requests have the same drafts; let them depend on `request`"),
        (user_models.Choking, DOMAINS, "fails at an unknown domain, where it should raise specsched.sim.DraftError"),
        (user_models.Choking, USABLE, "failed at request 0 (domain chat), blocks 601 to 664: KeyError: 601"),
    ],
)
def test_a_fault_is_found(model: Any, test: str, message: str) -> None:
    assert message in failures(model)[test]


@pytest.mark.parametrize(
    ("model", "alone"),
    [
        (user_models.Global, {STATE}),
        (user_models.Windowed, {COUNT}),
        (user_models.PerCall, {COUNT}),
        (user_models.Seedless, {TEXTS}),
        (user_models.OneText, {TEXTS}),
    ],
)
def test_a_fault_is_not_blamed_on_the_rest(model: Any, alone: set[str]) -> None:
    assert set(failures(model)) == alone


def test_one_text_may_be_meant() -> None:
    assert failures(user_models.Seedless, one_text=True) == {}
    assert failures(user_models.Replaying) == {}


def test_a_test_class_without_a_model_says_so() -> None:
    assert set(failures(None)) == set(ALL)
    assert failures(None)[USABLE] == "`model` of Suite is not set; set it to a class, or a method that takes `seed`"
    assert "cannot be built with `seed=..`: TypeError" in failures(user_models.NoSeed)[USABLE]
    assert "draft model `Suite`" not in failures(user_models.NoBlocks)[USABLE]


def test_it_needs_no_pytest() -> None:
    script = (
        "import sys; sys.modules['pytest'] = None\n"
        "from specsched.sim.testing import DraftModelContract\n"
        "from specsched.sim.drafts import ConstantDrafts\n"
        "class Suite(DraftModelContract):\n"
        "    def model(self, seed): return ConstantDrafts(0.5, seed)\n"
        "suite = Suite()\n"
        "for name in dir(suite):\n"
        "    if name.startswith('test_'): getattr(suite, name)()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
