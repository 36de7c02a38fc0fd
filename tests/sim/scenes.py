"""Small scenarios for engine tests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from specsched.policies import Policy, build_policy
from specsched.sim.cost import StepCost
from specsched.sim.drafts import make_draft_model
from specsched.sim.profile_schema import Profile, profile_from_samples
from specsched.sim.requests import Requests
from specsched.sim.scenario import Scenario


def sloped_profile(most: int = 4096, gpus: int = 1, **fields: Any) -> Profile:
    """5 ms and 10 us a token, eager, drafting 1 ms and 2 us a row."""
    sizes = sorted({*range(1, 65), 128, 256, 512, 1024, 2048, most})
    return profile_from_samples(
        "sloped",
        sizes,
        [0.005 + 1e-5 * size for size in sizes],
        draft={1: 0.001, 512: 0.001 + 2e-6 * 511},
        gpus=gpus,
        **fields,
    )


def requests(output: int | Iterable[int], count: int = 1000, prompt: int = 100, **fields: Any) -> Requests:
    """Equal or listed output lengths."""
    lengths = np.full(count, output) if isinstance(output, int) else np.array(list(output))
    return Requests(
        prompt_tokens=np.full(len(lengths), prompt),
        output_tokens=lengths.astype(np.int64),
        domain=np.zeros(len(lengths), np.int64),
        domains=("chat",),
        arrival_s=fields.get("arrival_s"),
        name=np.arange(len(lengths)),
    )


def scenario(policy: dict[str, Any] | Policy, acceptance: float = 0.8, gamma: int = 7, **fields: Any) -> Scenario:
    """A closed loop of constant acceptance unless said otherwise."""
    built = policy if isinstance(policy, Policy) else build_policy(policy, unsafe=True)
    profile = fields.pop("profile", None) or sloped_profile()
    seed = fields.pop("seed", 0)
    unsafe = fields.pop("unsafe", True)
    stall = fields.pop("stall", None)
    drafts = fields.pop("drafts", None) or make_draft_model(
        {"kind": "constant", "acceptance": acceptance, "gamma": gamma}, seed
    )
    return Scenario(
        policy=built,
        cost=StepCost(profile, drafts=built.drafts, sync_stall_seconds=stall),
        drafts=drafts,
        requests=fields.pop("requests", None) or requests(200),
        seed=seed,
        unsafe=unsafe,
        **fields,
    )
