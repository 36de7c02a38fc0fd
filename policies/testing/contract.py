"""The contract of a policy, as a test suite: subclass it in a test file of your own, and pytest runs it.

::

    from specsched.policies.testing import PolicyContract

    class TestMine(PolicyContract):
        policy = Mine(depth=3)

Every failure is an AssertionError that names what is wrong, the batch it was seen in and what to do about it. Nothing
here needs pytest; calling the methods of an instance does as well.
"""

from __future__ import annotations

import copy
import operator
import random
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

import numpy as np

from ..checks import check_policy, policy_name, start_state
from ..interface import LaggedBudget, Policy, PolicyError
from ..lossless.checker import check
from ..lossless.explain import explain
from ..lossless.explain_text import explanation_lines
from ..lossless.rules import probe
from ..lossless.scripts import Script, arguments, view_of
from ..lossless.stepping import freeze
from ..problems import describe
from .batches import (
    Turn,
    constant,
    distinct,
    emptied,
    of_blocks,
    permuted,
    random_scripts,
    relabelled,
    renewed,
    smooth,
    staircase,
    turn_at,
    turns,
)

LARGE_ID = 2**62
"""Ids of engines may be hashes."""

MANY_ROWS = 256


class UndecidedByRule(UserWarning):
    """The rules do not show a policy to be lossless, and exact laws found nothing against it."""


