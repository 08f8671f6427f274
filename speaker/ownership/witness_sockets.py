"""Edge: asks links for EIPs and reads, a moment later, who answered. Nothing wakes for an answer: the kernel keeps what
its filter lets through, replies to this host alone, until it is read."""

import socket
from collections.abc import Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Self

from speaker.model import IPAddress, Link, Mac
from speaker.ownership.hello import Addresses
from speaker.ownership.inquiry import answers_to, question, read_answer
from speaker.packets import arp, ndp, sockets

FRAMES = 256
"""Read of one socket in a turn."""
_ROOM, _BUFFER = 256, 1 << 16
_SOL_PACKET, _PACKET_IGNORE_OUTGOING = 263, 23  # <linux/if_packet.h>; missing from Python's socket module


class WitnessSockets:
    """One for each link and family in use. A block, which closes them."""

    def __init__(self) -> None:
        self._open: dict[tuple[Link, int], socket.socket] = {}
        self._own: Mapping[int, Addresses] = {}
        self._links: dict[int, Link] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for opened in self._open.values():
            opened.close()
        self._open.clear()

    def use(self, links: Iterable[Link], own: Mapping[int, Addresses]) -> None:
        """These links, with this host's ``own`` addresses there by their index, and no others."""
        self._links, self._own = {link.index: link for link in links}, own
        for link, family in [port for port in self._open if self._links.get(port[0].index) != port[0]]:
            self._open.pop((link, family)).close()

    def ask(self, eip: IPAddress, link: int) -> bool:
        """Whether a request left. Raises EdgeError where the kernel refuses a socket."""
        if (port := self._links.get(link)) is None:
            return False
        if (frame := question(port.mac, self._own.get(link, ()), eip)) is None:
            return False
        opened = self._socket(port, eip.version)
        try:
            opened.send(frame)
        except OSError:  # down, gone or full: it is opened anew, and asked again
            self._open.pop((port, eip.version)).close()
            return False
        return True

    def _socket(self, link: Link, version: int) -> socket.socket:
        if (opened := self._open.get((link, version))) is None:
            ethertype = arp.ETHERTYPE if version == 4 else ndp.ETHERTYPE
            try:
                opened = sockets.open_socket(link.index, ethertype, answers_to(link.mac), _prepare)
            except OSError as error:
                raise sockets.refused(f"{link.name}: asking for EIPs", error) from error
            self._open[link, version] = opened
        return opened

    def drop(self) -> None:
        """What came since the last turn answers nothing that will be asked."""
        for opened in self._open.values():
            with suppress(OSError):
                for _ in range(FRAMES):
                    opened.recv(1)

    def answers(self) -> list[tuple[IPAddress, Mac]]:
        """What has come since the requests left."""
        return [
            (found.address, found.mac)
            for opened in self._open.values()
            for frame in _frames(opened)
            if (found := read_answer(frame)) is not None
        ]


def _frames(opened: socket.socket) -> list[bytes]:
    frames: list[bytes] = []
    with suppress(OSError):  # nothing left, or the link went down
        while len(frames) < FRAMES:
            frames.append(opened.recv(_ROOM))
    return frames


def _prepare(opened: socket.socket) -> None:
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
    with suppress(OSError):  # before Linux 4.20 the filter alone keeps out what this host sends
        opened.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
