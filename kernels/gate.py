"""The ahead-of-time gate: every kernel is compiled for real GPUs and its machine code is looked at, without a GPU.

Registers, shared memory and local memory come from ``cuobjdump``, instructions from ``nvdisasm`` (both ship with
Triton), for AMD from the assembly's own metadata. Nothing here is a time: occupancy and the issue bound are static
figures, computed from the code and the architecture's limits.
"""

from __future__ import annotations

import json
import multiprocessing
import re
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from .common import KernelError, interpreting, tiles
from .registry import Configuration, Kernel, kernels

TABLES = Path(__file__).parent / "data"
"""Where the committed tables are (a namespace package has no resources of its own)."""

TOLERANCE = 0.10
"""How far an instruction count may move from the committed one."""


@dataclass(frozen=True)
class Architecture:
    """What a multiprocessor holds.

    Attributes:
        target: Triton's name of it.
        registers: 32-bit registers of a multiprocessor.
        shared_bytes: the most shared memory of one program.
        shared_total: shared memory of a multiprocessor.
        warps: the most resident warps.
        issue: warp instructions issued a cycle.
        tensor_core: mnemonics of its matrix instructions, the best first.
    """

    target: GPUTarget
    registers: int
    shared_bytes: int
    shared_total: int
    warps: int
    issue: int
    tensor_core: tuple[str, ...]


# Limits by architecture: CUDA C++ programming guide, compute capabilities; AMD CDNA 3 ISA guide.
ARCHITECTURES: dict[str, Architecture] = {
    "sm_80": Architecture(GPUTarget("cuda", 80, 32), 65536, 163 << 10, 164 << 10, 64, 4, ("HMMA",)),
    "sm_90": Architecture(GPUTarget("cuda", 90, 32), 65536, 227 << 10, 228 << 10, 64, 4, ("HGMMA", "HMMA")),
    "sm_100": Architecture(GPUTarget("cuda", 100, 32), 65536, 227 << 10, 228 << 10, 64, 4, ("UTCHMMA", "HMMA")),
    "gfx942": Architecture(GPUTarget("hip", "gfx942", 64), 131072, 64 << 10, 64 << 10, 32, 4, ("v_mfma",)),
}


@dataclass(frozen=True)
class Compiled:
    """One kernel in one configuration on one architecture.

    Attributes:
        arch, kernel, configuration: which.
        registers: of a thread.
        shared_bytes: of a program.
        spill_bytes: local memory of a thread; anything but 0 is spilled registers.
        tensor_core: the matrix instruction found, or None.
        instructions: of the whole code, each counted once.
        occupancy: resident warps of a multiprocessor over the most it can hold.
        issue_cycles: cycles that one pass over the code takes to issue with a multiprocessor to itself, loops counted
            once: a bound from below on a program's time, not a time.
    """

    arch: str
    kernel: str
    configuration: str
    registers: int
    shared_bytes: int
    spill_bytes: int
    tensor_core: str | None
    instructions: int
    occupancy: float
    issue_cycles: int

    @property
    def key(self) -> str:
        """Its name in the committed table."""
        return f"{self.arch} {self.kernel} [{self.configuration}]"


def compile_all(
    arches: Sequence[str], ops: Sequence[str] = (), workers: int = 1, first: int | None = None
) -> Iterator[Compiled]:
    """Compile every kernel in every configuration.

    Args:
        arches: names in `ARCHITECTURES`.
        ops: operations to compile; empty is all.
        workers: processes.
        first: only so many configurations of a kernel; None is all.

    Raises:
        KernelError: in the interpreter, for an unknown architecture or operation, or if a kernel does not compile.
    """
    if interpreting():
        raise KernelError("kernels are not compiled in the interpreter; unset TRITON_INTERPRET")
    for arch in arches:
        if arch not in ARCHITECTURES:
            raise KernelError(f"unknown architecture {arch!r}; choices: {', '.join(ARCHITECTURES)}")
    known = kernels().values()
    unknown = set(ops) - {kernel.op for kernel in known}
    if unknown:
        names = sorted({kernel.op for kernel in known})
        raise KernelError(f"unknown operation {', '.join(sorted(unknown))}; choices: {', '.join(names)}")
    jobs = [
        (arch, kernel.name, place)
        for arch in arches
        for kernel in known
        if not ops or kernel.op in ops
        for place in range(len(kernel.configurations[:first]))
    ]
    if workers == 1:
        yield from map(_job, jobs)
        return
    yield from _in_processes(jobs, workers)