class PolicyContract:
    """What every policy must keep.

    Attributes:
        policy: what is tested: a policy, its class, or a method or property that returns a fresh one.
        examples: worlds enumerated by `test_lossless`.
        gamma: drafts of a block in all other tests.
        rows: about how many rows their batches hold.
        seed: of the worlds and histories; the same seed gives the same ones.
        vacuous_ok: accept a policy that never admits a draft, which keeps the output whatever else it does.
        own_token: let confidences read the very draft they belong to. Few policies survive that.
    """

    policy: Any = None
    examples: int = 300
    gamma: int = 4
    rows: int = 4
    seed: int = 0
    vacuous_ok: bool = False
    own_token: bool = False

    def test_lossless(self) -> None:
        """No little world is found in which the tokens that leave have another law than the target's."""
        policy = self._policy()
        with _told("cannot be judged"):
            report = check(policy, examples=self.examples, seed=self.seed, own_token=self.own_token)
        found = report.counterexample
        if found is not None:
            table = "\n".join(explanation_lines(explain(found.world, policy)))
            _fail(f"policy `{policy_name(policy)}` changes the output distribution ({report.verdict} law):\n{table}")
        if report.verdict == "marginal":
            _fail(f"policy `{policy_name(policy)}` changes the output distribution: {report.rules.row_wise}")
        if report.verdict == "vacuous" and not self.vacuous_ok:
            _fail(
                f"policy `{policy_name(policy)}` admitted no draft in any of {self.examples} worlds, so nothing was "
                "tested; set `vacuous_ok = True` if that is meant"
            )

    def test_rules(self) -> None:
        """Row-wise non-anticipation holds; where the stopping set fails alone, the exact laws decide."""
        policy = self._policy()
        with _told("cannot be judged"):
            rules = probe(policy, self.gamma, rows=self.rows, seed=self.seed)
        if rules.row_wise is not None:
            _fail(f"policy `{policy_name(policy)}` breaks the row-wise rule, so it biases the output: {rules.row_wise}")
        if rules.stopping_set is not None or not rules.applicable:
            self._decide_by_law(policy, str(rules.stopping_set or "it knows the outcomes, to which no rule applies"))

    def _decide_by_law(self, policy: Policy, why: str) -> None:
        with _told("cannot be judged"):
            report = check(policy, examples=self.examples, seed=self.seed, own_token=self.own_token)
        name = policy_name(policy)
        if report.counterexample is not None:
            _fail(f"policy `{name}` is undecided by rule ({why}) and an exact law shows a wrong {report.verdict} law")
        warnings.warn(
            f"policy `{name}` is undecided by rule ({why}); exact laws of {self.examples} worlds found nothing",
            UndecidedByRule,
            stacklevel=3,
        )

    def test_budget_respected(self) -> None:
        """Lengths are whole numbers in ``0 .. available``; a `LaggedBudget` admits exactly the budget it asked for.

        Tried for every block size up to one more than ``gamma``.
        """
        policy = self._policy()
        for gamma in _block_sizes(policy, self.gamma):
            for script in random_scripts(self._rng(), gamma, self.rows, self._steps(policy), 20):
                self._executes(policy, script)

    def test_prefix_closed(self) -> None:
        """What is admitted is a prefix of every row, no longer than the policy's ``longest``.

        Lengths are prefixes by type, so what is left to hold is ``longest(gamma)``, by which an engine sizes what it
        captures; and for a `LaggedBudget` that, beyond its floor, no refused draft has a higher survival than an
        admitted one: the split that makes a lagged budget safe.
        """
        policy = self._policy()
        for gamma in _block_sizes(policy, self.gamma):
            longest = policy.longest(gamma)
            for script in random_scripts(self._rng(), gamma, self.rows, self._steps(policy), 20):
                for turn in turns(policy, script, checked=False):
                    if len(turn.moment.requests) and np.max(turn.lengths) > longest:
                        _fail(f"a length is above `longest({gamma})`, which returned {longest}; raise it\n{turn}")
                    if isinstance(policy, LaggedBudget):
                        _check_split(policy, turn)

    def test_pure(self) -> None:
        """The same arguments give the same answer, again and from a copy; arguments and global state stay as they are.

        Global state is that of ``random`` and ``numpy.random``.
        """
        policy = self._policy()
        with _told("cannot be copied; keep it a frozen dataclass of plain values"):
            twin = copy.deepcopy(policy)
        for script in random_scripts(self._rng(), self.gamma, self.rows, self._steps(policy), 20):
            for turn in self._untouched(policy, script):
                _same_answer(turn, policy, "when asked again")
                _same_answer(turn, twin, "when a copy of the policy was asked")

    def _untouched(self, policy: Policy, script: Script) -> Iterator[Turn]:
        """Yield the turns of a script if no plan changes what it is given."""
        state = start_state(policy)
        for step, moment in enumerate(script.moments):
            view, dice = view_of(policy, script, step, moment), _dice()
            before, memory = arguments(policy, view), _frozen(state)
            with _told("fails"):
                lengths, following = policy.plan(view, state)
            turn = Turn(script, step, view_of(policy, script, step, moment), state, lengths, following)
            changed = [name for name, was in before.items() if was != arguments(policy, view)[name]]
            if changed:
                _fail(f"plan changed `view.{changed[0]}`; work on a copy\n{turn}")
            if _frozen(state) != memory:
                _fail(f"plan changed the state it was given; return a new one instead\n{turn}")
            if _dice() != dice:
                _fail(f"plan drew from a global random generator; use `view.coin`\n{turn}")
            yield turn
            state = following

    def test_state_comparable(self) -> None:
        """States are made of values that can be compared and hashed, so that runs replay and paths can be merged."""
        policy = self._policy()
        scripts = random_scripts(self._rng(), self.gamma, self.rows, self._steps(policy), 5)
        for script in [*scripts, self._batch(policy, 2 * self.rows)]:
            for turn in turns(policy, script, checked=False):
                with _told("keeps a state without a value"):
                    freeze(turn.state)
                    hash(freeze(turn.following))

    def test_slot_equivariant(self) -> None:
        """Which row of the batch a request sits in changes no request's length.

        Two histories differ only in the order of the rows, another one in every step, so slots are reused by other
        requests. No two survivals tie, since ties may be broken by row. Matching old rows by slot instead of by
        request id fails here, and only here.
        """
        policy, rng = self._policy(), self._rng()
        for script in random_scripts(rng, self.gamma, self.rows, self._steps(policy), 60):
            script = distinct(rng, script)
            twin = permuted(rng, script)
            pairs = zip(turns(policy, script, checked=False), turns(policy, twin, checked=False), strict=True)
            for turn, other in pairs:
                here, there = _by_request(turn), _by_request(other)
                if here != there:
                    moved = next(request for request in here if here[request] != there[request])
                    _fail(
                        f"request {moved} got length {here[moved]}, and {there[moved]} with the rows of each step in "
                        f"another order; match what you remember by `view.requests`, not by row\n{turn}\n{other}"
                    )

    def test_lag_is_honest(self) -> None:
        """A policy reads nothing younger than it declares, since the engine charges no sync stall for it.

        With a lag of ``L`` >= 1 the sum of the lengths is the same whatever the last ``L`` generations are; with None
        the lengths are. A policy with lag 0 pays for what it reads and passes.
        """
        policy, rng = self._policy(), self._rng()
        if policy.lag == 0:
            return
        for script in random_scripts(rng, self.gamma, self.rows, self._steps(policy), 60):
            step = len(script.moments) - 1
            youngest = 0 if policy.lag is None else step - policy.lag + 1
            turn, other = (turn_at(policy, each, step) for each in (script, renewed(rng, script, youngest, step + 1)))
            ours, theirs = (each.lengths if policy.lag is None else np.sum(each.lengths) for each in (turn, other))
            if not np.array_equal(ours, theirs):
                _fail(
                    f"declares lag {policy.lag}, but confidences younger than that changed "
                    f"{'the lengths' if policy.lag is None else 'the budget'} from {ours} to {theirs}; declare the lag "
                    f"of what it reads (0 for this step's)\n{turn}\n{other}"
                )

    def test_zero_rows(self) -> None:
        """A batch without rows gets an empty array, before anything was seen and after."""
        policy = self._policy()
        script = self._batch(policy, self.rows)
        for step in (0, len(script.moments) - 1):
            self._executes(policy, emptied(script, step))

    def test_one_row(self) -> None:
        """A batch of one row is served, also as others come after it."""
        policy = self._policy()
        for script in random_scripts(self._rng(), self.gamma, 1, 4 * self._steps(policy), 10):
            self._executes(policy, script)

    def test_many_rows(self) -> None:
        """A batch of 256 full rows is served."""
        policy = self._policy()
        self._executes(policy, self._batch(policy, MANY_ROWS))

    def test_rows_without_drafts(self) -> None:
        """Rows in their admission step have no drafts: some, and then all of them."""
        policy, rng = self._policy(), self._rng()
        some = [self.gamma if row % 2 else 0 for row in range(self.rows)]
        steps = [smooth(rng, counts) for counts in ([0] * self.rows, some, [0] * self.rows)]
        self._executes(policy, of_blocks(rng, self.gamma, steps * self._steps(policy)))

    def test_ragged_availability(self) -> None:
        """Rows have 0, 1, .., ``gamma`` drafts, and other numbers in the next step."""
        policy, rng = self._policy(), self._rng()
        for _ in range(5):
            self._executes(policy, staircase(rng, self.gamma, self.gamma + 1))

    def test_all_zero_survivals(self) -> None:
        """Confidences of 0 everywhere are an answer too."""
        self._executes_constant(0.0)

    def test_all_one_survivals(self) -> None:
        """So are confidences of 1, where every draft ties with every other."""
        self._executes_constant(1.0)

    def test_large_ids(self) -> None:
        """Request ids are names: they may be as large as int64 holds, and need not follow each other."""
        policy = self._policy()
        for script in random_scripts(self._rng(), self.gamma, self.rows, self._steps(policy), 5):
            self._executes(policy, relabelled(script, lambda request: LARGE_ID + 3 * request))

    def _policy(self) -> Policy:
        """Return the policy under test, once what it declares makes sense: every test relies on it."""
        given = self.policy
        made = given if isinstance(given, Policy) else given() if callable(given) else given
        if not isinstance(made, Policy):
            _fail(
                f"set `policy` of {type(self).__name__} to a specsched.policies.Policy, its class, or a method that "
                f"returns one; got {made!r}"
            )
        with _told(f"is not fit for blocks of {self.gamma} drafts (`gamma` of the test class)"):
            check_policy(made, self.gamma)
        return made

    def _rng(self) -> np.random.Generator:
        return np.random.default_rng(self.seed)

    def _steps(self, policy: Policy) -> int:
        """Return how long a history must be for generations to come of age, and to be used a few times."""
        return (policy.lag or 0) + 4

    def _batch(self, policy: Policy, rows: int) -> Script:
        """Return a history of full blocks."""
        rng = self._rng()
        counts = [self.gamma] * rows
        return of_blocks(rng, self.gamma, [smooth(rng, counts) for _ in range(self._steps(policy))])

    def _executes_constant(self, value: float) -> None:
        policy = self._policy()
        for rows in (1, self.rows):
            self._executes(policy, constant(self._rng(), self.gamma, rows, self._steps(policy), value))

    def _executes(self, policy: Policy, script: Script) -> None:
        """Play a script; every step's lengths can be executed, and a `LaggedBudget`'s sum to its budget."""
        for turn in turns(policy, script):
            if isinstance(policy, LaggedBudget):
                _check_budget(policy, turn)


