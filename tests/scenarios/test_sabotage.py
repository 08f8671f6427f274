"""Every rule taken away breaks a promise within a bounded number of schedules: the simulation is not blind.

A sabotage overrides one decision of the machine. The families tried are those whose faults the rule is there for.
"""

from dataclasses import replace

import pytest

from speaker.model import IPAddress
from speaker.ownership.claims import Eip
from speaker.ownership.events import Claim, EipAnswered, Event, Order, Record
from speaker.ownership.hello import Hello
from speaker.ownership.machine import Ownership
from speaker.ownership.peers import NEVER, Peer
from speaker.ownership.score import score
from speaker.ownership.segment import Returns, Segment
from speaker.ownership.simulation.families import FAMILIES
from speaker.ownership.simulation.shrink import broken

BOUND = 150
"""Schedules of each family."""


class NoStagger(Ownership):
    def _claim_at(self, x: Eip, vacant_since: float, now: float) -> float:
        return now


class EqualTermsBeat(Ownership):
    def _beats(self, x: Eip, peer: Peer, term: int) -> bool:
        return term >= x.term


class NoSelfLease(Ownership):
    def _late(self, now: float) -> bool:
        return False

    @property
    def answer_until(self) -> float:
        return float("inf")


class NoAgeLimit(Ownership):
    def answers(self, eip: IPAddress, asked_at: float, now: float) -> bool:
        return self.holding(eip) and now < self.answer_until


class SilentToRivals(Ownership):
    def _hear_worse(self, x: Eip, peer: Peer, term: int) -> None:
        pass

    def _become_mutual(self, segment: Segment) -> None:
        pass

    def _hear_yielded(self, x: Eip, peer: Peer, term: int) -> None:
        pass


class SilentOnMutualHearing(Ownership):
    def _become_mutual(self, segment: Segment) -> None:
        segment.tell_all = True


class SilentOnYielded(SilentOnMutualHearing):
    def _hear_yielded(self, x: Eip, peer: Peer, term: int) -> None:
        pass


class HardDrain(Ownership):
    def _judge_draining(self, x: Eip, since: float, now: float) -> float:
        return super()._judge_draining(x, now - self.times.drain, now)


class RanksOverAll(Ownership):
    def _rank(self, x: Eip, now: float) -> int:
        names = {node for segment in self.segments.values() for node in segment.peers.by_node}
        return sum(score(x.address, node) > score(x.address, self.node) for node in names)


class ClaimsAtTheBeat(Ownership):
    def _hurry(self) -> None:
        pass


class NoListening(Ownership):
    def _listening(self, segment: Segment, now: float) -> bool:
        return False


class NoRelease(Ownership):
    def _release(self, x: Eip, now: float) -> float:
        return float("inf")


class BelievesRecordings(Ownership):
    """Rule 5's last sentence left out: every authentic frame counts."""

    def _segment(self, link: int, now: float) -> Segment:
        segment = super()._segment(link, now)
        segment.peers._names_us = lambda heard, incarnation: True  # type: ignore[method-assign]
        return segment


class BelievesOtherLinks(Ownership):
    """What a node said on one of its links counts on all of them."""

    def _segment(self, link: int, now: float) -> Segment:
        segment = super()._segment(link, now)
        segment.peers._same_link = lambda peer, hello, incarnation: True  # type: ignore[method-assign]
        return segment


class SilentAboutOtherLinks(Ownership):
    """What was let go on a link without a carrier is not told on the others."""

    def _hear_left(self, other: Segment, hello: Hello) -> None:
        pass


class BlindToDeletion(Ownership):
    """A record that was deleted is taken to stand."""

    def _read(self, x: Eip, record: Record, now: float) -> None:
        if not record.gone:
            super()._read(x, record, now)


class BlindToRevisions(Ownership):
    """In an upgrade EIPs go wherever the score says."""

    def _precedes(self, x: Eip, peer: Peer) -> bool:
        return score(x.address, peer.node) > score(x.address, self.node)


# ── Sick links ────────────────────────────────────────────────────────────────────────────────────────────────────


