"""The state of the ownership machine: what it knows, and the few things it can do. Pure.

``MachineState`` ← ``Claiming`` ← ``Holding`` ← ``Moving`` ← ``Naming`` ← ``Silence`` ← ``Hearing`` ← ``Ownership``: one
machine, a file per idea. What each rule of ``docs/ownership.md`` decides is a small method named for it, so that tests
can put a wrong one in its place and see the simulation notice.
"""

import heapq
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from itertools import count

from speaker.model import IPAddress
from speaker.ownership.balance import MovePlan
from speaker.ownership.events import Claim, InternalError, Order, Withdraw, WriteRecord, Yielded
from speaker.ownership.hello import Incarnation
from speaker.ownership.machine.claims import Attempt, Eip
from speaker.ownership.machine.peers import FOREVER, NEVER, Peer
from speaker.ownership.machine.segment import Segment
from speaker.ownership.parameters import Parameters
from speaker.ownership.score import score

_REVIEW_SECONDS = 1.0
"""At least between two looks at every EIP: an API server that answers now and then goes up and down by the dozen."""
_LIVES = 64
"""More than that are not climbed while frames of the first are on their way."""
_LATELY = 60.0
"""Seconds for which a peer that fell silent counts among all there are."""
_ASIDE_MAX = 60.0
"""Seconds at most until an EIP that a bug of ours concerns is tried again."""


class Api:
    """The API server as last seen. ``configured`` is False where there is none at all."""

    def __init__(self, configured: bool) -> None:
        self.configured = configured
        self.up = self.listed = False

    def came_up(self) -> bool:
        """Whether that is news."""
        news = not self.up
        self.up = self.listed = True
        return news


