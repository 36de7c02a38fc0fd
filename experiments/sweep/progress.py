"""Say how far a sweep is, and what is to be said before it begins, on standard error."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

PLAIN_EVERY_S = 10.0
"""Seconds between two lines where the output is no terminal."""


def print_warnings(warnings: Iterable[str]) -> None:
    """Print warnings on standard error, a line each."""
    errors = Console(stderr=True, soft_wrap=True)
    for warning in warnings:
        errors.print(f"warning: {warning}", markup=False, highlight=False)


@contextmanager
def show_progress(total: int, quiet: bool, console: Console, what: str = "points") -> Iterator[Callable[[], None]]:
    """Yield what to call after each of ``total`` points; shows a bar on a terminal, else a line now and then."""
    if quiet or total == 0:
        yield lambda: None
    elif console.is_terminal:
        with _bar(console) as bar:
            task = bar.add_task(what, total=total)
            yield lambda: bar.advance(task)
    else:
        yield _Lines(total, console, what).advance


@contextmanager
def show_count(what: str, console: Console) -> Iterator[Callable[[int, int], None]]:
    """Yield what to call with (done, total); shows a bar on a terminal, else nothing."""
    if not console.is_terminal:
        yield lambda done, total: None
        return
    with _bar(console) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _bar(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, TextColumn("left"), TimeRemainingColumn(), console=console, transient=True)


class _Lines:
    """Plain lines, rarely."""

    def __init__(self, total: int, console: Console, what: str) -> None:
        self._total = total
        self._what = what
        self._console = console
        self._done = 0
        self._start = self._last = time.monotonic()

    def advance(self) -> None:
        self._done += 1
        now = time.monotonic()
        if self._done < self._total and now - self._last < PLAIN_EVERY_S:
            return
        self._last = now
        left = (now - self._start) / self._done * (self._total - self._done)
        self._console.print(f"{self._done} of {self._total} {self._what}, about {left:.0f} s left", highlight=False)
