"""Edge: whether links have a carrier, asked when there is a reason instead of waiting for the kernel's notification.

Notifications come up to a second late, because ``net/core/link_watch.c`` gathers them for the whole machine; so do
IFF_RUNNING, operstate, and the carrier of what is stacked on the link. A question about one link over rtnetlink is
answered at once. Newer kernels then also send out what they held back (``linkwatch_sync_dev`` in ``rtnl_getlink``), so
that the Watcher sees it too; on older ones (6.1) only this file knows.

Reasons to ask are such a notification, any doubt of the caller about a link, and a link without a carrier. A request
may wait for RTNL, a lock of the whole machine that others hold for up to some 100 ms, so it runs in a thread.

The kernel's neighbours on a link are asked for here as well.
"""

import asyncio
import errno
import socket
import struct
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice

from speaker.errors import EdgeError, as_edge_error
from speaker.interfaces import rtnetlink
from speaker.interfaces.rtnetlink import Neighbor
from speaker.netlink.messages import AF_INET, AF_INET6, RTM_GETLINK, messages
from speaker.netlink.requests import Netlink, Request
from speaker.system.threads import in_thread

EVERY = 0.025
"""Seconds at least between two looks, and at most while a link has no carrier."""
NESTING = 8
"""Links stacked on each other, at most (MAX_NEST_DEV, include/linux/netdevice.h)."""
_RTMGRP_LINK = 1
_DRAINED = 64
"""Notifications read in one go; that more wait is a reason like one."""

Tell = Callable[[int, bool], None]


async def watch_carrier(
    links: Callable[[], Collection[int]],
    tell: Tell,
    doubted: asyncio.Event,
    every: float = EVERY,
    looked: Callable[[], None] = lambda: None,
) -> None:
    """Calls ``tell(index, carrier)`` for each of ``links`` when it is first seen, and whenever that changes; and
    ``looked()`` whenever the kernel has said.

    ``doubted``: to be set when ``links`` gives others, and when there is a reason to look; cleared here. A link that is
    down or gone has no carrier, nor has a VLAN or macvlan whose lower link has none. Works in the network namespace it
    was started in, until cancelled. Raises EdgeError when the kernel refuses to say.
    """
    told: dict[int, bool] = {}
    with _notified(doubted):
        while True:
            doubted.clear()
            seen = await in_thread(_look, tuple(links()))
            looked()
            for link, carrier in seen.items():
                if told.get(link) is not carrier:
                    tell(link, carrier)
            told = seen
            await asyncio.sleep(every)
            if all(seen.values()):
                await doubted.wait()


@contextmanager
def _notified(doubted: asyncio.Event) -> Iterator[None]:
    """Sets ``doubted`` whenever the kernel notifies about a link."""
    loop = asyncio.get_running_loop()
    with as_edge_error("rtnetlink"):
        events = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.NETLINK_ROUTE)
    with events:
        events.bind((0, _RTMGRP_LINK))
        loop.add_reader(events, partial(_drain, events, doubted))
        try:
            yield
        finally:
            loop.remove_reader(events)


def _drain(events: socket.socket, doubted: asyncio.Event) -> None:
    doubted.set()
    for _ in range(_DRAINED):
        try:
            events.recv(1)
        except OSError:  # none is left, or more were told than could be held
            return


def _look(links: Collection[int]) -> dict[int, bool]:
    """In a thread."""
    with Netlink(socket.NETLINK_ROUTE) as kernel:
        return {link: _has_carrier(kernel, link) for link in links}


def _has_carrier(kernel: Netlink, link: int) -> bool:
    below: int | None = link
    for _ in range(NESTING + 1):
        if below is None:
            return True
        if (signal := _ask(kernel, below)) is None or not signal.carrier:
            return False
        below = signal.below
    raise EdgeError(f"link {link} is stacked on more than {NESTING} others")


def _ask(kernel: Netlink, link: int) -> rtnetlink.Signal | None:
    """None when there is no such link. Raises EdgeError."""
    try:
        return rtnetlink.read_signal(kernel.ask(Request(RTM_GETLINK, rtnetlink.link_question(link))))
    except OSError as error:
        if error.errno == errno.ENODEV:
            return None
        raise EdgeError(f"rtnetlink: link {link}: {error.strerror}") from error
    except (struct.error, LookupError, ValueError) as error:
        raise EdgeError(f"rtnetlink: link {link}: an answer that cannot be read") from error


# ── A few of the neighbours that the kernel knows on a link ───────────────────────────────────────────────────


_DATAGRAM = 1 << 13
"""Bytes: a hundred neighbours."""


def neighbors(link: int, most: int) -> list[Neighbor]:
    """At most ``most`` on the link of that index, those first that answered last; of a hundred of each family that the
    kernel names first. Does not wait: 50 µs. Raises EdgeError."""
    try:
        found = [neighbor for family in (AF_INET, AF_INET6) for neighbor in _listed(link, family)]
    except OSError as error:
        if error.errno in (errno.ENODEV, errno.ENXIO):
            return []
        raise EdgeError(f"rtnetlink: neighbours: {error.strerror}") from error
    except (struct.error, LookupError, ValueError) as error:
        raise EdgeError(f"rtnetlink: neighbours that cannot be read: {error}") from error
    return list(islice(sorted(found, key=lambda neighbor: neighbor.doubt), most))


def _listed(link: int, family: int) -> list[Neighbor]:
    """The first datagram; the kernel drops the rest with the socket."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.NETLINK_ROUTE) as asking:
        asking.send(rtnetlink.neighbors_request(link, family, 1))
        datagram = asking.recv(_DATAGRAM)
    read = (
        rtnetlink.read_neighbor(datagram, message.start, message.end)
        for message in messages(datagram)
        if message.kind == rtnetlink.RTM_NEWNEIGH
    )
    return [neighbor for neighbor in read if neighbor is not None and neighbor.link == link]
