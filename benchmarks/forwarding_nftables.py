"""The nftables forwarder, and the guard that IPVS has around it: 1,000 virtual servers of 10 real servers each, from
nothing, one endpoint changed, nothing changed; beside ``nft -f`` of the very table that comes of it.

    python benchmarks/forwarding_nftables.py [--quick] [--json]

In a network namespace of its own, on this machine's kernel. ``CPU`` is this process's time and that of the ``nft``
programs that it starts, the kernel's work for them included. ``listed``: somebody else has changed something in
nftables, and the time is up for which it is believed that ours is as it was; ``believed``: it is not up.
"""

import argparse
import asyncio
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from forwarding import REAL_SERVERS, wanted, with_another_endpoint

from speaker.forwarding.nftables.forwarder import LOOK_SECONDS, NftablesForwarder, NftablesGuard
from speaker.forwarding.plan import Plan
from speaker.lab.namespaces import Namespace

CHANGES = 20
BASELINE = "nft -f"


class Times:
    """Of each thing that was measured: seconds on the clock and of CPU."""

    def __init__(self) -> None:
        self.taken: dict[str, list[tuple[float, float]]] = {}

    @contextmanager
    def note(self, name: str, times: int = 1) -> Iterator[None]:
        """``times``: how often the block does it."""
        start, used = time.perf_counter(), cpu_seconds()
        yield
        clock, cpu = (time.perf_counter() - start) / times, (cpu_seconds() - used) / times
        self.taken.setdefault(name, []).append((clock, cpu))

    def median(self, name: str) -> tuple[float, float]:
        clock, used = zip(*self.taken[name], strict=True)
        return statistics.median(clock), statistics.median(used)


def cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def nft(*arguments: str, text: str = "") -> str:
    return subprocess.run(["nft", *arguments], input=text, capture_output=True, text=True, check=True).stdout


def somebody_changes_something() -> None:
    nft("add table ip another; delete table ip another")


async def measure_one(
    times: Times, name: str, apply: Callable[[Plan], Awaitable[object]], want: Plan, later: Callable[[], None]
) -> str:
    """The table that came of it, as nft lists it. ``later``: the time is up."""
    with times.note(f"{name}: from nothing"):
        await apply(want)
    table = nft("list", "ruleset")
    plans = [with_another_endpoint(want, each) for each in range(CHANGES)]
    with times.note(f"{name}: one endpoint changed", CHANGES):
        for changed in plans:
            assert await apply(changed)
    with times.note(f"{name}: nothing changed", CHANGES):
        for _ in range(CHANGES):
            assert not await apply(plans[-1])
    for _ in range(2):
        somebody_changes_something()
        with times.note(f"{name}: one endpoint changed, believed"):
            assert await apply(plans[0])
        somebody_changes_something()
        later()
        with times.note(f"{name}: one endpoint changed, listed"):
            assert await apply(plans[1])
        somebody_changes_something()
        later()
        with times.note(f"{name}: nothing changed, listed"):
            assert not await apply(plans[1])
    return table


async def measure(times: Times, want: Plan) -> None:
    now = 0.0

    def later() -> None:
        nonlocal now
        now += LOOK_SECONDS

    forwarder, guard = NftablesForwarder(lambda: now), NftablesGuard(lambda: now)
    table = await measure_one(times, "forwarder", forwarder.apply, want, later)
    with times.note("forwarder: problems"):
        await forwarder.problems()
    await forwarder.cleanup()
    with times.note(BASELINE):
        nft("-f", "-", text=table)
    assert nft("list", "ruleset").count("\n") == table.count("\n")
    nft("flush", "ruleset")
    await measure_one(times, "guard", guard.apply, want, later)
    await guard.cleanup()


def show(times: Times, count: int, rounds: int) -> None:
    print(f"{count} virtual servers of {REAL_SERVERS}, medians of {rounds} rounds, load {os.getloadavg()[0]:.1f}")
    restore, _ = times.median(BASELINE)
    for name in times.taken:
        clock, used = times.median(name)
        print(f"  {name:<42} {clock:8.4f} s   {clock / restore:7.4f} of {BASELINE}   CPU {used:8.4f} s")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="100 virtual servers, one round")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    count, rounds = (100, 1) if options.quick else (1000, 3)
    times = Times()
    for _ in range(rounds):
        with Namespace("node") as node, node.entered():
            asyncio.run(measure(times, wanted(count)))
    if options.json:
        print(json.dumps({"services": count, "clock_cpu_s": {name: times.median(name) for name in times.taken}}))
    else:
        show(times, count, rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
