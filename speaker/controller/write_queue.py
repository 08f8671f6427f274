"""Writes what is wanted, many objects at a time. A failed write is retried later, and delays no other."""

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
from speaker.system.supervise import Supervisor, contained, lasting, report
from speaker.telemetry.lines import Bound

WORKERS = 16
"""Requests at a time."""
BACKOFF, BACKOFF_LIMIT = 0.2, 30.0
"""Seconds, doubled with every failure in a row of one object."""
LAZY = 1.0
"""Seconds that a lazy write waits: counts that change with every Service are written together."""
WRITES, WRITE_SECONDS = 100, 0.2
"""Writes of one object at once, and seconds until one more is allowed. Another controller may undo what we write, as
fast as both can."""
EVENTS, EVENT_SECONDS = 25, 300.0
"""Events of one object at once, and seconds until one more is allowed: the limits of client-go
(EventSourceObjectSpamFilter)."""
EVENT_OBJECTS = 10_000
"""How many objects that is remembered for."""
JOIN_SECONDS, CROWDED_SECONDS = 1.0, 10.0
"""How long the Event of an assignment waits for the Event of its announcement, as usually one reports both. The longer
time is for a crowd, in which nodes are slower: for more than WORKERS in a second, and for those that come after it."""
EVENT_TRIES = 12
"""Tries of one Event, about two minutes in all, as many as in client-go: the Event may be about what keeps the API
away."""
SLICE = 0.005
"""Seconds of taking orders before others get a turn: 10,000 may come at once."""
HEARD_SECONDS = 30.0
"""If a write is refused because the object has changed, and the change is not heard, the write is tried again after so
long."""


class Told(Hears, Supervisor, Protocol):
    """Hears of failures and of bugs."""


class WriteQueue:
    """``fence`` says how many seconds a write may take, and raises if it must not begin. ``told`` hears of failures,
    and of bugs, which delay only their own object. ``happened`` hears of each write with an Event, whether the Event is
    sent or is one too many.

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
        """Refused because the object has changed, and the change was not heard yet."""
        self._failures: dict[str, int] = {}
        self._busy: set[str] = set()
        """Paths that are queued, being written, or waiting for another try: each is in only one place."""
        self._queue: asyncio.PriorityQueue[tuple[int, int, str | _Untold]] = asyncio.PriorityQueue()
        """Paths, then Events: a Service that waits for an address goes before people who want to read about it."""
        self._turns = count()
        self._paces = _Paces()
        self._events = Bound(EVENTS, EVENT_SECONDS, EVENT_OBJECTS)
        self._assigned: dict[str, tuple[Event, asyncio.TimerHandle]] = {}
        """Events that wait to be joined with another, by what they are about."""
        self._lately: deque[float] = deque(maxlen=WORKERS + 1)
        """When the latest ones were assigned."""
        self._crowded_until = 0.0

    @property
    def waiting(self) -> int:
        """Objects that are still to be written."""
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
                workers.create_task(lasting("writer", self._work), name=f"writer {number}")

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
            if path in self._wanted:  # the new state may have been heard already
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
        """The same write is still wanted: the object has not changed, or no change was heard."""
        if self._done.get(order.path) is order:
            del self._done[order.path]
            self._take_up(order.path)

    def tell(self, event: Event) -> None:
        """After everything that is to be written by now; not if its object had too many."""
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
        """``until``: at the latest then, by the loop's time, however many wait."""
        event, _ = self._assigned.pop(about)
        if asyncio.get_running_loop().time() < min(until, self._crowded_until):
            self._await_holder(about, event, until)
        else:
            self._tell_in_turn(about, event)

    def _tell_in_turn(self, about: str, event: Event) -> None:
        """Not if its object had too many: its condition says how it is now."""
        if self._events.admits(asyncio.get_running_loop().time(), about):
            self._queue_event(_Untold(event))

    def _queue_event(self, untold: "_Untold") -> None:
        self._queue.put_nowait((1, next(self._turns), untold))

    async def _tell(self, untold: "_Untold") -> None:
        """Repeated, but not forever, as conditions say the same and stay. Its name ensures that it is created once."""
        event, failures = untold
        try:
            await self._client.create(event.path, event.body(), within=min(REQUEST, self._fence()))
        except EdgeError as error:
            if isinstance(error, ApiRefused) and error.outdated:
                return
            self._told.failed(event.path, error)
            failures += 1
            # What is refused for its content will be refused again.
            may_pass = not isinstance(error, ApiRefused) or error.code >= 500 or error.code in (404, 429)
            if failures < EVENT_TRIES and may_pass:
                again = _Untold(event, failures)
                asyncio.get_running_loop().call_later(_backoff(failures, error), self._queue_event, again)


class _Untold(NamedTuple):
    """An Event, and how often creating it failed."""

    event: Event
    failures: int = 0


def _backoff(failures: int, error: Exception) -> float:
    """Seconds, after so many ``failures`` in a row."""
    limit = min(BACKOFF_LIMIT, BACKOFF * 2.0 ** min(failures - 1, 16))
    seconds = limit * random.uniform(0.5, 1)  # noqa: S311 (spreads load, guards nothing)
    return max(seconds, error.retry_after) if isinstance(error, ApiRefused) else seconds


class _Paces:
    """When each object may be written. Kept even while nothing is wanted there."""

    def __init__(self) -> None:
        self._due: dict[str, float] = {}
        self._most = 1000

    def wait(self, path: str, now: float) -> float:
        """Seconds until the next write, which is counted, may begin."""
        rested = now - WRITES * WRITE_SECONDS
        self._due[path] = due = max(self._due.get(path, rested), rested) + WRITE_SECONDS
        if len(self._due) > self._most:
            self._due = {each: at for each, at in self._due.items() if at > rested}
            self._most = 2 * len(self._due) + 1000
        return max(0.0, due - now)
