"""The controller's work while it leads: mirrors of the API, one decision at a time, and the queue of writes.

Everything starts afresh when this replica becomes the leader, including the mirrors. What another leader wrote last
must be read before an address is given to anybody, and only a new list is sure to contain it.
"""

import asyncio
import gc
import secrets
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Hashable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import structlog

from speaker.api import kinds
from speaker.api.kinds import EipObject, ServiceObject
from speaker.api.objects import Key, Object
from speaker.api.records import ANNOUNCEMENTS, FORWARDER, MISSES, LeaseObject, RecordedObject, groups_read, leases_in
from speaker.cluster.client import Client, Query, listed
from speaker.cluster.feed import Change, Resource, Room, T
from speaker.cluster.lease import Election, Leadership
from speaker.cluster.reflector import Hears, Mirrors, Patience, Polled, Reflector
from speaker.controller.announced import Announced, Failovers, Grace, Sweeper, left_out, told
from speaker.controller.decider import ControllerSettings, Decided, Decider, News
from speaker.controller.marker import Marker
from speaker.controller.published import Follower
from speaker.controller.restore import missing
from speaker.controller.sessions import Forwarders, Lives
from speaker.controller.wanted import IpMode, Orders
from speaker.controller.write_queue import WriteQueue
from speaker.errors import ApiRefused, EdgeError
from speaker.model import Family, Forwarding, IPAddress, Tally, Usage
from speaker.ownership.hellos.keys import MIN_SECRET, generate
from speaker.removals import Doubt, Waiting, is_much
from speaker.settings import AGENTS_NAMESPACE
from speaker.system.garbage import room_for_objects, start_over, uncollected
from speaker.system.retry import Sleep, retrying
from speaker.system.supervise import Supervisor, contained, passing, report, supervised, wait
from speaker.system.threads import in_thread
from speaker.system.waiting import Timer, boottime, time_of_day
from speaker.telemetry.lines import Bound
from speaker.telemetry.logs import Telling

log = structlog.get_logger()

SWEEP = 1.0
"""Seconds between two looks for Announcements that are no longer needed."""
COUNT = 10.0
"""Seconds after which everything is counted again, as addresses that rested are free by then."""
ASK = 5.0
"""Seconds between two requests for agents that do not forward, if that matters: one page, and mostly empty."""
LOOK = 15.0
"""Seconds between two looks at all session Leases: agents renew them as often."""
PATIENT = 10.0
"""Seconds for which a new leader waits for what it can do without."""
SHOWN = 10
"""How many unreadable objects are named; the rest are only counted."""
FAILOVERS, FAILOVER_SECONDS = 200, 1.0
"""How many failovers may have Events at once, and seconds until one more may: a node may have held thousands of
EIPs."""
IN_USE = "EIPs of Services"
"""What a first list of Services is compared with."""
MANY = 500
"""After so many changed Services, long-lived objects are hidden from the garbage collector."""


class Told(Hears, Supervisor, Protocol):
    """Hears of failures, of bugs, and of what is known."""

    def counted(self, tally: Tally, waiting: int) -> None:
        """Called now and then: what everybody has, and how many writes are waiting."""

    def mirrored(self, mirrors: Mirrors) -> None:
        """The mirrors, once for each leadership."""


@dataclass
class Leader:
    """``await election.lead(Leader(client, election, settings, told).work)``."""

    client: Client
    election: Election
    settings: ControllerSettings
    told: Told
    patience: Patience = field(default_factory=Patience)
    grace: Grace = field(default_factory=Grace)
    agents: str = AGENTS_NAMESPACE
    """The namespace of their session Leases, and of their key."""
    _: KW_ONLY
    make_key: bool = False
    """Make the key if there is none."""
    mark_pods: bool = False
    """Mark the pods of dead nodes as not ready."""
    settle: float = 0.0
    """As in ``Resource``."""
    followers: tuple[Follower, ...] = ()
    """They hear everything that is decided and recorded: a broker, a page."""

    async def work(self, _: Leadership) -> None:
        """Endless. An unexpected error makes it begin again."""
        try:
            await supervised("leader", lambda: _Leading(self).run(), self.told)
        finally:
            self.election.saw = lambda _: None  # or it would keep everything that the mirrors know


