"""Which MAC said when that it has which address: a capture of ARP replies, gratuitous ARP and neighbour advertisements.

The kernel stamps every frame when it arrives, so a busy lab reads late but not wrong. Times are seconds of
CLOCK_MONOTONIC, as ``time.monotonic`` and the event loop have them. The lab parses ARP (RFC 826) and neighbour
advertisements (RFC 4861 §4.4) with its own code, so that it does not check the speaker's packets with the speaker's own
codec.
"""

import socket
import struct
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from itertools import groupby, pairwise

from speaker.lab.namespaces import Namespace
from speaker.model import IPAddress, Mac, rank
from speaker.packets import PACKET_OUTGOING, sockets
from speaker.packets.bpf import ACCEPT, LOAD_PKTTYPE, REJECT, if_equal, load_byte, load_half

ETH_P_ALL, ETH_P_ARP, ETH_P_IPV6 = 0x0003, 0x0806, 0x86DD
ICMPV6, NEIGHBOUR_ADVERTISEMENT, TARGET_LINK_LAYER = 58, 136, 2
SOLICITED = 0x40
SO_TIMESTAMPNS = 35  # <asm-generic/socket.h>; not in Python's socket module
BUFFER = 8 << 20
"""Bytes: 10,000 frames, some seconds of everybody moving at once."""
NOTICE = 0.05
"""Seconds until the reader sees that the capture is over."""

_TIMESPEC = struct.Struct("@ll")
_FILTER = (  # probes go by on the same link, thousands a second: they must not wake the reader
    LOAD_PKTTYPE,
    if_equal(PACKET_OUTGOING, 8, 0),
    load_half(12),  # EtherType
    if_equal(ETH_P_ARP, 5, 0),
    if_equal(ETH_P_IPV6, 0, 5),
    load_byte(20),  # next header
    if_equal(ICMPV6, 0, 3),
    load_byte(54),  # ICMPv6 type
    if_equal(NEIGHBOUR_ADVERTISEMENT, 0, 1),
    ACCEPT,
    REJECT,
)


@dataclass(frozen=True, slots=True)
class Reply:
    """``mac`` said at ``at`` that it has ``address``; ``unasked``: by gratuitous ARP or unsolicited advertisement."""

    at: float
    address: IPAddress
    mac: Mac
    unasked: bool


@dataclass(frozen=True, slots=True)
class Move:
    """``mac`` said at ``at`` that it has ``address``, ``after`` seconds after ``before`` had said so."""

    at: float
    address: IPAddress
    before: Mac
    mac: Mac
    after: float


class Capture:
    """Grows while the block of ``capturing`` runs, and stays readable after it."""

    def __init__(self, tell: Callable[[Reply], None]) -> None:
        self._replies: list[Reply] = []
        self._tell = tell

    def replies(self) -> tuple[Reply, ...]:
        """Everything read so far, in order of arrival; what arrived within the last milliseconds may be missing."""
        return tuple(self._replies)

    def add(self, reply: Reply) -> None:
        self._replies.append(reply)
        self._tell(reply)


@contextmanager
def capturing(namespace: Namespace, link: str, tell: Callable[[Reply], None] = lambda _: None) -> Iterator[Capture]:
    """What ``link`` inside ``namespace`` hears of others, read by a thread until the end of the block. The thread calls
    ``tell`` with each."""
    with namespace.entered():
        sock = sockets.open_socket(socket.if_nametoindex(link), ETH_P_ALL, _FILTER, _prepare)
    with sock:
        capture, over = Capture(tell), threading.Event()
        reader = threading.Thread(target=_read, args=(sock, capture, over), name=f"capture {namespace.label} {link}")
        reader.start()
        try:
            yield capture
        finally:
            over.set()
            reader.join()


def _read(sock: socket.socket, capture: Capture, over: threading.Event) -> None:
    while True:
        sock.settimeout(0.0 if over.is_set() else NOTICE)  # over: what has arrived is read, and no more waited for
        try:
            frame, ancillary, _, _ = sock.recvmsg(2048, socket.CMSG_SPACE(_TIMESPEC.size))
        except BlockingIOError:
            return
        except OSError:  # nothing yet; or the link went down (ENETDOWN, once), and is heard again when it is back up
            continue
        if (reply := read_reply(frame, _arrival(ancillary))) is not None:
            capture.add(reply)


