"""Edge: packet sockets whose filter is in place before the first frame."""

import ctypes
import errno
import os
import socket
import struct
from collections.abc import Callable

from speaker.errors import EdgeError, LinkGone, Unsupported
from speaker.packets.bpf import Program, on_link

GONE = frozenset({errno.ENETDOWN, errno.ENXIO, errno.ENODEV})
"""What a packet socket says when its link went down (packet_notifier, net/packet/af_packet.c) or was removed."""
FULL = frozenset({errno.EAGAIN, errno.ENOBUFS, errno.EINTR})
"""No room right now, in the socket's buffer or in the link's queue; or nothing to read."""
SOCKADDR_LL = struct.Struct("@HHiHBB8s")  # family, protocol, ifindex, hatype, pkttype, halen, address

_SO_ATTACH_FILTER, _SO_RCVBUFFORCE, _SO_TIMESTAMPNS_NEW = 26, 33, 64
"""<asm-generic/socket.h>; missing from Python's socket module."""

_libc = ctypes.CDLL(None, use_errno=True)
_bind = _libc.bind
_bind.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_uint32)


def open_socket(link: int, ethertype: int, program: Program, prepare: Callable[[socket.socket], None]) -> socket.socket:
    """For whole frames of ``ethertype`` on the link of that index, of which ``program`` lets through what is received;
    non-blocking. ``prepare`` sets further options while nothing can arrive yet. Raises OSError."""
    # Protocol 0 receives nothing; only bind() opens the door, and the filter is in it by then (packet(7)).
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
    try:
        attach(opened, on_link(link, program))
        prepare(opened)
        # By index, which Python's own bind() does not do: a name may by now belong to another link.
        address = SOCKADDR_LL.pack(socket.AF_PACKET, socket.htons(ethertype), link, 0, 0, 0, b"")
        if _bind(opened.fileno(), address, len(address)) != 0:
            raise last_error()
    except BaseException:
        opened.close()
        raise
    return opened


def attach(opened: socket.socket, program: Program) -> None:
    """Replaces the filter, atomically. Raises OSError."""
    code = b"".join(struct.pack("@HBBI", *instruction) for instruction in program)
    buffer = ctypes.create_string_buffer(code, len(code))
    filter_ = struct.pack("@HP", len(program), ctypes.addressof(buffer))  # struct sock_fprog
    opened.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, filter_)


def enlarge(opened: socket.socket, size: int) -> None:
    """Gives it a receive buffer of that many bytes (the kernel's own books count double), or as many as it may have."""
    try:
        opened.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, size)
    except PermissionError:  # takes CAP_NET_ADMIN, not a user namespace's; net.core.rmem_max caps the other way
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)


def stamp_arrivals(opened: socket.socket) -> None:
    """The kernel says of each frame when it received it: a ``struct __kernel_timespec`` of CLOCK_REALTIME."""
    opened.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS_NEW, 1)


def last_error() -> OSError:
    """Of a call by ctypes with ``use_errno``."""
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))


def refused(what: str, error: OSError) -> EdgeError:
    """The speaker's own error for ``error``; Unsupported without CAP_NET_RAW, LinkGone where the link is not there."""
    if isinstance(error, PermissionError):
        return Unsupported(f"{what}: packet sockets need CAP_NET_RAW: {error.strerror}")
    if error.errno in GONE:
        return LinkGone(f"{what}: the link is down or was removed: {error.strerror}")
    return EdgeError(f"{what}: {error.strerror}")
