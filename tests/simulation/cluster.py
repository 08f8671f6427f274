"""Hosts on their LANs, an API server, the promises as judge; and what becomes of the orders of the machines."""

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
from speaker.ownership.events import (
    Announce,
    Ask,
    Claim,
    Listen,
    Order,
    Question,
    SendHello,
    Withdraw,
    WriteRecord,
    Yielded,
)
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
        self.hosts = [Host(schedule, i, self.clock, link_of, self.carry_out) for i in range(schedule.nodes)]
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

    # ── Orders ────────────────────────────────────────────────────────────────────────────────────────────────

    def carry_out(self, host: Host, order: Order) -> None:
        match order:
            case SendHello():
                if host.mute.get(order.link):
                    self._fail_to_send(host, order.link)
                else:
                    host.left_at[order.link] = host.clock()
                    self._send_direct(host, order)
                    for payload in self._payloads(host, order.link, order.hello):
                        self.network.broadcast(host, order.link, payload)
            case Claim():
                self.trace.say(f"{host.name} claims {order.eip} term {order.term}")
                host.probing.pop(order.eip, None)
                if order.first:
                    self.stations.probe(host, order.eip)
                self.promises.claimed(host, order.eip, order.term)
            case Withdraw():
                self.trace.say(f"{host.name} yields {order.eip}: {order.reason.value}")
                host.probing.pop(order.eip, None)
                self.promises.yielded(host, order.eip, order.reason)
                if order.reason is Yielded.DRAINED:
                    self.promises.disturbed()  # it waited for a successor as long as it was promised
                self.promises.changed(order.eip)
            case Announce():
                self._announce(host, order, again=True)
            case WriteRecord():
                self.api.write(host, order)
            case Ask():
                self.stations.ask(host, order)
            case Question():
                self.stations.question(host, order)
            case Listen():
                self.trace.say(f"{host.name} was away, listens")
                host.drop_what_was_heard()

    def _proven(self, host: Host, eip: IPAddress) -> None:
        self.promises.changed(eip)
        self._announce(host, Announce(self.network.link_of[eip], (eip,)), again=True)

    def _announce(self, host: Host, order: Announce, again: bool) -> None:
        announced = [eip for eip in order.eips if host.answers(eip)]
        for eip in announced:
            self.promises.announced(host, eip, order.link)
        if announced:
            self.stations.broadcast(order.link, host.index)
        if again:
            self.clock.after(_REPEAT, partial(self._announce, host, order, again=False))

    def _send_direct(self, host: Host, order: SendHello) -> None:
        known = [other for other in self.hosts if other.name in order.direct and (order.link, other.name) in host.macs]
        for other in known:
            for payload in self._payloads(host, order.link, order.copy()):
                self.network.direct(host, order.link, payload, other)

    def _payloads(self, host: Host, link: int, hello: Hello) -> Iterable[Payload]:
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
