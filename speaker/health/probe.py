"""Edge: one check of one endpoint, as a generator over a socket that never blocks.

It yields what it waits for, and returns what it found. Its caller (``prober.py``) waits for many at once, and closes
those that take too long. The connection is reset at its end, because a thousand checks a second would otherwise leave
60,000 connections in TIME-WAIT.
"""

import errno
import os
import re
import socket
import ssl
import struct
from collections.abc import Callable, Generator
from pathlib import Path
from select import EPOLLERR, EPOLLIN, EPOLLOUT
from typing import NamedTuple, TypeAlias, TypeVar

from speaker import __version__
from speaker.errors import EdgeError
from speaker.health.judge import Found, Result, Target
from speaker.model import HealthCheck, with_port
from speaker.system.files import read_regular, shown

MAX_HEAD = 65536
"""Bytes of an answer's status and headers."""
MAX_READS = 256
"""Parts in which they come: who sends byte by byte must not keep this process busy."""
MAX_CA = 4 * 1024 * 1024
"""Bytes of a file of certificates; all that a distribution trusts are a quarter of a million."""

_RESET_AT_CLOSE, _LATE_ACK = struct.pack("ii", 1, 0), 0
"""The request is the acknowledgement (TCP_QUICKACK in tcp(7)), or the reset: a packet less, and no server accepts, and
logs, what asks it nothing."""
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-9][0-9]{2})[ \r\n]")
_BEGINS = b"HTTP/1."
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


class Wait(NamedTuple):
    """Until a descriptor is as ``mask`` says; what is ``wrong`` if that takes too long."""

    mask: int
    wrong: str


Steps: TypeAlias = Generator[Wait, int, _T]
"""Is sent the mask of what happened to the descriptor."""

_TO_CONNECT = Wait(EPOLLOUT, "it does not accept the connection")
_TO_SHAKE, _TO_ASK, _TO_READ = (
    {mask: Wait(mask, what) for mask in (EPOLLIN, EPOLLOUT)}
    for what in ("its TLS handshake does not finish", "it does not read the request", "it does not answer")
)


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
        if error.errno in _OURS:
            raise EdgeError(f"no connection can be made from this host: {error.strerror}") from error
        raise
    return sock


def checking(sock: socket.socket, check: HealthCheck, request: bytes, tls: ssl.SSLContext | None) -> Steps[Found]:
    """The check on a socket that is connecting, which is closed at the end. ``tls``: for https."""
    try:
        if (yield _TO_CONNECT) & EPOLLERR:
            code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            return failed(OSError(code, os.strerror(code)))
        if not request:
            return Found(Result.WELL)
        if tls is not None:
            name = check.server_name or sock.getpeername()[0]
            sock = secure = tls.wrap_socket(sock, do_handshake_on_connect=False, server_hostname=name)
            yield from _done(secure.do_handshake, _TO_SHAKE)
        yield from _done(lambda: sock.sendall(request), _TO_ASK)
        return (yield from _answered(sock, check))
    except OSError as error:  # ssl.SSLError is one
        return failed(error)
    finally:
        sock.close()


def _done(work: Callable[[], _T], waits: dict[int, Wait]) -> Steps[_T]:
    while True:
        try:
            return work()
        except (ssl.SSLWantReadError, BlockingIOError):
            yield waits[EPOLLIN]
        except ssl.SSLWantWriteError:
            yield waits[EPOLLOUT]


def _answered(sock: socket.socket, check: HealthCheck) -> Steps[Found]:
    """Well as soon as all headers of a status that was asked for have come; the body is nobody's concern."""
    head = b""
    for _ in range(MAX_READS):
        if not isinstance(sock, ssl.SSLSocket):  # which may have read more than it gave
            yield _TO_READ[EPOLLIN]
        read = yield from _done(lambda: sock.recv(MAX_HEAD), _TO_READ)
        head += read
        while True:
            if head[: len(_BEGINS)] != _BEGINS[: len(head)]:
                return Found(Result.NOT_HTTP, f"it answers {_shown(head)}, which is not HTTP/1")
            if not (end := _end(head)):
                break
            if (status := _STATUS.match(head)) is None:
                return Found(Result.NOT_HTTP, f"it answers {_shown(head)}, which is not HTTP/1")
            if (code := int(status[1])) not in _INTERIM or code == _SWITCHED:
                return _by_status(code, check)
            head = head[end:]
        if not read:
            return Found(Result.CLOSED, "it closes the connection without an answer")
        if len(head) >= MAX_HEAD:
            return Found(Result.NOT_HTTP, f"its headers have more than {MAX_HEAD} bytes")
    return Found(Result.NOT_HTTP, f"its headers come in more than {MAX_READS} parts")


def _end(head: bytes) -> int:
    """Where what comes behind the blank line begins; 0: there is none yet. A bare LF ends a line as well (RFC 9112
    section 2.2)."""
    found = [at + len(blank) for blank in (b"\n\r\n", b"\n\n") if (at := head.find(blank)) >= 0]
    return min(found, default=0)


def _by_status(code: int, check: HealthCheck) -> Found:
    if any(low <= code <= high for low, high in check.status):
        return Found(Result.WELL)
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
            return Found(Result.TLS, f"TLS: {(error.reason or str(error)).lower().replace('_', ' ')}")
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
    if not ca:
        found.check_hostname = False
        found.verify_mode = ssl.CERT_NONE
        return found
    try:
        content, _ = read_regular(Path(ca), MAX_CA)
        if len(content) > MAX_CA:
            raise OSError(errno.EFBIG, f"it has more than {MAX_CA} bytes")
        found.load_verify_locations(cadata=content.decode("ascii", "ignore"))
    except (OSError, ssl.SSLError) as error:
        why = error.strerror if not isinstance(error, ssl.SSLError) else "it contains no readable certificate"
        raise EdgeError(f"the CA {shown(Path(ca))} cannot be read: {why}") from error
    return found
