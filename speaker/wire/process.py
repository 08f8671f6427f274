"""The wire process at work: it does what the main process of the moment tells it, and goes on when that one is gone.

``parent.py`` starts the main processes; this is what lies between them and the owner of the EIPs.
"""

import asyncio
import socket
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from enum import Enum
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple, NoReturn, Self, TypeAlias

from speaker.errors import EdgeError
from speaker.interfaces.carrier import watch_carrier
from speaker.layer2.links import Placement
from speaker.model import Family, IPAddress, Link, Mac
from speaker.ownership.events import WriteRecord
from speaker.ownership.hello import Incarnation
from speaker.ownership.hellos.keys import Key, Keys
from speaker.ownership.machine.machine import Ownership
from speaker.ownership.parameters import Parameters
from speaker.system.clock import boottime
from speaker.system.garbage import settle
from speaker.system.retry import retrying
from speaker.system.supervise import described, supervised
from speaker.telemetry.lateness import watch_loop
from speaker.wire.alone import Alone
from speaker.wire.channel import Channel
from speaker.wire.shared import Shared, incarnate
from speaker.wire.told import Resumed, Speaker

MAX_WAITING = 64 * 2**20
"""Bytes that a main process may leave unread: one that does not read them is started anew."""
MAX_DELAYS = 1000
"""That wait to be told; of more only the longest is."""
TALLY_SECONDS = 2.0
"""Counts are handed on so long after the first of them."""


class PeerSpec(NamedTuple):
    """``secrets``: of the key that signs, and of another that is accepted if there is one. ``api``: there is an API
    server that keeps records; ``revision`` as in ``Hello``."""

    hello: float
    ethertype: int
    secrets: tuple[bytes, ...]
    api: bool = False
    revision: int = 0


class Spec(NamedTuple):
    """The first message. ``peers`` None: this node is alone."""

    node: str
    peers: PeerSpec | None


_Owner: TypeAlias = Alone | Shared


class Before(NamedTuple):
    """The main process before this one: how it ended ('' where there was none), and for how many seconds there was
    none."""

    end: str = ""
    away: float = 0.0


class Tally:
    """Tells of transitions at once and of counts a few times a second. A ``SharedTold`` and a ``Clerk``."""

    def __init__(self, send: Callable[..., None], read: Callable[[], bool] = lambda: True) -> None:
        """``read``: whoever is told keeps up; counts wait until it does."""
        self._send, self._read = send, read
        self._counts: Counter[tuple[Any, ...]] = Counter()
        self._delays: list[tuple[float, float]] = []
        self._counted = asyncio.Event()
        """There is something to hand on."""
        self._told_of: set[tuple[str, str]] = set()
        """Task and place of the errors that nobody foresaw."""

    async def run(self) -> None:
        """Endless."""
        while True:
            await self._counted.wait()
            await asyncio.sleep(TALLY_SECONDS)
            self.flush()

    def flush(self) -> None:
        if (self._counts or self._delays) and self._read():
            self._send("tally", dict(self._counts), self._delays)
            self._counts.clear()
            self._delays = []
            self._counted.clear()

    def _count(self, *what: Any, count: int) -> None:
        self._counts[what] += count
        self._counted.set()

    # counts

    def answered(self, family: Family, count: int) -> None:
        self._count("answered", family, count=count)

    def ignored(self, family: Family, reason: Enum, count: int) -> None:
        self._count("ignored", family, reason, count=count)

    def announced(self, family: Family, count: int) -> None:
        self._count("announced", family, count=count)

    def send_failed(self, family: Family, count: int) -> None:
        self._count("send_failed", family, count=count)

    def hellos_sent(self, link: str, left: bool, count: int) -> None:
        self._count("hellos_sent", link, left, count=count)

    def hellos_received(self, link: str, rejected: Enum | None, count: int) -> None:
        self._count("hellos_received", link, rejected, count=count)

    def loop_delay(self, late: float, busy: float) -> None:
        self._delays.append((late, busy))
        self._counted.set()
        if len(self._delays) > MAX_DELAYS:
            self._delays = [(max(late for late, _ in self._delays), max(busy for _, busy in self._delays))]

    # transitions

    def claimed(self, address: IPAddress, spot: Placement, term: int, before: str | None) -> None:
        self._send("claimed", address, spot, term, before)

    def yielded(self, address: IPAddress, reason: str, holder: str | None) -> None:
        self._send("yielded", address, reason, holder)

    def frozen(self) -> None:
        self._send("frozen")

    def incarnation(self, number: Incarnation) -> None:
        self._send("incarnation", number)

    def silence(self) -> None:
        self._send("silence")

    def write_record(self, order: WriteRecord) -> None:
        self._send("write_record", order)

    def peer(self, node: str, link: Link, alive: bool) -> None:
        self._send("peer", node, link, alive)

    def peers(self, link: str, number: int) -> None:
        self._send("peers", link, number)

    def speaker(self, link: int, node: str, speaker: Speaker) -> None:
        self._send("speaker", link, node, speaker)

    def lost_link(self, link: Link, error: str) -> None:
        self._send("lost_link", link, error)

    def join_failed(self, error: Exception) -> None:
        self._send("join_failed", EdgeError(str(error)))

    def conflict(self, link: Link, address: IPAddress, mac: Mac, held: bool) -> None:
        self._send("conflict", link, address, mac, held)

    def peers_address(self, address: IPAddress, node: str | None) -> None:
        self._send("peers_address", address, node)

    def name_clash(self, link: Link | None, mac: Mac | None, silent: bool) -> None:
        self._send("name_clash", link, mac, silent)

    def name_free(self) -> None:
        self._send("name_free")

    def hellos_filtered(self, link: Link, node: str, mac: Mac, eips: frozenset[IPAddress]) -> None:
        self._send("hellos_filtered", link, node, mac, eips)

    def failed(self, edge: str, error: str) -> None:
        self._send("edge_failed", edge, error)

    def recovered(self, edge: str) -> None:
        self._send("edge_recovered", edge)

    # what nobody foresaw

    def internal_error(self, task: str, error: BaseException) -> None:
        """The first from one line of code with its traceback, further ones by their number."""
        words, place, trace = described(error)
        if (task, place) in self._told_of:
            self._count("wire_error_again", task, count=1)
        else:
            self._told_of.add((task, place))
            self._send("wire_error", task, words, place, trace)

    def start_over(self) -> None:
        """Somebody else listens from now on."""
        self._told_of.clear()


