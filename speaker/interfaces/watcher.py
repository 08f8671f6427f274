"""Follows the kernel's links, addresses, rules and routes over rtnetlink.

A notification only says which part changed, and that part is listed again. Applying notifications one by one would be
cheaper but wrong: taking a link down removes its IPv4 routes without a notification, and so did, before Linux 6.6,
deleting an address for the routes that prefer it as source.
"""

import asyncio
import errno
import os
import socket
import struct
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from enum import Enum, auto
from typing import Self, TypeVar

from speaker.errors import EdgeError, Unsupported
from speaker.interfaces import rtnetlink
from speaker.interfaces.snapshot import LinkAddress, RouteTables, Snapshot, leads_nowhere, own
from speaker.model import EIP_LINK, Link
from speaker.netlink import messages as nl
from speaker.system.waiting import at_rest

REST = 0.02
"""Seconds at least between two listings of one part: a burst of changes costs a few, not one each."""
ROUTES_REST_RATIO, ROUTES_REST_LIMIT = 9, 5.0
"""Routes rest this many times what listing them took, up to so many seconds: where a full BGP table never settles,
it takes a tenth of the time."""
_TICK = 0.02
"""Seconds by which a route's time is listed too short at most."""
DRAIN = 64
"""Notifications read before other tasks get their turn."""
DATAGRAM = 1 << 16
"""Bytes; the kernel lists in datagrams of 32 KiB to whoever offers that much."""

_ADD_MEMBERSHIP = 1
_GROUPS = (1, 5, 9, 7, 11, 8, 19, 24, 25)
"""RTNLGRP_*: links; then for IPv4 and IPv6 addresses, routes, rules, and settings (ignore_routes_with_linkdown)."""
_NEXTHOP_GROUP = 32


class Part(Enum):
    """What is listed in one go."""

    LINKS = auto()
    ADDRESSES = auto()
    RULES = auto()
    ROUTES = auto()


_PARTS = {
    nl.RTM_NEWLINK: {Part.LINKS},
    nl.RTM_DELLINK: {Part.LINKS},
    nl.RTM_NEWADDR: {Part.ADDRESSES},
    nl.RTM_DELADDR: {Part.ADDRESSES, Part.ROUTES},
    rtnetlink.RTM_NEWRULE: {Part.RULES},
    rtnetlink.RTM_DELRULE: {Part.RULES},
    rtnetlink.RTM_NEWROUTE: {Part.ROUTES},
    rtnetlink.RTM_DELROUTE: {Part.ROUTES},
    rtnetlink.RTM_NEWNEXTHOP: {Part.ROUTES},
    rtnetlink.RTM_DELNEXTHOP: {Part.ROUTES},
    rtnetlink.RTM_NEWNETCONF: {Part.ROUTES},
}
_ABOUT_ROUTES = (rtnetlink.RTM_NEWROUTE, rtnetlink.RTM_DELROUTE)

T = TypeVar("T")