def _arrival(ancillary: list[tuple[int, int, bytes]]) -> float:
    seconds, nanoseconds = _TIMESPEC.unpack(ancillary[0][2])  # of CLOCK_REALTIME (sock_recv_timestamp, net/socket.c)
    arrived: float = seconds + nanoseconds / 1e9
    return arrived + (time.monotonic() - time.time())


def _prepare(sock: socket.socket) -> None:
    sockets.enlarge(sock, BUFFER)
    sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)


def read_reply(frame: bytes, at: float) -> Reply | None:
    """What an Ethernet frame that came ``at`` that time says; None for everything else, whatever the bytes."""
    match int.from_bytes(frame[12:14]):
        case 0x0806 if len(frame) >= 42:
            operation, mac, sender, target = struct.unpack_from("!20x H 6s 4s 6x 4s", frame)
            if operation == 2 or sender == target:  # a plain request claims nothing new
                return Reply(at, IPv4Address(sender), Mac(mac), unasked=sender == target)
        case 0x86DD if len(frame) >= 86 and frame[20] == ICMPV6 and frame[54] == NEIGHBOUR_ADVERTISEMENT:
            if frame[78] == TARGET_LINK_LAYER:
                return Reply(at, IPv6Address(frame[62:78]), Mac(frame[80:86]), not frame[58] & SOLICITED)
    return None


# ── what a capture tells: pure ────────────────────────────────────────────────────────────────────────────────


def moves(replies: Iterable[Reply]) -> tuple[Move, ...]:
    """Every time that an address was claimed by another MAC than the last one that claimed it, in order of time."""
    found = [
        Move(later.at, address, earlier.mac, later.mac, later.at - earlier.at)
        for address, said in _by_address(replies).items()
        for earlier, later in pairwise(said)
        if earlier.mac != later.mac
    ]
    return tuple(sorted(found, key=lambda move: move.at))


def duplicates(replies: Iterable[Reply], within: float) -> tuple[Move, ...]:
    """Answers for one address from two MACs within that many seconds; what came unasked is no answer.

    A clean handover counts once when the address is asked for more often than every ``within`` seconds: the last answer
    of the old holder and the first of the new one. ``relapses`` leaves it out.
    """
    return tuple(move for move in moves(_answers(replies)) if move.after <= within)


def relapses(replies: Iterable[Reply], within: float) -> tuple[Reply, ...]:
    """Answers of a MAC that answered within that many seconds before, and another MAC after it: both still do."""
    return tuple(
        reply
        for said in _by_address(_answers(replies)).values()
        for reply, own in _replacing_another(said)
        if reply.at - own <= within
    )


def _replacing_another(said: list[Reply]) -> Iterator[tuple[Reply, float]]:
    """Each reply that follows one of another MAC, and when its own MAC answered before."""
    last: dict[Mac, float] = {}
    for earlier, reply in pairwise(said):
        last[earlier.mac] = earlier.at
        if reply.mac != earlier.mac and reply.mac in last:
            yield reply, last[reply.mac]


def first_after(
    replies: Iterable[Reply], instant: float, others_than: Collection[Mac] = ()
) -> Mapping[IPAddress, Reply]:
    """For each address the first claim after ``instant`` by a MAC that is not among ``others_than``."""
    found: dict[IPAddress, Reply] = {}
    for reply in sorted(replies, key=lambda reply: reply.at):
        if reply.at > instant and reply.mac not in others_than:
            found.setdefault(reply.address, reply)
    return found


def _answers(replies: Iterable[Reply]) -> list[Reply]:
    return [reply for reply in replies if not reply.unasked]


def _by_address(replies: Iterable[Reply]) -> Mapping[IPAddress, list[Reply]]:
    ordered = sorted(replies, key=lambda reply: (rank(reply.address), reply.at))
    return {address: list(said) for address, said in groupby(ordered, key=lambda reply: reply.address)}
