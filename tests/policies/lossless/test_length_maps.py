"""Complete length maps: the two rules, the law, and what one implies about the other."""

from __future__ import annotations

import random
import runpy
from collections import defaultdict
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from specsched.policies import Ints, Policy, PolicyError, View, build_policy
from specsched.policies.lossless.exact import JointLaw, law
from specsched.policies.lossless.length_maps import (
    Drafts,
    LengthMap,
    LengthMapError,
    Lengths,
    MapPolicy,
    Pair,
    all_drafts,
    all_maps,
    length_map,
    revealing_world,
    row_wise,
    stopping_set,
)
from specsched.policies.lossless.worlds import Distribution, RowPlan, Tokens, World, appendix_a

from .random_worlds import coupled_rows

SCRIPT = runpy.run_path(str(Path(__file__).resolve().parents[3] / "benchmarks/length_maps.py"))
SMALLEST = list(all_maps((1, 1), 2))
F = Fraction
# (p_d(A) by row, p_t(A) by row)
GENERIC = [
    ((F(2, 5), F(2, 5)), (F(7, 10), F(7, 10))),
    ((F(3, 7), F(2, 3)), (F(5, 8), F(1, 5))),
    ((F(2, 5), F(2, 5)), (F(2, 5), F(2, 5))),
]
HALVES = ((F(1, 2), F(1, 2)), (F(7, 10), F(7, 10)))

Table = tuple[tuple[Distribution, ...], ...]


def pair_of(first: Fraction) -> Distribution:
    return first, 1 - first


def table(first: tuple[Fraction, ...]) -> Table:
    return tuple((pair_of(each),) for each in first)


def random_table(rng: random.Random, rows: int, vocabulary: int) -> Table:
    """Laws by row and preceding token, no two alike."""

    def draw() -> Distribution:
        weights = [rng.randint(1, 20) for _ in range(vocabulary)]
        return tuple(Fraction(each, sum(weights)) for each in weights)

    return tuple(tuple(draw() for _ in range(vocabulary)) for _ in range(rows))


def law_of(mapping: LengthMap, draft: Table, target: Table) -> Any:
    return law(revealing_world(mapping, target, draft), MapPolicy(mapping))


def by_hand(mapping: LengthMap, draft: Table, target: Table) -> JointLaw:
    """The law of one step of one draft a row, in plain fractions."""
    found: defaultdict[tuple[Tokens, ...], Fraction] = defaultdict(Fraction)
    for drafts, lengths in mapping.items():
        weight, choices = Fraction(1), []
        for row, (drafted, length) in enumerate(zip(drafts, lengths, strict=True)):
            d, t, x = draft[row][0], target[row][0], drafted[0]
            weight *= d[x]
            if length == 0:
                choices.append(dict(enumerate(t)))
                continue
            accept = min(Fraction(1), t[x] / d[x])
            over = [max(t[y] - d[y], Fraction(0)) for y in range(len(t))]
            again = {y: (1 - accept) * over[y] / (sum(over) or 1) for y in range(len(t))}
            choices.append({y: again[y] + (accept if y == x else 0) for y in again})
        for tokens in product(range(mapping.vocabulary), repeat=len(drafts)):
            share = weight
            for choice, token in zip(choices, tokens, strict=True):
                share *= choice[token]
            found[tuple((token,) for token in tokens)] += share
    return {tokens: mass for tokens, mass in found.items() if mass}


@pytest.mark.parametrize(("draft", "target"), [*GENERIC, HALVES])
def test_the_law_of_every_smallest_map_agrees_with_plain_arithmetic(
    draft: tuple[Fraction, ...], target: tuple[Fraction, ...]
) -> None:
    for mapping in SMALLEST:
        laws = table(draft), table(target)
        assert law_of(mapping, *laws).joint == by_hand(mapping, *laws)


def test_the_rules_divide_the_256_smallest_maps() -> None:
    assert len(SMALLEST) == 256
    assert sum(row_wise(mapping) is None for mapping in SMALLEST) == 16
    assert sum(stopping_set(mapping) is None for mapping in SMALLEST) == 8


