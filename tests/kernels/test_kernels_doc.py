"""The pages on the kernels: examples run, floors are computed again, names and limits are those of the code."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from specsched.kernels import admit, attention, common, confidence, gate, markov, registry, rnn, verify
from specsched.kernels.attention_work import attention_work
from specsched.kernels.bench import roofline

from .source_rules import BANNED

DOCS = Path(__file__).resolve().parents[2] / "docs"
TEXT = (DOCS / "kernels.md").read_text(encoding="utf-8")
FLAT = " ".join(TEXT.split())
BENCH, DEVELOPMENT = ((DOCS / f"kernel_{name}.md").read_text(encoding="utf-8") for name in ("bench", "development"))
EXAMPLES = re.findall(r"^```python\n(.*?)^```", TEXT, flags=re.DOTALL | re.MULTILINE)

BANDWIDTH = 4.3e12
V, RANK, BYTES = 129_280, 256, 2


def run_example(source: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a piece of the page as a user would, in a process of its own."""
    path = folder / "step.py"
    path.write_text(source, encoding="utf-8")
    settings = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, str(path)], cwd=folder, env=settings, capture_output=True, text=True)


def test_there_are_examples() -> None:
    assert len(EXAMPLES) == 2


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_examples_run(number: int, tmp_path: Path) -> None:
    done = run_example(EXAMPLES[number], tmp_path)
    assert done.returncode == 0, done.stderr


def test_a_wrong_example_is_found(tmp_path: Path) -> None:
    rule = "int(admitted.lengths.sum()) == 4"
    assert rule in EXAMPLES[0]
    done = run_example(EXAMPLES[0].replace(rule, rule.replace("4", "5")), tmp_path)
    assert done.returncode == 1
    assert "AssertionError" in done.stderr


def markov_floor(rows: int) -> int:
    return roofline.markov_work(rows, V, RANK, BYTES).bytes


def attention_floor(variant: str) -> int:
    sizes = {"query_heads": 32, "kv_heads": 8, "head_size": 128, "element_bytes": BYTES}
    work = attention_work([6] * 64, [4090] * 64, variant=variant, **sizes)
    return work.read + work.written


FLOORS = [
    *map(markov_floor, (1, 64, 256)),
    roofline.rnn_work(64, RANK, 4096, BYTES).bytes,
    roofline.confidence_work(256, 5, RANK, 4096, BYTES).bytes,
    roofline.admit_work(256, 5).bytes,
    roofline.layout_work(256, 512).bytes,
    *map(attention_floor, ("packed", "token")),
    *(roofline.verify_work(256, rejecting, V, BYTES).bytes for rejecting in (0, 64)),
]


def test_floors_are_what_the_formulas_give() -> None:
    table = TEXT.split("<!-- floors -->\n")[1].split("<!-- end of floors -->")[0]
    printed = [tuple(line.strip("| ").split(" | ")[-2:]) for line in table.splitlines()]
    assert printed == [(f"{each / 1e6:.2f}", f"{each / BANDWIDTH * 1e6:.2f}") for each in FLOORS]


def test_traffic_between_the_phases() -> None:
    between = 8 * 256 * V / 64
    found = f"({between / 1e6:.1f} MB at R = 256; {(markov_floor(256) + between) / BANDWIDTH * 1e6:.1f} us with it)"
    assert found in FLAT


def test_no_time_is_claimed_to_be_measured() -> None:
    assert "**No time on a GPU has been measured yet.**" in TEXT
    predictions = TEXT.split("### Three predictions\n")[1].split("\n## ")[0]
    assert predictions.count("**Not measured.**") == 3


def test_every_kernel_is_told_of() -> None:
    """By its own name, or its function's."""
    for name, kernel in registry.kernels().items():
        assert f"`{name}`" in TEXT or f"`{kernel.function.__name__}`" in TEXT, name


def test_limits_and_units_are_those_of_the_code() -> None:
    for sentence in (
        f"`V` up to {markov.LARGEST_VOCABULARY:,}",
        f"blocks of {markov.BLOCK.value} tokens, groups of {markov.BLOCK.value} blocks",
        f"`z` in chunks of {rnn._CHUNK}",
        f"`confidence_kernel` takes {confidence.POSITIONS} positions of a row",
        f"columns in steps of {confidence.WIDTH}. `g` up to {common.MAX_GAMMA}",
        f"`R` up to {admit.MAX_ROWS:,}, `g` up to {common.MAX_GAMMA}",
        f"keys in steps of {attention.KEYS} that start at multiples of {attention.KEYS}",
        f"*Fixed*: blocks of {verify.BLOCK:,}.",
    ):
        assert sentence in FLAT, sentence
    assert f"instructions over {gate.TOLERANCE:.0%} apart".replace("%", " %") in " ".join(BENCH.split())


def test_rules_and_instructions_are_those_of_the_code() -> None:
    rules = DEVELOPMENT.split("It refuses ")[1].split("\n6. ")[0]
    for rule in BANNED.keys() - {"dot_scaled", "make_block_ptr", "advance"}:
        assert f"`{rule}`" in rules or f"`tl.{rule}`" in rules, rule
    for architecture in gate.ARCHITECTURES.values():
        for instruction in architecture.tensor_core:
            assert f"`{instruction}`" in BENCH, instruction
