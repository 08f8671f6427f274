"""Hosts on their LANs, an API server, the promises as judge; and what the orders of the machines do."""

from collections.abc import Iterable
from functools import partial
from random import Random

from simulation.address import addresses
from simulation.apiserver import ApiServer
from simulation.clock import Clock, Trace
from simulation.host import Host, Make, Payload
from simulation.network import Network
from simulation.promises import Promises
from simulation.schedule import Schedule
from simulation.stations import Stations
from speaker.model import IPAddress
from speaker.ownership.events import Ask, Question, SendHello, WriteRecord, Yielded
from speaker.ownership.hello import Hello

_REPEAT = 1.1
"""Seconds after which an announcement is repeated: once here, the shortest burst that can lose a packet."""


class Cluster:
    """As ``schedule`` builds it. ``make`` builds the machines: a test may give a broken kind."""

    def __init__(self, schedule: Schedule, make: Make, keep_trace: bool) -> None:
        self.schedule, self._make = schedule, make
        self.random = Random(schedule.seed)
        self.clock = Clock()
        self.trace = Trace(self.clock, keep_trace)
        self.eips = addresses(schedule)
        link_of = {eip: 1 + i % schedule.links for i, eip in enumerate(self.eips)}
        self.hosts = [Host(schedule, i, self.clock, link_of, partial(_Done, self)) for i in range(schedule.nodes)]
        self.trace.short = {host.name: f"n{host.index}" for host in self.hosts}
        self.network = Network(self.clock, schedule, self.random, self.hosts, link_of)
        self.stations = Stations(self.clock, schedule, self.network, self._proven)
        self.api = ApiServer(self.clock, self.trace, schedule, self.random, self.hosts, self.eips)
        self.promises = Promises(self.clock, self.trace, schedule, self.network, self.stations, self.api)

    def holders(self, eip: IPAddress) -> list[str]:
        return [host.name for host in self.hosts if host.answers(eip)]

    def boot(self, host: Host) -> None:
        host.boot(self._make, self.random)
        self.trace.say(f"{host.name} boots")
        self.promises.booted(host)
        host.look_around(self.eips)
        if self.schedule.api:
            self.api.session(host)

    # ── What the orders of a host do outside of it ────────────────────────────────────────────────────────────

    def send(self, host: Host, order: SendHello) -> bool:
        link = order.link
        if host.mute.get(link):
            self._fail_to_send(host, link)
            return False
        host.left_at[link] = host.clock()
        self._send_direct(host, order)
        for payload in self._payloads(host, link, order.hello):
            self.network.broadcast(host, link, payload)
        return True

    def announce(self, host: Host, link: int, eips: tuple[IPAddress, ...], again: bool = True) -> None:
        announced = [eip for eip in eips if host.answers(eip)]
        for eip in announced:
            self.promises.announced(host, eip, link)
        if announced:
            self.stations.broadcast(link, host.index)
        if again:
            self.clock.after(_REPEAT, partial(self.announce, host, link, eips, again=False))

    def _proven(self, host: Host, eip: IPAddress) -> None:
        host.owner.proven(eip)
        self.promises.changed(eip)
        self.announce(host, self.network.link_of[eip], (eip,))

    def _send_direct(self, host: Host, order: SendHello) -> None:
        known = [other for other in self.hosts if other.name in order.direct and (order.link, other.name) in host.macs]
        for other in known:
            for payload in self._payloads(host, order.link, order.copy()):
                self.network.direct(host, order.link, payload, other)

    def _payloads(self, host: Host, link: int, hello: Hello) -> Iterable[Payload]:
        hello = hello._replace(weighs=False) if host.index in self.schedule.heedless else hello
        mtu = self.schedule.mtu
        return (hello,) if mtu is None else host.ports[link].encode(hello, host.keys, mtu)

    def _fail_to_send(self, host: Host, link: int) -> None:
        """What the owner does: a link on which nothing left for the self-lease is down, and tried again later."""
        since = max(host.left_at.get(link, 0.0), host.opened_at.get(link, 0.0))
        if link in host.failed or host.clock() - since < host.times.self_lease:
            return
        host.failed.add(link)
        life = host.life

        def told() -> None:
            if host.life == life:
                self.promises.disturbed()
                host.tell_link(link)

        def again() -> None:
            if host.life == life and host.alive:
                host.failed.discard(link)
                host.opened_at[link] = host.clock()
                told()

        self.clock.after(0.0005, told)
        self.clock.after(self.random.uniform(0.05, 0.4), again)


class _Done:
    """``Deeds`` of one host."""

    def __init__(self, cluster: Cluster, host: Host) -> None:
        self._cluster, self._host = cluster, host
        self._changed: dict[IPAddress, None] = {}
        """What was claimed or let go in this step."""

    def send(self, order: SendHello) -> bool:
        return self._cluster.send(self._host, order)

    def ask(self, order: Ask | Question) -> None:
        match order:
            case Ask():
                self._cluster.stations.ask(self._host, order)
            case Question():
                self._cluster.stations.question(self._host, order)

    def write(self, order: WriteRecord) -> None:
        self._cluster.api.write(self._host, order)

    def probe(self, eip: IPAddress) -> None:
        self._cluster.stations.probe(self._host, eip)

    def end_probe(self, eip: IPAddress) -> None:
        self._host.probing.pop(eip, None)

    def announce(self, link: int, eips: tuple[IPAddress, ...]) -> None:
        self._cluster.announce(self._host, link, eips)

    def claimed(self, eip: IPAddress, term: int) -> None:
        self._cluster.trace.say(f"{self._host.name} claims {eip} term {term}")
        self._cluster.promises.claimed(self._host, eip, term)
        self._changed[eip] = None

    def yielded(self, eip: IPAddress, reason: Yielded) -> None:
        self._cluster.trace.say(f"{self._host.name} yields {eip}: {reason.value}")
        self._cluster.promises.yielded(self._host, eip, reason)
        self._changed[eip] = None

    def drop_hellos(self) -> None:
        self._cluster.trace.say(f"{self._host.name} was away, listens")
        self._host.drop_hellos()

    def drop_requests(self) -> None:
        self._host.drop_requests()

    def done(self) -> None:
        for eip in self._changed:
            self._cluster.promises.changed(eip)
        self._changed.clear()
