"""Ownership machines on simulated LANs in virtual time: deterministic, seeded, single-threaded."""

import heapq
from collections import Counter, deque
from collections.abc import Callable, Iterable
from ipaddress import IPv4Address
from itertools import count
from random import Random

from speaker.model import IPAddress
from speaker.ownership.events import (
    Announce,
    Claim,
    Drain,
    EligibilityChanged,
    Event,
    HelloHeard,
    LinkChanged,
    Listen,
    SendHello,
    Tick,
    Withdraw,
    WriteRecord,
    Yielded,
)
from speaker.ownership.hello import Hello, Incarnation
from speaker.ownership.machine import Ownership
from speaker.ownership.simulation.apiserver import ApiServer
from speaker.ownership.simulation.promises import Promises
from speaker.ownership.simulation.schedule import FOR_GOOD, Fault, Kind, Schedule

_HELLO, _REQUEST, _OTHER = range(3)
"""The order in which what waited is looked at after a freeze (rule 28)."""
_REPEAT = 1.1
"""Seconds after which an announcement is repeated: once here, the shortest burst that can lose a packet."""
_RECORDED = 400
"""Frames of each node that a replayer has at hand."""


class Host:
    """A node: its machine, and what stands between it and the world."""

    def __init__(self, world: "World", index: int) -> None:
        self.world, self.index, self.name = world, index, f"n{index}"
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
        self.draining = False
        self.sent: deque[tuple[int, Hello, set[int]]] = deque(maxlen=_RECORDED)
        """(link, hello, the nodes on whose side of the LAN it could be recorded)."""

    def tell(self, event: Event) -> None:
        self.do(lambda: self.step(event), _HELLO if isinstance(event, HelloHeard) else _OTHER)

    def do(self, work: Callable[[], None], order: int = _OTHER) -> None:
        """Now, or once it is no longer frozen."""
        if not self.alive:
            return
        if self.frozen_at is not None:
            self.waiting.append((order, work))
        else:
            work()

    def step(self, event: Event) -> None:
        now = self.world.now
        for order in self.machine.step(now, event):
            self.world.carry_out(self, order)
        wake = max(self.machine.next_wake(now), now + 1e-6)
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
            and self.world.now < self.machine.answer_until
        )

    def may_hold(self, eip: IPAddress) -> bool:
        return (
            self.alive
            and self.frozen_at is None
            and eip not in self.ineligible
            and not self.cables_out[self.world.link_of(eip)]
            and not self.draining
        )


