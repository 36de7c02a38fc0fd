"""Twenty commands whose exit codes, texts and files must stay the same when code moves and nothing else is meant to.

    python benchmarks/same_outputs.py                        # compare with benchmarks/same_outputs.json
    python benchmarks/same_outputs.py --write                # after a change that is meant to move outputs
    python benchmarks/same_outputs.py --specsched BIN        # those of another installation, such as a built wheel

Paths and times of day are replaced before texts are compared. Files are compared by SHA-256; the last bit of `exp` and
`log` depends on the processor, so on another type of machine a different hash of a table or figure is told apart from a
different text and does not count, unless the record was made on the same type. Exit code 1 if anything differs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

RECORD = Path(__file__).with_suffix(".json")

SHORT = ("-q", "--set", "seeds=[0,1]")
BRIEF = ("--set", "workload.lengths={prompt: 100, output: 20}")

FILES = {
    "unknown_key.yaml": "hardware: {profile: llama31-8b-h100}\ndrafts: {kind: constant, acceptance: 0.7}\n"
    "arms:\n  a: {policy: {kind: static, k: 3}}\nsweep: {load: [1], laod: [2]}\n",
    "silly.yaml": "hardware: {profile: llama31-8b-h100}\ndrafts: {kind: constant, acceptance: 0.7}\n"
    "arms: {a: {policy: {kind: python, object: 'silly:Silly'}}}\nsweep: {load: [4]}\nworkload: {cohort: 16}\n",
    "silly.py": "import numpy as np\n"
    "from specsched.policies import Policy\n\n\n"
    "class Silly(Policy):\n"
    "    def plan(self, view, state):\n"
    "        return np.full(len(view.requests), 9), state\n",
    "bad_row.csv": "arrival_s,prompt_tokens,output_tokens\n0.0,10,5\n0.5,10,-3\n",
    "bad_profile.json": '{"schema": 1, "name": "mine", "verify": {"tokens": [1, 2], "seconds": [0.01]}}\n',
    "mine.csv": "arrival_s,prompt_tokens,output_tokens\n"
    + "".join(f"{0.37 * i:.2f},{100 + 13 * (i % 7)},{20 + 5 * (i % 11)}\n" for i in range(240)),
}
"""What the commands read, and what is wrong with it."""

COMMANDS: dict[str, tuple[str, ...]] = {
    "version": ("--version",),
    "help": ("run", "--help"),
    "frontier": ("run", "frontier", "--set", "sweep.load=[1,8]", *SHORT, "-o", "frontier"),
    "resume": ("run", "frontier", "--set", "sweep.load=[1,8]", *SHORT, "-o", "frontier", "--resume"),
    "records": (
        *("run", "load_adaptation", "--set", "sweep.load=[4]", "--set", "workload.cohort=40", *BRIEF, *SHORT),
        *("--set", "output.records=[steps,requests,rows]", "-o", "adaptation"),
    ),
    "trace": (
        "run",
        "trace_replay",
        "--set",
        "workload.path=mine.csv",
        "--set",
        "sweep.load=[2]",
        *SHORT,
        "-o",
        "trace",
    ),
    "threshold": ("run", "threshold_sweep", *BRIEF, "--set", "sweep.load=[4]", *SHORT, "-o", "threshold"),
    "axes": (
        "run",
        "jaggedness",
        *BRIEF,
        "--set",
        "workload.cohort=12",
        "--set",
        "sweep.load=[8]",
        *SHORT,
        "-o",
        "axes",
    ),
    "report": ("report", "frontier", "trace", "axes", "-o", "report.html"),
    "profiles": ("profiles",),
    "profile": ("profiles", "vllm-dsv4flash-b300-tp4", "-o", "profile"),
    "generate": ("traces", "generate", "-n", "500", "--rate", "4", "--cv", "2", "-o", "generated.csv"),
    "show": ("traces", "show", "generated.csv"),
    "check": ("check", "async_topk", "--lag", "2", "--examples", "150"),
    "check that finds": ("check", "retrospective", "--examples", "600", "--json"),
    "unknown key": ("run", "unknown_key.yaml", "-o", "none"),
    "nonsense from a policy": ("run", "silly.yaml", "-q", "--workers", "1", "-o", "none"),
    "bad trace row": ("traces", "show", "bad_row.csv"),
    "bad profile": ("run", "frontier", "--set", "hardware.profile=bad_profile.json", "-o", "none2"),
    "other configuration": ("run", "frontier", "--set", "sweep.load=[2]", *SHORT, "-o", "frontier", "--resume"),
    "no run": ("report", "generated.csv", "-o", "none.html"),
    "unknown kind": ("run", "frontier", "--set", "arms.static-3.policy.kind=statik", "-o", "none3"),
}

KEPT = {".parquet", ".csv", ".svg", ".png", ".html", ".yaml", ".json"}
NOT_COMPARED = {"manifest.json"}  # knows versions, commit and the time of day


@dataclass(frozen=True)
class Outcome:
    """What a command did: exit code, texts, and the SHA-256 of each file it wrote."""

    code: int
    out: str
    err: str
    files: dict[str, str]


def main() -> None:
    """Run the commands and compare, or write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the record instead of comparing with it")
    parser.add_argument("--specsched", help="the command to run, instead of this environment's")
    parser.add_argument("--record", type=Path, default=RECORD, help="another record")
    arguments = parser.parse_args()
    command = [arguments.specsched] if arguments.specsched else [str(Path(sys.executable).with_name("specsched"))]
    found = {"machine": machine(), "outcomes": {name: asdict(each) for name, each in outcomes(command).items()}}
    if arguments.write:
        arguments.record.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        print(f"{len(COMMANDS)} commands written to {arguments.record}")
        return
    wrong = differences(json.loads(arguments.record.read_text(encoding="utf-8")), found)
    for line in wrong:
        print(line)
    print(f"{len(COMMANDS)} commands, {len(wrong)} differences")
    sys.exit(1 if wrong else 0)


