"""Every rule taken away breaks a promise within a bounded number of schedules: the simulation is not blind.

A sabotage overrides one judgement of ``Rules``, or one thing that the machine does. The families tried are those whose
faults the rule is there for. Where another rule makes up for the one taken away, both are, and either of them alone is
seen to keep the promise.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from inspect import signature
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest
from simulation.families import FAMILIES
from simulation.host import Make
from simulation.schedule import Fault, Kind, Limits, Schedule
from simulation.shrink import broken

from speaker.ownership.events import (
    Claim,
    EipAnswered,
    EligibilityChanged,
    Event,
    Order,
    Record,
    Yielded,
)
from speaker.ownership.hello import Hello
from speaker.ownership.machine.claims import Eip
from speaker.ownership.machine.known import Known
from speaker.ownership.machine.machine import Ownership
from speaker.ownership.machine.peers import NEVER, Peer
from speaker.ownership.machine.rules import Rules
from speaker.ownership.machine.segment import Returns, Segment
from speaker.ownership.parameters import Parameters
from speaker.ownership.score import score

BOUND = 500
"""Schedules of each family, from the row's first on."""
DOCS = Path(__file__).parents[2] / "docs" / "ownership.md"


def key_lost(seed: int) -> Schedule:
    """A node reads no key but its own from 1.8 on, then another dies. No family: of two that do not read each other's
    hellos both may take what a third held, in one moment. Where there is time for an answer, rule 15 keeps the second
    from it."""
    random = Random(f"key lost {seed}")
    lost, dead = random.sample(range(3), 2)
    faults = (Fault(1.8, Kind.WRONG_KEY, (lost,)), Fault(round(random.uniform(3.0, 3.5), 4), Kind.CRASH, (dead,)))
    limits = Limits(wire_answer=0.12, unanswered=2.5, causeless=False)
    return Schedule(seed, nodes=3, eips=3, faults=faults, end=7.0, limits=limits)


def overtaken(seed: int) -> Schedule:
    """As ``rebalance``, on a LAN so slow that a claim is often overtaken by the word of who lets go for it."""
    schedule = FAMILIES["rebalance"][0](seed)
    limits = replace(schedule.limits, one_answer=None, fewest=True, level=False, causeless=True)
    return replace(schedule, nodes=5, loss=0.0, delay=0.05, limits=limits)


PLAYED = {**{name: make for name, (make, _) in FAMILIES.items()}, "key_lost": key_lost, "overtaken": overtaken}


class NoStagger(Rules):
    def claim_at(self, k: Known, x: Eip, vacant_since: float, now: float) -> float:
        return now


class EqualTermsBeat(Rules):
    def beats(self, k: Known, x: Eip, peer: Peer, term: int) -> bool:
        return term >= x.term


class NoSelfLease(Rules):
    def answer_until(self, k: Known) -> float:
        return float("inf")


class NoAgeLimit(Ownership):
    """None but the self-lease, which ends all answers."""

    def __init__(self, *arguments, times: Parameters, **named) -> None:
        super().__init__(*arguments, times=replace(times, request_age=0.99 * times.self_lease), **named)


class SilentOnMutualHearing(Ownership):
    """Rule 22."""

    def _become_mutual(self, segment: Segment) -> None:
        segment.tell_all = True


class SilentOnYielded(SilentOnMutualHearing):
    """Rule 21."""

    def _hear_yielded(self, x: Eip, peer: Peer, term: int, now: float) -> None:
        pass


class SilentToRivals(SilentOnYielded):
    """Rule 20."""

    def _hear_worse(self, x: Eip, peer: Peer, term: int) -> None:
        pass


class HardDrain(Rules):
    def drained_at(self, k: Known, since: float) -> float:
        return since


class RanksOverAll(Rules):
    def rank(self, k: Known, x: Eip, now: float) -> int:
        names = {node for segment in k.segments.values() for node in segment.peers.by_node}
        return sum(score(x.address, node) > score(x.address, k.node) for node in names)


class ClaimsAtTheBeat(Ownership):
    def _hurry(self) -> None:
        pass


class NoListening(Rules):
    def listening(self, segment: Segment, now: float) -> bool:
        return False


