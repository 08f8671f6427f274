"""No bug of ours ends more than the work it is in: an endless task that ends is reported, and started again."""

import asyncio
import random
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import NoReturn, Protocol

STEADY_SECONDS = 5.0
"""A task that ran for so long starts anew with short waits."""
FIRST_WAIT, LONGEST_WAIT = 0.1, 10.0
"""Seconds, of which a random part passes before a task is started again: at first, and after many failures in a row."""


class Ended(Exception):
    """Raised for an endless task that returned."""


class Supervisor(Protocol):
    """Who hears of what nobody foresaw."""

    def internal_error(self, task: str, error: BaseException) -> None:
        """``task`` is one of a closed set of names: a metric label."""


async def supervised(
    task: str,
    work: Callable[[], Awaitable[None]],
    supervisor: Supervisor,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ends: tuple[type[Exception], ...] = (),
) -> NoReturn:
    """Runs ``work``, which never returns by itself, over and over. Ends when cancelled, or with one of ``ends``."""
    loop, failures = asyncio.get_running_loop(), 0
    while True:
        begun = loop.time()
        error = await _ended(asyncio.ensure_future(work()), task)
        if isinstance(error, ends):
            raise error
        supervisor.internal_error(task, error)
        failures = 1 if loop.time() - begun >= STEADY_SECONDS else failures + 1
        del error
        await sleep(wait(failures))


@asynccontextmanager
async def at_work(task: str, work: Callable[[], Awaitable[None]], supervisor: Supervisor) -> AsyncIterator[None]:
    """``supervised`` while the block lasts."""
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(supervised(task, work, supervisor), name=task)
        try:
            yield
        finally:
            running.cancel()


async def _ended(work: "asyncio.Future[None]", task: str) -> BaseException:
    """Why it ended. Where this is cancelled, it is as well, and whatever it raises then is nobody's.

    A task of its own tells the two apart: a TaskGroup that is cancelled while one of its tasks fails raises only that.
    """
    try:
        await asyncio.wait((work,))
    except asyncio.CancelledError:
        work.cancel()
        await asyncio.wait((work,))
        if not work.cancelled():
            work.exception()
        raise
    if work.cancelled():
        return Ended(f"{task} was cancelled from within")
    return work.exception() or Ended(f"{task} returned")


def wait(failures: int) -> float:
    """Seconds before the next try after so many failures in a row."""
    return random.uniform(0, min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** min(failures, 20)))  # noqa: S311


class contained:  # noqa: N801 -- read as a verb; a class, as it is entered for every hello and every order
    """``with contained(TASK, supervisor)``: what is raised in the block ends the block and no more. For work that goes
    on without it."""

    __slots__ = ("_supervisor", "_task")

    def __init__(self, task: str, supervisor: Supervisor) -> None:
        self._task, self._supervisor = task, supervisor

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> bool:
        if not isinstance(error, Exception):
            return False
        self._supervisor.internal_error(self._task, error)
        return True


def described(error: BaseException) -> tuple[str, str, str]:
    """Words, place and traceback, for people and for telling two apart."""
    one = single(error)[0]
    return _words(one), _place(one), "".join(traceback.format_exception(one))


def single(error: BaseException) -> list[BaseException]:
    """Those that a group is made of."""
    if isinstance(error, BaseExceptionGroup):
        return [part for one in error.exceptions for part in single(one)]
    return [error]


def _words(error: BaseException) -> str:
    notes: list[str] = getattr(error, "__notes__", [])
    return ", ".join((f"{type(error).__name__}: {error}", *notes))[:500]


def _place(error: BaseException) -> str:
    """The same for every error of that kind from that line."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{where}"
