"""A little world decoded by the real kernels: drafts, confidences, admission, verification, and the law that leaves.

The kernels are deterministic given their uniforms. So a uniform is put into the middle of every cell between the
breakpoints of its CDF, weighed by the cell's exact width (a fraction), and the law of what leaves is a sum of
fractions. It equals the kernels' own law but for the distance of their float32 breakpoints from the exact ones.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import torch

from specsched.kernels.admit import admit
from specsched.kernels.confidence import confidence
from specsched.kernels.markov import draft_block
from specsched.kernels.verify import verify_chain
from specsched.policies import Generation, Policy, View
from specsched.policies.lossless.decoders import RIGHT, Block, blocks
from specsched.policies.lossless.exact import JointLaw
from specsched.policies.lossless.worlds import Distribution, Tokens, World

NAN = math.nan
EDGE = Fraction(1, 2**20)


def middle(low: Fraction, high: Fraction) -> Fraction:
    return (low + high) / 2


def above_low(low: Fraction, high: Fraction) -> Fraction:
    """Just inside a cell: a float32 breakpoint that is off by more than 2^-20 puts it into another one."""
    return low + EDGE if low else low


def below_high(low: Fraction, high: Fraction) -> Fraction:
    return high - EDGE


def cells(law: Distribution) -> Iterator[tuple[Fraction, Fraction]]:
    """The intervals of a uniform that select the tokens with mass."""
    edge = Fraction(0)
    for probability in law:
        if probability:
            yield edge, edge + probability
        edge += probability


def residual_law(target: Distribution, draft: Distribution) -> Distribution:
    over = [max(t - d, Fraction(0)) for t, d in zip(target, draft, strict=True)]
    return tuple(each / sum(over) for each in over)


@dataclass(frozen=True)
class Drafted:
    """Blocks as the kernels drafted them; rows of all tensors belong together."""

    tokens: torch.Tensor
    p_draft: torch.Tensor
    logits: torch.Tensor
    c: torch.Tensor
    a: torch.Tensor


@dataclass(frozen=True)
class Uniforms:
    """What one verification is given, and how likely that is."""

    accept: tuple[Fraction | float, ...]
    residual: Fraction | float
    bonus: Fraction | float
    probability: Fraction


class Kernels:
    """The kernels with weights that make them a world's drafter, confidence head and verifier.

    Draft and target are Markov and the same for all rows; the confidence of position 1 reads the anchor, of position 2
    the first draft, through the Markov head's embedding. What a backbone would know (the anchor) is in its hidden
    states, what it cannot know (the drafts) is not.
    """

    def __init__(self, world: World, at: Any = middle) -> None:
        self.world, self.at = world, at
        size, every = world.vocabulary, range(world.vocabulary)
        self.w1, self.w2t = torch.zeros(size, size + 1), torch.zeros(size, size + 1)
        self.w1[:, :size] = torch.eye(size)
        for last in every:
            self.w2t[:, last] = _log(world.draft_at(0, last))
        table = world.confidence[0][0]
        # One column more, read by the confidence head alone: c of position 2 after each first draft.
        self.w1[:, size] = torch.tensor([_logit(table[1 + last]) if world.gamma > 1 else 0.0 for last in every])
        self.target = torch.stack([_log(world.target_at(0, last)) for last in every])

    def draft(self, anchors: list[int], uniforms: list[tuple[Fraction, ...]]) -> Drafted:
        """Draft one block for each anchor and tuple of uniforms, and tell how likely its tokens are to survive."""
        rows, gamma, size = len(anchors), self.world.gamma, self.world.vocabulary
        anchor = torch.tensor(anchors)
        base = torch.zeros(rows, gamma, size)
        block = draft_block(base, self.w1, self.w2t, anchor, torch.ones(rows), _floats(uniforms))
        previous = torch.cat((anchor[:, None], block.tokens[:, :-1].long()), 1)
        hidden = torch.zeros(rows, gamma, 1)
        hidden[:, 0, 0] = _logit(self.world.confidence[0][0][0]) - self.w1[anchor, size]
        weight = torch.zeros(1 + size + 1)
        weight[0] = weight[-1] = 1.0
        found = confidence(hidden, self.w1, previous, weight, None, torch.ones(gamma))
        return Drafted(block.tokens, block.p_draft, base + self.w1[previous] @ self.w2t.T, found.c, found.a)

    def verify(self, anchors: list[int], drafts: Drafted, lengths: list[int], given: list[Uniforms]) -> list[Tokens]:
        """Verify prefixes; whatever lies behind a prefix is poisoned first, since nothing may read it."""
        counts = torch.tensor(lengths)
        offsets = torch.cat((torch.zeros(1, dtype=torch.int64), (counts + 1).cumsum(0)))
        behind = torch.arange(self.world.gamma) >= counts[:, None]
        tokens, p_draft, logits = drafts.tokens.clone(), drafts.p_draft.clone(), drafts.logits.clone()
        tokens[behind], p_draft[behind], logits[behind] = -1, NAN, NAN
        last = torch.cat((torch.tensor(anchors)[:, None], drafts.tokens.long()), 1)
        target = torch.cat([self.target[last[row, : 1 + length]] for row, length in enumerate(lengths)])
        found = verify_chain(
            target, tokens, p_draft, logits, counts, offsets, torch.ones(len(lengths)),
            accept=_floats([each.accept for each in given]),
            residual=_floats([each.residual for each in given]),
            bonus=_floats([each.bonus for each in given]),
        )  # fmt: skip
        return [
            tuple(row[: 1 + count]) for row, count in zip(found.tokens.tolist(), found.n_accepted.tolist(), strict=True)
        ]


def uniforms_of(world: World, anchor: int, block: Tokens, length: int, at: Any = middle) -> Iterator[Uniforms]:
    """Everything that may happen to a prefix: one uniform in each cell, NaN where none may be read.

    A kernel that reads another stream, or goes on after a rejection, draws with NaN and gets another law.
    """
    so_far, accept = Fraction(1), []
    nothing = (NAN,) * world.gamma
    for place in range(length):
        last = (anchor, *block)[place]
        target, draft = world.target_at(0, last), world.draft_at(0, last)
        ratio = min(Fraction(1), target[block[place]] / draft[block[place]])
        if ratio < 1:
            rejected = (*accept, at(ratio, Fraction(1)), *nothing)[: world.gamma]
            for low, high in cells(residual_law(target, draft)):
                yield Uniforms(rejected, at(low, high), NAN, so_far * (1 - ratio) * (high - low))
        accept.append(at(Fraction(0), ratio))
        so_far *= ratio
    for low, high in cells(world.target_at(0, (anchor, *block)[length])):
        yield Uniforms((*accept, *nothing)[: world.gamma], NAN, at(low, high), so_far * (high - low))


Survivals = tuple[tuple[float, ...], tuple[float, ...]]
"""Confidences and survivals of a block as the kernel gave them, float32."""


class Decoding:
    """The law of a world's first tokens when kernels draft, score, admit and verify, and a policy sets the budget.

    Rows meet in admission alone: what one of them drafts and emits is put together from runs in other batches, since
    neither depends on the batch (`test_verify.py` has a test of its own for that).
    """

    def __init__(self, world: World, at: Any = middle) -> None:
        self.world = world
        self.kernels = Kernels(world, at)
        self.admissions = 0
        self._admitted: dict[Any, tuple[int, ...]] = {}
        # By anchor: probability and, by verify length, law of what leaves, for each pair of survivals.
        self.moves: dict[int, dict[Survivals, dict[int, dict[Tokens, Fraction]]]] = {}
        markov = max(len(world.target[0]), len(world.draft[0])) > 1
        for anchor in range(world.vocabulary):
            self.moves[anchor] = self._enumerate(anchor, at) if markov or not anchor else self.moves[0]

    def _enumerate(self, anchor: int, at: Any) -> dict[Survivals, dict[int, dict[Tokens, Fraction]]]:
        world = self.world
        listed: list[Block] = blocks(world, RIGHT, 0, anchor, world.gamma)
        drafted = self.kernels.draft([anchor] * len(listed), [tuple(at(*u) for u in each.uniforms) for each in listed])
        assert drafted.tokens.tolist() == [list(each.tokens) for each in listed]
        picked, lengths, given = [], [], []
        for place, each in enumerate(listed):
            for length in range(world.gamma + 1):
                for uniforms in uniforms_of(world, anchor, each.tokens, length, at):
                    picked.append(place)
                    lengths.append(length)
                    given.append(uniforms)
        chosen = Drafted(*(value[picked] for value in vars(drafted).values()))
        left = self.kernels.verify([anchor] * len(picked), chosen, lengths, given)
        found: dict[Survivals, dict[int, dict[Tokens, Fraction]]] = {}
        for place, length, uniforms, tokens in zip(picked, lengths, given, left, strict=True):
            key = tuple(drafted.c[place].tolist()), tuple(drafted.a[place].tolist())
            law = found.setdefault(key, {n: defaultdict(Fraction) for n in range(world.gamma + 1)})[length]
            law[tokens] += listed[place].probability * uniforms.probability
        return found

    def law(self, policy: Policy, tokens: int, top_k: bool = True) -> JointLaw:
        """The joint law of every row's first tokens.

        Args:
            policy: sets the budget; it reads the kernels' survivals, as a policy on the host would.
            tokens: how many of each row.
            top_k: whether it admits the best drafts, in which case the admission kernel does.
        """
        start = tuple(((), plan.anchor) for plan in self.world.rows)
        now: dict[Any, Fraction] = {(start, None): Fraction(1)}
        done: defaultdict[tuple[Tokens, ...], Fraction] = defaultdict(Fraction)
        step = 0
        while now:
            following: defaultdict[Any, Fraction] = defaultdict(Fraction)
            for (rows, lagged), mass in now.items():
                if all(len(text) == tokens for text, _ in rows):
                    done[tuple(text for text, _ in rows)] += mass
                    continue
                for seen, left, share in self._step(policy, top_k, step, [last for _, last in rows], lagged):
                    after = tuple(((*text, *new)[:tokens], new[-1]) for (text, _), new in zip(rows, left, strict=True))
                    following[after, seen] += mass * share
            now, step = following, step + 1
        return dict(done)

    def _step(self, policy: Policy, top_k: bool, step: int, anchors: list[int], lagged: Any) -> Iterator[Any]:
        """What the rows show, what they emit, and how likely that is."""
        for seen in _product([list(self.moves[anchor]) for anchor in anchors]):
            lengths = self._lengths(policy, top_k, step, seen, lagged)
            laws = [self.moves[anchor][key][n] for anchor, key, n in zip(anchors, seen, lengths, strict=True)]
            for left in _product([list(law.items()) for law in laws]):
                yield seen, [new for new, _ in left], math.prod(share for _, share in left)

    def _lengths(self, policy: Policy, top_k: bool, step: int, seen: Any, lagged: Any) -> tuple[int, ...]:
        """The verify lengths; the admission kernel's, if the policy is one that admits the best drafts."""
        key = policy, step, seen, lagged
        if key not in self._admitted:
            available = np.full(len(seen), self.world.gamma)
            past = None if not policy.lag else _generation(lagged, len(seen), self.world.gamma)
            view = View(
                step=step,
                requests=np.arange(len(seen)),
                available=available,
                drafted=int(available.sum()),
                cost=self.world.cost,
                lagged_drafts=past,
                generation=_generation(seen, len(seen), self.world.gamma),
            )
            planned, memory = policy.plan(view, policy.start())
            assert memory is None
            lengths = planned
            if top_k:
                survivals = torch.tensor([a for _, a in seen])
                admitted = admit(survivals, torch.tensor([int(planned.sum())], dtype=torch.int32))
                lengths = admitted.lengths
                assert admitted.offsets.tolist() == [0, *(1 + admitted.lengths).cumsum(0).tolist()]
                assert lengths.tolist() == planned.tolist(), (seen, lagged)
                self.admissions += 1
            self._admitted[key] = tuple(lengths.tolist())
        return self._admitted[key]


def _generation(seen: Any, rows: int, gamma: int) -> Generation:
    """A generation of float32 survivals; one that knows no row where there was none."""
    if seen is None:
        return Generation(np.zeros((rows, gamma)), np.zeros((rows, gamma)), np.zeros(rows, np.bool_), False)
    c, a = (np.array([each[part] for each in seen], np.float64) for part in (0, 1))
    return Generation(c, a, np.ones(len(seen), np.bool_), True)


def _product(lists: list[list[Any]]) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = [()]
    for each in lists:
        found = [(*start, value) for start in found for value in each]
    return found


def _floats(values: list[Any]) -> torch.Tensor:
    return torch.tensor(np.array(values, dtype=np.float64), dtype=torch.float32)


def _log(law: Distribution) -> torch.Tensor:
    return torch.tensor([math.log(each) for each in law])


def _logit(c: float) -> float:
    """Far enough out that float32 gives exactly 0 or 1."""
    if c in (0.0, 1.0):
        return 200.0 if c else -200.0
    return math.log(c / (1.0 - c))
