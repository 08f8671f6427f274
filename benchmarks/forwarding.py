"""1,000 virtual servers of 10 real servers each: from nothing, one endpoint changed, nothing changed; beside ipvsadm.
And what /metrics tells of the traffic of 10,000 of 3.

    python benchmarks/forwarding.py [--quick] [--only changes|metrics]

Boots a User-Mode Linux guest (tests/ipvs/guest) and runs itself in there. Sides alternate, medians are shown. A guest's
system calls are many times slower than a machine's, so times mean something beside ipvsadm's only; Python's own work
is as fast as outside. A guest cannot tell CPU time from time on the clock: it has one processor and nothing else to
do, and believes that it runs even while the machine does something else. So a loop whose CPU time is known from outside
runs around each measurement, and ``CPU`` is the time on the clock divided by how much longer that took.

``virtual servers`` are the messages alone: what ``ipvsadm -R`` does. ``apply`` is what the speaker calls: the plan is
compared with what is there, EIPs are bound, ARP is made strict, the guard goes around it.

``metrics`` is what a scrape costs beyond ``prometheus_client``'s own: counters read, put into words. One virtual server
in a hundred is busy, as on a node that holds one EIP in a hundred; with ``all`` every one of them has had traffic.
"""

import argparse
import asyncio
import os
import shlex
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path

from speaker.forwarding.changes import diff
from speaker.forwarding.ipvs.counters import FILE, traffic
from speaker.forwarding.ipvs.forwarder import LOOK_SECONDS, IpvsForwarder
from speaker.forwarding.ipvs.tables import ipvs_tables
from speaker.forwarding.limits import look
from speaker.forwarding.nftables.forwarder import NftablesGuard
from speaker.forwarding.plan import EMPTY, Plan, RealServer, VirtualServer
from speaker.lab.namespaces import Namespace
from speaker.model import Protocol
from speaker.telemetry.metrics import exposition

ROOT = Path(__file__).parents[1]
REAL_SERVERS, CHANGES = 10, 100
FEW = 3
"""Real servers of a virtual server whose traffic is told."""
FROM_EMPTY, ONE_CHANGE, RESYNC, SCRAPE = 1.0, 0.005, 0.5, 1.0
"""Targets: of ``ipvsadm -R``'s time; CPU seconds; CPU seconds; of ``ipvsadm -Ln --stats``'s time."""


def wanted(count: int, reals: int = REAL_SERVERS, protocol: Protocol = Protocol.TCP) -> Plan:
    first, real = ip_address("198.18.0.1"), ip_address("10.0.0.1")
    servers = [
        VirtualServer(
            first + at // 4,
            protocol,
            80 + at % 4,
            real_servers=tuple(RealServer(real + reals * at + each, 8080) for each in range(reals)),
        )
        for at in range(count)
    ]
    return Plan(frozenset(server.address for server in servers), {server.key: server for server in servers})


def with_another_endpoint(plan: Plan, last: int) -> Plan:
    """As a planner makes it that works out only what changed."""
    key = next(iter(plan.virtual_servers))
    server = plan.virtual_servers[key]
    more = RealServer(ip_address(f"10.250.0.{last}"), 8080)
    changed = replace(server, real_servers=tuple(sorted({*server.real_servers, more})))
    return Plan(plan.eips, {**plan.virtual_servers, key: changed})


def change(have: Plan, want: Plan) -> None:
    with ipvs_tables() as tables:
        assert tables.change(diff(have, want)) == ()


def dump() -> int:
    with ipvs_tables() as tables:
        return sum(len(tables.real_servers(server.key)) for server in tables.virtual_servers())


def ipvsadm(*arguments: str, text: str = "") -> str:
    return subprocess.run(["ipvsadm", *arguments], input=text, capture_output=True, text=True, check=True).stdout


def spin() -> None:
    sum(each * each for each in range(100_000))


def spin_seconds() -> float:
    """CPU time of the loop, on a machine whose other work does not count."""
    taken = []
    for _ in range(20):
        began = time.process_time()
        spin()
        taken.append(time.process_time() - began)
    return min(taken)


