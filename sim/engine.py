"""The step loop: admit, plan, cost, commit, record, as a SimPy process.

A decode step is one event at most, whatever the batch, and none where nothing else happens before it ends; a request
costs a few more (arrival, prefill). Time is in seconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from typing import Any, NamedTuple

import numpy as np
import simpy

from ..policies import Generation, Ints, LaggedBudget, LaggedView, check_lengths, failed, start_state, total, unpacked
from .admission import Admission
from .array_rows import ArrayRows
from .cohort import make_cohort
from .cost import PlannedStep, StepTime
from .history import History
from .list_rows import ListRows
from .noise import StepNoise
from .records import BLOCK, RequestLog, RequestRecord, RowLog, RowRecords, StepLog
from .rows import Committed, Left, NoDrafts, Rows
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


class _Waiting(NamedTuple):
    """A request in line for decode; ``ready_s`` is None without prefill."""

    request: int
    arrival_s: float
    ready_s: float | None


class _Times(NamedTuple):
    """What is known of a running request's times."""

    arrival_s: float
    ready_s: float | None
    admitted_s: float
    first_token_s: float


class _Run:
    """State of one run; lives as long as `run` does."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.env = simpy.Environment()
        drafts = scenario.drafts if scenario.policy.drafts else NoDrafts()
        # An open loop's `concurrency` is a limit, not a load: mostly far fewer rows run.
        few = scenario.mode == "open" or scenario.concurrency < FEW
        self.batch: Rows = (ListRows if few else ArrayRows)(drafts, scenario.requests, scenario.concurrency)
        # Bound once: every view carries them.
        self.context = self.batch.context
        self.history = History(scenario.policy.lag or 0)
        self.steps = StepLog()
        self.finished = RequestLog()
        self.rows = RowLog() if scenario.keep_rows else None
        self.noise = StepNoise(scenario.seed, scenario.noise_cv)
        self.coin = self.noise.coin
        self.noisy = scenario.noise_cv > 0.0
        self.state: Any = start_state(scenario.policy)
        self.safe_budget = scenario.policy if isinstance(scenario.policy, LaggedBudget) else None
        self.closed = scenario.mode == "closed"
        self.cost = scenario.cost
        # What the policy believes a step costs; the clock moves by `cost` alone.
        self.planning = scenario.planning or scenario.cost
        self.reads_context = self.cost.reads_context or self.planning.reads_context
        self.waits = scenario.policy.stalls
        self.waiting: deque[_Waiting] = deque()
        self.times: dict[int, _Times] = {}
        self.wake = self.env.event()
        self.now = 0.0  # the decode stage's clock; SimPy's catches up when others act
        self.issued = 0
        self.over = False
        self.to_come = len(scenario.requests)
        self.admission = Admission(scenario)
        self.cohort = make_cohort(scenario)
        self.slots = simpy.Resource(self.env, scenario.prefill.slots) if scenario.prefill else None

    def result(self) -> Result:
        """Run to the end and collect the tables."""
        if self.closed:
            # A client for each row and one for each prefill slot: a row that leaves is followed by a request whose
            # prompt is done, and no slot idles (section 1 of docs/semantics.md).
            stock = self.scenario.prefill.slots if self.scenario.prefill else 0
            for _ in range(self.scenario.concurrency + stock):
                self._issue()
        else:
            self.env.process(self._arrivals())
        self.env.run(until=self.env.process(self._decode()))
        start, end = self.cohort.window
        return Result(
            steps=self.steps.table(),
            requests=self.finished.table(self.cohort.contains),
            rows=self.rows.table() if self.rows else None,
            window_s=(start, end),
            gpus=self.scenario.cost.gpus,
            with_prefill=self.slots is not None,
        )

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
        # SimPy hands slots out in the order of asking, so prompts are served first come, first served.
        with slots.request() as slot:
            yield slot
            yield self.env.timeout(seconds)
        self._ready(request, arrival, self.env.now)

    def _ready(self, request: int, arrival: float, ready: float | None) -> None:
        """Put a request in line for decode."""
        self.waiting.append(_Waiting(request, arrival, ready))
        # An event is triggered once; later requests find the decode stage awake.
        if not self.wake.triggered:
            self.wake.succeed()

    # --- the step loop

    def _decode(self) -> Generator[simpy.Event, None, None]:
        """Run steps while there are rows, wait while there are none."""
        batch, env, rows_log = self.batch, self.env, self.rows
        step = 0
        stirred = True
        while not self.over:
            # Between two steps only a row that leaves makes an event; looking for one is dear where there is none.
            if stirred and env.peek() <= self.now:
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
                stirred = True
                continue
            begun = self.now
            generation, outcomes = batch.draft()
            planned = self._plan(step, generation, outcomes)
            took = self.cost.step(planned)
            busy = took.busy * self.noise.factor(step) if self.noisy else took.busy
            seconds = busy + took.stall
            self.now = begun + seconds
            # Without another event before the step ends there is nothing to wait for, unless rows that leave make one.
            if self.slots is not None or env.peek() <= self.now:
                yield from self._catch_up()
            # Only now, with the clock moved on: who became ready while the step ran stands in line before those whom
            # the rows that leave ask for.
            committed = batch.commit(planned.lengths, outcomes)
            self._record_step(step, begun, seconds, planned, took, committed)
            if rows_log is not None:
                self._record_rows(rows_log, step, planned.lengths, outcomes)
            step += 1
            stirred = False
            for left in batch.advance():
                self.admission.leave(left.entry)
                self._leave(left, step)
                stirred = True

    def _catch_up(self) -> Generator[simpy.Event, None, None]:
        """Let everything happen that happens up to now: what is ready when a step ends joins the next one."""
        while self.env.now < self.now or self.env.peek() <= self.now:
            yield self.env.timeout(max(self.now - self.env.now, 0.0))

    def _admit(self, step: int) -> None:
        """Let waiting requests join while there is room."""
        joined = False
        while self.waiting and not self.over:
            request, arrival, ready = self.waiting[0]
            entry = request % len(self.scenario.requests)
            if not self.admission.may_join(entry):
                break
            self.waiting.popleft()
            order, now = self.cohort.admitted, self.now
            self.cohort.admit(order, now)
            # A closed loop's client takes the first token with the transfer; an open loop's when prefill ends.
            first = now if self.closed or ready is None else ready
            self.times[order] = _Times(arrival, ready, now, first)
            self.to_come -= 1
            # Token 1 came with the prefill, so there is nothing to decode: no row is taken, and no step seen.
            if int(self.scenario.requests.output_tokens[entry]) == 1:
                self._leave(Left(order, request, entry, step, 0, 0), step)
            else:
                self.admission.join(entry)
                self.batch.join(order, request, entry, step)
                joined = True
        if joined:
            self.batch.joined()

    def _plan(self, step: int, generation: Generation, outcomes: list[int] | Ints) -> PlannedStep:
        """Ask the policy for lengths."""
        batch, policy = self.batch, self.scenario.policy
        rows = batch.rows
        context_tokens = total(batch.context()) if self.reads_context else 0
        past = LaggedView(
            step,
            batch.requests,
            batch.available,
            batch.drafted,
            self.planning,
            self.history.lagged(batch.order, batch.gamma),
            self.context,
            self.planning.context_seconds(rows, context_tokens) if self.reads_context else 0.0,
            self.coin,
        )
        try:
            if self.safe_budget is not None:  # it is not even handed this step's drafts
                answer = self.safe_budget.plan_past(past, generation, self.state)
            else:
                # A bound's knowledge; None for every policy that could run on a real engine.
                known = np.array(outcomes, np.int64) if policy.needs_outcomes else None
                answer = policy.plan(past.with_drafts(generation, known), self.state)
        except (Exception, SystemExit) as error:
            raise failed(policy, step, rows, error) from error
        lengths, self.state = unpacked(answer, policy, step)
        lengths, verified = check_lengths(lengths, batch.available, policy, step, batch.requests)
        # After the plan: a budget of lag L reads generations up to n - L, never the one it decides about (section 2).
        self.history.add(batch.order, generation)
        return PlannedStep(lengths, rows, verified, batch.gamma, context_tokens, self.waits)

    def _record_step(
        self, step: int, begun: float, seconds: float, planned: PlannedStep, took: StepTime, committed: Committed
    ) -> None:
        """Keep what the step did; the rows that drafted in it are known until `Rows.advance`."""
        log = self.steps
        log.step.append(step)
        log.start_s.append(begun)
        log.step_seconds.append(seconds)
        log.rows.append(planned.rows)
        log.drafting_rows.append(self.batch.drafting_rows)
        log.drafted.append(self.batch.drafted)
        log.verified.append(planned.verified)
        accepted, emitted, acceptable = committed
        log.accepted.append(accepted)
        log.emitted.append(emitted)
        log.acceptable.append(acceptable)
        log.batch_tokens.append(planned.rows + planned.verified)
        log.executed_tokens.append(took.executed_tokens)
        log.context_seconds.append(took.context)
        log.stall_seconds.append(took.stall)
        # Asked here instead of in a method of the log: a call costs as much as two of these columns.
        if len(log.step) == BLOCK:
            log.pack()

    def _record_rows(self, log: RowLog, step: int, lengths: Ints, outcomes: list[int] | Ints) -> None:
        """Keep what each row of the step did."""
        accepted, emitted = self.batch.row_commits()
        log.add(
            RowRecords(
                step=np.full(self.batch.rows, step),
                request=self.batch.requests,
                available=self.batch.available,
                verified=lengths,
                accepted=accepted,
                emitted=emitted,
                acceptable=np.array(outcomes, np.int64),
            )
        )

    def _leave(self, left: Left, steps_until: int) -> None:
        """Record a finished request and, in a closed loop, ask for the next."""
        requests = self.scenario.requests
        times = self.times.pop(left.order)
        steps = steps_until - left.joined
        self.finished.add(
            RequestRecord(
                order=left.order,
                request=left.request,
                name=int(requests.name[left.entry]),
                domain=requests.domains[int(requests.domain[left.entry])],
                cohort=False,  # filled in when the run ends
                prompt_tokens=int(requests.prompt_tokens[left.entry]),
                output_tokens=int(requests.output_tokens[left.entry]),
                arrival_s=times.arrival_s,
                ready_s=times.ready_s,
                admitted_s=times.admitted_s,
                first_token_s=times.first_token_s,
                last_token_s=self.now if steps else times.first_token_s,
                steps=steps,
                # No drafts in the step of admission.
                drafted=max(steps - 1, 0) * self.batch.gamma,
                verified=left.verified,
                accepted=left.accepted,
            )
        )
        self.cohort.leave(left.order)
        # A closed loop has requests for ever and ends with its cohort, whatever else still runs; an open one replays
        # all.
        self.over = self.closed and self.cohort.done
        if self.closed:
            self._issue()
