"""The state of the ownership machine: what it knows, and the few things it can do. Pure.

``MachineState`` ← ``Claiming`` ← ``Holding`` ← ``Moving`` ← ``Naming`` ← ``Silence`` ← ``Unanswered`` ← ``Hearing``
← ``Ownership``: one machine, a file per idea. What the rules of ``docs/ownership.md`` decide is asked of ``Rules``.
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
from speaker.ownership.machine.known import Known
from speaker.ownership.machine.peers import FOREVER, NEVER
from speaker.ownership.machine.rules import Rules
from speaker.ownership.machine.segment import Segment
from speaker.ownership.parameters import Parameters

_REVIEW_SECONDS = 1.0
"""At least between two looks at every EIP: an API server that answers now and then goes up and down by the dozen."""
_LIVES = 64
"""More than that are not climbed while frames of the first are on their way."""
_ASIDE_MAX = 60.0
"""Seconds at most until an EIP that a bug of ours concerns is tried again."""
_RULES = Rules()


class MachineState(Known):
    """One life of one node.

    ``incarnate`` makes an incarnation above the one given (its lower half random). ``per_hello``: claims in one hello
    before a window rotates over them. With ``api`` an API server is configured, reachable or not. ``revision``: of what
    is installed here; where nodes differ, the higher one claims first. ``rules``: what decides, for tests.
    ``take_over``: a stranger may answer for what peers hold in name (rule 18).
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
        rules: Rules = _RULES,
        take_over: bool = False,
    ) -> None:
        super().__init__(node, now, times or Parameters(), api, revision)
        self.rules, self._take_over = rules, take_over
        self.incarnation = incarnate(Incarnation(0))
        self.lives = deque([self.incarnation], maxlen=_LIVES)
        """The incarnations that this machine has had."""
        self._incarnate, self._per_hello = incarnate, per_hello
        self._sequence = 0
        self._now = self._calm_at = now
        """The step's time, and when the next tick may be due."""
        self._attempts = count(1)
        self._beat_at = now
        self._watch_at = now
        """No peer can become suspect or dead before."""
        self._hurried = False
        self._clash_until: float | None = None
        """Another host has our name, which we keep; it counts as gone then."""
        self._theirs: defaultdict[IPAddress, set[tuple[int, str]]] = defaultdict(set)
        """The own addresses of peers: on which link who says so."""
        self._recorded: defaultdict[str, set[IPAddress]] = defaultdict(set)
        """Node → whose records name it."""
        self._turn = 0
        """Which of a silent peer's EIPs to ask for next."""
        self.peers_changed = 0
        """Times that a peer came, fell silent, or began to go or to hear nothing, or that a link changed."""
        self.claims_heard = 0
        """Hellos that changed anything of what others claim."""
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

    # ── What can be done ──────────────────────────────────────────────────────────────────────────────────────

    def _claim(self, x: Eip, term: int, now: float) -> None:
        """Rule 18."""
        assert x.link is not None
        # Who answered for it a moment ago may go on, and its claim was never heard.
        first = not self.rules.knows_holder(self, x) or x.served_until > NEVER or self._held_in_name(x)
        silent_since = self._silent_since(x, now)
        self._end_write(x)
        x.weak = self.rules.taken_unheard(self, x, now)
        x.holding, x.term, x.held_since = True, term, now
        x.served_until = NEVER
        x.unknowing_since.clear()
        x.disputed_until = NEVER
        x.probed_until = now + self.times.hello if first else NEVER
        x.raise_maxterm(term)
        self._set_vacant(x, None)
        self.segments[x.link].own.add(x.address, term, now, x.weak)
        self._orders.append(Claim(x.address, x.link, term, first, silent_since))
        self._announce(x)
        self._hurry()
        self._look_at([x.address])

    def _held_in_name(self, x: Eip) -> bool:
        """Rule 18: who holds it may not answer, as a stranger does."""
        return self._take_over and any(x.address in peer.weak for peer in self.claimants(x))

    def _silent_since(self, x: Eip, now: float) -> float | None:
        """The last sign of the peer that held it last, where that one died with it."""
        peer = self.peer(x, x.held_by[1])
        if peer is None or x.address not in peer.claims or peer.is_alive(now, self.times):
            return None
        return max(peer.heard_at, peer.vouched_at, peer.answered_at)

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
        if not self.api.up or x.writing is not None or self.silent_until is not None:
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
        self._end_write(x)
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

    def _end_write(self, x: Eip) -> None:
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