class NoRelease(Rules):
    def release_at(self, k: Known, x: Eip, now: float) -> float:
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


class BlindToRevisions(Rules):
    """In an upgrade EIPs go wherever the score says."""

    def precedes(self, k: Known, x: Eip, peer: Peer) -> bool:
        return score(x.address, peer.node) > score(x.address, k.node)


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


class NeedsNoTouch(Rules):
    """Rule 12: what all others held is taken without a sign that anything reaches us."""

    def in_touch(self, k: Known, segment: Segment, now: float) -> bool:
        return True


class TouchedOnce(Rules):
    """Rule 12: what reached us before the silence is a sign as well."""

    def in_touch(self, k: Known, segment: Segment, now: float) -> bool:
        return super().in_touch(k, segment, now) or segment.frame_at > NEVER


class NeverInTouchAlone(Rules):
    """Rule 12: frames of others than speakers are no sign."""

    def in_touch(self, k: Known, segment: Segment, now: float) -> bool:
        return super().in_touch(k, segment, now) and not self.all_silent(k, segment, now)


class TakesUnheard(Rules):
    """Rule 12: who hears others and is heard by none takes what it likes."""

    def in_touch(self, k: Known, segment: Segment, now: float) -> bool:
        heard = any(peer.is_heard(now, k.times) for peer in segment.peers.by_node.values())
        return heard or super().in_touch(k, segment, now)


class DemotedIsLast(Rules):
    """Rule 13: a soft reason counts although all share it."""

    def rank(self, k: Known, x: Eip, now: float) -> int:
        demoted = x.link is not None and k.segments[x.link].demoted
        return k.times.ranks if demoted else super().rank(k, x, now)


class Undamped(Ownership):
    """Rule 14: a link that comes and goes takes its turn as any."""

    def _judge_free(self, x: Eip, now: float) -> float:
        if x.link is not None:
            self.segments[x.link].returns = Returns()
        return super()._judge_free(x, now)


class AsksNobody(Ownership):
    """Rule 15: a silent peer's EIPs are taken unasked."""

    def _ask(self, segment: Segment, now: float) -> None:
        pass


class HeedsNoAnswer(Ownership):
    """Rule 15: who answers for what it holds is dead all the same."""

    def _hear_answer(self, event: EipAnswered, now: float) -> None:
        self._hear_frame(self._segment(event.link, now), now)


class DeafIsUp(Rules):
    """Rule 17: who hears nothing keeps what it holds."""

    def deaf(self, k: Known, segment: Segment, now: float) -> bool:
        return False


class AllClaimsAreStrong(Rules):
    """Rule 18: what is taken from one that fell silent is claimed like anything else."""

    def taken_unheard(self, k: Known, x: Eip, now: float) -> bool:
        return False


class StandsForNothing(Rules):
    """Rule 29: what was taken unheard stays with the taker."""

    def unknowing(self, x: Eip, peer: Peer) -> bool:
        return False


class StandsWhateverItMissed(Rules):
    """Rule 29: who goes, or was away itself, stands as well."""

    def held_on(self, k: Known, x: Eip, now: float) -> bool:
        return True


class StandsAlways(Ownership):
    """Rule 29: what was taken unheard goes back, though the taker does not hear that it should."""

    def _judge_rival(self, x: Eip, peer: Peer, now: float) -> float:
        if self.rules.beats(self, x, peer, peer.claims[x.address]) and self.rules.unknowing(x, peer):
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


class OvertakesRecords(Rules):
    """Rule 23: another's record is written over as soon as it is read."""

    def believed(self, k: Known, x: Eip, record: Record, now: float) -> float:
        return 0.0


class DeafHoldOn(Rules):
    """Rule 17: who hears nothing says so, and lets nothing go."""

    def unfit(self, k: Known, x: Eip) -> Yielded | None:
        reason = super().unfit(k, x)
        return None if reason is Yielded.DEAF else reason


class DeafHoldOnAndBind(DeafHoldOn):
    """Rule 11: what it claims binds others."""

    def making_way(self, peer: Peer) -> bool:
        return peer.draining


