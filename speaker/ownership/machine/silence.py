"""What silence means (rules 6, 7, 12, 15 and 17): a peer that is dead, or a link that carries nothing. Pure.

Silence of one peer may be its death, or a wire that carries nothing between us two. Silence of all may be our own
deafness. So before this node takes what others held, it asks the wire: a node that answers for it lives, and a node
that hears any answer is not deaf.
"""

from collections.abc import Callable
from functools import partial
from itertools import islice

from speaker.model import IPAddress
from speaker.ownership.events import Ask
from speaker.ownership.hello import Hello
from speaker.ownership.machine.holding import Claims
from speaker.ownership.machine.known import Known
from speaker.ownership.machine.peers import Peer
from speaker.ownership.machine.records import Records
from speaker.ownership.machine.rules import Rules
from speaker.ownership.machine.segment import Segment
from speaker.ownership.parameters import FOREVER, NEVER

_LOOKED_AT = 1000
"""How many of a silent peer's EIPs are looked at."""
ASKED = 16
"""EIPs in one ``Ask``."""
UNANSWERED = 8
"""Questions for one EIP without an answer, of a peer that answers for others, until the EIP counts as yielded. At 30 %
loss, one EIP in two hundred is wrongly taken for that; the probe before its claim finds out."""


class Silence:
    """Peers fall silent and die. If all do, it may be this node that is deaf."""

    def __init__(self, k: Known, rules: Rules, claims: Claims, records: Records) -> None:
        self._k, self._rules, self._agenda, self._claims, self._records = k, rules, k.agenda, claims, records
        self._turn = 0
        """Which of a silent peer's EIPs to ask for next."""

    def watch_peers(self, now: float) -> None:
        """Looks for deaths, and probes before them. Also called at every beat: a peer that speaks is not suspect before
        the next one, so none of this wakes us in between."""
        if now < self._agenda.watch_at and now < self._agenda.beat_at:
            return
        self._agenda.watch_at = FOREVER
        for segment in self._k.segments.values():
            for peer in segment.peers.by_node.values():
                if peer.alive:
                    self._watch_again("watch", peer.node, partial(self._watch, segment, peer, now), now)
            if segment.up:
                self._watch_again("keep touch", segment, partial(self._keep_touch, segment, now), now)

    def _watch_again(self, doing: str, what: object, work: Callable[[], float], now: float) -> None:
        """``work`` returns when to look again."""
        wake = self._agenda.attempt(doing, what, work, now + self._k.times.hello)
        self._agenda.watch_at = min(self._agenda.watch_at, wake)

    def _watch(self, segment: Segment, peer: Peer, now: float) -> float:
        """Returns when to look again."""
        dies_at = peer.dies_at(self._k.times)
        if now >= dies_at:
            peer.alive = False
            self.peer_changed(peer)
            return FOREVER
        suspect_at = peer.suspect_at(self._k.times)
        if now < suspect_at:
            return min(suspect_at, dies_at)
        every = self._k.times.probe if now < peer.heard_at + peer.dead_after(self._k.times) else self._k.times.hello
        if now >= peer.probed_at + every:
            peer.probed_at = now
            self._probe(segment, peer)
        return min(peer.probed_at + every, dies_at)

    def _probe(self, segment: Segment, peer: Peer) -> None:
        segment.probes.add(peer.node)
        self._agenda.hurry()

    # ── Being in touch ────────────────────────────────────────────────────────────────────────────────────────

    def _keep_touch(self, segment: Segment, now: float) -> float:
        """Asks the wire if it has to decide. Returns when to look again."""
        self.feel(segment, now)
        if segment.own.weak:
            self._doubt(segment, now)
        every = self._asks_every(segment, now)
        if every is None:
            return FOREVER
        if now >= segment.asked_at + every:
            segment.asked_at = now
            segment.unanswered_since = min(segment.unanswered_since, now)
            self._ask(segment, now)
        return min(segment.asked_at + every, self._changes_at(segment, now))

    def _doubt(self, segment: Segment, now: float) -> None:
        """Rule 18: once every node has been within hearing for as long as news are repeated, claims made in doubt are
        looked at again, as often as that."""
        if not self._rules.all_heard(self._k, segment, now):
            segment.sure_at = FOREVER
        elif segment.sure_at == FOREVER:
            segment.sure_at = now + self._k.times.yielded
        elif now >= max(segment.sure_at, segment.doubted_at + self._k.times.yielded):
            segment.doubted_at = now
            self._agenda.look_later(segment.own.weak)

    def _asks_every(self, segment: Segment, now: float) -> float | None:
        """Seconds between two questions; None: there is nothing to ask. Often while a peer is about to die, or lives
        only by its answers, or we are about to be deaf; rarely if others vouch, or nothing depends on it."""
        alive = [peer for peer in self._rules.silent(self._k, segment, now) if peer.is_alive(now, self._k.times)]
        all_silent = self._rules.all_silent(self._k, segment, now)
        about_to_die = any(now < peer.heard_at + peer.dead_after(self._k.times) for peer in alive)
        if about_to_die or (all_silent and not segment.in_touch and not segment.deaf):
            return self._k.times.probe
        if any(now < peer.answered_at + peer.dead_after(self._k.times) for peer in alive):
            return self._k.times.hello
        if not alive and not all_silent and not self._rules.knows_nothing(self._k, segment):
            return None
        return self._k.times.touch / 10 if alive or segment.in_touch or segment.deaf else self._k.times.hello

    def _changes_at(self, segment: Segment, now: float) -> float:
        """When time alone makes us deaf, or ends our being in touch."""
        ends_at = self._rules.touched_at(segment) + self._k.times.touch
        times = self._rules.deaf_at(self._k, segment), ends_at, segment.unheard_at
        return min((at for at in times if at > now), default=FOREVER)

    def feel(self, segment: Segment, now: float) -> None:
        """Finds out whether we are in touch on the link, and deaf if not."""
        before, was_deaf = segment.in_touch, segment.deaf
        segment.in_touch = self._rules.in_touch(self._k, segment, now)
        segment.deaf = self._rules.deaf(self._k, segment, now)
        if segment.deaf is not was_deaf:
            self._agenda.hurry()
            if was_deaf:
                segment.returns.add(now)
        if before and not segment.in_touch:
            segment.lost_touch_at = now
            segment.unheard_at = now + self._to_be_heard(segment, now)
        elif segment.in_touch and not before:
            segment.unheard_at = FOREVER
            self._hear_out(segment, now, was_deaf=was_deaf)
        if now >= segment.unheard_at:
            segment.unheard_at = FOREVER
            if not self._rules.all_silent(self._k, segment, now):
                self._weaken_unheard(segment, now)
        if segment.in_touch is not before or segment.deaf is not was_deaf:
            self._agenda.look_at(self._k.eips_on(segment.link))

    def _to_be_heard(self, segment: Segment, now: float) -> float:
        """Seconds in which each of the others says once what it hears."""
        return self._k.times.hello * self._patience(segment, now) + self._k.times.slot

    def _patience(self, segment: Segment, now: float) -> float:
        """Patience with the slowest of the peers that should be heard here."""
        return max((peer.patience for peer in segment.peers.expected(now)), default=1.0)

    def _weaken_unheard(self, segment: Segment, now: float) -> None:
        """Others are heard, but none of them hears us, though they had the time. So nobody knows of what we claimed
        since the last one did. To weaken these claims only when somebody hears us again would be too late: that node
        has our claim as we said it last."""
        known_until = max((peer.hears_us_at for peer in segment.peers.by_node.values()), default=NEVER)
        for eip in list(segment.own.terms):
            x = self._k.eips[eip]
            if x.held_since > known_until and not x.weak:
                self._claims.weaken(x, now)
                self._agenda.look_at([eip])

    def _hear_out(self, segment: Segment, now: float, *, was_deaf: bool) -> None:
        """Others are heard again. If none was for longer than an answer takes, it was we who did not hear. Then they
        get time to say what they hold, each at its own pace; more time if we let ours go meanwhile."""
        if was_deaf:
            segment.listen(now + self._k.times.dead * self._patience(segment, now))
        elif now - segment.lost_touch_at >= self._k.times.probe:
            segment.listen(now + self._to_be_heard(segment, now))

    def _ask(self, segment: Segment, now: float) -> None:
        """Asks for some of what the silent peers hold, in turn: a peer that answers for one EIP answers for all. Nodes
        that hear each other share the questions, so that a hundred nodes do not ask for sixteen EIPs each."""
        silent = self._rules.silent(self._k, segment, now)
        for peer in silent:
            self._reckon_unanswered(segment, peer, now)
        others = sum(peer.suspect_at(self._k.times) > now for peer in segment.peers.by_node.values())
        most = max(1, ASKED // (1 + others))
        each = max(1, most // max(1, len(silent)))
        eips = [eip for peer in silent for eip in self._some_of(peer, segment, each)][:most]
        anybody = segment.heard_at < now - self._k.times.hello
        self._agenda.orders.append(Ask(segment.link, tuple(eips), tuple(peer.node for peer in silent), anybody))

    def _some_of(self, peer: Peer, segment: Segment, number: int) -> list[IPAddress]:
        held = [eip for eip in islice(peer.claims, _LOOKED_AT) if eip not in segment.own.terms]
        begin = self._turn % max(1, len(held))
        self._turn += number
        some = [*held[begin:], *held[:begin]][:number]
        peer.unanswered.update(some)
        return some

    def _reckon_unanswered(self, segment: Segment, peer: Peer, now: float) -> None:
        """EIPs that a peer does not answer for, while it lives by its answers: it yielded them, and we did not
        hear it."""
        if not peer.unanswered or now >= peer.answered_at + peer.dead_after(self._k.times):
            return
        for eip in [eip for eip, times in peer.unanswered.items() if times >= UNANSWERED and eip in peer.claims]:
            x = self._k.eip(eip)
            peer.deny(eip)
            x.rivals.get(segment.link, set()).discard(peer.node)
            x.served_until = now  # the node that takes it asks the wire first, as questions get lost
            self._agenda.look_at([eip])

    def hear_direct(self, segment: Segment, hello: Hello, now: float) -> None:
        """Rule 36: the sender hears broadcasts, but no broadcast of its own reached us with this hello."""
        patience = self._k.times.suspect * 1000
        if not hello.deaf and any(heard.age < patience for heard in hello.heard.values()):
            segment.direct += 1
            if segment.in_touch and self._rules.hears_no_broadcast(segment):
                self._agenda.watch_at = now

    def hear_frame(self, segment: Segment, at: float, now: float, version: int | None) -> None:
        """``at``: when it arrived. ``version``: as in ``FrameHeard``."""
        if segment.frame_at == NEVER and not segment.peers.by_node:
            self.begin_to_hear(segment, now)
        self.note_sign(segment, at)
        segment.frame_at = max(segment.frame_at, at)
        if version is None:
            segment.broadcast_at, segment.direct = now, 0
        self._agenda.watch_at = now
        if not segment.in_touch:
            self.feel(segment, now)

    def note_sign(self, segment: Segment, at: float) -> None:
        """A sign of any peer, before it is noted as heard."""
        gap = at - max(segment.heard_at, segment.frame_at)
        if gap >= self._k.times.suspect and at >= segment.unanswered_since + self._k.times.probe:
            segment.resumed_at = at
        segment.unanswered_since = FOREVER

    def begin_to_hear(self, segment: Segment, now: float) -> None:
        """The first sign of any peer since the start. EIPs that waited for it, as records say that others hold them,
        wait a little longer, so that these can say so themselves."""
        waiting = any(
            x.link == segment.link and self._rules.foreign(self._k, x) and not x.holding for x in self._k.eips.values()
        )
        if waiting:
            until = now + self._k.times.dead
            segment.listen(max(until, segment.listen_until) if segment.listening else until)
        self._agenda.look_at(self._k.eips_on(segment.link))

    def revive(self, segment: Segment, now: float) -> None:
        """Revives peers held dead that a witness has heard."""
        for peer in segment.peers.by_node.values():
            if not peer.alive and peer.is_alive(now, self._k.times):
                peer.alive = True
                self._agenda.watch_at = now
                self.peer_changed(peer)

    def peer_changed(self, peer: Peer) -> None:
        """It appeared, died, or began to drain: looks at all EIPs that may depend on it."""
        self._k.peers_changed += 1
        self._agenda.look_at(peer.claims)
        self._agenda.look_at(self._records.naming.get(peer.node, ()))
        self._agenda.look_at(self._claims.waiting)
