"""The profiler by a clock of its own: what is timed, in which order, what is believed, what is refused."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from specsched.kernels.common import KernelError
from specsched.kernels.host import cpu_name
from specsched.kernels.profile import machines as profile_machines
from specsched.kernels.profile.decoder import DecoderShape
from specsched.kernels.profile.machines import HOST_LEAST, CudaMachine, HostMachine, machine
from specsched.kernels.profile.models import MAX_ROWS, MODELS, ProfiledModel, model_named
from specsched.kernels.profile.profiler import (
    ANCHORS,
    APART,
    APART_SHARE,
    EAGER,
    FLAT,
    Measured,
    Plan,
    Point,
    ProfileRefused,
    Timing,
    anchors,
    fit_context,
    judge,
    make_plan,
    measure,
    rows_of,
)

DENSE, TINY = MODELS["dense-8b"], MODELS["tiny-cpu"]
SHAPE = DecoderShape(1, 16, 2, 1, 16, 16, 50, torch.float32, page=16)
SMALL = replace(
    TINY, name="small", target=SHAPE, drafter=SHAPE, rank=16, context=32, draft_context=16, grid_tokens=1 << 12
)
"""For the machines' own code: runs in milliseconds, in the interpreter too."""


def linear(point: Point) -> float:
    """Seconds that follow a law: of what runs, of its rows' context, of drafting."""
    if point.part == "draft":
        return 1e-3 + 1e-5 * point.rows
    return 2e-3 + 1e-5 * point.size + 1e-8 * point.rows * point.context


@dataclass
class Clockwork:
    """Gives times by a law, disturbed in some calls; remembers what was asked for."""

    law: Callable[[Point], float] = linear
    disturb: Callable[[int, Point], float] = lambda call, point: 1.0
    asked: list[tuple[Point, int, int]] = field(default_factory=list)
    kept: list[Timing] = field(default_factory=list)

    def time(self, point: Point, warm: int, timed: int) -> Sequence[float]:
        self.asked.append((point, warm, timed))
        return [self.law(point) * self.disturb(len(self.asked) - 1, point)] * timed

    def run(self, plan: Plan) -> Measured:
        return measure(plan, self.time, self.kept.append)


def plan_of(model: ProfiledModel = DENSE, gamma: int = 7, limit: int | None = None, quick: bool = False) -> Plan:
    return make_plan(model, gamma, model.limit if limit is None else limit, quick)


def verify(plan: Plan) -> dict[int, Point]:
    return {point.tokens: point for point in plan.points if point.part == "verify"}


def test_captured_sizes_are_those_of_the_design() -> None:
    expected = [1, 2, 4, *range(8, 256, 8), *range(256, 512, 16), 512, 1024]
    assert list(plan_of().captured_sizes) == expected
    assert plan_of(TINY).captured_sizes == ()


def test_points_above_a_size_run_the_next() -> None:
    points = verify(plan_of())
    for size, larger in zip(plan_of().captured_sizes, plan_of().captured_sizes[1:], strict=False):
        above = points[size + 1]
        assert (above.size, above.captured) == (larger, True)
        assert (above.rows, above.table) == (rows_of(size + 1, 7), rows_of(larger, 7))
    assert (points[1025].size, points[1025].captured) == (1025, False)
    assert set(EAGER) < set(points)


def test_a_cpu_runs_what_it_is_asked() -> None:
    for point in plan_of(TINY).points:
        assert (point.size, point.table, point.captured) == (point.tokens, point.rows, False)
    assert max(verify(plan_of(TINY))) == 2048


def test_the_sweep_serves_every_frontier_load() -> None:
    """256 rows that verify 7 drafts each."""
    for model in MODELS.values():
        plan = plan_of(model)
        assert max(verify(plan)) >= MAX_ROWS * 8
        assert max(point.rows for point in plan.points if point.part == "draft") == MAX_ROWS


