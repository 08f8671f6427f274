"""Asking a link who has an address, by ARP (RFC 826) or neighbour solicitation (RFC 4861), and hearing that anybody is
there at all: frames and filters. Pure. ``asker.py`` has the socket.

Most questions are sent from this node's own address on the link. A request without a sender (an ARP probe from 0.0.0.0,
a solicitation from ``::``) would leave no trace in others' caches. But a host that probes for the same EIP takes it for
a rival's probe (RFC 5227 §2.1.1), and a host that is just taking an IPv6 address would give it up for good (RFC 4862
§5.4.3). The trace of an own address is true, as that of any other request. A node without an IPv4 address on the link
asks from 0.0.0.0, which kernels answer as well; without an IPv6 address it asks for none.
"""

from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address
from typing import NamedTuple

from speaker.errors import MalformedPacket
from speaker.model import IPAddress, Mac
from speaker.packets import BROADCAST, PACKET_BROADCAST, PACKET_HOST, PACKET_MULTICAST, arp, bpf, is_station, ndp

_IPV4 = 0x0800
_VLAN_ID = 0x0FFF
_ARP_REPLIES = (*arp.ONLY_REPLIES, bpf.ACCEPT)
_NEIGHBOURS = 134, 135, 136
"""ICMPv6: what routers advertise, and what neighbours solicit and advertise (RFC 4861)."""


class Question(NamedTuple):
    """Who is asked, on which link (its index), and from which MAC and address of ours there."""

    link: int
    mac: Mac
    source: IPAddress
    target: IPAddress


def question(mac: Mac, source: IPAddress, target: IPAddress, known: Mac | None = None) -> bytes:
    """The whole frame, from ``source``, of the same family as ``target``. ARP goes to everybody, a solicitation to the
    solicited-node group, where few but the target listen; either goes to ``known`` alone where that is given (RFC 1122
    §2.3.2.1, "unicast poll")."""
    if isinstance(source, IPv4Address) and isinstance(target, IPv4Address):
        return arp.request(mac, source, target, known or BROADCAST).pack()
    assert isinstance(source, IPv6Address)
    assert isinstance(target, IPv6Address)
    asked = ndp.solicitation(mac, source, target)
    return (asked if known is None else replace(asked, destination_mac=known, destination=target)).pack()


def question_from(mac: Mac, own: Collection[IPAddress], target: IPAddress, known: Mac | None = None) -> bytes | None:
    """From the first address of that family among ``own``, ours on that link; None where there is no IPv6 one."""
    nobody = IPv4Address(0) if target.version == 4 else None
    source = next((one for one in own if one.version == target.version), nobody)
    return question(mac, source, target, known) if source is not None else None


class Answer(NamedTuple):
    """``mac`` says that ``address`` is its own."""

    address: IPAddress
    mac: Mac


def read_answer(frame: bytes) -> Answer | None:
    """Of a frame that has passed ``answers_to`` or ``only_answers``, what the filter could not check; None: it is no
    answer. Takes any bytes."""
    match _parsed(frame):
        case arp.ArpPacket() as packet:
            answer = Answer(packet.sender_ip, packet.sender_mac)
        case ndp.NeighborAdvertisement() as message:
            answer = Answer(message.target, message.target_link_layer or message.source_mac)
        case _:
            return None
    return answer if is_station(answer.mac) else None


def read_poll(frame: bytes) -> Answer | None:
    """Of a frame that has passed ``POLLS``, the answer that it asks for; None: it is no question. Takes any bytes."""
    match _parsed(frame):
        case arp.ArpPacket() as packet:
            return Answer(packet.target_ip, packet.destination)
        case ndp.NeighborSolicitation() as message:
            return Answer(message.target, message.destination_mac)
    return None


def _parsed(frame: bytes) -> arp.ArpPacket | ndp.NeighborMessage | None:
    with suppress(MalformedPacket):
        return arp.parse(frame) if frame[12:14] == arp.FIXED[:2] else ndp.parse(frame)
    return None


# ── Filters ───────────────────────────────────────────────────────────────────────────────────────────────────
# Sockets of all protocols see a frame before its VLAN tag has made it another host's: hence ``_from_another_here``.


