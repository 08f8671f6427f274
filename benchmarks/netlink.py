"""pyroute2 beside our own netlink: what each takes to load, to read what the kernel has, and to bind EIPs.

    python benchmarks/netlink.py [--count N] [--json]

In a network namespace of its own, with N addresses on a link, N routes and N neighbours. Each way of reading ends
with the same count. CPU seconds of this process; of several runs the least. Needs root, or a user namespace.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from ipaddress import IPv4Address
from typing import Any

from speaker.forwarding.ipvs.dummy import _delete_address, _new_address
from speaker.forwarding.ipvs.strict_arp import _list as read_arp_settings
from speaker.interfaces import rtnetlink
from speaker.lab.namespaces import Namespace
from speaker.netlink.messages import RTM_GETADDR, RTM_GETLINK, attribute, u32
from speaker.netlink.requests import Netlink, Request

RUNS = 3
LINKS = 50
FIRST = IPv4Address("198.18.0.1")


def cpu(work: Callable[[], int], runs: int = RUNS) -> tuple[float, int]:
    """Seconds, and what it counted."""
    taken, count = [], 0
    for _ in range(runs):
        begun = time.process_time()
        count = work()
        taken.append(time.process_time() - begun)
    return min(taken), count


def loads(module: str) -> tuple[float, float]:
    """CPU seconds and MB of an import by itself."""
    code = (
        f"import time; begun = time.process_time(); import {module}\n"
        "print(time.process_time() - begun, int(open('/proc/self/statm').read().split()[1]))"
    )
    runs = [subprocess.check_output([sys.executable, "-c", code], text=True).split() for _ in range(RUNS)]
    pages = min(int(run[1]) for run in runs)
    return min(float(run[0]) for run in runs), pages * os.sysconf("SC_PAGESIZE") / 2**20


def fill(count: int) -> None:
    lines = ["link add beside type veth peer name peer", "link set peer up", "link set beside up"]
    lines += [f"link add more{n} type veth peer name other{n}" for n in range(LINKS)]
    lines += [f"addr add {FIRST + n}/32 dev beside" for n in range(count)]
    lines += [f"route add {IPv4Address('100.64.0.0') + n}/32 dev beside" for n in range(count)]
    lines += [f"neigh add {IPv4Address('10.0.0.1') + n} lladdr 02:00:00:00:00:01 dev beside" for n in range(count)]
    subprocess.run(["ip", "-batch", "-"], input="\n".join(lines), text=True, check=True)


def our_dump(kind: int, body: bytes, read: Callable[[bytes, int, int], object]) -> int:
    with Netlink(socket.NETLINK_ROUTE) as netlink:
        answers = netlink.dump(Request(kind, body))
    return sum(read(answer, 0, len(answer)) is not None for answer in answers)


def rows(count: int) -> list[tuple[str, Callable[[], int], Callable[[], int]]]:
    """What is done, by ours and by pyroute2."""
    from pyroute2 import IPRoute

    def theirs(read: Callable[[Any], int]) -> Callable[[], int]:
        def work() -> int:
            with IPRoute() as ipr:
                return read(ipr)

        return work

    index = socket.if_nametoindex("beside")
    neighbours = rtnetlink.neighbors_request(index, socket.AF_INET, 1)[16:]
    eips = [IPv4Address("203.0.113.0") + n for n in range(count)]

    def bind() -> int:
        with Netlink(socket.NETLINK_ROUTE) as netlink:
            answers = netlink.send([_new_address(index, eip) for eip in eips])
            answers += netlink.send([_delete_address(index, eip) for eip in eips])
        return answers.count(0) // 2

    def their_bind(ipr: Any) -> int:
        for verb in ("add", "del"):
            for eip in eips:
                ipr.addr(verb, index=index, address=str(eip), prefixlen=32)
        return len(eips)

    def arp_settings(ipr: Any) -> int:
        found = (msg.get_nested("IFLA_AF_SPEC", "AF_INET") for msg in ipr.get_links())
        return sum(each is not None for each in found)

    def our_arp_settings() -> int:
        with Netlink(socket.NETLINK_ROUTE) as netlink:
            return len(read_arp_settings(netlink))

    def our_links() -> int:
        return our_dump(RTM_GETLINK, bytes(16) + attribute(29, u32(8)), rtnetlink.read_link)

    def our_routes() -> int:
        return our_dump(rtnetlink.RTM_GETROUTE, bytes(12), rtnetlink.RouteReader(rtnetlink.NexthopReader()).read)

    return [
        ("links", our_links, theirs(lambda ipr: len(list(ipr.get_links())))),
        ("their ARP settings", our_arp_settings, theirs(arp_settings)),
        (
            "addresses",
            lambda: our_dump(RTM_GETADDR, bytes(8), rtnetlink.read_address),
            theirs(lambda ipr: len(list(ipr.get_addr()))),
        ),
        ("routes", our_routes, theirs(lambda ipr: len(list(ipr.get_routes())))),
        (
            "neighbours",
            lambda: our_dump(rtnetlink.RTM_GETNEIGH, neighbours, rtnetlink.read_neighbor),
            theirs(lambda ipr: len(list(ipr.get_neighbours(family=socket.AF_INET, ifindex=index)))),
        ),
        ("EIPs bound and unbound", bind, theirs(their_bind)),
    ]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    found: dict[str, Any] = {"loads": {name: loads(name) for name in ("speaker.netlink.requests", "pyroute2")}}
    with Namespace("beside") as place, place.entered():
        fill(args.count)
        for name, ours, theirs in rows(args.count):
            (mine, count), (other, their_count) = cpu(ours), cpu(theirs)
            found[name] = {"ours_s": mine, "pyroute2_s": other, "ratio": other / mine, "of": (count, their_count)}
    if args.json:
        print(json.dumps(found))
        return
    for name, (seconds, size) in found.pop("loads").items():
        print(f"{'import ' + name:32} {seconds:7.3f} s {size:6.1f} MB")
    for name, row in found.items():
        counted = "{:,} and {:,}".format(*row["of"])
        print(f"{name:32} {row['ours_s']:7.4f} s {row['pyroute2_s']:8.4f} s {row['ratio']:6.1f} times   of {counted}")


if __name__ == "__main__":
    main()
