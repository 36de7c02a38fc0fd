"""A second, deliberately naive simulator: dicts, lists and loops, written from docs/semantics.md and docs/metrics.md.

It shares with the package only the public objects that have tests of their own: `StepCost` and the draft model's
`blocks`. Queues, lag, budgets, splits, records and metrics are its own, and it never looks ahead or keeps a window.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from specsched.sim import Prefill, Requests, Scenario, Sla, StepCost

Record = dict[str, Any]
Draft = tuple[int, int]


@dataclass
class Tables:
    """What a run leaves: records in order, and the admission times of the cohort's first and last request."""

    steps: list[Record] = field(default_factory=list)
    requests: list[Record] = field(default_factory=list)
    rows: list[Record] = field(default_factory=list)
    window: tuple[float, float] = (0.0, 0.0)
    with_prefill: bool = False


def new_request(requests: Requests, number: int, arrival: float) -> Record:
    """Request ``number``; beyond the end of the list it starts over, as a new text."""
    entry = number % len(requests)
    return {
        "request": number,
        "name": int(requests.name[entry]),
        "domain": requests.domains[int(requests.domain[entry])],
        "prompt_tokens": int(requests.prompt_tokens[entry]),
        "output_tokens": int(requests.output_tokens[entry]),
        "arrival_s": arrival,
        "ready_s": None,
        "steps": 0,
        "drafted": 0,
        "verified": 0,
        "accepted": 0,
        "position": 1,
    }


def reached(request: Record) -> float:
    """When a request may decode: the end of prefill, or its arrival without a prefill stage."""
    return float(request["arrival_s"] if request["ready_s"] is None else request["ready_s"])


def prefill_end(free: list[float], request: Record, prefill: Prefill) -> float:
    """Give the prompt the slot that is free first; ``free`` holds the times at which slots become free."""
    slot = free.index(min(free))
    free[slot] = max(request["arrival_s"], free[slot]) + request["prompt_tokens"] / prefill.tokens_per_s
    return free[slot]


class Endless:
    """A closed loop without prefill: a request is there whenever one is wanted."""

    def __init__(self, scenario: Scenario) -> None:
        self.requests = scenario.requests
        self.taken = 0

    def peek(self, now: float) -> Record | None:
        return new_request(self.requests, self.taken, now)

    def pop(self, now: float) -> None:
        self.taken += 1

    def next_ready(self) -> float | None:
        return None

    def ended(self, now: float) -> None:
        """Nobody has to ask again."""


class Line:
    """Requests that wait, or will: in order of readiness, then of arrival."""

    def __init__(self, scenario: Scenario) -> None:
        self.requests = scenario.requests
        self.prefill = scenario.prefill
        self.free = [0.0] * (scenario.prefill.slots if scenario.prefill else 0)
        self.line: list[Record] = []
        self.come = 0

    def receive(self, arrival: float) -> None:
        request = new_request(self.requests, self.come, arrival)
        if self.prefill:
            request["ready_s"] = prefill_end(self.free, request, self.prefill)
        self.line.append(request)
        self.line.sort(key=lambda each: (reached(each), each["request"]))
        self.come += 1

    def peek(self, now: float) -> Record | None:
        return self.line[0] if self.line and reached(self.line[0]) <= now else None

    def pop(self, now: float) -> None:
        self.line.pop(0)

    def next_ready(self) -> float | None:
        return reached(self.line[0]) if self.line else None

    def ended(self, now: float) -> None:
        """Arrivals do not depend on what ends."""


