"""A node: its machine, and what stands between it and the world."""

from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from random import Random
from typing import TypeAlias

from simulation.clock import Clock
from simulation.owner import Deeds, Owner
from simulation.schedule import Schedule
from simulation.wire import Port, key
from speaker.model import IPAddress
from speaker.ownership.events import EipAnswered, EligibilityChanged, Event, FrameHeard, HelloHeard, LinkChanged, Tick
from speaker.ownership.hello import Hello, Incarnation
from speaker.ownership.hellos import frames
from speaker.ownership.hellos.keys import Keys
from speaker.ownership.machine.machine import Ownership

HELLO, REQUEST, OTHER = range(3)
"""The order in which what waited is looked at after a freeze (rule 28)."""
_RECORDED = 400
"""Frames of each node that a replayer has at hand."""
_PPM = 200e-6
"""How wrong a clock may run."""

Payload: TypeAlias = Hello | bytes
Make: TypeAlias = Callable[..., Ownership]
"""As the class itself: a test may give one with wrong rules."""


def _wakes_nobody(payload: Payload) -> bool:
    """As the kernel's filters tell."""
    if isinstance(payload, Hello):
        return payload.routine
    return len(payload) > frames.FLAGS_AT and bool(payload[frames.FLAGS_AT] & frames.ROUTINE)


