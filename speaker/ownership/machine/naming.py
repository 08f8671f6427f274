"""Two hosts with one name and one key: only one of them may answer, and both say so (rule 32). Pure.

A cloned machine keeps its name. Each of the two would take the other's hellos for its own, and the peers would take
them for one node that restarts all the time. So a hello of our name that is not ours is answered by naming its life in
our own hellos, as a stranger's is; one that names our life in turn lives now, and is no recording. Then one of the two
keeps the name: the one that holds EIPs, of two alike the one that began first. The other lets everything go and falls
silent, until nothing was heard of the name for ``SILENCE``.
"""

from speaker.ownership.events import HelloHeard, LeaseSeen, NameClash, NameFree, Yielded
from speaker.ownership.hello import Heard, Hello, Incarnation, has_next
from speaker.ownership.machine.moving import Moving
from speaker.ownership.machine.peers import NEVER, age
from speaker.ownership.machine.segment import Namesake, Segment

SILENCE = 10.0
"""Seconds for which nothing is heard of the other before it counts as gone."""


class Naming(Moving):
    """Whose the node's name is."""

    @property
    def silent(self) -> bool:
        """Another host has our name: nothing is said, claimed or written."""
        return self.silent_until is not None

    def _hear_own_name(self, segment: Segment, event: HelloHeard, now: float) -> None:
        hello = event.hello
        if hello.incarnation == self.incarnation and (not event.looped or hello.sequence > self._sequence):
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
        if self.silent_until is not None:
            self.silent_until = now + SILENCE
            return
        if now - segment.greeted_at >= self.times.hello / 4:
            segment.greeted_at = now
            self._hurry()
        if segment.peers.names_us(hello, self.incarnation):
            namesake.proven = True
            ours_first = (not segment.own, self.incarnation) < (not hello.digest.count, hello.incarnation)
            segment.announce_all |= ours_first
            self._begin_clash(NameClash(segment.link, event.mac, silent=not ours_first), now)

    def _begin_clash(self, clash: NameClash, now: float) -> None:
        if clash.silent:
            self._fall_silent(now)
        if clash.silent or self._clash_until is None:
            self._orders.append(clash)
        if not clash.silent:
            self._clash_until = now + SILENCE

    def _see_own_lease(self, event: LeaseSeen, now: float) -> None:
        """As ``_hear_own_name``, where the two share no link: the API server shows who else renews our Lease, and not
        only once, as the last renewal of our own previous life may come late."""
        if event.incarnation in self.lives or not event.renewed:
            return
        if self.silent_until is not None:
            self.silent_until = now + SILENCE
            return
        before, self._foreign_lease_at = self._foreign_lease_at, now
        if now - before < self.times.lease:
            self._begin_clash(NameClash(None, None, silent=event.incarnation < self.incarnation), now)

    def _fall_silent(self, now: float) -> None:
        """One last hello tells what is let go."""
        self.silent_until, self._clash_until = now + SILENCE, None
        self._abandon_plans()
        for x in self.eips.values():
            if x.holding:
                self._yield(x, Yielded.NAME_CLASH, now)
            self._end_write(x)
            self._set_vacant(x, None)
        self._last_word, self._beat_at = True, now

    def _end_clash(self, now: float) -> None:
        """Nobody else has the name any more: begin anew."""
        if self._clash_until is not None and now >= self._clash_until:
            self._clash_until = None
            self._orders.append(NameFree())
        if self.silent_until is None or now < self.silent_until:
            return
        self.silent_until, self._foreign_lease_at = None, NEVER
        known = [s.namesake.incarnation for s in self.segments.values() if s.namesake is not None]
        self._rise_above(max([self.incarnation, *known]))
        for segment in self.segments.values():
            segment.namesake = None
            segment.listen(now + self.times.listen)
        self._pending.update(dict.fromkeys(self.eips))
        self._orders.append(NameFree())

    def _climb(self, hello: Hello, now: float) -> None:
        """Somebody knows a later life of ours: our clock went back (rule 5)."""
        known = hello.heard.get(self.node)
        if known is None or known.incarnation <= self.incarnation or not has_next(known.incarnation) or self.silent:
            return
        if not any(self._is_met(segment, known.incarnation, now) for segment in self.segments.values()):
            self._rise_above(known.incarnation)

    def _is_met(self, segment: Segment, known: Incarnation, now: float) -> bool:
        """That life is a namesake's rather than an earlier one of ours: it is heard here. A recording is believed for a
        moment only."""
        namesake = segment.namesake
        return (
            namesake is not None
            and namesake.incarnation == known
            and now < namesake.heard_at + self.times.suspect
            and (namesake.proven or now < namesake.met_at + self.times.dead)
        )

    def _rise_above(self, known: Incarnation) -> None:
        self.incarnation = self._incarnate(known)
        self.lives.append(self.incarnation)
        self._sequence = 0
        self._hurry()
        self._pending.update(dict.fromkeys(e.address for e in self.eips.values() if e.holding))

    def _own_name_heard(self, segment: Segment, now: float) -> dict[str, Heard]:
        """For our hello: the namesake is named as a stranger is."""
        namesake = segment.namesake
        if namesake is None or now - namesake.heard_at >= self.times.dead:
            return {}
        return {self.node: Heard(namesake.incarnation, age(now - namesake.heard_at), namesake.link)}
