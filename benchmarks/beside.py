"""One look at kube-proxy's rules for many EIPs: what ``speaker.kubeproxy`` does every 20 s, in a thread and programs
where somebody has changed nftables since the last.

    python benchmarks/beside.py [--quick]

In a network namespace of its own, with tables and maps as kube-proxy makes them in nftables mode: for each EIP a chain
for its Service and two for its endpoints. ``late``: the most that the event loop was late meanwhile.
"""

import argparse
import asyncio
import resource
import subprocess
import time
from collections.abc import Awaitable, Callable
from ipaddress import IPv4Address

from speaker.kubeproxy import sight
from speaker.kubeproxy.judge import Mode
from speaker.lab.namespaces import Namespace

TICK = 0.005
LOOKS = 5


def kube_proxy(eips: int) -> str:
    """As pkg/proxy/nftables/proxier.go makes it."""
    key = "type ipv4_addr . inet_proto . inet_service : verdict;"
    lines = ["table ip kube-proxy {", f"map service-ips {{ {key} }}", f"map no-endpoint-services {{ {key} }}"]
    for number in range(eips):
        lines += [f"chain endpoint-{number}-{turn} {{ meta l4proto tcp dnat to 10.0.0.2:80; }}" for turn in (0, 1)]
        choice = ", ".join(f"{turn} : goto endpoint-{number}-{turn}" for turn in (0, 1))
        lines.append(f"chain service-{number} {{ numgen random mod 2 vmap {{ {choice} }}; }}")
    lines.append("}")
    first = IPv4Address("10.96.0.0")
    elements = [f"{first + number} . tcp . 80 : goto service-{number}" for number in range(eips)]
    lines += [
        f"add element ip kube-proxy service-ips {{ {', '.join(elements[at : at + 2000])} }}"
        for at in range(0, eips, 2000)
    ]
    return "\n".join(lines)


def cpu_seconds(who: int) -> float:
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


async def measured(name: str, look: Callable[[], Awaitable[object]]) -> None:
    late: list[float] = []

    async def watch() -> None:
        while True:
            due = time.perf_counter() + TICK
            await asyncio.sleep(TICK)
            late.append(time.perf_counter() - due)

    watcher = asyncio.create_task(watch())
    begun = time.perf_counter()
    before = [cpu_seconds(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    for _ in range(LOOKS):
        await look()
    clock = (time.perf_counter() - begun) / LOOKS
    watcher.cancel()
    after = [cpu_seconds(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    own, nft = ((late_ - early) / LOOKS for early, late_ in zip(before, after, strict=True))
    print(f"{name:28} clock {clock:6.3f} s   own CPU {own:6.3f} s   nft's CPU {nft:6.3f} s   late {max(late):6.3f} s")


async def run(eips: int) -> None:
    tables = sight.Tables()
    found = await tables.rules(Mode.NFTABLES, {})
    assert found.eips is not None, found.why
    assert len(found.eips) == eips
    await measured(f"rules for {eips:,} EIPs", lambda: sight.Tables().rules(Mode.NFTABLES, {}))
    await measured("that nobody has changed", lambda: tables.rules(Mode.NFTABLES, {}))
    await measured(f"names of {3 * eips:,} chains", lambda: sight.Tables().chains())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="1,000 EIPs instead of 10,000")
    eips = 1_000 if parser.parse_args().quick else 10_000
    with Namespace("beside") as place, place.entered():
        subprocess.run(["nft", "-f", "-"], input=kube_proxy(eips), text=True, check=True)
        asyncio.run(run(eips))


if __name__ == "__main__":
    main()