class Times:
    """Of each thing that was measured: seconds on the clock, and what they would be on an undisturbed processor."""

    def __init__(self, spin_seconds: float) -> None:
        self._spin_seconds = spin_seconds
        self.taken: dict[str, list[tuple[float, float]]] = {}

    @contextmanager
    def note(self, name: str, times: int = 1) -> Iterator[None]:
        """``times``: how often the block does it."""
        before = self._disturbed()
        start = time.perf_counter()
        yield
        clock = (time.perf_counter() - start) / times
        self.taken.setdefault(name, []).append((clock, 2 * clock / (before + self._disturbed())))

    def _disturbed(self) -> float:
        start = time.perf_counter()
        for _ in range(5):
            spin()
        return (time.perf_counter() - start) / 5 / self._spin_seconds

    def median(self, name: str) -> tuple[float, float]:
        clock, used = zip(*self.taken[name], strict=True)
        return statistics.median(clock), statistics.median(used)


async def measure_apply(times: Times, want: Plan, runtime_dir: Path) -> None:
    now = 0.0
    forwarder = IpvsForwarder(runtime_dir, NftablesGuard(lambda: now), lambda: now)
    with times.note("apply: from nothing"):
        await forwarder.apply(want)
    plans = [with_another_endpoint(want, each) for each in range(CHANGES)]
    with times.note("apply: one endpoint changed", CHANGES):
        for each, changed in enumerate(plans):
            assert len(await forwarder.apply(changed)) == (2 if each else 1)  # the one before is drained
    now += LOOK_SECONDS
    await forwarder.tend()
    await forwarder.apply(want)
    await forwarder.tend()
    now += LOOK_SECONDS
    with times.note("apply: nothing changed, all looked at"):
        assert await forwarder.tend() == ()
    with times.note("apply: nothing changed, believed"):
        assert await forwarder.apply(want) == ()
    await forwarder.cleanup()


def measure(count: int, rounds: int, spin_seconds: float) -> None:
    want, times = wanted(count), Times(spin_seconds)
    with Namespace("node") as node, node.entered():
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        for _ in range(rounds):
            with times.note("virtual servers: from nothing"):
                change(EMPTY, want)
            with times.note("virtual servers: dump"):
                assert dump() == count * REAL_SERVERS
            with times.note("ipvsadm -Sn"):
                listing = ipvsadm("-Sn")
            assert listing.count("\n") == count * (1 + REAL_SERVERS)
            change(want, EMPTY)
            with times.note("ipvsadm -R"):
                ipvsadm("-R", text=listing)
            ipvsadm("-C")
            with tempfile.TemporaryDirectory(dir="/run") as runtime_dir:
                asyncio.run(measure_apply(times, want, Path(runtime_dir)))
    show(times, count, rounds)


def scrape(plan: Plan, *, real_servers: bool) -> int:
    """As ``IpvsForwarder.traffic`` and /metrics do; how many lines."""
    with ipvs_tables() as tables:
        messages = tables.service_messages()
    with FILE.open() as lines:
        counted = traffic(plan.eips, messages, lines if real_servers else ())
    return exposition(counted).count(b"\n")


