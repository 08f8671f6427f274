"""Edge: writes who holds what to the status file and the gauges, and asks the LAN who answers, as a client would
(``ownership/witness.py`` decides about that).
"""

import asyncio
from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from speaker.model import IPAddress, Link
from speaker.node.decide import MayHold, MayNotHold
from speaker.node.report import Report
from speaker.node.source import Source
from speaker.ownership.hello import Addresses
from speaker.ownership.witness import IN_DOUBT, Place, Way, Witness
from speaker.packets.asker import Askers
from speaker.system.waiting import set_within, sparing, tick
from speaker.wire.messages import NOBODYS, ClaimStatus, PeerSeen
from speaker.wire.remote import Wire

LEAST_SECONDS = 0.1
"""The shortest time between two writings of the status file."""
MOST_SECONDS = 1.0
"""The longest time between two writings, if there is news."""
READY_SECONDS = 0.1
"""How often a speaker that is not ready checks whether it is."""
LISTEN_SECONDS = 0.2
"""How long an answer for an EIP may take."""
AGAIN = 2
"""How many more times a silent holder is asked in a turn: one answer is enough, as half of the requests may be lost."""
CONTROLS = 4
"""How many peers' own addresses are asked for if a holder is silent: if none answers, our own cable may be at fault."""
EDGE = "witness"


class Witnessing:
    """``report`` hears what is found, and knows who lives. Whoever runs it enters the ``sockets``, and leaves them."""

    def __init__(self, node: str, report: Report, sockets: Askers | None = None) -> None:
        self._report, self._witness, self.sockets = report, Witness(node), sockets or Askers()
        self._places: Mapping[IPAddress, Place] = {}
        self._links: Mapping[str, int] = {}
        self._seen: Collection[PeerSeen] = ()
        self._by_unicast: frozenset[IPAddress] = frozenset()
        """EIPs whose holder is silent, but answers if it alone is asked."""

    def use(self, links: Collection[Link], own: Mapping[int, Addresses]) -> None:
        """Ask on these links, from these addresses of this host."""
        self._links = {link.name: link.index for link in links}
        self.sockets.use(links, own)

    def know(self, seen: Collection[PeerSeen]) -> None:
        """The peers, and what they say of our hellos."""
        self._seen = seen

    def follow(self, eips: Mapping[IPAddress, MayHold | MayNotHold], claims: Mapping[IPAddress, ClaimStatus]) -> None:
        """What is in force, and who holds it."""
        self._places = places(eips, claims)
        self._witness.follow(self._places)

    async def run(self) -> None:
        """Endless."""
        while True:
            await tick(IN_DOUBT if self._report.rivals_places() else self._witness.pause)
            with self._report.trying(EDGE):
                await self._turn()
                verdicts = self._witness.verdicts
                silent = frozenset(eip for eip in self._by_unicast if verdicts.get(eip) == 0)
                self._report.answer_for(verdicts, silent)
                await self._ask_for_rivals()

    async def _ask_for_rivals(self) -> None:
        """Asks whether another node still answers for EIPs that somebody else was heard to use."""
        places = {eip: link for eip, link in self._report.rivals_places() if link in self._links.values()}
        if not places:
            return
        self.sockets.drop()
        asked = [eip for eip, link in places.items() if self.sockets.ask(eip, link)]
        await asyncio.sleep(LISTEN_SECONDS)
        found = {address for address, _ in self.sockets.answers()}
        self._report.asked_for_rivals({eip: eip in found for eip in asked})

    async def _turn(self) -> None:
        due = self._witness.due(self._report.alive.on)
        if not due:
            return
        self.sockets.drop()
        silent, doubted = self._witness.silent, self._witness.doubted
        polled_at = {eip: self._places[eip] for eip in due if eip in doubted or self._witness.verdicts.get(eip) == 0}
        unasked = {eip for eip in due if not self.sockets.ask(eip, self._places[eip].link)}
        for eip in [*doubted, *self._by_unicast.intersection(due)] * AGAIN:
            self.sockets.ask(eip, self._places[eip].link)
        controls = {way: self._controls(way) for way in silent}
        for way, addresses in controls.items():
            for address in addresses:
                self.sockets.ask(address, way.link)
        await asyncio.sleep(LISTEN_SECONDS)
        answers = self.sockets.answers()
        counted = Counter(address for address, _ in answers)
        # Of such an EIP, one answer alone may be the one to our own wire process, which asks by unicast too (rule 37).
        answers = [each for each in answers if each.address not in self._by_unicast or counted[each.address] > 1]
        found = {address for address, _ in answers}
        arriving = [way for way, asked in controls.items() if not found.isdisjoint(asked)]
        polled = await self._poll({eip: place for eip, place in polled_at.items() if eip not in found})
        self._by_unicast = self._by_unicast.difference(due) | polled
        self._witness.judge(answers, unasked, arriving + [Way(polled_at[eip].link, eip.version) for eip in polled])

    async def _poll(self, places: Mapping[IPAddress, Place]) -> set[IPAddress]:
        """The EIPs whose holder answers if its MAC alone is asked: the switch does not forward to it the broadcasts, or
        the multicast group, by which clients ask."""
        macs = {Place(self._links.get(peer.link, 0), peer.node): peer.mac for peer in self._seen if peer.heard}
        known = {eip: mac for eip, place in places.items() if (mac := macs.get(place)) is not None}
        asked = {eip for eip, mac in known.items() if self.sockets.ask(eip, places[eip].link, mac)}
        if asked:
            await asyncio.sleep(LISTEN_SECONDS)
            asked &= {address for address, _ in self.sockets.answers()}
        return asked

    def _controls(self, way: Way) -> list[IPAddress]:
        """Asked for last: if only so much gets out, an answer shows that the earlier requests got out too."""
        there = [peer for peer in self._seen if peer.alive and self._links.get(peer.link) == way.link]
        return [eip for peer in there for eip in peer.addresses if eip.version == way.version][:CONTROLS]


def places(
    eips: Mapping[IPAddress, MayHold | MayNotHold], claims: Mapping[IPAddress, ClaimStatus]
) -> dict[IPAddress, Place]:
    """The EIPs that this node can ask for: on the link of their holder's hellos, or where it would hold them itself."""
    found = {}
    for eip, decided in eips.items():
        claim = claims.get(eip, NOBODYS)
        if claim.link is not None:
            found[eip] = Place(claim.link, claim.holder)
        elif claim.holder is None and isinstance(decided, MayHold):
            found[eip] = Place(decided.link.index, None)
    return found


async def publish(wire: Wire, source: Source, report: Report, witnessing: Witnessing) -> None:
    """Endless."""

    async def claim_statuses(eips: Iterable[IPAddress]) -> Mapping[IPAddress, ClaimStatus]:
        in_force, found = report.in_force, await wire.claim_statuses(eips)
        if in_force is not None:
            witnessing.follow(in_force.decision.eips, found)
        return found

    while True:
        await set_within(report.stale, None if report.health()[0] else READY_SECONDS)
        async with sparing(LEAST_SECONDS, MOST_SECONDS):
            with report.trying("status file"):
                await report.publish(claim_statuses, await wire.ready(), source.recorded)