class Watcher:
    """``async with Watcher() as watcher: async for snapshot in watcher: …`` (one loop per Watcher)

    The first Snapshot comes at once, each next one when something in it has changed. Links never wait for routes: a
    lost carrier shows within milliseconds, with the routes as they were, while the kernel still lists a large table.
    It belongs to the network namespace it was entered in. Raises EdgeError when the kernel refuses.
    """

    def __init__(self, ours: str = EIP_LINK) -> None:
        """``ours``: the name of our dummy link."""
        self._ours = ours
        self._woken = asyncio.Event()
        self._dirty = set(Part)
        self._due = dict.fromkeys(Part, 0.0)
        self._expires_at = float("inf")
        """When the first route's lifetime is over. The kernel tells when it removes it, half a minute later."""
        self._seen = Snapshot()
        self._bound: list[LinkAddress] = []
        self._failed: EdgeError | None = None
        """Why nothing can be heard any more."""

    async def __aenter__(self) -> Self:
        with ExitStack() as opened:
            try:
                # Told of changes before anything is listed: nothing falls in between.
                self._events = opened.enter_context(_events_socket())
                # Two, because the kernel lists one thing at a time to a socket, and links do not wait for routes.
                self._quick = _Lister(opened.enter_context(_netlink_socket()))
                self._slow = _Lister(opened.enter_context(_netlink_socket()))
            except OSError as error:
                raise _refused(error) from error
            self._sockets = opened.pop_all()
        asyncio.get_running_loop().add_reader(self._events, self._drain)
        return self

    async def __aexit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(self._events)
        self._sockets.close()

    async def __aiter__(self) -> AsyncIterator[Snapshot]:
        shown: Snapshot | None = None
        while True:
            async for snapshot in self._catch_up():
                if snapshot != shown:
                    shown = snapshot
                    yield snapshot
            await self._next_due()

    async def _catch_up(self) -> AsyncIterator[Snapshot]:
        complete = bool(self._seen.links)  # there is always `lo`
        await self._list_small_parts()
        if complete:
            yield self._seen
        if self._is_due(Part.ROUTES):
            async for _ in self._list_routes():
                if complete and self._is_due(Part.LINKS):
                    await self._list_small_parts()
                    yield self._seen
            yield self._seen

    # ── What has changed ──

    def _drain(self) -> None:
        for _ in range(DRAIN):
            try:
                datagram = self._events.recv(DATAGRAM)
                self._read_events(datagram)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno not in (errno.ENOBUFS, errno.ENOMEM):
                    self._fail(_refused(error))
                    return
                self._mark(set(Part))  # more was told than could be held: some of it is lost
            except _UNREADABLE as error:
                self._fail(_garbled(error))
                return

    def _fail(self, error: EdgeError) -> None:
        """In a callback of the loop, where nobody would hear of it."""
        asyncio.get_running_loop().remove_reader(self._events)
        self._failed = error
        self._woken.set()

    def _read_events(self, datagram: bytes) -> None:
        for message in nl.messages(datagram):
            parts = _PARTS.get(message.kind, set())
            if not parts <= self._dirty and not (
                message.kind in _ABOUT_ROUTES and rtnetlink.is_about_local_table(datagram, message.start)
            ):
                self._mark(parts)

    def _mark(self, parts: set[Part]) -> None:
        self._dirty |= parts
        self._woken.set()

    def _is_due(self, part: Part) -> bool:
        return part in self._dirty and self._due[part] <= asyncio.get_running_loop().time()

    async def _next_due(self) -> None:
        """Until something is both changed and rested."""
        while not any(self._is_due(part) for part in Part):  # map() would end at a StopIteration, without a word
            if self._failed is not None:
                raise self._failed
            self._woken.clear()
            if self._expires_at <= asyncio.get_running_loop().time():
                self._expires_at = float("inf")
                self._mark({Part.ROUTES})
            when = min((*(self._due[part] for part in self._dirty), self._expires_at))
            with at_rest(), suppress(TimeoutError):
                async with asyncio.timeout_at(when if when < float("inf") else None):
                    await self._woken.wait()

    # ── Listing it anew ──

    async def _list_small_parts(self) -> None:
        if self._is_due(Part.LINKS):
            await self._list_links()
        if self._is_due(Part.ADDRESSES):
            self._bound = await self._list(Part.ADDRESSES, nl.RTM_GETADDR, rtnetlink.read_address)
        if self._is_due(Part.RULES):
            rules = await self._list(Part.RULES, rtnetlink.RTM_GETRULE, rtnetlink.read_rule)
            self._seen = replace(self._seen, rules=tuple(rules))
        addresses = tuple(bound for bound in self._bound if not self._is_hidden(bound))
        self._seen = replace(self._seen, addresses=addresses, own=own(self._seen.links, self._bound, self._ours))

    def _is_hidden(self, bound: LinkAddress) -> bool:
        link = self._seen.links.get(bound.link)
        return link is None or leads_nowhere(link)

    async def _list_links(self) -> None:
        found = await self._list(Part.LINKS, nl.RTM_GETLINK, rtnetlink.read_link)
        links = {link.index: link for link, _, _ in found}
        if _states(links) != _states(self._seen.links):
            self._mark({Part.ROUTES})  # those of a link that went down are gone or dead, without a notification
        groups = {link.index: group for link, group, _ in found if group}
        others = {name: link.index for link, _, names in found for name in names}
        self._seen = replace(self._seen, links=links, groups=groups, other_names=others)

    async def _list(self, part: Part, request: int, read: Callable[[bytes, int, int], T | None]) -> list[T]:
        found: list[T] = []
        with self._listing(part, self._quick):
            async for datagram, listed in self._quick.dump(request):
                values = (read(datagram, message.start, message.end) for message in listed)
                found.extend(value for value in values if value is not None)
        return found

    async def _list_routes(self) -> AsyncIterator[None]:
        """Yields now and then, so that what is more urgent can be done in between."""
        tables = RouteTables()
        with self._listing(Part.ROUTES, self._slow):
            reader = rtnetlink.RouteReader(await self._nexthops())
            async for datagram, listed in self._slow.dump(rtnetlink.RTM_GETROUTE):
                for message in listed:
                    if (route := reader.read(datagram, message.start, message.end)) is not None:
                        tables.add(route)
                yield
        self._expires_at = asyncio.get_running_loop().time() + reader.expires_in + _TICK
        self._seen = replace(self._seen, routes=tables, gateways=frozenset(reader.gateways))

    async def _nexthops(self) -> rtnetlink.NexthopReader:
        reader = rtnetlink.NexthopReader()
        with suppress(Unsupported):  # before Linux 5.3
            async for datagram, listed in self._slow.dump(rtnetlink.RTM_GETNEXTHOP):
                for message in listed:
                    reader.read(datagram, message.start, message.end)
        return reader

    @contextmanager
    def _listing(self, part: Part, lister: "_Lister") -> Iterator[None]:
        """What changes from here on makes the part dirty again, and is looked at when the part has rested. Raises
        EdgeError."""
        self._dirty.discard(part)
        try:
            yield
        except OSError as error:
            raise _refused(error) from error
        except _UNREADABLE as error:
            raise _garbled(error) from error
        rest = REST
        if part is Part.ROUTES:
            rest = min(max(REST, ROUTES_REST_RATIO * lister.busy), ROUTES_REST_LIMIT)
        self._due[part] = asyncio.get_running_loop().time() + rest
        if lister.interrupted:
            self._dirty.add(part)


