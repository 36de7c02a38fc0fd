"""The step-cost profile file: one schema for measured, composed and analytic step times.

A profile holds raw samples, not a fit. `docs/profiles.md` describes every field.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ..policies import did_you_mean

Source = Literal["measured", "composed", "analytic"]
PartSource = Literal["measured", "composed", "analytic", "assumed"]
Count = Annotated[int, Field(ge=1)]
Tokens = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
SecondsOrZero = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Text = Annotated[str, Field(min_length=1)]

_VLLM_EVERY_16_FROM = 256


class ProfileError(ValueError):
    """A profile cannot be found or read, breaks a rule, or has no sample for what is asked of it."""


class FlatProfileWarning(UserWarning):
    """Every batch size costs the same, so a scheduler that maximizes tokens per second verifies everything."""


class _Part(BaseModel):
    # Strict: a time given as text, or tokens given as 8.0, is a mistake in the file, not a number to be guessed.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class VerifySamples(_Part):
    """Raw step times of the target model, one entry a sample, several samples a size.

    Attributes:
        tokens: batch tokens of each sample (anchors, drafts and prefill tokens of the step together).
        seconds: its duration.
        rows: requests in the batch of each sample, if known.
        context: context tokens of each row of the sample, if known.
        extrapolated_from: samples of at least this many tokens are extrapolations; None if there are none.
    """

    tokens: Annotated[tuple[Count, ...], Field(min_length=1)]
    seconds: tuple[Seconds, ...]
    rows: tuple[Count, ...] | None = None
    context: tuple[Tokens, ...] | None = None
    extrapolated_from: Count | None = None

    @model_validator(mode="after")
    def _aligned(self) -> Self:
        for name in ("seconds", "rows", "context"):
            _same_length(name, getattr(self, name), "tokens", self.tokens)
        return self


class DraftSamples(_Part):
    """What drafting one block for every row costs, by number of rows. It belongs to the named drafter.

    Attributes:
        drafter: name of the draft model.
        layers: its decoder layers, if known.
        gamma: drafts in a block; the whole block is paid for whatever is verified.
        rows: requests of each sample.
        seconds: its duration.
        source: whether the times were measured or assumed.
        note: where they come from, or the reasoning behind the assumption.
    """

    drafter: Text
    layers: Count | None
    gamma: Count
    rows: Annotated[tuple[Count, ...], Field(min_length=1)]
    seconds: tuple[Seconds, ...]
    source: Literal["measured", "assumed"]
    note: Text

    @model_validator(mode="after")
    def _aligned(self) -> Self:
        _same_length("seconds", self.seconds, "rows", self.rows)
        return self


class ContextCost(_Part):
    """How a step grows with the context of its rows.

    Attributes:
        reference_tokens: context of each row to which the verify curve refers.
        seconds_per_token: seconds for one more context token in one row; None if unknown (the term is then 0).
        source: where the slope comes from.
        note: the same in words.
    """

    reference_tokens: Tokens
    seconds_per_token: SecondsOrZero | None
    source: PartSource
    note: Text


class HostCost(_Part):
    """Time outside the GPU's kernels.

    Attributes:
        seconds: added to every step.
        sync_stall_seconds: charged to a policy whose batch size waits for this step's confidences.
        source: where both come from.
        note: the same in words.
    """

    seconds: SecondsOrZero
    sync_stall_seconds: SecondsOrZero
    source: PartSource
    note: Text


class Profile(_Part):
    """A step-cost profile, as read from its JSON file.

    Attributes:
        schema_version: version of this schema.
        name: what ``hardware.profile`` in a scenario says.
        source: ``measured`` step times, ``composed`` from kernel times, or ``analytic`` (a formula).
        hardware: the accelerator and how many.
        gpus: number of GPUs that run a step; throughput is reported per GPU.
        model: the target model.
        versions: software versions by name.
        provenance: lines that say where every number comes from.
        verify: raw samples of the target model's step.
        captured_sizes: batch sizes with a captured graph, ascending; empty without graphs.
        draft: what drafting costs; None if unknown.
        context: what context length costs.
        host: what the host costs.
        sla_anchors: tokens a second and user at which frontiers on this profile are read by default.
    """

    schema_version: Literal[1]
    name: Text
    source: Source
    hardware: Text
    gpus: Count
    model: Text
    versions: dict[str, str]
    provenance: Annotated[tuple[Text, ...], Field(min_length=1)]
    verify: VerifySamples
    captured_sizes: tuple[Count, ...]
    draft: DraftSamples | None
    context: ContextCost
    host: HostCost
    sla_anchors: Annotated[tuple[Seconds, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _captured(self) -> Self:
        sizes = self.captured_sizes
        # Lookups search these by bisection.
        unordered = [b for a, b in itertools.pairwise(sizes) if b <= a]
        if unordered:
            raise ValueError(
                f"`captured_sizes` must ascend without repeats, got {unordered[0]} out of order; sort them"
            )
        missing = sorted(set(sizes) - set(self.verify.tokens))
        if missing:
            raise ValueError(
                f"captured size {missing[0]} has no sample in `verify.tokens` ({len(missing)} such sizes); "
                "measure it or take it out of `captured_sizes`"
            )
        return self


def parse_profile(text: str | bytes, where: str) -> Profile:
    """Return the profile that a JSON text describes.

    Args:
        text: the JSON document.
        where: file name for error messages.

    Raises:
        ProfileError: if the text is no JSON, a field is unknown, missing or breaks a rule.
    """
    text = _decode(text, where)
    # Ahead of pydantic, which would name no line, and take the last of two fields of one name.
    _check_syntax(text, where)
    try:
        return Profile.model_validate_json(text)
    except ValidationError as error:
        raise ProfileError(_explain(error, where)) from None


def profile_from_samples(
    name: str,
    tokens: Sequence[int],
    seconds: Sequence[float],
    captured_sizes: Sequence[int] = (),
    draft: Mapping[int, float] | None = None,
    **fields: Any,
) -> Profile:
    """Return a profile from step times at hand, with every other field at a neutral default.

    Args:
        name: name of the profile.
        tokens: batch tokens of each sample.
        seconds: duration of each sample.
        captured_sizes: batch sizes with a captured graph.
        draft: seconds of drafting by number of rows; None if the profile is not for drafting arms.
        fields: further fields of the schema, replacing the defaults.

    Raises:
        ProfileError: if a field breaks a rule.
    """
    data: dict[str, Any] = {
        "schema_version": 1,
        "name": name,
        "source": "measured",
        "hardware": "unnamed",
        "gpus": 1,
        "model": "unnamed",
        "versions": {},
        "provenance": ["step times given by the caller"],
        "verify": {"tokens": [int(n) for n in tokens], "seconds": [float(s) for s in seconds]},
        "captured_sizes": [int(n) for n in captured_sizes],
        "draft": _draft_fields(draft),
        "context": {"reference_tokens": 0, "seconds_per_token": None, "source": "assumed", "note": "unknown"},
        "host": {"seconds": 0.0, "sync_stall_seconds": 0.0, "source": "assumed", "note": "not modelled"},
        "sla_anchors": [50.0],
    }
    # By way of the text, so that a profile made in code obeys every rule of one from a file.
    return parse_profile(json.dumps(data | fields), f"profile `{name}`")


def default_captured_sizes(limit: int) -> list[int]:
    """Return vLLM's default graph sizes up to ``limit``: 1, 2, 4, every 8 below 256, every 16 from there."""
    sizes = [1, 2, 4, *range(8, _VLLM_EVERY_16_FROM, 8), *range(_VLLM_EVERY_16_FROM, limit + 1, 16)]
    return [size for size in sizes if size <= limit]


