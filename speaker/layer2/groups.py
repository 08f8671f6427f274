"""Edge: the solicited-node multicast groups of one link.

Groups are joined through ordinary IPv6 sockets, because only that sends the MLD report which snooping switches wait for
(docs/decisions/0006-mld-through-ipv6-sockets.md). ``Reporter`` repeats the reports of all groups before a switch could
forget them (260 s, RFC 3810 §9.4), for LANs where nobody queries. Groups beyond KERNEL_GROUPS have only the
``Reporter``: the link receives all multicast packets, as most links do once their filter has hundreds of entries.
Queries for these groups are not answered: a switch that forgets a group because of that learns it again from the next
report.
"""

import errno
import socket
import struct
from collections import Counter, deque
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from enum import IntEnum
from ipaddress import IPv6Address

from speaker.errors import EdgeError, Unsupported
from speaker.layer2.holdings import Burst
from speaker.model import Gratuitous, Link
from speaker.packets import ndp

KERNEL_GROUPS = 256
"""The kernel walks the link's groups for every multicast packet it receives (``ipv6_chk_mcast_addr``,
net/ipv6/mcast.c): with 10,000 joined it takes in only 11,000 solicitations a second, and so do we. Groups beyond this
number, which costs some microseconds, are left to ``Reporter``. This number also fits one socket under the smallest
default of ``net.core.optmem_max`` (20 KiB; 128 KiB holds 2,340)."""

_NO_IPV6 = {errno.EINVAL, errno.EAFNOSUPPORT}
"""The link or the host has no IPv6."""
_SCHEDULE = Gratuitous(burst=2, interval=1.0, refresh=60.0)
"""Two at first, a second apart (RFC 3810 §9.1, §9.11)."""
_AHEAD = 0.5
"""Seconds by which a report may be early so as to be sent with others."""
_SOL_PACKET, _PACKET_ADD_MEMBERSHIP, _PACKET_MR_ALLMULTI = 263, 1, 2  # <linux/if_packet.h>
_ICMP6_FILTER = 1  # <linux/icmpv6.h>
REPORT = 143
RECORDS = 60
"""Groups in one report: with its headers it fits IPv6's smallest MTU, 1,280 bytes."""
ROUTERS = "ff02::16"
"""Every router and snooping switch that uses version 2 listens there."""
ROUTER_ALERT = bytes.fromhex("00 00 05 02 0000 01 00")
"""Hop-by-hop header with the option that every report must carry (RFC 2711); the kernel fills in its first byte."""


