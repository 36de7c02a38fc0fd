"""What a policy returned, checked before a step runs on it."""

from __future__ import annotations

from operator import le
from typing import Any

import numpy as np

from .arrays import Ints
from .interface import Policy, PolicyError, View
from .problems import describe

_FEW = 32
_INT64 = np.dtype(np.int64)


def policy_name(policy: Policy) -> str:
    """Return the YAML kind of a policy, or its class name."""
    return policy.kind or type(policy).__name__


def check_policy(policy: Policy, gamma: int) -> None:
    """Check what a policy class declares before a run relies on it.

    Raises:
        PolicyError: for a lag that is no whole number of at least 0 (or None), an unknown safety, or a longest
            length outside ``0..gamma``.
    """
    name, lag = policy_name(policy), policy.lag
    if lag is not None and (isinstance(lag, bool) or not isinstance(lag, int) or lag < 0):
        raise PolicyError(f"policy `{name}`: `lag` must be a whole number of at least 0, or None, got {lag!r}")
    if policy.safety not in ("safe", "unsafe", "unknown"):
        raise PolicyError(f"policy `{name}`: `safety` must be safe, unsafe or unknown, got {policy.safety!r}")
    longest = policy.longest(gamma)
    if isinstance(longest, bool) or not isinstance(longest, int) or not 0 <= longest <= gamma:
        raise PolicyError(f"policy `{name}`: `longest({gamma})` must be a whole number in 0..{gamma}, got {longest!r}")


def start_state(policy: Policy) -> Any:
    """Return the policy's first state; raises PolicyError if it cannot make one."""
    try:
        return policy.start()
    except (Exception, SystemExit) as error:
        raise PolicyError(f"policy `{policy_name(policy)}` failed to start: {describe(error)}") from error


def check_lengths(lengths: Any, available: Ints, policy: Policy, step: int, requests: Ints) -> tuple[Ints, int]:
    """Return verify lengths as int64 ``[R]`` and their sum if a step can execute them.

    Raises:
        PolicyError: naming policy, step and row, unless they are whole numbers of shape ``[R]`` with
            ``0 <= lengths <= available``.
    """
    if type(lengths) is not np.ndarray or lengths.dtype.kind not in "iu" or lengths.shape != available.shape:
        raise PolicyError(_wrong_kind(lengths, available, policy, step))
    if 0 < len(lengths) < _FEW:
        values, most = lengths.tolist(), available.tolist()
        verified = sum(values)
        # Where all rows have as many drafts, the extremes tell all.
        fits = min(values) >= 0 and (max(values) <= min(most) or all(map(le, values, most)))
    else:
        verified = int(lengths.sum())
        fits = bool((lengths <= available).all() and (lengths >= 0).all())
    if not fits:
        raise PolicyError(_out_of_bounds(lengths, available, policy, step, requests))
    return (lengths if lengths.dtype is _INT64 else lengths.astype(np.int64)), verified


def _out_of_bounds(lengths: Ints, available: Ints, policy: Policy, step: int, requests: Ints) -> str:
    """Describe the first length that is negative or over what its row has."""
    row = int(np.flatnonzero((lengths > available) | (lengths < 0))[0])
    return (
        f"policy `{policy_name(policy)}` at step {step}, row {row} (request {int(requests[row])}): length must be "
        f"within 0..{int(available[row])} (drafts available), got {int(lengths[row])}; clip to `view.available`"
    )


def _wrong_kind(lengths: Any, available: Ints, policy: Policy, step: int) -> str:
    """Describe a value that is no array of whole numbers, one per row."""
    where = f"policy `{policy_name(policy)}` at step {step}: lengths must be"
    if type(lengths) is not np.ndarray:
        return f"{where} a numpy array of whole numbers, got {type(lengths).__name__}; return np.array(.., np.int64)"
    if lengths.shape != available.shape:
        return f"{where} of shape ({len(available)},), one per row, got {lengths.shape}"
    if not len(lengths):
        return f"{where} whole numbers, got an empty array of {lengths.dtype}; return np.zeros(0, np.int64)"
    bad = ~np.equal(np.mod(lengths, 1), 0) if lengths.dtype.kind == "f" else np.ones(lengths.shape, np.bool_)
    row = int(np.argmax(bad))
    return f"{where} whole numbers, got dtype {lengths.dtype} (row {row}: {lengths[row]}); return .astype(np.int64)"


def failed(policy: Policy, step: int, rows: int, error: BaseException) -> PolicyError:
    """Return the error that tells of a plan that raised."""
    what = str(error) if isinstance(error, PolicyError) else describe(error)
    return PolicyError(f"policy `{policy_name(policy)}` failed at step {step} ({rows} rows): {what}")


def unpacked(answer: Any, policy: Policy, step: int) -> tuple[Any, Any]:
    """Return lengths, yet unchecked, and state of a plan; raises PolicyError if it is no pair."""
    if type(answer) is not tuple or len(answer) != 2:
        raise PolicyError(
            f"policy `{policy_name(policy)}` at step {step}: plan must return (lengths, state), got "
            f"{type(answer).__name__}; add the state, None if there is none"
        )
    return answer


def ask(policy: Policy, view: View, state: Any) -> tuple[Ints, Any]:
    """Return the policy's verify lengths, int64 ``[R]``, and its next state, both checked.

    Raises:
        PolicyError: naming policy and step, if ``plan`` fails or returns what a step cannot execute.
    """
    try:
        answer = policy.plan(view, state)
    except (Exception, SystemExit) as error:
        raise failed(policy, view.step, view.rows, error) from error
    lengths, state = unpacked(answer, policy, view.step)
    return check_lengths(lengths, view.available, policy, view.step, view.requests)[0], state
