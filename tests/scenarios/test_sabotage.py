"""Every rule taken away breaks a promise within a bounded number of schedules: the simulation is not blind.

A sabotage overrides one decision of the machine. The families tried are those whose faults the rule is there for.
"""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from speaker.model import IPAddress
from speaker.ownership.arbiter import Arbiter
from speaker.ownership.claims import Eip
from speaker.ownership.events import Record
from speaker.ownership.hello import Hello
from speaker.ownership.machine import Ownership
from speaker.ownership.parameters import Parameters
from speaker.ownership.peers import Peer
from speaker.ownership.score import score
from speaker.ownership.segment import Segment
from speaker.ownership.simulation.families import FAMILIES
from speaker.ownership.simulation.schedule import TIMES, Schedule
from speaker.ownership.simulation.shrink import broken

BOUND = 150
"""Schedules of each family."""


class NoStagger(Ownership):
    def _claim_at(self, x: Eip, vacant_since: float, now: float) -> float:
        return now


class EqualTermsBeat(Ownership):
    def _beats(self, eip: IPAddress, term: int, node: str, own: int) -> bool:
        return term >= own


class NoSelfLease(Ownership):
    def _late(self, now: float) -> bool:
        return False

    @property
    def answer_until(self) -> float:
        return float("inf")


class NoAgeLimit(Ownership):
    def answers(self, eip: IPAddress, asked_at: float, now: float) -> bool:
        return self.holding(eip) and now < self.answer_until


class AnswersBeforeTheRecord(Ownership):
    def _record_first(self) -> bool:
        return False


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


class HeardWithoutTheTerm(Arbiter):
    def once_held(self, eip: Eip, record: Record, peer: Peer) -> bool:
        return True


class LeaseBlind(Arbiter):
    def lease_until(self, eip: Eip, record: Record, now: float) -> float:
        lease = self.leases.get(record.holder or "")
        return now if lease is None or not self.configured else lease.seen_at + TIMES.lease


def arbitrated_by(arbiter: type[Arbiter]) -> type[Ownership]:
    class Misjudging(Ownership):
        def __init__(self, *args: object, **named: object) -> None:
            super().__init__(*args, **named)
            self.api = arbiter(self.node, self.times, self.api.configured)

    return Misjudging


class HardDrain(Ownership):
    def _judge_draining(self, x: Eip, since: float, now: float) -> float:
        return super()._judge_draining(x, now - self.times.drain, now)


class RecordBeforeHello(Ownership):
    def _hear_first(self) -> bool:
        return False

    def _replied_after(self) -> float:
        return 0.0


class RecordAtOnce(Ownership):
    def _replied_after(self) -> float:
        return 0.0


class NoProbing(Ownership):
    def _probe(self, segment: Segment, peer: Peer) -> None:
        pass


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
    def _release(self, x: Eip, now: float) -> None:
        pass


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


class ClaimsWhatMadeWay(Ownership):
    """A yield to a better claim, heard before that claim, leaves the EIP to whoever is first."""

    def _successor_until(self, x: Eip) -> float:
        return float("-inf")


SLOW_WRITES: Mapping[str, object] = {"times": replace(TIMES, record_timeout=1.0, record_grace=1.25)}


class SilentAboutOtherLinks(Ownership):
    """What was let go on a link without a carrier is not told on the others."""

    def _hear_left(self, other: Segment, hello: Hello) -> None:
        pass


class TriesForEver(Ownership):
    """A record that others keep writing to is tried again for as long as they do."""

    def _persists(self) -> float:
        return float("inf")


class BlindToDeletion(Ownership):
    """A record that was deleted is taken to stand."""

    def _read(self, x: Eip, record: Record, now: float) -> None:
        if not record.gone:
            super()._read(x, record, now)


class BlindToRevisions(Ownership):
    """In an upgrade EIPs go wherever the score says."""

    def _precedes(self, x: Eip, peer: Peer) -> bool:
        return score(x.address, peer.node) > score(x.address, self.node)


SABOTAGES: list[tuple[str, type[Ownership], Mapping[str, object], tuple[str, ...]]] = [
    ("no stagger", NoStagger, {}, ("crash", "equal")),
    (">= on terms", EqualTermsBeat, {}, ("equal",)),
    ("no self-lease", NoSelfLease, {}, ("freeze",)),
    ("no age limit on requests", NoAgeLimit, {}, ("freeze",)),
    ("answering before the record", AnswersBeforeTheRecord, {}, ("split", "mixed")),
    ("no re-announcement after a heal", SilentToRivals, {}, ("mixed", "equal")),
    ("no re-announcement on mutual hearing", SilentOnMutualHearing, {}, ("mixed",)),
    ("no re-announcement on yielded", SilentOnYielded, {}, ("mixed",)),
    ("once heard without the term", arbitrated_by(HeardWithoutTheTerm), {}, ("split",)),
    ("lease-blind", arbitrated_by(LeaseBlind), {}, ("lease_blind",)),
    ("hard drain", HardDrain, {}, ("drain",)),
    ("record before hello", RecordBeforeHello, {}, ("mixed", "drain", "crash")),
    ("the record at once", RecordAtOnce, {}, ("windows",)),
    ("no probing", NoProbing, {}, ("steady",)),
    ("ranks over all nodes", RanksOverAll, {}, ("ineligible_many",)),
    ("slow record write", Ownership, SLOW_WRITES, ("crash",)),
    ("claim only at the beat", ClaimsAtTheBeat, {}, ("crash", "drain")),
    ("no boot listen", NoListening, {}, ("split_faults", "rebalance")),
    ("no release in the record", NoRelease, {}, ("release",)),
    ("replayed frames count", BelievesRecordings, {}, ("replay",)),
    ("frames of other links count", BelievesOtherLinks, {}, ("stranger",)),
    ("a yield is a vacancy", ClaimsWhatMadeWay, {}, ("rebalance",)),
    ("a lost link is not told on the others", SilentAboutOtherLinks, {}, ("one_cable",)),
    ("no end to writes that are refused", TriesForEver, {}, ("meddled",)),
    ("blind to deleted records", BlindToDeletion, {}, ("meddled",)),
    ("blind to revisions", BlindToRevisions, {}, ("upgrade",)),
]


def schedules(families: tuple[str, ...], changes: Mapping[str, object]) -> list[Schedule]:
    return [replace(FAMILIES[name][0](seed), **changes) for seed in range(BOUND) for name in families]


@pytest.mark.parametrize(
    ("make", "changes", "families"), [row[1:] for row in SABOTAGES], ids=[row[0] for row in SABOTAGES]
)
def test_a_rule_taken_away_breaks_a_promise(
    make: type[Ownership], changes: Mapping[str, object], families: tuple[str, ...]
) -> None:
    for schedule in schedules(families, changes):
        if broken(schedule, make) is not None:
            assert broken(replace(schedule, times=TIMES)) is None, "the rules as they are must keep it"
            return
    pytest.fail(f"{len(families) * BOUND} schedules of {families} kept every promise")


def test_every_sabotage_is_real() -> None:
    """A renamed method would turn a sabotage into the rules as they are."""
    for name, make, changes, _ in SABOTAGES:
        for base in make.__mro__[: make.__mro__.index(Ownership)]:
            own = [attribute for attribute in vars(base) if not attribute.startswith("__")]
            assert all(hasattr(Ownership, attribute) for attribute in own), name
        assert make is not Ownership or changes, name
    assert Parameters().record_timeout < 1.0
