"""What a measurement was taken on: device, driver, clocks, versions, commit."""

from __future__ import annotations

import os
import platform
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from ..common import interpreting
from ..host import cpu_name

_ROOT = Path(__file__).resolve().parents[2]
_QUERIED = ("driver_version", "clocks.sm", "clocks.mem", "clocks.max.sm", "clocks.max.mem", "power.limit")
_PACKAGES = ("torch", "triton", "numpy", "flashinfer-python", "flash-attn", "specsched")


@dataclass(frozen=True)
class Machine:
    """Where calls run.

    Attributes:
        device: torch's device.
        name: of the GPU, or of the CPU.
        l2_bytes: size of the GPU's L2; None on a CPU.
        memory_bytes: free memory of a GPU, half the memory of a CPU's machine.
    """

    device: torch.device
    name: str
    l2_bytes: int | None
    memory_bytes: int

    @property
    def gpu(self) -> bool:
        """Whether it is a GPU."""
        return self.l2_bytes is not None


def this_machine() -> Machine:
    """Return the GPU if there is one and kernels are compiled, else the CPU."""
    # Interpreted kernels run on the CPU, whatever the machine has.
    if torch.cuda.is_available() and not interpreting():
        device = torch.device("cuda", torch.cuda.current_device())
        properties = torch.cuda.get_device_properties(device)
        return Machine(device, properties.name, properties.L2_cache_size, torch.cuda.mem_get_info(device)[0])
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Machine(torch.device("cpu"), cpu_name(), None, memory // 2)


def commit(folder: Path = _ROOT) -> str | None:
    """Return the commit of the checkout this file is in, ``-dirty`` if files differ from it; None without one."""
    # In an installed copy git would answer for whatever repository lies around the environment.
    if not (folder / ".git").exists():
        return None
    try:
        # `--exclude=*` drops tags, so that the answer is a commit, and the same in a clone that has none.
        return _output("git", "-C", str(folder), "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty")
    except (OSError, subprocess.SubprocessError):
        return None


def environment(machine: Machine) -> dict[str, object]:
    """Return what a reader of the numbers needs to know of the machine; null for what could not be read."""
    return {
        "device": machine.name,
        "kind": "gpu" if machine.gpu else "cpu",
        "l2_bytes": machine.l2_bytes,
        "threads": torch.get_num_threads(),
        "interpreter": interpreting(),
        "python": platform.python_version(),
        "cuda": torch.version.cuda,
        "versions": {name: package_version(name) for name in _PACKAGES},
        "commit": commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "nvidia_smi": clocks() if machine.gpu else None,
    }


def package_version(name: str) -> str | None:
    """Return a package's version; None if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def clocks() -> dict[str, str] | None:
    """Return driver, clocks and power limit of the current GPU as nvidia-smi prints them; None without it."""
    query = f"--query-gpu={','.join(_QUERIED)}"
    try:
        line = _output("nvidia-smi", query, "--format=csv,noheader", f"--id={torch.cuda.current_device()}")
    except (OSError, subprocess.SubprocessError, RuntimeError):
        return None
    return dict(zip(_QUERIED, line.split(", "), strict=False))


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout.strip()
