"""Edge: puts into the kernel, with nftables, what ``handing_over.py`` decides about unknown flows."""

import asyncio
import socket
from collections.abc import Mapping
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import NamedTuple, TypeAlias

from speaker.errors import EdgeError, Unsupported
from speaker.forwarding.handing_over import FAMILIES, NOTHING, STRAYS_TABLE, NextHop, Wanted, script, versions
from speaker.forwarding.nftables import nft
from speaker.model import NO_GROUP, Group, IPAddress, Mac
from speaker.system.threads import in_thread

_LOOSE = Path("/proc/sys/net/netfilter/nf_conntrack_tcp_loose")
_EVERYTHING = Wanted(
    {
        IPv4Address("192.0.2.1"): NextHop("lo", IPv4Address("192.0.2.2")),
        IPv6Address("2001:db8::1"): NextHop("lo", IPv6Address("fe80::2")),
    },
    frozenset({Mac(bytes(6))}),
    {"lo": 1},
)
"""A plan that needs every expression our rules ever use; it is checked, never applied."""

_Tables: TypeAlias = dict[int, tuple[int, int]]
"""For IP versions that have a table, its ``Stamp.table``."""


class _Made(NamedTuple):
    """What we last made, and the tables as the kernel then had them."""

    wanted: Wanted
    tables: _Tables


class UnknownFlows:
    """What becomes of unknown flows, in the network namespace of the thread of its loop: the tables ``ip
    eip-speaker-strays`` and ``ip6 eip-speaker-strays``, or those of ``group``. An IP version without EIPs has none.

    If somebody reloads a firewall and flushes everybody's tables, the rules are missing until the next ``bring_to``;
    changes that others make within our tables are not looked for. Methods raise EdgeError.
    """

    def __init__(self, group: Group = NO_GROUP) -> None:
        self._group = group
        self._turn = asyncio.Lock()
        self._made: _Made | None = None

    async def bring_to(self, next_hops: Mapping[IPAddress, NextHop | None], speakers: frozenset[Mac]) -> bool:
        """Hands over the unknown flows of these EIPs, or drops them where it says None. Flows of other EIPs go their
        usual way, and so do those from the MACs of ``speakers`` or whose next hop's link does not exist.

        All of an IP version in one transaction. Returns whether there was anything to do.
        """
        async with self._turn:
            made, self._made = self._made, None  # nothing, should this fail on the way
            want = Wanted(dict(next_hops), speakers, _links(next_hops), _is_loose())
            tables = _tables(self._group)
            have = made.wanted if made is not None and made.tables == tables else None
            changed = have != want and await self._change(have, want, tables)
            if changed:
                tables = _tables(self._group)
            if tables.keys() == versions(next_hops):
                self._made = _Made(want, tables)
            return changed

    async def _change(self, have: Wanted | None, want: Wanted, tables: _Tables) -> bool:
        # Writing down ten thousand EIPs takes a good part of a second: the loop must go on answering ARP.
        text = await in_thread(script, have, want, tables, self._group)
        if not text:
            return False
        try:
            await nft.run(text)
        except EdgeError:
            # Somebody may have changed a table since we looked. Starting from scratch works, or says what is wrong.
            await nft.run(await in_thread(script, None, want, _tables(self._group), self._group))
        return True

    async def cleanup(self) -> tuple[str, ...]:
        """Lets all flows go their usual way. Returns the names of what was removed."""
        async with self._turn:
            self._made = None
            there = _tables(self._group)
            if there:
                await nft.run(script(None, NOTHING, there, self._group))
            return tuple(f"nftables table {FAMILIES[version]} {self._group.table(STRAYS_TABLE)}" for version in there)


async def open_unknown_flows(group: Group = NO_GROUP) -> UnknownFlows:
    """Works beside any forwarder. Raises Unsupported with the kernel's reason."""
    try:
        await nft.run(script(None, _EVERYTHING, ()), check=True)
    except nft.Refused as error:
        raise Unsupported(f"this kernel cannot do it with nftables (CONFIG_NFT_DUP_IPV4, _IPV6): {error}") from error
    return UnknownFlows(group)


async def remove_unknown_flows(group: Group = NO_GROUP) -> tuple[str, ...]:
    """Removes whatever an earlier speaker of the group has made. Returns the names of what was removed. Raises
    EdgeError."""
    try:
        flows = await open_unknown_flows(group)
    except Unsupported:  # what a kernel does not support has left nothing in it
        return ()
    return await flows.cleanup()


def _tables(group: Group) -> _Tables:
    stamps = {version: nft.stamp(group.table(STRAYS_TABLE), family).table for version, family in FAMILIES.items()}
    return {version: table for version, table in stamps.items() if table is not None}


def _links(next_hops: Mapping[IPAddress, NextHop | None]) -> dict[str, int]:
    return {link: _index(link) for link in {hop.link for hop in next_hops.values() if hop}}


def _index(link: str) -> int:
    with suppress(OSError):
        return socket.if_nametoindex(link)
    return 0


def _is_loose() -> bool:
    try:
        return _LOOSE.read_text().strip() != "0"
    except FileNotFoundError:  # conntrack is not loaded yet: its default
        return True
    except OSError as error:
        raise EdgeError(f"{_LOOSE}: {error.strerror}") from error
