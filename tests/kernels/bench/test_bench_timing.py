"""How times are taken: with clocks and devices that stand for the real ones, since no test may rest on a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from specsched.kernels.bench import timing
from specsched.kernels.bench.bench import Bench, run
from specsched.kernels.bench.cases import Run, Tensors
from specsched.kernels.bench.machine import Machine
from specsched.kernels.bench.roofline import Ceilings, Work, floor_us
from specsched.kernels.bench.timing import MOST_COPIES, CpuTimer, CudaTimer, Times, copies, measure_ceilings

CPU = torch.device("cpu")


class Clock:
    """A clock that advances when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_cpu_times_are_those_of_the_clock_without_the_warm_ones() -> None:
    clock, steps = Clock(), iter([9.0, 8.0, 1.0, 2.0, 4.0])

    def run(given: Tensors) -> Tensors:
        clock.now += next(steps)
        return given

    found = CpuTimer(clock).time(run, {}, 0, warm=2, repeats=3)
    assert found.us == (1e6, 2e6, 4e6)
    assert found.quantile(0.5) == 2e6
    assert "warm" in found.how


def test_quantiles_are_linear_between_samples() -> None:
    times = Times((30.0, 10.0, 20.0, 50.0, 40.0, 60.0), "")
    assert (times.quantile(0.2), times.quantile(0.5), times.quantile(0.8)) == (20.0, 35.0, 50.0)


class FakeCuda:
    """Stands for `torch.cuda`: a device on which a call takes 2 ms, a replay 1 ms a captured call."""

    def __init__(self, capturable: bool = True) -> None:
        self.log: list[str] = []
        self.ms = 0.0
        self.capturable = capturable
        self.capturing: FakeGraph | None = None
        self.seen: list[int] = []

    def work(self, given: Tensors) -> Tensors:
        self.seen.append(given["x"].data_ptr())
        if self.capturing is not None:
            self.capturing.calls += 1
        else:
            self.log.append("call")
            self.ms += 2.0
        return given

    def Stream(self) -> FakeStream:
        return FakeStream()

    def current_stream(self) -> FakeStream:
        return FakeStream()

    def synchronize(self) -> None:
        self.log.append("synchronize")

    def CUDAGraph(self) -> FakeGraph:
        return FakeGraph(self)

    def Event(self, enable_timing: bool) -> FakeEvent:
        assert enable_timing
        return FakeEvent(self)

    @contextmanager
    def stream(self, stream: FakeStream) -> Iterator[None]:
        yield

    @contextmanager
    def graph(self, graph: FakeGraph) -> Iterator[None]:
        if not self.capturable:
            raise RuntimeError("operation not permitted when stream is capturing\nmore")
        self.capturing = graph
        yield
        self.capturing = None


class FakeStream:
    def wait_stream(self, other: FakeStream) -> None:
        assert isinstance(other, FakeStream)


class FakeGraph:
    def __init__(self, cuda: FakeCuda) -> None:
        self.cuda = cuda
        self.calls = 0

    def replay(self) -> None:
        self.cuda.log.append("replay")
        self.cuda.ms += 1.0 * max(self.calls, 1)


class FakeEvent:
    def __init__(self, cuda: FakeCuda) -> None:
        self.cuda = cuda

    def record(self) -> None:
        self.cuda.log.append("event")
        self.at = self.cuda.ms

    def elapsed_time(self, end: FakeEvent) -> float:
        assert self.cuda.log[-1] == "synchronize", "events are read before the device has got there"
        return end.at - self.at


def given(size: int = 8) -> Tensors:
    return {"x": torch.zeros(size)}


def test_gpu_times_are_of_a_graph_over_copies_of_the_inputs() -> None:
    cuda = FakeCuda()
    found = CudaTimer(CPU, 1000, cuda).time(cuda.work, given(), 600, warm=2, repeats=3)
    assert found.us == (1000.0,) * 3  # a round of four calls takes 4 ms
    assert found.how == "graph, 4 sets of inputs"
    assert len(set(cuda.seen)) == 4
    # Compiled and tuned before, in two rounds; then five samples, all queued before the device is waited for.
    assert cuda.log == ["call"] * 8 + ["synchronize"] + ["event", "replay", "event"] * 5 + ["synchronize"]


def test_copies_have_equal_values() -> None:
    cuda = FakeCuda()
    inputs = {"x": torch.arange(5.0)}
    seen: list[Tensors] = []

    def run(each: Tensors) -> Tensors:
        seen.append(each)
        return cuda.work(each)

    CudaTimer(CPU, 1000, cuda).time(run, inputs, 600)
    assert all(torch.equal(each["x"], inputs["x"]) for each in seen)


def test_little_inputs_make_the_cache_be_overwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda, flushed = FakeCuda(), []
    empty = torch.empty

    def watched(*size: Any, **options: Any) -> torch.Tensor:
        made = empty(*size, **options)
        flushed.append(made)
        return made

    monkeypatch.setattr(timing.torch, "empty", watched)
    found = CudaTimer(CPU, 1000, cuda).time(cuda.work, given(), 10, warm=1, repeats=1)
    assert found.how == f"graph, {MOST_COPIES} sets of inputs, L2 overwritten"
    assert [each.numel() for each in flushed] == [2000]
    assert not bool(flushed[0].any())
    assert found.us == (1000.0,)


def test_what_cannot_be_captured_is_called() -> None:
    cuda = FakeCuda(capturable=False)
    found = CudaTimer(CPU, 1000, cuda).time(cuda.work, given(), 1500, warm=1, repeats=2)
    assert found.us == (2000.0,) * 2
    assert found.how == "no graph (operation not permitted when stream is capturing), 2 sets of inputs"


def test_a_row_by_the_timer_of_a_gpu() -> None:
    machine = Machine(CPU, "Fast", 1000, 1 << 30)
    prepared = Bench(machine, CudaTimer(CPU, 1000, FakeCuda()), Ceilings(1e9, 1e12, ""))
    for row in run(["admit"], "ci", ["ours", "torch"], bench=prepared):
        assert (row.mode, row.status, row.repeats) == ("gpu", "ok", 30)
        count = 3 if row.shape.startswith("admit") else 2
        assert row.config == f"graph, {count} sets of inputs"
        assert row.p50_us == pytest.approx(1000 / count)


@pytest.mark.parametrize(
    ("touched", "l2", "expected"), [(1500, 1000, 2), (600, 1000, 4), (1000, 1000, 3), (10, 1000, 64), (0, 1000, 64)]
)
def test_copies_are_more_than_twice_the_cache(touched: int, l2: int, expected: int) -> None:
    assert copies(touched, l2) == expected
    assert copies(touched, l2) * touched > 2 * l2 or expected == MOST_COPIES


class Fixed:
    """A timer by which every call takes 2 and then 4 ms."""

    device = CPU

    def time(self, run: Run, given: Tensors, touched: int, warm: int = 5, repeats: int = 30) -> Times:
        run(given)
        return Times((4000.0, 2000.0), "")


def test_ceilings_are_those_of_the_fastest_sample() -> None:
    found = measure_ceilings(Fixed())
    assert found == Ceilings(2 * 2**27 / 2e-3, 2 * 1024**3 / 2e-3, "fp32 1024")


def test_a_floor_is_of_bytes_or_flops() -> None:
    ceilings = Ceilings(1e12, 1e15, "")
    assert floor_us(Work(4_000_000, 1_000_000), ceilings) == pytest.approx(4.0)
    assert floor_us(Work(4_000_000, 9_000_000_000), ceilings) == pytest.approx(9.0)