class Groups:
    """Joins and leaves little by little: a call costs some 10 µs in the kernel.

    EIPs with the same last 24 bits share a group; it is left with the last of them.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        self._addresses: set[bytes] = set()
        self._wanted: Counter[bytes] = Counter()
        """How many of the addresses are solicited on each group."""
        self._joined: set[bytes] = set()
        self._to_leave: deque[bytes] = deque()
        self._to_join: deque[bytes] = deque()
        self._refused: list[bytes] = []
        self._socket: socket.socket | None = None
        self._reporter: Reporter | None = None

    def add(self, addresses: Iterable[bytes]) -> None:
        """IPv6 addresses (16 bytes each) whose groups we should be in from now on; ``work`` joins them.

        What was refused earlier is tried again too.
        """
        for address in addresses:
            if address not in self._addresses:
                self._addresses.add(address)
                group = ndp.solicited_node(address)
                self._wanted[group] += 1
                if self._wanted[group] == 1:
                    self._to_join.append(group)
        self._to_join += self._refused
        self._refused.clear()

    def discard(self, addresses: Iterable[bytes]) -> None:
        """Stops listening for these addresses; unknown ones are ignored."""
        for address in addresses:
            if address in self._addresses:
                self._addresses.discard(address)
                group = ndp.solicited_node(address)
                self._wanted[group] -= 1
                if self._wanted[group] == 0:
                    del self._wanted[group]
                    self._to_leave.append(group)

    def work(self, now: float, most: int) -> bool:
        """Joins and leaves at most ``most`` groups, and reports some; returns whether more are waiting.

        Raises EdgeError; then the group at fault is not tried again before the next ``add``.
        """
        for _ in range(min(most, len(self._to_leave) + len(self._to_join))):
            # Leaving comes first, so that the kernel has room for new ones.
            group = self._to_leave.popleft() if self._to_leave else self._to_join.popleft()
            wanted, listening = group in self._wanted, group in self._joined or group in self._reported()
            if wanted and not listening:
                try:
                    self._enter(group, now)
                except EdgeError:
                    self._refused.append(group)
                    raise
            elif listening and not wanted:
                self._quit(group)
        reporting = self._reporter is not None and self._reporter.work(now)
        return bool(self._to_leave or self._to_join) or reporting

    def wake(self) -> float | None:
        """When ``work`` next has something to do, unless addresses come or go before; None if never."""
        return self._reporter.wake() if self._reporter else None

    def _reported(self) -> set[bytes]:
        return self._reporter.groups if self._reporter else set()

    def _enter(self, group: bytes, now: float) -> None:
        joined = len(self._joined) < KERNEL_GROUPS and self._join(group)
        self._reporter = self._reporter or Reporter(self._link)
        self._reporter.add(group, now, joined=joined)

    def _quit(self, group: bytes) -> None:
        if self._reporter is not None:
            self._reporter.discard(group, joined=group in self._joined)
        if group in self._joined:
            self._joined.discard(group)
            try:
                self._ask(socket.IPV6_LEAVE_GROUP, group)
            except OSError as error:
                raise EdgeError(f"{self._link.name}: cannot leave {IPv6Address(group)}: {error}") from error

    def _join(self, group: bytes) -> bool:
        """False if the socket is full."""
        try:
            self._ask(socket.IPV6_JOIN_GROUP, group)
        except OSError as error:
            if error.errno in (errno.ENOMEM, errno.ENOBUFS):
                return False
            kind = Unsupported if error.errno in _NO_IPV6 else EdgeError
            raise kind(f"{self._link.name}: cannot join {IPv6Address(group)}: {error}") from error
        self._joined.add(group)
        return True

    def _ask(self, option: int, group: bytes) -> None:
        """The socket is opened when first needed, since a host may have no IPv6. Nothing is ever sent on it: on a
        socket full of groups that would fail."""
        if self._socket is None:
            self._socket = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        membership = struct.pack("@16si", group, self._link.index)  # struct ipv6_mreq
        self._socket.setsockopt(socket.IPPROTO_IPV6, option, membership)

    def close(self) -> None:
        """Leaves all groups: the kernel does so when their socket closes; a switch forgets what is no longer
        reported."""
        if self._socket is not None:
            self._socket.close()
        if self._reporter is not None:
            self._reporter.close()


class Reporter:
    """Reports the groups it is given, paced; ``work`` does the sending. Raises EdgeError if the kernel refuses."""

    def __init__(self, link: Link) -> None:
        self._link, self._schedule = link, Burst()
        self._left: deque[bytes] = deque()
        self.groups: set[bytes] = set()
        """Groups that the kernel has not joined."""
        self._stack, self._takes_all = ExitStack(), False
        self._reports = self._held(_report_socket)

    def _held(self, opened: Callable[[], socket.socket]) -> socket.socket:
        try:
            return self._stack.enter_context(opened())
        except OSError as error:
            raise EdgeError(f"{self._link.name}: cannot listen to multicast groups: {error}") from error

    def add(self, group: bytes, now: float, *, joined: bool) -> None:
        """``joined``: the kernel has reported it, and receives what is sent to it."""
        if not joined:
            self._takes_all = self._takes_all or bool(self._held(lambda: _all_multicast(self._link)))
            self.groups.add(group)
        self._schedule.announce(group, _SCHEDULE, now)

    def discard(self, group: bytes, *, joined: bool) -> None:
        self.groups.discard(group)
        self._schedule.withdraw(group)
        if not joined:
            self._left.append(group)

    def work(self, now: float) -> bool:
        """Sends one report of each kind, if one is due. Returns whether more are."""
        left = [self._left.popleft() for _ in range(min(RECORDS, len(self._left)))]
        if left:
            self._send(report(RecordType.LEFT, left))
        when = self.wake()
        due = self._schedule.due(now + _AHEAD, RECORDS) if when is not None and when <= now else []
        if due:
            self._send(report(RecordType.LISTENING, due))
        return bool(self._left) or len(due) == RECORDS

    def wake(self) -> float | None:
        """When ``work`` has something to send; None if never."""
        return self._schedule.wake()

    def _send(self, message: bytes) -> None:
        try:
            self._reports.sendto(message, (ROUTERS, 0, 0, self._link.index))
        except BlockingIOError:
            return  # no room: the repeat, or the next refresh, will have to do
        except OSError as error:
            raise EdgeError(f"{self._link.name}: cannot send a multicast listener report: {error}") from error

    def close(self) -> None:
        self._stack.close()


def _report_socket() -> socket.socket:
    """A raw ICMPv6 socket that receives nothing and sends as RFC 3810 §5 requires: hop limit 1 and a router alert, from
    the link-local address that the kernel chooses."""
    reports = socket.socket(socket.AF_INET6, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.IPPROTO_ICMPV6)
    reports.setsockopt(socket.IPPROTO_ICMPV6, _ICMP6_FILTER, b"\xff" * 32)
    reports.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, 1)
    reports.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_LOOP, 0)
    reports.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_HOPOPTS, ROUTER_ALERT)
    return reports


def _all_multicast(link: Link) -> socket.socket:
    """A packet socket that receives nothing; as long as it is open the link receives every multicast packet."""
    held = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0)
    membership = struct.pack("@iHH8s", link.index, _PACKET_MR_ALLMULTI, 0, b"")  # struct packet_mreq
    held.setsockopt(_SOL_PACKET, _PACKET_ADD_MEMBERSHIP, membership)
    return held


class RecordType(IntEnum):
    """What a report says about a group (RFC 3810 §5.2.12): from no source at all, to or from all of them."""

    LISTENING = 4  # CHANGE_TO_EXCLUDE_MODE, of no sources
    LEFT = 3  # CHANGE_TO_INCLUDE_MODE, of no sources


def report(kind: RecordType, groups: Iterable[bytes]) -> bytes:
    """One message about all of ``groups`` (16 bytes each, at most ``RECORDS``), its checksum left zero."""
    records = [bytes((kind, 0, 0, 0)) + group for group in groups]
    return bytes((REPORT, 0, 0, 0, 0, 0)) + len(records).to_bytes(2, "big") + b"".join(records)
