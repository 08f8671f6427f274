"""Edge: threads, for work that would block the loop. A host may have none left (a pids limit, ``ulimit -u``).

``in_thread`` is the one way to hand work to a thread: its result or error always reaches whoever waits for it, and
nobody waits forever. asyncio's own ways lose a StopIteration on Python 3.11 and 3.12, and wait for a thread that hangs.
"""

import asyncio
import atexit
import contextvars
import math
import queue
import sys
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Executor, Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar, TypeVarTuple
from weakref import WeakKeyDictionary, WeakSet, finalize

from speaker.errors import EdgeError, NotDone, as_edge_error
from speaker.system.garbage import bound_memory, freeze_imported, memory_limit
from speaker.system.process import raise_limit
from speaker.system.waiting import Limits, at_rest

THREADS = 8
"""Of a loop, for everything that is handed to ``in_thread``; one of them waits for files to change."""
WITHIN = 60.0
"""Seconds that work may take, unless it took longer before: then it gets twice as long. To settle and to decide 10,000
Services takes two, and a busy host makes ten of each."""
LATE = 1.0
"""Seconds. A loop that notices the end of a limit so late stood still, and so did the work: it gets as long again."""
LEAVING_SECONDS = 5.0
"""For which a process that ends waits for work that is under way: a file is written to its end."""
SWITCH_SECONDS = 0.001
"""How long a thread that decides may keep the loop waiting each time the loop has something to do."""

A = TypeVarTuple("A")
T = TypeVar("T")
_Work: TypeAlias = tuple[int, Hashable]
"""Whose it is, and what is done."""


class Failed(Exception):
    """Raised for work in a thread that ended with what no coroutine can be handed: a StopIteration, a cancellation, an
    exit. It is the cause."""


class _Job(Generic[T]):
    """Work, and what becomes of it. ``lock`` keeps apart that it ends and that it is given up. ``too_late`` is handed
    what it returns if nobody waits any longer."""

    def __init__(self, work: Callable[[], T], too_late: Callable[[T], object]) -> None:
        self._work, self._too_late, self.lock = work, too_late, threading.Lock()
        self.future: Future[None] = Future()
        self._outcome: tuple[T] | Exception = Failed("it never started")
        self.thread: int | None = None
        """The kernel's number of the one that does it; None before it has begun."""
        self.begun, self.over, self.given_up = time.monotonic(), False, False
        self.took = 0.0
        """Seconds, when it is over."""
        self.unwanted = False
        """Nobody waits for it."""

    def run(self) -> bool:
        """Whether its thread is still wanted: not where it took so long that another has its place."""
        with self.lock:
            if self.given_up:  # before it began
                return True
            self.thread, since = threading.get_native_id(), time.monotonic()
        self._outcome = _outcome(self._work)
        with self.lock:
            self.over, self.took, unwanted = True, time.monotonic() - since, self.unwanted
        if unwanted:
            self._let_go()
        self.future.set_result(None)
        return not self.given_up

    def give_up(self, *, thread: bool) -> bool:
        """Nobody waits for it any longer; False if it is over already. ``thread``: nor is its thread of use."""
        with self.lock:
            if self.over:
                return False
            self.unwanted = True
            self.given_up = thread or self.thread is None
            self.over = self.thread is None
        return True

    def _let_go(self) -> None:
        outcome, self._outcome = self._outcome, Failed("nobody waited for it")
        if isinstance(outcome, tuple):
            with suppress(Exception):  # there is nobody left to hear of it
                self._too_late(outcome[0])

    def result(self) -> T:
        """Once."""
        outcome, self._outcome = self._outcome, Failed("its result was taken")
        if isinstance(outcome, tuple):
            return outcome[0]
        try:
            raise outcome
        finally:
            del outcome  # a cycle with this frame


def _outcome(work: Callable[[], T]) -> tuple[T] | Exception:
    try:
        return (work(),)
    except BaseException as error:
        if isinstance(error, Exception) and not isinstance(error, StopIteration):
            return error
        failed = Failed(f"{type(error).__name__}: {error}").with_traceback(error.__traceback__)
        failed.__cause__ = error
        return failed


