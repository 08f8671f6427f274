"""Neighbour solicitations and advertisements (RFC 4861) over Ethernet: bytes ⇄ values. Pure.

Frames are Ethernet + IPv6 without extension headers + ICMPv6, which is what every host sends.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv6Address
from typing import NamedTuple, TypeAlias

from speaker.errors import MalformedPacket
from speaker.model import Mac
from speaker.packets import checksum_of, word_sum
from speaker.packets.bpf import Program, load_byte, load_half, only_if

ETHERTYPE = 0x86DD
SOLICITATION, ADVERTISEMENT = 135, 136
SOURCE_LINK_LAYER, TARGET_LINK_LAYER = 1, 2
"""Option types (RFC 4861 §4.6.1)."""
HOP_LIMIT = 255
"""Whatever arrives with another one has passed a router: it comes from off the link (RFC 4861 §3.1)."""
ADVERTISEMENT_LENGTH = 86
"""Of every frame we build: one link-layer option of 8 bytes."""

ALL_NODES = IPv6Address("ff02::1").packed
UNSPECIFIED = bytes(16)
MULTICAST = 0xFF
"""The first byte of a group's address."""
_SOLICITED_NODE = IPv6Address("ff02::1:ff00:0").packed[:13]

_ROUTER, _SOLICITED, _OVERRIDE = 0x8000, 0x4000, 0x2000
"""The flags as the upper half of the advertisement's second word."""
_ICMPV6 = 58
# Offsets in the frame.
_ETHERTYPE_AT, _VERSION, _PAYLOAD_LENGTH, _NEXT_HEADER, _HOP_LIMIT = 12, 14, 18, 20, 21
_SOURCE, _DESTINATION, _ICMP, _FLAGS, _TARGET, _OPTIONS = 22, 38, 54, 58, 62, 78

ONLY_ADVERTISEMENTS: Program = (
    *only_if(load_byte(_NEXT_HEADER), _ICMPV6),
    *only_if(load_byte(_HOP_LIMIT), HOP_LIMIT),
    *only_if(load_half(_ICMP), ADVERTISEMENT << 8),  # its code: 0
)
"""For a kernel filter of IPv6 frames: neighbour advertisements of this link."""


def solicited_node(address: bytes) -> bytes:
    """The multicast group, sixteen bytes, on which ``address`` is solicited (RFC 4291 §2.7.1)."""
    return _SOLICITED_NODE + address[13:]


def multicast_mac(group: bytes) -> Mac:
    """RFC 2464 §7."""
    return Mac(b"\x33\x33" + group[12:])


# ── values ────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class NeighborSolicitation:
    """``source_link_layer`` is the option; ``source_mac`` and ``destination_mac`` are the Ethernet header's."""

    destination_mac: Mac
    source_mac: Mac
    source: IPv6Address
    destination: IPv6Address
    target: IPv6Address
    source_link_layer: Mac | None = None

    def pack(self) -> bytes:
        return _pack(self, SOLICITATION, 0, SOURCE_LINK_LAYER, self.source_link_layer)


@dataclass(frozen=True, slots=True)
class NeighborAdvertisement:
    """``router``, ``solicited``, ``override`` are the R, S and O flags (RFC 4861 §4.4)."""

    destination_mac: Mac
    source_mac: Mac
    source: IPv6Address
    destination: IPv6Address
    target: IPv6Address
    router: bool
    solicited: bool
    override: bool
    target_link_layer: Mac | None = None

    def pack(self) -> bytes:
        flags = self.router * _ROUTER | self.solicited * _SOLICITED | self.override * _OVERRIDE
        return _pack(self, ADVERTISEMENT, flags, TARGET_LINK_LAYER, self.target_link_layer)


NeighborMessage: TypeAlias = NeighborSolicitation | NeighborAdvertisement


def solicitation(mac: Mac, source: IPv6Address, target: IPv6Address) -> NeighborSolicitation:
    """Asks the solicited-node group who has ``target``; from ``::`` it is duplicate address detection, which may
    not name a link-layer address (RFC 4861 §4.3)."""
    group = solicited_node(target.packed)
    option = None if source.is_unspecified else mac
    return NeighborSolicitation(multicast_mac(group), mac, source, IPv6Address(group), target, option)


