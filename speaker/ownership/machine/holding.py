"""An EIP that this node holds: who may take it away, and what its record should say (rules 19 to 31). Pure."""

from speaker.ownership.events import Yielded
from speaker.ownership.hello import next_term
from speaker.ownership.machine.claiming import Claiming
from speaker.ownership.machine.claims import Eip
from speaker.ownership.machine.peers import FOREVER, Peer


class Holding(Claiming):
    """Judgement of held EIPs."""

    def _judge_held(self, x: Eip, now: float) -> float:
        if (unfit := self.rules.unfit(self, x)) is not None:
            self._yield(x, unfit, now)
            return FOREVER
        wake, rivals = FOREVER, self.rivals(x, now)
        if x.unknowing_since:
            claim = {peer.node for peer in rivals}
            x.unknowing_since = {node: since for node, since in x.unknowing_since.items() if node in claim}
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
        if not self.rules.beats(self, x, peer, term):
            x.unknowing_since.pop(peer.node, None)
            self._hear_worse(x, peer, term)
            return FOREVER
        if x.address in peer.weak and self.rules.held_on(self, x, now):
            if now >= peer.hears_us_at + self.times.suspect:  # it may not even answer, and will let go at our word
                since = x.unknowing_since.setdefault(peer.node, now)
                if now < since + self.times.hello:
                    self._hurry()
                    return since + self.times.hello
            elif self.rules.unknowing(x, peer):
                self._stand(x, term, now)
                return FOREVER
        mute = self.rules.found_mute(self, x, now)
        self._yield(x, Yielded.UNANSWERED if mute else Yielded.BETTER_CLAIM, now, better=term)
        return FOREVER

    def _stand(self, x: Eip, term: int, now: float) -> None:
        """Keep it, at a term above."""
        x.weak = False
        x.unknowing_since.clear()
        self._raise(x, next_term(term), now)
        self._announce(x)

    def _hear_worse(self, x: Eip, peer: Peer, term: int) -> None:
        """Rule 20. What we took from one that was only unheard is about to go back."""
        terms = (term, x.term)
        if x.worse_claims.get(peer.node) != terms:
            x.worse_claims[peer.node] = terms
            if not x.weak:
                self._announce(x)
            self._hurry()

    def _judge_draining(self, x: Eip, since: float, now: float) -> float:
        """Rule 26: answer until a successor does."""
        drained_at = self.rules.drained_at(self, since)
        if now < drained_at:
            return drained_at
        self._yield(x, Yielded.DRAINED, now)
        return FOREVER

    def _judge_record(self, x: Eip, now: float) -> float:
        """Rules 23 and 24: it follows. Of two that do not hear each other both hold, and one line has room for one: the
        higher term's, until that one says nothing for long."""
        record, certain_at = x.record, max(x.held_since + self.times.hello, x.disputed_until)
        if now < certain_at:
            return certain_at  # of two that claim at once one will yield; and who does not answer does not hold it
        if record is None or record.holder is None:
            # Somebody may have held it at a higher term, unheard, and let it go: terms never go back.
            self._write(x, x.term if record is None or record.term <= x.term else next_term(record.term), now)
        elif record.holder == self.node:
            if record.term != x.term or record.incarnation != self.incarnation:
                self._write(x, x.term if record.term <= x.term else next_term(record.term), now)
        elif record.term < x.term:
            self._write(x, x.term, now)
        else:
            overtaken_at = x.record_read_at + self.rules.believed(self, x, record, now)
            if now < overtaken_at:
                return overtaken_at
            self._write(x, next_term(record.term), now)
        return FOREVER