def _draft_fields(draft: Mapping[int, float] | None) -> dict[str, Any] | None:
    if draft is None:
        return None
    return {
        "drafter": "unnamed",
        "layers": None,
        "gamma": 7,
        "rows": [int(rows) for rows in draft],
        "seconds": [float(seconds) for seconds in draft.values()],
        "source": "assumed",
        "note": "given by the caller",
    }


def _same_length(name: str, values: Sequence[float] | None, other: str, others: Sequence[float]) -> None:
    if values is not None and len(values) != len(others):
        raise ValueError(
            f"`{name}` must hold one entry for each of `{other}` ({len(others)}), got {len(values)}; "
            "add the missing entries or take out the extra ones"
        )


def _decode(text: str | bytes, where: str) -> str:
    try:
        return text if isinstance(text, str) else text.decode("utf-8")
    except UnicodeDecodeError:
        raise ProfileError(f"{where}: not UTF-8 text; a profile is one JSON object") from None


def _check_syntax(text: str, where: str) -> None:
    try:
        json.loads(text, object_pairs_hook=_refuse_duplicates)
    except json.JSONDecodeError as error:
        raise ProfileError(
            f"{where}, line {error.lineno}: not valid JSON ({error.msg}); a profile is one JSON object"
        ) from None
    except _DuplicateField as error:
        raise ProfileError(f"{where}: field `{error}` is given twice; keep one of them") from None


class _DuplicateField(Exception):
    pass


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        raise _DuplicateField(next(name for name in names if names.count(name) > 1))
    return fields


def _explain(error: ValidationError, where: str) -> str:
    problems = error.errors(include_url=False)
    # One at a time: the others are often its consequences.
    first = problems[0]
    more = f" ({len(problems)} problems in all)" if len(problems) > 1 else ""
    return f"{where}: {_problem(first['type'], first['loc'], first['msg'], first['input'])}{more}"


def _problem(kind: str, path: tuple[int | str, ...], message: str, value: object) -> str:
    field = _field(path)
    if not field and kind == "model_type":
        return "a profile is one JSON object, got another value; see docs/profiles.md"
    if kind == "missing":
        return f"field `{field}` is missing; add it (docs/profiles.md describes it)"
    if kind == "extra_forbidden":
        return f"unknown field `{field}`; {_nearest_field(str(path[-1]))}"
    if kind == "value_error":
        inside = f"`{field}`: " if field else ""
        return inside + message.removeprefix("Value error, ")
    shown = "NaN" if isinstance(value, float) and math.isnan(value) else json.dumps(value, default=str)
    rule = message[0].lower() + message[1:]
    return f"field `{field}`: {rule}, got {shown[:60]}; correct the value or take the sample out"


def _field(path: tuple[int | str, ...]) -> str:
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in path]
    return "".join(parts).removeprefix(".")


def _nearest_field(name: str) -> str:
    models: tuple[type[BaseModel], ...] = (Profile, VerifySamples, DraftSamples, ContextCost, HostCost)
    # Of all parts: a field is as easily put in the wrong place as misspelt.
    known = sorted({field for model in models for field in model.model_fields})
    return did_you_mean(name, known) or "take it out"