class World:
    """A schedule being played. ``make`` builds the machines: a test may give a broken kind."""

    def __init__(self, schedule: Schedule, make: type[Ownership] = Ownership, trace: bool = False) -> None:
        self.schedule, self.make, self.now = schedule, make, 0.0
        self.random = Random(schedule.seed)  # noqa: S311  a simulation guards nothing
        self.trace: list[str] | None = [] if trace else None
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self.eips: list[IPAddress] = [IPv4Address("10.0.0.1") + i for i in range(schedule.eips)]
        self._link_of = {eip: 1 + i % schedule.links for i, eip in enumerate(self.eips)}
        self.links = range(1, schedule.links + 1)
        self.hosts = [Host(self, i) for i in range(schedule.nodes)]
        self.cuts: Counter[tuple[int, int, int]] = Counter()
        """(link, from, to) → how many faults cut it."""
        self.heard_since: dict[tuple[int, int, int], float] = {}
        self.last_cut = -1.0
        self.hellos_sent = 0
        self.api = ApiServer(self, schedule, self.random)
        self.promises = Promises(self, schedule)
        for host in self.hosts:
            self.at(self.random.uniform(0, 0.2), lambda host=host: self.boot(host))  # type: ignore[misc]
        for fault in schedule.faults:
            self.at(fault.at, lambda fault=fault: self.inflict(fault))  # type: ignore[misc]
        if schedule.asks:
            self.at(1.0, self._ask)

    # ── Time ──────────────────────────────────────────────────────────────────────────────────────────────────

    def at(self, when: float, work: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (max(when, self.now), next(self._order), work))

    def after(self, delay: float, work: Callable[[], None]) -> None:
        self.at(self.now + delay, work)

    def say(self, line: str) -> None:
        if self.trace is not None:
            self.trace.append(f"{self.now:9.4f} {line}")

    def run(self, until: float | None = None) -> "World":
        """On to ``until``, or to the end of the schedule, where the final promises are checked."""
        end = self.schedule.end if until is None else until
        while self._queue and self._queue[0][0] <= end and not self.promises.broken:
            self.now, _, work = heapq.heappop(self._queue)
            work()
            self.promises.check()
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

    def hears(self, link: int, sender: int, receiver: int) -> bool:
        return not (
            self.cuts[link, sender, receiver]
            or self.hosts[sender].cables_out[link]
            or self.hosts[receiver].cables_out[link]
        )

    def carry_out(self, host: Host, order: object) -> None:
        match order:
            case SendHello():
                within = {o.index for o in self.hosts if self.hears(order.link, host.index, o.index)}
                host.sent.append((order.link, order.hello, within))
                self.hellos_sent += 1
                for other in self.hosts:
                    if other is not host and other.alive:
                        self._send(order.link, host, other, order.hello, within)
            case Claim():
                self.say(f"{host.name} claims {order.eip} term {order.term}")
                self.promises.claimed(host, order.eip, order.term)
            case Withdraw():
                self.say(f"{host.name} yields {order.eip}: {order.reason.value}")
                if order.reason is Yielded.DRAINED:
                    self.promises.disturbed()  # it waited for a successor as long as it was promised
                self.promises.changed(order.eip)
            case Announce():
                self._announce(host, order, _REPEAT)
            case WriteRecord():
                self.api.write(host, order)
            case Listen():
                self.say(f"{host.name} was away, listens")
                host.waiting = [entry for entry in host.waiting if entry[0] == _OTHER]

    def _announce(self, host: Host, order: Announce, repeat: float | None) -> None:
        for eip in order.eips:
            if host.answers(eip):
                self.promises.announced(host, eip, order.link)
        if repeat is not None:
            self.after(repeat, lambda: self._announce(host, order, None))

    def _send(self, link: int, host: Host, other: Host, hello: Hello, within: set[int]) -> None:
        if not self.hears(link, host.index, other.index) or self.random.random() < self.schedule.loss:
            within.discard(other.index)
            return
        event = HelloHeard(link, hello)

        def arrive() -> None:
            if self.hears(link, host.index, other.index):
                other.tell(event)
            else:
                within.discard(other.index)

        self.after(self.random.uniform(0.0001, self.schedule.delay), arrive)
        if self.schedule.duplication and self.random.random() < self.schedule.duplication:
            self.after(self.random.uniform(0.0001, 3 * self.schedule.delay), arrive)

    def _ask(self) -> None:
        eip, asked_at = self.random.choice(self.eips), self.now
        for host in self.hosts:
            if not host.cables_out[self.link_of(eip)]:
                host.do(lambda host=host: self._asked(host, eip, asked_at), _REQUEST)  # type: ignore[misc]
        self.after(self.random.uniform(0.01, 0.06), self._ask)

    def _asked(self, host: Host, eip: IPAddress, asked_at: float) -> None:
        if host.machine.answers(eip, asked_at, self.now):
            self.promises.answered(host, eip, asked_at)

    # ── Faults: each works, and is undone after ``lasts`` ─────────────────────────────────────────────────────

    def inflict(self, fault: Fault) -> None:
        self.say(f"# {str(fault).split(' ', 1)[1]}")
        hosts = [self.hosts[n] for n in fault.nodes]
        match fault.kind:
            case Kind.PARTITION:
                self.cut(self._across(fault.nodes), fault.link, fault.lasts)
            case Kind.WRONG_KEY:
                self.cut([p for n in fault.nodes for p in self._across((n,))], None, fault.lasts)
            case Kind.ONE_WAY:
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

    def boot(self, host: Host) -> None:
        host.life += 1
        host.alive, host.frozen_at, host.waiting, host.draining, host.wake_at = True, None, [], False, -1.0
        life = 1000 - 7 * host.life if self.schedule.clock_back else host.life

        def incarnate(above: Incarnation) -> Incarnation:
            return Incarnation((max(life, (above >> 31) + 1) << 31) | self.random.getrandbits(31))

        schedule = self.schedule
        host.machine = self.make(
            host.name, incarnate, self.now, times=schedule.times, api=schedule.api, per_hello=schedule.per_hello
        )
        self.say(f"{host.name} boots")
        for link in self.links:
            host.tell(LinkChanged(link, up=not host.cables_out[link]))
        for eip in self.eips:
            self._tell_eligibility(host, eip)
        if schedule.api:
            self.api.session(host)

    def _tell_eligibility(self, host: Host, eip: IPAddress) -> None:
        host.tell(EligibilityChanged(eip, None if eip in host.ineligible else self.link_of(eip)))

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
        keys = [(n, a, b) for a, b in pairs for n in ([link] if link is not None else self.links)]
        for key in keys:
            self.cuts[key] += 1

        def heal() -> None:
            self.last_cut = self.now
            for key in keys:
                self.cuts[key] -= 1
                if not self.cuts[key]:
                    self.heard_since[key] = self.now

        self._later(lasts, heal)

    def _across(self, group: tuple[int, ...]) -> list[tuple[int, int]]:
        others = [h.index for h in self.hosts if h.index not in group]
        return [pair for a in group for b in others for pair in ((a, b), (b, a))]

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

    def drain(self, host: Host, lasts: float = FOR_GOOD) -> None:
        if not host.alive:
            return
        host.draining, life = True, host.life
        self.promises.disturbed()
        host.tell(Drain())

        def restart() -> None:
            if host.alive and host.life == life:
                self.crash(host)
                self.boot(host)

        self._later(lasts, restart)

    def veto(self, host: Host, eip: IPAddress, lasts: float = FOR_GOOD) -> None:
        def change(eligible: bool) -> None:
            (host.ineligible.discard if eligible else host.ineligible.add)(eip)
            self.promises.disturbed()
            self._tell_eligibility(host, eip)

        change(False)
        self._later(lasts, lambda: change(True))

    def pull_cable(self, host: Host, link: int | None = None, lasts: float = FOR_GOOD) -> None:
        links = [link] if link is not None else list(self.links)

        def change(by: int) -> None:
            self.promises.disturbed()
            for n in links:
                host.cables_out[n] += by
                for other in self.hosts:
                    self.heard_since[n, host.index, other.index] = self.now
                    self.heard_since[n, other.index, host.index] = self.now
                host.tell(LinkChanged(n, up=not host.cables_out[n]))

        change(1)
        self._later(lasts, lambda: change(-1))

    def replay(self, sender: Host, receiver: Host, lasts: float) -> None:
        """Only what reached the receiver, or would have: bringing what was lost would be a slow network, no replay."""
        for link, hello, within in list(sender.sent):
            if receiver.index not in within:
                continue
            event = HelloHeard(link, hello)
            self.after(self.random.uniform(0, lasts), lambda event=event: receiver.tell(event))  # type: ignore[misc]
