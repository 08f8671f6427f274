"""What people are told about this node. Every event comes here, and goes on to the log, the metrics, the status file
and health. The edge of ``problems.py``, ``transitions.py`` and ``status.py``, which decide what is said.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from ipaddress import ip_address
from math import inf
from pathlib import Path
from typing import Any

import structlog

from speaker.allocator.settle import Settlement
from speaker.api.reading import Reading
from speaker.checks import FEW, VALIDATE, Finding, grouped, said
from speaker.errors import EdgeError, InvalidManifests, SpeakerError
from speaker.forwarding.changes import Change
from speaker.forwarding.handing_over import NextHop, fates
from speaker.forwarding.limits import Tables, Watch
from speaker.health.judge import Tally
from speaker.kubeproxy.watch import LookReport
from speaker.model import IPAddress, ServiceKey, events
from speaker.node import gauges, transitions
from speaker.node.decide import Decision, MayNotHold
from speaker.node.known import trouble
from speaker.node.known.knowledge import InForce
from speaker.node.problems import Area, Problems, first, new
from speaker.node.standing import Alive, Noted
from speaker.node.status import Shown, Status, write_status
from speaker.node.transitions import Transitions
from speaker.ownership.events import NameClash, NameFree, PeersAddress
from speaker.system.process import Priority
from speaker.system.supervise import contained, never_failing
from speaker.system.threads import in_thread
from speaker.system.waiting import Timer
from speaker.telemetry.logs import QUIET_SECONDS, InternalErrors, Telling, write
from speaker.telemetry.metrics import Metrics
from speaker.wire.messages import NOBODYS, Began, ClaimStatus, PeerSeen, WireEvent

log = structlog.get_logger()

CHANGES = 20
"""Changes named in one line; the rest are only counted."""
IN_STATUS = (
    *(events.EipClaimed, events.EipYielded, events.Conflict, events.HellosFiltered, events.PeerChanged),
    *(PeersAddress, NameClash, NameFree),
)
"""Events that change what the status file says."""
VACANT_SECONDS = 5.0
"""Nobody must hold an EIP for so long before that is reported: a failover takes less."""
WRITE_AGAIN = 1.0
"""Seconds until a status file that could not be written is tried again, if there is no news before."""


@never_failing
class Report(gauges.Counted):
    """Everything here is safe to lose: nothing reads it back. ``clock`` returns seconds."""

    def __init__(
        self,
        metrics: Metrics,
        runtime_dir: Path,
        clock: Callable[[], float] = time.monotonic,
        take_over: bool = False,
    ) -> None:
        super().__init__(metrics)
        self._clock, self._runtime_dir, self._take_over = clock, runtime_dir, take_over
        self.telling = Telling()
        self._transitions, self._problems, self._status = Transitions(), Problems(), Status()
        self._watch, self.noted = Watch(), Noted(clock)
        self._ready = False
        self.alive = Alive()
        self._vacant: dict[IPAddress, float] = {}
        """EIP that nobody holds → since when."""
        self._of_eips: tuple[Finding, ...] = ()
        """What was last found of EIPs and Services."""
        self._wrongly_answered: Mapping[IPAddress, int] = {}
        """EIPs for which not exactly one host answers → how many do."""
        self._by_unicast: Collection[IPAddress] = ()
        """Those whose holder answers if it alone is asked."""
        self._goes_by_records = False
        """Some EIP's holder is known only from its record."""
        self.in_force: InForce | None = None
        self.shown: list[Shown] = []
        self.hearers: list[Callable[[Began | WireEvent], None]] = []
        """They hear every event; each is called in any thread."""
        self.stale = asyncio.Event()
        """Set if ``publish`` has something new to say."""
        self._unwritten, self._faded = Timer(self.stale.set), Timer(self._fade)
        """Until the status file is tried again; until the next rival is forgotten."""
        self._internal = InternalErrors(metrics.internal_errors, self._ailing, clock)
        self._well_again: asyncio.TimerHandle | None = None
        """Until the next check whether an unexpected error is over."""
        self.internal_error = self._internal.internal_error

    def health(self) -> tuple[bool, dict[str, object]]:
        """Healthy once everything asked for has been in force. Later trouble is reported, not acted on: a restart would
        take away the EIPs that still work."""
        return self._ready, {"ready": self._ready, "problems": self.problems()}

    def problems(self) -> list[str]:
        return [finding.sentence for finding in self._grouped(self.findings())]

    def findings(self) -> list[Finding]:
        return [*self._others(), *self._of_eips]

    def _others(self) -> list[Finding]:
        return self._problems.all(self._clock(), self._internal.problems())

    def _grouped(self, findings: Iterable[Finding]) -> list[Finding]:
        """As people are told: many findings of a kind as few."""
        return grouped(findings, len(self.in_force.decision.eips) if self.in_force is not None else 1, FEW)

    def conflicts(self) -> dict[str, str]:
        """EIP → what is reported about its rival."""
        return self._problems.rivals(self._clock())

    def rivals(self) -> dict[str, str]:
        """EIP → MAC and link of a rival."""
        return self._problems.named_rivals(self._clock())

    # ── manifests ──

    def good_manifests(self, reading: Reading) -> None:
        self._metrics.manifests_valid.set(1)
        self._metrics.manifest_problems.set(0)
        write(self._transitions.notices(map(str, reading.notices)))
        world = reading.world
        log.info("manifests read", pools=len(world.pools), services=len(world.services))
        self._problems.found(Area.MANIFESTS, ())
        self.stale.set()

    def bad_manifests(self, error: SpeakerError, *, still_serving: bool) -> None:
        mistakes = tuple(map(str, error.problems)) if isinstance(error, InvalidManifests) else (str(error),)
        self._metrics.manifests_valid.set(0)
        self._metrics.manifest_problems.set(len(mistakes))
        unknown = new(mistakes, self._problems.known(Area.MANIFESTS))
        write(transitions.bad_manifests(unknown, still_serving=still_serving))
        told = first(mistakes, "{} more: `speaker validate` lists them all")
        self._problems.found(Area.MANIFESTS, said("bad_manifests", told, VALIDATE))
        self.stale.set()

    def unreadable(self, problems: Sequence[str]) -> None:
        """Parts of the API's objects that are left out, each a sentence. Whoever may write Services may cause any
        number of them, so the first are named and the rest are counted."""
        told = first(problems, "{} more values in the API cannot be read")
        mend = "kubectl get eip,services,endpointslices -A   # edit the object that the message names"
        self._found(Area.API_OBJECTS, said("bad_manifests", told, mend))

    # ── edges ──

    def failed(self, edge: str, error: BaseException, *, known: bool = False, patience: float = 0.0) -> None:
        """An edge failed; it is tried again. Nothing is said if the words are the same, if the error is ``known``, or
        if it is over within ``patience`` seconds."""
        self._metrics.edge_errors.labels(edge).inc()
        words = str(error)
        if not known:
            self._tell(self._transitions.edge_failed(edge, words, self._clock(), patience))
        if self._problems.failing(edge, words):
            self.stale.set()

    def recovered(self, edge: str) -> None:
        self._tell(self._transitions.edge_recovered(edge))
        if self._problems.works(edge):
            self.stale.set()

    def fails(self, *edges: str) -> bool:
        """Whether any of them failed when it was last tried."""
        return self._problems.fails(edges)

    @contextmanager
    def trying(self, edge: str) -> Iterator[None]:
        """An error of ``edge``, or an unexpected one, is reported and ends the block. Whoever does this repeatedly
        tries again."""
        try:
            yield
        except Exception as error:
            self.met(edge, error)
        else:
            self.recovered(edge)

    def met(self, edge: str, error: Exception) -> None:
        """An error of ``edge``, or an unexpected one on the way to it."""
        if isinstance(error, EdgeError):
            self.failed(edge, error)
        else:
            self.internal_error(edge, error)

    def _ailing(self) -> None:
        """Said now, and checked again until it is over, as it may happen many times before then."""
        self.stale.set()
        if self._well_again is None:
            self._well_again = asyncio.get_running_loop().call_later(QUIET_SECONDS + 0.1, self._until_well)

    def _until_well(self) -> None:
        self._well_again = None
        self.stale.set()
        if self._internal.problems():
            self._ailing()

    # ── looked at now and then ──

    def martians(self, martians: int, reverse_path: int) -> None:
        """Packets dropped so far because of their source, and by a reverse path filter."""
        self._metrics.martian_sources.set(martians)
        self._metrics.reverse_path_drops.set(reverse_path)
        write(self._transitions.dropped(martians, reverse_path))

    def limits(self, tables: Tables, refused: tuple[Finding, ...]) -> None:
        """How full the kernel's connection tables are. ``refused``: what could not be changed about that."""
        self._status.tables = tables
        gauges.count_tables(self._metrics, tables)
        self._found(Area.LIMITS, (*refused, *self._watch.problems(tables)))

    def environment(self, problems: tuple[Finding, ...], priority: Priority) -> None:
        """Settings of this host, and doings of others here, that keep traffic from flowing, or us from the CPU."""
        self._metrics.wire_real_time.set(priority is Priority.REAL_TIME)
        before, self._status.priority = self._status.priority, priority
        if priority is not before:
            log.info("wire process", priority=priority.value)
            self.stale.set()
        self._found(Area.ENVIRONMENT, problems)

    def kube_proxy(self, told: LookReport) -> None:
        """Which program implements Services on this node, and what of it is in our way."""
        before, self._status.kube_proxy = self._status.kube_proxy, (seen := told.seen)
        self.telling.say([transitions.kube_proxy(before, seen)])
        self._found(Area.KUBE_PROXY, seen.problems)
        gauges.count_kube_proxy(self._metrics, told)
        if seen != before:
            self.stale.set()

    def losses(self, peers: Collection[PeerSeen]) -> None:
        super().losses(peers)
        self._found(Area.LINKS, self._problems.links(peers, self._clock()))

    def nodes(self, others: int) -> None:
        """How many other nodes the cluster has."""
        self._problems.others = others

    def endpoints_checked(self, tally: Tally) -> None:
        """Counts of the health checks."""
        gauges.count_checks(self._metrics, tally)
        late = [f"{tally.late} health checks began more than a second late"] if tally.late else []
        beyond = [f"{tally.beyond} endpoints are not checked: there are too many"] if tally.beyond else []
        self._found(Area.HEALTH_CHECKS, said("checks_late", [*late, *beyond], "speaker status --json"))

    def rivals_places(self) -> list[tuple[IPAddress, int]]:
        """EIPs that have a rival, each with the index of the link on which the rival was heard."""
        return self._problems.rivals_places(self._clock())

    def asked_for_rivals(self, answered: Mapping[IPAddress, bool]) -> None:
        """EIP → whether its rival still answered."""
        for eip, still in answered.items():
            if self._problems.asked(eip, still, self._clock()):
                self.stale.set()

    def answer_for(self, verdicts: Mapping[IPAddress, int], unicast: Collection[IPAddress] = ()) -> None:
        super().answer_for(verdicts)
        before = self._wrongly_answered, self._by_unicast
        self._wrongly_answered, self._by_unicast = {eip: n for eip, n in verdicts.items() if n != 1}, unicast
        if (self._wrongly_answered, self._by_unicast) != before:
            self.stale.set()

    def set_aside(self, problems: tuple[str, ...]) -> None:
        """What is not as it was asked for, because of a bug of ours or because the kernel refused it."""
        self._found(Area.SET_ASIDE, said("not_in_kernel", problems, "journalctl -u eip-speaker -n 50"))

    def _found(self, area: Area, problems: tuple[Finding, ...]) -> None:
        """All problems of an area now. Those that are new, and those that are over, are reported."""
        change = self._problems.found(area, problems)
        write(transitions.problems(change))
        if change.any:
            self.stale.set()

    # ── what is in force ──

    def settled(self, settlement: Settlement, changed: Collection[ServiceKey] | None = None) -> None:
        """Which Service has which EIP from now on. ``changed``: only these may be new; None: any."""
        self.happened(self._transitions.settled(settlement, changed))

    def decided(self, decision: Decision, touched: Collection[IPAddress] | None = None) -> None:
        """Which EIPs this node must not answer for from now on, and why. ``touched``: only these may be new."""
        self.noted.decided = decision.eips
        self.happened(self._transitions.decided(decision, touched))

    def forwarding(self, changes: Sequence[Change], approximations: tuple[str, ...] | None = None) -> None:
        """The kernel's forwarding was changed. ``approximations`` None: they are as before."""
        if changes:
            self._metrics.forwarding_changes.inc(len(changes))
            log.info("forwarding", count=len(changes), changes=[str(change).strip() for change in changes[:CHANGES]])
        if approximations is not None:
            write(self._transitions.approximations(approximations))

    def assisting(self, nodes: Mapping[str, int]) -> None:
        """Dead node → how many virtual servers in front of kube-proxy bypass its endpoints."""
        before, now = self._status.assisting, time.time()
        self._metrics.assisted_virtual_servers.clear()
        for node, servers in nodes.items():
            self._metrics.assisted_virtual_servers.labels(node).set(servers)
        if nodes.keys() != before.keys():
            log.info("assisting kube-proxy", without=sorted(nodes))
            self._status.assisting = {node: before.get(node, now) for node in nodes}
            self.stale.set()

    def brought_about(self, in_force: InForce) -> None:
        """Everything asked for is in force."""
        self.in_force = in_force
        self.stale.set()
        gauges.count_in_force(self._metrics, in_force.settlement, in_force.usage)

    def unknown_flows(self, eips: int, next_hops: Mapping[IPAddress, NextHop | None]) -> None:
        """``eips``: how many EIPs this node may hold. ``next_hops``: where packets of connections unknown here go."""
        for fate, count in fates(eips, next_hops).items():
            self._metrics.strays.labels(fate.value).set(count)
        handed_over = Counter(hop for hop in next_hops.values() if hop is not None)
        if handed_over != self._status.handed_over:
            self._status.handed_over = handed_over
            self.stale.set()

    # ── the status file ──

    async def publish(
        self,
        claim_statuses: Callable[[Iterable[IPAddress]], Awaitable[Mapping[IPAddress, ClaimStatus]]],
        ready: bool,
        recorded: Callable[[IPAddress], str | None] = lambda _: None,
    ) -> None:
        """Tells the status file and the gauges who holds what. ``ready``: this node has nothing left to wait for.
        ``recorded``: the node that the API names as an EIP's holder. Findings about EIPs are made here, when something
        changes."""
        self.stale.clear()
        if (in_force := self.in_force) is None:
            return
        found = self._in_fact(await claim_statuses(in_force.decision.eips))
        eips, rivalled = in_force.decision.eips, self.conflicts().keys()
        self._goes_by_records = any(c.holder is None and isinstance(eips[a], MayNotHold) for a, c in found.items())
        with contained("count", self):
            gauges.count_eips(self._metrics, eips, found, lambda eip: self.alive.unless_dead(recorded(eip)), rivalled)
            gauges.count_held(self._metrics, eips, found, in_force.world.endpoints)
        status = partial(self._told, in_force, found, self._still_vacant(found), self._others())
        try:
            await in_thread(self._write_status, in_force, status, self.conflicts())
        except EdgeError:
            self._unwritten.set(WRITE_AGAIN)
            raise
        if ready and not self._ready:
            self._ready = True
            self.telling.finish()
            log.info("ready", eips=sum(claim.mine for claim in found.values()))

    def _still_vacant(self, found: Mapping[IPAddress, ClaimStatus]) -> frozenset[IPAddress]:
        """EIPs that nobody has held for VACANT_SECONDS. Also arranges the next look, if some are not vacant for that
        long."""
        now, waits = self._clock(), self._status.waits
        nobodys = [a for a, c in found.items() if c.holder is None and not c.mine and str(a) not in waits]
        self._vacant = {each: self._vacant.get(each, now) for each in nobodys} if self._ready else {}
        if any(now < since + VACANT_SECONDS for since in self._vacant.values()):
            self._unwritten.set(VACANT_SECONDS)
        return frozenset(each for each, since in self._vacant.items() if now >= since + VACANT_SECONDS)

    def _told(
        self,
        in_force: InForce,
        found: Mapping[IPAddress, ClaimStatus],
        vacant: Collection[IPAddress],
        others: Collection[Finding],
    ) -> dict[str, Any]:
        """Runs in a thread, as every EIP is looked at. ``others``: the other findings."""
        wrong, unicast = self._wrongly_answered, self._by_unicast
        self._of_eips = tuple(trouble.of_all(in_force, found, wrong, vacant, unicast, draining=self.draining()))
        problems = self._grouped([*others, *self._of_eips])
        return self._status.told(in_force.settlement, in_force.decision, found, problems)

    def _write_status(self, in_force: InForce, status: Callable[[], dict[str, Any]], conflicts: dict[str, str]) -> None:
        told = status()
        self.happened(self._transitions.conflicts(conflicts))
        for each in self.shown:
            each(told, in_force.usage, conflicts)
        write_status(self._runtime_dir, told)

    def status(self, in_force: InForce, claim_statuses: Mapping[IPAddress, ClaimStatus]) -> dict[str, Any]:
        found = self._in_fact(claim_statuses)
        return self._status.told(in_force.settlement, in_force.decision, found, self._grouped(self.findings()))

    def seen(self, eip: str) -> dict[str, int | None]:
        """How many hosts answer for it, if this node asks, and how many endpoints are ready, if this node knows them.
        In any thread."""
        told = {"answering": self.answering(eip), "ready_endpoints": None}
        if (now := self.in_force) is not None and (found := now.decision.eips.get(ip_address(eip))) is not None:
            told["ready_endpoints"] = gauges.ready_endpoints(found.services, now.world.endpoints)
        return told

    def _in_fact(self, found: Mapping[IPAddress, ClaimStatus]) -> Mapping[IPAddress, ClaimStatus]:
        """Without EIPs that this node holds only in name, because another load balancer still answers for them."""
        self._status.waits = waits = self._problems.holders(self._clock())
        return {a: NOBODYS if found[a].mine and str(a) in waits else found[a] for a in found} if waits else found

    def records_changed(self) -> None:
        """The API's records of holders have changed."""
        if self._goes_by_records:
            self.stale.set()

    # ── what the wire process tells ──

    def hear(self, event: Began | WireEvent) -> None:
        """Passes it on to everyone who reports; a bug in one does not affect the others."""
        match event:
            case events.EdgeFailed(edge=edge, error=error):
                self.failed(edge, EdgeError(error))
            case events.EdgeRecovered(edge=edge):
                self.recovered(edge)
            case events.BugMet():
                self._internal.told(event.task, event.words, event.place, event.trace)
            case events.Conflict(held=False) if self._take_over:
                self._wait_for(event)
            case _:
                for each in (self._count, self.noted.hear, self.alive.hear, self._say, self._hand_on):
                    with contained("report", self):
                        each(event)

    def _count(self, event: Began | WireEvent) -> None:
        gauges.count_event(self._metrics, event, draining=self.draining())
        if isinstance(event, events.Counts):
            for what, number in event.counts.items():
                self._heard_of(what, number)

    def _heard_of(self, what: events.Countable, number: int) -> None:
        match what:
            case events.BugsMetAgain(task=task):
                self._internal.again(task, number)
            case events.PeersClaims():
                self.stale.set()
            case events.HellosReceived(link=link, rejected=rejected):
                self.telling.say([self._transitions.foreign_hellos(link, rejected)])

    def _say(self, event: Began | WireEvent) -> None:
        if (sentence := self._judge(event)) is None:
            return
        if isinstance(event, IN_STATUS):
            self.stale.set()
        self.telling.tell(transitions.told(event, sentence))

    def _hand_on(self, *happened: Began | WireEvent) -> None:
        for each in self.hearers:
            for event in happened:
                each(event)

    def happened(self, happened: Iterable[events.Event | None]) -> None:
        """Events of this process; in any thread."""
        found = [event for event in happened if event is not None]
        self.telling.say(map(transitions.told, found))
        self._hand_on(*found)

    def _judge(self, event: Began | WireEvent) -> str | None:
        """What is wrong; None if that is known. A peer's silence is reported in time even while others' events keep
        coming."""
        now, problems = self._clock(), self._problems
        match event:
            case events.Conflict():
                sentence = problems.rival(event.link, event.eip, event.mac, event.held, now)
                self._await_fading()
                return sentence
            case events.HellosFiltered():
                found = problems.filtered(event.link, event.node, event.mac, event.eips, now)
                self._await_fading()
                return found
            case events.OtherGroupsHold(eips=eips):
                problems.groups = eips
            case PeersAddress(eip=eip, node=str(node)):
                return problems.peers_address(eip, node)
            case NameClash():
                return problems.name_clash(event.on, event.mac, event.silent)
            case PeersAddress(eip=eip):
                problems.no_peers_address(eip)
            case events.EipYielded(eip=eip):
                problems.let_go(eip)
            case NameFree():
                problems.name_free()
        return ""

    def _wait_for(self, event: events.Conflict) -> None:
        """Another load balancer, which is not a rival, still answers for an EIP of ours."""
        sentence = self._problems.holder(event.link, event.eip, event.mac, self._clock())
        if sentence is not None:
            self.telling.tell(transitions.waits(event, sentence))
            self.stale.set()
        self._await_fading()

    def _fade(self) -> None:
        self.stale.set()
        self._await_fading()

    def _await_fading(self) -> None:
        if not self._faded.pending and (at := self._problems.fade_at(now := self._clock())) < inf:
            self._faded.set(at - now + 1)  # those that end within a second of each other

    def holder_silent(self, hop: NextHop, eips: int) -> None:
        self.telling.say([transitions.holder_silent(hop, eips)])

    # ── processes ──

    def api(self, up: bool) -> None:
        """Said if the change lasts longer than LASTING; called again and again until ``up``."""
        self._metrics.api_up.set(up)
        self.happened([self._transitions.api(up, self._clock())])

    def _tell(self, event: events.Event | None) -> None:
        """Together with others of the same cause."""
        if event is not None:
            with contained("report", self):
                self.telling.tell(transitions.told(event))
