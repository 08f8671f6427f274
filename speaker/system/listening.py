"""Edge: ports that answer one question per connection over HTTP, for machines that watch us.

Ports may be open to a LAN, so connections are few and short, questions are small, and the newest connection always gets
in: a crowd of silent connections keeps nobody out. aiohttp's own server keeps every connection that comes.
"""

import asyncio
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, suppress
from functools import partial
from http import HTTPStatus
from ipaddress import ip_address
from typing import NamedTuple, TypeAlias

import structlog

from speaker.system.crowd import Crowd
from speaker.system.process import share

log = structlog.get_logger()

MAX_CONNECTIONS = 64
"""At a time on all ports of a ``Front``; fewer where this process may have few files open."""
CONNECTION_SECONDS = 10.0
"""From its first moment to the last byte of its answer; Prometheus gives up after as long."""
MAX_REQUEST = 16 * 1024
"""Bytes."""
MAX_BEHIND = 4 * 1024 * 1024
"""Bytes of a stream that its reader may leave unread: a slow one is not waited for."""
MAX_UNREAD = 64 * 1024 * 1024
"""Bytes of answers that nobody has read yet, of all connections together."""
BACKLOG = 1024
"""Connections that the kernel keeps for us: they take no descriptor of ours."""
BY_NAME = "ask by address, as localhost, or by the name of this host: no other name is answered"
"""For people: the name itself, which may be anybody's, is not said again."""
_PART = 16
"""One of so many of all descriptors may be connections."""


class Question(NamedTuple):
    """``path`` is without the query; ``host`` is the name by which we are asked, '' if the request has none."""

    method: str
    path: str
    host: str = ""


class Answer(NamedTuple):
    status: int
    body: bytes
    headers: Mapping[str, str]


class Stream(NamedTuple):
    """An answer that goes on for as long as its client reads it."""

    pieces: AsyncGenerator[bytes, None]
    headers: Mapping[str, str]


Answering: TypeAlias = Callable[[Question], Awaitable[Answer | Stream]]


class Front(AbstractAsyncContextManager["Front"]):
    """``async with Front() as front: port = await front.open(HOST, PORT, answer)``; leaving it closes everything."""

    def __init__(self, seconds: float = CONNECTION_SECONDS, most_unread: int = MAX_UNREAD) -> None:
        self.crowd: Crowd[_Visitor] = Crowd(share(_PART, MAX_CONNECTIONS))
        self.seconds, self.most_unread = seconds, most_unread
        self.visitors: set[_Visitor] = set()
        self.failure = ""
        """The last one of an answer, as it was logged."""
        self._ports: set[asyncio.Server] = set()

    def __len__(self) -> int:
        """Connections."""
        return len(self.visitors)

    async def __aexit__(self, *_: object) -> None:
        for port in [*self._ports]:
            self.shut(port)
        for visitor in [*self.visitors]:
            visitor.end()
        await asyncio.sleep(0)  # transports close in the loop's next turn, which may have been its last

    async def open(self, host: str, port: int, answer: Answering, names: Collection[str] | None = ()) -> asyncio.Server:
        """``names``: of this host, by which it may be asked as well (see ``by_address``); None: by any name at all.
        Raises OSError where it cannot be had."""
        # A socket of our own: for asyncio an address without a socket is one address fewer, and no error.
        listening = socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=BACKLOG
        )
        try:
            listening.setblocking(False)
            # asyncio accepts that many in one go, each taking a descriptor before anybody can be shown the door; and
            # where there is none, it complains as often.
            opened = await asyncio.get_running_loop().create_server(
                partial(self._visitor, answer if names is None else _by_own_name(answer, names)),
                sock=listening,
                backlog=1,
            )
            listening.listen(BACKLOG)
        except BaseException:
            listening.close()
            raise
        self._ports.add(opened)
        return opened

    def _visitor(self, answer: Answering) -> "_Visitor":
        try:
            return _Visitor(self, answer)
        except BaseException as error:  # asyncio passes over it, and closes the connection
            asyncio.get_running_loop().call_exception_handler({"message": "no visitor", "exception": error})
            raise

    def shut(self, port: asyncio.Server) -> None:
        """Who has connected is still answered."""
        self._ports.discard(port)
        port.close()