def _check_budget(policy: LaggedBudget, turn: Turn) -> None:
    budget = _budget(policy, turn)
    admitted = int(turn.lengths.sum())
    if not 0 <= budget <= turn.view.drafted:
        _fail(f"budget must be within 0..{turn.view.drafted} (drafts available), got {budget}\n{turn}")
    if admitted != budget:
        _fail(
            f"a budget of {budget} was asked for and {admitted} drafts were admitted; leave the split to plan\n{turn}"
        )


def _budget(policy: LaggedBudget, turn: Turn) -> int:
    answer = policy.budget(turn.view.past(), turn.state)[0]
    try:
        return operator.index(answer)
    except TypeError:
        _fail(f"budget must be a whole number of drafts, got {answer!r}; wrap it in int(..)\n{turn}")


def _check_split(policy: LaggedBudget, turn: Turn) -> None:
    """Fail if a refused draft has a higher survival than one admitted beyond the floor."""
    survival, available = turn.view.survival, turn.view.available
    place = np.arange(survival.shape[1])
    admitted = place < turn.lengths[:, None]
    free = admitted & (place >= np.minimum(available, policy.min_len)[:, None])
    refused = ~admitted & (place < available[:, None])
    if free.any() and refused.any() and survival[refused].max() > survival[free].min():
        _fail(
            f"a draft of survival {survival[refused].max()} was refused and one of {survival[free].min()} admitted; a "
            f"LaggedBudget admits the best drafts after a floor of {policy.min_len} of every row\n{turn}"
        )


