"""The controller's work while it leads: mirrors of the API, one decision at a time, and the queue of what is written.

Everything begins anew with every leadership, the mirrors too: what another leader wrote last must have been read before
an address is given to anybody, and only a list that was asked for now is sure to hold it.
"""

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Hashable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Any

import structlog

from speaker.allocator.assign import Usage
from speaker.allocator.tally import Tally
from speaker.api.kinds import (
    EIPS,
    NAMESPACES,
    NODES,
    SERVICES,
    EipObject,
    HostObject,
    NodeObject,
    ServiceObject,
    has_ours,
)
from speaker.api.objects import Key, Object
from speaker.api.records import ANNOUNCEMENTS, FORWARDER, MISSES, LeaseObject, RecordedObject, leases_in
from speaker.cluster.election.elector import Leadership
from speaker.cluster.election.lease import Election
from speaker.cluster.mirror.mirrors import Mirrors
from speaker.cluster.mirror.polled import Polled
from speaker.cluster.mirror.reflector import Patience, Reflector, Resource
from speaker.cluster.mirror.room import Room
from speaker.cluster.mirror.store import Change, T
from speaker.cluster.transport.client import Client
from speaker.cluster.transport.pages import listed
from speaker.controller.announced import Announced
from speaker.controller.decider import ControllerSettings, Decided, Decider, News
from speaker.controller.failovers import Failovers, left_out, told
from speaker.controller.key import make_key
from speaker.controller.marking.marker import Marker
from speaker.controller.published import Follower
from speaker.controller.sessions import Forwarders, Lives
from speaker.controller.sweeper import Grace, Sweeper
from speaker.controller.wanted import IpMode
from speaker.controller.write_queue import WriteQueue
from speaker.controller.writes import Event, Orders
from speaker.errors import EdgeError
from speaker.model import Family, Forwarding
from speaker.removals import Doubt
from speaker.settings import AGENTS_NAMESPACE
from speaker.system.clock import boottime, time_of_day
from speaker.system.garbage import room_for_objects, start_over, uncollected
from speaker.system.supervise import Supervisor, contained, report, supervised, wait
from speaker.system.threads import in_thread
from speaker.system.waiting import Timer
from speaker.telemetry.lines import Bound
from speaker.telemetry.logs import Telling

log = structlog.get_logger()

SWEEP = 1.0
"""Seconds between two looks for Announcements that are of no use any more."""
COUNT = 10.0
"""Seconds after which all is counted again: what rested is free by then."""
ASK = 5.0
"""Seconds between two questions for agents that do not forward, where they are told to: one page, and mostly empty."""
LOOK = 15.0
"""Seconds between two looks at all session Leases: as often as agents renew them."""
SHOWN = 10
"""Objects that are named which cannot be read; the count tells the rest."""
FAILOVERS, FAILOVER_SECONDS = 200, 1.0
"""Failovers that have Events at once, and seconds until another may: a node may have held thousands of EIPs."""
MANY = 500
"""Changed Services, after which what they left behind is put out of the garbage collector's way."""


@dataclass
class Leader:
    """``await election.lead(Leader(client, election, settings, told, …).work)``."""

    client: Client
    election: Election
    settings: ControllerSettings
    told: Callable[[str, EdgeError], None]
    """Hears of failures, by what failed."""
    supervisor: Supervisor
    patience: Patience
    grace: Grace
    agents: str = AGENTS_NAMESPACE
    """The namespace of their session Leases, and of their key."""
    _: KW_ONLY
    make_key: bool = False
    """Where there is none."""
    mark_pods: bool = False
    """Of dead nodes, as not ready."""
    counted: Callable[[Tally, int], None] = lambda *_: None
    """Hears now and then what everybody has, and how many writes wait."""
    settle: float = 0.0
    """As in ``Resource``."""
    doubted: Callable[[str, Doubt | None], None] = lambda *_: None
    """Hears what waits of which resource."""
    mirrored: Callable[[Mirrors], None] = lambda _: None
    """Gets the mirrors of each leadership."""
    followers: tuple[Follower, ...] = ()
    """Who is told of all that is decided and recorded: a broker, a page."""

    async def work(self, _: Leadership) -> None:
        """Endless. What nobody foresaw has it begin anew."""
        try:
            await supervised("leader", lambda: _Leading(self).run(), self.supervisor)
        finally:
            self.election.saw = lambda _: None  # or it would keep all that the mirrors know


