"""Edge: threads, which a host may have none left of (a pids limit, ``ulimit -u``)."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from speaker.errors import EdgeError

THREADS = 8
"""For everything that is handed to ``asyncio.to_thread``; one of them waits for files to change."""

P = ParamSpec("P")
T = TypeVar("T")


def start_threads(count: int = THREADS, prepare: Callable[[], None] = lambda: None) -> None:
    """Gives the running loop all threads that ``asyncio.to_thread`` will ever use: it meets no limit later, and waits
    for none to start. Each calls ``prepare`` first.

    Raises EdgeError where the host does not have so many.
    """
    executor = ThreadPoolExecutor(count, thread_name_prefix="work", initializer=prepare)
    together = threading.Barrier(count)  # an executor starts no thread while another has nothing to do
    try:
        for _ in range(count):
            executor.submit(together.wait)
    except RuntimeError as error:
        together.abort()
        executor.shutdown(wait=False)
        raise EdgeError(f"cannot start {count} threads: {error}") from error
    asyncio.get_running_loop().set_default_executor(executor)


def can_start() -> bool:
    """Whether a thread can be had just now: for libraries that abort the process where one cannot."""
    trial = threading.Thread(target=lambda: None, name="trial")
    try:
        trial.start()
    except RuntimeError:
        return False
    trial.join()
    return True


async def in_thread(executor: Executor | None, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """What ``work`` returns; None is the loop's own executor. Raises EdgeError where no thread can be started.

    Where that happens, ``work`` may be done later all the same, by a thread that is started for something else.
    """
    try:
        working = asyncio.get_running_loop().run_in_executor(executor, lambda: work(*arguments, **named))
    except RuntimeError as error:
        raise EdgeError(f"no thread is available: {error}") from error
    return await working
