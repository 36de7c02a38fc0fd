"""Times of calls on a CPU or a GPU, and the ceilings of the device, measured the same way.

On a GPU a round of calls, each on inputs of its own, is captured in a CUDA graph and replayed; a sample is the time of
a replay by CUDA events over the number of calls. So launches cost what they cost in a captured step, and no call finds
its inputs in the cache: together they are larger than twice the L2, or else it is overwritten before every replay.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from .cases import Run, Tensors
from .roofline import Ceilings

WARM = 5
REPEATS = 30

MOST_COPIES = 64
"""Sets of inputs at most."""

Calls = Sequence[Callable[[], object]]


@dataclass(frozen=True)
class Times:
    """Samples of a call.

    Attributes:
        us: microseconds a call, one each sample, in the order taken.
        how: how they were taken, in words.
    """

    us: tuple[float, ...]
    how: str

    def quantile(self, share: float) -> float:
        """Return the sample below which a share of them lies, linear between two."""
        return float(torch.quantile(torch.tensor(self.us, dtype=torch.float64), share))


class Timer(Protocol):
    """What takes times on a device."""

    device: torch.device

    def time(self, run: Run, given: Tensors, touched: int, warm: int = WARM, repeats: int = REPEATS) -> Times:
        """Return times of ``run(given)``, of which ``touched`` bytes of memory are read or written."""
        ...


class CpuTimer:
    """Times on a CPU: the same inputs each time, caches warm."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.device = torch.device("cpu")
        self._clock = clock

    def time(self, run: Run, given: Tensors, touched: int, warm: int = WARM, repeats: int = REPEATS) -> Times:
        """Return wall-clock times of a call."""
        samples = []
        for _ in range(warm + repeats):
            start = self._clock()
            run(given)
            samples.append(1e6 * (self._clock() - start))
        return Times(tuple(samples[warm:]), "same inputs, caches warm")


class CudaTimer:
    """Times on a GPU; ``cuda`` is `torch.cuda`, or what stands for it in a test."""

    def __init__(self, device: torch.device, l2_bytes: int, cuda: Any = torch.cuda) -> None:
        self.device = device
        self._l2 = l2_bytes
        self._cuda = cuda

    def time(self, run: Run, given: Tensors, touched: int, warm: int = WARM, repeats: int = REPEATS) -> Times:
        """Return times of a call by CUDA events, a round over copies of the inputs replayed as one graph."""
        count = copies(touched, self._l2)
        sets = [given, *({name: value.clone() for name, value in given.items()} for _ in range(count - 1))]
        # Bound here: a lambda looks its names up when it is called, and would find the last set.
        calls = [lambda each=each: run(each) for each in sets]
        # A round that passes over twice the L2 has pushed out its first inputs by the time it comes back to them.
        cold = count * touched > 2 * self._l2
        flush = None if cold else torch.empty(2 * self._l2, dtype=torch.uint8, device=self.device)
        replay, how = self._captured(calls)
        samples = self._samples(replay, flush, warm, repeats)
        rotation = f"{count} sets of inputs" + ("" if cold else ", L2 overwritten")
        return Times(tuple(each / count for each in samples), f"{how}, {rotation}")

    def _captured(self, calls: Calls) -> tuple[Callable[[], object], str]:
        """Return what runs a round of calls: a graph's replay, or the calls themselves where none can be captured."""
        side = self._cuda.Stream()
        side.wait_stream(self._cuda.current_stream())
        # On a side stream, as captures want it, and twice, so that nothing is compiled or tuned in the capture.
        with self._cuda.stream(side):
            for call in [*calls, *calls]:
                call()
        self._cuda.current_stream().wait_stream(side)
        self._cuda.synchronize()
        graph = self._cuda.CUDAGraph()
        try:
            with self._cuda.graph(graph):
                for call in calls:
                    call()
        except RuntimeError as error:
            self._cuda.synchronize()
            return lambda: [call() for call in calls], f"no graph ({str(error).splitlines()[0][:80]})"
        return graph.replay, "graph"

    def _samples(
        self, replay: Callable[[], object], flush: torch.Tensor | None, warm: int, repeats: int
    ) -> list[float]:
        """Return microseconds of each replay but the warm ones."""
        events = []
        for _ in range(warm + repeats):
            if flush is not None:
                # Before the first event, so that it costs nothing in the sample.
                flush.zero_()
            start, end = (self._cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            replay()
            end.record()
            # Read after all of them: a wait here would let the device fall idle between replays.
            events.append((start, end))
        self._cuda.synchronize()
        return [1e3 * start.elapsed_time(end) for start, end in events[warm:]]


def copies(touched: int, l2_bytes: int) -> int:
    """Return how many sets of inputs a call goes round: enough for over twice the L2, 2 to `MOST_COPIES`."""
    return min(MOST_COPIES, max(2, math.floor(2 * l2_bytes / max(touched, 1)) + 1))


def measure_ceilings(timer: Timer) -> Ceilings:
    """Return what a large copy and a large matrix product reach: the fastest of their samples.

    On a GPU a copy of 1 GiB and a bf16 product of 8,192; on a CPU 128 MiB and a float32 product of 1,024.
    """
    gpu = timer.device.type != "cpu"
    size = (1 << 30) if gpu else (1 << 27)
    side, dtype, name = (8192, torch.bfloat16, "bf16") if gpu else (1024, torch.float32, "fp32")
    source = torch.zeros(size, dtype=torch.uint8, device=timer.device)
    target = torch.empty_like(source)
    copied = timer.time(lambda each: {"to": target.copy_(each["from"])}, {"from": source}, 2 * size)
    a, b = (torch.randn(side, side, device=timer.device).to(dtype) for _ in range(2))
    c = torch.empty_like(a)
    multiplied = timer.time(lambda each: {"c": torch.mm(each["a"], b, out=c)}, {"a": a}, 3 * a.numel() * a.itemsize)
    # The fastest sample, since a ceiling is what can be reached at all.
    return Ceilings(2 * size / min(copied.us) * 1e6, 2 * side**3 / min(multiplied.us) * 1e6, f"{name} {side}")