class _Visitor(asyncio.Protocol):
    """One connection: its question, its answer, its end."""

    def __init__(self, front: Front, answer: Answering) -> None:
        self._front, self._answer = front, answer
        self._asked = bytearray()
        self._task: asyncio.Task[None] | None = None
        self._flows = False
        self._transport: asyncio.Transport
        self._limit: asyncio.TimerHandle

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._limit = asyncio.get_running_loop().call_later(self._front.seconds, self.end)
        self._front.visitors.add(self)
        source, *_ = transport.get_extra_info("peername") or ("",)
        if (leaves := self._front.crowd.enter(self, source)) is not None:
            leaves.end()

    def end(self) -> None:
        """At once, said or unsaid."""
        self._transport.abort()

    def connection_lost(self, _: BaseException | None) -> None:
        self._limit.cancel()
        self._front.crowd.leave(self)
        self._front.visitors.discard(self)
        if self._task is not None:
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        if self._task is not None:  # one question a connection
            return
        self._asked += data
        head, end, _ = bytes(self._asked).partition(b"\r\n\r\n")
        if len(head) > MAX_REQUEST:  # also where its end came along in one piece
            self._say(plain(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE))
        elif end:
            self._front.crowd.occupy(self)
            self._task = asyncio.get_running_loop().create_task(self._serve(head), name="http answer")
            self._task.add_done_callback(self._served)

    def eof_received(self) -> bool:
        """Whether it is kept open: somebody may have said all, and listen; of a stream only browsers are told, and
        these have left."""
        return self._task is not None and not self._flows

    async def _serve(self, head: bytes) -> None:
        question = _question(head)
        if question is None:
            self._say(plain(HTTPStatus.BAD_REQUEST))
            return
        try:
            answer = await self._answer(question)
            if isinstance(answer, Stream):
                await self._flow(answer, body=question.method != "HEAD")
                return
        except Exception as error:
            if (words := f"{type(error).__name__}: {error}") != self._front.failure:
                self._front.failure = words
                log.error("no answer", path=question.path[:80], exc_info=error)
            answer = plain(HTTPStatus.INTERNAL_SERVER_ERROR)
        self._say(answer, body=question.method != "HEAD")

    def _served(self, task: asyncio.Task[None]) -> None:
        """Whoever asked does not wait for an answer that a bug of ours keeps from it; the loop hears of that."""
        if task.cancelled() and task.cancelling():  # whoever asked has left
            return
        if error := asyncio.CancelledError(task.get_name()) if task.cancelled() else task.exception():
            self.end()
            asyncio.get_running_loop().call_exception_handler({"message": "no answer", "exception": error})

    async def _flow(self, stream: Stream, *, body: bool) -> None:
        """Until whoever asked is gone, or no longer reads."""
        self._limit.cancel()
        self._flows = True
        async with aclosing(stream.pieces) as pieces:
            self._write(HTTPStatus.OK, stream.headers)
            while body and not self._transport.is_closing() and self.unread <= MAX_BEHIND:
                self._transport.write(await anext(pieces))
                self._make_room()
        self.end()

    def _say(self, answer: Answer, *, body: bool = True) -> None:
        if self._transport.is_closing():
            return
        headers = {**answer.headers, "Content-Length": str(len(answer.body))}
        self._write(answer.status, headers, answer.body if body else b"")
        self._transport.close()  # once all of it is sent
        self._make_room()

    def _write(self, status: int, headers: Mapping[str, str], body: bytes = b"") -> None:
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"]
        lines += [f"{name}: {value}" for name, value in {**headers, "Connection": "close"}.items()]
        self._transport.write("\r\n".join([*lines, "", ""]).encode() + body)

    def _make_room(self) -> None:
        """Whoever reads least goes, where too much waits to be read."""
        if sum(each.unread for each in self._front.visitors) > self._front.most_unread:
            max(self._front.visitors, key=lambda each: each.unread).end()

    @property
    def unread(self) -> int:
        return self._transport.get_write_buffer_size()


def _question(head: bytes) -> Question | None:
    """None for what is no request of HTTP/1."""
    first, *headers = head.split(b"\r\n")
    with suppress(UnicodeDecodeError, ValueError):
        method, target, version = first.decode("ascii").split(" ")
        if version.startswith("HTTP/1."):
            return Question(method, target.partition("?")[0], _host(headers))
    return None


def _host(headers: Iterable[bytes]) -> str:
    """'' where none is named, or more than one."""
    found = [value.strip() for name, _, value in (each.partition(b":") for each in headers) if name.lower() == b"host"]
    return found[0].decode("ascii", "replace") if len(found) == 1 else ""


def by_address(host: str, names: Collection[str]) -> bool:
    """Not by a name but ``localhost``, this host's own and ``names``: behind any other a web site could have its
    visitors' browsers ask us, and read the answers (DNS rebinding)."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
    try:
        ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        own = ("localhost", socket.gethostname(), *names)
        return bool(name) and name.lower() in map(str.lower, own)
    return True


def _by_own_name(answer: Answering, names: Collection[str]) -> Answering:
    async def asked(question: Question) -> Answer | Stream:
        if by_address(question.host, names):
            return await answer(question)
        return plain(HTTPStatus.MISDIRECTED_REQUEST, BY_NAME)

    return asked


def refusal(error: OSError) -> str:
    """Why a port cannot be had; ``create_server`` says where a second time, as Python writes it."""
    return (error.strerror or str(error)).partition(" (while ")[0]


def plain(status: HTTPStatus, words: str = "") -> Answer:
    """An answer that is only a status, and what a person may have to know about it."""
    return Answer(
        status, f"{status.phrase}{words and ': '}{words}\n".encode(), {"Content-Type": "text/plain; charset=utf-8"}
    )
