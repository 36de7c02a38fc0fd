"""Constant and recorded drafts, and the factory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from specsched.experiments.fits.chain_walk import walk
from specsched.sim.drafts import ConstantDrafts, DraftError, DraftModel, RecordedDrafts, make_draft_model

NORMAL_99 = 2.5758
STEPS = 1_000_000


def constant(**fields: object) -> DraftModel:
    return make_draft_model({"kind": "constant", "acceptance": 0.8, **fields}, 5)


# --- constant -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("acceptance", "gamma"), [(0.8, 3), (0.6, 7)])
def test_accepted_length_has_its_closed_form(acceptance: float, gamma: int) -> None:
    """tau = (1 - alpha^(k+1)) / (1 - alpha), uncut counts of more than 10^6 static rounds, 99 % interval."""
    tau = (1.0 - acceptance ** (gamma + 1)) / (1.0 - acceptance)
    model, output = constant(acceptance=acceptance, gamma=gamma), 2000
    requests = int(np.ceil(1.01 * STEPS * tau / output))
    table = np.stack([model.blocks(request, "any", 1, output)[1] for request in range(requests)])
    accepted = walk(requests, output, lambda row, start: table[row, start - 1]).accepted
    assert len(accepted) >= STEPS
    error = NORMAL_99 * accepted.std() / np.sqrt(len(accepted))
    assert abs(accepted.mean() + 1.0 - tau) < error


def test_constant_confidence() -> None:
    np.testing.assert_array_equal(constant().blocks(0, "x", 1, 3)[0], np.full((3, 7), 0.8))
    np.testing.assert_array_equal(constant(confidence=0.5, gamma=2).blocks(0, "x", 1, 3)[0], np.full((3, 2), 0.5))
    constant().check(["anything", "at all"])


def test_constant_outcomes_belong_to_the_text() -> None:
    whole = constant(gamma=7).blocks(3, "x", 1, 200)[1]
    np.testing.assert_array_equal(constant(gamma=7).blocks(3, "x", 41, 30)[1], whole[40:70])
    np.testing.assert_array_equal(constant(gamma=2).blocks(3, "x", 1, 200)[1], np.minimum(whole, 2))
    assert whole.dtype == np.int64
    # A block's second draft is the next block's first: what one accepts the other does too.
    both = whole[:-1] >= 1
    np.testing.assert_array_equal(whole[:-1][both] >= 2, whole[1:][both] >= 1)


@pytest.mark.parametrize(("acceptance", "accepted"), [(0.0, 0), (1.0, 7)])
def test_certain_outcomes(acceptance: float, accepted: int) -> None:
    assert (constant(acceptance=acceptance).blocks(0, "x", 1, 500)[1] == accepted).all()


# --- factory ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({}, "unknown draft model `kind` `None`; it must be one of: constant, latent, python, recorded"),
        ({"kind": "latnt"}, "unknown draft model `kind` `latnt`; it must be one of: latent, "),
        ({"kind": "constant"}, "kind `constant` need `acceptance`"),
        ({"kind": "latent"}, "kind `latent` need `profile`"),
        ({"kind": "recorded"}, "kind `recorded` need `path`"),
        ({"kind": "constant", "acceptance": 0.5, "gama": 3}, "kind `constant`: `gama`; it must be one of: gamma, "),
        ({"kind": "constant", "acceptance": 0.5, "seed": 3}, "kind `constant`: `seed`"),
        ({"kind": "constant", "acceptance": 1.5}, "`acceptance` must be within \\[0, 1\\], got 1.5"),
        ({"kind": "constant", "acceptance": float("nan")}, "`acceptance` must be within \\[0, 1\\], got nan"),
        ({"kind": "constant", "acceptance": "high"}, "`acceptance` must be a number, got 'high'"),
        ({"kind": "constant", "acceptance": True}, "`acceptance` must be a number, got True"),
        ({"kind": "constant", "acceptance": 0.5, "confidence": -0.1}, "`confidence` must be within"),
        ({"kind": "constant", "acceptance": 0.5, "gamma": 0}, "`gamma` must be at least 1, got 0"),
        ({"kind": "constant", "acceptance": 0.5, "gamma": 1.5}, "`gamma` must be a whole number, got 1.5"),
    ],
)
def test_bad_specs(spec: dict[str, object], message: str) -> None:
    with pytest.raises(DraftError, match=message):
        make_draft_model(spec, 0)


def test_none_is_the_default() -> None:
    model = make_draft_model({"kind": "constant", "acceptance": 0.5, "confidence": None, "gamma": None}, 0)
    assert isinstance(model, ConstantDrafts)
    assert (model.gamma, model.confidence) == (7, 0.5)


# --- recorded -----------------------------------------------------------------------------------------------------


def recording(model: DraftModel, requests: list[int], starts: int) -> pl.DataFrame:
    """Return what a recorder of a model writes, rows in no order."""
    rows = []
    for request in requests:
        confidence, accepted = model.blocks(request, "chat", 1, starts)
        for place in range(starts):
            for depth in range(1, model.gamma + 1):
                outcome = None if depth > accepted[place] + 1 else bool(depth <= accepted[place])
                rows.append((request, 1 + place + depth, depth, confidence[place, depth - 1], outcome))
    names = ["request", "position", "depth", "confidence", "accepted"]
    return pl.DataFrame(rows, schema=names, orient="row").sample(fraction=1.0, shuffle=True, seed=1)


@pytest.fixture
def source() -> DraftModel:
    return make_draft_model({"kind": "latent", "profile": "dspark-qwen3-4b", "gamma": 3}, 4)


def test_a_recording_replays_what_was_recorded(source: DraftModel, tmp_path: Path) -> None:
    recording(source, [0, 3, 8], 40).write_parquet(tmp_path / "drafts.parquet")
    model = make_draft_model({"kind": "recorded", "path": str(tmp_path / "drafts.parquet")}, 99)
    assert model.gamma == 3
    model.check(["chat", "whatever"])
    for request in (8, 0, 3):
        for start, count in ((1, 40), (7, 12), (40, 1)):
            for replayed, original in zip(
                model.blocks(request, "chat", start, count), source.blocks(request, "chat", start, count), strict=True
            ):
                np.testing.assert_array_equal(replayed, original)
                assert replayed.dtype == original.dtype


def test_blocks_that_are_not_there_are_named(source: DraftModel, tmp_path: Path) -> None:
    path = tmp_path / "drafts.parquet"
    table = recording(source, [2], 40).filter(pl.col("position") - pl.col("depth") != 20)
    table.write_parquet(path)
    model = RecordedDrafts(path)
    model.blocks(2, "chat", 1, 19)
    with pytest.raises(DraftError, match=f"`{path}`, request 2: no block is anchored at output token 20 .* record"):
        model.blocks(2, "chat", 15, 10)
    with pytest.raises(DraftError, match="no block is anchored at output token 41 "):
        model.blocks(2, "chat", 35, 10)
    with pytest.raises(DraftError, match="no block is anchored at output token 50 "):
        model.blocks(2, "chat", 50, 1)
    with pytest.raises(DraftError, match=f"`{path}` holds no block of request 7; .*ids 2 to 2"):
        model.blocks(7, "chat", 1, 1)


def _set(row: int, name: str, value: object) -> Callable[[pl.DataFrame], pl.DataFrame]:
    def change(table: pl.DataFrame) -> pl.DataFrame:
        values = table[name].to_list()
        values[row] = value
        return table.with_columns(pl.Series(name, values, dtype=table[name].dtype))

    return change


BLOCK = {
    "request": [0, 0, 0, 0, 0, 0],
    "position": [2, 3, 4, 3, 4, 5],
    "depth": [1, 2, 3, 1, 2, 3],
    "confidence": [0.9, 0.8, 0.7, 0.9, 0.8, 0.7],
    "accepted": [True, False, None, True, True, True],
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.drop("depth"), "lacks the column `depth`"),
        (lambda t: t.clear(), "is empty"),
        (_set(1, "confidence", 1.5), "row 1: `confidence` must be within \\[0, 1\\], got 1.5"),
        (_set(2, "confidence", float("nan")), "row 2: `confidence` must be within"),
        (_set(2, "confidence", None), "row 2: `confidence` must be within"),
        (_set(0, "depth", 0), "row 0: `depth` must be at least 1, got 0"),
        (_set(0, "request", -1), "row 0: `request` must be at least 0, got -1"),
        (_set(0, "position", 1), "row 0: `position` must be over `depth`"),
        (lambda t: t.with_columns(pl.col("depth") * 1.0), "`depth` must hold whole numbers, got Float64"),
        (lambda t: t.with_columns(pl.col("confidence").cast(str)), "`confidence` must hold floats, got String"),
        (lambda t: t.with_columns(pl.col("accepted").cast(int)), "`accepted` must hold booleans, got Int64"),
        (lambda t: t[[0, 2, 3, 4, 5]], "anchored at output token 1: depths must be 1 to 3, .* depth 2 is missing"),
        (lambda t: t[[0, 1, 2, 3, 4]], "anchored at output token 2: depths must be 1 to 3"),
        (lambda t: t[[0, 1, 1, 2, 3, 4, 5]], "anchored at output token 1: depths must be 1 to 3"),
        (_set(0, "accepted", None), "position 2, depth 1 .*: `accepted` is null where all drafts before it"),
        (_set(5, "accepted", None), "position 5, depth 3 .*: `accepted` is null"),
        (_set(2, "accepted", True), "position 4, depth 3 .*: `accepted` is true after a rejection"),
    ],
)
def test_bad_recordings(change: Callable[[pl.DataFrame], pl.DataFrame], message: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.parquet"
    pl.DataFrame(BLOCK).write_parquet(path)
    assert RecordedDrafts(path).blocks(0, "x", 1, 2)[1].tolist() == [1, 3]
    change(pl.DataFrame(BLOCK)).write_parquet(path)
    with pytest.raises(DraftError, match=f"`{path}`.*{message}"):
        RecordedDrafts(path)


def test_files_that_are_no_recording(tmp_path: Path) -> None:
    (tmp_path / "text.parquet").write_text("request,position\n")
    for name in ("text.parquet", "absent.parquet"):
        with pytest.raises(DraftError, match=f"`{tmp_path / name}` cannot be read as parquet"):
            RecordedDrafts(tmp_path / name)
