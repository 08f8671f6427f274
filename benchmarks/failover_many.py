"""1,000 EIPs on 5 nodes, one of them killed: how soon every EIP has moved; and what hellos cost, beside 10 EIPs.

    python benchmarks/failover_many.py [--eips N] [--rounds N] [--json]

Five nodes of the lab in network namespaces. A client broadcasts an ARP request for each EIP four times a second, as one
that knows nobody, and notes every answer and every gratuitous ARP. SIGKILL to the speaker that holds the most: for each
of its EIPs, the time until another MAC claims it (by whatever comes first), and until another MAC answers a request for
it, which includes the wait for the next request. No other EIP may move. Hello frames and their bytes are counted on the
wire, for each node, in a quiet time before that. Needs root or a user namespace.
"""

import argparse
import asyncio
import contextlib
import dataclasses
import json
import os
import signal
import socket
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path

import yaml

from speaker.lab.capture import first_after, moves
from speaker.lab.lan import Lan, Stage
from speaker.lab.namespaces import Namespace, leave_host_network
from speaker.lab.outage import asking
from speaker.lab.speakers import Speakers, holds_most, speakers
from speaker.lab.timeline import Timeline
from speaker.lab.topology import lab_topology
from speaker.settings import DEFAULT_ETHERTYPE, DEFAULT_HELLO_MS

NODES = 5
FEW, MANY = 10, 1000
FIRST = IPv4Address("10.99.0.1")
A_SUBNET = 250
"""EIPs from each /24: pools leave out .0 and .255."""
ASK = 0.25
"""Seconds between two requests for one EIP."""
QUIET = 5.0
"""Seconds for which hellos are counted."""
SLACK = 2.0
"""Seconds in which every EIP must have moved, and in which no other may."""


def eips(count: int) -> list[IPv4Address]:
    return [FIRST + 256 * (at // A_SUBNET) + at % A_SUBNET for at in range(count)]


def manifests(addresses: Sequence[IPv4Address]) -> str:
    pool = {
        "apiVersion": "eip-speaker.io/v1alpha1",
        "kind": "Eip",
        "metadata": {"name": "many"},
        "spec": {"addresses": [f"{addresses[0]}-{addresses[-1]}"], "interface": "eth0"},
    }
    return yaml.dump_all([pool, *(thing for eip in addresses for thing in service(eip))], Dumper=yaml.CSafeDumper)


def service(eip: IPv4Address) -> tuple[dict[str, object], dict[str, object]]:
    name = f"s-{str(eip).replace('.', '-')}"
    return (
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"namespace": "many", "name": name, "annotations": {"eip-speaker.io/addresses": str(eip)}},
            "spec": {
                "type": "LoadBalancer",
                "loadBalancerClass": "eip-speaker.io/speaker",
                "ipFamilies": ["IPv4"],
                "ports": [{"protocol": "TCP", "port": 80, "targetPort": 8080}],
            },
        },
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"namespace": "many", "name": name, "labels": {"kubernetes.io/service-name": name}},
            "addressType": "IPv4",
            "ports": [{"protocol": "TCP", "port": 8080}],
            "endpoints": [{"addresses": ["10.244.1.11"], "nodeName": "node1"}],
        },
    )


@contextlib.asynccontextmanager
async def sharing(lan: Lan, directory: Path, count: int) -> AsyncIterator[Speakers]:
    stage = Stage(lan, Timeline(None), directory, directory / "manifests")
    stage.manifests.mkdir()
    (stage.manifests / "many.yaml").write_text(manifests(eips(count)))
    async with speakers(stage, DEFAULT_HELLO_MS) as running:
        yield running


# ── what hellos cost ──────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one node on one link, the highest of all nodes."""

    eips: int
    frames_per_second: float
    bytes_per_second: float


async def hello_cost(lan: Lan, count: int) -> Cost:
    frames, octets = await count_frames(lan.namespace("client"), "eth0", DEFAULT_ETHERTYPE, QUIET)
    return Cost(count, round(max(frames.values()) / QUIET, 1), round(max(octets.values()) / QUIET))


async def count_frames(
    namespace: Namespace, link: str, ethertype: int, seconds: float
) -> tuple[Counter[bytes], Counter[bytes]]:
    """Frames of that EtherType, and their bytes, by source MAC."""
    frames: Counter[bytes] = Counter()
    octets: Counter[bytes] = Counter()
    with namespace.entered():
        sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        sock.bind((link, ethertype))
    sock.setblocking(False)
    with sock, contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while True:
                frame = await asyncio.get_running_loop().sock_recv(sock, 9000)
                frames[frame[6:12]] += 1
                octets[frame[6:12]] += len(frame)
    return frames, octets


