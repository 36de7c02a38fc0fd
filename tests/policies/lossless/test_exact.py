from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from specsched.policies import Generation, Ints, Policy, PolicyError, View, build_policy
from specsched.policies.lossless.decoders import BROKEN_DECODERS
from specsched.policies.lossless.exact import ExactLaw, WorldTooLarge, distance, law, target_law
from specsched.policies.lossless.scripts import random_script
from specsched.policies.lossless.stepping import freeze
from specsched.policies.lossless.worlds import Distribution, RowPlan, Tokens, World, appendix_a
from specsched.sim.history import History

from .random_worlds import coupled_rows, play, random_world

A, B, C = range(3)
HALF = Fraction(1, 2)

RETROSPECTIVE = build_policy({"kind": "retrospective"}, unsafe=True)
EARLY_STOP = build_policy({"kind": "greedy_early_stop"})
LAGGED = [build_policy({"kind": "async_topk", "lag": lag}) for lag in (1, 2, 3)]
SAFE = [
    EARLY_STOP,
    *LAGGED,
    build_policy({"kind": "async_topk", "lag": 1, "ema": 0.5, "joins": "mean", "min_len": 1}),
    build_policy({"kind": "threshold", "t": 0.5}),
    build_policy({"kind": "static", "k": 1}),
    build_policy({"kind": "autoregressive"}),
]


@dataclass(frozen=True)
class Fixed(Policy):
    """Verifies up to so many drafts of every row."""

    most: int = 1

    def plan(self, view: View, state: None) -> tuple[Ints, None]:
        return np.minimum(view.available, self.most), None


@dataclass(frozen=True)
class AcceptedPrefix(Policy):
    """Knows the outcomes and verifies exactly the drafts that will be accepted."""

    needs_outcomes = True

    def plan(self, view: View, state: None) -> tuple[Ints, None]:
        assert view.outcomes is not None
        return view.outcomes, None


@dataclass(frozen=True)
class Reciprocal(Policy):
    """Verifies a row's draft iff the other row's confidence is 1."""

    def plan(self, view: View, state: None) -> tuple[Ints, None]:
        return view.available * (view.confidence[::-1, 0] == 1.0), None


def first_token(found: ExactLaw) -> list[Fraction]:
    """The law of the first row's first token."""
    vocabulary = 1 + max(tokens[0] for tokens in found.target_rows[0])
    mass = [Fraction(0)] * vocabulary
    for tokens, probability in found.rows[0].items():
        mass[tokens[0]] += probability
    return mass


def fractions(*values: str) -> list[Fraction]:
    return [Fraction(value) for value in values]


# --- Appendix A and the coupled rows


def test_appendix_a_retrospective_is_biased() -> None:
    # Drafts A and B come with 1/2 each. After A, c_2 = 0.9 and the argmax verifies both drafts: A is accepted for sure
    # (7/10 > 1/2). After B, c_2 = 0 and nothing is verified: the bonus token is A with 7/10. 1/2 + 1/2 * 7/10 = 17/20.
    found = law(appendix_a(1), RETROSPECTIVE)
    assert found.rows == ({(A,): Fraction(17, 20), (B,): Fraction(3, 20)},)
    assert found.target_rows == ({(A,): Fraction(7, 10), (B,): Fraction(3, 10)},)
    assert found.verdict == "marginal"


@pytest.mark.parametrize(("tokens", "expected"), [(1, "3/20"), (2, "63/400"), (3, "1281/8000")])
def test_appendix_a_total_variation(tokens: int, expected: str) -> None:
    found = law(appendix_a(tokens), RETROSPECTIVE)
    assert found.marginal_tv == found.joint_tv == Fraction(expected)


@pytest.mark.parametrize("tokens", [1, 2, 3, 4])
@pytest.mark.parametrize("policy", [EARLY_STOP, *LAGGED], ids=str)
def test_appendix_a_early_stop_and_lag_restore_the_law(policy: Policy, tokens: int) -> None:
    found = law(appendix_a(tokens), policy)
    assert first_token(found) == fractions("7/10", "3/10")
    assert found.rows == found.target_rows
    assert found.joint == found.target_joint
    assert found.verdict == "lossless"


