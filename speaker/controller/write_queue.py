"""Writes what is wanted, many objects at a time. A write that fails is retried later, and delays no other."""

import asyncio
import random
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import NamedTuple, Protocol

from speaker.cluster.client import REQUEST, Client
from speaker.cluster.reflector import Hears
from speaker.controller.wanted import Event, Order, Orders, Removal, Write
from speaker.errors import ApiRefused, EdgeError
from speaker.system.supervise import Supervisor, contained, report
from speaker.telemetry.lines import Bound

WORKERS = 16
"""Requests at a time."""
BACKOFF, BACKOFF_LIMIT = 0.2, 30.0
"""Seconds, doubled with every failure in a row of one object."""
LAZY = 1.0
"""Seconds that a write waits which nobody waits for: counts that change with every Service are written together."""
WRITES, WRITE_SECONDS = 100, 0.2
"""Of one object at once, and seconds until it may be written again. Another controller may put right what we put right,
as fast as both can write."""
EVENTS, EVENT_SECONDS = 25, 300.0
"""Of one object at once, and seconds until it may have another: what client-go allows (EventSourceObjectSpamFilter)."""
EVENT_OBJECTS = 10_000
"""For which that is remembered."""
JOIN_SECONDS, CROWDED_SECONDS = 1.0, 10.0
"""For which the Event of an address waits for that of who announces it: as a rule one tells of both. The longer time is
for a crowd, in which nodes are slower to say so: of more than WORKERS in a second, and of those that come after it."""
EVENT_TRIES = 12
"""Of one Event, some two minutes in all, as often as client-go does: the API may be away because of what it tells."""
SLICE = 0.005
"""Seconds of taking orders before others get a turn: 10,000 may come at once."""
HEARD_SECONDS = 30.0
"""After which a write is tried again whose object was said to be another by now, where nothing else was heard of it."""


class Told(Hears, Supervisor, Protocol):
    """Who hears of failures and of bugs."""


