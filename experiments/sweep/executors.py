"""Where points are computed: processes of this machine, or the workers of a Dask cluster.

Both are a `concurrent.futures.Executor`; the runner knows nothing else of them.
"""

from __future__ import annotations

import multiprocessing
import os
import platform
import re
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..config.errors import ConfigError
from ..config.working_directory import make_importable, make_working_directory_importable
from .source import source_hash

ONE_THREAD = {"POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""Set in workers: there are as many of them as processors."""

CONNECT_S = 10
"""Seconds to wait for the scheduler, and for its first worker."""

KILLED_ON_CLUSTER = (
    "workers of the cluster that computed it were killed, perhaps for want of memory, more often than Dask allows "
    "(distributed.scheduler.allowed-failures); try workers with fewer threads and --resume"
)

OpenExecutor = Callable[[int], AbstractContextManager[Executor]]


@dataclass(frozen=True)
class Site:
    """A place that computes points.

    Attributes:
        workers: points under way at once.
        open: opens an executor of so many workers, and on an exception ends what it runs.
        killed: what to say of a point that is given up because it kills its workers.
        elsewhere: whether its workers read files of their own, which may differ from those here.
    """

    workers: int
    open: OpenExecutor
    killed: str = "its worker process was killed twice, perhaps for want of memory; try fewer workers and --resume"
    elsewhere: bool = False


def processes(workers: int) -> Site:
    """Return a site of spawned processes of this machine."""
    return Site(workers, _open_pool)


def processors() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def site_of(workers: int | None, scheduler: str | None) -> Iterator[Site]:
    """Yield the site that a command asks for; raises as `cluster`.

    Args:
        workers: processes of this machine; None is one a processor.
        scheduler: address of a cluster that is used instead.
    """
    if scheduler is None:
        yield processes(workers or processors())
        return
    with cluster(scheduler) as site:
        yield site


@contextmanager
def cluster(address: str) -> Iterator[Site]:
    """Yield the site of a Dask cluster's workers, one point a thread.

    Args:
        address: of the scheduler, such as ``tcp://host:8786``.

    Raises:
        ConfigError: if the extra ``cluster`` is not installed, nothing answers, there is no worker, or a worker has
            other code.
    """
    if find_spec("distributed") is None:
        raise ConfigError("--cluster needs Dask distributed; install specsched[cluster]")
    from distributed import Client

    found = re.fullmatch(r"tcp://[^\s/]+:(\d{1,5})", address)
    if found is None or not 0 < int(found[1]) < 65536:
        raise ConfigError(f"--cluster {address}: must be the address of a Dask scheduler, such as tcp://HOST:8786")
    try:
        client: Any = Client(address, timeout=CONNECT_S, set_as_default=False)  # type: ignore[no-untyped-call]
    except (OSError, TimeoutError, ValueError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ConfigError(
            f"--cluster {address}: no scheduler answers ({reason}); start one with `dask scheduler` and give its "
            "address, tcp://HOST:PORT"
        ) from None
    with client:
        try:
            client.wait_for_workers(1, timeout=CONNECT_S)
        except TimeoutError:
            raise ConfigError(
                f"--cluster {address}: the cluster has no workers; start some with `dask worker`"
            ) from None
        threads = sum(client.nthreads().values())
        _check_code(client, address)
        yield Site(threads, lambda _: _cluster_executor(client), KILLED_ON_CLUSTER, elsewhere=True)


def _check_code(client: Any, address: str) -> None:
    """Refuse workers whose code gives other results."""
    python, own = _code()
    for worker, (version, found) in client.run(_code).items():
        # Another Python may write the same code as another tree; the keys of the points tell of it.
        if version == python and found != own:
            raise ConfigError(
                f"--cluster {address}: worker {worker} has another version of specsched; install the same one there"
            )


def _code() -> tuple[str, str]:
    """Return this process's version of Python and the hash of what a point runs through."""
    return platform.python_version(), source_hash()


@contextmanager
def _cluster_executor(client: Any) -> Iterator[Executor]:
    # Results are not pure functions of a key that Dask could know, so it must not merge calls.
    executor = client.get_executor(pure=False)
    try:
        yield _LikeAPool(executor)
    except BaseException:
        # Without waiting, Dask cancels what it has; unlike a pool's, its shutdown takes no `cancel_futures`.
        executor.shutdown(wait=False)
        raise
    executor.shutdown(wait=True)


class _LikeAPool(Executor):
    """Dask's executor, which tells of a call that kills its workers as a pool of processes does."""

    def __init__(self, executor: Any) -> None:
        self._executor = executor

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Schedule a call; its future has a `BrokenProcessPool` if Dask gives it up after killed workers."""
        outer: Future[Any] = Future()
        inner = self._executor.submit(_in_folder, str(Path.cwd()), fn, *args, **kwargs)
        inner.add_done_callback(lambda done: _pass_on(done, outer))
        return outer


def _in_folder(folder: str, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function where modules of a user's folder, and of the worker's own, can be imported."""
    make_importable(folder)
    make_working_directory_importable()
    return fn(*args, **kwargs)


def _pass_on(inner: Future[Any], outer: Future[Any]) -> None:
    from distributed import KilledWorker

    if inner.cancelled():
        outer.cancel()
        outer.set_running_or_notify_cancel()  # without it, whoever waits is not told
        return
    error = inner.exception()
    if error is None:
        outer.set_result(inner.result())
    elif isinstance(error, KilledWorker):
        outer.set_exception(BrokenProcessPool("Dask gave up a call whose workers were killed"))
    else:
        outer.set_exception(error)


@contextmanager
def _open_pool(workers: int) -> Iterator[Executor]:
    context = multiprocessing.get_context("spawn")
    others = multiprocessing.active_children()
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_start_worker)
    try:
        yield _Quiet(pool)
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in multiprocessing.active_children():
            if child not in others:
                child.terminate()
        raise
    finally:
        pool.shutdown(wait=True)


class _Quiet(Executor):
    """A pool whose processes start with one thread each and deaf to Ctrl-C, which the terminal sends to them as well.

    Processes start when a call is submitted.
    """

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self._pool = pool

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Schedule a call."""
        with _worker_environment():
            return self._pool.submit(fn, *args, **kwargs)


@contextmanager
def _worker_environment() -> Iterator[None]:
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ.update(ONE_THREAD)
    blockable = hasattr(signal, "pthread_sigmask")
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}) if blockable else None
    try:
        yield
    finally:
        if mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def _start_worker() -> None:
    """End this worker if the process that started it is gone."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: Any) -> None:
    parent.join()
    os._exit(1)
