"""Edge: checks every target at its interval, from this node, as cheaply as possible.

One epoll object holds all connections, and the loop has one descriptor and one timer for all of them: a task and two
callbacks for each check would cost more than the check. ``judge.py`` says what a result means.

One check of one endpoint is a generator over a socket that never blocks (``checking``): it waits for whatever happens
next to the socket, and returns what it found. ``Prober`` waits for many at once, and closes those that take too long.
The connection is reset at its end: a thousand checks a second would otherwise leave 60,000 connections in TIME-WAIT.
"""

import asyncio
import errno
import os
import random
import re
import select
import socket
import ssl
import struct
from collections import Counter, deque
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from math import inf
from pathlib import Path
from select import EPOLLERR, EPOLLET, EPOLLIN, EPOLLOUT
from ssl import SSLContext
from typing import Protocol, TypeAlias, TypeVar

from speaker import __version__
from speaker.errors import EdgeError
from speaker.health.judge import WELL, Condition, Found, Result, Tally, Target, Unwell
from speaker.model import HealthCheck, ServiceKey, with_port
from speaker.system.files import read_regular, shown
from speaker.system.process import share
from speaker.system.supervise import Supervisor, contained, lasting
from speaker.system.threads import in_thread
from speaker.system.waiting import set_within

MAX_HEAD = 65536
"""Bytes of an answer's status and headers, with those of the interim answers before it."""
MAX_READS = 256
"""Parts in which they come, or a handshake: who sends byte by byte must not keep this process busy."""
MAX_CA = 4 * 1024 * 1024
"""Bytes of a file of certificates; all that a distribution trusts are a quarter of a million."""

_RESET_AT_CLOSE, _LATE_ACK = struct.pack("ii", 1, 0), 0
"""The request is the acknowledgement (TCP_QUICKACK in tcp(7)), or the reset: a packet less, and no server accepts, and
logs, what asks it nothing."""
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-9][0-9]{2})[ \r\n]")
_BLANK_LINE = re.compile(rb"\n\r?\n")
"""A bare LF ends a line as well (RFC 9112 section 2.2)."""
_BEGINS = b"HTTP/1."
_OPENSSLS_PLACE = re.compile(r"\[.*?\] | \(_ssl\.c:.*")
_INTERIM = range(100, 200)
_SWITCHED = 101
"""The only one of them that nothing follows (RFC 9110 section 15.2)."""
_OURS = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL}
"""Errors by which this host cannot check at all: they say nothing of the endpoint."""
_RESULTS = {
    errno.ECONNREFUSED: Result.REFUSED,
    errno.ECONNRESET: Result.RESET,
    errno.EPIPE: Result.RESET,
    errno.ETIMEDOUT: Result.TIMEOUT,
}

_T = TypeVar("_T")


Steps: TypeAlias = Generator[str, int, _T]
"""Yields what is wrong if nothing happens for too long, and is sent the mask of what did."""

_CHANGES = EPOLLIN | EPOLLOUT | EPOLLET
"""Each is told once, and what waits for one has tried before: what to wait for is not to be told anew at each step."""
_NO_ANSWER = "it does not answer"


def connecting(family: int, place: tuple[str, int]) -> socket.socket:
    """On its way. Raises EdgeError where this host has no socket left, and OSError where there is no way."""
    sock = None
    try:
        sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, _LATE_ACK)
        code = sock.connect_ex(place)
        if code not in (0, errno.EINPROGRESS):
            raise OSError(code, os.strerror(code))
    except OSError as error:
        if sock is not None:
            sock.close()
        if error.errno in _OURS and not (error.errno == errno.EADDRNOTAVAIL and _no_source(family, place)):
            raise EdgeError(f"no connection can be made from this host: {error.strerror}") from error
        raise
    return sock


def _no_source(family: int, place: tuple[str, int]) -> bool:
    """Whether this host has no address from which to ask, as without IPv6; otherwise its ports are used up."""
    with socket.socket(family, socket.SOCK_DGRAM) as asking:
        return asking.connect_ex(place) != 0


def checking(sock: socket.socket, target: Target, request: bytes, tls: ssl.SSLContext | None) -> Steps[Found]:
    """The check on a socket that is connecting, which is closed at the end. ``tls``: for https."""
    check = target.check
    try:
        mask = yield "it does not accept the connection"
        # Python's ssl leaves a socket open that was reset meanwhile.
        if (mask & EPOLLERR or tls is not None) and (code := sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)):
            return failed(OSError(code, os.strerror(code)))
        if not request:
            return WELL
        if tls is not None:
            name = check.server_name or str(target.address)
            sock = secure = tls.wrap_socket(sock, do_handshake_on_connect=False, server_hostname=name)
            yield from _done(secure.do_handshake, "its TLS handshake does not finish")
        yield from _done(lambda: sock.sendall(request), "it does not read the request")
        if tls is None and not mask & EPOLLIN:  # nothing can be there yet: a call less
            yield _NO_ANSWER
        return (yield from _answered(sock, check))
    except OSError as error:  # ssl.SSLError is one
        return failed(error)
    finally:
        sock.close()


