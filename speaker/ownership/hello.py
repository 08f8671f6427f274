"""Hello: what a speaker tells its peers on a link (rules 1 to 5), and its bytes. Pure."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from speaker.model import MAX_TERM, IPAddress, rank
from speaker.model import Addresses as Addresses
from speaker.model import Incarnation as Incarnation

Terms: TypeAlias = Mapping[IPAddress, int]
"""EIP → term; terms are 1 to MAX_TERM."""

MAX_INCARNATION = 2**63 - 1
_LOW = 31

MAX_AGE = 0xFFFF
"""ms; a greater age is sent as this value."""


class Listed(dict[IPAddress, int]):
    """Terms that many hellos in a row contain and that never change, kept together with the bytes written for them."""

    __slots__ = ("framed", "written")

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.written: object = None
        self.framed: object = None
        """Known only to the code that wrote it."""


def next_term(term: int) -> int:
    """The term after ``term``. MAX_TERM is followed by itself: then only the score decides (rule 8)."""
    return min(term + 1, MAX_TERM)


def has_next(life: Incarnation) -> bool:
    """Whether there can be a life above it. No clock reaches the last ones: somebody made them up."""
    return life >> _LOW < MAX_INCARNATION >> _LOW


def incarnation(order: int, randomness: int) -> Incarnation:
    """The incarnation of a node that starts: ``order`` is the seconds since 1970, ``randomness`` any number of 31 bits
    or more."""
    return Incarnation(min(order, MAX_INCARNATION >> _LOW) << _LOW | randomness & (1 << _LOW) - 1)


def order(life: Incarnation) -> int:
    """The ``order`` in it."""
    return life >> _LOW


def above(known: Incarnation, randomness: int) -> Incarnation:
    """Higher than the life that a peer knows us by, because our clock is behind the one we had before (rule 5)."""
    return incarnation((known >> _LOW) + 1, randomness)


@dataclass(frozen=True, slots=True)
class Span:
    """Addresses ``first`` to ``last`` inclusive; IPv4 comes before IPv6, so one span can hold both families."""

    first: IPAddress
    last: IPAddress

    def __contains__(self, address: IPAddress) -> bool:
        return rank(self.first) <= rank(address) <= rank(self.last)


EVERYTHING = Span(IPv4Address(0), IPv6Address(2**128 - 1))


@dataclass(frozen=True, slots=True)
class Digest:
    """How many claims a node has, and the sum modulo 2⁶⁴ of their ``score.claim_hash``; updated claim by claim."""

    count: int = 0
    sum: int = 0


class Heard(NamedTuple):
    """What the sender knows of a peer.

    ``age``: ms between when it last heard the peer and when this was sent, at most MAX_AGE. ``link``: the
    ``Hello.link`` of that frame. A peer whose frames it refuses (rule 5) is listed with the incarnation it knows and
    MAX_AGE.
    """

    incarnation: Incarnation
    age: int
    link: int = 0


class Accused(NamedTuple):
    """Nobody answers for what ``node`` holds of one IP ``version``."""

    node: str
    version: int


_NONE: Mapping[Any, Any] = MappingProxyType({})


class Hello(NamedTuple):
    """One message. ``frames.encode`` makes as many frames of it as the link's MTU requires, each readable without the
    others.

    The absence of a claim means something only inside ``covers``. An EIP or peer that is absent from ``intents``,
    ``yielded`` ``heard``, ``lost``, ``weights`` or ``own`` may be in another part, so these are added to what was heard
    before, and never replace it.
    """

    node: str
    """Node name, 1 to 253 bytes of UTF-8."""
    incarnation: Incarnation
    sequence: int
    """Of this incarnation, from 0; grows by one for every message sent on any link."""
    clock: int
    """ms of the sender's CLOCK_BOOTTIME when it was sent. Never compared with another machine's clock."""
    digest: Digest = Digest()
    """Of everything that the sender claims, listed here or not."""
    draining: bool = False
    deaf: bool = False
    """The sender hears nothing on the link that this is sent on: its claims there bind nobody."""
    demoted: bool = False
    """For a soft reason (its gateway is silent, it is not Ready) the sender claims after nodes without one."""
    recalled: bool = False
    """The sender uses what the API said before its start: it may know no more than other nodes that are starting."""
    headless: bool = False
    """The sender has no working main process, and goes on with what it was last asked for."""
    routine: bool = False
    """It repeats what the sender said before: a receiver may leave it unread until its own next beat (rule 1)."""
    direct: bool = False
    """Sent to one peer alone, by unicast, as none of our broadcasts reaches it (rule 36)."""
    links: int = 0
    """How much the sender's sequence grows from one hello to the next on each link: two for each link that it uses. 0:
    not said."""
    interval: int = 0
    """ms between two hellos of the sender, 1 to 65535; 0 is unknown."""
    revision: int = 0
    """Revision of the sender's installation, 0 to 2³²-1: in a rolling upgrade EIPs go to nodes with a higher one, so
    that each moves once. 0 is unknown."""
    claims: Terms = _NONE
    """Held now: all claims inside ``covers``, and any changed ones outside it."""
    weak: frozenset[IPAddress] = frozenset()
    """Those of ``claims`` that may have been made without knowing of another claim (rule 18). If that holder held on,
    they yield to it, whatever their terms."""
    covers: Span | None = None
    """An EIP inside that is not in ``claims`` is not claimed. EVERYTHING: the claims are complete. None: no absence
    means anything (only a digest, or changes)."""
    intents: Terms = _NONE
    """About to be claimed at this term. Sent by speakers before 1.3; no longer read."""
    yielded: Terms = _NONE
    """Let go at this term, or for a better claim of this term (rule 19): a claim of the sender at this term or a lower
    one is over, whatever ``covers`` says."""
    heard: Mapping[str, Heard] = _NONE
    """By node name."""
    lost: Mapping[str, int] = _NONE
    """Node → the percentage of its hellos that the sender lost recently, if that is worth mentioning (rule 40)."""
    probes: frozenset[str] = frozenset()
    """Nodes asked to send a hello at once (rule 6)."""
    wants: frozenset[str] = frozenset()
    """Nodes asked for all their claims, because what the sender knows does not match their digest."""
    weights: Mapping[int, int] = _NONE
    """Number of a preference → how much the sender is preferred on this link (rule 41): 1 to 65535; a missing
    one is 0."""
    weighs: bool = True
    """The sender heeds preferences; speakers of a minor version before 6 go only by the score."""
    moves: Mapping[IPAddress, str] = _NONE
    """Requests to the named nodes: claim this EIP, make before break (rebalance)."""
    unanswered: frozenset[Accused] = frozenset()
    """Peers that answered none of the sender's questions for what they hold (rule 37)."""
    addresses: Addresses = ()
    """Where to send packets that only the sender's kernel can forward. In one of the parts."""
    own: frozenset[IPAddress] = frozenset()
    """Addresses bound on the link that this is sent on: they are no EIPs for anybody."""
    link: int = 0
    """The sender's own number (ifindex) of the link that this is sent on. Peers echo it in ``heard``, so a frame sent
    on one link and replayed on another does not prove that it was heard there."""
    group: str = ""
    """Name of the sender's group; "": none."""
    part: int = 0
    """Which part of message ``sequence`` this is; set by ``frames.encode``."""

    @property
    def stamp(self) -> tuple[Incarnation, int, int]:
        """Grows with every frame of a node; a frame whose stamp is not above the last was replayed, doubled or
        overtaken (rule 5)."""
        return self.incarnation, self.sequence, self.part


