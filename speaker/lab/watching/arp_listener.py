"""What a host on the segment hears: which MAC says that it has which address.

A separate reading of ARP (RFC 826) and neighbour advertisements (RFC 4861 §4.4), so that the lab does not check the
speaker's packets with the speaker's own codec.
"""

import asyncio
import socket
import struct
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import TypeAlias

from speaker.lab.network.namespaces import Namespace
from speaker.model import IPAddress, Mac

ETH_P_ALL, ETH_P_ARP, ETH_P_IPV6 = 0x0003, 0x0806, 0x86DD
PACKET_OUTGOING = 4
ICMPV6, NEIGHBOUR_ADVERTISEMENT, TARGET_LINK_LAYER = 58, 136, 2
SOLICITED = 0x40


@dataclass(frozen=True, slots=True)
class Claimed:
    """Somebody says that ``address`` is at ``mac``; ``unasked`` for gratuitous ARP and unsolicited advertisements."""

    address: IPAddress
    mac: Mac
    unasked: bool


#: Everything heard so far: for each address the MACs that claimed it.
Heard: TypeAlias = dict[IPAddress, set[Mac]]


@contextmanager
def listening(namespace: Namespace, link: str, tell: Callable[[Claimed], None]) -> Iterator[Heard]:
    """Listen on ``link`` inside ``namespace`` for the length of the block; ``tell`` is called for every claim heard."""
    heard: Heard = defaultdict(set)
    with namespace.entered():
        sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        sock.bind((link, ETH_P_ALL))
    sock.setblocking(False)

    def hear() -> None:
        try:
            frame, (_, _, kind, *_) = sock.recvfrom(2048)
        except OSError:  # nothing there after all, or the link just went down
            return
        claim = read_claim(frame) if kind != PACKET_OUTGOING else None
        if claim is not None:
            heard[claim.address].add(claim.mac)
            tell(claim)

    loop = asyncio.get_running_loop()
    loop.add_reader(sock, hear)
    try:
        yield heard
    finally:
        loop.remove_reader(sock)
        sock.close()


def read_claim(frame: bytes) -> Claimed | None:
    """An Ethernet frame as a claim; None for everything else, whatever the bytes."""
    match int.from_bytes(frame[12:14]):
        case 0x0806:
            return _arp_claim(frame)
        case 0x86DD:
            return _advertisement_claim(frame)
        case _:
            return None


def _arp_claim(frame: bytes) -> Claimed | None:
    if len(frame) < 42:
        return None
    operation, mac, sender, target = struct.unpack_from("!20x H 6s 4s 6x 4s", frame)
    gratuitous = sender == target
    if operation != 2 and not gratuitous:  # a plain request also tells the sender's address, but claims nothing new
        return None
    return Claimed(IPv4Address(sender), Mac(mac), gratuitous)


def _advertisement_claim(frame: bytes) -> Claimed | None:
    if len(frame) < 86 or frame[20] != ICMPV6 or frame[54] != NEIGHBOUR_ADVERTISEMENT or frame[78] != TARGET_LINK_LAYER:
        return None
    return Claimed(IPv6Address(frame[62:78]), Mac(frame[80:86]), not frame[58] & SOLICITED)
