"""ARP for IPv4 over Ethernet (RFC 826; probes and announcements RFC 5227): bytes ⇄ values. Pure.

Every packet built here has the 42 bytes that the kernel's own ARP sends; drivers pad to 60.
"""

import struct
from dataclasses import dataclass
from enum import IntEnum
from ipaddress import IPv4Address

from speaker.errors import MalformedPacket
from speaker.model import Mac
from speaker.packets import BROADCAST, UNKNOWN
from speaker.packets.bpf import Program, load_word, only_if

ETHERTYPE = 0x0806
LENGTH = 42
FIXED = bytes.fromhex("0806 0001 0800 06 04")
"""Bytes 12 to 19 of every ARP frame we know: EtherType, hardware Ethernet, protocol IPv4, their address lengths."""
REQUEST, REPLY = b"\x00\x01", b"\x00\x02"
ONLY_REPLIES: Program = (*only_if(load_word(14), 0x00010800), *only_if(load_word(18), 0x06040002))
"""For a kernel filter of ARP frames: Ethernet, IPv4, their address lengths, a reply."""
_FRAME = struct.Struct("!6s6s8sH6s4s6s4s")


class Operation(IntEnum):
    """RFC 826 ``ar$op``."""

    REQUEST = 1
    REPLY = 2


@dataclass(frozen=True, slots=True)
class ArpPacket:
    """``destination`` and ``source`` are the Ethernet header's; a liar's differ from ``target_mac``, ``sender_mac``.

    ``operation`` is a plain number where it is neither of ours (RARP and others use more of them).
    """

    destination: Mac
    source: Mac
    operation: int
    sender_mac: Mac
    sender_ip: IPv4Address
    target_mac: Mac
    target_ip: IPv4Address

    def pack(self) -> bytes:
        return _FRAME.pack(
            self.destination,
            self.source,
            FIXED,
            self.operation,
            self.sender_mac,
            self.sender_ip.packed,
            self.target_mac,
            self.target_ip.packed,
        )


def parse(frame: bytes) -> ArpPacket:
    """An Ethernet frame from its first byte; padding is passed over. Raises MalformedPacket, and nothing else."""
    if len(frame) < LENGTH:
        raise MalformedPacket(f"{len(frame)} bytes: ARP takes {LENGTH}")
    destination, source, fixed, operation, sender_mac, sender_ip, target_mac, target_ip = _FRAME.unpack_from(frame)
    if fixed != FIXED:
        raise MalformedPacket(f"not ARP for IPv4 over Ethernet: {fixed.hex()}")
    return ArpPacket(
        destination, source, operation, sender_mac, IPv4Address(sender_ip), target_mac, IPv4Address(target_ip)
    )


def request(mac: Mac, source: IPv4Address, target: IPv4Address, to: Mac = BROADCAST) -> ArpPacket:
    """Asks who has ``target``: everybody, or one alone (RFC 1122 §2.3.2.1, "unicast poll")."""
    return ArpPacket(to, mac, Operation.REQUEST, mac, source, UNKNOWN, target)


def reply_part(mac: Mac, address: bytes) -> bytes:
    """The middle of every reply for ``address`` (four bytes): what stands between the asker's MAC and the asker.

    A whole reply is ``asker's MAC + reply_part + asker's MAC + asker's IP``.
    """
    return mac + FIXED + REPLY + mac + address


def announce_by_request(mac: Mac, address: bytes) -> bytes:
    """An ARP announcement (RFC 5227 §3): ``address``, four bytes, is both sender and target."""
    return b"".join((BROADCAST, mac, FIXED, REQUEST, mac, address, UNKNOWN, address))


def announce_by_reply(mac: Mac, address: bytes) -> bytes:
    """The same news as a reply. Its target MAC is its sender's, or Linux takes it for an ordinary unasked reply and
    ignores it within ``locktime`` (``arp_is_garp``, net/ipv4/arp.c)."""
    return b"".join((BROADCAST, mac, FIXED, REPLY, mac, address, mac, address))
