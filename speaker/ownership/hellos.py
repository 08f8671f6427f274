"""Edge: the hellos of one link, on an AF_PACKET socket of their own.

What arrives is hostile until its tag proves otherwise: a frame that proves nothing costs a few microseconds, is counted
by reason, and reaches nobody.
"""

import ctypes
import errno
import os
import socket
import struct
from collections.abc import Callable
from enum import Enum
from types import TracebackType
from typing import Self

from speaker.errors import EdgeError, Unsupported
from speaker.model import Link, Mac
from speaker.ownership import frames
from speaker.ownership.frames import Sender, Stamp
from speaker.ownership.hello import Hello
from speaker.ownership.keys import Keys

FRAMES_A_TURN = 200
"""Read before others get their turn: 2 ms if all of them are forgeries."""

OLD_SECONDS = 0.1
"""Of frames that name an earlier life of a node, one is read in so many seconds: proving them costs the most."""

_RECEIVE_BUFFER = 4 << 20
"""Bytes; the kernel's own books count double. A quarter of a second of a stranger's 10,000 frames a second."""
_SO_RCVBUFFORCE = 33  # <asm-generic/socket.h>; missing from Python's socket module
_SO_ATTACH_FILTER = 26
_TC_PRIO_INTERACTIVE = 6  # <linux/pkt_sched.h>: ahead of bulk traffic; above it takes CAP_NET_ADMIN
_FULL = {errno.EAGAIN, errno.ENOBUFS, errno.EINTR}
_PACKET_OTHERHOST = 3
_ETHERNET = 14

# Not from another VLAN: such a frame looks untagged here, only the kernel's packet type tells (linux/filter.h,
# SKF_AD_PKTTYPE).
_FILTER = (
    (0x30, 0, 0, 0xFFFFF004),  # ldb [pkttype]
    (0x15, 0, 1, _PACKET_OTHERHOST),  # jeq
    (0x06, 0, 0, 0),  # ret nothing
    (0x06, 0, 0, 0xFFFF),  # ret everything
)


class Replayed(Enum):
    """Why an authentic-looking frame was not read. The value is the metric label."""

    REPLAYED = "replayed"
    """Not above the last frame of that life of that node: repeated, doubled or overtaken."""


class Hellos:
    """Sends and receives hellos on ``link``; non-blocking.

    ``count`` hears of every frame: its reason, or None for one that was read. ``clock`` gives seconds. Entering opens
    the socket (in the caller's network namespace) and raises EdgeError where the link is gone or too narrow,
    Unsupported without CAP_NET_RAW.
    """

    def __init__(
        self,
        link: Link,
        keys: Callable[[], Keys],
        ethertype: int,
        clock: Callable[[], float],
        count: Callable[[Enum | None], None],
    ) -> None:
        if link.mtu < frames.MIN_MTU:
            raise EdgeError(f"{link.name}: an MTU of {link.mtu}: hellos need at least {frames.MIN_MTU}")
        self.link = link
        self.macs: dict[str, Mac] = {}
        """Node → the MAC that its last authentic frame came from."""
        self._keys, self._ethertype, self._clock, self._count = keys, ethertype, clock, count
        self._last: dict[Sender, Stamp] = {}
        """The stamp of its newest authentic frame."""
        self._old_read_at: dict[Sender, float] = {}

    def __enter__(self) -> Self:
        name = self.link.name
        try:
            # Protocol 0 receives nothing; only bind() opens the door, and the filter is in it by then (packet(7)).
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
        except PermissionError as error:
            raise Unsupported(f"{name}: packet sockets need CAP_NET_RAW: {error}") from error
        try:
            _attach(self._socket, _FILTER)
            _enlarge(self._socket)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, _TC_PRIO_INTERACTIVE)
            self._socket.bind((name, self._ethertype))
            if socket.if_nametoindex(name) != self.link.index:
                raise EdgeError(f"{name}: is another link by now")
        except OSError as error:
            self._socket.close()
            raise EdgeError(f"{name}: hello socket: {error.strerror}") from error
        except BaseException:
            self._socket.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._socket.close()

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, hello: Hello) -> bool:
        """Whether every frame of it left; False where the link has no room. EdgeError: it is down or gone."""
        for frame in frames.encode(hello, self._keys(), self.link.mac, self.link.mtu, self._ethertype):
            try:
                self._socket.send(frame)
            except OSError as error:
                if error.errno in _FULL:
                    return False
                raise EdgeError(f"{self.link.name}: hello: {os.strerror(error.errno or 0)}") from error
        return True

    def receive(self) -> list[Hello]:
        """The authentic, new ones among at most FRAMES_A_TURN waiting frames. EdgeError: the link is down or gone."""
        hellos: list[Hello] = []
        for _ in range(FRAMES_A_TURN):
            try:
                frame = self._socket.recv(self.link.mtu + _ETHERNET + 1)
            except OSError as error:
                if error.errno in _FULL:
                    return hellos
                raise EdgeError(f"{self.link.name}: hello: {os.strerror(error.errno or 0)}") from error
            read = self._read(frame)
            if isinstance(read, Hello):
                hellos.append(read)
                self._count(None)
            else:
                self._count(read)
        return hellos

    def drop_queued(self) -> None:
        """Unread, whatever waits; as much as a full buffer holds, lest a flood keep us here."""
        for _ in range(_RECEIVE_BUFFER // 512):
            try:
                self._socket.recv(1)
            except OSError:
                return

    def _read(self, frame: bytes) -> Hello | Enum:
        # Read before it is proven: what is not newer than what was proven is worthless either way, and cheap to tell.
        claimed = frames.peek(frame)
        if claimed is not None and self._is_stale(*claimed):
            return Replayed.REPLAYED
        hello = frames.decode(frame, self._keys())
        if isinstance(hello, Hello):
            sender = hello.node, hello.link
            last = self._last.get(sender)
            if last is None or hello.stamp > last:
                self._last[sender] = hello.stamp
                self.macs[hello.node] = Mac(frame[6:12])
        return hello

    def _is_stale(self, sender: Sender, stamp: Stamp) -> bool:
        last = self._last.get(sender)
        if last is None or stamp > last:
            return False
        if stamp[0] == last[0]:
            return True
        # Of an earlier life: a recording, or a node whose clock went back and who has to be told so (rule 5).
        now = self._clock()
        if now - self._old_read_at.get(sender, float("-inf")) < OLD_SECONDS:
            return True
        self._old_read_at[sender] = now
        return False


def _attach(sock: socket.socket, program: tuple[tuple[int, int, int, int], ...]) -> None:
    code = b"".join(struct.pack("@HBBI", *instruction) for instruction in program)
    buffer = ctypes.create_string_buffer(code, len(code))
    sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("@HP", len(program), ctypes.addressof(buffer)))


def _enlarge(sock: socket.socket) -> None:
    try:
        sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _RECEIVE_BUFFER)
    except PermissionError:  # takes CAP_NET_ADMIN; net.core.rmem_max caps the other way
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