def _block_sizes(policy: Policy, gamma: int) -> list[int]:
    """Return the block sizes up to ``gamma + 1`` that a policy does not turn down."""
    sizes = []
    for size in range(1, gamma + 2):
        with suppress(PolicyError):
            policy.longest(size)
            sizes.append(size)
    return sizes


def _same_answer(turn: Turn, policy: Policy, when: str) -> None:
    """Fail unless a policy gives the answer of a turn."""
    with _told("fails"):
        lengths, following = policy.plan(view_of(policy, turn.script, turn.step, turn.moment), turn.state)
    remedy = "keep what is remembered in the state and take randomness from `view.coin`"
    if not np.array_equal(lengths, turn.lengths):
        _fail(f"the same view and state gave {np.asarray(lengths).tolist()} {when}; {remedy}\n{turn}")
    if _frozen(following) != _frozen(turn.following):
        _fail(f"the same view and state gave another next state {when}; {remedy}\n{turn}")


def _frozen(state: Any) -> Any:
    """Return a state's value, or None where it has none, which is for `test_state_comparable` to say."""
    try:
        return freeze(state)
    except PolicyError:
        return None


def _dice() -> tuple[Any, Any]:
    """Return the state of the global random generators."""
    return random.getstate(), freeze(np.random.get_state())  # noqa: NPY002  (watched, not used)


def _by_request(turn: Turn) -> dict[int, int]:
    return dict(zip(turn.moment.requests, turn.lengths.tolist(), strict=True))


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Turn any error into a failure that says what it means."""
    try:
        yield
    except AssertionError:
        raise
    except Exception as error:
        reason = str(error) if isinstance(error, PolicyError) else describe(error)
        raise AssertionError(f"the policy {what}: {reason}") from error


def _fail(message: str) -> NoReturn:
    __tracebackhide__ = True  # pytest then points at the test
    raise AssertionError(message)
