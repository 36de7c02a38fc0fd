"""What is timed for a step-cost profile, in which order, and what the times must show before they are believed.

Two passes over all points, the second in reverse, so that a machine that warms up or is shared does not pass for a
curve. Where they disagree, both are done once more. `measure` calls what it is given and knows no device; a test gives
it a clock of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from ..attention_checks import MAX_TOKENS
from ..common import KernelError, tiles
from .models import MAX_ROWS, ProfiledModel

CAPTURE_LIMIT = 1024
"""Largest captured size."""

EAGER = (1280, 1536, 2048, 3072, 4096)
"""Sizes beyond it."""

CONTEXTS = (1024, 4096, 16384)
GRID_ROWS = (1, 4, 16, 64)
DRAFT_ROWS = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256)

APART = 0.25
"""Two passes disagree on a point if the larger median is more than this above the smaller."""

APART_SHARE = 0.05
"""Share of points on which they may."""

FLAT = 1.05
"""A curve is flat if its largest size takes less than this times its smallest."""

ANCHORS = (0.6, 1.0, 1.5)
"""Default speeds at which frontiers are read, in units of a lone row's without drafts."""


class ProfileRefused(RuntimeError):
    """The times are no profile: a flat curve, or passes that disagree."""


@dataclass(frozen=True)
class Point:
    """One thing to time.

    Attributes:
        part: ``verify`` (the sweep over sizes), ``context`` (the grid) or ``draft``.
        tokens: of all rows.
        rows: with tokens.
        context: of each row before the step.
        size: what runs, with padding.
        table: rows of the form that runs, empty ones included.
        captured: whether a graph is replayed.
    """

    part: str
    tokens: int
    rows: int
    context: int
    size: int
    table: int
    captured: bool

    @property
    def label(self) -> str:
        """Short name for messages."""
        if self.part == "verify":
            return f"{self.tokens} tokens"
        return f"{self.rows} rows drafted" if self.part == "draft" else f"{self.rows} rows of context {self.context}"


@dataclass(frozen=True)
class Plan:
    """All points and how often each is run.

    Attributes:
        points: in the order of the first pass.
        captured_sizes: with a graph; none on a CPU.
        gamma: drafts of a block.
        warm: calls before the first that counts, in each pass.
        timed: calls that count, in each pass, at most.
    """

    points: tuple[Point, ...]
    captured_sizes: tuple[int, ...]
    gamma: int
    warm: int
    timed: int


@dataclass(frozen=True)
class Timing:
    """One pass over one point.

    Attributes:
        point: what ran.
        run: 1 or 2; 3 or 4 where it was repeated.
        seconds: of each call that counts.
    """

    point: Point
    run: int
    seconds: tuple[float, ...]


@dataclass(frozen=True)
class Measured:
    """Times of all points.

    Attributes:
        plan: what was asked for.
        timings: the two passes that count, by point.
        repeated: points whose first two passes disagreed.
        apart: points whose last two do.
    """

    plan: Plan
    timings: dict[Point, tuple[Timing, Timing]]
    repeated: tuple[Point, ...] = ()
    apart: tuple[Point, ...] = ()
    medians: dict[Point, float] = field(init=False)

    def __post_init__(self) -> None:
        both = {point: first.seconds + second.seconds for point, (first, second) in self.timings.items()}
        # Of both passes' samples together, once: everything that is judged or fitted reads these.
        object.__setattr__(self, "medians", {point: median(seconds) for point, seconds in both.items()})

    def part(self, name: str) -> dict[Point, float]:
        """Return the median seconds of the points of a part, in the order of the plan."""
        return {point: self.medians[point] for point in self.plan.points if point.part == name}

    def samples(self, name: str) -> list[tuple[Point, float]]:
        """Return every time of a part."""
        return [
            (point, seconds)
            for point in self.plan.points
            if point.part == name
            for timing in self.timings[point]
            for seconds in timing.seconds
        ]


@dataclass(frozen=True)
class ContextFit:
    """The line through the grid, one intercept for each number of rows.

    Attributes:
        seconds_per_token: of context, in one row.
        points: of the grid that were used.
        worst: largest distance of a point from the line, relative to its time.
    """

    seconds_per_token: float
    points: int
    worst: float


