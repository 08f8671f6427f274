"""The owner of a node that shares its EIPs with others: carries out what the ownership machine orders.

::

    hellos · offers · carrier · gateways · time ──► Ownership.step ──► hellos · fleet (answer, announce, fall silent)

Everything runs in the event loop's thread, one ``_tell`` at a time: the orders of one event are carried out before the
next is looked at.
"""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from enum import Enum
from functools import partial
from ipaddress import ip_address
from types import TracebackType
from typing import NamedTuple, NoReturn, Self

from speaker.errors import EdgeError
from speaker.layer2.links import Links, Placement
from speaker.model import IPAddress, Link, Mac
from speaker.ownership.balance import Rebalancing
from speaker.ownership.events import (
    Announce,
    ApiDown,
    ApiUp,
    Ask,
    Claim,
    Drain,
    EipAnswered,
    EligibilityChanged,
    Event,
    FrameHeard,
    HelloHeard,
    InternalError,
    LeaseSeen,
    LinkChanged,
    Listen,
    NameClash,
    NameFree,
    Order,
    PeersAddress,
    Rebalance,
    Record,
    RecordRead,
    RecordsRestored,
    RecordWritten,
    SendHello,
    SetAside,
    Tick,
    Withdraw,
    WriteRecord,
)
from speaker.ownership.hello import Addresses, Hello, Incarnation, above, incarnation
from speaker.ownership.hellos.hellos import MAX_SENDERS, Hellos
from speaker.ownership.hellos.keys import Keys
from speaker.ownership.inquirer import PAUSE
from speaker.ownership.inquiry import Answer
from speaker.ownership.machine.machine import Ownership
from speaker.system.retry import retrying
from speaker.system.supervise import contained, supervised
from speaker.wire.inquiries import Inquiries
from speaker.wire.taking import drop_each, take_each
from speaker.wire.told import Clerk, PeerSeen, Resumed, SharedTold, Speaker, Standing, Taken

RETRY_MAX = 5.0
"""Seconds at most between two tries to open a link's hello socket: without one, nothing is held there."""
AGAIN_SECONDS = 0.02
"""After an error that nobody foresaw the ownership machine is asked again."""
FILTERED = 10
"""Times ``dead`` without a hello, after which a peer that answers for EIPs all the same is told of."""
FILTERED_SECONDS = 1.0
"""EIPs are gathered for so long before it is told."""
OVERDUE = 1.25
"""Of its interval after which a peer's next hello is missed: the carrier may be gone. It is asked for then, and not all
the time, as long as hellos come by the link."""


class _Claim(NamedTuple):
    term: int
    since: float


class _Port:
    """A link that carries our hellos now."""

    def __init__(self, hellos: Hellos, now: float, failed: asyncio.Future[str]) -> None:
        self.hellos, self.left_at, self.failed = hellos, now, failed
        self.speakers: dict[str, Speaker] = {}
        """As last told."""
        self.heard_at: dict[str, float] = {}
        """When the last hello came of each in ``speakers``."""
        self.answered: set[tuple[IPAddress, str | None, bool]] = set()
        self.answered_since = now
        """EIPs and who answered for each, as told to the machine since then: no longer than PAUSE."""
        self.filtered: dict[str, set[IPAddress]] = {}
        """Speakers none of whose hellos arrives → EIPs that they answer for, about to be told."""
        self.due: dict[str, float] = {}
        """When the next hello of each peer is overdue, those first that were heard longest ago."""
        self.informed: set[str] = set()
        """Peers that claim something, and not by what the API said before their start."""

    def fail(self, error: EdgeError) -> None:
        """In words: the error itself holds who came upon it, and so this port."""
        if not self.failed.done():
            self.failed.set_result(str(error))