@pytest.mark.parametrize(("draft", "target"), GENERIC)
def test_by_law_16_keep_the_marginals_and_12_the_joint(
    draft: tuple[Fraction, ...], target: tuple[Fraction, ...]
) -> None:
    verdicts = [law_of(mapping, table(draft), table(target)).verdict for mapping in SMALLEST]
    kept = [verdict != "marginal" for verdict in verdicts]
    assert kept == [row_wise(mapping) is None for mapping in SMALLEST]
    assert verdicts.count("lossless") == 12
    assert verdicts.count("joint") == 4
    undecided = [m for m, v in zip(SMALLEST, verdicts, strict=True) if v == "lossless" and stopping_set(m)]
    assert [m.lengths for m in undecided] == [m.lengths for m in SMALLEST if ignores_one_and_looks(m)]
    assert len(undecided) == 4


def ignores_one_and_looks(mapping: LengthMap) -> bool:
    """Whether one row is never verified and its draft alone decides whether the other row is."""
    for silent, other in ((0, 1), (1, 0)):
        decided = {x[silent]: set() for x, _ in mapping.items()}
        for drafts, lengths in mapping.items():
            decided[drafts[silent]].add(lengths[other])
        alone = all(len(each) == 1 for each in decided.values()) and len(set.union(*decided.values())) == 2
        if alone and all(lengths[silent] == 0 for _, lengths in mapping.items()):
            return True
    return False


@pytest.mark.parametrize(("draft", "target"), [*GENERIC, HALVES])
def test_reciprocal_maps_shift_every_cell_by_the_product_of_what_selection_gains(
    draft: tuple[Fraction, ...], target: tuple[Fraction, ...]
) -> None:
    gains = [min(d * (1 - t), (1 - d) * t) for d, t in zip(draft, target, strict=True)]
    for mine, yours in product((0, 1), repeat=2):
        mapping = LengthMap.of(lambda x, a=mine, b=yours: (int(x[1] == (a,)), int(x[0] == (b,))), (1, 1), 2)
        found = law_of(mapping, table(draft), table(target))
        assert found.verdict == "joint"
        shifts = {abs(found.joint[key] - found.target_joint[key]) for key in found.target_joint}
        assert shifts == {gains[0] * gains[1]}
        assert found.joint_tv == 2 * gains[0] * gains[1]


def test_where_both_tokens_are_drafted_alike_two_errors_cancel() -> None:
    verdicts = [law_of(mapping, table(HALVES[0]), table(HALVES[1])).verdict for mapping in SMALLEST]
    assert sum(verdict != "marginal" for verdict in verdicts) == 36
    assert verdicts.count("lossless") == 18


def test_nothing_can_be_told_where_the_target_is_certain() -> None:
    laws = table((F(2, 5),) * 2), table((F(1),) * 2)
    assert {law_of(mapping, *laws).verdict for mapping in SMALLEST} == {"lossless"}


def test_rules_imply_laws_even_where_laws_are_degenerate() -> None:
    for draft, target in [*GENERIC, HALVES, ((F(1, 2), F(1, 3)), (F(7, 10), F(0))), ((F(1), F(2, 5)), (F(1, 2), F(1)))]:
        for mapping in SMALLEST:
            found = law_of(mapping, table(draft), table(target))
            assert row_wise(mapping) or found.marginal_tv == 0
            assert stopping_set(mapping) or found.joint_tv == 0


def test_with_one_row_the_rules_are_one() -> None:
    maps = list(all_maps((2,), 2))
    by_rule = [stopping_set(mapping) is None for mapping in maps]
    assert len(maps) == 81
    assert by_rule == [row_wise(mapping) is None for mapping in maps]
    assert sum(by_rule) == 5
    markov = ((pair_of(F(2, 5)), pair_of(F(1, 3))),)
    assert [law_of(m, markov, table((F(7, 10),))).verdict == "lossless" for m in maps] == by_rule


def test_a_draft_that_does_not_depend_on_the_one_before_hides_two_maps_more() -> None:
    laws = table((F(2, 5),)), table((F(7, 10),))
    hidden = [m for m in all_maps((2,), 2) if stopping_set(m) and law_of(m, *laws).verdict == "lossless"]
    assert [m.lengths for m in hidden] == [((0,), (1,), (0,), (1,)), ((1,), (0,), (1,), (0,))]


