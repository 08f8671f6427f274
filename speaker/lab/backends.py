"""Backends that say their name, and clients that ask them: every answer is ``pod1 saw 192.0.2.100``.

One event loop serves them all; only their sockets are spread over the namespaces. On TCP an HTTP request gets an HTTP
answer, so that ``curl`` works, and anything else gets the bare line. This file also reads what the demo's manifests
promise, without ``speaker.standalone``, because the lab checks the speaker.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import yaml

from speaker.lab.lan import Lan
from speaker.lab.namespaces import Namespace
from speaker.lab.topology import Topology
from speaker.model import Family, IPAddress, Protocol


@dataclass(frozen=True, slots=True)
class Listener:
    """A backend's name and the port it listens on."""

    backend: str
    protocol: Protocol
    port: int


@dataclass(frozen=True, slots=True)
class Expectation:
    """One port of one Service in one family: who has to answer when a client asks there."""

    service: str
    family: Family
    protocol: Protocol
    port: int
    listeners: frozenset[Listener]

    @property
    def backends(self) -> frozenset[str]:
        return frozenset(listener.backend for listener in self.listeners)


def read_expectations(directory: Path, topology: Topology) -> tuple[Expectation, ...]:
    """Every Service port of the manifests in ``directory``, once a family, in the order of files and lines.

    For the lab's own manifests: ValueError when an endpoint is no backend of ``topology``.
    """
    objects = [thing for path in sorted(directory.glob("*.yaml")) for thing in yaml.safe_load_all(path.read_text())]
    slices = [thing for thing in objects if thing["kind"] == "EndpointSlice"]
    services = [thing for thing in objects if thing["kind"] == "Service"]
    return tuple(expected for service in services for expected in _expected_of(service, slices, topology))


def _expected_of(service: dict[str, Any], slices: list[dict[str, Any]], topology: Topology) -> Iterator[Expectation]:
    namespace, name = service["metadata"]["namespace"], service["metadata"]["name"]
    mine = [
        slice_
        for slice_ in slices
        if slice_["metadata"]["namespace"] == namespace
        and slice_["metadata"]["labels"]["kubernetes.io/service-name"] == name
    ]
    for family in map(Family, service["spec"]["ipFamilies"]):
        for port in service["spec"]["ports"]:
            listeners = frozenset(
                _listener(address, slice_port, topology)
                for slice_ in mine
                if slice_["addressType"] == family
                for slice_port in slice_["ports"]
                if slice_port.get("name") == port.get("name")
                for endpoint in slice_["endpoints"]
                for address in endpoint["addresses"]
            )
            yield Expectation(f"{namespace}/{name}", family, Protocol(port["protocol"]), port["port"], listeners)


def _listener(address: str, port: dict[str, Any], topology: Topology) -> Listener:
    backend = topology.backend_at(ip_address(address))
    if backend is None:
        raise ValueError(f"{address} is no backend of this lab: {', '.join(topology.backends)}")
    return Listener(backend, Protocol(port["protocol"]), port["port"])


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


# ── A client's questions: a new connection, or a datagram from a new port, for each probe ──────────────────────


@dataclass(frozen=True, slots=True)
class Answer:
    """Which backend answered, and from which address it saw the question come."""

    backend: str
    seen_client: str


async def ask(client: Namespace, address: IPAddress, protocol: Protocol, port: int, seconds: float) -> Answer | None:
    """One probe; None when nobody answered sensibly within ``seconds``."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    kind = socket.SOCK_DGRAM if protocol is Protocol.UDP else socket.SOCK_STREAM
    with client.entered():
        sock = socket.socket(family, kind)
    with sock:
        sock.setblocking(False)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(seconds):
                await loop.sock_connect(sock, (str(address), port))
                await loop.sock_sendall(sock, b"who are you?\n")
                return parse_answer(await loop.sock_recv(sock, 1024))
        except (TimeoutError, OSError):  # refused, unreachable, reset: all the same to a client
            return None


def parse_answer(line: bytes) -> Answer | None:
    """``pod1 saw 192.0.2.100``, as ``backends.reply`` writes it; None for anything else."""
    match line.decode(errors="replace").split():
        case [backend, "saw", seen_client]:
            return Answer(backend, seen_client)
        case _:
            return None
