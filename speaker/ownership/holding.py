"""An EIP that this node holds: who may take it away, and what its record should say (rules 18 to 26). Pure."""

from speaker.ownership.claiming import Claiming
from speaker.ownership.claims import Eip
from speaker.ownership.events import Record, Yielded
from speaker.ownership.hello import next_term
from speaker.ownership.peers import Peer

_FOREVER = float("inf")


class Holding(Claiming):
    """Judgement of held EIPs."""

    def _judge_held(self, x: Eip, now: float) -> float:
        if x.link is None or not self.segments[x.link].up:
            self._yield(x, Yielded.INELIGIBLE if x.link is None else Yielded.LINK_DOWN, now)
            return _FOREVER
        if x.owner is not None:
            self._yield(x, Yielded.PEERS_ADDRESS, now)
            return _FOREVER
        for peer in self._rivals(x, now):
            term = peer.claims[x.address]
            if self._beats(x.address, term, peer.node, x.term):
                self._yield(x, Yielded.BETTER_CLAIM, now, better=term)
                return _FOREVER
            self._hear_worse(x, peer, term)
        if self.draining_since is not None:
            return self._judge_draining(x, self.draining_since, now)
        return self._judge_record(x, now)

    def _hear_worse(self, x: Eip, peer: Peer, term: int) -> None:
        """Rule 20."""
        told = (term, x.term)
        if x.told.get(peer.node) != told:
            x.told[peer.node] = told
            self._announce(x)
            self._hurry()

    def _judge_draining(self, x: Eip, since: float, now: float) -> float:
        """Rule 26: answer until a successor does."""
        if now >= since + self.times.drain:
            self._yield(x, Yielded.DRAINED, now)
            return _FOREVER
        record = x.record
        yield_at = _FOREVER
        if record is not None and self._better_record(x, record):
            yield_at = self._yield_to_record_at(x, record, now)
        if now >= yield_at:
            self._yield(x, Yielded.BETTER_RECORD, now)
            return _FOREVER
        return min(yield_at, since + self.times.drain)

    def _judge_record(self, x: Eip, now: float) -> float:
        """Rules 23 and 24."""
        record = x.record
        if record is None or record.holder is None:
            # Somebody may have held it at a higher term, unheard, and let it go: terms never go back.
            self._write(x, x.term if record is None or record.term <= x.term else next_term(record.term), now)
        elif record.holder == self.node:
            if record.term != x.term or record.incarnation != self.incarnation:
                self._write(x, x.term if record.term <= x.term else next_term(record.term), now)
        elif record.term < x.term:
            self._write(x, x.term, now)
        elif not self._better_record(x, record):
            self._write(x, next_term(record.term), now)
        else:
            return self._judge_better_record(x, record, now)
        return _FOREVER

    def _judge_better_record(self, x: Eip, record: Record, now: float) -> float:
        yield_at = self._yield_to_record_at(x, record, now)
        if now >= yield_at:
            self._yield(x, Yielded.BETTER_RECORD, now)
            return _FOREVER
        until = self.api.bound_until(x, self._peer(x, record.holder), now)
        if until <= now:
            self._write(x, next_term(record.term), now)
            return _FOREVER
        return min(until, yield_at)

    def _better_record(self, x: Eip, record: Record) -> bool:
        return record.holder not in (None, self.node) and self._beats(
            x.address, record.term, record.holder or "", x.term
        )

    def _yield_to_record_at(self, x: Eip, record: Record, now: float) -> float:
        """Rule 23: when does a better record make us yield, if ever? One whom we hear has to say so itself: to be asked
        again when we hear it no more, which others who do may keep from looking like a death.

        Not at once: our watch may be faster than the reply to the winner, who answers only then.
        """
        peer = self._peer(x, record.holder)
        if self._hear_first() and peer is not None and peer.is_heard(now, self.times):
            return peer.heard_at + self.times.dead
        if self.draining_since is not None:
            # 12c lets others take over from a holder that fell silent; one who leaves has nothing to take.
            binds = (peer is None or peer.incarnation <= record.incarnation) and (
                self.api.lease_until(x, record, now) > now
            )
        else:
            binds = self.api.bound_until(x, peer, now) > now
        if not binds or not self.api.seen_renewed(record):
            return _FOREVER
        return x.record_read_at + self._replied_after()

    def _hear_first(self) -> bool:
        return True

    def _replied_after(self) -> float:
        return self.times.record_timeout
