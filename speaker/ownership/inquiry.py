"""Asking a link who answers for an address, and hearing that anybody is there at all: frames and filters. Pure.

Questions are sent from this node's own address on the link. A request from nobody (an ARP probe from 0.0.0.0, a
solicitation from ``::``) would leave no trace in others' caches. But who probes for the same EIP takes it for a rival's
probe (RFC 5227 §2.1.1), and a host that is just taking an IPv6 address would give it up for ever (RFC 4862 §5.4.3).
The trace of an own address is true, and that of any other request. A node without an IPv4 address there asks from
0.0.0.0, which kernels answer as well; without an IPv6 one it asks for none.
"""

from collections.abc import Iterable
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address
from typing import NamedTuple

from speaker.errors import MalformedPacket
from speaker.model import IPAddress, Mac
from speaker.ownership.hello import Addresses
from speaker.packets import arp, ndp
from speaker.packets.bpf import (
    ACCEPT,
    LOAD_PKTTYPE,
    LOAD_VLAN_TAG,
    REJECT,
    Instruction,
    Program,
    if_any_of,
    if_equal,
    load_byte,
    load_half,
    load_word,
    only_if,
)
from speaker.packets.ethernet import (
    BROADCAST,
    PACKET_BROADCAST,
    PACKET_HOST,
    PACKET_MULTICAST,
    is_station,
)

_IPV4 = 0x0800
_VLAN_ID = 0x0FFF
_ARP_REPLIES = (*arp.ONLY_REPLIES, ACCEPT)
_NEIGHBOURS = 134, 135, 136
"""ICMPv6: what routers advertise, and what neighbours solicit and advertise (RFC 4861)."""


def question(mac: Mac, own: Addresses, target: IPAddress, known: Mac | None = None) -> bytes | None:
    """The whole frame, to everybody or to ``known`` alone; None where we have no address to ask from. ``own``: ours on
    that link."""
    if isinstance(target, IPv4Address):
        sender = next((one for one in own if isinstance(one, IPv4Address)), IPv4Address(0))
        return arp.request(mac, sender, target, known or BROADCAST).pack()
    source = next((one for one in own if isinstance(one, IPv6Address)), None)
    if source is None:
        return None
    asked = ndp.solicitation(mac, source, target)
    return (asked if known is None else replace(asked, destination_mac=known, destination=target)).pack()


class Answer(NamedTuple):
    """``mac`` says that ``address`` is its own."""

    address: IPAddress
    mac: Mac


def read_answer(frame: bytes) -> Answer | None:
    """Of a frame that has passed ``answers_to``, what the filter could not check; None: it is no answer. Takes any
    bytes."""
    try:
        if frame[12:14] == arp.ETHERTYPE.to_bytes(2, "big"):
            packet = arp.parse(frame)
            answer = Answer(packet.sender_ip, packet.sender_mac)
        else:
            message = ndp.parse(frame)
            if not isinstance(message, ndp.NeighborAdvertisement):
                return None
            answer = Answer(message.target, message.target_link_layer or message.source_mac)
    except MalformedPacket:
        return None
    return answer if is_station(answer.mac) else None


# ── Filters ───────────────────────────────────────────────────────────────────────────────────────────────────
# For sockets of all protocols. Those see a frame before its VLAN tag has made it another host's.


def others_talk(mac: Mac) -> Program:
    """Accepts what other hosts ask of many: ARP, IPv4 broadcasts, neighbour solicitations and advertisements, and what
    routers advertise. No hello, and nothing that comes with the wire: whatever is between us and the others, a switch,
    the near end of a virtual cable, speaks by itself (STP, LLDP, IGMP, MLD, duplicate address detection, its first
    solicitation of routers) though it lets nothing else pass."""
    return (
        *only_if(LOAD_PKTTYPE, PACKET_BROADCAST, PACKET_MULTICAST),
        *_from_another_here(mac),
        load_half(12),
        if_equal(arp.ETHERTYPE, 0, 1),
        ACCEPT,
        if_equal(_IPV4, 0, 4),
        LOAD_PKTTYPE,
        if_equal(PACKET_BROADCAST, 0, 1),
        ACCEPT,
        REJECT,
        *only_if(load_half(12), ndp.ETHERTYPE),
        *only_if(load_byte(20), 58),
        *only_if(load_byte(54), *_NEIGHBOURS),
        load_word(22),
        if_equal(0, 0, 1),
        REJECT,
        ACCEPT,
    )


def answers_to(mac: Mac) -> Program:
    """Accepts ARP replies and neighbour advertisements that are for this host alone."""
    return (
        *only_if(LOAD_PKTTYPE, PACKET_HOST),
        *_from_another_here(mac),
        *only_if(load_half(12), arp.ETHERTYPE, ndp.ETHERTYPE),
        if_equal(arp.ETHERTYPE, 0, len(_ARP_REPLIES)),
        *_ARP_REPLIES,
        *ndp.ONLY_ADVERTISEMENTS,
        ACCEPT,
    )


def _from_another_here(mac: Mac) -> Iterable[Instruction]:
    """Not from ``mac``, and of this VLAN: what the network card took a tag off looks untagged."""
    return (
        LOAD_VLAN_TAG,
        if_any_of(_VLAN_ID, 0, 1),
        REJECT,
        load_word(6),
        if_equal(int.from_bytes(mac[:4], "big"), 0, 3),
        load_half(10),
        if_equal(int.from_bytes(mac[4:], "big"), 0, 1),
        REJECT,
    )
