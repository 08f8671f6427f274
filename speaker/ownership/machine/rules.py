"""What the rules of ``docs/ownership.md`` decide, from what is known: judgements that change nothing. Pure.

The machine asks for them and acts. Tests give it wrong rules and see the simulation notice. Throughout, ``k`` is all
that this node knows, ``x`` is the EIP that is judged, and ``peer`` or ``p`` is another speaker on its link.

Why this node holds an EIP: it is ``eligible``, nobody else holds it (``held_until``), its turn came (``claim_at``, by
``rank`` and ``score.py``), and no other claim ``beats`` its own.
"""

from speaker.ownership.events import Record, Yielded
from speaker.ownership.hello import Accused
from speaker.ownership.machine.claims import Eip
from speaker.ownership.machine.known import Known
from speaker.ownership.machine.loss import AGAIN, sick, well
from speaker.ownership.machine.peers import Peer
from speaker.ownership.machine.segment import Segment
from speaker.ownership.parameters import FOREVER, NEVER
from speaker.ownership.preference import Preferred
from speaker.ownership.score import fair_share, score

_DIRECT = 8
"""Hellos by unicast without any broadcast, after which none is expected to come. Each was sent together with a
broadcast, so at 30 % loss, chance makes that of eight in a row once in fifteen thousand times."""
_TRIED = 3
"""If so many nodes, one after the other, were mute with the same EIPs, these stay where they are."""
_LATELY = 60.0
"""Seconds for which a peer that fell silent still counts among all peers."""