# ── one node dies ─────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Moved:
    """``held`` EIPs had the killed node; times in milliseconds from the SIGKILL on."""

    killed: str
    held: int
    share: float
    """The most that a node held, by the mean."""
    claimed_median_ms: float
    claimed_worst_ms: float
    answered_worst_ms: float
    not_moved: int
    others_moved: int
    frozen: int
    """How often one of the others found that it had not run for longer than its lease: on a busy machine."""

    def __str__(self) -> str:
        return (
            f"{self.killed} killed, which held {self.held} EIPs ({self.share:.2f} of the mean): claimed after "
            f"{self.claimed_median_ms:.0f} ms (median), {self.claimed_worst_ms:.0f} ms (worst), answered after "
            f"{self.answered_worst_ms:.0f} ms (worst); {self.not_moved} not moved, {self.others_moved} others moved"
            + (f" ({self.frozen} freezes)" if self.frozen else "")
        )


async def everybody_ready(running: Speakers) -> None:
    async with asyncio.timeout(60):
        while not all([await speaker.healthy() for speaker in running.running.values()]):  # noqa: ASYNC110
            await asyncio.sleep(0.1)


async def kill_one(lan: Lan, running: Speakers, count: int) -> Moved:
    wanted = eips(count)
    await everybody_ready(running)
    holders = await running.settled(wanted)
    node = holds_most(holders)
    mine = [eip for eip in wanted if holders[eip] == node]
    old = {lan.topology.host(node).mac("eth0")}
    async with asking(lan.namespace("client"), "eth0", wanted, ASK) as asks:
        await asyncio.sleep(2 * ASK)
        dying = running.running.pop(node)  # one that runs must not end
        at = time.monotonic()
        dying.process.send_signal(signal.SIGKILL)
        await asyncio.sleep(SLACK)
        await dying.process.wait()
    replies = [reply for reply in asks.replies() if reply.at <= at + SLACK]
    claimed = first_after(replies, at, old)
    answered = first_after((reply for reply in replies if not reply.unasked), at, old)
    waits = [(claimed[eip].at - at) * 1000 for eip in mine if eip in claimed]
    frozen = sum(told.event.get("event") == "frozen" for told in running.told if told.at >= at)
    await running.start(node)
    return Moved(
        killed=node,
        held=len(mine),
        share=round(len(mine) * NODES / count, 2),
        claimed_median_ms=round(statistics.median(waits), 1),
        claimed_worst_ms=round(max(waits), 1),
        answered_worst_ms=round(max((answered[eip].at - at) * 1000 for eip in mine if eip in answered), 1),
        not_moved=len(mine) - len(waits),
        others_moved=len({move.address for move in moves(replies)} - set(mine)),
        frozen=frozen,
    )


# ── the whole ─────────────────────────────────────────────────────────────────────────────────────────────────


async def measure(lan: Lan, directory: Path, count: int, rounds: int) -> tuple[Cost, list[Moved]]:
    async with sharing(lan, directory, count) as running:
        await everybody_ready(running)
        await running.settled(eips(count))
        await asyncio.sleep(2)  # until nobody repeats what has changed (Parameters.yielded)
        cost = await hello_cost(lan, count)
        return cost, [await kill_one(lan, running, count) for _ in range(rounds)]


def with_eips(count: int, rounds: int) -> tuple[Cost, list[Moved]]:
    with Lan(lab_topology(NODES)) as lan, tempfile.TemporaryDirectory(prefix="failover-") as name:
        return asyncio.run(measure(lan, Path(name), count, rounds))


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--eips", type=int, default=MANY)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--json", action="store_true")
    options = arguments.parse_args()
    leave_host_network()
    load, began = os.getloadavg()[0], time.monotonic()
    few, _ = with_eips(FEW, 0)
    many, rounds = with_eips(options.eips, options.rounds)
    if options.json:
        costs = [dataclasses.asdict(cost) for cost in (few, many)]
        print(json.dumps({"load": load, "hellos": costs, "rounds": [dataclasses.asdict(one) for one in rounds]}))
        return
    print(f"load {load:.1f} before, {os.getloadavg()[0]:.1f} after {time.monotonic() - began:.0f} s")
    for cost in (few, many):
        print(
            f"{cost.eips:5} EIPs: a node sends {cost.frames_per_second} hello frames/s, {cost.bytes_per_second} bytes/s"
        )
    for one in rounds:
        print(one)


if __name__ == "__main__":
    main()
