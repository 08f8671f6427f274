"""Memory against objects: an agent's processes and the controller's, and MetalLB's where its programs are.

    python benchmarks/memory.py [--services N] [--metallb DIR | --with-metallb] [--json]

The cluster of tests/agents: a real API server, three agents, the controller. Services of ours with a slice of three
endpoints each come in steps up to N (10,000). After each step, when every Service has an EIP and a holder, it prints
what each process has resident, what the mirrors reckon, and the bytes that one more Service costs. Then as many
Services and slices of others come, which are to cost nothing.

With ``--metallb DIR`` (``controller``, ``speaker`` and ``crds/``, built from its sources) or ``--with-metallb``, which
builds them as tests/moving does unless they cannot be, MetalLB's programs run then
beside ours, read the very same objects, and serve the same class: the ratio is of what ours take to what they take.
Needs etcd and kube-apiserver where envtest looks for them, nft, and root or a user namespace.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

_TESTS = Path(__file__).parents[1] / "tests"
sys.path[:0] = [str(_TESTS / name) for name in ("agents", "apiserver", "cluster", "faults", "moving")]
sys.path.insert(0, str(Path(__file__).parent))

from agent_cluster import API_HOST, Cluster, cluster_in, until  # noqa: E402
from agent_objects import SERVICES, SLICES, service, slice_of  # noqa: E402
from arp_peers import why_no_metallb  # noqa: E402
from cluster_agents import Connection, assigned, children, gauge, memory, three_endpoints, without_node_port  # noqa: E402
from load_balancers import MetalLB  # noqa: E402
from peer_programs import programs_of  # noqa: E402
from real_api import bound_to_us, missing  # noqa: E402

from speaker.lab.namespaces import leave_host_network  # noqa: E402

STEPS = 0.01, 0.1, 0.5, 1.0
"""Of all Services."""
FIRST = IPv4Address("10.64.0.1")
CLASS = "eip-speaker.io/speaker"
QUIET = 20.0
"""Seconds until what a step left behind is let go."""
Sizes = Mapping[str, float]


def eip(number: int) -> IPv4Address:
    return FIRST + number


def sizes(cluster: Cluster) -> dict[str, float]:
    """MB resident; of three agents the most."""
    agents = [agent.process.pid for agent in cluster.agents.values()]
    return {
        "agent": max(memory(child)[0] for pid in agents for child in children(pid)[:1]),
        "its wire process": max(memory(pid)[0] for pid in agents),
        "controller": memory(cluster.controller.process.pid)[0],
    }


async def served(cluster: Cluster, count: int) -> None:
    await until(lambda: assigned(cluster, count), patience=900)
    await until(lambda: sum(len(agent.holds()) for agent in cluster.agents.values()) >= count, patience=900)
    await asyncio.sleep(QUIET)


async def ours(cluster: Cluster, services: int) -> list[dict[str, Any]]:
    found = [{"services": len(cluster.eips), "mb": sizes(cluster), "reckoned_mb": reckoned(cluster)}]
    had = 0
    for step in STEPS:
        post, wanted = Connection(cluster.api), round(step * services)
        for number in range(had, wanted):
            post("POST", SERVICES, without_node_port(service(eip(number))))
            post("POST", SLICES, slice_of(eip(number), three_endpoints(cluster.nodes)))
        had = wanted
        await served(cluster, had + len(cluster.eips))
        found.append({"services": had, "mb": sizes(cluster), "reckoned_mb": reckoned(cluster)})
        print(json.dumps(found[-1]), file=sys.stderr, flush=True)
    return found


def reckoned(cluster: Cluster) -> float:
    return max(gauge(cluster, node, "eip_speaker_mirror_bytes") for node in cluster.nodes) / 2**20


async def of_others(cluster: Cluster, services: int) -> Sizes:
    post = Connection(cluster.api)
    for number in range(services):
        name = f"other-{number}"
        post(
            "POST", SERVICES, {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], "selector": {"app": name}}}
        )
        body = slice_of(eip(number), three_endpoints(cluster.nodes))
        meta = {"name": name, "labels": {"kubernetes.io/service-name": name}}
        post("POST", SLICES, {**body, "metadata": meta})
    await asyncio.sleep(QUIET)
    return sizes(cluster)


# ── MetalLB ──


class MetalLb:
    """Its controller and one speaker, started as tests/moving does; they read what ours read."""

    def __init__(self, cluster: Cluster, binaries: Path, stack: ExitStack) -> None:
        peer = MetalLB(binaries)
        peer.install(cluster)
        pool = {"addresses": ["10.64.0.0/16", "192.0.2.200-192.0.2.250", "2001:db8:0:1::/64"], "autoAssign": False}
        for kind, spec in (("IPAddressPool", pool), ("L2Advertisement", {})):
            meta = {"name": "all", "namespace": peer.namespace}
            body = {"apiVersion": "metallb.io/v1beta1", "kind": kind, "metadata": meta, "spec": spec}
            cluster.api.kubectl("apply", "-f", "-", stdin=json.dumps(body))
        self.pids = {}
        for kind, node in (("Deployment", ""), ("DaemonSet", cluster.nodes[0])):
            (name, *flags), environment = peer.command(kind, node, cluster)
            with (
                cluster.lan.namespace(node or API_HOST).entered(),
                (cluster.directory / f"metallb-{name}.log").open("wb") as log,
            ):
                process = subprocess.Popen(
                    [str(binaries / name), *flags, f"--lb-class={CLASS}", "--log-level=warn"],
                    env={**os.environ, **environment},
                    stdout=log,
                    stderr=log,
                    preexec_fn=bound_to_us(),
                )
            stack.callback(process.wait)
            stack.callback(process.kill)
            self.pids[name] = process.pid

    def sizes(self) -> Sizes:
        return {name: memory(pid)[0] for name, pid in self.pids.items()}


# ── All of it ──


def slope(found: list[dict[str, Any]], what: str) -> float:
    """KB that one more Service costs."""
    first, last = found[1], found[-1]
    return 1024 * (last["mb"][what] - first["mb"][what]) / (last["services"] - first["services"])


def measured(services: int, binaries: Path | None) -> dict[str, Any]:
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        cluster = stack.enter_context(cluster_in(directory, more_addresses=["10.64.0.0/16"], interface="eth0"))
        return asyncio.run(_measured(cluster, services, binaries, stack))


async def _measured(cluster: Cluster, services: int, binaries: Path | None, stack: ExitStack) -> dict[str, Any]:
    for node in cluster.nodes:
        cluster.start(node)
    await served(cluster, len(cluster.eips))
    found = await ours(cluster, services)
    result: dict[str, Any] = {"ours": found, "with as many of others": await of_others(cluster, services)}
    if binaries is not None:
        metallb = MetalLb(cluster, binaries, stack)
        await asyncio.sleep(3 * QUIET)
        result["MetalLB"] = metallb.sizes()
    return result


def shown(result: Mapping[str, Any]) -> str:
    lines = [f"{'Services':>10}  {'agent':>8} {'wire':>8} {'controller':>10}  MB resident (reckoned)"]
    for row in result["ours"]:
        agent, wire, controller = row["mb"].values()
        lines.append(f"{row['services']:>10}  {agent:8.0f} {wire:8.0f} {controller:10.0f}  ({row['reckoned_mb']:.0f})")
    agent, wire, controller = result["with as many of others"].values()
    lines.append(f"{'+ others':>10}  {agent:8.0f} {wire:8.0f} {controller:10.0f}")
    lines.append(
        "one more: " + ", ".join(f"{what} {slope(result['ours'], what):.1f} KB" for what in result["ours"][0]["mb"])
    )
    if (theirs := result.get("MetalLB")) is not None:
        lines.append(
            f"MetalLB with all of it: speaker {theirs['speaker']:.0f}, controller {theirs['controller']:.0f} MB"
        )
        lines.append(
            f"ratio: agent with its wire process / speaker {(agent + wire) / theirs['speaker']:.2f}, "
            f"controller / controller {controller / theirs['controller']:.2f}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--services", type=int, default=10_000)
    parser.add_argument("--metallb", type=Path)
    parser.add_argument("--with-metallb", action="store_true")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if reason := missing():
        print(reason)
        return
    if arguments.with_metallb and (reason := why_no_metallb()):
        print(reason, file=sys.stderr)
    elif arguments.with_metallb:
        arguments.metallb = programs_of("metallb")
    leave_host_network()
    result = measured(arguments.services, arguments.metallb)
    print(json.dumps(result, indent=2) if arguments.json else shown(result))


if __name__ == "__main__":
    main()
