"""A brute-force sampler of little worlds, to hold exact laws against.

It shares no code with the enumeration in `exact` beyond what a policy is shown: every draw is followed on its own, in
float64 and with a random generator, nothing is merged and no probability is multiplied. Draws are NumPy columns; a
policy is asked once for all draws in which it has seen the same so far and gets the same coin.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, product
from typing import Any

import numpy as np

from ..arrays import Bools, Floats, Ints
from ..checks import ask, start_state
from ..generation import Generation
from ..interface import Policy, View
from .decoders import Decoder
from .worlds import Distribution, Tokens, World, WorldError

_DENSE = 1 << 22
"""Labels up to which a table over all of them costs less than it saves."""


def sample(world: World, policy: Policy, decoder: Decoder, draws: int, seed: int) -> dict[tuple[Tokens, ...], int]:
    """Decode a world many times and count what left it.

    Args:
        world: what is decoded; at most 62 bits of tokens a row.
        policy: decides the verify lengths; ``plan`` must be pure.
        decoder: how tokens are drawn.
        draws: independent runs of the world, at least 1.
        seed: of the random generator.

    Returns:
        By each row's first ``L`` tokens (fewer if it ended earlier): draws that gave them. They sum to ``draws``.

    Raises:
        WorldError: if the tokens compared do not fit.
        PolicyError: if the policy fails or returns lengths that a step cannot execute.
        ValueError: for less than one draw.
    """
    if draws < 1:
        raise ValueError(f"`draws` must be at least 1, got {draws}")
    # A row's text is one int64.
    if (world.vocabulary + 1) ** world.tokens >= 1 << 62:
        raise WorldError(f"{world.tokens} tokens of a vocabulary of {world.vocabulary} are too many to sample")
    return _Run(world, policy, decoder, draws, seed).counts()


@dataclass(frozen=True)
class _Past:
    """What a policy has seen and remembers, in all draws that share it.

    Attributes:
        memory: the policy's state.
        seen: by step and row the confidences of the row's drafts; rows without drafts are left out.
    """

    memory: Any
    seen: Mapping[int, Mapping[int, tuple[float, ...]]]


@dataclass
class _Text:
    """What one row has emitted, by draw, each int64 or bool ``[N]``.

    Attributes:
        code: its first tokens, as digits ``token + 1`` to the base ``vocabulary + 1``.
        count: tokens it has emitted.
        last: the last of them, at first the anchor.
        ended: whether that is the end token.
    """

    code: Ints
    count: Ints
    last: Ints
    ended: Bools

    def pick(self, which: Bools) -> _Text:
        """Return the text of some draws."""
        return _Text(self.code[which], self.count[which], self.last[which], self.ended[which])


@dataclass(frozen=True)
class _Drafts:
    """One row's drafts of one step, by draw.

    Attributes:
        tokens: int64 ``[1 + has, N]``: the anchor, then the drafts.
        drafting: uniforms that drew them, float64 ``[has, N]``.
        accepting: uniforms that decide their acceptance, float64 ``[has, N]``.
        accepted: leading drafts that would be accepted, int64 ``[N]``.
    """

    tokens: Ints
    drafting: Floats
    accepting: Floats
    accepted: Ints

    @property
    def has(self) -> int:
        """Number of drafts."""
        return len(self.drafting)


class _Law:
    """Thresholds and ratios of one row, as float64 tables over the preceding token."""

    def __init__(self, world: World, row: int) -> None:
        tokens = range(world.vocabulary)
        pairs = [(world.target_at(row, last), world.draft_at(row, last)) for last in tokens]
        self.draft = _thresholds([draft for _, draft in pairs])
        # The first half is the target's, for bonus tokens; the second the residual's, for rejections.
        self.final = _thresholds([target for target, _ in pairs] + [_residual(*pair) for pair in pairs])
        self.likeliest = np.array([draft.index(max(draft)) for _, draft in pairs], np.int64)
        # Where p_d is 0 nothing is ever drafted; NaN would reject it.
        ratios = [[float(t / d) if d else np.nan for t, d in zip(*pair, strict=True)] for pair in pairs]
        self.ratio = np.array(ratios).ravel()


class _Run:
    """All draws of one world, in step with each other."""

    def __init__(self, world: World, policy: Policy, decoder: Decoder, draws: int, seed: int) -> None:
        self.world, self.policy, self.decoder = world, policy, decoder
        self.rng = np.random.default_rng(seed)
        self.laws = [_Law(world, row) for row in range(len(world.rows))]
        self.draws = draws
        zeros = np.zeros(draws, np.int64)
        self.texts = [_Text(zeros, zeros, zeros + plan.anchor, zeros > 0) for plan in world.rows]
        # At first all draws are in one group: nothing has been seen that tells them apart.
        self.pasts = [_Past(start_state(policy), {})]
        self.group = zeros
        self.shown: dict[tuple[int, int], tuple[Ints, list[tuple[float, ...]]]] = {}

    def counts(self) -> dict[tuple[Tokens, ...], int]:
        """Run until every row of every draw has its tokens."""
        found: Counter[tuple[Tokens, ...]] = Counter()
        step = 0
        while self.draws:
            done = np.logical_and.reduce([self._complete(row) for row in range(len(self.texts))])
            # Draws end at different steps. Those that are done leave at once, so that nothing asks about them.
            if done.any():
                self._harvest(done, found)
            if self.draws:
                self._step(step)
            step += 1
        return dict(found)

    def _complete(self, row: int) -> Bools:
        text = self.texts[row]
        return (text.count >= self.world.compared(row)) | text.ended

    def _harvest(self, done: Bools, found: Counter[tuple[Tokens, ...]]) -> None:
        """Count the draws that are done and go on with the others."""
        codes = [text.code[done] for text in self.texts]
        label, first = _together(codes)
        for draw, times in zip(first.tolist(), np.bincount(label).tolist(), strict=True):
            found[tuple(self._spelled(int(code[draw])) for code in codes)] += times
        rest = ~done
        self.texts = [text.pick(rest) for text in self.texts]
        self.group = self.group[rest]
        self.draws = len(self.group)

    def _spelled(self, code: int) -> Tokens:
        tokens: list[int] = []
        while code:
            code, digit = divmod(code, self.world.vocabulary + 1)
            tokens.append(digit - 1)
        return tuple(reversed(tokens))

    def _step(self, step: int) -> None:
        active = [self._active(row, step) for row in range(len(self.texts))]
        drafts = [self._draft(row, step) for row in range(len(self.texts))]
        lengths = self._plan(step, active, drafts)
        for row, (running, block) in enumerate(zip(active, drafts, strict=True)):
            if running.any():
                self._emit(row, running, block, lengths[row])

    def _active(self, row: int, step: int) -> Bools:
        """Return in which draws a row takes part in a step."""
        plan, text = self.world.rows[row], self.texts[row]
        here: Bools = ~text.ended
        if plan.length is not None:
            here &= text.count < plan.length
        return here & (step >= plan.admitted)

    def _draft(self, row: int, step: int) -> _Drafts:
        """Draft a row's block in every draw; where the row is not active nobody looks at it."""
        has = self.world.available(row, step) if self.policy.drafts else 0
        law, last = self.laws[row], self.texts[row].last
        tokens = np.empty((1 + has, self.draws), np.int64)
        tokens[0] = last
        drafting = self.rng.random((has, self.draws))
        shared = self.decoder.shared == ("draft", "accept")
        accepting = drafting if shared else self.rng.random((has, self.draws))
        alive, accepted = np.ones(self.draws, np.bool_), np.zeros(self.draws, np.int64)
        for place in range(has):
            drawn = law.likeliest[last] if self.decoder.argmax_draft else _invert(law.draft, last, drafting[place])
            # The first rejection ends a chain, whatever later uniforms say.
            alive &= accepting[place] < law.ratio[last * self.world.vocabulary + drawn]
            accepted += alive
            tokens[place + 1] = last = drawn
        return _Drafts(tokens, drafting, accepting, accepted)

    # --- what the policy sees and answers

    def _plan(self, step: int, active: list[Bools], drafts: list[_Drafts]) -> list[Ints]:
        """Ask the policy once for every distinct past and present; return each row's lengths, int64 ``[N]``."""
        # One for the whole batch of a draw, as `view.coin` is.
        coin = self.rng.integers(len(self.world.coins), size=self.draws)
        columns = [self.group, coin]
        for row, (running, block) in enumerate(zip(active, drafts, strict=True)):
            visible = [self.texts[row].count, self._shown(row, block)]
            visible += [block.accepted] if self.policy.needs_outcomes else []
            # Rows that do not run are zeroed: what nobody sees must not tell draws apart.
            columns += [running.astype(np.int64), *(column * running for column in visible)]
        label, first = _together(columns)
        lengths = np.zeros((len(active), len(first)), np.int64)
        pasts = []
        for place, draw in enumerate(first.tolist()):
            past = self.pasts[self.group[draw]]
            rows = [row for row, running in enumerate(active) if running[draw]]
            if rows:
                lengths[rows, place], past = self._ask(step, past, rows, drafts, draw, int(coin[draw]))
            pasts.append(past)
        self.group, self.pasts = label, pasts
        return [of_row[label] for of_row in lengths]

    def _ask(
        self, step: int, past: _Past, rows: list[int], drafts: list[_Drafts], draw: int, coin: int
    ) -> tuple[Ints, _Past]:
        """Return the policy's lengths in one draw, and its past from then on."""
        seen = {row: self._confidences(row, drafts[row].tokens[:, draw].tolist()) for row in rows if drafts[row].has}
        gamma = self.world.gamma if self.policy.drafts else 0
        lag = self.policy.lag
        contexts = np.array([1 + int(self.texts[row].count[draw]) for row in rows])
        outcomes = np.array([int(drafts[row].accepted[draw]) for row in rows])
        view = View(
            step=step,
            requests=np.array(rows),
            available=np.array([drafts[row].has for row in rows]),
            drafted=sum(drafts[row].has for row in rows),
            cost=self.world.cost,
            lagged_drafts=_generation(past.seen.get(step - lag, {}), rows, self.world.gamma) if lag else None,
            contexts=lambda: contexts,
            coins=lambda _: self.world.coins[coin],
            generation=_generation(seen, rows, gamma),
            outcomes=outcomes if self.policy.needs_outcomes else None,
        )
        lengths, memory = ask(self.policy, view, past.memory)
        return lengths, _Past(memory, {**past.seen, step: seen})

    def _shown(self, row: int, block: _Drafts) -> Ints:
        """Return a number for each draw's confidences, equal where they are."""
        base = self.world.vocabulary
        if (row, block.has) not in self.shown:
            every = product(range(base), repeat=block.has + 1)
            confidences = [self._confidences(row, list(tokens)) for tokens in every]
            distinct = list(dict.fromkeys(confidences))
            self.shown[row, block.has] = np.array([distinct.index(each) for each in confidences]), distinct
        code = np.zeros(self.draws, np.int64)
        for tokens in block.tokens:
            code = code * base + tokens
        return self.shown[row, block.has][0][code]

    def _confidences(self, row: int, tokens: list[int]) -> tuple[float, ...]:
        """Return a block's confidences; ``tokens`` holds the anchor and the drafts.

        Those of draft ``j`` are listed by the tokens before it, read as a number, behind those of drafts ``< j``.
        """
        table = self.world.confidence[row % len(self.world.confidence)]
        values = table[tokens[0] % len(table)]
        own, base = self.world.own_token, self.world.vocabulary
        found, behind, number = [], 0, 0
        for place, token in enumerate(tokens[1:]):
            if own:
                number = number * base + token
            found.append(values[behind + number])
            behind += base ** (place + own)
            if not own:
                number = number * base + token
        return tuple(found)

    # --- what leaves

    def _emit(self, row: int, running: Bools, block: _Drafts, verified: Ints) -> None:
        """Append a step's tokens to a row's text, up to its end."""
        kept = np.minimum(block.accepted, verified)
        final = self._final(row, block, kept, verified)
        plan, text = self.world.rows[row], self.texts[row]
        code, count, last, ended = text.code, text.count, text.last, text.ended
        for place in range(block.has + 1):
            token = final if place == block.has else np.where(place < kept, block.tokens[place + 1], final)
            leaves = running & (place <= kept) & ~ended
            if plan.length is not None:
                leaves &= count < plan.length
            written = leaves & (count < self.world.compared(row))
            # Digits from 1, so that a text that begins with token 0 differs from a shorter one.
            code = np.where(written, code * (self.world.vocabulary + 1) + token + 1, code)
            count = count + leaves
            last = np.where(leaves, token, last)
            if self.world.end is not None:
                ended = ended | (leaves & (token == self.world.end))
        self.texts[row] = _Text(code, count, last, ended)

    def _final(self, row: int, block: _Drafts, kept: Ints, verified: Ints) -> Ints:
        """Draw the token that ends a step: the residual's after a rejection, the target's bonus otherwise."""
        uncut = self.decoder.uncut_token
        rejected = block.accepted < (block.has if uncut else verified)
        # Behind which draft the last token stands; a decoder that does not cut takes it from where the block ended.
        place = block.accepted if uncut else kept
        if self.decoder.bonus_after_block:
            place = np.where(rejected | (verified > 0), place, block.has)
        every = np.arange(self.draws)
        uniform = self.rng.random(self.draws)
        if block.has and self.decoder.shared in (("draft", "residual"), ("accept", "residual")):
            # The mistake under test. Rows without a rejection keep a fresh uniform; what lies at their clamped place is
            # not used.
            reused = block.drafting if self.decoder.shared[0] == "draft" else block.accepting
            uniform = np.where(rejected, reused[np.minimum(place, block.has - 1), every], uniform)
        last = block.tokens[place, every]
        return _invert(self.laws[row].final, last + rejected * self.world.vocabulary, uniform)


