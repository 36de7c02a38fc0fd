"""Machines that time the points of a profile: a CPU in plain torch, or a GPU by replaying captured graphs."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
import triton

from ..common import KernelError, interpreting, tiles
from ..host import cpu_name
from .decoder import Decoder
from .decoder_attention import Attend, Batch, Pool, device_attention, host_attention
from .decoder_draft import Drafter, Sample, device_sample, host_sample
from .models import ProfiledModel
from .profiler import Point

GROUPED_MAJORS = (9, 10)
"""Compute capabilities whose grouped product never waits for the host."""

HOST_BUDGET_S = 0.15
"""Seconds of calls that count after which a CPU stops repeating a point in a pass."""

HOST_LEAST = 5
"""But not before so many."""

ROOM = 1.1
"""Free memory to ask for, in units of weights and caches: activations come on top."""


@dataclass(frozen=True)
class Facts:
    """What a profile says of the machine.

    Attributes:
        hardware: name of the device.
        versions: of software, by name.
        clocks: what is known of clocks and load at this moment.
    """

    hardware: str
    versions: dict[str, str]
    clocks: str


class Machine:
    """A target and a drafter with caches, and batches for them.

    Args:
        model: what to build.
        gamma: drafts of a block.
        seed: of weights and ids.
        attend: attention of both decoders.
        sample: how blocks are drawn.
    """

    def __init__(self, model: ProfiledModel, gamma: int, seed: int, attend: Attend, sample: Sample) -> None:
        device = torch.device(model.device)
        generator = torch.Generator(device).manual_seed(seed)
        pages, draft_pages = model.pages(), model.draft_pages(gamma)
        vocabulary = model.target.vocabulary
        self._gamma = gamma
        self._generator = generator
        self._target = Decoder(model.target, pages, attend, generator)
        backbone = Decoder(model.drafter, draft_pages, attend, generator)
        self._drafter = Drafter.make(backbone, model.rank, sample, generator)
        self._pool = Pool.make(pages, model.target.page, vocabulary, seed, device)
        self._draft_pool = Pool.make(draft_pages, model.drafter.page, vocabulary, seed, device)

    def batch(self, point: Point) -> Batch:
        """Return a batch of a point's form: `size` places and `table` rows, of which it fills some."""
        if point.part == "draft":
            return self._draft_pool.batch(point.tokens, point.rows, point.context, self._gamma)
        # Of the form, not of the point: points that pad to one size replay one graph, in which this number is compiled.
        most = max(1 + self._gamma, tiles(point.size, point.table))
        return self._pool.batch(point.tokens, point.rows, point.context, most, point.size, point.table)

    def work(self, point: Point, batch: Batch) -> Callable[[], object]:
        """Return the step or the drafting of a block."""
        if point.part != "draft":
            return partial(self._target.step, batch)
        uniforms = torch.rand(point.rows, self._gamma, generator=self._generator, device=self._generator.device)
        temperature = torch.ones_like(uniforms[:, 0])
        return partial(self._drafter.block, batch, uniforms, temperature)


