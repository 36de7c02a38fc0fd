"""Stopping a run: by Ctrl-C or by SIGTERM, with what is finished kept."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupted(Exception):
    """The run was stopped by a signal; the message says how to go on."""


@contextmanager
def stop_on_signals() -> Iterator[None]:
    """Stop cleanly on SIGINT, even where a shell started the command in the background, and on SIGTERM."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Python delivers signals to the main thread alone
        return
    before = {number: signal.signal(number, _interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
