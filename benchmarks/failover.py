"""How long EIPs are out when their node fails: speakers, agents and keepalived in one run on one topology.

    python benchmarks/failover.py [--rounds N] [--only crash,cut,…] [--contenders ours-100,…] [--json]

Three nodes, each in a network namespace, on one LAN of the lab with a client and a gateway; six EIPs (VIPs). A round is
one fault at the node that holds the most, at a random moment:

crash  SIGKILL to the speaker, or to all processes of keepalived at once; the node and its kernel go on
cut    its switch port passes nothing any more, in either direction, and the carrier stays
pull   its cable is pulled: the carrier goes
pull2  the cables of both its links are pulled: nothing is left by which it could tell anybody
drain  SIGTERM: a clean stop
label  the node is excluded from load balancers by its label: agents alone, and compared with a drain
frozen a crash while the API has stood still for 5 s: agents alone, and compared with a crash

Two things are measured, for the EIPs that the node held:

served  what a client sees that already talks to them. Every 2 ms a datagram to each EIP, UDP port 7: the speaker's node
        forwards it (nftables) to a pod on the same node that sends it back; keepalived's node has the address, and a
        process there sends it back. The outage is from the last answered probe before to the first answered probe
        after, by when they were sent. The client's kernel moves when it believes a gratuitous ARP.
asked   what a client sees that does not know them yet. Every 5 ms the gateway broadcasts an ARP request for each EIP:
        the longest time without an answer. This one shows a crash: the dead node's kernel still serves the first kind
        of client, and with keepalived it still answers the second kind as well, for the address stays bound. Then two
        nodes own it, until somebody cleans up: those are the answers counted as twice.

Answers that were more than 50 ms on the way count as lost. The probers run at real-time priority, where allowed.
The nodes have a second link; the speakers hold one more EIP there, so that they also say hello on it.
keepalived's settings are its defaults but for: `advert_int`, VRRP version 3 for intervals below 1 s, priorities 150,
100 and 50, and `--vrrp` (no health checks). Agents are those of tests/agents, with a controller and a real API server
on a segment of their own; they are left out where etcd and kube-apiserver are not where envtest looks for them. Needs
root or a user namespace.
"""

import argparse
import asyncio
import contextlib
import dataclasses
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, Protocol

_TESTS = Path(__file__).parents[1] / "tests"
sys.path[:0] = [str(_TESTS / name) for name in ("agents", "apiserver", "faults")]

from agent_cluster import Cluster  # noqa: E402
from agent_objects import EXCLUDED, whole_node  # noqa: E402
from agent_process import Agent  # noqa: E402
from real_api import missing  # noqa: E402

from speaker.errors import EdgeError  # noqa: E402
from speaker.lab.capture import Reply, first_after, relapses  # noqa: E402
from speaker.lab.lan import Lan, Stage  # noqa: E402
from speaker.lab.namespaces import leave_host_network  # noqa: E402
from speaker.lab.outage import Asks, Outage, Probes, asking, echoing, outages, probing, stall_ms  # noqa: E402
from speaker.lab.speakers import (  # noqa: E402
    ECHO_PORT,
    POD_PORT,
    LogLine,
    SpeakerProcess,
    Speakers,
    failover_manifests,
    holds_most,
    speakers,
)
from speaker.lab.switch import cut, mend, plug, pull  # noqa: E402
from speaker.lab.timeline import Timeline  # noqa: E402
from speaker.lab.topology import lab_topology  # noqa: E402
from speaker.model import IPAddress, Mac  # noqa: E402
from speaker.system.programs import end_with  # noqa: E402