def grow(rng: random.Random, counts: tuple[int, ...], vocabulary: int, abandon: bool) -> LengthMap:
    """A random scheduler that looks at drafts one after another, and decides before it looks.

    Each draft looked at is verified, or (with ``abandon``) its row is given up at that point whatever it holds.
    """
    chosen: dict[Any, Any] = {}

    def next_move(seen: Any, open_rows: list[int]) -> Any:
        if seen not in chosen:
            moves = [("verify", row) for row in open_rows] + [("give up", row) for row in open_rows if abandon]
            chosen[seen] = rng.choice([*moves, None])
        return chosen[seen]

    def decide(drafts: Drafts) -> Lengths:
        lengths, closed, seen = [0] * len(counts), set(), ()
        while True:
            open_rows = [r for r, count in enumerate(counts) if r not in closed and lengths[r] < count]
            move = next_move(seen, open_rows)
            if move is None:
                return tuple(lengths)
            what, row = move
            seen = (*seen, (move, drafts[row][lengths[row]]))
            if what == "verify":
                lengths[row] += 1
            else:
                closed.add(row)

    return LengthMap.of(decide, counts, vocabulary)


SHAPES = [((2, 2), 2), ((3,), 2), ((2,), 3), ((1, 1), 3), ((1, 2), 2), ((1, 1, 1), 2), ((0, 2), 2)]


@pytest.mark.parametrize(("counts", "vocabulary"), SHAPES)
def test_maps_that_decide_before_they_look_keep_the_joint_law(counts: tuple[int, ...], vocabulary: int) -> None:
    rng = random.Random(7)
    varied = 0
    for _ in range(25):
        mapping = grow(rng, counts, vocabulary, abandon=False)
        laws = random_table(rng, len(counts), vocabulary), random_table(rng, len(counts), vocabulary)
        assert stopping_set(mapping) is None
        assert row_wise(mapping) is None
        assert law_of(mapping, *laws).verdict == "lossless"
        varied += len(set(mapping.lengths)) > 1
    assert varied >= 3


@dataclass(frozen=True)
class Adversary(Policy):
    """Picks its next map by everything it has seen, drafts that were never verified included."""

    seed: int
    abandon: bool = False

    def start(self) -> Any:
        return ()

    def plan(self, view: View, state: Any) -> tuple[Ints, Any]:
        counts = tuple(view.available.tolist())
        rng = random.Random(f"{self.seed} {view.step} {view.requests.tolist()} {view.context_tokens.tolist()} {state}")
        mapping = grow(rng, counts, 2, self.abandon)
        drafts = tuple(
            tuple(int(1 - value) for value in values[:count])
            for values, count in zip(view.confidence.tolist(), counts, strict=True)
        )
        return np.array(mapping[drafts], np.int64), (*state, drafts)


@pytest.mark.parametrize("abandon", [False, True])
@pytest.mark.parametrize(
    "rows",
    [
        (RowPlan(), RowPlan()),
        (RowPlan(length=2), RowPlan(first_block=1)),
        (RowPlan(available=(2, 1)), RowPlan(first_block=1, length=3)),
    ],
)
def test_an_adversary_with_full_memory_cannot_break_what_each_step_keeps(
    rows: tuple[RowPlan, ...], abandon: bool
) -> None:
    rng = random.Random(12)
    varied = 0
    for seed in range(4):
        laws = random_table(rng, 2, 2), random_table(rng, 2, 2)
        pattern = revealing_world(LengthMap.of(lambda _: (0, 0), (2, 1), 2), *laws)
        available = tuple(replace(row, available=row.available or (1 + r % 2,)) for r, row in enumerate(rows))
        found = law(replace(pattern, tokens=3, rows=available), Adversary(seed, abandon))
        assert found.verdict == "lossless"
        varied += found.coverage.varied and found.coverage.split
    assert varied >= 2


@pytest.mark.parametrize(("counts", "vocabulary"), [((1, 1), 2), ((1, 1), 3), ((2, 2), 2), ((1, 1, 1), 2)])
def test_a_draft_given_up_before_it_is_looked_at_is_a_coin(counts: tuple[int, ...], vocabulary: int) -> None:
    rng = random.Random(8)
    undecided = 0
    for _ in range(40):
        mapping = grow(rng, counts, vocabulary, abandon=True)
        laws = random_table(rng, len(counts), vocabulary), random_table(rng, len(counts), vocabulary)
        assert law_of(mapping, *laws).verdict == "lossless"
        undecided += stopping_set(mapping) is not None
    assert undecided >= 3


