"""What clients see, and what moves: the promises about sick links.

A node is healthy for an EIP if it is alive, not frozen, eligible and not draining, and the EIP's link has a carrier,
its hello socket works, and frames pass its port both ways; and has been for twice as long as one listens that joins.

Served: wherever a client reaches a healthy node both ways, one that it reaches both ways answers it.
On the wire: no client reaches two that answer.
No cause: an EIP leaves a node only for a fault of that node, its port or its side of a split that has a larger one
(until ``_SETTLES`` after it); or if the node took it while another that still answers held it, which had no trouble
when it claimed it; or if it has only just claimed it, beside another; or
if, deaf, it has nobody left on its side of a split: no client, no gateway, no host.
Heal: when the last fault ends, an EIP that is answered goes to nobody who does not answer it then. Of several that do,
one keeps it: the one that held it before the fault, unless that one had a trouble of its own.
"""

from simulation.clock import Clock
from simulation.host import Host
from simulation.network import Network
from simulation.schedule import Schedule
from simulation.stations import Stations
from speaker.model import IPAddress
from speaker.ownership.events import Yielded

_SETTLES = 2.0
"""Seconds after the end of a fault in which what it caused may still happen."""
_AT_ONCE = 0.15
"""Seconds; who claimed so lately has answered hardly anybody."""


class Service:
    """Who serves whom. ``look`` after whatever may change that, ``unserved`` and ``served_twice`` whenever time has
    passed."""

    def __init__(self, clock: Clock, schedule: Schedule, network: Network, stations: Stations) -> None:
        self._clock, self._network, self._stations = clock, network, stations
        self._schedule, self._limits = schedule, schedule.limits
        self._ongoing = self.inflicted = 0
        """Faults that are not mended yet, and all there were."""
        self._joins = max(2 * host.times.listen + host.times.dead for host in network.hosts)
        self._fit_since: dict[tuple[int, IPAddress], float] = {}
        self._unserved: dict[tuple[IPAddress, int], float] = {}
        self._twice: dict[tuple[IPAddress, int], float] = {}
        self._holds_since: dict[tuple[str, IPAddress], float] = {}
        self.watches = self._limits.served is not None or self._limits.wire_answer is not None

    @property
    def waits(self) -> bool:
        """Somebody is unserved, or served twice, for however short a time."""
        return bool(self._unserved or self._twice)

    def claimed(self, host: Host, eip: IPAddress) -> None:
        self._holds_since[host.name, eip] = self._clock.now

    def booted(self, host: Host) -> None:
        for eip in self._network.link_of:
            self._fit_since.pop((host.index, eip), None)
            self._holds_since.pop((host.name, eip), None)

    def holds_since(self, host: Host, eip: IPAddress) -> float:
        return self._holds_since.get((host.name, eip), self._clock.now)

    # ── Clients ───────────────────────────────────────────────────────────────────────────────────────────────

    def look(self, eip: IPAddress, answering: list[Host], able: list[Host]) -> None:
        """``able``: those who may hold it."""
        now, reach, client = self._clock.now, self._stations.reach, self._stations.client
        link = self._network.link_of[eip]
        fit = [host for host in self._network.hosts if self._is_fit(host, eip, host in able)]
        for place in self._stations.places:
            station, key = client(place), (eip, place)
            served = sum([reach(link, station, host) for host in answering])
            if served or now < self._schedule.silent_until or not any(reach(link, station, host) for host in fit):
                if self._unserved:
                    self._unserved.pop(key, None)
            else:
                self._unserved.setdefault(key, now)
            if served > 1:
                self._twice.setdefault(key, now)
            elif self._twice:
                self._twice.pop(key, None)

    def _is_fit(self, host: Host, eip: IPAddress, able: bool) -> bool:
        """Healthy, and for long enough."""
        if not able:
            self._fit_since.pop((host.index, eip), None)
            return False
        return self._clock.now - self._fit_since.setdefault((host.index, eip), self._clock.now) >= self._joins

    def unserved(self) -> str | None:
        """Who has waited for too long, if anybody."""
        limit, now = self._limits.served, self._clock.now
        if limit is not None:
            for (eip, place), since in self._unserved.items():
                if now - since > limit:
                    return f"nobody answers the client beside n{place} for {eip} for {(now - since) * 1000:.0f} ms"
        return None

    def served_twice(self) -> str | None:
        limit, now = self._limits.wire_answer, self._clock.now
        if limit is not None:
            for (eip, place), since in self._twice.items():
                if now - since > limit:
                    names = [host.name for host in self._network.hosts if host.answers(eip)]
                    ms = (now - since) * 1000
                    return f"{names} answer for {eip}, the client beside n{place} reaches two for {ms:.0f} ms"
        return None

    # ── Moves ─────────────────────────────────────────────────────────────────────────────────────────────────

    def without_cause(self, host: Host, eip: IPAddress, reason: Yielded) -> str | None:
        """What is wrong with ``host`` letting ``eip`` go now, if anything is."""
        if not self._limits.no_cause or self.in_trouble(host, self._network.link_of[eip]):
            return None
        if reason is Yielded.DEAF and self.hears_nobody(host, eip):
            return None
        since = self.holds_since(host, eip)
        others = [other for other in self._network.hosts if other is not host and other.answers(eip)]
        if self._clock.now - since < _AT_ONCE or any(self._stands(other, eip, since) for other in others):
            return None
        return f"{host.name} let {eip} go ({reason.value}), and nothing was wrong with it"

    def hears_nobody(self, host: Host, eip: IPAddress) -> bool:
        """No frame reaches it on the EIP's link now."""
        stations, link = self._stations, self._network.link_of[eip]
        there = [stations.gateway, *(stations.client(place) for place in stations.places)]
        there += [other.index for other in self._network.hosts if other is not host and other.alive]
        return not any(self._network.carries(link, station, host.index) for station in there)

    def _stands(self, other: Host, eip: IPAddress, since: float) -> bool:
        link, claimed = self._network.link_of[eip], self.holds_since(other, eip)
        fairly = not self.in_trouble(other, link) or claimed < other.trouble_began[link]
        return claimed < since and fairly

    def in_trouble(self, host: Host, link: int) -> bool:
        ended = host.trouble_ended.get(link, float("-inf"))
        return bool(host.troubles.get(link)) or self._clock.now - ended <= _SETTLES + 0.001

    # ── Faults ────────────────────────────────────────────────────────────────────────────────────────────────

    def fault_begins(self, mended: bool) -> None:
        """``mended``: some time, and not for good."""
        self.inflicted += 1
        self._ongoing += mended

    def fault_ends(self, began: float) -> "Heal | None":
        """It began then. If it was the last one: what is to be judged at ``Heal.due``."""
        self._ongoing -= 1
        if not self._limits.heal_moves or self._ongoing:
            return None
        hosts = self._network.hosts
        held = {eip: [host for host in hosts if host.answers(eip)] for eip in self._network.link_of}
        return Heal(self, self._clock, self._schedule, self._network, began, held)


