"""What people are told: a log line for every transition, gauges, the status file, health. Never for a non-event."""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import structlog

from speaker.allocator.assign import Usage
from speaker.allocator.settle import Settlement
from speaker.api.world import Reading
from speaker.errors import EdgeError, InvalidManifests, SpeakerError
from speaker.forwarding.changes import Change
from speaker.forwarding.limits import Tables, Use, Watch
from speaker.forwarding.unknown_flows.handing_over import fates
from speaker.forwarding.unknown_flows.rules import NextHop
from speaker.kubeproxy.judge import Findings
from speaker.kubeproxy.watch import LookReport
from speaker.layer2.links import Placement
from speaker.model import Assignment, Family, IPAddress, Link, Mac, ServiceKey, format_mac, rank
from speaker.node.decide import Decision, Held, NotHeld
from speaker.ownership.hellos.frames import Rejected
from speaker.system.files import write_atomically
from speaker.system.priority import Priority
from speaker.telemetry.internal_errors import QUIET_SECONDS, InternalErrors
from speaker.telemetry.lines import Transition, in_lines
from speaker.telemetry.metrics import Metrics
from speaker.telemetry.spells import LASTING, Spell
from speaker.telemetry.telling import Telling, write
from speaker.wire.told import Standing

log = structlog.get_logger()

MISTAKES = 20
"""In manifests, that get a line each: they are read one by one."""
CHANGES = 20
"""Shown in one line; the count tells the rest."""
SHOWN = 50
"""Mistakes in manifests, and values that cannot be read, that are told; the count tells the rest."""
WRITE_AGAIN = 1.0
"""Seconds until a status file that could not be written is tried again, where there is no news."""
CONFLICT_SECONDS = 30.0
"""A rival who was not heard for so long is no problem any more: one that stays is heard every ten."""
_STRANGE = frozenset({Rejected.WRONG_KEY, Rejected.VERSION})


class InForce(NamedTuple):
    """What the last reconciliation came to."""

    settlement: Settlement
    decision: Decision
    usage: Mapping[str, Mapping[Family, Usage]]


