"""One link of this node: its peers, its claims, and the hello that contains them. Pure."""

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass

from speaker.model import IPAddress, Preference
from speaker.ownership.hello import Accused, Hello, Incarnation
from speaker.ownership.machine.claims import OwnClaims
from speaker.ownership.machine.loss import AGAIN, SAID, Losses
from speaker.ownership.machine.peers import MAX_WEIGHTS, Peer, Peers, Worth
from speaker.ownership.parameters import FOREVER, NEVER, Parameters

REPEATED = 3
"""Hellos in a row that say the same, and are read at once: of so many, one arrives."""
ROUNDS = 8
"""Rounds of questions without an answer, one at each beat, until a peer is accused: at 30 % loss once in two thousand
times."""
UNICASTS = 5
"""Times in a row that a peer answers only what is asked by its MAC, until it is accused."""
PROVEN = 5
"""How many more rounds others must have answered than not, until a peer is accused: a node that loses most of what it
sends would otherwise do so by chance."""
_LATELY = 60.0
"""Seconds."""


class Returns:
    """When a link came back recently."""

    def __init__(self) -> None:
        self._times: deque[float] = deque(maxlen=2)

    def add(self, now: float) -> None:
        self._times.append(now)

    def many(self, now: float) -> bool:
        """It comes and goes: its node lets others go first."""
        return sum(now - at < _LATELY for at in self._times) > 1

    @property
    def last(self) -> float:
        return self._times[-1] if self._times else NEVER


@dataclass(slots=True)
class Namesake:
    """A life with our name that is not ours, as heard on one link."""

    stamp: tuple[Incarnation, int, int]
    link: int
    met_at: float
    heard_at: float
    proven: bool = False

    @property
    def incarnation(self) -> Incarnation:
        return self.stamp[0]


@dataclass(slots=True)
class Watch:
    """A watch on what one peer holds of one IP version."""

    asked_at: float = NEVER
    asked: tuple[IPAddress, ...] = ()
    turn: int = 0
    rounds: int = 0
    """Rounds without an answer."""
    proven: int = 0
    """Of the rounds in which others were asked, those in which somebody answered, less the rest. If it is below 0 when
    the peer answers, it stays, as it shows that our own frames are lost; answers to everybody's questions raise it."""
    others: bool = False
    """Somebody else answered in this round."""
    by_mac: bool = False
    """The question went to the peer's MAC as well."""
    prompt_at: float = NEVER
    """When a question to everybody was last answered within its round."""
    unicasts: int = 0
    """Times in a row that it did not answer a question to everybody, but the same one by its MAC, while others answered
    everybody's (and in time: on a slow LAN a late answer looks the same); less the times that it did not answer by its
    MAC either. Hellos do not show that: a switch may treat ARP, or multicast, in another way than other broadcasts."""

    @property
    def accused(self) -> bool:
        return self.unicasts >= UNICASTS or (self.rounds >= ROUNDS and self.proven >= PROVEN)

    def ask(self, eip: IPAddress, by_mac: bool, now: float) -> None:
        self.asked, self.by_mac, self.asked_at = (eip,), by_mac, now

    def answered(self, now: float) -> None:
        self.rounds, self.proven, self.asked = 0, min(self.proven + (not self.by_mac), 0), ()
        if not self.by_mac:
            self.others, self.unicasts, self.prompt_at = False, 0, now

    def missed(self) -> None:
        """A round ends without an answer."""
        if not self.accused:  # otherwise older rounds would count as long as it lasts
            self.rounds += 1
            self.proven = max(self.proven + self.by_mac * (1 if self.others else -1), -ROUNDS)
        self.unicasts = max(self.unicasts - self.by_mac, 0)
        self.asked, self.others, self.by_mac = (), False, False

    def note_unicast(self, prompt: bool) -> None:
        """A round ended with an answer to a question by MAC. ``prompt``: others answered everybody's in time."""
        self.unicasts += self.others and prompt
        self.others = self.by_mac = False


class Weights:
    """How much this node is preferred on one link, by the preferences of the EIPs that it may hold there."""

    def __init__(self) -> None:
        self.eips: dict[IPAddress, Preference] = {}
        self._counts: Counter[tuple[int, int]] = Counter()
        """How many EIPs have each number and weight."""
        self._said: Mapping[int, int] | None = {}

    def put(self, eip: IPAddress, preference: Preference | None) -> None:
        if (before := self.eips.pop(eip, None)) is not None:
            self._count(before, -1)
        if preference is not None:
            self.eips[eip] = preference
            self._count(preference, 1)

    def _count(self, preference: Preference, more: int) -> None:
        key = preference.number, preference.weight
        self._counts[key] += more
        if self._counts[key] == max(0, more):  # the first or the last of these EIPs
            self._said = None

    @property
    def said(self) -> Mapping[int, int]:
        """What our hellos say about it: if there are too many, the lowest numbers, and so the same ones on
        every node."""
        if self._said is None:
            self._counts = +self._counts
            self._said = dict(sorted(key for key in self._counts if key[1])[:MAX_WEIGHTS])
        return self._said


