"""The step loop: admit, plan, cost, commit, record, as a SimPy process.

A decode step is one event at most, whatever the batch, and none where nothing else happens before it ends; a request
costs a few more (arrival, prefill). Time is in seconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from typing import Any

import numpy as np
import polars as pl
import simpy

from ..policies import Generation, Ints, LaggedBudget, LaggedView, check_lengths, failed, start_state, total, unpacked
from .array_rows import ArrayRows
from .cohort import make_cohort
from .history import History
from .list_rows import ListRows
from .noise import StepNoise
from .records import RequestLog, RowLog, StepLog
from .rows import Left, NoDrafts, Rows
from .scenario import Prefill, Result, Scenario

FEW = 16
"""Closed loops of fewer rows, and every open loop, keep their rows in lists."""

__all__ = ["Prefill", "Result", "Scenario", "run"]


def run(scenario: Scenario) -> Result:
    """Simulate a scenario. Pure: the same scenario gives the same tables.

    Raises:
        SimulationError: if the scenario holds too few requests to follow a cohort.
        PolicyError: if the policy fails or returns lengths that the step cannot execute; names policy, step and row.
    """
    return _Run(scenario).result()


class _Run:
    """State of one run; lives as long as `run` does."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.env = simpy.Environment()
        drafts = scenario.drafts if scenario.policy.drafts else NoDrafts()
        few = scenario.mode == "open" or scenario.concurrency < FEW
        self.batch: Rows = (ListRows if few else ArrayRows)(drafts, scenario.requests, scenario.concurrency)
        self.history = History(scenario.policy.lag or 0)
        self.steps = StepLog()
        self.finished = RequestLog()
        self.rows = RowLog() if scenario.keep_rows else None
        self.noise = StepNoise(scenario.seed, scenario.noise_cv)
        self.noisy = scenario.noise_cv > 0.0
        self.state: Any = start_state(scenario.policy)
        self.safe_budget = scenario.policy if isinstance(scenario.policy, LaggedBudget) else None
        self.closed = scenario.mode == "closed"
        self.stall_seconds = scenario.cost.sync_stall_seconds if scenario.policy.stalls else 0.0
        self.planning = scenario.planning or scenario.cost
        self.has_context = any(
            each.profile.context.seconds_per_token is not None for each in (scenario.cost, self.planning)
        )
        self.waiting: deque[tuple[int, float, float | None]] = deque()
        self.times: dict[int, tuple[float, float | None, float, float]] = {}
        self.wake = self.env.event()
        self.now = 0.0  # the decode stage's clock; SimPy's catches up when others act
        self.issued = 0
        self.over = False
        self.to_come = len(scenario.requests)
        self.cohort = make_cohort(scenario)
        self.slots = simpy.Resource(self.env, scenario.prefill.slots) if scenario.prefill else None

    def result(self) -> Result:
        """Run to the end and collect the tables."""
        if self.closed:
            stock = self.scenario.prefill.slots if self.scenario.prefill else 0
            for _ in range(self.scenario.concurrency + stock):
                self._issue()
        else:
            self.env.process(self._arrivals())
        self.env.run(until=self.env.process(self._decode()))
        start, end = self.cohort.window
        return Result(
            steps=self.steps.table(self.batch.gamma, self.scenario.cost.padded, self.stall_seconds),
            requests=self._requests_table(),
            rows=self.rows.table() if self.rows else None,
            window_s=(start, end),
            gpus=self.scenario.cost.gpus,
            with_prefill=self.slots is not None,
        )

    def _requests_table(self) -> pl.DataFrame:
        """Return finished requests; cohort membership is known only now."""
        table = self.finished.table()
        orders = table["order"].to_list()
        return table.with_columns(cohort=pl.Series([self.cohort.contains(order) for order in orders], dtype=pl.Boolean))

    # --- where requests come from

    def _arrivals(self) -> Generator[simpy.Event, None, None]:
        """Open loop: hand over each request at its arrival."""
        for entry, arrival in enumerate(self.scenario.requests.arrivals().tolist()):
            while arrival > self.env.now:  # again if the sum rounded to just before the arrival
                yield self.env.timeout(arrival - self.env.now)
            self._receive(entry, arrival)

    def _issue(self) -> None:
        """Closed loop: ask for the next request."""
        self._receive(self.issued, self.now)
        self.issued += 1

    def _receive(self, request: int, arrival: float) -> None:
        """Send a request to prefill, or straight to the waiting line."""
        if self.slots is None or self.scenario.prefill is None:
            self._ready(request, arrival, None)
        else:
            prompt = int(self.scenario.requests.prompt_tokens[request % len(self.scenario.requests)])
            seconds = prompt / self.scenario.prefill.tokens_per_s
            self.env.process(self._prefill(self.slots, request, arrival, seconds))

    def _prefill(
        self, slots: simpy.Resource, request: int, arrival: float, seconds: float
    ) -> Generator[simpy.Event, None, None]:
        """Occupy a prefill slot for as long as the prompt takes; its end is output token 1."""
        with slots.request() as slot:
            yield slot
            yield self.env.timeout(seconds)
        self._ready(request, arrival, self.env.now)

    def _ready(self, request: int, arrival: float, ready: float | None) -> None:
        """Put a request in line for decode."""
        self.waiting.append((request, arrival, ready))
        if not self.wake.triggered:
            self.wake.succeed()

    # --- the step loop

    def _decode(self) -> Generator[simpy.Event, None, None]:
        """Run steps while there are rows, wait while there are none."""
        batch, env, rows_log = self.batch, self.env, self.rows
        step = 0
        while not self.over:
            if env.peek() <= self.now:
                yield from self._catch_up()
            if self.waiting:
                self._admit(step)
                if self.over:
                    return
            if not batch.rows:
                if not (self.closed or self.to_come):
                    return
                self.wake = env.event()
                yield self.wake
                self.now = env.now
                continue
            begun = self.now
            generation, outcomes = batch.draft()
            lengths, verified, seconds, context_seconds = self._plan(step, generation, outcomes)
            self.now = begun + seconds
            # Without another event before the step ends there is nothing to wait for, unless rows that leave make one.
            if self.slots is not None or env.peek() <= self.now:
                yield from self._catch_up()
            rows, drafting = batch.rows, batch.drafting_rows
            totals = batch.commit(lengths, outcomes)
            self.steps.add((begun, seconds, rows, drafting, verified, *totals, context_seconds))
            if rows_log is not None:
                self._record_rows(rows_log, step, lengths, outcomes)
            step += 1
            for left in batch.advance():
                self._leave(left, step)

    def _catch_up(self) -> Generator[simpy.Event, None, None]:
        """Let everything happen that happens up to now: what is ready when a step ends joins the next one."""
        while self.env.now < self.now or self.env.peek() <= self.now:
            yield self.env.timeout(max(self.now - self.env.now, 0.0))

    def _admit(self, step: int) -> None:
        """Let waiting requests join while there is room."""
        joined = False
        while self.waiting and self.batch.rows < self.scenario.concurrency and not self.over:
            request, arrival, ready = self.waiting.popleft()
            entry = request % len(self.scenario.requests)
            order, now = self.cohort.admitted, self.now
            self.cohort.admit(order, now)
            # A closed loop's client takes the first token with the transfer; an open loop's when prefill ends.
            first = now if self.closed or ready is None else ready
            self.times[order] = (arrival, ready, now, first)
            self.to_come -= 1
            if int(self.scenario.requests.output_tokens[entry]) == 1:
                self._leave(Left(order, request, entry, step, 0, 0), step)
            else:
                self.batch.join(order, request, entry, step)
                joined = True
        if joined:
            self.batch.joined()

    def _plan(self, step: int, generation: Generation, outcomes: list[int] | Ints) -> tuple[Ints, int, float, float]:
        """Ask the policy for lengths; return them, their sum, the step's seconds and its context seconds."""
        batch, cost, policy = self.batch, self.scenario.cost, self.scenario.policy
        rows = batch.rows
        context_seconds = believed = 0.0
        if self.has_context:
            context = total(batch.context())
            context_seconds = cost.context_seconds(rows, context)
            believed = self.planning.context_seconds(rows, context)
        past = LaggedView(
            step,
            batch.requests,
            batch.available,
            batch.drafted,
            self.planning,
            self.history.lagged(batch.order, batch.gamma),
            batch.context,
            believed,
            self.noise.coin,
        )
        try:
            if self.safe_budget is not None:  # it is not even handed this step's drafts
                answer = self.safe_budget.plan_past(past, generation, self.state)
            else:
                known = np.array(outcomes, np.int64) if policy.needs_outcomes else None
                answer = policy.plan(past.with_drafts(generation, known), self.state)
        except (Exception, SystemExit) as error:
            raise failed(policy, step, rows, error) from error
        lengths, self.state = unpacked(answer, policy, step)
        lengths, verified = check_lengths(lengths, batch.available, policy, step, batch.requests)
        self.history.add(batch.order, generation)
        seconds = float(cost.table(rows)[rows + verified]) + context_seconds
        if self.noisy:
            seconds *= self.noise.factor(step)
        return lengths, verified, seconds + self.stall_seconds, context_seconds

    def _record_rows(self, log: RowLog, step: int, lengths: Ints, outcomes: list[int] | Ints) -> None:
        """Keep what each row of the step did."""
        accepted, emitted = self.batch.row_commits()
        log.add(
            step=np.full(self.batch.rows, step),
            request=self.batch.requests,
            available=self.batch.available,
            verified=lengths,
            accepted=accepted,
            emitted=emitted,
            acceptable=np.array(outcomes, np.int64),
        )

    def _leave(self, left: Left, steps_until: int) -> None:
        """Record a finished request and, in a closed loop, ask for the next."""
        requests = self.scenario.requests
        arrival, ready, admitted, first = self.times.pop(left.order)
        steps = steps_until - left.joined
        self.finished.entries.append(
            (
                left.order,
                left.request,
                int(requests.name[left.entry]),
                requests.domains[int(requests.domain[left.entry])],
                False,
                int(requests.prompt_tokens[left.entry]),
                int(requests.output_tokens[left.entry]),
                arrival,
                ready,
                admitted,
                first,
                self.now if steps else first,
                steps,
                max(steps - 1, 0) * self.batch.gamma,
                left.verified,
                left.accepted,
            )
        )
        self.cohort.leave(left.order)
        self.over = self.closed and self.cohort.done
        if self.closed:
            self._issue()
