"""Netlink requests in batches, over a blocking socket. An edge, for worker threads: one thread per socket.

pyroute2 is too slow and partly wrong for what this is for (docs/decisions/0002-own-netlink.md).
"""

import os
import socket
import struct
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

from speaker.errors import EdgeError, as_edge_error
from speaker.netlink import messages as nl

NETLINK_CAP_ACK = 10

BATCH = 100
"""Requests per datagram: their answers must fit the socket's receive buffer together."""
ATTEMPTS = 10
"""How often a dump is begun again because something changed while the kernel wrote it (NLM_F_DUMP_INTR)."""


class Request(NamedTuple):
    kind: int
    payload: bytes
    flags: int = 0


class Netlink(AbstractContextManager["Netlink"]):
    """A socket of one netlink protocol: ``socket.NETLINK_ROUTE``, or 16, generic netlink."""

    def __init__(self, protocol: int) -> None:
        """Raises EdgeError where there is no socket to be had."""
        with as_edge_error("netlink"):
            self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol)
            self._socket.setsockopt(nl.SOL_NETLINK, NETLINK_CAP_ACK, 1)
        self._sequence = 0

    def __exit__(self, *_: object) -> None:
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
            self._write([request._replace(flags=request.flags | nl.NLM_F_DUMP)])
            try:
                return list(self._read())
            except InterruptedDumpError:
                continue
        raise EdgeError(f"the kernel's tables changed {ATTEMPTS} times while they were being read")

    def _send_batch(self, requests: Sequence[Request]) -> list[int]:
        first = self._sequence + 1
        self._write([request._replace(flags=request.flags | nl.NLM_F_ACK) for request in requests])
        answers: dict[int, int] = {}
        while len(answers) < len(requests):
            datagram, answered = self._receive()
            for message in answered:
                answers[message.sequence - first] = nl.errno_of(datagram, message)
        return [answers[index] for index in range(len(requests))]

    def _write(self, requests: Sequence[Request]) -> None:
        first = self._sequence + 1
        self._sequence += len(requests)
        asked = enumerate(requests, first)
        datagram = b"".join(nl.request(each.kind, number, each.payload, each.flags) for number, each in asked)
        with as_edge_error("netlink"):
            self._socket.send(datagram)

    def _read(self) -> Iterator[bytes]:
        interrupted = False
        while True:
            datagram, listed = self._receive()
            for message in listed:
                interrupted |= bool(message.flags & nl.NLM_F_DUMP_INTR)
                if message.kind in (nl.NLMSG_ERROR, nl.NLMSG_DONE):
                    if error := nl.errno_of(datagram, message):
                        raise OSError(error, os.strerror(error))
                    if interrupted:
                        raise InterruptedDumpError
                    return
                yield datagram[message.start : message.end]

    def _receive(self) -> tuple[bytes, list[nl.Message]]:
        """The next datagram, and its messages."""
        with as_edge_error("netlink"):
            datagram = self._socket.recv(1 << 17)
        try:
            return datagram, list(nl.messages(datagram))
        except (struct.error, ValueError) as error:
            raise EdgeError("netlink: a message that is cut short") from error


class InterruptedDumpError(Exception):
    """Raised when what a dump lists changed while it was being written. Never leaves this module."""
