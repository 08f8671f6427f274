"""Edge: asks the gateways of links once a second whether they are there, on packet sockets of their own.

A filter in the kernel lets only the asked gateway's answers through, and the first one ends the listening until the
next question: whatever anybody sends, it costs a bounded number of frames a second.
"""

import asyncio
import socket
from collections.abc import Callable, Collection
from contextlib import suppress

from speaker.errors import EdgeError
from speaker.interfaces.answering import Answering, questions
from speaker.interfaces.neighbor import Answer, Question, ask, only_answers, read_answer
from speaker.interfaces.snapshot import Snapshot
from speaker.model import Link
from speaker.packets import sockets

EVERY = 1.0
"""Seconds between two questions to a gateway."""
FRAMES = 64
"""Looked at for one question, at most: the filter cannot tell a forged checksum."""
_ROOM = 256
"""Bytes of a frame; an advertisement with all its options has less."""
_RECEIVE_BUFFER = 8192


async def watch_gateways(
    snapshot: Callable[[], Snapshot | None],
    links: Callable[[], Collection[Link]],
    tell: Callable[[int, bool], None],
    every: float = EVERY,
) -> None:
    """Calls ``tell(index, answers)`` for each of ``links`` as soon as that is known, and whenever it changes.

    A link is asked for the gateways of its default routes, ``every`` so many seconds; one without any answers. Works in
    the network namespace of the thread it runs in, until cancelled. Raises EdgeError, and Unsupported without
    CAP_NET_RAW.
    """
    watch = _Watch(tell)
    try:
        while True:
            if (seen := snapshot()) is not None:
                watch.ask(seen, links())
            await asyncio.sleep(every)
    finally:
        watch.close()


class _Watch:
    """The open askers and what they have heard."""

    def __init__(self, tell: Callable[[int, bool], None]) -> None:
        self._tell = tell
        self._answering = Answering()
        self._links: frozenset[int] = frozenset()
        self._askers: dict[Question, _Asker] = {}

    def ask(self, snapshot: Snapshot, links: Collection[Link]) -> None:
        self._links = frozenset(link.index for link in links)
        wanted = questions(snapshot, links)
        for waiting in self._askers.values():
            waiting.read()  # an answer that came while the loop was busy
        for question in self._askers.keys() - wanted:
            self._askers.pop(question).close()
        for question, mac in self._answering.ask(wanted):
            if (asker := self._askers.get(question) or self._open(question)) is not None:
                asker.ask(ask(question, mac))
        self._tell_changes()

    def _open(self, question: Question) -> "_Asker | None":
        """None where the link went away: its question stays unanswered, and is dropped with the next Snapshot."""
        try:
            self._askers[question] = _Asker(question, self._heard)
        except OSError as error:
            if error.errno in sockets.GONE:
                return None
            raise _refused(question, error) from error
        return self._askers[question]

    def _heard(self, question: Question, answer: Answer) -> None:
        self._answering.heard(question, answer.mac)
        self._tell_changes()

    def _tell_changes(self) -> None:
        for link, answers in self._answering.changes(self._links):
            self._tell(link, answers)

    def close(self) -> None:
        for asker in self._askers.values():
            asker.close()


class _Asker:
    """Asks one gateway, and listens for its answer until there is one. Raises OSError when it cannot be opened."""

    def __init__(self, question: Question, heard: Callable[[Question, Answer], None]) -> None:
        self._question, self._heard = question, heard
        self._left = 0
        self._socket = sockets.open_socket(question.link, question.ethertype, only_answers(question), _prepare)

    def ask(self, frame: bytes) -> None:
        """Raises EdgeError; a link that is down, gone or full lets the question go unanswered."""
        self._drop_queued()
        self._left = FRAMES
        asyncio.get_running_loop().add_reader(self._socket, self.read)
        try:
            self._socket.send(frame)
        except OSError as error:
            if error.errno not in sockets.GONE | sockets.FULL:
                raise _refused(self._question, error) from error

    def _drop_queued(self) -> None:
        """Answers to the last question, said again: the first one was enough."""
        with suppress(OSError):  # none is left; an error that matters meets `send` too
            for _ in range(FRAMES):
                self._socket.recv(1)

    def read(self) -> None:
        """What is there, until the answer is."""
        while self._left:
            try:
                frame = self._socket.recv(_ROOM)
            except BlockingIOError:
                return
            except OSError:  # the link went down: the next question will tell
                break
            self._left -= 1
            if (answer := read_answer(self._question, frame)) is not None:
                self._stop_listening()
                self._heard(self._question, answer)
        self._stop_listening()

    def _stop_listening(self) -> None:
        self._left = 0
        asyncio.get_running_loop().remove_reader(self._socket)

    def close(self) -> None:
        self._stop_listening()
        self._socket.close()


def _prepare(opened: socket.socket) -> None:
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)


def _refused(question: Question, error: OSError) -> EdgeError:
    return sockets.refused(f"link {question.link}: asking {question.gateway}", error)