class WriteQueue:
    """``fence`` says how many seconds a write may take, and raises where it may not begin; ``told`` hears of failures,
    and of bugs, which keep no more than their object waiting; ``happened`` of what is written that has an Event, told
    or one too many.

    A write is done once. The same one is not sent again while it is wanted, even if the mirror still shows the object
    as it was before.
    """

    def __init__(
        self, client: Client, fence: Callable[[], float], told: Told, happened: Callable[[Event], None] = lambda _: None
    ) -> None:
        self._client, self._fence, self._told, self._happened = client, fence, told, happened
        self._wanted: dict[str, Order] = {}
        self._done: dict[str, Order] = {}
        self._stale: dict[str, Order] = {}
        """Refused because the object is another by now, of which nothing was heard yet."""
        self._failures: dict[str, int] = {}
        self._busy: set[str] = set()
        """Paths that are queued, being written, or waiting for another try: each is in one place."""
        self._queue: asyncio.PriorityQueue[tuple[int, int, str | _Untold]] = asyncio.PriorityQueue()
        """Paths, then Events: who waits for an address goes before who wants to read about it."""
        self._turns = count()
        self._paces = _Paces()
        self._events = Bound(EVENTS, EVENT_SECONDS, EVENT_OBJECTS)
        self._assigned: dict[str, tuple[Event, asyncio.TimerHandle]] = {}
        """Those that wait for what may be told with them, by what they are about."""
        self._lately: deque[float] = deque(maxlen=WORKERS + 1)
        """When the last of them were assigned."""
        self._crowded_until = 0.0

    @property
    def waiting(self) -> int:
        """Objects whose write is yet to be done."""
        return len(self._busy)

    async def want(self, orders: Orders) -> None:
        """Replaces what was wanted at these paths before."""
        loop = asyncio.get_running_loop()
        turn_ends = loop.time() + SLICE
        for path, order in orders.items():
            if order is None:
                self._wanted.pop(path, None)
                self._done.pop(path, None)
                self._stale.pop(path, None)
                self._failures.pop(path, None)
            else:
                self._wanted[path] = order
                self._take_up(path)
            if loop.time() >= turn_ends:
                await asyncio.sleep(0)
                turn_ends = loop.time() + SLICE

    async def run(self) -> None:
        """Endless."""
        async with asyncio.TaskGroup() as workers:
            for number in range(WORKERS):
                workers.create_task(self._work(), name=f"writer {number}")

    def _take_up(self, path: str) -> None:
        order = self._wanted.get(path)
        if order is None or path in self._busy or self._done.get(path) == order:
            return
        self._busy.add(path)
        lazy = LAZY if isinstance(order, Write) and order.lazy else 0.0
        self._queue_after(path, max(lazy, self._paces.wait(path, asyncio.get_running_loop().time())))

    def _queue_after(self, path: str, seconds: float) -> None:
        place = (0, next(self._turns), path)
        if seconds:
            asyncio.get_running_loop().call_later(seconds, self._queue.put_nowait, place)
        else:
            self._queue.put_nowait(place)

    async def _work(self) -> None:
        while True:
            _, _, due = await self._queue.get()
            if isinstance(due, _Untold):
                with contained("writes", self._told):
                    await self._tell(due)
            else:
                await self._see_to(due)

    async def _see_to(self, path: str) -> None:
        if (order := self._wanted.get(path)) is None:
            self._busy.discard(path)
            return
        try:
            await self._carry_out(order)
        except EdgeError as error:
            self._told.failed(path, error)
            self._try_again(path, error)
        except Exception as error:
            report("writes", error, self._told)
            self._try_again(path, error)
        else:
            self._failures.pop(path, None)
            if path in self._wanted:  # it may have been heard of already
                self._done[path] = order
            self._busy.discard(path)
            self._take_up(path)  # something else may be wanted by now

    def _try_again(self, path: str, error: Exception) -> None:
        failures = self._failures[path] = self._failures.get(path, 0) + 1
        self._queue_after(path, _backoff(failures, error))

    async def _carry_out(self, order: Order) -> None:
        within = min(REQUEST, self._fence())
        try:
            if isinstance(order, Removal):
                await self._client.delete(order.path, order.body(), within=within)
            else:
                await self._client.patch(order.path, order.body(), within=within)
        except ApiRefused as error:
            if not error.outdated or self._stale.get(order.path) == order:
                raise
            self._stale[order.path] = order
            asyncio.get_running_loop().call_later(HEARD_SECONDS, self._doubt, order)
            return
        self._stale.pop(order.path, None)
        if isinstance(order, Write) and order.event is not None:
            self.tell(order.event)

    def _doubt(self, order: Order) -> None:
        """It is still wanted as it was: the object is none other, or nothing is heard of it."""
        if self._done.get(order.path) is order:
            del self._done[order.path]
            self._take_up(order.path)

    def tell(self, event: Event) -> None:
        """Behind all that is to be written by now; not where its object had too many."""
        self._happened(event)
        about = f"{event.kind} {event.about.namespace}/{event.about.name}"
        if (waiting := self._assigned.pop(about, None)) is not None:
            assigned, timer = waiting
            timer.cancel()
            if event.reason == "Announced":
                event = assigned.joined(event)
            else:
                self._tell_in_turn(about, assigned)
        now = asyncio.get_running_loop().time()
        if event.reason == "Assigned":
            self._await_holder(about, event, now + CROWDED_SECONDS)
            self._lately.append(now)
            if len(self._lately) > WORKERS and now - self._lately[0] <= JOIN_SECONDS:
                self._crowded_until = now + CROWDED_SECONDS
        else:
            self._tell_in_turn(about, event)

    def _await_holder(self, about: str, event: Event, until: float) -> None:
        timer = asyncio.get_running_loop().call_later(JOIN_SECONDS, self._tell_alone, about, until)
        self._assigned[about] = event, timer

    def _tell_alone(self, about: str, until: float) -> None:
        """``until``: no later than then, by the loop's time, however many wait."""
        event, _ = self._assigned.pop(about)
        if asyncio.get_running_loop().time() < min(until, self._crowded_until):
            self._await_holder(about, event, until)
        else:
            self._tell_in_turn(about, event)

    def _tell_in_turn(self, about: str, event: Event) -> None:
        """Not of an object that had too many: its condition says how it is now."""
        if self._events.admits(asyncio.get_running_loop().time(), about):
            self._queue_event(_Untold(event))

    def _queue_event(self, untold: "_Untold") -> None:
        self._queue.put_nowait((1, next(self._turns), untold))

    async def _tell(self, untold: "_Untold") -> None:
        """Again and again, but not for ever: conditions say how it is, and stay. Its name has it told once."""
        event, failures = untold
        try:
            await self._client.create(event.path, event.body(), within=min(REQUEST, self._fence()))
        except EdgeError as error:
            if isinstance(error, ApiRefused) and error.outdated:
                return
            self._told.failed(event.path, error)
            failures += 1
            # What is refused for what it says is refused again.
            may_pass = not isinstance(error, ApiRefused) or error.code >= 500 or error.code in (404, 429)
            if failures < EVENT_TRIES and may_pass:
                again = _Untold(event, failures)
                asyncio.get_running_loop().call_later(_backoff(failures, error), self._queue_event, again)


class _Untold(NamedTuple):
    """An Event, and how often it was told in vain."""

    event: Event
    failures: int = 0


def _backoff(failures: int, error: Exception) -> float:
    """Seconds; ``failures`` in a row."""
    limit = min(BACKOFF_LIMIT, BACKOFF * 2.0 ** min(failures - 1, 16))
    seconds = limit * random.uniform(0.5, 1)  # noqa: S311 (spreads load, guards nothing)
    return max(seconds, error.retry_after) if isinstance(error, ApiRefused) else seconds


class _Paces:
    """When each object may be written. It outlasts that nothing is wanted there."""

    def __init__(self) -> None:
        self._due: dict[str, float] = {}
        self._most = 1000

    def wait(self, path: str, now: float) -> float:
        """Seconds until it may be, now that it is to be written once more."""
        rested = now - WRITES * WRITE_SECONDS
        self._due[path] = due = max(self._due.get(path, rested), rested) + WRITE_SECONDS
        if len(self._due) > self._most:
            self._due = {each: at for each, at in self._due.items() if at > rested}
            self._most = 2 * len(self._due) + 1000
        return max(0.0, due - now)
