"""Wrong judgements, each of which takes one rule of ``docs/ownership.md`` away."""

from speaker.ownership.events import Record, Yielded
from speaker.ownership.hello import Accused
from speaker.ownership.machine.claims import Eip
from speaker.ownership.machine.known import Known
from speaker.ownership.machine.peers import Peer
from speaker.ownership.machine.rules import Rules
from speaker.ownership.machine.segment import Segment
from speaker.ownership.parameters import NEVER
from speaker.ownership.score import score


class NoStagger(Rules):
    def claim_at(self, k: Known, x: Eip, vacant_since: float, now: float) -> float:
        return now


class EqualTermsBeat(Rules):
    def beats(self, k: Known, x: Eip, peer: Peer, term: int) -> bool:
        return term >= x.term


class NoSelfLease(Rules):
    def answer_until(self, k: Known) -> float:
        return float("inf")


class HardDrain(Rules):
    def drained_at(self, k: Known, since: float) -> float:
        return since


class RanksOverAll(Rules):
    def rank(self, k: Known, x: Eip, now: float) -> int:
        names = {node for segment in k.segments.values() for node in segment.peers.by_node}
        return sum(score(x.address, node) > score(x.address, k.node) for node in names)


class NoListening(Rules):
    def listening(self, segment: Segment, now: float) -> bool:
        return False


class NoRelease(Rules):
    def release_at(self, k: Known, x: Eip, now: float) -> float:
        return float("inf")


class BlindToRevisions(Rules):
    """In an upgrade EIPs go wherever the score says."""

    def precedes(self, k: Known, x: Eip, peer: Peer) -> bool:
        return score(x.address, peer.node) > score(x.address, k.node)


class BlindToPreference(Rules):
    """Rule 41: EIPs go wherever the score says."""

    def weighed(self, k: Known, x: Eip) -> bool:
        return False


class ComesBackAtOnce(Rules):
    """Rule 42: whoever is preferred takes what it may, whatever happened a moment ago."""

    def steady_since(self, k: Known, x: Eip) -> float:
        return NEVER


class NeverComesBack(Rules):
    def preferred_to(self, k: Known, x: Eip, peer: Peer) -> bool:
        return False


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


class TakesAtTheFirstSign(Rules):
    """Rule 12: whoever hears again gives nobody time to be heard."""

    def heard_out_at(self, k: Known, x: Eip, now: float) -> float:
        return NEVER


class HearsEverybody(Rules):
    """Rule 18: who lives by the word of others counts as heard."""

    def deaf_to_somebody(self, k: Known, x: Eip, now: float) -> bool:
        return False


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


class BoundByNoRecord(Rules):
    """Rule 12: who has heard nothing since its start takes what records give to others."""

    def knows(self, k: Known, x: Eip, segment: Segment) -> bool:
        return True


class WaitsForTheApi(Rules):
    """Rules 16 and 30: nothing is claimed while the API does not answer."""

    def may_claim(self, k: Known, x: Eip, now: float) -> bool:
        return (k.api.up or not k.api.configured) and super().may_claim(k, x, now)


class EveryClaimIsWeak(Rules):
    """Rule 18: nobody ever takes anything for good."""

    def taken_unheard(self, k: Known, x: Eip, now: float) -> bool:
        return True


class BlindToLoss(Rules):
    """Rule 40: who is heard now and then is as good as any."""

    def sick(self, k: Known, segment: Segment, now: float) -> bool:
        return False


class NeverYields(Rules):
    """Rule 19."""

    def beats(self, k: Known, x: Eip, peer: Peer, term: int) -> bool:
        return False


class TakesUnicastForTouch(Rules):
    """Rule 36: answers to our own questions say that clients reach us, too."""

    def hears_no_broadcast(self, segment: Segment) -> bool:
        return False


class LeavesTheMuteAlone(Rules):
    """Rule 37: whoever speaks holds what it says."""

    def taken_over(self, k: Known, x: Eip, peer: Peer, now: float) -> bool:
        return False


class BelievesOneAccuser(Rules):
    """Rule 37: what one node says is enough."""

    def mute(self, k: Known, segment: Segment, accused: Accused, now: float) -> bool:
        return bool(self.accusers(k, segment, accused, now))


class TakesOverForEver(Rules):
    """Rule 37: who was mute itself, and how many were, counts for nothing."""

    def taken_over(self, k: Known, x: Eip, peer: Peer, now: float) -> bool:
        assert x.link is not None
        return self.mute(k, k.segments[x.link], Accused(peer.node, x.address.version), now)


class ExpectsNoSuccessor(Rules):
    """Rule 19: what one let go for another is vacant as long as that other is not heard."""

    def successor_until(self, x: Eip) -> float:
        return NEVER


class KeepsNothing(Rules):
    """Rule 39: whoever stood still lets everything go."""

    def kept_through(self, k: Known, now: float) -> bool:
        return False


class DeafToThoseWhoDoNotHear(Rules):
    """Rule 12: who does not hear us holds nothing, whatever the record says."""

    def spoken_for_until(self, k: Known, x: Eip, now: float) -> float:
        return NEVER
