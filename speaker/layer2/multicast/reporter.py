"""Edge: being sent a multicast group's packets without having the kernel join it.

``groups`` tells why. A switch learns of the group by our own listener reports, repeated before it could forget (260 s,
RFC 3810 §9.4); the link takes in all multicast packets, as most do anyway once their filter has hundreds of entries.
Queries go unanswered: what a query for one group makes a switch forget, the next repeat teaches it again.
"""

import socket
import struct
from collections import deque
from contextlib import ExitStack

from speaker.errors import EdgeError
from speaker.layer2.burst import Burst
from speaker.layer2.multicast import mld
from speaker.model import Gratuitous, Link

_SCHEDULE = Gratuitous(burst=2, interval=1.0, refresh=60.0)
"""Two at first, a second apart (RFC 3810 §9.1, §9.11)."""
_AHEAD = 0.5
"""Seconds by which a report may come early to travel with others."""
_SOL_PACKET, _PACKET_ADD_MEMBERSHIP, _PACKET_MR_ALLMULTI = (
    263,
    1,
    2,
)  # <linux/if_packet.h>; missing from Python's socket module
_ICMP6_FILTER = 1  # <linux/icmpv6.h>


class Reporter:
    """Reports the groups it is given, paced; ``work`` does the sending. EdgeError where the kernel refuses."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._schedule = Burst()
        self._left: deque[bytes] = deque()
        self.groups: set[bytes] = set()
        with ExitStack() as stack:
            try:
                self._reports = stack.enter_context(_report_socket())
                stack.enter_context(_all_multicast(link))
            except OSError as error:
                raise EdgeError(f"{link.name}: cannot listen to all multicast groups: {error}") from error
            self._stack = stack.pop_all()

    def add(self, group: bytes, now: float) -> None:
        self.groups.add(group)
        self._schedule.announce(group, _SCHEDULE, now)

    def discard(self, group: bytes) -> None:
        self.groups.discard(group)
        self._schedule.withdraw(group)
        self._left.append(group)

    def work(self, now: float) -> bool:
        """Sends one report of each kind, if one is due; returns whether more are."""
        left = [self._left.popleft() for _ in range(min(mld.RECORDS, len(self._left)))]
        if left:
            self._send(mld.report(mld.RecordType.LEFT, left))
        when = self.wake()
        due = self._schedule.due(now + _AHEAD, mld.RECORDS) if when is not None and when <= now else []
        if due:
            self._send(mld.report(mld.RecordType.LISTENING, due))
        return bool(self._left) or len(due) == mld.RECORDS

    def wake(self) -> float | None:
        """When ``work`` has something to send; None if never."""
        return self._schedule.wake()

    def _send(self, report: bytes) -> None:
        try:
            self._reports.sendto(report, (mld.ROUTERS, 0, 0, self._link.index))
        except BlockingIOError:
            return  # no room: the repeat, or the next refresh, has to do
        except OSError as error:
            raise EdgeError(f"{self._link.name}: cannot send a multicast listener report: {error}") from error

    def close(self) -> None:
        self._stack.close()


def _report_socket() -> socket.socket:
    """A raw ICMPv6 socket that receives nothing and sends as RFC 3810 §5 asks: hop limit 1 and a router alert, from
    the link-local address that the kernel chooses."""
    reports = socket.socket(socket.AF_INET6, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.IPPROTO_ICMPV6)
    reports.setsockopt(socket.IPPROTO_ICMPV6, _ICMP6_FILTER, b"\xff" * 32)
    reports.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, 1)
    reports.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_LOOP, 0)
    reports.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_HOPOPTS, mld.ROUTER_ALERT)
    return reports


def _all_multicast(link: Link) -> socket.socket:
    """A packet socket that receives nothing; as long as it is open the link takes in every multicast packet."""
    held = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0)
    membership = struct.pack("@iHH8s", link.index, _PACKET_MR_ALLMULTI, 0, b"")  # struct packet_mreq
    held.setsockopt(_SOL_PACKET, _PACKET_ADD_MEMBERSHIP, membership)
    return held
