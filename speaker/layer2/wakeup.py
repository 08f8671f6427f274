"""Until something is due, or something changed."""

import asyncio
from collections.abc import Callable

from speaker.system.waiting import set_within


class Wakeup:
    """For one loop that works off what is due by ``clock``."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._changed = asyncio.Event()

    def cut(self) -> None:
        """What is due is not what it was: look again."""
        self._changed.set()

    async def until(self, when: float | None) -> None:
        """Until that instant, at most; None: until cut short. What was cut short earlier is over at once."""
        delay = None if when is None else max(0.0, when - self._clock())
        await set_within(self._changed, delay)
        self._changed.clear()
