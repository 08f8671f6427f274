"""An EIP that this node holds: who may take it away, and what its record should say (rules 19 to 31). Pure."""

from speaker.ownership.events import Record, Yielded
from speaker.ownership.hello import next_term
from speaker.ownership.machine.claiming import Claiming
from speaker.ownership.machine.claims import Eip
from speaker.ownership.machine.peers import FOREVER, Peer


class Holding(Claiming):
    """Judgement of held EIPs."""

    def _judge_held(self, x: Eip, now: float) -> float:
        if x.link is None or not self.segments[x.link].up:
            self._yield(x, Yielded.INELIGIBLE if x.link is None else Yielded.LINK_DOWN, now)
            return FOREVER
        if x.owner is not None:
            self._yield(x, Yielded.PEERS_ADDRESS, now)
            return FOREVER
        if self.segments[x.link].deaf:
            self._yield(x, Yielded.DEAF, now)
            return FOREVER
        wake, rivals = FOREVER, self._rivals(x, now)
        if x.told_off:
            x.told_off = {peer.node: x.told_off[peer.node] for peer in rivals if peer.node in x.told_off}
        for peer in rivals:
            if not peer.deaf:
                wake = min(wake, self._judge_rival(x, peer, now))
            if not x.holding:
                return FOREVER
        if self.draining_since is not None:
            return min(wake, self._judge_draining(x, self.draining_since, now))
        return min(wake, self._judge_record(x, now))

    def _judge_rival(self, x: Eip, peer: Peer, now: float) -> float:
        """Rules 19, 20 and 29: when to look again."""
        term = peer.claims[x.address]
        if now < x.disputed_until:
            self._yield(x, Yielded.BETTER_CLAIM, now, better=term)  # it answers, as we do not
            return FOREVER
        if not self._beats(x, peer, term):
            x.told_off.pop(peer.node, None)
            self._hear_worse(x, peer, term)
            return FOREVER
        if self._unknowing(x, peer) and self._held_on(x, now):
            if now < peer.hears_us_at + self.times.suspect:  # and so has heard us since it took it
                self._stand(x, term, now)
                return FOREVER
            since = x.told_off.setdefault(peer.node, now)
            if now < since + self.times.hello:
                self._hurry()
                return since + self.times.hello
        self._yield(x, Yielded.BETTER_CLAIM, now, better=term)
        return FOREVER

    def _unknowing(self, x: Eip, peer: Peer) -> bool:
        """Its claim is the better one for its term alone, and was made in the belief that the holder was gone."""
        return x.address in peer.weak and peer.claims[x.address] > x.term

    def _held_on(self, x: Eip, now: float) -> bool:
        """Whoever goes, was away for a moment itself, or has it for no longer than a first probe takes, has nothing to
        stand for."""
        present = now >= self._away_at + self.times.dead and now >= x.held_since + self.times.hello
        return self.draining_since is None and present

    def _stand(self, x: Eip, term: int, now: float) -> None:
        """Keep it, at a term above."""
        x.weak = False
        x.told_off.clear()
        self._raise(x, next_term(term), now)
        self._announce(x)

    def _hear_worse(self, x: Eip, peer: Peer, term: int) -> None:
        """Rule 20. What we took from one that was only unheard is about to go back."""
        told = (term, x.term)
        if x.told.get(peer.node) != told:
            x.told[peer.node] = told
            if not x.weak:
                self._announce(x)
            self._hurry()

    def _judge_draining(self, x: Eip, since: float, now: float) -> float:
        """Rule 26: answer until a successor does."""
        if now >= since + self.times.drain:
            self._yield(x, Yielded.DRAINED, now)
            return FOREVER
        return since + self.times.drain

    def _judge_record(self, x: Eip, now: float) -> float:
        """Rules 23 and 24: it follows. Of two that do not hear each other both hold, and one line has room for one: the
        higher term's, until that one says nothing for long."""
        record, settled_at = x.record, max(x.held_since + self.times.hello, x.disputed_until)
        if now < settled_at:
            return settled_at  # of two that claim at once one will yield; and who does not answer does not hold it
        if record is None or record.holder is None:
            # Somebody may have held it at a higher term, unheard, and let it go: terms never go back.
            self._write(x, x.term if record is None or record.term <= x.term else next_term(record.term), now)
        elif record.holder == self.node:
            if record.term != x.term or record.incarnation != self.incarnation:
                self._write(x, x.term if record.term <= x.term else next_term(record.term), now)
        elif record.term < x.term:
            self._write(x, x.term, now)
        else:
            overtaken_at = x.record_read_at + self._believed(x, record, now)
            if now < overtaken_at:
                return overtaken_at
            self._write(x, next_term(record.term), now)
        return FOREVER

    def _believed(self, x: Eip, record: Record, now: float) -> float:
        """Seconds for which a record that names another holder, at our term or above, stays as it is."""
        peer = self._peer(x, record.holder)
        heard = peer is not None and peer.is_heard(now, self.times)
        return self.times.record_grace if heard else self.times.record_stale
