"""What this node knows about each EIP, and what it says about its own claims on a link (rules 1 to 4). Pure."""

from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address

from speaker.model import IPAddress, Preference
from speaker.ownership.events import Record
from speaker.ownership.hello import EVERYTHING, Digest, Listed, Ordered, Span, Terms
from speaker.ownership.parameters import FOREVER, NEVER, Parameters
from speaker.ownership.score import claim_hash, score

_SUM = 2**64 - 1
A_SLICE = 16
"""Times ``per_hello``: a peer takes some 10 ms to learn a thousand claims, and has to answer requests meanwhile."""
_LAST_IPV4 = IPv4Address(2**32 - 1)


@dataclass(frozen=True, slots=True)
class Attempt:
    """A write of the record that is under way."""

    number: int
    term: int
    sent_at: float
    expected: int
    """The version that it should follow; 0: there was no record."""


@dataclass(slots=True, eq=False)
class Eip:
    """One EIP. ``link``: where this node would announce it; None while it may not hold it."""

    address: IPAddress
    link: int | None = None
    holding: bool = False
    weak: bool = False
    """Claimed perhaps without knowing of another claim (rule 18), which stands if its holder held on and was only
    unheard."""
    term: int = 0
    maxterm: int = 0
    held_by: tuple[int, str] = (0, "")
    """The highest term at which another node had it, according to its hellos or its record; and that node."""
    held_since: float = NEVER
    disputed_until: float = NEVER
    """Another speaker or a stranger answered the probe before our first answer. We hold it only in name, and should be
    told again if that goes on."""
    probed_until: float = NEVER
    """When the probe before the first answer is normally over."""
    yielded_at: float = NEVER
    offered_at: float = NEVER
    """Since when this node may hold it there."""
    moved_at: float = NEVER
    """When we last learnt that the holder had changed."""
    preference: Preference | None = None
    """How much we are preferred for it; None: all nodes are equal."""
    behind: bool = False
    """Others go first, though they do not know it (rule 13)."""
    owner: str | None = None
    """The peer that says this is its own address."""
    aside: bool = False
    """After a bug of ours, it is neither held nor judged before ``aside_until``."""
    aside_until: float = NEVER
    aside_for: float = 0.0
    """How many seconds the last time."""
    record: Record | None = None
    record_read_at: float = NEVER
    rivals: dict[int, set[str]] = field(default_factory=dict)
    """Link → nodes whose hellos there list a claim, alive or not; the terms are in ``Peer.claims``."""
    served_until: float = NEVER
    """Shortly before then, another speaker than the one that claimed it last answered for it on the wire."""
    successor_until: float = NEVER
    """Until when to expect the claim of a successor: we heard that the last holder made way for one."""
    worse_claims: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Node → (its term, our term) for which we announced again, as once is enough."""
    unknowing_since: dict[str, float] = field(default_factory=dict)
    """Node → since when it claims what it took from us unheard, without hearing us."""
    heard_yields: dict[str, int] = field(default_factory=dict)
    """Node → the term of its yield after which we announced again."""
    vacant_since: float | None = None
    writing: Attempt | None = None
    wake: float = FOREVER

    def raise_maxterm(self, term: int) -> None:
        self.maxterm = max(self.maxterm, term)

    def note_holder(self, term: int, node: str, now: float) -> None:
        """Another node's claim. Of claims with one term the better one counts."""
        known, other = self.held_by
        if term > known or (term == known and score(self.address, node) > score(self.address, other)):
            self.moved_at = now if node != other else self.moved_at
            self.held_by = term, node


class OwnClaims:
    """The claims of this node on one link, and which of them the next hello contains."""

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
        """Where the next slice begins while all claims are told."""
        self._told_at = NEVER
        """When the last slice was told."""
        self.weak: set[IPAddress] = set()
        self._windows: dict[IPAddress, tuple[Listed, Span, IPAddress | None]] = {}
        """Windows by where they begin, as long as nothing changes."""

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

        A change is told at once, and repeated at every beat of its first second, but not by each hello in between:
        these come by the dozen when thousands are claimed, and so do changes. If there are more than a slice, the
        latest are repeated. ``everything``: from now on all claims, one slice at a time.
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
        """When to continue with telling all."""
        return FOREVER if self._slice_from is None else self._told_at + self._times.slot

    def told_lately(self, now: float) -> bool:
        """Whoever asks for all claims has them, or gets them anyway."""
        return self._slice_from is not None or now - self._told_at < self._times.hello / 2

    def _window(self, begin: IPAddress) -> tuple[Listed, Span, IPAddress | None]:
        """A window of the rotation. Remembered, as at rest the same ones are told again and again."""
        if (window := self._windows.get(begin)) is None:
            window = self._windows[begin] = self._since(begin, self._per_hello)
        return window

    def _since(self, begin: IPAddress, count: int) -> tuple[Listed, Span, IPAddress | None]:
        """The next claims in order, the span from ``begin`` to the last of them, and where the next window begins. The
        span includes addresses between claims, whose absence means something too."""
        chosen, more = self._in_order.since(begin, count)
        listed = Listed({eip: self.terms[eip] for eip in chosen})
        if not more:
            return listed, Span(begin, EVERYTHING.last), None
        return listed, Span(begin, chosen[-1]), _next(chosen[-1])

    def yields_said(self, now: float, beat: bool) -> dict[IPAddress, int]:
        """Yields for a hello; like changed claims, they come by the dozen when thousands are let go."""
        untold, self._untold_yields = self._untold_yields, {}
        if beat or len(self.yielded) <= self._per_hello:
            return self.recently_yielded(now)
        return {eip: self.yielded[eip][0] for eip in untold if eip in self.yielded}

    def recently_yielded(self, now: float) -> dict[IPAddress, int]:
        self.yielded = {e: (t, at) for e, (t, at) in self.yielded.items() if now - at < self._times.yielded}
        return {eip: term for eip, (term, _) in self.yielded.items()}


def _next(eip: IPAddress) -> IPAddress:
    """The address after it in the order of ``Span``; only used while another claim follows."""
    return IPv6Address(0) if eip == _LAST_IPV4 else eip + 1
