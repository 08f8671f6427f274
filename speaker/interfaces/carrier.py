"""Edge: whether links have a carrier, known within ``EVERY`` and not when the kernel gets round to telling.

Its notifications come up to a second late, because ``net/core/link_watch.c`` gathers them for the whole machine; so do
IFF_RUNNING, operstate, and the carrier of what is stacked on the link. Asked for one link over rtnetlink it says at
once how things are. Newer kernels then also send out what they held back (``linkwatch_sync_dev`` in ``rtnl_getlink``),
so that the Watcher sees it too; on older ones (6.1) only this file knows.

A request may wait for RTNL, a lock of the whole machine that others hold for up to some 100 ms: hence the thread.
"""

import asyncio
import errno
import os
import socket
import struct
import threading
from collections.abc import Callable, Collection

from speaker.errors import EdgeError
from speaker.interfaces import rtnetlink
from speaker.threads import in_thread

EVERY = 0.025
"""Seconds between two looks; two links cost about one per cent of a core."""
NESTING = 8
"""Links stacked on each other, at most (MAX_NEST_DEV, include/linux/netdevice.h)."""
_DATAGRAM = 1 << 15

Tell = Callable[[int, bool], None]


async def watch_carrier(links: Callable[[], Collection[int]], tell: Tell, every: float = EVERY) -> None:
    """Calls ``tell(index, carrier)`` for each of ``links`` when it is first seen, and whenever that changes.

    A link that is down or gone has no carrier, nor has a VLAN or macvlan whose lower link has none. ``links`` is called
    in a thread of its own: it must return what nobody changes any more; ``tell`` is called in the loop. Works in the
    network namespace it was started in, until cancelled. Raises EdgeError when the kernel refuses to say.
    """
    loop = asyncio.get_running_loop()
    ended = threading.Event()

    def tell_now(link: int, carrier: bool) -> None:
        if not ended.is_set():
            tell(link, carrier)

    def post(link: int, carrier: bool) -> None:
        loop.call_soon_threadsafe(tell_now, link, carrier)

    probe = _Probe()
    try:
        await in_thread(None, _watch, probe, links, post, ended, every)
    finally:
        ended.set()  # the thread ends by itself, perhaps later: it may be waiting for RTNL


def _watch(
    probe: "_Probe", links: Callable[[], Collection[int]], post: Tell, ended: threading.Event, every: float
) -> None:
    told: dict[int, bool] = {}
    with probe.socket:
        while not ended.is_set():
            seen = {link: probe.has_carrier(link) for link in links()}
            for link, carrier in seen.items():
                if told.get(link) is not carrier:
                    post(link, carrier)
            told = seen
            ended.wait(every)


class _Probe:
    """Asks the kernel about one link at a time. Raises EdgeError."""

    def __init__(self) -> None:
        try:
            self.socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
        except OSError as error:
            raise EdgeError(f"rtnetlink: {error.strerror}") from error

    def has_carrier(self, link: int) -> bool:
        below: int | None = link
        for _ in range(NESTING + 1):
            if below is None:
                return True
            if (signal := self._ask(below)) is None or not signal.carrier:
                return False
            below = signal.below
        raise EdgeError(f"link {link} is stacked on more than {NESTING} others")

    def _ask(self, link: int) -> rtnetlink.Signal | None:
        """None when there is no such link."""
        try:
            self.socket.send(rtnetlink.link_request(link, 0))
            # The kernel has answered before `send` returns, or never will.
            datagram = self.socket.recv(_DATAGRAM, socket.MSG_DONTWAIT)
        except OSError as error:
            raise EdgeError(f"rtnetlink: link {link}: {error.strerror}") from error
        try:
            (message, *_) = rtnetlink.messages(datagram)
            if message.kind == rtnetlink.NLMSG_ERROR:
                if (number := rtnetlink.errno_of(datagram, message)) == errno.ENODEV:
                    return None
                raise EdgeError(f"rtnetlink: link {link}: {os.strerror(number)}")
            return rtnetlink.read_signal(datagram, message.start, message.end)
        except (struct.error, LookupError, ValueError) as error:
            raise EdgeError(f"rtnetlink: link {link}: an answer that cannot be read") from error
