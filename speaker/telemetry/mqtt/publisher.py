"""Edge: publishes what is in the outbox while there is a connection, and everything again after a reconnection.

Nothing waits for it. A broker that is away costs an attempt now and then; a slow one costs what the outbox holds.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from speaker.errors import EdgeError
from speaker.settings import MqttSettings
from speaker.system.retry import retrying
from speaker.system.supervise import lasting, single
from speaker.system.threads import in_thread
from speaker.system.waiting import set_within
from speaker.telemetry.metrics import MqttMetrics
from speaker.telemetry.mqtt.connection import WINDOW, Connection, context, login
from speaker.telemetry.mqtt.messages import STATE_SECONDS, Message, States, Topics, event
from speaker.telemetry.mqtt.outbox import Outbox

REFRESH = STATE_SECONDS / 3
"""Seconds after which all of it is said again: what is true does not expire, and what the broker lost is there."""
RATE = 1000.0
"""Messages a second at most: this process has other work."""
QUIET = 0.3
"""Seconds without another retained message, after which the broker has said all that it retains."""
QUIET_AT_MOST = 10.0
FAREWELL = 2.0
"""Seconds that the end of this process waits for the broker, at most; its EIPs are handed over by then."""
STEADY = 30.0
"""Seconds of a connection after which the next try comes at once."""
FIRST_WAIT, LONGEST_WAIT = 0.5, 30.0


class Me(NamedTuple):
    """Who speaks. ``client``: the broker lets only one of that name speak, the last that came. ``presence``: what is
    retained of us, by a state: up, stopped, or lost; one topic."""

    name: str
    client: str
    presence: Callable[[str], States]


class Publisher:
    """``failed`` hears why nothing is published, ``recovered`` that publishing works again."""

    def __init__(
        self,
        settings: MqttSettings,
        me: Me,
        metrics: MqttMetrics,
        failed: Callable[[EdgeError], None],
        recovered: Callable[[], None],
    ) -> None:
        self._settings, self._me, self._metrics = settings, me, metrics
        self._tell_failed, self._tell_recovered = failed, recovered
        self.topics = Topics(settings.prefix)
        self._outbox = Outbox()
        self._dropped = 0
        self._on_the_way = 0
        """Messages that the broker has not acknowledged yet."""
        self._stirred, self._areas_changed = asyncio.Event(), asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._pause, self._next = 1 / RATE, 0.0
        self._since: float | None = None
        """When this connection was made; None: there is none."""
        self._refused = ""
        self._heard = asyncio.Event()
        """The broker said something that it retains."""
        (self._presence,) = me.presence("lost")
        self._outbox.state(self._presence, me.presence("up"))

    # ── what is to be said ──

    def show(self, areas: Mapping[str, States | None]) -> None:
        """Sets the state of each area; None if others publish that area."""
        before = self._outbox.areas
        for area, states in areas.items():
            if states is None:
                self._outbox.forget(area)
            else:
                self._outbox.state(area, states)
        if self._outbox.areas != before:
            self._areas_changed.set()
        self._stir()

    def revise(self, area: str, change: Callable[[States], States]) -> None:
        """What was said there last."""
        self._outbox.revise(area, change)
        self._stir()

    def anew(self, *areas: str) -> None:
        self._outbox.anew(*areas)
        self._stir()

    def tell(self, happened: object) -> None:
        """In any thread; what is no event of MQTT's is passed over."""
        if (message := event(self.topics, happened, self._me.name, time.time())) is not None:
            self.soon(partial(self._tell, message))

    def soon(self, what: Callable[[], None]) -> None:
        """In the loop's thread, from any."""
        with suppress(RuntimeError):  # at the very end there is none
            self._loop.call_soon_threadsafe(what)

    def _tell(self, message: Message) -> None:
        self._outbox.event(message)
        self._stir()

    def _stir(self) -> None:
        self._stirred.set()
        self._count()

    def _count(self) -> None:
        self._metrics.waiting.set(len(self._outbox) + self._on_the_way)
        if (new := self._outbox.events_dropped - self._dropped) > 0:
            self._dropped += new
            self._metrics.events_dropped.inc(new)

    # ── saying it ──

    async def run(self) -> None:
        """Endless."""
        while True:
            async for attempt in retrying(self._failed, multiplier=FIRST_WAIT, limit=LONGEST_WAIT):
                with attempt:
                    await self._one()

    def _failed(self, error: EdgeError) -> None:
        self._tell_failed(EdgeError(f"mqtt {self._settings.broker}: {error}"))

    async def _one(self) -> None:
        """One connection. Raises EdgeError, unless it was a steady one."""
        try:
            await self._connect()
        except BaseExceptionGroup as group:
            broken = [error for error in single(group) if isinstance(error, EdgeError)]
            if len(broken) < len(single(group)):
                raise
            error = broken[0]
        except EdgeError as refused:
            error = refused
        steady = self._since is not None and self._loop.time() - self._since >= STEADY
        self._since = None
        if not steady:
            raise error
        self._failed(error)

    async def _connect(self) -> None:
        self._since, self._refused = None, ""
        credentials, tls = await in_thread(login, self._settings.login), await in_thread(context, self._settings)
        me = self._me
        ((topic, payload),) = me.presence("lost").items()
        before = _cancellations()  # a TaskGroup of Python 3.11 takes its own back only sometimes
        will = Message(topic, payload, retain=True)
        async with Connection(
            self._settings, credentials, tls, me.client, will, me.name, self._found, self._was_refused
        ) as connection:
            _insist(before)
            self._since = self._loop.time()
            self._metrics.connected.set(1)
            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(lasting("mqtt connection", connection.watch), name="mqtt connection")
                    states = partial(self._say_all, connection, tasks)
                    tasks.create_task(lasting("mqtt states", states), name="mqtt states")
            except asyncio.CancelledError:
                await self._farewell(connection)
                raise
            finally:
                self._metrics.connected.set(0)

    async def _say_all(self, connection: Connection, tasks: asyncio.TaskGroup) -> None:
        """All that is true, after whatever of it is not was found; again now and then. Endless."""
        followed: frozenset[str] = frozenset()
        saying = False
        while True:
            self._areas_changed.clear()
            areas = self._outbox.areas
            await self._follow(connection, followed, areas)
            self._outbox.anew(*sorted(areas - followed - {self._presence}), self._presence)
            followed = areas
            self._stir()
            if not saying:
                saying = True
                for number in range(WINDOW):
                    work = lasting("mqtt messages", partial(self._work, connection))
                    tasks.create_task(work, name=f"mqtt messages {number}")
                if not self._refused:
                    self._tell_recovered()
            await set_within(self._areas_changed, REFRESH)
            if not self._areas_changed.is_set():
                followed = frozenset()

    async def _follow(self, connection: Connection, followed: frozenset[str], areas: frozenset[str]) -> None:
        """Have the broker say what it retains in those ``areas`` that were not ``followed`` before."""
        for area in followed - areas:
            if area != self._presence:
                await connection.unfollow(area)
                _insist()
        asked = sorted(areas - followed - {self._presence})
        for area in asked:
            may = await connection.follow(area)
            _insist()
            if not may:
                self._was_refused(f"{area} may not be read: old messages of an earlier process stay until they expire")
        if asked:
            self._heard.set()
            await self._until_quiet()

    async def _until_quiet(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(QUIET_AT_MOST):
                while self._heard.is_set():
                    self._heard.clear()
                    await set_within(self._heard, QUIET)

    def _found(self, topic: str) -> None:
        self._heard.set()
        self._outbox.found(topic)
        self._stir()

    def _was_refused(self, words: str) -> None:
        if words != self._refused:
            self._refused = words
            self._failed(EdgeError(f"refused: {words}"))

    async def _work(self, connection: Connection) -> None:
        """Publishes one message after another. Endless."""
        while True:
            if (message := self._outbox.take()) is None:
                self._stirred.clear()
                await self._stirred.wait()
                continue
            await self._say(connection, message)
            _insist()
            self._count()
            await self._in_turn()

    async def _say(self, connection: Connection, message: Message) -> None:
        self._on_the_way += 1
        try:
            await connection.say(message)
        except BaseException:
            self._outbox.give_back(message)
            raise
        finally:
            self._on_the_way -= 1
        self._metrics.published.labels("state" if message.retain else "event").inc()

    async def _in_turn(self) -> None:
        """Waits so that no more than RATE messages a second are sent."""
        now = self._loop.time()
        self._next = max(now, self._next) + self._pause
        if (wait := self._next - now) > 0.01:
            await asyncio.sleep(wait)

    async def _farewell(self, connection: Connection) -> None:
        """We stop: what we held is nobody's, or another's."""
        until = self._loop.time() + FAREWELL
        with suppress(TimeoutError, EdgeError):
            async with asyncio.timeout_at(until):
                for topic, payload in self._me.presence("stopped").items():
                    await connection.say(Message(topic, payload, retain=True))
                self._outbox.forget(self._presence)
                while self._loop.time() < until and (message := self._outbox.take()) is not None:
                    await connection.say(message)


def _cancellations() -> int:
    task = asyncio.current_task()
    return task.cancelling() if task is not None else 0


def _insist(before: int = 0) -> None:
    """The ``wait_for`` of Python 3.11, which aiomqtt uses, may forget that its task is being cancelled (see
    ``system/waiting.py``). ``before``: as often as it was asked to before that."""
    if _cancellations() > before:
        raise asyncio.CancelledError
