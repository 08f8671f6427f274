"""Edge: one AF_PACKET socket on one link, read and written in batches.

``recvmmsg`` and ``sendmmsg`` are not in Python's socket module; ctypes calls them on buffers that are laid out once.
One system call for 64 packets lets Python answer as fast as the kernel.
"""

import ctypes
import errno
import socket
import struct
from collections.abc import Sequence
from typing import NamedTuple

from speaker.model import Link
from speaker.packets import sockets
from speaker.packets.bpf import Program, on_link


class _IoVec(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class _MsgHdr(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_void_p),
        ("name_length", ctypes.c_uint32),
        ("iov", ctypes.c_void_p),
        ("iov_length", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("control_length", ctypes.c_size_t),
        ("flags", ctypes.c_int),
    )


class _MMsgHdr(ctypes.Structure):
    _fields_ = (("header", _MsgHdr), ("length", ctypes.c_uint))


_libc = ctypes.CDLL(None, use_errno=True)
recvmmsg = _libc.recvmmsg
recvmmsg.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_uint, ctypes.c_int, ctypes.c_void_p)
sendmmsg = _libc.sendmmsg
sendmmsg.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_uint, ctypes.c_int)

_NAME, _PKTTYPE_AT = sockets.SOCKADDR_LL.size, 10
_WORDS = ctypes.sizeof(_MMsgHdr) // 4
_LENGTH_WORD = _MMsgHdr.length.offset // 4
_STAMP = struct.calcsize("@Niiqq")
"""Bytes of SO_TIMESTAMPNS_NEW's control message: ``struct cmsghdr``, then ``struct __kernel_timespec``."""
_QUADS = _STAMP // 8
_SECONDS_QUAD, _NANOSECONDS_QUAD = _QUADS - 2, _QUADS - 1
_SMALLEST_TRUESIZE = 512
"""The least bytes of receive buffer that a queued frame takes (SKB_TRUESIZE, <linux/skbuff.h>: above 600 here)."""


class Received(NamedTuple):
    """What one call took from a socket, in the order of arrival."""

    frames: list[bytes]
    pkttypes: bytearray
    """``sll_pkttype`` of each."""
    seconds: list[int]
    nanoseconds: list[int]
    """When the kernel received each, by CLOCK_REALTIME: it stamps packets by no other clock.

    If the clock is set while packets are queued, their ages are wrong by the step, and no others are. After a step
    ahead they look older and are dropped, so the asker asks again. After a step back they look younger, and a stall
    between the oldest age answered and the self-lease would go unnoticed at that moment; longer ones do not, because
    the deadline is of CLOCK_BOOTTIME. A packet that arrived before the kernel had begun to stamp (in the millisecond
    after a host's first such socket opened) is stamped when it is read.
    """

    def ages(self, now: float) -> list[float]:
        """For how many seconds each has been waiting at ``now`` (of CLOCK_REALTIME), at least 0."""
        stamps = zip(self.seconds, self.nanoseconds, strict=True)
        return [max(0.0, now - whole - part * 1e-9) for whole, part in stamps]

    def oldest(self, now: float) -> float:
        """The greatest of ``ages``; there must be one. Faster, as it is needed for every batch."""
        first = min(self.seconds)
        if first == max(self.seconds):
            return max(0.0, now - first - min(self.nanoseconds) * 1e-9)
        return max(self.ages(now))


NOTHING = Received([], bytearray(), [], [])
_NOT_TAKEN = sockets.FULL | {errno.EMSGSIZE}
"""A link without room for a solicitation's answer, such as one with an MTU of 68, still has room for ARP."""


class Batch:
    """``count`` message headers over as many buffers of ``room`` bytes; ``with_details`` also over as many
    ``sockaddr_ll`` and timestamps."""

    def __init__(self, count: int, room: int, *, with_details: bool) -> None:
        self.count, self.room = count, room
        self.data = bytearray(count * room)
        self.names = bytearray(count * _NAME)
        self._stamps = bytearray(count * _STAMP)
        self._vectors = (_IoVec * count)()
        self._headers = (_MMsgHdr * count)()
        data = ctypes.addressof((ctypes.c_char * len(self.data)).from_buffer(self.data))
        names = ctypes.addressof((ctypes.c_char * len(self.names)).from_buffer(self.names))
        stamps = ctypes.addressof((ctypes.c_char * len(self._stamps)).from_buffer(self._stamps))
        vectors = ctypes.addressof(self._vectors)
        for at in range(count):
            self._vectors[at] = _IoVec(data + at * room, room)
            header = self._headers[at].header
            header.iov, header.iov_length = vectors + at * ctypes.sizeof(_IoVec), 1
            if with_details:
                header.name, header.name_length = names + at * _NAME, _NAME
                header.control, header.control_length = stamps + at * _STAMP, _STAMP
        self.address = ctypes.addressof(self._headers)
        self._bytes = memoryview(self._headers).cast("B")
        self._fresh = memoryview(bytes(self._bytes))
        self._words = self._bytes.cast("I")
        self._quads = memoryview(self._stamps).cast("q")

    def reset(self, count: int) -> None:
        """The kernel has written into the first ``count`` headers how much of each name and control area it used."""
        used = count * ctypes.sizeof(_MMsgHdr)
        self._bytes[:used] = self._fresh[:used]

    def lengths(self, count: int) -> list[int]:
        """How many bytes each of the first ``count`` messages received."""
        return self._words[_LENGTH_WORD : count * _WORDS : _WORDS].tolist()

    def pkttypes(self, count: int) -> bytearray:
        return self.names[_PKTTYPE_AT : count * _NAME : _NAME]

    def seconds(self, count: int) -> list[int]:
        return self._quads[_SECONDS_QUAD : count * _QUADS : _QUADS].tolist()

    def nanoseconds(self, count: int) -> list[int]:
        return self._quads[_NANOSECONDS_QUAD : count * _QUADS : _QUADS].tolist()

    def skip(self, count: int) -> int:
        """Address of the header after the first ``count``."""
        return self.address + count * ctypes.sizeof(_MMsgHdr)