def test_a_stopping_set_need_not_begin_with_the_same_draft() -> None:
    """Three rows, none of which is verified always, so that no order of looking explains the map."""

    def decide(drafts: Drafts) -> Lengths:
        a, b, c = (row[0] for row in drafts)
        for pattern, lengths in (((a, b), (1, 1, 0)), ((b, c), (0, 1, 1)), ((c, a), (1, 0, 1))):
            if pattern == (0, 1):
                return lengths
        return (1, 1, 1)

    mapping = LengthMap.of(decide, (1, 1, 1), 2)
    assert all(min(lengths[row] for lengths in mapping.lengths) == 0 for row in range(3))
    assert stopping_set(mapping) is None
    rng = random.Random(9)
    for _ in range(5):
        assert law_of(mapping, random_table(rng, 3, 2), random_table(rng, 3, 2)).verdict == "lossless"


@pytest.mark.parametrize(("counts", "vocabulary"), [((2, 2), 2), ((1, 1), 3), ((1, 2), 2)])
def test_row_wise_maps_keep_the_marginals_and_may_couple_rows(counts: tuple[int, ...], vocabulary: int) -> None:
    rng = random.Random(10)
    coupled = 0
    for _ in range(25):
        others = list(all_drafts(counts, vocabulary))
        parts = [{x[1 - r]: grow(rng, (counts[r],), vocabulary, abandon=False) for x in others} for r in (0, 1)]
        mapping = LengthMap.of(lambda x, f=parts: (f[0][x[1]][x[:1]][0], f[1][x[0]][x[1:]][0]), counts, vocabulary)
        found = law_of(mapping, random_table(rng, 2, vocabulary), random_table(rng, 2, vocabulary))
        assert row_wise(mapping) is None
        assert found.marginal_tv == 0
        coupled += found.joint_tv > 0
    assert coupled >= 3


def alike(drafts: Drafts, other: Drafts, kept: Lengths) -> bool:
    return all(x[:n] == y[:n] for x, y, n in zip(drafts, other, kept, strict=True))


def test_both_rules_agree_with_their_definitions_over_all_pairs() -> None:
    rng = random.Random(11)
    outcomes = set()
    for number in range(120):
        counts = rng.choice([(2,), (1, 1), (1, 2)])
        grown = grow(rng, counts, 2, abandon=bool(number % 3))
        lengths = [list(each) for each in grown.lengths]
        if number % 2:
            place, row = rng.randrange(len(lengths)), rng.randrange(len(counts))
            lengths[place][row] = rng.randint(0, counts[row])
        mapping = LengthMap(counts, 2, tuple(map(tuple, lengths)))
        pairs = list(product(all_drafts(counts, 2), repeat=2))
        stops = all(mapping[x] == mapping[y] for x, y in pairs if alike(x, y, mapping[x]))
        blind = all(
            (mapping[x][r] >= j) == (mapping[y][r] >= j)
            for x, y in pairs
            for r in range(len(counts))
            for j in range(1, counts[r] + 1)
            if alike(x, y, tuple(j - 1 if s == r else counts[s] for s in range(len(counts))))
        )
        assert (stopping_set(mapping) is None) == stops
        assert (row_wise(mapping) is None) == blind
        outcomes.add((blind, stops))
    assert outcomes == {(True, True), (True, False), (False, False)}


def check_pair(mapping: LengthMap, pair: Pair) -> None:
    assert mapping[pair.drafts] == pair.lengths
    assert mapping[pair.other] == pair.other_lengths
    before, after = pair.lengths[pair.row] >= pair.position, pair.other_lengths[pair.row] >= pair.position
    assert before != after


def test_the_pair_named_does_break_the_rule() -> None:
    for mapping in SMALLEST:
        if pair := row_wise(mapping):
            check_pair(mapping, pair)
            assert pair.drafts[1 - pair.row] == pair.other[1 - pair.row]
            assert pair.drafts[pair.row][: pair.position - 1] == pair.other[pair.row][: pair.position - 1]
        if pair := stopping_set(mapping):
            check_pair(mapping, pair)
            assert alike(pair.drafts, pair.other, pair.lengths)