class Host:
    """``deeds``: what the orders of its machine do outside of it."""

    def __init__(
        self,
        schedule: Schedule,
        index: int,
        time: Clock,
        link_of: dict[IPAddress, int],
        deeds: Callable[["Host"], Deeds],
    ) -> None:
        self.index = index
        self._schedule, self._time, self._link_of, self._deeds = schedule, time, link_of, deeds(self)
        clock = Random(f"clock {schedule.seed} {index}")
        drifts = schedule.drift
        self._offset, self._rate = (clock.uniform(0, 1e6), clock.uniform(1 - _PPM, 1 + _PPM)) if drifts else (0.0, 1.0)
        self.name = f"n{index}" if schedule.mtu is None else f"n{index}-{clock.randbytes(60).hex()}"
        self.own_keys = Keys(key("first"))
        self.wrong_keys = 0
        """How many faults have it use a key of nobody else's."""
        self.ports: dict[int, Port] = {}
        self.life = 0
        self.alive = False
        self.machine: Ownership
        self.owner: Owner
        self.frozen_at: float | None = None
        self.thawed: tuple[float, float] = (-1.0, -1.0)
        """When it froze last, and until when."""
        self.waiting: list[tuple[int, Callable[[], None]]] = []
        self.unread: list[tuple[float, int, Payload]] = []
        """Routine hellos, which wake nobody: when each arrived by the host's clock, the link, and what it is."""
        self.unread_answers: list[FrameHeard | EipAnswered] = []
        """To what it asks at its beats, which wake nobody either."""
        self.answers_read_at = 0.0
        """By its clock."""
        self.wake_at = -1.0
        self.api_cuts = 0
        self.api_stale = 0
        self.ineligible: set[IPAddress] = set()
        self.cables_out: Counter[int] = Counter()
        self.times = schedule.times_of(index)
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
        self.told_at: dict[tuple[int, bool], float] = {}
        """Link, and whether a broadcast → when it was last told of a frame."""
        self.macs: set[tuple[int, str]] = set()
        """(link, node) whose MAC it knows from a hello."""
        self.probing: dict[IPAddress, object] = {}
        """What it claims and answers only once nobody else is found to."""
        self.failed: set[int] = set()
        """Links whose hello socket is being opened again."""
        self.left_at: dict[int, float] = {}
        """Link → when a hello last left, by the host's clock."""
        self.opened_at: dict[int, float] = {}
        """Link → when its hello socket was opened again, by the host's clock."""
        self.draining = False
        self.revision = 0
        """Of what is installed there from its next start on."""
        self.sent: deque[tuple[float, int, Payload, set[int]]] = deque(maxlen=_RECORDED)
        """(when, link, what, the nodes on whose side of the LAN it could be recorded)."""

    # ── A life ────────────────────────────────────────────────────────────────────────────────────────────────

    def boot(self, make: Make, random: Random) -> None:
        self.life += 1
        self.alive, self.frozen_at, self.waiting, self.draining, self.wake_at = True, None, [], False, -1.0
        self.unread, self.unread_answers = [], []
        schedule = self._schedule
        life = 1000 - 7 * self.life if schedule.clock_back else self.life

        def incarnate(above: Incarnation) -> Incarnation:
            return Incarnation((max(life, (above >> 31) + 1) << 31) | random.getrandbits(31))

        self.answers_read_at = self.clock()
        self.machine = make(
            self.name,
            incarnate,
            self.clock(),
            times=self.times,
            api=schedule.api,
            per_hello=schedule.per_hello,
            revision=self.revision,
        )
        self.owner = Owner(self.machine, self.clock, schedule.link_numbers, self._deeds)
        self.failed, self.left_at, self.opened_at = set(), {}, {}
        self.asked_at, self.told_at, self.macs, self.probing = {}, {}, set(), {}
        self.ports = {link: Port(self.index, link) for link in schedule.link_numbers}

    def look_around(self, eips: Iterable[IPAddress]) -> None:
        """The machine is told what it finds at its start."""
        for link in self.ports:
            self.tell_link(link)
        for eip in eips:
            self.tell_eligibility(eip)

    def halt(self) -> None:
        self.alive, self.frozen_at, self.waiting = False, None, []
        self.unread, self.unread_answers = [], []

    def thaw(self) -> None:
        assert self.frozen_at is not None
        self.thawed, self.frozen_at = (self.frozen_at, self._time.now), None

    def catch_up(self) -> None:
        """Do what waited through a freeze."""
        self.waiting.sort(key=lambda entry: entry[0])
        while self.waiting and self.alive:
            self.waiting.pop(0)[1]()
        self.tell(Tick())

    def drop_hellos(self) -> None:
        self.waiting = [entry for entry in self.waiting if entry[0] != HELLO]
        self.unread = []

    def drop_requests(self) -> None:
        self.waiting = [entry for entry in self.waiting if entry[0] != REQUEST]

    # ── What its machine is told ──────────────────────────────────────────────────────────────────────────────

    def hear(self, link: int, payload: Payload) -> None:
        """A frame is in the socket's queue."""
        if not self.alive:
            return
        self.unread.append((self.clock(), link, payload))
        if not _wakes_nobody(payload):
            self.do(lambda: self._hear_and_step(Tick()), HELLO)

    def _read_all(self) -> None:
        """What waited, before what it may change is judged."""
        unread, self.unread = self.unread, []
        for arrived_at, link, payload in unread:
            self._read(link, payload, self.clock() - arrived_at)

    def _read_answers(self) -> None:
        answers, self.unread_answers = self.unread_answers, []
        waited, self.answers_read_at = self.clock() - self.answers_read_at, self.clock()
        for event in answers:
            heard = replace(event, age=waited, more=True)
            self.owner.carry_out(self.machine.step(self.clock(), heard))

    def _read(self, link: int, payload: Payload, age: float) -> None:
        hello = payload if isinstance(payload, Hello) else self.ports[link].read(payload, self.keys)
        if hello is None:
            return
        self.macs.add((link, hello.node))
        self.owner.carry_out(self.machine.step(self.clock(), HelloHeard(link, hello, age=age, more=True)))

    def use_keys(self, keys: Keys) -> None:
        """What waits was signed with the keys until now."""
        if self.alive and self.frozen_at is None:
            self.tell(Tick())
        self.own_keys = keys

    def tell_link(self, link: int) -> None:
        self.unread = [waiting for waiting in self.unread if waiting[1] != link]
        self.unread_answers = [waiting for waiting in self.unread_answers if waiting.link != link]
        self.tell(LinkChanged(link, up=self.link_up(link)))

    def tell_eligibility(self, eip: IPAddress) -> None:
        link = self._link_of[eip]
        offered, demoted = None if eip in self.ineligible else link, bool(self.demoted[link])
        preference = self._schedule.preference(self.index, [*self._link_of].index(eip)) if offered else None
        self.do(lambda: self._offer(EligibilityChanged(eip, offered, demoted, preference)))

    def _offer(self, event: EligibilityChanged) -> None:
        self.owner.offer(event.eip, event.link)
        self.tell(event)

    def tell(self, event: Event, order: int = OTHER) -> None:
        if self.alive and self.frozen_at is None:
            self._hear_and_step(event)
        else:
            self.do(lambda: self._hear_and_step(event), order)

    def _hear_and_step(self, event: Event) -> None:
        if isinstance(event, Tick | FrameHeard | EipAnswered) or self.clock() >= self.machine.watch_at:
            self._read_all()
        if isinstance(event, Tick | EipAnswered):
            self._read_answers()
        self.step(event)

    def do(self, work: Callable[[], None], order: int = OTHER) -> None:
        """Now, or once it is no longer frozen."""
        if not self.alive:
            return
        if self.frozen_at is not None:
            self.waiting.append((order, work))
        else:
            work()

    def step(self, event: Event) -> None:
        now = self.clock()
        self.owner.carry_out(self.machine.step(now, event))
        wake = (max(self.machine.next_wake(now), now + 1e-6) - self._offset) / self._rate
        if wake != self.wake_at:
            self.wake_at = wake
            life = self.life
            self._time.at(wake, lambda: self._wake(life, wake))

    def _wake(self, life: int, wake: float) -> None:
        if self.life == life and self.wake_at == wake:
            self.wake_at = -1.0
            self.tell(Tick())

    # ── What it is ────────────────────────────────────────────────────────────────────────────────────────────

    def clock(self, when: float | None = None) -> float:
        """What its clock shows, now or at ``when`` of true time."""
        return self._offset + self._rate * (self._time.now if when is None else when)

    @property
    def keys(self) -> Keys:
        return Keys(key(f"of n{self.index} only")) if self.wrong_keys else self.own_keys

    def answers(self, eip: IPAddress) -> bool:
        """As the orders of its machine have it, whatever the machine itself believes."""
        return self.alive and self.frozen_at is None and self.owner.answers(eip)

    def in_time(self, asked_at: float) -> bool:
        """For an answer to a request that the kernel received at ``asked_at`` (rule 28)."""
        return self.clock() - self.clock(asked_at) <= self.machine.times.request_age

    def link_up(self, link: int) -> bool:
        return not self.cables_out.get(link) and link not in self.failed  # get(): a Counter's [] is slow for nothing

    def may_hold(self, eip: IPAddress) -> bool:
        if not self.alive or self.frozen_at is not None or self.draining:
            return False
        if self.ineligible and eip in self.ineligible:
            return False
        link = self._link_of[eip]
        return self.link_up(link) and not self.mute.get(link) and not self.severed.get(link)
