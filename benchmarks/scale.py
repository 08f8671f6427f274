"""What grows with what: nodes, EIPs, Services and their rules; each cost at several sizes, and the growth that fits.

    python benchmarks/scale.py [--only nodes,eips,pool,rules,services] [--nodes 3,10,30] [--eips 10,100,1000]
                               [--pool 100,1000,10000] [--rules 30,100,300] [--services 100,300,1000] [--json]

nodes     in virtual time, as benchmarks/many_nodes.py: N ownership machines on one link with 100 EIPs, at rest, and
          when one of them dies. CPU is ours for what a node decides in a second, and for reading a frame of the last
          hello as often as one comes; sockets come on top.
eips      real speakers on three nodes of the lab: from their start until all EIPs are held, and a node at rest.
pool      the allocator alone: the CPU for all Services of a pool, for none that changed, and for one more.
rules     nftables for so many Services of ten endpoints each: from nothing, and one endpoint changed.
services  three agents and a real API server, as benchmarks/cluster_agents.py: until all Services are held and recorded,
          requests, memory, the longest stall, one more Service, and the requests of agents at rest.

The growth is the slowest of flat, N, N log N and N² that fits nearly as well as the best (benchmarks/growth.py): sizes
have to lie a factor of ten apart, altogether, to say anything. What grows with N² is listed at the end. The default
sizes take some minutes; `--nodes 3,10,30,100,500 --eips 10,100,1000,10000 --services 100,1000,10000,20000` takes hours.
Counts are exact on any machine, times and CPU only on a quiet one. Needs root or a user namespace; `services` also what
cluster_agents.py needs.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import allocator
import cluster_agents
import failover_many
import forwarding_nftables
import many_nodes
from cluster_agents import audited, audited_cluster, pause
from forwarding import wanted
from growth import SCATTER, Growth, growth
from real_api import missing
from rest import Cost, Reading, parts_of

from speaker.lab.lan import Lan
from speaker.lab.namespaces import Namespace, leave_host_network
from speaker.lab.topology import lab_topology
from speaker.model import Family, Mac
from speaker.ownership.events import SendHello
from speaker.ownership.hellos import frames
from speaker.ownership.hellos.keys import Key, Keys
from speaker.settings import DEFAULT_ETHERTYPE

LAN_EIPS = 100
"""In all sizes of ``nodes``."""
CALM, DEATH = 1.0, 2.0
"""Virtual seconds that are counted."""
READS = 200
"""Of a frame, to know what one takes."""
NODES = 3
QUIET = 20.0
"""Seconds of rest that are counted on a real clock."""
SETTLING = 3.0
"""Seconds after which nobody repeats what has changed."""
EXACT = 0.02
"""What counts scatter by, as a share of each."""
MORE = 5
"""Services that come one by one."""

Costs = dict[str, float]


@dataclass(frozen=True, slots=True)
class Series:
    """Of each size its costs, by name and unit."""

    name: str
    costs: Mapping[int, Costs]

    @property
    def growths(self) -> dict[str, Growth]:
        sizes = sorted(self.costs)
        names = list(self.costs[sizes[0]])
        return {name: growth(sizes, [self.costs[size][name] for size in sizes], self._scatter(name)) for name in names}

    def _scatter(self, name: str) -> float:
        """In virtual time everything but CPU is counted."""
        return EXACT if self.name == "nodes" and not name.startswith("CPU") else SCATTER

    def lines(self) -> list[str]:
        sizes = sorted(self.costs)
        yields = [f"{self.name:52} {''.join(f'{size:>10,}' for size in sizes)}  growth"]
        for name, found in self.growths.items():
            figures = "".join(f"{shown(self.costs[size][name]):>10}" for size in sizes)
            yields.append(f"  {name:50} {figures}  {found}")
        return yields


def shown(number: float) -> str:
    return f"{number:,.0f}" if abs(number) >= 1000 or number == 0 else f"{number:.3g}"


# ── Nodes ─────────────────────────────────────────────────────────────────────────────────────────────────────


def nodes(count: int) -> Costs:
    cluster, took = many_nodes.settled(count, LAN_EIPS)
    began = time.process_time()
    calm = cluster.run(CALM)
    decisions = (time.process_time() - began) / CALM / count
    heard = calm["frames"] / CALM * (count - 1) / count
    victim, held = cluster.held().most_common(1)[0]
    cluster.kill(victim)
    death = cluster.run(DEATH)
    usual = round((count - 1) * calm["hellos"] / CALM / count * DEATH)
    return {
        "until all EIPs are at rest, s": took,
        "frames on the link, /s": calm["frames"] / CALM,
        "bytes on the link, /s": calm["bytes"] / CALM,
        "frames that a node reads, /s": heard,
        "CPU of a node: decisions, ms/s": 1000 * decisions,
        "CPU of a node: reading frames, ms/s": 1000 * heard * frame_cost(cluster),
        "API writes at rest, /s": calm["writes"] / CALM,
        "a death: questions on the wire": death["asks"],
        "a death: API writes for each of its EIPs": death["writes"] / max(1, held),
        "a death: hellos out of turn": max(0, death["hellos"] - usual),
    }


def frame_cost(cluster: many_nodes.Cluster) -> float:
    """Seconds for reading a frame that a node of the cluster says at rest."""
    keys = Keys(Key(bytes(32)))
    said: list[bytes] = []
    node, machine = next(iter(cluster.machines.items()))
    while not said:
        orders = machine.step(machine.next_wake(cluster.now), many_nodes.Tick())
        for order in orders:
            if isinstance(order, SendHello):
                said += frames.encode(order.hello, keys, Mac(bytes((2, 0, 0, 0, 0, node))))
    began = time.process_time()
    for _ in range(READS):
        frames.decode(said[0], keys)
    return (time.process_time() - began) / READS


# ── EIPs ──────────────────────────────────────────────────────────────────────────────────────────────────────


def eips(count: int) -> Costs:
    with Lan(lab_topology(NODES)) as lan, tempfile.TemporaryDirectory(prefix="scale-") as name:
        return asyncio.run(_eips(lan, Path(name), count))


async def _eips(lan: Lan, directory: Path, count: int) -> Costs:
    began = time.monotonic()
    async with failover_many.sharing(lan, directory, count) as running:
        await failover_many.everybody_ready(running)
        await running.settled(failover_many.eips(count))
        took = time.monotonic() - began
        await asyncio.sleep(SETTLING)
        pids = {node: speaker.process.pid for node, speaker in running.running.items()}
        return {"until all EIPs are held, s": took, **await at_rest(pids, lan.namespace("client"))}


async def at_rest(agents: Mapping[str, int], client: Namespace) -> Costs:
    """Of the node that takes the most."""
    pids = [list(parts_of(pid, "wire", "main").values()) for pid in agents.values()]
    before, began = {pid: Reading.of(pid) for parts in pids for pid in parts}, time.monotonic()
    seen, octets = await failover_many.count_frames(client, "eth0", DEFAULT_ETHERTYPE, QUIET)
    took = time.monotonic() - began
    costs = [[Cost.between(pid, before[pid], Reading.of(pid), took) for pid in parts] for parts in pids]
    return {
        "CPU of a node at rest, s/min": max(sum(part.cpu_s for part in parts) for parts in costs),
        "memory of a node (PSS), MB": max(sum(part.pss_mb for part in parts) for parts in costs),
        "wake-ups of a node, /s": max(sum(part.wakes for part in parts) for parts in costs),
        "frames of a node, /s": max(seen.values(), default=0) / took,
        "bytes of a node, /s": max(octets.values(), default=0) / took,
    }


# ── A pool, and rules ─────────────────────────────────────────────────────────────────────────────────────────


def pool(count: int) -> Costs:
    everything, again, one_more = allocator.best("10.0.0.0/8", count, Family.IPV4, 2)
    return {"CPU of all, s": everything, "CPU of no change, ms": 1000 * again, "CPU of one more, µs": 1e6 * one_more}


def rules(count: int) -> Costs:
    times = forwarding_nftables.Times()
    with Namespace("node") as node, node.entered():
        asyncio.run(forwarding_nftables.measure(times, wanted(count)))
    return {
        f"{what.removeprefix('forwarder: ')}, CPU s": times.median(what)[1]
        for what in times.taken
        if what.startswith("forwarder: ")
    }


# ── Services ──────────────────────────────────────────────────────────────────────────────────────────────────


def services(count: int) -> Costs:
    many = cluster_agents.eips(count)
    more = (f"{cluster_agents.NEW}-{cluster_agents.NEW + 2 * MORE - 1}", f"{many[0]}-{many[-1]}")
    cluster_agents.ROUNDS = MORE
    with (
        tempfile.TemporaryDirectory(prefix="scale-") as name,
        audited_cluster(Path(name), more_addresses=more, interface="eth0") as (cluster, log),
    ):
        return asyncio.run(_services(cluster, log, many))


async def _services(cluster: cluster_agents.Cluster, log: Path, many: Sequence[IPv4Address]) -> Costs:
    found = await cluster_agents.scale(cluster, log, many)
    await pause(cluster_agents.SETTLING)
    quiet = datetime.now(UTC)
    pids = {node: agent.process.pid for node, agent in cluster.agents.items()}
    rest = await at_rest(pids, cluster.lan.namespace("client"))
    asked: Counter[str] = audited(log, quiet, quiet + timedelta(seconds=QUIET))
    return {
        "until all are held, s": found.held_after_s,
        "until all are recorded, s": found.recorded_after_s,
        "requests of all agents until then": sum(found.asked_while_starting.values()),
        "an agent's memory (RSS), MB": found.agent_mb + found.wire_mb,
        "longest stall of the wire process, ms": found.wire_stall_ms,
        "POST of one more to its first answer, ms": found.one_more.p50_ms,
        "requests of all agents at rest, /min": asked.total() * 60 / QUIET,
        **rest,
    }


# ── The whole ─────────────────────────────────────────────────────────────────────────────────────────────────

SERIES: Mapping[str, tuple[Callable[[int], Costs], str]] = {
    "nodes": (nodes, "3,10,30"),
    "eips": (eips, "10,100,1000"),
    "pool": (pool, "100,1000,10000"),
    "rules": (rules, "30,100,300"),
    "services": (services, "100,300,1000"),
}


def sizes(text: str) -> list[int]:
    """Raises argparse.ArgumentTypeError."""
    found = [int(word) if word.isdecimal() else 0 for word in text.split(",")]
    if not all(found):
        raise argparse.ArgumentTypeError(f"{text}: whole numbers above 0, with commas between")
    return sorted(set(found))


def measured(name: str, wanted_sizes: Sequence[int], tell: Callable[[str], None]) -> Series:
    costs = {}
    for size in wanted_sizes:
        began = time.monotonic()
        costs[size] = SERIES[name][0](size)
        tell(f"{name} {size:,}: {time.monotonic() - began:.0f} s")
    return Series(name, costs)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(SERIES), help="(default %(default)s)")
    for name, (_, default) in SERIES.items():
        parser.add_argument(f"--{name}", type=sizes, default=sizes(default), help=f"(default {default})")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    names = options.only.split(",")
    if unknown := set(names) - set(SERIES):
        parser.error(f"--only {','.join(sorted(unknown))}: of {', '.join(SERIES)}")
    if "services" in names and (reason := missing()):
        print(f"without services: {reason}", file=sys.stderr)
        names.remove("services")
    leave_host_network()
    load, found = os.getloadavg()[0], []

    def tell(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    for name in names:
        found.append(measured(name, getattr(options, name), tell))
        if not options.json:
            print("\n".join(found[-1].lines()), flush=True)
    steep = [f"{one.name}: {what}" for one in found for what, fit in one.growths.items() if fit.kind == "N²"]
    if options.json:
        result = {
            one.name: {"costs": one.costs, "growths": {n: g.kind for n, g in one.growths.items()}} for one in found
        }
        print(json.dumps({"load": [load, os.getloadavg()[0]], **result, "N²": steep}))
        return 0
    print(f"load {load:.1f} before, {os.getloadavg()[0]:.1f} after")
    print("grows with N²: " + ("; ".join(steep) or "nothing"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
