"""A run of the benchmark: what is timed and what is not, and what rows say of it."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch

from specsched.kernels.bench import bench, machine
from specsched.kernels.bench.bench import Bench, Row, prepare, run
from specsched.kernels.bench.cases import Case, Run, Tensors
from specsched.kernels.bench.cases_step import AdmitCase, LayoutCase
from specsched.kernels.bench.machine import Machine, clocks, commit, environment, this_machine
from specsched.kernels.bench.providers import PROVIDERS, Unavailable
from specsched.kernels.bench.roofline import Ceilings
from specsched.kernels.bench.timing import Times
from specsched.kernels.common import KernelError
from specsched.kernels.host import cpu_name

CPU = torch.device("cpu")
HERE = Machine(CPU, "Little CPU", None, 1 << 30)
LIKE_A_GPU = Machine(CPU, "Little GPU", 1000, 1 << 30)
CEILINGS = Ceilings(1e9, 1e12, "fp32 1")
TIMES = ("p20_us", "p50_us", "p80_us", "repeats", "floor_over_p50")


class Fixed:
    """A timer by which calls take 1 to 5 us, or ``us``."""

    device = CPU

    def __init__(self, us: float = 1.0) -> None:
        self.us = us
        self.timed = 0

    def time(self, run: Run, given: Tensors, touched: int, warm: int = 5, repeats: int = 30) -> Times:
        self.timed += 1
        return Times(tuple(self.us * n for n in range(1, 6)), "by heart")


def rows(machine: Machine = HERE, timer: Fixed | None = None, providers: tuple[str, ...] = PROVIDERS) -> list[Row]:
    """Rows of admission, then of layout."""
    prepared = Bench(machine, timer, None if timer is None else CEILINGS)
    return list(run(["admit"], "ci", providers, timer is None, prepared))


def spoil(monkeypatch: pytest.MonkeyPatch, eager: Callable[[Case, Tensors], Tensors]) -> None:
    monkeypatch.setattr(AdmitCase, "eager", eager)


def test_a_cpu_times_torch_and_never_the_interpreter() -> None:
    ours, torch_row, *others = rows(timer=Fixed())[:5]
    assert (ours.mode, ours.status, ours.mismatches) == ("interpreter", "ok", 0)
    assert [getattr(ours, name) for name in (*TIMES, "floor_us")] == [None] * 6
    assert (torch_row.mode, torch_row.status) == ("cpu", "ok")
    assert (torch_row.p20_us, torch_row.p50_us, torch_row.p80_us) == pytest.approx((1.8, 3.0, 4.2))
    assert torch_row.repeats == 5
    assert torch_row.floor_us == pytest.approx(0.932)  # 932 bytes at 1 GB/s
    assert torch_row.floor_over_p50 == pytest.approx(0.932 / 3)
    assert torch_row.config == "by heart"
    assert torch_row.device == "Little CPU"
    assert [(each.status, each.reason) for each in others] == [("unavailable", "needs a GPU")] * 3


def test_a_gpu_times_ours_too() -> None:
    timer = Fixed()
    found = rows(LIKE_A_GPU, timer, ("ours", "torch"))
    assert [(each.mode, each.status, each.p50_us) for each in found] == [("gpu", "ok", 3.0)] * 4
    assert timer.timed == 4


def test_a_dry_run_times_nothing() -> None:
    found = rows(timer=None)
    assert {each.mode for each in found} == {"dry"}
    assert {each.status for each in found} == {"ok", "unavailable"}
    assert {getattr(each, name) for each in found for name in (*TIMES, "floor_us")} == {None}
    assert [each.mismatches for each in found if each.status == "ok"] == [0] * 4


def test_what_is_wrong_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = AdmitCase.eager
    spoil(monkeypatch, lambda case, given: {name: each + 1 for name, each in right(case, given).items()})  # type: ignore[arg-type]
    timer = Fixed()
    found = rows(LIKE_A_GPU, timer, ("torch",))
    assert (found[0].status, found[0].mismatches, found[0].compared) == ("wrong", 67, 67)
    assert found[0].reason == "67 of 67 integers differ from the float64 reference"
    assert found[0].p50_us is None
    assert found[1].status == "ok"
    assert timer.timed == 1


def broken(case: Case, given: Tensors) -> Tensors:
    raise RuntimeError("no kernel image\nmore")


def test_what_raises_is_wrong_and_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(monkeypatch, broken)
    found = rows(timer=Fixed(), providers=("torch", "ours"))
    assert (found[0].status, found[0].reason) == ("wrong", "raised RuntimeError: no kernel image")
    assert [each.status for each in found[1:]] == ["ok"] * 3


def test_the_failure_of_others_makes_them_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    def bind(provider: str, case: Case, given: Tensors) -> Run:
        return lambda each: broken(case, each)

    monkeypatch.setattr(bench, "bind", bind)
    found = rows(LIKE_A_GPU, Fixed(), ("compile", "flashinfer"))
    assert {(each.status, each.reason) for each in found} == {("unavailable", "raised RuntimeError: no kernel image")}


def test_any_failure_of_ours_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    def bind(provider: str, case: Case, given: Tensors) -> Run:
        raise KeyError("x")

    monkeypatch.setattr(bench, "bind", bind)
    found = rows(timer=Fixed(), providers=("ours",))
    assert {(each.status, each.reason) for each in found} == {("wrong", "raised KeyError: 'x'")}


def test_slow_calls_are_judged_but_not_timed_on_a_cpu() -> None:
    found = rows(timer=Fixed(us=2e6), providers=("torch",))
    assert found[0].status == "skipped"
    assert found[0].reason == "one call takes 2.0 s here: not timed"
    assert (found[0].mismatches, found[0].p50_us) == (0, None)


def test_what_does_not_fit_is_skipped_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_inputs(case: Case, device: torch.device) -> Tensors:
        raise AssertionError("inputs were made")

    monkeypatch.setattr(LayoutCase, "memory", lambda case: 3 << 30)
    monkeypatch.setattr(LayoutCase, "inputs", no_inputs)
    found = [each for each in rows(timer=Fixed()) if each.shape.startswith("layout")]
    assert {each.status for each in found} == {"skipped"}
    assert {each.reason for each in found} == {"needs about 3.0 GiB, 1.0 GiB may be used"}


def test_the_interpreter_is_spared_large_problems() -> None:
    found = list(run(["markov"], "real", ["ours"], True, Bench(replace(HERE, memory_bytes=1 << 40), None)))
    assert {(each.status, each.reason) for each in found} == {("skipped", "too large for the interpreter")}


def test_what_the_lab_alone_chooses_is_one_call_for_others() -> None:
    found = list(run(["attention"], "ci", ["ours", "torch"], True, Bench(HERE, None)))
    assert [each.status for each in found if each.provider == "ours"] == ["ok"] * 4
    others = [each for each in found if each.provider == "torch"]
    assert [each.status for each in others] == ["ok", "ok", "skipped", "skipped"]
    assert others[2].reason == f"the same call as for {others[0].shape}"
    assert others[0].shape.startswith("packed")
    assert others[2].shape.startswith("token")


def test_ceilings_come_before_the_first_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "measure_ceilings", lambda timer: CEILINGS)
    prepared = Bench(HERE, Fixed())
    first = next(run(["admit"], "ci", ["torch"], bench=prepared))
    assert prepared.ceilings == CEILINGS
    assert first.floor_us == pytest.approx(0.932)


def test_rows_come_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    found = run(["admit"], "ci", ["torch"], bench=Bench(HERE, Fixed(), CEILINGS))
    first = next(found)
    monkeypatch.setattr(LayoutCase, "eager", broken)
    assert (first.status, next(found).status) == ("ok", "wrong")


def test_gradients_are_off_only_within_a_row() -> None:
    found = run(["admit"], "ci", ["torch"], bench=Bench(HERE, None))
    next(found)
    assert torch.is_grad_enabled()


def test_names_are_checked_before_anything_runs() -> None:
    with pytest.raises(KernelError, match=r"`providers` must be of ours, torch, .*, got 'xformers'"):
        run(["admit"], "ci", ["ours", "xformers"], True)
    with pytest.raises(KernelError, match="`op` must be one of"):
        run(["sort"], "ci")


def test_kernels_have_to_be_imported_for_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    assert prepare(dry=True).timer is None
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    with pytest.raises(KernelError, match="set TRITON_INTERPRET=1 before the import"):
        prepare(dry=True)


def test_a_row_says_what_it_was_measured_with() -> None:
    row = rows()[0]
    assert row.torch == torch.__version__
    assert row.triton is not None
    assert row.commit == commit()
    assert asdict(row)["provider"] == "ours"


def test_this_machine_is_a_cpu_here() -> None:
    found = this_machine()
    assert not found.gpu
    assert found.name
    assert found.memory_bytes > 1 << 28
    told = environment(found)
    assert told["kind"] == "cpu"
    assert told["nvidia_smi"] is None
    assert told["interpreter"] is True


def test_cpu_names(tmp_path: Path) -> None:
    text = tmp_path / "cpuinfo"
    text.write_text("processor\t: 0\nmodel name\t: Abacus 2: fast\nmodel name\t: other\n")
    assert cpu_name(text) == "Abacus 2: fast"
    assert cpu_name(tmp_path / "absent") == platform.machine()


def test_commits(tmp_path: Path) -> None:
    assert commit(tmp_path) is None

    def git(*arguments: str) -> None:
        named = ("-c", "user.name=x", "-c", "user.email=x@example.invalid")
        subprocess.run(["git", "-C", str(tmp_path), *named, *arguments], check=True, capture_output=True)

    git("init")
    (tmp_path / "a").write_text("1")
    git("add", "a")
    git("commit", "-m", "a")
    clean = commit(tmp_path)
    assert clean is not None
    assert len(clean) == 40
    (tmp_path / "a").write_text("2")
    assert commit(tmp_path) == f"{clean}-dirty"


def test_clocks_are_null_without_their_tool(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(machine.torch.cuda, "current_device", lambda: 0)
    assert clocks() is None


def test_clocks_are_as_their_tool_prints_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text('#!/bin/sh\necho "570.1, 1980 MHz, 3201 MHz, 1980 MHz, 3201 MHz, 700.00 W"\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(machine.torch.cuda, "current_device", lambda: 0)
    found = clocks()
    assert found is not None
    assert (found["driver_version"], found["clocks.sm"], found["power.limit"]) == ("570.1", "1980 MHz", "700.00 W")


def test_a_missing_package_is_named() -> None:
    from specsched.kernels.bench.providers import _module

    with pytest.raises(Unavailable, match="the package flash_attention_9 is not installed"):
        _module("flash_attention_9")