class Segment:
    """The ownership machine's part for ``link``. It listens from its creation on."""

    def __init__(self, node: str, link: int, times: Parameters, per_hello: int, now: float) -> None:
        self.link = link
        self.up = False
        self.peers = Peers(node, link, times)
        self.own = OwnClaims(times, per_hello)
        self.demoted = False
        """A soft reason puts this node behind the others."""
        self.well_at = now
        """When it was last not demoted."""
        self.weights = Weights()
        self.eligible = 0
        """How many EIPs this node may announce here."""
        self.listening = True
        self.listen_until = now + times.listen
        """Infinity once listening is over."""
        self.awaited: tuple[Peer, ...] = ()
        """Peers whose hellos end the listening earlier, once each has spoken after ``listens_since``."""
        self.listens_since = now
        self.up_at = now
        self.heard_at = NEVER
        """When a hello that counts was last heard by broadcast."""
        self.frame_at = self.broadcast_at = NEVER
        """When a frame other than a hello last reached us here while we asked for one; and when a broadcast did."""
        self.sure_at = FOREVER
        """From when on no known peer may hold anything unheard."""
        self.doubted_at = NEVER
        """When claims made in doubt were last looked at for that reason."""
        self.direct = 0
        """Unicast hellos of peers that hear broadcasts, since the last broadcast that reached us here."""
        self.resumed_at = NEVER
        """When anything was last heard again after a silence in which a question to the LAN was not answered either."""
        self.in_touch = True
        self.lost_touch_at = NEVER
        self.unheard_at = FOREVER
        """When what we claimed unheard becomes weak, unless somebody hears us before."""
        self.deaf = False
        """As last judged."""
        self.asked_at = NEVER
        self.unanswered_since = FOREVER
        """When we first asked the LAN since anything was heard."""
        self.returns = Returns()
        self.watches: dict[Accused, Watch] = {}
        """Peers whose EIPs we ask for."""
        self.sampled_at = NEVER
        self.accused: frozenset[Accused] = frozenset()
        """Those of them that answer for none of their EIPs."""
        self.tried: dict[Accused, float] = {}
        """Nodes that were mute here recently, ourselves included, and until when that counts."""
        self.tries: Counter[Accused] = Counter()
        """How often in a row."""
        self.sick = self.hands_over = False
        """As last judged: our own link here loses what is said, so others should take what we hold here (rule 40)."""
        self.sick_since = self.sick_at = NEVER
        """When that began, and when it was last so."""
        self.greeted_at = NEVER
        self.claimed_alone: frozenset[IPAddress] = frozenset()
        """What we held when we met the first of the others: claimed without knowing of anybody, for example behind a
        blocked port (rule 18). It counts for as long as all of them need to hear of it, from ``met_at`` on."""
        self.met_at = NEVER
        self.namesake: Namesake | None = None
        """The life with our name, but not ours, that was last heard here."""
        self.probes: set[str] = set()
        self.moves: dict[IPAddress, str] = {}
        self.tell_all = False
        self.announce_all = False
        self.announce: dict[IPAddress, None] = {}
        self.hearings: Counter[Worth] = Counter()
        self._times = times
        self._said: object = None
        """What was said at the last beat of things that others must know at once; for how many beats the same,
        below."""
        self._repeated = 0

    def __str__(self) -> str:
        return f"link {self.link}"

    def goes_last(self, now: float) -> bool:
        """For a soft reason, or because the link comes and goes, or loses much."""
        return self.demoted or self.unsteady(now)

    def unsteady(self, now: float) -> bool:
        """It comes and goes, or was sick within the last minute."""
        return self.returns.many(now) or now < self.sick_at + AGAIN

    def judged(self, sick: bool, now: float) -> None:
        """Notes whether the link is sick now."""
        if sick and now >= self.sick_at + AGAIN:
            self.sick_since = now
        self.sick, self.sick_at = sick, now if sick else self.sick_at

    def losses(self, now: float) -> list[Losses]:
        """Of the peers that we hear and that say how much they send; none while nobody loses anything."""
        peers = self.peers.by_node.values()
        if not any(peer.arrivals.said or peer.lost for peer in peers):
            return []  # nearly always
        heard = [peer for peer in peers if peer.arrivals.links and peer.is_heard(now, self._times)]
        return [Losses(peer.node, peer.arrivals.said, peer.lost) for peer in heard]

    def pause(self) -> None:
        """Hellos passed us by here, or were dropped unread: the link did not lose them."""
        for peer in self.peers.by_node.values():
            peer.arrivals.pause()

    @property
    def unheard(self) -> bool:
        """Nobody hears us who has had the time to say so."""
        return not self.in_touch and self.unheard_at == FOREVER

    def meet_the_first(self, now: float) -> None:
        self.claimed_alone, self.met_at = frozenset(self.own.terms), now

    def listen(self, until: float) -> None:
        self.listening, self.listen_until = True, until
        self.awaited = ()

    def listen_out(self, now: float, until: float) -> None:
        """Listens until each peer that spoke while we stood still has spoken, and was asked to; if none did, those that
        were alive before."""
        self.listen(until)
        alive = [peer for peer in self.peers.by_node.values() if peer.alive]
        self.awaited = tuple([peer for peer in alive if now < peer.suspect_at(self._times)] or alive)
        self.listens_since = now
        self.probes.update(peer.node for peer in self.awaited)

    @property
    def heard_out(self) -> bool:
        """All peers that were awaited have said what they hold."""
        return bool(self.awaited) and all(peer.heard_at > self.listens_since and peer.synced() for peer in self.awaited)

    def end_listening(self) -> None:
        self.listening, self.listen_until = False, FOREVER
        self.awaited = ()

    def to_announce(self) -> tuple[IPAddress, ...]:
        """What is to be announced now, if it is still held; forgotten afterwards."""
        if not self.announce and not self.announce_all:
            return ()
        eips = tuple(self.own.terms if self.announce_all else (e for e in self.announce if e in self.own.terms))
        self.announce.clear()
        self.announce_all = False
        return eips

    def hello(self, ours: Hello, beat: bool, now: float) -> Hello:
        """``ours``: what is said on every link. ``beat``: sent in its turn; otherwise in a hurry."""
        everything = self.tell_all or self.own.next_slice_at() < FOREVER
        claims, covers = self.own.said(now, self.tell_all, beat)
        if self.claimed_alone and now >= self.met_at + self._times.yielded:
            self.claimed_alone = frozenset()
        marked = self.own.weak | self.claimed_alone if self.claimed_alone else self.own.weak
        weak = frozenset(marked.intersection(claims) if marked else ())
        yielded = {**ours.yielded, **self.own.yields_said(now, beat)}
        heard = {**self.peers.heard(now), **ours.heard}
        wants, demoted, draining = self._wants(now), self.goes_last(now), ours.draining or self.hands_over
        worst = sorted(((each.ours, each.node) for each in self.losses(now) if each.ours), reverse=True)[:SAID]
        lost = {node: percent for percent, node in sorted(worst)}
        asks = self.probes or self.moves or self.accused
        urgent = everything or yielded or weak or wants or asks or self.peers.missed(now)
        who_hears = tuple((node, other.incarnation, other.link) for node, other in heard.items())
        weights = self.weights.said
        repeats = beat and self._repeats((self.own.digest, draining, self.deaf, demoted, lost, who_hears, weights))
        hello = ours._replace(
            digest=self.own.digest,
            draining=draining,
            deaf=self.deaf,
            demoted=demoted,
            routine=repeats and not urgent,
            interval=round(self._times.hello * 1000),
            claims=claims,
            covers=covers,
            weak=weak,
            yielded=yielded,
            heard=heard,
            lost=lost,
            probes=frozenset(self.probes),
            wants=wants,
            weights=weights,
            moves=dict(self.moves),
            unanswered=self.accused,
            link=self.link,
        )
        self.tell_all = False
        self.probes.clear()
        return hello

    def _repeats(self, said: object) -> bool:
        """The same was said at the last few beats: some of those hellos may have been lost."""
        self._repeated = self._repeated + 1 if said == self._said else 0
        self._said = said
        return self._repeated >= REPEATED

    def _wants(self, now: float) -> frozenset[str]:
        """Peers whose claims we have had wrong for longer than the parts of one message take to arrive."""
        patience = self._times.hello / 2
        return frozenset(
            peer.node
            for peer in self.peers.by_node.values()
            if peer.unsynced_since is not None and peer.alive and now - peer.unsynced_since >= patience
        )