EIPS = tuple(IPv4Address(f"192.0.2.{last}") for last in range(200, 206))
SECOND_LINKS = IPv4Address("198.51.100.200")
NODES = 3
ASK = 0.005
"""Seconds between two ARP requests for one EIP."""
BEFORE, AFTER = 0.7, 0.7
"""Seconds that are measured before a fault and after the EIPs are back."""
DISTURBED = 30.0
"""Milliseconds: a round in which the prober itself, at real-time priority, sent nothing for so long says more about the
machine than about failover. It is played again, up to TRIES times, and the number of such rounds is told."""
TRIES = 5
GIVE_UP = 15.0
"""Seconds after which an EIP that did not come back counts as lost."""
FAULTS = ("crash", "cut", "pull", "pull2", "drain")
OF_THE_API = {"label": "drain", "frozen": "crash"}
"""Faults that only agents know, and what they are compared with."""
FROZEN = 5.0
"""Seconds for which the API has stood still when the node crashes."""

Holders = Mapping[IPAddress, str]


# ── who competes ──────────────────────────────────────────────────────────────────────────────────────────────


class Contender(Protocol):
    """Something that keeps EIPs on one of the nodes each, and is running."""

    async def settled(self) -> Holders:
        """When everybody runs and agrees on who holds what."""

    async def start(self, node: str) -> None: ...

    def crash(self, node: str) -> None: ...

    def stop(self, node: str) -> None: ...

    async def ended(self, node: str) -> None: ...

    def log(self, since: float) -> list[LogLine]:
        """What was logged since then."""


class Ours:
    """``speaker run --with-peers`` on every node."""

    def __init__(self, running: Speakers) -> None:
        self._running = running
        self._ending: dict[str, SpeakerProcess] = {}

    async def settled(self) -> Holders:
        async with asyncio.timeout(60):
            while not all([await speaker.healthy() for speaker in self._running.running.values()]):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        return await self._running.settled(EIPS)

    async def start(self, node: str) -> None:
        await self._running.start(node)

    def crash(self, node: str) -> None:
        self._end(node, signal.SIGKILL)

    def stop(self, node: str) -> None:
        self._end(node, signal.SIGTERM)

    def _end(self, node: str, number: signal.Signals) -> None:
        self._ending[node] = self._running.running.pop(node)  # one that runs must not end
        self._ending[node].signal(number)

    async def ended(self, node: str) -> None:
        await self._ending.pop(node).process.wait()

    def log(self, since: float) -> list[LogLine]:
        return [told for told in self._running.told if told.at >= since]