RESTARTED = frozenset(("records", "lives", "dead nodes", "published", "counts", "sweep", "events"))
"""Tasks that are started again by themselves when a bug of ours ends them. With any other everything begins anew: what
it had taken in when it ended is not known."""


class _Leading:
    """One leadership, or what is left of it after a bug."""

    def __init__(self, asked: Leader) -> None:
        start_over()  # this process may have led before
        self._asked, self._client, self._told = asked, asked.client, asked.told
        self._mirrors = Mirrors(Room(room_for_objects()))
        asked.mirrored(self._mirrors)
        asked.election.saw = self._mirrors.saw_lease
        self._changed, self._recorded, self._missed = asyncio.Event(), asyncio.Event(), asyncio.Event()
        kind = NodeObject if asked.mark_pods else HostObject
        changed, settle, ours = self._changed, asked.settle, ServiceObject.concerns_us
        self._nodes: _Mirror[Any] = self._mirror(NODES, kind, changed, settle)
        self._decided_of = (
            self._mirror(SERVICES, ServiceObject, changed, settle, stakes=_eips, keeps=ours),
            self._mirror(EIPS, EipObject, changed, settle),
            self._mirror(NAMESPACES, Object, changed, settle),
            self._nodes,
        )
        # Of what is mirrored besides no loss takes an EIP away.
        self._announcements = self._mirror(ANNOUNCEMENTS, RecordedObject, self._recorded)
        log_it = partial(_log, Telling())
        self._writes = WriteQueue(self._client, asked.election.fence, self._told, asked.supervisor, log_it)
        # What the last leader found out stands until this one has.
        self._follows = asked.settings.ip_mode is IpMode.PROXY
        self._decider = Decider(replace(asked.settings, ip_mode=None) if self._follows else asked.settings)
        self._deciding = Deciding(self._decider)
        self._begun = asyncio.Event()
        """The first decision is made."""
        self._uncounted = True
        self._tries, self._again = 0, Timer(self._changed.set)
        """Decisions in a row that met a bug, and when the next is due because of that."""
        self._failovers = Failovers(lambda name: self._nodes.store.get(Key("", name)) is not None)
        self._room = Bound(FAILOVERS, FAILOVER_SECONDS)
        self._sweeper, self._forwarders = Sweeper(asked.grace), Forwarders()
        self._announced, self._lives = Announced(), Lives()
        self._unannounced: dict[Key, RecordedObject | None] = {}
        self._usage_shown: Mapping[str, Mapping[Family, Usage]] = {}
        """Of pools, as followers were told."""

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for name, work in self._tasks():
                endless = partial(supervised, name, work, self._asked.supervisor) if name in RESTARTED else work
                tasks.create_task(endless(), name=name)

    def _tasks(self) -> Iterator[tuple[str, Callable[[], Coroutine[Any, Any, None]]]]:
        asked = self._asked
        if asked.mark_pods:
            words = self._mirror(leases_in(asked.agents), LeaseObject, self._missed, label=MISSES)
            yield "dead nodes", self._marker(words).run
        for mirror in self._mirrors:
            yield f"mirror {mirror.resource.path}", mirror.run
        yield "decide", self._decide
        yield "writes", self._writes.run
        yield "records", self._follow_records
        yield "lives", self._look_at_lives
        yield "counts", self._count
        yield "sweep", self._sweep
        yield "events", self._tell_events
        if self._follows:
            yield "agents", self._ask_agents
        if asked.make_key:
            yield "key", partial(make_key, self._client, asked.agents, self._told)
        for follower in asked.followers:
            yield "published", partial(follower.run, self._announcements.store)

    # ── Decisions ─────────────────────────────────────────────────────────────────────────────────────────────

    async def _decide(self) -> None:
        while not all(mirror.synced for mirror in self._decided_of):
            self._changed.clear()
            await self._changed.wait()
        # The garbage collector stops everything while it walks over all that is known: 0.1 s for 10,000 Services, and
        # nothing of it is garbage, as nothing refers to itself. So it does not look there.
        with uncollected(lambda: True):
            await self._decide_once()
        self._begun.set()
        fresh = 0
        while True:
            await self._changed.wait()
            fresh += await self._decide_once()
            if fresh >= MANY:
                gc.collect()  # what is garbage would stay for ever
                gc.freeze()
                fresh = 0

    async def _decide_once(self) -> int:
        """Returns how many Services were news."""
        self._changed.clear()
        begun = boottime()
        services, eips, namespaces, nodes = self._decided_of
        news = News(services.take(), eips.take(), namespaces.take(), nodes.take(), _ip_mode(self._forwarders))
        await self._writes.want(await self._deciding.decide(news, begun, time_of_day()))
        failed = (*self._decider.failed.values(), *self._decider.failed_pools.values())
        for error in failed:
            report("decide", error, self._asked.supervisor)
        self._tries = self._tries + 1 if failed else 0
        if failed:
            self._again.set(wait(self._tries))
        else:
            self._again.cancel()
        self._uncounted = True
        if self._asked.followers:
            self._show(self._decider.decided())
        # Half the time for the others: each write comes back as a change, many at once.
        await asyncio.sleep(boottime() - begun)
        return len(news.services)

    async def _count(self) -> None:
        await self._begun.wait()
        counted_at = float("-inf")
        while True:
            if self._uncounted or self._writes.waiting or boottime() - counted_at >= COUNT:
                async with self._deciding.done() as decider:
                    counted_at, self._uncounted = boottime(), False
                    self._asked.counted(decider.tally(counted_at), self._writes.waiting)
                    # What rested is free by now, and no decision says so.
                    if self._asked.followers and (decided := decider.decided()).usage != self._usage_shown:
                        self._show(decided)
            await asyncio.sleep(SWEEP)

    def _show(self, decided: Decided) -> None:
        self._usage_shown = decided.usage
        for follower in self._asked.followers:
            with contained("published", self._asked.supervisor):
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
                with contained("published", self._asked.supervisor):
                    for failover in found:
                        follower.failed_over(failover)
                follower.changed.set()
            if found:
                async with self._deciding.done() as done:
                    for event in told(found, done.users, time_of_day(), self._room, boottime()):
                        self._writes.tell(event)

    async def _sweep(self) -> None:
        await self._begun.wait()
        while True:
            await asyncio.sleep(SWEEP)
            if self._announcements.synced:
                async with self._deciding.done() as decider:
                    orders = self._sweeper.step(self._announcements.store, decider.uses, boottime())
                await self._writes.want(orders)

    async def _tell_events(self) -> None:
        await self._begun.wait()
        while True:
            await asyncio.sleep(SWEEP)
            if self._announcements.synced:
                async with self._deciding.done() as decider:
                    now = boottime()
                    gone = self._lives.gone(now) if self._announcements.following else None
                    new, self._unannounced = self._unannounced, {}
                    happened = self._announced.step(new, decider.users, now, time_of_day(), gone)
                    for event in (*happened, *decider.hints(now, time_of_day())):
                        self._writes.tell(event)
                if count := self._announced.left_out + left_out(self._room, now):
                    log.warning("events left out", count=count)

    # ── Agents ────────────────────────────────────────────────────────────────────────────────────────────────

    async def _ask_agents(self) -> None:
        """Asked for now and then: a watch would bring every renewal of every node."""
        path = leases_in(self._asked.agents)
        query = {"labelSelector": f"{FORWARDER}={Forwarding.NONE.value}"}
        without: Polled[str, str] = Polled("agents without a forwarder", self._asked.settle, self._asked.doubted)
        while True:
            before, begun = self._forwarders.all_forward, boottime()
            try:
                found = await listed(without.via(self._client), path, Object, query)
                without.hear({each.key.name: each.metadata.resource_version for each in found}, begun)
                self._forwarders.heard(without.known, boottime())
            except EdgeError as error:
                self._told(path, error)
            if self._forwarders.all_forward is not before:
                log.info("ip mode", ip_mode=_ip_mode(self._forwarders))
                self._changed.set()
            await asyncio.sleep(ASK)

    async def _look_at_lives(self) -> None:
        """Now and then, and for Events alone."""
        path = leases_in(self._asked.agents)
        while True:
            begun = boottime()
            try:
                found = await listed(self._client, path, Object)
                holders = {each.status.holder for each in self._announcements.store if each.status.holder}
                self._lives.heard({each.key.name: each.metadata.resource_version for each in found}, holders, begun)
            except EdgeError as error:
                self._told(path, error)
            await asyncio.sleep(LOOK)

    def _marker(self, words: "_Mirror[LeaseObject]") -> Marker:
        nodes = self._nodes
        know = lambda: nodes.store if nodes.following else None  # noqa: E731
        return Marker(self._client, self._asked.agents, words, self._missed, know, self._writes, self._told)

    def _mirror(
        self,
        path: str,
        kind: type[T],
        changed: asyncio.Event,
        settle: float = 0.0,
        *,
        label: str = "",
        stakes: Callable[[T], Collection[Hashable]] = lambda found: (found.key,),
        keeps: Callable[[T], bool] = lambda _: True,
    ) -> "_Mirror[T]":
        room = self._mirrors.room
        mirror = _Mirror(
            self._client,
            Resource(path, kind, label_selector=label, settle=settle, stakes=stakes, keeps=keeps, room=room),
            changed,
            self._asked.patience,
            told=partial(self._told, path),
            restored=self._mirrors.restored,
            doubted=lambda: self._asked.doubted(mirror.resource.name, mirror.waits),
        )
        self._mirrors.add(mirror)
        return mirror