def _in_processes(jobs: Sequence[tuple[str, str, int]], workers: int) -> Iterator[Compiled]:
    """Yield what jobs give, in order; whoever stops reading, by Ctrl-C or otherwise, ends the processes."""
    # Children that were there before are somebody else's and stay.
    others = multiprocessing.active_children()
    pool = ProcessPoolExecutor(workers)
    try:
        yield from pool.map(_job, jobs)
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in multiprocessing.active_children():
            if child not in others:
                child.kill()
        raise
    pool.shutdown()


def _job(job: tuple[str, str, int]) -> Compiled:
    arch, name, place = job
    kernel = kernels()[name]
    return compile_one(kernel, kernel.configurations[place], arch)


def compile_one(kernel: Kernel, configuration: Configuration, arch: str) -> Compiled:
    """Compile one configuration and read its machine code.

    Raises:
        KernelError: if it does not compile.
    """
    architecture = ARCHITECTURES[arch]
    source = _source(kernel, configuration)
    options = {"num_warps": configuration.num_warps, "num_stages": configuration.num_stages}
    try:
        binary: Any = triton.compile(source, target=architecture.target, options=options)
    # Passes of a compiler raise anything; what a reader needs is the form that failed.
    except Exception as error:
        raise KernelError(f"{kernel.name} [{configuration.label}] does not compile for {arch}: {error}") from error
    read = _read_amd if architecture.target.backend == "hip" else _read_cuda
    registers, spills, instructions = read(binary)
    matrix = [name for name in architecture.tensor_core if any(name in each for each in instructions)]
    shared = int(binary.metadata.shared)
    warps = configuration.num_warps
    return Compiled(
        arch=arch,
        kernel=kernel.name,
        configuration=configuration.label,
        registers=registers,
        shared_bytes=shared,
        spill_bytes=spills,
        tensor_core=matrix[0] if matrix else None,
        instructions=len(instructions),
        occupancy=_occupancy(architecture, registers, shared, warps),
        issue_cycles=tiles(len(instructions) * warps, architecture.issue),
    )


def _source(kernel: Kernel, configuration: Configuration) -> ASTSource:
    """Return what Triton compiles; pointers are 16-byte aligned unless the configuration says otherwise."""
    names = list(kernel.function.arg_names)
    strange = (set(configuration.signature) | set(configuration.constants)) ^ set(names)
    if strange:
        raise KernelError(
            f"{kernel.name} [{configuration.label}]: arguments do not match: {', '.join(sorted(strange))}"
        )
    signature = {name: configuration.signature.get(name, "constexpr") for name in names}
    # The launcher would look at the pointers. It also looks for multiples of 16 among integers, which are not described
    # here: its loads may be wider than those seen.
    aligned = {
        (place,): [["tt.divisibility", 16]]
        for place, name in enumerate(names)
        if signature[name].startswith("*") and name not in configuration.unaligned
    }
    return ASTSource(fn=kernel.function, signature=signature, constexprs=dict(configuration.constants), attrs=aligned)


def _occupancy(architecture: Architecture, registers: int, shared: int, warps: int) -> float:
    """Return resident warps over the most possible, by registers (in blocks of 8 a thread), shared memory and warps."""
    threads = warps * architecture.target.warp_size
    # Registers are granted in units of 8 a thread, so 129 cost as much as 136.
    granted = 8 * tiles(max(registers, 1), 8)
    programs = min(
        architecture.registers // (granted * threads),
        # The 1 KiB is what CUDA takes of each program's share for itself.
        architecture.shared_total // (shared + 1024) if shared else architecture.warps,
        architecture.warps // warps,
    )
    return float(programs * warps / architecture.warps)


# --- reading machine code


def _tool(name: str) -> str:
    return str(Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / name)