class TrustsItsOwnEarsAlone(Ownership):
    """Rule 7: what others heard counts for nothing."""

    def _learn(self, segment: Segment, peer: Peer, hello: Hello, now: float) -> None:
        super()._learn(segment, peer, hello, now)
        for other in segment.peers.by_node.values():
            other.vouched_at = NEVER


class BelievesHearsay(Ownership):
    """Rule 7: whoever is spoken of lives, however long ago it was heard."""

    def _learn(self, segment: Segment, peer: Peer, hello: Hello, now: float) -> None:
        super()._learn(segment, peer, hello, now)
        for node in hello.heard.keys() & segment.peers.by_node.keys():
            segment.peers.by_node[node].vouched_at = now


class TakesItsTimeForEverybodys(Ownership):
    """Rule 7: a peer that says hello less often than we do is dead as soon as any."""

    def _learn(self, segment: Segment, peer: Peer, hello: Hello, now: float) -> None:
        super()._learn(segment, peer, hello, now)
        peer.patience = 1.0


class NeedsNoTouch(Ownership):
    """Rule 12: what all others held is taken without a sign that anything reaches us."""

    def _in_touch(self, segment: Segment, now: float) -> bool:
        return True


class TouchedOnce(Ownership):
    """Rule 12: what reached us before the silence is a sign as well."""

    def _in_touch(self, segment: Segment, now: float) -> bool:
        return super()._in_touch(segment, now) or segment.frame_at > NEVER


class NeverInTouchAlone(Ownership):
    """Rule 12: frames of others than speakers are no sign."""

    def _in_touch(self, segment: Segment, now: float) -> bool:
        return super()._in_touch(segment, now) and not self._all_silent(segment, now)


class TakesUnheard(Ownership):
    """Rule 12: who hears others and is heard by none takes what it likes."""

    def _in_touch(self, segment: Segment, now: float) -> bool:
        heard = any(peer.is_heard(now, self.times) for peer in segment.peers.by_node.values())
        return heard or super()._in_touch(segment, now)


class DemotedIsLast(Ownership):
    """Rule 13: a soft reason counts although all share it."""

    def _rank(self, x: Eip, now: float) -> int:
        demoted = x.link is not None and self.segments[x.link].demoted
        return self.times.ranks if demoted else super()._rank(x, now)


class Undamped(Ownership):
    """Rule 14: a link that comes and goes takes its turn as any."""

    def _wait(self, x: Eip, now: float) -> float:
        self.segments[x.link].returns = Returns()
        return super()._wait(x, now)


class AsksNobody(Ownership):
    """Rule 15: a silent peer's EIPs are taken unasked."""

    def _ask(self, segment: Segment, now: float) -> None:
        pass


class HeedsNoAnswer(Ownership):
    """Rule 15: who answers for what it holds is dead all the same."""

    def _hear_answer(self, event: EipAnswered, now: float) -> None:
        self._hear_frame(self._segment(event.link, now), now)


class DeafIsUp(Ownership):
    """Rule 17: who hears nothing keeps what it holds."""

    def _is_deaf(self, segment: Segment, now: float) -> bool:
        return False


class AllClaimsAreStrong(Ownership):
    """Rule 18: what is taken from one that fell silent is claimed like anything else."""

    def _taken_unheard(self, x: Eip, now: float) -> bool:
        return False


class StandsForNothing(Ownership):
    """Rule 29: what was taken unheard stays with the taker."""

    def _unknowing(self, x: Eip, peer: Peer) -> bool:
        return False


class StandsAlways(Ownership):
    """Rule 29: what was taken unheard goes back, though the taker does not hear that it should."""

    def _judge_rival(self, x: Eip, peer: Peer, now: float) -> float:
        if self._beats(x, peer, peer.claims[x.address]) and self._unknowing(x, peer):
            self._stand(x, peer.claims[x.address], now)
        return super()._judge_rival(x, peer, now)


class ProbesNothing(Ownership):
    """Rule 18: a first claim is answered at once."""

    def step(self, now: float, event: Event) -> list[Order]:
        return [
            replace(order, first=False) if isinstance(order, Claim) else order for order in super().step(now, event)
        ]