class Threads(Executor):
    """At most ``most`` threads at work, each of which calls ``prepare`` first. Used by one loop at a time.

    A thread that hangs is given up: another takes its place, for at most ``spare`` of them. Where ``spare`` is 0, or
    used up, all work is refused until one of them is done. What hangs is not begun a second time.
    """

    def __init__(
        self, most: int, name: str, prepare: Callable[[], None] = lambda: None, spare: int | None = None
    ) -> None:
        self._most, self._name, self._prepare = most, name, prepare
        self._spare = most if spare is None else spare
        self._jobs: queue.SimpleQueue[_Job[Any] | None] = queue.SimpleQueue()
        self._started = self._number = 0
        """Threads that serve, and how many there ever were."""
        self._under_way: set[_Job[Any]] = set()
        self._hung: dict[_Work, tuple[str, _Job[Any]]] = {}
        """By what they do: given up, and not over."""
        self._limits = Limits()
        _ALL.add(self)
        finalize(self, self._jobs.put, None)

    def start(self) -> None:
        """All of them, and not one by one when there is work. Raises RuntimeError."""
        while self._started < self._most:
            self._start_one()

    def _start_one(self) -> None:
        self._number += 1
        name = f"{self._name}_{self._number}"
        threading.Thread(target=_serve, args=(self._jobs, self._prepare), name=name, daemon=True).start()
        self._started += 1

    def submit(self, fn: Callable[..., Any], /, *arguments: Any, **named: Any) -> "Future[Any]":
        """For ``run_in_executor``. ``fn`` is a ``_Job``'s ``run``."""
        job: _Job[Any] = fn.__self__  # type: ignore[attr-defined]
        self._under_way = {each for each in self._under_way if not each.over}
        if self._started < self._most and len(self._under_way) >= self._started:
            try:
                self._start_one()
            except RuntimeError:
                if not self._started:
                    raise
        self._under_way.add(job)
        self._jobs.put(job)
        return job.future

    async def run(
        self, work: Callable[[], T], within: float = WITHIN, too_late: Callable[[T], object] = lambda _: None
    ) -> T:
        """As ``in_thread``. ``too_late`` is handed, in the thread, what the work returns when it was given up."""
        with at_rest():  # it has a limit of its own
            return await self._run(work, within, too_late)

    async def _run(self, work: Callable[[], T], least: float, too_late: Callable[[T], object]) -> T:
        what, name = _identity(work), named(work)
        self._refuse_what_hangs(what, name)
        job, within = _Job(partial(contextvars.copy_context().run, work), too_late), self._limits.of(what[1], least)
        try:
            done = asyncio.get_running_loop().run_in_executor(self, job.run)
        except RuntimeError as error:
            raise EdgeError(f"no thread is available: {error}") from error
        try:
            in_time = await _done_within(done, within)
            if not in_time and (late := self._out_of_time(job, what, name, within)) is not None:
                raise late
            await done
        except asyncio.CancelledError:
            job.give_up(thread=False)
            if job.thread is None:
                job.future.cancel()
            raise
        self._limits.learn(what[1], job.took, least)
        return job.result()

    def _refuse_what_hangs(self, what: _Work, name: str) -> None:
        over = [key for key, (_, job) in self._hung.items() if job.over]
        for key in over:
            self._limits.learn(key[1], self._hung.pop(key)[1].took, 0.0)
        if what in self._hung:
            since = time.monotonic() - self._hung[what][1].begun
            raise NotDone(f"{name} has hung in a thread for {since:.0f} s: it is not started again until that ends")
        if len(self._hung) > self._spare:
            hung = ", ".join(sorted(each for each, _ in self._hung.values()))
            raise EdgeError(f"no thread is available for {name}: {len(self._hung)} hang ({hung})")

    def _out_of_time(self, job: _Job[Any], what: _Work, name: str, within: float) -> EdgeError | None:
        if not job.give_up(thread=True):
            return None
        if job.thread is None:
            job.future.cancel()
            return EdgeError(f"{name}: no thread was free for {within:g} s")
        self._limits.learn(what[1], within, 0.0)
        self._under_way.discard(job)
        self._hung[what] = name, job
        self._started -= 1  # it ends when it is done
        return NotDone(f"{name} did not finish within {within:g} s: its thread is abandoned")

    def hanging(self, now: float) -> dict[str, float]:
        """By name, for how many seconds. Not those that the kernel keeps: a disk or a file system that does not answer
        would keep another process as well."""
        waiting = {name: job for name, job in self._hung.values() if not job.over and not _in_the_kernel(job.thread)}
        return {name: now - job.begun for name, job in waiting.items()}

    def finish(self, until: float) -> None:
        for job in self._under_way:
            while not job.over and time.monotonic() < until:
                time.sleep(0.01)


