"""Build the shipped step-cost profiles from the public data folder: the same bytes every time.

python benchmarks/build_profiles.py DATA_FOLDER [OUTPUT_FOLDER]
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from specsched.policies import Floats
from specsched.sim.analytic import anchors
from specsched.sim.profile import default_captured_sizes, dump_profile, parse_profile

TAIL_FROM = 513
GAMMA = 7
DRAFT_ROWS = [1, 2, 4, *range(8, 257, 8)]
LLAMA_DRAFT_LAYERS = 5
LLAMA_CONTEXT = 1024
LLAMA_SLOPE_ROWS = 256
STALL = {
    "seconds": 0.0,
    "sync_stall_seconds": 5e-4,
    "source": "assumed",
    "note": (
        "No host time is known apart from the step times. The stall is an ASSUMPTION: a policy that sizes the batch "
        "from this step's confidences waits for one device-to-host copy, plans, prepares the inputs and launches "
        "while the GPU idles; asynchronous scheduling hides that work, of the order of half a millisecond."
    ),
}
B300_NOTES = """
- MEASURED engine steps of vLLM, tensor parallel over 4 GPUs, 8,192 tokens of synthetic context a request.
- Digitized from the cost-curve figure of the vLLM blog post of 2026-08-14 on adaptive verification with DSpark:
  numbers only.
- 88 sizes, 5 runs each; 439 of 440 runs could be recovered (one at 4,096 tokens is hidden). Time error at most 0.2 %.
- Checked against the figure's printed labels: 20.6 to 104 ms across the capture limit, drafting 0.9 ms at 1 request
  and 5.4 ms at 256.
- Above 1,024 tokens no graph is captured (eager); the running maximum makes 2,048 cost what 1,536 does.
"""
LLAMA_NOTES = """
- COMPOSED, not measured end to end: {layers} layers of GEMM times and the LM head (LLMServingSim profiler, every
  size), FA3 decode attention (aiconfigurator) for min(B, 64) requests of 1k context{allreduces}.
- An ASSUMED 4 fused elementwise kernels a layer (2.5 us + 6 B hidden bytes / 2.5 TB/s). No scheduler, CPU or sampling
  time.
- {sanity}
- Raw profiling noise is kept; the running maximum holds its spikes (docs/profiles.md says how much).
- EXTRAPOLATED, not measured: the samples at 2,048 and 4,096 tokens come from {fit}.
- Captured sizes: vLLM's defaults up to 512 (assumed). Beyond, the composed times know no loss of graphs.
- Anchors: 0.6, 1 and 1.5 over the step time of one token.
"""
LLAMA_DRAFT_NOTE = (
    "ASSUMED: {draft_layers} of the target's {layers} layers over 7 tokens a row, their attention once a row at 1k "
    "context, and one LM head, from the same kernel times (running maximum; beyond 1,024 tokens the line through 513 "
    "to 1,024); no sequential head"
)
LLAMA_CONTEXT_NOTE = (
    "line through the attention time of 1 to 256 one-token requests of 1,024 tokens; it moves every sample to no "
    "context, so that the attention of the actual rows is charged and not that of 64"
)
DSV4_NOTES = """
- COMPOSED, not measured end to end: 21 CSA and 20 HCA attention layers and 2 sliding-window layers taken as HCA,
  43 x (fused MoE top-6 of 256, mHC, shared expert, router, 2 all-reduces), LM head shard; tensor and expert parallel
  8; kernel times of aiconfigurator.
- Context 4,096. Every token counts as a request of its own in attention, on powers of two up to 256 and linear from
  there: an upper bound for blocks and above 256 tokens.
- The MoE grid has 19 sizes; fine steps between them were not observed. No scheduler, CPU or sampling time.
- EXTRAPOLATED, not measured: the samples at 1,025, 2,048 and 4,096 tokens come from {fit}.
- Captured sizes: vLLM's defaults up to 1,024 (assumed). No loss of graphs is modelled beyond: its size is unknown here
  (a factor of 5 on the measured B300 profile).
