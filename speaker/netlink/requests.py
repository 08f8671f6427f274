"""Netlink requests in batches, over a blocking socket. An edge, for worker threads: one thread per socket.

Why not pyroute2 here: its IPVS part deletes on "update", reports every forwarding method as 3 and needs patching for
IPv6, and it sends one request per round trip (1,000 virtual servers of ten took 20 s where batches take 4); its
``IFLA_INET_CONF`` can be read but not written, because the kernel's two directions differ in layout.
"""

import os
import socket
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import NamedTuple, Self

from speaker.errors import EdgeError

NLMSG_ERROR, NLMSG_DONE = 2, 3
NLM_F_REQUEST, NLM_F_ACK, NLM_F_DUMP_INTR, NLM_F_DUMP = 0x1, 0x4, 0x10, 0x300
NLM_F_EXCL, NLM_F_CREATE = 0x200, 0x400
NLA_F_NESTED, NLA_TYPE_MASK = 0x8000, 0x3FFF
SOL_NETLINK, NETLINK_CAP_ACK = 270, 10

BATCH = 100
"""Requests per datagram: their answers must fit the socket's receive buffer together."""
ATTEMPTS = 10
"""How often a dump is begun again because something changed while the kernel wrote it (NLM_F_DUMP_INTR)."""

_HEADER = struct.Struct("=IHHII")
_ERROR = struct.Struct("=i")
_ATTRIBUTE = struct.Struct("=HH")


class Request(NamedTuple):
    kind: int
    payload: bytes
    flags: int = 0


class Netlink:
    """A socket of one netlink protocol: ``socket.NETLINK_ROUTE``, or 16, generic netlink."""

    def __init__(self, protocol: int) -> None:
        """Raises EdgeError where there is no socket to be had."""
        with _talking():
            self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol)
            self._socket.setsockopt(SOL_NETLINK, NETLINK_CAP_ACK, 1)
        self._sequence = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._socket.close()

    def send(self, requests: Sequence[Request]) -> list[int]:
        """The kernel's answer to each, in order: 0, or an errno. A refusal does not stop those after it. Raises
        EdgeError where the kernel could not be asked."""
        return [
            answer
            for start in range(0, len(requests), BATCH)
            for answer in self._send_batch(requests[start : start + BATCH])
        ]

    def ask(self, request: Request) -> bytes:
        """The payload of the one message that answers. Raises OSError with the kernel's refusal, EdgeError."""
        self._write([request])
        for payload in self._read():
            return payload
        raise EdgeError("netlink: the kernel answered with nothing")

    def dump(self, request: Request) -> list[bytes]:
        """The payloads of all that the kernel lists. Raises OSError with the kernel's refusal, EdgeError."""
        for _ in range(ATTEMPTS):
            self._write([request._replace(flags=request.flags | NLM_F_DUMP)])
            try:
                return list(self._read())
            except InterruptedDumpError:
                continue
        raise EdgeError(f"the kernel's tables changed {ATTEMPTS} times while they were being read")

    def _send_batch(self, requests: Sequence[Request]) -> list[int]:
        first = self._sequence + 1
        self._write([request._replace(flags=request.flags | NLM_F_ACK) for request in requests])
        answers: dict[int, int] = {}
        while len(answers) < len(requests):
            for _, _, sequence, payload in self._messages():
                answers[sequence - first] = _errno(payload)
        return [answers[index] for index in range(len(requests))]

    def _write(self, requests: Sequence[Request]) -> None:
        datagram = bytearray()
        for request in requests:
            self._sequence += 1
            length = _HEADER.size + len(request.payload)
            datagram += _HEADER.pack(length, request.kind, NLM_F_REQUEST | request.flags, self._sequence, 0)
            datagram += request.payload + bytes(-length % 4)
        with _talking():
            self._socket.send(datagram)

    def _read(self) -> Iterator[bytes]:
        interrupted = False
        while True:
            for kind, flags, _, payload in self._messages():
                interrupted |= bool(flags & NLM_F_DUMP_INTR)
                if kind in (NLMSG_ERROR, NLMSG_DONE):
                    if error := _errno(payload):
                        raise OSError(error, os.strerror(error))
                    if interrupted:
                        raise InterruptedDumpError
                    return
                yield payload

    def _messages(self) -> Iterator[tuple[int, int, int, bytes]]:
        """(type, flags, sequence, payload) of each message in the next datagram."""
        with _talking():
            datagram = self._socket.recv(1 << 17)
        at = 0
        while at < len(datagram):
            if len(datagram) - at < _HEADER.size or (header := _HEADER.unpack_from(datagram, at))[0] < _HEADER.size:
                raise EdgeError("netlink: a message that is cut short")
            length, kind, flags, sequence, _ = header
            yield kind, flags, sequence, datagram[at + _HEADER.size : at + length]
            at += length + -length % 4


@contextmanager
def _talking() -> Iterator[None]:
    """No descriptor, no memory, no room, no such protocol: other than what the kernel answers."""
    try:
        yield
    except OSError as error:
        raise EdgeError(f"netlink: {error.strerror or error}") from error


def _errno(payload: bytes) -> int:
    answer: int = _ERROR.unpack_from(payload)[0]
    return -answer


class InterruptedDumpError(Exception):
    """Raised when what a dump lists changed while it was being written. Never leaves this module."""


def attribute(kind: int, value: bytes) -> bytes:
    length = _ATTRIBUTE.size + len(value)
    return _ATTRIBUTE.pack(length, kind) + value + bytes(-length % 4)


def nested(kind: int, *attributes: bytes) -> bytes:
    return attribute(kind | NLA_F_NESTED, b"".join(attributes))


def attributes(data: bytes, start: int = 0) -> dict[int, bytes]:
    """The attributes that lie in ``data`` from ``start`` on, by type; of a repeated one, the last."""
    found: dict[int, bytes] = {}
    while start + _ATTRIBUTE.size <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, start)
        found[kind & NLA_TYPE_MASK] = data[start + _ATTRIBUTE.size : start + length]
        start += max(length + -length % 4, _ATTRIBUTE.size)
    return found


def u16(value: int) -> bytes:
    return struct.pack("=H", value)


def u32(value: int) -> bytes:
    return struct.pack("=I", value)


def be16(value: int) -> bytes:
    return struct.pack("!H", value)
