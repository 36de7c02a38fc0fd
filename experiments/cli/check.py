"""The command ``specsched check KIND-or-module:Class``."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stdout
from importlib.metadata import version
from typing import Annotated, Any

import typer
from rich.console import Console

from ...policies import Policy, PolicyError, build_policy
from ...policies.lossless import checker
from ...policies.lossless.explain import explain
from ...policies.lossless.explanation import plain
from ..config.document import parse_value
from ..config.errors import ConfigError
from ..config.working_directory import make_working_directory_importable
from ..show.check import print_report
from ..sweep.progress import show_count
from .options import INTERRUPTED

FOUND = 1
"""Exit code where a counterexample was found."""

_PIPE_WIDTH = 170


def check(
    scheduler: Annotated[
        str, typer.Argument(metavar="KIND|MODULE:CLASS", help="A shipped policy, or a class of yours.")
    ],
    lag: Annotated[int | None, typer.Option(help="The same as --set lag=LAG.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PARAM=VALUE", help="Set a parameter of the scheduler; may be repeated."),
    ] = None,
    examples: Annotated[int, typer.Option(min=1, help="Worlds to enumerate.")] = 3000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the worlds.")] = 0,
    own_token: Annotated[
        bool, typer.Option("--own-token", help="Let the confidence of a draft depend on that draft itself.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
) -> None:
    """Look for a world in which a scheduler changes the output distribution.

    Exit code 0 if none is found, 1 with the smallest that was found or with the broken row-wise rule, 2 if the
    scheduler cannot be used.
    """
    make_working_directory_importable()
    # A user's class may print; in JSON mode nothing but the object goes to standard output.
    with redirect_stdout(sys.stderr) if as_json else nullcontext():
        policy = build_scheduler(scheduler, lag, settings or ())
        report = _run(policy, examples, seed, own_token)
        found = report.counterexample
        explanation = None if found is None else explain(found.world, policy)
    if as_json:
        asked = {"scheduler": scheduler, "parameters": parameters(policy), "examples": examples, "seed": seed}
        typer.echo(json.dumps(asked | {"own_token": own_token} | report_json(report, explanation), default=str))
    else:
        print_report(report, explanation, _console(), own_token)
    if report.verdict in ("marginal", "joint"):
        raise typer.Exit(FOUND)


def build_scheduler(scheduler: str, lag: int | None, settings: Sequence[str]) -> Policy:
    """Return the policy that the command line names.

    Raises:
        ConfigError: for a setting that is not ``param=value``, is no YAML, or is given twice.
        PolicyError: for an unknown kind or parameter, a value out of bounds, or a class that cannot be loaded.
    """
    spec = {"kind": "python", "object": scheduler} if ":" in scheduler else {"kind": scheduler}
    if scheduler == "python":
        raise PolicyError("`python` is not a scheduler by itself; name your class as module:Class")
    return build_policy(spec | _parameters(lag, settings), unsafe=True)


def _parameters(lag: int | None, settings: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {} if lag is None else {"lag": lag}
    for setting in settings:
        name, equals, text = setting.partition("=")
        name = name.strip()
        if not equals or not name:
            raise ConfigError(f"--set {setting}: write it as param=value, such as lag=2")
        if name in ("kind", "object"):
            raise ConfigError(f"--set {setting}: the scheduler is the first argument")
        if name in found:
            raise ConfigError(f"--set {setting}: `{name}` is set twice, first to {found[name]!r}; keep one")
        found[name] = parse_value(text, f"--set {name}")
    return found


def parameters(policy: Policy) -> dict[str, Any]:
    """Return the values of a policy's parameters, defaults included."""
    if not dataclasses.is_dataclass(policy):
        return {}
    return {each.name: plain(getattr(policy, each.name)) for each in dataclasses.fields(policy) if each.init}


def report_json(report: checker.Report, explanation: Any) -> dict[str, Any]:
    """Return everything a report says, as JSON data."""
    rules = plain(report.rules)
    for rule in ("row_wise", "stopping_set"):
        violation = getattr(report.rules, rule)
        if violation is not None:
            rules[rule]["text"] = str(violation)
    found = report.counterexample
    return {
        "policy": report.policy,
        "verdict": report.verdict,
        "worlds": report.worlds,
        "tallies": plain(report.tallies),
        "rules": rules,
        "counterexample": None
        if found is None or explanation is None
        else {"found_after_worlds": None if found.by_rule else found.examples} | explanation.to_json(),
        "versions": {name: version(name) for name in ("specsched", "hypothesis")},
    }


def _run(policy: Policy, examples: int, seed: int, own_token: bool) -> checker.Report:
    """Check with a bar on a terminal; Ctrl-C ends the command with what was covered."""
    covered = (0, examples)
    with show_count("worlds", Console(stderr=True)) as show:

        def progress(done: int, total: int) -> None:
            nonlocal covered
            covered = (done, total)
            show(done, total)

        try:
            return checker.check(policy, examples, seed, own_token, progress)
        except KeyboardInterrupt:
            stopped = f"specsched: stopped before a verdict, after {covered[0]} of {covered[1]} worlds"
    typer.echo(stopped, err=True)
    raise typer.Exit(INTERRUPTED)


def _console() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=_PIPE_WIDTH)