def make_plan(model: ProfiledModel, gamma: int, limit: int, quick: bool) -> Plan:
    """Return what to time for a model.

    Args:
        model: which.
        gamma: drafts of a block, 1 to 16.
        limit: largest batch in tokens.
        quick: powers of two and a handful of runs instead of everything.

    Raises:
        KernelError: if a number is out of range.
    """
    if not 1 <= gamma < MAX_TOKENS:
        raise KernelError(f"`gamma` must be 1 to {MAX_TOKENS - 1}, got {gamma}")
    if not 1 + gamma <= limit <= EAGER[-1]:
        raise KernelError(f"`limit` must be 1 + gamma ({1 + gamma}) to {EAGER[-1]} tokens, got {limit}; change it")
    graphs = model.device == "cuda"
    # The same sizes are timed with and without graphs; a CPU has none to capture.
    sizes = _sizes(limit, quick)
    captured = tuple(sizes) if graphs else ()
    points = [_verify(tokens, captured, model.context, gamma) for tokens in _tokens(sizes, limit, quick)]
    points += _grid(model, gamma, limit, quick)
    rows = [each for each in DRAFT_ROWS if each <= max(1, limit // (1 + gamma))]
    points += [_form("draft", each * gamma, each, model.draft_context, graphs) for each in rows]
    warm, timed = (2, 10) if quick else (5, 30)
    return Plan(tuple(points), captured, gamma, warm, timed)


def rows_of(tokens: int, gamma: int) -> int:
    """Return the rows of a batch of the sweep: as few as verify whole blocks, 256 at most."""
    return min(MAX_ROWS, tiles(tokens, 1 + gamma))


def _sizes(limit: int, quick: bool) -> list[int]:
    """Return the sizes that have a graph where there are graphs."""
    every = [1, 2, 4, *range(8, 256, 8), *range(256, 513, 16), CAPTURE_LIMIT]
    return [size for size in every if size <= limit and (not quick or size & (size - 1) == 0)]


def _tokens(sizes: Sequence[int], limit: int, quick: bool) -> list[int]:
    """Return the batch tokens of the sweep: the sizes, one more than each, some beyond, and the limit."""
    # One token more is padded to the next size: that riser is what makes a curve jagged, and must be in it.
    above = [size + 1 for size in sizes if size >= 16 or not quick]
    beyond = [size for size in EAGER if not quick or size & (size - 1) == 0]
    return sorted({tokens for tokens in (*sizes, *above, *beyond, limit) if tokens <= limit})


def _verify(tokens: int, captured: Sequence[int], context: int, gamma: int) -> Point:
    size = next((size for size in captured if size >= tokens), None)
    runs = tokens if size is None else size
    # Rows of the size that runs: a graph holds a fixed number, and the step's own are fewer.
    rows, table = rows_of(tokens, gamma), rows_of(runs, gamma)
    return Point("verify", tokens, rows, context, runs, table, size is not None)


def _form(part: str, tokens: int, rows: int, context: int, captured: bool) -> Point:
    return Point(part, tokens, rows, context, tokens, rows, captured)


def _grid(model: ProfiledModel, gamma: int, limit: int, quick: bool) -> list[Point]:
    """Return whole blocks for some rows at all contexts that fit; rows with one context alone say nothing."""
    found = []
    for rows in GRID_ROWS[: 2 if quick else None]:
        tokens = rows * (1 + gamma)
        fitting = [each for each in CONTEXTS[: 2 if quick else None] if rows * each <= model.grid_tokens]
        if tokens <= limit and len(fitting) > 1:
            found += [_form("context", tokens, rows, each, model.device == "cuda") for each in fitting]
    return found


def measure(plan: Plan, time: Callable[[Point, int, int], Sequence[float]], keep: Callable[[Timing], None]) -> Measured:
    """Time all points in two passes, and those on which they disagree in two more.

    Args:
        plan: what to time.
        time: called with a point, calls to warm up and calls that count; returns the seconds of the latter.
        keep: called with every result at once, so that nothing is lost if a later one fails.
    """

    def run(points: Iterable[Point], number: int) -> dict[Point, Timing]:
        done = {}
        for point in points:
            done[point] = Timing(point, number, tuple(time(point, plan.warm, plan.timed)))
            keep(done[point])
        return done

    def both(points: Sequence[Point], number: int) -> dict[Point, tuple[Timing, Timing]]:
        forward = run(points, number)
        backward = run(reversed(points), number + 1)
        return {point: (forward[point], backward[point]) for point in points}

    timings = both(plan.points, 1)
    repeated = _apart(timings)
    # The later passes replace the earlier ones, of which one was disturbed; which one cannot be known.
    timings |= both(repeated, 3)
    return Measured(plan, timings, repeated, _apart(timings))


def _apart(timings: Mapping[Point, tuple[Timing, Timing]]) -> tuple[Point, ...]:
    medians = {point: [median(timing.seconds) for timing in each] for point, each in timings.items()}
    return tuple(point for point, each in medians.items() if max(each) > (1 + APART) * min(each))


def judge(measured: Measured) -> None:
    """Accept the times as a profile.

    Raises:
        ProfileRefused: if the passes disagree on too many points, or size makes no difference.
    """
    sizes = list(measured.part("verify"))
    # Points of context and drafting must not water down the sweep over sizes.
    for points in (measured.plan.points, sizes):
        apart = [point for point in measured.apart if point in points]
        if len(apart) > APART_SHARE * len(points):
            names = ", ".join(point.label for point in apart)
            raise ProfileRefused(
                f"the two passes are more than {APART:.0%} apart at {len(apart)} of {len(points)} "
                f"{'sizes' if points is sizes else 'points'}, at most {APART_SHARE:.0%} may be: {names}; let nothing "
                "else run on the machine and profile it again"
            )
    seconds = list(measured.part("verify").values())
    # A planner with a flat curve verifies everything that has any chance: better no profile than such a one.
    if seconds[-1] < FLAT * seconds[0]:
        tokens = [point.tokens for point in measured.part("verify")]
        raise ProfileRefused(
            f"the curve is flat: {tokens[-1]} tokens take {seconds[-1]:.3g} s, {tokens[0]} take {seconds[0]:.3g} s, "
            f"less than {FLAT - 1:.0%} apart, so it would say that verifying is free; raise `limit`"
        )


def fit_context(measured: Measured) -> ContextFit | None:
    """Return how a step grows with context; None if the grid is empty or the line does not rise.

    Least squares of relative errors: medians in seconds against context tokens of all rows, with an intercept of its
    own for each number of rows, since these differ in tokens too. In absolute terms the longest context alone would
    choose the line, and short ones, of which there are more, would be far off it.
    """
    grid = measured.part("context")
    centred = []
    for rows in dict.fromkeys(point.rows for point in grid):
        group = [(rows * point.context, seconds) for point, seconds in grid.items() if point.rows == rows]
        # Relative errors, hence weights of 1 / seconds^2; a free intercept for each group, hence centring in it.
        weights = [1 / seconds**2 for _, seconds in group]
        mean_x = _mean([x for x, _ in group], weights)
        mean_y = _mean([y for _, y in group], weights)
        centred += [(x - mean_x, y - mean_y, y) for x, y in group]
    spread = math.fsum((x / seconds) ** 2 for x, _, seconds in centred)
    slope = math.fsum(x * y / seconds**2 for x, y, seconds in centred) / spread if spread else 0.0
    # Context that costs less than nothing is noise: the slope stays unknown, not 0.
    if slope <= 0:
        return None
    return ContextFit(slope, len(centred), max(abs(y - slope * x) / seconds for x, y, seconds in centred))


def anchors(measured: Measured) -> tuple[float, ...]:
    """Return speeds in tokens a second and user: `ANCHORS` times that of a lone row without drafts, two digits."""
    # The first point of the sweep is one token: a lone row that verifies nothing.
    alone = 1 / next(iter(measured.part("verify").values()))
    return tuple(float(f"{share * alone:.2g}") for share in ANCHORS)


def _mean(values: Sequence[float], weights: Sequence[float]) -> float:
    return math.fsum(v * w for v, w in zip(values, weights, strict=True)) / math.fsum(weights)