class DrainingBind(Rules):
    """Rule 11: what a node claims that drains binds others until it lets go."""

    def making_way(self, peer: Peer) -> bool:
        return peer.deaf


class YieldsAreAll(Ownership):
    """Rule 3: that a claim is missing in its span means nothing."""

    def _learn(self, segment: Segment, peer: Peer, hello: Hello, now: float) -> None:
        super()._learn(segment, peer, replace(hello, covers=None), now)


class NothingTellsOfLettingGo(YieldsAreAll):
    """Rules 1 and 19: what was let go is not said to be."""

    def _segment(self, link: int, now: float) -> Segment:
        segment = super()._segment(link, now)
        segment.own.yields_said = lambda now, beat: {}  # type: ignore[method-assign]
        return segment


class OldLivesGoOn(YieldsAreAll):
    """Rule 7: what the life before claimed binds until it is denied."""

    def _begin_life(self, segment: Segment, old: Peer | None, now: float) -> None:
        super()._begin_life(segment, old, now)
        for eip, term in old.claims.items() if old is not None else ():
            segment.peers.by_node[old.node]._claim(eip, term)  # type: ignore[union-attr]
            self._eip(eip).rivals.setdefault(segment.link, set()).add(old.node)  # type: ignore[union-attr]


class TellsNobodyAll(Ownership):
    """Rule 4."""

    def _become_mutual(self, segment: Segment) -> None:
        segment.announce_all = True
        self._hurry()

    def _answer_requests(self, segment: Segment, peer: Peer, hello: Hello, now: float) -> None:
        super()._answer_requests(segment, peer, replace(hello, wants=frozenset()), now)


class ClimbsNot(Ownership):
    """Rule 5: who reads of a later life of its own goes on with the earlier one."""

    def _climb(self, hello: Hello, now: float) -> None:
        pass


class ProbesNobody(HeedsNoAnswer):
    """Rule 6: a silent peer is not asked to speak."""

    def _probe(self, segment: Segment, peer: Peer) -> None:
        pass


class HoldsWhatItMayNot(Ownership):
    """Rule 10: who may hold an EIP no longer goes on."""

    def _change_eligibility(self, event: EligibilityChanged, now: float) -> None:
        if event.link is not None:
            super()._change_eligibility(event, now)


class BoundByNoRecord(Rules):
    """Rule 12: who has heard nothing since its start takes what records give to others."""

    def knows(self, k: Known, x: Eip, segment: Segment) -> bool:
        return True


class MissesWhoWent(Ownership):
    """Rule 12: the silence of those who said that they go counts."""

    def _segment(self, link: int, now: float) -> Segment:
        segment = super()._segment(link, now)
        segment.peers.expected = lambda now: [*segment.peers.by_node.values()]  # type: ignore[method-assign]
        return segment


class TakesWhatIsServed(Ownership):
    """Rule 15: what another speaker answers for, whose claim was not heard, is vacant."""

    def _judge_free(self, x: Eip, now: float) -> float:
        x.served_until = NEVER
        return super()._judge_free(x, now)


class WaitsForTheApi(Rules):
    """Rules 16 and 30: nothing is claimed while the API does not answer."""

    def may_claim(self, k: Known, x: Eip, now: float) -> bool:
        return (k.api.up or not k.api.configured) and super().may_claim(k, x, now)


class EveryClaimIsWeak(Rules):
    """Rule 18: nobody ever takes anything for good."""

    def taken_unheard(self, k: Known, x: Eip, now: float) -> bool:
        return True


class HoldsInName(Ownership):
    """Rules 18 and 24: that the first probe found somebody is not told, and the record says that we hold it."""

    def _hear_answer(self, event: EipAnswered, now: float) -> None:
        super()._hear_answer(replace(event, probed=False), now)


class NeverYields(Rules):
    """Rule 19."""

    def beats(self, k: Known, x: Eip, peer: Peer, term: int) -> bool:
        return False


class ExpectsNoSuccessor(Rules):
    """Rule 19: what one let go for another is vacant as long as that other is not heard."""

    def successor_until(self, x: Eip) -> float:
        return NEVER


