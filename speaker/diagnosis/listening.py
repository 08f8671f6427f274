"""Edge: who says hello on a link, by whichever EtherType; no key is asked for, so nothing of it is proven."""

import asyncio
import socket
from collections.abc import Iterable
from contextlib import suppress

from speaker.diagnosis.facts import HelloSeen
from speaker.errors import shown
from speaker.model import NO_GROUP, Group, IPAddress, Link, format_mac
from speaker.ownership.hellos.frames import MAGIC_AT, magic
from speaker.packets import PACKET_BROADCAST, PACKET_HOST, PACKET_MULTICAST, sockets
from speaker.packets.bpf import ACCEPT, LOAD_PKTTYPE, Program, load_word, only_if

FRAMES = 1024
"""Looked at on one link, at most."""
_NAME_AT = 69
"""Of the length of the node's name: behind Ethernet's 14 bytes, the header's 12 and 43 of what is fixed."""
_ROOM = 512
_ETH_P_ALL, _ETH_P_IP = 3, 0x0800
SOURCES, _SOURCE_AT = 200, 26
"""Of packets, that are looked for: a jump of BPF goes 255 instructions far. And where it is in a frame."""


async def listen(links: Iterable[Link], seconds: float, group: Group = NO_GROUP) -> tuple[HelloSeen, ...]:
    """Those of the group. Raises EdgeError, Unsupported without CAP_NET_RAW."""
    found = await asyncio.gather(*(_listen(link, seconds, _only_hellos(group)) for link in links))
    return tuple(seen for on_link in found for seen in on_link)


def _only_hellos(group: Group) -> Program:
    to_us = only_if(LOAD_PKTTYPE, PACKET_HOST, PACKET_BROADCAST, PACKET_MULTICAST)
    return (*to_us, *only_if(load_word(MAGIC_AT), int.from_bytes(magic(group), "big")), ACCEPT)


async def _listen(link: Link, seconds: float, program: Program) -> list[HelloSeen]:
    try:
        opened = sockets.open_socket(link.index, _ETH_P_ALL, program, _prepare)
    except OSError as error:
        if error.errno in sockets.GONE:
            return []
        raise sockets.refused(f"listening on {link.name}", error) from error
    with opened:
        await asyncio.sleep(seconds)
        seen: dict[HelloSeen, None] = {}
        with suppress(OSError):
            for _ in range(FRAMES):
                seen[_read(link, opened.recv(_ROOM))] = None
        return list(seen)


async def martians(links: Iterable[Link], eips: Iterable[IPAddress], seconds: float) -> int:
    """How many IPv4 packets come in from one of ``eips``, which are bound here. The kernel's own counter is that of all
    network namespaces. Raises as above."""
    sources = [int(each) for each in eips if each.version == 4][:SOURCES]
    if not sources:
        return 0
    to_us = only_if(LOAD_PKTTYPE, PACKET_HOST, PACKET_BROADCAST)
    program = (*to_us, *only_if(load_word(_SOURCE_AT), *sources), ACCEPT)
    return sum(await asyncio.gather(*(_count(link, program, seconds) for link in links)))


async def _count(link: Link, program: Program, seconds: float) -> int:
    try:
        opened = sockets.open_socket(link.index, _ETH_P_IP, program, _prepare)
    except OSError as error:
        if error.errno in sockets.GONE:
            return 0
        raise sockets.refused(f"listening on {link.name}", error) from error
    with opened:
        await asyncio.sleep(seconds)
        found = 0
        with suppress(OSError):
            while found < FRAMES:
                opened.recv(_ROOM)
                found += 1
        return found


def _prepare(opened: socket.socket) -> None:
    sockets.enlarge(opened, FRAMES * 1024)


def _read(link: Link, frame: bytes) -> HelloSeen:
    length = frame[_NAME_AT] if len(frame) > _NAME_AT else 0
    name = frame[_NAME_AT + 1 : _NAME_AT + 1 + length].decode(errors="replace")
    return HelloSeen(link.name, int.from_bytes(frame[12:14], "big"), format_mac(frame[6:12]), shown(name))
