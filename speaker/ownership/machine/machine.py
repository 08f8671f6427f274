"""Who answers for which EIP: the rules of ``docs/ownership.md`` as a state machine. Pure: events in, orders out.

``Ownership.step`` is the only way in, and ``_judge`` is where each EIP is decided. What is decided, of what is known,
stands in ``rules.py``; ``wire/shared.py`` carries the orders out. Work per step follows what changed, not EIPs times
peers.
"""

import heapq
from collections import OrderedDict

from speaker.model import IPAddress
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
    HelloHeard,
    LeaseSeen,
    LinkChanged,
    Listen,
    Order,
    PeersAddress,
    Rebalance,
    RecordRead,
    RecordsRestored,
    RecordWritten,
    SetAside,
    Tick,
    Withdraw,
    Yielded,
)
from speaker.ownership.hello import Hello
from speaker.ownership.machine.claims import Eip
from speaker.ownership.machine.hearing import Hearing
from speaker.ownership.machine.peers import FOREVER, NEVER, PeerState
from speaker.ownership.machine.segment import Segment, Sender

_IN_SERIES = (EligibilityChanged, HelloHeard, RecordRead)
"""Come by the dozen in one go, so that what they do not concern waits for the tick behind them."""
_BATCH = 200
"""EIPs looked at in one step; more wait for the next, so that hellos and answers are never late for them."""


