"""Edge: asks links by ARP and neighbour solicitation, and hears everybody who answers.

Politely: each address twice, from this node's own address on the link, which is true whatever caches learn from it.
"""

import asyncio
import socket
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from speaker.diagnosis.facts import Asked
from speaker.errors import EdgeError
from speaker.model import IPAddress, Link, format_mac
from speaker.ownership.hello import Addresses
from speaker.ownership.inquiry import answers_to, question, read_answer
from speaker.packets import sockets

TIMES, EVERY = 3, 0.2
"""Questions for each address, and seconds between two; after the last one it is listened for as long."""
MOST = 64
"""Addresses on a link, and MACs that answer for one."""
FRAMES = 2048
"""Looked at on one link, at most."""
_ROOM = 512
_ETH_P_ALL = 3
_BUFFER = 1 << 18


class Wanted(NamedTuple):
    address: IPAddress
    what: str


async def ask_links(
    links: Mapping[str, Link], own: Mapping[int, Addresses], wanted: Mapping[str, Sequence[Wanted]]
) -> tuple[Asked, ...]:
    """By name of the link. Raises EdgeError, Unsupported without CAP_NET_RAW."""
    asking = (_ask(links[name], own.get(links[name].index, ()), each) for name, each in wanted.items() if name in links)
    return tuple(asked for found in await asyncio.gather(*asking) for asked in found)


async def _ask(link: Link, own: Addresses, wanted: Sequence[Wanted]) -> list[Asked]:
    asked = {one.address: one for one in wanted[:MOST]}
    try:
        opened = sockets.open_socket(link.index, _ETH_P_ALL, answers_to(link.mac), _prepare)
    except OSError as error:
        if error.errno in sockets.GONE:
            return [Asked(str(one.address), link.name, one.what) for one in asked.values()]
        raise sockets.refused(f"asking on {link.name}", error) from error
    heard: dict[IPAddress, dict[str, None]] = {address: {} for address in asked}
    try:
        frames = [frame for address in asked if (frame := question(link.mac, own, address)) is not None]
        for _ in range(TIMES):
            for frame in frames:
                _send(opened, frame, link)
            await asyncio.sleep(EVERY)
            _read(opened, heard)
    finally:
        opened.close()
    return [Asked(str(one.address), link.name, one.what, tuple(heard[one.address])) for one in asked.values()]


def _prepare(opened: socket.socket) -> None:
    sockets.enlarge(opened, _BUFFER)


def _send(opened: socket.socket, frame: bytes, link: Link) -> None:
    try:
        opened.send(frame)
    except OSError as error:
        if error.errno not in sockets.GONE | sockets.FULL:
            raise EdgeError(f"asking on {link.name}: {error.strerror}") from error


def _read(opened: socket.socket, heard: Mapping[IPAddress, dict[str, None]]) -> None:
    with suppress(OSError):  # there is no more, or the link is gone
        for _ in range(FRAMES):
            answer = read_answer(opened.recv(_ROOM))
            if answer is not None and answer.address in heard and len(heard[answer.address]) < MOST:
                heard[answer.address][format_mac(answer.mac)] = None


def polite(addresses: Collection[IPAddress], what: str) -> list[Wanted]:
    return [Wanted(address, what) for address in list(addresses)[:MOST]]
