"""The controller's work while it leads: mirrors of the API, one decision at a time, and the queue of what is written.

Everything begins anew with every leadership, the mirrors too: what another leader wrote last must have been read before
an address is given to anybody, and only a list that was asked for now is sure to hold it.
"""

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Collection, Hashable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
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
from speaker.cluster.mirror.store import Change, Store, T
from speaker.cluster.transport.client import Client
from speaker.cluster.transport.pages import listed
from speaker.controller.announced import Announced
from speaker.controller.decider import ControllerSettings, Decided, Decider, News
from speaker.controller.failovers import Failovers, left_out, told
from speaker.controller.forwarders import Forwarders
from speaker.controller.key import make_key
from speaker.controller.lives import Lives
from speaker.controller.marking.marker import Marker
from speaker.controller.published import Follower
from speaker.controller.sweeper import Grace, Sweeper
from speaker.controller.wanted import IpMode
from speaker.controller.write_queue import WriteQueue
from speaker.controller.writes import Orders
from speaker.errors import EdgeError
from speaker.model import Family, Forwarding
from speaker.removals import Doubt
from speaker.settings import AGENTS_NAMESPACE
from speaker.system.clock import boottime, time_of_day
from speaker.system.garbage import room_for_objects, start_over, uncollected
from speaker.system.supervise import Supervisor, contained, report, supervised, wait
from speaker.system.threads import in_thread
from speaker.system.waiting import Timer, set_within
from speaker.telemetry.lines import Bound
from speaker.telemetry.telling import Telling

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


