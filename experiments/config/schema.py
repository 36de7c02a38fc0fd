"""What an experiment file may say: types, units, bounds and defaults of every key.

``docs/scenario.md`` explains each key. Values are taken as they are: a word is never read as a number, an unknown key
is an error, and no value is clamped.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    ConfigDict,
    Discriminator,
    Field,
    SerializerFunctionWrapHandler,
    Tag,
    field_serializer,
    field_validator,
    model_serializer,
    model_validator,
)

from ...sim import metrics
from .schema_tune import Tune
from .section import Count, NotNegative, Positive, Probability, Section, Seed, misfit, without_repeats

Mix = Annotated[dict[str, Positive], Field(min_length=1)]
Figure = Literal["frontier", "load", "threshold", "transient"]
Records = Literal["steps", "requests", "rows"]
Lookup = Literal["ceil", "linear", "floor"]


class FixedLengths(Section):
    """All requests alike, in tokens."""

    prompt: Count
    output: Count


def _lengths_kind(value: Any) -> str:
    return "fixed" if isinstance(value, dict | FixedLengths) else "table"


class TraceArrivals(Section):
    """The arrival times of the trace file."""

    kind: Literal["trace"]


class PoissonArrivals(Section):
    """Independent arrivals at the rate of `sweep.load`."""

    kind: Literal["poisson"]


class GammaArrivals(Section):
    """Bursty arrivals: gamma-distributed gaps whose standard deviation is ``cv`` means."""

    kind: Literal["gamma"]
    cv: Positive


class FlashArrivals(Section):
    """A flash crowd: Poisson at the rate of `sweep.load`, and ``peak`` times that for ``seconds`` from ``start_s``."""

    kind: Literal["flash"]
    peak: Positive
    start_s: NotNegative
    seconds: Positive


class WaveArrivals(Section):
    """Waves of joins: ``share`` of the requests come ``size`` at a time, evenly spaced; the others are Poisson."""

    kind: Literal["waves"]
    size: Count
    share: Annotated[float, Field(gt=0, le=1)] = 1.0


class Window(Section):
    """The part of a trace file that is used: seconds from its start, and at most ``limit`` requests of it."""

    start_s: NotNegative | None = None
    end_s: Positive | None = None
    limit: Count | None = None

    @model_validator(mode="after")
    def _ordered(self) -> Window:
        if self.end_s is not None and self.end_s <= (self.start_s or 0.0):
            raise misfit("end_s", f"must be greater than start_s {self.start_s or 0.0:g}, got {self.end_s:g}")
        return self


class PythonFormat(Section):
    """A trace format of the user's own: an object, ``module:NAME``."""

    kind: Literal["python"]
    object: str


def _format_kind(value: Any) -> str:
    return "own" if isinstance(value, dict | PythonFormat) else "name"


