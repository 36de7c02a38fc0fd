"""The way of ``benchmarks/gpu.sh`` through its steps, with stand-ins for everything it calls."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "gpu.sh"

STEPS = [
    "device", "gate", "small", "bench", "profile-dense-8b", "profile-moe-30b-a3b-like", "profile-dense-70b-tp-shard",
    "compiled", "predictions",
]  # fmt: skip


def run(tmp_path: Path, python: str, *arguments: str) -> tuple[int, str, dict[str, str]]:
    """Run the script where ``python`` (shell text) and nvidia-smi are stand-ins; returns exit code, output, codes."""
    for name, text in (("python", python), ("nvidia-smi", "echo a device")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHON": str(tmp_path / "python")}
    out = tmp_path / "out"
    command = ["bash", str(SCRIPT), *arguments, str(out)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    noted = out / "steps.tsv"
    lines = noted.read_text().splitlines()[1:] if noted.is_file() else []
    return done.returncode, done.stdout + done.stderr, {line.split("\t")[0]: line.split("\t")[1] for line in lines}


def test_every_step_is_run_and_noted(tmp_path: Path) -> None:
    code, text, steps = run(tmp_path, 'echo "$@"')
    assert (code, list(steps), set(steps.values())) == (0, STEPS, {"0"})
    assert f"kernels bench --shapes real --providers ours,torch,flashinfer,flash-attn -o {tmp_path}/out/bench" in text
    assert (tmp_path / "out" / "device.txt").read_text() == "a device\n"
    assert "--model dense-8b" in (tmp_path / "out" / "profile-dense-8b.txt").read_text()


@pytest.mark.parametrize("step", ["sm_90", "ci", "dense-8b"])
def test_a_step_that_fails_stops_no_other(tmp_path: Path, step: str) -> None:
    code, text, steps = run(tmp_path, f'case "$*" in *{step}*) exit 3;; esac')
    failed = {"sm_90": ["gate"], "ci": ["small"], "dense-8b": ["profile-dense-8b"]}[step]
    assert code == 1
    assert list(steps) == STEPS
    assert sorted(name for name, found in steps.items() if found == "3") == sorted(failed)
    assert f"step {failed[0]}: exit code 3" in text


def test_a_dry_run_excuses_a_refused_profile_and_nothing_else(tmp_path: Path) -> None:
    code, _, steps = run(tmp_path, 'case "$*" in *profile*) exit 1;; esac', "--dry")
    assert (code, steps["profile-tiny-cpu"]) == (0, "1")
    assert "device" not in steps
    other = tmp_path / "other"
    other.mkdir()
    assert run(other, 'case "$*" in *bench*) exit 1;; esac', "--dry")[0] == 1


def test_a_folder_that_exists_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    code, text, steps = run(tmp_path, "exit 0")
    assert (code, steps) == (2, {})
    assert "exists; name another folder" in text
