"""Roofline step-cost profiles for a named GPU and a dense model of a given size, for hardware nobody measured."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass

from ..policies import did_you_mean
from .profile_schema import Profile, ProfileError, default_captured_sizes, parse_profile

ANALYTIC_PREFIX = "analytic:"

# Assumptions: what large kernels reach of the peaks that data sheets name, and the least time of a collective.
MEMORY_EFFICIENCY = 0.8
COMPUTE_EFFICIENCY = 0.7
ALLREDUCE_LATENCY_S = 5e-6
# The shape of Llama 3, whose sizes the rule for layers is fitted to: its vocabulary, and 8 key-value heads of 128.
VOCABULARY = 128_256
KV_WIDTH = 8 * 128
DRAFT_LAYERS = 5
GAMMA = 7

_CAPTURE_LIMIT = 512
# Begins right above the last graph, so that losing the graphs is seen where it happens.
_EAGER_SIZES = (513, 640, 768, 896, 1024, 1280, 1536, 1792, 2048, 2560, 3072, 4096, 6144, 8192, 16384)
_DRAFT_ROWS = (1, 2, 4, *range(8, 257, 8), *range(272, 1025, 16))
_DTYPES = {"bf16": 2, "fp8": 1}


@dataclass(frozen=True, slots=True)
class GPU:
    """Peak figures of one accelerator, dense (no sparsity).

    Attributes:
        name: full name.
        memory_gb: device memory in 10^9 bytes.
        bandwidth: memory bytes per second.
        flops: peak operations per second by number format.
        link: bytes per second and direction to the other GPUs of the node.
        source: where the figures come from.
    """

    name: str
    memory_gb: float
    bandwidth: float
    flops: dict[str, float]
    link: float
    source: str


GPUS: dict[str, GPU] = {
    "a100": GPU("A100-SXM 80 GB", 80, 2.039e12, {"bf16": 312e12}, 300e9, "NVIDIA A100 data sheet"),
    "h100": GPU("H100-SXM 80 GB", 80, 3.35e12, {"bf16": 989.4e12, "fp8": 1978.9e12}, 450e9, "NVIDIA H100 data sheet"),
    "h200": GPU("H200-SXM 141 GB", 141, 4.8e12, {"bf16": 989.4e12, "fp8": 1978.9e12}, 450e9, "NVIDIA H200 data sheet"),
    "b200": GPU(
        "B200 (HGX) 180 GB",
        180,
        7.7e12,
        {"bf16": 2250e12, "fp8": 4500e12},
        900e9,
        "NVIDIA Blackwell architecture technical brief, HGX B200 per GPU",
    ),
    "b300": GPU(
        "B300 (HGX) 288 GB",
        288,
        8.0e12,
        {"bf16": 2250e12, "fp8": 4500e12},
        900e9,
        "NVIDIA Blackwell architecture technical brief, HGX B300 per GPU",
    ),
    "mi300x": GPU(
        "MI300X 192 GB",
        192,
        5.3e12,
        {"bf16": 1307.4e12, "fp8": 2614.9e12},
        448e9,
        "AMD Instinct MI300X data sheet (7 Infinity Fabric links of 64 GB/s a direction)",
    ),
}
_ALIASES = {"a100-80g": "a100", "a100-sxm": "a100", "h100-sxm": "h100", "h200-sxm": "h200"}


@dataclass(frozen=True, slots=True)
class Roofline:
    """Step time of a dense decoder-only model: weights and arithmetic against the peaks of the hardware.

    Attributes:
        gpu: the accelerator.
        billions: parameters, in 10^9.
        dtype: number format of weights, activations and KV cache.
        tp: GPUs over which every layer is split.
    """

    gpu: GPU
    billions: float
    dtype: str
    tp: int

    @property
    def layers(self) -> int:
        """Decoder layers, 15 * billions^0.36: within a fifth of Llama 3's 16, 28, 32, 80, 126 at 1 to 405 billion."""
        return max(1, round(15 * math.pow(self.billions, 0.36)))

    @property
    def hidden(self) -> float:
        """Model width, from 12 * layers * hidden^2 parameters."""
        # 4 hidden^2 weights for attention and 8 for the feed-forward part of a layer.
        return math.sqrt(self.billions * 1e9 / (12 * self.layers))

    def step_seconds(self, tokens: int) -> float:
        """Return seconds of a step of ``tokens`` batch tokens, attention to the context left out."""
        return self._matrix_seconds(self.billions * 1e9, tokens) + 2 * self.layers * self._allreduce_seconds(tokens)

    def draft_seconds(self, rows: int) -> float:
        """Return seconds to draft: `DRAFT_LAYERS` of the layers and one LM head over ``rows`` blocks of `GAMMA`."""
        tokens = rows * GAMMA
        # A target of fewer layers than the drafter would be slower to draft for than to run.
        share = min(1.0, DRAFT_LAYERS / self.layers)
        return share * self.step_seconds(tokens) + self._matrix_seconds(VOCABULARY * self.hidden, tokens)

    @property
    def context_seconds_per_token(self) -> float:
        """Seconds to read one cached token of one row: keys and values of 8 heads of 128 in every layer."""
        return 2 * self.layers * KV_WIDTH * self._bytes / (self.tp * self.gpu.bandwidth * MEMORY_EFFICIENCY)

    @property
    def _bytes(self) -> int:
        return _DTYPES[self.dtype]

    def _matrix_seconds(self, parameters: float, tokens: int) -> float:
        # Every weight is read once a step, whatever the batch: below the ridge of the roofline more tokens cost
        # nothing.
        memory = parameters * self._bytes / (self.tp * self.gpu.bandwidth * MEMORY_EFFICIENCY)
        compute = 2 * parameters * tokens / (self.tp * self.gpu.flops[self.dtype] * COMPUTE_EFFICIENCY)
        return max(memory, compute)

    def _allreduce_seconds(self, tokens: int) -> float:
        if self.tp == 1:
            return 0.0
        # A ring: each link carries the activations, 2 bytes each whatever the weights have, 2 (tp - 1) / tp times.
        moved = 2 * (self.tp - 1) / self.tp * tokens * self.hidden * 2
        return ALLREDUCE_LATENCY_S + moved / self.gpu.link