class WritesNothing(Ownership):
    """Rule 24: the record does not follow."""

    def _judge_record(self, x: Eip, now: float) -> float:
        return float("inf")


class OvertakesRecords(Ownership):
    """Rule 23: another's record is written over as soon as it is read."""

    def _believed(self, x: Eip, record: Record, now: float) -> float:
        return 0.0


SABOTAGES: list[tuple[str, type[Ownership], tuple[str, ...]]] = [
    ("no stagger", NoStagger, ("crash", "equal")),
    (">= on terms", EqualTermsBeat, ("equal",)),
    ("no self-lease", NoSelfLease, ("freeze",)),
    ("no age limit on requests", NoAgeLimit, ("freeze",)),
    ("no re-announcement after a heal", SilentToRivals, ("mixed", "equal")),
    ("no re-announcement on mutual hearing", SilentOnMutualHearing, ("mixed",)),
    ("no re-announcement on yielded", SilentOnYielded, ("mixed",)),
    ("hard drain", HardDrain, ("drain",)),
    ("ranks over all nodes", RanksOverAll, ("ineligible_many",)),
    ("claim only at the beat", ClaimsAtTheBeat, ("crash", "drain")),
    ("no boot listen", NoListening, ("split_faults", "rebalance")),
    ("no release in the record", NoRelease, ("release",)),
    ("replayed frames count", BelievesRecordings, ("replay",)),
    ("frames of other links count", BelievesOtherLinks, ("stranger",)),
    ("a lost link is not told on the others", SilentAboutOtherLinks, ("one_cable",)),
    ("blind to deleted records", BlindToDeletion, ("meddled",)),
    ("blind to revisions", BlindToRevisions, ("upgrade",)),
    ("nobody vouches", TrustsItsOwnEarsAlone, ("partial",)),
    ("hearsay vouches", BelievesHearsay, ("crash",)),
    ("one hello interval for all", TakesItsTimeForEverybodys, ("mixed_intervals",)),
    ("no need of touch", NeedsNoTouch, ("deaf", "blip")),
    ("in touch for ever", TouchedOnce, ("flap_ports",)),
    ("no touch but hellos", NeverInTouchAlone, ("minority", "crash")),
    ("taken unheard", TakesUnheard, ("oneway",)),
    ("the demoted last, all or not", DemotedIsLast, ("all_demoted",)),
    ("no damping", Undamped, ("flap_ports",)),
    ("the wire is not asked", AsksNobody, ("filtered",)),
    ("answers on the wire do not count", HeedsNoAnswer, ("filtered",)),
    ("deaf and up", DeafIsUp, ("deaf",)),
    ("no weak claims", AllClaimsAreStrong, ("minority",)),
    ("weak claims beat", StandsForNothing, ("minority",)),
    ("no giving in to who does not hear", StandsAlways, ("oneway",)),
    ("no first probe", ProbesNothing, ("lease_blind",)),
    ("no record", WritesNothing, ("crash",)),
    ("records are overtaken at once", OvertakesRecords, ("split",)),
]


@pytest.mark.parametrize(("make", "families"), [row[1:] for row in SABOTAGES], ids=[row[0] for row in SABOTAGES])
def test_a_rule_taken_away_breaks_a_promise(make: type[Ownership], families: tuple[str, ...]) -> None:
    for seed in range(BOUND):
        for schedule in (FAMILIES[name][0](seed) for name in families):
            if broken(schedule, make) is not None:
                assert broken(schedule) is None, "the rules as they are must keep it"
                return
    pytest.fail(f"{len(families) * BOUND} schedules of {families} kept every promise")


def test_every_sabotage_is_real() -> None:
    """A renamed method would turn a sabotage into the rules as they are."""
    for name, make, _ in SABOTAGES:
        for base in make.__mro__[: make.__mro__.index(Ownership)]:
            own = [attribute for attribute in vars(base) if not attribute.startswith("__")]
            assert own, name
            assert all(hasattr(Ownership, attribute) for attribute in own), name
