"""Edge: the solicited-node multicast groups of one link.

Joined through ordinary IPv6 sockets, because only that sends the MLD report which snooping switches wait for
(docs/decisions/0006-mld-through-ipv6-sockets.md).
"""

import errno
import socket
import struct
from collections import Counter, deque
from collections.abc import Iterable
from ipaddress import IPv6Address
from types import TracebackType
from typing import Self

from speaker.errors import EdgeError, Unsupported
from speaker.layer2.multicast.reporter import Reporter
from speaker.model import Link
from speaker.packets import ndp

KERNEL_GROUPS = 256
"""The kernel walks the link's groups for every multicast packet it receives (``ipv6_chk_mcast_addr``,
net/ipv6/mcast.c): with 10,000 joined it takes in 11,000 solicitations a second, and so do we behind it. Groups beyond
this number, some microseconds' worth, are left to ``Reporter``. So many also fit one socket under the smallest default
of ``net.core.optmem_max`` (20 KiB; 128 KiB holds 2,340)."""

_NO_IPV6 = {errno.EINVAL, errno.EAFNOSUPPORT}
"""The link has none, or the host."""


class Groups:
    """Joins and leaves little by little: a call costs some 10 µs in the kernel.

    EIPs that agree in their last 24 bits share a group; it is left with the last of them.
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
        """IPv6 addresses (16 bytes each) whose groups we should be in from now on; ``work`` sees to it.

        What was refused earlier is tried again, too.
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
        """Addresses that are not solicited for us any more; unknown ones are passed over."""
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
            # Leaving comes first, so that the kernel's share is free for those that come.
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
        """When ``work`` has something to do if nobody calls ``want``; None if never."""
        return self._reporter.wake() if self._reporter else None

    def _reported(self) -> set[bytes]:
        return self._reporter.groups if self._reporter else set()

    def _enter(self, group: bytes, now: float) -> None:
        if len(self._joined) < KERNEL_GROUPS and self._join(group):
            self._joined.add(group)
            return
        if self._reporter is None:
            self._reporter = Reporter(self._link)
        self._reporter.add(group, now)

    def _quit(self, group: bytes) -> None:
        if group in self._joined:
            self._joined.discard(group)
            self._leave(group)
        elif self._reporter is not None:
            self._reporter.discard(group)

    def _join(self, group: bytes) -> bool:
        """False where the socket is full."""
        try:
            self._open().setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, self._request(group))
        except OSError as error:
            if error.errno in (errno.ENOMEM, errno.ENOBUFS):
                return False
            kind = Unsupported if error.errno in _NO_IPV6 else EdgeError
            raise kind(f"{self._link.name}: cannot join {IPv6Address(group)}: {error}") from error
        return True

    def _leave(self, group: bytes) -> None:
        try:
            self._open().setsockopt(socket.IPPROTO_IPV6, socket.IPV6_LEAVE_GROUP, self._request(group))
        except OSError as error:
            raise EdgeError(f"{self._link.name}: cannot leave {IPv6Address(group)}: {error}") from error

    def _open(self) -> socket.socket:
        """Opened when first needed, since a host may have no IPv6. Nothing is ever sent on it: on a socket full of
        groups that would fail."""
        if self._socket is None:
            self._socket = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        return self._socket

    def _request(self, group: bytes) -> bytes:
        """``struct ipv6_mreq``."""
        return struct.pack("@16si", group, self._link.index)

    def close(self) -> None:
        """Leaves all groups: the kernel does when their socket closes; a switch forgets what is no longer reported."""
        if self._socket is not None:
            self._socket.close()
        if self._reporter is not None:
            self._reporter.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()
