"""Asking one neighbour whether it is there: the frames, and the filter that lets only its answers through. Pure.

ARP for IPv4 (RFC 826), neighbour solicitation for IPv6 (RFC 4861 §4.3).
"""

from ipaddress import IPv4Address, IPv6Address
from typing import NamedTuple

from speaker.errors import MalformedPacket
from speaker.model import IPAddress, Mac
from speaker.packets import arp, ndp
from speaker.packets.bpf import ACCEPT, LOAD_PKTTYPE, Instruction, Program, load_word, only_if
from speaker.packets.ethernet import BROADCAST, PACKET_HOST, is_station


class Question(NamedTuple):
    """Who is asked, on which link (its index), and from which MAC and address of ours there."""

    link: int
    mac: Mac
    source: IPAddress
    gateway: IPAddress

    @property
    def ethertype(self) -> int:
        return arp.ETHERTYPE if self.gateway.version == 4 else ndp.ETHERTYPE


def ask(question: Question, known: Mac | None) -> bytes:
    """The whole frame. ARP goes to ``known`` alone, the MAC of the last answer (RFC 1122 §2.3.2.1, "unicast poll"), and
    to all where that is None. A solicitation goes to the solicited-node group, where few but the gateway listen."""
    mac, source, gateway = question.mac, question.source, question.gateway
    if isinstance(source, IPv4Address) and isinstance(gateway, IPv4Address):
        return arp.request(mac, source, gateway, known or BROADCAST).pack()
    assert isinstance(source, IPv6Address)
    assert isinstance(gateway, IPv6Address)
    return ndp.solicitation(mac, source, gateway).pack()


class Answer(NamedTuple):
    """``mac`` is where ARP found the gateway; None for IPv6, which asks its group every time."""

    mac: Mac | None


def read_answer(question: Question, frame: bytes) -> Answer | None:
    """Of a frame that has passed ``only_answers``, the rest of what the filter could not check; None: it is no answer.

    Takes any bytes.
    """
    try:
        if question.ethertype == arp.ETHERTYPE:
            mac = arp.parse(frame).sender_mac
            # A group address is nobody's; asking there would be asking many. Neither is zero.
            return Answer(mac) if is_station(mac) else None
        return Answer(None) if ndp.intact(frame, ndp.extent(frame)) else None
    except MalformedPacket:
        return None


# ── The filter ────────────────────────────────────────────────────────────────────────────────────────────────


def only_answers(question: Question) -> Program:
    """Accepts what this gateway answers to us, and rejects everything else and all that is cut off."""
    for_us = only_if(LOAD_PKTTYPE, PACKET_HOST)
    if question.ethertype == arp.ETHERTYPE:
        return (
            *for_us,
            *arp.ONLY_REPLIES,
            *_only_address(28, question.gateway),
            *_only_address(38, question.source),
            ACCEPT,
        )
    return (
        *for_us,
        *ndp.ONLY_ADVERTISEMENTS,
        *_only_address(62, question.gateway),
        *_only_address(38, question.source),
        ACCEPT,
    )


def _only_address(at: int, address: IPAddress) -> list[Instruction]:
    packed = address.packed
    words = ((at + i, int.from_bytes(packed[i : i + 4], "big")) for i in range(0, len(packed), 4))
    return [instruction for where, word in words for instruction in only_if(load_word(where), word)]
