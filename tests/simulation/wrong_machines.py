"""Parts of machines that do something wrong, each of which takes one rule of ``docs/ownership.md`` away."""

from dataclasses import replace
from typing import Any

from simulation.host import Make
from speaker.ownership.events import Claim, EipAnswered, EligibilityChanged, Event, Order, Record, SendHello, Yielded
from speaker.ownership.hello import Hello
from speaker.ownership.machine.agenda import Agenda
from speaker.ownership.machine.claims import Eip
from speaker.ownership.machine.hearing import Hearing
from speaker.ownership.machine.holding import Claims
from speaker.ownership.machine.known import Known
from speaker.ownership.machine.loss import Patience
from speaker.ownership.machine.machine import Ownership
from speaker.ownership.machine.moving import Moves
from speaker.ownership.machine.naming import Name
from speaker.ownership.machine.peers import Peer
from speaker.ownership.machine.records import Records
from speaker.ownership.machine.rules import Rules
from speaker.ownership.machine.segment import UNICASTS, Returns, Segment
from speaker.ownership.machine.silence import Silence
from speaker.ownership.machine.unanswered import Unanswered
from speaker.ownership.parameters import NEVER, Parameters


def made_of(*wrong: type) -> Make:
    """Machines in which each of these stands for what it is derived from: the rules, a part, or the whole."""

    def make(*arguments: Any, **named: Any) -> Ownership:
        kind = next((each for each in wrong if issubclass(each, Ownership)), Ownership)
        rules = next((each for each in wrong if issubclass(each, Rules)), Rules)
        machine = kind(*arguments, rules=rules(), **named)
        for each in wrong:
            for part in vars(machine).values():
                if isinstance(part, right(each)) and not isinstance(part, Rules):
                    part.__class__ = each
        return machine

    return make


def part(machine: Ownership, kind: str) -> Any:
    """That of this class, by its name; or the whole."""
    parts = (machine, *vars(machine).values())
    return next(each for each in parts if kind in (base.__name__ for base in type(each).__mro__))


def right(wrong: type) -> type:
    """What it is derived from in the end."""
    return wrong.__mro__[-2]


class NoAgeLimit(Ownership):
    """None but the self-lease, which ends all answers."""

    def __init__(self, *arguments: Any, times: Parameters, **named: Any) -> None:
        super().__init__(*arguments, times=replace(times, request_age=0.99 * times.self_lease), **named)


class SilentOnMutualHearing(Hearing):
    """Rule 22."""

    def _become_mutual(self, segment: Segment) -> None:
        segment.tell_all = True


class SilentOnYielded(Claims):
    """Rule 21."""

    def hear_yielded(self, x: Eip, peer: Peer, term: int, now: float) -> None:
        pass


class SilentToRivals(SilentOnYielded):
    """Rule 20."""

    def _hear_worse(self, x: Eip, peer: Peer, term: int) -> None:
        pass


class ClaimsAtTheBeat(Agenda):
    def hurry(self) -> None:
        pass


class BelievesRecordings(Known):
    """Rule 5's last sentence left out: every authentic frame counts."""

    def segment(self, link: int, now: float) -> Segment:
        segment = super().segment(link, now)
        segment.peers._names_us = lambda heard, incarnation: True  # type: ignore[method-assign]
        return segment


class BelievesOtherLinks(Known):
    """What a node said on one of its links counts on all of them."""

    def segment(self, link: int, now: float) -> Segment:
        segment = super().segment(link, now)
        segment.peers._same_link = lambda peer, hello, incarnation: True  # type: ignore[method-assign]
        return segment


class SilentAboutOtherLinks(Hearing):
    """What was let go on a link without a carrier is not told on the others."""

    def _hear_left(self, other: Segment, hello: Hello, now: float) -> None:
        pass


class BlindToDeletion(Records):
    """A record that was deleted is taken to stand."""

    def read(self, x: Eip, record: Record, now: float) -> None:
        if not record.gone:
            super().read(x, record, now)


