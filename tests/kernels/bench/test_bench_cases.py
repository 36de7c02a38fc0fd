"""Problems of the benchmark: right results pass, broken ones do not, and the work is what the data make of it."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from specsched.kernels.bench import cases_attention, cases_draft, cases_step, shapes
from specsched.kernels.bench.cases import (
    CLEAR,
    TOLERANCE,
    Tensors,
    Verdict,
    draw_from,
    named_rows,
    peaked,
    relative_error,
    some_rows,
    worst,
)
from specsched.kernels.bench.cases_step import VerifyCase
from specsched.kernels.bench.providers import PROVIDERS, Unavailable, bind, case_of
from specsched.kernels.bench.shapes import CI, OPS, REAL, Shape, select
from specsched.kernels.common import KernelError
from specsched.kernels.verify_reference import verify_chain_reference

CPU = torch.device("cpu")
EVERY = [pytest.param(shape, id=f"{shape.op} {shape.label}") for shape in CI]
A_FEW = [pytest.param(shape, id=f"{shape.op} {shape.label}") for shape in CI if shape.dtype == "fp32"]

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:triton")


@pytest.mark.parametrize("shape", EVERY)
def test_the_lab_and_plain_torch_agree_with_float64(shape: Shape) -> None:
    case = case_of(shape)
    given = case.inputs(CPU)
    for run in (case.ours(CPU), case.eager):
        verdict = case.compare(given, run(given))
        assert verdict.problem(shape.dtype) is None
        assert verdict.rows is None


@pytest.mark.parametrize("shape", EVERY)
def test_inputs_are_the_same_each_time(shape: Shape) -> None:
    one, other = (case_of(shape).inputs(CPU) for _ in range(2))
    assert all(torch.equal(one[name], other[name]) for name in one)


def off(value: torch.Tensor) -> torch.Tensor:
    """An output with its last element off by much."""
    broken = value.clone()
    broken.view(-1)[-1] = broken.view(-1)[-1] * 3 + 1
    return broken


def unwritten(value: torch.Tensor) -> torch.Tensor:
    """An output whose last element was never written."""
    broken = value.clone()
    broken.view(-1)[-1] = float("nan") if value.dtype.is_floating_point else -7777
    return broken


@pytest.mark.parametrize("spoil", [off, unwritten])
@pytest.mark.parametrize("shape", EVERY)
def test_each_output_that_is_off_is_found(shape: Shape, spoil: Callable[[torch.Tensor], torch.Tensor]) -> None:
    case = case_of(shape)
    given = case.inputs(CPU)
    right = case.eager(given)
    for name in right:
        if name == cases_draft.OTHER_TOKENS and spoil is off:
            continue  # drawn with another noise: any id of the vocabulary may be right
        assert case.compare(given, right | {name: spoil(right[name])}).problem(shape.dtype) is not None, name


@pytest.mark.parametrize("shape", EVERY)
def test_outputs_are_poisoned_before_the_call(shape: Shape, monkeypatch: pytest.MonkeyPatch) -> None:
    case = case_of(shape)
    given = case.inputs(CPU)
    calls = {
        cases_draft: ("draft_block", "rnn_step", "confidence"),
        cases_step: ("admit", "layout", "verify_chain"),
        cases_attention: ("varlen_attention",),
    }
    for module, names in calls.items():
        for name in names:
            monkeypatch.setattr(module, name, lambda *arguments, **options: None)
    assert case.compare(given, case.ours(CPU)(given)).problem(shape.dtype) is not None


@pytest.mark.parametrize("shape", EVERY)
def test_the_eager_chain_is_one_graph(shape: Shape) -> None:
    """Nothing in it waits for the device, so that it can be compiled and captured."""
    case = case_of(shape)
    given = case.inputs(CPU)
    torch.compiler.reset()
    found = torch.compile(case.eager, backend="eager", fullgraph=True, dynamic=False)(given)
    assert case.compare(given, found).problem(shape.dtype) is None


def judged(shape: Shape, change: Callable[[Tensors], Tensors] = lambda each: each) -> Verdict:
    case = case_of(shape)
    given = case.inputs(CPU)
    return case.compare(given, change(case.eager(given)))


@pytest.mark.parametrize("shape", A_FEW)
def test_some_rows_are_judged_where_all_would_be_too_many(shape: Shape, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cases_draft, "JUDGED_LOGITS", 4 * shape.sizes.get("V", 1))
    monkeypatch.setattr(cases_step, "JUDGED_ROWS", 4)
    monkeypatch.setattr(cases_attention, "JUDGED_KEYS", 1)
    verdict = judged(shape)
    assert verdict.problem(shape.dtype) is None
    if shape.op in ("rnn", "confidence", "admit"):
        assert verdict.rows is None
        return
    assert verdict.rows is not None
    assert verdict.rows.startswith(f"{2 if shape.op == 'attention' else 4} of {shape['R']} rows judged, 0 to ")
    if shape.choice != "gumbel":  # which is judged on the first rows
        assert judged(shape, lambda each: {name: off(value) for name, value in each.items()}).problem(shape.dtype)


def test_rows_that_are_judged() -> None:
    assert some_rows(3, 5).tolist() == [0, 1, 2]
    assert some_rows(256, 4).tolist() == [0, 85, 170, 255]
    assert named_rows(some_rows(256, 4), 256) == "4 of 256 rows judged, 0 to 255"
    assert named_rows(some_rows(3, 5), 3) is None


@pytest.mark.parametrize("shape", [pytest.param(each, id=each.label) for each in CI if each.op == "verify"])
def test_as_many_rows_reject_as_the_work_counts(shape: Shape) -> None:
    case = case_of(shape)
    assert isinstance(case, VerifyCase)
    given = case.inputs(CPU)
    expected = verify_chain_reference(**given)
    assert int((expected.n_accepted < given["lengths"]).sum()) == shape["rejecting"] > 0
    assert bool((expected.gap >= CLEAR).all())
    assert len(given["target_logits"]) == case.batch == int(given["offsets"][-1])


def test_work_counts_what_the_inputs_hold() -> None:
    """Of operations that read all their inputs but tables of embeddings, whose rows of the batch alone count."""
    for shape in CI:
        if shape.op not in ("rnn", "confidence"):
            continue
        case = case_of(shape)
        given = case.inputs(CPU)
        held = sum(value.numel() * value.itemsize for name, value in given.items() if name not in ("W1", "w1"))
        held -= 4 * given["previous"].numel()  # ids are counted as int32
        written = sum(value.numel() * value.itemsize for value in case.ours(CPU)(given).values())
        gathered = given["previous"].numel() * shape["r"] * shape.torch_dtype.itemsize
        # The documented floor of the RNN's cell leaves out its ids.
        ids = 4 * shape["R"] if shape.op == "rnn" else 0
        assert held + written + gathered - ids == case.work().bytes, shape.label


def test_shapes_have_names_of_their_own() -> None:
    for found in (CI, REAL):
        labels = [(shape.op, shape.label) for shape in found]
        assert len(set(labels)) == len(labels)
        assert {shape.op for shape in found} == set(OPS)
    assert REAL[0].label == "inverse_cdf R=1 g=1 V=129280 r=256 bf16"


def test_shapes_are_selected_by_operation() -> None:
    assert {shape.op for shape in select("ci", ["verify", "rnn"])} == {"verify", "rnn"}
    assert select("real") == list(REAL)
    with pytest.raises(KernelError, match="`shapes` must be one of ci, real, got 'big'"):
        select("big")
    with pytest.raises(KernelError, match=r"`op` must be one of markov, .*, got 'sort'"):
        select("ci", ["admit", "sort"])


def test_the_predictions_have_their_shapes() -> None:
    labels = {f"{shape.op} {shape.label}" for shape in REAL}
    assert "markov inverse_cdf R=256 g=1 V=129280 r=256 bf16" in labels
    assert "markov gumbel R=256 g=1 V=129280 r=256 bf16" in labels
    packed = next(each for each in REAL if each.op == "attention" and each.choice == "packed")
    assert (packed["R"], packed["context"] + packed["T"], packed["HKV"], packed["D"]) == (64, 4096, 8, 128)
    assert case_of(packed).work().bytes == pytest.approx(1080.22e6, rel=1e-5)


def test_real_work_is_that_of_the_table_of_floors() -> None:
    found = [round(case_of(shape).work().bytes / 1e6, 2) for shape in REAL]
    assert found == [66.45, 82.77, 132.52, 132.52, 7.8, 11.17, 0.01, 0.01, 1080.22, 1080.22, 6445.65, 66.19, 99.29]


def test_others_need_a_gpu() -> None:
    case = case_of(CI[0])
    for provider in PROVIDERS[2:]:
        with pytest.raises(Unavailable, match="needs a GPU"):
            bind(provider, case, case.inputs(CPU))


def test_verdicts() -> None:
    assert Verdict(relative_error=1e-6).problem("fp32") is None
    assert "over 1e-06, agreed for fp32" in str(Verdict(relative_error=1.1e-6).problem("fp32"))
    assert Verdict(relative_error=float("nan")).problem("bf16") is not None
    assert "1 of 9 integers differ" in str(Verdict(mismatches=1, compared=9, drawn=9).problem("bf16"))
    assert "only 4 of 9 draws" in str(Verdict(mismatches=0, compared=4, drawn=9).problem("bf16"))
    assert "no output" in str(Verdict().problem("bf16"))
    assert TOLERANCE == {"fp32": 1e-6, "fp16": 1e-3, "bf16": 8e-3}


def test_relative_errors() -> None:
    ones = torch.ones(4)
    assert relative_error(1.5 * ones, ones) == 0.5
    nan = torch.tensor([1.0, float("nan"), 1.0, 1.0])
    found = worst({"a": 1.5 * ones, "b": nan}, {"a": ones, "b": ones, "c": ones})
    assert found is not None
    assert math.isnan(found)
    assert worst({}, {"a": ones}) is None


def test_draws_are_the_first_token_above_the_uniform() -> None:
    law = torch.tensor([[0.25, 0.0, 0.5, 0.25]]).repeat(5, 1)
    uniform = torch.tensor([0.0, 0.2499, 0.25, 0.75, 1 - 2**-24])
    assert draw_from(law, uniform).tolist() == [0, 0, 2, 3, 3]
    assert draw_from(3 * law, uniform).tolist() == [0, 0, 2, 3, 3]


def test_a_peaked_law_leaves_most_draws_clear() -> None:
    logits = peaked(64, 129_280, dtype=torch.bfloat16, draw=torch.Generator().manual_seed(1))
    top = logits.float().softmax(1).topk(8, 1).values.sum(1)
    assert float(top.min()) > 0.9


def test_all_names_of_types_are_types() -> None:
    assert {shape.dtype for shape in (*CI, *REAL)} <= shapes.DTYPES.keys()
