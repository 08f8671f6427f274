"""What is heard on the links (rules 4 to 7, 15 and 20 to 22). ``silence.py`` decides what silence means. Pure."""

from collections.abc import Mapping, Sequence

from speaker.model import IPAddress
from speaker.ownership.events import EipAnswered, PeersAddress
from speaker.ownership.hello import Hello, Terms
from speaker.ownership.machine.holding import Claims
from speaker.ownership.machine.known import Known
from speaker.ownership.machine.moving import Moves
from speaker.ownership.machine.naming import Name
from speaker.ownership.machine.peers import FORGOTTEN, MAX_NODES, Peer, Worth
from speaker.ownership.machine.segment import Segment
from speaker.ownership.machine.silence import Silence
from speaker.ownership.machine.unanswered import Unanswered
from speaker.ownership.parameters import NEVER, Parameters

NOTED = 1.0
"""Seconds until the same addresses are noted again: a fraction of ``linger``, for which they are believed."""
MAX_EIPS = 100_000
"""The most EIPs that are known at all, ours and others': ten times what was measured."""
MAX_SAID = 500_000
"""The most EIPs and addresses kept of what all nodes of a link said about themselves: five times ``MAX_EIPS``."""
_LONG = 1000
"""If a node yielded more EIPs than this, those that it yielded long ago are forgotten."""