class TrustsItsOwnEarsAlone(Hearing):
    """Rule 7: what others heard counts for nothing."""

    def _learn(self, segment: Segment, peer: Peer, hello: Hello, now: float) -> None:
        super()._learn(segment, peer, hello, now)
        for other in segment.peers.by_node.values():
            other.vouched_at = NEVER


class BelievesHearsay(Hearing):
    """Rule 7: whoever is spoken of lives, however long ago it was heard."""

    def _learn(self, segment: Segment, peer: Peer, hello: Hello, now: float) -> None:
        super()._learn(segment, peer, hello, now)
        for node in hello.heard.keys() & segment.peers.by_node.keys():
            segment.peers.by_node[node].vouched_at = now


class TakesItsTimeForEverybodys(Hearing):
    """Rule 7: a peer that says hello less often than we do is dead as soon as any."""

    def _learn(self, segment: Segment, peer: Peer, hello: Hello, now: float) -> None:
        super()._learn(segment, peer, hello, now)
        peer.patience = 1.0


class Undamped(Claims):
    """Rule 14: a link that comes and goes takes its turn as any."""

    def _judge_free(self, x: Eip, now: float) -> float:
        if x.link is not None:
            self._k.segments[x.link].returns = Returns()
        return super()._judge_free(x, now)


class AsksNobody(Silence):
    """Rule 15: a silent peer's EIPs are taken unasked."""

    def _ask(self, segment: Segment, now: float) -> None:
        pass


class HeedsNoAnswer(Hearing):
    """Rule 15: who answers for what it holds is dead all the same."""

    def hear_answer(self, event: EipAnswered, now: float) -> None:
        segment = self._k.segment(event.link, now)
        self._silence.hear_frame(segment, now - event.age, now, event.eip.version)
        self._unanswered.hear_answered(segment, event.eip)


class AccusesUnproven(Unanswered):
    """Rule 37: who gets no answer of anybody blames each that it asked."""

    def _sample(self, segment: Segment, now: float) -> None:
        for watch in segment.watches.values():
            watch.others = True
        super()._sample(segment, now)


class TakesAnyAnswer(Unanswered):
    """Rule 37: who answers by its MAC answers clients, too."""

    def _sample(self, segment: Segment, now: float) -> None:
        for watch in segment.watches.values():
            watch.unicasts = 0
        super()._sample(segment, now)


class AccusesAtOnce(Unanswered):
    """Rule 37: one answer by MAC is enough, not five in a row."""

    def _sample(self, segment: Segment, now: float) -> None:
        for watch in segment.watches.values():
            watch.unicasts *= UNICASTS
        super()._sample(segment, now)


class AccusesTheLate(Unanswered):
    """Rule 37: it does not matter whether others answer in time."""

    def _sample(self, segment: Segment, now: float) -> None:
        for watch in segment.watches.values():
            watch.others, watch.prompt_at = True, now
        super()._sample(segment, now)


class StandsAlways(Claims):
    """Rule 29: what was taken unheard goes back, though the taker does not hear that it should."""

    def _judge_rival(self, x: Eip, peer: Peer, now: float) -> float:
        if self._rules.beats(self._k, x, peer, peer.claims[x.address]) and self._rules.unknowing(x, peer):
            self._stand(x, peer.claims[x.address], now)
        return super()._judge_rival(x, peer, now)


class ProbesNothing(Ownership):
    """Rule 18: a first claim is answered at once."""

    def step(self, now: float, event: Event) -> list[Order]:
        return [
            replace(order, first=False) if isinstance(order, Claim) else order for order in super().step(now, event)
        ]


class WritesNothing(Records):
    """Rule 24: the record does not follow."""

    def follow(self, x: Eip, now: float) -> float:
        return float("inf")


class YieldsAreAll(Hearing):
    """Rule 3: that a claim is missing in its span means nothing."""

    def _learn(self, segment: Segment, peer: Peer, hello: Hello, now: float) -> None:
        super()._learn(segment, peer, hello._replace(covers=None), now)