RESTARTED = frozenset(("records", "lives", "dead nodes", "published", "counts", "sweep", "events"))
"""Tasks that are restarted on their own if a bug of ours ends them. If any other task ends, everything begins again, as
it is unknown what it had already taken in."""


class _Leading:
    """One leadership, or the rest of it after a bug."""

    def __init__(self, asked: Leader) -> None:
        start_over()  # this process may have led before
        self._asked, self._client, self._told = asked, asked.client, asked.told
        self._sessions = leases_in(asked.agents)
        self._mirrors = Mirrors(Room(room_for_objects()))
        self._told.mirrored(self._mirrors)
        asked.election.saw = self._mirrors.saw_lease
        self._changed, self._recorded, self._missed = asyncio.Event(), asyncio.Event(), asyncio.Event()
        settled = partial(self._mirror, changed=self._changed, settle=asked.settle)
        self._nodes: _Mirror[Any] = settled(kinds.NODES, kinds.NodeObject if asked.mark_pods else kinds.HostObject)
        self._decided_of = (
            settled(kinds.SERVICES, ServiceObject, stakes=_eips, keeps=ServiceObject.concerns_us),
            settled(kinds.EIPS, EipObject),
            settled(kinds.NAMESPACES, Object),
            self._nodes,
        )
        # The loss of other mirrored objects takes no EIP away.
        self._announcements = self._mirror(ANNOUNCEMENTS, RecordedObject, self._recorded)
        telling = Telling()
        self._writes = WriteQueue(
            self._client, asked.election.fence, self._told, lambda event: telling.tell(event.logged())
        )
        # What the last leader found out stands until this one knows better.
        self._follows = asked.settings.ip_mode is IpMode.PROXY
        self._decider = Decider(replace(asked.settings, ip_mode=None) if self._follows else asked.settings)
        self._deciding = Deciding(self._decider)
        self._begun = asyncio.Event()
        """Set when the first decision is made."""
        self._uncounted = True
        self._tries, self._again = 0, Timer(self._changed.set)
        """Decisions in a row that met a bug, and when the next one is due because of that."""
        self._failovers = Failovers(lambda name: self._nodes.store.get(Key("", name)) is not None)
        self._room = Bound(FAILOVERS, FAILOVER_SECONDS)
        self._sweeper, self._forwarders = Sweeper(asked.grace), Forwarders()
        self._announced, self._lives = Announced(), Lives()
        self._groups: Mapping[IPAddress, str] = {}
        """What other groups of speakers hold, as agents hear."""
        self._heard_groups = False
        """Whether that was heard, or waited for in vain."""
        self._unannounced: dict[Key, RecordedObject | None] = {}
        self._usage_shown: Mapping[str, Mapping[Family, Usage]] = {}
        """The pools' usage that followers were last told."""

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for name, work in self._tasks():
                endless = supervised(name, work, self._told) if name in RESTARTED else passing(name, work)
                tasks.create_task(endless, name=name)

    def _tasks(self) -> Iterator[tuple[str, Callable[[], Coroutine[Any, Any, None]]]]:
        asked = self._asked
        if asked.mark_pods:
            words = self._mirror(self._sessions, LeaseObject, self._missed, label_selector=MISSES)
            yield "dead nodes", Marker(self._client, asked.agents, words, self._nodes, self._writes, self._told).run
        for mirror in self._mirrors:
            yield f"mirror {mirror.resource.path}", mirror.run
        yield "decide", self._decide
        yield "writes", self._writes.run
        yield "records", self._follow_records
        yield "lives", self._look_at_lives
        yield "counts", self._count
        yield "sweep", partial(self._each_second, self._sweep)
        yield "events", partial(self._each_second, self._tell_events)
        if self._follows:
            yield "agents", self._ask_agents
        if asked.make_key:
            yield "key", partial(make_key, self._client, asked.agents, self._told)
        for follower in self._asked.followers:
            yield "published", partial(follower.run, self._announcements.store)

    def _mirror(self, path: str, kind: type[T], changed: asyncio.Event, **resource: Any) -> "_Mirror[T]":
        made = Resource(path, kind, room=self._mirrors.room, **resource)
        more: dict[str, Any] = {"patience": self._asked.patience, "among": self._mirrors}
        return _Mirror(self._client, made, changed, self._told, listed=lambda *_: self._changed.set(), **more)

    # ── Decisions ─────────────────────────────────────────────────────────────────────────────────────────────

    async def _decide(self) -> None:
        await self._until(lambda: all(mirror.synced for mirror in self._decided_of))
        await self._until_heard()
        await self._until_confirmed()
        # The garbage collector stops everything while it looks at all that is known: 0.1 s for 10,000 Services. None of
        # that is garbage, as nothing refers to itself, so it is told not to look there.
        with uncollected(lambda: True):
            await self._decide_once()
        self._begun.set()
        fresh = 0
        while True:
            await self._changed.wait()
            fresh += await self._decide_once()
            if fresh >= MANY:
                gc.collect()  # garbage in there would stay forever
                gc.freeze()
                fresh = 0

    async def _until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            self._changed.clear()
            await self._changed.wait()

    async def _until_heard(self) -> None:
        """What others hold, but only for a while: an API that does not show it keeps no Service waiting."""

        def unread() -> list[str]:
            announced = self._announcements.synced or not self._asked.settle
            read = {self._sessions: self._heard_groups, ANNOUNCEMENTS: announced}
            return [path for path in read if not read[path]]

        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENT):
                await self._until(lambda: not unread())
        for path in unread():
            why = f"{path}: not read within {PATIENT:g} s: EIPs are assigned without it"
            self._told.failed(path, EdgeError(why))
        self._heard_groups = True

    async def _until_confirmed(self) -> None:
        """The first list of Services is doubted as well, if it lacks many of the EIPs that are in use."""
        services, eips, *_ = self._decided_of
        counted = sum(each.used for each in eips.store)
        announced = [each.metadata.name for each in self._announcements.store]
        gone, known, found = await in_thread(missing, tuple(services.store), announced, counted)
        settle, lists = self._asked.settle, services.lists
        if not settle or not is_much(gone, known, found):
            return
        waiting = Waiting(gone, known, boottime() + settle)
        self._told.doubted(IN_USE, Doubt(IN_USE, waiting, time_of_day(settle)))
        await asyncio.sleep(settle)
        services.list_again()
        await self._until(lambda: services.lists > lists)
        self._told.doubted(IN_USE, None)

    async def _decide_once(self) -> int:
        """Returns how many Services were in the news."""
        self._changed.clear()
        begun = boottime()
        services, eips, namespaces, nodes = self._decided_of
        known = _ip_mode(self._forwarders), self._groups
        news = News(services.take(), eips.take(), namespaces.take(), nodes.take(), *known)
        await self._writes.want(await self._deciding.decide(news, begun, time_of_day()))
        failed = (*self._decider.failed.values(), *self._decider.failed_pools.values())
        for error in failed:
            report("decide", error, self._told)
        self._tries = self._tries + 1 if failed else 0
        if failed:
            self._again.set(wait(self._tries))
        else:
            self._again.cancel()
        self._uncounted = True
        if self._asked.followers:
            self._show(self._decider.decided())
        # Half of the time is left for others: each write comes back as a change, many at once.
        await asyncio.sleep(boottime() - begun)
        return len(news.services)

    async def _count(self) -> None:
        await self._begun.wait()
        counted_at = float("-inf")
        while True:
            if self._uncounted or self._writes.waiting or boottime() - counted_at >= COUNT:
                async with self._deciding.done() as decider:
                    counted_at, self._uncounted = boottime(), False
                    self._told.counted(decider.tally(counted_at), self._writes.waiting)
                    # Addresses that rested are free by now, without any decision.
                    if self._asked.followers and (decided := decider.decided()).usage != self._usage_shown:
                        self._show(decided)
            await asyncio.sleep(SWEEP)

    def _show(self, decided: Decided) -> None:
        self._usage_shown = decided.usage
        for follower in self._asked.followers:
            with contained("published", self._told):
                follower.follow(decided)

    # ── Announcements ─────────────────────────────────────────────────────────────────────────────────────────

    async def _follow_records(self) -> None:
        while True:
            await self._recorded.wait()
            self._recorded.clear()
            changes = self._announcements.take()
            self._unannounced.update(changes)
            found = list(self._failovers.news(changes))
            for follower in self._asked.followers:
                with contained("published", self._told):
                    for failover in found:
                        follower.failed_over(failover)
                follower.changed.set()
            if found:
                async with self._deciding.done() as done:
                    for event in told(found, done.users, time_of_day(), self._room, boottime()):
                        self._writes.tell(event)

    async def _each_second(self, look: Callable[[Decider], Orders]) -> None:
        """Looks at the Announcements, from the first decision on, while nothing is being decided."""
        await self._begun.wait()
        while True:
            await asyncio.sleep(SWEEP)
            if self._announcements.synced:
                async with self._deciding.done() as decider:
                    orders = look(decider)
                await self._writes.want(orders)

    def _sweep(self, decider: Decider) -> Orders:
        return self._sweeper.step(self._announcements.store, decider.uses, boottime())

    def _tell_events(self, decider: Decider) -> Orders:
        now = boottime()
        gone = self._lives.gone(now) if self._announcements.following else None
        new, self._unannounced = self._unannounced, {}
        happened = self._announced.step(new, decider.users, now, time_of_day(), gone)
        for event in (*happened, *decider.hints(now, time_of_day())):
            self._writes.tell(event)
        if count := self._announced.left_out + left_out(self._room, now):
            log.warning("events left out", count=count)
        return {}

    # ── Agents ────────────────────────────────────────────────────────────────────────────────────────────────

    async def _ask_agents(self) -> None:
        """Asked for regularly, as a watch would bring every renewal of every node."""
        query = {"labelSelector": f"{FORWARDER}={Forwarding.NONE.value}"}
        without: Polled[str, str] = Polled("agents without a forwarder", self._asked.settle, self._told)
        while True:
            before, begun = self._forwarders.all_forward, boottime()
            if (found := await self._leases(without.via(self._client), query)) is not None:
                without.hear(_versions(found), begun)
                self._forwarders.heard(without.known, boottime())
            if self._forwarders.all_forward is not before:
                log.info("ip mode", ip_mode=_ip_mode(self._forwarders))
                self._changed.set()
            await asyncio.sleep(ASK)

    async def _look_at_lives(self) -> None:
        """Looks now and then: for Events, and for what nobody may be given."""
        known: Polled[str, LeaseObject] = Polled("session Leases", self._asked.settle, self._told)
        while True:
            begun = boottime()
            if (leases := await self._leases(known.via(self._client))) is not None:
                known.hear({each.key.name: each for each in leases}, begun)
                holders = {each.status.holder for each in self._announcements.store if each.status.holder}
                self._lives.heard(_versions(known.known.values()), holders, begun)
                if (groups := groups_read(known.known.values())) != self._groups or not self._heard_groups:
                    self._groups, self._heard_groups = groups, True
                    self._changed.set()
            await asyncio.sleep(LOOK if self._heard_groups else SWEEP)

    async def _leases(self, client: Client, query: Query | None = None) -> list[LeaseObject] | None:
        """The agents' session Leases; None if there was no answer."""
        try:
            return await listed(client, self._sessions, LeaseObject, query)
        except EdgeError as error:
            self._told.failed(self._sessions, error)
            return None