class Keyring:
    """The keys of the moment."""

    def __init__(self, secrets: tuple[bytes, ...]) -> None:
        self.current: Keys
        self.replace(secrets)

    def replace(self, secrets: tuple[bytes, ...]) -> None:
        signing, *others = (Key(secret) for secret in secrets)
        self.current = Keys(signing, *others)


class Life:
    """What outlives a main process: the owner and its tasks. Entered with the first ``Spec``; left, nothing is answered
    any more."""

    def __init__(self, spec: Spec, tally: Tally) -> None:
        self.spec, self._tally = spec, tally
        self._keyring = Keyring(spec.peers.secrets) if spec.peers else None
        self.owner = _owner(spec, self._keyring, tally)
        self._stack = AsyncExitStack()
        self._tasks: list[asyncio.Task[NoReturn]] = []

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self.owner)
        self._start("tally", self._tally.run)
        self._start("wire loop", partial(watch_loop, self._tally.loop_delay))
        if isinstance(self.owner, Shared):
            self._start("carrier", partial(_watch_carrier, self.owner, self._tally))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._stack.__aexit__(kind, error, tb)

    def _start(self, task: str, work: Callable[[], Awaitable[None]]) -> None:
        self._tasks.append(asyncio.create_task(supervised(task, work, self._tally), name=task))

    def resume(self, spec: Spec) -> Resumed:
        """Another main process comes; what it finds."""
        if self._keyring is not None and spec.peers is not None:
            self._keyring.replace(spec.peers.secrets)
        return self.owner.resumed()

    def api_away(self) -> None:
        """Whoever spoke with the API server is gone."""
        if isinstance(self.owner, Shared) and self.spec.peers is not None and self.spec.peers.api:
            self.owner.api(False)

    def commands(self) -> Mapping[str, Callable[..., Any]]:
        return _commands(self.owner, self._keyring)


