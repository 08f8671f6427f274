"""What health checks cost: processor time of the process that checks, beside the same checks made in other ways.

    python benchmarks/health.py [--targets 1000] [--seconds 10] [--kinds tcp,http,https] [--json]

Every target is an address of 127.0.0.0/8 and is checked once a second; one other process answers for all of them. On
loopback the kernel does the endpoint's part of each packet within the sender's call, so that this is more than checks
on a LAN cost. `late` is the most that the event loop was late meanwhile. Beside the prober, in the same run:

    bare        connect, send, receive and close in a loop of blocking calls: what the kernel and Python take at least
    streams     a task for each check, with asyncio.open_connection
    aiohttp     a session of it, a connection for each check (http and https)
"""

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import resource
import select
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from ipaddress import IPv4Address
from pathlib import Path

import aiohttp

from speaker.health.judge import Result, Tally, Target
from speaker.health.prober import Prober
from speaker.model import HealthCheck
from speaker.system.threads import start_threads

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
FIRST = IPv4Address("127.1.0.1")


def serve(listening: socket.socket, tls: ssl.SSLContext | None) -> None:
    """Endless. TLS in threads, as handshakes take several turns."""
    if tls is not None:
        import threading

        def one(connection: socket.socket) -> None:
            with contextlib.suppress(OSError), tls.wrap_socket(connection, server_side=True) as secure:
                secure.recv(4096)
                secure.sendall(ANSWER)

        while True:
            threading.Thread(target=one, args=(listening.accept()[0],), daemon=True).start()
    poll, open_ = select.epoll(), {}
    poll.register(listening, select.EPOLLIN)
    while True:
        for fd, _ in poll.poll():
            if fd == listening.fileno():
                connection, _ = listening.accept()
                open_[connection.fileno()] = connection
                poll.register(connection, select.EPOLLIN)
                continue
            with contextlib.suppress(OSError), open_.pop(fd) as connection:
                if connection.recv(4096):
                    connection.sendall(ANSWER)


def used() -> float:
    mine = resource.getrusage(resource.RUSAGE_SELF)
    return mine.ru_utime + mine.ru_stime


async def measured(seconds: float, work: Awaitable[object]) -> tuple[float, float]:
    """Share of a core, and the most that the loop was late."""
    running = asyncio.ensure_future(work)
    await asyncio.sleep(2)  # until checks are spread
    late, begun, before = 0.0, time.perf_counter(), used()
    while (now := time.perf_counter()) < begun + seconds:
        await asyncio.sleep(0.05)
        late = max(late, time.perf_counter() - now - 0.05)
    share = (used() - before) / (time.perf_counter() - begun)
    running.cancel()
    await asyncio.wait((running,))
    return share, late


async def every_second(number: int, check: Callable[[str], Awaitable[object]]) -> None:
    """Spread evenly, a task for each target."""

    async def one(index: int) -> None:
        await asyncio.sleep(index / number)
        while True:
            await check(str(FIRST + index))
            await asyncio.sleep(1)

    await asyncio.gather(*(one(index) for index in range(number)))


async def streams(kind: str, port: int, context: ssl.SSLContext, address: str) -> None:
    tls = {"ssl": context, "server_hostname": address} if kind == "https" else {}
    reader, writer = await asyncio.open_connection(address, port, **tls)
    if kind != "tcp":
        writer.write(REQUEST)
        assert b"200" in await reader.readuntil(b"\r\n\r\n")
    writer.transport.abort()


async def by_aiohttp(kind: str, port: int, context: ssl.SSLContext, number: int) -> None:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True, limit=0)) as session:

        async def check(address: str) -> None:
            async with session.get(f"{kind}://{address}:{port}/", ssl=context) as answer:
                assert answer.status == 200

        await every_second(number, check)


def bare(kind: str, port: int, context: ssl.SSLContext, number: int) -> float:
    """Seconds of the processor for one check of each."""
    before = used()
    for index in range(number):
        sock = socket.create_connection((str(FIRST + index), port))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        with context.wrap_socket(sock) if kind == "https" else sock as asking:
            if kind != "tcp":
                asking.sendall(REQUEST)
                asking.recv(65536)
    return used() - before


class Told:
    def __init__(self) -> None:
        self.results: Counter[Result] = Counter()

    def failed(self, edge: str, error: BaseException) -> None:
        raise SystemExit(str(error))

    def recovered(self, edge: str) -> None: ...

    def endpoints_checked(self, tally: Tally) -> None:
        self.results.update(tally.results)

    def internal_error(self, task: str, error: BaseException) -> None:
        raise SystemExit(repr(error))


async def measure(kind: str, port: int, number: int, seconds: float, tell: Callable[..., None]) -> dict[str, float]:
    """Shares of a core by who checks; ``tell`` is told in words."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    check = HealthCheck(kind, "" if kind == "tcp" else "/")
    told = Told()
    prober = Prober(lambda _: None, told)
    prober.follow({Target(FIRST + index, port, check): () for index in range(number)})
    share, late = await measured(seconds, prober.run())
    results = {str(result): each for result, each in told.results.items()}
    least = bare(kind, port, context, number)
    others = {"streams": every_second(number, partial(streams, kind, port, context))}
    if kind != "tcp":
        others["aiohttp"] = by_aiohttp(kind, port, context, number)
    shares = {"prober": share, "bare": least}
    each = 1e6 * share / number
    tell(
        f"{kind:<6} prober   {share:6.1%} of a core, {each:4.0f} µs a check, loop late {1000 * late:.0f} ms; {results}"
    )
    tell(f"{kind:<6} bare     {least:6.1%} of a core by one check of each; {share / least:5.2f} times it by the prober")
    for name, work in others.items():
        other, late = await measured(seconds, work)
        shares[name] = other
        ratio = f"{other / share:5.2f} times as much as the prober, loop late {1000 * late:.0f} ms"
        tell(f"{kind:<6} {name:<8} {other:6.1%} of a core, {1e6 * other / number:4.0f} µs a check, {ratio}", flush=True)
    return shares


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--kinds", default="tcp,http,https")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    tell, found = (lambda *_, **__: None) if args.json else print, {}
    with tempfile.TemporaryDirectory() as held:
        key = Path(held) / "key.pem"
        making = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        made = [*making, "-keyout", str(key), "-out", str(key.with_name("crt.pem")), "-subj", "/CN=x", "-days", "1"]
        subprocess.run(made, check=True, capture_output=True)
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(key.with_name("crt.pem"), key)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536), hard))
    for kind in args.kinds.split(","):
        with socket.create_server(("0.0.0.0", 0), backlog=4096) as listening:  # noqa: S104 -- all of 127.0.0.0/8
            server = multiprocessing.get_context("fork").Process(
                target=serve, args=(listening, tls if kind == "https" else None), daemon=True
            )
            server.start()
            try:
                port = listening.getsockname()[1]
                found[kind] = asyncio.run(started(kind, port, args.targets, args.seconds, tell))
            finally:
                server.kill()
    if args.json:
        print(json.dumps(found))


async def started(kind: str, port: int, number: int, seconds: float, tell: Callable[..., None]) -> dict[str, float]:
    start_threads()
    return await measure(kind, port, number, seconds, tell)


if __name__ == "__main__":
    sys.exit(main())
