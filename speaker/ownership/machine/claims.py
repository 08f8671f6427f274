"""What this node knows of each EIP, and what it says of its own claims on a link (rules 1 to 4). Pure."""

from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address

from speaker.model import IPAddress, Preference
from speaker.ownership.events import Record
from speaker.ownership.hello import EVERYTHING, Digest, Listed, Ordered, Span, Terms
from speaker.ownership.parameters import FOREVER, NEVER, Parameters
from speaker.ownership.score import claim_hash, score

_SUM = 2**64 - 1
A_SLICE = 16
"""Times ``per_hello``: a peer takes some 10 ms to learn a thousand claims, and has answers to give meanwhile."""
_LAST_IPV4 = IPv4Address(2**32 - 1)


@dataclass(frozen=True, slots=True)
class Attempt:
    """A write of the record under way."""

    number: int
    term: int
    sent_at: float
    expected: int
    """The version that it was to follow; 0: there was no record."""


@dataclass(slots=True, eq=False)
class Eip:
    """One EIP. ``link``: where this node would announce it, None while it may not hold it."""

    address: IPAddress
    link: int | None = None
    holding: bool = False
    weak: bool = False
    """Claimed perhaps not knowing of another (rule 18): that one stands, if it held on and was only unheard."""
    term: int = 0
    maxterm: int = 0
    held_by: tuple[int, str] = (0, "")
    """The highest term at which another node had it, by its hellos or by its record, and that node."""
    held_since: float = NEVER
    disputed_until: float = NEVER
    """Another speaker or a stranger answered the probe before our first answer: we hold it in name only, and are to
    be told again if that goes on."""
    probed_until: float = NEVER
    """When the probe that goes before the first answer is over, as a rule."""
    yielded_at: float = NEVER
    offered_at: float = NEVER
    """Since when this node may hold it there."""
    moved_at: float = NEVER
    """When we last learnt of another holder than the one before."""
    preference: Preference | None = None
    """How much we are preferred for it; None: all are alike."""
    behind: bool = False
    """Others go first, though they do not know it (rule 13)."""
    owner: str | None = None
    """The peer that says it is its own address."""
    aside: bool = False
    """Neither held nor judged before ``aside_until``, after a bug of ours."""
    aside_until: float = NEVER
    aside_for: float = 0.0
    """Seconds, the last time."""
    record: Record | None = None
    record_read_at: float = NEVER
    rivals: dict[int, set[str]] = field(default_factory=dict)
    """Link → nodes whose hellos there list a claim, alive or not; terms stand in ``Peer.claims``."""
    served_until: float = NEVER
    """Another speaker than the one that claimed it last answered for it on the wire, not long before that."""
    successor_until: float = NEVER
    """Until when to expect the claim of one for whom, as we heard, the last holder made way."""
    worse_claims: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Node → (its term, our term) for which we announced again: once is enough."""
    unknowing_since: dict[str, float] = field(default_factory=dict)
    """Node → since when it claims what it took from us unheard, and does not hear us."""
    heard_yields: dict[str, int] = field(default_factory=dict)
    """Node → the term of its yield after which we announced again."""
    vacant_since: float | None = None
    writing: Attempt | None = None
    wake: float = FOREVER

    def raise_maxterm(self, term: int) -> None:
        self.maxterm = max(self.maxterm, term)

    def note_holder(self, term: int, node: str, now: float) -> None:
        """Another's. Of one term the claim that is the better one counts."""
        known, other = self.held_by
        if term > known or (term == known and score(self.address, node) > score(self.address, other)):
            self.moved_at = now if node != other else self.moved_at
            self.held_by = term, node


