"""Connections as the kernel lists them, IPVS's and conntrack's, and how many each real server has. Pure.

A table may have a million lines, so each is parsed only as far as counting needs, and addresses are converted only for
the lines that are shown. ``/proc/net/ip_vs_conn`` (net/netfilter/ipvs/ip_vs_conn.c, ip_vs_conn_seq_show)::

    Pro FromIP   FPrt ToIP     TPrt DestIP   DPrt State       Expires PEName PEData
    TCP C000020A 8D5E C6336401 0050 0A000102 1F90 ESTABLISHED     899

``/proc/net/nf_conntrack`` (net/netfilter/nf_conntrack_standalone.c, ct_seq_show), whose second half is the way back, so
its source is the real server::

    ipv4     2 tcp      6 431999 ESTABLISHED src=192.0.2.10 dst=198.51.100.1 sport=36190 dport=80 src=10.0.1.2 …
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, ip_address
from itertools import islice
from typing import NamedTuple, TypeAlias

from speaker.model import IPAddress, with_port

Place: TypeAlias = tuple[str, str]
"""An address and a port as the kernel writes them."""


class Row(NamedTuple):
    """A parsed line. ``state`` is the kernel's; ``seconds`` is '' if it does not say."""

    protocol: str
    client: Place
    virtual_server: Place
    real_server: Place
    state: str
    seconds: str


class Dialect(NamedTuple):
    """How a table is written. ``row`` raises ValueError for a line that is not a row, and returns None for one that
    does not matter."""

    row: Callable[[str], Row | None]
    address: Callable[[IPAddress], str]
    place: Callable[[Place], str]


# ── IPVS's ────────────────────────────────────────────────────────────────────────────────────────────────────

_V6 = r"(?:[0-9a-f]{4}:){7}[0-9a-f]{4}"
_HEX = rf"([0-9A-F]{{8}}|{_V6}) ([0-9A-F]{{4}})"
_IPVS = re.compile(rf"(\w+) +{_HEX} {_HEX} {_HEX} (\S+) +([0-9]{{1,10}})( .*)?\s*")


def _ipvs_row(line: str) -> Row | None:
    if line.startswith("Pro FromIP"):
        return None
    if (found := _IPVS.fullmatch(line)) is None:
        raise ValueError(line)
    protocol, *ends, state, seconds, _ = found.groups()
    client, virtual, real = zip(ends[::2], ends[1::2], strict=True)
    # A template has no port, and no connection is without one: where the client's others go for as long as it lasts.
    sticks = client[1] == "0000" and state in ("NONE", "ASSURED")
    return Row(protocol, client, virtual, real, STICKS if sticks else state, seconds)


def _ipvs_address(address: IPAddress) -> str:
    return f"{int(address):08X}" if address.version == 4 else address.exploded


def _ipvs_place(place: Place) -> str:
    address, port = place
    return with_port(ip_address(address) if ":" in address else IPv4Address(int(address, 16)), int(port, 16))


IPVS = Dialect(_ipvs_row, _ipvs_address, _ipvs_place)

# ── conntrack's ───────────────────────────────────────────────────────────────────────────────────────────────

_OCTET = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_IP, _PORT = rf"((?:{_OCTET}\.){{3}}{_OCTET}|{_V6})", "([0-9]{1,5})"
_ENDS = rf"src={_IP} dst={_IP} sport={_PORT} dport={_PORT} (?:packets=\d+ bytes=\d+ )?"
_STATE = r"(?:([0-9]{1,10}) )?(?:([A-Z_0-9]+) )?"
_CONNTRACK = re.compile(rf"ipv[46] +\d+ (tcp|udp|sctp) +\d+ {_STATE}{_ENDS}(?:\[UNREPLIED\] )?{_ENDS}.*\s*")
_WITH_PORTS = re.compile(r"ipv[46] +\d+ (?:tcp|udp|sctp) ")


def _conntrack_row(line: str) -> Row | None:
    if not _WITH_PORTS.match(line):
        return None
    if (found := _CONNTRACK.fullmatch(line)) is None:
        raise ValueError(line)
    protocol, seconds, state, client, eip, client_port, port, real, _, real_port, _ = found.groups()
    if (real, real_port) == (eip, port):
        return None  # it was not translated
    protocol = protocol.upper()
    return Row(protocol, (client, client_port), (eip, port), (real, real_port), state or protocol, seconds or "")


