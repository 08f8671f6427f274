"""What happens in the wire process, on its way to the main process."""

import asyncio
from collections import Counter
from collections.abc import Callable, Hashable

from speaker.model.events import (
    BugMet,
    BugsMetAgain,
    Countable,
    Counts,
    EipClaimed,
    EipYielded,
    JoinFailed,
    LinkLost,
    WasFrozen,
)
from speaker.system.supervise import described
from speaker.system.waiting import tick
from speaker.wire.messages import WireEvent

MAIN_TASK = "main process"
"""What a main process that did not get on counts as among the errors that nobody foresaw."""
MAX_FAILURES = 100
"""Of links, that wait for somebody who listens; further ones are not told."""
MAX_DELAYS = 1000
"""That wait to be told; of more only the longest is."""
COUNT_SECONDS = 2.0
"""Counts are handed on so long after the first of them at most, and when whoever reads them wakes anyway."""


class EventSender:
    """Sends transitions at once and counts a few times a second. ``messages.Events``."""

    def __init__(
        self,
        send: Callable[[WireEvent], None],
        read: Callable[[], bool] = lambda: True,
        listened: Callable[[], bool] = lambda: True,
    ) -> None:
        """``read``: whoever is told keeps up; counts wait until it does. ``listened``: there is somebody."""
        self._send, self._read, self._listened = send, read, listened
        self._counts: Counter[Countable] = Counter()
        self._delays: list[tuple[float, float]] = []
        self._counted = asyncio.Event()
        """There is something to hand on."""
        self._bugs: set[tuple[str, str]] = set()
        """Task and place of those that were told."""
        self._untold: dict[Hashable, WireEvent] = {}
        """What happened while nobody listened, and is not in ``Resumed``: claims that stand, by EIP, with the seconds
        that they took then; bugs, by task and place, the first of each; what failed, and how often this process
        froze."""
        self._ending = False

    async def run(self) -> None:
        """Endless."""
        while True:
            await self._counted.wait()
            await tick(COUNT_SECONDS)
            self.flush()

    def flush(self) -> None:
        if (self._counts or self._delays) and self._read():
            self._send(Counts(dict(self._counts), self._delays))
            self._counts.clear()
            self._delays = []
            self._counted.clear()

    def start_over(self) -> None:
        """Somebody else listens from now on."""
        self._bugs.clear()

    def retell(self) -> None:
        """What happened while nobody listened."""
        untold, self._untold = self._untold, {}
        for event in untold.values():
            if isinstance(event, BugMet):
                self._bugs.add((event.task, event.place))
            self._send(event)

    def end(self) -> None:
        """Who listens is asked to end as well: what is met from now on is among the ``last_words``."""
        self._ending = True

    def last_words(self) -> tuple[list[BugMet | LinkLost | JoinFailed], dict[str, int]]:
        """What nobody will be told of any more, and how many more bugs were met, by task."""
        again = {what.task: count for what, count in self._counts.items() if isinstance(what, BugsMetAgain)}
        return [event for event in self._untold.values() if isinstance(event, BugMet | LinkLost | JoinFailed)], again

    def count(self, what: Countable, number: int) -> None:
        self._counts[what] += number
        self._counted.set()

    def loop_delay(self, late: float, busy: float) -> None:
        self._delays.append((late, busy))
        self._counted.set()
        if len(self._delays) > MAX_DELAYS:
            self._delays = [(max(late for late, _ in self._delays), max(busy for _, busy in self._delays))]

    def tell(self, event: WireEvent) -> None:
        if isinstance(event, EipYielded):
            self._untold.pop(event.eip, None)
        if self._listened():
            self._send(event)
        else:
            self._keep(event)

    def _keep(self, event: WireEvent) -> None:
        match event:
            case EipClaimed(eip=eip):
                self._untold[eip] = event
            case WasFrozen():
                self._untold[object()] = event
            case LinkLost() | JoinFailed():
                failures = sum(isinstance(one, LinkLost | JoinFailed) for one in self._untold.values())
                if failures < MAX_FAILURES:
                    self._untold[object()] = event
            case _:
                self._send(event)  # dropped there: the next main process is sent the whole state

    def internal_error(self, task: str, error: BaseException) -> None:
        """The first from one line of code with its traceback, further ones by their number."""
        words, place, trace = described(error)
        key, bug, listened = (task, place), BugMet(task, words, place, trace), self._listened()
        if key in (self._bugs if listened else self._untold):
            self.count(BugsMetAgain(task), 1)
        elif listened:
            self._bugs.add(key)
            self._send(bug)
        if not listened or self._ending:
            self._untold.setdefault(key, bug)

    def replaced(self, words: str, stacks: str) -> None:
        """A main process did not get on; the next one tells of it. ``stacks``: where its threads and loops stood."""
        self._untold[MAIN_TASK, words] = BugMet(MAIN_TASK, words, "the main process", stacks)