class Conversation:
    """With one main process after the other. ``life`` is None before the first has said what it is; ``commands`` are
    those that need none."""

    def __init__(self, commands: Mapping[str, Callable[..., Any]]) -> None:
        self._commands = commands
        self._channel: Channel | None = None
        self.tally = Tally(self._send, self._read)
        self.life: Life | None = None
        self.settled = False
        """The main process of the moment has said all that may be held here."""

    def _send(self, *message: Any) -> None:
        """While nobody listens it is lost: whoever comes is told how things are. Nobody who does not read for too long
        is kept waiting for."""
        if self._channel is not None:
            self._channel.send(*message)
            if self._channel.waiting > MAX_WAITING:
                self._channel.abort()

    def _read(self) -> bool:
        """Somebody listens, and has read nearly all that it was told."""
        return self._channel is not None and self._channel.waiting < MAX_WAITING // 64

    @property
    def listened(self) -> bool:
        """There is a main process that hears what it is told."""
        return self._channel is not None

    @property
    def offered(self) -> bool:
        """There is something that this node may hold."""
        return self.life is not None and bool(self.life.owner.offered)

    def stop(self) -> None:
        """Have it hand over and end."""
        self._send("stop")

    def forsake(self) -> None:
        """Nobody says any more what this node may hold: it gives up everything."""
        if self.life is not None:
            self.life.owner.withdraw(list(self.life.owner.offered))

    async def hold(self, end: socket.socket, stack: AsyncExitStack, before: Before) -> None:
        """Until the other end is closed. The life that begins with it is entered on ``stack``."""
        self.settled = False  # also for one that never comes to say what it is
        channel = await Channel.over(end)
        messages = channel.messages()
        try:
            async for (spec,) in messages:
                self._channel = channel
                self.tally.start_over()
                channel.send("resumed", before, await self._begin(spec, stack))
                assert self.life is not None
                self.life.owner.retell()
                await self._obey(channel, messages, {**self._commands, **self.life.commands()})
        finally:
            self._channel = None
            channel.close()
            if self.life is not None:
                self.life.api_away()

    async def _begin(self, spec: Spec, stack: AsyncExitStack) -> Resumed:
        if self.life is None:
            self.life = await stack.enter_async_context(Life(spec, self.tally))
        return self.life.resume(spec)

    async def _obey(
        self, channel: Channel, messages: AsyncIterator[tuple[Any, ...]], does: Mapping[str, Callable[..., Any]]
    ) -> None:
        async for number, name, arguments in messages:
            try:
                channel.send("reply", number, does[name](*arguments), "")
            except Exception as error:
                self.tally.internal_error("wire command", error)
                channel.send("reply", number, None, f"{name}: {type(error).__name__}: {error}")
            self.settled = self.settled or name == "settled"


def _owner(spec: Spec, keyring: Keyring | None, tally: Tally) -> _Owner:
    if spec.peers is None or keyring is None:
        return Alone(spec.node, boottime, tally)
    times, peers = Parameters.for_hello(spec.peers.hello), spec.peers
    machine = Ownership(spec.node, incarnate, boottime(), times=times, api=peers.api, revision=peers.revision)
    return Shared(machine, lambda: keyring.current, peers.ethertype, boottime, tally, tally)


def _commands(owner: _Owner, keyring: Keyring | None) -> Mapping[str, Callable[..., Any]]:
    """What ``remote.py`` may ask for, by name."""

    def offer(spots: Mapping[IPAddress, Placement]) -> list[IPAddress]:
        refused = owner.offer(spots)
        settle()
        return refused

    commands: dict[str, Callable[..., Any]] = {
        "links": owner.links,
        "withdraw": owner.withdraw,
        "offer": offer,
        "settled": settle,
        "standings": lambda addresses: [owner.standing(address) for address in addresses],
        "ready": lambda: owner.ready,
        "has_peers": lambda: owner.has_peers,
        "peers": owner.peers,
    }
    if isinstance(owner, Shared) and keyring is not None:
        commands |= {
            "keys": keyring.replace,
            "addresses": owner.addresses,
            "gateway": owner.gateway,
            "drain": owner.drain,
            "rebalance": owner.rebalance,
            "rebalancing": owner.rebalancing,
            "demote": owner.demote,
            "recalled": owner.recalled,
            "records": owner.records,
            "recorded": owner.recorded,
            "restored": owner.restored,
            "written": owner.written,
            "leases": owner.leases,
            "informed": owner.informed,
            "api": owner.api,
        }
    return commands


async def _watch_carrier(owner: Shared, tally: Tally) -> None:
    async for attempt in retrying(lambda error: tally.failed("carrier", str(error)), on=EdgeError, limit=5):
        with attempt:
            await watch_carrier(lambda: owner.indexes, owner.carrier, owner.doubted)
