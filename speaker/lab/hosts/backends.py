"""Backends that say their name: every answer is ``pod1 saw 192.0.2.100``.

One event loop serves them all; only their sockets are spread over the namespaces. On TCP an HTTP request gets an HTTP
answer, so that ``curl`` works, and anything else the bare line.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

from speaker.lab.hosts.expectations import Listener
from speaker.lab.network.lan import Lan
from speaker.lab.network.namespaces import Namespace
from speaker.model import Protocol

#: A client that connects and says nothing is dropped after this many seconds.
PATIENCE = 5.0


@asynccontextmanager
async def backends(lan: Lan, listeners: Iterable[Listener]) -> AsyncIterator[None]:
    """All ``listeners`` answer for the length of the block, over IPv4 and IPv6."""
    async with AsyncExitStack() as stack:
        for listener in sorted(set(listeners), key=lambda listener: (listener.backend, listener.port)):
            await _serve(stack, lan.namespace(listener.backend), listener)
        yield


async def _serve(stack: AsyncExitStack, namespace: Namespace, listener: Listener) -> None:
    if listener.protocol is Protocol.UDP:
        loop = asyncio.get_running_loop()
        udp = stack.enter_context(_bound_socket(namespace, socket.SOCK_DGRAM, listener.port))
        loop.add_reader(udp, _answer_udp, listener.backend, udp)
        stack.callback(loop.remove_reader, udp)
    else:
        sock = _bound_socket(namespace, socket.SOCK_STREAM, listener.port)

        async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await _answer_tcp(listener.backend, reader, writer)

        server = await asyncio.start_server(converse, sock=sock)
        stack.callback(server.close)


def _bound_socket(namespace: Namespace, kind: socket.SocketKind, port: int) -> socket.socket:
    with namespace.entered():
        sock = socket.socket(socket.AF_INET6, kind)
    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    sock.setblocking(False)
    sock.bind(("::", port))
    return sock


def _answer_udp(name: str, sock: socket.socket) -> None:
    with suppress(OSError):  # nothing there after all, or no way back to the client
        _, client = sock.recvfrom(2048)
        sock.sendto(reply(name, client), client)


async def _answer_tcp(name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        async with asyncio.timeout(PATIENCE):
            request = await reader.readline()
            line = reply(name, writer.get_extra_info("peername"))
            if b" HTTP/" in request:
                await reader.readuntil(b"\r\n\r\n")  # closing with unread input would send a reset
                line = _http(line)
            writer.write(line)
            await writer.drain()
    except (TimeoutError, ConnectionError, EOFError, ValueError, asyncio.LimitOverrunError):
        pass  # a client that left, dawdled, or sent more than the reader's limit
    finally:
        writer.close()


def _http(body: bytes) -> bytes:
    head = f"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body


def reply(name: str, client: tuple[Any, ...]) -> bytes:
    """``client`` is a socket address of family AF_INET6; an IPv4 client shows as ``::ffff:192.0.2.100`` there."""
    return f"{name} saw {client[0].removeprefix('::ffff:')}\n".encode()