class Clients(Line):
    """A closed loop with prefill: as many clients as rows and slots, each asks again when its request ends."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        assert scenario.prefill is not None
        for _ in range(scenario.concurrency + scenario.prefill.slots):
            self.receive(0.0)

    def ended(self, now: float) -> None:
        self.receive(now)


def source(scenario: Scenario) -> Endless | Line:
    """The way requests reach decode."""
    if scenario.mode == "closed":
        return Clients(scenario) if scenario.prefill else Endless(scenario)
    line = Line(scenario)
    for arrival in scenario.requests.arrivals().tolist():
        line.receive(arrival)
    return line


@dataclass
class Batch:
    """What a policy decides on.

    ``rows`` hold ``request``, ``available``, ``confidence``, ``survival``, ``outcome`` and ``context``; ``lagged``
    holds survivals by request id; ``seconds[K]`` is the believed time of the step if K drafts are admitted.
    """

    step: int
    rows: list[Record]
    gamma: int
    lagged: dict[int, list[float]]
    seconds: list[float]
    padded: Callable[[int], int]

    @property
    def drafted(self) -> int:
        return sum(row["available"] for row in self.rows)

    @property
    def fresh(self) -> list[list[float]]:
        return [row["survival"] for row in self.rows]


Plan = Callable[[Batch, Record, Record], list[int]]


def ordered(batch: Batch, survivals: list[list[float]], min_len: int = 0) -> tuple[list[Draft], int]:
    """All (row, position) that exist, and how many of them ``min_len`` demands.

    These come first; within both parts: survival descending, position ascending, row ascending.
    """
    there = [(r, j) for r, row in enumerate(batch.rows) for j in range(row["available"])]
    there.sort(key=lambda at: (-survivals[at[0]][at[1]], at[1], at[0]))
    forced = [at for at in there if at[1] < min_len]
    return forced + [at for at in there if at[1] >= min_len], len(forced)


def lengths_of(batch: Batch, admitted: Iterable[Draft]) -> list[int]:
    """Drafts of each row among the admitted ones, which must be prefixes."""
    positions: list[list[int]] = [[] for _ in batch.rows]
    for r, j in admitted:
        positions[r].append(j)
    assert all(sorted(each) == list(range(len(each))) for each in positions), "admitted drafts are no prefixes"
    return [len(each) for each in positions]


def split(batch: Batch, budget: int, min_len: int) -> list[int]:
    """Give the budget to the best drafts of the present."""
    return lengths_of(batch, ordered(batch, batch.fresh, min_len)[0][:budget])


def best_budget(batch: Batch, survivals: list[list[float]], options: Record) -> int:
    """Argmax of Theta over the budgets in reach, lowest on ties; then ``min_gain``, then ``align``."""
    order, floor = ordered(batch, survivals, options.get("min_len", 0))
    rows, tokens = len(batch.rows), float(len(batch.rows))
    theta = [tokens / batch.seconds[0]]
    for count, (r, j) in enumerate(order, start=1):
        tokens += survivals[r][j]
        theta.append(tokens / batch.seconds[count])
    allowed = options.get("allowed")
    reach = [k for k in range(floor, batch.drafted + 1) if allowed is None or rows + k in allowed]
    best = max(reach, key=lambda k: (theta[k], -k), default=floor)
    if options.get("min_gain") and batch.drafted in reach and theta[best] < (1 + options["min_gain"]) * theta[-1]:
        best = batch.drafted
    if options.get("align"):
        best = min(batch.drafted, batch.padded(rows + best) - rows)
    return best


def prior(batch: Batch, joins: str, state: Record) -> list[float]:
    """Survivals of a row of which nothing old enough is known."""
    if joins == "mean" and state.get("count"):
        return [each / state["count"] for each in state["total"]]
    return [1.0 if joins == "optimistic" else 0.0] * batch.gamma


def believed(batch: Batch, options: Record, state: Record) -> list[list[float]]:
    """Survivals by row as a budget believes them: lagged, smoothed, or a prior."""
    known: dict[int, list[float]] = {}
    for row in batch.rows:
        lagged = batch.lagged.get(row["request"])
        if lagged is None:
            continue
        total = state.get("total", [0.0] * batch.gamma)
        state["total"] = [sum_ + each for sum_, each in zip(total, lagged, strict=True)]
        state["count"] = state.get("count", 0) + 1
        before = state.get(row["request"], lagged)
        ema = options["ema"]
        known[row["request"]] = state[row["request"]] = [
            ema * old + (1 - ema) * new if ema else new for old, new in zip(before, lagged, strict=True)
        ]
    unknown = prior(batch, options["joins"], state)
    return [known.get(row["request"], unknown) for row in batch.rows]


def plan_autoregressive(batch: Batch, options: Record, state: Record) -> list[int]:
    """Nothing."""
    return [0] * len(batch.rows)


def plan_static(batch: Batch, options: Record, state: Record) -> list[int]:
    """The same for every row."""
    return [min(options["k"], row["available"]) for row in batch.rows]


def plan_threshold(batch: Batch, options: Record, state: Record) -> list[int]:
    """The longest prefix that stays at or above the threshold."""
    signal = {"conditional": "confidence", "survival": "survival"}[options["signal"]]
    lengths = []
    for row in batch.rows:
        length = 0
        while length < row["available"] and row[signal][length] >= options["t"]:
            length += 1
        lengths.append(length)
    return lengths


def plan_greedy_early_stop(batch: Batch, options: Record, state: Record) -> list[int]:
    """Algorithm 1."""
    tokens, fresh = float(len(batch.rows)), batch.fresh
    best, lengths = tokens / batch.seconds[0], [0] * len(batch.rows)
    for count, (r, j) in enumerate(ordered(batch, fresh)[0], start=1):
        tokens += fresh[r][j]
        if fresh[r][j] <= 0 or tokens / batch.seconds[count] <= best:
            break
        best, lengths[r] = tokens / batch.seconds[count], j + 1
    return lengths


def plan_async_topk(batch: Batch, options: Record, state: Record) -> list[int]:
    """Section 5.2: budget from the past, split from the present."""
    return split(batch, best_budget(batch, believed(batch, options, state), options), options["min_len"])


def plan_retrospective(batch: Batch, options: Record, state: Record) -> list[int]:
    """Both from the present."""
    return split(batch, best_budget(batch, batch.fresh, options), options["min_len"])


def passing(batch: Batch, value: Callable[[int, float], float]) -> list[int]:
    """As many drafts that will pass as maximize ``value(tokens, seconds)``: early positions, then early rows."""
    rows = len(batch.rows)
    drafts = sorted((j, r) for r, row in enumerate(batch.rows) for j in range(row["outcome"]))
    count = max(range(len(drafts) + 1), key=lambda n: (value(rows + n, batch.seconds[n]), -n))
    return lengths_of(batch, [(r, j) for j, r in drafts[:count]])


def plan_oracle(batch: Batch, options: Record, state: Record) -> list[int]:
    """The most tokens a second."""
    return passing(batch, lambda tokens, seconds: tokens / seconds)


def plan_oracle_rate(batch: Batch, options: Record, state: Record) -> list[int]:
    """The most tokens less the price of their seconds."""
    return passing(batch, lambda tokens, seconds: tokens - options["rate"] * seconds)


PLANS: dict[str, Plan] = {
    "autoregressive": plan_autoregressive,
    "static": plan_static,
    "threshold": plan_threshold,
    "greedy_early_stop": plan_greedy_early_stop,
    "async_topk": plan_async_topk,
    "retrospective": plan_retrospective,
    "oracle": plan_oracle,
    "oracle_rate": plan_oracle_rate,
}


@dataclass
class Run:
    """A run in progress; ``admitted`` holds every request so far in order of admission."""

    scenario: Scenario
    plan: Plan
    source: Endless | Line
    now: float = 0.0
    rows: list[Record] = field(default_factory=list)
    generations: list[dict[int, list[float]]] = field(default_factory=list)
    state: Record = field(default_factory=dict)
    admitted: list[Record] = field(default_factory=list)
    tables: Tables = field(default_factory=Tables)
    first_left: int | None = None

    @property
    def gamma(self) -> int:
        return self.scenario.drafts.gamma if self.scenario.policy.drafts else 0


def ended(requests: list[Record]) -> bool:
    """Whether all of them have emitted their last token."""
    return all("last_token_s" in each for each in requests)


def finish(run: Run, request: Record) -> None:
    """Record a request; note how many were admitted when the last of the first rows leaves."""
    run.tables.requests.append(request)
    first = run.admitted[: run.scenario.concurrency]
    if run.first_left is None and len(first) == run.scenario.concurrency and ended(first):
        run.first_left = len(run.admitted)
    run.source.ended(run.now)


def cohort_bounds(run: Run) -> tuple[int, int] | None:
    """(W, W + N), or None while W is not known."""
    scenario, count = run.scenario, len(run.scenario.requests)
    start, size = scenario.warmup, scenario.cohort
    if scenario.mode == "open":
        start = count // 10 if start is None else start
        return start, start + (count - 2 * start if size is None else size)
    if start is None and run.first_left is not None:
        start = max(2 * scenario.concurrency, run.first_left)
    if start is None:
        return None
    return start, start + (max(200, 4 * scenario.concurrency) if size is None else size)


def done(run: Run) -> bool:
    """Whether the whole cohort has ended; an open loop replays every request."""
    if run.scenario.mode == "open":
        return len(run.tables.requests) == len(run.scenario.requests)
    bounds = cohort_bounds(run)
    return bounds is not None and len(run.admitted) >= bounds[1] and ended(run.admitted[slice(*bounds)])


def admit(run: Run) -> None:
    """Let waiting requests join while there is room; one of a single token has nothing to decode."""
    while len(run.rows) < run.scenario.concurrency and not done(run):
        request = run.source.peek(run.now)
        if request is None:
            return
        run.source.pop(run.now)
        at_transfer = run.scenario.prefill is None or run.scenario.mode == "closed"
        request["order"] = len(run.admitted)
        request["admitted_s"] = run.now
        request["first_token_s"] = run.now if at_transfer else request["ready_s"]
        run.admitted.append(request)
        if request["output_tokens"] > 1:
            run.rows.append(request)
        else:
            request["last_token_s"] = request["first_token_s"]
            finish(run, request)


def draft(run: Run) -> None:
    """Draft this step's generation: every row but those just admitted has a block."""
    generation = {}
    for row in run.rows:
        row["context"] = row["prompt_tokens"] + row["position"]
        row["available"] = run.gamma if row["steps"] else 0
        row["confidence"], row["survival"], row["outcome"] = [0.0] * run.gamma, [0.0] * run.gamma, 0
        if not row["available"]:
            continue
        blocks, outcomes = run.scenario.drafts.blocks(row["request"], row["domain"], row["position"], 1)
        row["confidence"], row["outcome"] = blocks[0].tolist(), int(outcomes[0])
        row["survival"] = [math.prod(row["confidence"][: j + 1]) for j in range(run.gamma)]
        generation[row["request"]] = row["survival"]
    run.generations.append(generation)


