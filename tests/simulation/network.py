"""The LANs: which frames pass between which stations, and how hellos travel."""

from collections import Counter
from collections.abc import Collection, Iterable
from random import Random

from simulation.clock import Clock
from simulation.host import Host, Payload
from simulation.schedule import Schedule
from speaker.model import IPAddress
from speaker.ownership.hello import Hello

_BACK_TO_BACK = 10e-6
"""Seconds between two frames of 1,500 bytes at 1 Gbit/s, rounded down."""

Path = tuple[int, int, int]
"""(link, from, to); between stations of any kind."""


class Network:
    """``link_of``: EIP → the link that it is on."""

    def __init__(
        self, clock: Clock, schedule: Schedule, random: Random, hosts: list[Host], link_of: dict[IPAddress, int]
    ) -> None:
        self._clock, self._schedule, self._random = clock, schedule, random
        self.hosts, self.link_of, self.links = hosts, link_of, schedule.link_numbers
        self.cuts: Counter[Path] = Counter()
        """How many faults cut it."""
        self.unflooded: Counter[Path] = Counter()
        """How many faults let everything pass there but broadcasts."""
        self.mute: Counter[tuple[int, int]] = Counter()
        """(link, host) → how many faults keep its answers from leaving."""
        self.throttled: Counter[tuple[int, int]] = Counter()
        """(link, host) → how many faults let but few of its frames leave that are no hellos."""
        self.unasked: Counter[tuple[int, int]] = Counter()
        """(link, host) → how many faults keep all broadcasts from it that are no hellos."""
        self.eaten: Counter[Path] = Counter()
        """How many faults let everything pass there but hellos."""
        self.lossy: dict[Path, float] = {}
        """Which share of the frames is lost there."""
        self.strangers: Counter[tuple[int, int]] = Counter()
        """(from, to) → how many faults keep the one's key from the other."""
        self.bursts: list[tuple[float, frozenset[int]]] = []
        """Seconds between two deliveries, and between which hosts; none: all that there is on the LAN."""
        self.heard_since: dict[Path, float] = {}
        self.overtaken: dict[Path, float] = {}
        """When a hello last came too late to be heard, with claims that the newer one left out."""
        self.last_cut = -1.0
        """When some hellos last began to be heard again."""
        self.hellos_sent = 0
        self._newest: dict[Path, Hello] = {}
        self._last_arrival: dict[Path, float] = {}
        self._bursts: dict[Path, tuple[bool, float]] = {}
        """Whether frames are lost there, and until when."""
        self._arrives = self.believes if schedule.mtu is None else self.carries_hellos

    # ── Who hears whom ────────────────────────────────────────────────────────────────────────────────────────

    def carries(self, link: int, sender: int, receiver: int) -> bool:
        """Whether a frame that leaves arrives. ``sender`` and ``receiver``: stations of any kind."""
        return not self.cuts or not self.cuts.get((link, sender, receiver))

    def floods(self, link: int, sender: int, receiver: int) -> bool:
        """As ``carries``, a broadcast that is no hello."""
        path = link, sender, receiver
        unflooded = self.unflooded and self.unflooded.get(path)
        return not unflooded and not (self.unasked and self.unasked.get((link, receiver))) and self.carries(*path)

    def carries_hellos(self, link: int, sender: int, receiver: int) -> bool:
        return not (self.unflooded and self.unflooded.get((link, sender, receiver))) and self.carries_direct(
            link, sender, receiver
        )

    def carries_direct(self, link: int, sender: int, receiver: int) -> bool:
        """Hellos by unicast."""
        path = link, sender, receiver
        return not (self.cuts and self.cuts.get(path)) and not (self.eaten and self.eaten.get(path))

    def believes(self, link: int, sender: int, receiver: int) -> bool:
        """Whether a hello counts, too."""
        return self.carries_hellos(link, sender, receiver) and not (
            self.strangers and self.strangers.get((sender, receiver))
        )

    def hears(self, link: int, sender: int, receiver: int) -> bool:
        return self.believes(link, sender, receiver) and not self.hosts[sender].mute.get(link)

    # ── What faults do to it ──────────────────────────────────────────────────────────────────────────────────

    def those(self, link: int | None) -> list[int]:
        return [link] if link is not None else list(self.links)

    def mend(self, spoilt: Counter[Path], paths: Collection[Path]) -> None:
        """One fault less keeps frames from passing; ``spoilt``: ``cuts`` or ``eaten``."""
        spoilt.subtract(paths)
        self.heard_again([path for path in paths if not spoilt[path]])

    def heard_again(self, paths: Iterable[Path]) -> None:
        self.last_cut = self._clock.now
        self.heard_since.update(dict.fromkeys(paths, self._clock.now))

    # ── Hellos ────────────────────────────────────────────────────────────────────────────────────────────────

    def broadcast(self, host: Host, link: int, payload: Payload) -> None:
        arrives = self._arrives
        within = {o.index for o in self.hosts if arrives(link, host.index, o.index)}
        host.sent.append((self._clock.now, link, payload, within))
        self.hellos_sent += 1
        for other in self.hosts:
            if other is not host and other.alive:
                self._send(link, host, other, payload, within)

    def direct(self, host: Host, link: int, payload: Payload, other: Host) -> None:
        """By unicast: one that is lost is nobody's concern."""
        path = link, host.index, other.index

        def arrive() -> None:
            if self.carries_direct(*path) and not self.strangers.get((host.index, other.index)):
                other.hear(link, payload)

        if other.alive and self.carries_direct(*path) and not self.lost(*path):
            self._clock.at(self._arrival(link, host, other), arrive)

    def _send(self, link: int, host: Host, other: Host, payload: Payload, within: set[int]) -> None:
        if other.index not in within or self.lost(link, host.index, other.index):
            within.discard(other.index)
            return

        def arrive() -> None:
            if self._arrives(link, host.index, other.index):
                if isinstance(payload, Hello):
                    self._note_overtaken((link, host.index, other.index), payload)
                other.hear(link, payload)
            else:
                within.discard(other.index)

        self._clock.at(self._arrival(link, host, other), arrive)
        if self._schedule.duplication and self._random.random() < self._schedule.duplication:
            self._clock.after(self._random.uniform(0.0001, 3 * self._schedule.delay), arrive)

    def lost(self, link: int, sender: int, receiver: int) -> bool:
        """Whether chance takes this one."""
        schedule = self._schedule
        if self.lossy and self._random.random() < self.lossy.get((link, sender, receiver), 0.0):
            return True
        if not schedule.burst and not schedule.lossy:
            return self._random.random() < schedule.loss
        share = schedule.loss + sum(more for a, b, more in schedule.lossy if (a, b) == (sender, receiver))
        if not schedule.burst:
            return self._random.random() < share
        return 0 < share < 1 and self._in_burst((link, sender, receiver), share)

    def _in_burst(self, path: Path, share: float) -> bool:
        """Good times and bad ones take turns (Gilbert's channel), so that ``share`` of the time is bad."""
        lost, until = self._bursts.get(path, (True, 0.0))
        while until <= self._clock.now:
            lost = not lost
            mean = self._schedule.burst if lost else self._schedule.burst * (1 - share) / share
            until += self._random.expovariate(1 / mean)
        self._bursts[path] = lost, until
        return lost

    def _arrival(self, link: int, host: Host, other: Host) -> float:
        """Messages overtake each other. Frames do not: bridges keep the order between two stations (IEEE 802.1Q,
        6.5.3), and the parts of a message leave in one go."""
        when = self.delivered(self._clock.now + self._random.uniform(0.0001, self._schedule.delay), host, other)
        if self._schedule.mtu is not None:
            path = link, host.index, other.index
            when = self._last_arrival[path] = max(when, self._last_arrival.get(path, 0.0) + _BACK_TO_BACK)
        return when

    def delivered(self, at: float, *hosts: Host) -> float:
        """When a frame between these arrives that would ``at``."""
        for hold, those in self.bursts:
            if not those or (hosts and those.issuperset(host.index for host in hosts)):
                at = (int(at / hold) + 1) * hold + _BACK_TO_BACK
        return at

    def _note_overtaken(self, path: Path, hello: Hello) -> None:
        """Who was overtaken is not heard any more (rule 5): where it had more to tell, that is as good as lost."""
        newest = self._newest.get(path)
        if newest is None or hello.stamp > newest.stamp:
            self._newest[path] = hello
        elif hello.incarnation == newest.incarnation and not hello.claims.keys() <= newest.claims.keys():
            self.overtaken[path] = self._clock.now