def test_appendix_a_verifying_exactly_the_accepted_prefix() -> None:
    # A drafted: accepted. B drafted: accepted with 3/5; else nothing is verified, and the bonus token is A with 7/10
    # where the residual would have been A for sure. 1/2 + 1/2 * 2/5 * 7/10 = 16/25.
    found = law(appendix_a(1), AcceptedPrefix())
    assert found.rows == ({(A,): Fraction(16, 25), (B,): Fraction(9, 25)},)
    # The project's oracle does the same where a longer step costs nothing.
    flat = replace(appendix_a(1), seconds=(1.0, 1.0, 1.0))
    assert law(flat, build_policy({"kind": "oracle"}, unsafe=True)).rows == found.rows


def test_rows_can_be_coupled_with_their_marginals_right() -> None:
    # Drafts (A, A): both verified, both accepted. (A, B): row 1 is not verified (bonus 7/10, 3/10), row 2 is: B stays
    # with 3/5. So (B, B) has 3/10 * 3/5 = 9/50 there, as much after (B, A), 9/100 after (B, B), where nothing is
    # verified, and none after (A, A): (9/50 + 9/50 + 9/100) / 4 = 9/80.
    found = law(coupled_rows(), Reciprocal())
    assert found.rows == found.target_rows == ({(A,): Fraction(7, 10), (B,): Fraction(3, 10)},) * 2
    assert found.joint[(B,), (B,)] == Fraction(9, 80)
    assert found.target_joint[(B,), (B,)] == Fraction(9, 100)
    # Right marginals leave one degree of freedom: all four cells are off by 9/80 - 9/100.
    assert found.joint_tv == 2 * (Fraction(9, 80) - Fraction(9, 100))
    assert found.marginal_tv == 0
    assert found.verdict == "joint"


def test_a_confidence_that_saw_its_own_draft_makes_a_threshold_unsafe() -> None:
    # One row: A (1/2) is verified and stays, B is not and the bonus is A with 7/10.
    world = replace(coupled_rows(), rows=(RowPlan(),))
    found = law(world, build_policy({"kind": "threshold", "t": 0.5}))
    assert found.rows == ({(A,): Fraction(17, 20), (B,): Fraction(3, 20)},)


# --- decoders, by hand


def one_draft(target: Distribution, draft: Distribution, gamma: int = 1) -> World:
    vocabulary = len(target)
    nodes = (vocabulary**gamma - 1) // (vocabulary - 1)
    return World(
        vocabulary=vocabulary,
        gamma=gamma,
        tokens=1,
        rows=(RowPlan(),),
        target=((target,),),
        draft=((draft,),),
        confidence=(((0.5,) * nodes,),),
        seconds=(1.0,) * (1 + gamma),
    )


TWO = one_draft((Fraction(7, 10), Fraction(3, 10)), (HALF, HALF))
# After a rejection, which only C meets: residual (1/5, 1/5, 0) / (2/5) = (1/2, 1/2, 0). C is drafted with 3/5 and
# accepted with 1/3; rejected mass 2/5.
THREE = one_draft((Fraction(2, 5), Fraction(2, 5), Fraction(1, 5)), (Fraction(1, 5), Fraction(1, 5), Fraction(3, 5)))


def decoded(world: World, decoder: str, most: int = 1) -> list[Fraction]:
    return first_token(law(world, Fixed(most), BROKEN_DECODERS[decoder]))


def test_right_decoding() -> None:
    assert first_token(law(TWO, Fixed())) == fractions("7/10", "3/10")
    assert first_token(law(THREE, Fixed())) == fractions("2/5", "2/5", "1/5")


def test_argmax_draft() -> None:
    # The draft is always the likelier B (3/5), accepted with 3/10 / (3/5) = 1/2; the residual is A for sure.
    world = one_draft((Fraction(7, 10), Fraction(3, 10)), (Fraction(2, 5), Fraction(3, 5)))
    assert decoded(world, "argmax draft") == fractions("1/2", "1/2")
    # A tie goes to the first token, which is always accepted.
    assert decoded(TWO, "argmax draft") == fractions("1", "0")


def test_draft_and_accept_share_a_uniform() -> None:
    # u < 1/2 drafts A, accepted. Else B, accepted iff u < 3/5: 1/10 of the mass, and A instead in the other 4/10.
    assert decoded(TWO, "draft and accept share a uniform") == fractions("9/10", "1/10")
    # C is drafted for u >= 2/5 and then never accepted, as u < 1/3 cannot be: its 3/5 go to A and B.
    assert decoded(THREE, "draft and accept share a uniform") == fractions("1/2", "1/2", "0")