class Agents:
    """``speaker agent`` on every node, and the controller."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._ending: dict[str, Agent] = {}

    async def settled(self) -> Holders:
        for node in self._cluster.nodes:
            self._cluster.on_node(node, whole_node())
            if node not in self._cluster.agents:
                self._cluster.start(node)
        await self._cluster.until_healthy(*self._cluster.nodes)
        found = await self._cluster.settled()
        return {eip: found[eip] for eip in EIPS}

    async def start(self, node: str) -> None:
        self._cluster.start(node)

    def crash(self, node: str) -> None:
        self._ending[node] = self._cluster.agents.pop(node)
        os.killpg(self._ending[node].process.pid, signal.SIGKILL)

    def stop(self, node: str) -> None:
        self._ending[node] = self._cluster.agents.pop(node)
        self._ending[node].terminate()

    async def ended(self, node: str) -> None:
        await asyncio.to_thread(self._ending.pop(node).process.wait)

    def log(self, since: float) -> list[LogLine]:
        return []

    def exclude(self, node: str) -> None:
        self._cluster.on_node(node, {"metadata": {"labels": {EXCLUDED: ""}}})

    def freeze(self) -> None:
        self._cluster.api.freeze()

    def thaw(self) -> None:
        self._cluster.api.thaw()


class Keepalived:
    """One VRRP instance with all EIPs on every node; node1 has the highest priority and always comes back to them."""

    def __init__(self, lan: Lan, directory: Path, advert: float) -> None:
        self._lan, self._directory, self._advert = lan, directory, advert
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    async def settled(self) -> Holders:
        nodes = self._lan.topology.nodes
        async with asyncio.timeout(60):
            while [len(self._has(node)) for node in nodes] != [len(EIPS), 0, 0]:  # noqa: ASYNC110 -- nothing tells
                await asyncio.sleep(0.05)
        await asyncio.sleep(self._advert)
        return dict.fromkeys(EIPS, nodes[0])

    async def start(self, node: str) -> None:
        self._directory.mkdir(exist_ok=True)
        files = {name: self._directory / f"{node}.{name}" for name in ("conf", "pid", "vrrp", "log")}
        for name in ("pid", "vrrp"):  # left by a crash: their numbers may be somebody else's by now
            files[name].unlink(missing_ok=True)
        files["conf"].write_text(keepalived_conf(self._lan.topology.nodes.index(node), self._advert))
        with self._lan.namespace(node).entered(), files["log"].open("ab") as log:
            self._running[node] = subprocess.Popen(  # noqa: ASYNC220 -- some milliseconds, between two rounds
                [
                    *("keepalived", "--dont-fork", "--log-console", "--vrrp", "--use-file", files["conf"]),
                    *("--pid", files["pid"], "--vrrp_pid", files["vrrp"]),
                ],
                stdout=log,
                stderr=log,
                start_new_session=True,  # so that crash() reaches parent and child at once
                preexec_fn=partial(end_with, os.getpid()),
            )

    def crash(self, node: str) -> None:
        os.killpg(self._running[node].pid, signal.SIGKILL)

    def stop(self, node: str) -> None:
        self._running[node].terminate()

    async def ended(self, node: str) -> None:
        await asyncio.to_thread(self._running.pop(node).wait)

    def log(self, since: float) -> list[LogLine]:
        return []

    def close(self) -> None:
        for process in self._running.values():
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _has(self, node: str) -> set[IPv4Address]:
        with self._lan.namespace(node).entered():
            shown = subprocess.run(["ip", "-j", "-4", "addr", "show", "dev", "eth0"], capture_output=True, check=True)
        found = {IPv4Address(address["local"]) for link in json.loads(shown.stdout) for address in link["addr_info"]}
        return found & set(EIPS)


def keepalived_conf(number: int, advert: float) -> str:
    addresses = "\n".join(f"    {eip}" for eip in EIPS)
    return f"""\
