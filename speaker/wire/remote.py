"""The wire process as the main process sees it."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Concatenate, ParamSpec, Self, TypeAlias, TypeVar

from speaker.errors import EdgeError, WireError
from speaker.model import IPAddress, Link, Mac, Placement
from speaker.model.events import EipClaimed, EipYielded, PeerChanged
from speaker.ownership import events
from speaker.ownership.balance import Rebalancing
from speaker.ownership.hello import Addresses, Incarnation
from speaker.system.supervise import Supervisor, contained
from speaker.system.waiting import get_on
from speaker.wire.messages import (
    Began,
    ClaimStatus,
    Commands,
    Hears,
    Reply,
    Request,
    Spec,
    Stop,
    ToWire,
    UseAddresses,
    WireEvent,
)

A_SLICE = 50
"""EIPs in one message: the wire process takes some milliseconds for it, and answers requests in between."""
_K = TypeVar("_K")
_P = ParamSpec("_P")
_R = TypeVar("_R")

Among: TypeAlias = Collection[IPAddress] | None
"""Only these may have changed since the previous call; None: any."""


def _asks(command: Callable[Concatenate[Commands, _P], _R]) -> Callable[Concatenate["Wire", _P], Awaitable[_R]]:
    async def ask(wire: "Wire", /, *arguments: _P.args, **named: _P.kwargs) -> _R:
        return await wire._ask(command, *arguments, **named)

    return ask


class Wire:
    """Entering it introduces us. While ``watch`` runs, each of ``hearers`` hears its events, and ``supervisor`` hears
    what goes wrong there. ``end`` is the socket that the wire process gave us."""

    def __init__(
        self,
        end: socket.socket,
        spec: Spec,
        supervisor: Supervisor,
        hearers: Sequence[Hears] = (),
    ) -> None:
        self._end, self._spec, self._supervisor, self._hearers = end, spec, supervisor, hearers
        self._offered: dict[IPAddress, Placement] = {}
        """As the wire process has it; the difference from what is asked for has to be changed there."""
        self._unsure: set[IPAddress] = set()
        """EIPs whose offer it has not answered, or met a bug over: they are offered again."""
        self._held: set[IPAddress] = set()
        """As far as it has reported."""
        self._handing_over: list[asyncio.Queue[tuple[IPAddress, str | None]]] = []
        self._replies: dict[int, asyncio.Future[Any]] = {}
        self._number = 0
        self._addresses: UseAddresses | None = None
        """As last sent."""
        self.draining = False
        """As last asked for."""
        self.peers_changed = asyncio.Event()
        """Set when a peer was heard or fell silent."""
        self._channel: ToWire

    async def __aenter__(self) -> Self:
        self._channel = await ToWire.over(self._end)
        self._channel.send(self._spec)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._channel.close()

    @property
    def held(self) -> frozenset[IPAddress]:
        """The EIPs that this node answers for, as far as the wire process has reported."""
        return frozenset(self._held)

    async def watch(self, stop: Callable[[], None] = lambda: None) -> None:
        """Hears its events. ``stop`` is called when it asks for the end. Never returns; raises EdgeError when it is
        gone."""
        heard = 0
        async for message in self._channel.messages():
            heard += 1
            if heard % A_SLICE == 0:
                await asyncio.sleep(0)  # what was read together is available without waiting
            if isinstance(message, Stop):
                stop()
                continue
            with contained("wire message", self._supervisor):
                if isinstance(message, Reply):
                    self._take_reply(message)
                else:
                    self._hear(message)
        for reply in self._replies.values():
            reply.cancel()
        raise EdgeError("the wire process ended by itself: its messages on stderr say why")

    def _hear(self, message: Began | WireEvent) -> None:
        self._note(message)
        for each in self._hearers:
            with contained("wire message", self._supervisor):
                each.hear(message)

    def _take_reply(self, reply: Reply) -> None:
        waiting = self._replies.pop(reply.number)
        if waiting.done():  # the caller was cancelled
            return
        if reply.error:
            waiting.set_exception(WireError(f"the wire process: {reply.error}"))
        else:
            waiting.set_result(reply.result)

    def _note(self, event: Began | WireEvent) -> None:
        match event:
            case Began(found=found):
                self._offered, self._held, self.draining = dict(found.offered), set(found.held), found.draining
            case EipClaimed():
                self._held.add(event.eip)
            case EipYielded():
                self._held.discard(event.eip)
                self.peers_changed.set()  # it may be a sick link that hands over
                for queue in self._handing_over:
                    queue.put_nowait((event.eip, event.holder))
            case PeerChanged():
                self.peers_changed.set()

    async def _ask(
        self, command: Callable[Concatenate[Commands, _P], _R], *arguments: _P.args, **named: _P.kwargs
    ) -> _R:
        self._number += 1
        reply: asyncio.Future[_R] = asyncio.get_running_loop().create_future()
        self._replies[self._number] = reply
        self._channel.send(Request(self._number, command.__name__, arguments, named))
        get_on()
        result = await reply
        get_on()
        return result

    # ── what this node may hold ──

    async def withdraw_except(self, placements: Mapping[IPAddress, Placement], among: Among = None) -> None:
        """Give up what is not in ``placements``, or is there on another link. On return, nothing is answered for it."""
        offered = self._offered
        asked = offered if among is None else among
        gone = [a for a in asked if a in offered and not _same_link(offered[a], placements.get(a))]
        for some in _slices(gone):
            await self._ask(Commands.withdraw, some)
            for address in some:
                self._offered.pop(address, None)
            self._unsure.difference_update(some)

    async def offer(
        self,
        placements: Mapping[IPAddress, Placement],
        links: Collection[Link],
        macs: frozenset[Mac],
        among: Among = None,
    ) -> bool:
        """This node may hold these and no others, on ``links``; forwarding for them is in place. ``macs``: every MAC of
        this host, so that it is not taken for a stranger. In the wire process ``process.py`` hands this to the owner,
        ``shared.py``. Returns whether all were taken; the others are offered again the next time."""
        await self.withdraw_except(placements, among)
        self._unsure &= placements.keys()
        await self._ask(Commands.use_links, tuple(links), macs)  # even if unchanged: the carriers are checked then
        asked = placements if among is None else among
        changed = {a: placements[a] for a in asked if a in placements and self._offered.get(a) != placements[a]}
        changed |= {a: placements[a] for a in self._unsure if a in placements}
        for some in _slices(changed):
            these = {address: changed[address] for address in some}
            self._offered.update(these)  # before it is held, as that may be reported before the reply comes
            self._unsure.update(these)
            refused = await self._ask(Commands.offer, these)
            for address in refused:
                self._offered.pop(address, None)
            self._unsure.difference_update(these.keys() - refused)
        await self._ask(Commands.offered_all)
        return not self._unsure

    async def addresses(
        self,
        own: Mapping[int, Addresses],
        bound: Mapping[int, frozenset[IPAddress]] = MappingProxyType({}),
        gateways: Mapping[int, tuple[IPAddress, ...]] = MappingProxyType({}),
    ) -> None:
        """This node's own addresses on its links, by index, for its hellos: one of each family, and all of them; and
        its gateways' addresses there. Only with peers."""
        told = UseAddresses(dict(own), dict(bound), dict(gateways))
        if told != self._addresses:  # each reply that is waited for delays an EIP's answer
            self._addresses = None
            await self._ask(Commands.use_addresses, told)
            self._addresses = told

    def offered(self, address: IPAddress) -> Placement | None:
        """Where this node may hold it; None if it may not."""
        return self._offered.get(address)

    # ── what the API server says; only with one ──

    async def records(self, records: Iterable[tuple[IPAddress, events.Record]]) -> None:
        """As they are now."""
        for some in _slices(records):
            await self._ask(Commands.api_says, [events.RecordRead(*each) for each in some])

    async def restored(self) -> None:
        """An older backup of the API server's data was restored: all records are sent again after this."""
        await self._ask(Commands.api_says, [events.RecordsRestored()])

    async def written(self, order: events.WriteRecord, succeeded: bool, record: events.Record | None) -> None:
        """The reply to ``order``. ``record``: what is there now, if known."""
        await self._ask(Commands.api_says, [events.RecordWritten(order.eip, order.attempt, succeeded, record)])

    async def leases(self, leases: Iterable[tuple[str, Incarnation, bool]]) -> None:
        """Node, incarnation, and whether it was renewed while we looked (``LeaseSeen``)."""
        for some in _slices(leases):
            await self._ask(Commands.api_says, [events.LeaseSeen(*each) for each in some])

    async def api(self, up: bool) -> None:
        """Whether the API server answers: mirrors are whole and our own Lease was just renewed, or not."""
        await self._ask(Commands.api_says, [events.ApiUp() if up else events.ApiDown()])

    # ── commands that are asked as they are ──

    ready, peers, has_peers = _asks(Commands.ready), _asks(Commands.peers), _asks(Commands.has_peers)
    demote, recalled, gateway = _asks(Commands.demote), _asks(Commands.recalled), _asks(Commands.gateway)
    behind = _asks(Commands.behind)
    recorded, informed = _asks(Commands.recorded), _asks(Commands.informed)
    progress, hold_lock, keys = _asks(Commands.progress), _asks(Commands.hold_lock), _asks(Commands.keys)

    async def claim_statuses(self, addresses: Iterable[IPAddress]) -> dict[IPAddress, ClaimStatus]:
        found: dict[IPAddress, ClaimStatus] = {}
        for some in _slices(addresses):
            claims = await self._ask(Commands.claims_of, some)
            found.update(zip(some, claims, strict=True))
        return found

    # ── what an operator asks; only with peers ──

    async def drain(self) -> AsyncIterator[tuple[IPAddress, str | None]]:
        """Hand everything over. Yields each EIP as it goes, with the node that took it (None: it was given up)."""
        queue: asyncio.Queue[tuple[IPAddress, str | None]] = asyncio.Queue()
        self._handing_over.append(queue)
        try:
            left = set(self._held)
            await self.set_draining(True)
            while left:
                address, holder = await queue.get()
                if address in left:
                    left.discard(address)
                    yield address, holder
        finally:
            self._handing_over.remove(queue)

    async def set_draining(self, on: bool) -> None:
        """Like ``drain``, without waiting; or the end of it."""
        self.draining = on
        await self._ask(Commands.drain, on)

    async def rebalance(self) -> AsyncIterator[Rebalancing]:
        """Moves EIPs until the load is even. Yields the progress until it is done."""
        state = await self._ask(Commands.rebalance)
        while state is not None:
            yield state
            if state.finished:
                return
            await asyncio.sleep(_FOLLOW)
            state = await self._ask(Commands.rebalancing)


_FOLLOW = 0.05
"""Seconds between two looks at a rebalancing."""


def _same_link(placement: Placement, other: Placement | None) -> bool:
    """Answered on the same link with the same MAC, so one can become the other without a gap."""
    return other is not None and (placement.link.index, placement.link.mac) == (other.link.index, other.link.mac)


def _slices(addresses: Iterable[_K]) -> Iterable[list[_K]]:
    listed = list(addresses)
    return (listed[at : at + A_SLICE] for at in range(0, len(listed), A_SLICE))
