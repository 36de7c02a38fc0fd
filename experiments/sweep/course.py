"""How a run goes, as its manifest tells it: begun, under way at some site, ended in one way or another."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .executors import Site
from .manifest import now
from .signals import Interrupted, stop_on_signals

Facts = dict[str, Any]


def begun(config: str, settings: Sequence[str], site: Site, scheduler: str | None) -> Facts:
    """Return what is known of a run before its first point is computed.

    Args:
        config: what the command was given.
        settings: of the command line.
        site: where points are computed.
        scheduler: address of the cluster, if it is one.
    """
    at = {"cluster": scheduler} if scheduler else {}
    return {"config": config, "settings": list(settings), "started": now(), "workers": site.workers, **at}


@contextmanager
def under_way(
    folder: Path, facts: Facts, write: Callable[..., None], finished: Callable[[], str], **last: Any
) -> Iterator[None]:
    """Compute what the body computes, and write how it went, whatever ends it.

    Args:
        folder: of the run.
        facts: what is known of it; with ``failed`` (points that killed their workers) it ends as incomplete.
        write: writes the manifest with facts given by name.
        finished: says how much is finished, such as ``3 of 9 points``.
        last: facts that the manifest names last.

    Raises:
        Interrupted: on SIGINT or SIGTERM.
    """
    began, status = time.monotonic(), "failed"
    try:
        with stop_on_signals():
            yield
        status = "incomplete" if facts.get("failed") else "complete"
    except KeyboardInterrupt:
        status = "interrupted"
        raise Interrupted(
            f"stopped with {finished()} finished; to go on, repeat the command with -o {folder} --resume"
        ) from None
    finally:
        seconds = round(time.monotonic() - began, 3)
        write(**facts, status=status, ended=now(), wall_seconds=seconds, **last)