def machine() -> str:
    """Return what the last bit of a float may depend on."""
    words = Path("/proc/cpuinfo").read_text(encoding="utf-8") if Path("/proc/cpuinfo").is_file() else ""
    model = re.search(r"model name\s*: (.+)", words)
    return f"{platform.machine()}, {model[1] if model else platform.processor()}"


def outcomes(command: list[str]) -> dict[str, Outcome]:
    """Run every command, in this order, in a folder of their own."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        for file, text in FILES.items():
            (folder / file).write_text(text, encoding="utf-8")
        return {name: run([*command, *words], folder) for name, words in COMMANDS.items()}


def run(words: list[str], folder: Path) -> Outcome:
    """Run a command and return what it did; a file counts as written if it was not there, or not so, before."""
    # Unset: they would change widths and colours. One thread, so that two workers do not share a core with others.
    kept = {k: v for k, v in os.environ.items() if k not in ("FORCE_COLOR", "TTY_COMPATIBLE", "PYTHONPATH")}
    environment = kept | {"COLUMNS": "120", "NO_COLOR": "1", "MPLBACKEND": "Agg", "POLARS_MAX_THREADS": "1"}
    before = hashes(folder)
    done = subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )
    files = {path: value for path, value in hashes(folder).items() if before.get(path) != value}
    return Outcome(done.returncode, plain(done.stdout, folder), plain(done.stderr, folder), files)


def hashes(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every table, figure and text below a folder; texts with paths replaced first."""
    found = {}
    for file in sorted(folder.rglob("*")):
        inside = file.relative_to(folder).as_posix()
        if not file.is_file() or file.suffix not in KEPT or file.name in NOT_COMPARED or "/points/" in f"/{inside}":
            continue  # a point's own file is named after its key, which holds the hash of the code
        content = file.read_bytes()
        if file.suffix in (".yaml", ".html"):
            content = plain(content.decode(), folder).encode()
        found[re.sub(r"-[0-9a-f]{12}(?=\.parquet$)", "-KEY", inside)] = hashlib.sha256(content).hexdigest()
    return found


def plain(text: str, folder: Path) -> str:
    """Return a text without what differs from run to run: the folder, where specsched is, times, hashes, commits."""
    text = text.replace(str(folder), "FOLDER")
    text = re.sub(r"(/[^\s'\":]+)?/site-packages/specsched/", "SPECSCHED/", text)
    text = text.replace(str(Path(__file__).resolve().parents[1]) + "/", "SPECSCHED/")
    text = re.sub(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\+00:00|Z| UTC)?", "TIME", text)
    text = re.sub(r"\b\d+(\.\d+)? s\b", "N s", text)
    # A report's provenance; an installed wheel has no commit.
    text = re.sub(r"<tr><td[^>]*>(wall seconds|commit|platform|python)</td>.*</tr>\n?", "", text)
    return re.sub(r"\b[0-9a-f]{40}\b|\b[0-9a-f]{64}\b", "HASH", text)


def differences(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Return what differs, a line each."""
    same_machine = before["machine"] == after["machine"]
    if not same_machine:
        print(f"recorded on {before['machine']}, run on {after['machine']}: hashes of files are not compared")
    olds, news = before["outcomes"], after["outcomes"]
    lines = [f"{name}: only in one of the two" for name in olds.keys() ^ news.keys()]
    for name in [name for name in olds if name in news]:
        old, new = olds[name], news[name]
        if old["code"] != new["code"]:
            lines.append(f"{name}: exit code {old['code']} before, {new['code']} now: {new['err'][-300:]}")
        lines += [
            f"{name}: {stream} differs: {first_difference(old[stream], new[stream])}"
            for stream in ("out", "err")
            if old[stream] != new[stream]
        ]
        for file in sorted(old["files"].keys() | new["files"].keys()):
            known, found = old["files"].get(file), new["files"].get(file)
            if known is None or found is None:
                lines.append(f"{name}: {file} is {'new' if known is None else 'no longer written'}")
            elif known != found and same_machine:
                lines.append(f"{name}: {file} has other bytes")
    return lines


def first_difference(old: str, new: str) -> str:
    """Return the first line that differs, before and now."""
    olds, news = old.splitlines(), new.splitlines()
    for a, b in zip([*olds, "(end)"], [*news, "(end)"], strict=False):
        if a != b:
            return f"{a!r} before, {b!r} now"
    return "in its line ends"


if __name__ == "__main__":
    main()
