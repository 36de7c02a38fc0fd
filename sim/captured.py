"""A machine with fewer captured graphs than its profile has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from .profile_schema import Profile, ProfileError

CapturedSizes = Literal["all", "powers_of_two"] | Mapping[str, int] | Sequence[int]


def with_captured_sizes(profile: Profile, sizes: CapturedSizes) -> Profile:
    """Return the profile with only some of its captured graphs.

    The samples stay: a step of a size whose graph is gone runs and pays for the next captured one. Lookups other than
    ``ceil`` read samples and feel nothing of it, except in how much they pad.

    Args:
        profile: what was timed.
        sizes: ``all``; ``powers_of_two`` or ``{"multiples_of": n}``, and the largest, whatever it is; or the sizes that
            stay, ascending.

    Raises:
        ProfileError: if a size has no graph in the profile, or the largest is left out. Above the largest graph steps
            run without, and the profile has no such samples below its own capture limit.
    """
    if sizes == "all":
        return profile
    captured = profile.captured_sizes
    if not captured:
        raise ProfileError(f"profile `{profile.name}` has no captured sizes to choose from; use `captured_sizes: all`")
    if isinstance(sizes, str):
        kept = tuple(size for size in captured if size & (size - 1) == 0 or size == captured[-1])
    elif isinstance(sizes, Mapping):
        kept = tuple(size for size in captured if size % sizes["multiples_of"] == 0 or size == captured[-1])
    else:
        kept = tuple(sizes)
        _check(profile, kept)
    # Not validated again: sizes that ascend and have samples still do with some of them left out.
    return profile.model_copy(update={"captured_sizes": kept})


def _check(profile: Profile, kept: tuple[int, ...]) -> None:
    captured = profile.captured_sizes
    where = f"`captured_sizes` on profile `{profile.name}`"
    for before, after in zip((0, *kept), kept, strict=False):
        if after <= before:
            raise ProfileError(f"{where} must ascend from 1 without repeats, got {after} after {before}; sort them")
        if after not in captured:
            near = min(captured, key=lambda size: abs(size - after))
            raise ProfileError(f"{where}: {after} has no captured graph; the nearest that has is {near}")
    if captured[-1] not in kept:
        raise ProfileError(
            f"{where} must hold the largest, {captured[-1]}: the profile does not say what steps below it cost "
            "without graphs"
        )
