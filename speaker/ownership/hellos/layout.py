"""The kinds of sections in a frame of a hello, and their numbers; ``frames.py`` describes the format. Pure."""

import struct
from collections.abc import Mapping
from enum import IntEnum
from ipaddress import IPv4Address, IPv6Address

MAX_NAME = 253
"""Bytes of a node name: a Kubernetes object name is a DNS subdomain (RFC 1123)."""

SECTION = struct.Struct("!BH")
SPAN = struct.Struct("!B16sB16s")
HEARD = struct.Struct("!HBB")
ALIKE = struct.Struct("!BBB")
REVISION, INTERVAL, LINKS = struct.Struct("!BHI"), struct.Struct("!BHH"), struct.Struct("!BHB")
"""Whole sections: the kind, the bytes of the number, the number."""
WEIGHT = struct.Struct("!QH")
AGES = {1: "B", 2: "H"}
"""struct's letter for the bytes of an age."""
ADDRESS: Mapping[int, tuple[type[IPv4Address] | type[IPv6Address], int]] = {4: (IPv4Address, 4), 6: (IPv6Address, 16)}
"""By IP version: its addresses and their bytes."""


class Kind(IntEnum):
    """Sections. A number is never reused for anything else."""

    COVERS = 1
    CLAIMS = 2
    INTENTS = 3
    YIELDED = 4
    HEARD = 5
    PROBES = 6
    WANTS = 7
    MOVES = 8
    REVISION = 9
    ADDRESSES = 10
    OWN = 11
    WEAK = 12
    INTERVAL = 13
    UNANSWERED = 14
    LOSS = 15
    LINKS = 16
    GROUP = 17
    WEIGHTS = 18


def octets(bits: int) -> int:
    """Bytes that so many bits take."""
    return bits + 7 >> 3


def coded_name(name: str) -> bytes:
    encoded = name.encode()
    if not 1 <= len(encoded) <= MAX_NAME:
        raise ValueError(f"node name {name[:80]!r}: must take 1 to {MAX_NAME} bytes")
    return encoded