- Anchors: 0.6, 1 and 1.5 over the step time of one token.
"""
DSV4_DRAFT_NOTE = (
    "ASSUMED: 3/43 of this curve at 7 tokens a row (from 1,025 tokens on: extrapolated). Likely low for few rows: the "
    "same rule gives 0.37 ms at 1 request on the B300 profile, where 0.88 ms was measured"
)


def build(data: Path) -> dict[str, str]:
    """Return the JSON text of every shipped profile by name."""
    sps = data / "sps"
    profiles = [b300(sps), llama(sps, LLAMA_8B), llama(sps, LLAMA_70B), dsv4_h100(sps)]
    return {fields["name"]: _dump(fields) for fields in profiles}


def b300(sps: Path) -> dict[str, Any]:
    samples = pl.read_csv(sps / "vllm_dsv4flash_tp4_b300_profile_points.csv").filter(pl.col("sample") == "run")
    draft = pl.read_csv(sps / "vllm_dsv4flash_tp4_b300_draft_cost.csv")
    tokens = samples["batch_tokens"].to_list()
    sizes = sorted(set(tokens))
    return {
        "name": "vllm-dsv4flash-b300-tp4",
        "source": "measured",
        "hardware": "4 x NVIDIA B300",
        "gpus": 4,
        "model": "DeepSeek-V4-Flash-0731",
        "versions": {"vllm": "mid-August 2026"},
        "provenance": _notes(B300_NOTES),
        "verify": {"tokens": tokens, "seconds": _seconds(samples["verify_ms"].to_numpy() / 1e3)},
        "captured_sizes": [size for size in sizes if size <= 1024],
        "draft": {
            "drafter": "DSpark for DeepSeek-V4-Flash",
            "layers": 3,
            "gamma": GAMMA,
            "rows": draft["num_requests"].to_list(),
            "seconds": _seconds(draft["draft_ms"].to_numpy() / 1e3),
            "source": "measured",
            "note": "the drafting curve of the same figure, by number of requests; the whole block of 7",
        },
        "context": {
            "reference_tokens": 8192,
            "seconds_per_token": None,
            "source": "measured",
            "note": "profiled at one context length only, so the slope was not measured and the term is 0",
        },
        "host": STALL,
        "sla_anchors": [120.0, 200.0, 300.0],
    }


@dataclass(frozen=True)
class Llama:
    name: str
    model: str
    gpus: int
    layers: int
    allreduces: int
    stem: str
    components: str
    sanity: str


LLAMA_8B = Llama(
    "llama31-8b-h100",
    "Llama-3.1-8B, bf16",
    1,
    32,
    0,
    "llama31_8b_h100_tp1_ctx1k_R64_raw",
    "components_llama31_8b_h100_tp1_ctx1k",
    "Sanity: 6.65 ms at one token; vLLM's pull request 16937 implies 7.5 ms (133 tokens/s, one request, one H100).",
)
LLAMA_70B = Llama(
    "llama31-70b-h100-tp4",
    "Llama-3.1-70B, bf16",
    4,
    80,
    161,
    "llama31_70b_h100_tp4_ctx1k_R64_raw",
    "components_llama31_70b_h100_tp4_ctx1k",
    "Sanity: one gate projection takes 43 us at one token for a shard of 117 MB, 2.7 TB/s.",
)


def llama(sps: Path, model: Llama) -> dict[str, Any]:
    raw = pl.read_csv(sps / f"{model.stem}.csv")["step_seconds"].to_numpy()
    parts = pl.read_csv(sps / f"{model.components}.csv")
    slope = _round(_line(parts["attn_one_query_per_request_s"].to_numpy(), 1, LLAMA_SLOPE_ROWS)[0] / LLAMA_CONTEXT, 4)
    tokens, seconds, fit = with_tail(raw, [2048, 4096])
    traffic = f" and {model.allreduces} all-reduces (aiconfigurator, vLLM custom graph)" if model.allreduces else ""
    return {
        "name": model.name,
        "source": "composed",
        "hardware": f"{model.gpus} x NVIDIA H100 SXM",
        "gpus": model.gpus,
        "model": model.model,
        "versions": {"aiconfigurator": "095f58a51c4c", "LLMServingSim": "5daddb21a545", "vllm attention": "0.24.0"},
        "provenance": _notes(LLAMA_NOTES.format(layers=model.layers, allreduces=traffic, sanity=model.sanity, fit=fit)),
        "verify": {
            "tokens": tokens,
            "seconds": seconds,
            "rows": [min(size, 64) for size in tokens],
            "context": [LLAMA_CONTEXT] * len(tokens),
            "extrapolated_from": 2048,
        },
        "captured_sizes": default_captured_sizes(512),
        "draft": {
            "drafter": f"assumed block drafter, {LLAMA_DRAFT_LAYERS} target layers",
            "layers": LLAMA_DRAFT_LAYERS,
            "gamma": GAMMA,
            "rows": DRAFT_ROWS,
            "seconds": _seconds(llama_draft(parts, model)),
            "source": "assumed",
            "note": LLAMA_DRAFT_NOTE.format(draft_layers=LLAMA_DRAFT_LAYERS, layers=model.layers),
        },
        "context": {
            "reference_tokens": 0,
            "seconds_per_token": slope,
            "source": "composed",
            "note": LLAMA_CONTEXT_NOTE,
        },
        "host": STALL,
        "sla_anchors": anchors(float(raw[0])),
    }


def llama_draft(parts: pl.DataFrame, model: Llama) -> Floats:
    """Return float64 seconds of the assumed drafter at `DRAFT_ROWS`."""
    share = LLAMA_DRAFT_LAYERS / model.layers
    layers = [name for name in parts.columns if name in ("gemm_s", "fused_elementwise_assumed_s", "allreduce_s")]
    body = share * parts.select(layers).to_numpy().sum(axis=1) + parts["lm_head_s"].to_numpy()
    slope, intercept = _line(body, TAIL_FROM, len(body))
    tokens = GAMMA * np.array(DRAFT_ROWS)
    measured = np.maximum.accumulate(body)[np.minimum(tokens, len(body)) - 1]
    priced = np.where(tokens <= len(body), measured, np.maximum(measured, intercept + slope * tokens))
    attention = parts["attn_one_query_per_request_s"].to_numpy()[np.array(DRAFT_ROWS) - 1]
    return np.asarray(priced + share * attention)


def dsv4_h100(sps: Path) -> dict[str, Any]:
    raw = pl.read_csv(sps / "dsv4_flash_fp8_8xh100_tp8ep8_ctx4k_raw.csv")["step_seconds"].to_numpy()
    # 1,025 too: with 2,048 as the first eager sample, 1,025 tokens would cost what 2,048 do, a cliff nobody saw.
    tokens, seconds, fit = with_tail(raw, [1025, 2048, 4096])
    curve = np.maximum.accumulate(seconds)
    return {
        "name": "dsv4flash-8xh100",
        "source": "composed",
        "hardware": "8 x NVIDIA H100 SXM",
        "gpus": 8,
        "model": "DeepSeek-V4-Flash, fp8",
        "versions": {"aiconfigurator": "095f58a51c4c", "sglang kernels": "0.5.14"},
        "provenance": _notes(DSV4_NOTES.format(fit=fit)),
        "verify": {"tokens": tokens, "seconds": seconds, "extrapolated_from": 1025},
        "captured_sizes": default_captured_sizes(1024),
        "draft": {
            "drafter": "assumed DSpark, 3 of 43 layers",
            "layers": 3,
            "gamma": GAMMA,
            "rows": DRAFT_ROWS,
            "seconds": _seconds(3 / 43 * np.interp(GAMMA * np.array(DRAFT_ROWS), tokens, curve)),
            "source": "assumed",
            "note": DSV4_DRAFT_NOTE,
        },
        "context": {
            "reference_tokens": 4096,
            "seconds_per_token": None,
            "source": "composed",
            "note": "composed at one context length only, so the slope is unknown and the term is 0",
        },
        "host": STALL,
        "sla_anchors": anchors(float(raw[0])),
    }


def with_tail(raw: Floats, sizes: list[int]) -> tuple[list[int], list[float], str]:
    """Return the sizes 1.. and ``sizes``, their seconds, and the line that gave the latter, in words."""
    slope, intercept = (_round(value, 6) for value in _line(raw, TAIL_FROM, len(raw)))
    words = (
        f"the least-squares line through {TAIL_FROM} to {len(raw)} tokens, {intercept * 1e3:.4f} ms + "
        f"{slope * 1e6:.4f} us a token"
    )
    tail = np.array([round(intercept + slope * size, 6) for size in sizes])
    return [*range(1, len(raw) + 1), *sizes], _seconds(np.concatenate([raw, tail])), words


def _line(values: Floats, first: int, last: int) -> tuple[float, float]:
    slope, intercept = np.polyfit(np.arange(first, last + 1), values[first - 1 : last], 1)
    return float(slope), float(intercept)


def _round(value: float, digits: int) -> float:
    return float(f"{value:.{digits}g}")


def _seconds(values: Floats) -> list[float]:
    return [round(float(value), 9) for value in values]


def _notes(text: str) -> list[str]:
    return [" ".join(item.split()) for item in text.removeprefix("\n- ").split("\n- ")]


def _dump(fields: dict[str, Any]) -> str:
    return dump_profile(parse_profile(json.dumps({"schema_version": 1} | fields), fields["name"]))


def main() -> None:
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: python benchmarks/build_profiles.py DATA_FOLDER [OUTPUT_FOLDER]")
    default = Path(__file__).resolve().parents[1] / "sim" / "profiles"
    folder = Path(sys.argv[2]) if len(sys.argv) == 3 else default
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in build(Path(sys.argv[1])).items():
        (folder / f"{name}.json").write_text(text, encoding="utf-8")
        print(folder / f"{name}.json")


if __name__ == "__main__":
    main()
