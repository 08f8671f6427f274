"""Until something is due, or something changed."""

import asyncio
from collections.abc import Callable

from speaker.system.waiting import set_within


class Wakeup:
    """For one loop that works off what is due by ``clock``."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._changed = asyncio.Event()
        self._waits, self._turns = False, 0
        self._seen, self._seen_at, self._looks = -1, 0.0, 0
        """Turns at the last look, since when there were no more, and at how many looks."""

    def cut(self) -> None:
        """What is due is not what it was: look again."""
        self._changed.set()

    async def until(self, when: float | None) -> None:
        """Until that instant, at most; None: until cut short. What was cut short earlier is over at once."""
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
        """At this look and at two before it, for so long, it neither waited nor did anything. After a process stood
        still itself one look comes before anybody has a turn."""
        if self._waits or self._turns != self._seen:
            self._seen, self._seen_at, self._looks = self._turns, now, 0
        self._looks += 1
        return self._looks > 2 and now - self._seen_at >= seconds