def _thresholds(laws: list[Distribution]) -> Floats:
    """Return float64 ``[tokens - 1, laws]``: a uniform at or above entry ``k`` selects a token above ``k``."""
    return np.array([[float(edge) for edge in list(accumulate(law))[:-1]] for law in laws]).T


def _residual(target: Distribution, draft: Distribution) -> Distribution:
    """Return normalize(max(p_t - p_d, 0)), and ``p_t`` itself where nothing is ever rejected."""
    # Not `decoders.residual`: a mistake there must not agree with itself here.
    excess = [t - d if t > d else Fraction(0) for t, d in zip(target, draft, strict=True)]
    return tuple(each / sum(excess) for each in excess) if any(excess) else target


def _invert(thresholds: Floats, which: Ints, uniform: Floats) -> Ints:
    """Return the token each uniform selects in law ``which``, int64 ``[N]``."""
    token = np.zeros(len(uniform), np.int64)
    for edge in thresholds:
        token += uniform >= edge[which]
    return token


def _generation(seen: Mapping[int, tuple[float, ...]], rows: list[int], gamma: int) -> Generation:
    """Return a generation as policies get it; nothing is known of rows that are not in ``seen``."""
    confidence, survival = np.zeros((len(rows), gamma)), np.zeros((len(rows), gamma))
    for place, row in enumerate(rows):
        product_so_far = 1.0
        for position, value in enumerate(seen.get(row, ())):
            product_so_far *= value
            confidence[place, position], survival[place, position] = value, product_so_far
    known = np.array([row in seen for row in rows], np.bool_)
    return Generation(confidence, survival, known, bool(known.all()))


def _together(columns: list[Ints]) -> tuple[Ints, Ints]:
    """Label draws 0, 1, .. so that those equal in every column share a label.

    Args:
        columns: int64 ``[N]`` each, at least 0.

    Returns:
        The labels, int64 ``[N]``, and one draw of each.
    """
    label, size = np.zeros(len(columns[0]), np.int64), 1
    for column in columns:
        width = int(column.max()) + 1
        # Labels are products of columns; before they outgrow a table they are numbered anew, without gaps.
        if size * width > _DENSE:
            label, size = _renumbered(label, size)
        label, size = label * width + column, size * width
    label, size = _renumbered(label, size)
    first = np.empty(size, np.int64)
    first[label] = np.arange(len(label))
    return label, first


def _renumbered(label: Ints, size: int) -> tuple[Ints, int]:
    """Return labels without gaps, and their number; sorting them would take several times as long."""
    if size > 16 * _DENSE:
        used, label = np.unique(label, return_inverse=True)
        return label, len(used)
    present = np.zeros(size, np.bool_)
    present[label] = True
    numbers = np.cumsum(present) - 1
    return numbers[label], int(numbers[-1]) + 1