class MachineState:
    """One life of one node.

    ``incarnate`` makes an incarnation above the one given (its lower half random). ``per_hello``: claims in one hello
    before a window rotates over them. With ``api`` an API server is configured, reachable or not. ``revision``: of what
    is installed here; where nodes differ, the higher one claims first.
    """

    def __init__(
        self,
        node: str,
        incarnate: Callable[[Incarnation], Incarnation],
        now: float,
        *,
        times: Parameters | None = None,
        api: bool = False,
        per_hello: int = 64,
        revision: int = 0,
    ) -> None:
        self.node = node
        self.revision = revision
        self.times = times or Parameters()
        self.incarnation = incarnate(Incarnation(0))
        self.lives = deque([self.incarnation], maxlen=_LIVES)
        """The incarnations that this machine has had."""
        self.draining_since: float | None = None
        self.api = Api(api)
        self.eips: dict[IPAddress, Eip] = {}
        self.segments: dict[int, Segment] = {}
        self._incarnate, self._per_hello = incarnate, per_hello
        self._boot = now
        self._sequence = 0
        self._now = self._calm_at = now
        """The step's time, and when the next tick may be due."""
        self._away_at = NEVER
        """When we came back after more than a hello interval without a step."""
        self._attempts = count(1)
        self._sent_at = now
        """When the last hello left: all that is answered hangs on it."""
        self._beat_at = now
        self._joined_at = NEVER
        """When our beat last came much earlier, to be with another's."""
        self._watch_at = now
        """No peer can become suspect or dead before."""
        self._hurried = False
        self._silent_until: float | None = None
        """Another host keeps our name; it counts as gone then."""
        self._clash_until: float | None = None
        """Another host has our name, which we keep; it counts as gone then."""
        self._theirs: defaultdict[IPAddress, set[tuple[int, str]]] = defaultdict(set)
        """The own addresses of peers: on which link who says so."""
        self._recorded: defaultdict[str, set[IPAddress]] = defaultdict(set)
        """Node → whose records name it."""
        self._turn = 0
        """Which of a silent peer's EIPs to ask for next."""
        self._last_word = False
        """One more hello, before silence."""
        self._foreign_lease_at = NEVER
        """When our Lease was last renewed by another life."""
        self._orders: list[Order] = []
        self._urgent: OrderedDict[IPAddress, None] = OrderedDict()
        self._pending: OrderedDict[IPAddress, None] = OrderedDict()
        self._review_at, self._reviewed_at = FOREVER, NEVER
        """When to look at every EIP since the API is up, and when that was done last."""
        self._alarms: list[tuple[float, int, Eip]] = []
        self._alarm_order = count()
        self._waiting: set[IPAddress] = set()
        """Neither held nor known to be somebody's: what a change among the peers may touch."""
        self._writing = 0
        """Attempts under way."""
        self._unwritten: OrderedDict[IPAddress, None] = OrderedDict()
        """Those whose record waits for one of these to end."""
        self._move_plans: dict[int, MovePlan] | None = None
        """Link → the rebalance followed there last; None before the first."""

    # ── What is known ─────────────────────────────────────────────────────────────────────────────────────────

    def _segment(self, link: int, now: float) -> Segment:
        if link not in self.segments:
            self.segments[link] = Segment(self.node, link, self.times, self._per_hello, now)
        return self.segments[link]

    def _eip(self, address: IPAddress) -> Eip:
        known = self.eips.get(address)
        if known is None:
            known = self.eips[address] = Eip(address)
            known.owner = self._owner(address)
        return known

    def _owner(self, address: IPAddress) -> str | None:
        """The peer that says ``address`` is its own; of several one."""
        return min((node for _, node in self._theirs.get(address, ())), default=None)

    def _look_at(self, addresses: Iterable[IPAddress]) -> None:
        self._urgent.update(dict.fromkeys(addresses))

    def _peer(self, x: Eip, node: str | None) -> Peer | None:
        if x.link is None or node is None:
            return None
        return self.segments[x.link].peers.by_node.get(node)

    def _rivals(self, x: Eip, now: float) -> list[Peer]:
        """Living peers that claim it."""
        return [peer for peer in self._claimants(x) if peer.is_alive(now, self.times)]

    def _claimants(self, x: Eip) -> list[Peer]:
        """Peers that claim it on our link, as far as we heard; alive or not."""
        if x.link is None:
            return []
        by_node = self.segments[x.link].peers.by_node
        return [peer for node in x.rivals.get(x.link, ()) if x.address in (peer := by_node[node]).claims]

    def _beats(self, x: Eip, peer: Peer, term: int) -> bool:
        """Rule 8: is the claim of ``peer`` at ``term`` better than ours? Of one term that which was made knowing of
        the holder before it."""
        theirs = term, x.address not in peer.weak, score(x.address, peer.node)
        return theirs > (x.term, not x.weak, score(x.address, self.node))

    def _precedes(self, x: Eip, peer: Peer) -> bool:
        """Is it the peer's turn before ours? Only order: which claim stands is for ``_beats``."""
        return (peer.revision, score(x.address, peer.node)) > (self.revision, score(x.address, self.node))

    def _eligible(self, x: Eip) -> bool:
        return (
            x.link is not None
            and x.owner is None
            and not x.aside
            and self.segments[x.link].up
            and self.draining_since is None
            and self._silent_until is None
        )

    def _may_claim(self, x: Eip, now: float) -> bool:
        if x.link is None or not self._eligible(x):
            return False
        segment = self.segments[x.link]
        return segment.in_touch and not self._listening(segment, now) and self._knows(x, segment)

    def _knows(self, x: Eip, segment: Segment) -> bool:
        """A record names another holder: it binds whoever has heard nothing at all of the LAN."""
        return not self._foreign(x) or segment.frame_at > NEVER or bool(segment.peers.by_node)

    def _knows_holder(self, x: Eip) -> bool:
        """Who held it last is a peer whose hellos we know. Anybody else might still, and is looked for on the wire."""
        term, node = x.held_by
        return term >= x.term and self._peer(x, node) is not None

    def _taken_unheard(self, x: Eip, now: float) -> bool:
        """Whoever held it fell silent, or was never heard here, and we are not the larger part: it may be out of our
        hearing only."""
        if any(not p.makes_way and not p.is_alive(now, self.times) for p in self._claimants(x)):
            assert x.link is not None  # or nobody would claim it there
            return not self._with_most(self.segments[x.link], now)
        return self._foreign(x) and not self._knows_holder(x)

    def _with_most(self, segment: Segment, now: float) -> bool:
        """We and those whom we hear are more than half of all that were heard here of late."""
        lately = [peer for peer in segment.peers.expected(now) if now < peer.heard_at + _LATELY]
        heard = sum(now < peer.suspect_at(self.times) for peer in lately)
        return 2 * (heard + 1) > len(lately) + 1

    def _foreign(self, x: Eip) -> bool:
        """Its record names another node."""
        return x.record is not None and x.record.holder not in (None, self.node)

    def _listening(self, segment: Segment, now: float) -> bool:
        return segment.listening

    # ── What can be done ──────────────────────────────────────────────────────────────────────────────────────

    def _claim(self, x: Eip, term: int, now: float) -> None:
        """Rule 18."""
        assert x.link is not None
        # Who answered for it a moment ago may go on, and its claim was never heard.
        first = not self._knows_holder(x) or x.served_until > NEVER
        self._settle(x)
        x.weak = self._taken_unheard(x, now)
        x.holding, x.term, x.held_since = True, term, now
        x.served_until = NEVER
        x.told_off.clear()
        x.disputed_until = NEVER
        x.probed_until = now + self.times.hello if first else NEVER
        x.raise_maxterm(term)
        self._set_vacant(x, None)
        self.segments[x.link].own.add(x.address, term, now, x.weak)
        self._orders.append(Claim(x.address, x.link, term, first))
        self._announce(x)
        self._hurry()
        self._look_at([x.address])

    def _raise(self, x: Eip, term: int, now: float) -> None:
        assert x.link is not None
        x.term = term
        x.raise_maxterm(term)
        self.segments[x.link].own.add(x.address, term, now, x.weak)
        self._hurry()

    def _dispute(self, x: Eip, now: float) -> None:
        """Somebody else answers for it: what was claimed not knowing of that is weak."""
        x.disputed_until = now + self.times.disputed
        if not x.weak:
            self._weaken(x, now)
        self._look_at([x.address])

    def _weaken(self, x: Eip, now: float) -> None:
        assert x.link is not None
        x.weak = True
        self.segments[x.link].own.add(x.address, x.term, now, weak=True)
        self._hurry()

    def _prove(self, x: Eip) -> None:
        """Whoever answered for it was a peer, and has just let it go."""
        assert x.link is not None
        x.disputed_until = x.probed_until = NEVER
        self._orders.append(Claim(x.address, x.link, x.term, first=False))
        self._look_at([x.address])

    def _yield(self, x: Eip, reason: Yielded, now: float, better: int = 0) -> None:
        assert x.link is not None
        x.holding, x.let_go_at = False, now
        self._orders.append(Withdraw(x.address, x.link, reason, now + self.times.linger))
        self.segments[x.link].own.remove(x.address, now, better)
        self._hurry()
        self._look_at([x.address])

    def _announce(self, x: Eip) -> None:
        assert x.link is not None
        self.segments[x.link].announce[x.address] = None

    def _hurry(self) -> None:
        """Rule 2: a hello at once, not at the next beat."""
        self._hurried = True

    def _set_vacant(self, x: Eip, since: float | None) -> None:
        x.vacant_since = since
        if since is None:
            self._waiting.discard(x.address)
        else:
            self._waiting.add(x.address)

    def _write(self, x: Eip, term: int, now: float, *, holder: bool = True) -> None:
        if not self.api.up or x.writing is not None or self._silent_until is not None:
            return
        if self._writing >= self.times.writes:
            self._unwritten[x.address] = None
            return
        self._writing += 1
        expected = x.record.version if x.record is not None and not x.record.gone else 0
        x.writing = Attempt(next(self._attempts), term, now, expected)
        node = self.node if holder else None
        self._orders.append(WriteRecord(x.address, x.writing.number, expected, node, self.incarnation, term))

    def _give_up(self, x: Eip, now: float) -> None:
        """Whatever state a bug left it in. Tried again soon, then ever less often."""
        again = now < x.aside_until + _ASIDE_MAX
        x.aside_for = min(2 * x.aside_for, _ASIDE_MAX) if again else self.times.listen
        x.aside, x.aside_until = True, now + x.aside_for
        self._wake_at(x, x.aside_until)
        if x.holding and x.link is not None:
            self._yield(x, Yielded.INTERNAL_ERROR, now)
        self._settle(x)
        self._set_vacant(x, None)
        self._unwritten.pop(x.address, None)

    def _wake_at(self, x: Eip, when: float) -> None:
        """Judge it then, events apart."""
        if when < FOREVER and when != x.wake:
            heapq.heappush(self._alarms, (when, next(self._alarm_order), x))
        x.wake = when

    def _contain(self, doing: str, what: object, error: Exception) -> None:
        """What is due and raises whenever it is tried must not be tried without a pause."""
        self._orders.append(InternalError(doing, str(what), error))
        self._calm_at = self._now + self.times.slot

    def _settle(self, x: Eip) -> None:
        """No write is under way any more."""
        self._writing -= x.writing is not None
        x.writing = None

    def _regain_api(self, now: float) -> None:
        """All whose record may be amiss are looked at."""
        self._review_at = max(now, self._reviewed_at + _REVIEW_SECONDS)

    def _review_soon(self, now: float) -> None:
        """Once what is read again by then has been."""
        self._review_at = now + _REVIEW_SECONDS

    def _review(self, now: float) -> None:
        if now < self._review_at:
            return
        self._review_at = FOREVER
        if self.api.up:
            self._reviewed_at = now
            self._pending.update(dict.fromkeys(self.eips))

    def _lose_api(self) -> None:
        """Nothing else follows: who holds what does not hang on it (rule 30)."""
        self.api.up = False