def others_talk(mac: Mac) -> bpf.Program:
    """Accepts what other hosts ask of many: ARP, IPv4 broadcasts, neighbour solicitations and advertisements, and what
    routers advertise. No hello, and nothing that comes with the wire: whatever is between us and the others, a switch,
    the near end of a virtual cable, speaks by itself (STP, LLDP, IGMP, MLD, duplicate address detection, its first
    solicitation of routers) though it lets nothing else pass."""
    return (
        *bpf.only_if(bpf.LOAD_PKTTYPE, PACKET_BROADCAST, PACKET_MULTICAST),
        *_from_another_here(mac),
        bpf.load_half(12),
        bpf.if_equal(arp.ETHERTYPE, 0, 1),
        bpf.ACCEPT,
        bpf.if_equal(_IPV4, 0, 4),
        bpf.LOAD_PKTTYPE,
        bpf.if_equal(PACKET_BROADCAST, 0, 1),
        bpf.ACCEPT,
        bpf.REJECT,
        *bpf.only_if(bpf.load_half(12), ndp.ETHERTYPE),
        *bpf.only_if(bpf.load_byte(20), 58),
        *bpf.only_if(bpf.load_byte(54), *_NEIGHBOURS),
        bpf.load_word(22),
        bpf.if_equal(0, 0, 1),
        bpf.REJECT,
        bpf.ACCEPT,
    )


def answers_to(mac: Mac) -> bpf.Program:
    """Accepts ARP replies and neighbour advertisements that are for this host alone."""
    return (
        *bpf.only_if(bpf.LOAD_PKTTYPE, PACKET_HOST),
        *_from_another_here(mac),
        *bpf.only_if(bpf.load_half(12), arp.ETHERTYPE, ndp.ETHERTYPE),
        bpf.if_equal(arp.ETHERTYPE, 0, len(_ARP_REPLIES)),
        *_ARP_REPLIES,
        *ndp.ONLY_ADVERTISEMENTS,
        bpf.ACCEPT,
    )


POLLS: bpf.Program = (
    *bpf.SENT_HERE,
    bpf.load_byte(0),
    bpf.if_any_of(1, 0, 1),
    bpf.REJECT,
    bpf.load_half(12),
    bpf.if_equal(arp.ETHERTYPE, 0, 4),
    *bpf.only_if(bpf.load_half(20), arp.Operation.REQUEST),
    bpf.ACCEPT,
    *bpf.only_if(bpf.load_half(12), ndp.ETHERTYPE),
    *bpf.only_if(bpf.load_byte(20), 58),
    *bpf.only_if(bpf.load_byte(54), ndp.SOLICITATION),
    bpf.ACCEPT,
)
"""Accepts this host's own questions to one MAC alone, whichever program or kernel asks."""


def only_answers(question: Question) -> bpf.Program:
    """Accepts what the one that is asked answers to us, on a socket of its protocol alone."""
    kind, at = (arp.ONLY_REPLIES, 28) if question.target.version == 4 else (ndp.ONLY_ADVERTISEMENTS, 62)
    return (
        *bpf.only_if(bpf.LOAD_PKTTYPE, PACKET_HOST),
        *kind,
        *_only_address(at, question.target),
        *_only_address(38, question.source),
        bpf.ACCEPT,
    )


def _only_address(at: int, address: IPAddress) -> Iterable[bpf.Instruction]:
    packed = address.packed
    words = ((at + i, int.from_bytes(packed[i : i + 4], "big")) for i in range(0, len(packed), 4))
    return [instruction for where, word in words for instruction in bpf.only_if(bpf.load_word(where), word)]


def _from_another_here(mac: Mac) -> Iterable[bpf.Instruction]:
    """Not from ``mac``, and of this VLAN: what the network card took a tag off looks untagged."""
    return (
        bpf.LOAD_VLAN_TAG,
        bpf.if_any_of(_VLAN_ID, 0, 1),
        bpf.REJECT,
        bpf.load_word(6),
        bpf.if_equal(int.from_bytes(mac[:4], "big"), 0, 3),
        bpf.load_half(10),
        bpf.if_equal(int.from_bytes(mac[4:], "big"), 0, 1),
        bpf.REJECT,
    )
