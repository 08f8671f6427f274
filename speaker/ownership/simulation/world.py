"""Ownership machines on simulated LANs in virtual time: deterministic, seeded, single-threaded."""

import heapq
from collections import Counter, deque
from collections.abc import Callable, Iterable
from ipaddress import IPv6Address
from itertools import count
from random import Random
from typing import TypeAlias

from speaker.model import IPAddress
from speaker.ownership.events import (
    Announce,
    Ask,
    Claim,
    Drain,
    EligibilityChanged,
    Event,
    HelloHeard,
    LinkChanged,
    Listen,
    Rebalance,
    SendHello,
    Tick,
    Withdraw,
    WriteRecord,
    Yielded,
)
from speaker.ownership.hello import Hello, Incarnation
from speaker.ownership.hellos.keys import Keys
from speaker.ownership.machine.machine import Ownership
from speaker.ownership.simulation.address import Address
from speaker.ownership.simulation.apiserver import ApiServer
from speaker.ownership.simulation.promises import Promises
from speaker.ownership.simulation.schedule import FOR_GOOD, Fault, Kind, Schedule
from speaker.ownership.simulation.stations import Stations
from speaker.ownership.simulation.wire import Port, Stranger, key

_HELLO, _REQUEST, _OTHER = range(3)
"""The order in which what waited is looked at after a freeze (rule 28)."""
_REPEAT = 1.1
"""Seconds after which an announcement is repeated: once here, the shortest burst that can lose a packet."""
_RECORDED = 400
"""Frames of each node that a replayer has at hand."""
_PPM = 200e-6
"""How wrong a clock may run."""
_BACK_TO_BACK = 10e-6
"""Seconds between two frames of 1,500 bytes at 1 Gbit/s, rounded down."""
_FLOOD = 0.004
"""Seconds between a stranger's frames, on average."""


Payload: TypeAlias = Hello | bytes


