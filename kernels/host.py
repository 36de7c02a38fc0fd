"""What the machine says of itself, for whoever writes down what a time was taken on."""

from __future__ import annotations

import platform
from pathlib import Path


def cpu_name(path: Path = Path("/proc/cpuinfo")) -> str:
    """Return the CPU's name, or its architecture where the system does not tell."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    # x86 has such a line for each processor; other architectures may have none.
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
