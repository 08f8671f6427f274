"""``speaker agent``: its settings, and what the API says, mirrored and passed on to ``node/serve.py``.

``Cluster`` is a ``node.source.Source`` that also writes the wire process's records.
"""

import asyncio
import socket
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import structlog

from speaker.agent.announcements import AnnouncementReader, AnnouncementWriter, Tell
from speaker.agent.last_known import Known, LastKnown, news_of
from speaker.agent.mirrors import Delivery, HostsAsked, LateSlices
from speaker.agent.record import Facts, eip_of, read_record
from speaker.agent.session import ApiState, Pace, Session, forwards_with
from speaker.agent.view import (
    Exclusion,
    News,
    NodeIntent,
    Reader,
    ViewSettings,
    assigned_addresses,
    concerns_us,
    is_or_was_assigned,
    node_intent,
    unread_wishes,
)
from speaker.api.kinds import (
    EIPS,
    NODES,
    SERVICES,
    SLICES,
    AssignedObject,
    EipObject,
    HostObject,
    NodeObject,
    SliceObject,
    by_service,
)
from speaker.api.objects import Key
from speaker.api.reading import addresses_of
from speaker.api.records import ANNOUNCEMENTS, AnnouncementObject, announcement_name
from speaker.cluster.access import Access, configure
from speaker.cluster.client import Client
from speaker.cluster.feed import Change, Resource, Room
from speaker.cluster.reflector import Deliver, Listed, Mirrors, Reflector
from speaker.kubeproxy.watch import EndpointWatch
from speaker.model import Incarnation, IPAddress, ServiceKey, format_mac
from speaker.model.events import LifeBegan, OtherGroupsHold
from speaker.node.report import Report
from speaker.node.serve import serve
from speaker.node.source import Source, View
from speaker.ownership.events import NameClash, WriteRecord
from speaker.ownership.parameters import Parameters
from speaker.settings import AGENTS_NAMESPACE, NodeSettings, PeerSettings
from speaker.system.garbage import room_for_objects
from speaker.system.supervise import contained, supervised
from speaker.system.threads import in_thread
from speaker.system.waiting import boottime, set_within
from speaker.telemetry.page.host import Examine
from speaker.wire.messages import Began, WireEvent
from speaker.wire.remote import Wire

log = structlog.get_logger()

CORRECT_SECONDS = 1.0
"""The shortest time between two looks at the part of records that is for people; ten times as long between two looks at
conflicts."""
CORRECT_AT_LEAST = 12
"""After so many looks at conflicts, the other look is made anyway."""

_T = TypeVar("_T", bound=Any)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings(NodeSettings):
    """All settings of ``speaker agent``. ``namespace``: the session Leases'; '' means the pod's own. ``node`` has only
    the name: the rest is in the API."""

    access: Access = field(default_factory=Access)
    namespace: str = ""
    view: ViewSettings = field(default_factory=ViewSettings)
    peers: PeerSettings = field(default_factory=PeerSettings)