# ── A set of EIPs in the order of spans ───────────────────────────────────────────────────────────────────────


def _rank(entry: tuple[tuple[int, int], IPAddress]) -> tuple[int, int]:
    return entry[0]


class Ordered:
    """A set of EIPs. The caller knows that an EIP is absent before adding it, and present before removing it."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: list[tuple[tuple[int, int], IPAddress]] = []

    def add(self, eip: IPAddress) -> None:
        insort(self._entries, (rank(eip), eip))

    def remove(self, eip: IPAddress) -> None:
        del self._entries[bisect_left(self._entries, rank(eip), key=_rank)]

    def has(self, version: int) -> bool:
        """Whether there is one of that IP version. IPv4 sorts first."""
        return bool(self._entries) and self._entries[0 if version == 4 else -1][1].version == version

    def within(self, span: Span) -> list[IPAddress]:
        first = bisect_left(self._entries, rank(span.first), key=_rank)
        end = bisect_right(self._entries, rank(span.last), key=_rank)
        return [eip for _, eip in self._entries[first:end]]

    def since(self, first: IPAddress, count: int) -> tuple[list[IPAddress], bool]:
        """The next ``count`` from ``first`` on, and whether there are more after them."""
        start = bisect_left(self._entries, rank(first), key=_rank)
        return [eip for _, eip in self._entries[start : start + count]], start + count < len(self._entries)
