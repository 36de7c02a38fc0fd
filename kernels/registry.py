"""Every kernel and the configurations it ships in, for the compile gate and the benchmark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any


@dataclass(frozen=True)
class Configuration:
    """One compiled form of a kernel.

    Attributes:
        label: types and tiles, as tables show them.
        signature: type of each argument that is no constant, such as ``*bf16``, ``i32`` or ``fp32``, in order.
        constants: values of the ``constexpr`` arguments.
        num_warps: warps of a program.
        num_stages: depth of software pipelining.
        tensor_core: whether tensor-core instructions must show (wgmma on sm_90).
        unaligned: pointer arguments that may not be 16-byte aligned.
    """

    label: str
    signature: Mapping[str, str]
    constants: Mapping[str, Any] = field(default_factory=dict)
    num_warps: int = 4
    num_stages: int = 2
    tensor_core: bool = False
    unaligned: tuple[str, ...] = ()


@dataclass(frozen=True)
class Kernel:
    """A Triton function and the forms it ships in.

    Attributes:
        op: the operation it belongs to, such as ``markov``.
        name: its own name.
        function: the ``@triton.jit`` function.
        configurations: what is compiled ahead of time.
    """

    op: str
    name: str
    function: Any
    configurations: tuple[Configuration, ...]


MODULES = ("markov", "rnn", "confidence", "admit", "attention", "verify")
"""Files of this room that define kernels, each listing its own as ``KERNELS``."""


def kernels() -> dict[str, Kernel]:
    """Return every kernel by name.

    Raises:
        ValueError: if two kernels share a name, or two configurations of one kernel a label.
    """
    found: dict[str, Kernel] = {}
    for module in MODULES:
        # Late, for these files import this one; and decorating a kernel is when Triton asks whether it is to be
        # interpreted.
        for kernel in import_module(f".{module}", __package__).KERNELS:
            labels = [each.label for each in kernel.configurations]
            if kernel.name in found or len(set(labels)) < len(labels):
                raise ValueError(f"two kernels, or two configurations of one, are called `{kernel.name}`: {labels}")
            found[kernel.name] = kernel
    return found
