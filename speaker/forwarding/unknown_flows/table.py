"""Edge: what is to become of unknown flows, made so in the kernel with nftables, or iptables where that lacks."""

import asyncio
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Protocol, TypeAlias

from speaker.errors import EdgeError, Unsupported
from speaker.forwarding import iptables
from speaker.forwarding.nftables import nft
from speaker.forwarding.nftables.stamp import stamp
from speaker.forwarding.unknown_flows import iptables as chains
from speaker.forwarding.unknown_flows.rules import FAMILIES, NOTHING, STRAYS_TABLE, NextHop, Wanted, script, versions
from speaker.model import IPAddress, Mac
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
"""What needs every expression that our rules ever use; it is checked, never applied."""

_Tables: TypeAlias = dict[int, tuple[int, int]]
"""Of IP versions, those that have one: ``Stamp.table``."""


@dataclass(frozen=True, slots=True)
class _Made:
    """What we last made, and the tables as the kernel had them then."""

    wanted: Wanted
    tables: _Tables


class UnknownFlows(Protocol):
    """What becomes of unknown flows. Belongs to the network namespace of the thread of its loop."""

    async def bring_to(self, next_hops: Mapping[IPAddress, NextHop | None], speakers: frozenset[Mac]) -> bool:
        """Hand the unknown flows of these EIPs over, or drop them where it says None; those of others go their usual
        way, and so do those that come from the MACs of ``speakers`` or whose next hop's link is not there.

        All of an IP version in one transaction; whether there was anything to do. Raises EdgeError.
        """

    async def cleanup(self) -> tuple[str, ...]:
        """Let all go their usual way; names of what was removed. Raises EdgeError."""


class NftablesUnknownFlows:
    """The tables ``ip eip-speaker-strays`` and ``ip6 eip-speaker-strays``; an IP version without EIPs has none.

    A firewall that is reloaded and flushes everybody's tables costs until the next ``bring_to``; what others change
    within ours is not looked for.
    """

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._made: _Made | None = None

    async def bring_to(self, next_hops: Mapping[IPAddress, NextHop | None], speakers: frozenset[Mac]) -> bool:
        async with self._turn:
            made, self._made = self._made, None  # nothing, should this fail on the way
            want = _wanted(next_hops, speakers)
            tables = _tables()
            have = made.wanted if made is not None and made.tables == tables else None
            changed = have != want and await self._change(have, want, tables)
            if changed:
                tables = _tables()
            if tables.keys() == versions(next_hops):
                self._made = _Made(want, tables)
            return changed

    async def _change(self, have: Wanted | None, want: Wanted, tables: _Tables) -> bool:
        # Ten thousand EIPs take a good part of a second to write down: the loop must go on answering ARP.
        text = await in_thread(script, have, want, tables)
        if not text:
            return False
        try:
            await nft.run(text)
        except EdgeError:
            # Somebody may have changed a table since we looked. From scratch it works, or says what is wrong.
            await nft.run(await in_thread(script, None, want, _tables()))
        return True

    async def cleanup(self) -> tuple[str, ...]:
        async with self._turn:
            self._made = None
            there = _tables()
            if there:
                await nft.run(script(None, NOTHING, there))
            return tuple(f"nftables table {FAMILIES[version]} {STRAYS_TABLE}" for version in there)


class IptablesUnknownFlows:
    """The chains ``EIP-SPEAKER-STRAYS`` and ``EIP-SPEAKER-STRAY`` of the table mangle. What others do to them is not
    looked for."""

    def __init__(self, programs: Mapping[int, str]) -> None:
        self._programs = programs
        self._turn = asyncio.Lock()
        self._made: Wanted | None = None

    async def bring_to(self, next_hops: Mapping[IPAddress, NextHop | None], speakers: frozenset[Mac]) -> bool:
        async with self._turn:
            made, self._made = self._made, None
            want = _wanted(next_hops, speakers)
            changed = made != want and await self._change(want)
            self._made = want
            return changed

    async def _change(self, want: Wanted) -> bool:
        scripts = {}
        for version, program in self._programs.items():
            saved = await iptables.run(f"{program}-save")
            scripts[program] = await in_thread(chains.script, saved, want, version)
        for program, text in scripts.items():
            if text:
                await iptables.run(f"{program}-restore", "--noflush", "--wait", "5", text=text)
        return any(scripts.values())

    async def cleanup(self) -> tuple[str, ...]:
        async with self._turn:
            self._made = None
            changed = await self._change(NOTHING)
            return (f"iptables chains {chains.STRAYS}, {chains.STRAY}",) if changed else ()


async def open_unknown_flows() -> UnknownFlows:
    """With nftables where the kernel has it, else with iptables; raises Unsupported with the reasons.

    Any forwarder may stand beside it.
    """
    try:
        return await _open_nftables()
    except Unsupported as no_nft:
        try:
            return IptablesUnknownFlows(await iptables.programs("mangle"))
        except Unsupported as no_iptables:
            raise Unsupported(f"nothing here can hand packets over: {no_nft}; {no_iptables}") from no_iptables


async def remove_unknown_flows() -> tuple[str, ...]:
    """Whatever an earlier speaker has made; names of what was removed. Raises EdgeError."""
    try:
        flows = await open_unknown_flows()
    except Unsupported:  # what a kernel does not support has left nothing in it
        return ()
    return await flows.cleanup()


async def _open_nftables() -> NftablesUnknownFlows:
    try:
        await nft.run(script(None, _EVERYTHING, ()), check=True)
    except nft.Refused as error:
        raise Unsupported(f"this kernel cannot do it with nftables (CONFIG_NFT_DUP_IPV4, _IPV6): {error}") from error
    return NftablesUnknownFlows()


def _wanted(next_hops: Mapping[IPAddress, NextHop | None], speakers: frozenset[Mac]) -> Wanted:
    return Wanted(dict(next_hops), speakers, _links(next_hops), _is_loose())


def _tables() -> _Tables:
    stamps = {version: stamp(STRAYS_TABLE, family).table for version, family in FAMILIES.items()}
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
