"""CPU time of assigning 10,000 Services, by size of the pool: it must not matter.

    python benchmarks/allocator.py [--quick] [--json]

The issue's bar: a /16 in under a second of CPU, and the same in a /8.
"""

import argparse
import json
import time
from dataclasses import replace

from speaker.allocator.assign import Allocator
from speaker.allocator.settle import settle
from speaker.api.addresses import parse_range
from speaker.model import Family, Pool, Protocol, Service, ServiceKey, ServicePort, World

SERVICES = 10_000
POOLS = (
    (SERVICES, "10.0.0.0/16", "10.0.0.0/8", Family.IPV4),
    (SERVICES, "10.0.0.0-10.0.255.255", "1.0.0.0-126.255.255.255", Family.IPV4),
    (SERVICES, "2001:db8::/112", "2001:db8::/48", Family.IPV6),
    (900, "192.0.0.0/22", "10.0.0.0/8", Family.IPV4),
    (900, "2001:db8::/118", "2001:db8::/48", Family.IPV6),
)
"""So many Services into a small and a large pool."""


def services(count: int, family: Family) -> dict[ServiceKey, Service]:
    made = (
        Service(
            ServiceKey(f"team-{number % 100}", f"web-{number:05}"),
            ports=(ServicePort(Protocol.TCP, 80),),
            families=(family,),
        )
        for number in range(count)
    )
    return {service.key: service for service in made}


def cpu_seconds(addresses: str, count: int, family: Family) -> tuple[float, float, float]:
    """Of assigning everything, of finding out that nothing changed, and of one more Service."""
    world = World(pools={"lan": Pool("lan", (parse_range(addresses),))}, services=services(count, family))
    late = [replace(service, key=ServiceKey("late", service.key.name)) for service in services(100, family).values()]
    allocator = Allocator()
    start = time.process_time()
    settlement = settle(allocator, world, 0.0)
    assigned = time.process_time()
    settle(allocator, world, 1.0)
    again = time.process_time()
    for service in late:
        allocator.assign(service, 2.0)
    one_more = time.process_time()
    assert len({each.addresses for each in settlement.assignments.values()}) == count
    return assigned - start, again - assigned, (one_more - again) / len(late)


def best(addresses: str, count: int, family: Family, rounds: int) -> tuple[float, float, float]:
    runs = [cpu_seconds(addresses, count, family) for _ in range(rounds)]
    return min(run[0] for run in runs), min(run[1] for run in runs), min(run[2] for run in runs)


def show(count: int, small: str, large: str, found: tuple[tuple[float, float, float], ...]) -> None:
    for addresses, (assign, again, one_more) in zip((small, large), found, strict=True):
        print(
            f"{count:>6} Services into {addresses:<28} assign {assign * 1e3:8.2f} ms   "
            f"unchanged {again * 1e3:7.2f} ms   one more {one_more * 1e6:6.1f} µs"
        )
    print(f"{'':>6} ratio {large} : {small} = {found[1][0] / found[0][0]:.2f}\n", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the first two pools, two rounds")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = []
    for count, small, large, family in POOLS[:1] if options.quick else POOLS:
        found = tuple(best(addresses, count, family, 2 if options.quick else 5) for addresses in (small, large))
        rows.append({"services": count, "pools": (small, large), "assign_unchanged_one_more_s": found})
        if not options.json:
            show(count, small, large, found)
    if options.json:
        print(json.dumps(rows))


if __name__ == "__main__":
    main()