def test_draft_and_residual_share_a_uniform() -> None:
    # C was drafted by u in [2/5, 1); the residual's A is u < 1/2: 1/6 of that. A = 1/5 + 2/5 * 1/6.
    assert decoded(THREE, "draft and residual share a uniform") == fractions("4/15", "8/15", "1/5")


def test_accept_and_residual_share_a_uniform() -> None:
    # C was rejected by u in [1/3, 1); the residual's A is u < 1/2: 1/4 of that. A = 1/5 + 2/5 * 1/4.
    assert decoded(THREE, "accept and residual share a uniform") == fractions("3/10", "1/2", "1/5")


def test_bonus_after_the_block() -> None:
    # Nothing verified: the bonus follows the anchor A (7/10), but is drawn as if it followed the drafted token, A or B.
    after = ((Fraction(7, 10), Fraction(3, 10)), (Fraction(1, 5), Fraction(4, 5)))
    world = replace(TWO, target=(after,))
    assert decoded(world, "bonus after the block", most=0) == fractions("9/20", "11/20")
    assert decoded(world, "bonus after the block", most=1) == fractions("7/10", "3/10")
    # With a draft verified it is right, also where that is not the whole block.
    longer = replace(one_draft(TWO.target[0][0], (HALF, HALF), gamma=2), target=(after,), tokens=2)
    found = law(longer, Fixed(1), BROKEN_DECODERS["bonus after the block"])
    assert found.verdict == "lossless"


def test_token_of_the_uncut_block() -> None:
    # Nothing verified, but the block was: A (1/2) accepted, bonus A with 7/10; B accepted with 3/5, bonus A with 7/10;
    # B rejected, residual A. A = 1/2 * 7/10 + 1/2 * (3/5 * 7/10 + 2/5) = 19/25.
    assert decoded(TWO, "token of the uncut block", most=0) == fractions("19/25", "6/25")
    assert decoded(TWO, "token of the uncut block", most=1) == fractions("7/10", "3/10")


@pytest.mark.parametrize("decoder", ["draft and residual share a uniform", "accept and residual share a uniform"])
def test_a_shared_residual_is_invisible_at_vocabulary_2(decoder: str) -> None:
    # With two tokens the residual has one, whatever its uniform.
    rng = np.random.default_rng(1)
    for _ in range(20):
        world = random_world(rng, vocabulary=2, gamma=2, tokens=2)
        assert law(world, Fixed(2), BROKEN_DECODERS[decoder]).verdict == "lossless"
    seen = [
        law(random_world(rng, vocabulary=3, gamma=2, tokens=2), Fixed(2), BROKEN_DECODERS[decoder]).verdict
        for _ in range(20)
    ]
    assert seen.count("marginal") >= 10


# --- rows that join, leave, end; ragged blocks; coins


@dataclass(frozen=True)
class Noting(Policy):
    """Verifies everything and writes down what it saw of the batch."""

    notes: set[Any] = field(default_factory=set, compare=False)

    def plan(self, view: View, state: None) -> tuple[Ints, None]:
        rows = zip(view.requests.tolist(), view.available.tolist(), view.context_tokens.tolist(), strict=True)
        self.notes.add((view.step, tuple(rows)))
        return view.available, None


def test_rows_take_part_from_their_admission_until_they_leave() -> None:
    # Laws that draft and want nothing but A: every draft is accepted, so that there is a single path.
    sure = (((Fraction(1), Fraction(0)),),)
    plans = (RowPlan(length=4), RowPlan(first_block=2, available=(2, 1)))
    world = replace(appendix_a(5), rows=plans, target=sure, draft=sure, seconds=(1.0,) * 6)
    policy = Noting()
    found = law(world, policy)
    # By step: (request, drafts, context: the anchor and what was emitted). Row 0 emits 3 tokens and is cut at its
    # fourth. Row 1 is admitted in step 1 without drafts, and has blocks of 2, 1, .. from step 2.
    assert sorted(policy.notes) == [
        (0, ((0, 2, 1),)),
        (1, ((0, 2, 4), (1, 0, 1))),
        (2, ((1, 2, 2),)),
        (3, ((1, 1, 5),)),
    ]
    assert found.joint == {((A,) * 4, (A,) * 5): 1}


