"""How little worlds are written: tokens as letters, probabilities as fractions, confidences by drafted prefix."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from fractions import Fraction
from itertools import product

from .decoders import residual
from .worlds import Distribution, RowPlan, Tokens, World


def letters(tokens: Tokens) -> str:
    """Return tokens 0, 1, 2, .. as A, B, C, ..; ``-`` for none."""
    return "".join(chr(ord("A") + token) for token in tokens) or "-"


def number(value: float) -> str:
    """Return a float in full if it is short, else the digits that tell it apart."""
    # In full where four figures would be another float: ties must still tie when a reader redoes them.
    return f"{value:.4g}" if float(f"{value:.4g}") == value else repr(value)


def rounded(value: float) -> str:
    """Return four figures: for derived values such as Theta, where the inputs are given in full."""
    return f"{value:.4g}"


def drafted(group: Collection[Tokens], every: Collection[Tokens]) -> str:
    """Return the shortest description of a group of blocks among all: ``x1 = A``, ``x1 x2 = AB or BA``, ``any``.

    Args:
        group: blocks of equal length.
        every: all blocks there are, the group's included.
    """
    longest = len(next(iter(group)))
    if not longest:
        return "-"
    # The first tokens are enough as soon as no block outside of the group shares them.
    for length in range(longest):
        if _tells_apart(length, group, every):
            return drafted_prefixes({block[:length] for block in group})
    return drafted_prefixes(group)


def drafted_prefixes(prefixes: Collection[Tokens]) -> str:
    """Return ``x1 x2 = AB or BA`` for prefixes of equal length."""
    names = " ".join(f"x{j}" for j in range(1, len(next(iter(prefixes))) + 1))
    return f"{names} = {' or '.join(map(letters, sorted(prefixes)))}" if names else "any"


def _tells_apart(length: int, group: Collection[Tokens], every: Collection[Tokens]) -> bool:
    """Whether the first ``length`` tokens say if a block is in the group."""
    within = {block[:length] for block in group}
    return all(block in group for block in every if block[:length] in within)


def distribution(law: Distribution) -> str:
    """Return ``A 7/10, B 3/10``; tokens that never come are left out."""
    return ", ".join(f"{letters((token,))} {probability}" for token, probability in enumerate(law) if probability)


def world_lines(world: World) -> Iterator[str]:
    """Yield everything a reader needs to redo a world by hand."""
    first = "the first token" if world.tokens == 1 else f"the first {world.tokens} tokens"
    rows = "one row" if len(world.rows) == 1 else f"{len(world.rows)} rows"
    tokens = letters(tuple(range(world.vocabulary)))
    drafts = "one draft" if world.gamma == 1 else f"{world.gamma} drafts"
    yield f"{rows}, tokens {' '.join(tokens)}, blocks of {drafts}; compared: {first} of each row"
    for row, plan in enumerate(world.rows):
        if plan != RowPlan() or len(world.rows) > 1:
            yield f"row {row}: {_plan(world, plan)}"
    yield from _laws(world)
    yield from _confidence_lines(world)
    yield from _cost_lines(world)
    if len(world.coins) > 1:
        yield f"coin of a step: one of {', '.join(map(number, world.coins))}, equally likely"
    if world.end is not None:
        yield f"{letters((world.end,))} ends its row"


def _plan(world: World, plan: RowPlan) -> str:
    start = "drafts from the start"
    if plan.first_block:
        start = f"admitted in step {plan.admitted}, first drafts in step {plan.first_block}"
    said = [f"anchor {letters((plan.anchor,))}", start]
    if plan.available:
        said.append(f"blocks of {', '.join(map(str, plan.available))} drafts, the last for all later ones")
    if plan.length is not None:
        said.append(f"leaves after {plan.length} token{'s' if plan.length > 1 else ''}")
    return "; ".join(said)


def _entries(world: World, *tables: Sequence[Sequence[object]]) -> Iterator[tuple[str, int, int]]:
    """Yield (where it holds, row, preceding token) once for every entry that the tables tell apart."""
    rows = len(world.rows) if any(len(table) > 1 for table in tables) else 1
    after = world.vocabulary if any(len(by_token) > 1 for table in tables for by_token in table) else 1
    for row, token in product(range(rows), range(after)):
        where = [f"row {row}"] if rows > 1 else []
        yield ", ".join(where + ([f"after {letters((token,))}"] if after > 1 else [])), row, token


def _laws(world: World) -> Iterator[str]:
    for where, row, token in _entries(world, world.target, world.draft):
        target, draft = world.target_at(row, token), world.draft_at(row, token)
        place = f" {where}" if where else ""
        yield f"p_t{place}: {distribution(target)}; p_d{place}: {distribution(draft)}"
        yield f"  accepted with min(1, p_t/p_d): {_ratios(target, draft)}; redrawn: {_redrawn(target, draft)}"


def _ratios(target: Distribution, draft: Distribution) -> str:
    return ", ".join(
        f"{letters((token,))} {min(Fraction(1), target[token] / each)}" for token, each in enumerate(draft) if each
    )


def _redrawn(target: Distribution, draft: Distribution) -> str:
    # Laws that are equal never reject, and there is no residual to name.
    return "never" if target == draft else distribution(residual(target, draft))


def _confidence_lines(world: World) -> Iterator[str]:
    """Yield ``c1 = 0.8; c2 = 0.9 after A, 0 after B`` and the survivals."""
    kind = "c (c of a draft here knows the draft itself)" if world.own_token else "c"
    for where, row, anchor in _entries(world, world.confidence):
        by_prefix = [_by_prefix(world, row, anchor, j) for j in range(1, world.gamma + 1)]
        place = f" {where} as anchor" if "after" in where else f" {where}" if where else ""
        yield f"{kind}{place}: " + "; ".join(
            f"c{j} = {', '.join(values)}" for j, values in enumerate(by_prefix, start=1)
        )


def _by_prefix(world: World, row: int, anchor: int, j: int) -> list[str]:
    """Return the values of ``c[j]`` by what they depend on; a single one if all are equal."""
    seen = j if world.own_token else j - 1
    # Any token will do in the last place, which c[j] does not read (with `own_token` it is cut off).
    found = {
        prefix: world.confidences(row, anchor, (*prefix, 0)[:j])[j - 1] for prefix in _drafted(world, row, anchor, seen)
    }
    if len(set(found.values())) == 1:
        return [number(next(iter(found.values())))]
    word = "for" if world.own_token else "after"
    return [f"{number(value)} {word} {letters(prefix)}" for prefix, value in found.items()]


def _drafted(world: World, row: int, anchor: int, length: int) -> list[Tokens]:
    """Return the prefixes that a row may draft after an anchor; of all rows and anchors if they share a table."""
    rows = (row,) if len(world.confidence) > 1 else range(len(world.rows))
    anchors = (anchor,) if len(world.confidence[row if len(world.confidence) > 1 else 0]) > 1 else None
    found: set[Tokens] = set()
    for each, first in product(rows, anchors or range(world.vocabulary)):
        prefixes: list[Tokens] = [()]
        for _ in range(length):
            # Without those of probability 0: nobody meets them, and the reader would look for them in vain.
            prefixes = [
                (*prefix, token)
                for prefix in prefixes
                for token, probability in enumerate(world.draft_at(each, (first, *prefix)[-1]))
                if probability
            ]
        found.update(prefixes)
    return sorted(found)


def _cost_lines(world: World) -> Iterator[str]:
    most = len(world.rows) * (1 + world.gamma)
    seconds = ", ".join(f"{tokens}: {rounded(each)}" for tokens, each in enumerate(world.seconds[:most], start=1))
    # SPS beside seconds, for that is how the paper gives its costs.
    rates = ", ".join(rounded(1 / each) for each in world.seconds[:most])
    yield f"step seconds by tokens: {seconds} (SPS {rates})"
    if world.sizes:
        yield f"captured sizes: {', '.join(map(str, world.sizes))}"
