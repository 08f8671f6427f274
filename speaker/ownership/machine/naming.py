"""Two hosts with one name and one key: only one of them may answer, and both say so (rule 32). Pure.

A cloned machine keeps its name. Each of the two would take the other's hellos for its own, and the peers would take
them for one node that restarts all the time. So when a hello with our name is not ours, our hellos name its life, as
they do a stranger's. If it then names our life, it lives now, and is not a recording. Then one of the two keeps the
name: the one that holds EIPs, or else the one that began first. The other yields everything and falls silent, until
nothing was heard of the name for ``SILENCE``.
"""

from collections import deque
from collections.abc import Callable

from speaker.ownership.events import HelloHeard, LeaseSeen, NameClash, NameFree, Yielded
from speaker.ownership.hello import Heard, Hello, Incarnation, has_next
from speaker.ownership.machine.holding import Claims
from speaker.ownership.machine.known import Known
from speaker.ownership.machine.moving import Moves
from speaker.ownership.machine.peers import age
from speaker.ownership.machine.segment import Namesake, Segment
from speaker.ownership.parameters import NEVER

SILENCE = 10.0
"""Seconds without a sign of the other before it counts as gone."""
_LIVES = 64
"""No more lives are climbed than this while frames of the first are on their way."""


class Name:
    """This node's name, and whose it is. ``incarnate`` makes an incarnation above the one given."""

    def __init__(
        self,
        k: Known,
        claims: Claims,
        moves: Moves,
        incarnate: Callable[[Incarnation], Incarnation],
    ) -> None:
        self._k, self._agenda, self._claims, self._moves, self._incarnate = k, k.agenda, claims, moves, incarnate
        k.incarnation = incarnate(Incarnation(0))
        self.lives = deque([k.incarnation], maxlen=_LIVES)
        """The incarnations that this machine has had."""
        self._sequence = 0
        self._clash_until: float | None = None
        """Another host has our name, which we keep; it counts as gone at this time."""
        self._foreign_lease_at = NEVER
        """When another life last renewed our Lease."""
        self._last_word = False
        """One more hello is sent before silence."""

    def next_sequence(self) -> int:
        """The next sequence of a hello. The number in between is for nodes that get it by unicast."""
        self._sequence += 2
        return self._sequence

    def speaks(self) -> bool:
        """Whether hellos are sent now."""
        last, self._last_word = self._last_word, False
        return last or not self._k.silent

    def hear_namesake(self, segment: Segment, event: HelloHeard, now: float) -> None:
        hello = event.hello
        if hello.incarnation == self._k.incarnation and (not event.looped or hello.sequence > self._sequence):
            self._rise_above(hello.incarnation)  # a machine that was cloned while it ran: tell the two apart
            return
        if event.looped and hello.incarnation in self.lives:
            return
        namesake = segment.namesake
        if namesake is None or namesake.incarnation != hello.incarnation:
            namesake = segment.namesake = Namesake((hello.incarnation, -1, 0), hello.link, now, now)
        if hello.stamp <= namesake.stamp:
            return
        namesake.stamp, namesake.link, namesake.heard_at = hello.stamp, hello.link, now
        if self._k.silent:
            self._k.silent_until = now + SILENCE
            return
        if now - segment.greeted_at >= self._k.times.hello / 4:
            segment.greeted_at = now
            self._agenda.hurry()
        if segment.peers.names_us(hello, self._k.incarnation):
            namesake.proven = True
            ours_first = (not segment.own, self._k.incarnation) < (not hello.digest.count, hello.incarnation)
            segment.announce_all |= ours_first
            self._begin_clash(NameClash(segment.link, event.mac, silent=not ours_first), now)

    def _begin_clash(self, clash: NameClash, now: float) -> None:
        if clash.silent:
            self._fall_silent(now)
        if clash.silent or self._clash_until is None:
            self._agenda.orders.append(clash)
        if not clash.silent:
            self._clash_until = now + SILENCE

    def see_lease(self, event: LeaseSeen, now: float) -> None:
        """Like ``hear_namesake``, if the two share no link: the API server shows who else renews our Lease. Once is not
        enough, as the last renewal of our own previous life may come late."""
        if event.incarnation in self.lives or not event.renewed:
            return
        if self._k.silent:
            self._k.silent_until = now + SILENCE
            return
        before, self._foreign_lease_at = self._foreign_lease_at, now
        if now - before < self._k.times.lease:
            self._begin_clash(NameClash(None, None, silent=event.incarnation < self._k.incarnation), now)

    def _fall_silent(self, now: float) -> None:
        """One last hello says what is yielded."""
        self._k.silent_until, self._clash_until = now + SILENCE, None
        self._moves.abandon_all()
        for x in self._k.eips.values():
            self._claims.clear(x, Yielded.NAME_CLASH, now)
        self._last_word, self._agenda.beat_at = True, now

    def end_clash(self, now: float) -> None:
        """Nobody else has the name any more: begin again."""
        if self._clash_until is not None and now >= self._clash_until:
            self._clash_until = None
            self._agenda.orders.append(NameFree())
        if self._k.silent_until is None or now < self._k.silent_until:
            return
        self._k.silent_until, self._foreign_lease_at = None, NEVER
        known = [s.namesake.incarnation for s in self._k.segments.values() if s.namesake is not None]
        self._rise_above(max([self._k.incarnation, *known]))
        for segment in self._k.segments.values():
            segment.namesake = None
            segment.listen(now + self._k.times.listen)
        self._agenda.look_later(self._k.eips)
        self._agenda.orders.append(NameFree())

    def climb(self, hello: Hello, now: float) -> None:
        """Somebody knows a later life of ours: our clock went back (rule 5)."""
        k, known = self._k, hello.heard.get(self._k.node)
        if known is None or known.incarnation <= k.incarnation or not has_next(known.incarnation) or k.silent:
            return
        if not any(self._is_met(segment, known.incarnation, now) for segment in k.segments.values()):
            self._rise_above(known.incarnation)

    def _is_met(self, segment: Segment, known: Incarnation, now: float) -> bool:
        """Whether that life is a namesake's rather than an earlier one of ours: it is heard here. A recording is
        believed only for a moment."""
        namesake = segment.namesake
        return (
            namesake is not None
            and namesake.incarnation == known
            and now < namesake.heard_at + self._k.times.suspect
            and (namesake.proven or now < namesake.met_at + self._k.times.dead)
        )

    def _rise_above(self, known: Incarnation) -> None:
        self._k.incarnation = self._incarnate(known)
        self.lives.append(self._k.incarnation)
        self._sequence = 0
        self._agenda.hurry()
        self._agenda.look_later(address for address, x in self._k.eips.items() if x.holding)

    def namesake_heard(self, segment: Segment, now: float) -> dict[str, Heard]:
        """For our hello: the namesake is named like a stranger."""
        namesake = segment.namesake
        if namesake is None or now - namesake.heard_at >= self._k.times.dead:
            return {}
        return {self._k.node: Heard(namesake.incarnation, age(now - namesake.heard_at), namesake.link)}