class Leader:
    """``await election.lead(Leader(client, election, settings, told, …).work)``; ``told`` hears of failures, by what
    failed."""

    def __init__(
        self,
        client: Client,
        election: Election,
        settings: ControllerSettings,
        told: Callable[[str, EdgeError], None],
        supervisor: Supervisor,
        patience: Patience,
        grace: Grace,
        agents: str = AGENTS_NAMESPACE,
        *,
        make_key: bool = False,
        mark_pods: bool = False,
        counted: Callable[[Tally, int], None] = lambda *_: None,
        settle: float = 0.0,
        doubted: Callable[[str, Doubt | None], None] = lambda *_: None,
        mirrored: Callable[[Mirrors], None] = lambda _: None,
    ) -> None:
        """``agents``: the namespace of their session Leases, and of their key; ``make_key``: where there is none;
        ``mark_pods``: of dead nodes, as not ready; ``counted`` hears now and then what everybody has, and how many
        writes wait; ``settle``: as in ``Resource``, and ``doubted`` hears what waits of which resource;
        ``mirrored`` gets the mirrors of each leadership."""
        self.followers: tuple[Follower, ...] = ()
        """Who is told of all that is decided and recorded: a broker, a page."""
        self._usage_shown: Mapping[str, Mapping[Family, Usage]] = {}
        """Of pools, as they were told."""
        self._supervisor = supervisor
        self._settle, self._doubted, self._mirrored = settle, doubted, mirrored
        self._agents, self._make_key, self._mark_pods, self._counted = agents, make_key, mark_pods, counted
        self._client, self._election, self._settings = client, election, settings
        self._told, self._patience, self._grace = told, patience, grace

    async def work(self, _: Leadership) -> None:
        """Endless. What nobody foresaw has it begin anew."""
        try:
            await supervised("leader", self._lead, self._supervisor)
        finally:
            self._election.saw = lambda _: None  # or it would keep all that the mirrors know

    async def _lead(self) -> None:
        start_over()  # this process may have led before
        changed = asyncio.Event()
        mirrors = Mirrors(Room(room_for_objects()))
        self._mirrored(mirrors)
        self._election.saw = mirrors.saw_lease
        settle, kind = self._settle, NodeObject if self._mark_pods else HostObject
        services = self._mirror(
            SERVICES, ServiceObject, changed, mirrors, settle=settle, stakes=_eips, keeps=ServiceObject.concerns_us
        )
        eips = self._mirror(EIPS, EipObject, changed, mirrors, settle=settle)
        namespaces = self._mirror(NAMESPACES, Object, changed, mirrors, settle=settle)
        nodes: _Mirror[Any] = self._mirror(NODES, kind, changed, mirrors, settle=settle)
        # Of what is mirrored besides no loss takes an EIP away.
        recorded = asyncio.Event()
        announcements = self._mirror(ANNOUNCEMENTS, RecordedObject, recorded, mirrors)
        telling = Telling()
        writes = WriteQueue(
            self._client,
            self._election.fence,
            self._told,
            self._supervisor,
            lambda event: telling.tell(event.logged()),
        )
        # What the last leader found out stands until this one has.
        follows = self._settings.ip_mode is IpMode.PROXY
        decider = Decider(replace(self._settings, ip_mode=None) if follows else self._settings)
        deciding = Deciding(decider)
        failovers = Failovers(lambda name: nodes.store.get(Key("", name)) is not None)
        sweeper, forwarders, announced = Sweeper(self._grace), Forwarders(), Announced()
        unannounced: dict[Key, RecordedObject | None] = {}
        missed = asyncio.Event()
        words = [self._mirror(leases_in(self._agents), LeaseObject, missed, mirrors, MISSES)] if self._mark_pods else []
        lives = Lives()
        room, tries, again = Bound(FAILOVERS, FAILOVER_SECONDS), 0, Timer(changed.set)

        async def follow_records() -> None:
            while True:
                await recorded.wait()
                recorded.clear()
                changes = announcements.take()
                unannounced.update(changes)
                found = list(failovers.news(changes))
                for follower in self.followers:
                    with contained("published", self._supervisor):
                        for failover in found:
                            follower.failed_over(failover)
                    follower.changed.set()
                if found:
                    async with deciding.done() as done:
                        for event in told(found, done.users, time_of_day(), room, boottime()):
                            writes.tell(event)

        async def decide() -> int:
            nonlocal tries
            changed.clear()
            begun = boottime()
            news = News(services.take(), eips.take(), namespaces.take(), nodes.take(), _ip_mode(forwarders))
            await writes.want(await deciding.decide(news, begun, time_of_day()))
            for error in (*decider.failed.values(), *decider.failed_pools.values()):
                report("decide", error, self._supervisor)
            tries = tries + 1 if decider.failed or decider.failed_pools else 0
            if tries:
                again.set(wait(tries))
            else:
                again.cancel()
            if self.followers:
                self._show(decider.decided())
            # Half the time for the others: each write comes back as a change, many at once.
            await asyncio.sleep(boottime() - begun)
            return len(news.services)

        async with asyncio.TaskGroup() as tasks:
            for mirror in mirrors:
                tasks.create_task(mirror.run(), name=f"mirror {mirror.resource.path}")
            tasks.create_task(writes.run(), name="writes")
            if follows:
                tasks.create_task(self._ask_agents(forwarders, changed), name="agents")
            tasks.create_task(supervised("records", follow_records, self._supervisor), name="records")
            look = partial(self._look_at_lives, lives, announcements.store)
            tasks.create_task(supervised("lives", look, self._supervisor), name="lives")
            for each in words:
                know = lambda: nodes.store if nodes.following else None  # noqa: E731
                marker = Marker(self._client, self._agents, each, missed, know, writes, self._told)
                tasks.create_task(supervised("dead nodes", marker.run, self._supervisor), name="dead nodes")
            for follower in self.followers:
                tell = partial(follower.run, announcements.store)
                tasks.create_task(supervised("published", tell, self._supervisor), name="published")
            if self._make_key:
                tasks.create_task(make_key(self._client, self._agents, self._told), name="key")
            while not (services.synced and eips.synced and namespaces.synced and nodes.synced):
                changed.clear()
                await changed.wait()
            # The garbage collector stops everything while it walks over all that is known: 0.1 s for 10,000 Services,
            # and nothing of it is garbage, as nothing refers to itself. So it does not look there.
            with uncollected(lambda: True):
                await decide()
            swept_at, fresh, counted_at, uncounted = float("-inf"), 0, float("-inf"), True
            while True:
                await set_within(changed, SWEEP)
                if changed.is_set():
                    fresh += await decide()
                    uncounted = True
                    if fresh >= MANY:
                        gc.collect()  # what is garbage would stay for ever
                        gc.freeze()
                        fresh = 0
                since = boottime() - counted_at
                if since >= COUNT or (since >= SWEEP and (uncounted or writes.waiting)):
                    counted_at, uncounted = boottime(), writes.waiting > 0
                    with contained("counts", self._supervisor):
                        self._counted(decider.tally(counted_at), writes.waiting)
                        # What rested is free by now, and no decision says so.
                        if self.followers and (decided := decider.decided()).usage != self._usage_shown:
                            self._show(decided)
                if announcements.synced and (now := boottime()) >= swept_at + SWEEP:
                    swept_at = now
                    with contained("sweep", self._supervisor):
                        await writes.want(sweeper.step(announcements.store, decider.uses, now))
                    with contained("events", self._supervisor):
                        gone = lives.gone(now) if announcements.following else None
                        new, unannounced = unannounced, {}
                        happened = announced.step(new, decider.users, now, time_of_day(), gone)
                        for event in (*happened, *decider.hints(now, time_of_day())):
                            writes.tell(event)
                        if count := announced.left_out + left_out(room, now):
                            log.warning("events left out", count=count)

    def _show(self, decided: Decided) -> None:
        self._usage_shown = decided.usage
        for follower in self.followers:
            with contained("published", self._supervisor):
                follower.follow(decided)

    async def _ask_agents(self, forwarders: Forwarders, changed: asyncio.Event) -> None:
        """Asked for now and then: a watch would bring every renewal of every node. Endless."""
        path = leases_in(self._agents)
        query = {"labelSelector": f"{FORWARDER}={Forwarding.NONE.value}"}
        without: Polled[str, str] = Polled("agents without a forwarder", self._settle, self._doubted)
        while True:
            before, begun = forwarders.all_forward, boottime()
            try:
                found = await listed(without.via(self._client), path, Object, query)
                without.hear({each.key.name: each.metadata.resource_version for each in found}, begun)
                forwarders.heard(without.known, boottime())
            except EdgeError as error:
                self._told(path, error)
            if forwarders.all_forward is not before:
                log.info("ip mode", ip_mode=_ip_mode(forwarders))
                changed.set()
            await asyncio.sleep(ASK)

    async def _look_at_lives(self, lives: Lives, announcements: Store[RecordedObject]) -> None:
        """Now and then, and for Events alone. Endless."""
        path = leases_in(self._agents)
        while True:
            begun = boottime()
            try:
                found = await listed(self._client, path, Object)
                holders = {each.status.holder for each in announcements if each.status.holder}
                lives.heard({each.key.name: each.metadata.resource_version for each in found}, holders, begun)
            except EdgeError as error:
                self._told(path, error)
            await asyncio.sleep(LOOK)

    def _mirror(
        self,
        path: str,
        kind: type[T],
        changed: asyncio.Event,
        mirrors: Mirrors,
        label: str = "",
        *,
        settle: float = 0.0,
        stakes: Callable[[T], Collection[Hashable]] = lambda found: (found.key,),
        keeps: Callable[[T], bool] = lambda _: True,
    ) -> "_Mirror[T]":
        """One of ``mirrors``."""
        mirror = _Mirror(
            self._client,
            Resource(path, kind, label_selector=label, settle=settle, stakes=stakes, keeps=keeps, room=mirrors.room),
            changed,
            self._patience,
            told=partial(self._told, path),
            restored=mirrors.restored,
            doubted=lambda: self._doubted(mirror.resource.name, mirror.waits),
        )
        mirrors.add(mirror)
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


def _eips(found: ServiceObject) -> Collection[Hashable]:
    """Its own, whatever they are."""
    return (found.key,) if has_ours(found.status.conditions) else ()


def _ip_mode(forwarders: Forwarders) -> IpMode | None:
    match forwarders.all_forward:
        case None:
            return None
        case all_forward:
            return IpMode.PROXY if all_forward else IpMode.VIP