class Hearing:
    """Peers appear, speak, fall silent and die."""

    def __init__(
        self,
        k: Known,
        claims: Claims,
        name: Name,
        moves: Moves,
        silence: Silence,
        unanswered: Unanswered,
    ) -> None:
        self._k, self._agenda, self._claims, self._name, self._moves = k, k.agenda, claims, name, moves
        self._silence, self._unanswered = silence, unanswered
        self._of_groups: dict[int, dict[IPAddress, str]] = {}
        """What other groups hold, by link."""

    def hear(self, segment: Segment, hello: Hello, at: float, now: float) -> None:
        """``at``: when it arrived."""
        if not segment.up:
            return
        self._name.climb(hello, now)
        hello = self._within_bounds(hello)
        old = segment.peers.by_node.get(hello.node)
        was_alive = old is not None and old.is_alive(now, self._k.times)
        was_mutual = old is not None and old.hears_us(now, self._k.times)
        made_way = old is not None and old.makes_way
        was_missed = old is None or now >= old.missed_at(self._k.times)
        accused = old.accuses if old is not None else frozenset()
        weights = old.weights if old is not None else {}
        if not segment.peers.by_node:
            segment.meet_the_first(now)
        hearing, peer = segment.peers.hear(hello, self._k.incarnation, at)
        segment.hearings[hearing] += 1
        if peer is None:
            if hearing is Worth.UNPROVEN and now - segment.greeted_at >= self._k.times.hello / 4:
                segment.greeted_at = now
                self._agenda.hurry()
            return
        if hello.direct:
            self._silence.hear_direct(segment, hello, now)
        else:
            self._silence.note_sign(segment, at)
            segment.heard_at, segment.direct = at, 0
        if peer is not old:
            self._begin_life(segment, old, now)
            if old is None and len(segment.peers.by_node) == 1 and segment.frame_at == NEVER:
                self._silence.begin_to_hear(segment, now)
        self._learn(segment, peer, hello, now)
        if hello.own or hello.addresses or peer.own:
            self._learn_own(segment, peer, hello, now)
        if peer is not old or not was_alive or peer.makes_way is not made_way:
            self._silence.peer_changed(peer)
        if peer.weights != weights or (old is not None and peer.weighs is not old.weighs):
            self._agenda.look_later(segment.weights.eips)
        if peer.accuses != accused:
            self._unanswered.hear_accused(segment, accused, peer, now)
        if was_missed and not hello.direct and not peer.claims.keys().isdisjoint(segment.own.terms):
            self._agenda.hurry()  # it stands or gives way once it knows that we hear it
        self._answer_requests(segment, peer, hello, now)
        self._moves.hear(segment, peer, hello, now)
        if peer.hears_us(now, self._k.times) and not (was_mutual and peer is old):
            self._become_mutual(segment)
            self._agenda.look_at(peer.weak)  # what it took unheard goes back now (rule 29)
        peer.alive = True
        self._agenda.watch_at = min(self._agenda.watch_at, now + self._k.times.suspect)
        self._silence.revive(segment, now)
        if not segment.in_touch:
            self._silence.feel(segment, now)

    def unhear(self, link: int, peer: Peer | None, before: Peer | None, heard_at: float, now: float) -> None:
        """Cleans up after a hello that was only half understood. Its sender counts as heard when ``before`` was, or as
        never heard."""
        if peer is None:
            return
        peer.heard_at = heard_at if peer is before else NEVER
        peer.lenience.unhear()
        if not peer.is_alive(now, self._k.times):
            peer.claims = {}
        peer.restore()
        for address, term in peer.claims.items():
            x = self._k.eip(address)
            x.rivals.setdefault(link, set()).add(peer.node)
            x.raise_maxterm(term)
        self._agenda.look_at(peer.claims)
        self._agenda.look_at(before.claims if before is not None else ())
        self._agenda.watch_at = now

    def _within_bounds(self, hello: Hello) -> Hello:
        """Without EIPs that we do not know, once we know MAX_EIPS: whoever has the key can invent any number."""
        if len(self._k.eips) < MAX_EIPS:
            return hello
        return hello._replace(claims=self._known(hello.claims), yielded=self._known(hello.yielded))

    def _known(self, terms: Terms) -> Terms:
        return {eip: term for eip, term in terms.items() if eip in self._k.eips}

    def forget_some(self, now: float) -> None:
        """Called at each beat, for when there are too many: whoever has the key can invent names, and EIPs for each."""
        if now < self._agenda.beat_at:
            return
        for segment in self._k.segments.values():
            for peer in segment.peers.by_node.values():
                if peer.own and now >= peer.heard_at + FORGOTTEN:
                    self._disown_all(segment, peer)
                if len(peer.ended) > _LONG:
                    peer.ended = {eip: at for eip, at in peer.ended.items() if now < at + self._k.times.linger}
            for peer in (forgotten := _too_many([*segment.peers.by_node.values()], now, self._k.times)):
                self._forget_peer(segment, peer)
            for x in (self._k.eips[address] for address in segment.own.terms) if forgotten else ():
                for told in (x.worse_claims, x.unknowing_since, x.heard_yields):
                    for node in [node for node in told if node not in segment.peers.by_node]:
                        del told[node]

    def _forget_peer(self, segment: Segment, peer: Peer) -> None:
        """As if it had never been heard."""
        del segment.peers.by_node[peer.node]
        for address in peer.claims:
            self._k.eip(address).rivals.get(segment.link, set()).discard(peer.node)
        self._disown_all(segment, peer)
        self._silence.peer_changed(peer)

    def _begin_life(self, segment: Segment, old: Peer | None, now: float) -> None:
        """A higher incarnation voids the claims of the old one."""
        self._agenda.watch_at = now
        if old is None:
            return
        segment.peers.by_node[old.node].own = old.own
        for address in old.claims:
            self._k.eip(address).rivals.get(segment.link, set()).discard(old.node)
        self._agenda.look_at(old.claims)

    def _learn(self, segment: Segment, peer: Peer, hello: Hello, now: float) -> None:
        self._expect_successors(peer, hello, now)
        changed = peer.learn(hello)
        for address in changed:
            x = self._k.eip(address)
            nodes = x.rivals.setdefault(segment.link, set())
            term = peer.claims.get(address)
            if term is None:
                nodes.discard(peer.node)
            else:
                nodes.add(peer.node)
                x.raise_maxterm(term)
                x.note_holder(term, peer.node, now)
                x.served_until = NEVER  # any answer would have come by now
        if changed:
            self._k.claims_heard += 1
            self._agenda.look_at(changed)
        for other in self._k.segments.values():
            if other is not segment:
                self._hear_left(other, hello, now)
        for address, term in hello.yielded.items():
            x = self._k.eip(address)
            x.raise_maxterm(term)
            if x.holding and x.link == segment.link:
                self._claims.hear_yielded(x, peer, term, now)

    def _learn_own(self, segment: Segment, peer: Peer, hello: Hello, now: float) -> None:
        """Own addresses are kept as long as they are repeated, and an hour beyond their node's death. What is said at
        every beat is the same object each time, and is noted only now and then."""
        said = hello.own, hello.addresses
        if said[0] is peer.said_own[0] and said[1] is peer.said_own[1] and now < peer.own_noted_at + NOTED:
            return
        peer.said_own, peer.own_noted_at = said, now
        place = segment.link, peer.node
        for address in (*hello.own, *hello.addresses):
            if address not in peer.own:
                self._k.owners[address].add(place)
                self._change_owner(address)
            peer.own[address] = now
        for address in [address for address, at in peer.own.items() if now - at >= self._k.times.linger]:
            del peer.own[address]
            self._disown(address, place)
        for other in self._k.segments.values():
            twin = other.peers.by_node.get(peer.node)
            if twin is not None and twin.own and twin.link == peer.link and not other.up:
                self._disown_all(other, twin)  # the link was created again here, with another index

    def hear_groups(self, link: int, held: Mapping[IPAddress, str]) -> None:
        """What other groups hold there is kept like a peer's own addresses; ``held`` replaces what was said before."""
        before = self._of_groups.get(link, {})
        for address in [each for each, group in before.items() if held.get(each) != group]:
            self._disown(address, (link, before[address]))
        for address, group in held.items():
            if before.get(address) != group:
                self._k.owners[address].add((link, group))
                self._change_owner(address)
        self._of_groups[link] = dict(held)

    def _disown_all(self, segment: Segment, peer: Peer) -> None:
        for address in peer.own:
            self._disown(address, (segment.link, peer.node))
        peer.own = {}

    def _disown(self, address: IPAddress, place: tuple[int, str]) -> None:
        self._k.owners[address].discard(place)
        if not self._k.owners[address]:
            del self._k.owners[address]
        self._change_owner(address)

    def _change_owner(self, address: IPAddress) -> None:
        x, owner = self._k.eips.get(address), self._k.owner(address)
        if x is None or x.owner == owner:
            return
        x.owner = owner
        if x.link is not None:
            self._agenda.orders.append(PeersAddress(address, owner))
        self._agenda.look_at([address])

    def _hear_left(self, other: Segment, hello: Hello, now: float) -> None:
        """A node that yields EIPs on a link that no longer carries its hellos says so on the others."""
        if not hello.yielded:
            return
        twin = other.peers.by_node.get(hello.node)
        if twin is None or twin.incarnation != hello.incarnation:
            return
        gone = twin.leave(hello.yielded, hello.stamp, now)
        for address in gone:
            x = self._k.eip(address)
            x.rivals.get(other.link, set()).discard(twin.node)
            x.raise_maxterm(hello.yielded[address])
        if gone:
            self._k.claims_heard += 1
            self._agenda.look_at(gone)
            self._silence.peer_changed(twin)

    def _expect_successors(self, peer: Peer, hello: Hello, now: float) -> None:
        """Somebody claims what this peer held, at the term at which the peer yielded it. That claim will be heard, or
        its node is gone."""
        for address, term in hello.yielded.items():
            if peer.claims.get(address, term) < term and address not in hello.claims:
                self._k.eip(address).successor_until = now + self._k.times.suspect

    def _answer_requests(self, segment: Segment, peer: Peer, hello: Hello, now: float) -> None:
        # Asked in every hello until it is heard: answering each would keep slow nodes from hearing it.
        if self._k.node in hello.wants and not segment.own.told_lately(now):
            segment.tell_all = True
            self._agenda.hurry()
        if self._k.node in hello.probes:
            self._agenda.hurry()
        elif hello.probes and any(self._heard_lately(segment, node, now) for node in hello.probes):
            self._agenda.hurry()  # bear witness (rule 6)
        if peer.synced():
            peer.unsynced_since = None
        elif peer.unsynced_since is None:
            peer.unsynced_since = now

    def _heard_lately(self, segment: Segment, node: str, now: float) -> bool:
        peer = segment.peers.by_node.get(node)
        return peer is not None and now - peer.heard_at < 2 * self._k.times.hello

    def _become_mutual(self, segment: Segment) -> None:
        """Rules 4 and 22."""
        segment.tell_all = True
        segment.announce_all = True
        self._agenda.hurry()

    def hear_answer(self, event: EipAnswered, now: float) -> None:
        segment, at = self._k.segment(event.link, now), now - event.age
        self._silence.hear_frame(segment, at, now, event.eip.version)
        self._unanswered.hear_answered(segment, event.eip)
        x = self._k.eip(event.eip)
        if x.holding:
            if event.probed and x.term in x.heard_yields.values() and not self._claims.take_over:
                self._claims.prove(x)  # it gave way to us meanwhile
            elif event.probed:
                self._claims.dispute(x, now)
            return
        peer = segment.peers.by_node.get(event.node) if event.node is not None else None
        if peer is None:
            return
        if event.eip not in peer.claims:
            if event.age and at <= peer.ended.get(event.eip, NEVER):
                return  # it may have answered before it said that it no longer holds that
            x.served_until = max(x.served_until, at + self._k.times.dead)
            self._agenda.look_at([x.address])
        elif not peer.is_heard(now, self._k.times) or peer.suspect_at(self._k.times) <= now:
            peer.answered_at = max(peer.answered_at, at)
            peer.unanswered.pop(event.eip, None)
            self._silence.revive(segment, now)


def _too_many(peers: Sequence[Peer], now: float, times: Parameters) -> list[Peer]:
    """If there are more than MAX_NODES, the ones dead for longest. If all together say more than MAX_SAID, the last to
    come among those who say more than their share."""
    more = len(peers) - MAX_NODES
    dead = [peer for peer in peers if not peer.is_alive(now, times)] if more > 0 else []
    forgotten = sorted(dead, key=lambda peer: peer.heard_at)[: max(0, more)]
    said = sum(map(_said, peers))
    if said <= MAX_SAID:
        return forgotten
    loud = [peer for peer in peers if _said(peer) * len(peers) > MAX_SAID and peer not in forgotten]
    for peer in sorted(loud, key=lambda peer: -peer.met_at):
        if said > MAX_SAID:
            forgotten.append(peer)
            said -= _said(peer)
    return forgotten


def _said(peer: Peer) -> int:
    return len(peer.claims) + len(peer.ended) + len(peer.left) + len(peer.own)