def _versions(leases: Iterable[LeaseObject]) -> dict[str, str]:
    return {each.key.name: each.metadata.resource_version for each in leases}


class Deciding:
    """``decider`` decides in a thread, as 10,000 Services take their time. Whoever else wants to ask it waits until
    that is done, because its state is inconsistent meanwhile."""

    def __init__(self, decider: Decider) -> None:
        self._decider, self._one = decider, asyncio.Lock()

    async def decide(self, news: News, now: float, at: str) -> Orders:
        """As ``Decider.decide``."""
        async with self._one:
            return await in_thread(self._decider.decide, news, now, at)

    @asynccontextmanager
    async def done(self) -> AsyncIterator[Decider]:
        """Nothing is decided while the block lasts."""
        async with self._one:
            yield self._decider


class _Mirror(Reflector[T]):
    """Keeps what it has heard until it is taken, and sets ``changed``."""

    def __init__(
        self, client: Client, resource: Resource[T], changed: asyncio.Event, hears: Hears, **more: Any
    ) -> None:
        super().__init__(client, resource, self._hear, hears, **more)
        self.changed = changed
        self._news: dict[Key, T | None] = {}
        self._said: frozenset[str] = frozenset()
        """Objects that are set aside."""

    def take(self) -> dict[Key, T | None]:
        """As ``decider.News`` has it."""
        news, self._news = self._news, {}
        return news

    def _hear(self, changes: tuple[Change[T], ...]) -> None:
        self._news.update((change.key, change.after) for change in changes)
        self.changed.set()
        new = [sentence for sentence in self.set_aside if sentence not in self._said]
        for sentence in new[:SHOWN]:
            self._hears.failed(self.resource.path, EdgeError(sentence))
        if len(new) > SHOWN:
            more = f"{self.resource.path}: {len(new) - SHOWN} more cannot be read"
            self._hears.failed(self.resource.path, EdgeError(more))
        self._said = frozenset(self.set_aside)


