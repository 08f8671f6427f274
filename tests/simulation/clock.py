"""Virtual time: what is done when, and what is told of it."""

import heapq
from collections.abc import Callable
from itertools import count


class Clock:
    """True time, which no host can read. What is due at one instant is done in the order in which it was asked for."""

    def __init__(self) -> None:
        self.now = 0.0
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()

    def at(self, when: float, work: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (max(when, self.now), next(self._order), work))

    def after(self, delay: float, work: Callable[[], None]) -> None:
        self.at(self.now + delay, work)

    def step(self, end: float) -> bool:
        """Do what is due next, if anything is until ``end``."""
        queue = self._queue
        if not queue or queue[0][0] > end:
            return False
        self.now, _, work = heapq.heappop(queue)
        work()
        return True


class Trace:
    """What happened, for a person to read."""

    def __init__(self, clock: Clock, keep: bool) -> None:
        self._clock = clock
        self.lines: list[str] | None = [] if keep else None
        self.short: dict[str, str] = {}
        """Name of a host → what it is called here."""

    def say(self, line: str) -> None:
        if self.lines is not None:
            self.lines.append(f"{self._clock.now:9.4f} {self.readable(line)}")

    def readable(self, line: str) -> str:
        for name, short in self.short.items():
            line = line.replace(name, short)
        return line