def analytic_profile(name: str) -> Profile:
    """Return the roofline profile that a name such as ``analytic:h100:8b`` or ``analytic:b200:70b:tp2:fp8`` asks for.

    Raises:
        ProfileError: for an unknown GPU, a size, split or number format that cannot be read or does not exist on
            the GPU, or weights that do not fit in its memory.
    """
    return _profile(name, _parse(name))


def _parse(name: str) -> Roofline:
    parts = name.removeprefix(ANALYTIC_PREFIX).lower().split(":")
    if len(parts) < 2:
        raise ProfileError(f"analytic profile `{name}`: {_FORM}")
    gpu = _gpu(name, parts[0])
    billions = _billions(name, parts[1])
    tp, dtype = 1, "bf16"
    for option in parts[2:]:
        if re.fullmatch(r"tp[1-9]\d?", option):
            tp = int(option[2:])
        elif option in _DTYPES:
            dtype = option
        else:
            raise ProfileError(f"analytic profile `{name}`: `{option}` is no option; {_FORM}")
    if dtype not in gpu.flops:
        raise ProfileError(
            f"analytic profile `{name}`: {gpu.name} has no {dtype} arithmetic; use {' or '.join(gpu.flops)}"
        )
    _check_memory(name, gpu, billions * _DTYPES[dtype], tp)
    return Roofline(gpu, billions, dtype, tp)


_FORM = (
    f"write analytic:GPU:SIZE[:tpN][:DTYPE] with GPU one of {', '.join(GPUS)}, SIZE in billions of parameters "
    "(8b), N GPUs (tp4) and DTYPE bf16 or fp8"
)


def _gpu(name: str, word: str) -> GPU:
    key = _ALIASES.get(word, word)
    if key not in GPUS:
        hint = f"{did_you_mean(key, GPUS)} known are {', '.join(GPUS)}".strip()
        raise ProfileError(f"analytic profile `{name}`: unknown GPU `{word}`; {hint}")
    return GPUS[key]