def test_a_row_ends_with_its_end_token() -> None:
    world = replace(appendix_a(3), end=B)
    found = law(world, EARLY_STOP)
    seven, three = Fraction(7, 10), Fraction(3, 10)
    expected = {(B,): three, (A, B): seven * three, (A, A, B): seven**2 * three, (A, A, A): seven**3}
    assert target_law(world, 0) == expected
    assert found.rows == (expected,)
    # Also inside a block: retrospective verifies A, A and A, B, whose tokens after B are cut.
    assert set(law(world, RETROSPECTIVE).rows[0]) == set(expected)


def test_policies_do_not_see_the_end_of_a_row() -> None:
    policy = Noting()
    law(replace(appendix_a(3), rows=(RowPlan(length=1),)), policy)
    assert policy.notes == {(0, ((0, 2, 1),))}


RAGGED = RowPlan(available=(1, 0, 2))
SHAPES: list[dict[str, Any]] = [
    {"vocabulary": 3, "gamma": 2, "tokens": 3, "end": 2},
    {"vocabulary": 2, "gamma": 3, "tokens": 4, "plans": (RowPlan(available=(2, 0, 3)),)},
    {"vocabulary": 2, "gamma": 2, "tokens": 2, "plans": (RowPlan(), RAGGED), "coins": (0.1, 0.7)},
    {
        "vocabulary": 2,
        "gamma": 2,
        "tokens": 3,
        "plans": (RowPlan(length=2, anchor=1), RowPlan(first_block=2)),
        "end": 0,
    },
    {"vocabulary": 2, "gamma": 1, "tokens": 3, "plans": (RowPlan(first_block=1), RowPlan(first_block=3))},
    {"vocabulary": 2, "gamma": 1, "tokens": 2, "plans": (RowPlan(length=1), RowPlan(first_block=4))},
]


@pytest.mark.parametrize("place", range(len(SHAPES)))
def test_safe_policies_keep_the_target_s_law_in_worlds_of_every_shape(place: int) -> None:
    rng = np.random.default_rng(place)
    for policy in SAFE:
        for _ in range(4):
            found = law(random_world(rng, **SHAPES[place]), policy)
            assert found.joint == found.target_joint
            assert sum(found.joint.values()) == 1


@dataclass(frozen=True)
class Tossing(Policy):
    """The accepted prefix on coins below 1/2, everything otherwise; does not look if ``blind``."""

    needs_outcomes = True
    blind: bool = False

    def plan(self, view: View, state: None) -> tuple[Ints, None]:
        assert view.outcomes is not None
        return view.outcomes if self.blind or view.coin < 0.5 else view.available, None


def test_coins_mix_laws() -> None:
    # 16/25 on two coins of three, 7/10 on the third: 33/50.
    world = replace(appendix_a(1), coins=(0.1, 0.2, 0.9))
    assert first_token(law(world, Tossing())) == fractions("33/50", "17/50")
    assert first_token(law(world, Tossing(blind=True))) == fractions("16/25", "9/25")


# --- merging


@dataclass(frozen=True)
class Unmerged(Policy):
    """Another policy, with everything it ever saw kept in the state: no two of its paths merge."""

    inner: Policy = EARLY_STOP

    def __post_init__(self) -> None:
        object.__setattr__(self, "lag", self.inner.lag)

    def start(self) -> tuple[Any, tuple[Any, ...]]:
        return self.inner.start(), ()

    def plan(self, view: View, state: Any) -> tuple[Ints, Any]:
        memory, path = state
        lengths, memory = self.inner.plan(view, memory)
        return lengths, (memory, (*path, view.confidence.copy(), view.context_tokens))


@pytest.mark.parametrize("policy", [RETROSPECTIVE, EARLY_STOP, LAGGED[0], SAFE[4]], ids=str)
def test_merging_equal_states_does_not_change_the_law(policy: Policy) -> None:
    rng = np.random.default_rng(3)
    merged = unmerged = 0
    for shape in (SHAPES[0], SHAPES[3]):
        for _ in range(5):
            world = random_world(rng, **shape)
            one, other = law(world, policy), law(world, Unmerged(policy))
            assert one.joint == other.joint
            merged, unmerged = merged + one.states, unmerged + other.states
    assert merged < unmerged


