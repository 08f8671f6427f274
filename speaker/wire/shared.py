"""The owner of a node that shares its EIPs with others: carries out what the ownership machine orders.

::

    hellos · offers · carrier · gateways · time ──► Ownership.step ──► hellos · layer2 (answer, announce, fall silent)

Everything runs in the event loop's thread, one ``_tell`` at a time: the orders of one event are carried out before the
next is looked at.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from ipaddress import ip_address
from types import TracebackType
from typing import NamedTuple, Self

from speaker.errors import EdgeError
from speaker.layer2.links import Links, Placement
from speaker.model import IPAddress, Link, Mac
from speaker.ownership.balance import Rebalancing
from speaker.ownership.events import (
    Announce,
    Ask,
    Claim,
    Drain,
    EipAnswered,
    Event,
    FrameHeard,
    HelloHeard,
    InternalError,
    LinkChanged,
    Listen,
    NameClash,
    NameFree,
    Order,
    PeersAddress,
    Rebalance,
    SendHello,
    SetAside,
    Tick,
    Withdraw,
    WriteRecord,
)
from speaker.ownership.hello import Hello
from speaker.ownership.inquiry import Answer
from speaker.ownership.machine.machine import Ownership
from speaker.system.supervise import contained
from speaker.wire.commands import ApiEvent, UseAddresses
from speaker.wire.inquiries import Inquiries
from speaker.wire.sharing.news import News
from speaker.wire.sharing.offers import Offers
from speaker.wire.sharing.ports import OpenHellos, Port, Ports
from speaker.wire.taking import drop_each, take_each
from speaker.wire.told import ClaimStatus, OwnerEvents, PeerSeen, RecordSink, Resumed, Taken, peer_seen

AGAIN_SECONDS = 0.02
"""After an error that nobody foresaw the ownership machine is asked again."""
FILTERED = 10
"""Times ``dead`` without a hello, after which a peer that answers for EIPs all the same is told of."""


class _Claim(NamedTuple):
    term: int
    since: float


class SharedOwner:
    """One of several speakers on its links.

    ``clock`` gives seconds of CLOCK_BOOTTIME, ``layer2`` answers on the links. A link that fails is lost, told and
    tried again. What nobody foresaw gives up the EIP, the hello or the link that it concerns.
    """

    def __init__(
        self,
        machine: Ownership,
        open_hellos: OpenHellos,
        clock: Callable[[], float],
        events: OwnerEvents,
        sink: RecordSink,
        layer2: type[Links] = Links,
    ) -> None:
        self.machine, self.node, self._times = machine, machine.node, (times := machine.times)
        self._clock, self._events, self._sink = clock, events, sink
        self._news = News(events, sink)
        self.ports = Ports(self, open_hellos, times.self_lease, clock, events)
        ours = lambda mac: mac in self._ever_macs  # noqa: E731
        self._inquiries = Inquiries(ours, self._hear_frame, self._hear_answer, events)
        lost, hear, age = self.ports.lost, self.ports.hear, times.request_age
        self._layer2 = layer2(clock, events, lost, hear, age, self._excuses, times.listen, ours, self._found)
        self.offers = Offers(self._tell, self.informed, lambda: self.ports.indexes)
        self._claims: dict[IPAddress, _Claim] = {}
        self._macs: frozenset[Mac] = frozenset()
        self._ever_macs: frozenset[Mac] = frozenset()
        """This host's, and those that it had while we run: frames of ours with them may still come back."""
        self._addresses = UseAddresses({}, {}, {})
        self._stack = AsyncExitStack()
        self._alarm: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self._layer2)
        await self._stack.enter_async_context(self.offers)
        await self._stack.enter_async_context(self.ports)
        self._tick()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        await self._stack.__aexit__(kind, error, tb)

    # ── What the node may hold ────────────────────────────────────────────────────────────────────────────────

    def links(self, links: Collection[Link], macs: frozenset[Mac]) -> None:
        """Hellos on these links and no others."""
        self._macs, self._ever_macs = macs, self._ever_macs | macs
        self.ports.serve(links)
        self._layer2.keep(links)
        for port in self.ports:
            self._acquaint(port)

    def addresses(self, ours: UseAddresses) -> None:
        """Told in hellos; the gateways are asked with ``events.Ask``."""
        self._addresses, self._inquiries.gateways = ours, ours.gateways

    def withdraw(self, addresses: Iterable[IPAddress]) -> None:
        self.offers.withdraw(addresses)

    def offer(self, placements: Mapping[IPAddress, Placement]) -> list[IPAddress]:
        """Those that will not be tried, through a bug of ours: none, as what failed is set aside for a while."""
        held = {address: placement for address, placement in placements.items() if address in self._claims}
        self.offers.add(placements)
        _, failed = take_each(self._layer2, {a: s for a, s in held.items() if a in self._claims}, (), self._events)
        self._set_aside(failed)
        return []

    @property
    def offered(self) -> Collection[IPAddress]:
        """What this node may hold."""
        return self.offers.placements.keys()

    def resumed(self) -> Resumed:
        speakers = ((port.link.index, *known) for port in self.ports for known in port.speakers.items())
        offered = self.offers.placements
        held = {a: Taken(offered[a], self.machine.held_before(a)) for a in self._claims if a in offered}
        draining = self.machine.draining_since is not None
        return Resumed(dict(offered), held, self._news.incarnation, tuple(speakers), draining)

    def retell(self) -> None:
        """What somebody new must be told of what was told before, and is not in ``resumed``."""
        self._news.retell()
        self._inquiries.retell()

    def carrier(self, link: int, up: bool) -> None:
        """Asked of the kernel more often than it tells by itself."""
        self.ports.carrier(link, up)
        if not up and (port := self.ports.get(link)) is not None:
            self._tell(LinkChanged(link, up=False))
            port.fail(EdgeError(f"{port.link.name}: no carrier"))

    # ── What the API server says ──────────────────────────────────────────────────────────────────────────────

    def api_says(self, events: Iterable[ApiEvent]) -> None:
        for event in events:
            self._tell(event)

    # ── What an operator asks ─────────────────────────────────────────────────────────────────────────────────

    def claim_status(self, address: IPAddress) -> ClaimStatus:
        if (claim := self._claims.get(address)) is not None:
            return ClaimStatus(True, self.node, claim.term, claim.since)
        known = self.machine.holder(address, self._clock())
        return ClaimStatus(False, known[0], known[1], None) if known is not None else ClaimStatus(False, None, 0, None)

    @property
    def has_peers(self) -> bool:
        """Somebody could take over."""
        return any(peer.alive and not peer.draining for peer in self.peers())

    def informed(self) -> bool:
        """A living peer holds what it may by what it reads in the API."""
        known = {port.link.name: port.speakers for port in self.ports}
        return any(peer.alive and known[peer.link].is_informed(peer.node) for peer in self.peers())

    @property
    def ready(self) -> bool:
        return not self.ports.indexes or (bool(self.ports) and self.machine.ready)

    def drain(self, on: bool) -> None:
        self._tell(Drain(on))

    def rebalance(self) -> Rebalancing | None:
        """Begins one where none is under way; how far it is."""
        if (state := self.machine.rebalancing) is None or state.finished:
            self._tell(Rebalance())
        return self.machine.rebalancing

    def peers(self) -> list[PeerSeen]:
        return [
            peer_seen(port.link.name, peer, port.speakers.get(peer.node))
            for index, peers in self.machine.peers(self._clock()).items()
            if (port := self.ports.get(index)) is not None
            for peer in peers
        ]

    # ── What the ports say ────────────────────────────────────────────────────────────────────────────────────

    def opened(self, port: Port) -> None:
        self._acquaint(port)
        self._tell(LinkChanged(port.link.index, up=True))

    def closed(self, link: int) -> None:
        self._inquiries.close(link)
        self._tell(LinkChanged(link, up=False))

    def answers_on(self, link: int) -> bool:
        return self._layer2.answers_on(link)

    def heard(self, port: Port, hello: Hello, mac: Mac) -> None:
        event = HelloHeard(port.link.index, hello, mac, looped=mac in self._ever_macs)
        self._tell(event, partial(self._meet, port, hello, mac))

    def _meet(self, port: Port, hello: Hello, mac: Mac) -> None:
        """A hello that counts says which MAC and which addresses are its sender's."""
        if not self.machine.believed(port.link.index, hello):
            return
        self.ports.expect(port, hello, self._times.hello)
        if port.speakers.inform(hello) and self.offers.recalled:
            self.offers.offer_again()
        if (speaker := port.speakers.meet(hello, mac)) is not None:
            self._events.speaker(port.link.index, hello.node, speaker)
            self._acquaint(port)
        port.speakers.heard(hello.node, self._clock())

    # What others say on the LAN. Hellos first: nobody is silent whose hello lies here unread.

    def _hear_frame(self, link: int) -> None:
        self.ports.hear()
        self._tell(FrameHeard(link))

    def _found(self, link: int, address: bytes, mac: Mac) -> None:
        """A probe for what we are about to answer for was answered. Not in the middle of what others said."""
        answer = Answer(ip_address(address), mac)
        asyncio.get_running_loop().call_soon(partial(self._hear_answer, link, answer, probed=True))

    def _hear_answer(self, link: int, answer: Answer, *, probed: bool = False) -> None:
        self.ports.hear()
        if (port := self.ports.get(link)) is None:
            return
        node, now = next(port.speakers.nodes(answer.mac), None), self._clock()
        if not port.speakers.answer(answer.address, node, now, probed=probed):
            return
        self._tell(EipAnswered(answer.address, link, node, probed))
        if node is not None and port.speakers.is_unheard(node, now, FILTERED * self._times.dead):
            self.ports.note_filtered(port, node, answer.address)

    def _ask(self, order: Ask) -> None:
        if (port := self.ports.get(order.link)) is not None:
            nodes = order.nodes if order.anybody else ()
            silent = [speaker for node in nodes if (speaker := port.speakers.get(node)) is not None]
            own = self._addresses.own.get(order.link, ())
            self._inquiries.ask(port.link, own, order.eips, silent, anybody=order.anybody)

    def _excuses(self, link: int, address: bytes, mac: Mac) -> bool:
        """A peer's MAC alone is no excuse for speaking for an EIP of ours: it must claim it, or have done so lately."""
        port, eip, now = self.ports.get(link), ip_address(address), self._clock()
        return (
            port is None
            or mac in self._macs
            or any(self.machine.speaks_for(link, node, eip, now) for node in port.speakers.nodes(mac))
        )

    def _acquaint(self, port: Port) -> None:
        """The MACs of peers and of ourselves are no strangers'."""
        self._layer2.peers(port.link.index, self._macs | port.speakers.macs)

    # ── The machine ───────────────────────────────────────────────────────────────────────────────────────────

    def _tick(self) -> None:
        self._alarm = None
        with contained("hear", self._events):
            self.ports.hear()  # nobody is silent whose hello lies here unread
        self._tell(Tick())
        with contained("peers", self._events):
            self._tell_of_peers()

    def _tell(self, event: Event, first: Callable[[], None] = lambda: None) -> None:
        """``first``: to be done before what the event leads to. Whatever is raised ends what this event was to bring,
        and never the alarms that follow."""
        now = self._clock()
        wake = now + AGAIN_SECONDS
        with contained("ownership", self._events):
            orders = self.machine.step(now, event)
            with contained("meet", self._events):
                first()
            self._carry_out(orders, now)
            self._news.life(self.machine.incarnation)
            wake = self.machine.next_wake(now)
        loop = asyncio.get_running_loop()
        when = loop.time() + max(0.0, wake - now)
        if self._alarm is None or abs(when - self._alarm.when()) > 1e-4:
            if self._alarm is not None:
                self._alarm.cancel()
            self._alarm = loop.call_at(when, self._tick)

    def _carry_out(self, orders: list[Order], now: float) -> None:
        """Silence before everything else, then the hellos: what follows may take longer than they may be late."""
        given_up = [order for order in orders if isinstance(order, Withdraw)]
        if given_up:
            drop_each(self._layer2, [order.eip for order in given_up], self._events)
            for gone in given_up:
                with contained("withdraw", self._events):
                    self._let_go(gone)
        for order in orders:
            if isinstance(order, SendHello):
                with contained("send hello", self._events):
                    self._send(order.link, order.hello, now)
        taken = [order for order in orders if isinstance(order, Claim)]
        if taken:
            self._take(taken)
        for order in orders:
            with contained("order", self._events):
                match order:
                    case Announce(eips=eips):
                        self._layer2.announce(eips)
                    case Listen():
                        self._listen(now)
                    case Ask():
                        self._ask(order)
                    case WriteRecord():
                        self._sink.write_record(order)
                    case PeersAddress(eip=eip, node=node):
                        self._news.peers_address(eip, node)
                    case NameClash(link=link, mac=mac, silent=silent):
                        port = self.ports.get(link) if link is not None else None
                        self._news.name_clash(port.link if port is not None else None, mac, silent)
                    case NameFree():
                        self._news.name_free()
                    case InternalError(doing=doing, what=what, error=error):
                        error.add_note(what)
                        self._events.internal_error(f"ownership: {doing}", error)
                    case _:
                        pass

    def _take(self, orders: Iterable[Claim]) -> None:
        offered = self.offers.placements
        placements = {order.eip: offered[order.eip] for order in orders if order.eip in offered}
        probe = frozenset(order.eip for order in orders if order.first)
        drop_each(
            self._layer2, [eip for eip in placements.keys() - probe if eip in self._claims], self._events
        )  # probed for
        taken, failed = take_each(self._layer2, placements, probe, self._events)
        if failed:
            asyncio.get_running_loop().call_soon(self._set_aside, failed)  # not in the middle of these orders
        terms = {order.eip: order.term for order in orders}
        for eip in taken:
            self._claims[eip] = _Claim(terms[eip], time.time())
            self._events.claimed(eip, placements[eip], terms[eip], self.machine.held_before(eip))

    def _set_aside(self, eips: Iterable[IPAddress]) -> None:
        for eip in eips:
            self._tell(SetAside(eip))

    def _let_go(self, order: Withdraw) -> None:
        if self._claims.pop(order.eip, None) is None:
            return
        self._events.yielded(order.eip, order.reason.value, self.claim_status(order.eip).holder)

    def _send(self, link: int, hello: Hello, now: float) -> None:
        if (port := self.ports.get(link)) is None:
            return
        if self._clock() - now > self._times.request_age:
            # Frozen between deciding and sending: what it says of the others' ages is no longer true.
            self.machine.speak_again()
            return
        addresses, own = self._addresses.own.get(link, ()), self._addresses.bound.get(link, frozenset())
        if self.ports.send(port, replace(hello, addresses=addresses, own=own, recalled=self.offers.recalled), now):
            self._layer2.extend(now + self._times.self_lease, link)

    def _listen(self, now: float) -> None:
        """We were away: what waits is from another time."""
        self._layer2.extend(float("-inf"))
        self._layer2.drop_queued()
        self.ports.drop_queued()
        self._events.frozen()

    def _tell_of_peers(self) -> None:
        """Who came and who fell silent."""
        peers = self.machine.peers(self._clock())
        alive = {(index, peer.node): peer.alive for index, some in peers.items() for peer in some}
        if self._news.peers(alive, {port.link.index: port.link for port in self.ports}) and self.offers.recalled:
            self.offers.offer_again()