class Report:
    """Remembers what it said last, to say only what is new. Everything here is safe to lose: nothing reads it back."""

    def __init__(self, metrics: Metrics, runtime_dir: Path) -> None:
        self._metrics = metrics
        self.answered, self.ignored, self.announced = metrics.answered, metrics.ignored, metrics.announced
        self.send_failed, self.join_failed = metrics.send_failed, metrics.join_failed
        self._status_file = runtime_dir / "status.json"
        self._telling = Telling()
        self._assigned: dict[ServiceKey, Assignment] = {}
        self._refused: dict[str, tuple[str, str]] = {}
        self._eips: Mapping[IPAddress, Held | NotHeld] = {}
        self._problems: dict[str, tuple[str, ...]] = {}
        """Of this host, by who looks for them."""
        self._tables = Tables()
        self._watch = Watch()
        self._beside: Findings | None = None
        self._approximations: tuple[str, ...] = ()
        self._manifest_problems: tuple[str, ...] = ()
        self._notices: frozenset[str] = frozenset()
        self._unreadable: tuple[str, ...] = ()
        self._failing: dict[str, str] = {}
        self._spells: dict[str, Spell] = {}
        """Of edges that fail: what was told of them."""
        self._away: Spell | None = None
        self._conflicts: dict[str, tuple[str, float]] = {}
        """EIP → what is told of its rival, and when he was last heard (CLOCK_MONOTONIC)."""
        self._peers_addresses: dict[IPAddress, str] = {}
        """EIP → what is told of the peer whose own address it is."""
        self._name_clash: str | None = None
        """What is told of another host with this node's name."""
        self._filtered: dict[tuple[str, str], tuple[str, float]] = {}
        """Link and node → what is told of its hellos, which do not arrive, and when it was last heard all the same
        (CLOCK_MONOTONIC)."""
        self._strange: set[tuple[str, Enum]] = set()
        self._martians: tuple[int, int] | None = None
        self._ready = False
        self._priority: Priority | None = None
        self._handed_over: Counter[NextHop] = Counter()
        """Previous holder → of how many EIPs it gets the strays."""
        self.in_force: InForce | None = None
        self.stale = asyncio.Event()
        """What ``publish`` would say is not what it said last."""
        self._internal = InternalErrors(metrics.internal_errors, self._ailing)
        self._well_again: asyncio.TimerHandle | None = None
        """The next look at whether what nobody foresaw is over."""
        self.internal_error, self.wire_error = self._internal.internal_error, self._internal.told
        self.wire_error_again = self._internal.again

    def finish(self) -> None:
        """Say now what waits to be said together."""
        self._telling.finish()

    def health(self) -> tuple[bool, dict[str, object]]:
        """Well once everything asked for was in force for the first time. Later trouble is told, not acted on: a
        restart would take away the EIPs that still work."""
        details: dict[str, object] = {
            "ready": self._ready,
            "problems": self.problems(),
        }
        return self._ready, details

    # ── manifests ──

    def good_manifests(self, reading: Reading) -> None:
        self._metrics.manifests_valid.set(1)
        self._metrics.manifest_problems.set(0)
        notices = frozenset(map(str, reading.notices))
        _tell_sentences("notice", sorted(notices - self._notices), "info")
        world = reading.world
        log.info("manifests read", pools=len(world.pools), services=len(world.services))
        self._manifest_problems, self._notices = (), notices
        self.stale.set()

    def bad_manifests(self, error: SpeakerError, *, still_serving: bool) -> None:
        problems = tuple(map(str, error.problems)) if isinstance(error, InvalidManifests) else (str(error),)
        self._metrics.manifests_valid.set(0)
        self._metrics.manifest_problems.set(len(problems))
        in_force = "the last good ones stay in force" if still_serving else "nothing is served until they are mended"
        told = [
            Transition("error", "bad manifest", "problem", problem, None, {"in_force": in_force})
            for problem in _new(problems, self._manifest_problems)
        ]
        write(in_lines(told, MISTAKES))
        more = [f"{len(problems) - SHOWN} more: `speaker validate` lists them all"] if len(problems) > SHOWN else []
        self._manifest_problems = (*problems[:SHOWN], *more)
        self.stale.set()

    def unreadable(self, problems: Sequence[str]) -> None:
        """What of the API's objects is left out, each a sentence. Whoever may write Services may bring about any number
        of them: the first are named, the rest are counted."""
        more = [f"{len(problems) - SHOWN} more values in the API cannot be read"] if len(problems) > SHOWN else []
        told = (*problems[:SHOWN], *more)
        if told == self._unreadable:
            return
        for problem in _new(told, self._unreadable):
            log.warning("problem", message=problem)
        self._unreadable = told
        self.stale.set()

    # ── edges ──

    def failed(self, edge: str, error: BaseException, *, known: bool = False, patience: float = 0.0) -> None:
        """An edge refused; it is tried again. The same words are not repeated, and none said of what is ``known``, or
        is over within ``patience`` seconds."""
        self._metrics.edge_errors.labels(edge).inc()
        words, now = str(error), time.monotonic()
        if not known and self._spells.setdefault(edge, Spell(now)).tells(words, now, patience):
            self._telling.tell(Transition("warning", "edge failed", "error", words, edge, {"edge": edge}))
        if self._failing.get(edge) != words:
            self._failing[edge] = words
            self.stale.set()

    def recovered(self, edge: str) -> None:
        spell = self._spells.pop(edge, None)
        if spell is not None and spell.said is not None:
            self._telling.tell(Transition("info", "edge recovered", "edge", edge, None, {}))
        if self._failing.pop(edge, None) is not None:
            self.stale.set()

    @contextmanager
    def trying(self, edge: str) -> Iterator[None]:
        """A refusal by ``edge``, or what nobody foresaw, is told and ends the block; it is tried again by whoever does
        this every so often."""
        try:
            yield
        except Exception as error:
            self.met(edge, error)
        else:
            self.recovered(edge)

    def met(self, edge: str, error: Exception) -> None:
        """A refusal by ``edge``, or what nobody foresaw on the way to it."""
        if isinstance(error, EdgeError):
            self.failed(edge, error)
        else:
            self.internal_error(edge, error)

    def _ailing(self) -> None:
        """LookReport now, and looked at again until it is over: it may be met many times before."""
        self.stale.set()
        if self._well_again is None:
            self._well_again = asyncio.get_running_loop().call_later(QUIET_SECONDS + 0.1, self._until_well)

    def _until_well(self) -> None:
        self._well_again = None
        self.stale.set()
        if self._internal.problems():
            self._ailing()

    def lost_link(self, link: Link, error: str) -> None:
        self._metrics.edge_errors.labels("link").inc()
        self._telling.tell(Transition("warning", "link lost", "error", error, link.name, {"link": link.name}))

    def martians(self, total: int, reverse_path: int) -> None:
        """Dropped for their source; ``reverse_path`` of the ``total`` by a reverse path filter."""
        total -= reverse_path
        self._metrics.martians.set(total)
        self._metrics.reverse_path_drops.set(reverse_path)
        martians, drops = self._martians or (total, reverse_path)
        if total > martians:
            log.warning(
                "martian source",
                packets=total - martians,
                message="packets from outside were dropped because their source is an address bound on this node: "
                "does another node answer for, or a backend or an upstream balancer send from, an EIP that is bound "
                "here? With the forwarder nftables no EIP is bound",
            )
        if reverse_path > drops:
            log.warning(
                "reverse path",
                packets=reverse_path - drops,
                message="packets from outside were dropped by rp_filter=1 because this node would answer through "
                "another link than they came in on: docs/forwarding.md, Several links",
            )
        self._martians = total, reverse_path

    def limits(self, tables: Tables, refused: tuple[str, ...]) -> None:
        """How full the kernel's tables of connections are; ``refused``: what could not be set about that."""
        self._tables = tables
        conntrack, ipvs = tables.conntrack or Use(0, 0), tables.ipvs or Use(0, 0)
        self._metrics.conntrack_entries.set(conntrack.connections)
        self._metrics.conntrack_max.set(conntrack.size)
        self._metrics.ipvs_connections.set(ipvs.connections)
        self._metrics.ipvs_buckets.set(ipvs.size)
        self._found("limits", (*refused, *self._watch.problems(tables)))

    def environment(self, problems: tuple[str, ...], priority: Priority) -> None:
        """What of this host's settings, and of what others do here, keeps traffic from flowing, or us from the CPU."""
        self._metrics.real_time.set(priority is Priority.REAL_TIME)
        if priority is not self._priority:
            self._priority = priority
            log.info("wire process", priority=priority.value)
            self.stale.set()
        self._found("environment", problems)

    def set_aside(self, problems: tuple[str, ...]) -> None:
        """What is not as it was asked for, since it met a bug of ours or the kernel refused it."""
        self._found("set aside", problems)

    def _found(self, where: str, problems: tuple[str, ...]) -> None:
        """All that there are there now: what is new is told, and what is over."""
        before, self._problems[where] = self._problems.get(where, ()), problems
        _tell_sentences("problem", _new(problems, before))
        _tell_sentences("problem over", _new(before, problems), "info")
        if problems != before:
            self.stale.set()

    def beside(self, told: LookReport) -> None:
        """Who implements Services on this node, and what of it is in our way."""
        before, self._beside = self._beside, (seen := told.seen)
        mode = seen.kube_proxy.mode
        if before is None or (before.kube_proxy.mode, before.notes) != (mode, seen.notes):
            log.info("kube-proxy", mode=mode.value, evidence=list(seen.kube_proxy.evidence), notes=list(seen.notes))
        self._found("kube-proxy", seen.problems)
        self._metrics.kube_proxy.info({"mode": mode.value})
        self._metrics.without_rules.set(math.nan if seen.without_rules is None else seen.without_rules)
        self._metrics.health_checks.labels("served").set(told.served)
        self._metrics.health_checks.labels("left_alone").set(told.left_alone)
        if seen != before:
            self.stale.set()

    def fails(self, *edges: str) -> bool:
        """One of them did when it was last tried."""
        return not self._failing.keys().isdisjoint(edges)

    # ── what is in force ──

    def settled(self, settlement: Settlement, changed: Collection[ServiceKey] | None = None) -> None:
        """Who has which EIP, remembered by now. ``changed``: only these may be new; None: any."""
        self._tell_assigned(settlement.assignments, changed)
        self._tell_refused(settlement)

    def forwarding(self, changes: Sequence[Change], approximations: tuple[str, ...] | None = None) -> None:
        """What the kernel's forwarding was brought to. ``approximations`` None: they are what they were."""
        if changes:
            self._metrics.changes.inc(len(changes))
            log.info("forwarding", count=len(changes), changes=[str(change).strip() for change in changes[:CHANGES]])
        if approximations is not None:
            _tell_sentences("approximation", _new(approximations, self._approximations))
            self._approximations = approximations

    def brought_about(self, in_force: InForce) -> None:
        """Everything asked for is in force."""
        self.in_force = in_force
        self._count(in_force)
        self.stale.set()

    async def publish(
        self, standings: Callable[[Iterable[IPAddress]], Awaitable[Mapping[IPAddress, Standing]]], ready: bool
    ) -> None:
        """Who holds what, to the status file and the gauges. ``ready``: this node has nothing to wait for any more."""
        self.stale.clear()
        if (in_force := self.in_force) is None:
            return
        found = await standings(in_force.decision.eips)
        mine = sum(one.mine for one in found.values())
        self._metrics.eips.labels("claimed").set(mine)
        self._metrics.eips.labels("not_claimed").set(len(found) - mine)
        try:
            await asyncio.to_thread(self._write, in_force, found)
        except EdgeError:
            asyncio.get_running_loop().call_later(WRITE_AGAIN, self.stale.set)
            raise
        if ready and not self._ready:
            self._ready = True
            self.finish()
            log.info("ready", eips=mine)

    def _write(self, in_force: InForce, standings: Mapping[IPAddress, Standing]) -> None:
        write_atomically(self._status_file, msgspec.json.encode(self.status(in_force, standings)))

    def status(self, in_force: InForce, standings: Mapping[IPAddress, Standing]) -> dict[str, Any]:
        """``status.json``: for scripts and people on the node; the same facts as the log, all at once."""
        return {
            "eips": [_status_of(eip, standings[address]) for address, eip in in_force.decision.eips.items()],
            "refused": [
                {"service": str(key), "reason": refusal.reason.value, "message": refusal.message}
                for key, refusal in in_force.settlement.refusals.items()
            ],
            "problems": self.problems(),
            "wire_priority": self._priority.value if self._priority is not None else None,
            "kube_proxy": _beside_as_told(self._beside),
            "handed_over": [
                {"address": str(hop.address), "link": hop.link, "eips": count}
                for hop, count in self._handed_over.items()
            ],
            "tables": {
                name: {"connections": use.connections, "size": use.size}
                for name, use in (("conntrack", self._tables.conntrack), ("ipvs", self._tables.ipvs))
                if use is not None
            },
        }

    def problems(self) -> list[str]:
        return [
            *self._manifest_problems,
            *self._unreadable,
            *(
                problem
                for where in ("set aside", "environment", "limits", "kube-proxy")
                for problem in self._problems.get(where, ())
            ),
            *self._failing.values(),
            *self._internal.problems(),
            *self.conflicts().values(),
            *self._unheard().values(),
            *filter(None, [self._name_clash]),
            *self._peers_addresses.values(),
        ]

    def conflicts(self) -> dict[str, str]:
        """EIP → what is told of a rival."""
        oldest = time.monotonic() - CONFLICT_SECONDS
        self._conflicts = {eip: told for eip, told in self._conflicts.items() if told[1] > oldest}
        return {eip: sentence for eip, (sentence, _) in self._conflicts.items()}

    def _unheard(self) -> dict[tuple[str, str], str]:
        """Link and node → what is told of a node whose hellos do not arrive."""
        oldest = time.monotonic() - CONFLICT_SECONDS
        self._filtered = {one: told for one, told in self._filtered.items() if told[1] > oldest}
        return {one: sentence for one, (sentence, _) in self._filtered.items()}

    def strays(self, eips: int, strays: Mapping[IPAddress, NextHop | None]) -> None:
        """What the kernel does with those of so many EIPs that this node may hold."""
        for fate, count in fates(eips, strays).items():
            self._metrics.strays.labels(fate.value).set(count)
        handed_over = Counter(hop for hop in strays.values() if hop is not None)
        if handed_over != self._handed_over:
            self._handed_over = handed_over
            self.stale.set()

    def holder_silent(self, hop: NextHop, eips: int) -> None:
        log.warning(
            "previous holder silent",
            address=str(hop.address),
            link=hop.link,
            eips=eips,
            message="it does not answer: the connections that it had are reset",
        )

    # ── claims and peers ──

    def claimed(self, address: IPAddress, spot: Placement, term: int, before: str | None) -> None:
        link = spot.link.name
        fields = {"link": link, "mac": format_mac(spot.link.mac), "term": term, "before": before}
        self._telling.tell(Transition("info", "claimed", "eip", str(address), link, fields))
        self._metrics.claim_changes.labels("claimed").inc()
        self.stale.set()

    def yielded(self, address: IPAddress, reason: str, holder: str | None) -> None:
        fields = {"reason": reason, "holder": holder}
        self._telling.tell(Transition("info", "withdrawn", "eip", str(address), reason, fields))
        self._metrics.claim_changes.labels(reason).inc()
        self._conflicts.pop(str(address), None)
        self.stale.set()

    def api(self, up: bool) -> None:
        """LookReport when that changes for longer than LASTING; asked again and again as long as it is not ``up``."""
        self._metrics.api.set(up)
        if up:
            passed, self._away = self._away is not None and self._away.said is None, None
            if not passed:
                log.info("api answers")
            return
        now = time.monotonic()
        self._away = self._away or Spell(now)
        message = "holders go on; claims are decided on the LAN alone"
        if self._away.tells(message, now, LASTING):
            log.warning("api does not answer", message=message)

    def taken_over(self, end: str, away: float, held: int) -> None:
        self._metrics.taken_over.inc()
        log.warning(
            "main process replaced",
            end=end,
            away=f"{away:.1f} s",
            held=held,
            message="the wire process went on with what it was last offered",
        )

    def frozen(self) -> None:
        self._metrics.frozen.inc()
        log.warning(
            "frozen",
            message="this process did not run for so long that others may have taken over: everything was given up",
        )

    def peers_address(self, address: IPAddress, node: str | None) -> None:
        if node is None:
            self._peers_addresses.pop(address, None)
        else:
            sentence = f"{address}: node {node} says that it is its own address: it is not claimed here. Exclude it"
            self._peers_addresses[address] = f"{sentence} from its pool"
            log.error("peer's address", eip=str(address), peer=node, message=self._peers_addresses[address])
        self.stale.set()

    def name_clash(self, link: Link | None, mac: Mac | None, silent: bool) -> None:
        """Another host that lives has this node's name and key. Which of the two keeps the name both know alike."""
        self._metrics.name_clashes.inc()
        where = f"{format_mac(mac)} on {link.name}" if link is not None and mac is not None else "renews our Lease"
        fate = "it keeps it: nothing is held here until it is gone" if silent else "this one keeps it"
        self._name_clash = f"another host has this node's name ({where}); {fate}. Give each host a --node of its own"
        log.error("name clash", message=self._name_clash, silent=silent)
        self.stale.set()

    def name_free(self) -> None:
        self._name_clash = None
        log.info("name free", message="no other host was heard with this node's name for a while")
        self.stale.set()

    def hellos_filtered(self, link: Link, node: str, mac: Mac, eips: frozenset[IPAddress]) -> None:
        """A node none of whose hellos arrives here answers for EIPs all the same: they are left to it."""
        one, now = (link.name, node), time.monotonic()
        asyncio.get_running_loop().call_later(CONFLICT_SECONDS + 1, self.stale.set)
        if (sentence := self._unheard().get(one)) is not None:
            self._filtered[one] = sentence, now
            return
        some = [str(eip) for eip in sorted(eips, key=rank)[:CHANGES]]
        sentence = (
            f"{node} ({format_mac(mac)}) on {link.name} answers for {', '.join(some)}, and none of its hellos arrives "
            "here: is their EtherType filtered on the way, or its speaker gone and its kernel answers? They are left "
            "to it"
        )
        self._filtered[one] = sentence, now
        self._metrics.hellos_filtered.labels(link.name).inc()
        fields = {"link": link.name, "mac": format_mac(mac), "eips": some, "reason": "hellos_filtered"}
        told = fields | {"message": sentence}
        self._telling.tell(Transition("error", "hellos filtered", "peer", node, link.name, told))
        self.stale.set()

    def peer(self, node: str, link: Link, alive: bool) -> None:
        level, event = ("info", "peer heard") if alive else ("warning", "peer silent")
        self._telling.tell(Transition(level, event, "peer", node, link.name, {"link": link.name}))
        self.stale.set()

    def peers(self, link: str, number: int) -> None:
        self._metrics.peers.labels(link).set(number)

    def hellos_sent(self, link: str, left: bool, count: int) -> None:
        self._metrics.hellos_sent.labels(link, "left" if left else "no_room").inc(count)

    def hellos_received(self, link: str, rejected: Enum | None, count: int) -> None:
        if rejected in _STRANGE and (link, rejected) not in self._strange:
            self._strange.add((link, rejected))
            log.warning(
                "foreign hellos",
                link=link,
                reason=rejected.value,
                message="somebody on this link says hello with another key: another cluster, or a host with the wrong "
                "key file, which then claims the same EIPs",
            )
        self._metrics.hellos_received.labels(link, rejected.value if rejected else "read").inc(count)

    def loop_delay(self, late: float, busy: float) -> None:
        self._metrics.loop_delay.observe(late)
        self._metrics.loop_delay_max.rise(late)
        self._metrics.loop_busy_max.rise(busy)

    def own_loop_delay(self, late: float, busy: float) -> None:
        """Of the process that reads and forwards; answers and hellos do not wait for it."""
        self._metrics.own_loop_delay_max.rise(late)
        self._metrics.own_loop_busy_max.rise(busy)

    def conflict(self, link: Link, address: IPAddress, mac: Mac, held: bool) -> None:
        """A stranger, or a peer that does not claim it, says that one of our EIPs is his."""
        self._metrics.conflict(link, address, mac, held)
        fate = "we go on answering, and defend it" if held else "it is not answered until he is gone"
        sentence = f"{address}: {format_mac(mac)} on {link.name} uses it and claims it in no hello: {fate}"
        fields = {"link": link.name, "mac": format_mac(mac), "held": held, "message": sentence}
        self._telling.tell(Transition("error", "conflict", "eip", str(address), (link.name, held), fields))
        self._conflicts[str(address)] = sentence, time.monotonic()
        self.stale.set()
        asyncio.get_running_loop().call_later(CONFLICT_SECONDS + 1, self.stale.set)

    def _tell_assigned(
        self, assignments: Mapping[ServiceKey, Assignment], changed: Collection[ServiceKey] | None
    ) -> None:
        told: list[Transition] = []
        for key in [*assignments, *(self._assigned.keys() - assignments.keys())] if changed is None else changed:
            before, now = self._assigned.get(key), assignments.get(key)
            if now is before:
                continue
            if now is None:
                if before is not None:
                    told.append(_given("released", before))
                    del self._assigned[key]
                continue
            if before is None or now.addresses != before.addresses:
                told.append(_given("assigned", now))
            for eip in sorted(now.flagged - (before.flagged if before is not None else frozenset()), key=rank):
                message = "kept although its pool no longer offers it; gone when released"
                told.append(Transition("warning", "flagged", "eip", f"{key} {eip}", None, {"message": message}))
            self._assigned[key] = now
        write(in_lines(told))

    def _tell_refused(self, settlement: Settlement) -> None:
        refused = {str(key): (r.reason.value, r.message) for key, r in settlement.refusals.items()}
        told = [
            Transition("warning", "refused", "service", service, reason, {"reason": reason, "message": message})
            for service, (reason, message) in refused.items()
            if self._refused.get(service) != (reason, message)
        ]
        write(in_lines(told))
        self._refused = refused

    def decided(self, decision: Decision, touched: Collection[IPAddress] | None = None) -> None:
        """Which EIPs this node must not answer for from now on, and why. ``touched``: only these may be news."""
        told: list[Transition] = []
        for address in decision.eips if touched is None else touched:
            before, eip = self._eips.get(address), decision.eips.get(address)
            if isinstance(eip, NotHeld) and (not isinstance(before, NotHeld) or before.reason != eip.reason):
                fields = {"reason": eip.reason, "message": eip.message}
                told.append(Transition("warning", "not claimed", "eip", str(address), eip.reason, fields))
        write(in_lines(told))
        self._eips = decision.eips

    def _count(self, in_force: InForce) -> None:
        metrics, settlement = self._metrics, in_force.settlement
        metrics.services.labels("assigned").set(len(settlement.assignments))
        metrics.services.labels("refused").set(len(settlement.refusals))
        metrics.refused.clear()
        for reason, count in Counter(r.reason.value for r in settlement.refusals.values()).items():
            metrics.refused.labels(reason).set(count)
        metrics.pool_size.clear()
        metrics.pool_used.clear()
        for pool, families in in_force.usage.items():
            for family, numbers in families.items():
                metrics.pool_size.labels(pool, family).set(numbers.size)
                metrics.pool_used.labels(pool, family).set(numbers.used)
        metrics.last_reconcile.set(time.time())


