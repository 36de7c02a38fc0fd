"""What a run depends on and what it leaves: `Scenario` in, `Result` out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import polars as pl

from ..policies import Policy, PolicyError, Safety, check_policy, screen
from .cost import StepCost
from .drafts import DraftModel, checked
from .requests import Requests, SimulationError

Mode = Literal["closed", "open"]


@dataclass(frozen=True)
class Prefill:
    """A disaggregated prefill stage.

    Attributes:
        tokens_per_s: prompt tokens a second of one slot (an assumption of the scenario).
        slots: prompts prefilled at once; the others wait in order of arrival.
    """

    tokens_per_s: float
    slots: int = 1

    def __post_init__(self) -> None:
        if not self.tokens_per_s > 0.0:
            raise SimulationError(f"prefill tokens_per_s must be above 0, got {self.tokens_per_s}")
        if self.slots < 1:
            raise SimulationError(f"prefill slots must be at least 1, got {self.slots}")


@dataclass(frozen=True)
class Scenario:
    """One point of an experiment: everything a run depends on.

    Attributes:
        policy: decides the verify lengths.
        cost: prices a step.
        drafts: produces confidences and outcomes; the answers of a model that the package does not ship are checked.
        requests: what is asked for. A closed loop takes the entries in order and starts over when they run out,
            each time as a new text; an open loop replays them once, at their arrival times.
        mode: ``closed`` keeps ``concurrency`` rows decoding; ``open`` admits arrivals, at most ``concurrency``.
        concurrency: rows, at least 1.
        prefill: None hands requests to decode at once, with their first token and no TTFT.
        noise_cv: coefficient of variation of a lognormal factor on each step's time; planning never sees it.
        seed: seeds the noise and the policies' coin.
        keep_rows: also record every row of every step.
        cohort: closed loop: requests followed, at least 2; None is max(200, 4 x concurrency).
        warmup: requests admitted before the cohort; None is max(2 x concurrency, all admitted before the first
            generation of rows has left) in a closed loop, a tenth of the requests in an open one.
        planning: what the policy believes a step costs (an engine's lookup may differ from the truth); None is
            ``cost``.
        unsafe: run a policy that is declared unsafe or fails the stopping-set rule.
        safety: what is known of the policy's losslessness: ``safe`` and ``unknown`` as its class declares (a class
            that the project does not ship has then passed the rule on random histories), else ``unsafe``.

    Raises:
        PolicyError: for an unsafe policy without ``unsafe``, or facts that a policy declares and cannot mean.
        ProfileError, DraftError: if a step has no price, or a domain no drafts.
        SimulationError: for a field outside its bounds.
    """

    policy: Policy
    cost: StepCost
    drafts: DraftModel
    requests: Requests
    mode: Mode = "closed"
    concurrency: int = 1
    prefill: Prefill | None = None
    noise_cv: float = 0.0
    seed: int = 0
    keep_rows: bool = False
    cohort: int | None = None
    warmup: int | None = None
    planning: StepCost | None = None
    unsafe: bool = False
    safety: Safety = field(init=False, default="unknown")

    def __post_init__(self) -> None:
        if self.concurrency < 1:
            raise SimulationError(f"concurrency must be at least 1, got {self.concurrency}")
        if not self.noise_cv >= 0.0:
            raise SimulationError(f"noise_cv must be at least 0, got {self.noise_cv}")
        if self.cohort is not None and self.cohort < 2:
            raise SimulationError(f"cohort must hold at least 2 requests, got {self.cohort}")
        if self.warmup is not None and self.warmup < 0:
            raise SimulationError(f"warmup must be at least 0 requests, got {self.warmup}")
        if self.mode == "open":
            self.requests.arrivals()
        object.__setattr__(self, "drafts", checked(self.drafts))
        self.drafts.check(self.requests.domains)
        gamma = self.drafts.gamma if self.policy.drafts else 0
        check_policy(self.policy, gamma)
        # The largest step there can be: every row there, and each verifies all it may. The loop then meets no batch
        # without a price.
        for cost in (self.cost, self.planning or self.cost):
            cost.require(self.concurrency * (1 + self.policy.longest(gamma)), self.concurrency)
        # Last, since it plays the policy on random histories, which takes longer than all checks above.
        screening = screen(self.policy, gamma, self.planning or self.cost, self.concurrency)
        if screening.problem is not None and not self.unsafe:
            raise PolicyError(screening.problem)
        # Derived, not given; the class is frozen for everybody else.
        object.__setattr__(self, "safety", screening.safety)


@dataclass(frozen=True)
class Result:
    """What a run recorded.

    Attributes:
        steps: one row per step begun, the columns of `records.StepLog`.
        requests: one row per finished request, in order of admission; ``cohort`` marks those that metrics follow.
        rows: one row per row of a step, or None.
        window_s: (start, end) of the throughput window: the admissions of the cohort's first and last request.
        gpus: GPUs the step times belong to.
        with_prefill: whether TTFT is defined.
    """

    steps: pl.DataFrame
    requests: pl.DataFrame
    rows: pl.DataFrame | None
    window_s: tuple[float, float]
    gpus: int
    with_prefill: bool
