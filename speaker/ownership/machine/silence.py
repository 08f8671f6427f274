"""What silence means (rules 6, 7, 12, 15 and 17): a peer that is dead, or a link that carries nothing. Pure.

Silence of one peer may be its death, or a wire that carries nothing between us two. Silence of all may be our own
deafness. So before what others held is taken, the wire is asked: who answers for it lives, and whoever hears any answer
is not deaf.
"""

from itertools import islice

from speaker.model import IPAddress
from speaker.ownership.events import Ask
from speaker.ownership.hello import Hello
from speaker.ownership.machine.naming import Naming
from speaker.ownership.machine.peers import FOREVER, NEVER, Peer
from speaker.ownership.machine.segment import Segment

_LOOKED_AT = 1000
"""Of a silent peer's EIPs."""
ASKED = 16
"""EIPs of one ``Ask``."""
UNANSWERED = 8
"""Questions for one EIP without an answer, of a peer that answers for others, until it counts as let go. At 30 % loss
one EIP in two hundred is taken for that wrongly. The probe before its claim finds out."""


class Silence(Naming):
    """Peers fall silent and die; so may everybody, and then it may be us."""

    def _watch_peers(self, now: float) -> None:
        """Deaths, and probes before them. At every beat too: nobody who speaks is suspect before the next one, so that
        none of this wakes us between them."""
        if now < self._watch_at and now < self._beat_at:
            return
        self._watch_at = FOREVER
        for segment in self.segments.values():
            for peer in segment.peers.by_node.values():
                if peer.alive:
                    self._watch_at = min(self._watch_at, self._watch_or_wait(segment, peer, now))
            if segment.up:
                self._watch_at = min(self._watch_at, self._touch_or_wait(segment, now))

    def _watch_or_wait(self, segment: Segment, peer: Peer, now: float) -> float:
        try:
            return self._watch(segment, peer, now)
        except Exception as error:
            self._contain("watch", peer.node, error)
            return now + self.times.hello

    def _watch(self, segment: Segment, peer: Peer, now: float) -> float:
        """When to look again."""
        dies_at = peer.dies_at(self.times)
        if now >= dies_at:
            peer.alive = False
            self._peer_changed(peer)
            return FOREVER
        suspect_at = peer.suspect_at(self.times)
        if now < suspect_at:
            return min(suspect_at, dies_at)
        every = self.times.probe if now < peer.heard_at + peer.dead_after(self.times) else self.times.hello
        if now >= peer.probed_at + every:
            peer.probed_at = now
            self._probe(segment, peer)
        return min(peer.probed_at + every, dies_at)

    def _probe(self, segment: Segment, peer: Peer) -> None:
        segment.probes.add(peer.node)
        self._hurry()

    # ── Being in touch ────────────────────────────────────────────────────────────────────────────────────────

    def _touch_or_wait(self, segment: Segment, now: float) -> float:
        try:
            return self._keep_touch(segment, now)
        except Exception as error:
            self._contain("keep touch", f"link {segment.link}", error)
            return now + self.times.hello

    def _keep_touch(self, segment: Segment, now: float) -> float:
        """Ask the wire where it is to decide; when to look again."""
        self._feel(segment, now)
        every = self._asks_every(segment, now)
        if every is None:
            return FOREVER
        if now >= segment.asked_at + every:
            segment.asked_at = now
            segment.unanswered_since = min(segment.unanswered_since, now)
            self._ask(segment, now)
        return min(segment.asked_at + every, self._changes_at(segment, now))

    def _asks_every(self, segment: Segment, now: float) -> float | None:
        """Seconds between two questions; None: there is nothing to ask. Often while somebody is about to die, or lives
        by its answers alone, or we are about to be deaf; rarely where others vouch, or nothing hangs on it."""
        alive = [peer for peer in self.rules.silent(self, segment, now) if peer.is_alive(now, self.times)]
        all_silent = self.rules.all_silent(self, segment, now)
        about_to_die = any(now < peer.heard_at + peer.dead_after(self.times) for peer in alive)
        if about_to_die or (all_silent and not segment.in_touch and not segment.deaf):
            return self.times.probe
        if any(now < peer.answered_at + peer.dead_after(self.times) for peer in alive):
            return self.times.hello
        if not alive and not all_silent and not self.rules.knows_nothing(self, segment):
            return None
        return self.times.touch / 10 if alive or segment.in_touch or segment.deaf else self.times.hello

    def _changes_at(self, segment: Segment, now: float) -> float:
        """When time alone makes us deaf, or ends our being in touch."""
        ends_at = self.rules.touched_at(segment) + self.times.touch
        times = self.rules.deaf_at(self, segment), ends_at, segment.unheard_at
        return min((at for at in times if at > now), default=FOREVER)

    def _feel(self, segment: Segment, now: float) -> None:
        """Whether we are in touch on the link, and deaf if not."""
        before, was_deaf = segment.in_touch, segment.deaf
        segment.in_touch = self.rules.in_touch(self, segment, now)
        segment.deaf = self.rules.deaf(self, segment, now)
        if segment.deaf is not was_deaf:
            self._hurry()
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
            if not self.rules.all_silent(self, segment, now):
                self._weaken_unheard(segment, now)
        if segment.in_touch is not before or segment.deaf is not was_deaf:
            self._look_at_all_on(segment)

    def _to_be_heard(self, segment: Segment, now: float) -> float:
        """Seconds in which each of the others says once what it hears."""
        return self.times.hello * self._patience(segment, now) + self.times.slot

    def _patience(self, segment: Segment, now: float) -> float:
        """With the slowest of those who are to be heard here."""
        return max((peer.patience for peer in segment.peers.expected(now)), default=1.0)

    def _weaken_unheard(self, segment: Segment, now: float) -> None:
        """Others are heard, and none hears us, though it had the time: what we claimed since the last one did, nobody
        knows of. At once it would be said too late: whoever is heard again has our claim as we said it last."""
        known_until = max((peer.hears_us_at for peer in segment.peers.by_node.values()), default=NEVER)
        for eip in list(segment.own.terms):
            x = self.eips[eip]
            if x.held_since > known_until and not x.weak:
                self._weaken(x, now)
                self._look_at([eip])

    def _hear_out(self, segment: Segment, now: float, *, was_deaf: bool) -> None:
        """Others are heard again. If none was for longer than an answer takes it was we who did not hear: they get time
        to say what they hold, each at its own pace; more of it if we let ours go meanwhile."""
        if was_deaf:
            segment.listen(now + self.times.dead * self._patience(segment, now))
        elif now - segment.lost_touch_at >= self.times.probe:
            segment.listen(now + self._to_be_heard(segment, now))

    def _ask(self, segment: Segment, now: float) -> None:
        """For some of what the silent ones hold, in turn: who answers for one answers for all. Those who hear each
        other share the questions, lest a hundred nodes ask for sixteen EIPs each."""
        silent = self.rules.silent(self, segment, now)
        for peer in silent:
            self._reckon_unanswered(segment, peer, now)
        others = sum(peer.suspect_at(self.times) > now for peer in segment.peers.by_node.values())
        most = max(1, ASKED // (1 + others))
        each = max(1, most // max(1, len(silent)))
        eips = [eip for peer in silent for eip in self._some_of(peer, segment, each)][:most]
        anybody = segment.heard_at < now - self.times.hello
        self._orders.append(Ask(segment.link, tuple(eips), tuple(peer.node for peer in silent), anybody))

    def _some_of(self, peer: Peer, segment: Segment, number: int) -> list[IPAddress]:
        held = [eip for eip in islice(peer.claims, _LOOKED_AT) if eip not in segment.own.terms]
        begin = self._turn % max(1, len(held))
        self._turn += number
        some = [*held[begin:], *held[:begin]][:number]
        peer.unanswered.update(some)
        return some

    def _reckon_unanswered(self, segment: Segment, peer: Peer, now: float) -> None:
        """What it does not answer for, while it lives by its answers: it let that go, and we did not hear it say so."""
        if not peer.unanswered or now >= peer.answered_at + peer.dead_after(self.times):
            return
        for eip in [eip for eip, times in peer.unanswered.items() if times >= UNANSWERED and eip in peer.claims]:
            x = self._eip(eip)
            peer.give_up(eip)
            x.rivals.get(segment.link, set()).discard(peer.node)
            x.served_until = now  # whoever takes it asks the wire first, as questions get lost
            self._look_at([eip])

    def _look_at_all_on(self, segment: Segment) -> None:
        self._look_at(x.address for x in self.eips.values() if x.link == segment.link)

    def _hear_direct(self, segment: Segment, hello: Hello, now: float) -> None:
        """Rule 36: whoever sent it hears broadcasts, and none of its own reached us with it."""
        patience = self.times.suspect * 1000
        if not hello.deaf and any(heard.age < patience for heard in hello.heard.values()):
            segment.direct += 1
            if segment.in_touch and self.rules.hears_no_broadcast(segment):
                self._watch_at = now

    def _hear_frame(self, segment: Segment, now: float, version: int | None) -> None:
        """``version``: as ``FrameHeard`` says."""
        if segment.frame_at == NEVER and not segment.peers.by_node:
            self._begin_to_hear(segment, now)
        self._note_sign(segment, now)
        segment.frame_at = now
        if version is None:
            segment.broadcast_at, segment.direct = now, 0
        self._watch_at = now
        if not segment.in_touch:
            self._feel(segment, now)

    def _note_sign(self, segment: Segment, at: float) -> None:
        """Of anybody, before it is noted as heard."""
        gap = at - max(segment.heard_at, segment.frame_at)
        if gap >= self.times.suspect and at >= segment.unanswered_since + self.times.probe:
            segment.resumed_at = at
        segment.unanswered_since = FOREVER

    def _begin_to_hear(self, segment: Segment, now: float) -> None:
        """The first sign of anybody since the start. What waited for it, since records say that others hold it, waits a
        little longer: those get time to say so themselves."""
        waiting = any(
            x.link == segment.link and self.rules.foreign(self, x) and not x.holding for x in self.eips.values()
        )
        if waiting:
            until = now + self.times.dead
            segment.listen(max(until, segment.listen_until) if segment.listening else until)
        self._look_at_all_on(segment)

    def _peer_changed(self, peer: Peer) -> None:
        """It appeared, died, or began to drain: all whose fate may hang on it."""
        self.peers_changed += 1
        self._look_at(peer.claims)
        self._look_at(self._recorded.get(peer.node, ()))
        self._look_at(self._waiting)