def _read_cuda(binary: Any) -> tuple[int, int, list[str]]:
    """Return registers, spilled bytes and instructions of a cubin."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary.asm["cubin"])
        file.flush()
        usage = _run([_tool("cuobjdump"), "-res-usage", file.name])
        code = _run([_tool("nvdisasm"), "-c", file.name])
    found = re.search(r"REG:(\d+) STACK:(\d+) SHARED:\d+ LOCAL:(\d+)", usage)
    if found is None:
        raise KernelError(f"cuobjdump printed no resource usage: {usage!r}")
    registers, stack, local = map(int, found.groups())
    # An instruction's line begins with its address; labels and directives have none. NOPs only fill up the end.
    instructions = [line.strip() for line in code.splitlines() if re.match(r"\s+/\*[0-9a-f]{4,}\*/", line)]
    return registers, stack + local, [each for each in instructions if " NOP " not in f" {each} "]


def _read_amd(binary: Any) -> tuple[int, int, list[str]]:
    """Return registers, spilled bytes and instructions of AMD assembly."""
    text: str = binary.asm["amdgcn"]
    numbers = {name: int(value) for name, value in re.findall(r"\.(\w+):\s+(\d+)", text)}
    # Scalar registers spill into lanes of vector registers, which is no memory traffic.
    spills = 4 * numbers.get("vgpr_spill_count", 0)
    body = text.split(".section", 1)[0]
    instructions = [line.strip() for line in body.splitlines() if re.match(r"\t(v|s|ds|global|buffer|flat)_", line)]
    return numbers.get("vgpr_count", 0), spills, instructions


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise KernelError(f"{Path(command[0]).name} failed: {done.stderr.strip()}")
    return done.stdout


# --- judging


def problems(compiled: Iterable[Compiled], golden: Mapping[str, Mapping[str, Any]] | None) -> list[str]:
    """Return what is wrong with compiled kernels, each in one line.

    Args:
        compiled: what came out.
        golden: the committed table of this Triton version; None judges without one.
    """
    table = kernels()
    found: list[str] = []
    for each in compiled:
        configuration = next(c for c in table[each.kernel].configurations if c.label == each.configuration)
        found += [f"{each.key}: {text}" for text in _problems(each, configuration, golden)]
    return found


def _problems(
    each: Compiled, configuration: Configuration, golden: Mapping[str, Mapping[str, Any]] | None
) -> Iterator[str]:
    limit = ARCHITECTURES[each.arch].shared_bytes
    # What is known is excused up to its size: 8 warps would end the 16 bytes that Triton 3.7 spills in two forms, at
    # 1.4 times the issue bound (docs/LOG.md).
    if each.spill_bytes > _known_spill(each, golden):
        yield f"{each.spill_bytes} bytes of registers spilled; take a smaller tile or more warps"
    if each.shared_bytes > limit:
        yield f"{each.shared_bytes} bytes of shared memory, over the limit of {limit}"
    # The best instruction or none: an HMMA on sm_90 means that the warp-group form was missed.
    if configuration.tensor_core and each.tensor_core != ARCHITECTURES[each.arch].tensor_core[0]:
        yield f"{ARCHITECTURES[each.arch].tensor_core[0]} expected, got {each.tensor_core}"
    if golden is None:
        return
    if each.key not in golden:
        yield "not in the committed table; run with --update and commit it"
        return
    before = int(golden[each.key]["instructions"])
    if abs(each.instructions - before) > TOLERANCE * before:
        yield f"{each.instructions} instructions, {before} in the committed table; over {TOLERANCE:.0%} apart"
    if each.tensor_core != golden[each.key]["tensor_core"]:
        yield f"tensor-core instruction {each.tensor_core}, {golden[each.key]['tensor_core']} in the committed table"


def _known_spill(each: Compiled, golden: Mapping[str, Mapping[str, Any]] | None) -> int:
    """Return the bytes of spill that the committed table of this Triton version shows; none is excused on sm_90."""
    if golden is None or each.arch == "sm_90" or each.key not in golden:
        return 0
    return int(golden[each.key]["spill_bytes"])


def version() -> str:
    """Return Triton's version."""
    return str(triton.__version__)


def golden_name() -> str:
    """Return the file name of the table of this Triton version, such as ``gate-3.9.json``."""
    # Patch releases share a table; where their code differs, TOLERANCE decides.
    return f"gate-{'.'.join(version().split('.')[:2])}.json"


def golden() -> dict[str, dict[str, Any]] | None:
    """Return the committed table of this Triton version, or None if there is none."""
    file = TABLES / golden_name()
    if not file.is_file():
        return None
    table: dict[str, dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))
    return table


def as_table(compiled: Iterable[Compiled]) -> dict[str, dict[str, Any]]:
    """Return compiled kernels as the committed table holds them."""
    hidden = ("arch", "kernel", "configuration")
    return {
        each.key: {name: value for name, value in asdict(each).items() if name not in hidden}
        for each in sorted(compiled, key=lambda each: each.key)
    }
