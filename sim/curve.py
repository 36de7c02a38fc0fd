"""From raw samples to a step-time curve: median per size, then running maximum (as vLLM does)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from ..policies import Floats, Ints
from .profile_schema import Profile, ProfileError

Lookup = Literal["ceil", "linear", "floor"]
LOOKUPS: tuple[Lookup, ...] = get_args(Lookup)


@dataclass(frozen=True, slots=True)
class Curve:
    """Seconds of the target model's step by batch tokens.

    Attributes:
        sizes: int64 ``[S]``, batch sizes with samples, ascending.
        medians: float64 ``[S]``, median seconds of each.
        seconds: float64 ``[S]``, running maximum of the medians: more tokens never cost less.
        captured: int64, batch sizes with a captured graph, ascending.
        name: the profile's, for error messages.
    """

    sizes: Ints
    medians: Floats
    seconds: Floats
    captured: Ints
    name: str

    @property
    def limit(self) -> int:
        """Largest captured batch size; 0 without graphs."""
        return int(self.captured[-1]) if len(self.captured) else 0

    @property
    def largest(self) -> int:
        """Largest batch size with a sample; nothing beyond it has a price."""
        return int(self.sizes[-1])

    @property
    def is_flat(self) -> bool:
        """Whether every batch size costs the same."""
        return bool(self.seconds[0] == self.seconds[-1])

    def executed(self, tokens: Ints) -> Ints:
        """Return the batch sizes that run: the next captured size up to the capture limit, eager as asked beyond."""
        executed = tokens.copy()
        # No tokens, no step: 0 is not padded to the smallest graph.
        inside = (tokens > 0) & (tokens <= self.limit)
        executed[inside] = self.captured[np.searchsorted(self.captured, tokens[inside])]
        return executed

    def at(self, tokens: Ints, lookup: Lookup = "ceil") -> Floats:
        """Return float64 seconds of steps of the given batch tokens (int64, >= 1).

        ``ceil``: the next captured size up to the capture limit; the first eager sample's time between the limit
        and that sample; linear between eager samples. Nothing is blended across the limit: losing the graphs is
        a jump. ``linear`` interpolates between all samples and ``floor`` takes the largest sample at or below;
        both give the first sample's time below it, as the engines that use them do.

        Raises:
            ProfileError: beyond the largest sample.
        """
        if len(tokens) and int(tokens.max()) > self.largest:
            raise ProfileError(no_sample(self.name, int(tokens.max()), self.largest))
        if lookup == "linear":
            return _between(tokens, self.sizes, self.seconds)
        if lookup == "floor":
            return self.seconds[np.maximum(np.searchsorted(self.sizes, tokens, side="right") - 1, 0)]
        return self._ceil(tokens)

    def _ceil(self, tokens: Ints) -> Floats:
        inside = tokens <= self.limit
        # Below the limit no eager sample has a say, nor a captured one above: a step runs either one way or the other.
        eager = self.sizes > self.limit
        seconds = np.empty(len(tokens))
        seconds[inside] = self.seconds[np.searchsorted(self.sizes, self.executed(tokens[inside]))]
        if not inside.all():
            seconds[~inside] = _between(tokens[~inside], self.sizes[eager], self.seconds[eager])
        return seconds


def build_curve(profile: Profile) -> Curve:
    """Return the curve of a profile's `reference_samples`.

    Raises:
        ProfileError: if those raise, or a captured size has no sample among them.
    """
    tokens, seconds = reference_samples(profile)
    order = np.argsort(tokens, kind="stable")
    sizes, starts = np.unique(tokens[order], return_index=True)
    # Of a size's samples the median: spikes of the profiler are few, and only upwards.
    medians = np.array([np.median(group) for group in np.split(seconds[order], starts[1:])])
    captured = np.array(profile.captured_sizes, np.int64)
    missing = np.setdiff1d(captured, sizes)
    if len(missing):
        raise ProfileError(
            f"profile `{profile.name}`: captured size {missing[0]} has no sample at the reference context of "
            f"{profile.context.reference_tokens} tokens; measure it there or take it out of `captured_sizes`"
        )
    # The running maximum is vLLM's. It makes every lookup monotone, and stretches a spike over the sizes above it;
    # docs/profiles.md says how far.
    return Curve(sizes, medians, np.maximum.accumulate(medians), captured, profile.name)


def reference_samples(profile: Profile) -> tuple[Ints, Floats]:
    """Return int64 tokens and float64 seconds of the samples, brought to the profile's reference context.

    A sample that names its rows and context is moved there by the context slope:
    ``seconds - slope * rows * (context - reference)``. Where that is not possible (no slope, or no rows) and the
    samples name their context, only those taken at the reference count.

    Raises:
        ProfileError: if no sample is left, or one is not positive after the move.
    """
    samples, context = profile.verify, profile.context
    tokens = np.array(samples.tokens, np.int64)
    seconds = np.array(samples.seconds)
    if samples.context is None:
        return tokens, seconds
    # From here on samples say at which context they were taken, so they can be, and have to be, made comparable.
    distance = np.array(samples.context) - context.reference_tokens
    if samples.rows is not None and context.seconds_per_token is not None:
        seconds = seconds - context.seconds_per_token * np.array(samples.rows) * distance
        _refuse_non_positive(profile, seconds)
        return tokens, seconds
    at_reference = distance == 0
    if not at_reference.any():
        raise ProfileError(
            f"profile `{profile.name}`: no entry of `verify.context` equals `context.reference_tokens` "
            f"({context.reference_tokens}); measure there, or give `verify.rows` and `context.seconds_per_token`"
        )
    return tokens[at_reference], seconds[at_reference]


def no_sample(name: str, tokens: int, largest: int) -> str:
    """Return the message for a batch size beyond every sample."""
    return (
        f"profile `{name}`: no sample at or above {tokens} tokens (the largest has {largest}); add verify samples up "
        "to that size, or run fewer rows or shorter blocks"
    )


def _between(tokens: Ints, sizes: Ints, seconds: Floats) -> Floats:
    # The minimum keeps the curve monotone where rounding would step over the next sample by an ulp.
    above = seconds[np.searchsorted(sizes, tokens)]
    return np.minimum(np.interp(tokens, sizes, seconds), above)


def _refuse_non_positive(profile: Profile, seconds: Floats) -> None:
    bad = np.flatnonzero(seconds <= 0)
    if len(bad):
        raise ProfileError(
            f"profile `{profile.name}`: `verify.seconds[{bad[0]}]` is {seconds[bad[0]]:.3g} s at the reference "
            f"context, must be positive; `context.seconds_per_token` ({profile.context.seconds_per_token}) is too "
            "large for the sample's rows and context"
        )