def _pack(message: NeighborMessage, kind: int, flags: int, option: int, link_layer: Mac | None) -> bytes:
    tail = message.target.packed + (bytes((option, 1)) + link_layer if link_layer else b"")
    addresses = message.source.packed + message.destination.packed
    length = 8 + len(tail)
    checksum = checksum_of(word_sum(addresses) + _ICMPV6 + length + (kind << 8) + flags + word_sum(tail))
    return b"".join(
        (
            message.destination_mac,
            message.source_mac,
            _ipv6_header(length),
            addresses,
            bytes((kind, 0)),
            checksum.to_bytes(2, "big"),
            flags.to_bytes(2, "big"),
            b"\x00\x00",
            tail,
        )
    )


def _ipv6_header(payload_length: int) -> bytes:
    """EtherType and IPv6 header up to the addresses."""
    return b"\x86\xdd\x60\x00\x00\x00" + payload_length.to_bytes(2, "big") + bytes((_ICMPV6, HOP_LIMIT))


# ── parsing ───────────────────────────────────────────────────────────────────────────────────────────────────
# In steps, because `answer` counts a wrong hop limit or checksum by its own name and wants no objects on its way.


def parse(frame: bytes) -> NeighborMessage:
    """An Ethernet frame from its first byte; padding is passed over. Raises MalformedPacket, and nothing else.

    Checks what RFC 4861 §7.1.1 and §7.1.2 ask of a receiver, hop limit and checksum included.
    """
    end = extent(frame)
    if not from_this_link(frame):
        raise MalformedPacket(f"hop limit {frame[_HOP_LIMIT]}: from beyond a router")
    if not intact(frame, end):
        raise MalformedPacket("wrong ICMPv6 checksum")
    option = link_layer(frame, end)
    destination_mac, source_mac = Mac(frame[:6]), Mac(frame[6:12])
    sender = IPv6Address(source(frame))
    destination = IPv6Address(frame[_DESTINATION:_ICMP])
    wanted = IPv6Address(target(frame))
    if is_solicitation(frame):
        return NeighborSolicitation(destination_mac, source_mac, sender, destination, wanted, option)
    flags = int.from_bytes(frame[_FLAGS : _FLAGS + 2], "big")
    return NeighborAdvertisement(
        destination_mac,
        source_mac,
        sender,
        destination,
        wanted,
        router=bool(flags & _ROUTER),
        solicited=bool(flags & _SOLICITED),
        override=bool(flags & _OVERRIDE),
        target_link_layer=option,
    )


def extent(frame: bytes) -> int:
    """Where the ICMPv6 message ends. Raises MalformedPacket unless it is a neighbour message of a possible length."""
    if len(frame) < _OPTIONS:
        raise MalformedPacket(f"{len(frame)} bytes: the shortest neighbour message takes {_OPTIONS}")
    if frame[_ETHERTYPE_AT:_VERSION] != b"\x86\xdd" or frame[_VERSION] >> 4 != 6 or frame[_NEXT_HEADER] != _ICMPV6:
        raise MalformedPacket("not ICMPv6")
    if frame[_ICMP] not in (SOLICITATION, ADVERTISEMENT) or frame[_ICMP + 1] != 0:
        raise MalformedPacket(f"ICMPv6 type {frame[_ICMP]} code {frame[_ICMP + 1]}")
    length = int.from_bytes(frame[_PAYLOAD_LENGTH:_NEXT_HEADER], "big")
    end = _ICMP + length
    if not _OPTIONS <= end <= len(frame) or length % 8 != 0:  # options come in units of 8 bytes
        raise MalformedPacket(f"IPv6 payload of {length} bytes in a frame of {len(frame)}")
    return end


def is_solicitation(frame: bytes) -> bool:
    return frame[_ICMP] == SOLICITATION


def source(frame: bytes) -> bytes:
    return frame[_SOURCE:_DESTINATION]


