"""Traffic through an EIP beside the same through one hand-written rule that translates the destination.

    python benchmarks/forwarding_traffic.py [--quick] [--only host|guest] [--guest qemu|uml] [--json]

On this machine's kernel our nftables forwarder, beside nft rules by hand; in a guest, whose kernel has IPVS, the IPVS
forwarder with its guard. The guest is QEMU with a stock kernel where `make test-qemu` has fetched one, else User-Mode
Linux. All masquerade.

Three nodes lie between one client and one server, each with one of the ways: ours, by hand, and routed (nothing is
translated: what a way can be at most). ``connections``: one after the other, a byte each way, then closed. Sides take
turns within each of many short rounds; shown are medians, and the median of the rounds' ratios with the range of the
middle half. Client and server are simple Python programs on the same machine and take most of the time, which draws
ratios towards 1.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import shlex
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from speaker.forwarding.forwarder import open_forwarder
from speaker.forwarding.plan import Plan, RealServer, VirtualServer
from speaker.lab.namespaces import Namespace
from speaker.model import Forwarding, Protocol

ROOT = Path(__file__).parents[1]
WAYS = ("ours", "by hand", "routed")
BULK, ASKED = 8080, 8081
"""Ports of the server: one counts what it is sent, one answers a byte."""
CONNECTIONS = 600
"""In a round, at most: a client has 28,000 ports for all rounds, since each waits a minute after its use."""
NFT = """
table ip by-hand {
  chain prerouting {
    type nat hook prerouting priority dstnat;
    ip daddr 198.51.100.1 tcp dport { 8080, 8081 } dnat to 10.2.1.2
  }
  chain postrouting {
    type nat hook postrouting priority srcnat;
    ct status dnat masquerade
  }
}
"""

# ── The network ───────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Lan:
    """Node ``n`` has 10.1.n.1 towards the client and 10.2.n.1 towards the server, 198.51.100.n leads to it."""

    client: Namespace
    server: Namespace
    nodes: tuple[Namespace, ...]

    def target(self, way: str) -> str:
        at = WAYS.index(way)
        return f"10.2.{at}.2" if way == "routed" else f"198.51.100.{at}"


def ip(namespace: Namespace, *lines: str) -> None:
    with namespace.entered():
        subprocess.run(["ip", "-batch", "-"], input="\n".join(lines), text=True, check=True)


@contextmanager
def network() -> Iterator[Lan]:
    with ExitStack() as stack:
        made = [stack.enter_context(Namespace(label)) for label in ("client", "server", *WAYS)]
        lan = Lan(made[0], made[1], tuple(made[2:]))
        for namespace in made:
            ip(namespace, "link set lo up")
        for at, node in enumerate(lan.nodes):
            for side, end in enumerate((lan.client, lan.server), start=1):
                ip(end, f"link add eth{at} type veth peer name eth{side} netns {node.path}")
                ip(end, f"link set eth{at} up", f"addr add 10.{side}.{at}.2/24 dev eth{at}")
                ip(node, f"link set eth{side} up", f"addr add 10.{side}.{at}.1/24 dev eth{side}")
            ip(lan.client, f"route add 198.51.100.{at} via 10.1.{at}.1", f"route add 10.2.{at}.0/24 via 10.1.{at}.1")
            ip(lan.server, f"route add 10.1.{at}.0/24 via 10.2.{at}.1")
            node.sysctl("net.ipv4.ip_forward", 1)
        yield lan


async def forward(kind: Forwarding, runtime_dir: Path) -> None:
    eip, real = ip_address("198.51.100.0"), ip_address("10.2.0.2")
    servers = [VirtualServer(eip, Protocol.TCP, port, real_servers=(RealServer(real, port),)) for port in (BULK, ASKED)]
    forwarder = await open_forwarder(kind, runtime_dir)
    await forwarder.apply(Plan(frozenset({eip}), {server.key: server for server in servers}))
    assert await forwarder.problems() == ()


def by_hand() -> None:
    subprocess.run(["nft", "-f", "-"], input=NFT, text=True, check=True)


# ── Client and server ─────────────────────────────────────────────────────────────────────────────────────────


def serve(bulk: socket.socket, asked: socket.socket) -> None:
    threading.Thread(target=sink_all, args=[bulk], daemon=True).start()
    while True:
        connection, _ = asked.accept()
        with connection:
            connection.sendall(connection.recv(1))
            connection.recv(1)  # the client closes first


def sink_all(bulk: socket.socket) -> None:
    while True:
        connection, _ = bulk.accept()
        threading.Thread(target=sink, args=[connection], daemon=True).start()


def sink(connection: socket.socket) -> None:
    """Takes everything, then says how much it was."""
    room = bytearray(1 << 18)
    total = 0
    with connection:
        while taken := connection.recv_into(room):
            total += taken
        connection.sendall(total.to_bytes(8, "big"))


@contextmanager
def serving(lan: Lan) -> Iterator[None]:
    with lan.server.entered():
        listeners = [socket.create_server(("0.0.0.0", port), backlog=128) for port in (BULK, ASKED)]  # noqa: S104
    server = multiprocessing.get_context("fork").Process(target=serve, args=listeners, daemon=True)
    server.start()
    try:
        yield
    finally:
        server.kill()
        server.join()


def throughput(target: str, streams: int, seconds: float) -> float:
    """Megabits of payload per second."""
    connections = [socket.create_connection((target, BULK), timeout=60) for _ in range(streams)]
    start = time.perf_counter()
    taken: list[int] = []

    def send(connection: socket.socket) -> None:
        block = bytes(1 << 18)
        with connection:
            while time.perf_counter() < start + seconds:
                connection.sendall(block)
            connection.shutdown(socket.SHUT_WR)
            taken.append(int.from_bytes(connection.recv(8), "big"))

    threads = [threading.Thread(target=send, args=[connection]) for connection in connections]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(taken) == streams
    return sum(taken) * 8 / 1e6 / (time.perf_counter() - start)


def connections(target: str, seconds: float) -> float:
    start, made = time.perf_counter(), 0
    while made < CONNECTIONS and time.perf_counter() < start + seconds:
        with socket.create_connection((target, ASKED), timeout=60) as connection:
            connection.sendall(b"?")
            assert connection.recv(1) == b"?"
        made += 1
    return made / (time.perf_counter() - start)


# ── Measuring ─────────────────────────────────────────────────────────────────────────────────────────────────


def measure(kind: Forwarding, rounds: int, seconds: float, as_json: bool) -> None:
    ways: dict[str, Callable[[str], float]] = {
        "1 stream, Mbit/s": lambda target: throughput(target, 1, seconds),
        "16 streams, Mbit/s": lambda target: throughput(target, 16, seconds),
        "connections/s": lambda target: connections(target, seconds),
    }
    taken = {(measure, way): [] for measure in ways for way in WAYS}
    with network() as lan, tempfile.TemporaryDirectory() as runtime_dir:
        with lan.nodes[0].entered():
            asyncio.run(forward(kind, Path(runtime_dir)))
        with lan.nodes[1].entered():
            by_hand()
        with serving(lan), lan.client.entered():
            for at in range(-1, rounds):  # the first is to warm up
                for measure, run in ways.items():
                    for way in sorted(WAYS, key=lambda way: (WAYS.index(way) + at) % len(WAYS)):
                        try:
                            taken[measure, way].append(run(lan.target(way)))
                        except OSError as error:
                            error.add_note(f"{measure}, {way}, round {at}")
                            raise
    if as_json:
        medians = {measure: {way: statistics.median(taken[measure, way][1:]) for way in WAYS} for measure in ways}
        print(json.dumps({"forwarder": kind.value, "medians": medians}), flush=True)
        return
    print(
        f"{kind.value} beside nft by hand, Linux {os.uname().release}, {os.cpu_count()} processors,"
        f" medians of {rounds} rounds of {seconds:g} s, load {os.getloadavg()[0]:.0f}"
    )
    for measure in ways:
        values = {way: taken[measure, way][1:] for way in WAYS}
        ours = ratios(values["ours"], values["by hand"])
        routed = ratios(values["by hand"], values["routed"])
        medians = "   ".join(f"{way} {statistics.median(values[way]):8.0f}" for way in WAYS)
        print(f"  {measure:<20} {medians}   ours/by hand {ours}   by hand/routed {routed}", flush=True)


def ratios(some: list[float], others: list[float]) -> str:
    each = sorted(one / other for one, other in zip(some, others, strict=True))
    return f"{statistics.median(each):.2f} ({each[len(each) // 4]:.2f} to {each[len(each) * 3 // 4]:.2f})"


def in_guest(guest: str, arguments: list[str]) -> int:
    with tempfile.TemporaryDirectory(prefix="eip-speaker-guest-") as name:
        command = Path(name, "command")
        line = shlex.join([sys.executable, str(Path(__file__).resolve()), "--inside", "--guest", guest, *arguments])
        command.write_text(f"#!/bin/sh\ncd {shlex.quote(str(ROOT))}\nexport PYTHONPATH=.\n{line}\n")
        command.chmod(0o755)
        subprocess.run([ROOT / "tests/ipvs" / ("guest-qemu" if guest == "qemu" else "guest"), name], check=False)
        status = Path(name, "exit")
        return int(status.read_text()) if status.exists() else os.EX_SOFTWARE


def best_guest() -> str:
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"), "eip-speaker", "linux-image-amd64")
    return "qemu" if shutil.which("qemu-system-x86_64") and cache.exists() else "uml"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short round")
    parser.add_argument("--only", choices=["host", "guest"])
    parser.add_argument("--guest", choices=["qemu", "uml"], default=best_guest())
    parser.add_argument("--json", action="store_true", help="a line for each forwarder")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    rounds, seconds = (1, 0.3) if options.quick else (40, 0.2)
    if options.inside:
        measure(Forwarding.IPVS, rounds, seconds, options.json)
        return 0
    if options.only != "guest":
        measure(Forwarding.NFTABLES, rounds, seconds, options.json)
    if options.only == "host":
        return 0
    return in_guest(options.guest, [flag for flag in ("--quick", "--json") if flag in sys.argv])


if __name__ == "__main__":
    sys.exit(main())