def _billions(name: str, word: str) -> float:
    if not re.fullmatch(r"\d+(\.\d+)?b", word) or not 0.1 <= float(word[:-1]) <= 2000:
        raise ProfileError(
            f"analytic profile `{name}`: the size must be 0.1b to 2000b (billions of parameters), got `{word}`; "
            "write for example 8b or 1.5b"
        )
    return float(word[:-1])


def _check_memory(name: str, gpu: GPU, weights_gb: float, tp: int) -> None:
    # Weights alone. How much KV cache has to fit beside them is not known here.
    if weights_gb > tp * gpu.memory_gb:
        raise ProfileError(
            f"analytic profile `{name}`: {weights_gb:.0f} GB of weights do not fit in {tp} x {gpu.memory_gb:.0f} GB; "
            f"split them over at least {math.ceil(weights_gb / gpu.memory_gb)} GPUs (`:tpN`)"
        )


def _profile(name: str, model: Roofline) -> Profile:
    captured = default_captured_sizes(_CAPTURE_LIMIT)
    sizes = [*captured, *_EAGER_SIZES]
    data = {
        "schema_version": 1,
        "name": name,
        "source": "analytic",
        "hardware": f"{model.tp} x {model.gpu.name}",
        "gpus": model.tp,
        "model": f"dense, {model.billions:g} billion parameters, {model.dtype}",
        "versions": {},
        "provenance": _provenance(model),
        "verify": {"tokens": sizes, "seconds": [model.step_seconds(size) for size in sizes]},
        "captured_sizes": captured,
        "draft": {
            "drafter": f"block drafter of {DRAFT_LAYERS} target-like layers",
            "layers": DRAFT_LAYERS,
            "gamma": GAMMA,
            "rows": _DRAFT_ROWS,
            "seconds": [model.draft_seconds(rows) for rows in _DRAFT_ROWS],
            "source": "assumed",
            "note": f"{DRAFT_LAYERS} of {model.layers} layers over {GAMMA} tokens a row, one LM head; same roofline",
        },
        "context": {
            "reference_tokens": 0,
            "seconds_per_token": model.context_seconds_per_token,
            "source": "analytic",
            "note": "reading keys and values, 8 heads of 128 in every layer; the curve itself holds no attention",
        },
        "host": {
            "seconds": 0.0,
            "sync_stall_seconds": 5e-4,
            "source": "assumed",
            "note": "host time is not modelled; the stall is the same assumption as in the shipped profiles",
        },
        "sla_anchors": anchors(model.step_seconds(1)),
    }
    return parse_profile(json.dumps(data), f"analytic profile `{name}`")


def anchors(first_step_seconds: float) -> list[float]:
    """Return 0.6, 1 and 1.5 times the plain decoding rate of one request, to two digits (as for the B300 profile)."""
    return [float(f"{share / first_step_seconds:.2g}") for share in (0.6, 1.0, 1.5)]


def _provenance(model: Roofline) -> list[str]:
    gpu, dtype = model.gpu, model.dtype
    size = f"P = {model.billions:g}e9, bytes = {_DTYPES[dtype]} ({dtype}), tp = {model.tp}"
    shape = f"layers = {model.layers} (15 * billions^0.36), hidden = {model.hidden:.0f} (P = 12 * layers * hidden^2)"
    peaks = f"bandwidth = {gpu.bandwidth / 1e12:g} TB/s, flops = {gpu.flops[dtype] / 1e12:g} T dense"
    return [
        "ANALYTIC: a roofline, not a measurement. It has no wave or tile steps and no cliff where graphs end.",
        "step(B) = max(P bytes / (tp bandwidth 0.8), 2 P B / (tp flops 0.7)) + 2 layers allreduce(B)",
        "allreduce(B) = 5 us + 2 (tp - 1) / tp * B * hidden * 2 bytes / link; 0 on one GPU",
        "0.8, 0.7 and 5 us are assumptions",
        f"{size}, {shape}",
        f"{peaks}, link = {gpu.link / 1e9:g} GB/s a direction: {gpu.source}",
        f"captured sizes: vLLM's defaults up to {_CAPTURE_LIMIT}; anchors: 0.6, 1 and 1.5 / step(1)",
    ]