class Host:
    """A node: its machine, and what stands between it and the world."""

    def __init__(self, world: "World", index: int) -> None:
        self.world, self.index = world, index
        clock = Random(f"clock {world.schedule.seed} {index}")  # noqa: S311
        drifts = world.schedule.drift
        self._offset, self._rate = (clock.uniform(0, 1e6), clock.uniform(1 - _PPM, 1 + _PPM)) if drifts else (0.0, 1.0)
        self.name = f"n{index}" if world.schedule.mtu is None else f"n{index}-{clock.randbytes(60).hex()}"
        self.own_keys = Keys(key("first"))
        self.wrong_keys = 0
        """How many faults have it use a key of nobody else's."""
        self.ports: dict[int, Port] = {}
        self.life = 0
        self.alive = False
        self.machine: Ownership
        self.frozen_at: float | None = None
        self.thawed: tuple[float, float] = (-1.0, -1.0)
        self.waiting: list[tuple[int, Callable[[], None]]] = []
        self.wake_at = -1.0
        self.api_cuts = 0
        self.api_since = 0.0
        self.api_stale = 0
        self.stale_since = 0.0
        self.ineligible: set[IPAddress] = set()
        self.cables_out: Counter[int] = Counter()
        self.times = world.schedule.times_of(index)
        self.mute: Counter[int] = Counter()
        """Link → how many faults keep hellos from leaving there."""
        self.severed: Counter[int] = Counter()
        """Link → how many faults keep everything from arriving there, or from leaving."""
        self.demoted: Counter[int] = Counter()
        """Link → how many faults keep the gateway from answering it there."""
        self.troubles: Counter[int] = Counter()
        """Link → how many faults of its own it has there that may cost it what it holds."""
        self.trouble_began: dict[int, float] = {}
        self.trouble_ended: dict[int, float] = {}
        self.asked_at: dict[int, float] = {}
        """Link → when it last asked who is there."""
        self.told_at: dict[int, float] = {}
        """Link → when it was last told of a frame."""
        self.macs: set[tuple[int, str]] = set()
        """(link, node) whose MAC it knows from a hello."""
        self.probing: dict[IPAddress, object] = {}
        """What it claims and answers only once nobody else is found to."""
        self.failed: set[int] = set()
        """Links whose hello socket is being opened again."""
        self.left_at: dict[int, float] = {}
        """Link → when a hello last left, by the host's clock: answers there hang on it."""
        self.opened_at: dict[int, float] = {}
        """Link → when its hello socket was opened again, by the host's clock."""
        self.draining = False
        self.revision = 0
        """Of what is installed there from its next start on."""
        self.sent: deque[tuple[float, int, Payload, set[int]]] = deque(maxlen=_RECORDED)
        """(when, link, what, the nodes on whose side of the LAN it could be recorded)."""

    def clock(self, when: float | None = None) -> float:
        """What its clock shows, now or at ``when`` of the world's time."""
        return self._offset + self._rate * (self.world.now if when is None else when)

    @property
    def keys(self) -> Keys:
        return Keys(key(f"of n{self.index} only")) if self.wrong_keys else self.own_keys

    def hear(self, link: int, payload: "Payload") -> None:
        """A frame is in the socket's queue."""
        if isinstance(payload, Hello):
            self.macs.add((link, payload.node))
            self.tell(HelloHeard(link, payload), _HELLO)
        else:
            self.do(lambda: self._read(link, payload), _HELLO)

    def _read(self, link: int, frame: bytes) -> None:
        hello = self.ports[link].read(frame)
        if hello is not None:
            self.macs.add((link, hello.node))
            self.step(HelloHeard(link, hello))

    def tell(self, event: Event, order: int = _OTHER) -> None:
        if self.alive and self.frozen_at is None:
            self.step(event)
        else:
            self.do(lambda: self.step(event), order)

    def do(self, work: Callable[[], None], order: int = _OTHER) -> None:
        """Now, or once it is no longer frozen."""
        if not self.alive:
            return
        if self.frozen_at is not None:
            self.waiting.append((order, work))
        else:
            work()

    def step(self, event: Event) -> None:
        now = self.clock()
        for order in self.machine.step(now, event):
            self.world.carry_out(self, order)
        wake = (max(self.machine.next_wake(now), now + 1e-6) - self._offset) / self._rate
        if wake != self.wake_at:
            self.wake_at = wake
            life = self.life
            self.world.at(wake, lambda: self._wake(life, wake))

    def _wake(self, life: int, wake: float) -> None:
        if self.life == life and self.wake_at == wake:
            self.wake_at = -1.0
            self.tell(Tick())

    def answers(self, eip: IPAddress) -> bool:
        return (
            self.alive
            and self.frozen_at is None
            and self.machine.holding(eip)
            and (not self.probing or eip not in self.probing)
            and self.clock() < self.answer_until(self.world.link_of(eip))
        )

    def answer_until(self, link: int) -> float:
        """By its clock: what the machine allows, and what left on this very link."""
        left_at = self.left_at.get(link, float("-inf"))
        return min(self.machine.answer_until, left_at + self.times.self_lease)

    def link_up(self, link: int) -> bool:
        return not self.cables_out.get(link) and link not in self.failed  # get(): a Counter's [] is slow for nothing

    def may_hold(self, eip: IPAddress) -> bool:
        if not self.alive or self.frozen_at is not None or self.draining:
            return False
        if self.ineligible and eip in self.ineligible:
            return False
        link = self.world.link_of(eip)
        return self.link_up(link) and not self.mute.get(link) and not self.severed.get(link)


