"""Edge: asks on links who has an address, listens for hellos there, and tries whether endpoints accept a connection.

Addresses are asked for politely: three times each, from this node's own address on the link, so what caches learn from
it is true.
"""

import asyncio
import errno
import os
import socket
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from ipaddress import ip_address
from typing import NamedTuple

from speaker.diagnosis.facts import Asked, HelloSeen, Tried
from speaker.errors import LinkGone, shown
from speaker.model import NO_GROUP, Group, IPAddress, Link, Mac, format_mac
from speaker.ownership.hello import Addresses
from speaker.ownership.hellos.frames import MAGIC_AT, magic
from speaker.packets import PACKET_BROADCAST, PACKET_HOST, PACKET_MULTICAST
from speaker.packets.asker import Askers, heard
from speaker.packets.asking import POLLS, read_poll
from speaker.packets.bpf import ACCEPT, LOAD_PKTTYPE, Program, load_word, only_if

TIMES, EVERY = 3, 0.2
"""Questions for each address, and the seconds between two. After the last one it listens for as long."""
MOST = 64
"""The most addresses asked for on a link, and MACs that answer for one."""
FRAMES, BUFFER = 2048, 1 << 18
"""The most frames read on one link each time; and bytes buffered until then."""


class Wanted(NamedTuple):
    """``mac``: of the host that should answer; empty if that is unknown."""

    address: IPAddress
    what: str
    mac: Mac = Mac(b"")


async def ask_links(
    links: Mapping[str, Link], own: Mapping[int, Addresses], wanted: Mapping[str, Sequence[Wanted]]
) -> tuple[Asked, ...]:
    """``links`` and ``wanted`` by name of the link. Left out is what could not be asked for: the link is down, or this
    node has no IPv6 address there. Raises EdgeError, or Unsupported without CAP_NET_RAW."""
    asking = (_ask(links[name], own.get(links[name].index, ()), each) for name, each in wanted.items() if name in links)
    return tuple(asked for found in await asyncio.gather(*asking) for asked in found)


async def _ask(link: Link, own: Addresses, wanted: Sequence[Wanted]) -> list[Asked]:
    asked = {one.address: one for one in wanted[:MOST]}
    found: dict[IPAddress, Counter[str]] = {address: Counter() for address in asked}
    unicast, left = Counter[IPAddress](), set[IPAddress]()
    with suppress(LinkGone), Askers(FRAMES, BUFFER) as askers:
        askers.use([link], {link.index: own})
        others = heard(link, POLLS, TIMES * EVERY, FRAMES)
        polls, left = await asyncio.gather(others, _ask_everybody(askers, link, found))
        for poll in map(read_poll, polls):  # the running speaker asks by unicast too (rule 37)
            if poll is not None and poll.address in found:
                found[poll.address] -= Counter([format_mac(poll.mac)])
        silent = [one for one in asked.values() if _is_silent(one, found[one.address])]
        for _ in range(TIMES if silent else 0):
            for one in silent:
                askers.ask(one.address, link.index, one.mac)
            await asyncio.sleep(EVERY)
            unicast.update(address for address, mac in askers.answers() if Wanted(address, "eip", mac) in silent)
    polled = {address for address, times in unicast.items() if times > 1}
    return [
        Asked(str(at), link.name, one.what, () if at in polled else tuple(found[at]), at in polled)
        for at, one in asked.items()
        if at in left
    ]


async def _ask_everybody(askers: Askers, link: Link, found: Mapping[IPAddress, Counter[str]]) -> set[IPAddress]:
    """Counts in ``found`` who answers. Returns for what a question left."""
    left = set()
    for _ in range(TIMES):
        left.update([address for address in found if askers.ask(address, link.index)])
        await asyncio.sleep(EVERY)
        for address, mac in askers.answers():
            if address in found and len(found[address]) < MOST:
                found[address][format_mac(mac)] += 1
    return left


def _is_silent(one: Wanted, answers: Counter[str]) -> bool:
    """Whether the holder of an EIP is to be asked alone. One answer may be to a question that left before."""
    return answers.total() < 2 and bool(one.mac) and {*answers} <= {format_mac(one.mac)}


# ── Who sends hellos ──────────────────────────────────────────────────────────────────────────────────────────
#
# By whichever EtherType. No key is asked for, so nothing of it is proven.

HELLOS = 1024
"""The most frames read on one link."""
_NAME_AT = 69
"""Offset of the length of the node's name: after Ethernet's 14 bytes, the header's 12, and 43 of fixed fields."""


async def listen(links: Iterable[Link], seconds: float, group: Group = NO_GROUP) -> tuple[HelloSeen, ...]:
    """Each sender of the group once. Raises EdgeError, or Unsupported without CAP_NET_RAW."""
    links = [*links]
    frames = await asyncio.gather(*(heard(link, _only_hellos(group), seconds, HELLOS) for link in links))
    return tuple(dict.fromkeys(_hello(link, each) for link, on_it in zip(links, frames, strict=True) for each in on_it))


def _only_hellos(group: Group) -> Program:
    to_us = only_if(LOAD_PKTTYPE, PACKET_HOST, PACKET_BROADCAST, PACKET_MULTICAST)
    return (*to_us, *only_if(load_word(MAGIC_AT), int.from_bytes(magic(group), "big")), ACCEPT)


def _hello(link: Link, frame: bytes) -> HelloSeen:
    length = frame[_NAME_AT] if len(frame) > _NAME_AT else 0
    name = frame[_NAME_AT + 1 : _NAME_AT + 1 + length].decode(errors="replace")
    return HelloSeen(link.name, int.from_bytes(frame[12:14], "big"), format_mac(frame[6:12]), shown(name))


# ── Which endpoints accept a connection from this node ──────────────────────────────────────────────────────

CONNECT_SECONDS = 1.0
ENDPOINTS = 64
"""How many endpoints are tried, all at once."""


async def connect_all(places: Collection[tuple[str, int]]) -> tuple[Tried, ...]:
    return tuple(await asyncio.gather(*(_connect(*place) for place in sorted(set(places))[:ENDPOINTS])))


async def _connect(address: str, port: int) -> Tried:
    family = socket.AF_INET if ip_address(address).version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as trying:
            async with asyncio.timeout(CONNECT_SECONDS):
                await asyncio.get_running_loop().sock_connect(trying, (address, port))
    except TimeoutError:
        return Tried(address, port, False, f"no answer within {CONNECT_SECONDS:g} s")
    except ConnectionRefusedError:
        return Tried(address, port, False, "refused")
    except OSError as error:
        return Tried(address, port, False, os.strerror(error.errno or errno.EIO))
    return Tried(address, port, True)
