"""The trace formats that can be read, and how each writes time and lengths.

Sources: Azure Public Dataset (https://github.com/Azure/AzurePublicDataset), Vidur
(https://github.com/microsoft/vidur), Mooncake (https://github.com/kvcache-ai/Mooncake).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, get_args

import polars as pl

from .table import OPTIONAL, TraceError

Container = Literal["CSV", "JSON lines", "parquet"]

SECONDS_RULE = "a finite number of seconds >= 0"
MILLISECONDS_RULE = "a finite number of milliseconds >= 0"
DATE_RULE = "a date and time such as 2023-11-16 18:15:46.6805900 (years 1900 to 2099, at most 9 fractional digits)"

TAKEN_OVER = ("request_id", *OPTIONAL)
"""Canonical columns that a file may have beside the three it needs."""

_DATE = (
    r"^((?:19|20)[0-9]{2}-[0-9]{2}-[0-9]{2})[ T]([0-9]{2}:[0-9]{2}:[0-9]{2})"
    r"(?:\.([0-9]{1,9}))?(?:Z|([+-])([0-9]{2}):?([0-9]{2}))?$"
)


@dataclass(frozen=True)
class TraceFormat:
    """One trace format: where its columns are and what its times mean.

    One of your own goes to `read_trace`, or by ``module:NAME`` into `workload.format` of an experiment file or behind
    ``specsched traces show --format``.

    Attributes:
        name: what messages call it.
        container: how the rows are stored.
        arrival, prompt, output: the names of the three columns a trace needs.
        ticks: turns the arrival column, String ``[n]``, into numbers ``[n]`` of one unit; null where it cannot be
            read. Integers keep times exact that a float of seconds since 1970 would round. In JSON lines a string
            comes in its quotes, so that it does not pass for a number. A parquet file's arrivals must be numbers, and
            are taken as they are. `plain_number` and `date_nanoseconds` are two to choose from.
        ticks_per_s: that unit.
        time_rule: the rule ``ticks`` keeps, in words, for the error message.
        also: further canonical columns (``request_id``, ``domain``, ``session_id``) that are taken over where the
            file has them.
        foreign: columns that mark another format with the same names, and why it cannot be read.

    Raises:
        TraceError: for a container that there is not, a column that is no name, or a unit that is not above 0.
    """

    name: str
    container: Container
    arrival: str
    prompt: str
    output: str
    ticks: Callable[[pl.Series], pl.Series]
    ticks_per_s: float
    time_rule: str
    also: tuple[str, ...] = ()
    foreign: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.container not in get_args(Container):
            raise self._refusal("container", f"one of {', '.join(get_args(Container))}", self.container)
        for name in ("name", "arrival", "prompt", "output", "time_rule"):
            value = getattr(self, name)
            if not isinstance(value, str) or not value:
                raise self._refusal(name, "a text that is not empty", value)
        if not callable(self.ticks):
            raise self._refusal("ticks", "a function from a column of text to a column of numbers", self.ticks)
        number = isinstance(self.ticks_per_s, int | float) and not isinstance(self.ticks_per_s, bool)
        if not number or not 0 < self.ticks_per_s < float("inf"):
            raise self._refusal("ticks_per_s", "a finite number above 0", self.ticks_per_s)
        unknown = [name for name in self.also if name not in TAKEN_OVER]
        if unknown:
            raise self._refusal("also", f"a tuple of names among {', '.join(TAKEN_OVER)}", unknown[0])

    def _refusal(self, name: str, rule: str, value: object) -> TraceError:
        return TraceError(f"trace format `{self.name}`: `{name}` must be {rule}, got {value!r}")

    @property
    def needs(self) -> tuple[str, str, str]:
        """The three columns a file of this format must have."""
        return (self.arrival, self.prompt, self.output)


def plain_number(text: pl.Series) -> pl.Series:
    """Return Float64, null where the text is not a number ("nan" and "inf" are numbers here)."""
    return text.cast(pl.Float64, strict=False)


def date_nanoseconds(text: pl.Series) -> pl.Series:
    """Return Int64 nanoseconds since 1970 (UTC unless an offset is written), null where the text is no date.

    Fractions of up to nine digits are kept exactly; Azure writes seven, which a float of seconds since 1970 or a
    parser for microseconds would lose.
    """
    parts = pl.col("text").str.extract_groups(_DATE).struct
    base = pl.concat_str([parts.field("1"), parts.field("2")], separator=" ")
    second = base.str.to_datetime("%Y-%m-%d %H:%M:%S", time_unit="us", strict=False).dt.epoch("s")
    fraction = parts.field("3").fill_null("").str.pad_end(9, "0").cast(pl.Int64)
    minutes = parts.field("5").cast(pl.Int64) * 60 + parts.field("6").cast(pl.Int64)
    east = pl.when(parts.field("4") == "-").then(-minutes).otherwise(minutes).fill_null(0)
    ticks = (second - east * 60) * 1_000_000_000 + fraction
    return pl.DataFrame({"text": text}).select(ticks).to_series()


AZURE = TraceFormat(
    name="Azure CSV",
    container="CSV",
    arrival="TIMESTAMP",
    prompt="ContextTokens",
    output="GeneratedTokens",
    ticks=date_nanoseconds,
    ticks_per_s=1e9,
    time_rule=DATE_RULE,
)
VIDUR = TraceFormat(
    name="Vidur CSV",
    container="CSV",
    arrival="arrived_at",
    prompt="num_prefill_tokens",
    output="num_decode_tokens",
    ticks=plain_number,
    ticks_per_s=1.0,
    time_rule=SECONDS_RULE,
)
MOONCAKE = TraceFormat(
    name="Mooncake JSON lines",
    container="JSON lines",
    arrival="timestamp",
    prompt="input_length",
    output="output_length",
    ticks=plain_number,
    ticks_per_s=1e3,
    time_rule=MILLISECONDS_RULE,
    # Qwen-Bailian traces share these names but count seconds: read as Mooncake they would be 1,000 times too fast.
    foreign={"chat_id": "it marks a Qwen-Bailian trace, whose timestamps are seconds, not milliseconds"},
)
SPECSCHED_CSV = TraceFormat(
    name="specsched CSV",
    container="CSV",
    arrival="arrival_s",
    prompt="prompt_tokens",
    output="output_tokens",
    ticks=plain_number,
    ticks_per_s=1.0,
    time_rule=SECONDS_RULE,
    also=TAKEN_OVER,
)
SPECSCHED_PARQUET = TraceFormat(
    name="specsched parquet",
    container="parquet",
    arrival="arrival_s",
    prompt="prompt_tokens",
    output="output_tokens",
    ticks=plain_number,
    ticks_per_s=1.0,
    time_rule=SECONDS_RULE,
    also=TAKEN_OVER,
)
NAMED_FORMATS: dict[str, tuple[TraceFormat, ...]] = {
    "azure": (AZURE,),
    "vidur": (VIDUR,),
    "mooncake": (MOONCAKE,),
    "specsched": (SPECSCHED_CSV, SPECSCHED_PARQUET),
}
"""The formats by the names that experiment files and the command line use."""

FORMATS = tuple(kind for kinds in NAMED_FORMATS.values() for kind in kinds)
"""The formats that are recognised; `read_trace` takes others too."""
