"""The benchmark: each shape of each operation by each provider, judged against float64, then timed.

On a machine without a GPU the lab's kernels run in Triton's interpreter, which says whether they are right and nothing
about time, and plain torch is timed on the CPU. Nothing is timed before it was judged, and nothing wrong is timed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch

from ..common import KernelError, interpreting
from .cases import Case, Tensors, Verdict
from .machine import Machine, commit, package_version, this_machine
from .providers import PROVIDERS, Unavailable, bind, case_of, first_line
from .roofline import Ceilings, floor_us
from .shapes import OPS, Shape, select
from .timing import REPEATS, WARM, CpuTimer, CudaTimer, Timer, Times, measure_ceilings

MOST_CPU_S = 20.0
"""Seconds that the timed calls of one row may take on a CPU."""


@dataclass(frozen=True)
class Row:
    """One result; None where there is nothing to say.

    Attributes:
        op, shape, provider: which, as `Shape.label` and `PROVIDERS` have it.
        mode: ``gpu``; ``cpu`` (plain torch, timed); ``interpreter`` (never timed); ``dry`` (nothing timed).
        status: ``ok``; ``wrong`` (disagrees with float64, or raised; no time); ``unavailable`` (the provider is missing
            here); ``skipped`` (not tried, or not timed, here).
        reason: why the status is not ``ok``.
        p20_us, p50_us, p80_us: quantiles of a call's time in microseconds.
        repeats: samples.
        bytes, flops: least traffic and arithmetic of a call.
        floor_us: least time by the ceilings measured on this device in this run.
        floor_over_p50: share of that in the median time.
        relative_error: greatest relative L2 distance from float64.
        mismatches, compared: integers that differ from float64's, of so many that must not.
        config: what was chosen, which rows were judged, how time was taken.
        triton, torch, device, commit: what it was measured with and on.
    """

    op: str
    shape: str
    provider: str
    mode: str
    status: str
    reason: str | None = None
    p20_us: float | None = None
    p50_us: float | None = None
    p80_us: float | None = None
    repeats: int | None = None
    bytes: int | None = None
    flops: int | None = None
    floor_us: float | None = None
    floor_over_p50: float | None = None
    relative_error: float | None = None
    mismatches: int | None = None
    compared: int | None = None
    config: str = ""
    triton: str | None = None
    torch: str | None = None
    device: str = ""
    commit: str | None = None


@dataclass
class Bench:
    """A run: a machine, its timer (None if nothing is timed), and what the device reaches."""

    machine: Machine
    timer: Timer | None
    ceilings: Ceilings | None = None
    commit: str | None = field(default_factory=commit)

    def rows(self, shapes: Sequence[Shape], providers: Sequence[str]) -> Iterator[Row]:
        """Yield a row for each shape and provider; ceilings are measured before the first."""
        # Floors rest on what this device reaches in this very run, not on a data sheet.
        if self.timer is not None and self.ceilings is None:
            self.ceilings = measure_ceilings(self.timer)
        done: dict[str, str] = {}
        for shape in shapes:
            case = case_of(shape)
            blank = {provider: self._blank(case, provider) for provider in providers}
            # What the lab alone chooses makes no difference to others.
            same = done.setdefault(f"{shape.op} {case.others().label}", shape.label)
            twice = None if same == shape.label else f"the same call as for {same}"
            left_out = {name: self._left_out(case, name) or (twice if name != "ours" else None) for name in providers}
            # Inputs of gigabytes are made once for all providers, and only if one of them runs.
            given = case.inputs(self.machine.device) if None in left_out.values() else {}
            for provider in providers:
                reason = left_out[provider]
                if reason is not None:
                    yield replace(blank[provider], status="skipped", reason=reason)
                else:
                    yield self._row(case, provider, given, blank[provider])

    def _blank(self, case: Case, provider: str) -> Row:
        """Return a row with all that is known before anything ran."""
        work, floor = case.work(), None
        mode = "gpu" if self.machine.gpu else "cpu"
        if self.timer is None:
            mode = "dry"
        # A time taken in the interpreter says nothing about a kernel: such rows never hold one.
        elif mode == "cpu" and provider == "ours":
            mode = "interpreter"
        if self.ceilings is not None and mode in ("gpu", "cpu"):
            floor = floor_us(work, self.ceilings)
        return Row(
            case.shape.op, case.shape.label, provider, mode, "ok", bytes=work.bytes, flops=work.flops, floor_us=floor,
            config=case.config(provider), triton=package_version("triton"), torch=package_version("torch"),
            device=self.machine.name, commit=self.commit,
        )  # fmt: skip

    def _left_out(self, case: Case, provider: str) -> str | None:
        """Return why a provider is not tried; None if it is."""
        if not self.machine.gpu and provider == "ours" and case.work().bytes > INTERPRETED_BYTES:
            return "too large for the interpreter"
        need, have = case.memory(), self.machine.memory_bytes
        if need > have:
            return f"needs about {need / 2**30:.1f} GiB, {have / 2**30:.1f} GiB may be used"
        return None

    def _row(self, case: Case, provider: str, given: Tensors, row: Row) -> Row:
        """Judge a provider and, if it is right, time it."""
        try:
            # Judged before it is timed, with the call that is timed: what is wrong gets no time.
            run = bind(provider, case, given)
            found = run(given)
            row = _judged(row, case.compare(given, found), case.shape.dtype)
            if row.status != "ok" or self.timer is None or row.mode == "interpreter":
                return row
            if not self.machine.gpu:
                # One call first, since 35 of a slow one would take minutes; it keeps its verdict all the same.
                once = self.timer.time(run, given, case.work().bytes, warm=0, repeats=1).us[0]
                if once * (WARM + REPEATS) > MOST_CPU_S * 1e6:
                    return replace(row, status="skipped", reason=f"one call takes {once / 1e6:.1f} s here: not timed")
            return _timed(row, self.timer.time(run, given, case.work().bytes))
        except Unavailable as missing:
            return replace(row, status="unavailable", reason=str(missing))
        except Exception as error:  # noqa: BLE001 - nobody watches a run, whose other rows are worth having
            said = f"raised {type(error).__name__}: {first_line(error)}"
            # The lab's own calls and plain torch have to work; others are not ours to mend.
            status = "wrong" if provider in ("ours", "torch") else "unavailable"
            return replace(row, status=status, reason=said)


INTERPRETED_BYTES = 1 << 21
"""Traffic of the largest problem that is given to the interpreter."""


def _judged(row: Row, verdict: Verdict, dtype: str) -> Row:
    """Return a row with what float64 says."""
    problem = verdict.problem(dtype)
    return replace(
        row,
        status="wrong" if problem else "ok",
        reason=problem,
        relative_error=verdict.relative_error,
        mismatches=verdict.mismatches,
        compared=None if verdict.mismatches is None else verdict.compared,
        config=_joined(row.config, verdict.rows),
    )


def _timed(row: Row, times: Times) -> Row:
    """Return a row with its times."""
    low, middle, high = (times.quantile(share) for share in (0.2, 0.5, 0.8))
    return replace(
        row,
        p20_us=low,
        p50_us=middle,
        p80_us=high,
        repeats=len(times.us),
        floor_over_p50=None if row.floor_us is None else row.floor_us / middle,
        config=_joined(row.config, times.how),
    )


def _joined(*parts: str | None) -> str:
    return "; ".join(part for part in parts if part)


def prepare(dry: bool = False) -> Bench:
    """Return a run on this machine: its GPU; else its CPU, with the lab's kernels in the interpreter.

    Raises:
        KernelError: if kernels would have to be interpreted, but were not imported so.
    """
    machine = this_machine()
    if (dry or not machine.gpu) and not interpreting():
        raise KernelError("without a GPU, and dry, kernels are interpreted: set TRITON_INTERPRET=1 before the import")
    if dry:
        return Bench(machine, None)
    return Bench(machine, CpuTimer() if machine.l2_bytes is None else CudaTimer(machine.device, machine.l2_bytes))


def run(
    ops: Sequence[str] = OPS,
    shapes: str = "ci",
    providers: Sequence[str] = PROVIDERS,
    dry: bool = False,
    bench: Bench | None = None,
) -> Iterator[Row]:
    """Run the benchmark.

    Args:
        ops: operations, of `OPS`.
        shapes: ``ci`` (small) or ``real``.
        providers: of `PROVIDERS`.
        dry: judge, but time nothing; kernels are interpreted.
        bench: from `prepare`, for its ceilings afterwards; made here by default.

    Returns:
        Rows, one after the other as they are found.

    Raises:
        KernelError: at once, if a name is unknown, or kernels would have to be interpreted but were not imported so.
    """
    # Here and not in the generator, which would not look at names before its first row is asked for.
    chosen = select(shapes, ops)
    unknown = [name for name in providers if name not in PROVIDERS]
    if unknown:
        raise KernelError(f"`providers` must be of {', '.join(PROVIDERS)}, got {unknown[0]!r}")
    bench = bench or prepare(dry)
    return _without_gradients(bench.rows(chosen, providers))


def _without_gradients(rows: Iterator[Row]) -> Iterator[Row]:
    """Yield rows, each computed without recording gradients; between two the caller's setting holds."""
    while True:
        # Entered anew for each row: a generator that held it would leave gradients off for its caller between two rows.
        with torch.no_grad():
            row = next(rows, None)
        if row is None:
            return
        yield row