class Ownership(Hearing):
    """One life of one node; see ``MachineState`` for what it is made of."""

    def step(self, now: float, event: Event) -> list[Order]:
        """The orders that follow, to be carried out in this order. ``now`` never goes back. Those of a hello that more
        follow (``HelloHeard.more``) come with the next event."""
        if now - self._now > 1.5 * self.times.hello:
            self.away_at = now
        self._now = now
        more = isinstance(event, HelloHeard) and event.more
        if now >= self.answer_until and not more:
            kept = self._come_back(now)
            if isinstance(event, FrameHeard | EipAnswered) or (isinstance(event, HelloHeard) and not kept):
                # It waited with us: to take it for fresh would keep a dead peer alive, here and by our word elsewhere.
                event = Tick()
        self._heed(event, now)
        if more:
            return []
        for stage in (
            self._end_clash,
            self._watch_peers,
            self._forget_some,
            self._ask_holders,
            self._end_listening,
            self._watch_health,
            self._guide_plans,
            self._review,
        ):
            try:
                stage(now)
            except Exception as error:
                self._contain(stage.__name__.strip("_"), "everything", error)
        self._judge_due(now, idle=not isinstance(event, _IN_SERIES))
        self._speak(now)
        orders, self._orders = self._orders, []
        if len(orders) > 1:
            # What was claimed, or proven, and given up behind it in one step would be answered for from then on.
            orders = [order for order in orders if not isinstance(order, Claim) or self.holding(order.eip)]
            # Silence first: nothing else may delay it.
            orders.sort(key=lambda order: not isinstance(order, Withdraw))
        return orders

    def next_wake(self, now: float) -> float:
        """When a ``Tick`` is due; in the past if there is more to do at once."""
        return max(now if self._urgent or self._pending else self._next_due(), self._calm_at)

    def _next_due(self) -> float:
        wake = min(self._beat_at, self._watch_at, self._review_at)
        if self._hurried:
            wake = min(wake, self.sent_at + self.times.pace)
        for segment in self.segments.values():
            wake = min(wake, segment.listen_until, segment.own.next_slice_at() if segment.up else FOREVER)
        while self._alarms and self._alarms[0][2].wake != self._alarms[0][0]:
            heapq.heappop(self._alarms)
        return min(wake, self._alarms[0][0]) if self._alarms else wake

    @property
    def watch_at(self) -> float:
        """No peer can become suspect or dead before. From then on all hellos that wait are to be heard first."""
        return self._watch_at

    def speak_again(self) -> None:
        """The hello that was ordered last did not leave: it was no longer true by then."""
        self._hurry()

    @property
    def answer_until(self) -> float:
        """Nothing may be answered or announced at this instant or later (rule 27)."""
        return self.rules.answer_until(self)

    def holding(self, eip: IPAddress) -> bool:
        known = self.eips.get(eip)
        return known is not None and known.holding

    def term(self, eip: IPAddress) -> int:
        """Of this node's claim, which rises while it holds the EIP, too; 0 where it never had one."""
        known = self.eips.get(eip)
        return known.term if known is not None else 0

    def held(self) -> dict[IPAddress, int]:
        """EIP → term."""
        return {eip: term for segment in self.segments.values() for eip, term in segment.own.terms.items()}

    def recorded(self) -> tuple[IPAddress, ...]:
        """The EIPs of which there is a record, as far as was heard."""
        return tuple(x.address for x in self.eips.values() if x.record is not None and not x.record.gone)

    @property
    def ready(self) -> bool:
        """No link that is up still listens: what this node may claim, it would."""
        return not any(segment.up and segment.listening for segment in self.segments.values())

    def peers(self, now: float) -> dict[int, tuple[PeerState, ...]]:
        """Link → everybody heard there within the last hour, by name."""
        return {link: segment.peers.states(now, segment.sick) for link, segment in self.segments.items()}

    def speaks_for(self, link: int, node: str, eip: IPAddress, now: float) -> bool:
        """It says that it holds ``eip``, or did so within the last ``linger``."""
        segment = self.segments.get(link)
        peer = segment.peers.by_node.get(node) if segment is not None else None
        if peer is None or not peer.is_alive(now, self.times):
            return False
        return eip in peer.claims or now < peer.ended.get(eip, NEVER) + self.times.linger

    def believed(self, link: int, hello: Hello) -> bool:
        """It was heard last, and counts."""
        segment = self.segments.get(link)
        peer = segment.peers.by_node.get(hello.node) if segment is not None else None
        return peer is not None and peer.stamp == hello.stamp

    # ── Events ──────────────────────────────────────────────────────────────────────────────────────────

    def _heed(self, event: Event, now: float) -> None:
        """A hello that a bug of ours keeps from being understood counts as lost, so that its sender dies if all of its
        hellos do; an EIP whose news are lost is given up for a while."""
        before = self._sender(event) if isinstance(event, HelloHeard) else None
        heard_at = before.heard_at if before is not None else NEVER
        try:
            self._take_in(event, now)
        except Exception as error:
            match event:
                case HelloHeard():
                    self._contain("hear", event.hello.node, error)
                    self._unhear(event, before, heard_at, now)
                case EligibilityChanged():
                    self._contain("change eligibility", event.eip, error)
                    self._give_up(self._eip(event.eip), now)
                    if event.link is not None:
                        self._segment(event.link, now)
                    self._eip(event.eip).link = event.link
                case RecordRead() | RecordWritten():
                    self._contain("read record", event.eip, error)
                    self._give_up(self._eip(event.eip), now)
                case _:
                    self._contain("take in", type(event).__name__, error)

    def _take_in(self, event: Event, now: float) -> None:
        match event:
            case Tick():
                pass
            case HelloHeard() if event.hello.node == self.node:
                self._hear_own_name(self._segment(event.link, now), event, now)
            case HelloHeard():
                self._hear(self._segment(event.link, now), event.hello, now - event.age, now)
            case LinkChanged():
                self._change_link(self._segment(event.link, now), event.up, now)
            case EligibilityChanged():
                self._change_eligibility(event, now)
            case RecordRead():
                self._read(self._eip(event.eip), event.record, now)
            case RecordsRestored():
                self._restored(now)
            case RecordWritten():
                self._written(self._eip(event.eip), event, now)
            case ApiUp():
                if self.api.came_up():
                    self._regain_api(now)
                    self._watch_at = now
            case ApiDown():
                self._lose_api()
            case LeaseSeen() if event.node == self.node:
                self._see_own_lease(event, now)
            case LeaseSeen():
                pass  # another's: who lives is heard on the wire
            case FrameHeard():
                self._hear_frame(segment := self._segment(event.link, now), now, event.version)
                self._hear_other(segment, event.version)
            case EipAnswered():
                self._hear_answer(event, now)
            case Rebalance():
                self._rebalance(now)
            case SetAside():
                self._give_up(self._eip(event.eip), now)
            case Drain():
                self.draining_since = (self.draining_since or now) if event.on else None
                self._pending.update(dict.fromkeys(self.eips))
                self._hurry()

    def _change_link(self, segment: Segment, up: bool, now: float) -> None:
        self.peers_changed += 1
        segment.pause()
        if up and not segment.up:
            segment.listen(self._listen_until(now))
            segment.up_at = now
            if now - self.boot >= self.times.listen:
                segment.returns.add(now)
        lost, segment.up = segment.up and not up, up
        self._watch_at = now
        if lost:
            self._hurry()  # what is let go here can only be said on the other links
        self._pending.update(dict.fromkeys(e.address for e in self.eips.values() if e.link == segment.link))

    def _change_eligibility(self, event: EligibilityChanged, now: float) -> None:
        x = self._eip(event.eip)
        if x.holding and event.link != x.link:
            self._yield(x, Yielded.INELIGIBLE, now)
        self._end_write(x)
        if x.link is not None:
            self.segments[x.link].eligible -= 1
        if event.link is not None:
            segment = self._segment(event.link, now)
            segment.eligible += 1
            segment.demoted = event.demoted
        if x.owner is not None and (x.link is None) is not (event.link is None):
            self._orders.append(PeersAddress(x.address, x.owner if event.link is not None else None))
        x.link = event.link
        self._look_at([x.address])

    # ── Being late, and listening ─────────────────────────────────────────────────────────────────────────────

    def _come_back(self, now: float) -> bool:
        """Rules 27 and 39: whether what we hold is kept."""
        self.standstills.add(now)
        for segment in self.segments.values():
            segment.returns.add(now)
        try:
            kept = self.rules.kept_through(self, now)
        except Exception as error:
            self._contain("come back", "everything", error)
            kept = False
        if kept:
            self._orders.append(DropRequests())
        else:
            self._freeze(now)
        return kept

    def _freeze(self, now: float) -> None:
        for x in self.eips.values():
            try:
                if x.holding:
                    self._yield(x, Yielded.FROZEN, now)
                self._end_write(x)
                self._set_vacant(x, None)
            except Exception as error:
                self._contain("freeze", x.address, error)
                self._give_up(x, now)
        for segment in self.segments.values():
            try:
                segment.listen_out(now, self._listen_until(now))
            except Exception as error:
                self._contain("listen out", f"link {segment.link}", error)
            segment.pause()
        self._abandon_plans()
        self._orders.append(Listen(self._listen_until(now)))
        self.sent_at = now

    def _listen_until(self, now: float) -> float:
        return now + self.times.listen

    def _end_listening(self, now: float) -> None:
        for segment in self.segments.values():
            if segment.listen_until > now and not segment.heard_out:
                continue
            if self._still_listens(segment, now):
                segment.listen_until = now + self.times.hello / 10
            else:
                segment.end_listening()
                self._pending.update(dict.fromkeys(e for e, x in self.eips.items() if x.link == segment.link))

    def _still_listens(self, segment: Segment, now: float) -> bool:
        try:
            return self.rules.must_listen(self, segment, now)
        except Exception as error:
            self._contain("end listening", f"link {segment.link}", error)
            return False

    # ── One EIP ───────────────────────────────────────────────────────────────────────────────────────────────

    def _judge_due(self, now: float, idle: bool) -> None:
        """What just changed comes first, then what became due; the rest waits until the machine is ``idle``."""
        for _ in range(_BATCH):
            if self._urgent:
                x = self._eip(_pop(self._urgent))
            elif (due := self._due(now)) is not None:
                x = due
            elif idle and self._pending:
                x = self.eips[_pop(self._pending)]
            else:
                return
            try:
                self._judge(x, now)
            except Exception as error:
                self._contain("judge", x.address, error)
                self._give_up(x, now)

    def _due(self, now: float) -> Eip | None:
        while self._alarms and self._alarms[0][0] <= now:
            when, _, x = heapq.heappop(self._alarms)
            if x.wake == when:
                x.wake = FOREVER
                return x
        return None

    def _judge(self, x: Eip, now: float) -> None:
        """Keep or yield an EIP that is held (``holding.py``), claim a free one when it is this node's turn
        (``claiming.py``). Both act on what ``Rules`` says (``rules.py``): above all ``beats``, ``held_until`` and
        ``claim_at``."""
        if x.aside and now < x.aside_until:
            self._wake_at(x, x.aside_until)
            return
        x.aside = False
        if x.writing is not None and now >= x.writing.sent_at + self.times.record_timeout:
            self._write_timed_out(x, x.writing)
        wake = self._judge_held(x, now) if x.holding else FOREVER
        if not x.holding:
            wake = self._judge_free(x, now)
        if x.writing is not None:
            wake = min(wake, x.writing.sent_at + self.times.record_timeout)
        if self._unwritten and self.api.up and self._writing < self.times.writes:
            self._look_at([_pop(self._unwritten)])
        self._wake_at(x, wake)

    # ── Speaking ──────────────────────────────────────────────────────────────────────────────────────────────

    def _speak(self, now: float) -> None:
        for segment in self.segments.values():
            if segment.announce or segment.announce_all:
                self._announce_on(segment)
        beat = now >= self._beat_at
        hurried = self._hurried and now >= self.sent_at + self.times.pace
        if not beat and not hurried and not any(s.up and now >= s.own.next_slice_at() for s in self.segments.values()):
            return
        if beat:
            self._beat_at = now + self.times.hello
        self._hurried = False
        self.sent_at = now
        speaks, self._last_word = self._last_word or not self.silent, False
        for segment in self.segments.values():
            if segment.up and speaks:
                self._speak_on(segment, beat, now)

    def _announce_on(self, segment: Segment) -> None:
        try:
            if eips := segment.to_announce():
                self._orders.append(Announce(segment.link, eips))
        except Exception as error:
            self._contain("announce", f"link {segment.link}", error)

    def _speak_on(self, segment: Segment, beat: bool, now: float) -> None:
        """Without a hello the link falls silent when its self-lease is over (rule 27): its peers will take over."""
        try:
            self._orders.append(self._hello(segment, beat, now))
        except Exception as error:
            self._contain("speak", f"link {segment.link}", error)

    def _hello(self, segment: Segment, beat: bool, now: float) -> Order:
        self._sequence += 2  # the one between is for those who are sent it by unicast
        lost = [other for other in self.segments.values() if not other.up]
        return segment.hello(
            Sender(
                node=self.node,
                incarnation=self.incarnation,
                sequence=self._sequence,
                links=2 * (len(self.segments) - len(lost)),
                draining=self.draining_since is not None,
                revision=self.revision,
                # No hello of its own leaves by a link without a carrier: the other links tell what was let go there.
                yielded={eip: term for other in lost for eip, term in other.own.recently_yielded(now).items()},
                namesake=self._own_name_heard(segment, now),
            ),
            beat,
            now,
            segment.peers.unreached(now),
        )


def _pop(addresses: OrderedDict[IPAddress, None]) -> IPAddress:
    """The one that waited longest."""
    return addresses.popitem(last=False)[0]