class Rules:
    """The rules for the node that knows ``k``."""

    __slots__ = ()

    # ── Claims beside each other ──────────────────────────────────────────────────────────────────────────────

    def beats(self, k: Known, x: Eip, peer: Peer, term: int) -> bool:
        """Rule 8: is the claim of ``peer`` at ``term`` better than ours? At equal terms, the claim made with knowledge
        of the previous holder is better; if neither was, the claim of the node that is heard, if we had the time to be
        heard."""
        segment = k.at(x)
        theirs = term, x.address not in peer.weak, x.weak and segment.unheard, score(x.address, peer.node)
        return theirs > (x.term, not (x.weak or x.address in segment.claimed_alone), False, score(x.address, k.node))

    def making_way(self, peer: Peer) -> bool:
        """Rule 11: its claims bind nobody."""
        return peer.makes_way

    def foreign(self, k: Known, x: Eip) -> bool:
        """Its record names another node."""
        return x.record is not None and x.record.holder not in (None, k.node)

    def knows_holder(self, k: Known, x: Eip) -> bool:
        """The last holder is a peer whose hellos we know. Any other holder might still hold it, so it is looked for on
        the wire."""
        term, node = x.held_by
        return term >= x.term and k.peer(x, node) is not None

    def taken_unheard(self, k: Known, x: Eip, now: float) -> bool:
        """Rule 18: its holder fell silent, or was never heard here, and we are not the majority: it may only be out of
        our hearing."""
        if any(not p.makes_way and not p.is_alive(now, k.times) for p in k.claimants(x)):
            return not self.with_most(k, k.at(x), now)
        return (self.foreign(k, x) and not self.knows_holder(k, x)) or self.deaf_to_somebody(k, x, now)

    def deaf_to_somebody(self, k: Known, x: Eip, now: float) -> bool:
        """A node lives only by the word of others: it may have claimed since we last heard it."""
        peers = k.at(x).peers.living(now)
        return any(not p.makes_way and not p.is_heard(now, k.times) for p in peers)

    def all_heard(self, k: Known, segment: Segment, now: float) -> bool:
        """Every node that was here recently is heard and hears us, and we know its claims."""
        peers = segment.peers.expected(now)
        return bool(peers) and all(p.is_heard(now, k.times) and p.hears_us(now, k.times) and p.synced() for p in peers)

    def sure(self, k: Known, x: Eip, now: float) -> bool:
        """Rule 18: a claim made in doubt is no longer in doubt. Its last holder is among those that are heard, and
        nobody claims it."""
        last = k.peer(x, node := x.held_by[1])
        heard = node in ("", k.node) or (last is not None and last.is_heard(now, k.times))
        found = x.disputed_until > NEVER or self.foreign(k, x) or k.claimants(x)
        return heard and not found and now >= k.at(x).sure_at

    def with_most(self, k: Known, segment: Segment, now: float) -> bool:
        """We and those that we hear are more than half of all that were heard here recently."""
        lately = [peer for peer in segment.peers.expected(now) if now < peer.heard_at + _LATELY]
        heard = sum(now < peer.suspect_at(k.times) for peer in lately)
        return 2 * (heard + 1) > len(lately) + 1

    # ── What nobody holds here ────────────────────────────────────────────────────────────────────────────────

    def eligible(self, k: Known, x: Eip) -> bool:
        """Rule 10."""
        return (
            x.link is not None
            and x.owner is None
            and not x.aside
            and k.at(x).up
            and k.draining_since is None
            and k.silent_until is None
        )

    def may_claim(self, k: Known, x: Eip, now: float) -> bool:
        if not self.eligible(k, x):
            return False
        segment = k.at(x)
        return segment.in_touch and not self.listening(segment, now) and self.knows(k, x, segment)

    def listening(self, segment: Segment, now: float) -> bool:
        """Rule 9."""
        return segment.listening

    def must_listen(self, k: Known, segment: Segment, now: float) -> bool:
        """Rule 9: for the first list, and for claims not all known yet."""
        since_boot = now - k.boot
        if k.api.configured and not k.api.listed and since_boot < k.times.first_list:
            return True
        return since_boot < k.times.sync and any(not p.synced() for p in segment.peers.living(now))

    def knows(self, k: Known, x: Eip, segment: Segment) -> bool:
        """Rule 12: a record names another holder, which binds a node that has heard nothing at all of the LAN."""
        return not self.foreign(k, x) or segment.frame_at > NEVER or bool(segment.peers.by_node)

    def held_until(self, k: Known, x: Eip, now: float) -> float:
        """Rules 11, 12 and 19: until when, unless events change that, it is somebody else's."""
        if any(self.binds(k, x, peer, now) for peer in k.rivals(x, now)):
            return FOREVER
        if not self.heard_since_lost(k, x, now):
            return now + k.times.slot
        unheard = self.spoken_for_until(k, x, now)
        until = max(self.successor_until(x), self.served_until(x), self.heard_out_at(k, x, now), unheard)
        return max(until, now + k.times.slot) if self.recorded_since_heard(k, x, now) else until

    def spoken_for_until(self, k: Known, x: Eip, now: float) -> float:
        """Rule 12: the node that the record names speaks here, but does not hear us, and nor does anybody else: it
        serves those that we reach."""
        peers, record = k.at(x).peers, x.record
        stranger = peers.strangers.get(record.holder or "") if record is not None else None
        if record is None or stranger is None or stranger.stamp[0] != record.incarnation or peers.living(now):
            return NEVER
        return stranger.heard_at + k.times.dead

    def recorded_since_heard(self, k: Known, x: Eip, now: float) -> bool:
        """Rule 12: the record names a living peer and came after that peer's last hello, so the hello with its claim
        may have been lost. A peer that let the EIP go would have said so."""
        record = x.record
        peer = k.peer(x, record.holder) if record is not None else None
        if record is None or peer is None or record.incarnation != peer.incarnation:
            return False
        told = peer.heard_at > x.record_read_at or x.address in peer.ended or self.making_way(peer)
        return not told and peer.is_alive(now, k.times)

    def binds(self, k: Known, x: Eip, peer: Peer, now: float) -> bool:
        """We may not take what this living peer claims."""
        makes_way = self.making_way(peer) and not self.no_better(k, x, peer, now)
        return not makes_way and not self.taken_over(k, x, peer, now)

    def taken_over(self, k: Known, x: Eip, peer: Peer, now: float) -> bool:
        """Rule 37: nobody answers for what it holds, and neither we nor too many others were found mute: in that case
        it would be no single node's trouble."""
        segment, version = k.at(x), x.address.version
        tried = self.tried(segment, version, now)
        if peer.node not in tried or k.node in tried or len(tried) >= _TRIED:
            return False
        return self.mute(k, segment, Accused(peer.node, version), now)

    def found_mute(self, k: Known, x: Eip, now: float) -> bool:
        """Rule 37, for ourselves."""
        return self.mute(k, k.at(x), Accused(k.node, x.address.version), now)

    def tried(self, segment: Segment, version: int, now: float) -> set[str]:
        """Nodes that were mute here recently; nearly always none."""
        return {one.node for one, until in segment.tried.items() if one.version == version and now < until}

    def mute(self, k: Known, segment: Segment, accused: Accused, now: float) -> bool:
        """Rule 37: two nodes say so, or the only other one there is."""
        others = {p.node for p in segment.peers.living(now) if not p.makes_way} | {k.node}
        return 0 < min(2, len(others - {accused.node})) <= len(self.accusers(k, segment, accused, now))

    def accusers(self, k: Known, segment: Segment, accused: Accused, now: float) -> set[str]:
        """Nodes that say that nobody answers for what it holds, and that are heard and not late."""
        peers = segment.peers.by_node.values()
        found = {p.node for p in peers if p.accuses and accused in p.accuses and now < p.suspect_at(k.times)}
        return found | {k.node} if accused in segment.accused else found

    def heard_since_lost(self, k: Known, x: Eip, now: float) -> bool:
        """Something reached us here after each node that claims it had become suspect."""
        segment = k.at(x)
        suspect_at = max((p.suspect_at(k.times) for p in self.lost(k, x, now)), default=NEVER)
        return suspect_at <= max(segment.heard_at, segment.frame_at)

    def heard_out_at(self, k: Known, x: Eip, now: float) -> float:
        """Rule 12: until then the nodes that claim it get time to be heard, if it was we who heard nothing from
        anybody."""
        resumed_at = k.at(x).resumed_at
        lost = [p for p in self.lost(k, x, now) if p.suspect_at(k.times) + k.times.probe <= resumed_at]
        return max((resumed_at + k.times.hello * p.patience + k.times.slot for p in lost), default=NEVER)

    def lost(self, k: Known, x: Eip, now: float) -> list[Peer]:
        """Peers that claim it and died, as far as we know, without announcing it."""
        return [p for p in k.claimants(x) if not self.making_way(p) and not p.is_alive(now, k.times)]

    def successor_until(self, x: Eip) -> float:
        """Rule 19: a node that yielded to a better claim was heard before the one that made it, or that one's hello was
        lost."""
        return x.successor_until

    def served_until(self, x: Eip) -> float:
        """Rule 15."""
        return x.served_until

    def release_at(self, k: Known, x: Eip, now: float) -> float:
        """Rule 25: when we, whom its record names, should remove our name, unless another node writes itself first."""
        alone = k.draining_since is not None and not k.rivals(x, now)
        return now if alone else x.yielded_at + k.times.record_grace

    # ── Whose turn ────────────────────────────────────────────────────────────────────────────────────────────

    def claim_at(self, k: Known, x: Eip, vacant_since: float, now: float) -> float:
        """Rule 13."""
        return vacant_since + self.wait(k, x, now)

    def wait(self, k: Known, x: Eip, now: float) -> float:
        rank = self.rank(k, x, now)
        if rank and x.maxterm == 0 and self.assembling(k, x, now):
            # Nobody ever held it, so nothing fails over: let a better peer that still listens have it. Otherwise
            # the first node of a starting cluster takes everything. The last in line also waits for those behind it.
            return k.times.listen * (2 if rank == k.times.ranks else 1) + rank * k.times.slot
        segment = k.at(x)
        return self.damped(k, segment, now) + rank * max(k.times.slot, segment.peers.lateness(now))

    def damped(self, k: Known, segment: Segment, now: float) -> float:
        """Rule 14: a link that comes and goes takes only what no other node that could has taken, as long as a node has
        a steady link."""
        steady = any(not self.making_way(peer) and not peer.demoted for peer in segment.peers.living(now))
        return k.times.dead if steady and segment.unsteady(now) else 0.0

    def rank(self, k: Known, x: Eip, now: float) -> int:
        """Living, staying peers with a better score. A node that is demoted or has its share goes last, unless
        all are."""
        segment = k.at(x)
        late = segment.peers.lateness(now) > k.times.slot  # its word that it is deaf may be outdated
        others = [p for p in segment.peers.living(now) if not self.making_way(p) or (late and not p.draining)]
        tried = self.tried(segment, x.address.version, now)
        first = [p for p in others if not p.demoted and p.node not in tried]
        # Only for EIPs that nobody held: in a failover, not all may wait for the last slot and claim together.
        alike = x.maxterm == 0 and not self.weighed(k, x)
        share = fair_share(segment.eligible, len(others) + 1) if alike else None
        last = segment.goes_last(now) or k.node in tried or x.behind
        if others and ((share is not None and len(segment.own) >= share) or (last and first)):
            return k.times.ranks
        before = [p for p in (others if last else first) if share is None or len(p.claims) < share]
        return min(sum(self.precedes(k, x, p) for p in before), k.times.ranks)

    def precedes(self, k: Known, x: Eip, peer: Peer) -> bool:
        """Is it the peer's turn before ours? This is only about order: which claim stands is for ``beats``."""
        theirs = peer.revision, self.weight(k, x, peer), score(x.address, peer.node)
        return theirs > (k.revision, self.own_weight(k, x), score(x.address, k.node))

    def assembling(self, k: Known, x: Eip, now: float) -> bool:
        """A node has only just come, we or another: it may still be listening."""
        lately = now - k.times.sync - k.times.listen
        return k.boot > lately or any(p.met_at > lately for p in k.at(x).peers.living(now))

    # ── Preferred nodes ───────────────────────────────────────────────────────────────────────────────────────

    def weighed(self, k: Known, x: Eip) -> bool:
        """Rule 41: it has a preference, and every node here heeds preferences."""
        if x.preference is None or x.link is None:
            return False
        peers = k.at(x).peers
        heedless = (peers.by_node.get(node) for node in peers.heedless)
        return not any(peer is not None and peer.alive and not peer.weighs for peer in heedless)

    def weight(self, k: Known, x: Eip, peer: Peer) -> int:
        """Rule 41: how much the peer is preferred; if not all nodes heed preferences, none is."""
        if x.preference is None or not self.weighed(k, x):
            return 0
        return peer.weights.get(x.preference.number, 0)

    def own_weight(self, k: Known, x: Eip) -> int:
        """As our hellos say it."""
        if x.preference is None or not self.weighed(k, x):
            return 0
        return k.at(x).weights.said.get(x.preference.number, 0)

    def moves_here_at(self, k: Known, x: Eip, now: float) -> float:
        """Rule 42: when we claim it from nodes that are preferred less. A time after ``now`` may only mean to look
        again, if we may not claim now. FOREVER: as things are, we never do."""
        failback = x.preference.failback if x.preference is not None else None
        if failback is None or x.holding or not self.may_claim(k, x, now):
            return FOREVER
        again = now + max(k.times.move_patience, failback / 10)
        if not self.weighed(k, x):
            return again
        rivals = k.rivals(x, now)
        if not rivals or not all(self.preferred_to(k, x, peer) for peer in rivals):
            return FOREVER
        better = self.better(k, x, now)
        at = max(self.steady_since(k, x), *(peer.met_at for peer in better), NEVER) + failback
        at += 2 * k.times.move_patience * len(better)
        return at if self.steady(k, x, rivals, now) else max(at, again)

    def keeps(self, k: Known, x: Eip, peer: Peer) -> bool:
        """Rule 41: a holder that stays, and is preferred to us."""
        return not self.making_way(peer) and self.weight(k, x, peer) > self.own_weight(k, x)

    def preferred_to(self, k: Known, x: Eip, peer: Peer) -> bool:
        """We are preferred for this EIP, and the next step of a rolling upgrade will not undo it."""
        return peer.revision <= k.revision and self.own_weight(k, x) > self.weight(k, x, peer)

    def better(self, k: Known, x: Eip, now: float) -> list[Peer]:
        """Peers that it prefers to us. They go first if they may hold it, which we cannot know."""
        staying = [p for p in k.at(x).peers.living(now) if not self.making_way(p) and not p.demoted]
        return [p for p in staying if self.weight(k, x, p) >= self.own_weight(k, x) > 0 and self.precedes(k, x, p)]

    def preferred(self, k: Known, x: Eip, now: float) -> Preferred | None:
        """For people to read; None: nobody holds it, or all nodes are equal."""
        held = k.holder(x.address, now)
        if held is None or x.preference is None or x.link is None:
            return None
        if not self.weighed(k, x):
            return Preferred(None)
        peers = k.at(x).peers.living(now)
        weights = {k.node: self.own_weight(k, x), **{peer.node: self.weight(k, x, peer) for peer in peers}}
        gone = {peer.node for peer in peers if self.making_way(peer)} | (set() if self.eligible(k, x) else {k.node})
        holders = weights.get(held[0], 0)
        weight = max((weight for node, weight in weights.items() if node not in gone), default=0)
        if weight <= holders:
            return Preferred(held[0], holders, holders)
        best = [node for node, each in weights.items() if each == weight and node not in gone]
        node = max(best, key=lambda node: score(x.address, node))
        since = next((peer.met_at for peer in peers if peer.node == node), self.steady_since(k, x))
        since = max(since, x.moved_at, x.held_since if x.holding else NEVER)
        moves_at = since + (FOREVER if x.preference.failback is None else x.preference.failback)
        if node == k.node:
            moves_at = max(moves_at, self.moves_here_at(k, x, now))
        return Preferred(node, weight, holders, now - since, moves_at - now if moves_at < FOREVER else None)

    def steady_since(self, k: Known, x: Eip) -> float:
        """Since when nothing has happened to this node or to the EIP."""
        s = k.at(x)
        here = max(s.up_at, s.well_at, s.sick_at, s.resumed_at, s.returns.last, k.ready_at)
        return max(here, x.offered_at, x.moved_at, x.yielded_at)

    def steady(self, k: Known, x: Eip, rivals: list[Peer], now: float) -> bool:
        """Our claim would stand, and the EIP would stay here."""
        s = k.at(x)
        heard = all(p.is_heard(now, k.times) and p.hears_us(now, k.times) for p in rivals)
        known = heard and not k.headless and not self.deaf_to_somebody(k, x, now)
        lasting = not (s.goes_last(now) or s.sick or x.behind)
        return known and lasting and k.node not in self.tried(s, x.address.version, now)

    # ── What we hold ──────────────────────────────────────────────────────────────────────────────────────────

    def answer_until(self, k: Known) -> float:
        """Rule 27: nothing may be answered or announced at this instant or later."""
        return k.sent_at + k.times.self_lease

    def kept_through(self, k: Known, now: float) -> bool:
        """Rule 39: nobody took what we hold while we stood still. It was too short for that; or all that may take it
        have been heard until now, and all their claims are known."""
        if now < k.sent_at + k.times.dead:
            return True
        return all(self.heard_throughout(k, segment, now) for segment in k.segments.values() if segment.own.terms)

    def heard_throughout(self, k: Known, segment: Segment, now: float) -> bool:
        """If no peer was alive, one that came meanwhile may have taken it."""
        others = [peer for peer in segment.peers.expected(now) if peer.is_alive(k.sent_at, k.times)]
        heard = (peer.synced() and now < peer.heard_at + 1.5 * k.times.hello * peer.patience for peer in others)
        return bool(others) and all(heard)

    def unfit(self, k: Known, x: Eip) -> Yielded | None:
        """Why it must be let go whoever claims it, if so."""
        if x.link is None:
            return Yielded.INELIGIBLE
        if not k.at(x).up:
            return Yielded.LINK_DOWN
        if x.owner is not None:
            return Yielded.PEERS_ADDRESS
        return Yielded.DEAF if k.at(x).deaf else None

    def unknowing(self, x: Eip, peer: Peer) -> bool:
        """Rule 29: its claim is better only because of its term, and was made in the belief that the holder was
        gone."""
        return x.address in peer.weak and peer.claims[x.address] > x.term

    def held_on(self, k: Known, x: Eip, now: float) -> bool:
        """Rule 29: a holder that leaves, was away for a moment itself, claimed it without knowing of anybody, or has
        held it for no longer than a first probe takes, has no reason to insist."""
        s, since = k.at(x), x.held_since + k.times.hello
        present = now >= max(k.away_at + k.times.dead, since) and x.address not in s.claimed_alone
        return present and k.draining_since is None and not s.hands_over

    def drained_at(self, k: Known, since: float) -> float:
        """Rule 26: until then it is answered for, unless a successor does."""
        return since + k.times.drain

    def believed(self, k: Known, x: Eip, record: Record, now: float) -> float:
        """Rule 23: seconds for which a record that names another holder, at our term or above, stays as it is."""
        peer = k.peer(x, record.holder)
        heard = peer is not None and peer.is_heard(now, k.times)
        return k.times.record_grace if heard else k.times.record_stale

    # ── Sick links ────────────────────────────────────────────────────────────────────────────────────────────

    def sick(self, k: Known, segment: Segment, now: float) -> bool:
        """Rule 40: our own link accounts for what is lost here, and the others' links do not."""
        if not (losses := segment.losses(now)):
            return False
        found = sick(k.node, losses)
        return k.node in found and bool(well(k.node, losses, found))

    def hands_over(self, k: Known, segment: Segment, now: float) -> bool:
        """Rules 39 and 40: there is something to hand over, and somebody to take it."""
        standing = self.stands_still(k, now)
        offering = segment.sick and (now - segment.sick_since) % AGAIN < k.times.drain
        if not segment.own.terms or not (standing or offering):
            return False
        takers = [
            peer.node
            for peer in segment.peers.living(now)
            if peer.hears_us(now, k.times) and not peer.demoted and not self.making_way(peer)
        ]
        if standing:
            return bool(takers)
        losses = segment.losses(now)
        return not well(k.node, losses, sick(k.node, losses)).isdisjoint(takers)

    def stands_still(self, k: Known, now: float) -> bool:
        """Rule 39: this node stands still again and again. Nodes that stood still with us have said so by then. It
        counts for as long as a drain lasts."""
        back_for = now - k.away_at
        return k.standstills.many(now) and 2 * k.times.hello <= back_for < k.times.drain

    def no_better(self, k: Known, x: Eip, peer: Peer, now: float) -> bool:
        """Rule 40: another node takes nothing from a sick link, and neither does one that a third node may not hear:
        that can wait."""
        if x.link is None or not (peer.demoted and peer.draining):
            return False
        return k.at(x).sick or self.deaf_to_somebody(k, x, now)

    # ── Silence ───────────────────────────────────────────────────────────────────────────────────────────────

    def silent(self, k: Known, segment: Segment, now: float) -> list[Peer]:
        """Peers that we do not hear, and that did not say that they leave."""
        expected = segment.peers.expected(now)
        return [peer for peer in expected if peer.suspect_at(k.times) <= now and not peer.makes_way]

    def all_silent(self, k: Known, segment: Segment, now: float) -> bool:
        """There were others here, and no broadcast of any of them is heard."""
        peers = segment.peers.by_node.values()
        return bool(segment.peers.expected(now)) and all(peer.missed_at(k.times) <= now for peer in peers)

    def knows_nothing(self, k: Known, segment: Segment) -> bool:
        """Nothing is known of this LAN since the start, while records say that others held what may be held here."""
        if segment.peers.by_node or segment.frame_at > NEVER or not k.api.listed:
            return False
        return any(x.link == segment.link and not self.knows(k, x, segment) for x in k.eips.values())

    def in_touch(self, k: Known, segment: Segment, now: float) -> bool:
        """Rule 12: somebody is heard and hears us; or all fell silent, and a frame of somebody else reached us after
        that. If others are heard, and none of those that are not deaf hears us, nobody else would either."""
        peers = segment.peers.by_node.values()
        if any(now < peer.missed_at(k.times) and peer.hears_us(now, k.times) for peer in peers):
            return True
        if not self.all_silent(k, segment, now):
            return not any(peer.is_heard(now, k.times) and not peer.deaf for peer in peers)
        touched_at = self.touched_at(segment)
        return touched_at >= self.silent_at(k, segment) and now < touched_at + k.times.touch

    def touched_at(self, segment: Segment) -> float:
        """Rules 12 and 36: when a frame last showed that we hear."""
        return segment.broadcast_at if self.hears_no_broadcast(segment) else segment.frame_at

    def hears_no_broadcast(self, segment: Segment) -> bool:
        """Rule 36: peers that hear broadcasts reach us only by unicast, so no client's first request does."""
        return segment.direct >= _DIRECT

    def deaf(self, k: Known, segment: Segment, now: float) -> bool:
        """Rule 17."""
        if segment.in_touch or not segment.up or not self.all_silent(k, segment, now):
            return False
        return now >= self.deaf_at(k, segment)

    def deaf_at(self, k: Known, segment: Segment) -> float:
        """When the silence of the last peer that was heard amounts to a death; here it is ours."""
        heard_until = max(
            (peer.broadcast_at + peer.dead_after(k.times) for peer in segment.peers.by_node.values()), default=NEVER
        )
        return max(heard_until, segment.up_at + k.times.dead, k.away_at + k.times.dead)

    def silent_at(self, k: Known, segment: Segment) -> float:
        """When the last peer that was heard by broadcast became suspect."""
        return max((peer.missed_at(k.times) for peer in segment.peers.by_node.values()), default=NEVER)
