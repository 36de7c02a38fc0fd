"""Two rules on single decisions that imply losslessness, tried on random histories.

A policy sees confidences, and the confidence ``c[r, j]`` of draft ``j`` is a function of the drafts before it. Changing
it therefore stands for changing a draft before ``j``. With verify lengths ``l``:

- **row-wise**: changing ``c[r, j']`` of one row for ``j' > j`` changes nothing about whether draft ``j`` of that row is
  verified. If it always holds, every row's output law is the target's.
- **stopping set**: changing ``c[r, j]`` of any rows at ``j > l[r] + 1``, that is, where no verified draft differs,
  changes no length of any row. If it always holds, the rows' joint law is the target's. It implies the first rule.

Both are sufficient, not necessary. They are the non-anticipation condition of the DSpark paper (arXiv 2607.05147,
section 5.2 and Appendix A) for one row and for all. A search finds violations; that it finds none is evidence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal

import numpy as np

from ..checks import ask, policy_name, start_state
from ..interface import Policy, PolicyError
from .scripts import Script, ScriptCost, Situation, random_script, view_of
from .what_if import Confidences, beyond, in_a_row, replaced

Rule = Literal["row-wise", "stopping set"]
Lengths = tuple[int, ...]

_LATER = 6
"""Steps of a script that are tried after the policy's lag."""
_LONGEST_LAG = 32
"""A longer lag is tried as far as rows without a lagged generation go."""
_REPEATS = 2


@dataclass(frozen=True)
class Violation:
    """Two batches that a policy must not tell apart, and does.

    Attributes:
        rule: the rule that is broken.
        step: step of the history, from 0.
        requests: request ids by row.
        row: row whose admission changes, from 0.
        position: its first draft that is verified under one and not under the other, from 1.
        changed_row, changed_position: the earliest draft whose confidence changes; in the first batch neither it nor
            the draft before it is verified.
        confidence, other: the two batches, confidences by row.
        lengths, other_lengths: what the policy verifies in each.
        gamma: drafts of a full block.
        seconds: step times of 1, 2, .. tokens, up to the largest batch of these rows.
        sizes: captured batch sizes.
        coin: value of ``view.coin``.
    """

    rule: Rule
    step: int
    requests: tuple[int, ...]
    row: int
    position: int
    changed_row: int
    changed_position: int
    confidence: Confidences
    other: Confidences
    lengths: Lengths
    other_lengths: Lengths
    gamma: int
    seconds: tuple[float, ...]
    sizes: tuple[int, ...]
    coin: float

    @property
    def brief(self) -> str:
        """The pair in one line."""
        return (
            f"step {self.step}: confidences {_shown(self.confidence)} give lengths {list(self.lengths)}, "
            f"{_shown(self.other)} give {list(self.other_lengths)}"
        )

    def __str__(self) -> str:
        old = self.confidence[self.changed_row][self.changed_position - 1]
        new = self.other[self.changed_row][self.changed_position - 1]
        verified = self.lengths[self.row] >= self.position
        return (
            f"The {self.rule} rule is broken at step {self.step} of a random history, rows being requests "
            f"{list(self.requests)}. Draft {self.position} of row {self.row} is "
            f"{'verified' if verified else 'not verified'}, and is {'not ' if verified else ''}once the confidence of "
            f"draft {self.changed_position} of row {self.changed_row} is {new!r} instead of {old!r}: "
            f"{self.brief.partition(': ')[2]}. {self._meaning()}"
        )

    def _meaning(self) -> str:
        known = (
            f"The confidence of draft {self.changed_position} shows draft {self.changed_position - 1} of row "
            f"{self.changed_row}, which is not verified in the first batch"
        )
        if self.rule == "row-wise":
            return (
                f"{known}; so the row's own drafts from {self.position} on decide whether draft {self.position} is "
                "verified. Tokens are then kept or thrown away for what they are, and this row's output can leave the "
                "target's distribution (its marginal breaks)."
            )
        return (
            f"{known} and must keep its law; here the lengths depend on it. This alone is undecided by rule: if the "
            "row-wise rule holds, each row's own law is right and only the rows' joint law can be wrong, which the "
            "exact law of a small world decides."
        )