def plan(run: Run) -> list[int]:
    """Ask the policy, which believes its own step cost."""
    policy, believes = run.scenario.policy, run.scenario.planning or run.scenario.cost
    rows, step = len(run.rows), len(run.generations) - 1
    context = believes.context_seconds(rows, sum(row["context"] for row in run.rows))
    seconds = [each + context for each in believes.table(rows).tolist()[rows:]]
    then = step - (policy.lag or 0)
    lagged = run.generations[then] if policy.lag and then >= 0 else {}
    options = {each.name: getattr(policy, each.name) for each in dataclasses.fields(policy)}  # type: ignore[arg-type]
    batch = Batch(step, run.rows, run.gamma, lagged, seconds, believes.padded)
    return run.plan(batch, options, run.state)


def stalled(scenario: Scenario) -> bool:
    """Whether the batch size has to wait for this step's confidences."""
    kind = scenario.policy.kind
    return kind in ("threshold", "greedy_early_stop") or (kind not in PLANS and scenario.policy.lag == 0)


def priced(run: Run, lengths: list[int]) -> Record:
    """The record of a step that verifies these lengths, before anything is accepted."""
    cost, rows = run.scenario.cost, len(run.rows)
    tokens = rows + sum(lengths)
    context = cost.context_seconds(rows, sum(row["context"] for row in run.rows))
    stall = cost.sync_stall_seconds if stalled(run.scenario) else 0.0
    return {
        "step": len(run.tables.steps),
        "start_s": run.now,
        "step_seconds": float(cost.table(rows)[tokens]) + context + stall,
        "rows": rows,
        "drafting_rows": sum(row["steps"] > 0 for row in run.rows),
        "drafted": sum(row["available"] for row in run.rows),
        "verified": sum(lengths),
        "accepted": 0,
        "emitted": 0,
        "acceptable": sum(row["outcome"] for row in run.rows),
        "batch_tokens": tokens,
        "executed_tokens": cost.padded(tokens),
        "context_seconds": context,
        "stall_seconds": stall,
    }


