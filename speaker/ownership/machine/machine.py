"""Who answers for which EIP: the rules of ``docs/ownership.md`` as a state machine. Pure: events in, orders out.

``Ownership.step`` is the only way in, and ``Claims.judge`` (``holding.py``) is where each EIP is decided. ``rules.py``
has the judgements about what is known, and ``wire/shared.py`` carries the orders out. The work of a step depends on
what changed, not on EIPs times peers.
"""

from collections.abc import Callable
from functools import partial

from speaker.model import IPAddress
from speaker.ownership.balance import Rebalancing
from speaker.ownership.events import (
    Announce,
    ApiDown,
    ApiUp,
    Claim,
    Drain,
    DropRequests,
    EipAnswered,
    EligibilityChanged,
    Event,
    FrameHeard,
    GroupsHold,
    HelloHeard,
    LeaseSeen,
    LinkChanged,
    Listen,
    Order,
    Rebalance,
    RecordRead,
    RecordsRestored,
    RecordWritten,
    SendHello,
    SetAside,
    Tick,
    Withdraw,
    Yielded,
)
from speaker.ownership.hello import Hello, Incarnation
from speaker.ownership.machine.agenda import pop
from speaker.ownership.machine.hearing import Hearing
from speaker.ownership.machine.holding import Claims
from speaker.ownership.machine.known import Known
from speaker.ownership.machine.moving import Moves
from speaker.ownership.machine.naming import Name
from speaker.ownership.machine.peers import Peer, PeerState
from speaker.ownership.machine.records import Records
from speaker.ownership.machine.rules import Rules
from speaker.ownership.machine.segment import Segment
from speaker.ownership.machine.silence import Silence
from speaker.ownership.machine.unanswered import Unanswered
from speaker.ownership.parameters import FOREVER, NEVER, Parameters
from speaker.ownership.preference import Preferred

_IN_SERIES = (EligibilityChanged, HelloHeard, RecordRead)
"""Events that come by the dozen; what they do not concern waits for the tick after them."""
_HEARD = (HelloHeard, EipAnswered, FrameHeard)
"""Events that also come by the dozen, read from sockets at the beat."""
_BATCH = 200
"""EIPs looked at in one step; more wait for the next, so that hellos and answers are never late because of them."""
_RULES = Rules()


