"""Who else is on a LAN: a gateway, and a client beside every host. What an ``Ask`` finds there, and a first probe.

Stations are numbered: the hosts 0 to n-1, the client beside host i is n+i, the gateway 2n. A fault of a host's port
parts it from all stations. One of the LAN parts groups of them: clients go with the host beside them, the gateway with
the larger group. What goes wrong between two hosts alone concerns no other station.
"""

from collections.abc import Callable, Iterable
from random import Random

from simulation.clock import Clock
from simulation.host import Host
from simulation.network import Network
from simulation.schedule import Schedule
from speaker.model import IPAddress
from speaker.ownership.events import Ask, EipAnswered, Event, FrameHeard, Question

_PROBES, _SPACING, _AGAIN = 3, 0.02, 1.0
"""As ``layer2/probe.py`` looks for others: how often, seconds between two, and until it looks again."""
_YOUNG = 1.0
"""Seconds after an ``Ask`` for which frames are told of."""
_THROTTLED = 0.85
"""Of the frames that a throttled port is to send so many are lost: all but 12 a second, or so."""
_AT_MOST = 0.02
"""Seconds between two frames that are told of."""


class Stations:
    """Its own dice: what it does changes nothing for schedules in which nobody asks.

    ``proven(host, eip)``: nobody else was found to answer, so that ``host`` does from now on.
    """

    def __init__(
        self, clock: Clock, schedule: Schedule, network: Network, proven: Callable[[Host, IPAddress], None]
    ) -> None:
        self._clock, self._schedule, self._network, self._proven = clock, schedule, network, proven
        self._random = Random(f"stations {schedule.seed}")
        self._rounds: dict[int, dict[IPAddress, list[str]]] = {}
        """Host → what it probes for at this moment, and who was found to answer for it, or to probe for it as well."""
        hosts = schedule.nodes
        self.gateway = 2 * hosts
        self.everybody = range(2 * hosts + 1)
        self.places = schedule.clients if schedule.clients is not None else tuple(range(hosts))
        """Hosts that have a client beside them."""

    def client(self, place: int) -> int:
        return self._schedule.nodes + place

    def group(self, nodes: Iterable[int]) -> list[int]:
        """``nodes``, their clients, and the gateway where they are the larger group."""
        hosts = sorted(set(nodes))
        larger = 2 * len(hosts) > self._schedule.nodes
        return [*hosts, *(self.client(n) for n in hosts), *([self.gateway] if larger else [])]

    def reach(self, link: int, station: int, host: Host) -> bool:
        """Both ways: a broadcast, and its answer."""
        carries = self._network.carries
        network, floods = self._network, self._network.floods
        if network.mute and network.mute.get((link, host.index)):
            return False
        spoilt = network.cuts or network.unflooded or network.unasked
        return not spoilt or (floods(link, station, host.index) and carries(link, host.index, station))

    # ── Frames ────────────────────────────────────────────────────────────────────────────────────────────────

    def broadcast(self, link: int, sender: int) -> None:
        """A frame that is no hello: to all who may be told."""
        for host in self._network.hosts:
            if host.index != sender:
                self._travel(link, sender, host, broadcast=True)

    def _travel(
        self, link: int, sender: int, host: Host, event: Event | None = None, *, broadcast: bool = False
    ) -> None:
        """``event``: what it means to ``host``, if more than a frame."""
        carries = self._network.floods if broadcast else self._network.carries
        if (
            not self._listens(host, link)
            or not carries(link, sender, host.index)
            or self._lost(link, sender, host.index)
        ):
            return
        life = host.life

        def arrive() -> None:
            if host.life == life and carries(link, sender, host.index):
                self._frame(host, link, broadcast)
                if event is not None:
                    host.tell(event)

        hosts = self._network.hosts
        between = (hosts[sender], host) if sender < len(hosts) else ()
        self._clock.after(self._delay(*between), arrive)

    def _frame(self, host: Host, link: int, broadcast: bool) -> None:
        now, kind = self._clock.now, (link, broadcast)
        if self._listens(host, link) and now - host.told_at.get(kind, -_AT_MOST) >= _AT_MOST:
            host.told_at[kind] = now
            host.tell(FrameHeard(link, broadcast))

    def _listens(self, host: Host, link: int) -> bool:
        return host.alive and self._clock.now - host.asked_at.get(link, -_YOUNG) < _YOUNG

    def _lost(self, link: int, sender: int, receiver: int) -> bool:
        lossy, throttled = self._network.lossy, self._network.throttled
        if lossy and self._random.random() < lossy.get((link, sender, receiver), 0.0):
            return True
        limited = throttled and throttled.get((link, sender))
        return self._random.random() < (_THROTTLED if limited else self._schedule.loss)

    def _delay(self, *hosts: Host) -> float:
        now = self._clock.now
        return self._network.delivered(now + self._random.uniform(0.0001, self._schedule.delay), *hosts) - now

    # ── Asking ────────────────────────────────────────────────────────────────────────────────────────────────

    def ask(self, host: Host, order: Ask) -> None:
        """A request reaches everybody; whoever has what it is for answers the one who asked."""
        link = order.link
        host.asked_at[link] = self._clock.now
        if order.eips:
            self.broadcast(link, host.index)
        if not self._schedule.silent_until > self._clock.now:
            for station in (self.gateway, *map(self.client, self.places)):
                self._request(host, link, station)
        for other in self._network.hosts:
            if other is not host and (other.name in order.nodes or order.eips):
                self._request_host(host, other, order)

    def _request(self, host: Host, link: int, station: int) -> None:
        if self._network.carries(link, host.index, station) and not self._lost(link, host.index, station):
            self._clock.after(self._delay(), lambda: self._travel(link, station, host))

    def _request_host(self, host: Host, other: Host, order: Ask) -> None:
        """A frozen host's kernel answers for its own address; for EIPs nobody does."""
        link = order.link
        if not self._network.carries(link, host.index, other.index) or self._lost(link, host.index, other.index):
            return

        def arrive() -> None:
            if self._network.mute.get((link, other.index)):
                return
            if not other.alive or not self._network.carries(link, host.index, other.index):
                return
            if other.name in order.nodes:
                self._travel(link, other.index, host)
            if not self._network.floods(link, host.index, other.index):
                return
            known = other.name if (link, other.name) in host.macs else None
            for eip in order.eips:
                if self._network.link_of[eip] == link and other.answers(eip):
                    self._travel(link, other.index, host, EipAnswered(eip, link, known))

        self._clock.after(self._delay(host, other), arrive)

    def question(self, host: Host, order: Question) -> None:
        """By broadcast; and where it is doubted by the holder's MAC, and the gateway and the other hosts as well."""
        network, link = self._network, order.link
        for holder in network.hosts:
            for eip in order.eips:
                if holder is not host and network.floods(link, host.index, holder.index):
                    self._ask_once(host, holder.index, link, eip)
                if order.doubted and holder.name == order.node:
                    self._ask_once(host, holder.index, link, eip)
        if not order.doubted:
            return
        others = [o.index for o in network.hosts if o is not host and o.name != order.node]
        for station in (*others, *(() if self._schedule.silent_until > self._clock.now else (self.gateway,))):
            if network.floods(link, host.index, station):
                self._ask_once(host, station, link, order.eips[0], own=True)

    def _ask_once(self, host: Host, station: int, link: int, eip: IPAddress, *, own: bool = False) -> None:
        """``own``: for the station's own address, of the family of ``eip``."""
        carries, hosts = self._network.carries, self._network.hosts
        life, other = host.life, hosts[station] if station < len(hosts) else None

        def arrive() -> None:
            if not own and (other is None or not other.answers(eip)):
                return
            mute = self._network.mute.get((link, station)) or (other is not None and not other.alive)
            if not mute and carries(link, station, host.index) and not self._lost(link, station, host.index):
                self._clock.after(self._delay(), back)

        def back() -> None:
            if host.life == life and host.alive:
                known = other.name if other is not None and (link, other.name) in host.macs else None
                answer = FrameHeard(link, eip.version) if own else EipAnswered(eip, link, known)
                if self._listens(host, link):
                    host.tell(answer)
                else:
                    host.unread_answers.append(answer)

        if carries(link, host.index, station) and not self._lost(link, host.index, station):
            self._clock.after(self._delay(), arrive)

    # ── Clients that want something ───────────────────────────────────────────────────────────────────────────

    def client_asks(self, link: int) -> list[Host]:
        """Some client asks for an EIP: the hosts that its request reaches."""
        client = self.client(self._random.choice(self.places))
        self.broadcast(link, client)
        return [host for host in self._network.hosts if self._network.floods(link, client, host.index)]

    # ── The first claim of an EIP ─────────────────────────────────────────────────────────────────────────────

    def probe(self, host: Host, eip: IPAddress) -> None:
        """``host`` answers once nobody else was found to answer within a round; otherwise another follows later."""
        answered: list[str] = []
        token = host.probing[eip] = object()
        self._rounds.setdefault(host.index, {})[eip] = answered
        for number in range(_PROBES):
            self._clock.after(number * _SPACING, lambda: self._probe_once(host, eip, token, answered))

        def over() -> None:
            if host.probing.get(eip) is not token:
                return
            self._rounds[host.index].pop(eip, None)
            if host.frozen_at is not None or answered:
                self._clock.after(_AGAIN, lambda: self._again(host, eip, token))
                if answered:
                    host.tell(EipAnswered(eip, self._network.link_of[eip], None, probed=True))
            else:
                del host.probing[eip]
                self._proven(host, eip)

        self._clock.after(_PROBES * _SPACING, over)

    def _probe_once(self, host: Host, eip: IPAddress, token: object, answered: list[str]) -> None:
        link = self._network.link_of[eip]
        if host.probing.get(eip) is not token or answered:
            return  # a round that is lost asks no more
        self.broadcast(link, host.index)
        for other in self._network.hosts:
            if other is not host and eip in self._rounds.get(other.index, {}) and self._is_stranger(link, host, other):
                self._rounds[other.index][eip].append(host.name)  # whoever began last goes on (RFC 5227, 2.1.1)
            if (
                other is not host
                and other.answers(eip)
                and self.reach(link, other.index, host)
                and not self._lost(link, other.index, host.index)
            ):
                self._clock.after(2 * self._delay(), lambda other=other: answered.append(other.name))  # type: ignore[misc]

    def _is_stranger(self, link: int, host: Host, other: Host) -> bool:
        """``other`` gets its frames, and cannot tell from hellos whose they are: between speakers hellos decide."""
        return self.reach(link, host.index, other) and not self._network.believes(link, host.index, other.index)

    def _again(self, host: Host, eip: IPAddress, token: object) -> None:
        if host.probing.get(eip) is token:
            self.probe(host, eip)
