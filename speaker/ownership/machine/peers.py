"""What one link has told us about the other nodes: who is alive, since when, and what they claim (rules 3 to
6). Pure.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import islice

from speaker.model import IPAddress
from speaker.ownership.hello import MAX_AGE, Accused, Digest, Heard, Hello, Incarnation, Ordered, Terms
from speaker.ownership.machine.loss import SAID, Arrivals, Patience
from speaker.ownership.parameters import NEVER, Parameters
from speaker.ownership.score import claim_hash

MAX_NODES = 1000
"""The most nodes on one link, without ourselves."""
MAX_LEFT = 4096  # EIPs that a node yielded according to another link: the latest are remembered
MAX_WEIGHTS = 64
"""The most preferences of one link for which a node says how much it is preferred."""
MOST_DIRECT = 8
"""The most peers that get one hello by unicast as well."""
FORGOTTEN = 3600.0
"""Seconds for which a node that was heard before is reported. What it said last is kept, as somebody who repeats it
later must not be believed."""
_SUM = 2**64 - 1


class Worth(Enum):
    """What a hello was worth. The value is the metric label."""

    NEWS = "news"
    PROVEN = "proven"
    """The first that names our incarnation: from now on the peer counts as heard."""
    UNPROVEN = "unproven"
    """Does not name our incarnation yet: it may be a recording (rule 5)."""
    REPLAYED = "replayed"
    OLD_LIFE = "old_life"
    OTHER_LINK = "other_link"
    """Sent on another of the peer's links than the earlier ones, and does not say that the peer hears ours: replayed
    here."""
    CROWDED = "crowded"
    """Beyond MAX_NODES: whoever has the key can invent any number of names."""


@dataclass(slots=True)
class Stranger:
    """An incarnation that has not yet proven that it hears us. Echoed in our ``heard``; otherwise it only keeps what
    its record says from a node that nobody hears (rule 12)."""

    stamp: tuple[Incarnation, int, int]
    link: int
    heard_at: float


class Peer:
    """One life of another node, as heard on one of our links, beginning with the hello that named our incarnation."""

    def __init__(self, hello: Hello, now: float) -> None:
        self.node = hello.node
        self.stamp: tuple[Incarnation, int, int] = (hello.incarnation, -1, 0)
        self.link = hello.link
        self.met_at = self.heard_at = self.broadcast_at = now
        """When it was met, when it was last heard, and when it was last heard by broadcast."""
        self.vouched_at = NEVER
        """When somebody else last heard it, by their word."""
        self.answered_at = NEVER
        """When it last answered on the wire for an EIP, by ARP or NDP."""
        self.unanswered: Counter[IPAddress] = Counter()
        """EIP that it claims → questions since it last answered for it, or was heard."""
        self.accuses: frozenset[Accused] = frozenset()
        """According to its last hello (rule 37)."""
        self.weights: Mapping[int, int] = {}
        """Preference → how much it is preferred here (rule 41)."""
        self.weighs = hello.weighs
        self.hears_us_at = NEVER
        """When it last heard us, by its word."""
        self.alive = True
        """As last judged by the machine."""
        self.draining = self.deaf = self.demoted = False
        self.patience = 1.0
        """Its hello interval divided by ours, if it is longer."""
        self.lenience = Patience()
        """Patience with its silences, after some that meant nothing (rule 38)."""
        self.interval = hello.interval
        self.revision = hello.revision
        self.weak: set[IPAddress] = set()
        """Those of its claims that it may have made without knowing of another."""
        self.claims: dict[IPAddress, int] = {}
        self._in_order = Ordered()
        """The same EIPs."""
        self.sum = 0
        self.digest = Digest()
        self.unsynced_since: float | None = now
        self.own: dict[IPAddress, float] = {}
        """Each of its own addresses → when it last said so."""
        self.said_own: tuple[object, object] = None, None
        """What it last said about them, and when that was noted."""
        self.own_noted_at = NEVER
        self.ended: dict[IPAddress, float] = {}
        """EIP → when it last said that it no longer holds it."""
        self.left: dict[IPAddress, int] = {}
        """EIP → the highest term at which it yielded it, according to another link."""
        self.arrivals = Arrivals()
        self.lost: dict[str, int] = {}
        """Node → the percentage of its hellos that this peer loses, by its word."""
        self.left_at = self.stamp
        """The stamp of the hello that last said so."""
        self.probed_at = NEVER
        self.refused_at = NEVER

    @property
    def incarnation(self) -> Incarnation:
        return self.stamp[0]

    @property
    def makes_way(self) -> bool:
        """Its claims bind nobody: it is leaving, it hears nobody who asks for them, or it no longer has a
        carrier here."""
        return self.draining or self.deaf or self.left_at > self.stamp

    def suspect_at(self, times: Parameters) -> float:
        """When we have not heard it for too long."""
        return self.heard_at + self.suspect_after(times)

    def suspect_after(self, times: Parameters) -> float:
        if self.heard_at >= self.lenience.over_at:  # nearly always, and this is called a dozen times at each beat
            return times.suspect * self.patience
        lasts = self.lenience.lasts(self.heard_at)
        return max(times.suspect * self.patience, lasts - 2 * times.probe)

    def missed_at(self, times: Parameters) -> float:
        """When none of its broadcasts has come for too long."""
        return self.broadcast_at + self.suspect_after(times)

    def dies_at(self, times: Parameters) -> float:
        """Unless somebody hears it before then, or it answers for what it holds."""
        return max(self.heard_at, self.vouched_at, self.answered_at) + self.dead_after(times)

    def dead_after(self, times: Parameters) -> float:
        """Seconds of silence after which it is dead."""
        if self.heard_at >= self.lenience.over_at:
            return times.dead * self.patience
        return max(times.dead * self.patience, self.lenience.lasts(self.heard_at))

    def patient_for(self, now: float, times: Parameters) -> int:
        lasts = self.lenience.lasts(now)
        return round(lasts * 1000) if lasts > times.dead * self.patience else 0

    def is_alive(self, now: float, times: Parameters) -> bool:
        return now < self.dies_at(times)

    def is_heard(self, now: float, times: Parameters) -> bool:
        """Heard by ourselves, so what it says about its claims reaches us."""
        return now < self.heard_at + self.dead_after(times)

    def hears_us(self, now: float, times: Parameters) -> bool:
        return now < self.hears_us_at + self.dead_after(times)

    def holds_any(self, version: int) -> bool:
        """It claims an EIP of that IP version."""
        return self._in_order.has(version)

    def synced(self) -> bool:
        return self.digest.count == len(self.claims) and self.digest.sum == self.sum

    def learn(self, hello: Hello) -> set[IPAddress]:
        """Takes over what a hello says about its sender's claims. Returns the EIPs for which anything changed."""
        if hello.digest == self.digest and self.synced() and not (hello.yielded or hello.weak or self.weak):
            return set()  # as it was, which is nearly always
        left = self.left
        claims = {eip: term for eip, term in hello.claims.items() if term > left.get(eip, 0)} if left else hello.claims
        changed = {eip for eip, term in claims.items() if self._claim(eip, term)}
        changed |= self._learn_weak(hello)
        for eip, term in hello.yielded.items():
            if eip not in hello.claims and self.claims.get(eip, term + 1) <= term:
                self._forget(eip, self.heard_at)
                changed.add(eip)
        self.digest = hello.digest
        if hello.covers is not None and not self.synced():
            for eip in self._in_order.within(hello.covers):
                if eip not in hello.claims:
                    self._forget(eip, self.heard_at)
                    changed.add(eip)
        return changed

    def _learn_weak(self, hello: Hello) -> set[IPAddress]:
        """For each claim that it lists, a hello says whether it is weak."""
        if not hello.weak and not self.weak:
            return set()
        weak = {eip for eip in hello.claims if eip in self.claims and eip in hello.weak}
        changed = weak ^ self.weak.intersection(hello.claims)
        self.weak ^= changed
        return changed

    def leave(self, yielded: Terms, stamp: tuple[Incarnation, int, int], now: float) -> set[IPAddress]:
        """It says on another of its links that it yielded these. What it said here before may arrive after that."""
        gone = {eip for eip, term in yielded.items() if self.claims.get(eip, term + 1) <= term}
        self.left |= {eip: max(term, self.left.get(eip, 0)) for eip, term in yielded.items()}
        for eip in [*islice(self.left, max(0, len(self.left) - MAX_LEFT))]:
            del self.left[eip]
        for eip in gone:
            self._forget(eip, now)
        if gone:
            self.left_at = stamp
        return gone

    def deny(self, eip: IPAddress) -> None:
        """By what is seen on the wire, it no longer holds this EIP."""
        self._forget(eip, self.heard_at)
        del self.unanswered[eip]

    def _claim(self, eip: IPAddress, term: int) -> bool:
        old = self.claims.get(eip)
        if old == term:
            return False
        if old is not None:
            self._forget(eip, self.heard_at)
        self._in_order.add(eip)
        self.claims[eip] = term
        self.sum = (self.sum + claim_hash(eip, term)) & _SUM
        return True

    def restore(self) -> None:
        """Its claims were left half changed: everything derived from them is computed again."""
        self._in_order = Ordered()
        for eip in self.claims:
            self._in_order.add(eip)
        self.sum = sum(claim_hash(eip, term) for eip, term in self.claims.items()) & _SUM

    def _forget(self, eip: IPAddress, at: float) -> None:
        self._in_order.remove(eip)
        self.weak.discard(eip)
        self.ended[eip] = at
        self.sum = (self.sum - claim_hash(eip, self.claims.pop(eip))) & _SUM


