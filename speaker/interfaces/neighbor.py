"""Asking one neighbour whether it is there: the frames, and the filter that lets only its answers through. Pure.

ARP for IPv4 (RFC 826), neighbour solicitation for IPv6 (RFC 4861 §4.3). ``layer2`` has whole codecs for both; a feature
does not import another, and this is all that is needed here.
"""

from ipaddress import IPv6Address
from typing import NamedTuple, TypeAlias

from speaker.model import IPAddress, Mac

ARP, IPV6 = 0x0806, 0x86DD
"""EtherTypes."""

_BROADCAST = b"\xff" * 6
_ARP_FIXED = bytes.fromhex("0806 0001 0800 06 04")
_REQUEST = b"\x00\x01"
_SENDER_MAC, _ARP_END = 22, 42

_SOLICITED_NODE = IPv6Address("ff02::1:ff00:0").packed[:13]
_SOLICITATION, _ICMPV6, _HOP_LIMIT = b"\x87\x00", 58, 255
_PAYLOAD_LENGTH, _IPV6_SOURCE, _ICMP, _ICMP_LENGTH = 18, 22, 54, 24


class Question(NamedTuple):
    """Who is asked, on which link (its index), and from which MAC and address of ours there."""

    link: int
    mac: Mac
    source: IPAddress
    gateway: IPAddress

    @property
    def ethertype(self) -> int:
        return ARP if self.gateway.version == 4 else IPV6


def ask(question: Question, known: Mac | None) -> bytes:
    """The whole frame. ARP goes to ``known`` alone, the MAC of the last answer (RFC 1122 §2.3.2.1, "unicast poll"), and
    to all where that is None. A solicitation goes to the solicited-node group, where few but the gateway listen."""
    mac, source, gateway = question.mac, question.source.packed, question.gateway.packed
    if question.ethertype == ARP:
        return b"".join((known or _BROADCAST, mac, _ARP_FIXED, _REQUEST, mac, source, bytes(6), gateway))
    group = _SOLICITED_NODE + gateway[13:]
    tail = bytes(4) + gateway + b"\x01\x01" + mac  # reserved, target, source link-layer address
    length = len(_SOLICITATION) + 2 + len(tail)
    checksum = -_total(source + group, _SOLICITATION + tail, length) % 0xFFFF
    header = b"\x86\xdd\x60\x00\x00\x00" + length.to_bytes(2, "big") + bytes((_ICMPV6, _HOP_LIMIT))
    addresses = source + group
    return b"".join((b"\x33\x33", group[12:], mac, header, addresses, _SOLICITATION, checksum.to_bytes(2, "big"), tail))


class Answer(NamedTuple):
    """``mac`` is where ARP found the gateway; None for IPv6, which asks its group every time."""

    mac: Mac | None


def read_answer(question: Question, frame: bytes) -> Answer | None:
    """Of a frame that has passed ``only_answers``, the rest of what the filter could not check; None: it is no answer.

    Takes any bytes.
    """
    if question.ethertype == ARP:
        mac = frame[_SENDER_MAC : _SENDER_MAC + 6]
        # A group address is nobody's; asking there would be asking many.
        return Answer(Mac(mac)) if len(frame) >= _ARP_END and not mac[0] & 1 else None
    length = int.from_bytes(frame[_PAYLOAD_LENGTH : _PAYLOAD_LENGTH + 2], "big")
    message = frame[_ICMP : _ICMP + length]
    if len(message) != length or length < _ICMP_LENGTH or length % 8:  # options come in units of 8 bytes
        return None
    return Answer(None) if _total(frame[_IPV6_SOURCE:_ICMP], message, length) % 0xFFFF == 0 else None


def _total(addresses: bytes, message: bytes, length: int) -> int:
    """Congruent modulo 65535 to the sum of 16-bit words that the ICMPv6 checksum completes (RFC 1071 §2, RFC 8200
    §8.1); both have an even number of bytes."""
    return int.from_bytes(addresses, "big") + int.from_bytes(message, "big") + _ICMPV6 + length


# ── The filter ────────────────────────────────────────────────────────────────────────────────────────────────


class Instruction(NamedTuple):
    """``struct sock_filter`` (linux/filter.h)."""

    code: int
    jt: int
    jf: int
    k: int


Program: TypeAlias = tuple[Instruction, ...]

_LOAD = {4: 0x20, 2: 0x28, 1: 0x30}
_EQUAL, _RETURN = 0x15, 0x06
_PKTTYPE = 0xFFFFF004
"""SKF_AD_OFF + SKF_AD_PKTTYPE: 0 is PACKET_HOST, a frame for us and of no foreign VLAN."""


def only_answers(question: Question) -> Program:
    """Classic BPF that accepts what this gateway answers to us, and rejects everything else and all that is cut off."""
    if question.ethertype == ARP:
        return _all(
            (1, _PKTTYPE, 0),
            (4, 14, 0x00010800),
            (4, 18, 0x06040002),  # address lengths; a reply
            *_words(28, question.gateway),
            *_words(38, question.source),
        )
    return _all(
        (1, _PKTTYPE, 0),
        (1, 20, _ICMPV6),
        (1, 21, _HOP_LIMIT),  # or it has passed a router (RFC 4861 §7.1.2)
        (2, 54, 136 << 8),  # an advertisement, code 0
        *_words(62, question.gateway),
        *_words(38, question.source),
    )


def _words(at: int, address: IPAddress) -> list[tuple[int, int, int]]:
    packed = address.packed
    return [(4, at + i, int.from_bytes(packed[i : i + 4], "big")) for i in range(0, len(packed), 4)]


def _all(*conditions: tuple[int, int, int]) -> Program:
    """Accepts where each of (bytes, offset, value) holds. A load beyond the frame rejects it (bpf(2))."""
    program: list[Instruction] = []
    for left, (size, at, value) in zip(range(len(conditions) - 1, -1, -1), conditions, strict=True):
        program += (Instruction(_LOAD[size], 0, 0, at), Instruction(_EQUAL, 0, 2 * left + 1, value))
    return (*program, Instruction(_RETURN, 0, 0, 0xFFFF), Instruction(_RETURN, 0, 0, 0))