class Heal:
    """What was held when the last fault ended, and what is to come of it."""

    def __init__(
        self,
        service: Service,
        clock: Clock,
        schedule: Schedule,
        network: Network,
        began: float,
        held: dict[IPAddress, list[Host]],
    ) -> None:
        self._service, self._clock, self._schedule, self._network, self._held = service, clock, schedule, network, held
        self._ended, self._faults = clock.now, service.inflicted
        self.due = clock.now + _SETTLES
        self._before = {
            eip: [host for host in hosts if service.holds_since(host, eip) < began] for eip, hosts in held.items()
        }

    @property
    def counts(self) -> bool:
        """No other fault has begun."""
        return self._service.inflicted == self._faults

    def deaf(self, host: Host, eip: IPAddress) -> None:
        """``host`` let it go: that its fault is over it knows by the next hello, and this was before it."""
        if self._clock.now <= self._ended + host.times.hello + self._schedule.delay:
            self._held[eip] = [other for other in self._held[eip] if other is not host]

    def claimed(self, host: Host, eip: IPAddress) -> str | None:
        held = self._held.get(eip)
        if not self.counts or self._clock.now > self.due or not held or host in held or eip in host.probing:
            return None
        if not any(self._has_heard(host, other, eip) for other in held):
            self._held[eip] = []  # it fell silent for as long as a dead one, and nobody can know yet that it lives
            return None
        return f"{eip} was served by {[h.name for h in held]} when the fault ended, and {host.name} took it"

    def _has_heard(self, host: Host, other: Host, eip: IPAddress) -> bool:
        """Since the fault ended, or for longer than until the next hello."""
        since = self._clock.now - self._ended
        if since > host.times.hello + other.times.hello + self._schedule.delay:
            return True
        peer = host.machine.known.segments[self._network.link_of[eip]].peers.by_node.get(other.name)
        return peer is not None and host.clock() - peer.heard_at < since

    def judge(self) -> str | None:
        if not self.counts:
            return None
        for eip, held in self._held.items():
            holders = [host for host in self._network.hosts if host.answers(eip)]
            link = self._network.link_of[eip]
            kept = [h for h in self._before[eip] if not self._service.in_trouble(h, link)]
            if held and not (len(holders) == 1 and holders[0] in (kept or held)):
                then, before, now = ([host.name for host in hosts] for hosts in (held, kept, holders))
                return f"{eip} was answered by {then} when the fault ended, by {before} before it, by {now} now"
        return None
