"""A counterexample written out so that a reader can redo it by hand."""

from __future__ import annotations

from fractions import Fraction
from itertools import islice

from ..checks import policy_name
from ..interface import Policy
from .blame import anticipation, coupling
from .decoders import RIGHT, Decoder
from .exact import ExactLaw, JointLaw, Law, distance, law
from .explanation import Explanation, Hidden, LawLine, LawTable
from .notation import letters
from .paths import Path, paths
from .stepping import Stepper
from .worlds import Tokens, World

FEW = 12
"""All paths are shown up to so many; beyond, those to the accused outcome alone."""

SHOWN = 24
"""The most paths shown, those of greatest probability."""

COUNTED = 5_000
"""Paths after which counting stops."""


def explain(world: World, policy: Policy, decoder: Decoder = RIGHT) -> Explanation:
    """Write out what a policy does in a world and which outcome it makes too likely.

    Args:
        world: small; at best shrunk.
        policy: decides the verify lengths.
        decoder: how tokens are drawn.

    Raises:
        WorldTooLarge: if the law of the world takes too many transitions.
        PolicyError: if the policy fails or returns lengths that a step cannot execute.
    """
    exact = law(world, policy, decoder)
    watched = _watched(exact)
    tables = _tables(exact, watched)
    # Of equal excesses the one that should be rarest.
    accused = max(tables[0].lines, key=lambda line: (line.difference, -line.target))
    outcome = _tokens(accused.outcome)
    stepper = Stepper(world, policy, decoder)
    shown, hidden = _choose(stepper, watched, outcome, accused)
    return Explanation(
        policy=policy_name(policy),
        decoder=decoder.name,
        world=world,
        verdict=exact.verdict,
        watched=watched,
        accused=accused,
        paths=shown,
        hidden=hidden,
        laws=tables,
        reason=_reason(stepper, exact, watched),
    )


def _watched(exact: ExactLaw) -> tuple[int, ...]:
    """Return the row whose law is furthest off, or all rows if no row's is."""
    if exact.verdict != "marginal":
        return tuple(range(len(exact.rows)))
    rows = range(len(exact.rows))
    return (max(rows, key=lambda row: distance(exact.rows[row], exact.target_rows[row])),)


def _tables(exact: ExactLaw, watched: tuple[int, ...]) -> tuple[LawTable, ...]:
    """Return the law in question first, then those of single rows where the joint one is in question."""
    single = [_row_table(row, exact.rows[row], exact.target_rows[row]) for row in watched]
    if len(watched) == 1:
        return tuple(single)
    return (_table(watched, exact.joint, exact.target_joint), *single)


def _row_table(row: int, found: Law, target: Law) -> LawTable:
    return _table((row,), {(key,): mass for key, mass in found.items()}, {(key,): mass for key, mass in target.items()})


def _table(rows: tuple[int, ...], found: JointLaw, target: JointLaw) -> LawTable:
    none = Fraction(0)
    lines = tuple(
        LawLine(tuple(map(letters, outcome)), found.get(outcome, none), target.get(outcome, none))
        for outcome in sorted(found.keys() | target.keys())
    )
    return LawTable(rows, lines, distance(found, target))


def _tokens(outcome: tuple[str, ...]) -> tuple[Tokens, ...]:
    return tuple(tuple(ord(letter) - ord("A") for letter in text) for text in outcome)


def _choose(
    stepper: Stepper, watched: tuple[int, ...], outcome: tuple[Tokens, ...], accused: LawLine
) -> tuple[tuple[Path, ...], Hidden]:
    """Return the paths to show, and what that leaves out."""
    # Paths multiply with every step, and a reader is not helped by the exact number of thousands.
    every = list(islice(paths(stepper, watched), COUNTED))
    guilty = list(islice(paths(stepper, watched, outcome), COUNTED))
    others = sorted((path for path in every if path.outcome != outcome), key=lambda path: path.outcome)
    ranked = sorted(guilty, key=lambda path: path.probability, reverse=True)[:SHOWN]
    # Chosen by probability, shown in the order of the walk, in which those that begin alike stand together.
    kept = set(map(id, ranked))
    shown = [path for path in guilty if id(path) in kept]
    told = sum((path.probability for path in shown), Fraction(0))
    # All or none of the others: a selection would look like the whole.
    left = 0 if len(every) <= FEW else len(others)
    counted = len(every) < COUNTED and len(guilty) < COUNTED
    hidden = Hidden(len(guilty) - len(shown), accused.scheduler - told, left, counted)
    return (*shown, *([] if left else others)), hidden


def _reason(stepper: Stepper, exact: ExactLaw, watched: tuple[int, ...]) -> str:
    if exact.verdict == "lossless":
        return "Nothing goes wrong here: every outcome is as likely as under the target."
    found = coupling(stepper) if exact.verdict == "joint" else None
    if found is None:  # errors of a row's own may cancel in its marginal and show in the joint law alone
        found = next((each for row in watched if (each := anticipation(stepper, row)) is not None), None)
    if found is None:
        return (
            f"No verify length depends on a draft it must not know, so the fault is the decoder's "
            f"(`{stepper.decoder.name}`)."
        )
    return found[0].upper() + found[1:]
