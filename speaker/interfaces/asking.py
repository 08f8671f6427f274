"""Edge: asks neighbours whether they are there, each on a packet socket of its own.

A filter in the kernel lets only the asked one's answers through, and the first one ends the listening until the next
question: whatever anybody sends, it costs a bounded number of frames a second.
"""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress

from speaker.errors import EdgeError
from speaker.interfaces.neighbor import Answer, Question, ask, only_answers, read_answer
from speaker.packets import sockets
from speaker.system.waiting import set_within

FRAMES = 64
"""Looked at for one question, at most: the filter cannot tell a forged checksum."""
_ROOM = 256
"""Bytes of a frame; an advertisement with all its options has less."""
_RECEIVE_BUFFER = 8192


async def answers(question: Question, times: int, every: float) -> bool:
    """Whether one of ``times`` requests, ``every`` so many seconds, is answered. False where the link is gone. Raises
    EdgeError, and Unsupported without CAP_NET_RAW."""
    heard = asyncio.Event()
    try:
        asker = Asker(question, lambda *_: heard.set())
    except OSError as error:
        if error.errno in sockets.GONE:
            return False
        raise refused(question, error) from error
    try:
        for _ in range(times):
            asker.ask(ask(question, None))
            await set_within(heard, every)
            asker.read()  # an answer that came while the loop was busy
            if heard.is_set():
                return True
        return False
    finally:
        asker.close()


class Asker:
    """Asks one neighbour, and listens for its answer until there is one. Raises OSError when it cannot be opened."""

    def __init__(self, question: Question, heard: Callable[[Question, Answer], None]) -> None:
        self._question, self._heard = question, heard
        self._left = 0
        self._listening = False
        self._socket = sockets.open_socket(question.link, question.ethertype, only_answers(question), _prepare)

    def ask(self, frame: bytes, *, listen: bool = True) -> None:
        """Its answer is heard as it comes, or else waits for the next ``read``. Raises EdgeError; a link that is down,
        gone or full lets the question go unanswered."""
        self._drop_queued()
        self._left = FRAMES
        if listen and not self._listening:
            self._listening = True
            # By number: asyncio asks the kernel three times for a socket's name, to say that it is not registered.
            asyncio.get_running_loop().add_reader(self._socket.fileno(), self.read)
        try:
            self._socket.send(frame)
        except OSError as error:
            if error.errno not in sockets.GONE | sockets.FULL:
                raise refused(self._question, error) from error

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
        if self._listening:
            self._listening = False
            asyncio.get_running_loop().remove_reader(self._socket.fileno())

    def close(self) -> None:
        self._stop_listening()
        self._socket.close()


def _prepare(opened: socket.socket) -> None:
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)


def refused(question: Question, error: OSError) -> EdgeError:
    return sockets.refused(f"link {question.link}: asking {question.gateway}", error)
