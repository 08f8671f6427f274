"""Measures how late an event loop is; everything that the loop does is at least as late.

It is measured where the loop sleeps, so that it costs no wake-up of its own.
"""

import asyncio
import selectors
import time
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, TypeVar

from speaker.system.supervise import BUGS

LEAST = 0.002
"""Seconds: less is no lateness. The selector rounds to a millisecond itself."""
MAX_LOOKS = 1000
"""That wait to be reported; of more only the longest is."""

_T = TypeVar("_T")


class Look(NamedTuple):
    """How many seconds the loop was late, and how many of these its own thread had the processor: the others went to
    other threads and other programs."""

    late: float
    busy: float


class _Selector(selectors.DefaultSelector):
    """Sleeps for a loop, and measures what keeps the loop from sleeping: its own work, and whoever has the processor
    when a sleep is over."""

    def __init__(self) -> None:
        super().__init__()
        self.looks: list[Look] = []
        self.failed: BaseException | None = None
        self.noticed = asyncio.Event()
        self._woke, self._used, self._overslept = time.monotonic(), time.thread_time(), 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        asleep = time.monotonic()
        try:
            self._look(asleep - self._woke + self._overslept)
        except BUGS as error:  # whoever watches ends by it, and not what is looked at
            self.failed = error
        found = super().select(timeout)
        self._woke, self._used = time.monotonic(), time.thread_time()
        self._overslept = max(0.0, self._woke - asleep - timeout) if timeout else 0.0
        if self.looks or self.failed is not None:
            self.noticed.set()  # only now: nothing that comes before the sleep ends it
        return found

    def _look(self, late: float) -> None:
        if late >= LEAST:
            self._note(Look(late, min(late, time.thread_time() - self._used)))

    def _note(self, look: Look) -> None:
        self.looks.append(look)
        if len(self.looks) > MAX_LOOKS:
            self.looks = [Look(*map(max, zip(*self.looks, strict=True)))]


class WatchedLoop(asyncio.SelectorEventLoop):
    """A loop whose lateness ``watch_loop`` can see."""

    def __init__(self) -> None:
        self.sleeper = _Selector()
        super().__init__(self.sleeper)


def run(work: Coroutine[Any, Any, _T]) -> _T:
    """Like ``asyncio.run``, but in a ``WatchedLoop``."""
    with asyncio.Runner(loop_factory=WatchedLoop) as runner:
        return runner.run(work)


async def watch_loop(tell: Callable[[float, float], None]) -> None:
    """Endless; calls ``tell`` with each ``Look`` at the running loop, when that wakes the next time. Raises what a look
    met. The loop must be a ``WatchedLoop``: any other says nothing."""
    loop = asyncio.get_running_loop()
    sleeper = loop.sleeper if isinstance(loop, WatchedLoop) else _Selector()
    while True:
        await sleeper.noticed.wait()
        sleeper.noticed.clear()
        if (error := sleeper.failed) is not None:
            sleeper.failed = None
            raise error
        looks, sleeper.looks = sleeper.looks, []
        for look in looks:
            tell(*look)
