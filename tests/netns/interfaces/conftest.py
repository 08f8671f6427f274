"""A Watcher inside a namespace, and the kernel asked for its own route."""

import asyncio
import errno
import socket
import struct
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass

import pytest

from speaker.interfaces import rtnetlink
from speaker.interfaces.snapshot import LOCAL_TABLE, MAIN_TABLE, NextHop, RouteKind, Snapshot
from speaker.interfaces.watcher import Watcher
from speaker.lab.namespaces import Namespace
from speaker.model import IPAddress
from speaker.netlink import messages

GUARD = 30.0
"""Seconds after which a Snapshot that never came fails the test. Never waited for when all is well."""
RTM_F_LOOKUP_TABLE, RTM_F_FIB_MATCH = 0x1000, 0x2000


class Follower:
    """What a Watcher has shown so far, and the wait for what it shall show."""

    def __init__(self, watcher: Watcher) -> None:
        self._snapshots = aiter(watcher)
        self.last = Snapshot()
        self.shown = 0

    async def until(self, holds: Callable[[Snapshot], bool]) -> Snapshot:
        """The next Snapshot for which ``holds`` says yes, or the last one where it does already."""
        try:
            async with asyncio.timeout(GUARD):
                while not holds(self.last):
                    self.last = await anext(self._snapshots)
                    self.shown += 1
        except TimeoutError:
            raise AssertionError(f"never came; the last was {self.last}") from None
        return self.last


@pytest.fixture
def following():
    """``async with following(namespace) as follower`` starts a fresh Watcher in there, with its first Snapshot."""

    @asynccontextmanager
    async def follow(namespace: Namespace):
        watcher = Watcher()
        with namespace.entered():
            await watcher.__aenter__()  # opens sockets and never really waits
        try:
            follower = Follower(watcher)
            await follower.until(lambda snapshot: bool(snapshot.links))
            yield follower
        finally:
            await watcher.__aexit__(None, None, None)

    return follow


@pytest.fixture
def snapshot_of(following):
    """``await snapshot_of(namespace)``: what a speaker that just started sees."""

    async def take(namespace: Namespace) -> Snapshot:
        async with following(namespace) as follower:
            return follower.last

    return take


@pytest.fixture
def settled(following):
    """``await settled(namespace, "eth0", …)`` returns when these have a carrier and IPv6 has put their subnets into the
    main table: the kernel does both some time after `ip link set up`."""

    async def wait(namespace: Namespace, *names: str) -> None:
        def ready(now: Snapshot) -> bool:
            links = [now.link_named(name) for name in names]
            subnets = [bound for bound in now.addresses if bound.link in {link.index for link in links}]
            return all(link.carrier for link in links) and all(
                any(
                    NextHop(bound.link) in route.hops and route.destination == bound.subnet
                    for route in now.routes.holding(MAIN_TABLE, bound.address)
                )
                for bound in subnets
            )

        async with following(namespace) as follower:
            await follower.until(ready)

    return wait


@dataclass(frozen=True)
class KernelSays:
    """The kernel's answer for one destination: an errno, or what it would do. ``live`` are all links of next hops of
    the matching route that are not dead, ``link`` the one it picks just now."""

    error: int = 0
    table: int = 0
    kind: int = 0
    link: int = 0
    live: frozenset[int] = frozenset()

    @property
    def local_table_decides(self) -> bool:
        return self.table == LOCAL_TABLE or self.kind in (RouteKind.LOCAL, RouteKind.BROADCAST)

    def __str__(self) -> str:
        return errno.errorcode[self.error] if self.error else f"link {self.link} of {set(self.live)} in {self.table}"