class NothingTellsOfLettingGo(Known):
    """Rules 1 and 19: what was let go is not said to be."""

    def segment(self, link: int, now: float) -> Segment:
        segment = super().segment(link, now)
        segment.own.yields_said = lambda now, beat: {}  # type: ignore[method-assign]
        return segment


class OldLivesGoOn(YieldsAreAll):
    """Rule 7: what the life before claimed binds until it is denied."""

    def _begin_life(self, segment: Segment, old: Peer | None, now: float) -> None:
        super()._begin_life(segment, old, now)
        for eip, term in old.claims.items() if old is not None else ():
            segment.peers.by_node[old.node]._claim(eip, term)  # type: ignore[union-attr]
            self._k.eip(eip).rivals.setdefault(segment.link, set()).add(old.node)  # type: ignore[union-attr]


class TellsNobodyAll(Hearing):
    """Rule 4."""

    def _become_mutual(self, segment: Segment) -> None:
        segment.announce_all = True
        self._agenda.hurry()

    def _answer_requests(self, segment: Segment, peer: Peer, hello: Hello, now: float) -> None:
        super()._answer_requests(segment, peer, hello._replace(wants=frozenset()), now)


class ClimbsNot(Name):
    """Rule 5: who reads of a later life of its own goes on with the earlier one."""

    def climb(self, hello: Hello, now: float) -> None:
        pass


class SendsNoCopies(Ownership):
    """Rule 36: nobody is sent a hello by unicast."""

    def _speak_on(self, segment: Segment, beat: bool, now: float) -> None:
        super()._speak_on(segment, beat, now)
        if self._agenda.orders and isinstance(order := self._agenda.orders[-1], SendHello):
            self._agenda.orders[-1] = order._replace(direct=())


class ProbesNobody(Silence):
    """Rule 6: a silent peer is not asked to speak."""

    def _probe(self, segment: Segment, peer: Peer) -> None:
        pass


class HoldsWhatItMayNot(Claims):
    """Rule 10: who may hold an EIP no longer goes on."""

    def change_eligibility(self, event: EligibilityChanged, now: float) -> None:
        if event.link is not None:
            super().change_eligibility(event, now)


class MissesWhoWent(Known):
    """Rule 12: the silence of those who said that they go counts."""

    def segment(self, link: int, now: float) -> Segment:
        segment = super().segment(link, now)
        segment.peers.expected = lambda now: [*segment.peers.by_node.values()]  # type: ignore[method-assign]
        return segment


class TakesWhatIsServed(Claims):
    """Rule 15: what another speaker answers for, whose claim was not heard, is vacant."""

    def _judge_free(self, x: Eip, now: float) -> float:
        x.served_until = NEVER
        return super()._judge_free(x, now)


class HoldsInName(Hearing):
    """Rules 18 and 24: that the first probe found somebody is not told, and the record says that we hold it."""

    def hear_answer(self, event: EipAnswered, now: float) -> None:
        super().hear_answer(replace(event, probed=False), now)


class ObeysRecords(Claims):
    """Rule 23: a record that names another takes an EIP away."""

    def _judge_held(self, x: Eip, now: float) -> float:
        wake = super()._judge_held(x, now)
        if x.holding and x.record is not None and self._rules.foreign(self._k, x) and x.record.term >= x.term:
            self.yield_(x, Yielded.BETTER_CLAIM, now)
            return float("inf")
        return wake


class MendsNoRecord(Records):
    """Rule 30: what was not written while the API was gone is not written later."""

    def regain(self, now: float) -> None:
        pass


class TakesNothingOnRequest(Moves):
    """Rule 31."""

    def _claim_on_request(self, x: Eip, now: float) -> None:
        pass


class LearnsNoPatience(Hearing):
    """Rule 38."""

    def hear(self, segment: Segment, hello: Hello, at: float, now: float) -> None:
        super().hear(segment, hello, at, now)
        for peer in segment.peers.by_node.values():
            peer.lenience = Patience()