def _done(work: Callable[[], _T], wrong: str) -> Steps[_T]:
    for _ in range(MAX_READS):
        try:
            return work()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError):
            yield wrong
    raise ssl.SSLError(0, f"more than {MAX_READS} parts")


def _answered(sock: socket.socket, check: HealthCheck) -> Steps[Found]:
    """Well as soon as all headers of a status that was asked for have come; the body is nobody's concern."""
    head, at = b"", 0  # where the answer begins, after interim ones
    for _ in range(MAX_READS):
        read = yield from _done(lambda: sock.recv(MAX_HEAD), _NO_ANSWER)
        head += read
        while (end := _BLANK_LINE.search(head, at)) is not None and (status := _STATUS.match(head, at)) is not None:
            if (code := int(status[1])) not in _INTERIM or code == _SWITCHED:
                return _by_status(code, check)
            at = end.end()
        if end is not None or not _BEGINS.startswith(head[at : at + len(_BEGINS)]):
            return Found(Result.NOT_HTTP, f"it answers {_shown(head[at:])}, which is not HTTP/1")
        if not read:
            return Found(Result.CLOSED, "it closes the connection without an answer")
        if len(head) >= MAX_HEAD:
            return Found(Result.NOT_HTTP, f"its headers have more than {MAX_HEAD} bytes")
    return Found(Result.NOT_HTTP, f"its headers come in more than {MAX_READS} parts")


def _by_status(code: int, check: HealthCheck) -> Found:
    for low, high in check.status:  # `any` takes three times as long
        if low <= code <= high:
            return WELL
    return Found(Result.STATUS, f"it answers with status {code}")


def _shown(head: bytes) -> str:
    return repr(head[:20].decode("latin-1"))


def failed(error: OSError) -> Found:
    match error:
        case ssl.SSLCertVerificationError():
            return Found(Result.TLS, f"its certificate: {error.verify_message}")
        case ssl.SSLEOFError() | ssl.SSLZeroReturnError():
            return Found(Result.CLOSED, "it closes the connection without an answer")
        case ssl.SSLError():
            return Found(Result.TLS, f"TLS: {_OPENSSLS_PLACE.sub('', str(error)).lower()}")
    return Found(_RESULTS.get(error.errno or 0, Result.UNREACHABLE), str(error.strerror).lower())


def request_of(target: Target) -> bytes:
    """b'' for tcp."""
    check = target.check
    if check.kind == "tcp":
        return b""
    standard = target.port == (80 if check.kind == "http" else 443)
    host = check.server_name or with_port(target.address, target.port)
    if check.server_name and not standard:
        host = f"{host}:{target.port}"
    lines = (f"GET {check.path} HTTP/1.1", f"Host: {host}", f"User-Agent: eip-speaker/{__version__}", "Accept: */*")
    return "\r\n".join((*lines, "Connection: close", "", "")).encode()


def context(ca: str) -> ssl.SSLContext:
    """'': nothing is verified. In a thread; raises EdgeError."""
    found = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    found.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # an intermediate CA will do, as for curl and kubectl
    if not ca:
        found.check_hostname = False
        found.verify_mode = ssl.CERT_NONE
        return found
    try:
        content, _ = read_regular(Path(ca), MAX_CA)
        if len(content) > MAX_CA:
            raise OSError(errno.EFBIG, f"it has more than {MAX_CA} bytes")
        found.load_verify_locations(cadata=content.decode("ascii", "ignore"))
    except (ssl.SSLError, ValueError) as error:  # the latter for an empty file
        rule = "must contain certificates in PEM, each of them whole"
        raise EdgeError(f"the CA {shown(Path(ca))} cannot be read: {rule}") from error
    except OSError as error:
        raise EdgeError(f"the CA {shown(Path(ca))} cannot be read: {error.strerror}") from error
    return found


MAX_TARGETS = 4096
"""Those behind are not checked, and count as ready as their EndpointSlice says."""
MAX_AT_ONCE = 1024
"""Connections, or a quarter of all descriptors if those are fewer."""
TICK_SECONDS = 0.02
"""Checks that are due within it begin together."""
BATCH = 100
"""Checks that begin in one tick: some 5 ms of the loop's time."""
LATE_SECONDS = 1.0
"""A check that begins so long after it was due is counted as late."""
STOOD_SECONDS = 0.25
"""If this process did not get on for so long, what was under way says nothing of the endpoints."""
TALLY_SECONDS = 1.0
"""How often it is told what was counted."""
CA_SECONDS = 10.0
"""How often a file of a CA is read again."""