global_defs {{
  router_id node{number + 1}
  vrrp_version {2 if advert.is_integer() else 3}
}}
vrrp_instance lan {{
  state {"BACKUP" if number else "MASTER"}
  interface eth0
  virtual_router_id 51
  priority {(150, 100, 50)[number]}
  advert_int {advert:g}
  virtual_ipaddress {{
{addresses}
  }}
}}
"""


@contextlib.asynccontextmanager
async def our_speakers(lan: Lan, directory: Path, hello: float) -> AsyncIterator[Ours]:
    stage = Stage(lan, Timeline(None), directory, directory / "manifests")
    stage.manifests.mkdir()
    (stage.manifests / "all.yaml").write_text(failover_manifests(lan.topology, (*EIPS, SECOND_LINKS)))
    pods = [lan.namespace(pod) for node in lan.topology.nodes for pod in lan.topology.pods_of(node)]
    with echoing((pod, POD_PORT) for pod in pods):
        async with speakers(stage, round(hello * 1000)) as running:
            yield Ours(running)


@contextlib.asynccontextmanager
async def debians_keepalived(lan: Lan, directory: Path, advert: float) -> AsyncIterator[Keepalived]:
    contender = Keepalived(lan, directory / "keepalived", advert)
    with echoing((lan.namespace(node), ECHO_PORT) for node in lan.topology.nodes), contextlib.closing(contender):
        for node in lan.topology.nodes:
            await contender.start(node)
        yield contender


@contextlib.asynccontextmanager
async def our_agents(lan: Lan, directory: Path, hello: float) -> AsyncIterator[Agents]:
    with Cluster(directory, lan, (*EIPS, SECOND_LINKS)) as cluster:
        yield Agents(cluster)


@dataclass(frozen=True, slots=True)
class Entry:
    name: str
    title: str
    start: Any
    beat: float
    """Seconds between two hellos or advertisements."""
    faults: tuple[str, ...] = FAULTS


ENTRIES = (
    Entry("keepalived-1s", "keepalived, VRRPv2, advert_int 1", debians_keepalived, 1.0),
    Entry("keepalived-0.1s", "keepalived, VRRPv3, advert_int 0.1", debians_keepalived, 0.1),
    Entry("ours-100", "speaker, hello 100 ms (default)", our_speakers, 0.1),
    Entry("ours-25", "speaker, hello 25 ms", our_speakers, 0.025),
    Entry("agents-100", "agent with the API, hello 100 ms", our_agents, 0.1, (*FAULTS, *OF_THE_API)),
)


# ── one round ─────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Round:
    """What one fault did to the EIPs of the node that it hit; the worst of them each. Milliseconds."""

    contender: str
    fault: str
    node: str
    eips: int
    served_ms: float
    asked_ms: float
    lost: int
    """Probes of all these EIPs together."""
    others_lost: int
    """Probes of the EIPs that other nodes held."""
    twice: int
    """ARP answers of a node that answered within the last 0.1 s although another one did after it."""
    over: bool
    """They all came back."""
    unsure_ms: float
    """The prober was late at the edge of the outage: add this at most."""
    stall_ms: float
    """The longest that the prober itself sent nothing."""
    phases: Mapping[str, float]
    """From the fault on, the last EIP each: when the old holder logged that it gave up, the new one that it claims,
    when its first ARP was on the wire, when the client's first answered probe was sent."""

    @property
    def disturbed(self) -> bool:
        return self.stall_ms > DISTURBED

    def __str__(self) -> str:
        phases = ", ".join(f"{name} {when:.0f}" for name, when in self.phases.items())
        back = "" if self.over else ", NOT ALL CAME BACK"
        return (
            f"{self.contender:16}{self.fault:6}{self.node} ({self.eips} EIPs): "
            f"served {self.served_ms:.0f} (+{self.unsure_ms:.0f}) ms, {self.lost} lost, asked {self.asked_ms:.0f} ms, "
            f"{self.twice} twice, {self.others_lost} lost elsewhere{back}; [{phases}]; prober {self.stall_ms:.0f}"
            f"{' DISTURBED' if self.disturbed else ''}"
        )


@dataclass(frozen=True, slots=True)
class Case:
    """``node`` is hit by ``fault``; it holds ``eips``."""

    entry: Entry
    contender: Contender
    lan: Lan
    fault: str
    node: str
    eips: Sequence[IPv4Address]

    @property
    def mac(self) -> Mac:
        return self.lan.topology.host(self.node).mac("eth0")


async def play(entry: Entry, contender: Contender, lan: Lan, fault: str) -> Round:
    holders = await contender.settled()
    node = holds_most(holders)
    case = Case(entry, contender, lan, fault, node, [eip for eip in EIPS if holders[eip] == node])
    client, gateway = lan.namespace("client"), lan.namespace("gateway")
    if fault == "frozen":
        assert isinstance(contender, Agents)
        contender.freeze()
        await asyncio.sleep(FROZEN)
    async with (
        probing(client, [(eip, ECHO_PORT) for eip in EIPS]) as probes,
        asking(gateway, "eth0", EIPS, ASK) as asks,
    ):
        await probes.answering(time.monotonic())
        begun = time.monotonic()
        await asyncio.sleep(BEFORE + random.uniform(0, entry.beat))  # noqa: S311 -- guards nothing
        at = time.monotonic()
        await asyncio.to_thread(strike, case)
        await until_back(case, probes, asks, at)
        if fault in ("crash", "drain", "frozen"):
            await contender.ended(node)
        await asyncio.sleep(AFTER)
    found = judge(case, probes, asks, begun, at)
    await repair(case)
    return found


def strike(case: Case) -> None:
    match case.fault:
        case "crash" | "frozen":
            case.contender.crash(case.node)
        case "label":
            assert isinstance(case.contender, Agents)
            case.contender.exclude(case.node)
        case "cut":
            cut(case.lan, case.node)
        case "pull":
            pull(case.lan, case.node)
        case "pull2":
            pull(case.lan, case.node, "eth1")
            pull(case.lan, case.node)
        case "drain":
            case.contender.stop(case.node)


