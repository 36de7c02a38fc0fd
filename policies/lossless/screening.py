"""Whether a policy may run as it is, or only where its arm says ``unsafe``."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..checks import policy_name
from ..interface import Policy, PolicyError, Safety
from ..registry import POLICIES

if TYPE_CHECKING:
    from .rules import RuleReport
    from .scripts import ScriptCost

ROWS = 4
"""Most rows of a batch a policy is tried on."""

_VARIANTS = 7
_KEPT = 64
_REMEDY = "`unsafe: true` on its arm (`unsafe=True` of a Scenario) runs it, marked biased"


@dataclass(frozen=True)
class Screening:
    """What is known of a policy before it runs.

    Attributes:
        safety: ``safe`` or ``unknown`` as its class declares, ``unsafe`` where that is declared or the policy fails.
        problem: why it is unsafe and what to do, in one line; None otherwise.
    """

    safety: Safety
    problem: str | None = None


def screen(policy: Policy, gamma: int, cost: ScriptCost, rows: int = ROWS) -> Screening:
    """Say whether a policy may run: try the stopping-set rule on one that the project does not ship.

    Takes well under a second and is deterministic; asked again about an equal policy, it remembers. Blocks are whole
    (``gamma`` drafts, none in the step a row joins) and contexts grow, as in a simulation.

    Args:
        policy: the policy.
        gamma: drafts of a block.
        cost: step cost to try it on, as it is and made rugged.
        rows: most rows of a batch; 4 at most are tried.
    """
    if policy.safety == "unsafe" or policy.needs_outcomes:
        known = "is declared unsafe" if policy.safety == "unsafe" else "asks for this step's outcomes"
        fault = "it changes the output distribution or knows the outcomes"
        return Screening("unsafe", f"policy `{policy_name(policy)}` {known}: {fault}; {_REMEDY}")
    # The very class: what derives from a shipped policy may do anything.
    if type(policy) in POLICIES.values() or not policy.drafts or gamma == 0:
        return Screening(policy.safety)
    rows = min(rows, ROWS)
    facts = gamma, rows, _prices(cost, gamma, rows)
    for known_policy, known_facts, screening in _seen:
        # Compared one by one, since policies need not be hashable.
        if known_facts == facts and _same(known_policy, policy):
            return screening
    screening = _tried(policy, gamma, cost, rows)
    _seen.append((policy, facts, screening))
    del _seen[:-_KEPT]
    return screening


_seen: list[tuple[Policy, Any, Screening]] = []
"""What was tried in this process, a sweep's points being many and its policies few."""


def _tried(policy: Policy, gamma: int, cost: ScriptCost, rows: int) -> Screening:
    try:
        report = _probe(policy, gamma, cost, rows)
    except PolicyError as error:
        return Screening("unsafe", f"{error} (tried on random histories before the run); mend it, or {_REMEDY}")
    # Before a run a broken stopping set is enough to refuse: there is no time here to look for a law that is wrong.
    broken = report.row_wise or report.stopping_set
    if broken is None:
        return Screening(policy.safety)
    return Screening(
        "unsafe",
        f"policy `{policy_name(policy)}` breaks the {broken.rule} rule, so its output may leave the target's "
        f"distribution: {broken.brief}; `{_command(policy)}` tells the whole story, {_REMEDY}",
    )


def _command(policy: Policy) -> str:
    """Return the command that checks a policy of this class with these parameters."""
    settings = ""
    if dataclasses.is_dataclass(policy):
        for each in dataclasses.fields(policy):
            value = getattr(policy, each.name)
            if each.init and value != each.default:
                settings += f" --set {each.name}={value}"
    return f"specsched check {type(policy).__module__}:{type(policy).__qualname__}{settings}"


def _probe(policy: Policy, gamma: int, cost: ScriptCost, rows: int) -> RuleReport:
    from .jagged_cost import JaggedCost  # late: a run of shipped policies needs none of it
    from .rules import probe

    rng = np.random.default_rng(0)
    rugged = [JaggedCost(cost, rows * (1 + gamma), rng) for _ in range(_VARIANTS)]
    return probe(policy, gamma, rows=rows, ragged=0.0, costs=[cost, *rugged])


def _prices(cost: ScriptCost, gamma: int, rows: int) -> tuple[Any, ...]:
    """Return what tells two costs apart on batches of up to ``rows`` rows."""
    tables = [cost.table(each) for each in range(1, rows + 1)]
    most = min(rows * (1 + gamma), len(tables[0]) - 1)
    return (
        *(table[: most + 1].tobytes() for table in tables),
        *(cost.padded(tokens) for tokens in range(1, most + 1)),
        *(cost.context_seconds(1, tokens) for tokens in (0, 1000)),
    )


def _same(one: Policy, other: Policy) -> bool:
    """Whether two policies are equal; objects that cannot say so are equal to themselves alone."""
    try:
        return one is other or (type(one) is type(other) and bool(one == other))
    except Exception:  # noqa: BLE001  (fields of any type)
        return False