class Cluster:
    """One life of this node's agent, as far as the API is concerned."""

    def __init__(self, client: Client, settings: AgentSettings, namespace: str, report: Report) -> None:
        """``namespace``: the session Leases'."""
        node, forwarder, times = settings.node.name, settings.forwarder, Parameters.for_hello(settings.peers.hello)
        self._client, self._node, self._settings, self._report = client, node, settings.view, report
        self._last_known, self._settle = LastKnown(settings.runtime_dir, node, report), settings.settle_seconds
        self._reader = Reader(settings.view)
        self._changed = asyncio.Event()
        self._tell_changed: Callable[[], None] = lambda: None
        self._told: asyncio.Queue[Tell] = asyncio.Queue()
        """For the wire process, in order."""
        self._news = News()
        self._reading = False
        """A thread is reading. Changes of what it follows are not known before it is done."""
        self._anew = False
        """The next reading is of everything."""
        self._own_node: NodeObject | None = None
        """The last state of our Node. If a drained Node is deleted, it must not take EIPs again before its
        agent ends."""
        self._intent: NodeIntent | None = None
        self._exclusion = Exclusion(times.drain)
        self._wire: Wire | None = None
        self._first = True
        self._mirrors = mirrors = Mirrors(Room(room_for_objects()))
        report.mirrored(mirrors.room.most, lambda: mirrors.room.taken, lambda: mirrors.without_room)
        self._api = ApiState(self._mirrors, report, lambda: self._session.hurry(), self._say_api)
        self._record_reader = AnnouncementReader(
            lambda: self._announcements.store, self._told, self._saw_announcements, report
        )
        self._services = self._mirror(
            SERVICES,
            AssignedObject,
            self._saw_services,
            stakes=assigned_addresses,
            keeps=partial(concerns_us, default_class=settings.view.default_class),
        )
        self._services_known = asyncio.Event()
        self._late_slices = LateSlices(lambda key: self._services.store.get(Key(key.namespace, key.name)) is not None)
        self._slices = self._mirror(
            SLICES, SliceObject, self._saw_slices, indexes={"service": by_service}, keeps=self._late_slices.keeps
        )
        self._eips = self._mirror(EIPS, EipObject, self._saw_eips)
        self._nodes = self._mirror(NODES, NodeObject, self._saw_node, field_selector=f"metadata.name={node}")
        self._announcements = self._mirror(
            ANNOUNCEMENTS,
            AnnouncementObject,
            self._record_reader.saw,
            listed=self._record_reader.saw_all,
            stakes=lambda _: (),  # a record never takes an EIP away, and a holder writes it again
        )
        # If this speaker forwards itself, it does so before it answers.
        self._local = None if forwarder.ours else EndpointWatch(node, self._own, lambda: self._tell_changed())
        self._hosts = HostsAsked(client, self._saw_hosts, self._api, self._settle)
        told = self._api.tells("records")
        self._records = AnnouncementWriter(client, times.record_timeout, self._facts, told, report)
        self._session = Session(
            client,
            namespace,
            node,
            Pace(times.lease, times.renew, times.record_timeout),
            self._api,
            self,
            partial(forwards_with, forwarder, report),
        )

    def _mirror(
        self, path: str, kind: type[_T], deliver: Deliver[_T], listed: Listed = lambda *_: None, **resource: Any
    ) -> Reflector[_T]:
        mirrored = Resource(path, kind, settle=self._settle, room=self._mirrors.room, **resource)
        delivery = Delivery(deliver, self._report)
        return Reflector(self._client, mirrored, delivery, self._api, listed=listed, among=self._mirrors)

    # ── A source ──────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def record_sink(self) -> "Cluster":
        return self

    async def run(self, wire: Wire, changed: Callable[[], None]) -> None:
        self._wire = wire
        self._tell_changed = changed
        await self._last_known.held_against(self._services, self._slices, self._eips, self._nodes)
        async with asyncio.TaskGroup() as tasks:
            works = [("mirror", mirror.run) for mirror in self._mirrors if mirror is not self._slices]
            works += [
                ("mirror", self._mirror_slices),
                ("late slices", partial(self._late_slices.run, self._slices, self._api.tells("late slices"))),
                ("session", self._session.run),
                ("records", partial(self._records.run, wire)),
                ("nodes", self._hosts.run),
                ("api", self._api.come_up),
                ("hand on", partial(self._hand_on, wire)),
                ("correct", partial(self._correct, wire)),
                ("recall", partial(self._last_known.recall, lambda: self._listed, wire.informed, changed)),
                ("remember", partial(self._last_known.remember, self._seen)),
            ]
            if self._local is not None:
                works.append(("kube-proxy's endpoints", self._local.run))
            for task, work in works:
                tasks.create_task(supervised(task, work, self._report), name=task)

    async def _mirror_slices(self) -> None:
        """It has to be known first which Services they belong to."""
        await self._services_known.wait()
        await self._slices.run()

    async def _hand_on(self, wire: Wire) -> None:
        while True:
            tell = await self._told.get()
            with contained("hand on", self._report):
                await tell(wire)
            self._told.task_done()

    @property
    def _listed(self) -> bool:
        """Everything was heard once."""
        return all(mirror.synced for mirror in self._mirrors) and self._hosts.known is not None

    async def view(self, _: Mapping[IPAddress, str]) -> View | None:
        if not self._listed:
            last = self._last_known.recalled
            return await self._recalled_view(last) if last is not None else None
        if self._first or self._last_known.recalled is not None:
            assert self._wire is not None
            await self._wire.recalled(False)  # written by us, or by an earlier main process that ended without an API
        if self._last_known.recalled is not None:
            self._last_known.recalled = None
            self._read_anew()
        if self._first:
            self._first = False
            await self._told.join()  # everything's owner is known before this node may have any of it
        unreadable = Key("", self._node) in self._nodes.feed.set_aside
        intent = self._asked_of_node(node_intent(self._node, self._own_node, self._settings, unreadable=unreadable))
        same_node = self._intent is not None and self._intent.node == intent.node
        await self._follow_intent(intent)
        news, self._news = self._news, News()
        self._reading = True
        try:
            world, settlement, changed = await in_thread(self._reader.read, news, self._slices_of)
            if self._anew:
                self._anew, changed = False, None
            if self._local is not None:
                world, changed = self._local.follow(world, changed)
        except Exception:
            self._read_anew()
            raise
        finally:
            self._reading = False
        self._changed.set()
        self._last_known.learned.set()
        with contained("report", self._report):  # nothing is read twice
            self._report.unreadable((*self._set_aside(), *self._reader.problems()))
        return View(world, settlement, intent.node, changed=changed if same_node else None)

    async def _recalled_view(self, last: Known) -> View:
        self._reader = Reader(self._settings)
        assert self._wire is not None
        intent = self._asked_of_node(node_intent(self._node, last.node, self._settings))
        await self._follow_intent(intent)
        await self._wire.recalled(True)
        world, settlement, _ = await in_thread(self._reader.read, *news_of(last))
        return View(world, settlement, intent.node)

    def _seen(self) -> tuple[Any, ...]:
        """The arguments of ``known`` after our name."""
        return (
            self._own_node,
            *(tuple(mirror.store) for mirror in (self._services, self._slices, self._eips)),
            tuple((self._hosts.known or {}).values()),
        )

    def _read_anew(self) -> None:
        """After a bug of ours it is unknown what the reading had already taken in."""
        self._reader, self._anew = Reader(self._settings), True
        self._news = News(
            {found.key: found for found in self._services.store},
            eips=tuple(self._eips.store),
            nodes=dict(self._hosts.known or {}),
        )

    def _own(self) -> frozenset[IPAddress]:
        found = (self._hosts.known or {}).get(Key("", self._node))
        return addresses_of(found.status) if found is not None else frozenset()

    def _set_aside(self) -> Iterable[str]:
        for mirror in self._mirrors:
            yield from mirror.set_aside
        yield from self._record_reader.problems()
        if self._own_node is not None:
            yield from unread_wishes(self._own_node)
        if self._node_is_gone:
            yield f"Node/{self._node}: it is gone, and its last settings apply until it is back"

    def _slices_of(self, service: ServiceKey) -> tuple[SliceObject, ...]:
        return tuple(self._slices.store.by("service", service))

    def _asked_of_node(self, intent: NodeIntent) -> NodeIntent:
        asked, again = self._exclusion.follow(intent, boottime())
        if again is not None:
            asyncio.get_running_loop().call_later(again, self._tell_changed)
        return asked

    async def _follow_intent(self, intent: NodeIntent) -> None:
        """Follows what our Node object asks for apart from what may be held here, until it is done. ``speaker drain``
        ends when the Node's drain ends."""
        assert self._wire is not None
        before = self._intent
        if intent.drained != (before.drained if before is not None else None):
            log.info("node", draining=intent.drained or False)
            await self._wire.set_draining(intent.drained is not None)
        if before is None or intent.ready is not before.ready:
            if before is not None or not intent.ready:
                log.info("node", ready=intent.ready)
            await self._wire.demote(not intent.ready)
        self._intent = intent

    def recorded(self, eip: IPAddress) -> str | None:
        found = self._announcements.store.get(Key("", announcement_name(eip)))
        return read_record(found).holder if found is not None else None

    def lost(self, nodes: frozenset[str]) -> None:
        """Written at once, for the controller, which does not act on the word of a single agent."""
        self._session.misses(nodes)

    # ── A sink of records ────────────────────────────────────────────────────────────────────────────────────

    def hear(self, event: Began | WireEvent) -> None:
        """Learns which life this is. Until the next life, nothing is written in our name if another host keeps the
        name."""
        match event:
            case Began(found=found) if found.incarnation is not None:
                self._session.live(found.incarnation)
            case LifeBegan(incarnation=life):
                self._session.live(life)
            case OtherGroupsHold(eips=eips):
                self._session.other_groups(eips.keys())
            case NameClash(silent=True):
                self._session.live(None)
            case WriteRecord():
                self._records.take(event)

    def _facts(self, eip: IPAddress, held: bool) -> Facts | None:
        assert self._wire is not None
        if not held:
            return Facts("", "", self._reader.services_on(eip), reason=self._report.noted.why_not(eip))
        place = self._wire.offered(eip)
        if place is None:
            return None
        conflict, failover = self._report.rivals().get(str(eip), ""), self._report.noted.failover(eip)
        return Facts(place.link.name, format_mac(place.link.mac), self._reader.services_on(eip), conflict, "", failover)

    async def _correct(self, wire: Wire) -> None:
        """Services begin or cease to share an EIP, links get other MACs, strangers come and go; and somebody else may
        have written to a record."""
        while True:
            conflicts = self._report.conflicts()
            for _ in range(CORRECT_AT_LEAST):
                await set_within(self._changed, 10 * CORRECT_SECONDS)
                if self._changed.is_set() or self._report.conflicts() != conflicts:
                    break
            self._changed.clear()
            if self._api.up:
                mine = [found for found in self._announcements.store if found.status.holder == self._node]
                named = {eip for found in mine if (eip := eip_of(found)) is not None}
                self._records.only(named | wire.held)
                await self._records.correct(mine)
            await asyncio.sleep(CORRECT_SECONDS)

    # ── Mirrors ───────────────────────────────────────────────────────────────────────────────────────────────

    def _saw_services(self, changes: tuple[Change[AssignedObject], ...]) -> None:
        self._services_known.set()
        self._late_slices.follow(changes, self._slices)
        assigned = [change for change in changes if is_or_was_assigned(change.before, change.after)]
        self._news.services.update((change.key, change.after) for change in assigned)
        if assigned or not changes or self._first:
            self._tell_changed()

    def _saw_slices(self, changes: tuple[Change[SliceObject], ...]) -> None:
        """Slices of a Service that is yet to be read are read with it; at first that is all of them."""
        if self._first:
            self._tell_changed()
            return
        for change in changes:
            services = {found.service_key for found in (change.before, change.after) if found is not None}
            self._news.slices.update(services if self._reading else filter(self._reader.follows, services))
            if change.after is None:
                self._reader.forget_slice(change.key)
        if self._news.slices or not changes:
            self._tell_changed()

    def _saw_eips(self, _: tuple[Change[EipObject], ...]) -> None:
        self._news.eips = tuple(self._eips.store)
        self._tell_changed()

    def _saw_node(self, changes: tuple[Change[NodeObject], ...]) -> None:
        """Our own Node."""
        for change in changes:
            if change.after is not None:
                self._own_node, self._session.owner = change.after, change.after.metadata.uid
        self._tell_changed()

    @property
    def _node_is_gone(self) -> bool:
        return self._own_node is not None and self._nodes.store.get(self._own_node.key) is None

    def saw_lease(self, version: int) -> None:
        """The Lease is deleted with its Node, maybe repeatedly: that says nothing about the API server's data."""
        if version or not self._node_is_gone:
            self._mirrors.saw_lease(version)

    def _saw_hosts(self, news: Mapping[Key, HostObject | None]) -> None:
        self._news.nodes.update(news)
        self._report.nodes(len((self._hosts.known or {}).keys() - {Key("", self._node)}))
        self._tell_changed()

    def _saw_announcements(self, made_up: bool) -> None:
        self._report.records_changed()
        if self._first or made_up:
            self._tell_changed()

    def saw_other(self, life: Incarnation) -> None:
        """Another host writes our Lease."""
        self._told.put_nowait(lambda wire: wire.leases([(self._node, life, self._api.up)]))

    def _say_api(self, up: bool) -> None:
        self._told.put_nowait(lambda wire: wire.api(up))


async def run(end: socket.socket, settings: AgentSettings, examine: Examine) -> None:
    """Runs until the wire process, at the other side of ``end``, asks for the end, when everything is handed over.
    Raises like ``node.serve``; waits for an API that does not answer."""
    namespace = settings.namespace or settings.access.namespace(AGENTS_NAMESPACE)

    async def open_source(report: Report, stack: AsyncExitStack) -> Source:
        client = await stack.enter_async_context(Client(await configure(settings.access)))
        return Cluster(client, settings, namespace, report)

    await serve(end, settings, open_source, api=True, examine=examine, leases=namespace)