class ObeysRecords(Ownership):
    """Rule 23: a record that names another takes an EIP away."""

    def _judge_record(self, x: Eip, now: float) -> float:
        if x.record is not None and self.rules.foreign(self, x) and x.record.term >= x.term:
            self._yield(x, Yielded.BETTER_CLAIM, now)
            return float("inf")
        return super()._judge_record(x, now)


class MendsNoRecord(Ownership):
    """Rule 30: what was not written while the API was gone is not written later."""

    def _regain_api(self, now: float) -> None:
        pass


class TakesNothingOnRequest(Ownership):
    """Rule 31."""

    def _take(self, x: Eip, now: float) -> None:
        pass


class Row(NamedTuple):
    """``families``: where it is noticed; ``first``: the seed to begin with, so that few schedules are played."""

    name: str
    rules: tuple[int, ...]
    wrong: type[Rules] | type[Ownership]
    families: tuple[str, ...]
    first: int = 0


SABOTAGES = [
    Row("no stagger", (13,), NoStagger, ("crash", "equal"), 11),
    Row(">= on terms", (8,), EqualTermsBeat, ("equal", "mixed"), 54),
    Row("no self-lease", (27,), NoSelfLease, ("freeze",)),
    Row("no age limit on requests", (28,), NoAgeLimit, ("freeze",), 15),
    Row("no re-announcement against a worse claim", (20,), SilentToRivals, ("mixed", "equal")),
    Row("no re-announcement on mutual hearing", (22,), SilentOnMutualHearing, ("mixed",), 17),
    Row("no re-announcement on yielded", (21,), SilentOnYielded, ("mixed",)),
    Row("hard drain", (26,), HardDrain, ("drain",)),
    Row("ranks over all nodes", (13,), RanksOverAll, ("ineligible_many",)),
    Row("claim only at the beat", (2,), ClaimsAtTheBeat, ("crash", "drain")),
    Row("no boot listen", (9,), NoListening, ("deaf", "started_apart")),
    Row("no release in the record", (25,), NoRelease, ("release",)),
    Row("replayed frames count", (5,), BelievesRecordings, ("replay",), 3),
    Row("frames of other links count", (5,), BelievesOtherLinks, ("stranger",)),
    Row("a lost link is not told on the others", (1,), SilentAboutOtherLinks, ("one_cable",)),
    Row("blind to deleted records", (24,), BlindToDeletion, ("meddled",)),
    Row("blind to revisions", (13,), BlindToRevisions, ("upgrade",), 52),
    Row("nobody vouches", (7,), TrustsItsOwnEarsAlone, ("partial",)),
    Row("hearsay vouches", (7,), BelievesHearsay, ("crash",)),
    Row("one hello interval for all", (7,), TakesItsTimeForEverybodys, ("mixed_intervals",), 87),
    Row("no need of touch", (12,), NeedsNoTouch, ("deaf", "blip")),
    Row("in touch for ever", (12,), TouchedOnce, ("flap_ports",)),
    Row("no touch but hellos", (12,), NeverInTouchAlone, ("minority", "crash")),
    Row("taken unheard", (12,), TakesUnheard, ("oneway",), 10),
    Row("the demoted last, all or not", (13,), DemotedIsLast, ("all_demoted",)),
    Row("no damping", (14,), Undamped, ("flap_ports",)),
    Row("the wire is not asked", (15,), AsksNobody, ("filtered",)),
    Row("answers on the wire do not count", (15,), HeedsNoAnswer, ("filtered",)),
    Row("deaf and up", (17,), DeafIsUp, ("deaf",)),
    Row("no weak claims", (18,), AllClaimsAreStrong, ("minority",)),
    Row("weak claims beat", (29,), StandsForNothing, ("minority",)),
    Row("no giving in to who does not hear", (29,), StandsAlways, ("oneway",), 12),
    Row("who was away stands", (29,), StandsWhateverItMissed, ("mixed",), 86),
    Row("no first probe", (18,), ProbesNothing, ("lease_blind",)),
    Row("no record", (24,), WritesNothing, ("crash",), 11),
    Row("records are overtaken at once", (23,), OvertakesRecords, ("split",)),
    Row("nothing tells of letting go", (1, 3, 19), NothingTellsOfLettingGo, ("freeze",)),
    Row("nobody is told all", (4,), TellsNobodyAll, ("windows",), 2),
    Row("no climbing", (5,), ClimbsNot, ("clock_back",)),
    Row("no probing", (6,), ProbesNobody, ("steady",), 120),
    Row("old lives go on", (7,), OldLivesGoOn, ("clock_back",)),
    Row("held where it may not be", (10,), HoldsWhatItMayNot, ("release",)),
    Row("claims of the deaf bind", (11, 17), DeafHoldOnAndBind, ("deaf",)),
    Row("claims of who drains bind", (11,), DrainingBind, ("drain",), 9),
    Row("no record binds", (12,), BoundByNoRecord, ("started_apart",)),
    Row("who went is missed", (12,), MissesWhoWent, ("silent_drain",)),
    Row("what another serves is taken", (15,), TakesWhatIsServed, ("key_lost",)),
    Row("no API, no claim", (16, 30), WaitsForTheApi, ("crash",)),
    Row("all claims are weak", (18,), EveryClaimIsWeak, ("minority",), 34),
    Row("held in name, and written", (18, 24), HoldsInName, ("split_faults",)),
    Row("no yielding", (19,), NeverYields, ("equal",)),
    Row("no successor is expected", (19,), ExpectsNoSuccessor, ("overtaken",)),
    Row("records are obeyed", (23,), ObeysRecords, ("split",)),
    Row("records stay wrong", (30,), MendsNoRecord, ("api_frozen",)),
    Row("nothing is taken on request", (31,), TakesNothingOnRequest, ("rebalance",)),
]