async def look(ours: str = EIP_LINK) -> Snapshot:
    """As things are now. Raises EdgeError when the kernel refuses."""
    async with Watcher(ours) as watcher:
        return await anext(aiter(watcher))


def _states(links: Mapping[int, Link]) -> dict[int, tuple[bool, bool]]:
    return {index: (link.up, link.carrier) for index, link in links.items()}


class _Lister:
    """A socket to list things with.

    About the last listing: ``interrupted``, what it lists changed meanwhile and it may not be whole; ``busy``, seconds
    it took, without the turns of other tasks.
    """

    def __init__(self, opened: socket.socket) -> None:
        self.interrupted = False
        self.busy = 0.0
        self._socket = opened
        self._sequence = 0

    async def dump(self, kind: int) -> AsyncIterator[tuple[bytes, list[nl.Message]]]:
        """Datagrams, each with its messages, as the kernel writes them. Other tasks get a turn after each.

        Raises Unsupported when the kernel has nothing of the kind, EdgeError and OSError.
        """
        loop = asyncio.get_running_loop()
        self._sequence += 1
        self.interrupted, self.busy, done = False, 0.0, False
        await loop.sock_sendall(self._socket, rtnetlink.dump_request(kind, self._sequence))
        while not done:
            begun = loop.time()
            datagram = await loop.sock_recv(self._socket, DATAGRAM)
            listed = list(nl.messages(datagram))
            self.interrupted |= any(message.flags & nl.NLM_F_DUMP_INTR for message in listed)
            if listed[-1].kind in (nl.NLMSG_ERROR, nl.NLMSG_DONE):
                _raise_for(nl.errno_of(datagram, listed.pop()))
                done = True
            yield datagram, listed
            self.busy += loop.time() - begun
            await asyncio.sleep(0)  # the next datagram is there already: waiting for it would not let others in


_UNREADABLE = (struct.error, LookupError, ValueError)
"""What comes of reading bytes that are no messages."""


def _refused(error: OSError) -> EdgeError:
    return EdgeError(f"rtnetlink: {error.strerror or error}")


def _garbled(error: Exception) -> EdgeError:
    return EdgeError(f"rtnetlink: messages that cannot be read: {error}")


def _raise_for(number: int) -> None:
    if number == errno.EOPNOTSUPP:
        raise Unsupported(f"rtnetlink: {os.strerror(number)}")
    if number:
        raise EdgeError(f"rtnetlink: {os.strerror(number)}")


def _netlink_socket() -> socket.socket:
    opened = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.NETLINK_ROUTE)
    opened.bind((0, 0))
    return opened


def _events_socket() -> socket.socket:
    opened = _netlink_socket()
    for group in _GROUPS:
        opened.setsockopt(nl.SOL_NETLINK, _ADD_MEMBERSHIP, group)
    with suppress(OSError):  # nexthop objects came with Linux 5.3
        opened.setsockopt(nl.SOL_NETLINK, _ADD_MEMBERSHIP, _NEXTHOP_GROUP)
    return opened