class Deciding:
    """``decider`` decides in a thread, as 10,000 Services take their time. Who asks it besides waits for that: what it
    knows is in no state to be read."""

    def __init__(self, decider: Decider) -> None:
        self._decider, self._one = decider, asyncio.Lock()

    async def decide(self, news: News, now: float, at: str) -> Orders:
        """As ``Decider.decide``."""
        async with self._one:
            return await in_thread(self._decider.decide, news, now, at)

    @asynccontextmanager
    async def done(self) -> AsyncIterator[Decider]:
        """It decides nothing while the block lasts."""
        async with self._one:
            yield self._decider


class _Mirror(Reflector[T]):
    """Remembers what it has told until that is taken, and sets ``changed``."""

    def __init__(
        self,
        client: Client,
        resource: Resource[T],
        changed: asyncio.Event,
        patience: Patience,
        *,
        told: Callable[[EdgeError], None],
        restored: Callable[[], None],
        doubted: Callable[[], None],
    ) -> None:
        hear = self._hear
        super().__init__(client, resource, hear, patience=patience, told=told, restored=restored, doubted=doubted)
        self._changed, self._told_of = changed, told
        self._news: dict[Key, T | None] = {}
        self._said: frozenset[str] = frozenset()
        """Of those that are set aside."""

    def take(self) -> dict[Key, T | None]:
        """As ``decider.News`` has it."""
        news, self._news = self._news, {}
        return news

    def _hear(self, changes: tuple[Change[T], ...]) -> None:
        self._news.update((change.key, change.after) for change in changes)
        self._changed.set()
        if self._said or self.set_aside:
            self._tell_set_aside()

    def _tell_set_aside(self) -> None:
        aside = self.set_aside
        new = [sentence for sentence in aside if sentence not in self._said]
        for sentence in new[:SHOWN]:
            self._told_of(EdgeError(sentence))
        if len(new) > SHOWN:
            self._told_of(EdgeError(f"{self.resource.path}: {len(new) - SHOWN} more cannot be read"))
        self._said = frozenset(aside)


def _log(telling: Telling, event: Event) -> None:
    telling.tell(event.logged())


def _eips(found: ServiceObject) -> Collection[Hashable]:
    """Its own, whatever they are."""
    return (found.key,) if has_ours(found.status.conditions) else ()


def _ip_mode(forwarders: Forwarders) -> IpMode | None:
    match forwarders.all_forward:
        case None:
            return None
        case all_forward:
            return IpMode.PROXY if all_forward else IpMode.VIP
