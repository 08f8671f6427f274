"""What the API says, mirrored and handed on: a ``node.Source`` and the wire process's ``Clerk``."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import structlog

from speaker.agent.announcement_writer import AnnouncementWriter
from speaker.agent.asked import HostsAsked
from speaker.agent.delivery import AGAIN_SECONDS, Delivery
from speaker.agent.exclusion import Exclusion
from speaker.agent.known import Known, known, recall, remember
from speaker.agent.objects import AnnouncementObject, AssignedObject, NodeObject, SliceObject, by_service
from speaker.agent.record import ANNOUNCEMENTS, Facts, eip_of, is_made_up, read_record
from speaker.agent.session import Session
from speaker.agent.view import News, NodeIntent, Reader, ViewSettings, node_intent
from speaker.cluster.hosts import HostObject
from speaker.cluster.kinds import EipObject
from speaker.cluster.mirror.reflector import Reflector, Resource
from speaker.cluster.mirror.store import Change, Index
from speaker.cluster.objects import Key
from speaker.cluster.transport.client import Client
from speaker.errors import ApiRefused, EdgeError
from speaker.model import Forwarding, IPAddress, ServiceKey, format_mac
from speaker.node.report import Report
from speaker.node.source import View
from speaker.ownership.events import Record, WriteRecord, gone
from speaker.ownership.hello import Incarnation
from speaker.ownership.parameters import Parameters
from speaker.system.clock import boottime
from speaker.system.supervise import contained, supervised
from speaker.system.waiting import set_within
from speaker.telemetry.spells import LASTING
from speaker.wire.remote import A_SLICE, Wire

log = structlog.get_logger()

LOOK_SECONDS = 0.02
"""Between two looks at whether the mirrors are of now again."""
RECALL_SECONDS = 5.0
"""Without an API after which an agent goes by what the API said last."""
RECALL_AGAIN = 1.0
"""Between two looks at whether it may, as no peer seems to read the API."""
REMEMBER_SECONDS = 30.0
"""At least between two writings of what the API says."""
CORRECT_SECONDS = 1.0
"""At least between two looks at what the records say for people; ten times as long between two at who conflicts."""
CORRECT_AT_LEAST = 12
"""Of the latter after which the former comes anyway."""

_T = TypeVar("_T", bound=Any)


class Cluster:
    """One life of this node's agent, as far as the API goes.

    The API counts as up when a renewal of our Lease was answered in time, and every mirror follows by a connection that
    was made since the API was away: then what mirrors say is of now. It counts as down as soon as a renewal is late.
    One comes at once when anything else goes unanswered, so they can be rare.
    """

    def __init__(
        self,
        client: Client,
        node: str,
        namespace: str,
        settings: ViewSettings,
        times: Parameters,
        report: Report,
        runtime_dir: Path,
        forwarder: Forwarding,
    ) -> None:
        self._runtime_dir = runtime_dir
        self._recalled: Known | None = None
        """What is gone by as long as nothing was listed."""
        self._learned = asyncio.Event()
        """There is something else to remember."""
        self._client, self._node, self._settings, self._report = client, node, settings, report
        self._reader = Reader(settings)
        self._changed = asyncio.Event()
        self._tell_changed: Callable[[], None] = lambda: None
        self._told: asyncio.Queue[Callable[[Wire], Any]] = asyncio.Queue()
        """For the wire process, in order."""
        self._news = News()
        self._reading = False
        """In a thread; what it follows from now on is not known before it is done."""
        self._anew = False
        """The next reading is of everything."""
        self._wishes: NodeIntent | None = None
        self._exclusion = Exclusion(times.drain)
        self._wire: Wire | None = None
        self._up = self._was_up = False
        self._answered = asyncio.Event()
        self._doubted = False
        """The API was away since the mirrors connected: what came by these connections, or did not, proves nothing."""
        self._newest_record = 0
        """The highest version that was seen of any, or of a list of all."""
        self._made_up: set[str] = set()
        """Names of the Announcements whose term no agent wrote."""
        self._first = True
        self._services = self._mirror("/api/v1/services", AssignedObject, self._saw_services)
        self._slices = self._mirror(
            "/apis/discovery.k8s.io/v1/endpointslices", SliceObject, self._saw_slices, {"service": by_service}
        )
        self._eips = self._mirror("/apis/eip-speaker.io/v1alpha1/eips", EipObject, self._saw_eips)
        self._nodes = self._mirror("/api/v1/nodes", NodeObject, self._saw_node, field_selector=f"metadata.name={node}")
        self._announcements = self._mirror(
            ANNOUNCEMENTS, AnnouncementObject, self._saw_announcements, listed=self._saw_all_announcements
        )
        self._mirrors: tuple[Reflector[Any], ...] = (
            *(self._services, self._slices, self._eips, self._nodes),
            self._announcements,
        )
        self._hosts = HostsAsked(client, self._saw_hosts, self._tells("nodes"))
        self._records = AnnouncementWriter(client, times.record_timeout, self._facts, self._tells("records"))
        self._session = Session(
            client,
            namespace,
            node,
            duration=times.lease,
            renew=times.renew,
            deadline=times.record_timeout,
            renewed=self._renewed,
            failed=self._lost,
            told=self._tells("session"),
            other=self._saw_other,
            forwarder=partial(_forwards_with, forwarder, report),
        )

    def _mirror(
        self,
        path: str,
        kind: type[_T],
        deliver: Callable[[tuple[Change[_T], ...]], None],
        indexes: dict[str, Index[_T]] | None = None,
        *,
        field_selector: str = "",
        listed: Callable[[str], None] = lambda _: None,
    ) -> Reflector[_T]:
        def later(seconds: float, what: Callable[[], None]) -> object:
            return asyncio.get_running_loop().call_later(seconds, what)

        def told(error: EdgeError) -> None:
            # While the API does not answer, that has been said.
            self._report.failed(path, error, known=self._was_up and not self._up, patience=self._patience(error))
            self._doubt()

        return Reflector(
            self._client,
            Resource(path, field_selector=field_selector),
            kind,
            Delivery(deliver, self._report, later),
            indexes=indexes,
            told=told,
            listed=listed,
        )

    # ── A source ──────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def clerk(self) -> "Cluster":
        return self

    async def run(self, wire: Wire, changed: Callable[[], None]) -> None:
        self._wire = wire
        self._tell_changed = changed
        async with asyncio.TaskGroup() as tasks:
            works = [("mirror", mirror.run) for mirror in self._mirrors]
            works += [
                ("session", self._session.run),
                ("records", partial(self._records.run, wire)),
                ("nodes", self._hosts.run),
                ("api", self._come_up),
                ("hand on", partial(self._hand_on, wire)),
                ("correct", self._correct),
                ("recall", self._recall),
                ("remember", self._remember),
            ]
            for task, work in works:
                tasks.create_task(supervised(task, work, self._report), name=task)

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
            return await self._recalled_view() if self._recalled is not None else None
        if self._recalled is not None:
            self._recalled = self._wishes = None
            assert self._wire is not None
            await self._wire.recalled(False)
            self._read_anew()
        if self._first:
            self._first = False
            await self._told.join()  # whose everything is, is known before this node may have any of it
        key = Key("", self._node)
        found, unreadable = self._nodes.store.get(key), self._nodes.is_set_aside(key)
        wishes = self._asked_of_node(node_intent(self._node, found, self._settings, unreadable=unreadable))
        same_node = self._wishes is not None and self._wishes.node == wishes.node
        await self._follow_wishes(wishes)
        news, self._news = self._news, News()
        # In a thread, as 10,000 Services take their time.
        self._reading = True
        try:
            world, settlement, changed = await asyncio.to_thread(self._reader.read, news, self._slices_of)
        except Exception:
            self._read_anew()
            raise
        finally:
            self._reading = False
        if self._anew:
            self._anew, changed = False, None
        self._changed.set()
        self._learned.set()
        with contained("report", self._report):  # what was read is not read again
            self._report.unreadable((*self._set_aside(), *self._reader.problems()))
        return View(world, settlement, wishes.node, changed=changed if same_node else None)

    # ── Without an API from the start ─────────────────────────────────────────────────────────────────────────

    async def _recall(self) -> None:
        """What no peer holds is better served by what was known last than by nobody."""
        await asyncio.sleep(RECALL_SECONDS)
        assert self._wire is not None
        found = None
        with self._report.trying("last known"):
            found = None if self._listed else await asyncio.to_thread(recall, self._runtime_dir, self._node)
        while found is not None and not self._listed:
            if not await self._wire.informed():
                log.warning("no API yet: going by what it said last", services=len(found.services))
                self._recalled = found
                self._tell_changed()
                break
            await asyncio.sleep(RECALL_AGAIN)
        await asyncio.Event().wait()  # once in a life

    async def _recalled_view(self) -> View:
        last, self._reader = self._recalled, Reader(self._settings)
        assert last is not None
        assert self._wire is not None
        slices: dict[ServiceKey, list[SliceObject]] = {}
        for each in last.slices:
            slices.setdefault(each.service_key, []).append(each)
        news = News(
            {each.key: each for each in last.services},
            eips=last.eips,
            nodes={each.key: each for each in last.hosts},
        )
        wishes = self._asked_of_node(node_intent(self._node, last.node, self._settings))
        await self._follow_wishes(wishes)
        await self._wire.recalled(True)
        read = partial(self._reader.read, news, lambda key: slices.get(key, ()))
        world, settlement, _ = await asyncio.to_thread(read)
        return View(world, settlement, wishes.node)

    async def _remember(self) -> None:
        """Seldom, and only what was read from the API."""
        while True:
            await self._learned.wait()
            self._learned.clear()
            seen = (
                *(self._node, self._nodes.store.get(Key("", self._node))),
                *(tuple(mirror.store) for mirror in (self._services, self._slices, self._eips)),
                tuple((self._hosts.known or {}).values()),
            )
            with self._report.trying("last known"):
                await asyncio.to_thread(self._remember_now, seen)
            await asyncio.sleep(REMEMBER_SECONDS)

    def _remember_now(self, seen: tuple[Any, ...]) -> None:
        remember(self._runtime_dir, known(*seen))

    def _read_anew(self) -> None:
        """What a reading had taken in when it met a bug of ours is not known."""
        self._reader, self._anew = Reader(self._settings), True
        self._news = News(
            {found.key: found for found in self._services.store},
            eips=tuple(self._eips.store),
            nodes=dict(self._hosts.known or {}),
        )

    def _set_aside(self) -> Iterable[str]:
        for mirror in self._mirrors:
            yield from mirror.set_aside
        for name in sorted(self._made_up):
            yield f"Announcement/{name}: no agent comes to its term: it counts for nothing, and is written anew"

    def _slices_of(self, service: ServiceKey) -> tuple[SliceObject, ...]:
        return tuple(self._slices.store.by("service", service))

    def _asked_of_node(self, wishes: NodeIntent) -> NodeIntent:
        asked, again = self._exclusion.follow(wishes, boottime())
        if again is not None:
            asyncio.get_running_loop().call_later(again, self._tell_changed)
        return asked

    async def _follow_wishes(self, wishes: NodeIntent) -> None:
        """What our Node object asks for besides what may be held here. ``speaker drain`` ends when its drain ends."""
        assert self._wire is not None
        before, self._wishes = self._wishes, wishes
        if wishes.drained != (before.drained if before is not None else None):
            log.info("node", draining=wishes.drained or False)
            await self._wire.set_draining(wishes.drained is not None)
        if before is None or wishes.ready is not before.ready:
            if before is not None or not wishes.ready:
                log.info("node", ready=wishes.ready)
            await self._wire.demote(not wishes.ready)

    # ── A clerk ───────────────────────────────────────────────────────────────────────────────────────────────

    def incarnation(self, number: Incarnation) -> None:
        self._session.live(number)

    def silence(self) -> None:
        self._session.live(None)

    def write_record(self, order: WriteRecord) -> None:
        self._records.take(order)

    def _facts(self, eip: IPAddress) -> Facts | None:
        assert self._wire is not None
        spot = self._wire.offered(eip)
        if spot is None:
            return None
        conflict = self._report.conflicts().get(str(eip), "")
        return Facts(spot.link.name, format_mac(spot.link.mac), self._reader.services_on(eip), conflict)

    async def _correct(self) -> None:
        """Services come to share an EIP or leave it, links get other MACs, strangers come and go; and somebody else may
        have written to a record."""
        while True:
            conflicts = self._report.conflicts()
            for _ in range(CORRECT_AT_LEAST):
                await set_within(self._changed, 10 * CORRECT_SECONDS)
                if self._changed.is_set() or self._report.conflicts() != conflicts:
                    break
            self._changed.clear()
            if self._up:
                mine = [found for found in self._announcements.store if found.status.holder == self._node]
                await self._records.correct(mine)
            await asyncio.sleep(CORRECT_SECONDS)

    # ── Mirrors ───────────────────────────────────────────────────────────────────────────────────────────────

    def _saw_services(self, changes: tuple[Change[AssignedObject], ...]) -> None:
        self._news.services.update((change.key, change.after) for change in changes)
        self._tell_changed()

    def _saw_slices(self, changes: tuple[Change[SliceObject], ...]) -> None:
        """Those of a Service that is yet to be read are read with it; at first that is all of them."""
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
        """Ours."""
        for change in changes:
            if change.after is not None:
                self._session.owner = change.after.metadata.uid
        self._tell_changed()

    def _saw_hosts(self, news: Mapping[Key, HostObject | None]) -> None:
        self._news.nodes.update(news)
        self._tell_changed()

    def _saw_announcements(self, changes: tuple[Change[AnnouncementObject], ...]) -> None:

        async def tell(wire: Wire) -> None:
            unread: list[Change[AnnouncementObject]] = []
            # A list brings all of them at once; there is other work to do in between.
            for at in range(0, len(changes), A_SLICE):
                await wire.records(list(self._records_of(changes[at : at + A_SLICE], unread)))
            if unread:
                asyncio.get_running_loop().call_later(AGAIN_SECONDS, self._see_again, tuple(unread))

        self._told.put_nowait(tell)
        before = len(self._made_up)
        for change in changes:
            self._made_up.discard(change.key.name)
            if change.after is not None:
                self._newest_record = max(self._newest_record, int(change.after.metadata.resource_version))
                if is_made_up(change.after):
                    self._made_up.add(change.key.name)
        if self._first or self._made_up or before:
            self._tell_changed()

    def _saw_all_announcements(self, version: str) -> None:
        """A list tells what is gone of what the mirror knew. What we wrote meanwhile, or a main process before us, may
        have been deleted without it. A version below one that was seen is that of an older backup."""
        at, restored = int(version), int(version) < self._newest_record
        self._newest_record = at

        async def tell(wire: Wire) -> None:
            there = {eip_of(found) for found in self._announcements.store}
            lacking = [eip for eip in await wire.recorded() if eip not in there]
            await wire.records([(eip, gone(at)) for eip in lacking])

        if restored:
            log.warning("the API server's data was restored from an older backup: its records are read anew")
            self._told.put_nowait(lambda wire: wire.restored())
            self._saw_announcements(tuple(Change(found.key, None, found) for found in self._announcements.store))
        self._told.put_nowait(tell)

    def _records_of(
        self, changes: Iterable[Change[AnnouncementObject]], unread: list[Change[AnnouncementObject]]
    ) -> Iterable[tuple[IPAddress, Record]]:
        """One that meets a bug of ours is ``unread``, and keeps no other from being heard."""
        for change in changes:
            try:
                yield from _records([change])
            except Exception as error:
                self._report.internal_error("hand on", error)
                unread.append(change)

    def _see_again(self, changes: tuple[Change[AnnouncementObject], ...]) -> None:
        """As they are now."""
        now = ((change, self._announcements.store.get(change.key)) for change in changes)
        self._saw_announcements(
            tuple(change if found is None else Change(change.key, None, found) for change, found in now)
        )

    def _saw_other(self, life: Incarnation) -> None:
        """Another host writes our Lease."""
        self._told.put_nowait(lambda wire: wire.leases([(self._node, life, self._up)]))

    # ── Up or down ────────────────────────────────────────────────────────────────────────────────────────────

    def _renewed(self, _: int) -> None:
        """Answered in time."""
        for mirror in self._mirrors:
            if mirror.following:
                self._report.recovered(mirror.resource.path)
        if self._up and self._following:
            self._told.put_nowait(lambda wire: wire.api(True))  # the machine may have found that writes take too long
            return
        self._lost(dead=False)
        for mirror in self._mirrors:
            if self._doubted or not mirror.following:
                mirror.reconnect()
        self._doubted = False
        self._answered.set()

    @property
    def _following(self) -> bool:
        return all(mirror.following for mirror in self._mirrors)

    async def _come_up(self) -> None:
        """After a renewal that was answered: as soon as the mirrors say what is now."""
        while True:
            await self._answered.wait()
            if self._following:
                self._answered.clear()
                self._up = self._was_up = True
                self._report.api(True)
                self._told.put_nowait(lambda wire: wire.api(True))
            else:
                await asyncio.sleep(LOOK_SECONDS)

    def _doubt(self) -> None:
        """Something went unanswered: perhaps everything does."""
        if self._up:
            self._session.hurry()

    def _patience(self, error: EdgeError) -> float:
        """What one that was there does not answer now and then needs nobody. A refusal is for somebody to mend."""
        return LASTING if self._was_up and not isinstance(error, ApiRefused) else 0.0

    def _lost(self, dead: bool) -> None:
        """Again and again, as long as it lasts."""
        if self._was_up:
            self._report.api(False)
        if dead:
            self._doubted = True
        self._up = False
        self._answered.clear()
        self._told.put_nowait(lambda wire: wire.api(False))

    def _tells(self, edge: str) -> Callable[[EdgeError | None], None]:
        def tell(error: EdgeError | None) -> None:
            if error is None:
                self._report.recovered(edge)
            else:
                self._report.failed(edge, error, patience=self._patience(error))
                if not isinstance(error, ApiRefused):
                    self._doubt()

        return tell


def _forwards_with(forwarder: Forwarding, report: Report) -> str | None:
    """None until it does: the controller would have kube-proxy leave the EIPs alone."""
    return forwarder.value if forwarder is Forwarding.NONE or report.health()[0] else None


def _records(changes: Iterable[Change[AnnouncementObject]]) -> Iterable[tuple[IPAddress, Record]]:
    for change in changes:
        found = change.after or change.before
        if found is not None and (eip := eip_of(found)) is not None:
            record = read_record(found)
            yield eip, record if change.after is not None else gone(record.version)