class World:
    """A schedule being played. ``make`` builds the machines: a test may give a broken kind."""

    def __init__(self, schedule: Schedule, make: type[Ownership] = Ownership, trace: bool = False) -> None:
        self.schedule, self.make, self.now = schedule, make, 0.0
        self.random = Random(schedule.seed)  # noqa: S311  a simulation guards nothing
        self.trace: list[str] | None = [] if trace else None
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self.eips = [_eip(i, schedule) for i in range(schedule.eips)]
        self._link_of = {eip: 1 + i % schedule.links for i, eip in enumerate(self.eips)}
        self.links = range(1, schedule.links + 1)
        self.hosts = [Host(self, i) for i in range(schedule.nodes)]
        self.cuts: Counter[tuple[int, int, int]] = Counter()
        """(link, from, to) → how many faults cut it; between stations of any kind."""
        self.eaten: Counter[tuple[int, int, int]] = Counter()
        """(link, from, to) → how many faults let everything pass there but hellos."""
        self.ongoing = self.inflicted = 0
        """Faults that are not mended yet, and all there were."""
        self.strangers: Counter[tuple[int, int]] = Counter()
        """(from, to) → how many faults keep the one's key from the other."""
        self.heard_since: dict[tuple[int, int, int], float] = {}
        self.overtaken: dict[tuple[int, int, int], float] = {}
        """(link, from, to) → when a hello last came too late to be heard, with claims that the newer one left out."""
        self._newest: dict[tuple[int, int, int], Hello] = {}
        self._last_arrival: dict[tuple[int, int, int], float] = {}
        self.last_cut = -1.0
        self.hellos_sent = 0
        self.stations = Stations(self)
        self._bursts: dict[tuple[int, int, int], tuple[bool, float]] = {}
        """(link, from, to) → whether frames are lost there, and until when."""
        self.api = ApiServer(self, schedule, self.random)
        self.promises = Promises(self, schedule)
        for host in self.hosts:
            self.at(
                self.random.uniform(0, 0.2) + host.index * schedule.apart,
                lambda host=host: self.boot(host),  # type: ignore[misc]
            )
        for fault in schedule.faults:
            self.at(fault.at, lambda fault=fault: self.inflict(fault))  # type: ignore[misc]
        if schedule.asks:
            self.at(max(1.0, schedule.silent_until), self._ask)

    # ── Time ──────────────────────────────────────────────────────────────────────────────────────────────────

    def at(self, when: float, work: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (max(when, self.now), next(self._order), work))

    def after(self, delay: float, work: Callable[[], None]) -> None:
        self.at(self.now + delay, work)

    def say(self, line: str) -> None:
        if self.trace is not None:
            self.trace.append(f"{self.now:9.4f} {self.readable(line)}")

    def readable(self, line: str) -> str:
        """With the short names of hosts."""
        for host in self.hosts:
            line = line.replace(host.name, f"n{host.index}")
        return line

    def run(self, until: float | None = None) -> "World":
        """On to ``until``, or to the end of the schedule, where the final promises are checked."""
        end = self.schedule.end if until is None else until
        queue, promises = self._queue, self.promises
        while queue and queue[0][0] <= end and not promises.broken:
            self.now, _, work = heapq.heappop(queue)
            work()
            promises.check()
        if not self.promises.broken:
            self.now = end
        if until is None:
            self.promises.check_end()
        return self

    # ── The LANs ──────────────────────────────────────────────────────────────────────────────────────────────

    def link_of(self, eip: IPAddress) -> int:
        return self._link_of[eip]

    def holders(self, eip: IPAddress) -> list[str]:
        return [host.name for host in self.hosts if host.answers(eip)]

    def carries(self, link: int, sender: int, receiver: int) -> bool:
        """Whether a frame that leaves arrives. ``sender`` and ``receiver``: stations of any kind."""
        return not self.cuts or not self.cuts.get((link, sender, receiver))

    def carries_hellos(self, link: int, sender: int, receiver: int) -> bool:
        path = link, sender, receiver
        return not (self.cuts and self.cuts.get(path)) and not (self.eaten and self.eaten.get(path))

    def believes(self, link: int, sender: int, receiver: int) -> bool:
        """Whether a hello counts, too."""
        return self.carries_hellos(link, sender, receiver) and not (
            self.strangers and self.strangers.get((sender, receiver))
        )

    def hears(self, link: int, sender: int, receiver: int) -> bool:
        return self.believes(link, sender, receiver) and not self.hosts[sender].mute.get(link)

    def carry_out(self, host: Host, order: object) -> None:
        match order:
            case SendHello():
                if host.mute.get(order.link):
                    self._fail_to_send(host, order.link)
                else:
                    host.left_at[order.link] = host.clock()
                    for payload in self._payloads(host, order):
                        self._broadcast(host, order.link, payload)
            case Claim():
                self.say(f"{host.name} claims {order.eip} term {order.term}")
                host.probing.pop(order.eip, None)
                if order.first:
                    self.stations.probe(host, order.eip)
                self.promises.claimed(host, order.eip, order.term)
            case Withdraw():
                self.say(f"{host.name} yields {order.eip}: {order.reason.value}")
                host.probing.pop(order.eip, None)
                self.promises.yielded(host, order.eip, order.reason)
                if order.reason is Yielded.DRAINED:
                    self.promises.disturbed()  # it waited for a successor as long as it was promised
                self.promises.changed(order.eip)
            case Announce():
                self._announce(host, order, _REPEAT)
            case WriteRecord():
                self.api.write(host, order)
            case Ask():
                self.stations.ask(host, order)
            case Listen():
                self.say(f"{host.name} was away, listens")
                host.waiting = [entry for entry in host.waiting if entry[0] == _OTHER]

    def proven(self, host: Host, eip: IPAddress) -> None:
        """It answers for ``eip`` from now on: nobody else was found to."""
        self.promises.changed(eip)
        self._announce(host, Announce(self.link_of(eip), (eip,)), _REPEAT)

    def _announce(self, host: Host, order: Announce, repeat: float | None) -> None:
        announced = [eip for eip in order.eips if host.answers(eip)]
        for eip in announced:
            self.promises.announced(host, eip, order.link)
        if announced:
            self.stations.broadcast(order.link, host.index)
        if repeat is not None:
            self.after(repeat, lambda: self._announce(host, order, None))

    def _payloads(self, host: Host, order: SendHello) -> Iterable[Payload]:
        mtu = self.schedule.mtu
        return (order.hello,) if mtu is None else host.ports[order.link].encode(order.hello, mtu)

    def _broadcast(self, host: Host, link: int, payload: Payload) -> None:
        arrives = self.believes if self.schedule.mtu is None else self.carries_hellos
        within = {o.index for o in self.hosts if arrives(link, host.index, o.index)}
        host.sent.append((self.now, link, payload, within))
        self.hellos_sent += 1
        for other in self.hosts:
            if other is not host and other.alive:
                self._send(link, host, other, payload, within)

    def _send(self, link: int, host: Host, other: Host, payload: Payload, within: set[int]) -> None:
        if other.index not in within or self._lost(link, host.index, other.index):
            within.discard(other.index)
            return
        arrives = self.believes if self.schedule.mtu is None else self.carries_hellos

        def arrive() -> None:
            if arrives(link, host.index, other.index):
                if isinstance(payload, Hello):
                    self._note_overtaken((link, host.index, other.index), payload)
                other.hear(link, payload)
            else:
                within.discard(other.index)

        self.at(self._arrival(link, host, other), arrive)
        if self.schedule.duplication and self.random.random() < self.schedule.duplication:
            self.after(self.random.uniform(0.0001, 3 * self.schedule.delay), arrive)

    def _lost(self, link: int, sender: int, receiver: int) -> bool:
        schedule = self.schedule
        if not schedule.burst and not schedule.lossy:
            return self.random.random() < schedule.loss
        share = schedule.loss + sum(more for a, b, more in schedule.lossy if (a, b) == (sender, receiver))
        if not schedule.burst:
            return self.random.random() < share
        return 0 < share < 1 and self._in_burst((link, sender, receiver), share)

    def _in_burst(self, path: tuple[int, int, int], share: float) -> bool:
        """Good times and bad ones take turns (Gilbert's channel), so that ``share`` of the time is bad."""
        lost, until = self._bursts.get(path, (True, 0.0))
        while until <= self.now:
            lost = not lost
            mean = self.schedule.burst if lost else self.schedule.burst * (1 - share) / share
            until += self.random.expovariate(1 / mean)
        self._bursts[path] = lost, until
        return lost

    def _arrival(self, link: int, host: Host, other: Host) -> float:
        """Messages overtake each other. Frames do not: bridges keep the order between two stations (IEEE 802.1Q,
        6.5.3), and the parts of a message leave in one go."""
        when = self.now + self.random.uniform(0.0001, self.schedule.delay)
        if self.schedule.mtu is not None:
            path = link, host.index, other.index
            when = self._last_arrival[path] = max(when, self._last_arrival.get(path, 0.0) + _BACK_TO_BACK)
        return when

    def _note_overtaken(self, path: tuple[int, int, int], hello: Hello) -> None:
        """Who was overtaken is not heard any more (rule 5): where it had more to tell, that is as good as lost."""
        newest = self._newest.get(path)
        if newest is None or hello.stamp > newest.stamp:
            self._newest[path] = hello
        elif hello.incarnation == newest.incarnation and not hello.claims.keys() <= newest.claims.keys():
            self.overtaken[path] = self.now

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
                host.tell(LinkChanged(link, up=host.link_up(link)))

        def again() -> None:
            if host.life == life and host.alive:
                host.failed.discard(link)
                host.opened_at[link] = host.clock()
                told()

        self.after(0.0005, told)
        self.after(self.random.uniform(0.05, 0.4), again)

    def _ask(self) -> None:
        eip, asked_at = self.random.choice(self.eips), self.now
        for host in self.stations.client_asks(self.link_of(eip)):
            host.do(lambda host=host: self._asked(host, eip, asked_at), _REQUEST)  # type: ignore[misc]
        self.after(self.random.uniform(0.01, 0.06), self._ask)

    def _asked(self, host: Host, eip: IPAddress, asked_at: float) -> None:
        if host.answers(eip) and host.machine.answers(eip, host.clock(asked_at), host.clock()):
            self.promises.answered(host, eip, asked_at)

    # ── Faults: each works, and is undone after ``lasts`` ─────────────────────────────────────────────────────

    def inflict(self, fault: Fault) -> None:
        self.say(f"# {str(fault).split(' ', 1)[1]}")
        hosts = [self.hosts[n] for n in fault.nodes]
        self._count(fault)
        match fault.kind:
            case Kind.PARTITION:
                self.part(fault.nodes, fault.link, fault.lasts)
            case Kind.DEAF:
                for host in hosts:
                    self.sever(host, fault.link, fault.lasts, hears=False)
            case Kind.MUTE_ALL:
                for host in hosts:
                    self.sever(host, fault.link, fault.lasts, speaks=False)
            case Kind.BLACKOUT:
                for host in hosts:
                    self.sever(host, fault.link, fault.lasts, hears=False, speaks=False)
            case Kind.HELLOS_EATEN:
                self.eat_hellos(fault.nodes, fault.link, fault.lasts)
            case Kind.GATEWAY_SILENT:
                for host in hosts:
                    self.silence_gateway(host, fault.link, fault.lasts)
            case Kind.WRONG_KEY:
                for host in hosts:
                    self.give_wrong_key(host, fault.lasts)
            case Kind.KEY_ROTATION:
                self.rotate_keys(fault.lasts)
            case Kind.STRANGER:
                Stranger(self, self.schedule.seed).play(fault.lasts, _FLOOD)
            case Kind.SEND_FAILS:
                for host in hosts:
                    self.silence(host, fault.link, fault.lasts)
            case Kind.ONE_WAY:
                if self.schedule.nodes == 2:
                    self.trouble(hosts[:1], fault.link, fault.lasts)
                self.cut([(fault.nodes[0], fault.nodes[1])], fault.link, fault.lasts)
            case Kind.PAIR:
                self.cut([fault.nodes, fault.nodes[::-1]], fault.link, fault.lasts)
            case Kind.CRASH_HOLDER:
                for host in [h for h in self.hosts if h.answers(self.eips[fault.eip])][:1]:
                    self.crash(host, fault.lasts)
            case Kind.CRASH:
                for host in hosts:
                    self.crash(host, fault.lasts)
            case Kind.FREEZE:
                for host in hosts:
                    self.freeze(host, fault.lasts)
            case Kind.API_OUTAGE:
                for host in hosts:
                    self.cut_api(host, fault.lasts)
            case Kind.API_OUTAGE_OTHERS:
                for host in self.hosts:
                    if not host.answers(self.eips[fault.eip]):
                        self.cut_api(host, fault.lasts)
            case Kind.STALE_WATCH:
                for host in hosts:
                    self.delay_watch(host, fault.lasts)
            case Kind.DRAIN:
                for host in hosts:
                    self.drain(host, fault.lasts)
            case Kind.UPGRADE:
                for host in hosts:
                    host.revision += 1
                    self.drain(host, fault.lasts)
            case Kind.RECORD_TOUCHED:
                self.touch_record(self.eips[fault.eip], self.now + fault.lasts)
            case Kind.RECORD_DELETED:
                self.api.delete(self.eips[fault.eip])
            case Kind.BRIEF_DRAIN:
                for host in hosts:
                    self.drain_briefly(host, fault.lasts)
            case Kind.REBALANCE:
                for host in hosts:
                    self.rebalance(host)
            case Kind.INELIGIBLE:
                for host in hosts:
                    self.veto(host, self.eips[fault.eip], fault.lasts)
            case Kind.CABLE:
                for host in hosts:
                    self.pull_cable(host, fault.link, fault.lasts)
            case Kind.REPLAY:
                self.replay(hosts[0], hosts[1], fault.lasts)

    def _later(self, lasts: float, undo: Callable[[], None]) -> None:
        if lasts < FOR_GOOD:
            self.after(lasts, undo)

    def _links(self, link: int | None) -> list[int]:
        return [link] if link is not None else list(self.links)

    def _count(self, fault: Fault) -> None:
        """So that it is known when a fault ends and no other is left."""
        self.inflicted += 1
        if fault.lasts < FOR_GOOD:
            self.ongoing += 1
            began = self.now

            def ended() -> None:
                self.ongoing -= 1
                self.promises.healed(began)

            self.after(fault.lasts, ended)

    def trouble(self, hosts: Iterable[Host], link: int | None, lasts: float) -> None:
        """What these hosts hold there may go, for a reason of their own."""
        concerned = [(host, n) for host in hosts for n in self._links(link)]
        for host, n in concerned:
            host.troubles[n] += 1
            host.trouble_began[n] = self.now

        def over() -> None:
            for host, n in concerned:
                host.troubles[n] -= 1
                host.trouble_ended[n] = self.now

        self._later(lasts, over)

    def boot(self, host: Host) -> None:
        host.life += 1
        host.alive, host.frozen_at, host.waiting, host.draining, host.wake_at = True, None, [], False, -1.0
        life = 1000 - 7 * host.life if self.schedule.clock_back else host.life

        def incarnate(above: Incarnation) -> Incarnation:
            return Incarnation((max(life, (above >> 31) + 1) << 31) | self.random.getrandbits(31))

        schedule = self.schedule
        host.machine = self.make(
            host.name,
            incarnate,
            host.clock(),
            times=host.times,
            api=schedule.api,
            per_hello=schedule.per_hello,
            revision=host.revision,
        )
        self.say(f"{host.name} boots")
        host.failed, host.left_at, host.opened_at = set(), {}, {}
        host.asked_at, host.told_at, host.macs, host.probing = {}, {}, set(), {}
        self.promises.booted(host)
        host.ports = {link: Port(host, link) for link in self.links}
        for link in self.links:
            host.tell(LinkChanged(link, up=host.link_up(link)))
        for eip in self.eips:
            self._tell_eligibility(host, eip)
        if schedule.api:
            self.api.session(host)

    def _tell_eligibility(self, host: Host, eip: IPAddress) -> None:
        link = self.link_of(eip)
        host.tell(EligibilityChanged(eip, None if eip in host.ineligible else link, bool(host.demoted[link])))

    def crash(self, host: Host, lasts: float = FOR_GOOD) -> None:
        if not host.alive:
            return
        held = [eip for eip in self.eips if host.answers(eip)]
        host.alive, host.frozen_at, host.waiting = False, None, []
        self.promises.crashed(host, held)
        life = host.life
        self._later(lasts, lambda: self.boot(host) if host.life == life and not host.alive else None)

    def freeze(self, host: Host, lasts: float) -> None:
        if not host.alive or host.frozen_at is not None:
            return
        host.frozen_at, life = self.now, host.life
        self.trouble([host], None, lasts)
        self.promises.disturbed()

        def thaw() -> None:
            if not host.alive or host.life != life or host.frozen_at is None:
                return
            self.say(f"{host.name} thaws, {len(host.waiting)} wait")
            host.thawed, host.frozen_at = (host.frozen_at, self.now), None
            self.promises.disturbed()
            host.waiting.sort(key=lambda entry: entry[0])
            while host.waiting and host.alive:
                host.waiting.pop(0)[1]()
            host.tell(Tick())

        self._later(lasts, thaw)

    def cut(self, pairs: Iterable[tuple[int, ...]], link: int | None = None, lasts: float = FOR_GOOD) -> None:
        keys = [(n, a, b) for a, b in pairs for n in self._links(link)]
        self.cuts.update(keys)
        self.promises.rewired()

        def heal() -> None:
            self.last_cut = self.now
            self.cuts.subtract(keys)
            self.heard_since.update({cut: self.now for cut in keys if not self.cuts[cut]})
            self.promises.rewired()

        self._later(lasts, heal)

    def part(self, nodes: tuple[int, ...], link: int | None = None, lasts: float = FOR_GOOD) -> None:
        """``nodes`` and what is on their side from all others; it is no trouble of the larger group's."""
        group = self.stations.group(nodes)
        others = [station for station in self.stations.everybody if station not in group]
        smaller = nodes if 2 * len(nodes) < len(self.hosts) else () if 2 * len(nodes) == len(self.hosts) else others
        self.trouble([host for host in self.hosts if host.index in smaller], link, lasts)
        self.cut([pair for a in group for b in others for pair in ((a, b), (b, a))], link, lasts)

    def _port(self, host: Host, hears: bool, speaks: bool) -> list[tuple[int, int]]:
        """What no longer passes there."""
        others = [station for station in self.stations.everybody if station != host.index]
        deaf = [] if hears else [(other, host.index) for other in others]
        return deaf if speaks else [*deaf, *((host.index, other) for other in others)]

    def sever(
        self, host: Host, link: int | None, lasts: float = FOR_GOOD, *, hears: bool = True, speaks: bool = True
    ) -> None:
        """Nothing arrives at its port, or nothing leaves it, and the carrier stays."""
        links = self._links(link)
        host.severed.update(links)

        def mend() -> None:
            host.severed.subtract(links)
            self.promises.disturbed()

        self.trouble([host], link, lasts)
        self._later(lasts, mend)
        self.cut(self._port(host, hears, speaks), link, lasts)
        self.promises.disturbed()

    def eat_hellos(self, nodes: tuple[int, ...], link: int | None = None, lasts: float = FOR_GOOD) -> None:
        """Between all, from the one, or between the two of ``nodes``; everything else passes."""
        everybody = range(len(self.hosts))
        senders, receivers = nodes or everybody, nodes if len(nodes) > 1 else everybody
        keys = [(n, a, b) for n in self._links(link) for a in senders for b in receivers if a != b]
        self.eaten.update(keys)

        def mend() -> None:
            self.last_cut = self.now
            self.eaten.subtract(keys)
            self.heard_since.update({key: self.now for key in keys if not self.eaten[key]})

        self._later(lasts, mend)

    def silence_gateway(self, host: Host, link: int | None = None, lasts: float = FOR_GOOD) -> None:
        """It answers ``host`` no more, which stands behind those whom it does."""

        def change(by: int) -> None:
            for n in self._links(link):
                host.demoted[n] += by
            for eip in self.eips:
                self._tell_eligibility(host, eip)

        change(1)
        self.cut([(host.index, self.stations.gateway), (self.stations.gateway, host.index)], link, lasts)
        self._later(lasts, lambda: change(-1))

    def cut_api(self, host: Host, lasts: float = FOR_GOOD) -> None:
        host.api_cuts += 1

        def mend() -> None:
            host.api_cuts -= 1
            host.api_since = self.now

        self._later(lasts, mend)

    def delay_watch(self, host: Host, lasts: float) -> None:
        host.api_stale += 1

        def mend() -> None:
            host.api_stale -= 1
            host.stale_since = self.now + 0.05

        self._later(lasts, mend)

    def touch_record(self, eip: IPAddress, until: float) -> None:
        self.api.touch(eip)
        if self.now < until:
            self.after(0.003, lambda: self.touch_record(eip, until))

    def drain(self, host: Host, lasts: float = FOR_GOOD) -> None:
        if not host.alive:
            return
        host.draining, life = True, host.life
        self.trouble([host], None, lasts)
        self.promises.disturbed()
        host.tell(Drain())

        def restart() -> None:
            if host.alive and host.life == life:
                self.crash(host)
                self.boot(host)

        self._later(lasts, restart)

    def drain_briefly(self, host: Host, lasts: float) -> None:
        if not host.alive or host.draining:
            return
        host.draining, life = True, host.life
        self.trouble([host], None, lasts)
        self.promises.disturbed()
        host.tell(Drain())

        def end() -> None:
            if host.alive and host.life == life:
                host.draining = False
                self.promises.disturbed()
                host.tell(Drain(on=False))

        self._later(lasts, end)

    def rebalance(self, host: Host) -> None:
        def plan() -> None:
            host.step(Rebalance())
            self.promises.rebalanced(host.machine.rebalancing)

        host.do(plan)

    def veto(self, host: Host, eip: IPAddress, lasts: float = FOR_GOOD) -> None:
        def change(eligible: bool) -> None:
            (host.ineligible.discard if eligible else host.ineligible.add)(eip)
            self.promises.disturbed()
            self._tell_eligibility(host, eip)

        self.trouble([host], self.link_of(eip), lasts)
        change(False)
        self._later(lasts, lambda: change(True))

    def pull_cable(self, host: Host, link: int | None = None, lasts: float = FOR_GOOD) -> None:
        links, port = self._links(link), self._port(host, hears=False, speaks=False)

        def change(by: int) -> None:
            self.promises.disturbed()
            for n in links:
                host.cables_out[n] += by
                self.cuts.update({(n, *pair): by for pair in port})
                for other in self.hosts:
                    self.heard_since[n, host.index, other.index] = self.now
                    self.heard_since[n, other.index, host.index] = self.now
                host.tell(LinkChanged(n, up=host.link_up(n)))
            self.promises.rewired()

        self.trouble([host], link, lasts)
        change(1)
        self._later(lasts, lambda: change(-1))

    def replay(self, sender: Host, receiver: Host, lasts: float) -> None:
        """Only what reached the receiver, or would have: bringing what was lost would be a slow network, no replay."""
        for _, link, payload, within in list(sender.sent):
            if receiver.index in within:
                self.after(
                    self.random.uniform(0, lasts),
                    lambda link=link, payload=payload: receiver.hear(link, payload),  # type: ignore[misc]
                )

    # ── Keys, and sockets that take nothing ───────────────────────────────────────────────────────────────────

    def give_wrong_key(self, host: Host, lasts: float = FOR_GOOD) -> None:
        pairs = [pair for o in self.hosts if o is not host for pair in ((host.index, o.index), (o.index, host.index))]
        host.wrong_keys += 1
        self.strangers.update(pairs)

        def mend() -> None:
            host.wrong_keys -= 1
            self.strangers.subtract(pairs)
            self._heard_again(pairs, self.links)
            self.promises.disturbed()

        self._later(lasts, mend)

    def _heard_again(self, pairs: Iterable[tuple[int, int]], links: Iterable[int]) -> None:
        self.last_cut = self.now
        self.heard_since.update({(n, *pair): self.now for pair in pairs for n in links})

    def rotate_keys(self, over: float) -> None:
        old, new = key("first"), key("second")
        for step, keys in enumerate((Keys(old, new), Keys(new, old), Keys(new))):
            for host in self.hosts:
                begin = step * over

                def set_keys(host: Host = host, keys: Keys = keys) -> None:
                    host.own_keys = keys

                self.after(self.random.uniform(begin, begin + over), set_keys)

    def silence(self, host: Host, link: int | None = None, lasts: float = FOR_GOOD) -> None:
        links = self._links(link)
        host.mute.update(links)
        self.trouble([host], link, lasts)
        self.promises.disturbed()

        def mend() -> None:
            host.mute.subtract(links)
            self.promises.disturbed()
            self._heard_again([(host.index, o.index) for o in self.hosts if o is not host], links)

        self._later(lasts, mend)


def _eip(number: int, schedule: Schedule) -> IPAddress:
    """As frames they take all the room they can: both families, far apart."""
    if schedule.mtu is None or number % 2 == 0:
        return Address("10.0.0.1") + number
    return IPv6Address("2001:db8::1") + (number << 70)