def _eips(found: ServiceObject) -> Collection[Hashable]:
    """The Service's own addresses, whatever they are."""
    return (found.key,) if kinds.has_ours(found.status.conditions) else ()


def _ip_mode(forwarders: Forwarders) -> IpMode | None:
    match forwarders.all_forward:
        case None:
            return None
        case all_forward:
            return IpMode.PROXY if all_forward else IpMode.VIP


# ── The key that agents share (``--make-key``) ──────────────────────────────────────────────────────────────


SECRET, ENTRY = "eip-speaker-key", "key"
"""As manifests/base/agent.yaml mounts it."""


async def make_key(client: Client, namespace: str, told: Hears, *, sleep: Sleep = asyncio.sleep) -> None:
    """Returns once there is one. ``told`` hears of every try that failed."""
    path = f"/api/v1/namespaces/{namespace}/secrets"
    async for attempt in retrying(partial(told.failed, f"{path}/{SECRET}"), sleep=sleep):
        with attempt:
            await _create(client, path)


async def _create(client: Client, path: str) -> None:
    try:
        await client.create(path, _body())
    except ApiRefused as error:
        if error.reason != "AlreadyExists":
            raise
    else:
        log.info("key made", secret=f"{path}/{SECRET}")


def _body() -> dict[str, Any]:
    """With a new key for every try: if a refusal shows a key to somebody, that key is useless."""
    content = generate(secrets.token_bytes(MIN_SECRET)).encode()
    return {
        "metadata": {"name": SECRET, "labels": {"app.kubernetes.io/part-of": "eip-speaker"}},
        "type": "Opaque",
        "data": {ENTRY: b64encode(content).decode()},
    }
