"""Edge: a few of the neighbours that the kernel knows on a link."""

import errno
import socket
import struct
from itertools import islice

from speaker.errors import EdgeError
from speaker.interfaces import rtnetlink
from speaker.interfaces.rtnetlink import Neighbor
from speaker.netlink.messages import AF_INET, AF_INET6, messages

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
