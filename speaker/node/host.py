"""One node at work, whoever says what is asked of it: which tasks run, what wakes them, how they stop.

::

    source ─┐                             ┌─► forwarder (kernel)
            ├─► reconcile: view → decide ─┼─► wire process: claims, hellos, ARP and NDP (speaker/wire)
    links  ─┘             (decide.py)     └─► status file, log, metrics

The first two wait for changes; ``reconcile`` brings everything to what was last asked for: read on at
``Host._bring_about``. The wire process is offered what this node may hold, and works by itself. An edge that fails is
tried again, and what already works goes on working meanwhile. Sources are ``standalone.run.Manifests`` (files) and
``agent.source.Cluster`` (the Kubernetes API).
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from ipaddress import IPv4Address
from pathlib import Path

import structlog

from speaker.checks import said
from speaker.errors import EdgeError
from speaker.forwarding.changes import Assisted, past_dead
from speaker.forwarding.forwarder import TEND_SECONDS
from speaker.forwarding.isolating import Isolating
from speaker.forwarding.limits import look, raise_conntrack_max
from speaker.forwarding.sysctl import forwarding_off, links_not_forwarding, reverse_path
from speaker.health.judge import behind
from speaker.interfaces.addresses import bound_addresses, gateways, own_addresses
from speaker.interfaces.gateway import watch_gateways
from speaker.interfaces.martians import Martians
from speaker.interfaces.routing import Found, lookup
from speaker.interfaces.snapshot import Snapshot
from speaker.interfaces.watcher import Watcher
from speaker.kubeproxy.health_checks import health_checks
from speaker.kubeproxy.judge import NO_FORWARDER
from speaker.kubeproxy.watch import Asked, KubeProxyWatch
from speaker.model import Family, Forwarding, IPAddress, Link, Placement, ServiceKey
from speaker.node.control import NAME, serving_control
from speaker.node.decide import Decision, MayHold, NodeDecider
from speaker.node.handlers import handlers
from speaker.node.handover import HandOver
from speaker.node.key_file import KeyFile
from speaker.node.known.knowledge import InForce
from speaker.node.losses import Heard, Losses
from speaker.node.publishing import Witnessing, publish
from speaker.node.report import Report
from speaker.node.source import Source, View
from speaker.ownership.parameters import Parameters
from speaker.settings import NodeSettings
from speaker.system.files import is_file
from speaker.system.garbage import give_back, uncollected
from speaker.system.process import may_be_nice, priority_of, refused
from speaker.system.retry import retrying
from speaker.system.supervise import contained, lasting, report, supervised, wait
from speaker.system.threads import in_thread
from speaker.system.waiting import boottime, set_within, tick
from speaker.telemetry.lateness import watch_loop
from speaker.wire.progress import Loops
from speaker.wire.remote import Wire

log = structlog.get_logger()

ENVIRONMENT_SECONDS = 10.0
"""How often this host is checked for what others do to it: settings, firewalls, full tables, dropped packets. What is
reported about that is at most so old."""
MANY = 100
"""After a pass in which so many Services changed, memory is given back to the kernel."""
RUNTIME_DIR_SECONDS = 5.0
"""How often to check that the control socket and the lock are still there."""
LOSSES_SECONDS = 10.0
"""How often to check who is heard, if nobody fell silent or came back."""
UNMEASURED = {"loop", "source", "gateways"}
"""Tasks that wait for other tasks, or for something that may never come."""
DRAIN_SLACK = 2.0
"""If a wire process needs so many seconds more than a drain's own limit, it is no longer waited for."""


