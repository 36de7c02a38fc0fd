from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

from .source_rules import banned, jitted, narrow_arithmetic

FOLDER = Path(__file__).resolve().parents[2] / "kernels"
SOURCES = {
    ".".join(path.relative_to(FOLDER).with_suffix("").parts): path.read_text(encoding="utf-8")
    for path in sorted(FOLDER.rglob("*.py"))
}


def functions_of(stem: str) -> dict[str, ast.FunctionDef]:
    """Jitted functions as a file sees them: its own win over those of the others."""
    others = {name: function for source in SOURCES.values() for name, function in jitted(source).items()}
    return others | jitted(SOURCES[stem])


def bf16_kernels() -> dict[str, tuple[str, str, list[str]]]:
    """Kernels that ship with bf16 arguments, by name: their file, their function and those arguments."""
    found = {}
    for stem, source in SOURCES.items():
        if "\nKERNELS" in source:
            for kernel in importlib.import_module(f"specsched.kernels.{stem}").KERNELS:
                signatures = [configuration.signature.items() for configuration in kernel.configurations]
                pointers = sorted({name for each in signatures for name, type_ in each if type_ == "*bf16"})
                if pointers:
                    found[kernel.name] = (stem, kernel.function.__name__, pointers)
    return found


@pytest.mark.parametrize("stem", SOURCES)
def test_nothing_banned_is_used(stem: str) -> None:
    assert banned(SOURCES[stem], dot_home=stem == "common") == []


@pytest.mark.parametrize("name", bf16_kernels())
def test_no_kernel_computes_in_bf16(name: str) -> None:
    stem, function, pointers = bf16_kernels()[name]
    assert narrow_arithmetic(functions_of(stem), function, pointers) == []


def test_kernels_were_looked_at() -> None:
    assert {"common", "confidence", "admit", "bench.cases", "profile.decoder"} <= set(SOURCES)
    assert "confidence" in bf16_kernels()


def test_forgetting_to_widen_is_caught() -> None:
    stem, function, pointers = bf16_kernels()["confidence"]
    assert SOURCES[stem].count(").to(tl.float32)") == 5
    spots = [at for at in range(len(SOURCES[stem])) if SOURCES[stem].startswith(").to(tl.float32)", at)]
    for spot in spots:
        broken = SOURCES[stem][: spot + 1] + SOURCES[stem][spot + len(").to(tl.float32)") :]
        assert narrow_arithmetic(jitted(broken), function, pointers), broken[spot - 100 : spot]


KERNEL = (
    "import triton\nimport triton.language as tl\n@triton.jit\ndef kernel(x, out, n):\n    v = tl.load(x + n)\n    "
)


@pytest.mark.parametrize(
    "line",
    [
        "w = tl.dot(v, v)",
        "w = tl.dot_scaled(v, v)",
        "w = v @ v",
        "w = tl.cumprod(v.to(tl.float32), 0)",
        "w = v.cumprod(0)",
        "w = tl.associative_scan(v, 0, combine)",
        "w = v.associative_scan(0, combine)",
        "w = tl.reduce(v, 0, combine)",
        "w = tl.make_block_ptr(x, (n,), (1,), (0,), (16,), (0,))",
        "w = tl.cumsum(v, 0)",
        "w = tl.cumsum(v.to(tl.float32), 0)",
        "w = tl.cumsum(v, 0, dtype=tl.int32)",
        "w = v.cumsum(0)",
    ],
)
def test_what_is_banned_is_caught(line: str) -> None:
    assert len(banned(KERNEL + line)) == 1


@pytest.mark.parametrize(
    "line",
    [
        "from triton.language import dot",
        "import triton.language",
        "import triton.language as t",
        "from triton import language",
    ],
)
def test_names_that_hide_the_language_are_caught(line: str) -> None:
    assert len(banned(line)) == 1


def test_only_the_helper_may_call_dot() -> None:
    helper = "import triton\nimport triton.language as tl\n@triton.jit\ndef {}(a, b):\n    return tl.dot(a, b)"
    assert banned(helper.format("dot"), dot_home=True) == []
    assert len(banned(helper.format("dot"))) == 1
    assert len(banned(helper.format("product"), dot_home=True)) == 1


def test_what_is_allowed_passes() -> None:
    source = (
        KERNEL + "w = tl.cumsum(v.to(tl.int32), 0) + tl.sum(v, 0)\ny = torch.cumprod(z, 1)\nz = functools.reduce(f, y)"
    )
    assert banned(source) == []


HELPERS = """
@triton.jit
def squared(y):
    return y * y
@triton.jit
def fetched(p, n):
    return tl.load(p + n), n
@triton.jit
def dot(a, b):
    return tl.dot(a, b)
"""


@pytest.mark.parametrize(
    "lines",
    [
        "w = v * 2.0",
        "w = -v",
        "w = v > 0",
        "w += v",
        "w = tl.sum(v, 0)",
        "w = tl.exp(v[:, None])",
        "w = v.sum(0)",
        "w = tl.trans(v) + 1",
        "w = tl.where(n > 0, v, 0.0) + 1.0",
        "w = n.to(tl.bfloat16) * 2",
        "w = tl.load(x).to(out.dtype.element_ty) * 2",
        "w = squared(v)",
        "p, m = fetched(x, n)\n    w = p + 1",
        "p = x + 4\n    for i in range(n):\n        p += 1\n    w = tl.load(p) + 1",
        "q = n\n    for i in range(n):\n        w = q + 1\n        q = tl.load(x)",
        "if n > 0:\n        w = v\n    else:\n        w = 0.0\n    w = w + 1",
    ],
)
def test_arithmetic_in_bf16_is_caught(lines: str) -> None:
    assert narrow_arithmetic(jitted(KERNEL + lines + HELPERS), "kernel", ["x"])


@pytest.mark.parametrize(
    "lines",
    [
        "w = v.to(tl.float32) * 2.0",
        "w = tl.sum(tl.load(x + n).to(tl.float32), 0)",
        "w = tl.cast(v, tl.float32) + 1",
        "w = dot(v, tl.trans(v)) * 2.0",
        "tl.store(out, (v.to(tl.float32) * 2).to(out.dtype.element_ty))",
        "tl.store(out, v)",
        "w = squared(v.to(tl.float32))",
        "p, m = fetched(x, n)\n    w = p.to(tl.float32) + m",
        "w = tl.load(out + n) * 2",
        "w = x + n * 4",
    ],
)
def test_arithmetic_after_widening_passes(lines: str) -> None:
    assert narrow_arithmetic(jitted(KERNEL + lines + HELPERS), "kernel", ["x"]) == []
