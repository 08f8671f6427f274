"""The owner of a node's EIPs, which it may share with others: carries out what the ownership machine orders.

::

    hellos · offers · carrier · gateways · time ──► Ownership.step ──► hellos · layer2 (answer, announce, fall silent)

Everything runs in the event loop's thread, one ``_step`` at a time: ``ownership/machine/machine.py`` says what follows
from an event, and these orders are carried out before the next event is looked at. The EIPs that are claimed go to
``layer2/link.py`` by ``take_each``: it answers ARP and NDP for them, and asks this object what ``Owner`` says.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from ipaddress import ip_address
from typing import Any, Self

from speaker.errors import EdgeError
from speaker.layer2.link import Links, drop_each, take_each
from speaker.model import NO_GROUP, Group, IPAddress, Link, Mac, Placement
from speaker.model.events import EipClaimed, EipYielded, OtherGroupsHold, SpeakerSeen, WasFrozen
from speaker.ownership import events
from speaker.ownership.balance import Rebalancing
from speaker.ownership.groups import PAUSE, OtherGroups
from speaker.ownership.hello import Hello
from speaker.ownership.hellos.hellos import Received
from speaker.ownership.machine.machine import Ownership
from speaker.packets.asking import Answer
from speaker.system.supervise import contained, report
from speaker.wire.hello_links import HelloLink, HelloLinks, OpenHellos
from speaker.wire.inquiries import Inquiries
from speaker.wire.messages import NOBODYS, ApiEvent, ClaimStatus, Events, PeerSeen, Resumed, Taken, UseAddresses
from speaker.wire.sender import News

AGAIN_SECONDS = 0.02
"""Seconds after an unexpected error until the ownership machine is asked again."""
HOLD = 1.0
"""Seconds for which a node without peers answers after its last look: if it hangs, it falls silent on its own."""
FILTERED = 10
"""Times ``dead`` without a hello, after which a peer that answers for EIPs all the same is reported."""


class SharedOwner:
    """One of several speakers on its links, or the only one: then no hello is sent, and links are up.

    ``clock`` returns seconds of CLOCK_BOOTTIME; ``layer2`` answers on the links. A link that fails is lost, reported
    and tried again. An unexpected error costs only the EIP, the hello or the link that it concerns.
    """

    def __init__(
        self,
        machine: Ownership,
        open_hellos: OpenHellos,
        clock: Callable[[], float],
        events: Events,
        layer2: Callable[..., Links] = Links,
        group: Group = NO_GROUP,
    ) -> None:
        self.machine, self.node, self._times = machine, machine.node, (times := machine.times)
        self.clock, self._events = clock, events
        self._news = News(events)
        self._tasks = asyncio.TaskGroup()
        self.request_age, self.trial = times.request_age, times.listen
        self._layer2 = layer2(events, self)
        self.hello_links = HelloLinks(self, self._layer2, open_hellos, times.self_lease, clock, events, self._tasks)
        self._inquiries = Inquiries(self, events)
        self._answers_read_at = 0.0
        """When no answer that wakes nobody was left unread."""
        self.placements: dict[IPAddress, Placement] = {}
        """Where each EIP may be held. The main process decides it; this copy continues without it."""
        self._silent_gateways: set[int] = set()
        self._demoted = self._recalled = False
        """For a reason that concerns the whole node."""
        self._behind: frozenset[IPAddress] = frozenset()
        """EIPs for which others go first."""
        machine.headless = False
        self._held: dict[IPAddress, float] = {}
        """What this node answers for, and since when (seconds since 1970)."""
        self._macs: frozenset[Mac] = frozenset()
        self._ever_macs: frozenset[Mac] = frozenset()
        """This host's MACs, including those it had earlier while we run: our frames with them may still come back."""
        self._alone = times.alone
        self._up: set[int] = set()
        """If alone: the links that the machine knows."""
        self._unused: set[IPAddress] = set()
        """If alone: EIPs that we held when nobody else was found to use them. Nobody has taken them since."""
        self._addresses = UseAddresses({}, {}, {})
        self._stack = AsyncExitStack()
        self._alarm: asyncio.TimerHandle | None = None
        self._group = group
        self._groups: dict[int, OtherGroups] = {}
        """By link; and which EIPs that they hold were offered to us too."""
        self._not_ours: dict[int, frozenset[IPAddress]] = {}
        self._unheard = 0
        """Looks in a row that met a bug of ours."""

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self._layer2)
        await self._stack.enter_async_context(self._tasks)
        self._stack.callback(self.hello_links.close)
        self.look()
        return self

    async def __aexit__(self, *error: Any) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        await self._stack.__aexit__(*error)

    # ── What the node may hold: as ``Commands`` says, which the main process sends ────────────────────────────────

    def use_links(self, links: tuple[Link, ...], macs: frozenset[Mac]) -> None:
        self._macs, self._ever_macs = macs, self._ever_macs | macs
        if self._alone:
            for link in links:
                self._layer2.peers(link.index, macs)
                if link.index not in self._up:
                    self._up.add(link.index)
                    self._step(events.LinkChanged(link.index, up=True))
            return
        self._layer2.keep(links)  # first, as a hello promises answers
        self.hello_links.serve(links)
        for hello_link in self.hello_links:
            self._acquaint(hello_link)

    def use_addresses(self, ours: UseAddresses) -> None:
        """Sent in hellos; the gateways are asked with ``events.Ask``."""
        self._addresses, self._inquiries.gateways = ours, ours.gateways
        for link, own in ours.own.items():
            self._layer2.ask_from(link, own)

    def withdraw(self, eips: Sequence[IPAddress]) -> None:
        for eip in eips:
            if self.placements.pop(eip, None) is not None:
                self._step(events.EligibilityChanged(eip, None))

    def offer(self, placements: Mapping[IPAddress, Placement]) -> Sequence[IPAddress]:
        """The machine hears of each, and claims it in its turn. Always returns an empty list: EIPs that meet a bug of
        ours are set aside for a while and tried again."""
        held = {address: placement for address, placement in placements.items() if address in self._held}
        self.placements.update(placements)
        for address in placements:
            self._offer(address)
        _, failed = take_each(self._layer2, {a: s for a, s in held.items() if a in self._held}, (), self._events)
        self._set_aside(failed)
        return []

    def gateway(self, link: int, answers: bool) -> None:
        """A node whose gateway is silent claims after the others (rule 13)."""
        (self._silent_gateways.discard if answers else self._silent_gateways.add)(link)
        self._offer_again({link})

    def demote(self, on: bool) -> None:
        """So does a node that is not Ready."""
        self._demoted = on
        self._offer_again(self.hello_links.indexes)

    def behind(self, eips: frozenset[IPAddress]) -> None:
        """And a node whose own endpoints are unwell, for these EIPs."""
        changed, self._behind = eips ^ self._behind, eips
        for address in changed & self.placements.keys():
            self._offer(address)

    def recalled(self, on: bool) -> None:
        """And one that does not read the API, as a node that does knows better."""
        self._recalled = on
        self._offer_again(self.hello_links.indexes)

    def _offer_again(self, links: Collection[int]) -> None:
        """What is placed there, soon; a bug in this ends nothing else."""
        self._tasks.create_task(self._offer_each(links), name="offer again")

    async def _offer_each(self, links: Collection[int]) -> None:
        for address, placement in list(self.placements.items()):
            with contained("offer again", self._events):
                if placement.link.index in links and address in self.placements:
                    self._offer(address)
                    await asyncio.sleep(0)

    def _offer(self, address: IPAddress) -> None:
        link, preference = self.placements[address].link.index, self.placements[address].preference
        if self._recalled and self.informed():
            self._step(events.EligibilityChanged(address, None))  # a peer knows better who owns it
            return
        demoted = self._demoted or self._recalled or link in self._silent_gateways
        behind = address in self._behind
        self._step(events.EligibilityChanged(address, link, demoted=demoted, preference=preference, behind=behind))

    def resumed(self) -> Resumed:
        speakers = ((each.link.index, *known) for each in self.hello_links for known in each.speakers.items())
        offered = self.placements
        held = {a: Taken(offered[a], self.machine.held_before(a)) for a in self._held if a in offered}
        draining = self.machine.draining_since is not None
        return Resumed(dict(offered), held, self._news.incarnation, tuple(speakers), draining)

    def retell(self) -> None:
        """What a new main process must hear again, and is not in ``resumed``."""
        self._news.retell()
        if any(known.held for known in self._groups.values()):
            self._tell_of_groups()
        self._inquiries.retell()

    def carrier(self, link: int, up: bool) -> None:
        """The kernel is asked more often than it reports on its own."""
        self.hello_links.carrier(link, up)
        if not up and (hello_link := self.hello_links.get(link)) is not None:
            self._step(events.LinkChanged(link, up=False))
            hello_link.fail(EdgeError(f"{hello_link.link.name}: no carrier"))

    # ── What the API server says ──────────────────────────────────────────────────────────────────────────────

    def api_says(self, events: Sequence[ApiEvent]) -> None:
        for event in events:
            self._step(event)

    def recorded(self) -> tuple[IPAddress, ...]:
        return self.machine.recorded()

    # ── What the main process asks ────────────────────────────────────────────────────────────────────────────

    def claims_of(self, eips: Sequence[IPAddress]) -> list[ClaimStatus]:
        return [self.claim_status(eip) for eip in eips]

    def claim_status(self, address: IPAddress) -> ClaimStatus:
        preferred = self.machine.preferred(address, now := self.clock())
        if (since := self._held.get(address)) is not None:
            return ClaimStatus(True, self.node, self.machine.term(address), since, None, preferred)
        if (known := self.machine.holder(address, now)) is None:
            return NOBODYS
        return ClaimStatus(False, *known, None, self.machine.heard_on(address, known[0]), preferred)

    def has_peers(self) -> bool:
        return any(peer.alive and not peer.draining for peer in self.peers())

    def informed(self) -> bool:
        return self.hello_links.informed(self.machine.peers(self.clock()))

    def ready(self) -> bool:
        return not self.hello_links.indexes or (bool(self.hello_links) and self.machine.ready)

    def drain(self, on: bool) -> None:
        self._step(events.Drain(on))

    def rebalance(self) -> Rebalancing | None:
        if (state := self.machine.rebalancing) is None or state.finished:
            self._step(events.Rebalance())
        return self.machine.rebalancing

    def rebalancing(self) -> Rebalancing | None:
        return self.machine.rebalancing

    def peers(self) -> list[PeerSeen]:
        return self.hello_links.peers(self.machine.peers(self.clock()))

    # ── What the hello links say ──────────────────────────────────────────────────────────────────────────────

    def opened(self, hello_link: HelloLink) -> None:
        self._acquaint(hello_link)
        self._step(events.LinkChanged(hello_link.link.index, up=True))
        if not self.machine.uses(hello_link.link.index):
            hello_link.fail(EdgeError(f"{hello_link.link.name}: a bug of ours keeps it from being used"))

    def closed(self, link: int) -> None:
        self._inquiries.close(link)
        self._step(events.LinkChanged(link, up=False))

    def heard(self, hello_link: HelloLink, received: Received) -> None:
        """Its consequences are judged with the event that made us read it."""
        (hello, mac, age), now = received, self.clock()
        event = events.HelloHeard(hello_link.link.index, hello, mac, mac in self._ever_macs, age, more=True)
        with contained("ownership", self._events):
            orders = self.machine.step(now, event)
            with contained("meet", self._events):
                self._meet(hello_link, hello, mac, now - age)
            self._carry_out(orders, now)

    def _meet(self, hello_link: HelloLink, hello: Hello, mac: Mac, at: float) -> None:
        """A hello that counts says which MAC and which addresses its sender has."""
        if not self.machine.believed(hello_link.link.index, hello):
            return
        if hello_link.speakers.inform(hello) and self._recalled:
            self._offer_again(self.hello_links.indexes)
        if (speaker := hello_link.speakers.meet(hello, mac)) is not None:
            self._events.tell(SpeakerSeen(hello_link.link.index, hello.node, speaker))
            self._acquaint(hello_link)
        hello_link.speakers.heard(hello, at, self._times.hello)

    # What others say on the LAN. Hellos first, so that no node is silent whose hello lies here unread.

    def hear_frame(self, link: int, version: int | None, waited: float | None = None) -> None:
        if waited is None:
            self.hello_links.hear()
        self._hear(events.FrameHeard(link, version), waited)

    def _read_answers(self) -> None:
        """Reads answers to what this node asks at its beats; their consequences are judged with the beat."""
        now = self.clock()
        if self._inquiries.read(now - self._answers_read_at):
            self._answers_read_at = now

    def _hear(self, event: events.FrameHeard | events.EipAnswered, waited: float | None) -> None:
        if waited is None:
            self._step(event)
            return
        with contained("ownership", self._events):
            self.machine.step(self.clock(), replace(event, age=waited, more=True))

    def found(self, link: int, address: bytes, mac: Mac) -> None:
        """Not in the middle of what others said."""
        answer = Answer(ip_address(address), mac)
        asyncio.get_running_loop().call_soon(partial(self.hear_answer, link, answer, probed=True))

    def hear_answer(self, link: int, answer: Answer, waited: float | None = None, *, probed: bool = False) -> None:
        if waited is None:
            self.look()
        if (hello_link := self.hello_links.get(link)) is None:
            return
        node, now = next(hello_link.speakers.nodes(answer.mac), None), self.clock()
        if not hello_link.speakers.answer(answer.address, node, now, probed=probed):
            return
        self._hear(events.EipAnswered(answer.address, link, node, probed), waited)
        if node is not None and hello_link.speakers.is_unheard(node, now, FILTERED * self._times.dead):
            self.hello_links.note_filtered(hello_link, node, answer.address)

    def _ask(self, order: events.Ask | events.Question) -> None:
        if (hello_link := self.hello_links.get(order.link)) is not None:
            own, known = self._addresses.own.get(order.link, ()), dict(hello_link.speakers.items())
            self._inquiries.ask(hello_link.link, own, order, known)

    def excuses(self, link: int, address: bytes, mac: Mac) -> bool:
        """A peer's MAC alone does not excuse it for claiming an EIP of ours on the LAN: its hellos must claim it, or
        have done so recently."""
        hello_link, eip, now = self.hello_links.get(link), ip_address(address), self.clock()
        return (
            hello_link is None
            or mac in self._macs
            or any(self.machine.speaks_for(link, node, eip, now) for node in hello_link.speakers.nodes(mac))
        )

    def _acquaint(self, hello_link: HelloLink) -> None:
        """Tells layer 2 the MACs of speakers, as their hellos decide what to make of their ARP and NDP."""
        self._layer2.peers(hello_link.link.index, self._macs | hello_link.speakers.macs)

    def before_answering(self) -> None:
        """Rule 28: news is not only heard but acted on before any request is answered."""
        if self.hello_links.hear():
            self.look()

    def is_ours(self, mac: Mac) -> bool:
        """This host has it, or has had it while we run."""
        return mac in self._ever_macs

    def failed(self, link: int, address: bytes) -> None:
        self._set_aside([ip_address(address)])

    def lost(self, link: Link, error: BaseException) -> None:
        self.hello_links.lost(link, error)

    # ── The machine ───────────────────────────────────────────────────────────────────────────────────────────

    def look(self) -> None:
        """Called by the alarm: reads the hellos that wait, and asks the machine what is due."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self._unheard += 1
        with contained("hear", self._events):
            self.hello_links.hear()  # no node is silent whose hello lies here unread
            self.hello_links.miss()
            self._unheard = 0
        with contained("inquiry", self._events):
            self._read_answers()
        if self._unheard > 1:  # a node that reads no hellos must send none: it would claim EIPs that may be held
            self.hello_links.give_up()
        self._step(events.Tick())
        with contained("peers", self._events):
            self._tell_of_peers()
        with contained("other groups", self._events):
            for hello_link in self.hello_links:
                # At first as often as there is anything to hear: a node should know all before it claims.
                if (now := self.clock()) >= hello_link.groups_at:
                    hello_link.groups_at = now + (PAUSE if now >= hello_link.opened_at + PAUSE else 0)
                    self._hear_groups(hello_link, now)

    def _hear_groups(self, hello_link: HelloLink, now: float) -> None:
        """What other groups hold is no EIP for us; peers that do not hear them are told."""
        link = hello_link.link.index
        known = self._groups.setdefault(link, OtherGroups(self._group))
        before = known.held
        try:
            known.hear(hello_link.hellos.others(), self._answered_by_us, now)
        except EdgeError as error:
            hello_link.fail(error)
        if known.held is not before:
            self._step(events.GroupsHold(link, known.held))
            self._tell_of_groups()
        self._not_ours[link] = frozenset(self.placements.keys() & known.held.keys())

    def _answered_by_us(self, eip: IPAddress) -> bool:
        """Answered by this node or a peer."""
        return self.claim_status(eip).holder is not None and not self._layer2.is_unproven(eip)

    def _tell_of_groups(self) -> None:
        held = {eip: group for known in self._groups.values() for eip, group in known.held.items()}
        self._events.tell(OtherGroupsHold(held))

    def _step(self, event: events.Event) -> None:
        """Whatever is raised ends the effects of this event, but never the alarms that follow."""
        if not isinstance(event, events.Tick | events.FrameHeard):
            with contained("hear", self._events):
                if self.clock() >= self.machine.watch_at:
                    self.hello_links.hear()
        now = self.clock()
        wake = now + AGAIN_SECONDS
        with contained("ownership", self._events):
            self._carry_out(self.machine.step(now, event), now)
            if not self._alone:
                self._news.life(self.machine.incarnation, self.machine.claims_heard)
            wake = self.machine.next_wake(now)
        loop = asyncio.get_running_loop()
        when = loop.time() + max(0.0, wake - now)
        if self._alarm is None or abs(when - self._alarm.when()) > 1e-4:
            if self._alarm is not None:
                self._alarm.cancel()
            self._alarm = loop.call_at(when, self.look)

    def _carry_out(self, orders: list[events.Order], now: float) -> None:
        """Silence before everything else, then the hellos: what follows may take longer than they may be late."""
        if not orders:
            return
        if given_up := [order for order in orders if isinstance(order, events.Withdraw)]:
            if self._alone:
                self._unused.update(order.eip for order in given_up if not self._layer2.is_unproven(order.eip))
            drop_each(self._layer2, [order.eip for order in given_up], self._events)
            for gone in given_up:
                with contained("withdraw", self._events):
                    self._let_go(gone)
        for order in orders:
            if isinstance(order, events.SendHello):
                with contained("send hello", self._events):
                    self._send(order, now)
        if taken := [order for order in orders if isinstance(order, events.Claim)]:
            self._take(taken)
        for order in orders:
            if isinstance(order, events.SendHello):
                continue
            with contained("order", self._events):
                match order:
                    case events.Announce(eips=eips):
                        self._layer2.announce(eips)
                    case events.Listen():
                        self._listen()
                    case events.DropRequests():
                        self._layer2.drop_queued()
                        self._events.tell(WasFrozen())
                    case events.Ask() | events.Question():
                        self._ask(order)
                    case events.WriteRecord():
                        self._events.tell(order)
                    case events.NameClash(link=link):
                        self._news.tell(replace(order, on=self.hello_links.links.get(link or 0)))
                    case events.PeersAddress() | events.NameFree():
                        self._news.tell(order)
                    case events.InternalError(doing=doing, what=what, error=error):
                        error.add_note(what)
                        report(f"ownership: {doing}", error, self._events)

    def _take(self, orders: Iterable[events.Claim]) -> None:
        offered = self.placements
        placements = {order.eip: offered[order.eip] for order in orders if order.eip in offered}
        probe = frozenset(order.eip for order in orders if order.first and order.eip not in self._unused)
        probed = [eip for eip in placements.keys() - probe if eip in self._held]
        drop_each(self._layer2, probed, self._events)
        taken, failed = take_each(self._layer2, placements, probe, self._events)
        self._set_aside(failed)
        for order in map({order.eip: order for order in orders}.__getitem__, taken):
            self._held[order.eip] = time.time()
            came = self.machine.held_before(order.eip), order.unanswered(self.clock())
            self._events.tell(EipClaimed(order.eip, placements[order.eip], order.term, *came))

    def _set_aside(self, eips: Iterable[IPAddress]) -> None:
        """Soon, and not in the middle of other orders."""
        for eip in eips:
            asyncio.get_running_loop().call_soon(self._step, events.SetAside(eip))

    def _let_go(self, order: events.Withdraw) -> None:
        if self._held.pop(order.eip, None) is None:
            return
        self._events.tell(EipYielded(order.eip, order.reason.value, self.claim_status(order.eip).holder))

    def _send(self, order: events.SendHello, now: float) -> None:
        link = order.link
        if self._alone:
            with contained("send hello", self._events):
                self._layer2.answers_on(link)  # what does not answer is opened again
            self._layer2.extend(now + HOLD, link)
            return
        if (hello_link := self.hello_links.get(link)) is None:
            return
        if self.clock() - now > self._times.request_age:
            # Frozen between deciding and sending: what it says about the others' ages is no longer true.
            self.machine.speak_again()
            return
        addresses, own = self._addresses.own.get(link, ()), self._addresses.bound.get(link, frozenset())
        if not_ours := self._not_ours.get(link):
            own |= not_ours
        hello = order.hello._replace(
            addresses=addresses, own=own, recalled=self._recalled, headless=self.machine.headless
        )
        self.hello_links.send(hello_link, events.SendHello(link, hello, order.direct), now)

    def _listen(self) -> None:
        """This process did not run for too long: what waits unread is outdated."""
        self._layer2.extend(float("-inf"))
        self._layer2.drop_queued()
        self.hello_links.drop_queued()
        self._events.tell(WasFrozen())

    def _tell_of_peers(self) -> None:
        """Reports who came and who fell silent."""
        if not self._news.may_have_changed(self.machine.peers_changed, now := self.clock()):
            return
        fresh = {each.link.index for each in self.hello_links if now < each.opened_at + self._times.listen}
        if self._news.peers(self.machine.peers(now), self.hello_links.links, fresh) and self._recalled:
            self._offer_again(self.hello_links.indexes)
