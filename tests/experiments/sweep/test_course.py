"""How a run goes is written whatever ends it."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from specsched.experiments.sweep.course import begun, under_way
from specsched.experiments.sweep.executors import processes, processors, site_of
from specsched.experiments.sweep.signals import Interrupted, stop_on_signals

FOLDER = Path("runs/x")


class Written:
    """Keeps the facts that are written."""

    def __init__(self) -> None:
        self.facts: dict[str, Any] = {}

    def write(self, **facts: Any) -> None:
        assert not self.facts, "written twice"
        self.facts = facts


def test_what_is_known_before_the_first_point() -> None:
    facts = begun("frontier", ("a=1",), processes(3), None)
    assert facts.pop("started").endswith("+00:00")
    assert facts == {"config": "frontier", "settings": ["a=1"], "workers": 3}
    assert begun("frontier", (), processes(3), "tcp://h:1")["cluster"] == "tcp://h:1"


@pytest.mark.parametrize(("failed", "status"), [(None, "complete"), ([], "complete"), (["a point"], "incomplete")])
def test_an_end_is_written_with_what_the_body_found(failed: list[str] | None, status: str) -> None:
    written, facts = Written(), {"workers": 1}
    with under_way(FOLDER, facts, written.write, lambda: "", computed=7):
        assert not written.facts
        facts |= {} if failed is None else {"failed": failed}
    named = ["workers", *(["failed"] if failed is not None else []), "status", "ended", "wall_seconds", "computed"]
    assert list(written.facts) == named
    assert written.facts["status"] == status
    assert written.facts["computed"] == 7


def test_an_exception_passes_and_the_run_has_failed() -> None:
    written = Written()
    with pytest.raises(ZeroDivisionError), under_way(FOLDER, {}, written.write, lambda: ""):
        raise ZeroDivisionError
    assert written.facts["status"] == "failed"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_it_and_the_message_says_how_to_go_on(number: int) -> None:
    written, before = Written(), signal.getsignal(number)
    with pytest.raises(Interrupted) as caught, under_way(FOLDER, {}, written.write, lambda: "3 of 9 points"):
        os.kill(os.getpid(), number)
    assert str(caught.value) == (
        "stopped with 3 of 9 points finished; to go on, repeat the command with -o runs/x --resume"
    )
    assert written.facts["status"] == "interrupted"
    assert signal.getsignal(number) is before


def test_signals_mean_afterwards_what_they_meant_before() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    with stop_on_signals():
        assert all(signal.getsignal(number) is not handler for number, handler in before.items())
    assert {number: signal.getsignal(number) for number in before} == before


def test_a_command_computes_on_this_machine_unless_it_names_a_cluster() -> None:
    with site_of(None, None) as site:
        assert site.workers == processors() >= 1
    with site_of(5, None) as site:
        assert (site.workers, site.elsewhere) == (5, False)