class Ownership:
    """One life of one node.

    ``incarnate`` makes an incarnation above the one given (its lower half random). ``per_hello``: claims in one hello
    before a window rotates over them. ``api``: an API server is configured, reachable or not. ``revision``: of what is
    installed here; if nodes differ, the higher one claims first. ``rules``: what decides, for tests. ``take_over``: a
    stranger may answer for what peers hold in name (rule 18).
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
        k = self.known = Known(node, now, times or Parameters(), api, revision, per_hello)
        self.node, self.times, self._rules = node, k.times, rules
        self._agenda = k.agenda
        records = self.records = Records(k, rules)
        claims = self.claims = Claims(k, rules, records, take_over)
        self.moves = Moves(k, rules, claims)
        self.name = Name(k, claims, self.moves, incarnate)
        self.silence = Silence(k, rules, claims, records)
        self.unanswered = Unanswered(k, rules)
        self.hearing = Hearing(k, claims, self.name, self.moves, self.silence, self.unanswered)

    def step(self, now: float, event: Event) -> list[Order]:
        """The orders that follow, to be carried out in this order. ``now`` never goes back. If more events follow a
        hello (``more``), its orders come with the next event."""
        agenda = self._agenda
        if now - agenda.now > 1.5 * self.times.hello:
            self.known.away_at = now
        agenda.now = now
        more = isinstance(event, _HEARD) and event.more
        if now >= self.answer_until and not more:
            kept = self._come_back(now)
            if isinstance(event, FrameHeard | EipAnswered) or (isinstance(event, HelloHeard) and not kept):
                # It waited with us: treating it as fresh would keep a dead peer alive, here and by our word elsewhere.
                event = Tick()
        self._heed(event, now)
        if more:
            return []
        for stage in (
            self.name.end_clash,
            self.silence.watch_peers,
            self.hearing.forget_some,
            self.unanswered.ask_holders,
            self._end_listening,
            self.moves.watch_health,
            self.moves.guide_plans,
            self.moves.take_back,
            self.records.review,
        ):
            try:
                stage(now)
            except Exception as error:
                agenda.contain(stage.__name__.strip("_"), "everything", error)
        self._judge_due(now, idle=not isinstance(event, _IN_SERIES))
        self._speak(now)
        orders, agenda.orders = agenda.orders, []
        if len(orders) > 1:
            # What was claimed, or proven, and yielded behind it in one step would be answered for from then on.
            orders = [order for order in orders if not isinstance(order, Claim) or self.holding(order.eip)]
            # Silence first: nothing else may delay it.
            orders.sort(key=lambda order: not isinstance(order, Withdraw))
        return orders

    def next_wake(self, now: float) -> float:
        """When a ``Tick`` is due; in the past if there is more to do at once."""
        agenda = self._agenda
        return max(now if agenda.urgent or agenda.pending else self._next_due(), agenda.calm_at)

    def _next_due(self) -> float:
        agenda = self._agenda
        wake = min(agenda.beat_at, agenda.watch_at, self.records.review_at, agenda.next_alarm())
        if agenda.hurried:
            wake = min(wake, self.known.sent_at + self.times.pace)
        for segment in self.known.segments.values():
            wake = min(wake, segment.listen_until, segment.own.next_slice_at() if segment.up else FOREVER)
        return wake

    # ── Asked of it ───────────────────────────────────────────────────────────────────────────────────────────

    @property
    def incarnation(self) -> Incarnation:
        return self.known.incarnation

    @property
    def draining_since(self) -> float | None:
        return self.known.draining_since

    @property
    def headless(self) -> bool:
        """There is no working main process: what is held is kept, and nothing comes here because it prefers this node
        (rule 42)."""
        return self.known.headless

    @headless.setter
    def headless(self, on: bool) -> None:
        if self.known.headless and not on:
            self.known.ready_at = self._agenda.now
        self.known.headless = on

    @property
    def peers_changed(self) -> int:
        return self.known.peers_changed

    @property
    def claims_heard(self) -> int:
        return self.known.claims_heard

    @property
    def rebalancing(self) -> Rebalancing | None:
        return self.moves.rebalancing

    @property
    def watch_at(self) -> float:
        """No peer can become suspect or dead before this time. After it, all waiting hellos must be heard first."""
        return self._agenda.watch_at

    def speak_again(self) -> None:
        """The last hello that was ordered was not sent: it was no longer true by then."""
        self._agenda.hurry()

    @property
    def answer_until(self) -> float:
        """Nothing may be answered or announced at this instant or later (rule 27)."""
        return self._rules.answer_until(self.known)

    def holding(self, eip: IPAddress) -> bool:
        known = self.known.eips.get(eip)
        return known is not None and known.holding

    def term(self, eip: IPAddress) -> int:
        """The term of this node's claim, which also rises while it holds the EIP; 0 if it never had one."""
        known = self.known.eips.get(eip)
        return known.term if known is not None else 0

    def held(self) -> dict[IPAddress, int]:
        """EIP → term."""
        return {eip: term for segment in self.known.segments.values() for eip, term in segment.own.terms.items()}

    def holder(self, eip: IPAddress, now: float) -> tuple[str, int] | None:
        """As ``Known.holder``."""
        return self.known.holder(eip, now)

    def preferred(self, eip: IPAddress, now: float) -> Preferred | None:
        """As ``Rules.preferred``."""
        x = self.known.eips.get(eip)
        return self._rules.preferred(self.known, x, now) if x is not None and x.preference is not None else None

    def heard_on(self, eip: IPAddress, node: str) -> int | None:
        """A link on which ``node`` says that it holds it. If the link went, and is another now, it no longer says so
        there."""
        x, segments = self.known.eips.get(eip), self.known.segments
        links = x.rivals.items() if x is not None else ()
        return next((link for link, nodes in links if node in nodes and segments[link].up), None)

    def held_before(self, eip: IPAddress) -> str | None:
        """The other node that had it last, alive or not; None if there is none, as far as this node knows."""
        x = self.known.eips.get(eip)
        return x.held_by[1] or None if x is not None else None

    def recorded(self) -> tuple[IPAddress, ...]:
        """The EIPs that have a record, as far as was heard."""
        return tuple(x.address for x in self.known.eips.values() if x.record is not None and not x.record.gone)

    @property
    def ready(self) -> bool:
        """No link that is up is still listening: this node would claim whatever it may claim."""
        return not any(segment.up and segment.listening for segment in self.known.segments.values())

    def peers(self, now: float) -> dict[int, tuple[PeerState, ...]]:
        """Link → all nodes heard there within the last hour, by name."""
        segments = self.known.segments.items()
        return {link: segment.peers.states(now, segment.sick, segment.deaf) for link, segment in segments}

    def uses(self, link: int) -> bool:
        """It knows that the link is up."""
        return link in self.known.segments and self.known.segments[link].up

    def speaks_for(self, link: int, node: str, eip: IPAddress, now: float) -> bool:
        """It says that it holds ``eip``, or did so within the last ``linger``."""
        peer = self._heard(link, node)
        if peer is None or not peer.is_alive(now, self.times):
            return False
        return eip in peer.claims or now < peer.ended.get(eip, NEVER) + self.times.linger

    def believed(self, link: int, hello: Hello) -> bool:
        """It is the newest, and counts."""
        peer = self._heard(link, hello.node)
        return peer is not None and peer.stamp == hello.stamp

    def _heard(self, link: int, node: str) -> Peer | None:
        segment = self.known.segments.get(link)
        return segment.peers.by_node.get(node) if segment is not None else None

    # ── Events ──────────────────────────────────────────────────────────────────────────────────────────

    def _heed(self, event: Event, now: float) -> None:
        """If a bug of ours keeps a hello from being understood, the hello counts as lost, so its sender dies if that
        happens to all of its hellos. An EIP whose news are lost that way is set aside for a while."""
        before = self._heard(event.link, event.hello.node) if isinstance(event, HelloHeard) else None
        heard_at = before.heard_at if before is not None else NEVER
        try:
            self._take_in(event, now)
        except Exception as error:
            match event:
                case HelloHeard():
                    self._agenda.contain("hear", event.hello.node, error)
                    self.hearing.unhear(event.link, self._heard(event.link, event.hello.node), before, heard_at, now)
                case EligibilityChanged():
                    self._agenda.contain("change eligibility", event.eip, error)
                    self.claims.set_aside(self.known.eip(event.eip), now)
                    if event.link is not None:
                        self.known.segment(event.link, now)
                    self.known.eip(event.eip).link = event.link
                case RecordRead() | RecordWritten():
                    self._agenda.contain("read record", event.eip, error)
                    self.claims.set_aside(self.known.eip(event.eip), now)
                case _:
                    self._agenda.contain("take in", type(event).__name__, error)

    def _take_in(self, event: Event, now: float) -> None:
        match event:
            case Tick():
                pass
            case HelloHeard() if event.hello.node == self.node:
                self.name.hear_namesake(self.known.segment(event.link, now), event, now)
            case HelloHeard():
                self.hearing.hear(self.known.segment(event.link, now), event.hello, now - event.age, now)
            case GroupsHold():
                self.hearing.hear_groups(event.link, event.eips)
            case LinkChanged():
                self._change_link(self.known.segment(event.link, now), event.up, now)
            case EligibilityChanged():
                self.claims.change_eligibility(event, now)
            case RecordRead():
                self.records.read(self.known.eip(event.eip), event.record, now)
            case RecordsRestored():
                self.records.restored(now)
            case RecordWritten():
                if term := self.records.written(x := self.known.eip(event.eip), event, now):
                    self.claims.raise_term(x, term, now)
            case ApiUp():
                if self.known.api.came_up():
                    self.records.regain(now)
                    self._agenda.watch_at = now
            case ApiDown():
                self.known.api.up = False
            case LeaseSeen() if event.node == self.node:
                self.name.see_lease(event, now)
            case LeaseSeen():
                pass  # another node's: whether it lives is heard on the wire
            case FrameHeard():
                segment = self.known.segment(event.link, now)
                self.silence.hear_frame(segment, now - event.age, now, event.version)
                self.unanswered.hear_other(segment, event.version)
            case EipAnswered():
                self.hearing.hear_answer(event, now)
            case Rebalance():
                self.moves.rebalance(now)
            case SetAside():
                self.claims.set_aside(self.known.eip(event.eip), now)
            case Drain():
                if self.draining_since is not None and not event.on:
                    self.known.ready_at = now
                self.known.draining_since = (self.draining_since or now) if event.on else None
                self._agenda.look_later(self.known.eips)
                self._agenda.hurry()

    def _change_link(self, segment: Segment, up: bool, now: float) -> None:
        self.known.peers_changed += 1
        segment.pause()
        if up and not segment.up:
            segment.listen(now + self.times.listen)
            segment.up_at = now
            if now - self.known.boot >= self.times.listen:
                segment.returns.add(now)
        lost, segment.up = segment.up and not up, up
        self._agenda.watch_at = now
        if lost:
            self._agenda.hurry()  # what is yielded here can only be said on the other links
        self._agenda.look_later(self.known.eips_on(segment.link))

    # ── Being late, and listening ─────────────────────────────────────────────────────────────────────────────

    def _come_back(self, now: float) -> bool:
        """Rules 27 and 39. Returns whether what we hold is kept."""
        self.known.standstills.add(now)
        for segment in self.known.segments.values():
            segment.returns.add(now)
        kept_through = partial(self._rules.kept_through, self.known, now)
        kept = self._agenda.attempt("come back", "everything", kept_through, otherwise=False)
        if kept:
            self._agenda.orders.append(DropRequests())
        else:
            self._freeze(now)
        return kept

    def _freeze(self, now: float) -> None:
        for x in self.known.eips.values():
            try:
                self.claims.clear(x, Yielded.FROZEN, now)
            except Exception as error:
                self._agenda.contain("freeze", x.address, error)
                self.claims.set_aside(x, now)
        for segment in self.known.segments.values():
            self._agenda.attempt("listen out", segment, partial(segment.listen_out, now, now + self.times.listen), None)
            segment.pause()
        self.moves.abandon_all()
        self._agenda.orders.append(Listen(now + self.times.listen))
        self.known.sent_at = now

    def _end_listening(self, now: float) -> None:
        for segment in self.known.segments.values():
            if not segment.listening or (segment.listen_until > now and not segment.heard_out):
                continue
            if self._agenda.attempt(
                "end listening", segment, partial(self._rules.must_listen, self.known, segment, now), otherwise=False
            ):
                segment.listen_until = now + self.times.hello / 10
            else:
                segment.end_listening()
                self._agenda.look_later(self.known.eips_on(segment.link))

    # ── One EIP after the other ───────────────────────────────────────────────────────────────────────────────

    def _judge_due(self, now: float, idle: bool) -> None:
        """First what just changed, then what became due; the rest waits until the machine is ``idle``."""
        k, agenda = self.known, self._agenda
        for _ in range(_BATCH):
            if agenda.urgent:
                x = k.eip(pop(agenda.urgent))
            elif (due := agenda.due(now)) is not None:
                x = due
            elif idle and agenda.pending:
                x = k.eips[pop(agenda.pending)]
            else:
                return
            try:
                self.claims.judge(x, now)
            except Exception as error:
                agenda.contain("judge", x.address, error)
                self.claims.set_aside(x, now)

    # ── Speaking ──────────────────────────────────────────────────────────────────────────────────────────────

    def _speak(self, now: float) -> None:
        for segment in self.known.segments.values():
            if segment.announce or segment.announce_all:
                self._agenda.attempt("announce", segment, partial(self._announce_on, segment), None)
        beat = now >= self._agenda.beat_at
        hurried = self._agenda.hurried and now >= self.known.sent_at + self.times.pace
        if (
            not beat
            and not hurried
            and not any(s.up and now >= s.own.next_slice_at() for s in self.known.segments.values())
        ):
            return
        if beat:
            self._agenda.beat_at = now + self.times.hello
        self._agenda.hurried = False
        self.known.sent_at = now
        speaks = self.name.speaks()
        for segment in self.known.segments.values():
            if segment.up and speaks:
                self._agenda.attempt("speak", segment, partial(self._speak_on, segment, beat, now), None)

    def _announce_on(self, segment: Segment) -> None:
        if eips := segment.to_announce():
            self._agenda.orders.append(Announce(segment.link, eips))

    def _speak_on(self, segment: Segment, beat: bool, now: float) -> None:
        """Without a hello, the link falls silent when its self-lease is over (rule 27): its peers will take over."""
        hello = segment.hello(self._hello(segment, now), beat, now)
        self._agenda.orders.append(SendHello(segment.link, hello, segment.peers.unreached(now)))

    def _hello(self, segment: Segment, now: float) -> Hello:
        """What is said on every link, and about our name on this one."""
        k = self.known
        lost = [other for other in k.segments.values() if not other.up]
        return Hello(
            node=k.node,
            incarnation=k.incarnation,
            sequence=self.name.next_sequence(),
            clock=round(now * 1000),
            links=2 * (len(k.segments) - len(lost)),
            draining=k.draining_since is not None,
            revision=k.revision,
            # A link without a carrier sends no hello of its own: the other links tell what was yielded there.
            yielded={eip: term for other in lost for eip, term in other.own.recently_yielded(now).items()},
            heard=self.name.namesake_heard(segment, now),
        )
