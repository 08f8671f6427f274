"""Edge: asks links who has an address, by broadcast or by unicast, and hears who answers.

A filter in the kernel passes only answers. They wake nobody until somebody listens: the kernel keeps what its buffer
holds, and a bounded number of frames is read from it.
"""

import asyncio
import socket
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, suppress
from functools import partial
from typing import Self

from speaker.errors import EdgeError, LinkGone
from speaker.model import IPAddress, Link, Mac
from speaker.packets import arp, ndp, sockets
from speaker.packets.asking import Answer, Question, answers_to, only_answers, question, question_from, read_answer
from speaker.packets.bpf import Program
from speaker.system.waiting import at_rest

EVERY_PROTOCOL = 3
"""ETH_P_ALL, <linux/if_ether.h>."""
FRAMES, BUFFER = 256, 1 << 16
"""Read of one socket in a turn, and bytes that the kernel keeps until then."""
NEIGHBOUR_FRAMES, _NEIGHBOUR_BUFFER = 64, 8192
"""The same where one neighbour is asked: the filter cannot tell a forged checksum."""
_ROOM = 512
"""Bytes of a frame that are looked at; an advertisement with all its options has less."""
_SOL_PACKET, _PACKET_IGNORE_OUTGOING = 263, 23  # <linux/if_packet.h>; missing from Python's socket module


class Asker:
    """One packet socket on the link of that index, which hears what ``program`` lets through; ``what`` it is for stands
    in errors. Raises EdgeError: LinkGone where there is no such link, Unsupported without CAP_NET_RAW."""

    def __init__(
        self, what: str, link: int, program: Program, protocol: int = EVERY_PROTOCOL, buffer: int = BUFFER
    ) -> None:
        self._what = what
        try:
            self._socket = sockets.open_socket(link, protocol, program, partial(_prepare, buffer))
        except OSError as error:
            raise sockets.refused(what, error) from error

    @classmethod
    def of_neighbour(cls, asked: Question) -> Self:
        """Hears the one that is asked, and nobody else."""
        what = f"link {asked.link}: asking {asked.target}"
        return cls(what, asked.link, only_answers(asked), _protocol(asked.target), _NEIGHBOUR_BUFFER)

    def send(self, frame: bytes) -> bool:
        """Whether it left: there may be no room. Raises EdgeError, LinkGone where the link is down or gone."""
        try:
            self._socket.send(frame)
        except OSError as error:
            if error.errno in sockets.FULL:
                return False
            raise sockets.refused(self._what, error) from error
        return True

    def frames(self, most: int) -> Iterator[bytes]:
        with suppress(OSError):  # nothing is left, or the link went down: the next question will tell
            for _ in range(most):
                yield self._socket.recv(_ROOM)

    def answers(self, most: int) -> list[Answer]:
        return [answer for frame in self.frames(most) if (answer := read_answer(frame)) is not None]

    def drop(self, most: int) -> None:
        """What has come answers nothing that will be asked."""
        for _ in self.frames(most):
            pass

    def hear_sent(self) -> None:
        """From now on ``program`` is also given what this host sends."""
        with suppress(OSError):  # as below
            self._socket.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 0)

    def listen(self, ready: Callable[[], None]) -> None:
        """``ready`` is called by the loop as long as there is something to read."""
        # By number: asyncio asks the kernel three times for a socket's name, to say that it is not registered.
        asyncio.get_running_loop().add_reader(self._socket.fileno(), ready)

    def rest(self) -> None:
        """Nothing wakes any more for what comes."""
        asyncio.get_running_loop().remove_reader(self._socket.fileno())

    def close(self) -> None:
        """One that listens must ``rest`` before."""
        self._socket.close()


async def heard(link: Link, program: Program, seconds: float, most: int) -> list[bytes]:
    """Frames that come in on ``link`` within so many seconds, or leave there, and that ``program`` lets through:
    ``most`` of them, none where the link is gone. Raises EdgeError, Unsupported without CAP_NET_RAW."""
    what = f"listening on {link.name}"
    with suppress(LinkGone), closing(Asker(what, link.index, program, buffer=most << 10)) as asker, at_rest():
        asker.hear_sent()
        await asyncio.sleep(seconds)
        return [*asker.frames(most)]
    return []


class Askers(AbstractContextManager["Askers"]):
    """One for each link and family in use, which nobody listens to. A block, which closes them. Reads at most ``most``
    frames of each in a turn, of which the kernel keeps ``buffer`` bytes."""

    def __init__(self, most: int = FRAMES, buffer: int = BUFFER) -> None:
        self._most, self._buffer = most, buffer
        self._open: dict[tuple[Link, int], Asker] = {}
        self._own: Mapping[int, Collection[IPAddress]] = {}
        self._links: dict[int, Link] = {}

    def __exit__(self, *_: object) -> None:
        self.use((), {})

    def use(self, links: Iterable[Link], own: Mapping[int, Collection[IPAddress]]) -> None:
        """These links, with this host's ``own`` addresses there by their index, and no others."""
        self._links, self._own = {link.index: link for link in links}, own
        for link, version in [port for port in self._open if self._links.get(port[0].index) != port[0]]:
            self._open.pop((link, version)).close()

    def ask(self, address: IPAddress, link: int, known: Mac | None = None) -> bool:
        """Whether a request left: to ``known`` alone if that is given. Raises EdgeError where the kernel refuses a
        socket."""
        if (port := self._links.get(link)) is None:
            return False
        if (frame := question_from(port.mac, self._own.get(link, ()), address, known)) is None:
            return False
        asker = self._asker(port, address)
        try:
            return asker.send(frame)
        except EdgeError:  # down or gone: it is opened and asked again the next time
            self._open.pop((port, address.version)).close()
            return False

    def _asker(self, link: Link, address: IPAddress) -> Asker:
        if (asker := self._open.get((link, address.version))) is None:
            what, protocol = f"{link.name}: asking", _protocol(address)
            asker = Asker(what, link.index, answers_to(link.mac), protocol, self._buffer)
            self._open[link, address.version] = asker
        return asker

    def drop(self) -> None:
        """What came since the last turn answers nothing that will be asked."""
        for asker in self._open.values():
            asker.drop(self._most)

    def answers(self) -> list[Answer]:
        """What has come since the requests left."""
        return [answer for asker in self._open.values() for answer in asker.answers(self._most)]


async def answers(asked: Question, times: int, every: float) -> bool:
    """Whether one of ``times`` requests, ``every`` so many seconds, is answered. False where the link is gone. Raises
    EdgeError, and Unsupported without CAP_NET_RAW."""
    with suppress(LinkGone), closing(Asker.of_neighbour(asked)) as asker:
        for _ in range(times):
            with suppress(LinkGone):
                asker.send(question(asked.mac, asked.source, asked.target))
            await asyncio.sleep(every)
            if asker.answers(NEIGHBOUR_FRAMES):
                return True
    return False


def _prepare(buffer: int, opened: socket.socket) -> None:
    sockets.enlarge(opened, buffer)
    with suppress(OSError):  # before Linux 4.20 the filter alone keeps out what this host sends
        opened.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)


def _protocol(address: IPAddress) -> int:
    return arp.ETHERTYPE if address.version == 4 else ndp.ETHERTYPE