class Inbox:
    """Receives what is queued in an open packet socket that stamps arrivals, ``count`` frames at a time. A frame longer
    than ``room`` is truncated."""

    def __init__(self, opened: socket.socket, count: int, room: int) -> None:
        self._socket, self._batch = opened, Batch(count, room, with_details=True)
        self._offsets = range(0, count * room, room)
        self._taken = 0

    def fileno(self) -> int:
        return self._socket.fileno()

    def receive(self) -> Received:
        """At most ``count`` frames; if fewer, nothing else was queued. Raises OSError."""
        batch, count = self._batch, self.take()
        if count == 0:
            return NOTHING
        data = bytes(memoryview(batch.data)[: count * batch.room])
        frames = [data[at : at + length] for at, length in zip(self._offsets, batch.lengths(count), strict=False)]
        return Received(frames, batch.pkttypes(count), batch.seconds(count), batch.nanoseconds(count))

    def take(self) -> int:
        """How many frames were read, of which nobody looks at any. Raises OSError."""
        batch = self._batch
        batch.reset(self._taken)
        count: int = recvmmsg(self._socket.fileno(), batch.address, batch.count, socket.MSG_DONTWAIT, None)
        self._taken = max(0, count)
        if count < 0 and ctypes.get_errno() not in sockets.FULL:
            raise sockets.last_error()  # which no frame may keep, as its traceback refers to them
        return self._taken


class PacketSocket:
    """Sends and receives whole frames of one EtherType on one link; non-blocking.

    ``room`` is the longest frame that is received whole, ``frame_length`` the length of all frames that are sent.
    Raises EdgeError if the link is gone or down, Unsupported without CAP_NET_RAW.
    """

    RECEIVE, SEND = 64, 256

    def __init__(self, link: Link, ethertype: int, program: Program, *, room: int, frame_length: int) -> None:
        self._link = link
        self._outbox = Batch(self.SEND, frame_length, with_details=False)
        try:
            self._socket = sockets.open_socket(link.index, ethertype, program, sockets.stamp_arrivals)
        except OSError as error:
            raise sockets.refused(link.name, error) from error
        self._inbox = Inbox(self._socket, self.RECEIVE, room)

    def attach(self, program: Program) -> None:
        """Replaces the filter, atomically."""
        try:
            sockets.attach(self._socket, on_link(self._link.index, program))
        except OSError as error:
            raise sockets.refused(f"{self._link.name}: filter", error) from error

    def fileno(self) -> int:
        return self._socket.fileno()

    def receive(self) -> Received:
        """What is queued, at most ``RECEIVE`` frames."""
        try:
            return self._inbox.receive()
        except OSError as error:
            raise sockets.refused(f"{self._link.name}: receive", error) from error

    def discard(self) -> None:
        """Discards what is queued, unread; in a flood no more than the queue can have held."""
        buffer = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        try:
            for _ in range(buffer // _SMALLEST_TRUESIZE // self.RECEIVE + 1):
                if self._inbox.take() < self.RECEIVE:
                    return
        except OSError as error:
            raise sockets.refused(f"{self._link.name}: receive", error) from error

    def send(self, frames: Sequence[bytes]) -> int:
        """Hands at most ``SEND`` frames to the link, each of ``frame_length``. Returns how many it took. If fewer,
        there is no room right now, or the link takes no frames of that length."""
        outbox = self._outbox
        joined = b"".join(frames)
        outbox.data[: len(joined)] = joined
        taken = 0
        while taken < len(frames):
            # The call stops at the first frame that fails, and says why only if that frame is the first.
            count = sendmmsg(self.fileno(), outbox.skip(taken), len(frames) - taken, socket.MSG_DONTWAIT)
            if count < 0:
                if ctypes.get_errno() not in _NOT_TAKEN:
                    raise sockets.refused(f"{self._link.name}: send", sockets.last_error())
                break
            taken += count
        return taken

    def close(self) -> None:
        self._socket.close()
