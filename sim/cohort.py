"""The requests that metrics follow (section 7 of the semantics): numbers W+1 .. W+N in order of admission."""

from __future__ import annotations

from dataclasses import dataclass, field

from .requests import SimulationError
from .scenario import Scenario


def make_cohort(scenario: Scenario) -> Cohort:
    """Size the cohort of a scenario.

    A closed loop follows max(200, 4 x concurrency) requests; its warm-up is fixed while it runs. An open loop leaves
    out a tenth of its requests at either end.

    Raises:
        SimulationError: if an open loop holds too few requests.
    """
    if scenario.mode == "closed":
        size = scenario.cohort or max(200, 4 * scenario.concurrency)
        # Rows that begin at once stay in step with each other for a while. Unless the scenario says when, what is
        # measured begins after the last of them has left.
        return Cohort(scenario.warmup, size, first_generation=scenario.concurrency)
    count = len(scenario.requests)
    # A tenth at either end, where the queue fills up or runs dry.
    warmup = scenario.warmup if scenario.warmup is not None else count // 10
    size = scenario.cohort if scenario.cohort is not None else count - 2 * warmup
    if size < 2 or warmup + size > count:
        raise SimulationError(
            f"an open loop of {count} requests cannot follow a cohort of {size} after a warm-up of {warmup}; "
            "lower `warmup` or `cohort`, or use more requests"
        )
    return Cohort(warmup, size, first_generation=0)


@dataclass
class Cohort:
    """Which requests the metrics follow, decided while the run goes on."""

    warmup: int | None
    size: int
    first_generation: int
    admitted: int = 0
    ended: int = 0
    window: list[float] = field(default_factory=lambda: [float("nan"), float("nan")])

    def __post_init__(self) -> None:
        self._still_first = self.first_generation

    def contains(self, order: int) -> bool:
        """Whether the request admitted as number ``order`` (from 0) belongs to the cohort."""
        return self.warmup is not None and self.warmup <= order < self.warmup + self.size

    def admit(self, order: int, now: float) -> None:
        """Note an admission."""
        self.admitted = order + 1
        # Both ends of the window are admissions. Ends of requests would do for long runs only: short requests finish
        # first, so a window of the first to finish is biased by length (section 7).
        if self.warmup is not None and order == self.warmup:
            self.window[0] = now
        if self.warmup is not None and order == self.warmup + self.size - 1:
            self.window[1] = now

    @property
    def done(self) -> bool:
        """Whether every request of the cohort has ended."""
        return self.ended >= self.size

    def leave(self, order: int) -> None:
        """Note that the request admitted as number ``order`` ended; fixes the warm-up of a closed loop."""
        if self.contains(order):
            self.ended += 1
        if self.warmup is None and order < self.first_generation:
            self._still_first -= 1
            if not self._still_first:
                self.warmup = max(2 * self.first_generation, self.admitted)
