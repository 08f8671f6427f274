"""What this node knows of each EIP, and what it says of its own claims on a link (rules 1 to 4). Pure."""

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

from speaker.model import IPAddress
from speaker.ownership.events import Record
from speaker.ownership.hello import EVERYTHING, Digest, Span
from speaker.ownership.order import Ordered
from speaker.ownership.parameters import Parameters
from speaker.ownership.peers import NEVER
from speaker.ownership.score import claim_hash

_SUM = 2**64 - 1
_LAST_IPV4 = IPv4Address(2**32 - 1)


@dataclass(frozen=True, slots=True)
class Attempt:
    """A write of the record under way. ``claims``: to become holder; otherwise a holder or a leaver tidies up.
    ``hurried``: part of a failover, and not counted among ``Parameters.writes``."""

    number: int
    term: int
    sent_at: float
    claims: bool
    hurried: bool


class Eip:
    """One EIP. ``link``: where this node would announce it, None while it may not hold it."""

    __slots__ = (
        "address",
        "demoted",
        "ever_held",
        "holding",
        "intents",
        "let_go_at",
        "link",
        "maxterm",
        "record",
        "record_read_at",
        "rivals",
        "successor_until",
        "term",
        "told",
        "told_yielded",
        "vacant_since",
        "wake",
        "writing",
    )

    def __init__(self, address: IPAddress) -> None:
        self.address = address
        self.link: int | None = None
        self.demoted = False
        self.holding = False
        self.term = 0
        self.maxterm = 0
        self.ever_held = False
        """By anybody, as far as hellos, records and we ourselves know."""
        self.let_go_at = NEVER
        self.record: Record | None = None
        self.record_read_at = NEVER
        self.rivals: dict[int, set[str]] = {}
        """Link → nodes whose hellos there list a claim, alive or not; terms stand in ``Peer.claims``."""
        self.intents: dict[str, tuple[float, int]] = {}
        """Node → when it last said that it is about to claim, and the term."""
        self.successor_until = NEVER
        """Until when to expect the claim of one for whom, as we heard, the last holder made way."""
        self.told: dict[str, tuple[int, int]] = {}
        """Node → (its term, our term) for which we announced again: once is enough."""
        self.told_yielded: dict[str, int] = {}
        self.vacant_since: float | None = None
        self.writing: Attempt | None = None
        self.wake = float("inf")

    def raise_maxterm(self, term: int, held: bool = True) -> None:
        """``held``: somebody held it at that term, or at a lower one above 0."""
        self.maxterm = max(self.maxterm, term)
        self.ever_held |= held and term > 0


class OwnClaims:
    """The claims of this node on one link, and which of them the next hello tells."""

    def __init__(self, times: Parameters, per_hello: int) -> None:
        self._times, self._per_hello = times, per_hello
        self.terms: dict[IPAddress, int] = {}
        self.yielded: dict[IPAddress, tuple[int, float]] = {}
        self._in_order = Ordered()
        self._sum = 0
        self._changed: dict[IPAddress, float] = {}
        self._untold: dict[IPAddress, None] = {}
        self._from: IPAddress = EVERYTHING.first
        """Where the rotating window begins."""

    def __len__(self) -> int:
        return len(self.terms)

    @property
    def digest(self) -> Digest:
        return Digest(len(self.terms), self._sum)

    def add(self, eip: IPAddress, term: int, now: float) -> None:
        old = self.terms.get(eip)
        if old is None:
            self._in_order.add(eip)
        else:
            self._sum = (self._sum - claim_hash(eip, old)) & _SUM
        self.terms[eip] = term
        self._sum = (self._sum + claim_hash(eip, term)) & _SUM
        self._changed[eip] = now
        self._untold[eip] = None
        self.yielded.pop(eip, None)

    def remove(self, eip: IPAddress, now: float, better: int = 0) -> None:
        """``better``: the term of the claim it was let go for."""
        term = self.terms.pop(eip)
        self._in_order.remove(eip)
        self._sum = (self._sum - claim_hash(eip, term)) & _SUM
        self._changed.pop(eip, None)
        self._untold.pop(eip, None)
        self.yielded[eip] = (max(term, better), now)

    def said(self, now: float, everything: bool, beat: bool) -> tuple[dict[IPAddress, int], Span]:
        """Claims for a hello, and the span in which they are complete (rule 3).

        A change is told at once and repeated at every beat of its first second, not by each hello between them: those
        come by the dozen when thousands are claimed.
        """
        self._changed = (
            {e: at for e, at in self._changed.items() if now - at < self._times.yielded} if beat else self._changed
        )
        changed, self._untold = self._changed if beat else self._untold, {}
        if everything or len(self.terms) <= self._per_hello:
            return dict(self.terms), EVERYTHING
        window, span = self._window()
        return {e: self.terms[e] for e in (*window, *changed)}, span

    def _window(self) -> tuple[list[IPAddress], Span]:
        """The next claims in order, and the span from the last window's end to theirs: between claims, too, absence
        means something."""
        begin = self._from
        chosen, more = self._in_order.since(begin, self._per_hello)
        if not more:
            self._from = EVERYTHING.first
            return chosen, Span(begin, EVERYTHING.last)
        self._from = _next(chosen[-1])
        return chosen, Span(begin, chosen[-1])

    def recently_yielded(self, now: float) -> dict[IPAddress, int]:
        self.yielded = {e: (t, at) for e, (t, at) in self.yielded.items() if now - at < self._times.yielded}
        return {eip: term for eip, (term, _) in self.yielded.items()}


def _next(eip: IPAddress) -> IPAddress:
    """The address behind it in the order of ``Span``; only asked while another claim follows."""
    return IPv6Address(0) if eip == _LAST_IPV4 else eip + 1