def commit(run: Run, record: Record, row: Record, length: int) -> None:
    """Accept a prefix, emit one token more, cut at the end of the output."""
    accepted = min(length, row["outcome"])
    emitted = min(accepted + 1, row["output_tokens"] - row["position"])
    record["accepted"] += accepted
    record["emitted"] += emitted
    kept = {"step": record["step"], "verified": length, "accepted": accepted, "emitted": emitted}
    kept |= {"request": row["request"], "available": row["available"], "acceptable": row["outcome"]}
    run.tables.rows.append(kept)
    row["steps"] += 1
    row["drafted"] += row["available"]
    row["verified"] += length
    row["accepted"] += accepted
    row["position"] += emitted
    if row["position"] == row["output_tokens"]:
        row["last_token_s"] = run.now


def step(run: Run) -> None:
    """Draft, plan, pay, commit, record."""
    draft(run)
    lengths = plan(run)
    record = priced(run, lengths)
    run.tables.steps.append(record)
    run.now += record["step_seconds"]
    for row, length in zip(run.rows, lengths, strict=True):
        commit(run, record, row, length)
    for row in run.rows:
        if "last_token_s" in row:
            finish(run, row)
    run.rows = [row for row in run.rows if "last_token_s" not in row]


def simulate(scenario: Scenario, plan: Plan | None = None) -> Tables:
    """Run a scenario without noise; ``plan`` stands in for a policy that is not shipped."""
    run = Run(scenario, plan or PLANS[scenario.policy.kind], source(scenario))
    run.tables.with_prefill = scenario.prefill is not None
    admit(run)
    while not done(run):
        if run.rows:
            step(run)
        else:
            ready = run.source.next_ready()
            assert ready is not None, "nothing left to decode, and the cohort has not ended"
            run.now = ready
        admit(run)
    bounds = cohort_bounds(run)
    assert bounds is not None
    for request in run.tables.requests:
        request["cohort"] = request["order"] in range(*bounds)
    run.tables.requests.sort(key=lambda each: each["order"])
    run.tables.window = run.admitted[bounds[0]]["admitted_s"], run.admitted[bounds[1] - 1]["admitted_s"]
    return run.tables