async def repair(case: Case) -> None:
    match case.fault:
        case "cut":
            await asyncio.to_thread(mend, case.lan, case.node)
        case "pull":
            await asyncio.to_thread(plug, case.lan, case.node)
        case "pull2":
            await asyncio.to_thread(plug, case.lan, case.node)
            await asyncio.to_thread(plug, case.lan, case.node, "eth1")
        case "label":
            pass  # ``settled`` takes it off
        case "frozen":
            assert isinstance(case.contender, Agents)
            case.contender.thaw()
            await case.contender.start(case.node)
        case _:
            await case.contender.start(case.node)
    await case.contender.settled()


async def until_back(case: Case, probes: Probes, asks: Asks, at: float) -> None:
    """Until another node has claimed all of them and they are served, or GIVE_UP."""
    with contextlib.suppress(TimeoutError, EdgeError):
        async with asyncio.timeout(GIVE_UP):
            while not first_after(asks.replies(), at, {case.mac}).keys() >= set(case.eips):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        await probes.answering(time.monotonic(), case.eips, GIVE_UP)


def judge(case: Case, probes: Probes, asks: Asks, begun: float, at: float) -> Round:
    samples = probes.samples(begun)
    served, asked = outages(samples), outages(asks.samples(begun), ASK)
    worst = max((served[eip] for eip in case.eips), key=lambda outage: outage.ms)
    replies = [reply for reply in asks.replies() if reply.address in case.eips]
    return Round(
        contender=case.entry.name,
        fault=case.fault,
        node=case.node,
        eips=len(case.eips),
        served_ms=round(worst.ms, 1),
        asked_ms=round(max(asked[eip].ms for eip in case.eips), 1),
        lost=sum(served[eip].lost for eip in case.eips),
        others_lost=sum(outage.lost for eip, outage in served.items() if eip not in case.eips),
        twice=len(relapses(replies, 0.1)),
        over=all(served[eip].over and asked[eip].over for eip in case.eips),
        unsure_ms=round(worst.unsure_ms, 1),
        stall_ms=round(stall_ms(samples), 1),
        phases={name: round((when - at) * 1000, 1) for name, when in phases(case, served, replies, at)},
    )


def phases(
    case: Case, served: Mapping[IPAddress, Outage], replies: Sequence[Reply], at: float
) -> Iterator[tuple[str, float]]:
    """What ``Round.phases`` says; nothing for what did not happen, or is not logged."""
    ours = {str(eip) for eip in case.eips}
    logged = [
        told
        for told in case.contender.log(at)
        if told.event["event"] in ("withdrawn", "claimed")
        and not ours.isdisjoint([told.event.get("eip"), *told.event.get("eips", ())])
    ]
    times = {
        "withdrawn": [told.at for told in logged if told.event["event"] == "withdrawn" and told.node == case.node],
        "claimed": [told.at for told in logged if told.event["event"] == "claimed"],
        "on the wire": [reply.at for reply in first_after(replies, at, {case.mac}).values()],
        "served": [
            outage.began + (outage.ms + outage.unsure_ms) / 1000
            for outage in (served[eip] for eip in case.eips)
            if outage.began is not None
        ],
    }
    yield from ((name, max(when)) for name, when in times.items() if when)


# ── the whole ─────────────────────────────────────────────────────────────────────────────────────────────────


def compete(entry: Entry, faults: Sequence[str], rounds: int, tell: Callable[[Round], None]) -> None:
    async def play_all(lan: Lan, directory: Path) -> None:
        async with entry.start(lan, directory, entry.beat) as contender:
            for fault in [fault for fault in faults if fault in entry.faults]:
                for _ in range(rounds):
                    for _ in range(TRIES):
                        found = await play(entry, contender, lan, fault)
                        tell(found)
                        if not found.disturbed:
                            break

    with Lan(lab_topology(NODES)) as lan, tempfile.TemporaryDirectory(prefix="failover-") as name:
        asyncio.run(play_all(lan, Path(name)))