@dataclass(frozen=True, slots=True)
class PeerState:
    """A node on one of our links, for people to read."""

    node: str
    incarnation: Incarnation
    alive: bool
    """Heard within ``dead``, by us or by somebody we hear."""
    heard: bool
    """Heard by ourselves."""
    hears_us: bool
    draining: bool
    claims: int
    """How many EIPs it says it holds."""
    interval: int = 0
    """Milliseconds between its hellos, by its word; 0: it does not say."""
    loss: int | None = None
    """Percentage of its last hellos that did not arrive; None: it does not say how many there are."""
    loses: int = 0
    """Percentage of ours that it says it loses; 0: hardly any."""
    sick: bool = False
    """Our own link here is sick (rule 40)."""
    deaf: bool = False
    """Our own link here is deaf (rules 17 and 36)."""
    patience_ms: int = 0
    """Milliseconds of silence until we count it as dead, if longer than usual (rule 38); 0: as usual."""


class Peers:
    """All nodes heard on one link."""

    def __init__(self, me: str, link: int, times: Parameters) -> None:
        self._me, self._link, self._times = me, link, times
        self.by_node: dict[str, Peer] = {}
        self.strangers: dict[str, Stranger] = {}
        self.heedless: set[str] = set()
        """Nodes that do not heed preferences (rule 41), or did not; nearly always none."""
        self._full_until = NEVER

    def hear(self, hello: Hello, incarnation: Incarnation, now: float) -> tuple[Worth, Peer | None]:
        """Rule 5. ``incarnation`` is ours. The peer is returned if the hello counts; its claims are not learnt yet."""
        peer = self.by_node.get(hello.node)
        if peer is not None and hello.incarnation < peer.incarnation:
            peer.refused_at = now
            return Worth.OLD_LIFE, None
        if peer is None or hello.incarnation > peer.incarnation:
            return self._meet(hello, incarnation, now)
        if not self._same_link(peer, hello, incarnation):
            return Worth.OTHER_LINK, None
        if hello.stamp <= peer.stamp:
            if not hello.direct:
                peer.arrivals.hear_late(hello.sequence)
            return Worth.REPLAYED, None
        self._note(peer, hello, incarnation, now)
        return Worth.NEWS, peer

    def _meet(self, hello: Hello, incarnation: Incarnation, now: float) -> tuple[Worth, Peer | None]:
        stranger = self.strangers.get(hello.node)
        fresh = stranger is not None and now - stranger.heard_at < self._times.dead
        if stranger is None and hello.node not in self.by_node and self._crowded(now):
            return Worth.CROWDED, None
        # A stranger that fell silent binds nobody: it may be an earlier life whose clock was ahead, or a recording. One
        # that is not silent is in our hello, and the node it names climbs above it.
        if stranger is not None and fresh and hello.stamp <= stranger.stamp:
            return Worth.REPLAYED, None
        if not self.names_us(hello, incarnation) or self._lives_on(hello.node, now):
            self.strangers[hello.node] = Stranger(hello.stamp, hello.link, now)
            return Worth.UNPROVEN, None
        self.strangers.pop(hello.node, None)
        peer = self.by_node[hello.node] = Peer(hello, now)
        self._note(peer, hello, incarnation, now)
        return Worth.PROVEN, peer

    def _lives_on(self, node: str, now: float) -> bool:
        """A life that claims to follow one that is still being heard is another host with that name."""
        peer = self.by_node.get(node)
        return peer is not None and now - peer.heard_at < self._times.suspect

    def names_us(self, hello: Hello, incarnation: Incarnation) -> bool:
        return self._names_us(hello.heard.get(self._me), incarnation)

    def _crowded(self, now: float) -> bool:
        if len(self.by_node) + len(self.strangers) < MAX_NODES:
            return False
        if now >= self._full_until:
            late = now - self._times.dead
            self.strangers = {node: each for node, each in self.strangers.items() if each.heard_at > late}
            if len(self.living(now)) + len(self.strangers) < MAX_NODES:
                return False
            self._full_until = now + self._times.slot  # looking at each of them for each new name takes milliseconds
        return True

    def _same_link(self, peer: Peer, hello: Hello, incarnation: Incarnation) -> bool:
        """What a node says on one link about its claims there is wrong on every other link."""
        return hello.link == peer.link or self._names_us(hello.heard.get(self._me), incarnation)

    def _names_us(self, heard: Heard | None, incarnation: Incarnation) -> bool:
        """Because of the link number, what was recorded on one of our links proves nothing on another."""
        return heard is not None and heard.incarnation == incarnation and heard.link == self._link

    def _note(self, peer: Peer, hello: Hello, incarnation: Incarnation, now: float) -> None:
        peer.lenience.hear(hello, now - peer.heard_at, now, self._times, peer.patience)
        if not hello.direct:
            peer.arrivals.hear(hello.sequence, hello.links)
            peer.broadcast_at = now
        if hello.lost or peer.lost:
            known = ((n, share) for n, share in hello.lost.items() if n == self._me or n in self.by_node)
            peer.lost = {**(peer.lost if hello.part else {}), **dict(islice(known, SAID))}
        peer.stamp, peer.link, peer.heard_at = hello.stamp, hello.link, now
        peer.draining, peer.deaf, peer.demoted = hello.draining, hello.deaf, hello.demoted
        if not hello.part and (hello.unanswered or peer.accuses):
            peer.accuses = frozenset(islice(hello.unanswered, SAID))
        if hello.weights or peer.weights:
            told = islice(sorted(hello.weights.items()), MAX_WEIGHTS)
            peer.weights = {**(peer.weights if hello.part else {}), **dict(told)}
        if hello.weighs is not peer.weighs or not hello.weighs:
            peer.weighs = hello.weighs
            (self.heedless.discard if hello.weighs else self.heedless.add)(peer.node)
        peer.interval = hello.interval
        peer.patience = max(1.0, hello.interval / 1000 / self._times.hello)
        peer.unanswered.clear()
        for node, heard in hello.heard.items():
            if heard.age >= MAX_AGE:
                continue
            if node == self._me and self._names_us(heard, incarnation):
                peer.hears_us_at = max(peer.hears_us_at, now - heard.age / 1000)
            elif (other := self.by_node.get(node)) is not None and heard.incarnation == other.incarnation:
                other.vouched_at = max(other.vouched_at, now - heard.age / 1000)

    def heard(self, now: float) -> dict[str, Heard]:
        """For our own hello: everyone heard recently, and how long ago by broadcast; and what we know of those we
        refuse or do not believe yet."""
        times = self._times
        names = {
            node: Heard(peer.incarnation, age(now - peer.broadcast_at), peer.link)
            for node, peer in self.by_node.items()
            if peer.is_heard(now, times) or now - peer.refused_at < times.yielded
        }
        for node, stranger in self.strangers.items():
            peer = self.by_node.get(node)
            if now - stranger.heard_at < times.dead and (peer is None or stranger.heard_at > peer.heard_at):
                names[node] = Heard(stranger.stamp[0], age(now - stranger.heard_at), stranger.link)
        return names

    def states(self, now: float, sick: bool = False, deaf: bool = False) -> tuple[PeerState, ...]:
        times = self._times
        return tuple(
            PeerState(
                node=node,
                incarnation=peer.incarnation,
                alive=peer.is_alive(now, times),
                heard=peer.is_heard(now, times),
                hears_us=peer.hears_us(now, times),
                draining=peer.draining,
                claims=peer.digest.count,
                interval=peer.interval,
                loss=peer.arrivals.percent if peer.arrivals.links else None,
                patience_ms=peer.patient_for(now, times),
                loses=peer.lost.get(self._me, 0),
                sick=sick,
                deaf=deaf,
            )
            for node, peer in sorted(self.by_node.items())
            if now < peer.heard_at + FORGOTTEN
        )

    def expected(self, now: float) -> list[Peer]:
        """Peers whose silence means something: they were heard of recently, and did not say that they leave."""
        return [peer for peer in self.by_node.values() if not peer.draining and now < peer.heard_at + FORGOTTEN]

    def missed(self, now: float) -> bool:
        """An expected peer is not heard, or none is known: somebody may hear us who did not before."""
        expected = self.expected(now)
        return not expected or not all(peer.is_heard(now, self._times) for peer in expected)

    def lateness(self, now: float) -> float:
        """Seconds by which hellos came late here recently."""
        return max((peer.lenience.late.lasts(now) for peer in self.by_node.values()), default=0.0)

    def unreached(self, now: float) -> tuple[str, ...]:
        """Peers that live but say that none of our broadcasts reached them recently, at most MOST_DIRECT."""
        times = self._times
        unreached = [
            (peer.hears_us_at, peer.node)
            for peer in self.by_node.values()
            if now >= peer.hears_us_at + peer.suspect_after(times) and peer.is_alive(now, times)
        ]
        return tuple(node for _, node in sorted(unreached, reverse=True)[:MOST_DIRECT])

    def living(self, now: float) -> list[Peer]:
        return [peer for peer in self.by_node.values() if peer.is_alive(now, self._times)]


def age(seconds: float) -> int:
    return min(max(round(seconds * 1000), 0), MAX_AGE)
