"""A client's questions: one new connection (or one datagram from a new port) a probe, from inside its namespace."""

import asyncio
import socket
from dataclasses import dataclass

from speaker.lab.network.namespaces import Namespace
from speaker.model import IPAddress, Protocol


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