EDGE, CAS = "health checks", "CAs of health checks"


class Told(Supervisor, Protocol):
    """Who hears of what fails on this host; ``node.report.Report`` is one."""

    def failed(self, edge: str, error: BaseException) -> None: ...
    def recovered(self, edge: str) -> None: ...
    def endpoints_checked(self, tally: Tally) -> None: ...


@dataclass(slots=True, eq=False)
class Watched:
    """A target, and the check of it that is under way."""

    target: Target
    family: int
    place: tuple[str, int]
    request: bytes
    services: tuple[ServiceKey, ...]
    condition: Condition = field(default_factory=Condition)
    due: float = 0.0
    """When the next check begins, on the loop's clock; 0: it is the first one."""
    deadline: float = inf
    """Of the check that is under way."""
    steps: Steps[Found] | None = None
    wrong: str = ""
    """If it gets no further in time."""
    fd: int = -1
    followed: bool = True


class Prober:
    """``tell`` hears of the targets that became well or unwell, ``report`` of what fails here and what is counted."""

    def __init__(
        self,
        tell: Callable[[list[Watched]], None],
        report: Told,
        most: int = MAX_TARGETS,
        at_once: int = MAX_AT_ONCE,
    ) -> None:
        self._tell, self._report = tell, report
        self._most, self._at_once = most, share(4, at_once)
        self._watched: dict[Target, Watched] = {}
        self._heap: list[tuple[float, int, Watched]] = []
        """What happens next to each target: it is due, or its time is over."""
        self._number = count()
        self._due: deque[Watched] = deque()
        """Those that wait until others end."""
        self._under_way: dict[int, Watched] = {}
        """By descriptor."""
        self._contexts: dict[str, SSLContext | EdgeError] = {}
        """By the file of the CA."""
        self._poll = select.epoll()
        self._changed, self._cas_changed, self._known = (asyncio.Event() for _ in range(3))
        self._news: list[Watched] = []
        self._fails = False
        self._results: Counter[Result] = Counter()
        self._late = self._beyond = 0
        self._tally_at = 0.0

    # ── what is asked ──

    def follow(self, targets: Mapping[Target, tuple[ServiceKey, ...]]) -> None:
        """These are checked from now on, new ones at once."""
        for target in self._watched.keys() - targets.keys():
            gone = self._watched.pop(target)
            gone.followed = False
            self._end(gone)
        self._beyond = max(0, len(targets) - self._most)
        for target, services in targets.items():
            if (known := self._watched.get(target)) is not None:
                known.services = services
            elif len(self._watched) < self._most:
                family = socket.AF_INET if target.address.version == 4 else socket.AF_INET6
                place = str(target.address), target.port
                self._watched[target] = new = Watched(target, family, place, request_of(target), services)
                self._due.append(new)
        self._known.clear()
        self._see_whether_known()
        self._changed.set()
        self._cas_changed.set()

    async def known(self, seconds: float) -> None:
        """Returns when every target was checked, or after so long."""
        await set_within(self._known, seconds)

    def _see_whether_known(self) -> None:
        if all(each.condition.well is not None for each in self._watched.values()):
            self._known.set()

    @property
    def unwell(self) -> Unwell:
        """Also what was not checked yet."""
        return {each.target: each.condition.words for each in self._watched.values() if not each.condition.well}

    # ── the loop ──

    async def run(self) -> None:
        """Endless."""
        loop = asyncio.get_running_loop()
        loop.add_reader(self._poll.fileno(), self._ready)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(lasting(CAS, self._read_cas), name=CAS)
                while True:
                    at = self._next(loop.time())
                    await set_within(self._changed, None if at == inf else at - loop.time())
                    self._changed.clear()
                    self._turn(loop.time(), stood=loop.time() > at + STOOD_SECONDS)
        finally:
            loop.remove_reader(self._poll.fileno())
            for each in (*self._under_way.values(),):
                self._give_up(each)

    def _next(self, now: float) -> float:
        first = self._heap[0][0] if self._heap else inf
        return now + TICK_SECONDS if self._due else max(first, now + TICK_SECONDS)

    def _turn(self, now: float, *, stood: bool = False) -> None:
        """``stood``: this process did not get on for a while."""
        self._ready()
        if stood:
            for each in (*self._under_way.values(),):
                self._give_up(each)
        while self._heap and self._heap[0][0] <= now:
            _, _, watched = heappop(self._heap)
            if watched.followed:
                self._happens(watched, now)
        for _ in range(min(BATCH, len(self._due))):
            if len(self._under_way) >= self._at_once:
                break
            if (watched := self._due.popleft()).followed:
                self._begin(watched, now)
        self._say()
        if now >= self._tally_at or not self._watched:
            states = Counter(each.condition.well for each in self._watched.values())
            self._report.endpoints_checked(Tally(self._results, states, self._late, self._beyond))
            self._results, self._late, self._tally_at = Counter(), 0, now + TALLY_SECONDS

    def _happens(self, watched: Watched, now: float) -> None:
        if watched.steps is not None and watched.deadline <= now:
            self._hear(watched, Found(Result.TIMEOUT, f"{watched.wrong} within {watched.target.check.timeout:g}s"))
        if watched.steps is not None:  # the next one is due, and waits for this one
            self._push(min(watched.deadline, now + watched.target.check.interval), watched)
        elif watched.due > now:
            self._push(watched.due, watched)
        else:
            self._due.append(watched)

    def _begin(self, watched: Watched, now: float) -> None:
        check = watched.target.check
        tls = self._contexts.get(check.ca) if check.kind == "https" else None
        if tls is None and check.kind == "https":  # not read yet
            self._push(now + TICK_SECONDS, watched)
            return
        self._late += 0 < watched.due <= now - LATE_SECONDS
        # Those that begin together with their first check spread over the interval with their second.
        pause = check.interval if watched.due else random.uniform(0, check.interval)  # noqa: S311
        watched.due = now + pause + random.uniform(0, check.jitter)  # noqa: S311
        watched.deadline = now + check.timeout
        self._push(min(watched.due, watched.deadline), watched)
        with contained(EDGE, self._report):
            self._connect(watched, tls)

    def _connect(self, watched: Watched, tls: SSLContext | EdgeError | None) -> None:
        if isinstance(tls, EdgeError):
            self._hear(watched, Found(Result.HERE, str(tls)))
            return
        try:
            sock = connecting(watched.family, watched.place)
        except EdgeError as error:  # says nothing of the endpoint
            self._fails = True
            self._report.failed(EDGE, error)
            return
        except OSError as error:
            self._hear(watched, failed(error))
            return
        if self._fails:
            self._fails = False
            self._report.recovered(EDGE)
        watched.fd = sock.fileno()
        self._poll.register(watched.fd, _CHANGES)
        watched.steps = checking(sock, watched.target, watched.request, tls)
        self._under_way[watched.fd] = watched
        self._step(watched, None)

    def _ready(self) -> None:
        for fd, mask in self._poll.poll(0):
            if (watched := self._under_way.get(fd)) is not None:
                with contained(EDGE, self._report):
                    self._step(watched, mask)
        self._say()

    def _step(self, watched: Watched, mask: int | None) -> None:
        """``mask``: what happened to its descriptor; None: it begins."""
        assert watched.steps is not None
        try:
            watched.wrong = next(watched.steps) if mask is None else watched.steps.send(mask)
        except StopIteration as end:
            self._hear(watched, end.value)
        except BaseException:
            self._end(watched)
            raise

    def _end(self, watched: Watched) -> None:
        if watched.steps is not None:
            del self._under_way[watched.fd]
            watched.steps.close()  # with its socket, which the kernel takes off the epoll object
            watched.steps = None

    def _give_up(self, watched: Watched) -> None:
        """Without a result."""
        self._end(watched)
        watched.due = 0.0

    def _hear(self, watched: Watched, found: Found) -> None:
        self._end(watched)
        self._results[found.result] += 1
        if watched.condition.hear(found, watched.target.check):
            self._news.append(watched)

    def _say(self) -> None:
        if self._news:
            news, self._news = self._news, []
            self._see_whether_known()
            self._tally_at = 0.0
            self._changed.set()
            self._tell(news)

    def _push(self, when: float, watched: Watched) -> None:
        heappush(self._heap, (when, next(self._number), watched))

    async def _read_cas(self) -> None:
        """Endless. A file that cannot be read again keeps what it held, and that is told."""
        told = False
        while True:
            stale = None
            checks = (target.check for target in self._watched)
            cas = {check.ca for check in checks if check.kind == "https"}
            self._contexts = {ca: found for ca, found in self._contexts.items() if ca in cas}
            for ca in cas:
                try:
                    self._contexts[ca] = await in_thread(context, ca)
                except EdgeError as error:
                    if isinstance(self._contexts.get(ca), SSLContext):
                        stale = error
                    else:
                        self._contexts[ca] = error
            if stale is not None:
                self._report.failed(CAS, stale)
            elif told:
                self._report.recovered(CAS)
            told = stale is not None
            await set_within(self._cas_changed, CA_SECONDS if any(cas) else None)
            self._cas_changed.clear()