def _conntrack_place(place: Place) -> str:
    address, port = place
    return with_port(ip_address(address), int(port))


CONNTRACK = Dialect(_conntrack_row, lambda address: address.exploded, _conntrack_place)


# ── In words ──────────────────────────────────────────────────────────────────────────────────────────────────

STICKS = "STICKS"
ESTABLISHED = "ESTABLISHED"
_WORDS = {
    "NONE": "new",
    ESTABLISHED: "established",
    STICKS: "sticks to it",
    "UDP": "datagrams",
    "TIME_WAIT": "closed",
    "CLOSED": "closed",
    "CLOSE": "reset",
    "REJECTED": "refused",
    "FIN_WAIT": "closing",
    "CLOSE_WAIT": "closing",
    "LAST_ACK": "closing",
}
_PREFIXES = {"SYN": "opening", "INIT": "opening", "COOKIE": "opening", "SHUTDOWN": "closing"}


def in_words(state: str) -> str:
    """A state of TCP, UDP or SCTP, in IPVS or conntrack; an unknown one as it is, in lower case."""
    if (word := _WORDS.get(state)) is not None:
        return word
    known = (word for prefix, word in _PREFIXES.items() if state.startswith(prefix))
    return next(known, state.lower().replace("_", " "))


# ── Counted ───────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class Counts:
    """A real server's connections, and the clients that stick to it."""

    established: int = 0
    others: int = 0
    sticking: int = 0


class Survey(NamedTuple):
    """What a table contains. ``shown``: its first rows. ``unreadable``: lines that are not rows."""

    real_servers: Mapping[tuple[str, Place, Place], Counts]
    shown: tuple[Row, ...]
    unreadable: int

    @property
    def total(self) -> int:
        """Connections, without entries for clients that stick to a real server."""
        return sum(counts.established + counts.others for counts in self.real_servers.values())


def survey(lines: Iterable[str], dialect: Dialect, limit: int, eips: Collection[IPAddress] | None = None) -> Survey:
    """Counts everything and keeps ``limit`` rows; only for ``eips``, if given. Never raises, whatever the lines: the
    kernel may list an entry that comes or goes meanwhile twice, or not at all."""
    wanted = None if eips is None else frozenset(map(dialect.address, eips))
    counted: dict[tuple[str, Place, Place], Counts] = {}
    shown: list[Row] = []
    unreadable = 0
    for line in lines:
        try:
            row = dialect.row(line)
        except ValueError:
            unreadable += 1
            continue
        if row is None or (wanted is not None and row.virtual_server[0] not in wanted):
            continue
        _count(row.state, counted.setdefault((row.protocol, row.virtual_server, row.real_server), Counts()))
        if len(shown) < limit:
            shown.append(row)
    return Survey(counted, tuple(shown), unreadable)


def _count(state: str, counts: Counts) -> None:
    if state == STICKS:
        counts.sticking += 1
    elif state == ESTABLISHED:
        counts.established += 1
    else:
        counts.others += 1


class RealServerLine(NamedTuple):
    protocol: str
    virtual_server: str
    real_server: str
    established: int
    others: int
    sticking: int


class ConnectionLine(NamedTuple):
    """``forgotten_in``: seconds without another packet; None if the kernel does not say."""

    protocol: str
    client: str
    virtual_server: str
    real_server: str
    state: str
    forgotten_in: int | None


def real_server_lines(found: Survey, dialect: Dialect, limit: int) -> Iterator[RealServerLine]:
    """Those with the most connections first."""
    busiest = sorted(found.real_servers.items(), key=lambda item: (-item[1].established - item[1].others, item[0]))
    for (protocol, virtual, real), counts in islice(busiest, limit):
        places = dialect.place(virtual), dialect.place(real)
        yield RealServerLine(protocol, *places, counts.established, counts.others, counts.sticking)


def connection_lines(found: Survey, dialect: Dialect) -> Iterator[ConnectionLine]:
    for row in found.shown:
        client, virtual, real = map(dialect.place, (row.client, row.virtual_server, row.real_server))
        seconds = int(row.seconds) if row.seconds else None
        yield ConnectionLine(row.protocol, client, virtual, real, in_words(row.state), seconds)