def table(rounds: Sequence[Round], faults: Sequence[str]) -> Iterator[str]:
    """Median and worst of every cell, and how our median relates to that of each keepalived, an agent's to ours."""
    for fault in faults:
        heads = f"{'served ms':>16} {'lost':>6} {'asked ms':>16} {'twice':>6} {'others':>6}"
        yield f"\n{fault:40} {heads}   served, asked / the other's"
        cells = {entry.name: cell(rounds, entry, fault) for entry in ENTRIES}
        for entry in ENTRIES:
            if cells[entry.name]:
                yield f"  {entry.title:38} {row(cells[entry.name])}   {ratios(entry, cells)}".rstrip()


def cell(rounds: Sequence[Round], entry: Entry, fault: str) -> list[Round]:
    """Of who does not know ``fault``: what that is compared with."""
    known = fault if fault in entry.faults else OF_THE_API[fault]
    return [one for one in rounds if (one.contender, one.fault) == (entry.name, known)]


def row(cell: Sequence[Round]) -> str:
    served, asked = [one.served_ms + one.unsure_ms for one in cell], [one.asked_ms for one in cell]
    back = "" if all(one.over for one in cell) else " NOT ALL CAME BACK"
    return (
        f"{statistics.median(served):7.0f} {max(served):8.0f} {max(one.lost for one in cell):6} "
        f"{statistics.median(asked):7.0f} {max(asked):8.0f} {max(one.twice for one in cell):6} "
        f"{max(one.others_lost for one in cell):6}{back}"
    )


def ratios(of: Entry, cells: Mapping[str, Sequence[Round]]) -> str:
    def ratio(other: Sequence[Round], what: str) -> str:
        theirs = statistics.median(getattr(one, what) for one in other)
        return f"{statistics.median(getattr(one, what) for one in cells[of.name]) / theirs:.2f}" if theirs else "-"

    others = {"k": (), "o": ("keepalived",), "a": ("keepalived", "ours-100")}[of.name[0]]

    return "  ".join(
        f"{entry.name}: {ratio(other, 'served_ms')}, {ratio(other, 'asked_ms')}"
        for entry in ENTRIES
        if entry.name.startswith(others) and (other := cells[entry.name])
    )


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rounds", type=int, default=10)
    arguments.add_argument("--only", default=",".join((*FAULTS, *OF_THE_API)), help="faults (default %(default)s)")
    arguments.add_argument(
        "--contenders", default=",".join(entry.name for entry in ENTRIES), help="(default %(default)s)"
    )
    arguments.add_argument("--json", action="store_true", help="every round, one JSON object on stdout")
    options = arguments.parse_args()
    faults, names = options.only.split(","), options.contenders.split(",")
    leave_host_network()
    if not shutil.which("keepalived"):
        names = [name for name in names if "keepalived" not in name]
        print("keepalived is not installed: without it", file=sys.stderr)
    if lacking := missing():
        names = [name for name in names if "agents" not in name]
        print(f"without agents: {lacking}", file=sys.stderr)
    load = os.getloadavg()[0]
    rounds: list[Round] = []

    def tell(one: Round) -> None:
        rounds.append(one)
        if not options.json:
            print(one, flush=True)

    for entry in ENTRIES:
        if entry.name in names:
            compete(entry, faults, options.rounds, tell)
    if options.json:
        print(json.dumps({"load": [load, os.getloadavg()[0]], "rounds": [dataclasses.asdict(one) for one in rounds]}))
        return
    good = [one for one in rounds if not one.disturbed]
    print(f"\nload {load:.1f} before, {os.getloadavg()[0]:.1f} after; median and worst of {options.rounds} rounds;")
    print(f"{len(rounds) - len(good)} more left out because the machine stood still for {DISTURBED:.0f} ms or more")
    print("\n".join(table(good, faults)))


if __name__ == "__main__":
    main()