def test_equal_states_freeze_alike() -> None:
    one = {"a": np.arange(3), "b": [1.0, (None, "x", b"y")], "c": {1, 2}, "d": Fraction(1, 3)}
    same = {"a": np.arange(3), "b": [1.0, (None, "x", b"y")], "c": {2, 1}, "d": Fraction(2, 6)}
    assert freeze(one) == freeze(same)
    assert hash(freeze(one)) == hash(freeze(same))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (np.arange(3), np.arange(4)),
        (np.arange(3), np.arange(3.0)),
        (np.zeros((2, 3)), np.zeros((3, 2))),
        ((1, 2), [1, 2]),
        (1, True),
        (1, 1.0),
        ("1", 1),
        ({"a": 1}, {"a": 2}),
        ({1}, {2}),
        (Fixed(1), Fixed(2)),
        (Fixed(1), Tossing(True)),
    ],
)
def test_different_states_freeze_apart(one: Any, other: Any) -> None:
    assert freeze(one) != freeze(other)


def test_any_nan_freezes_alike() -> None:
    first, second = (("mean", float(np.float64(0.0)) * float("inf")) for _ in range(2))
    assert first[1] != second[1]
    assert freeze(first) == freeze(second) != freeze(("mean", 0.0))


def test_generations_freeze_by_value() -> None:
    def generation(value: float, known: bool) -> Generation:
        return Generation(np.full((1, 2), value), np.full((1, 2), value), np.array([known]), known)

    assert freeze(generation(0.5, True)) == freeze(generation(0.5, True))
    assert freeze(generation(0.5, True)) != freeze(generation(0.25, True))
    assert freeze(generation(0.0, True)) != freeze(generation(0.0, False))


# --- what cannot be judged


def test_a_world_too_large_is_given_up() -> None:
    transitions = 12
    with pytest.raises(WorldTooLarge, match=rf"more than {transitions} transitions; take fewer rows, drafts or tokens"):
        law(appendix_a(3), EARLY_STOP, limit=transitions)
    assert law(appendix_a(3), EARLY_STOP, limit=10_000).verdict == "lossless"


@dataclass(frozen=True)
class Nonsense(Policy):
    """Answers whatever it is told to, from its second step on."""

    answer: Any = None
    memory: Any = None

    def start(self) -> int:
        return 0

    def plan(self, view: View, state: int) -> Any:
        if not state:
            return np.zeros(view.rows, np.int64), 1
        return self.answer, self.memory


