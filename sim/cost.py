"""What a step costs, from a profile: verify, draft, context and host seconds."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

import numpy as np

from ..policies import Floats, Ints
from .curve import LOOKUPS, Lookup, build_curve, no_sample
from .profile_schema import DraftSamples, FlatProfileWarning, Profile, ProfileError

# Profiles reach 16,384 tokens, decode batches do not; a table is kept for every number of rows.
_DEFAULT_MAX_TOKENS = 4096
_LISTED = 256


# One is made in every step: a frozen dataclass takes four times as long to make, a named tuple half as long again.
@dataclass(slots=True)
class PlannedStep:
    """A step that is about to run: all that its time may depend on.

    Attributes:
        lengths: int64 ``[R]``, drafts verified by row.
        rows: requests ``R`` in the batch.
        verified: sum of the lengths; the batch has an anchor a row more.
        depth: drafts drafted for each row, whatever is verified of them.
        context_tokens: context lengths summed over the rows; any number where the cost does not read them.
        waits: whether the batch size waited for this step's confidences.
    """

    lengths: Ints
    rows: int
    verified: int
    depth: int
    context_tokens: int
    waits: bool


class StepTime(NamedTuple):
    """What a step takes, by cause.

    Attributes:
        busy: verify, draft, host and context seconds; the noise of step times scales these and leaves the stall alone.
        verify: seconds of the target model at the reference context.
        draft: seconds of the drafter.
        host: seconds that every step takes on top.
        context: seconds that contexts longer than the reference add (shorter ones: a negative number).
        stall: seconds in which the GPU waits for the host to read confidences.
        executed_tokens: batch size that ran.
    """

    busy: float
    verify: float
    draft: float
    host: float
    context: float
    stall: float
    executed_tokens: int


class StepCost:
    """Prices of steps on one profile; immutable, shared by policies and engine.

    What a step takes is asked with `step`, which is told everything about it. A planner, who weighs many sizes of one
    step, reads ``table(R)[B]``: verify, draft and host seconds of ``B`` batch tokens and ``R`` rows; to that come
    `context_seconds`, which no length changes, and the stall.

    Args:
        profile: the samples.
        lookup: ``ceil`` (the engine pays for the captured size it runs), or ``linear`` or ``floor`` to reproduce
            engines that price steps so.
        draft_scale: factor on the profile's draft cost, for a drafter that costs another share of the same block.
        drafts: False for arms that do not draft.
        sync_stall_seconds: replaces the profile's value.
        max_tokens: largest batch size to price; by default the largest sample, at most 4,096.

    Attributes:
        profile: the profile.
        lookup: the lookup.
        gpus: GPUs that run a step.
        host_seconds: added to every step.
        sync_stall_seconds: the stall.
        reads_context: whether a step's time depends on the context lengths of its rows.
        max_tokens: largest priced batch size.
        max_rows: most rows with a known draft cost; ``max_tokens`` when nothing is drafted.
        verify_table: float64 ``[max_tokens + 1]``, `verify_seconds` by batch tokens, read-only; entry 0 repeats
            entry 1.
        is_flat: whether every batch size costs the same; a `FlatProfileWarning` says what follows.

    Raises:
        ProfileError: for an unknown lookup, a negative factor or stall, a profile without draft cost where one is
            needed, no sample at or above ``max_tokens``, or a context slope that makes a step's time negative.
    """

    def __init__(
        self,
        profile: Profile,
        lookup: Lookup = "ceil",
        draft_scale: float = 1.0,
        drafts: bool = True,
        sync_stall_seconds: float | None = None,
        max_tokens: int | None = None,
    ) -> None:
        if lookup not in LOOKUPS:
            raise ProfileError(f"`lookup` must be one of {', '.join(LOOKUPS)}, got {lookup!r}")
        curve = build_curve(profile)
        self.profile = profile
        self.lookup = lookup
        self.gpus = profile.gpus
        self.host_seconds = profile.host.seconds
        self.sync_stall_seconds = _not_negative(
            "sync_stall_seconds",
            profile.host.sync_stall_seconds if sync_stall_seconds is None else sync_stall_seconds,
        )
        self.reads_context = profile.context.seconds_per_token is not None
        self.is_flat = curve.is_flat
        self.max_tokens = min(curve.largest, _DEFAULT_MAX_TOKENS) if max_tokens is None else max_tokens
        if self.max_tokens < 1:
            raise ProfileError(f"`max_tokens` must be at least 1, got {self.max_tokens}")
        if self.max_tokens > curve.largest:
            raise ProfileError(no_sample(profile.name, self.max_tokens, curve.largest))
        self._largest = curve.largest
        self._draft = _DraftCurve(profile, _not_negative("draft_scale", draft_scale)) if drafts else None
        self.max_rows = self.max_tokens if self._draft is None else self._draft.most
        tokens = np.arange(self.max_tokens + 1)
        # Entry 0 repeats entry 1: no step is empty, and a batch size is an index without a shift.
        self.verify_table = curve.at(np.maximum(tokens, 1), lookup)
        self.verify_table.flags.writeable = False
        # What all rows have in common: a table for a number of rows is one addition.
        self._base = self.verify_table + self.host_seconds
        self._verify: list[float] = self.verify_table.tolist()
        self._padded: list[int] = curve.executed(tokens).tolist()
        # Memos. A run has few different numbers of rows and sizes of batches, and each of its steps asks.
        self._drafting: dict[int, float] = {0: 0.0}
        self._times: dict[tuple[int, int, bool], StepTime] = {}
        self._tables: dict[int, Floats] = {}
        self._listed: dict[tuple[int, int, int], tuple[float, ...]] = {}
        self._check_context_slope()
        if self.is_flat:
            warnings.warn(_flat(profile.name), FlatProfileWarning, stacklevel=2)

    def step(self, planned: PlannedStep) -> StepTime:
        """Return what a step takes.

        Nothing is checked here, since the loop asks once a step: `require` has looked at the largest step of a run.
        """
        # Hardly two steps have the same sum of contexts.
        if self.reads_context:  # hardly two steps have the same sum of contexts
            context = self.context_seconds(planned.rows, planned.context_tokens)
            return self._time(planned.rows, planned.verified, context, planned.waits)
        # All that a time without context depends on so far; a term that reads `depth` or `lengths` belongs in here.
        key = planned.rows, planned.verified, planned.waits
        time = self._times.get(key)
        if time is None:
            time = self._times[key] = self._time(planned.rows, planned.verified, 0.0, planned.waits)
        return time

    def _time(self, rows: int, verified: int, context: float, waits: bool) -> StepTime:
        tokens = rows + verified
        verify, draft, host = self._verify[tokens], self.draft_seconds(rows), self.host_seconds
        # In the order of `table`, so that what a planner read there is, to the last bit, what the step then takes.
        busy = verify + host + draft + context
        stall = self.sync_stall_seconds if waits else 0.0
        return StepTime(busy, verify, draft, host, context, stall, self._padded[tokens])

    def padded(self, tokens: int) -> int:
        """Return the batch size that is executed for ``tokens``: a captured size, or ``tokens`` itself (eager).

        The size does not depend on the lookup: engines that price by ``floor`` pad all the same.

        Raises:
            ProfileError: if ``tokens`` is negative or over ``max_tokens``.
        """
        if not 0 <= tokens <= self.max_tokens:
            self._refuse_tokens(tokens)
        return self._padded[tokens]

    def verify_seconds(self, tokens: int) -> float:
        """Return seconds of the target model's step of ``tokens`` batch tokens at the reference context.

        Raises:
            ProfileError: if ``tokens`` is below 1 or over ``max_tokens``.
        """
        if not 1 <= tokens <= self.max_tokens:
            self._refuse_tokens(tokens)
        return self._verify[tokens]

    def draft_seconds(self, rows: int) -> float:
        """Return seconds to draft a block for each of ``rows`` rows; 0 if nothing is drafted.

        Linear between the row counts of the profile.

        Raises:
            ProfileError: outside the row counts of the profile.
        """
        seconds = self._drafting.get(rows)
        if seconds is None:
            seconds = self._drafting[rows] = 0.0 if self._draft is None else self._draft.at(rows)
        return seconds

    def context_seconds(self, rows: int, context_tokens: int) -> float:
        """Return seconds from context lengths: ``context_tokens`` summed over the rows, against the reference.

        Negative for rows shorter than the reference; 0 where the profile does not know the slope.
        """
        context = self.profile.context
        if context.seconds_per_token is None:
            return 0.0
        return context.seconds_per_token * (context_tokens - rows * context.reference_tokens)

    def table(self, rows: int) -> Floats:
        """Return float64 ``[max_tokens + 1]``: entry ``B`` is the seconds of a step of ``B`` tokens, ``rows`` rows.

        Padding, draft and host seconds are included, context and stall are not. The array is shared and
        read-only. Entry 0 repeats entry 1 (no step is empty).

        Raises:
            ProfileError: if the draft cost of ``rows`` is unknown.
        """
        table = self._tables.get(rows)
        if table is None:
            table = self._base + self.draft_seconds(rows)
            table.flags.writeable = False
            self._tables[rows] = table
        return table

    def listed(self, rows: int, first: int, most: int) -> tuple[float, ...]:
        """Return ``table(rows)[first : first + most + 1]`` as plain floats.

        Few combinations occur in a run, so each is made once; long ones are made anew.
        """
        key = rows, first, most
        made = self._listed.get(key)
        if made is None:
            made = tuple(self.table(rows)[first : first + most + 1].tolist())
            # Long lists are rarely asked for twice, and each would take as much room as a table.
            if most <= _LISTED:
                self._listed[key] = made
        return made

    def require(self, tokens: int, rows: int) -> None:
        """Check that steps of up to ``tokens`` batch tokens and 1 to ``rows`` rows have a price.

        Raises:
            ProfileError: with what is missing and what to do.
        """
        if tokens > self.max_tokens:
            self._refuse_tokens(tokens)
        if self._draft is not None:
            # Between the two the curve has no holes, so that every number of rows has a price if these have.
            self._draft.at(1)
            self._draft.at(rows)

    def _refuse_tokens(self, tokens: int) -> NoReturn:
        if tokens > self._largest:
            raise ProfileError(no_sample(self.profile.name, tokens, self._largest))
        raise ProfileError(
            f"profile `{self.profile.name}`: a step of {tokens} tokens is outside the priced range 1 to "
            f"{self.max_tokens}; give `max_tokens` to StepCost (samples reach {self._largest})"
        )

    def _check_context_slope(self) -> None:
        slope, reference = self.profile.context.seconds_per_token, self.profile.context.reference_tokens
        # The worst case of the term: rows that verify nothing and have no context, all below the reference.
        rows = np.arange(1, min(self.max_tokens, self.max_rows) + 1)
        shortest = self._base[rows] - (slope or 0.0) * reference * rows
        if shortest.min() <= 0:
            raise ProfileError(
                f"profile `{self.profile.name}`: {int(rows[shortest.argmin()])} rows without context would take "
                f"{shortest.min():.3g} s; `context.seconds_per_token` ({slope}) is too large for the "
                f"`reference_tokens` ({reference})"
            )


class _DraftCurve:
    """Draft seconds by rows: median per row count, linear between, nothing beyond."""

    def __init__(self, profile: Profile, scale: float) -> None:
        if profile.draft is None:
            raise ProfileError(
                f"profile `{profile.name}` has no draft cost, which an arm that drafts needs; add a `draft` section "
                "to the profile, or use an autoregressive arm"
            )
        self._name = profile.name
        self._scale = scale
        self._rows, self._seconds = _median_by_rows(profile.draft)
        self.most = int(self._rows[-1])

    def at(self, rows: int) -> float:
        # A drafter's time beyond what was measured is not guessed, nor is the target's.
        if not self._rows[0] <= rows <= self.most:
            raise ProfileError(
                f"profile `{self._name}`: no draft cost for {rows} rows (samples from {int(self._rows[0])} to "
                f"{self.most}); add `draft` samples or run fewer rows (`max_num_seqs`)"
            )
        return self._scale * float(np.interp(rows, self._rows, self._seconds))


def _median_by_rows(draft: DraftSamples) -> tuple[Ints, Floats]:
    rows, seconds = np.array(draft.rows, np.int64), np.array(draft.seconds)
    counts = np.unique(rows)
    # Medians: a profiler's spike is one sample of several, and would move a mean.
    return counts, np.array([np.median(seconds[rows == count]) for count in counts])


def _not_negative(name: str, value: float) -> float:
    if not (math.isfinite(value) and value >= 0):
        raise ProfileError(f"`{name}` must be a finite number, 0 or more, got {value}")
    return value


def _flat(name: str) -> str:
    return (
        f"profile `{name}` is flat: every batch size costs the same, so a policy that maximizes tokens per second "
        "verifies every draft with survival > 0"
    )
