"""A small world in which nothing happens by chance, and what may happen next is asked of whoever plays it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from heapq import heapify
from itertools import permutations
from random import Random
from typing import Any

from simulation.exploring.canonical import EPOCH, PAST, Canon
from simulation.host import REQUEST, Host, Make
from simulation.network import Network
from simulation.schedule import FOR_GOOD, Fault, Kind, Limits, Schedule
from simulation.world import World
from speaker.model import IPAddress
from speaker.ownership.machine.machine import Ownership

APART = 0.03
"""Seconds between the beats of two nodes."""
_ENDLESS = FOR_GOOD / 10
"""Seconds that a fault lasts that is ended by choice: one, two, … times as many, so that the ends can be told apart."""
_PER_NODE = (Kind.CRASH, Kind.FREEZE, Kind.DEAF, Kind.MUTE_ALL, Kind.BLACKOUT, Kind.CABLE, Kind.SEND_FAILS)


@dataclass(frozen=True, slots=True)
class Small:
    """``faults`` of any kind may begin in all, and so many ``frames`` may be lost, or late by an interval: hellos, each
    on its way to one node. ``begins``: seconds after the start until something may go wrong."""

    nodes: int = 2
    eips: int = 1
    faults: int = 1
    frames: int = 0
    api: bool = False
    begins: float = 2.0
    kinds: tuple[Kind, ...] = ()
    """None but these; (): all."""

    @property
    def only(self) -> str:
        return f"only {', '.join(kind.value for kind in self.kinds)}" if self.kinds else ""

    @property
    def limits(self) -> Limits:
        """Each hello that is lost or late adds an interval (ownership.md, "Promises")."""
        more = 0.1 * self.frames
        return Limits(
            one_answer=None if not self.frames else 0.12 + more,
            served=0.5 + more,
            crash=0.5 + more if self.faults < 2 else None,
            wire_answer=(0.25 if self.nodes == 2 else 0.12) + more,
            no_cause=self.frames <= 2,
            heal_moves=not self.frames,
            unanswered=1.5 + more,
            causeless=False,
        )

    @property
    def schedule(self) -> Schedule:
        api = {"api": self.api, "api_delay": (0.0, 0.0), "watch_delay": 0.01}
        return Schedule(0, self.nodes, self.eips, end=1e9, limits=self.limits, **api)  # type: ignore[arg-type]

    def possible(self) -> tuple[Fault, ...]:
        """Every fault there is; ``at`` and ``lasts`` are chosen later."""
        nodes = range(self.nodes)
        found = [Fault(0.0, kind, (node,)) for kind in _PER_NODE for node in nodes]
        found += [Fault(0.0, Kind.ONE_WAY, pair) for pair in permutations(nodes, 2)]
        if self.nodes == 2:
            found.append(Fault(0.0, Kind.PARTITION, (0,)))
        else:
            found += [Fault(0.0, Kind.PARTITION, (node,)) for node in nodes]
            found += [Fault(0.0, Kind.PAIR, pair) for pair in permutations(nodes, 2) if pair[0] < pair[1]]
        if self.api:
            found += [Fault(0.0, Kind.API_OUTAGE, tuple(nodes))]
        return tuple(fault for fault in found if not self.kinds or fault.kind in self.kinds)


class SmallWorld(World):
    """``decide(what)``: whether ``what`` is to happen now."""

    def __init__(
        self, small: Small, decide: Callable[[str], bool], make: Make = Ownership, trace: bool = False
    ) -> None:
        super().__init__(small.schedule, make, trace)
        self.small, self._decide = small, decide
        self.faults_left, self.frames_left = small.faults, small.frames
        self.ongoing: dict[Fault, float] = {}
        """Fault → when it would end by itself, by the clock."""
        self.changed_at = EPOCH
        """When a fault began or ended last."""
        self.depth = 0
        """Hello intervals since the beginning."""
        self._begun = 0
        self._last_sent: tuple[float, int] = 0.0, 0
        self._possible = small.possible()
        self._begin()

    def _begin(self) -> None:
        dice = self.random = _Dice()
        self.network._random = self.api._random = self.stations._random = dice
        self.network.__class__ = _Network  # the others have it already
        self.network.world = self  # type: ignore[attr-defined]
        self.clock.now = EPOCH
        self.clock._queue.clear()
        for host in self.hosts:
            self.clock.at(EPOCH + host.index * APART, partial(self.boot, host))

    def boot(self, host: Host) -> None:
        self.random.node = host.index + 1  # type: ignore[attr-defined]
        super().boot(host)

    # ── Time ──────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def since(self) -> float:
        """Seconds since the beginning."""
        return self.clock.now - EPOCH

    @property
    def settled(self) -> bool:
        return not self.small.frames and self.clock.now - self.changed_at > PAST

    def go_on(self) -> bool:
        """To the next interval: whether all promises are kept until then."""
        self.depth += 1
        # Between two beats, and between a beat and what follows from it.
        until = EPOCH + (self.depth + 0.95) * self.small.schedule.times.hello
        clock, promises = self.clock, self.promises
        while not promises.broken and clock.step(until):
            promises.check()
        if not promises.broken:
            clock.now = until
            self._look()
        return promises.broken is None

    def _look(self) -> None:
        """What holds at rest, and a request of every client for every EIP."""
        for eip in self.eips:
            self.promises.changed(eip)
            self.promises._check_answered(eip)
            if self.settled and self.since > self.small.begins:
                self.promises._check_settled(eip)
            for place in self.stations.places:
                self._client_asks(place, eip)
        self.promises.check()

    def _client_asks(self, place: int, eip: IPAddress) -> None:
        link, client, asked_at = self.network.link_of[eip], self.stations.client(place), self.clock.now
        self.stations.broadcast(link, client)
        for host in self.hosts:
            if self.network.carries(link, client, host.index):
                host.do(partial(self._asked, host, eip, asked_at), REQUEST)

    def key(self) -> int:
        """Of the state, but for what is left to go wrong."""
        changed = min(round(self.clock.now - self.changed_at, 5), PAST)
        return Canon(self).key(changed, sorted(map(str, self.ongoing)))

    # ── Choices ───────────────────────────────────────────────────────────────────────────────────────────────

    def choose(self) -> None:
        """Of the faults: which end now, and which begin."""
        for fault in list(self.ongoing):
            if self._decide(f"{_named(fault)} ends"):
                self._end(fault)
        for fault in self._beginnable():
            if self.faults_left and self._can_begin(fault) and self._decide(_named(fault)):
                self._inflict(fault)

    def _beginnable(self) -> Iterator[Fault]:
        return iter(self._possible if self.faults_left and self.since > self.small.begins else ())

    def _can_begin(self, fault: Fault) -> bool:
        if fault in self.ongoing:
            return False
        hosts = [self.hosts[node] for node in fault.nodes]
        return fault.kind not in (Kind.CRASH, Kind.FREEZE) or all(h.alive and h.frozen_at is None for h in hosts)

    def _inflict(self, fault: Fault) -> None:
        self._begun += 1
        self.faults_left -= 1
        lasts = _ENDLESS * self._begun
        self.ongoing[fault], self.changed_at = self.clock.now + lasts, self.clock.now
        self.inflict(Fault(self.clock.now, fault.kind, fault.nodes, lasts))

    def _end(self, fault: Fault) -> None:
        due, self.changed_at = self.ongoing.pop(fault), self.clock.now
        queue = self.clock._queue
        ends = sorted(entry[:2] for entry in queue if abs(entry[0] - due) < 1)
        works = {entry[:2]: entry[2] for entry in queue}
        queue[:] = [entry for entry in queue if entry[:2] not in ends]
        heapify(queue)
        self.trace.say(f"# {_named(fault)} ends")
        for end in ends:
            works[end]()

    def frame(self, sender: int, receiver: int) -> str:
        """What becomes of a hello: "" if it arrives."""
        if not self.frames_left or self.since < self.small.begins:
            return ""
        for fate in ("lost", "late"):
            if self._decide(f"n{sender} to n{receiver} {fate}"):
                self.frames_left -= 1
                return fate
        return ""


def _named(fault: Fault) -> str:
    return f"{fault.kind.value} {','.join(f'n{node}' for node in fault.nodes)}"


class _Dice(Random):
    """Always the same."""

    node = 0
    """Whose life begins."""

    def uniform(self, a: float, b: float) -> float:
        return a

    def random(self) -> float:
        return 0.5

    def getrandbits(self, k: int, /) -> int:
        return self.node

    def choice(self, seq: Any) -> Any:
        return seq[0]


class _Network(Network):
    world: SmallWorld

    def lost(self, link: int, sender: int, receiver: int) -> bool:
        self._fate = self.world.frame(sender, receiver)
        return self._fate == "lost"

    def _arrival(self, link: int, host: Host, other: Host) -> float:
        when = super()._arrival(link, host, other)
        return when + self._schedule.times.hello if self._fate == "late" else when
