"""What is heard on the links, and what silence means (rules 4 to 7, 12, 15, 17 and 20 to 22). Pure.

Silence of one peer may be its death, or a wire that carries nothing between us two. Silence of all may be our own
deafness. So before what others held is taken, the wire is asked: who answers for it lives, and whoever hears any answer
is not deaf.
"""

from dataclasses import replace
from itertools import islice

from speaker.model import IPAddress
from speaker.ownership.events import Ask, EipAnswered, HelloHeard, PeersAddress
from speaker.ownership.hello import Hello, Terms
from speaker.ownership.machine.claims import Eip
from speaker.ownership.machine.naming import Naming
from speaker.ownership.machine.peers import NEVER, Peer
from speaker.ownership.machine.peers import Hearing as Worth
from speaker.ownership.machine.segment import Segment

_FOREVER = float("inf")
_LOOKED_AT = 1000
"""Of a silent peer's EIPs."""
ASKED = 16
"""EIPs of one ``Ask``."""
TOGETHER = 8
"""Peers of a link who speak together. The hellos of many more, all at once, would keep answers waiting."""
_JOINED = 1.0
"""Seconds."""
MAX_EIPS = 100_000
"""That are known at all, ours and others': ten times what was measured."""


class Hearing(Naming):
    """Peers appear, speak, fall silent and die."""

    def _hear(self, segment: Segment, hello: Hello, now: float) -> None:
        if not segment.up:
            return
        self._climb(hello, now)
        hello = self._within_bounds(hello)
        old = segment.peers.by_node.get(hello.node)
        was_alive = old is not None and old.is_alive(now, self.times)
        was_mutual = old is not None and old.hears_us(now, self.times)
        made_way = old is not None and old.makes_way
        hearing, peer = segment.peers.hear(hello, self.incarnation, now)
        segment.hearings[hearing] += 1
        if peer is None:
            if hearing is Worth.UNPROVEN and now - segment.greeted_at >= self.times.hello / 4:
                segment.greeted_at = now
                self._hurry()
            return
        segment.heard_at = now
        if peer is not old:
            self._begin_life(segment, old, now)
            if len(segment.peers.by_node) == 1 and segment.frame_at == NEVER:
                self._begin_to_hear(segment, now)
        self._learn(segment, peer, hello, now)
        if hello.own or hello.addresses or peer.own:
            self._learn_own(segment, peer, hello, now)
        if peer is not old or not was_alive or peer.makes_way is not made_way:
            self._peer_changed(peer)
        self._answer_requests(segment, peer, hello, now)
        self._hear_moves(segment, peer, hello, now)
        if peer.hears_us(now, self.times) and not (was_mutual and peer is old):
            self._become_mutual(segment)
            self._look_at(peer.weak)  # what it took unheard goes back now (rule 29)
        peer.alive = True
        self._watch_at = min(self._watch_at, now + self.times.suspect)
        self._revive(segment, now)
        if not segment.in_touch:
            self._feel(segment, now)
        self._join_in(segment, peer, now)

    def _join_in(self, segment: Segment, peer: Peer, now: float) -> None:
        """The first by name speaks, and so do we instead of a little later (rule 1): the nodes of a link come to speak
        together, and each of them wakes once for all their hellos and not once for each. Much earlier than our turn
        once a second at most, lest many hellos out of turn lead to as many; only where all have one interval."""
        others = segment.peers.by_node
        if len(others) > TOGETHER or now >= self._beat_at or peer.node > self.node:
            return
        interval, alive = round(self.times.hello * 1000), [other for other in others.values() if other.alive]
        if any(other.interval != interval or other.node < peer.node for other in alive):
            return
        much = self._beat_at - now > self.times.hello / 20
        if much and now < self._joined_at + _JOINED:
            return
        self._joined_at = now if much else self._joined_at
        self._beat_at = now

    def _sender(self, event: HelloHeard) -> Peer | None:
        segment = self.segments.get(event.link)
        return segment.peers.by_node.get(event.hello.node) if segment is not None else None

    def _unhear(self, event: HelloHeard, before: Peer | None, heard_at: float, now: float) -> None:
        """What was half understood is put in order; its sender was heard as long ago as ``before`` was, or never."""
        peer = self._sender(event)
        if peer is None:
            return
        peer.heard_at = heard_at if peer is before else NEVER
        if not peer.is_alive(now, self.times):
            peer.claims = {}
        peer.restore()
        for address, term in peer.claims.items():
            x = self._eip(address)
            x.rivals.setdefault(event.link, set()).add(peer.node)
            x.raise_maxterm(term)
        self._look_at(peer.claims)
        self._look_at(before.claims if before is not None else ())
        self._watch_at = now

    def _within_bounds(self, hello: Hello) -> Hello:
        """Without EIPs that we do not know, where we know of MAX_EIPS: whoever has the key can make up any number."""
        if len(self.eips) < MAX_EIPS:
            return hello
        return replace(
            hello,
            claims=self._known(hello.claims),
            yielded=self._known(hello.yielded),
        )

    def _known(self, terms: Terms) -> Terms:
        return {eip: term for eip, term in terms.items() if eip in self.eips}

    def _revive(self, segment: Segment, now: float) -> None:
        """Those held dead whom a witness has heard."""
        for peer in segment.peers.by_node.values():
            if not peer.alive and peer.is_alive(now, self.times):
                peer.alive = True
                self._watch_at = now
                self._peer_changed(peer)

    def _begin_life(self, segment: Segment, old: Peer | None, now: float) -> None:
        """A higher incarnation voids the old one's claims."""
        self._watch_at = now
        if old is None:
            return
        segment.peers.by_node[old.node].own = old.own
        for address in old.claims:
            self._eip(address).rivals.get(segment.link, set()).discard(old.node)
        self._look_at(old.claims)

    def _learn(self, segment: Segment, peer: Peer, hello: Hello, now: float) -> None:
        self._expect_successors(peer, hello, now)
        changed = peer.learn(hello)
        for address in changed:
            x = self._eip(address)
            nodes = x.rivals.setdefault(segment.link, set())
            term = peer.claims.get(address)
            if term is None:
                nodes.discard(peer.node)
            else:
                nodes.add(peer.node)
                x.raise_maxterm(term)
                x.note_holder(term, peer.node)
                x.served_until = NEVER  # whoever answered has said so by now
        if changed:
            self._look_at(changed)
        for other in self.segments.values():
            if other is not segment:
                self._hear_left(other, hello)
        for address, term in hello.yielded.items():
            x = self._eip(address)
            x.raise_maxterm(term)
            if x.holding and x.link == segment.link:
                self._hear_yielded(x, peer, term, now)

    def _learn_own(self, segment: Segment, peer: Peer, hello: Hello, now: float) -> None:
        """Kept as long as it is repeated, and beyond the death of who said it."""
        place = segment.link, peer.node
        for address in (*hello.own, *hello.addresses):
            if address not in peer.own:
                self._theirs[address].add(place)
                self._change_owner(address)
            peer.own[address] = now
        for address in [address for address, at in peer.own.items() if now - at >= self.times.linger]:
            del peer.own[address]
            self._disown(address, place)

    def _disown(self, address: IPAddress, place: tuple[int, str]) -> None:
        self._theirs[address].discard(place)
        if not self._theirs[address]:
            del self._theirs[address]
        self._change_owner(address)

    def _change_owner(self, address: IPAddress) -> None:
        x, owner = self.eips.get(address), self._owner(address)
        if x is None or x.owner == owner:
            return
        x.owner = owner
        if x.link is not None:
            self._orders.append(PeersAddress(address, owner))
        self._look_at([address])

    def _hear_left(self, other: Segment, hello: Hello) -> None:
        """What a node let go on a link that carries none of its hellos any more, it says on the others."""
        if not hello.yielded:
            return
        twin = other.peers.by_node.get(hello.node)
        if twin is None or twin.incarnation != hello.incarnation:
            return
        gone = twin.leave(hello.yielded, hello.stamp)
        for address in gone:
            x = self._eip(address)
            x.rivals.get(other.link, set()).discard(twin.node)
            x.raise_maxterm(hello.yielded[address])
        if gone:
            self._look_at(gone)
            self._peer_changed(twin)

    def _expect_successors(self, peer: Peer, hello: Hello, now: float) -> None:
        """Somebody claims what this peer held, at the term it yielded to: whoever does will be heard, or is gone."""
        for address, term in hello.yielded.items():
            if peer.claims.get(address, term) < term and address not in hello.claims:
                self._eip(address).successor_until = now + self.times.suspect

    def _answer_requests(self, segment: Segment, peer: Peer, hello: Hello, now: float) -> None:
        # Asked in every hello until it is heard: answering each would keep those from hearing it who lag behind.
        if self.node in hello.wants and not segment.own.told_lately(now):
            segment.tell_all = True
            self._hurry()
        if self.node in hello.probes:
            self._hurry()
        elif hello.probes and any(self._heard_lately(segment, node, now) for node in hello.probes):
            self._hurry()  # bear witness (rule 6)
        if peer.synced():
            peer.unsynced_since = None
        elif peer.unsynced_since is None:
            peer.unsynced_since = now

    def _heard_lately(self, segment: Segment, node: str, now: float) -> bool:
        peer = segment.peers.by_node.get(node)
        return peer is not None and now - peer.heard_at < 2 * self.times.hello

    def _become_mutual(self, segment: Segment) -> None:
        """Rules 4 and 22."""
        segment.tell_all = True
        segment.announce_all = True
        self._hurry()

    def _hear_yielded(self, x: Eip, peer: Peer, term: int, now: float) -> None:
        """Rule 21: whoever listened to the loser until now points at it."""
        if now < max(x.disputed_until, x.probed_until):
            self._prove(x)
        if x.told_yielded.get(peer.node) != term:
            x.told_yielded[peer.node] = term
            self._announce(x)

    def _peer_changed(self, peer: Peer) -> None:
        """It appeared, died, or began to drain: all whose fate may hang on it."""
        self._look_at(peer.claims)
        self._look_at(self._recorded.get(peer.node, ()))
        self._look_at(self._waiting)

    # ── Silence ───────────────────────────────────────────────────────────────────────────────────────────────

    def _watch_peers(self, now: float) -> None:
        """Deaths, and probes before them. At every beat too: nobody who speaks is suspect before the next one, so that
        none of this wakes us between them."""
        if now < self._watch_at and now < self._beat_at:
            return
        self._watch_at = _FOREVER
        for segment in self.segments.values():
            for peer in segment.peers.by_node.values():
                if peer.alive:
                    self._watch_at = min(self._watch_at, self._watch_or_wait(segment, peer, now))
            if segment.up:
                self._watch_at = min(self._watch_at, self._touch_or_wait(segment, now))

    def _watch_or_wait(self, segment: Segment, peer: Peer, now: float) -> float:
        try:
            return self._watch(segment, peer, now)
        except Exception as error:
            self._contain("watch", peer.node, error)
            return now + self.times.hello

    def _watch(self, segment: Segment, peer: Peer, now: float) -> float:
        """When to look again."""
        dies_at = peer.dies_at(self.times)
        if now >= dies_at:
            peer.alive = False
            self._peer_changed(peer)
            return _FOREVER
        suspect_at = peer.suspect_at(self.times)
        if now < suspect_at:
            return min(suspect_at, dies_at)
        every = self.times.probe if now < peer.heard_at + self.times.dead * peer.patience else self.times.hello
        if now >= peer.probed_at + every:
            peer.probed_at = now
            self._probe(segment, peer)
        return min(peer.probed_at + every, dies_at)

    def _probe(self, segment: Segment, peer: Peer) -> None:
        segment.probes.add(peer.node)
        self._hurry()

    # ── Being in touch ────────────────────────────────────────────────────────────────────────────────────────

    def _touch_or_wait(self, segment: Segment, now: float) -> float:
        try:
            return self._keep_touch(segment, now)
        except Exception as error:
            self._contain("keep touch", f"link {segment.link}", error)
            return now + self.times.hello

    def _keep_touch(self, segment: Segment, now: float) -> float:
        """Ask the wire where it is to decide; when to look again."""
        self._feel(segment, now)
        every = self._asks_every(segment, now)
        if every is None:
            return _FOREVER
        if now >= segment.asked_at + every:
            segment.asked_at = now
            self._ask(segment, now)
        return min(segment.asked_at + every, self._changes_at(segment, now))

    def _asks_every(self, segment: Segment, now: float) -> float | None:
        """Seconds between two questions; None: there is nothing to ask. Often while somebody is about to die, or lives
        by its answers alone, or we are about to be deaf; rarely where others vouch, or nothing hangs on it."""
        alive = [peer for peer in self._silent(segment, now) if peer.is_alive(now, self.times)]
        all_silent = self._all_silent(segment, now)
        about_to_die = any(now < peer.heard_at + self.times.dead * peer.patience for peer in alive)
        if about_to_die or (all_silent and not segment.in_touch and not segment.deaf):
            return self.times.probe
        if any(now < peer.answered_at + self.times.dead * peer.patience for peer in alive):
            return self.times.hello
        if not alive and not all_silent and not self._knows_nothing(segment):
            return None
        return self.times.touch / 10 if alive or segment.in_touch or segment.deaf else self.times.hello

    def _silent(self, segment: Segment, now: float) -> list[Peer]:
        """Those whom we do not hear, and who did not say that they go."""
        expected = segment.peers.expected(now)
        return [peer for peer in expected if peer.suspect_at(self.times) <= now and not peer.makes_way]

    def _all_silent(self, segment: Segment, now: float) -> bool:
        """There were others here, and none is heard."""
        peers = segment.peers.by_node.values()
        return bool(segment.peers.expected(now)) and all(peer.suspect_at(self.times) <= now for peer in peers)

    def _knows_nothing(self, segment: Segment) -> bool:
        """Of this LAN, since the start, while records say that others held what may be held here."""
        if segment.peers.by_node or segment.frame_at > NEVER or not self.api.listed:
            return False
        return any(x.link == segment.link and not self._knows(x, segment) for x in self.eips.values())

    def _in_touch(self, segment: Segment, now: float) -> bool:
        """Somebody is heard and hears us; or all fell silent, and a frame of somebody else reached us after that. Where
        others are heard, and none of them hears us who is not deaf, nobody else would either."""
        peers = segment.peers.by_node.values()
        if any(now < peer.suspect_at(self.times) and peer.hears_us(now, self.times) for peer in peers):
            return True
        if not self._all_silent(segment, now):
            return not any(peer.is_heard(now, self.times) and not peer.deaf for peer in peers)
        return segment.frame_at >= self._silent_at(segment) and now < segment.frame_at + self.times.touch

    def _is_deaf(self, segment: Segment, now: float) -> bool:
        if segment.in_touch or not segment.up or not self._all_silent(segment, now):
            return False
        return now >= self._deaf_at(segment)

    def _changes_at(self, segment: Segment, now: float) -> float:
        """When time alone makes us deaf, or ends our being in touch."""
        ends_at = segment.frame_at + self.times.touch
        times = self._deaf_at(segment), ends_at, segment.unheard_at
        return min((at for at in times if at > now), default=_FOREVER)

    def _silent_at(self, segment: Segment) -> float:
        """When the last one that was heard became suspect."""
        return max((peer.suspect_at(self.times) for peer in segment.peers.by_node.values()), default=NEVER)

    def _deaf_at(self, segment: Segment) -> float:
        return max(self._silent_at(segment) - self.times.suspect, segment.up_at) + self.times.dead

    def _feel(self, segment: Segment, now: float) -> None:
        """Whether we are in touch on the link, and deaf if not."""
        before, was_deaf = segment.in_touch, segment.deaf
        segment.in_touch = self._in_touch(segment, now)
        segment.deaf = self._is_deaf(segment, now)
        if segment.deaf is not was_deaf:
            self._hurry()
            if was_deaf:
                segment.returns.add(now)
        if before and not segment.in_touch:
            segment.lost_touch_at = now
            segment.unheard_at = now + self._to_be_heard(segment, now)
        elif segment.in_touch and not before:
            segment.unheard_at = _FOREVER
            self._hear_out(segment, now, was_deaf=was_deaf)
        if now >= segment.unheard_at:
            segment.unheard_at = _FOREVER
            if not self._all_silent(segment, now):
                self._weaken_unheard(segment, now)
        if segment.in_touch is not before or segment.deaf is not was_deaf:
            self._look_at_all_on(segment)

    def _to_be_heard(self, segment: Segment, now: float) -> float:
        """Seconds in which each of the others says once what it hears."""
        return self.times.hello * self._patience(segment, now) + self.times.slot

    def _patience(self, segment: Segment, now: float) -> float:
        """With the slowest of those who are to be heard here."""
        return max((peer.patience for peer in segment.peers.expected(now)), default=1.0)

    def _weaken_unheard(self, segment: Segment, now: float) -> None:
        """Others are heard, and none hears us, though it had the time: what we claimed since the last one did, nobody
        knows of. At once it would be said too late: whoever is heard again has our claim as we said it last."""
        known_until = max((peer.hears_us_at for peer in segment.peers.by_node.values()), default=NEVER)
        for x in [self.eips[eip] for eip in segment.own.terms]:
            if x.held_since > known_until and not x.weak:
                self._weaken(x, now)

    def _hear_out(self, segment: Segment, now: float, *, was_deaf: bool) -> None:
        """Others are heard again. If none was for longer than an answer takes it was we who did not hear: they get time
        to say what they hold, each at its own pace; more of it if we let ours go meanwhile."""
        if was_deaf:
            segment.listen(now + self.times.dead * self._patience(segment, now))
        elif now - segment.lost_touch_at >= self.times.probe:
            segment.listen(now + self._to_be_heard(segment, now))

    def _ask(self, segment: Segment, now: float) -> None:
        """For some of what the silent ones hold, in turn: who answers for one answers for all. Those who hear each
        other share the questions, lest a hundred nodes ask for sixteen EIPs each."""
        silent = self._silent(segment, now)
        others = sum(peer.suspect_at(self.times) > now for peer in segment.peers.by_node.values())
        most = max(1, ASKED // (1 + others))
        each = max(1, most // max(1, len(silent)))
        eips = [eip for peer in silent for eip in self._some_of(peer, segment, each)][:most]
        anybody = segment.heard_at < now - self.times.hello
        self._orders.append(Ask(segment.link, tuple(eips), tuple(peer.node for peer in silent), anybody))

    def _some_of(self, peer: Peer, segment: Segment, number: int) -> list[IPAddress]:
        held = [eip for eip in islice(peer.claims, _LOOKED_AT) if eip not in segment.own.terms]
        begin = self._turn % max(1, len(held))
        self._turn += number
        return [*held[begin:], *held[:begin]][:number]

    def _look_at_all_on(self, segment: Segment) -> None:
        self._look_at(x.address for x in self.eips.values() if x.link == segment.link)

    def _hear_frame(self, segment: Segment, now: float) -> None:
        if segment.frame_at == NEVER and not segment.peers.by_node:
            self._begin_to_hear(segment, now)
        segment.frame_at = now
        self._watch_at = now
        if not segment.in_touch:
            self._feel(segment, now)

    def _begin_to_hear(self, segment: Segment, now: float) -> None:
        """The first sign of anybody since the start. What waited for it, since records say that others hold it, waits a
        little longer: those get time to say so themselves."""
        waiting = any(x.link == segment.link and self._foreign(x) and not x.holding for x in self.eips.values())
        if waiting:
            until = now + self.times.dead
            segment.listen(max(until, segment.listen_until) if segment.listening else until)
        self._look_at_all_on(segment)

    def _hear_answer(self, event: EipAnswered, now: float) -> None:
        segment = self._segment(event.link, now)
        self._hear_frame(segment, now)
        x = self._eip(event.eip)
        if x.holding:
            if event.probed and x.term in x.told_yielded.values():
                self._prove(x)  # whoever answered gave way to us meanwhile
            elif event.probed:
                self._dispute(x, now)
            return
        peer = segment.peers.by_node.get(event.node) if event.node is not None else None
        if peer is None:
            return
        if event.eip not in peer.claims:
            x.served_until = now + self.times.dead
            self._look_at([x.address])
        elif not peer.is_heard(now, self.times) or peer.suspect_at(self.times) <= now:
            peer.answered_at = now
            self._revive(segment, now)
