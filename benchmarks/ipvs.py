"""1,000 virtual servers of 10 real servers each, in a real kernel: ours beside ipvsadm, in one run.

    python benchmarks/ipvs.py [--quick]

Boots a User-Mode Linux guest (tests/ipvs/guest) and runs itself in there. Rounds alternate, medians are shown; a guest
is many times slower than a machine, so only the ratios mean anything. ``whole`` is what ``speaker run`` calls: with
EIPs bound, strict ARP, and the guard in iptables, which ipvsadm does none of.
"""

import argparse
import asyncio
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path

from speaker.forwarding.iptables import IptablesGuard
from speaker.forwarding.ipvs import IpvsForwarder
from speaker.forwarding.ipvs_tables import IpvsTables
from speaker.forwarding.plan import EMPTY, Plan, RealServer, VirtualServer, diff
from speaker.lab.namespaces import Namespace
from speaker.model import Protocol

ROOT = Path(__file__).parents[1]
REAL_SERVERS = 10


def wanted(count: int) -> Plan:
    first, real = ip_address("198.18.0.1"), ip_address("10.0.0.1")
    servers = [
        VirtualServer(
            first + at // 4,
            Protocol.TCP,
            80 + at % 4,
            real_servers=tuple(RealServer(real + REAL_SERVERS * at + each, 8080) for each in range(REAL_SERVERS)),
        )
        for at in range(count)
    ]
    return Plan(frozenset(server.address for server in servers), {server.key: server for server in servers})


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def change(have: Plan, want: Plan) -> None:
    with IpvsTables() as tables:
        assert tables.change(diff(have, want)) == ()


def dump() -> int:
    with IpvsTables() as tables:
        return sum(len(tables.real_servers(server.key)) for server in tables.virtual_servers())


def ipvsadm(*arguments: str, text: str = "") -> str:
    return subprocess.run(["ipvsadm", *arguments], input=text, capture_output=True, text=True, check=True).stdout


def measure(count: int, rounds: int) -> None:
    want = wanted(count)
    times: dict[str, list[float]] = {}

    def note(name: str, work: Callable[[], object]) -> None:
        times.setdefault(name, []).append(timed(work))

    with Namespace("node") as node, node.entered(), tempfile.TemporaryDirectory(dir="/run") as runtime_dir:
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        for _ in range(rounds):
            note("add, ours", lambda: change(EMPTY, want))
            note("dump, ours", dump)
            note("dump, ipvsadm -Sn", lambda: ipvsadm("-Sn"))
            listing = ipvsadm("-Sn")
            assert listing.count("\n") == count * (1 + REAL_SERVERS) == count + dump()
            note("remove, ours", lambda: change(want, EMPTY))
            note("add, ipvsadm -R", lambda: ipvsadm("-R", text=listing))  # noqa: B023  # called at once
            ipvsadm("-C")
            guard = IptablesGuard({4: "iptables-legacy", 6: "ip6tables-legacy"})
            forwarder = IpvsForwarder(Path(runtime_dir), guard)
            note("add, whole", lambda: asyncio.run(forwarder.apply(want)))  # noqa: B023
            note("unchanged, whole", lambda: asyncio.run(forwarder.apply(want)))  # noqa: B023
            note("remove, whole", lambda: asyncio.run(forwarder.cleanup()))  # noqa: B023
    median = {name: statistics.median(values) for name, values in times.items()}
    print(
        f"{count} virtual servers of {REAL_SERVERS} real servers, medians of {rounds} rounds in a User-Mode Linux guest"
    )
    for name, seconds in median.items():
        reference = median["dump, ipvsadm -Sn" if name.startswith(("dump", "unchanged")) else "add, ipvsadm -R"]
        print(f"  {name:<20} {seconds:7.2f} s   {seconds / reference:5.2f} of ipvsadm's")


def in_guest(arguments: list[str]) -> int:
    if not shutil.which("linux.uml"):
        print("skipped: needs the packages user-mode-linux, ipvsadm and iptables")
        return 0
    with tempfile.TemporaryDirectory(prefix="eip-speaker-guest-") as name:
        command = Path(name, "command")
        line = shlex.join([sys.executable, str(Path(__file__).resolve()), "--inside", *arguments])
        command.write_text(f"#!/bin/sh\ncd {shlex.quote(str(ROOT))}\nexport PYTHONPATH=.\n{line}\n")
        command.chmod(0o755)
        subprocess.run([ROOT / "tests/ipvs/guest", name], check=False)
        status = Path(name, "exit")
        return int(status.read_text()) if status.exists() else os.EX_SOFTWARE


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="100 virtual servers, one round")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not options.inside:
        return in_guest(sys.argv[1:])
    measure(*((100, 1) if options.quick else (1000, 3)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