class Kernel:
    """``ip route get`` and ``ip route get fibmatch`` without a process each."""

    def __init__(self, namespace: Namespace) -> None:
        with namespace.entered():
            self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
        self._socket.settimeout(GUARD)

    def close(self) -> None:
        self._socket.close()

    def route(self, destination: IPAddress) -> KernelSays:
        picked = self._get(destination, RTM_F_LOOKUP_TABLE)
        if isinstance(picked, int):
            return KernelSays(error=picked)
        table, kind, hops = picked
        matching = self._get(destination, RTM_F_LOOKUP_TABLE | RTM_F_FIB_MATCH)
        assert not isinstance(matching, int)
        live = frozenset(hop.link for hop in matching[2] if not hop.dead)
        return KernelSays(table=table, kind=kind, link=hops[0].link, live=live)

    def _get(self, destination: IPAddress, flags: int):
        family = socket.AF_INET if destination.version == 4 else socket.AF_INET6
        packed = destination.packed
        body = struct.pack("=BBBBBBBBI", family, len(packed) * 8, 0, 0, 0, 0, 0, 0, flags)
        body += struct.pack("=HH", 4 + len(packed), 1) + packed
        self._socket.send(messages.request(rtnetlink.RTM_GETROUTE, 1, body))
        datagram = self._socket.recv(1 << 16)
        message = next(messages.messages(datagram))
        if message.kind == messages.NLMSG_ERROR:
            return messages.errno_of(datagram, message)
        return _route(datagram, message)


def _route(datagram: bytes, message: messages.Message):
    """(table, kind, next hops), read here and not by the code under test as far as it decides something."""
    table, _, _, kind, flags = struct.unpack_from("=BBBBI", datagram, message.start + 4)
    found = messages.attributes(datagram, message.start + 12, message.end)
    table = struct.unpack("=I", found[15])[0] if 15 in found else table
    hops = [Hop(struct.unpack("=I", found[4])[0], bool(flags & 1))] if 4 in found else []
    data = found.get(9, b"")
    while data:
        length, hop_flags, _, link = struct.unpack_from("=HBBi", data)
        hops.append(Hop(link, bool(hop_flags & 1)))
        data = data[(length + 3) & ~3 :]
    return table, kind, hops


@dataclass(frozen=True)
class Hop:
    link: int
    dead: bool


@pytest.fixture
def kernel_of() -> Iterator[Callable[[Namespace], Kernel]]:
    with ExitStack() as stack:

        def ask(namespace: Namespace) -> Kernel:
            kernel = Kernel(namespace)
            stack.callback(kernel.close)
            return kernel

        yield ask


@pytest.fixture
def batch() -> Callable[[Namespace, list[str]], None]:
    """Many `ip` commands at once; the test's event loop stands still meanwhile."""

    def run(namespace: Namespace, commands: list[str]) -> None:
        with namespace.entered():
            subprocess.run(["ip", "-batch", "-"], input="\n".join(commands), text=True, check=True)

    return run


class Told:
    """What a watch told, in order, and the wait for what it shall tell."""

    def __init__(self) -> None:
        self.waiting: asyncio.Queue[tuple[int, bool]] = asyncio.Queue()

    def __call__(self, link: int, state: bool) -> None:
        self.waiting.put_nowait((link, state))

    async def next(self) -> tuple[int, bool]:
        async with asyncio.timeout(GUARD):
            return await self.waiting.get()


@pytest.fixture
def during() -> Callable[..., None]:
    """``during(namespace, watch, story)``: inside, runs ``story(told)`` while ``watch(told)`` runs beside it.

    A watch that raises ends the story. Both are over on return, and so are their threads.
    """

    async def run(watch: Callable[[Told], Awaitable[None]], story: Callable[[Told], Awaitable[None]]) -> None:
        told = Told()
        watched, told_story = asyncio.ensure_future(watch(told)), asyncio.ensure_future(story(told))
        try:
            done, _ = await asyncio.wait((watched, told_story), return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            watched.cancel()
            told_story.cancel()
            await asyncio.gather(watched, told_story, return_exceptions=True)

    def begin(namespace: Namespace, watch: Callable[[Told], Awaitable[None]], story: Callable[[Told], Awaitable[None]]):
        with namespace.entered():
            asyncio.run(run(watch, story))

    return begin