class OwnClaims:
    """The claims of this node on one link, and which of them the next hello tells."""

    def __init__(self, times: Parameters, per_hello: int) -> None:
        self._times, self._per_hello = times, per_hello
        self.terms: dict[IPAddress, int] = {}
        self.yielded: dict[IPAddress, tuple[int, float]] = {}
        self._untold_yields: dict[IPAddress, None] = {}
        self._in_order = Ordered()
        self._sum = 0
        self._changed: dict[IPAddress, float] = {}
        self._untold: dict[IPAddress, None] = {}
        self._from: IPAddress = EVERYTHING.first
        """Where the rotating window begins."""
        self._slice_from: IPAddress | None = None
        """Where the next slice of all begins, while all are told."""
        self._told_at = NEVER
        """When a slice was told last."""
        self.weak: set[IPAddress] = set()
        self._windows: dict[IPAddress, tuple[Listed, Span, IPAddress | None]] = {}
        """By where they begin, as long as nothing changes."""

    def __len__(self) -> int:
        return len(self.terms)

    @property
    def digest(self) -> Digest:
        return Digest(len(self.terms), self._sum)

    def add(self, eip: IPAddress, term: int, now: float, weak: bool = False) -> None:
        (self.weak.add if weak else self.weak.discard)(eip)
        self._windows.clear()
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
        self._untold_yields.pop(eip, None)

    def remove(self, eip: IPAddress, now: float, better: int = 0) -> None:
        """``better``: the term of the claim it was yielded to."""
        term = self.terms.pop(eip)
        self.weak.discard(eip)
        self._windows.clear()
        self._in_order.remove(eip)
        self._sum = (self._sum - claim_hash(eip, term)) & _SUM
        self._changed.pop(eip, None)
        self._untold.pop(eip, None)
        self.yielded[eip] = (max(term, better), now)
        self._untold_yields[eip] = None

    def said(self, now: float, everything: bool, beat: bool) -> tuple[Terms, Span]:
        """Claims for a hello, and the span in which they are complete (rule 3).

        A change is told at once and repeated at every beat of its first second, not by each hello between them: those
        come by the dozen when thousands are claimed. So do changes: of more than a slice the latest are repeated.
        ``everything``: from now on all, a slice at a time.
        """
        a_slice = A_SLICE * self._per_hello
        changed, self._untold = [*self._untold], {}
        if beat:
            self._changed = {e: at for e, at in self._changed.items() if now - at < self._times.yielded}
            changed = [*(e for e in changed if e in self._changed), *[*self._changed][-a_slice:]]
        if everything:
            self._slice_from = EVERYTHING.first
        if len(self.terms) <= self._per_hello:
            self._slice_from, self._told_at = None, now if everything else self._told_at
            return self._window(EVERYTHING.first)[0], EVERYTHING
        if self._slice_from is not None and now >= self._told_at + self._times.slot:
            window, span, self._slice_from = self._since(self._slice_from, a_slice)
            self._told_at = now
        else:
            window, span, following = self._window(self._from)
            self._from = following or EVERYTHING.first
        return {**window, **{e: self.terms[e] for e in changed}} if changed else window, span

    def next_slice_at(self) -> float:
        """When to go on with telling all."""
        return FOREVER if self._slice_from is None else self._told_at + self._times.slot

    def told_lately(self, now: float) -> bool:
        """Whoever asks for all has it, or gets it anyway."""
        return self._slice_from is not None or now - self._told_at < self._times.hello / 2

    def _window(self, begin: IPAddress) -> tuple[Listed, Span, IPAddress | None]:
        """A window of the rotation. Remembered: at rest the same ones are told again and again."""
        if (window := self._windows.get(begin)) is None:
            window = self._windows[begin] = self._since(begin, self._per_hello)
        return window

    def _since(self, begin: IPAddress, count: int) -> tuple[Listed, Span, IPAddress | None]:
        """The next claims in order, the span from ``begin`` to the last of them, and where the next window begins.
        Between claims, too, absence means something."""
        chosen, more = self._in_order.since(begin, count)
        listed = Listed({eip: self.terms[eip] for eip in chosen})
        if not more:
            return listed, Span(begin, EVERYTHING.last), None
        return listed, Span(begin, chosen[-1]), _next(chosen[-1])

    def yields_said(self, now: float, beat: bool) -> dict[IPAddress, int]:
        """Yields for a hello: as with changed claims, by the dozen where thousands are let go."""
        untold, self._untold_yields = self._untold_yields, {}
        if beat or len(self.yielded) <= self._per_hello:
            return self.recently_yielded(now)
        return {eip: self.yielded[eip][0] for eip in untold if eip in self.yielded}

    def recently_yielded(self, now: float) -> dict[IPAddress, int]:
        self.yielded = {e: (t, at) for e, (t, at) in self.yielded.items() if now - at < self._times.yielded}
        return {eip: term for eip, (term, _) in self.yielded.items()}


def _next(eip: IPAddress) -> IPAddress:
    """The address behind it in the order of ``Span``; only asked while another claim follows."""
    return IPv6Address(0) if eip == _LAST_IPV4 else eip + 1