class Host:
    """The loops of one node and the little they share: what was asked for, and the state of the links."""

    def __init__(
        self,
        settings: NodeSettings,
        keys: KeyFile | None,
        source: Source,
        forwarder: Isolating,
        wire: Wire,
        report: Report,
        hand_over: HandOver | None,
    ) -> None:
        self._hand_over = hand_over
        self._settings, self._keys, self._martians = settings, keys, Martians()
        self._source = source
        self._forwarder = forwarder
        self._wire = wire
        self._report = report
        self._decider = NodeDecider(forwards=settings.forwarder is not Forwarding.NONE)
        self._assisted = Assisted() if settings.forwarder is Forwarding.ASSIST else None
        self._failed: Mapping[ServiceKey, Exception] = {}
        """Services that are set aside."""
        self._left = False
        """The last pass did not finish something else."""
        self._unserved: frozenset[IPAddress] = frozenset()
        """EIPs that are not offered because the kernel refuses to forward for them."""
        self._placements: dict[IPAddress, Placement] = {}
        """What the last decision lets this node hold; updated EIP by EIP, as most passes change few."""
        self._decided_on: Snapshot | None = None
        """None: the last pass did not finish."""
        self._behind: frozenset[IPAddress] | None = None
        """EIPs for which other nodes go first; None: the wire process has not been told yet."""
        self._snapshot: Snapshot | None = None
        self._links: frozenset[Link] = frozenset()
        """Links that EIPs are announced on."""
        self._kube_proxy = KubeProxyWatch(
            forwarder.inner.name if settings.forwarder.ours else NO_FORWARDER,
            lambda: wire.held,
            lambda: not report.fails("reconcile", "forwarding"),
            report.kube_proxy,
        )
        self._witnessing = Witnessing(settings.node.name, report)
        report.draining = lambda: wire.draining
        self._changed = asyncio.Event()
        self._lost = self._planned_lost = frozenset[str]()
        """Nodes that died, and the dead nodes that the last plan took into account."""

    async def run(self, stop: Callable[[], None]) -> None:
        """Starts every task, by name. A task that ends is started again, as none is ever done. Only the end of the wire
        process ends the speaker; ``stop`` is called when that process asks for it."""
        with self._witnessing.sockets:
            async with self._wire, asyncio.TaskGroup() as tasks:
                tasks.create_task(lasting("wire", partial(self._wire.watch, stop)), name="wire")
                loops = Loops()
                for task, work in self._tasks().items():
                    measured = work if task in UNMEASURED else loops.measured(task, work)
                    tasks.create_task(supervised(task, measured, self._report), name=task)
                tell = partial(loops.run, self._wire.progress, self._report)
                tasks.create_task(supervised("progress", tell, self._report), name="progress")

    def _tasks(self) -> dict[str, Callable[[], Awaitable[None]]]:
        tasks: dict[str, Callable[[], Awaitable[None]]] = {
            "source": partial(self._source.run, self._wire, self._changed.set),
            "links": self._follow_links,
            "reconcile": self._reconcile,
            "forwarding": self._tend,
            "publish": partial(publish, self._wire, self._source, self._report, self._witnessing),
            "loop": partial(watch_loop, self._report.own_loop_delay),
            "kube-proxy": self._kube_proxy.run,
            "environment": self._watch_environment,
            "control": self._serve_control,
            "witness": self._witnessing.run,
            "runtime directory": self._keep_runtime_dir,
        }
        if self._keys is not None:
            tasks["key file"] = partial(self._keys.follow, self._wire, self._report)
            tasks["gateways"] = self._watch_gateways
            tasks["lost nodes"] = self._follow_losses
        if self._hand_over is not None:
            tasks["hand over"] = self._hand_over.run
        return tasks

    async def leave(self) -> None:
        """Hand the EIPs over, make before break if somebody is there to take over. The kernel goes on forwarding."""
        if self._settings.peers is None:
            return
        limit = Parameters.for_hello(self._settings.peers.hello).drain + DRAIN_SLACK
        with contained("hand over", self._report), suppress(TimeoutError):
            async with asyncio.timeout(limit):
                if await self._wire.has_peers():
                    log.info("handing over")
                    async for _ in self._wire.drain():
                        pass

    # ── sources ──

    async def _follow_links(self) -> None:
        async for attempt in retrying(self._failing("netlink"), on=EdgeError):
            with attempt:
                async with Watcher(self._settings.group.link) as watcher:
                    async for snapshot in watcher:
                        self._report.recovered("netlink")
                        self._snapshot = snapshot
                        self._changed.set()

    async def _watch_gateways(self) -> None:
        silent: asyncio.Queue[tuple[int, bool]] = asyncio.Queue()

        async def hand_on() -> None:
            while True:
                with self._report.trying("gateway"):
                    await self._wire.gateway(*await silent.get())

        async def watch() -> None:
            async for attempt in retrying(self._failing("gateway"), on=EdgeError):
                with attempt:
                    tell = lambda link, answers: silent.put_nowait((link, answers))  # noqa: E731
                    await watch_gateways(lambda: self._snapshot, lambda: self._links, tell)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(lasting("gateway answers", hand_on), name="gateway answers")
            tasks.create_task(lasting("gateway questions", watch), name="gateway questions")

    async def _follow_losses(self) -> None:
        """Endpoints of nodes that died get no new connections from then on, if we forward. The source is told too."""
        assert self._settings.peers is not None
        losses, soon, known = Losses(2 * self._settings.peers.hello), None, frozenset[str]()
        while True:
            await set_within(self._wire.peers_changed, LOSSES_SECONDS if soon is None else soon)
            self._wire.peers_changed.clear()
            with self._report.trying("peers"):
                seen = await self._wire.peers()
                self._report.losses(seen)
                self._witnessing.know(seen)
                speakers = [Heard(peer.node, peer.alive, peer.draining) for peer in seen]
                lost, soon = losses.heard(speakers, boottime())
                if lost != known:
                    log.info("nodes lost", nodes=sorted(lost))
                    known = lost
                    self._source.lost(lost)
                    if self._settings.forwarder is not Forwarding.NONE:
                        self._lost = lost
                        self._changed.set()

    def _failing(self, edge: str) -> Callable[[Exception], None]:
        return partial(self._report.met, edge)

    # ── decisions and effects ──

    async def _reconcile(self) -> None:
        tries = 0
        while True:
            await set_within(self._changed, wait(tries) if tries else None)
            # Between two tries it waits no longer than until there is something new to try.
            until_news = partial(set_within, self._changed)
            async for attempt in retrying(self._failing("reconcile"), on=Exception, sleep=until_news):
                with attempt:
                    self._changed.clear()
                    if self._snapshot is not None:
                        with self._collected_little():
                            await self._bring_about(self._snapshot)
            self._report.recovered("reconcile")
            tries = tries + 1 if self._left or self._failed or self._forwarder.refused else 0

    def _collected_little(self) -> AbstractContextManager[None]:
        """A pass over everything makes many long-lived objects. The first pass's are frozen once it is in force."""
        if self._decided_on is not None:
            return nullcontext()
        first = self._report.in_force is None
        return uncollected(lambda: first and self._report.in_force is not None)

    async def _bring_about(self, snapshot: Snapshot) -> None:
        """One pass, in a safe order: withdrawn before unforwarded, forwarded before claimed.

        ``node/decide.py`` says what this node may hold. The forwarder makes the kernel forward it: for IPVS
        ``forwarding/ipvs/forwarder.py``. ``self._wire.offer`` reaches ``SharedOwner.offer`` in the wire process
        (``wire/shared.py``), where the claim is made: this process never claims.
        """
        if (view := await self._source.view(snapshot.own)) is None:
            return
        changed = view.changed if snapshot is self._decided_on else None
        self._decided_on, self._left = None, False
        view, changed = self._without_lost(view, changed)
        await self._in_thread(partial(self._report.settled, view.settlement, changed))
        decision, touched = await in_thread(self._decide, view, snapshot, changed)
        await self._wire.withdraw_except(self._placements, touched)
        changes = await self._forwarder.apply(decision.forwarding)
        with contained("report", self):
            self._report.forwarding(changes, self._forwarder.inner.approximations(decision.forwarding))
            if self._assisted is not None:
                self._report.assisting(past_dead(decision.forwarding))
        self._tell_failed({**view.settlement.failed, **self._decider.failed})
        self._links = frozenset({each.link.index: each.link for each in self._placements.values()}.values())
        await self._in_thread(partial(self._report.decided, decision, touched))
        own = own_addresses(snapshot, self._links)
        self._witnessing.use(self._links, own)
        if self._settings.peers is not None:
            await self._wire.addresses(own, bound_addresses(snapshot, self._links), gateways(snapshot, self._links))
        if self._hand_over is not None:
            await self._hand_over.follow(frozenset(self._placements), snapshot)
        macs = frozenset(link.mac for link in snapshot.links.values())
        unserved = self._forwarder.unserved(decision.forwarding)
        if touched is not None:
            touched |= unserved ^ self._unserved
        self._unserved = unserved
        offered = {a: p for a, p in self._placements.items() if a not in unserved} if unserved else self._placements
        last = behind(view.world, view.settlement.assignments, view.node.name)
        if self._settings.peers is not None and last != self._behind:
            await self._wire.behind(last)
            self._behind = last
        self._left |= not await self._wire.offer(offered, self._links, macs, touched)
        with contained("report", self):
            await self._look_around()
            self._report.set_aside(self._set_aside())
            node, forwards = view.node.name, self._settings.forwarder is not Forwarding.NONE
            in_force = InForce(view.settlement, decision, view.usage, view.world, node, forwards=forwards)
            self._report.brought_about(in_force)
        with contained("kube-proxy", self):
            checks = partial(health_checks, view.world, view.settlement.assignments, view.node.name)
            await self._kube_proxy.follow(Asked(view.world.pools, checks, snapshot.links, self._on_the_lan(snapshot)))
        self._decided_on = snapshot
        if changed is None or len(changed) >= MANY:
            await self._in_thread(give_back)

    def _without_lost(
        self, view: View, changed: frozenset[ServiceKey] | None
    ) -> tuple[View, frozenset[ServiceKey] | None]:
        """The view with the lost nodes marked, and also the Services with endpoints on nodes that became lost or came
        back."""
        other, self._planned_lost = self._lost ^ self._planned_lost, self._lost
        if changed is not None and other:
            endpoints = view.world.endpoints.items()
            changed |= {key for key, found in endpoints if any(each.node in other for each in found)}
        return view._replace(world=replace(view.world, lost=self._planned_lost)), changed

    async def _in_thread(self, tell: Callable[[], None]) -> None:
        """Reports to people, in a thread. A bug there does not stop the work."""
        with contained("report", self):
            await in_thread(tell)

    def internal_error(self, task: str, error: BaseException) -> None:
        """The next pass, soon, does what this one left undone because of the error."""
        self._left = True
        self._report.internal_error(task, error)

    def _tell_failed(self, failed: Mapping[ServiceKey, Exception]) -> None:
        """Reports Services that met an unexpected error."""
        for key, error in failed.items():
            if self._failed.get(key) is not error:
                report("decide", error, self._report)
        self._failed = failed

    def _set_aside(self) -> tuple[str, ...]:
        """The names of what is not as it was asked for."""
        failed = (f"{key} is set aside: internal_error: {error!r}" for key, error in self._failed.items())
        return *failed, *self._forwarder.set_aside(self._unserved)

    def _decide(
        self, view: View, snapshot: Snapshot, changed: frozenset[ServiceKey] | None
    ) -> tuple[Decision, frozenset[IPAddress] | None]:
        assignments = view.settlement.assignments
        decision, touched = self._decider.decide(view.world, assignments, snapshot, view.node, changed)
        if self._assisted is not None:
            decision = decision._replace(forwarding=self._assisted.of(decision.forwarding, boottime()))
        self._follow(decision, touched)
        return decision, touched

    def _follow(self, decision: Decision, touched: frozenset[IPAddress] | None) -> None:
        """Updates which EIPs may be held where."""
        placements = {} if touched is None else self._placements
        for address in decision.eips if touched is None else touched:
            placements.pop(address, None)
            if isinstance(eip := decision.eips.get(address), MayHold):
                placements[address] = Placement(eip.link, eip.gratuitous, eip.preference)
        self._placements = placements

    def _on_the_lan(self, snapshot: Snapshot) -> frozenset[str]:
        """Names of the links that EIPs are announced on; if this node may hold none, of the links that it uses."""
        if self._links:
            return frozenset(link.name for link in self._links)
        used = {bound.link for bound in snapshot.addresses}
        return frozenset(link.name for index, link in snapshot.links.items() if index in used)

    async def _tend(self) -> None:
        """Removes real servers that have drained, and repairs what others have damaged."""
        while True:
            await tick(TEND_SECONDS)
            with self._report.trying("forwarding"):
                self._report.forwarding(await self._forwarder.inner.tend())
            if self._assisted is not None and self._assisted.until:
                self._changed.set()  # kube-proxy may know by then

    async def _watch_environment(self) -> None:
        """Runs whether or not anything of ours changes. Reads the tables in a thread, as they have a line for every
        real server."""
        least, ipvs = self._settings.limits.conntrack_max, self._forwarder.inner.name == Forwarding.IPVS.value
        while True:
            with self._report.trying("martians"):
                found = await self._martians.look(self._links, self._snapshot, ENVIRONMENT_SECONDS / 2)
                self._report.martians(*found)
            with self._report.trying("limits"):
                refused = raise_conntrack_max(least) if least else ()
                self._report.limits(await in_thread(partial(look, ipvs=ipvs)), refused)
            if self._report.in_force is not None:
                await self._look_around()
            await tick(ENVIRONMENT_SECONDS)

    async def _look_around(self) -> None:
        """Looks for what keeps traffic from flowing through what is in force here."""
        with self._report.trying("environment"):
            links = [link.name for link in self._links]
            families = {Family.of(eip) for eip in self._placements}
            priority = priority_of(os.getppid())
            problems = (
                *(*forwarding_off(families), *links_not_forwarding(links), *reverse_path(links, self._everywhere())),
                *await self._forwarder.inner.problems(),
                *said("no_real_time", refused(priority, may=may_be_nice()), "sysctl -w kernel.sched_rt_runtime_us=-1"),
            )
            self._report.environment(problems, priority)

    def _everywhere(self) -> str:
        """The link of the default route, or ''."""
        if (snapshot := self._snapshot) is not None:
            match lookup(IPv4Address(0), snapshot):
                case Found(_, hops) if hops[0].link in snapshot.links:
                    return snapshot.links[hops[0].link].name
        return ""

    async def _serve_control(self) -> None:
        path = self._settings.runtime_dir / NAME
        node, peers = self._settings.node.name, self._settings.peers
        cluster = self._source.record_sink is not None
        inner = self._forwarder.inner
        answers = handlers(node, peers, self._wire, self._report, inner, self._look_around, cluster=cluster)
        async for attempt in retrying(self._failing("control"), on=EdgeError, limit=RUNTIME_DIR_SECONDS):
            with attempt:
                while True:
                    async with serving_control(path, answers, self._report) as known:
                        self._report.recovered("control")
                        await self._while_there(path, known)

    @staticmethod
    async def _while_there(path: Path, known: os.stat_result) -> None:
        while True:
            await tick(RUNTIME_DIR_SECONDS)
            if not is_file(path, known):
                return

    async def _keep_runtime_dir(self) -> None:
        """Somebody may remove the directory while we run."""
        while True:
            await tick(RUNTIME_DIR_SECONDS)
            with self._report.trying("runtime directory"):
                await self._wire.hold_lock()
