"""The wire process as the main process sees it."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from types import MappingProxyType, TracebackType
from typing import Any, Protocol, Self, TypeAlias, TypeVar, cast

from speaker.errors import EdgeError, WireError
from speaker.layer2.links import Placement
from speaker.model import IPAddress, Link, Mac
from speaker.ownership.balance import Rebalancing
from speaker.ownership.events import Record, WriteRecord
from speaker.ownership.hello import Addresses, Incarnation
from speaker.system.supervise import Supervisor, contained
from speaker.wire.channel import Channel
from speaker.wire.process import Before, Spec
from speaker.wire.told import Acquaintances, Clerk, PeerSeen, Resumed, Standing, Told

A_SLICE = 50
"""EIPs in one message: the wire process takes some milliseconds for it, and answers in between."""
_K = TypeVar("_K")

Among: TypeAlias = Collection[IPAddress] | None
"""Only of these anything has changed since the call before; None: of any."""


class Listener(Told, Supervisor, Protocol):
    def failed(self, edge: str, error: BaseException) -> None: ...

    def recovered(self, edge: str) -> None: ...

    def taken_over(self, end: str, away: float, held: int) -> None:
        """Another main process was here before: how it ended, how long ago in seconds, and so many EIPs are held."""

    def wire_error(self, task: str, words: str, place: str, trace: str) -> None:
        """What nobody foresaw, met by the wire process."""

    def wire_error_again(self, task: str, count: int) -> None:
        """From lines of code that it was told of before."""

    def peers_address(self, address: IPAddress, node: str | None) -> None: ...

    def name_clash(self, link: Link | None, mac: Mac | None, silent: bool) -> None: ...

    def name_free(self) -> None: ...

    def hellos_filtered(self, link: Link, node: str, mac: Mac, eips: frozenset[IPAddress]) -> None: ...


class Moves(Acquaintances, Protocol):
    """Who follows what moves here, from whom, and what moves away."""

    def claimed(self, address: IPAddress, spot: Placement, before: str | None) -> None: ...

    def yielded(self, address: IPAddress) -> None: ...


class Wire:
    """Entered, it knows us and reports to ``told``, ``clerk`` and ``moves`` for as long as ``watch`` runs. ``end`` is
    the socket that it gave us."""

    def __init__(
        self,
        end: socket.socket,
        spec: Spec,
        told: Listener,
        clerk: Clerk | None = None,
        moves: Moves | None = None,
    ) -> None:
        self._end, self._spec, self._told, self._clerk, self._moves = end, spec, told, clerk, moves
        self._offered: dict[IPAddress, Placement] = {}
        self._held: set[IPAddress] = set()
        self._handing_over: list[asyncio.Queue[tuple[IPAddress, str | None]]] = []
        self._replies: dict[int, asyncio.Future[Any]] = {}
        self._number = 0
        self._addresses: tuple[object, ...] | None = None
        """As last told."""
        self.draining = False
        """As it was last asked for."""
        self.peers_changed = asyncio.Event()
        """One was heard, or fell silent."""
        self._channel: Channel

    async def __aenter__(self) -> Self:
        self._channel = await Channel.over(self._end)
        self._channel.send(self._spec)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._channel.close()

    @property
    def held(self) -> frozenset[IPAddress]:
        """The EIPs that this node answers for, as far as it has told."""
        return frozenset(self._held)

    async def watch(self, stop: Callable[[], None] = lambda: None) -> None:
        """Hear what it tells; ``stop`` is called when it asks for the end. Never returns; raises EdgeError when it is
        gone."""
        heard = 0
        async for name, *arguments in self._channel.messages():
            heard += 1
            if heard % A_SLICE == 0:
                await asyncio.sleep(0)  # what was read in one go is there without waiting
            if name == "stop":
                stop()
                continue
            with contained("wire message", self._told):
                self._hear(name, arguments)
        for reply in self._replies.values():
            reply.cancel()
        raise EdgeError("the wire process ended unasked: what it wrote to stderr says why")

    def _hear(self, name: str, arguments: list[Any]) -> None:
        match name:
            case "reply":
                self._reply(*arguments)
            case "resumed":
                self._resume(*arguments)
            case "tally":
                self._count(*arguments)
            case "edge_failed":
                edge, error = arguments
                self._told.failed(edge, EdgeError(error))
            case "edge_recovered":
                self._told.recovered(*arguments)
            case "incarnation" | "silence" | "write_record":
                if self._clerk is not None:
                    getattr(self._clerk, name)(*arguments)
            case "speaker":
                if self._moves is not None:
                    self._moves.speaker(*arguments)
            case _:
                self._note(name, arguments)
                getattr(self._told, name)(*arguments)

    def _reply(self, number: int, result: Any, error: str) -> None:
        reply = self._replies.pop(number)
        if reply.done():  # whoever asked was cancelled
            return
        if error:
            reply.set_exception(WireError(f"the wire process: {error}"))
        else:
            reply.set_result(result)

    def _resume(self, before: Before, found: Resumed) -> None:
        """It may be at work already, by what another main process said."""
        self._offered, self._held, self.draining = dict(found.offered), set(found.held), found.draining
        if self._moves is not None:
            for link, node, speaker in found.speakers:
                self._moves.speaker(link, node, speaker)
            for address, taken in found.held.items():
                self._moves.claimed(address, *taken)
        if self._clerk is not None and found.incarnation is not None:
            self._clerk.incarnation(found.incarnation)
        if before.end:
            self._told.taken_over(before.end, before.away, len(found.held))

    def _count(self, counts: Mapping[tuple[Any, ...], int], delays: Iterable[tuple[float, float]]) -> None:
        for (name, *arguments), count in counts.items():
            getattr(self._told, name)(*arguments, count)
        for late, busy in delays:
            self._told.loop_delay(late, busy)

    def _note(self, name: str, arguments: list[Any]) -> None:
        if name == "claimed":
            address, spot, _, before = arguments
            self._held.add(address)
            if self._moves is not None:
                self._moves.claimed(address, spot, before)
        elif name == "peer":
            self.peers_changed.set()
        elif name == "yielded":
            address, _, holder = arguments
            self._held.discard(address)
            if self._moves is not None:
                self._moves.yielded(address)
            for queue in self._handing_over:
                queue.put_nowait((address, holder))

    async def _ask(self, name: str, *arguments: Any) -> Any:
        self._number += 1
        reply = self._replies[self._number] = asyncio.get_running_loop().create_future()
        self._channel.send(self._number, name, arguments)
        return await reply

    # ── what this node may hold ──

    async def withdraw_except(self, spots: Mapping[IPAddress, Placement], among: Among = None) -> None:
        """Give up what is not in ``spots``, or is there on another link. Nothing is answered for it on return."""
        offered = self._offered
        asked = offered if among is None else among
        gone = [a for a in asked if a in offered and not _same_port(offered[a], spots.get(a))]
        for some in _slices(gone):
            await self._ask("withdraw", some)
            for address in some:
                self._offered.pop(address, None)

    async def offer(
        self, spots: Mapping[IPAddress, Placement], links: Collection[Link], macs: frozenset[Mac], among: Among = None
    ) -> None:
        """This node may hold these and no others, on ``links``: forwarding for them stands. ``macs``: every MAC of this
        host; who speaks with one of them is no stranger."""
        await self.withdraw_except(spots, among)
        await self._ask("links", tuple(links), macs)  # as they were, too: the carriers are looked at then
        asked = spots if among is None else among
        changed = {a: spots[a] for a in asked if a in spots and self._offered.get(a) != spots[a]}
        for some in _slices(changed):
            these = {address: changed[address] for address in some}
            self._offered.update(these)  # before it is held, which may be told before the reply comes
            for refused in await self._ask("offer", these):
                self._offered.pop(refused, None)
        await self._ask("settled")

    async def addresses(
        self,
        own: Mapping[int, Addresses],
        bound: Mapping[int, frozenset[IPAddress]] = MappingProxyType({}),
        gateways: Mapping[int, tuple[IPAddress, ...]] = MappingProxyType({}),
    ) -> None:
        """This node's own on its links, by index, for its hellos, one of each family and all of them; and those of its
        gateways there. Only with peers."""
        told = dict(own), dict(bound), dict(gateways)
        if told != self._addresses:  # each reply that is waited for keeps an EIP from its answer
            self._addresses = None
            await self._ask("addresses", *told)
            self._addresses = told

    async def gateway(self, link: int, answers: bool) -> None:
        await self._ask("gateway", link, answers)

    def offered(self, address: IPAddress) -> Placement | None:
        """Where this node may hold it; None where it may not."""
        return self._offered.get(address)

    # ── what the API server says; only with one ──

    async def records(self, records: Iterable[tuple[IPAddress, Record]]) -> None:
        """As they stand there now."""
        for some in _slices(records):
            await self._ask("records", some)

    async def restored(self) -> None:
        """An older backup of the API server's data was restored: all records are told again after this."""
        await self._ask("restored")

    async def recorded(self) -> tuple[IPAddress, ...]:
        """The EIPs of which, for all that the wire process knows, there is a record."""
        return cast(tuple[IPAddress, ...], await self._ask("recorded"))

    async def written(self, order: WriteRecord, succeeded: bool, record: Record | None) -> None:
        """The reply to ``order``; ``record``: what stands there now, where that is known."""
        await self._ask("written", order.eip, order.attempt, succeeded, record)

    async def leases(self, leases: Iterable[tuple[str, Incarnation, bool]]) -> None:
        """Node, incarnation, and whether it was renewed while we looked (``LeaseSeen``)."""
        for some in _slices(leases):
            await self._ask("leases", some)

    async def api(self, up: bool) -> None:
        """Whether the API server answers: mirrors are whole and our own Lease was just renewed, or not."""
        await self._ask("api", up)

    async def informed(self) -> bool:
        """Some living peer holds what it may by what it reads of the API, for all that it says."""
        return cast(bool, await self._ask("informed"))

    async def demote(self, on: bool) -> None:
        """For a reason that concerns the whole node, others go first."""
        await self._ask("demote", on)

    async def recalled(self, on: bool) -> None:
        """What is offered is what the API said before our start."""
        await self._ask("recalled", on)

    # ── the rest ──

    async def hold_lock(self) -> None:
        """That of the runtime directory, should it have been removed. Raises EdgeError."""
        await self._ask("lock")

    async def keys(self, secrets: tuple[bytes, ...]) -> None:
        await self._ask("keys", secrets)

    # ── how things are ──

    async def standings(self, addresses: Iterable[IPAddress]) -> dict[IPAddress, Standing]:
        found: dict[IPAddress, Standing] = {}
        for some in _slices(addresses):
            found.update(zip(some, await self._ask("standings", some), strict=True))
        return found

    async def ready(self) -> bool:
        """What it may hold of what it was offered, it holds or knows who does."""
        return cast(bool, await self._ask("ready"))

    async def peers(self) -> list[PeerSeen]:
        return cast(list[PeerSeen], await self._ask("peers"))

    # ── what an operator asks; only with peers ──

    async def drain(self) -> AsyncIterator[tuple[IPAddress, str | None]]:
        """Hand everything over; each EIP as it goes, with the node that took it (None: it was given up)."""
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
        """As ``drain``, without waiting for it; or the end of it."""
        self.draining = on
        await self._ask("drain", on)

    async def has_peers(self) -> bool:
        """Somebody could take over."""
        return cast(bool, await self._ask("has_peers"))

    async def rebalance(self) -> AsyncIterator[Rebalancing]:
        """Move EIPs until the load is level; how far it is, over and over until it is done."""
        state: Rebalancing | None = await self._ask("rebalance")
        while state is not None:
            yield state
            if state.finished:
                return
            await asyncio.sleep(_FOLLOW)
            state = await self._ask("rebalancing")


_FOLLOW = 0.05
"""Seconds between two looks at a rebalancing."""


def _same_port(spot: Placement, other: Placement | None) -> bool:
    """Answered on the same link with the same MAC: one can become the other without a gap."""
    return other is not None and (spot.link.index, spot.link.mac) == (other.link.index, other.link.mac)


def _slices(addresses: Iterable[_K]) -> Iterable[list[_K]]:
    listed = list(addresses)
    return (listed[at : at + A_SLICE] for at in range(0, len(listed), A_SLICE))