async def _done_within(work: "asyncio.Future[Any]", seconds: float) -> bool:
    """Whether it was. A loop that stood still meanwhile waits for as long again."""
    loop, limit = asyncio.get_running_loop(), None if math.isinf(seconds) else seconds
    while True:
        due = loop.time() + seconds
        await asyncio.wait((work,), timeout=limit)
        if work.done() or loop.time() - due < LATE:
            return work.done()


def _serve(jobs: "queue.SimpleQueue[_Job[Any] | None]", prepare: Callable[[], None]) -> None:
    """A thread's life. No error ends it: those of the work are the work's."""
    prepare()
    while (job := jobs.get()) is not None:
        if not job.run():
            return
        del job  # and all that it holds, until there is another
    jobs.put(None)  # for the next thread


def _identity(work: Callable[..., Any]) -> _Work:
    """The same for the same work, whatever it is handed."""
    work = _bare(work)
    function = getattr(work, "__func__", work)
    return id(getattr(work, "__self__", None)), getattr(function, "__code__", function)


def named(work: Callable[..., Any]) -> str:
    """As people know it."""
    work = _bare(work)
    return f"{getattr(work, '__module__', '')}.{getattr(work, '__qualname__', type(work).__name__)}"


def _bare(work: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(work, partial):
        work = work.func
    return work


def _in_the_kernel(thread: int | None) -> bool:
    """Uninterruptible, as proc(5) has it: state D."""
    try:
        return Path(f"/proc/self/task/{thread}/stat").read_text().rpartition(")")[2].split()[0] == "D"
    except (OSError, IndexError):
        return False


_ALL: WeakSet[Threads] = WeakSet()
_OF_LOOPS: WeakKeyDictionary[asyncio.AbstractEventLoop, Threads] = WeakKeyDictionary()
"""A loop's own threads belong to its network namespace."""


@atexit.register
def _finish() -> None:
    until = time.monotonic() + LEAVING_SECONDS
    for each in list(_ALL):
        each.finish(until)


def hanging(now: float) -> Mapping[str, float]:
    """Of all threads of this process, as in ``Threads.hanging``; ``now``: seconds of CLOCK_MONOTONIC."""
    return {name: seconds for each in list(_ALL) for name, seconds in each.hanging(now).items()}


def start_threads(count: int = THREADS, prepare: Callable[[], None] = lambda: None) -> None:
    """Gives the running loop all threads that it will use but for those that hang: it meets no limit later, and waits
    for none to start. Each calls ``prepare`` first.

    Raises EdgeError where the host does not have so many.
    """
    threads = Threads(count, "work", prepare)
    with as_edge_error(f"cannot start {count} threads", RuntimeError):
        threads.start()
    _OF_LOOPS[asyncio.get_running_loop()] = threads


def begin() -> None:
    """At the start of a process whose loop answers while its threads decide. Raises like ``start_threads``."""
    raise_limit()
    start_threads()
    bound_memory(memory_limit())
    freeze_imported()
    sys.setswitchinterval(SWITCH_SECONDS)


def can_start() -> bool:
    """Whether a thread can be had just now: for libraries that abort the process where one cannot."""
    trial = threading.Thread(target=lambda: None, name="trial")
    try:
        trial.start()
    except RuntimeError:
        return False
    trial.join()
    return True


async def in_thread(work: Callable[[*A], T], *arguments: *A, within: float = WITHIN) -> T:
    """What ``work`` returns or raises, done in a thread of the running loop's; ``Failed`` for what none can be handed.

    Raises EdgeError where no thread can be had, NotDone where the work is not done ``within`` so many seconds, or
    longer (``Limits``), and where it was not the last time and still is not. Its thread may go on all the same.
    """
    loop = asyncio.get_running_loop()
    if (threads := _OF_LOOPS.get(loop)) is None:
        threads = _OF_LOOPS[loop] = Threads(THREADS, "work")
    return await threads.run(partial(work, *arguments), within)