def test_appendix_a_as_a_map() -> None:
    mapping = length_map(build_policy({"kind": "retrospective"}, unsafe=True), appendix_a())
    assert mapping.lengths == ((2,), (2,), (0,), (0,))
    pair = row_wise(mapping)
    assert pair is not None
    assert (pair.row, pair.position, pair.lengths, pair.other_lengths) == (0, 1, (2,), (0,))
    calm = length_map(build_policy({"kind": "greedy_early_stop"}), appendix_a())
    assert calm.lengths == ((0,),) * 4
    assert stopping_set(calm) is None


def two_rows_of_two(seconds: tuple[float, ...]) -> World:
    world = appendix_a()
    return World(2, 2, 1, world.rows * 2, world.target, world.draft, world.confidence, seconds)


@pytest.mark.parametrize("spec", [{"kind": "threshold", "t": 0.5}, {"kind": "greedy_early_stop"}])
def test_safe_policies_make_stopping_sets(spec: dict[str, Any]) -> None:
    mapping = length_map(build_policy(spec), two_rows_of_two((1.0, 1.0, 1.3, 1.6, 1.8, 2.0)))
    assert len(set(mapping.lengths)) > 1
    assert stopping_set(mapping) is None


def test_the_budget_of_retrospective_reads_what_it_does_not_verify() -> None:
    world = two_rows_of_two((1.0, 1.0, 2.0, 2.0, 2.1, 2.2))
    mapping = length_map(build_policy({"kind": "retrospective"}, unsafe=True), world)
    assert mapping[(0, 0), (0, 0)] == (2, 2)
    assert mapping[(1, 0), (1, 0)] == (0, 0)
    assert stopping_set(mapping) is not None
    assert law(world, build_policy({"kind": "retrospective"}, unsafe=True)).verdict == "marginal"


@dataclass(frozen=True)
class Tossing(Policy):
    def plan(self, view: View, state: Any) -> tuple[Ints, Any]:
        return np.minimum(view.available, int(view.coin > 0.5)), state


@dataclass(frozen=True)
class Knowing(Tossing):
    needs_outcomes: ClassVar[bool] = True


def test_each_coin_makes_a_map_of_its_own() -> None:
    base = appendix_a()
    world = World(2, 2, 1, base.rows, base.target, base.draft, base.confidence, base.seconds, coins=(0.25, 0.75))
    assert length_map(Tossing(), world, coin=0.25).lengths == ((0,),) * 4
    assert length_map(Tossing(), world, coin=0.75).lengths == ((1,),) * 4
    with pytest.raises(LengthMapError, match=r"`coin` must be one of the world's \(0.25, 0.75\)"):
        length_map(Tossing(), world)


def test_what_knows_outcomes_has_no_map() -> None:
    with pytest.raises(PolicyError, match="`Knowing` reads outcomes"):
        length_map(Knowing(), appendix_a())


def test_coupled_rows_are_read_from_their_confidences() -> None:
    mapping = LengthMap.of(lambda x: (int(x[1] == (0,)), int(x[0] == (0,))), (1, 1), 2)
    found = law(coupled_rows(), MapPolicy(mapping))
    assert found.verdict == "joint"
    assert found.joint[(1,), (1,)] == Fraction(9, 80)
    assert found.target_joint[(1,), (1,)] == Fraction(9, 100)
    assert length_map(MapPolicy(mapping), coupled_rows()) == mapping


def test_maps_that_contradict_themselves_are_refused() -> None:
    with pytest.raises(LengthMapError, match=r"must hold 4 entries, .* got 3"):
        LengthMap((1, 1), 2, ((0, 0),) * 3)
    with pytest.raises(LengthMapError, match=r"drafts \(\(0,\), \(1,\)\) must be within 0..\(1, 1\), got \(0, 2\)"):
        LengthMap.of(lambda x: (0, 2 * x[1][0]), (1, 1), 2)
    with pytest.raises(LengthMapError, match=r"got \(0,\)"):
        LengthMap.of(lambda _: (0,), (1, 1), 2)


def test_a_map_asked_about_another_world_says_so() -> None:
    mapping = LengthMap.of(lambda _: (1,), (2,), 2)
    with pytest.raises(PolicyError, match=r"confidence 0.8 shows no token"):
        law(appendix_a(), MapPolicy(mapping))
    with pytest.raises(PolicyError, match=r"for \(2,\) drafts by row, the step has \(1, 1\)"):
        law(coupled_rows(), MapPolicy(mapping))


def test_the_table_in_the_docs_is_what_the_command_writes() -> None:
    assert SCRIPT["main"](["--check"]) == 0
