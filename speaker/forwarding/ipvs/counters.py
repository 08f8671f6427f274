"""What IPVS has counted, for metrics: from a dump of its virtual servers and from ``/proc/net/ip_vs``. Pure.

There are two sources because each is cheap for one thing. A dump over netlink has 64-bit counters of every virtual
server in a few large messages, but lists real servers for one virtual server at a time. ``/proc/net/ip_vs`` lists all
real servers with their connections at once, without counters. net/netfilter/ipvs/ip_vs_ctl.c (ip_vs_info_seq_show)
writes it::

    IP Virtual Server version 1.2.1 (size=4096)
    Prot LocalAddress:Port Scheduler Flags
      -> RemoteAddress:Port Forward Weight ActiveConn InActConn
    TCP  C6336401:0050 rr
      -> 0A000102:1F90      Masq    1      1          0
"""

import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import NamedTuple

from speaker.errors import EdgeError
from speaker.forwarding.ipvs import tables
from speaker.forwarding.plan import PROTOCOLS
from speaker.model import Counts, IPAddress, RealName, ServerName, Traffic
from speaker.netlink.messages import AF_INET, ATTRIBUTE, U16, attributes

SVC_STATS64 = 12
"""Since Linux 4.1."""


def traffic(eips: Iterable[IPAddress], messages: Iterable[bytes], listing: Iterable[str]) -> Traffic:
    """The traffic of the virtual servers for ``eips``. ``messages``: the dump of all. ``listing``: the lines of
    ``/proc/net/ip_vs``, or () if real servers are not needed. Raises EdgeError if they are something else."""
    names = {eip.packed: str(eip) for eip in eips}
    virtual_servers: dict[ServerName, Counts] = {}
    # The kernel may list one twice that was moved by another one meanwhile, and a metric must not be there twice.
    places: dict[tuple[str, str], ServerName] = {}
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
    listing: Iterable[str], places: Mapping[tuple[str, str], ServerName]
) -> Iterator[tuple[RealName, tuple[int, int]]]:
    for virtual_server, real in listed(listing):
        if (name := places.get(virtual_server)) is not None:
            yield (*name, place(real.place)), (real.active, real.inactive)


class Counted(NamedTuple):
    """A virtual server in numbers, with its counters. ``address``: 4 or 16 bytes."""

    address: bytes
    protocol: int
    port: int
    counts: Counts


_HEAD = struct.Struct("=8x 4sH2x 4sH2x 4s16s 4s2s2x")
_TAIL = struct.Struct("=4s 4sQ 4sQ 4sQ 4sQ 4sQ 60x")
_U64 = struct.Struct("=Q")
_HEADS = tuple(
    ATTRIBUTE.pack(length, kind)
    for length, kind in ((6, tables.SVC_AF), (6, tables.SVC_PROTOCOL), (20, tables.SVC_ADDR), (6, tables.SVC_PORT))
)
_TAILS = (ATTRIBUTE.pack(_TAIL.size, SVC_STATS64), *(ATTRIBUTE.pack(12, kind) for kind in range(1, 6)))
"""How Linux begins and ends a virtual server if it need not align 64-bit numbers; and each header, as it must be."""


def parse_counters(payload: bytes) -> Counted | None:
    """One message of a dump; None for a virtual server of a firewall mark. Raises EdgeError if it is not a virtual
    server."""
    if len(payload) >= _HEAD.size + _TAIL.size:
        head, tail = _HEAD.unpack_from(payload), _TAIL.unpack_from(payload, len(payload) - _TAIL.size)
        if head[::2] == _HEADS and (tail[0], *tail[1::2]) == _TAILS:
            return _counted(head[1], head[3], head[5], head[7], tail[2::2])
    return _parse_in_any_order(payload)


def _parse_in_any_order(payload: bytes) -> Counted | None:
    """The same for every kernel; six times slower."""
    found = attributes(attributes(payload, 4).get(tables.CMD_ATTR_SERVICE, b""))
    if tables.SVC_FWMARK in found:
        return None
    try:
        counted = attributes(found[SVC_STATS64])
        counts = tuple(_U64.unpack(counted[kind])[0] for kind in range(1, 6))
        (af,), (protocol,) = U16.unpack(found[tables.SVC_AF]), U16.unpack(found[tables.SVC_PROTOCOL])
        return _counted(af, protocol, found[tables.SVC_ADDR], found[tables.SVC_PORT], counts)
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


# ── /proc/net/ip_vs ───────────────────────────────────────────────────────────────────────────────────────────

FILE = Path("/proc/thread-self/net/ip_vs")
"""For the calling thread's network namespace; ``/proc/net`` is that of the process's first thread."""

_SIZE = re.compile(r"IP Virtual Server version \S+ \(size=(\d+)\)\s*")
_REAL = "  -> "
_COLUMNS = "  -> RemoteAddress:Port "
_PLACE = re.compile(r"(?:([0-9A-F]{8})|\[((?:[0-9a-f]{4}:){7}[0-9a-f]{4})\]):([0-9A-F]{4})")


class Listed(NamedTuple):
    """A real server: its place as written there, and its connections."""

    place: str
    active: int
    inactive: int


def buckets(lines: Iterable[str]) -> int:
    """How many hash buckets the connection table has, from the first line. Raises EdgeError."""
    first = next(iter(lines), "")
    found = _SIZE.fullmatch(first)
    if found is None:
        raise EdgeError(f"/proc/net/ip_vs begins with {first!r}")
    return int(found[1])


def listed(lines: Iterable[str]) -> Iterator[tuple[tuple[str, str], Listed]]:
    """Each real server with its virtual server's protocol and place. Raises EdgeError for a line that is not one."""
    virtual_server = ("", "")
    for line in lines:
        if not line.startswith(_REAL):
            protocol, _, rest = line.partition(" ")
            virtual_server = (protocol, rest.lstrip().partition(" ")[0])
        elif not line.startswith(_COLUMNS):
            try:
                at, _, _, active, inactive = line[len(_REAL) :].split()
                yield virtual_server, Listed(at, int(active), int(inactive))
            except ValueError as error:
                raise EdgeError(f"not a real server in /proc/net/ip_vs: {line!r}") from error


def hexadecimal(address: bytes, port: int) -> str:
    """An address (4 or 16 bytes) and a port as written there."""
    if len(address) == 4:
        return f"{address.hex().upper()}:{port:04X}"
    return f"[{address.hex(':', 2)}]:{port:04X}"


def place(text: str) -> str:
    """What ``hexadecimal`` writes, in the usual notation. Raises EdgeError."""
    found = _PLACE.fullmatch(text)
    if found is None:
        raise EdgeError(f"not an address and a port in /proc/net/ip_vs: {text!r}")
    four, six, port = found.groups()
    return f"{IPv4Address(int(four, 16))}:{int(port, 16)}" if four else f"[{IPv6Address(six)}]:{int(port, 16)}"
