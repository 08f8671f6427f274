"""An EIP that this node does not hold: whose it is, and when to claim it (rules 9 to 18). Pure."""

from speaker.ownership.events import Record, RecordWritten
from speaker.ownership.hello import next_term
from speaker.ownership.machine.claims import Attempt, Eip
from speaker.ownership.machine.peers import FOREVER, Peer
from speaker.ownership.machine.segment import Segment
from speaker.ownership.machine.state import MachineState
from speaker.ownership.score import fair_share


class Claiming(MachineState):
    """Judgement of free EIPs, and of what is written of all of them."""

    def _judge_free(self, x: Eip, now: float) -> float:
        if not self._eligible(x):
            self._set_vacant(x, None)
            return self._release(x, now)
        if not self._may_claim(x, now):
            self._set_vacant(x, None)
            return FOREVER
        held_until = self._held_until(x, now)
        if held_until > now:
            self._set_vacant(x, None)
            return held_until
        if x.vacant_since is None:
            self._set_vacant(x, now)
        claim_at = self._claim_at(x, x.vacant_since if x.vacant_since is not None else now, now)
        if now < claim_at:
            return claim_at
        self._claim(x, next_term(x.maxterm), now)
        return FOREVER

    def _held_until(self, x: Eip, now: float) -> float:
        """Rules 11, 12 and 19: until when, events apart, it is somebody else's."""
        if any(not self._making_way(peer) for peer in self._rivals(x, now)):
            return FOREVER
        if not self._heard_since_lost(x, now):
            return now + self.times.slot
        return max(self._successor_until(x), x.served_until)

    def _heard_since_lost(self, x: Eip, now: float) -> bool:
        """Something reached us here after the silence of each that claims it had become suspect."""
        assert x.link is not None
        segment = self.segments[x.link]
        lost = [p for p in self._claimants(x) if not self._making_way(p) and not p.is_alive(now, self.times)]
        return not lost or max(p.suspect_at(self.times) for p in lost) <= max(segment.heard_at, segment.frame_at)

    def _successor_until(self, x: Eip) -> float:
        """Who yielded to a better claim was heard before the one who made it, or that one's hello was lost."""
        return x.successor_until

    def _making_way(self, peer: Peer) -> bool:
        return peer.makes_way

    def _release(self, x: Eip, now: float) -> float:
        """Rule 25: nobody, at the same term; if nobody else writes itself first. When to look again."""
        if x.record is None or x.record.holder != self.node:
            return FOREVER
        release_at = x.let_go_at + self.times.record_grace
        if now < release_at and (self.draining_since is None or self._rivals(x, now)):
            return release_at
        self._write(x, x.record.term, now, holder=False)
        return FOREVER

    # ── Whose turn ────────────────────────────────────────────────────────────────────────────────────────────

    def _claim_at(self, x: Eip, vacant_since: float, now: float) -> float:
        """Rule 13."""
        return vacant_since + self._wait(x, now)

    def _wait(self, x: Eip, now: float) -> float:
        assert x.link is not None
        rank = self._rank(x, now)
        if rank and x.maxterm == 0 and self._assembling(x, now):
            # Nobody ever held it, so nothing fails over: let a better peer that still listens have it. Without this
            # the first node of a cluster that starts takes everything. The last in line waits for those behind too.
            return self.times.listen * (2 if rank == self.times.ranks else 1) + rank * self.times.slot
        return self._damped(self.segments[x.link], now) + rank * self.times.slot

    def _damped(self, segment: Segment, now: float) -> float:
        """A link that comes and goes takes only what nobody took who could, while there is somebody whose does not."""
        steady = any(not self._making_way(peer) and not peer.demoted for peer in segment.peers.living(now))
        return self.times.dead if steady and segment.returns.many(now) else 0.0

    def _rank(self, x: Eip, now: float) -> int:
        """Living, staying peers with a better score; whoever is demoted or has its share goes last, unless all are."""
        assert x.link is not None
        segment = self.segments[x.link]
        others = [p for p in segment.peers.living(now) if not self._making_way(p)]
        first = [p for p in others if not p.demoted]
        # Only for what nobody held: a failover must not have everyone wait for the last slot, and claim in it together.
        overloaded = x.maxterm == 0 and self._overloaded(segment, len(others))
        last = segment.goes_last(now)
        if others and (overloaded or (last and first)):
            return self.times.ranks
        return min(sum(self._precedes(x, p) for p in (others if last else first)), self.times.ranks)

    def _assembling(self, x: Eip, now: float) -> bool:
        """A node has only just come, we or another: it may still listen."""
        assert x.link is not None
        lately = now - self.times.sync - self.times.listen
        return self._boot > lately or any(p.met_at > lately for p in self.segments[x.link].peers.living(now))

    def _overloaded(self, segment: Segment, others: int) -> bool:
        return len(segment.own) >= fair_share(segment.eligible, others + 1)

    # ── The record ────────────────────────────────────────────────────────────────────────────────────────────

    def _read(self, x: Eip, record: Record, now: float) -> None:
        # Of one version the deletion comes last, whichever is heard first: the watch may be faster than a reply. What
        # was at stake is in ``maxterm``: the next record goes on from there.
        if x.record is not None and (record.version, record.gone) <= (x.record.version, x.record.gone):
            return
        self._forget_record(x)
        if record.holder is not None:
            self._recorded[record.holder].add(x.address)
        x.record, x.record_read_at = record, now
        if record.holder not in (None, self.node):
            x.note_holder(record.term, record.holder)
        x.raise_maxterm(record.term)
        self._look_at([x.address])
        if x.link is not None and not self._knows(x, self.segments[x.link]):
            self._watch_at = now

    def _forget_record(self, x: Eip) -> None:
        if x.record is not None and x.record.holder is not None:
            self._recorded[x.record.holder].discard(x.address)
        x.record = None

    def _restored(self, now: float) -> None:
        for x in self.eips.values():
            self._forget_record(x)
        self._review_soon(now)

    def _written(self, x: Eip, reply: RecordWritten, now: float) -> None:
        """A reply nobody waits for only updates the record (rule 16)."""
        attempt = x.writing
        if reply.record is not None:
            if attempt is not None and attempt.number == reply.attempt and reply.record.version < attempt.expected:
                self._forget_record(x)  # asked after we knew a later one: an older backup was restored
            self._read(x, reply.record, now)
        if self.api.listed and self.api.came_up():
            self._regain_api(now)
        if attempt is None or attempt.number != reply.attempt or now >= attempt.sent_at + self.times.record_timeout:
            return
        self._settle(x)
        self._look_at([x.address])
        if reply.succeeded and x.holding and attempt.term > x.term:
            self._raise(x, attempt.term, now)

    def _write_timed_out(self, x: Eip, attempt: Attempt) -> None:
        """Rule 16."""
        self._settle(x)
        self._lose_api()
