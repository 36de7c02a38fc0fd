"""The compile gate: what it reads, what it calls a problem, and the committed table."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from specsched.experiments.cli import kernels as cli_kernels
from specsched.kernels import gate
from specsched.kernels.common import KernelError
from specsched.kernels.registry import kernels

FINE = gate.Compiled("sm_90", "admit_rank", "x", 64, 1024, 0, None, 1000, 0.5, 1000)


def specsched(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own, where kernels are compiled."""
    clean = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    code = "from specsched.experiments.cli.main import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, "kernels", *arguments], env=clean, capture_output=True, text=True, check=False
    )


def test_machine_code_is_read_and_agrees_with_the_committed_table() -> None:
    done = specsched("compile", "--op", "admit", "--arch", "sm_90,gfx942", "--first", "1", "--json")
    assert done.returncode == 0, done.stderr + done.stdout
    found = json.loads(done.stdout)
    assert found["problems"] == []
    assert {key.split()[0] for key in found["compiled"]} == {"sm_90", "gfx942"}
    for each in found["compiled"].values():
        assert each["instructions"] > 50
        assert each["registers"] > 0
        assert 0 < each["occupancy"] <= 1
        assert "seconds" not in each


KNOWN_SPILLS = {
    "gate-3.9.json": {},
    "gate-3.8.json": {},
    "gate-3.7.json": {
        "sm_80 attention_parts [packed bf16 D128 GQA4 page64 M32]": 16,
        "sm_100 attention_parts [packed fp16 D64 GQA8 page16 M64]": 16,
    },
}


@pytest.mark.parametrize("name", KNOWN_SPILLS)
def test_the_table_holds_every_configuration_and_its_spills_are_known(name: str) -> None:
    table = json.loads((gate.TABLES / name).read_text(encoding="utf-8"))
    expected = {
        f"{arch} {kernel.name} [{configuration.label}]"
        for arch in gate.ARCHITECTURES
        for kernel in kernels().values()
        for configuration in kernel.configurations
    }
    assert table.keys() == expected
    spilled = {key: each["spill_bytes"] for key, each in table.items() if each["spill_bytes"]}
    assert spilled == KNOWN_SPILLS[name]
    wanted = [
        table[f"sm_90 {kernel.name} [{configuration.label}]"]["tensor_core"]
        for kernel in kernels().values()
        for configuration in kernel.configurations
        if configuration.tensor_core
    ]
    assert len(wanted) >= 4
    assert set(wanted) == {"HGMMA"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"spill_bytes": 16}, "16 bytes of registers spilled"),
        ({"shared_bytes": 300_000}, "300000 bytes of shared memory, over the limit of 232448"),
        ({"instructions": 1200}, "1200 instructions, 1000 in the committed table; over 10% apart"),
        ({"instructions": 800}, "800 instructions"),
        ({"tensor_core": "HMMA"}, "tensor-core instruction HMMA, None in the committed table"),
        ({"configuration": "y"}, "not in the committed table"),
    ],
)
def test_problems_are_named(monkeypatch: pytest.MonkeyPatch, change: dict[str, object], message: str) -> None:
    form = next(iter(kernels().values())).configurations[0]
    forms = tuple(replace(form, label=label, tensor_core=False) for label in ("x", "y"))
    known = {"admit_rank": replace(next(iter(kernels().values())), name="admit_rank", configurations=forms)}
    monkeypatch.setattr(gate, "kernels", lambda: known)
    golden = gate.as_table([FINE])
    assert gate.problems([FINE], golden) == []
    assert gate.problems([replace(FINE, instructions=1090)], golden) == []
    (found,) = gate.problems([replace(FINE, **change)], golden)  # type: ignore[arg-type]
    assert message in found


def test_a_spill_is_excused_up_to_what_the_table_shows_but_never_on_sm_90(monkeypatch: pytest.MonkeyPatch) -> None:
    form = replace(next(iter(kernels().values())).configurations[0], label="x", tensor_core=False)
    known = {"admit_rank": replace(next(iter(kernels().values())), name="admit_rank", configurations=(form,))}
    monkeypatch.setattr(gate, "kernels", lambda: known)
    ampere, hopper = (replace(FINE, arch=arch, spill_bytes=16) for arch in ("sm_80", "sm_90"))
    golden = gate.as_table([ampere, hopper])
    assert gate.problems([ampere], golden) == []
    assert "24 bytes" in gate.problems([replace(ampere, spill_bytes=24)], golden)[0]
    assert "16 bytes" in gate.problems([ampere], None)[0]
    assert "16 bytes" in gate.problems([hopper], golden)[0]


def test_a_missing_tensor_core_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    form = replace(next(iter(kernels().values())).configurations[0], label="x", tensor_core=True)
    known = {"admit_rank": replace(next(iter(kernels().values())), name="admit_rank", configurations=(form,))}
    monkeypatch.setattr(gate, "kernels", lambda: known)
    (found,) = gate.problems([replace(FINE, tensor_core="HMMA")], None)
    assert "HGMMA expected, got HMMA" in found


def test_the_interpreter_and_unknown_names_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KernelError, match="unset TRITON_INTERPRET"):
        list(gate.compile_all(["sm_90"]))
    monkeypatch.setattr(gate, "interpreting", lambda: False)
    with pytest.raises(KernelError, match="unknown architecture 'sm_12'; choices: sm_80"):
        list(gate.compile_all(["sm_12"]))
    with pytest.raises(KernelError, match="unknown operation sort; choices: admit"):
        list(gate.compile_all(["sm_90"], ["sort"]))


def test_the_command_says_what_is_wrong_in_one_line() -> None:
    done = specsched("compile", "--arch", "sm_12")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("error: unknown architecture 'sm_12'")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--update", "nowhere"), "`--update` must be a folder that exists, got nowhere"),
        (("--update", ".", "--op", "admit"), "`--update` writes the whole table; leave out --op, --first and --arch"),
        (("--update", ".", "--arch", "sm_90"), "`--update` writes the whole table"),
    ],
)
def test_a_table_is_written_whole_or_not_at_all(
    arguments: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    done = specsched("compile", *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert not list(tmp_path.iterdir())


def test_the_default_architectures_are_all() -> None:
    assert cli_kernels.ARCHES.split(",") == list(gate.ARCHITECTURES)


def test_ctrl_c_ends_the_compilers_and_says_so() -> None:
    """The workers are in the process group too, as at a terminal."""
    clean = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    code = "from specsched.experiments.cli.main import main; main()"
    command = [sys.executable, "-c", code, "kernels", "compile", "--op", "verify"]
    process = subprocess.Popen(
        command, env=clean, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    limit = time.monotonic() + 60
    while len(psutil.Process(process.pid).children()) < 2:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < limit
        time.sleep(0.05)
    workers = psutil.Process(process.pid).children()
    time.sleep(0.5)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "specsched: interrupted" in errors
    assert not [worker for worker in workers if worker.is_running() and worker.status() != psutil.STATUS_ZOMBIE]
