"""What features share about packets: the codecs of ARP and NDP, BPF, packet sockets, and who asks a link.

This file has what all of them need of Ethernet and of Linux's packet sockets. Pure.
"""

from speaker.model import Mac

BROADCAST = Mac(b"\xff" * 6)
UNKNOWN = Mac(bytes(6))
"""What a request carries where the target's MAC is asked for."""
HEADER_LENGTH = 14

PACKET_HOST, PACKET_BROADCAST, PACKET_MULTICAST, PACKET_OTHERHOST, PACKET_OUTGOING = range(5)
"""sll_pkttype, <linux/if_packet.h>: whom a received frame was for, in the kernel's eyes."""


def is_station(mac: bytes) -> bool:
    """Whether one station can have this MAC: neither a group (the lowest bit of the first byte) nor zero."""
    return not mac[0] & 1 and mac != UNKNOWN


def word_sum(data: bytes) -> int:
    """Congruent, modulo 65535, to the sum of the 16-bit words: 65536 ≡ 1, so the number itself is (RFC 1071 §2)."""
    return int.from_bytes(data, "big")


def checksum_of(total: int) -> int:
    """The one's complement of a sum over bytes that are not all zero."""
    return -total % 0xFFFF
