"""How drafts become output: right decoding, and the mistakes made in its place.

Right decoding (Leviathan et al. 2023, as in section 2 of the DSpark paper) samples each draft from ``p_d``, accepts it
with probability ``min(1, p_t / p_d)``, at the first rejection redraws from ``normalize(max(p_t - p_d, 0))`` and stops;
if every verified draft is accepted it draws one bonus token from ``p_t``. Every one of these draws has its own uniform.
A uniform is followed as the interval it is known to lie in, so that two draws that share one are enumerated on the
common refinement of their breakpoints.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from .worlds import Distribution, Tokens, World

Interval = tuple[Fraction, Fraction]
"""Where a uniform variable is known to lie, ``low <= u < high``."""

Draw = Literal["draft", "accept", "residual"]

UNIT: Interval = (Fraction(0), Fraction(1))


@dataclass(frozen=True)
class Decoder:
    """A way to turn drafts and verify lengths into tokens; the defaults are right.

    Attributes:
        name: what tables call it.
        argmax_draft: drafts are the likeliest tokens of ``p_d``, while acceptance still divides by ``p_d``.
        shared: two draws of a position that use one uniform.
        bonus_after_block: with no draft verified, the bonus token is drawn as if the whole block preceded it.
        uncut_token: the block is verified whole and cut to the verify length, keeping its residual or bonus token.
    """

    name: str = "right"
    argmax_draft: bool = False
    shared: tuple[Draw, Draw] | None = None
    bonus_after_block: bool = False
    uncut_token: bool = False


RIGHT = Decoder()

BROKEN_DECODERS: dict[str, Decoder] = {
    decoder.name: decoder
    for decoder in (
        Decoder("argmax draft", argmax_draft=True),
        Decoder("draft and accept share a uniform", shared=("draft", "accept")),
        Decoder("draft and residual share a uniform", shared=("draft", "residual")),
        Decoder("accept and residual share a uniform", shared=("accept", "residual")),
        Decoder("bonus after the block", bonus_after_block=True),
        Decoder("token of the uncut block", uncut_token=True),
    )
}


@dataclass(frozen=True)
class Block:
    """A drafted block: its tokens, the interval of each one's uniform, and its probability."""

    tokens: Tokens
    uniforms: tuple[Interval, ...]
    probability: Fraction


@dataclass(frozen=True)
class Chain:
    """How far the acceptance of a block runs.

    Attributes:
        accepted: leading drafts that are accepted if the whole block is verified.
        probability: of that, given the block.
        rejecting: interval of the uniform that rejected the next draft; None if all were accepted.
    """

    accepted: int
    probability: Fraction
    rejecting: Interval | None


def blocks(world: World, decoder: Decoder, row: int, anchor: int, count: int) -> list[Block]:
    """Return every block of ``count`` drafts after ``anchor``, with its probability."""
    found = [Block((), (), Fraction(1))]
    for _ in range(count):
        found = [longer for block in found for longer in _one_more(world, decoder, row, anchor, block)]
    return found


def _one_more(world: World, decoder: Decoder, row: int, anchor: int, block: Block) -> Iterator[Block]:
    law = world.draft_at(row, (anchor, *block.tokens)[-1])
    if decoder.argmax_draft:
        # Certain here, while `chains` goes on dividing by p_d as if it had been drawn: that is the mistake.
        likeliest = max(range(len(law)), key=law.__getitem__)
        yield Block((*block.tokens, likeliest), (*block.uniforms, UNIT), block.probability)
        return
    for token, interval, probability in _inverse_cdf(law, UNIT):
        yield Block((*block.tokens, token), (*block.uniforms, interval), block.probability * probability)


def chains(world: World, decoder: Decoder, row: int, anchor: int, block: Block) -> list[Chain]:
    """Return how far acceptance may run along a block, with probabilities that sum to 1."""
    found: list[Chain] = []
    so_far = Fraction(1)
    for place, token in enumerate(block.tokens):
        last = (anchor, *block.tokens)[place]
        # p_d of a listed draft is above 0, so that this is a number.
        ratio = min(Fraction(1), world.target_at(row, last)[token] / world.draft_at(row, last)[token])
        # With a uniform of its own u may be anything; shared with the draft's it lies where that one did.
        low, high = block.uniforms[place] if decoder.shared == ("draft", "accept") else UNIT
        cut = min(max(ratio, low), high)
        accepted = (cut - low) / (high - low)
        if accepted < 1:
            found.append(Chain(place, so_far * (1 - accepted), (cut, high)))
        so_far *= accepted
        # Nothing is accepted beyond here, and chains of probability 0 are not listed.
        if not so_far:
            return found
    found.append(Chain(len(block.tokens), so_far, None))
    return found


def finish(
    world: World, decoder: Decoder, row: int, anchor: int, block: Block, chain: Chain, verified: int
) -> list[tuple[Tokens, Fraction]]:
    """Return what a row may emit when the first ``verified`` drafts of a block are verified, with probabilities.

    Args:
        world: the laws.
        decoder: how tokens are drawn.
        row: row of the world.
        anchor: token before the block.
        block: the drafts.
        chain: how far their acceptance runs.
        verified: drafts verified, ``0 .. len(block.tokens)``.
    """
    kept = block.tokens[: min(chain.accepted, verified)]
    last = (anchor, *kept)[-1]
    # A rejection behind the verified drafts did not happen, unless the decoder verifies the block whole.
    token_of_block = decoder.uncut_token or chain.accepted < verified
    if token_of_block and chain.rejecting is not None:
        rejected = chain.accepted
        before = (anchor, *block.tokens)[rejected]
        interval = UNIT
        if decoder.shared == ("draft", "residual"):
            interval = block.uniforms[rejected]
        elif decoder.shared == ("accept", "residual"):
            interval = chain.rejecting
        law = residual(world.target_at(row, before), world.draft_at(row, before))
        drawn = _inverse_cdf(law, interval)
    else:
        # For two broken decoders alone, which draw the bonus as if the whole block had left.
        whole = token_of_block or (decoder.bonus_after_block and not verified)
        drawn = _inverse_cdf(world.target_at(row, (anchor, *block.tokens)[-1] if whole else last), UNIT)
    return [((*kept, token), probability) for token, _, probability in drawn]


def residual(target: Distribution, draft: Distribution) -> Distribution:
    """Return normalize(max(p_t - p_d, 0)); ``p_t`` where they agree, which right decoding never asks for."""
    over = [max(t - d, Fraction(0)) for t, d in zip(target, draft, strict=True)]
    total = sum(over, Fraction(0))
    return tuple(each / total for each in over) if total else target


def _inverse_cdf(law: Distribution, within: Interval) -> list[tuple[int, Interval, Fraction]]:
    """Return the tokens that a uniform in an interval may select, each with its part of the interval and its share."""
    low, high = within
    found, edge = [], Fraction(0)
    for token, probability in enumerate(law):
        # Parts of an interval that is known already; shares are relative to it, so they sum to 1.
        start, edge = max(edge, low), edge + probability
        end = min(edge, high)
        if end > start:
            found.append((token, (start, end), (end - start) / (high - low)))
    return found