UNPLAYED: Mapping[int, str] = {
    32: "no two hosts of a schedule have one name: tests/scenarios/test_namesakes.py plays them",
    33: "hosts of a schedule have no addresses of their own: tests/unit/ownership/machine/test_machine.py",
    34: "schedules meet no bugs of ours: tests/scenarios/test_internal_errors.py",
}
"""Rules of which no family knows, and who does."""


def machine(wrong: type[Rules] | type[Ownership]) -> Make:
    return partial(Ownership, rules=wrong()) if issubclass(wrong, Rules) else wrong


def halves(wrong: type[Rules] | type[Ownership]) -> list[type[Rules] | type[Ownership]]:
    """What ``wrong`` and each of its bases add to the rules as they are, the last of which are these."""
    return [base for base in wrong.__mro__ if issubclass(base, (Rules, Ownership))]


@pytest.mark.parametrize("row", SABOTAGES, ids=lambda row: row.name)
def test_a_rule_taken_away_breaks_a_promise(row: Row) -> None:
    # The rules as they are, and half of a pair, must keep what it breaks.
    wrong, *bases = (machine(base) for base in halves(row.wrong))
    for seed in range(row.first, row.first + BOUND):
        for schedule in (PLAYED[name](seed) for name in row.families):
            if broken(schedule, wrong) is not None and not any(broken(schedule, base) for base in bases):
                return
    pytest.fail(f"{len(row.families) * BOUND} schedules of {row.families} kept every promise")


def test_every_rule_is_taken_away_or_tested_elsewhere() -> None:
    rules = {int(number) for number in re.findall(r"^(\d+)\. ", DOCS.read_text(), flags=re.MULTILINE)}
    taken = {number for row in SABOTAGES for number in row.rules}
    assert taken | UNPLAYED.keys() == rules
    assert not taken & UNPLAYED.keys()


def test_every_sabotage_is_real() -> None:
    """A renamed method would turn a sabotage into the rules as they are, one that is called otherwise into a bug."""
    for row in SABOTAGES:
        *bases, right = halves(row.wrong)
        assert right in (Rules, Ownership)
        for base in bases:
            own = [name for name in vars(base) if name == "__init__" or not name.startswith("__")]
            assert own, row.name
            for name in own:
                assert name == "__init__" or arguments(getattr(base, name)) == arguments(getattr(right, name)), row.name


def arguments(work: Callable[..., object]) -> list[str]:
    return list(signature(work).parameters)
