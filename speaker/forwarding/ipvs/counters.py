"""What IPVS has counted, for metrics: from a dump of its virtual servers and from ``/proc/net/ip_vs``. Pure.

Two sources, because each is the cheap one for what it is read for. A dump over netlink has 64-bit counters of every
virtual server in a few large messages, but real servers only one virtual server at a time; ``/proc/net/ip_vs`` lists
all real servers with their connections in one go, and no counters.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from speaker.errors import EdgeError
from speaker.forwarding.ipvs.proc import hexadecimal, listed, place
from speaker.forwarding.ipvs.tables import (
    CMD_ATTR_SERVICE,
    PROTOCOLS,
    SVC_ADDR,
    SVC_AF,
    SVC_FWMARK,
    SVC_PORT,
    SVC_PROTOCOL,
)
from speaker.forwarding.traffic import Counts, Name, RealName, Traffic
from speaker.model import IPAddress
from speaker.netlink.messages import ATTRIBUTE, U16, attributes
from speaker.netlink.numbers import AF_INET

SVC_STATS64 = 12
"""Since Linux 4.1."""


def traffic(eips: Iterable[IPAddress], messages: Iterable[bytes], listing: Iterable[str]) -> Traffic:
    """Of the virtual servers for ``eips``: ``messages`` is the dump of all, ``listing`` the lines of
    ``/proc/net/ip_vs``, () where nobody wants to know of real servers. Raises EdgeError where they are none."""
    names = {eip.packed: str(eip) for eip in eips}
    virtual_servers: dict[Name, Counts] = {}
    # The kernel may list one twice that another one pushed along meanwhile. A metric must not be there twice.
    places: dict[tuple[str, str], Name] = {}
    for payload in messages:
        counted = parse_counters(payload)
        if counted is None or not any(counted.counts) or (eip := names.get(counted.address)) is None:
            continue
        protocol = PROTOCOLS.get(counted.protocol)
        if protocol is not None:
            name = (eip, protocol.value, str(counted.port))
            virtual_servers[name] = counted.counts
            places[protocol.value, hexadecimal(counted.address, counted.port)] = name
    return Traffic(virtual_servers, dict(_real_servers(listing, places)))


def _real_servers(
    listing: Iterable[str], places: Mapping[tuple[str, str], Name]
) -> Iterator[tuple[RealName, tuple[int, int]]]:
    for virtual_server, real in listed(listing):
        if (name := places.get(virtual_server)) is not None:
            yield (*name, place(real.place)), (real.active, real.inactive)


class Counted(NamedTuple):
    """A virtual server in numbers, and what it has counted. ``address``: 4 or 16 bytes."""

    address: bytes
    protocol: int
    port: int
    counts: Counts


_HEAD = struct.Struct("=8x 4sH2x 4sH2x 4s16s 4s2s2x")
_TAIL = struct.Struct("=4s 4sQ 4sQ 4sQ 4sQ 4sQ 60x")
_U64 = struct.Struct("=Q")
_HEADS = tuple(
    ATTRIBUTE.pack(length, kind) for length, kind in ((6, SVC_AF), (6, SVC_PROTOCOL), (20, SVC_ADDR), (6, SVC_PORT))
)
_TAILS = (ATTRIBUTE.pack(_TAIL.size, SVC_STATS64), *(ATTRIBUTE.pack(12, kind) for kind in range(1, 6)))
"""As Linux begins and ends a virtual server where it need not align 64-bit numbers; and each header, as it must be."""


def parse_counters(payload: bytes) -> Counted | None:
    """One message of a dump; None for a virtual server of a firewall mark. Raises EdgeError where it is none."""
    if len(payload) >= _HEAD.size + _TAIL.size:
        head, tail = _HEAD.unpack_from(payload), _TAIL.unpack_from(payload, len(payload) - _TAIL.size)
        if head[::2] == _HEADS and (tail[0], *tail[1::2]) == _TAILS:
            return _counted(head[1], head[3], head[5], head[7], tail[2::2])
    return _parse_in_any_order(payload)


def _parse_in_any_order(payload: bytes) -> Counted | None:
    """The same for every kernel; six times slower."""
    found = attributes(attributes(payload, 4).get(CMD_ATTR_SERVICE, b""))
    if SVC_FWMARK in found:
        return None
    try:
        counted = attributes(found[SVC_STATS64])
        counts = tuple(_U64.unpack(counted[kind])[0] for kind in range(1, 6))
        (af,), (protocol,) = U16.unpack(found[SVC_AF]), U16.unpack(found[SVC_PROTOCOL])
        return _counted(af, protocol, found[SVC_ADDR], found[SVC_PORT], counts)
    except (KeyError, struct.error) as error:
        raise EdgeError(f"not a virtual server of IPVS with 64-bit counters: {payload.hex()}") from error


def _counted(af: int, protocol: int, address: bytes, port: bytes, counts: tuple[int, ...]) -> Counted:
    connections, packets_in, packets_out, bytes_in, bytes_out = counts
    return Counted(
        address[:4] if af == AF_INET else address,
        protocol,
        int.from_bytes(port, "big"),
        (connections, packets_in, packets_out, bytes_in, bytes_out),
    )