def percentile(values: list[float], share: float) -> float | None:
    """Linear between order statistics; None of nothing."""
    if not values:
        return None
    ranked = sorted(values)
    place = share * (len(ranked) - 1)
    low = int(place)
    return ranked[low] + (place - low) * (ranked[min(low + 1, len(ranked) - 1)] - ranked[low])


def ratio(part: float, whole: float) -> float | None:
    """None where there is nothing to divide by."""
    return part / whole if whole else None


def in_window(tables: Tables) -> list[Record]:
    """The steps that begin in the window."""
    return [each for each in tables.steps if tables.window[0] <= each["start_s"] < tables.window[1]]


def window_metrics(tables: Tables, cost: StepCost) -> Record:
    """Rates, acceptance and step times of the window."""
    steps = in_window(tables)
    window = tables.window[1] - tables.window[0]
    total = {name: sum(each[name] for each in steps) for name in steps[0]}
    rounds, verified, accepted = total["drafting_rows"], total["verified"], total["accepted"]
    executed, asked = total["executed_tokens"], total["batch_tokens"]
    # Without graphs there is no capture limit that a step could pass.
    limit = max(cost.profile.captured_sizes, default=math.inf)
    durations = [each["step_seconds"] for each in steps]
    return {
        "throughput_tok_s_gpu": total["emitted"] / window / cost.gpus,
        "mean_rows": sum(each["rows"] * each["step_seconds"] for each in steps) / window,
        "window_s": window,
        "steps": len(steps),
        "accepted_length": 1 + (accepted / rounds if rounds else 0.0),
        "verify_budget": 1 + verified / total["rows"],
        "rejected_per_step": ratio(verified - accepted, rounds),
        "accepted_per_verified": ratio(accepted, verified),
        "accepted_per_verified_with_anchor": ratio(accepted + rounds, verified + rounds),
        "accepted_per_drafted": ratio(accepted, total["drafted"]),
        "acceptance_ceiling": ratio(total["acceptable"], total["drafted"]),
        "truncated_tokens": accepted + total["rows"] - total["emitted"],
        "padded_fraction": (executed - asked) / executed,
        "batch_tokens_max": max(each["batch_tokens"] for each in steps),
        "eager_fraction": sum(each["batch_tokens"] > limit for each in steps) / len(steps),
        "step_p50_s": percentile(durations, 0.5),
        "step_p99_s": percentile(durations, 0.99),
        "regret": regret(steps, cost),
    }