def _in_order(address: IPAddress) -> tuple[int, int]:
    """Both families sort together by this."""
    return address.version, int(address)


def _given(event: str, assignment: Assignment) -> Transition:
    addresses = list(map(str, assignment.addresses))
    return Transition("info", event, "service", str(assignment.service), None, {"addresses": addresses})


def _tell_sentences(event: str, sentences: Iterable[str], level: str = "warning") -> None:
    write(in_lines(Transition(level, event, "message", sentence, None, {}) for sentence in sentences))


def _new(sentences: Iterable[str], known: tuple[str, ...]) -> list[str]:
    return [sentence for sentence in sentences if sentence not in known]


def _beside_as_told(seen: Findings | None) -> dict[str, Any] | None:
    """None before the first look."""
    if seen is None:
        return None
    found = seen.kube_proxy
    return {"mode": found.mode.value, "evidence": found.evidence, "notes": seen.notes}


def _status_of(eip: Held | NotHeld, standing: Standing) -> dict[str, Any]:
    told: dict[str, Any] = {
        "address": str(eip.address),
        "services": [str(key) for key in eip.services],
        "pool": eip.pool,
        "claimed": standing.mine,
        "holder": standing.holder,
        "term": standing.term,
    }
    if standing.since is not None:
        told["since"] = standing.since
    match eip:
        case Held(link=link):
            return told | {"link": link.name, "mac": format_mac(link.mac)}
        case NotHeld(reason=reason, message=message):
            return told | {"reason": reason, "message": message}