def target(frame: bytes) -> bytes:
    return frame[_TARGET:_OPTIONS]


def from_this_link(frame: bytes) -> bool:
    return frame[_HOP_LIMIT] == HOP_LIMIT


def intact(frame: bytes, end: int) -> bool:
    """Whether the ICMPv6 checksum is right (RFC 4443 §2.3)."""
    return (word_sum(frame[_SOURCE:end]) + _ICMPV6 + end - _ICMP) % 0xFFFF == 0


def link_layer(frame: bytes, end: int) -> Mac | None:
    """The link-layer address a neighbour message names, None without that option (the first one counts).

    Raises MalformedPacket where RFC 4861 §7.1.1 or §7.1.2 has the receiver discard the message.
    """
    asking = is_solicitation(frame)
    wanted = SOURCE_LINK_LAYER if asking else TARGET_LINK_LAYER
    found: Mac | None = None
    for kind, value in _options(frame, end):
        if kind == wanted and found is None:
            if len(value) != 6:
                raise MalformedPacket(f"link-layer option of {len(value)} bytes: Ethernet has 6")
            found = Mac(value)
    if frame[_TARGET] == 0xFF:
        raise MalformedPacket("the target is a multicast address")
    if asking and source(frame) == UNSPECIFIED:
        if found is not None:
            raise MalformedPacket("a solicitation from :: names a link-layer address")
        if frame[_DESTINATION : _DESTINATION + 13] != _SOLICITED_NODE:
            raise MalformedPacket("a solicitation from :: to another than the solicited-node group")
    if not asking and frame[_DESTINATION] == 0xFF and frame[_FLAGS] & 0x40:
        raise MalformedPacket("a multicast advertisement says it was solicited")
    return found


def _options(frame: bytes, end: int) -> Iterator[tuple[int, bytes]]:
    at = _OPTIONS
    while at < end:
        length = frame[at + 1] * 8 if at + 1 < end else 0
        if length == 0 or at + length > end:
            raise MalformedPacket(f"option of {length} bytes where {end - at} are left")
        yield frame[at], frame[at + 2 : at + length]
        at += length


# ── the fast way out ──────────────────────────────────────────────────────────────────────────────────────────


class AdvertisementPart(NamedTuple):
    """What never changes in the advertisements of one address."""

    head: bytes
    """From our MAC to the IPv6 source."""
    tail: bytes
    """The target and the link-layer option."""
    total: int
    """Checksum of all that is known."""


def advertisement_part(mac: Mac, address: bytes) -> AdvertisementPart:
    tail = address + bytes((TARGET_LINK_LAYER, 1)) + mac
    total = word_sum(address) + _ICMPV6 + 32 + (ADVERTISEMENT << 8) + _OVERRIDE + word_sum(tail)
    return AdvertisementPart(mac + _ipv6_header(32) + address, tail, total % 0xFFFF)


def solicited_advertisement(part: AdvertisementPart, mac: bytes, asker: bytes) -> bytes:
    """The reply to a solicitation by a host with an address (RFC 4861 §7.2.4). R=0: an EIP is no router. S=1. O=1: the
    address is neither anycast nor proxied, one node holds it at a time, and the host's cache must follow when it moves.
    """
    checksum = -(part.total + _SOLICITED + int.from_bytes(asker, "big")) % 0xFFFF
    return b"".join((mac, part.head, asker, b"\x88\x00", checksum.to_bytes(2, "big"), b"\x60\x00\x00\x00", part.tail))


_ALL_NODES_SUM = word_sum(ALL_NODES)
_ALL_NODES_MAC = multicast_mac(ALL_NODES)


def unsolicited_advertisement(part: AdvertisementPart) -> bytes:
    """Tells all nodes that we have the address now (RFC 4861 §7.2.6), among them an asker without an address. S=0."""
    checksum = -(part.total + _ALL_NODES_SUM) % 0xFFFF
    return b"".join(
        (_ALL_NODES_MAC, part.head, ALL_NODES, b"\x88\x00", checksum.to_bytes(2, "big"), b"\x20\x00\x00\x00", part.tail)
    )
