"""An EIP that this node does not hold: whose it is, and when to claim it (rules 9 to 17). Pure."""

from speaker.ownership.claims import Attempt, Eip
from speaker.ownership.desk import Desk
from speaker.ownership.events import Record, RecordWritten
from speaker.ownership.hello import next_term
from speaker.ownership.peers import Peer
from speaker.ownership.score import fair_share
from speaker.ownership.segment import Segment

_FOREVER = float("inf")
_NEVER = float("-inf")


class Claiming(Desk):
    """Judgement of free EIPs, and the write of the record that comes before an answer."""

    def _judge_free(self, x: Eip, now: float) -> float:
        if x.writing is None:
            self._settle(x)  # what was to be written is decided anew
        if not self._eligible(x):
            self._set_vacant(x, None)
            self._release(x, now)
            return _FOREVER
        if x.writing is not None or not self._may_claim(x, now):
            if x.writing is None:
                self._set_vacant(x, None)
            return _FOREVER
        held_until = self._held_until(x, now)
        if held_until > now:
            self._set_vacant(x, None)
            return held_until
        if x.vacant_since is None:
            self._set_vacant(x, now)
        claim_at = self._claim_at(x, x.vacant_since if x.vacant_since is not None else now, now)
        if now < claim_at:
            return claim_at
        if self._record_first() and not (x.ever_held and now >= claim_at + self._persists()):
            self._write(x, next_term(x.maxterm), now, claims=True)
        else:
            self._claim(x, next_term(x.maxterm), now)
        return _FOREVER

    def _held_until(self, x: Eip, now: float) -> float:
        """Rules 11, 12 and 19: until when, events apart, it is somebody else's."""
        if any(not self._making_way(peer) for peer in self._rivals(x, now)):
            return _FOREVER
        if x.record is not None and x.record.term >= x.maxterm:
            bound = self.api.bound_until(x, self._peer(x, x.record.holder), now)
            return max(bound, self._doubted_until(x, x.record, now), self._successor_until(x))
        return self._successor_until(x)

    def _doubted_until(self, x: Eip, record: Record, now: float) -> float:
        """12c takes the holder's silence for its death. Where two or more fell silent at once and nobody is left, it is
        rather us who were cut off: then the holder keeps it for as long as its Lease is renewed. Whether it is shows
        within one renewal; and when one is heard again, the others get their time to be."""
        assert x.link is not None
        peers = self.segments[x.link].peers
        lost_at = peers.all_lost_at(now)
        if not self.api.up or record.holder in (None, self.node):
            return _NEVER
        if lost_at is None:
            return peers.alone_until
        if self.api.seen_renewed(record, lost_at + self.times.record_grace):
            return self.api.lease_until(x, record, now)
        return lost_at + self.times.renew + self.times.record_grace

    def _successor_until(self, x: Eip) -> float:
        """Who yielded to a better claim was heard before the one who made it, or that one's hello was lost."""
        return x.successor_until

    def _making_way(self, peer: Peer) -> bool:
        return peer.draining

    def _release(self, x: Eip, now: float) -> None:
        """Rule 25: nobody, at the same term."""
        if x.record is not None and x.record.holder == self.node:
            self._write(x, x.record.term, now, holder=False)

    # ── Whose turn ────────────────────────────────────────────────────────────────────────────────────────────

    def _claim_at(self, x: Eip, vacant_since: float, now: float) -> float:
        """Rules 13 and 14."""
        at = vacant_since + self._wait(x, now)
        hold_back = self.times.record_timeout + self.times.slot
        for node, (said_at, _) in x.intents.items():
            peer = self._peer(x, node)
            if peer is not None and peer.is_alive(now, self.times) and self._precedes(x, peer):
                at = max(at, said_at + hold_back)
        return at

    def _wait(self, x: Eip, now: float) -> float:
        rank = self._rank(x, now)
        if rank and x.maxterm == 0 and self._assembling(x, now):
            # Nobody ever held it, so nothing fails over: let a better peer that still listens have it. Without this
            # the first node of a cluster that starts takes everything. The last in line waits for those behind too.
            return self.times.listen * (2 if rank == self.times.ranks else 1) + rank * self.times.slot
        return rank * self.times.slot

    def _rank(self, x: Eip, now: float) -> int:
        """Living, staying peers with a better score; whoever is demoted or has its share goes last."""
        assert x.link is not None
        segment = self.segments[x.link]
        others = [p for p in segment.peers.living(now) if not p.draining]
        # Only for what nobody held: a failover must not have everyone wait for the last slot, and claim in it together.
        overloaded = x.maxterm == 0 and self._overloaded(segment, len(others))
        if others and (x.demoted or overloaded):
            return self.times.ranks
        return min(sum(self._precedes(x, p) for p in others), self.times.ranks)

    def _assembling(self, x: Eip, now: float) -> bool:
        """A node has only just come, we or another: it may still listen."""
        assert x.link is not None
        lately = now - self.times.sync - self.times.listen
        return self._boot > lately or any(p.met_at > lately for p in self.segments[x.link].peers.living(now))

    def _overloaded(self, segment: Segment, others: int) -> bool:
        return len(segment.own) + len(segment.intents) >= fair_share(segment.eligible, others + 1)

    # ── The record ────────────────────────────────────────────────────────────────────────────────────────────

    def _record_first(self) -> bool:
        """Rule 15, or 17."""
        return self.api.up

    def _persists(self) -> float:
        """How long a write is tried again that others' writes get ahead of: as long as one may take (rule 16)."""
        return self.times.record_timeout

    def _read(self, x: Eip, record: Record, now: float) -> None:
        # Of one version the deletion comes last, whichever is heard first: the watch may be faster than a reply. What
        # was at stake is in ``maxterm``: the next record goes on from there.
        if x.record is not None and (record.version, record.gone) <= (x.record.version, x.record.gone):
            return
        if x.record is not None and x.record.holder is not None:
            self._recorded[x.record.holder].discard(x.address)
        if record.holder is not None:
            self._recorded[record.holder].add(x.address)
        x.record, x.record_read_at = record, now
        if record.holder not in (None, self.node):
            x.note_holder(record.term, record.holder)
        # Our own record comes before our answer (rule 15): it does not say that anybody held the EIP.
        x.raise_maxterm(record.term, held=(record.holder, record.incarnation) != (self.node, self.incarnation))
        self._look_at([x.address])

    def _written(self, x: Eip, reply: RecordWritten, now: float) -> None:
        """Rule 15's end. A reply nobody waits for only updates the record (rule 16)."""
        if reply.record is not None:
            self._read(x, reply.record, now)
        if self.api.listed and self.api.came_up():
            self._regain_api(now)
        attempt = x.writing
        if attempt is None or attempt.number != reply.attempt or now >= attempt.sent_at + self.times.record_timeout:
            return
        self._settle(x)
        self._look_at([x.address])
        if not reply.succeeded:
            return
        if attempt.claims and not x.holding and self._may_claim(x, now) and self._still_ours(x, attempt.term, now):
            self._claim(x, attempt.term, now)
        elif x.holding and not attempt.claims and attempt.term > x.term:
            self._raise(x, attempt.term, now)

    def _still_ours(self, x: Eip, term: int, now: float) -> bool:
        """Nothing heard while the write was under way beats it (rule 15)."""
        return x.maxterm <= term and not any(
            self._beats(x.address, peer.claims[x.address], peer.node, term)
            for peer in self._rivals(x, now)
            if not peer.draining
        )

    def _write_timed_out(self, x: Eip, attempt: Attempt, now: float) -> None:
        """Rule 16."""
        self._settle(x)
        self._lose_api()
        if attempt.claims and not x.holding and self._may_claim(x, now) and self._held_until(x, now) <= now:
            self._claim(x, attempt.term if x.maxterm <= attempt.term else next_term(x.maxterm), now)