@dataclass(frozen=True)
class RuleReport:
    """What a `probe` found.

    Attributes:
        row_wise, stopping_set: a violation of each rule, or None. A failure of the second alone is undecided by rule.
        scripts: random histories played, all of them unless a row-wise violation ended the search.
        varied: those in which the number of admitted drafts changed from step to step.
        split: those with a step that admitted some drafts and refused others.
        applicable: False for a policy that knows the outcomes, which are functions of the drafts themselves: the rules
            say nothing about it.
    """

    row_wise: Violation | None
    stopping_set: Violation | None
    scripts: int
    varied: int
    split: int
    applicable: bool = True


def row_wise(situation: Situation, rng: np.random.Generator, trials: int = 24) -> Violation | None:
    """Look for other confidences of one row that break the row-wise rule in a situation.

    Raises:
        PolicyError: if the policy fails, or answers the same question in two ways.
    """
    return _search(situation, in_a_row(*_asked(situation), rng, trials), "row-wise")


def stopping_set(situation: Situation, rng: np.random.Generator, trials: int = 24) -> Violation | None:
    """Look for other confidences that break the stopping-set rule in a situation; raises as `row_wise`."""
    return _search(situation, _changes(situation, rng, trials), "stopping set")


def probe(
    policy: Policy,
    gamma: int,
    scripts: int = 48,
    rows: int = 4,
    steps: int = _LATER,
    seed: int = 0,
    *,
    trials: int = 5,
    ragged: float = 0.3,
    costs: Sequence[ScriptCost] = (),
) -> RuleReport:
    """Try both rules on random scripts, those of few rows first; deterministic.

    Of 200 seeds, at gamma 2 and at gamma 7, at least 198 catch each of: the same-step argmax, a budget from the second
    confidence of another row, a row dropped for its own later confidence, ties to the later position (three readings),
    `min_len`, `min_gain`, `allowed` and `ema` misread. A biased policy that shows on rarer batches, or with more rows,
    can pass.

    Args:
        policy: the policy.
        gamma: drafts of a block.
        scripts: histories to play.
        rows: most rows of a script.
        steps: steps tried in each, after as many as the policy's ``lag`` (32 of them at most).
        seed: of the histories.
        trials: changes of one row tried in each step, beside three of several rows.
        ragged: probability of a row with fewer than ``gamma`` drafts.
        costs: step costs taken in turn; none means random ones.

    Raises:
        PolicyError: if the policy fails on a batch, or answers the same question in two ways.
    """
    # Outcomes are functions of the drafts: a change of confidences alone would be a batch that cannot be.
    if policy.needs_outcomes:
        return RuleReport(None, None, 0, 0, 0, applicable=False)
    # A lagged budget has read nothing before: those steps would only try the prior of rows that join.
    early = min(policy.lag or 0, _LONGEST_LAG)
    search = _Search(early, trials)
    for number in range(scripts):
        # A stream for each script: more trials in one change no other.
        rng = np.random.default_rng([seed, number])
        # Rows grow with the number of the script: a violation of few rows is the easier to read.
        script = random_script(rng, gamma, 1 + number * rows // scripts, early + steps, ragged)
        if costs:
            script = replace(script, priced=costs[number % len(costs)])
        search.play(policy, script, rng)
        # It breaks both rules (the stopping set implies it), so nothing worse can be found.
        if search.row_wise is not None:
            break
    return search.report()


class _Search:
    """What has been found and seen so far."""

    def __init__(self, early: int, trials: int) -> None:
        self.early = early
        self.trials = trials
        self.row_wise: Violation | None = None
        self.stopping_set: Violation | None = None
        self.scripts = self.varied = self.split = 0

    def play(self, policy: Policy, script: Script, rng: np.random.Generator) -> None:
        """Try every step of a script from ``early`` on, until a row-wise violation is found."""
        budgets, split = set(), False
        for situation in _walk(policy, script):
            admitted = int(situation.lengths.sum())
            budgets.add(admitted)
            split = split or 0 < admitted < sum(situation.moment.available)
            if situation.step >= self.early and self.row_wise is None:
                self._try(situation, rng)
        self.scripts += 1
        self.varied += len(budgets) > 1
        self.split += split

    def _try(self, situation: Situation, rng: np.random.Generator) -> None:
        # One violation of the stopping set is enough; after it only a row-wise one would say more.
        wanted: Rule | None = None if self.stopping_set is None else "row-wise"
        found = _search(situation, _changes(situation, rng, self.trials), wanted)
        if found is None:
            return
        if found.rule == "row-wise":
            self.row_wise = found
            # Every row-wise violation breaks the stopping set too, which is the stronger demand.
            found = replace(found, rule="stopping set")
        self.stopping_set = self.stopping_set or found

    def report(self) -> RuleReport:
        return RuleReport(self.row_wise, self.stopping_set, self.scripts, self.varied, self.split)


def _walk(policy: Policy, script: Script) -> Iterator[Situation]:
    """Play a script whose contexts grow by what was emitted, as they do in a run."""
    state = start_state(policy)
    emitted: dict[int, int] = {}
    for step, moment in enumerate(script.moments):
        contexts = [
            emitted.get(request, first) for request, first in zip(moment.requests, moment.contexts, strict=True)
        ]
        moment = replace(moment, contexts=tuple(contexts))
        # A situation looks its moment up in the script, which must hold it as it was played.
        script = replace(script, moments=(*script.moments[:step], moment, *script.moments[step + 1 :]))
        lengths, following = ask(policy, view_of(policy, script, step, moment), state)
        yield Situation(policy, script, step, state, lengths)
        state = following
        accepted = np.minimum(lengths, moment.outcomes).tolist()
        emitted = {
            request: context + 1 + more
            for request, context, more in zip(moment.requests, contexts, accepted, strict=True)
        }


def _asked(situation: Situation) -> tuple[Confidences, Lengths]:
    return situation.moment.confidence, tuple(situation.lengths.tolist())


def _changes(situation: Situation, rng: np.random.Generator, trials: int) -> Iterator[Confidences]:
    confidence, lengths = _asked(situation)
    return chain(beyond(confidence, lengths, rng), in_a_row(confidence, lengths, rng, trials))


def _search(situation: Situation, changes: Iterator[Confidences], wanted: Rule | None) -> Violation | None:
    """Return the first violation among ``changes``, made small; the row-wise one where a change breaks both rules.

    ``wanted`` looks for one rule alone; a row-wise violation is one of the stopping set too.
    """
    first = _Answer(*_asked(situation))
    for confidence in changes:
        other = _Answer(confidence, tuple(situation.again(confidence).tolist()))
        if other.lengths == first.lengths:
            continue
        pair = _offence(first, other, wanted)
        if pair is not None:
            _check_pure(situation, pair)
            return _violation(situation, _smaller(situation, pair))
    return None


@dataclass(frozen=True)
class _Answer:
    """Confidences and the lengths a policy gives them."""

    confidence: Confidences
    lengths: Lengths


@dataclass(frozen=True)
class _Pair:
    """Two answers that break a rule; what ``first`` verifies does not tell them apart."""

    rule: Rule
    first: _Answer
    second: _Answer


def _offence(one: _Answer, other: _Answer, wanted: Rule | None) -> _Pair | None:
    """Return the two in the order in which they break a rule, or None."""
    changed = _first_changes(one.confidence, other.confidence)
    # Both ways round: a change may lie behind what the one verifies and not behind what the other does.
    for first, second in ((one, other), (other, one)):
        # c[r, j] shows x[r, <j]: with l drafts verified, c may matter up to l + 1, the one that stopped the row.
        if one.lengths == other.lengths or any(at <= first.lengths[row] + 1 for row, at in changed.items()):
            continue
        # What the first verifies is the same in both. If the changed row's own admission changes before the change:
        own = len(changed) == 1 and all(min(second.lengths[r], at - 1) != first.lengths[r] for r, at in changed.items())
        if own and wanted != "stopping set":
            return _Pair("row-wise", first, second)
        if wanted != "row-wise":
            return _Pair("stopping set", first, second)
    return None


def _first_changes(one: Confidences, other: Confidences) -> dict[int, int]:
    """Return the first draft (from 1) that differs, by row that has one."""
    changed: dict[int, int] = {}
    for row, (values, others) in enumerate(zip(one, other, strict=True)):
        at = next((j for j, pair in enumerate(zip(values, others, strict=True), start=1) if pair[0] != pair[1]), None)
        if at is not None:
            changed[row] = at
    return changed


def _check_pure(situation: Situation, pair: _Pair) -> None:
    """Ask both again: what is remembered outside the state looks like a broken rule, and is another mistake."""
    # Twice at once and then in turns: a policy may go by how often it was asked, or by what it was asked before.
    for answer in (pair.first, pair.first, pair.second) * _REPEATS:
        lengths = tuple(situation.again(answer.confidence).tolist())
        if lengths != answer.lengths:
            raise PolicyError(
                f"policy `{policy_name(situation.policy)}` at step {situation.step} gave lengths "
                f"{list(answer.lengths)}, then {list(lengths)} for the same view and state; `plan` must be a pure "
                "function: return a new state, change neither `state` nor `self`, take chance from `view.coin`"
            )


def _smaller(situation: Situation, pair: _Pair) -> _Pair:
    """Undo changes one by one as long as the pair breaks the same rule; then try rounder confidences."""
    for row, values in enumerate(pair.first.confidence):
        # From the last draft backwards, so that the change that stays begins as early as the rule needs.
        for at, old in reversed(list(enumerate(values))):
            mixed = pair.second.confidence[row]
            if mixed[at] != old:
                other = replaced(pair.second.confidence, row, (*mixed[:at], old, *mixed[at + 1 :]))
                pair = _still(situation, pair, pair.first.confidence, other)
    for digits in (2, 1):
        pair = _still(
            situation, pair, _rounded(pair.first.confidence, digits), _rounded(pair.second.confidence, digits)
        )
    return pair


def _still(situation: Situation, pair: _Pair, one: Confidences, other: Confidences) -> _Pair:
    """Return the pair that these confidences make if it breaks the same rule, else the old one."""
    answers = [_Answer(each, tuple(situation.again(each).tolist())) for each in (one, other)]
    # Asked anew for both: with other confidences even the first may get other lengths.
    return _offence(answers[0], answers[1], pair.rule) or pair


def _rounded(confidence: Confidences, digits: int) -> Confidences:
    return tuple(tuple(round(value, digits) for value in row) for row in confidence)


def _violation(situation: Situation, pair: _Pair) -> Violation:
    changed = _first_changes(pair.first.confidence, pair.second.confidence)
    at, changed_row = min((at, row) for row, at in changed.items())
    first, second = pair.first.lengths, pair.second.lengths
    differ = [row for row in range(len(first)) if first[row] != second[row]]
    # A row-wise violation is about the changed row; the other kind shows in whichever row's length moves.
    row = changed_row if pair.rule == "row-wise" else differ[0]
    return Violation(
        pair.rule,
        situation.step,
        situation.moment.requests,
        row,
        min(first[row], second[row]) + 1,
        changed_row,
        at,
        pair.first.confidence,
        pair.second.confidence,
        first,
        second,
        situation.script.gamma,
        tuple(situation.script.cost.table(len(first))[1 : len(first) * (1 + situation.script.gamma) + 1].tolist()),
        situation.script.sizes,
        situation.moment.coin,
    )


def _shown(confidence: Confidences) -> str:
    return str([list(row) for row in confidence])
