"""The text of ``/proc/net/ip_vs``: every virtual server with its real servers. Pure.

As net/netfilter/ipvs/ip_vs_ctl.c (ip_vs_info_seq_show) writes it::

    IP Virtual Server version 1.2.1 (size=4096)
    Prot LocalAddress:Port Scheduler Flags
      -> RemoteAddress:Port Forward Weight ActiveConn InActConn
    TCP  C6336401:0050 rr
      -> 0A000102:1F90      Masq    1      1          0
"""

import re
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import NamedTuple

from speaker.errors import EdgeError

FILE = Path("/proc/thread-self/net/ip_vs")
"""Of the calling thread's network namespace; ``/proc/net`` is that of the process's first thread."""

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
    """How many hash buckets the table of connections has, from the first line. Raises EdgeError."""
    first = next(iter(lines), "")
    found = _SIZE.fullmatch(first)
    if found is None:
        raise EdgeError(f"/proc/net/ip_vs begins with {first!r}")
    return int(found[1])


def listed(lines: Iterable[str]) -> Iterator[tuple[tuple[str, str], Listed]]:
    """Each real server with its virtual server's protocol and place. Raises EdgeError for a line that is none."""
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
    """An address (4 or 16 bytes) and a port as they are written there."""
    if len(address) == 4:
        return f"{address.hex().upper()}:{port:04X}"
    return f"[{address.hex(':', 2)}]:{port:04X}"


def place(text: str) -> str:
    """What ``hexadecimal`` writes, as people do. Raises EdgeError."""
    found = _PLACE.fullmatch(text)
    if found is None:
        raise EdgeError(f"not an address and a port in /proc/net/ip_vs: {text!r}")
    four, six, port = found.groups()
    return f"{IPv4Address(int(four, 16))}:{int(port, 16)}" if four else f"[{IPv6Address(six)}]:{int(port, 16)}"
