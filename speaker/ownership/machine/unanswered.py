"""Peers that speak but do not answer (rule 37): who asks for what they hold, and who counts as mute. Pure.

A hello says that a node is well; only an answer shows that clients find it. So each node regularly asks for one EIP of
each family of the two peers before it in the order of names. A missing answer may be the peer's trouble or our own.
Therefore it is asked again at each beat, also by its MAC, and others on the link after it. It is accused only if those
answered meanwhile; and the accusation is believed only if a second node says the same, if there is a third. A peer that
keeps answering only by its MAC is accused too, as clients ask everybody.
"""

from bisect import bisect_left
from itertools import chain, islice

from speaker.model import IPAddress
from speaker.ownership.events import Question
from speaker.ownership.hello import Accused
from speaker.ownership.machine.known import Known
from speaker.ownership.machine.peers import MAX_NODES, Peer
from speaker.ownership.machine.rules import Rules
from speaker.ownership.machine.segment import Segment, Watch

SAMPLE = 1.5
"""Seconds between two questions for what one peer holds, while they are answered, and once it is accused."""
WATCHED, SUSPECTED = 2, 4
"""Peers before us in the order of names whose EIPs we ask for; and how many if somebody accuses them."""
TRIED, TRIED_MOST = 60.0, 3600.0
"""Seconds for which a node that was mute takes nothing from others for that reason: the first time, and at most."""
_VERSIONS = (4, 6)


class Unanswered:
    """Asks for what peers hold that are heard."""

    def __init__(self, k: Known, rules: Rules) -> None:
        self._k, self._rules, self._agenda = k, rules, k.agenda

    def ask_holders(self, now: float) -> None:
        """Called at each beat."""
        if now < self._agenda.beat_at:
            return
        for segment in self._k.segments.values():
            if segment.up and (now >= segment.sampled_at + SAMPLE or self._in_doubt(segment)):
                self._sample(segment, now)

    def _in_doubt(self, segment: Segment) -> bool:
        """A question is unanswered, or some node accuses another."""
        watched = segment.accused or any(w.asked or w.rounds or w.by_mac for w in segment.watches.values())
        return bool(watched) or any(peer.accuses for peer in segment.peers.by_node.values())

    def _sample(self, segment: Segment, now: float) -> None:
        before, segment.sampled_at = segment.accused, now
        watched = self._watched(segment, now)
        segment.watches = {accused: segment.watches.get(accused) or Watch() for accused in watched}
        for accused, peer in watched.items():
            self._ask_for(segment, peer, accused, segment.watches[accused], now)
        segment.accused = frozenset(accused for accused, watch in segment.watches.items() if watch.accused)
        for accused in (before ^ segment.accused) | segment.accused.difference(segment.tried):
            self._doubt(segment, accused, now)
        for accused in [accused for accused, until in segment.tried.items() if until <= now]:
            self._try_again(segment, accused, now)

    def _try_again(self, segment: Segment, accused: Accused, now: float) -> None:
        del segment.tried[accused]
        self._doubt(segment, accused, now)
        self._agenda.look_at(self._k.eips_on(segment.link))

    def _watched(self, segment: Segment, now: float) -> dict[Accused, Peer]:
        """Peers whose EIPs we have to ask for; only if they would hear us, and say what they hold."""
        if not segment.in_touch:
            return {}
        present = {peer.node: peer for peer in segment.peers.living(now) if self._is_present(peer, now)}
        ring = sorted([*present, self._k.node])
        at = bisect_left(ring, self._k.node)
        before = [ring[at - step] for step in range(1, min(len(ring), SUSPECTED + 1))]
        return {
            Accused(node, version): present[node]
            for step, node in enumerate(before)
            for version in _VERSIONS
            if present[node].holds_any(version)
            if step < WATCHED or self._rules.accusers(self._k, segment, Accused(node, version), now)
        }

    def _is_present(self, peer: Peer, now: float) -> bool:
        return now < peer.missed_at(self._k.times) and not peer.makes_way and peer.hears_us(now, self._k.times)

    def _ask_for(self, segment: Segment, peer: Peer, accused: Accused, watch: Watch, now: float) -> None:
        if watch.asked:
            watch.missed()
        elif watch.by_mac:
            prompt = any(now < w.prompt_at + 2 * SAMPLE for w in segment.watches.values() if w is not watch)
            if all(one.node == peer.node for one in segment.watches) and len(segment.peers.living(now)) > 1:
                prompt = True  # a third node must confirm it, and holds nothing to ask for
            watch.note_unicast(prompt)
        doubted = watch.rounds > 0
        hurried = doubted or bool(self._rules.accusers(self._k, segment, accused, now))
        if now < watch.asked_at + (SAMPLE if watch.accused or not hurried else 0.0):
            return
        start = (watch.turn + (watch.rounds != 1)) % len(peer.claims)  # once more for the same one
        in_turn = chain(islice(peer.claims, start, None), peer.claims)
        steps, eip = next((step, eip) for step, eip in enumerate(in_turn) if eip.version == accused.version)
        watch.turn = (start + steps) % len(peer.claims)
        watch.ask(eip, doubted, now)
        self._agenda.orders.append(Question(segment.link, peer.node, watch.asked, doubted))

    def hear_answered(self, segment: Segment, eip: IPAddress) -> None:
        """Whoever answered: clients get an answer. On a slow LAN it may be to the question of an earlier round."""
        for accused, watch in segment.watches.items():
            peer = segment.peers.by_node.get(accused.node) if accused.version == eip.version else None
            if eip in watch.asked or (watch.asked and watch.by_mac and peer is not None and eip in peer.claims):
                watch.answered(self._agenda.now)
                if not watch.by_mac:
                    segment.tried.pop(accused, None)
                    segment.tries.pop(accused, None)
            elif eip.version == accused.version:
                watch.others = True

    def hear_other(self, segment: Segment, version: int | None) -> None:
        """``version``: as in ``FrameHeard``."""
        for accused, watch in segment.watches.items():
            watch.others |= accused.version == version

    def hear_accused(self, segment: Segment, before: frozenset[Accused], peer: Peer, now: float) -> None:
        """``before``: the nodes that it accused until now."""
        for accused in before ^ peer.accuses:
            self._doubt(segment, accused, now)

    def _doubt(self, segment: Segment, accused: Accused, now: float) -> None:
        """It may count as mute from now on, or no longer. Whoever has the key can invent any number of names."""
        if accused not in segment.tries and len(segment.tries) >= MAX_NODES:
            return
        if self._rules.mute(self._k, segment, accused, now) and now >= segment.tried.get(accused, now):
            segment.tried[accused] = now + min(TRIED * 2 ** segment.tries[accused], TRIED_MOST)
            segment.tries[accused] += 1
        peer = segment.peers.by_node.get(accused.node)
        self._agenda.look_at(eip for eip in (peer.claims if peer is not None else ()) if eip.version == accused.version)
        self._agenda.hurry()