def touch(plan: Plan) -> None:
    """One packet to each virtual server, and until IPVS has counted them all."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for address, _, port in plan.virtual_servers:
            sock.sendto(b"?", (str(address), port))
    while scrape(plan, real_servers=False) < 5 * len(plan.virtual_servers):
        time.sleep(0.5)


def measure_metrics(count: int, rounds: int, spin_seconds: float) -> None:
    want, times = wanted(count, FEW, Protocol.UDP), Times(spin_seconds)
    busy = set(list(want.virtual_servers)[::100])
    with Namespace("node") as node, node.entered():
        for line in ("link set lo up", "route add local 198.18.0.0/15 dev lo", "route add local 10.0.0.0/8 dev lo"):
            subprocess.run(["ip", *line.split()], check=True)
        change(EMPTY, want)
        touch(Plan(want.eips, {key: want.virtual_servers[key] for key in busy}))
        for _ in range(rounds):
            with times.note("metrics: one in a hundred is busy"):
                assert scrape(want, real_servers=False) < count
        touch(want)
        for _ in range(rounds):
            with times.note("metrics: all"):
                assert scrape(want, real_servers=False) > 5 * count
            with times.note("metrics: all, with real servers"):
                assert scrape(want, real_servers=True) > 7 * count
            with times.note("how full the table of connections is"):
                used = look(ipvs=True).ipvs
            assert used is not None
            assert used.connections >= count
            with times.note("ipvsadm -Ln --stats"):
                listing = ipvsadm("-Ln", "--stats")
            assert listing.count("\n") == 3 + count * (1 + FEW)
    print(f"{count} virtual servers of {FEW}, medians of {rounds} rounds")
    beside, _ = times.median("ipvsadm -Ln --stats")
    for name in times.taken:
        clock, used = times.median(name)
        print(f"  {name:<40} {clock:8.3f} s   {clock / beside:6.3f} of ipvsadm -Ln --stats   CPU {used:8.4f} s")
    ratio = times.median("metrics: all, with real servers")[0] / beside
    verdict = "met" if ratio <= SCRAPE else "MISSED"
    print(f"target: {'metrics of all, of ipvsadm -Ln --stats':<38} {ratio:6.2f}  at most {SCRAPE:g}: {verdict}")


def show(times: Times, count: int, rounds: int) -> None:
    print(f"{count} virtual servers of {REAL_SERVERS}, medians of {rounds} rounds in a User-Mode Linux guest")
    restore, _ = times.median("ipvsadm -R")
    for name in times.taken:
        clock, used = times.median(name)
        print(f"  {name:<40} {clock:8.3f} s   {clock / restore:6.3f} of ipvsadm -R   CPU {used:8.4f} s")
    ratio = times.median("virtual servers: from nothing")[0] / restore
    _, one = times.median("apply: one endpoint changed")
    _, resync = times.median("apply: nothing changed, all looked at")
    for what, value, limit in (
        ("from nothing, of ipvsadm -R", ratio, FROM_EMPTY),
        ("one endpoint changed, CPU ms", 1000 * one, 1000 * ONE_CHANGE),
        ("nothing changed, all looked at, CPU s", resync, RESYNC),
    ):
        print(f"target: {what:<38} {value:6.2f}  at most {limit:g}: {'met' if value <= limit else 'MISSED'}")


def in_guest(arguments: list[str]) -> int:
    if subprocess.run([ROOT / "tests/ipvs/guest"], check=False).returncode != 0:
        print("skipped: needs a guest (tests/ipvs)")
        return 0
    with tempfile.TemporaryDirectory(prefix="eip-speaker-guest-") as name:
        command = Path(name, "command")
        inside = [f"--inside={spin_seconds()}", *arguments]
        line = shlex.join([sys.executable, str(Path(__file__).resolve()), *inside])
        command.write_text(f"#!/bin/sh\ncd {shlex.quote(str(ROOT))}\nexport PYTHONPATH=.\n{line}\n")
        command.chmod(0o755)
        subprocess.run([ROOT / "tests/ipvs/guest", name], check=False)
        status = Path(name, "exit")
        return int(status.read_text()) if status.exists() else os.EX_SOFTWARE


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of it, one round")
    parser.add_argument("--only", choices=["changes", "metrics"], nargs=1, default=["changes", "metrics"])
    parser.add_argument("--inside", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not options.inside:
        return in_guest(sys.argv[1:])
    if "metrics" in options.only:
        measure_metrics(*((1000, 1) if options.quick else (10_000, 3)), options.inside)
    if "changes" in options.only:
        measure(*((100, 1) if options.quick else (1000, 3)), options.inside)
    return 0


if __name__ == "__main__":
    sys.exit(main())
