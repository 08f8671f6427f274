"""Multicast listener reports, version 2 (RFC 3810 §5.2): values → bytes. Pure.

For the groups that ``groups`` does not have the kernel join. Only the ICMPv6 message is built here: the kernel adds
the IPv6 header and the checksum.
"""

from collections.abc import Iterable
from enum import IntEnum

REPORT = 143
RECORDS = 60
"""In one report: with its headers it fits IPv6's smallest MTU, 1,280 bytes."""
ROUTERS = "ff02::16"
"""Every router and snooping switch that speaks version 2 listens there."""
ROUTER_ALERT = bytes.fromhex("00 00 05 02 0000 01 00")
"""Hop-by-hop header with the option that every report must carry (RFC 2711); its first byte is the kernel's to fill."""


class RecordType(IntEnum):
    """What a report says of a group (RFC 3810 §5.2.12): from no source at all, to or from all of them."""

    LISTENING = 4  # CHANGE_TO_EXCLUDE_MODE, of no sources
    LEFT = 3  # CHANGE_TO_INCLUDE_MODE, of no sources


def report(kind: RecordType, groups: Iterable[bytes]) -> bytes:
    """One message about all of ``groups`` (16 bytes each, at most ``RECORDS``), its checksum left zero."""
    records = [bytes((kind, 0, 0, 0)) + group for group in groups]
    return bytes((REPORT, 0, 0, 0, 0, 0)) + len(records).to_bytes(2, "big") + b"".join(records)
