"""The wire process as ``run.py`` sees it."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Protocol, Self, TypeAlias, TypeVar, cast

import speaker
from speaker.child import end_with
from speaker.errors import EdgeError
from speaker.layer2.fleet import Spot
from speaker.model import IPAddress, Link, Mac
from speaker.ownership.balance import Rebalancing
from speaker.ownership.events import Record, WriteRecord
from speaker.ownership.hello import Addresses, Incarnation
from speaker.wire.channel import Channel
from speaker.wire.process import Spec
from speaker.wire.told import Acquaintances, Clerk, PeerSeen, Standing, Told

A_SLICE = 50
"""EIPs in one message: the wire process takes some milliseconds for it, and answers in between."""
_END = 1.0
"""Seconds the wire process gets to end by itself."""

_K = TypeVar("_K")

Among: TypeAlias = Collection[IPAddress] | None
"""Only of these anything has changed since the call before; None: of any."""


class Listener(Told, Protocol):
    def failed(self, edge: str, error: BaseException) -> None: ...

    def peers_address(self, address: IPAddress, node: str | None) -> None: ...

    def name_clash(self, link: Link | None, mac: Mac | None, silent: bool) -> None: ...

    def name_free(self) -> None: ...


class Moves(Acquaintances, Protocol):
    """Who follows what moves here, from whom, and what moves away."""

    def claimed(self, address: IPAddress, spot: Spot, before: str | None) -> None: ...

    def yielded(self, address: IPAddress) -> None: ...


class Wire:
    """Entered, it runs and reports to ``told`` and ``clerk``; left, nothing is answered any more. ``watch`` raises when
    it dies."""

    def __init__(self, spec: Spec, told: Listener, clerk: Clerk | None = None, moves: Moves | None = None) -> None:
        self._spec, self._told, self._clerk, self._moves = spec, told, clerk, moves
        self._offered: dict[IPAddress, Spot] = {}
        self._held: set[IPAddress] = set()
        self._handing_over: list[asyncio.Queue[tuple[IPAddress, str | None]]] = []
        self._replies: dict[int, asyncio.Future[Any]] = {}
        self._number = 0
        self.draining = False
        """As it was last asked for."""
        self._channel: Channel
        self._process: asyncio.subprocess.Process

    async def __aenter__(self) -> Self:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "speaker.wire.process", str(theirs.fileno())),
                pass_fds=[theirs.fileno()],
                stdin=asyncio.subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": _path()},
                preexec_fn=_bound_to(os.getpid()),
            )
        self._channel = await Channel.over(ours)
        self._channel.send(self._spec)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._channel.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(_END):
                await self._process.wait()
                return
        self._process.kill()
        await self._process.wait()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        return self._process.returncode

    @property
    def held(self) -> frozenset[IPAddress]:
        """The EIPs that this node answers for, as far as it has told."""
        return frozenset(self._held)

    async def watch(self) -> None:
        """Hear what it tells. Never returns; raises EdgeError when it is gone."""
        heard = 0
        async for name, *arguments in self._channel.messages():
            heard += 1
            if heard % A_SLICE == 0:
                await asyncio.sleep(0)  # what was read in one go is there without waiting
            match name:
                case "reply":
                    number, result = arguments
                    self._replies.pop(number).set_result(result)
                case "tally":
                    self._count(*arguments)
                case "edge_failed":
                    edge, error = arguments
                    self._told.failed(edge, EdgeError(error))
                case "incarnation" | "silence" | "write_record":
                    if self._clerk is not None:
                        getattr(self._clerk, name)(*arguments)
                case "speaker":
                    if self._moves is not None:
                        self._moves.speaker(*arguments)
                case _:
                    self._note(name, arguments)
                    getattr(self._told, name)(*arguments)
        for reply in self._replies.values():
            reply.cancel()
        raise EdgeError("the wire process ended unasked: what it wrote to stderr says why")

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

    async def withdraw_except(self, spots: Mapping[IPAddress, Spot], among: Among = None) -> None:
        """Give up what is not in ``spots``, or is there on another link. Nothing is answered for it on return."""
        offered = self._offered
        asked = offered if among is None else among
        gone = [a for a in asked if a in offered and not _same_port(offered[a], spots.get(a))]
        for some in _slices(gone):
            await self._ask("withdraw", some)
            for address in some:
                del self._offered[address]

    async def offer(
        self, spots: Mapping[IPAddress, Spot], links: Collection[Link], macs: frozenset[Mac], among: Among = None
    ) -> None:
        """This node may hold these and no others, on ``links``: forwarding for them stands. ``macs``: every MAC of this
        host; who speaks with one of them is no stranger."""
        await self.withdraw_except(spots, among)
        await self._ask("links", tuple(links), macs)
        asked = spots if among is None else among
        changed = {a: spots[a] for a in asked if a in spots and self._offered.get(a) != spots[a]}
        for some in _slices(changed):
            these = {address: changed[address] for address in some}
            self._offered.update(these)
            await self._ask("offer", these)
        await self._ask("settled")

    async def addresses(
        self, own: Mapping[int, Addresses], bound: Mapping[int, frozenset[IPAddress]] = MappingProxyType({})
    ) -> None:
        """This node's own on its links, by index, for its hellos, one of each family and all of them; only with
        peers."""
        await self._ask("addresses", own, dict(bound))

    async def gateway(self, link: int, answers: bool) -> None:
        await self._ask("gateway", link, answers)

    def offered(self, address: IPAddress) -> Spot | None:
        """Where this node may hold it; None where it may not."""
        return self._offered.get(address)

    # ── what the API server says; only with one ──

    async def records(self, records: Iterable[tuple[IPAddress, Record]]) -> None:
        """As they stand there now."""
        for some in _slices(records):
            await self._ask("records", some)

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

    async def demote(self, on: bool) -> None:
        """For a reason that concerns the whole node, others go first."""
        await self._ask("demote", on)

    # ── the rest ──

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


def _bound_to(parent: int) -> Callable[[], None]:
    """What the child does between fork and exec: system calls only, so that other threads' locks do not matter."""

    def bind() -> None:
        # A service manager signals every process of the unit: this one ends by its parent's word, or with its parent.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        end_with(parent)

    return bind


def _path() -> str:
    """Where this very program was imported from, before all else: never the directory that it happens to run in."""
    return os.pathsep.join([str(Path(speaker.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])


_FOLLOW = 0.05
"""Seconds between two looks at a rebalancing."""


def _same_port(spot: Spot, other: Spot | None) -> bool:
    """Answered on the same link with the same MAC: one can become the other without a gap."""
    return other is not None and (spot.link.index, spot.link.mac) == (other.link.index, other.link.mac)


def _slices(addresses: Iterable[_K]) -> Iterable[list[_K]]:
    listed = list(addresses)
    return (listed[at : at + A_SLICE] for at in range(0, len(listed), A_SLICE))
