"""A draft model of the user's own: how it is built, and what is said of one that breaks its promise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from specsched.policies import Policy
from specsched.policies.static import Static
from specsched.sim import DraftError, DraftModel, Scenario, make_draft_model, run
from specsched.sim.drafts import ConstantDrafts, UserDrafts, checked

from . import user_models
from .scenes import requests, scenario

HERE = user_models.__name__


def made(name: str, seed: int = 3, **fields: Any) -> DraftModel:
    return make_draft_model({"kind": "python", "object": f"{HERE}:{name}", **fields}, seed)


def test_the_class_gets_its_parameters_and_the_seed() -> None:
    model = made("Fading", fade=0.05, gamma=6)
    assert isinstance(model, UserDrafts)
    assert model.model == user_models.Fading(3, fade=0.05, gamma=6)
    assert (model.gamma, model.replays, model.name) == (6, False, f"{HERE}:Fading")
    ours, theirs = model.blocks(5, "chat", 9, 20), user_models.Fading(3, 0.9, 0.05, 6).blocks(5, "chat", 9, 20)
    assert [np.array_equal(mine, other) for mine, other in zip(ours, theirs, strict=True)] == [True, True]
    assert ours[1].dtype == np.int64
    assert made("Replaying").replays
    assert made("Anything", gamma=2, other="x").gamma == 2


FADING, NO_SEED, NO_INIT = f"{HERE}:Fading", f"{HERE}:NoSeed", f"{HERE}:NoInit"
NOT_DERIVED = "must be a class derived from specsched.sim.DraftModel, got "
WHOLE = "`gamma` must be a whole number of at least 1, the drafts in a block, got "


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({}, "`object` of a python draft model must be 'module:Class', got None"),
        ({"object": "user_models"}, "`object` of a python draft model must be 'module:Class', got 'user_models'"),
        ({"object": ":Fading"}, "must be 'module:Class', got ':Fading'"),
        ({"object": "not_there:Mine"}, "cannot import `not_there` of draft model object 'not_there:Mine'"),
        ({"object": f"{HERE}:Fadng"}, "has no `Fadng` (draft model object "),
        ({"object": f"{HERE}:numbers"}, f"{NOT_DERIVED}count(0)"),
        ({"object": f"{HERE}:NotDerived"}, f"{NOT_DERIVED}<class "),
        ({"object": f"{HERE}:DraftModel"}, f"{NOT_DERIVED}<class "),
        ({"object": FADING, "fad": 1}, f"unknown parameter of drafts of `{FADING}`: `fad`; it must be one of: fade,"),
        ({"object": FADING, "seed": 1}, "is that of each point of the experiment; set `seeds` instead"),
        ({"object": NO_SEED}, f"draft model `{NO_SEED}` takes no `seed`; give it a parameter of this name"),
        ({"object": NO_INIT}, f"draft model `{NO_INIT}` takes no `seed`; give it a parameter of this name"),
        ({"object": f"{HERE}:NoBlocks"}, "cannot be built from {}: TypeError: Can't instantiate abstract class"),
        ({"object": FADING, "gamma": 0}, f"{WHOLE}0; set it"),
        ({"object": FADING, "gamma": 2.0}, f"{WHOLE}2.0; set it"),
        ({"object": FADING, "gamma": True}, f"{WHOLE}True; set it"),
    ],
)
def test_a_spec_that_makes_no_model_is_refused(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(DraftError) as caught:
        make_draft_model({"kind": "python", **spec}, 0)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


FLOATS = "blocks 11 to 160: confidences must be a float64 array of shape (150, 4), a row for each block, got "
WHOLES = "blocks 11 to 160: outcomes must be an array of whole numbers of shape (150,), one for each block, got "
TWENTY = "block anchored at output token 20, depth 1: the confidence must be within [0, 1], got "
AT_MOST = (
    ": the outcome must be within 0..4, how many leading drafts are accepted, got 5; count no further than `gamma`"
)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Flat", FLOATS + "float64 of shape (150,); return one value for each draft, .astype(np.float64)"),
        ("Single", FLOATS + "float32 of shape (150, 4); "),
        ("Short", WHOLES + "int64 of shape (100,); "),
        ("Halves", WHOLES + "float64 of shape (150,); return how many leading drafts are accepted, .astype(np.int64)"),
        ("Bare", "blocks 11 to 160: blocks must return (confidences, outcomes), got int64 of shape (150,); "),
        ("Eager", TWENTY + "1.5; it is a probability; clip it"),
        ("Unsure", TWENTY + "nan; it is a probability; clip it"),
        ("Counting", AT_MOST),
    ],
)
def test_an_answer_that_cannot_be_used_is_refused(name: str, message: str) -> None:
    with pytest.raises(DraftError) as caught:
        made(name).blocks(7, "chat", 11, 150)
    assert str(caught.value).startswith(f"draft model `{HERE}:{name}`, request 7, ")
    assert message in str(caught.value)


def test_a_model_that_fails_is_named_with_the_line() -> None:
    model = made("Choking")
    with pytest.raises(
        DraftError, match=r"Choking` failed at request 2 \(domain chat\), blocks 600 to 600: KeyError: 600"
    ):
        model.blocks(2, "chat", 600, 1)
    with pytest.raises(DraftError, match=r"Choking` failed at domains chat, code: KeyError: 'code' \(.*user_models"):
        model.check(["chat", "code"])
    with pytest.raises(DraftError, match="OnlyChat` failed at domains code: no figures for `code`; there are some"):
        made("OnlyChat").check(["code"])


def test_other_whole_numbers_are_taken() -> None:
    class Bytes(user_models.Forgetful):
        def change(self, confidence: Any, outcomes: Any, request: int, start: int, count: int) -> Any:
            return confidence, outcomes.astype(np.uint8)

    answer = UserDrafts(Bytes(1), "Bytes").blocks(0, "chat", 1, 40)
    assert answer[1].dtype == np.int64
    assert np.array_equal(answer[1], user_models.Fading(1).blocks(0, "chat", 1, 40)[1])


def test_an_answer_is_the_callers_own() -> None:
    """The simulator keeps windows of blocks; a model that fills its arrays again must not change them."""
    model = made("Reusing")
    first = model.blocks(0, "chat", 1, 50)
    kept = [array.copy() for array in first]
    model.blocks(1, "chat", 1, 50)
    assert all(np.array_equal(now, then) for now, then in zip(first, kept, strict=True))


def test_shipped_models_answer_for_themselves() -> None:
    shipped = ConstantDrafts(0.5, 0)
    assert checked(shipped) is shipped
    assert checked(made("Fading")).name == f"{HERE}:Fading"  # type: ignore[attr-defined]
    assert isinstance(checked(user_models.Fading(0)), UserDrafts)


def with_drafts(drafts: Any, policy: Policy | None = None, concurrency: int = 4) -> Scenario:
    return scenario(
        policy or Static(2), unsafe=False, concurrency=concurrency, cohort=20, requests=requests(60), drafts=drafts
    )


@pytest.mark.parametrize("concurrency", [4, 20])  # rows in lists, rows in arrays
def test_a_model_given_to_a_scenario_is_checked(concurrency: int) -> None:
    ours = run(with_drafts(user_models.Fading(3), concurrency=concurrency))
    assert ours.steps.equals(run(with_drafts(made("Fading"), concurrency=concurrency)).steps)
    assert ours.steps.equals(run(with_drafts(user_models.NotDerived(3), concurrency=concurrency)).steps)
    with pytest.raises(DraftError, match="draft model `Counting`, request"):
        run(with_drafts(user_models.Counting(3), concurrency=concurrency))
    with pytest.raises(DraftError, match="draft model `object`: `gamma` must be a whole number"):
        with_drafts(object(), concurrency=concurrency)


def test_a_seed_is_a_text() -> None:
    runs = [run(with_drafts(user_models.Fading(seed))).steps for seed in (3, 4, 3)]
    assert runs[0].equals(runs[2])
    assert not runs[0].equals(runs[1])