class Shared:
    """One of several speakers on its links.

    ``keys`` is asked for every frame, so that it can be rotated; ``clock`` gives seconds of CLOCK_BOOTTIME. A link that
    fails is lost, told and tried again. What nobody foresaw gives up the EIP, the hello or the link that it concerns.
    """

    def __init__(
        self,
        machine: Ownership,
        keys: Callable[[], Keys],
        ethertype: int,
        clock: Callable[[], float],
        told: SharedTold,
        clerk: Clerk,
    ) -> None:
        self.machine, self.node, self._times = machine, machine.node, machine.times
        self._keys, self._ethertype, self._clock, self._told = keys, ethertype, clock, told
        self._clerk = clerk
        times = machine.times
        ours = lambda mac: mac in self._ever_macs  # noqa: E731
        self._inquiries = Inquiries(ours, self._hear_frame, self._hear_answer, told)
        self._fleet = Links(
            clock, told, self._lost, self.hear, times.request_age, self._excuses, times.listen, ours, self._found
        )
        self._incarnation: Incarnation | None = None
        """As last told."""
        self._spots: dict[IPAddress, Placement] = {}
        self._claims: dict[IPAddress, _Claim] = {}
        self._macs: frozenset[Mac] = frozenset()
        self._ever_macs: frozenset[Mac] = frozenset()
        """This host's, and those that it had while we run: frames of ours with them may still come back."""
        self._addresses: Mapping[int, Addresses] = {}
        self._bound: Mapping[int, frozenset[IPAddress]] = {}
        self._ports: dict[int, _Port] = {}
        self._serving: dict[tuple[int, Mac, int], asyncio.Task[NoReturn]] = {}
        """By index, MAC and MTU."""
        self._heard: dict[tuple[int, str], bool] = {}
        """Link and node → whether it is alive, as last told."""
        self._counted: dict[int, int] = {}
        """Link → how many are alive there, as last told."""
        self._peers_own: dict[IPAddress, str] = {}
        """EIPs that are a peer's own addresses, as last told."""
        self._clash: tuple[Link | None, Mac | None, bool] | None = None
        """Another host with our name, as last told."""
        self._no_carrier: set[int] = set()
        self._unanswered: set[int] = set()
        """Links whose answering met what nobody foresaw."""
        self._silent_gateways: set[int] = set()
        self._demoted = self._recalled = False
        """For a reason that concerns the whole node."""
        self._stack = AsyncExitStack()
        self._group = asyncio.TaskGroup()
        self._alarm: asyncio.TimerHandle | None = None
        self._overdue: asyncio.TimerHandle | None = None
        self.doubted = asyncio.Event()
        """Some link may have no carrier."""
        self.indexes: frozenset[int] = frozenset()
        """Of the links that EIPs are announced on."""

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self._fleet)
        await self._stack.enter_async_context(self._group)
        self._tick()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        for alarm in (self._alarm, self._overdue):
            if alarm is not None:
                alarm.cancel()
        for task in self._serving.values():
            task.cancel()
        await self._stack.__aexit__(kind, error, tb)

    def _supervise(self, task: str, work: Callable[[], Awaitable[None]]) -> asyncio.Task[NoReturn]:
        return self._group.create_task(supervised(task, work, self._told), name=task)

    # ── What the node may hold ────────────────────────────────────────────────────────────────────────────────

    def links(self, links: Collection[Link], macs: frozenset[Mac]) -> None:
        """Hellos on these links and no others. A link whose MAC or MTU changed is another one."""
        self._macs, self._ever_macs = macs, self._ever_macs | macs
        wanted = {(link.index, link.mac, link.mtu): link for link in links}
        for gone in self._serving.keys() - wanted.keys():
            self._serving.pop(gone).cancel()
        for new in wanted.keys() - self._serving.keys():
            link = wanted[new]
            self._serving[new] = self._supervise("hellos", partial(self._serve_link, link))
        self.indexes = frozenset(link.index for link in links)
        self._no_carrier &= self.indexes
        self.doubted.set()
        self._fleet.keep(links)
        for port in self._ports.values():
            self._acquaint(port)

    def addresses(
        self,
        own: Mapping[int, Addresses],
        bound: Mapping[int, frozenset[IPAddress]],
        gateways: Mapping[int, tuple[IPAddress, ...]],
    ) -> None:
        """This node's on its links, by index, one of each family and all of them: told in its hellos. And its gateways
        there: asked with ``events.Ask``."""
        self._addresses, self._bound = own, bound
        self._inquiries.gateways = gateways

    def withdraw(self, addresses: Iterable[IPAddress]) -> None:
        for address in addresses:
            if self._spots.pop(address, None) is not None:
                self._tell(EligibilityChanged(address, None))

    def offer(self, spots: Mapping[IPAddress, Placement]) -> list[IPAddress]:
        """Those that will not be tried, through a bug of ours: none, as what failed is set aside for a while."""
        self._spots.update(spots)
        held = {address: spot for address, spot in spots.items() if address in self._claims}
        for address in spots:
            self._offer(address)
        _, failed = take_each(self._fleet, {a: s for a, s in held.items() if a in self._claims}, (), self._told)
        self._set_aside(failed)
        return []

    @property
    def offered(self) -> Mapping[IPAddress, Placement]:
        """What this node may hold."""
        return self._spots

    def resumed(self) -> Resumed:
        speakers = (
            (index, node, speaker) for index, port in self._ports.items() for node, speaker in port.speakers.items()
        )
        held = {a: Taken(self._spots[a], self.machine.held_before(a)) for a in self._claims if a in self._spots}
        return Resumed(
            dict(self._spots), held, self._incarnation, tuple(speakers), self.machine.draining_since is not None
        )

    def retell(self) -> None:
        """What somebody new must be told of what was told before, and is not in ``resumed``."""
        self._counted.clear()
        self._heard.clear()
        self._inquiries.retell()
        if self._clash is not None:
            if self._clash[2]:
                self._clerk.silence()
            self._told.name_clash(*self._clash)
        for eip, node in self._peers_own.items():
            self._told.peers_address(eip, node)

    def _offer(self, address: IPAddress) -> None:
        link = self._spots[address].link.index
        if self._recalled and self.informed():
            self._tell(EligibilityChanged(address, None))  # a peer knows better whose it is
            return
        demoted = self._demoted or self._recalled or link in self._silent_gateways
        self._tell(EligibilityChanged(address, link, demoted=demoted))

    def carrier(self, link: int, up: bool) -> None:
        """Asked of the kernel more often than it tells by itself."""
        (self._no_carrier.discard if up else self._no_carrier.add)(link)
        if not up and (port := self._ports.get(link)) is not None:
            self._tell(LinkChanged(link, up=False))
            port.fail(EdgeError(f"{port.hellos.link.name}: no carrier"))

    def gateway(self, link: int, answers: bool) -> None:
        """A node whose gateway is silent claims behind the others (rule 13)."""
        (self._silent_gateways.discard if answers else self._silent_gateways.add)(link)
        self._offer_soon({link})

    def recalled(self, on: bool) -> None:
        """What is offered is what the API said before our start. One that reads the API knows better: it goes first."""
        self._recalled = on
        self._offer_soon(self.indexes)

    def demote(self, on: bool) -> None:
        """So does one that is not Ready."""
        self._demoted = on
        self._offer_soon(self.indexes)

    def _offer_soon(self, links: Collection[int]) -> None:
        self._group.create_task(self._offer_again(links), name="offer again")

    async def _offer_again(self, links: Collection[int]) -> None:
        for address in [address for address, spot in self._spots.items() if spot.link.index in links]:
            if address in self._spots:
                self._offer(address)
            await asyncio.sleep(0)

    # ── What the API server says ──────────────────────────────────────────────────────────────────────────────

    def records(self, records: Iterable[tuple[IPAddress, Record]]) -> None:
        for address, record in records:
            self._tell(RecordRead(address, record))

    def restored(self) -> None:
        self._tell(RecordsRestored())

    def recorded(self) -> tuple[IPAddress, ...]:
        return self.machine.recorded()

    def written(self, address: IPAddress, attempt: int, succeeded: bool, record: Record | None) -> None:
        self._tell(RecordWritten(address, attempt, succeeded, record))

    def leases(self, leases: Iterable[tuple[str, Incarnation, bool]]) -> None:
        for node, number, renewed in leases:
            self._tell(LeaseSeen(node, number, renewed))

    def api(self, up: bool) -> None:
        self._tell(ApiUp() if up else ApiDown())

    # ── What an operator asks ─────────────────────────────────────────────────────────────────────────────────

    def standing(self, address: IPAddress) -> Standing:
        if (claim := self._claims.get(address)) is not None:
            return Standing(True, self.node, claim.term, claim.since)
        known = self.machine.holder(address, self._clock())
        return Standing(False, known[0], known[1], None) if known is not None else Standing(False, None, 0, None)

    @property
    def has_peers(self) -> bool:
        """Somebody could take over."""
        return any(peer.alive and not peer.draining for peer in self.peers())

    def _note_informed(self, port: _Port, hello: Hello) -> None:
        knows = hello.digest.count > 0 and not hello.recalled
        if knows is not (hello.node in port.informed):
            (port.informed.add if knows else port.informed.discard)(hello.node)
            if self._recalled:
                self._offer_soon(self.indexes)

    def informed(self) -> bool:
        """A living peer holds what it may by what it reads in the API."""
        index = {port.hellos.link.name: port.informed for port in self._ports.values()}
        return any(peer.alive and peer.node in index.get(peer.link, ()) for peer in self.peers())

    @property
    def ready(self) -> bool:
        return not self.indexes or (bool(self._ports) and self.machine.ready)

    def drain(self, on: bool) -> None:
        self._tell(Drain(on))

    def rebalance(self) -> Rebalancing | None:
        """Begins one where none is under way; how far it is. Ask ``rebalancing`` to follow it."""
        if (state := self.machine.rebalancing) is None or state.finished:
            self._tell(Rebalance())
        return self.machine.rebalancing

    def rebalancing(self) -> Rebalancing | None:
        return self.machine.rebalancing

    def peers(self) -> list[PeerSeen]:
        return [
            PeerSeen(peer.node, port.hellos.link.name, peer.alive, peer.draining)
            for index, peers in self.machine.peers(self._clock()).items()
            if (port := self._ports.get(index)) is not None
            for peer in peers
        ]

    # ── The machine ───────────────────────────────────────────────────────────────────────────────────────────

    def hear(self) -> None:
        """Read every hello that waits. Called before anything is answered (rule 28)."""
        for port in list(self._ports.values()):
            self._hear_or_drop(port)

    def _hear_or_drop(self, port: _Port) -> None:
        """What a bug of ours keeps from being read is dropped: left there, it would be tried again without a pause."""
        try:
            self._hear(port)
        except Exception as error:
            self._told.internal_error("hear", error)
            port.hellos.drop_queued()

    def _hear(self, port: _Port) -> None:
        try:
            hellos = port.hellos.receive()
        except EdgeError as error:
            port.fail(error)
            return
        for hello, mac in hellos:
            event = HelloHeard(port.hellos.link.index, hello, mac, looped=mac in self._ever_macs)
            self._tell(event, partial(self._meet, port, event))

    def _meet(self, port: _Port, heard: HelloHeard) -> None:
        """A hello that counts says which MAC and which addresses are its sender's."""
        hello = heard.hello
        if heard.mac is None or not self.machine.believed(heard.link, hello):
            return
        self._expect(port, hello)
        self._note_informed(port, hello)
        known = port.speakers.get(hello.node)
        speaker = Speaker(heard.mac, hello.addresses or (known.addresses if known is not None else ()))
        if known != speaker:
            if len(port.speakers) >= MAX_SENDERS:
                first = next(iter(port.speakers))
                del port.speakers[first]
                port.heard_at.pop(first, None)
            port.speakers[hello.node] = speaker
            self._told.speaker(heard.link, hello.node, speaker)
            self._acquaint(port)
        port.heard_at[hello.node] = self._clock()

    # What others say on the LAN. Hellos first: nobody is silent whose hello lies here unread.

    def _hear_frame(self, link: int) -> None:
        self.hear()
        self._tell(FrameHeard(link))

    def _found(self, link: int, address: bytes, mac: Mac) -> None:
        """A probe for what we are about to answer for was answered. Not in the middle of what others said."""
        answer = Answer(ip_address(address), mac)
        asyncio.get_running_loop().call_soon(partial(self._hear_answer, link, answer, probed=True))

    def _hear_answer(self, link: int, answer: Answer, *, probed: bool = False) -> None:
        self.hear()
        if (port := self._ports.get(link)) is None:
            return
        node = next((node for node, speaker in port.speakers.items() if speaker.mac == answer.mac), None)
        now, known = self._clock(), (answer.address, node, probed)
        if now - port.answered_since >= PAUSE:
            port.answered.clear()
            port.answered_since = now
        if known in port.answered:
            return
        port.answered.add(known)
        self._tell(EipAnswered(answer.address, link, node, probed))
        if node is not None and now - port.heard_at.get(node, float("-inf")) >= FILTERED * self._times.dead:
            self._note_filtered(port, node, answer.address)

    def _note_filtered(self, port: _Port, node: str, eip: IPAddress) -> None:
        if node not in port.filtered:
            port.filtered[node] = set()
            loop = asyncio.get_running_loop()
            loop.call_later(FILTERED_SECONDS, self._tell_filtered, port.hellos.link.index, node)
        port.filtered[node].add(eip)

    def _tell_filtered(self, link: int, node: str) -> None:
        if (port := self._ports.get(link)) is not None and node in port.speakers and node in port.filtered:
            eips = frozenset(port.filtered.pop(node))
            self._told.hellos_filtered(port.hellos.link, node, port.speakers[node].mac, eips)

    def _ask(self, order: Ask) -> None:
        if (port := self._ports.get(order.link)) is not None:
            silent = [port.speakers[node] for node in order.nodes if node in port.speakers] if order.anybody else []
            own = self._addresses.get(order.link, ())
            self._inquiries.ask(port.hellos.link, own, order.eips, silent, anybody=order.anybody)

    def _expect(self, port: _Port, hello: Hello) -> None:
        """Its next one."""
        port.due.pop(hello.node, None)
        if len(port.due) < MAX_SENDERS:
            port.due[hello.node] = self._clock() + OVERDUE * max(self._times.hello, hello.interval / 1000)
        self._await_overdue()

    def _await_overdue(self) -> None:
        if self._overdue is not None:
            self._overdue.cancel()
        due = min((next(iter(port.due.values())) for port in self._ports.values() if port.due), default=None)
        loop = asyncio.get_running_loop()
        self._overdue = loop.call_later(max(0.0, due - self._clock()), self._miss) if due is not None else None

    def _miss(self) -> None:
        """A hello is overdue: its sender is not awaited any more until it is heard again."""
        with contained("hear", self._told):
            self.hear()  # nobody is late whose hello lies here unread
        now = self._clock()
        for port in self._ports.values():
            late = [node for node, due in port.due.items() if due <= now]
            for node in late:
                del port.due[node]
            if late:
                self.doubted.set()
        self._await_overdue()

    def _excuses(self, link: int, address: bytes, mac: Mac) -> bool:
        """A peer's MAC alone is no excuse for speaking for an EIP of ours: it must claim it, or have done so lately."""
        port, eip, now = self._ports.get(link), ip_address(address), self._clock()
        return (
            port is None
            or mac in self._macs
            or any(
                speaker.mac == mac and self.machine.speaks_for(link, node, eip, now)
                for node, speaker in port.speakers.items()
            )
        )

    def _acquaint(self, port: _Port) -> None:
        """The MACs of peers and of ourselves are no strangers'."""
        macs = self._macs.union(speaker.mac for speaker in port.speakers.values())
        self._fleet.peers(port.hellos.link.index, macs)

    def _tick(self) -> None:
        self._alarm = None
        with contained("hear", self._told):
            self.hear()  # nobody is silent whose hello lies here unread
        self._tell(Tick())
        with contained("peers", self._told):
            self._tell_of_peers()

    def _tell(self, event: Event, first: Callable[[], None] = lambda: None) -> None:
        """``first``: to be done before what the event leads to. Whatever is raised ends what this event was to bring,
        and never the alarms that follow."""
        now = self._clock()
        wake = now + AGAIN_SECONDS
        with contained("ownership", self._told):
            orders = self.machine.step(now, event)
            with contained("meet", self._told):
                first()
            self._carry_out(orders, now)
            if self.machine.incarnation != self._incarnation:
                self._incarnation = self.machine.incarnation
                self._clerk.incarnation(self._incarnation)
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
            drop_each(self._fleet, [order.eip for order in given_up], self._told)
            for gone in given_up:
                with contained("withdraw", self._told):
                    self._let_go(gone)
        for order in orders:
            if isinstance(order, SendHello):
                with contained("send hello", self._told):
                    self._send(order.link, order.hello, now)
        taken = [order for order in orders if isinstance(order, Claim)]
        if taken:
            self._take(taken)
        for order in orders:
            with contained("order", self._told):
                match order:
                    case Announce(eips=eips):
                        self._fleet.announce(eips)
                    case Listen():
                        self._listen(now)
                    case Ask():
                        self._ask(order)
                    case WriteRecord():
                        self._clerk.write_record(order)
                    case PeersAddress(eip=eip, node=node):
                        self._note_peers_address(eip, node)
                    case NameClash(link=link, mac=mac, silent=silent):
                        if silent:
                            self._clerk.silence()
                        port = self._ports.get(link) if link is not None else None
                        self._clash = port.hellos.link if port is not None else None, mac, silent
                        self._told.name_clash(*self._clash)
                    case NameFree():
                        self._clash = None
                        self._told.name_free()
                    case InternalError(doing=doing, what=what, error=error):
                        error.add_note(what)
                        self._told.internal_error(f"ownership: {doing}", error)
                    case _:
                        pass

    def _note_peers_address(self, eip: IPAddress, node: str | None) -> None:
        self._peers_own.pop(eip, None)
        if node is not None:
            self._peers_own[eip] = node
        self._told.peers_address(eip, node)

    def _take(self, orders: Iterable[Claim]) -> None:
        spots = {order.eip: self._spots[order.eip] for order in orders if order.eip in self._spots}
        probe = frozenset(order.eip for order in orders if order.first)
        drop_each(self._fleet, [eip for eip in spots.keys() - probe if eip in self._claims], self._told)  # probed for
        taken, failed = take_each(self._fleet, spots, probe, self._told)
        if failed:
            asyncio.get_running_loop().call_soon(self._set_aside, failed)  # not in the middle of these orders
        terms = {order.eip: order.term for order in orders}
        for eip in taken:
            self._claims[eip] = _Claim(terms[eip], time.time())
            self._told.claimed(eip, spots[eip], terms[eip], self.machine.held_before(eip))

    def _set_aside(self, eips: Iterable[IPAddress]) -> None:
        for eip in eips:
            self._tell(SetAside(eip))

    def _let_go(self, order: Withdraw) -> None:
        if self._claims.pop(order.eip, None) is None:
            return
        self._told.yielded(order.eip, order.reason.value, self.standing(order.eip).holder)

    def _send(self, link: int, hello: Hello, now: float) -> None:
        port = self._ports.get(link)
        if port is None:
            return
        if self._clock() - now > self._times.request_age:
            # Frozen between deciding and sending: what it says of the others' ages is no longer true.
            self.machine.speak_again()
            return
        try:
            addresses, own = self._addresses.get(link, ()), self._bound.get(link, frozenset())
            left = port.hellos.send(replace(hello, addresses=addresses, own=own, recalled=self._recalled))
        except EdgeError as error:
            port.fail(error)
            return
        self._told.hellos_sent(port.hellos.link.name, left, 1)
        if left:
            port.left_at = now
            self._fleet.extend(now + self._times.self_lease, link)
        elif now - port.left_at >= self._times.self_lease:
            port.fail(EdgeError(f"{port.hellos.link.name}: no hello left for {self._times.self_lease} s"))

    def _listen(self, now: float) -> None:
        """We were away: what waits is from another time."""
        self._fleet.extend(float("-inf"))
        self._fleet.drop_queued()
        for port in self._ports.values():
            port.hellos.drop_queued()
        self._told.frozen()

    # ── Links ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def _serve_link(self, link: Link) -> None:
        async for attempt in retrying(partial(self._lost, link), on=EdgeError, multiplier=0.05, limit=RETRY_MAX):
            with attempt:
                await self._serve_once(link)

    def _lost(self, link: Link, error: Exception) -> None:
        """What nobody foresaw gives up the link until it is answered on again: a claim that nobody answers for is worse
        than none."""
        if not isinstance(error, EdgeError):
            self._told.internal_error("link", error)
            self._unanswered.add(link.index)
            if (port := self._ports.get(link.index)) is not None:
                port.fail(EdgeError(f"{link.name}: it is not answered on"))
        self._told.lost_link(link, str(error))

    async def _serve_once(self, link: Link) -> None:
        if link.index in self._no_carrier:
            raise EdgeError(f"{link.name}: no carrier")
        if link.index in self._unanswered and not self._fleet.answers_on(link.index):
            raise EdgeError(f"{link.name}: it is not answered on")
        self._unanswered.discard(link.index)
        loop = asyncio.get_running_loop()

        def count(rejected: Enum | None) -> None:
            self._told.hellos_received(link.name, rejected, 1)

        with Hellos(link, self._keys, self._ethertype, self._clock, count) as hellos:
            port = self._ports[link.index] = _Port(hellos, self._clock(), loop.create_future())

            loop.add_reader(hellos, self._hear_or_drop, port)
            try:
                self._acquaint(port)
                self._tell(LinkChanged(link.index, up=True))
                raise EdgeError(await port.failed)
            finally:
                loop.remove_reader(hellos)
                if self._ports.get(link.index) is port:
                    del self._ports[link.index]
                    self._inquiries.close(link.index)
                    self._tell(LinkChanged(link.index, up=False))

    def _tell_of_peers(self) -> None:
        """Who came and who fell silent."""
        peers = self.machine.peers(self._clock())
        now = {(index, peer.node): peer.alive for index, some in peers.items() for peer in some}
        for (index, node), alive in now.items():
            if self._heard.get((index, node), False) is not alive and (port := self._ports.get(index)) is not None:
                self._told.peer(node, port.hellos.link, alive)
        if self._recalled and self._heard != now:
            self._offer_soon(self.indexes)
        self._heard = now
        for index, port in self._ports.items():
            number = sum(alive for (at, _), alive in now.items() if at == index)
            if self._counted.get(index) != number:
                self._counted[index] = number
                self._told.peers(port.hellos.link.name, number)


def incarnate(known: Incarnation) -> Incarnation:
    """A life above ``known``."""
    fresh = incarnation(int(time.time()), secrets.randbits(31))
    return fresh if fresh > known else above(known, secrets.randbits(31))
