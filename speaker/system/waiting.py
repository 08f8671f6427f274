"""Waiting for an event, but not forever; and how to tell whether a loop makes progress: it rests only while it waits
here. And what the time is."""

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from functools import partial

LONGEST = 600.0
"""Seconds, the longest limit of work that takes longer each time."""


class Progress:
    """Of one loop: for how long it has been at the same step. It learns how much time passes, without that in which
    this process stood still."""

    def __init__(self) -> None:
        self.stood = 0.0
        """Seconds at one step; 0 at rest."""
        self.task: asyncio.Task[object] | None = None
        """That it runs in; None between two of them."""
        self._resting = False

    def pass_by(self, seconds: float) -> None:
        if self.task is not None and not self._resting:
            self.stood += seconds

    def get_on(self) -> None:
        self.stood = 0.0

    @contextmanager
    def at_rest(self) -> Iterator[None]:
        before, self._resting, self.stood = self._resting, True, 0.0
        try:
            yield
        finally:
            self._resting = before

    async def of(self, work: Callable[[], Awaitable[None]]) -> None:
        """Runs ``work``, whose progress this is from now on."""
        before = _progress.set(self)
        self.stood, self.task = 0.0, asyncio.current_task()
        try:
            await work()
        finally:
            self.task = None
            _progress.reset(before)


_progress: ContextVar[Progress | None] = ContextVar("progress", default=None)


def _ours() -> Progress | None:
    """None in a task that another loop started for something besides."""
    progress = _progress.get()
    return progress if progress is not None and progress.task is asyncio.current_task() else None


def get_on() -> None:
    """Says that the calling loop has reached another step."""
    if (progress := _ours()) is not None:
        progress.get_on()


@contextmanager
def at_rest() -> Iterator[None]:
    """Says that the loop has nothing to do while the block lasts."""
    if (progress := _ours()) is None:
        yield
    else:
        with progress.at_rest():
            yield


class Limits:
    """How many seconds work may take, by what it is: ``least``, or twice as many as it took lately or was given in
    vain, at most LONGEST. So slow work is done in the end, and work that hangs is given up each time."""

    def __init__(self) -> None:
        self._took: dict[Hashable, float] = {}
        """Of what took more than half of its least."""

    def of(self, what: Hashable, least: float) -> float:
        if _limited_as_a_whole.get():
            return math.inf
        return max(least, min(2 * self._took.get(what, 0.0), LONGEST))

    def learn(self, what: Hashable, seconds: float, least: float) -> None:
        """Notes that the work took so long, or that it was given so long in vain."""
        seconds = max(seconds, self._took.pop(what, 0.0) / 2)
        if 2 * seconds > least:
            self._took[what] = seconds


_limited_as_a_whole: ContextVar[bool] = ContextVar("limited as a whole", default=False)


@contextmanager
def limited_as_a_whole() -> Iterator[None]:
    """Somebody else limits the time of the whole block, so no part of it has a limit of its own."""
    before = _limited_as_a_whole.set(True)
    try:
        yield
    finally:
        _limited_as_a_whole.reset(before)


class Timer:
    """Calls ``ring`` once, at the time set last."""

    def __init__(self, ring: Callable[[], object]) -> None:
        self._ring = ring
        self._handle: asyncio.TimerHandle | None = None

    def set(self, seconds: float) -> None:
        self.set_at(asyncio.get_running_loop().time() + seconds)

    def set_at(self, when: float) -> None:
        """By the loop's clock."""
        self.cancel()
        self._handle = asyncio.get_running_loop().call_at(when, self._due)

    @property
    def pending(self) -> bool:
        return self._handle is not None

    def _due(self) -> None:
        self._handle = None
        self._ring()

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._handle = None


async def set_within(event: asyncio.Event, seconds: float | None) -> None:
    """Returns when ``event`` is set, or after ``seconds`` (None: not before).

    Not ``wait_for``: in Python 3.11 it forgets a cancellation that comes together with the event
    (python/cpython#86296), and a loop around it would never end.
    """
    with at_rest(), suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


async def tick(seconds: float) -> None:
    """Sleeps until the loop's clock shows the next multiple of ``seconds``: periodic work is done together, and the
    processor sleeps in between."""
    loop = asyncio.get_running_loop()
    with at_rest():
        await asyncio.sleep(seconds - loop.time() % seconds)


@asynccontextmanager
async def sparing(least: float, most: float = float("inf")) -> AsyncGenerator[None, None]:
    """Leaves three quarters of the time to what matters more, however long the body takes: after it comes a pause three
    times as long, of ``least`` to ``most`` seconds, unless the body raises."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    yield
    with at_rest():
        await asyncio.sleep(min(max(least, 3 * (loop.time() - begun)), most))


# ── What the time is ──────────────────────────────────────────────────────────────────────────────────────────


boottime: Callable[[], float] = partial(time.clock_gettime, time.CLOCK_BOOTTIME)
"""Returns seconds of CLOCK_BOOTTIME, which continues through suspend and most VM pauses, unlike CLOCK_MONOTONIC. A
process that was away for so long no longer holds a Lease."""


def time_of_day(later: float = 0.0) -> str:
    """RFC 3339, to the second, as in Kubernetes' objects, so many seconds from now. For people: nothing is reckoned by
    it."""
    return (datetime.now(UTC) + timedelta(seconds=later)).strftime("%Y-%m-%dT%H:%M:%SZ")


class Wakeup:
    """For one loop that works off what is due by ``clock``."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._changed = asyncio.Event()
        self._waits, self._turns = False, 0
        self._seen, self._seen_at, self._looks = -1, 0.0, 0
        """Turns at the last look; since when there were none; and for how many looks."""

    def cut(self) -> None:
        """What is due has changed: look again."""
        self._changed.set()

    async def until(self, when: float | None) -> None:
        """Waits until that instant at most; None: until cut short. A wait that was cut short before it began is over at
        once."""
        delay = None if when is None else max(0.0, when - self._clock())
        self._waits = True
        try:
            await set_within(self._changed, delay)
        finally:
            self._waits = False
        self._changed.clear()
        self.turn()

    def turn(self) -> None:
        """Something was done."""
        self._turns += 1

    def stands_still(self, now: float, seconds: float) -> bool:
        """At this look and at two before it, for so long, it neither waited nor did anything. After the process itself
        stood still, one look comes before anybody has a turn."""
        if self._waits or self._turns != self._seen:
            self._seen, self._seen_at, self._looks = self._turns, now, 0
        self._looks += 1
        return self._looks > 2 and now - self._seen_at >= seconds
