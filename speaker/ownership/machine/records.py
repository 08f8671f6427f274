"""What the API says about each EIP, which follows who holds it (rules 16, 23 to 25 and 30). Pure."""

from collections import OrderedDict, defaultdict
from itertools import count

from speaker.model import IPAddress
from speaker.ownership.events import Record, RecordWritten, WriteRecord
from speaker.ownership.hello import next_term
from speaker.ownership.machine.agenda import pop
from speaker.ownership.machine.claims import Attempt, Eip
from speaker.ownership.machine.known import Known
from speaker.ownership.machine.rules import Rules
from speaker.ownership.parameters import FOREVER, NEVER

_REVIEW_SECONDS = 1.0
"""The shortest time between two looks at every EIP: an API server that answers only now and then goes up and down by
the dozen."""


class Records:
    """Records are read, and written by compare-and-swap, a few at a time."""

    def __init__(self, k: Known, rules: Rules) -> None:
        self._k, self._rules, self._agenda = k, rules, k.agenda
        self.naming: defaultdict[str, set[IPAddress]] = defaultdict(set)
        """Node → EIPs whose records name it."""
        self._attempts = count(1)
        self._writing = 0
        """How many attempts are under way."""
        self._unwritten: OrderedDict[IPAddress, None] = OrderedDict()
        """EIPs whose record waits for one of these to end."""
        self.review_at, self._reviewed_at = FOREVER, NEVER
        """When to look at every EIP because the API is up, and when that was last done."""

    # ── Read ──────────────────────────────────────────────────────────────────────────────────────────────────

    def read(self, x: Eip, record: Record, now: float) -> None:
        # Of one version the deletion comes last, whichever is heard first: the watch may outrun a reply. Its term is
        # kept in ``maxterm``, and the next record goes on from there.
        k = self._k
        if x.record is not None and (record.version, record.gone) <= (x.record.version, x.record.gone):
            return
        self._forget(x)
        if record.holder is not None:
            self.naming[record.holder].add(x.address)
        x.record, x.record_read_at = record, now
        if record.holder not in (None, k.node):
            x.note_holder(record.term, record.holder, now)
        x.raise_maxterm(record.term)
        self._agenda.look_at([x.address])
        if x.link is not None and not self._rules.knows(k, x, k.segments[x.link]):
            self._agenda.watch_at = now

    def _forget(self, x: Eip) -> None:
        if x.record is not None and x.record.holder is not None:
            self.naming[x.record.holder].discard(x.address)
        x.record = None

    def restored(self, now: float) -> None:
        """An older backup was restored: all EIPs are looked at once everything that is to be read again has
        been read."""
        for x in self._k.eips.values():
            self._forget(x)
        self.review_at = now + _REVIEW_SECONDS

    def regain(self, now: float) -> None:
        """The API is up again: looks at all EIPs whose record may be wrong."""
        self.review_at = max(now, self._reviewed_at + _REVIEW_SECONDS)

    def review(self, now: float) -> None:
        if now < self.review_at:
            return
        self.review_at = FOREVER
        if self._k.api.up:
            self._reviewed_at = now
            self._agenda.look_later(self._k.eips)

    # ── Written ───────────────────────────────────────────────────────────────────────────────────────────────

    def follow(self, x: Eip, now: float) -> float:
        """Rules 23 and 24, for an EIP that is held. Returns when to look again. Two nodes that do not hear each other
        both hold it, but a record has room for only one: the one with the higher term, until that one says nothing for
        long."""
        k, record, certain_at = self._k, x.record, max(x.held_since + self._k.times.hello, x.disputed_until)
        if now < certain_at:
            return certain_at  # of two that claim at once one will yield; and who does not answer does not hold it
        if record is None or record.holder is None:
            # Somebody may have held it at a higher term, unheard, and yielded: terms never go back.
            self._write(x, x.term if record is None or record.term <= x.term else next_term(record.term), now)
        elif record.holder == k.node:
            if record.term != x.term or record.incarnation != k.incarnation:
                self._write(x, x.term if record.term <= x.term else next_term(record.term), now)
        elif record.term < x.term:
            self._write(x, x.term, now)
        else:
            overtaken_at = x.record_read_at + self._rules.believed(k, x, record, now)
            if now < overtaken_at:
                return overtaken_at
            self._write(x, next_term(record.term), now)
        return FOREVER

    def release(self, x: Eip, now: float) -> float:
        """Rule 25: writes that nobody holds it, at the same term, unless another node writes itself first. Returns when
        to look again."""
        if x.record is None or x.record.holder != self._k.node:
            return FOREVER
        release_at = self._rules.release_at(self._k, x, now)
        if now < release_at:
            return release_at
        self._write(x, x.record.term, now, holder=False)
        return FOREVER

    def _write(self, x: Eip, term: int, now: float, *, holder: bool = True) -> None:
        k = self._k
        if not k.api.up or x.writing is not None or k.silent:
            return
        if self._writing >= k.times.writes:
            self._unwritten[x.address] = None
            return
        self._writing += 1
        expected = x.record.version if x.record is not None and not x.record.gone else 0
        x.writing = Attempt(next(self._attempts), term, now, expected)
        node = k.node if holder else None
        self._agenda.orders.append(WriteRecord(x.address, x.writing.number, expected, node, k.incarnation, term))

    def written(self, x: Eip, reply: RecordWritten, now: float) -> int:
        """A reply that nobody waits for only updates the record (rule 16). Returns the term at which it is held from
        now on, because that was written; 0: unchanged."""
        attempt = x.writing
        if reply.record is not None:
            if attempt is not None and attempt.number == reply.attempt and reply.record.version < attempt.expected:
                self._forget(x)  # asked after we knew a later one: an older backup was restored
            self.read(x, reply.record, now)
        if self._k.api.listed and self._k.api.came_up():
            self.regain(now)
        if attempt is None or attempt.number != reply.attempt or now >= self.due(x):
            return 0
        self.end(x)
        self._agenda.look_at([x.address])
        return attempt.term if reply.succeeded and x.holding and attempt.term > x.term else 0

    def due(self, x: Eip) -> float:
        """When the write under way must be over."""
        return FOREVER if x.writing is None else x.writing.sent_at + self._k.times.record_timeout

    def expire(self, x: Eip, now: float) -> None:
        """Rule 16. Nothing else follows from the API's silence: who holds an EIP does not depend on it (rule 30)."""
        if now >= self.due(x):
            self.end(x)
            self._k.api.up = False

    def end(self, x: Eip) -> None:
        """No write is under way any more."""
        self._writing -= x.writing is not None
        x.writing = None

    def go_on(self) -> None:
        """Continues with one that waits to be written."""
        if self._unwritten and self._k.api.up and self._writing < self._k.times.writes:
            self._agenda.look_at([pop(self._unwritten)])

    def forgo(self, x: Eip) -> None:
        """It no longer waits to be written."""
        self._unwritten.pop(x.address, None)