class Workload(Section):
    """Which requests come, and how."""

    mode: Literal["closed", "open"] = "closed"
    path: str | None = None
    format: (
        Annotated[Annotated[str, Tag("name")] | Annotated[PythonFormat, Tag("own")], Discriminator(_format_kind)] | None
    ) = None
    lengths: (
        Annotated[Annotated[str, Tag("table")] | Annotated[FixedLengths, Tag("fixed")], Discriminator(_lengths_kind)]
        | None
    ) = None
    domains: Mix | None = None
    arrivals: (
        Annotated[
            TraceArrivals | PoissonArrivals | GammaArrivals | FlashArrivals | WaveArrivals, Field(discriminator="kind")
        ]
        | None
    ) = None
    window: Window | None = None
    requests: Annotated[int, Field(ge=1, le=10_000_000)] | None = None
    cohort: Annotated[int, Field(ge=2)] | None = None
    warmup: Annotated[int, Field(ge=0)] | None = None

    @model_validator(mode="after")
    def _fits_the_mode(self) -> Workload:
        if self.mode == "closed" and self.arrivals is not None:
            raise misfit("arrivals", "a closed loop admits a request when another ends; remove it or use `mode: open`")
        if self.mode == "closed" and self.requests is not None:
            raise misfit("requests", "a closed loop runs until its `cohort` has ended; set `cohort` instead")
        if self.arrivals is not None and self.arrivals.kind == "trace" and self.path is None:
            raise misfit("arrivals", "kind trace needs `workload.path`, a trace file; or use kind poisson or gamma")
        if self.window is not None and self.path is None:
            raise misfit("window", "cuts a trace file, so it needs `workload.path`; use `requests` without one")
        if self.format is not None and self.path is None:
            raise misfit(
                "format", "says how a trace file is written, so it needs `workload.path`; remove it without one"
            )
        return self

    @model_serializer(mode="wrap")
    def _format_only_where_named(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # Runs from before there was the key keep the names and the bytes that they had.
        data: dict[str, Any] = handler(self)
        return data if self.format is not None else {key: value for key, value in data.items() if key != "format"}


class MultiplesOf(Section):
    """The captured sizes that are multiples of a number."""

    multiples_of: Count


def _sizes_kind(value: Any) -> str:
    return "list" if isinstance(value, list) else "rule" if isinstance(value, dict | MultiplesOf) else "word"


class Hardware(Section):
    """What a step costs."""

    profile: Annotated[str, Field(min_length=1)]
    captured_sizes: Annotated[
        Annotated[Literal["all", "powers_of_two"], Tag("word")]
        | Annotated[MultiplesOf, Tag("rule")]
        | Annotated[Annotated[list[Count], Field(min_length=1)], Tag("list")],
        Discriminator(_sizes_kind),
    ] = "all"
    lookup: Lookup = "ceil"
    planning_lookup: Lookup | None = None
    max_num_seqs: Count = 256
    sync_stall_seconds: NotNegative | None = None
    noise_cv: NotNegative = 0.0


class NoPrefill(Section):
    """Requests enter decode with their first token; no time to first token is reported."""

    kind: Literal["none"] = "none"


class DisaggregatedPrefill(Section):
    """A stage of its own before decode: ``slots`` requests at a time, each at ``tokens_per_s``."""

    kind: Literal["disaggregated"]
    tokens_per_s: Positive
    slots: Count


class LatentDrafts(Section):
    """Generated outcomes and confidences of a named drafter."""

    kind: Literal["latent"]
    profile: str
    gamma: Count | None = None
    confidence: Literal["sts", "raw"] = "sts"
    confidence_temperature: Annotated[float, Field(ge=0.1, le=10)] = 1.0


class ConstantDrafts(Section):
    """Every draft is accepted with the same probability."""

    kind: Literal["constant"]
    acceptance: Probability
    confidence: Probability | None = None
    gamma: Count = 7


class RecordedDrafts(Section):
    """Outcomes and confidences replayed from a parquet file."""

    kind: Literal["recorded"]
    path: str


class PythonDrafts(Section):
    """A draft model of the user's own: a class, ``module:Class``; its parameters are further keys."""

    model_config = ConfigDict(extra="allow")

    kind: Literal["python"]
    object: str

    @property
    def parameters(self) -> dict[str, Any]:
        """The further keys."""
        return dict(self.model_extra or {})


Prefill = Annotated[NoPrefill | DisaggregatedPrefill, Field(discriminator="kind")]
Drafts = Annotated[LatentDrafts | ConstantDrafts | RecordedDrafts | PythonDrafts, Field(discriminator="kind")]


class DraftCost(Section):
    """Drafting seconds of an arm as a multiple of the profile's, and what else they might be."""

    scale: NotNegative = 1.0
    band: Annotated[list[NotNegative], Field(min_length=2, max_length=2)] | None = None

    @model_validator(mode="after")
    def _ordered(self) -> DraftCost:
        if self.band is not None and not self.band[0] <= self.scale <= self.band[1]:
            raise misfit("band", f"must be [low, high] around the scale {self.scale:g}, got {self.band}")
        return self


class Arm(Section):
    """One competitor: a policy, and whatever it has that the others don't."""

    policy: dict[str, Any]
    drafts: Drafts | None = None
    draft_cost: DraftCost | None = None
    domains: Mix | None = None
    unsafe: bool = False


Settings = Annotated[dict[str, Any], Field(min_length=1)]
Axis = (
    Annotated[Annotated[list[Any], Field(min_length=1)], Tag("values")]
    | Annotated[Annotated[dict[str, Settings], Field(min_length=1)], Tag("cases")]
)


def _axis_kind(value: Any) -> str:
    return "cases" if isinstance(value, dict) else "values"


class Sweep(Section):
    """What is varied: the load of every arm (concurrency, or requests per second) and any other key of the file.

    Attributes:
        load: every arm runs at each of them.
        axes: a key path with a list of its values, or a name with cases, each a mapping of key paths to values. Every
            combination is run.
        repetitions: runs of each seed, each after the first with a seed of its own derived from it.
    """

    AXIS_NAME: ClassVar[str] = r"^[A-Za-z][A-Za-z0-9_.-]*$"

    load: Annotated[list[Positive], Field(min_length=1)]
    axes: dict[Annotated[str, Field(pattern=AXIS_NAME, max_length=80)], Annotated[Axis, Discriminator(_axis_kind)]] = (
        Field(default={})
    )
    repetitions: Annotated[int, Field(ge=1, le=1000)] = 1

    @field_validator("load")
    @classmethod
    def _distinct(cls, load: list[float]) -> list[float]:
        return without_repeats(load)

    @field_serializer("load")
    def _whole_loads_as_such(self, load: list[float]) -> list[int | float]:
        return [int(value) if value.is_integer() else value for value in load]


class Sla(Section):
    """The service that users are promised."""

    anchors: list[Positive] | None = None
    ttft_s: Positive | None = None
    tpot_s: Positive | None = None

    @field_validator("anchors")
    @classmethod
    def _distinct(cls, anchors: list[float] | None) -> list[float] | None:
        return anchors if anchors is None else without_repeats(anchors)

    @property
    def bounds(self) -> metrics.Sla:
        """The bounds of goodput, whether they apply or not."""
        return metrics.Sla(ttft_s=self.ttft_s, tpot_s=self.tpot_s)


class AgainstArm(Section):
    """The arm that the others are compared with, point by point."""

    arm: str


class Effect(Section):
    """How a metric changes along an axis of the sweep, relative to one of its values or to an arm.

    Attributes:
        metric: column of ``points.parquet``, a positive number.
        along: axis on the x axis; with ``load`` or ``arm`` these.
        against: value of ``along`` that the others are compared with, or another arm at the same value.
        lines: axis (or ``load``, ``arm``) with a line for each value; None draws one line.
        panels: axis (or ``load``, ``arm``) with a panel for each value; None draws one panel.
        arms: arms compared; None takes all but bounds, biased arms and the one compared against.
        where: by axis (or ``load``, ``arm``) the values whose points take part; all do where it names none.
    """

    metric: str
    along: str
    against: Annotated[
        Annotated[str | int | float | bool, Tag("value")] | Annotated[AgainstArm, Tag("arm")],
        Discriminator(lambda value: "arm" if isinstance(value, dict | AgainstArm) else "value"),
    ]
    lines: str | None = None
    panels: str | None = None
    arms: Annotated[list[str], Field(min_length=1)] | None = None
    where: dict[str, Annotated[list[str | int | float | bool], Field(min_length=1)]] = Field(default={})

    @model_validator(mode="after")
    def _apart(self) -> Effect:
        if len(set(self.named)) < len(self.named):
            raise misfit("along", "`along`, `lines` and `panels` must differ")
        return self

    @property
    def named(self) -> list[str]:
        """The axes that it tells apart."""
        return [self.along, *filter(None, (self.lines, self.panels))]


class Output(Section):
    """What a run folder holds beside the points."""

    records: list[Records] = Field(default=[])
    figures: list[Figure] = Field(default=["frontier"])
    effects: list[Effect] = Field(default=[])

    @field_validator("records", "figures")
    @classmethod
    def _distinct(cls, names: list[str]) -> list[str]:
        return without_repeats(names)

    @model_validator(mode="after")
    def _transients_need_steps(self) -> Output:
        if "transient" in self.figures and "steps" not in self.records:
            raise misfit("records", "the figure transient is drawn from steps, which must be among them")
        return self


class Experiment(Section):
    """A whole experiment file."""

    ARM_NAME: ClassVar[str] = r"^[A-Za-z0-9][A-Za-z0-9_-]*$"

    workload: Workload = Field(default_factory=Workload)
    hardware: Hardware
    prefill: Prefill = Field(default_factory=NoPrefill)
    drafts: Drafts
    arms: Annotated[dict[Annotated[str, Field(pattern=ARM_NAME, max_length=60)], Arm], Field(min_length=1)]
    sweep: Sweep
    seeds: Annotated[list[Seed], Field(min_length=1)] = Field(default=[0, 1, 2, 3, 4])
    sla: Sla = Field(default_factory=Sla)
    output: Output = Field(default_factory=Output)
    tune: Tune | None = Field(default=None, exclude=True)  # no result of a run depends on it

    @field_validator("seeds")
    @classmethod
    def _distinct(cls, seeds: list[int]) -> list[int]:
        return without_repeats(seeds)

    @model_validator(mode="after")
    def _loads_fit_the_mode(self) -> Experiment:
        for index, load in enumerate(self.sweep.load):
            if self.workload.mode == "closed" and not load.is_integer():
                raise misfit(f"sweep.load.{index}", f"a closed loop has a whole number of running requests, got {load}")
            if self.workload.mode == "closed" and load > self.hardware.max_num_seqs:
                limit = f"must not exceed hardware.max_num_seqs {self.hardware.max_num_seqs}"
                raise misfit(f"sweep.load.{index}", f"{limit} in a closed loop, got {load:g}")
        return self

    @model_validator(mode="after")
    def _bands_get_free_names(self) -> Experiment:
        for name in self.arms:
            for other in band_names(name) if _band(self.arms[name]) else ():
                if other in self.arms:
                    raise misfit(f"arms.{other}", f"the draft cost band of `{name}` makes an arm of this name")
        return self

    @property
    def with_prefill(self) -> bool:
        """Whether there is a prefill stage, without which there is no time to first token."""
        return self.prefill.kind != "none"

    @property
    def with_oracle(self) -> bool:
        """Whether an arm is the policy `oracle`, without which there is no regret."""
        return any(arm.policy["kind"] == "oracle" for arm in self.arms.values())


def band_names(name: str) -> tuple[str, str]:
    """Return the names of the arms at the low and the high end of a draft cost band."""
    return f"{name}-low", f"{name}-high"


def expanded_arms(experiment: Experiment) -> dict[str, Arm]:
    """Return the arms that are run: an arm with a draft cost band is followed by its low and its high end."""
    arms: dict[str, Arm] = {}
    for name, arm in experiment.arms.items():
        arms[name] = arm
        for other, scale in zip(band_names(name), _band(arm), strict=False):
            arms[other] = arm.model_copy(update={"draft_cost": DraftCost(scale=scale)})
    return arms


def _band(arm: Arm) -> list[float]:
    return (arm.draft_cost.band if arm.draft_cost else None) or []