class Plain:
    pass


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (Nonsense(np.array([3])), r"at step 1, row 0 \(request 0\): length must be within 0\.\.2 .*, got 3"),
        (Nonsense(np.array([-1])), r"length must be within 0\.\.2 \(drafts available\), got -1"),
        (Nonsense(np.array([1, 1])), r"lengths must be of shape \(1,\), one per row, got \(2,\)"),
        (Nonsense(np.array([0.5])), r"lengths must be whole numbers, got dtype float64 \(row 0: 0\.5\)"),
        (Nonsense([1]), "lengths must be a numpy array of whole numbers, got list"),
        (Nonsense(np.array([1]), Plain()), "a policy state of type Plain cannot be compared; build states from"),
    ],
)
def test_nonsense_is_a_policy_error(policy: Policy, message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        law(appendix_a(3), policy)


def test_a_policy_that_fails_is_a_policy_error() -> None:
    @dataclass(frozen=True)
    class Failing(Policy):
        def plan(self, view: View, state: Any) -> tuple[Ints, Any]:
            raise KeyError("confidence")

    @dataclass(frozen=True)
    class NotStarting(Fixed):
        def start(self) -> Any:
            raise KeyError("memory")

    @dataclass(frozen=True)
    class Half(Policy):
        def plan(self, view: View, state: Any) -> Any:
            return view.available

    with pytest.raises(PolicyError, match=r"policy `Failing` failed at step 0 \(1 rows\): KeyError: 'confidence'"):
        law(appendix_a(1), Failing())
    with pytest.raises(PolicyError, match="policy `NotStarting` failed to start: KeyError: 'memory'"):
        law(appendix_a(1), NotStarting())
    with pytest.raises(PolicyError, match=r"plan must return \(lengths, state\), got ndarray"):
        law(appendix_a(1), Half())
    with pytest.raises(PolicyError, match="needs a policy with `lag` >= 1"):
        law(appendix_a(1), Lagless())


@dataclass(frozen=True)
class Lagless(Policy):
    """Reads a lagged generation without having declared a lag."""

    def plan(self, view: View, state: Any) -> tuple[Ints, Any]:
        return view.available * bool(view.lagged.complete), state


# --- laws and coverage


def test_distance() -> None:
    one = {"a": HALF, "b": HALF}
    assert distance(one, one) == 0
    assert distance(one, {"a": Fraction(1)}) == HALF
    assert distance(one, {"c": Fraction(1)}) == 1


def test_the_target_s_law_follows_the_tokens_before() -> None:
    after = ((Fraction(7, 10), Fraction(3, 10)), (Fraction(1, 5), Fraction(4, 5)))
    world = replace(appendix_a(2), target=(after,), rows=(RowPlan(anchor=B),))
    expected: Mapping[Tokens, Fraction] = {
        (A, A): Fraction(1, 5) * Fraction(7, 10),
        (A, B): Fraction(1, 5) * Fraction(3, 10),
        (B, A): Fraction(4, 5) * Fraction(1, 5),
        (B, B): Fraction(4, 5) * Fraction(4, 5),
    }
    assert target_law(world, 0) == expected
    assert law(world, Fixed(2)).rows == (expected,)


def test_coverage_tells_a_vacuous_pass() -> None:
    idle = law(appendix_a(2), build_policy({"kind": "autoregressive"})).coverage
    assert (idle.admitted, idle.refused, idle.varied, idle.split) == (set(), set(), False, False)
    fixed = law(appendix_a(1), Fixed(1)).coverage
    assert (fixed.admitted, fixed.refused, fixed.varied, fixed.split) == ({(0, 0, 1)}, {(0, 0, 2)}, False, False)
    argmax = law(appendix_a(1), RETROSPECTIVE).coverage
    assert argmax.admitted == argmax.refused == {(0, 0, 1), (0, 0, 2)}
    assert argmax.varied
    assert argmax.split


# --- the lagged view


@dataclass(frozen=True)
class Historian(Policy):
    """Compares the lagged view with what the simulator's history gives for the steps it has seen."""

    lag: int | None = 1
    compared: list[int] = field(default_factory=list, compare=False)

    def start(self) -> tuple[Any, ...]:
        return ()

    def plan(self, view: View, state: Any) -> tuple[Ints, Any]:
        history = History(self.lag or 0)
        for order, confidence, survival, known in state:
            history.add(order, Generation(confidence, survival, known, bool(known.all())))
        gamma = view.generation.gamma
        expected = history.lagged(view.requests, gamma)
        assert expected is not None
        for name in ("confidence", "survival", "known", "complete", "gamma"):
            np.testing.assert_array_equal(getattr(view.lagged, name), getattr(expected, name), err_msg=name)
        self.compared.append(int(expected.known.sum()))
        now = (view.requests.copy(), view.confidence.copy(), view.survival.copy(), view.generation.known.copy())
        return np.minimum(view.available, view.step % 2), (*state, now)


@pytest.mark.parametrize("lag", [1, 2, 3])
def test_the_lagged_view_is_the_simulator_s_in_scripts(lag: int) -> None:
    rng = np.random.default_rng(lag)
    policy = Historian(lag)
    for _ in range(40):
        script = random_script(rng, gamma=3, rows=4, steps=8)
        assert len(list(play(policy, script))) == 8
    # Rows that the generation knows in part, wholly and not at all have all been compared.
    assert {0, 1, 2, 3} <= set(policy.compared)


@pytest.mark.parametrize("lag", [1, 2, 3])
def test_the_lagged_view_is_the_simulator_s_in_worlds(lag: int) -> None:
    rng = np.random.default_rng(lag)
    policy = Historian(lag)
    together = {"vocabulary": 2, "gamma": 1, "tokens": 4, "plans": (RowPlan(), RowPlan())}
    for shape in [*SHAPES[1:], together]:
        law(random_world(rng, **shape), policy)
    assert {0, 1, 2} <= set(policy.compared)
