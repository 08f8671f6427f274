"""Machines that do something wrong, each of which takes one rule of ``docs/ownership.md`` away."""

from dataclasses import replace
from typing import Any

from speaker.ownership.events import (
    Claim,
    EipAnswered,
    EligibilityChanged,
    Event,
    Order,
    Record,
    SendHello,
    Yielded,
)
from speaker.ownership.hello import Hello
from speaker.ownership.machine.claims import Eip
from speaker.ownership.machine.machine import Ownership
from speaker.ownership.machine.peers import NEVER, Peer
from speaker.ownership.machine.segment import Returns, Segment
from speaker.ownership.parameters import Parameters
from speaker.ownership.patience import Patience


class NoAgeLimit(Ownership):
    """None but the self-lease, which ends all answers."""

    def __init__(self, *arguments: Any, times: Parameters, **named: Any) -> None:
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


class ClaimsAtTheBeat(Ownership):
    def _hurry(self) -> None:
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


class SilentAboutOtherLinks(Ownership):
    """What was let go on a link without a carrier is not told on the others."""

    def _hear_left(self, other: Segment, hello: Hello) -> None:
        pass


class BlindToDeletion(Ownership):
    """A record that was deleted is taken to stand."""

    def _read(self, x: Eip, record: Record, now: float) -> None:
        if not record.gone:
            super()._read(x, record, now)


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
        segment = self._segment(event.link, now)
        self._hear_frame(segment, now, event.eip.version)
        self._hear_answered(segment, event.eip)


class AccusesUnproven(Ownership):
    """Rule 37: who gets no answer of anybody blames each that it asked."""

    def _sample(self, segment: Segment, now: float) -> None:
        for watch in segment.watches.values():
            watch.others = True
        super()._sample(segment, now)


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


class YieldsAreAll(Ownership):
    """Rule 3: that a claim is missing in its span means nothing."""

    def _learn(self, segment: Segment, peer: Peer, hello: Hello, now: float) -> None:
        super()._learn(segment, peer, hello._replace(covers=None), now)


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
        super()._answer_requests(segment, peer, hello._replace(wants=frozenset()), now)


class ClimbsNot(Ownership):
    """Rule 5: who reads of a later life of its own goes on with the earlier one."""

    def _climb(self, hello: Hello, now: float) -> None:
        pass


class SendsNoCopies(Ownership):
    """Rule 36: nobody is sent a hello by unicast."""

    def _speak_on(self, segment: Segment, beat: bool, now: float) -> None:
        super()._speak_on(segment, beat, now)
        if self._orders and isinstance(order := self._orders[-1], SendHello):
            self._orders[-1] = order._replace(direct=())


class ProbesNobody(HeedsNoAnswer, SendsNoCopies):
    """Rule 6: a silent peer is not asked to speak."""

    def _probe(self, segment: Segment, peer: Peer) -> None:
        pass


class HoldsWhatItMayNot(Ownership):
    """Rule 10: who may hold an EIP no longer goes on."""

    def _change_eligibility(self, event: EligibilityChanged, now: float) -> None:
        if event.link is not None:
            super()._change_eligibility(event, now)


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


class HoldsInName(Ownership):
    """Rules 18 and 24: that the first probe found somebody is not told, and the record says that we hold it."""

    def _hear_answer(self, event: EipAnswered, now: float) -> None:
        super()._hear_answer(replace(event, probed=False), now)


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


class LearnsNoPatience(Ownership):
    """Rule 38."""

    def _hear(self, segment: Segment, hello: Hello, at: float, now: float) -> None:
        super()._hear(segment, hello, at, now)
        for peer in segment.peers.by_node.values():
            peer.lenience = Patience()
