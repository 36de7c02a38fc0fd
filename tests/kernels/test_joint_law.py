"""The exact law of what leaves when the kernels draft, score, admit and verify, and what breaks it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
import torch

from specsched.kernels.admit import admit
from specsched.kernels.confidence import confidence
from specsched.policies import Generation, Ints, Policy, View, admit_top_k
from specsched.policies.async_topk import AsyncTopK
from specsched.policies.lossless.decoders import BROKEN_DECODERS, RIGHT
from specsched.policies.lossless.exact import distance, law
from specsched.policies.lossless.worlds import RowPlan, World, appendix_a
from specsched.policies.retrospective import Retrospective
from specsched.policies.static import Static
from specsched.sim.drafts import make_draft_model
from specsched.sim.engine import run
from tests.kernels.little_pipeline import Decoding, Kernels, Uniforms, above_low, below_high, middle, residual_law
from tests.policies.lossless.broken import BudgetFromOtherRows
from tests.sim.scenes import requests, scenario

A, B = 0, 1

# A confidence of exactly 0 comes of exp(200), which NumPy warns of in the interpreter.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:triton")


def fractions(*values: str) -> tuple[Fraction, ...]:
    return tuple(map(Fraction, values))


def pair(tokens: int = 2) -> World:
    """Two rows of two drafts; laws and confidences follow the preceding token, and the step time has risers."""
    return World(
        vocabulary=2,
        gamma=2,
        tokens=tokens,
        rows=(RowPlan(), RowPlan(anchor=B)),
        target=((fractions("3/4", "1/4"), fractions("1/4", "3/4")),),
        draft=((fractions("1/2", "1/2"), fractions("3/8", "5/8")),),
        confidence=(((0.75, 0.9375, 0.125),),),
        seconds=(1.0, 1.0, 1.6, 1.9, 1.95, 2.3),
    )


def three_tokens() -> World:
    """One row, one draft, a residual law of two tokens: sharing a uniform with the residual shows."""
    return World(
        vocabulary=3,
        gamma=1,
        tokens=1,
        rows=(RowPlan(),),
        target=((fractions("3/8", "3/8", "1/4"),),),
        draft=((fractions("1/8", "1/4", "5/8"),),),
        confidence=(((0.5,),),),
        seconds=(1.0, 1.0),
    )


@pytest.fixture(scope="module")
def appendix() -> Decoding:
    return Decoding(appendix_a())


@pytest.fixture(scope="module")
def two_rows() -> Decoding:
    return Decoding(pair())


def test_appendix_a_through_the_kernels(appendix: Decoding) -> None:
    """A budget from this step's own survivals gives A 17/20 instead of 7/10; the scheduler of section 5.2 does not."""
    assert appendix.law(Retrospective(), 1) == {((A,),): Fraction(17, 20), ((B,),): Fraction(3, 20)}
    assert appendix.law(AsyncTopK(lag=1), 1) == {((A,),): Fraction(7, 10), ((B,),): Fraction(3, 10)}


@pytest.mark.parametrize(("tokens", "bias"), [(2, Fraction(63, 400)), (3, Fraction(1281, 8000))])
def test_appendix_a_for_more_tokens(appendix: Decoding, tokens: int, bias: Fraction) -> None:
    target = law(appendix_a(tokens), Static(1)).target_joint
    assert distance(appendix.law(Retrospective(), tokens), target) == bias
    for policy in (AsyncTopK(lag=1), AsyncTopK(lag=1, joins="none"), Static(1), Static(2)):
        assert appendix.law(policy, tokens) == target


@pytest.mark.parametrize("joins", ["optimistic", "none"])
def test_two_rows_keep_their_joint_law_under_a_lagged_budget(two_rows: Decoding, joins: Any) -> None:
    policy = AsyncTopK(lag=1, joins=joins)
    exact = law(two_rows.world, policy)
    assert exact.coverage.varied  # so that the budget does read something
    assert exact.coverage.split
    before = two_rows.admissions
    assert two_rows.law(policy, 2) == exact.joint == exact.target_joint
    assert two_rows.admissions > before