def regret(steps: list[Record], cost: StepCost) -> float | None:
    """How far the steps stay behind the best that could have been done on their drafts."""
    if not any(each["drafted"] for each in steps):
        return None
    lost = 0.0
    for each in steps:
        rows, table = each["rows"], cost.table(each["rows"]).tolist()
        reach = range(each["acceptable"] + 1)
        best = max((rows + n) / (table[rows + n] + each["context_seconds"]) for n in reach)
        realised = (rows + each["accepted"]) / each["step_seconds"]
        lost += (1 - realised / best) * each["step_seconds"]
    return ratio(lost, sum(each["step_seconds"] for each in steps))


def cohort_metrics(tables: Tables, sla: Sla) -> Record:
    """Latencies and decode speeds of the cohort."""
    cohort = [each for each in tables.requests if each["cohort"]]
    decoded = [each for each in cohort if each["output_tokens"] > 1]
    tokens = [each["output_tokens"] - 1 for each in decoded]
    spans = [each["last_token_s"] - each["first_token_s"] for each in decoded]
    speeds = [count / span for count, span in zip(tokens, spans, strict=True)]
    tpot = [span / count for count, span in zip(tokens, spans, strict=True)]
    ttft = [each["ready_s"] - each["arrival_s"] for each in cohort] if tables.with_prefill else []
    return {
        "interactivity_tok_s_user": ratio(sum(tokens), sum(spans)),
        "interactivity_mean": ratio(sum(speeds), len(speeds)),
        "interactivity_p50": percentile(speeds, 0.5),
        "interactivity_p10": percentile(speeds, 0.1),
        "requests": len(cohort),
        "requests_of_one_token": len(cohort) - len(decoded),
        "ttft_p50_s": percentile(ttft, 0.5),
        "ttft_p99_s": percentile(ttft, 0.99),
        "tpot_p50_s": percentile(tpot, 0.5),
        "tpot_p99_s": percentile(tpot, 0.99),
        "wait_p99_s": percentile([each["admitted_s"] - reached(each) for each in cohort], 0.99),
        "goodput_req_s": goodput(cohort, sla, tables),
    }


def goodput(cohort: list[Record], sla: Sla, tables: Tables) -> float | None:
    """The share of requests that meet every bound, times the rate of admissions (N - 1 gaps in the window)."""
    if sla.ttft_s is None and sla.tpot_s is None:
        return None
    good = 0
    for each in cohort:
        late = tables.with_prefill and sla.ttft_s is not None and each["ready_s"] - each["arrival_s"] > sla.ttft_s
        span, tokens = each["last_token_s"] - each["first_token_s"], each["output_tokens"] - 1
        slow = sla.tpot_s is not None and tokens > 0 and span / tokens > sla.tpot_s
        good += not late and not slow
    return good / len(cohort) * (len(cohort) - 1) / (tables.window[1] - tables.window[0])


def metrics(tables: Tables, cost: StepCost, sla: Sla) -> Record:
    """Every column of docs/metrics.md that follows from one run."""
    return window_metrics(tables, cost) | cohort_metrics(tables, sla)