@pytest.mark.parametrize("gamma", [1, 4, 7, 16])
def test_rows_verify_whole_blocks(gamma: int) -> None:
    for point in verify(plan_of(DENSE, gamma, 4096)).values():
        assert 1 <= point.rows <= point.table <= MAX_ROWS
        most = max(1 + gamma, -(-point.size // point.table))
        assert -(-point.tokens // point.rows) <= most <= 17


def test_the_grid_holds_the_contexts_that_fit() -> None:
    grid = {(point.rows, point.context) for point in plan_of().points if point.part == "context"}
    whole = {(rows, context) for rows in (1, 4, 16) for context in (1024, 4096, 16384)}
    assert grid == whole | {(64, 1024), (64, 4096)}
    assert all(rows * context <= DENSE.grid_tokens for rows, context in grid)


def test_a_limit_is_the_last_size() -> None:
    plan = plan_of(limit=100)
    assert plan.captured_sizes[-1] == 96
    points = verify(plan)
    assert max(points) == 100
    assert not points[97].captured
    assert not points[100].captured
    assert {point.rows for point in plan.points if point.part == "draft"} == {1, 2, 4, 8}
    assert {point.rows for point in plan.points if point.part == "context"} == {1, 4}


def test_quick_is_a_subset() -> None:
    for model in (DENSE, TINY):
        short, long = plan_of(model, quick=True), plan_of(model)
        assert len(short.points) < len(long.points) / 3
        assert set(verify(short)) < set(verify(long))
        assert short.timed < long.timed


@pytest.mark.parametrize(
    ("gamma", "limit", "message"),
    [
        (0, 64, r"`gamma` must be 1 to 16, got 0"),
        (17, 64, r"`gamma` must be 1 to 16, got 17"),
        (7, 7, r"`limit` must be 1 \+ gamma \(8\) to 4096 tokens, got 7"),
        (7, 4097, r"`limit` must be 1 \+ gamma \(8\) to 4096 tokens, got 4097"),
    ],
)
def test_numbers_out_of_range_are_refused(gamma: int, limit: int, message: str) -> None:
    with pytest.raises(KernelError, match=message):
        make_plan(DENSE, gamma, limit, False)


def test_the_second_pass_is_reversed() -> None:
    plan, clock = plan_of(quick=True), Clockwork()
    measured = clock.run(plan)
    order = [point for point, _, _ in clock.asked]
    assert order == [*plan.points, *reversed(plan.points)]
    assert {(warm, timed) for _, warm, timed in clock.asked} == {(plan.warm, plan.timed)}
    assert [timing.run for timing in clock.kept] == [1] * len(plan.points) + [2] * len(plan.points)
    assert (measured.repeated, measured.apart) == ((), ())
    assert len(measured.samples("verify")) == 2 * plan.timed * len(verify(plan))


def test_full_plans_take_5_and_30() -> None:
    assert (plan_of().warm, plan_of().timed) == (5, 30)


def slow(points: Sequence[Point], calls: Callable[[int], bool]) -> Callable[[int, Point], float]:
    """A machine that is 40 % slower at some points in some calls."""
    return lambda call, point: 1.4 if point in points and calls(call) else 1.0


def test_a_disturbed_point_is_timed_again_and_the_repetition_counts() -> None:
    plan = plan_of(quick=True)
    count, odd = len(plan.points), plan.points[3:6]
    clock = Clockwork(disturb=slow(odd, lambda call: call < count))
    measured = clock.run(plan)
    assert measured.repeated == odd
    assert measured.apart == ()
    assert [point for point, _, _ in clock.asked[2 * count :]] == [*odd, *reversed(odd)]
    assert [timing.run for timing in clock.kept[2 * count :]] == [3] * 3 + [4] * 3
    assert measured.medians[odd[0]] == linear(odd[0])
    judge(measured)


def test_passes_within_a_quarter_agree() -> None:
    plan = plan_of(quick=True)
    clock = Clockwork(disturb=lambda call, point: 1.249 if call < len(plan.points) else 1.0)
    assert clock.run(plan).repeated == ()


def test_few_points_may_stay_apart_but_not_many() -> None:
    plan = plan_of()
    sizes = sum(point.part == "verify" for point in plan.points)
    assert sizes < len(plan.points)
    allowed = int(0.05 * sizes)
    for number, refused in ((allowed, False), (allowed + 1, True)):
        odd = plan.points[:number]
        first = len(plan.points), 2 * len(plan.points) + number
        clock = Clockwork(
            disturb=slow(odd, lambda call, first=first: call < first[0] or 2 * first[0] <= call < first[1])
        )
        measured = clock.run(plan)
        assert measured.apart == odd
        if not refused:
            judge(measured)
            continue
        with pytest.raises(ProfileRefused, match=f"25% apart at {number} of {sizes} sizes.*: 1 tokens, 2 t"):
            judge(measured)


@pytest.mark.parametrize(("number", "refused"), [(1, False), (2, True)])
def test_one_of_twenty_may_stay_apart(number: int, refused: bool) -> None:
    plan = replace(plan_of(), points=plan_of().points[:20])
    clock = Clockwork(disturb=slow(plan.points[:number], lambda call: call < 20 or 40 <= call < 40 + number))
    measured = clock.run(plan)
    assert len(measured.apart) == number
    if not refused:
        judge(measured)
        return
    with pytest.raises(ProfileRefused, match="25% apart at 2 of 20 points"):
        judge(measured)


@pytest.mark.parametrize(("rise", "refused"), [(1.0, True), (1.04, True), (1.06, False)])
def test_a_flat_curve_is_refused(rise: float, refused: bool) -> None:
    measured = Clockwork(law=lambda point: 1e-3 * (rise if point.tokens > 100 else 1.0)).run(plan_of(quick=True))
    if not refused:
        judge(measured)
        return
    with pytest.raises(ProfileRefused, match=r"the curve is flat: 4096 tokens take .* raise `limit`"):
        judge(measured)


def test_a_failure_keeps_what_came_before() -> None:
    plan, clock = plan_of(quick=True), Clockwork()

    def stop(call: int, point: Point) -> float:
        if call == 5:
            raise KeyboardInterrupt
        return 1.0

    clock.disturb = stop
    with pytest.raises(KeyboardInterrupt):
        clock.run(plan)
    assert [timing.point for timing in clock.kept] == list(plan.points[:5])


def test_the_context_slope_is_found() -> None:
    """In spite of intercepts that differ with the rows, as tokens do."""
    fit = fit_context(Clockwork().run(plan_of()))
    assert fit is not None
    assert fit.seconds_per_token == pytest.approx(1e-8, rel=1e-9)
    assert fit.points == 11
    assert fit.worst < 1e-9


def test_the_fit_is_least_squares_of_relative_errors() -> None:
    bent = Clockwork(law=lambda point: 1e-3 * point.rows + (1e-8 * point.rows * point.context) ** 1.4).run(plan_of())
    grid = bent.part("context")
    rows = sorted({point.rows for point in grid})
    terms = [[point.rows * point.context, *(float(point.rows == each) for each in rows)] for point in grid]
    seconds = np.array(list(grid.values()))
    solution, *_ = np.linalg.lstsq(np.array(terms) / seconds[:, None], np.ones(len(seconds)), rcond=None)
    fit = fit_context(bent)
    assert fit is not None
    assert fit.seconds_per_token == pytest.approx(solution[0], rel=1e-6)
    assert fit.worst == pytest.approx(np.abs(terms @ solution / seconds - 1).max(), rel=1e-6)


def test_the_fit_says_how_far_it_is_off() -> None:
    bent = Clockwork(law=lambda point: linear(point) * (1.5 if (point.rows, point.context) == (4, 4096) else 1))
    fit = fit_context(bent.run(plan_of()))
    assert fit is not None
    assert 0.2 < fit.worst < 0.5


def test_no_slope_without_a_rise_or_a_grid() -> None:
    assert fit_context(Clockwork(law=lambda point: 1 / (1 + point.context)).run(plan_of())) is None
    assert fit_context(Clockwork(law=lambda point: 1e-3).run(plan_of())) is None
    alone = plan_of()
    no_grid = replace(alone, points=tuple(point for point in alone.points if point.part != "context"))
    assert fit_context(Clockwork().run(no_grid)) is None


def test_anchors_follow_from_the_first_size() -> None:
    measured = Clockwork(law=lambda point: 5.1e-3 if point.tokens == 1 else 6e-3).run(plan_of(quick=True))
    assert anchors(measured) == (120, 200, 290)


def test_gpu_models_are_large_and_fit() -> None:
    for model in MODELS.values():
        if model.device == "cuda":
            assert model.target.weight_bytes >= 2e9
            assert model.device_bytes(16) * profile_machines.ROOM < 130 * 2**30
    assert DENSE.target.weights == 8_029_995_008
    assert MODELS["moe-30b-a3b-like"].target.experts == 128


def test_pools_hold_every_batch_of_every_plan() -> None:
    for model in MODELS.values():
        for gamma in (1, 7, 16):
            for point in make_plan(model, gamma, EAGER[-1], False).points:
                page = model.target.page
                tokens = gamma if point.part == "draft" else max(1 + gamma, -(-point.size // point.table))
                pages = model.draft_pages(gamma) if point.part == "draft" else model.pages()
                assert point.table * -(-(point.context + tokens) // page) < pages, (model.name, gamma, point)


def test_unknown_models_are_named() -> None:
    with pytest.raises(KernelError, match=r"`model` must be one of dense-8b, .*tiny-cpu, got 'dense'"):
        model_named("dense")


class Seconds:
    """A clock that moves when told, and by ``tick`` whenever it is read."""

    def __init__(self, tick: float) -> None:
        self.now, self.tick = 0.0, tick

    def __call__(self) -> float:
        self.now += self.tick
        return self.now


@pytest.mark.parametrize(("tick", "warm", "timed"), [(1e-3, 5, 30), (0.02, 2, 8), (0.5, 1, HOST_LEAST)])
def test_long_calls_are_repeated_less(tick: float, warm: int, timed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    host, calls = HostMachine(SMALL, 3, 0, Seconds(tick)), []
    monkeypatch.setattr(host, "work", lambda point, batch: lambda: calls.append(batch))
    seconds = host.time(Point("verify", 4, 1, 32, 4, 1, False), 5, 30)
    assert seconds == pytest.approx([tick] * timed)
    assert len(calls) == warm + timed


def test_the_host_runs_every_part() -> None:
    host = HostMachine(SMALL, 3, 0, Seconds(1.0))
    for part, tokens, rows in (("verify", 7, 2), ("context", 8, 2), ("draft", 6, 2)):
        point = Point(part, tokens, rows, 16, tokens, rows, False)
        result = host.work(point, host.batch(point))()
        assert isinstance(result, torch.Tensor)
        assert result.shape == ((2, 3) if part == "draft" else (tokens, 50))
        assert bool((result >= 0).all()) if part == "draft" else bool(result.isfinite().all())


def test_facts_of_the_host() -> None:
    facts = HostMachine(SMALL, 3, 0).facts()
    assert facts.hardware == f"{cpu_name()} ({torch.get_num_threads()} threads)"
    assert {"torch", "triton", "python"} == set(facts.versions)
    assert "load average" in facts.clocks


@dataclass
class FakeGpu:
    """torch.cuda in the shape of the calls that are made, on CPU tensors; a replay runs nothing."""

    captures: int = 0
    replays: list[int] = field(default_factory=list)
    eager: int = 0
    time: float = 0.0
    capturing: bool = False

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        gpu = self

        class Graph:
            def __init__(self) -> None:
                self.number = gpu.captures

            def replay(self) -> None:
                gpu.replays.append(self.number)
                gpu.time += 1 + self.number

        class Event:
            def __init__(self, enable_timing: bool) -> None:
                assert enable_timing

            def record(self) -> None:
                self.at = gpu.time

            def elapsed_time(self, end: Event) -> float:
                return end.at - self.at

        class Stream:
            def wait_stream(self, other: Any) -> None:
                assert isinstance(other, Stream)

        @contextmanager
        def graph(made: Graph, pool: str) -> Iterator[None]:
            assert (made.number, pool) == (gpu.captures, "memory")
            gpu.capturing = True
            yield
            gpu.capturing = False
            gpu.captures += 1

        @contextmanager
        def stream(on: Stream) -> Iterator[None]:
            yield

        fakes = {
            "CUDAGraph": Graph, "Event": Event, "Stream": Stream, "graph": graph, "stream": stream,
            "current_stream": Stream, "graph_pool_handle": lambda: "memory", "synchronize": lambda: None,
        }  # fmt: skip
        for name, fake in fakes.items():
            monkeypatch.setattr(torch.cuda, name, fake)
        monkeypatch.setattr(profile_machines, "_check_device", lambda model, gamma: None)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    fake = FakeGpu()
    fake.install(monkeypatch)
    return fake


def test_one_graph_a_form_and_padded_batches_replay_it(gpu: FakeGpu) -> None:
    made = CudaMachine(SMALL, 3, 0)
    points = [
        Point("verify", 8, 2, 32, 8, 2, True), Point("verify", 5, 2, 32, 8, 2, True),
        Point("verify", 1, 1, 32, 1, 1, True), Point("context", 8, 2, 16, 8, 2, True),
        Point("context", 8, 2, 48, 8, 2, True), Point("context", 8, 2, 16, 8, 2, True),
        Point("draft", 6, 2, 16, 6, 2, True), Point("draft", 6, 2, 16, 6, 2, True),
    ]  # fmt: skip
    times = [made.time(point, 2, 3) for point in points]
    assert gpu.captures == 5
    assert gpu.replays == [number for number in (0, 0, 1, 2, 3, 2, 4, 4) for _ in range(5)]
    assert times == [[pytest.approx((1 + number) / 1e3)] * 3 for number in (0, 0, 1, 2, 3, 2, 4, 4)]


def test_a_padded_batch_is_loaded_before_its_replay(gpu: FakeGpu) -> None:
    made = CudaMachine(SMALL, 3, 0)
    made.time(Point("verify", 8, 2, 32, 8, 2, True), 0, 1)
    (captured,) = made._graphs.values()
    assert captured.batch.request.tolist() == [0] * 4 + [1] * 4
    made.time(Point("verify", 5, 2, 32, 8, 2, True), 0, 1)
    assert captured.batch.request.tolist() == [0] * 3 + [1] * 2 + [-1] * 3


def test_points_beyond_the_graphs_are_launched(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    made = CudaMachine(SMALL, 3, 0)

    def launch() -> None:
        gpu.time += 100

    monkeypatch.setattr(made, "work", lambda point, batch: launch)
    assert made.time(Point("verify", 9, 3, 32, 9, 3, False), 1, 2) == [0.1, 0.1]
    assert gpu.captures == 0


def test_a_gpu_model_needs_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KernelError, match=r"`dense-8b` cannot be timed in the interpreter; unset TRITON_INTERPRET"):
        machine(DENSE, 7, 0)
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(KernelError, match=r"`dense-8b` needs a GPU, and torch sees none; profile `tiny-cpu` here"):
        machine(DENSE, 7, 0)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (20 << 30, 24 << 30))
    with pytest.raises(KernelError, match=r"`dense-8b` needs 58 GiB of GPU memory, 20 are free"):
        machine(DENSE, 7, 0)


def test_experts_need_a_grouped_product_that_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    mixed = MODELS["moe-30b-a3b-like"]
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (8, 0))
    with pytest.raises(KernelError, match=r"needs compute capability 9.x or 10.x, got 8.0: .*choose a dense model"):
        machine(mixed, 7, 0)
    monkeypatch.delattr(F, "grouped_mm")
    with pytest.raises(KernelError, match=r"needs `torch.nn.functional.grouped_mm`, torch .* has none"):
        machine(mixed, 7, 0)


def test_clocks_that_cannot_be_read_are_said_to_be_so(monkeypatch: pytest.MonkeyPatch) -> None:
    class Properties:
        uuid = "1234"

    asked = []

    def answer(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        asked.append(command)
        return subprocess.CompletedProcess(command, 0, stdout="570.1, 1980 MHz, 3201 MHz\n")

    def missing(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        raise FileNotFoundError

    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: Properties)
    monkeypatch.setattr(subprocess, "run", answer)
    assert profile_machines._clocks() == "570.1, 1980 MHz, 3201 MHz"
    assert asked[0][-1] == "--id=GPU-1234"
    monkeypatch.setattr(subprocess, "run", missing)
    assert profile_machines._clocks() == "not readable"


PAGE = (Path(__file__).resolve().parents[3] / "docs/kernel_profile.md").read_text(encoding="utf-8")
FLAT_PAGE = " ".join(PAGE.split())


def test_the_page_names_the_models_and_their_sizes() -> None:
    table = PAGE.split("<!-- profiled models -->\n")[1].split("<!-- end of profiled models -->")[0]
    printed = [line.strip("| ").split(" | ") for line in table.splitlines()]
    assert [row[0].strip("`") for row in printed] == list(MODELS)
    for row, model in zip(printed, MODELS.values(), strict=True):
        target = model.target
        assert row[2:4] == [f"{target.weights / 1e9:.3g}", f"{target.weight_bytes / 1e9:.3g}"]
        assert row[4:] == [f"{model.device_bytes(7) / 2**30:.0f}", "GPU" if model.device == "cuda" else "CPU"]


def test_the_page_says_what_is_timed_and_refused() -> None:
    eager = ", ".join(f"{size:,}" for size in (1025, *EAGER[:-1]))
    for sentence in (
        f"eager steps at {eager} and {EAGER[-1]:,} tokens",
        f"{MAX_ROWS} at most, of {DENSE.context:,} tokens of context each (`tiny-cpu`: {TINY.context})",
        f"with {DENSE.draft_context} tokens of context, and draws the block",
        f"called {plan_of().warm} times to warm up and {plan_of().timed} times to count",
        f"stops repeating a point after {profile_machines.HOST_BUDGET_S} s, but not before {HOST_LEAST} times",
        f"over {APART:.0%} apart at over {APART_SHARE:.0%} of the sizes, or of all points".replace("%", " %"),
        f"less than {FLAT - 1:.0%} longer".replace("%", " %"),
        "`sla_anchors` are {:g}, {:g} and {:g} times".format(*ANCHORS),
        "sm_{}0 and sm_{}0 alone".format(*profile_machines.GROUPED_MAJORS),
    ):
        assert sentence in FLAT_PAGE, sentence