def test_two_rows_under_a_budget_of_the_same_step(two_rows: Decoding) -> None:
    exact = law(two_rows.world, Retrospective())
    assert two_rows.law(Retrospective(), 2) == exact.joint
    assert exact.verdict == "marginal"


def test_rows_that_decide_for_each_other_are_coupled(two_rows: Decoding) -> None:
    """Each row's law is right, their joint law is not."""
    exact = law(pair(1), BudgetFromOtherRows())
    assert two_rows.law(BudgetFromOtherRows(), 1, top_k=False) == exact.joint
    assert exact.verdict == "joint"


@pytest.mark.parametrize("at", [above_low, below_high])
def test_breakpoints_of_the_kernels_are_the_exact_ones(appendix: Decoding, at: Any) -> None:
    """Uniforms 2^-20 inside the ends of their cells give what the middles give.

    What is selected is monotone in each uniform, so the cells of the kernels are the exact ones but for 2^-20 at each
    end, and so are their widths, which the laws above are made of.
    """
    edges = Decoding(appendix_a(), at)
    for anchor, moves in edges.moves.items():
        assert moves == appendix.moves[anchor]


SHARED = {
    "right": RIGHT,
    "draft and accept": BROKEN_DECODERS["draft and accept share a uniform"],
    "draft and residual": BROKEN_DECODERS["draft and residual share a uniform"],
    "accept and residual": BROKEN_DECODERS["accept and residual share a uniform"],
}


@pytest.mark.parametrize("sharing", SHARED)
def test_shared_uniforms_are_caught(sharing: str) -> None:
    """All draws of one position, on the common refinement of whatever breakpoints a uniform has to serve."""
    world = three_tokens()
    target, draft = world.target_at(0, 0), world.draft_at(0, 0)
    breakpoints = {
        "draft": set(np.cumsum(draft)),
        "accept": {min(t / d, Fraction(1)) for t, d in zip(target, draft, strict=True)} | {Fraction(1)},
        "residual": set(np.cumsum(residual_law(target, draft))),
    }
    streams = [(name,) for name in breakpoints if name not in sharing] + [tuple(n for n in breakpoints if n in sharing)]
    refined = [list(pairwise(sorted({Fraction(0)}.union(*map(breakpoints.get, names))))) for names in streams if names]  # type: ignore[arg-type]
    drawn = []
    for chosen in product(*refined):
        cell = {name: each for names, each in zip(filter(None, streams), chosen, strict=True) for name in names}
        drawn.append((cell, Fraction(np.prod([high - low for low, high in chosen]))))
    kernels = Kernels(world)
    given = [
        Uniforms((middle(*cell["accept"]),), middle(*cell["residual"]), Fraction(1, 2), share) for cell, share in drawn
    ]
    drafts = kernels.draft([0] * len(drawn), [(middle(*cell["draft"]),) for cell, _ in drawn])
    left = kernels.verify([0] * len(drawn), drafts, [1] * len(drawn), given)
    found: defaultdict[Any, Fraction] = defaultdict(Fraction)
    for tokens, each in zip(left, given, strict=True):
        found[(tokens[:1],)] += each.probability
    exact = law(world, Static(1), SHARED[sharing])
    assert found == exact.joint
    assert (exact.verdict == "lossless") == (sharing == "right")


