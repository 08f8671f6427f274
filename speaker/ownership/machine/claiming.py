"""An EIP that this node does not hold: whose it is, and when to claim it (rules 9 to 18). Pure."""

from speaker.ownership.events import Record, RecordWritten
from speaker.ownership.hello import next_term
from speaker.ownership.machine.claims import Attempt, Eip
from speaker.ownership.machine.peers import FOREVER
from speaker.ownership.machine.state import MachineState


class Claiming(MachineState):
    """Judgement of free EIPs, and of what is written of all of them."""

    def _judge_free(self, x: Eip, now: float) -> float:
        if not self.rules.eligible(self, x):
            self._set_vacant(x, None)
            return self._release(x, now)
        if not self.rules.may_claim(self, x, now):
            self._set_vacant(x, None)
            return FOREVER
        held_until = self.rules.held_until(self, x, now)
        if held_until > now:
            self._set_vacant(x, None)
            return held_until
        if x.vacant_since is None:
            self._set_vacant(x, now)
        claim_at = self.rules.claim_at(self, x, x.vacant_since if x.vacant_since is not None else now, now)
        if now < claim_at:
            return claim_at
        self._claim(x, next_term(x.maxterm), now)
        return FOREVER

    def _release(self, x: Eip, now: float) -> float:
        """Rule 25: nobody, at the same term; if nobody else writes itself first. When to look again."""
        if x.record is None or x.record.holder != self.node:
            return FOREVER
        release_at = self.rules.release_at(self, x, now)
        if now < release_at:
            return release_at
        self._write(x, x.record.term, now, holder=False)
        return FOREVER

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
        if x.link is not None and not self.rules.knows(self, x, self.segments[x.link]):
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
        self._end_write(x)
        self._look_at([x.address])
        if reply.succeeded and x.holding and attempt.term > x.term:
            self._raise(x, attempt.term, now)

    def _write_timed_out(self, x: Eip, attempt: Attempt) -> None:
        """Rule 16."""
        self._end_write(x)
        self._lose_api()