class HostMachine(Machine):
    """The CPU, without graphs: every call pays Python's and torch's own time.

    Args:
        model: one for a CPU.
        gamma: drafts of a block.
        seed: of weights and ids.
        clock: seconds, from anywhere.
    """

    def __init__(
        self, model: ProfiledModel, gamma: int, seed: int, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        super().__init__(model, gamma, seed, host_attention, host_sample)
        self._clock = clock

    def time(self, point: Point, warm: int, timed: int) -> list[float]:
        """Return seconds of ``timed`` calls after ``warm`` others; of fewer where they are long, `HOST_LEAST` at least.

        Warm calls stop after a quarter of `HOST_BUDGET_S`, the others after all of it.
        """
        call = self.work(point, self.batch(point))
        # Warm calls have a budget too, or a slow model would spend its time on what does not count.
        self._times(call, warm, 1, HOST_BUDGET_S / 4)
        return self._times(call, timed, HOST_LEAST, HOST_BUDGET_S)

    def _times(self, call: Callable[[], object], most: int, least: int, budget: float) -> list[float]:
        seconds: list[float] = []
        while len(seconds) < most and (len(seconds) < least or sum(seconds) < budget):
            start = self._clock()
            call()
            seconds.append(self._clock() - start)
        return seconds

    def facts(self) -> Facts:
        """Return the CPU's name, threads and load."""
        threads = torch.get_num_threads()
        load = f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors"
        return Facts(f"{cpu_name()} ({threads} threads)", _versions(), f"{load}; clocks not read")


@dataclass(frozen=True)
class _Captured:
    """A graph, the batch it reads, and the work it holds: what a graph reads must not be freed."""

    graph: torch.cuda.CUDAGraph
    batch: Batch
    work: Callable[[], object]


class CudaMachine(Machine):
    """A GPU. Points with a graph replay it; the others are launched from the host, one kernel after the other.

    Args:
        model: one for a GPU.
        gamma: drafts of a block.
        seed: of weights and ids.

    Raises:
        KernelError: without a GPU, in the interpreter, with too little memory, or for experts on a GPU or with a torch
            whose grouped product cannot be captured.
    """

    def __init__(self, model: ProfiledModel, gamma: int, seed: int) -> None:
        # Before any weights are made, which takes a while and may be for nothing.
        _check_device(model, gamma)
        super().__init__(model, gamma, seed, device_attention, device_sample)
        # One pool for all graphs: never two of them run at once, so they may use the same memory.
        self._memory = torch.cuda.graph_pool_handle()
        self._side = torch.cuda.Stream()
        self._graphs: dict[tuple[str, int, int, int], _Captured] = {}

    def time(self, point: Point, warm: int, timed: int) -> list[float]:
        """Return seconds of ``timed`` calls after ``warm`` others, between events on the device."""
        # Without a graph a step also pays for its launches, which is what running beyond the captured sizes means.
        call = self._replay(point) if point.captured else self.work(point, self.batch(point))
        for _ in range(warm):
            call()
        marks = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(timed)]
        for start, end in marks:
            start.record()
            call()
            end.record()
        torch.cuda.synchronize()
        return [start.elapsed_time(end) / 1e3 for start, end in marks]

    def facts(self) -> Facts:
        """Return the GPU's name, versions and clocks."""
        versions = _versions() | {"cuda": str(torch.version.cuda)}
        return Facts(torch.cuda.get_device_name(), versions, f"driver, clocks of SMs and memory: {_clocks()}")

    def _replay(self, point: Point) -> Callable[[], object]:
        """Return a replay of the graph of a point's form, whose batch it has filled."""
        form = (point.part, point.size, point.table, point.context)
        batch = self.batch(point)
        if form not in self._graphs:
            work = self.work(point, batch)
            self._graphs[form] = _Captured(self._capture(work), batch, work)
        captured = self._graphs[form]
        # The graph reads the tensors that it was captured with, so a new batch is copied into them.
        captured.batch.load(batch)
        return captured.graph.replay

    def _capture(self, work: Callable[[], object]) -> torch.cuda.CUDAGraph:
        # Kernels are compiled and libraries set up before the capture, on another stream, as torch asks for.
        self._side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._side):
            work()
            work()
        torch.cuda.current_stream().wait_stream(self._side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._memory):
            work()
        return graph


def machine(model: ProfiledModel, gamma: int, seed: int) -> HostMachine | CudaMachine:
    """Return the machine at hand, with the model built on it.

    Raises:
        KernelError: if the model does not run here.
    """
    return HostMachine(model, gamma, seed) if model.device == "cpu" else CudaMachine(model, gamma, seed)


def _check_device(model: ProfiledModel, gamma: int) -> None:
    if interpreting():
        raise KernelError(f"model `{model.name}` cannot be timed in the interpreter; unset TRITON_INTERPRET")
    if not torch.cuda.is_available():
        raise KernelError(f"model `{model.name}` needs a GPU, and torch sees none; profile `tiny-cpu` here")
    if model.target.experts:
        _check_grouped(model.name, torch.cuda.get_device_capability())
    free, _ = torch.cuda.mem_get_info()
    wanted = ROOM * model.device_bytes(gamma)
    if free < wanted:
        raise KernelError(
            f"model `{model.name}` needs {wanted / 2**30:.0f} GiB of GPU memory, {free / 2**30:.0f} are free; "
            "choose a smaller model or a larger GPU"
        )


def _check_grouped(name: str, capability: tuple[int, int]) -> None:
    if not hasattr(F, "grouped_mm"):
        raise KernelError(f"model `{name}` needs `torch.nn.functional.grouped_mm`, torch {torch.__version__} has none")
    if capability[0] not in GROUPED_MAJORS:
        raise KernelError(
            f"model `{name}` needs compute capability 9.x or 10.x, got {capability[0]}.{capability[1]}: elsewhere "
            "torch's grouped product waits for the host and cannot be captured; choose a dense model"
        )


def _versions() -> dict[str, str]:
    return {"torch": torch.__version__, "triton": triton.__version__, "python": platform.python_version()}


def _clocks() -> str:
    query = "--query-gpu=driver_version,clocks.sm,clocks.mem"
    # By UUID: CUDA_VISIBLE_DEVICES numbers devices anew for torch, but not for nvidia-smi.
    device = f"--id=GPU-{torch.cuda.get_device_properties(0).uuid}"
    try:
        done = subprocess.run(
            ["nvidia-smi", query, "--format=csv,noheader", device], capture_output=True, text=True, timeout=20
        )
    except (OSError, subprocess.SubprocessError):
        return "not readable"
    return done.stdout.strip() if done.returncode == 0 else "not readable"
