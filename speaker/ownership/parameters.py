"""The times that make failover fast and safe, each with the reason why it must be so. Pure.

Always in seconds. ``docs/ownership.md`` says what they are for. ``Parameters.for_hello`` scales times that depend on
the hello interval, and not those that depend on the API server.
"""

from dataclasses import dataclass
from math import inf
from typing import Self

from speaker.errors import SettingError

NEVER, FOREVER = -inf, inf
_DEFAULT_HELLO = 0.1


@dataclass(frozen=True, slots=True)
class Parameters:
    """A set that cannot work is refused with a ``SettingError`` that names the broken rule."""

    hello: float = _DEFAULT_HELLO
    """Between two hellos of a node on a link."""
    suspect: float = 0.21
    """A peer silent for this long is probed."""
    probe: float = 0.04
    """Between probes of one suspect."""
    dead: float = 0.32
    """A peer nobody heard for this long is dead."""
    disputed: float = 2.0
    """How long the result of a first probe counts: a little longer than until the next (``layer2/holdings.py``)."""
    touch: float = 5.0
    """How long a node whose peers are all gone counts as in touch with the LAN after another host's frame."""
    slot: float = 0.02
    """Between claimants of neighbouring rank."""
    ranks: int = 3
    """The highest rank that waits longer than the one before it."""
    pace: float = 0.005
    """The shortest time between two hellos sent out of turn: many claims in a row share a frame."""
    record_timeout: float = 2.0
    """For one write of a record; the API server counts as down after it. Nothing that clients notice waits for one."""
    first_list: float = 0.2
    """At boot, the longest wait for existing records: they say who may hold EIPs without being heard."""
    record_grace: float = 0.35
    """How long a holder leaves a record alone that names a peer which it hears, but which does not claim the EIP."""
    record_stale: float = 60.0
    """The same for a node that it does not hear: that node may hold the EIP for others, and write as well."""
    writes: int = 8
    """Records written at a time: the API server has others to serve."""
    self_lease: float = 0.2
    """Answers are given until this long after the last hello was sent."""
    request_age: float = 0.05
    """Requests that waited longer in the kernel are dropped unanswered (by the wire's edge)."""
    listen: float = 0.4
    """After boot, link up or a freeze: hear everyone before claiming."""
    sync: float = 1.5
    """At boot, the longest wait for peers whose claims are not all known yet."""
    yielded: float = 1.0
    """How long a yielded (EIP, term), or a changed claim, is repeated in hellos."""
    drain: float = 3.0
    """The longest time for which a draining node answers for an EIP that nobody takes."""
    moves_a_hello: int = 4
    """Moves that a rebalancing node asks for in one hello interval: neighbours learn new MACs, connections move."""
    move_patience: float = 1.0
    """How long a move is asked for before it counts as refused."""
    linger: float = 3.0
    """How long forwarding goes on after an EIP was given away: neighbours are still switching over."""
    lease: float = 40.0
    """Session Lease duration; renewed every ``renew``. It matters only to nodes that never heard anybody."""
    renew: float = 15.0
    """Seldom, as each renewal is a request to the API by every node, for as long as the cluster exists."""
    alone: bool = False
    """There are no other nodes, so rules about them do not apply."""

    def __post_init__(self) -> None:
        for holds, rule in self._rules():
            if not holds and not self.alone:
                raise SettingError(f"ownership parameters: {rule}")

    def _rules(self) -> tuple[tuple[bool, str], ...]:
        return (
            (self.hello > 0 and self.slot > 0 and self.probe > 0, "hello, slot and probe must be above 0"),
            (self.suspect > 2 * self.hello, "suspect must be above 2 x hello: one lost hello is no suspicion"),
            (
                self.dead >= self.suspect + 2 * self.probe,
                "dead must be at least suspect + 2 x probe: two probes, and time for their answers",
            ),
            (self.dead > 3 * self.hello, "dead must be above 3 x hello: it must not race the third hello"),
            (
                1.5 * self.hello <= self.self_lease <= self.dead - self.hello,
                "self_lease must be between 1.5 x hello (or jitter yields) and dead - hello (a peer that lost one "
                "hello declares us dead no sooner)",
            ),
            (self.request_age < self.self_lease, "request_age must be below self_lease"),
            (self.listen > self.dead, "listen must be above dead: a node that is silent for that long is not there"),
            (self.touch > 2 * self.dead, "touch must be above 2 x dead: the frames that it waits for are asked for"),
            (
                self.record_grace > 2 * self.hello,
                "record_grace must be above 2 x hello: a claim comes before its record",
            ),
            (self.record_stale > 5 * self.record_timeout, "record_stale must be above 5 x record_timeout"),
            (self.yielded >= 5 * self.hello, "yielded must be at least 5 x hello: it has to survive loss"),
            (self.pace < self.slot, "pace must be below slot: a claim must be heard before the next rank claims"),
            (self.slot < self.hello, "slot must be below hello"),
            (self.moves_a_hello > 0, "moves_a_hello must be above 0"),
            (self.writes > 0, "writes must be above 0"),
            (self.move_patience >= 5 * self.hello, "move_patience must be at least 5 x hello: requests are lost"),
            (self.drain > self.listen, "drain must be above listen"),
            (self.lease > 2 * self.renew, "lease must be above 2 x renew: one lost renewal is no death"),
        )

    @classmethod
    def for_hello(cls, hello: float) -> Self:
        """The defaults scaled to a hello interval in seconds; times of the API server stay as they are."""
        by = hello / _DEFAULT_HELLO
        return cls(
            hello=hello,
            suspect=0.21 * by,
            probe=0.04 * by,
            dead=0.32 * by,
            touch=max(5.0, 50 * hello),
            slot=0.02 * min(by, 1.0),
            pace=0.005 * min(by, 1.0),
            self_lease=0.2 * by,
            request_age=0.05 * min(by, 1.0),
            record_grace=max(0.35, 3 * hello),
            listen=0.4 * by,
            sync=max(1.5, 15 * hello),
            yielded=max(1.0, 10 * hello),
            drain=max(3.0, 10 * hello),
            move_patience=max(1.0, 10 * hello),
        )

    @classmethod
    def for_one(cls) -> Self:
        """For a node without peers: nobody has to be heard before a claim, and nobody claims anything while it stands
        still."""
        return cls(alone=True, hello=0.25, listen=0.0, self_lease=inf, request_age=inf)

    @property
    def worst_failover(self) -> float:
        """From a crash to the last claim; allows for one more lost hello (see docs/failover.md)."""
        return self.dead + (self.ranks + 1) * self.slot + self.hello