def survivals(rng: np.random.Generator, rows: int, gamma: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Float32 survivals with ties, exact ones and zeros."""
    c = rng.choice(
        np.float32([0.0, 0.5, 0.75, 1.0, 1 - 2**-24, rng.random()]), (rows, gamma), p=[0.1, 0.2, 0.2, 0.2, 0.1, 0.2]
    )
    return np.multiply.accumulate(c, axis=1, dtype=np.float32)


class Stairs:
    """A step time with risers at multiples of 5 tokens."""

    def table(self, rows: int) -> np.ndarray[Any, np.dtype[np.float64]]:
        return 1.0 + 0.3 * np.floor(np.arange(200) / 5)

    def listed(self, rows: int, first: int, most: int) -> tuple[float, ...]:
        return tuple(self.table(rows)[first : first + most + 1].tolist())

    def padded(self, tokens: int) -> int:
        return tokens


@pytest.mark.parametrize("min_len", [0, 1])
def test_admission_agrees_with_async_topk(min_len: int) -> None:
    rng = np.random.default_rng(3)
    policy = AsyncTopK(lag=1, min_len=min_len)
    budgets = set()
    for _ in range(8):
        rows, gamma = int(rng.integers(1, 9)), 4
        available = rng.integers(0, gamma + 1, rows)
        fresh, past = (
            np.where(np.arange(gamma) < available[:, None], survivals(rng, rows, gamma), 0) for _ in range(2)
        )
        known = rng.random(rows) < 0.8
        lagged = Generation(*2 * [np.where(known[:, None], past, 0).astype(np.float64)], known, bool(known.all()))
        now = Generation(*2 * [fresh.astype(np.float64)], available > 0, bool((available > 0).all()))
        view = View(0, np.arange(rows), available, int(available.sum()), Stairs(), lagged, generation=now)
        planned, _ = policy.plan(view, None)
        budget = int(planned.sum())
        assert planned.tolist() == admit_top_k(fresh.astype(np.float64), available, budget, min_len).tolist()
        found = admit(torch.tensor(fresh), torch.tensor([budget]), torch.tensor(available), min_len)
        assert found.lengths.tolist() == planned.tolist()
        assert found.offsets.tolist() == [0, *np.cumsum(1 + planned).tolist()]
        budgets.add(0 < budget < available.sum())
    assert True in budgets


def test_survivals_agree_with_float64() -> None:
    draw = torch.Generator().manual_seed(4)
    rows, gamma, width, rank, size = 6, 4, 24, 8, 50
    hidden = torch.randn(rows, gamma, width, generator=draw)
    w1 = torch.randn(size, rank, generator=draw)
    previous = torch.randint(size, (rows, gamma), generator=draw)
    weight = torch.randn(width + rank, generator=draw) / 4
    heat = torch.tensor([0.8, 1.0, 1.3, 0.6])
    found = confidence(hidden, w1, previous, weight, None, heat)
    logits = torch.cat((hidden, w1[previous]), 2).double() @ weight.double() * heat.double()
    expected = np.multiply.accumulate(1 / (1 + np.exp(-logits.numpy())), axis=1)
    np.testing.assert_allclose(found.a.numpy(), expected, rtol=0, atol=1e-6)


@dataclass(frozen=True)
class Rounded(Policy):
    """`AsyncTopK` on survivals rounded to float32, as a device gives them; it keeps what it saw and answered."""

    lag: int | None = 1
    steps: list[tuple[np.ndarray[Any, Any], Ints, Ints]] = field(default_factory=list, compare=False)

    def plan(self, view: View, state: Any) -> tuple[Ints, Any]:
        rounded = view.survival.astype(np.float32)
        wide = rounded.astype(np.float64)
        generation = Generation(view.confidence.copy(), wide, view.generation.known, view.generation.complete)
        planned, state = AsyncTopK(lag=self.lag).plan_past(view.past(), generation, state)
        self.steps.append((rounded, view.available.copy(), planned.copy()))
        return planned, state


def test_admission_agrees_with_the_simulator() -> None:
    """Every step of a simulated run, its survivals put through the kernel: the lengths the engine executed."""
    policy = Rounded()
    drafts = make_draft_model({"kind": "latent", "profile": "dspark-qwen3-4b", "gamma": 7}, 0)
    steps = run(scenario(policy, concurrency=8, requests=requests(30, 60), cohort=20, drafts=drafts)).steps
    uneven = 0
    # A run first tries its policy on made-up batches; the steps are the last that it was asked for.
    asked = policy.steps[-len(steps) :]
    for (a, available, planned), verified in zip(asked, steps["verified"].to_list(), strict=True):
        assert int(planned.sum()) == verified
        found = admit(torch.tensor(a), torch.tensor([verified]), torch.tensor(available))
        assert found.lengths.tolist() == planned.tolist()
        uneven += len(set(planned.tolist())) > 1
    assert len(steps) >= 40
    assert uneven >= 20
