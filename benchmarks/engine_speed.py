"""Speed of the step loop: requests a wall second on a trace, steps a second by rows, peak memory.

    python benchmarks/engine_speed.py TRACE [--repeats 5]

TRACE is a request trace (the common workload is 2,000 conversation requests with Poisson arrivals at 4/s). Profile
vllm-dsv4flash-b300-tp4, domain chat, gamma 7, records of steps and requests on; the loop is timed after imports, the
best of the repeats is quoted beside the median. The "user" rows run policies written against the public view, the
guide's example and a whole scheduler in NumPy calls (which themselves take most of its time); all lengths are checked
at every step.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from specsched.policies import LaggedBudget, LaggedView, Policy, build_policy
from specsched.sim.cost import StepCost
from specsched.sim.drafts import make_draft_model
from specsched.sim.engine import Scenario, run
from specsched.sim.profile import load_profile
from specsched.sim.requests import Requests
from specsched.traces import read_trace


@dataclass(frozen=True)
class CountLikely(LaggedBudget):
    """The guide's example: as many drafts as were likely to survive one generation ago."""

    lag: int | None = 1
    at_least: float = 0.3

    def budget(self, view: LaggedView, state: Any) -> tuple[int, Any]:
        likely = int((view.lagged.survival >= self.at_least).sum())
        return min(likely, view.drafted), state


@dataclass(frozen=True)
class Outsider(LaggedBudget):
    """A whole scheduler by a user, in NumPy: argmax of expected tokens a second, two generations old."""

    lag: int | None = 2

    def budget(self, view: LaggedView, state: Any) -> tuple[int, Any]:
        lagged = view.lagged
        expected = np.where(lagged.known[:, None], lagged.survival, 1.0)
        exists = np.arange(expected.shape[1]) < view.available[:, None]
        best = np.sort(expected[exists])[::-1]
        tokens = view.rows + np.concatenate(([0.0], np.cumsum(best)))
        return int(np.argmax(tokens / view.seconds(len(best)))), state


def timed(scenario: Scenario, repeats: int) -> tuple[float, float, int]:
    """Return (best, median) wall seconds and steps."""
    seconds = []
    for _ in range(repeats):
        begun = time.perf_counter()
        outcome = run(scenario)
        seconds.append(time.perf_counter() - begun)
    return min(seconds), statistics.median(seconds), len(outcome.steps)


def scenario(policy: Policy, requests: Requests, **fields: Any) -> Scenario:
    profile = load_profile("vllm-dsv4flash-b300-tp4")
    drafts = make_draft_model({"kind": "latent", "profile": "dspark-qwen3-4b", "gamma": 7}, 0)
    return Scenario(policy, StepCost(profile), drafts, requests, **fields)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    requests = Requests.from_table(read_trace(options.trace), {"chat": 1.0})
    shipped = build_policy({"kind": "async_topk", "lag": 2})
    policies = {"async_topk lag 2": shipped, "user: guide's example": CountLikely(), "user: numpy argmax": Outsider()}
    for name, policy in policies.items():
        best, median, steps = timed(scenario(policy, requests, mode="open", concurrency=256), options.repeats)
        print(f"{name:24s} {len(requests) / best:7.0f} requests/s, median {len(requests) / median:.0f}; {steps} steps")
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")
    for rows in (16, 64, 256):
        best, median, steps = timed(scenario(shipped, requests, concurrency=rows), options.repeats)
        print(f"closed loop, {rows:3d} rows        {steps / best:7.0f} steps/s best, {steps / median:7.0f} median")


if __name__ == "__main__":
    main()
