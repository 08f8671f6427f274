"""Agents with forwarder ``none`` beside a real kube-proxy in ipvs mode: what clients of its Services meet.

Needs QEMU's guest, and etcd and kube-apiserver outside it: `make test-qemu` on a machine that has run `make cluster`.
Every Service has a port for TCP and one for UDP; half of them have ``externalTrafficPolicy: Local``; a quarter of the
EIPs are IPv6.
"""

import asyncio
import subprocess

import pytest
from agent_cluster import MANAGEMENT, holders_of, until
from agent_objects import DRAIN, EXCLUDED
from proxied_cluster import outside, proxied_cluster_in

from speaker.lab.breaking.faults import cut
from speaker.lab.hosts.speakers import holds_most

pytestmark = [pytest.mark.ipvs, pytest.mark.apiserver]

MODULES = (
    "virtio_net", "dummy", "nf_conntrack", "nft_compat", "nft_chain_nat", "ip_vs", "ip_vs_rr", "xt_set",
    "ip_set", "ip_set_bitmap_port", "ip_set_hash_ip", "ip_set_hash_ipport", "ip_set_hash_ipportip",
    "ip_set_hash_ipportnet",
)  # fmt: skip
RATE, ENOUGH = 40, 1000
"""Connections a second, as many as an emulated processor has time for; and in all, half of them datagrams."""


@pytest.fixture(scope="module")
def standing(tmp_path_factory):
    if outside() is None:
        pytest.skip("needs QEMU's guest, and etcd and kube-apiserver outside it: `make cluster`, then `make test-qemu`")
    subprocess.run(["/run/modprobe", "--all", *MODULES], check=True)
    with proxied_cluster_in(tmp_path_factory.mktemp("proxied")) as cluster:
        yield cluster


@pytest.fixture
async def cluster(standing):
    await standing.until_proxied(*standing.nodes)
    await standing.whole()
    return standing


@pytest.fixture
def clients(standing, request, record_property):
    """``await clients(what)``: what those met that opened ENOUGH connections meanwhile; told at the end of the run."""
    least = -(-ENOUGH // (2 * len(standing.eips)))

    async def run(what, place="client"):
        with standing.clients(RATE, least, place) as met:
            await what()
        record_property("told", f"{request.node.name} ({place}): {met}")
        return met

    return run


async def nothing():
    pass


@pytest.mark.parametrize("place", ["client", "node1", "pod1"])
async def test_every_eip_and_port_is_served(cluster, clients, place):
    """``client`` is on the LAN, ``pod1`` behind node1 and, among others, a backend of every Service."""
    met = await clients(nothing, place)
    assert met.all("failed") == met.all("cut") == 0, met


async def test_a_holder_alone_answers_arp(cluster):
    holders = holders_of(await cluster.agreed())
    macs = {node: cluster.lan.topology.host(node).mac("eth0") for node in cluster.nodes}
    async with cluster.asking() as asks:
        await asyncio.sleep(5)
    heard = {}
    for reply in (reply for reply in asks.replies() if reply.address.version == 4):
        heard.setdefault(reply.address, set()).add(reply.mac)
    assert heard == {eip: {macs[node]} for eip, node in holders.items() if eip.version == 4}


@pytest.mark.parametrize(
    "patch",
    [
        pytest.param({"metadata": {"annotations": {DRAIN: "true"}}}, id="drain annotation"),
        pytest.param({"metadata": {"labels": {EXCLUDED: ""}}}, id="excluded from external load balancers"),
    ],
)
async def test_a_drained_node_fails_no_new_connection(cluster, clients, patch):
    victim = holds_most(holders_of(await cluster.agreed()))

    async def drain():
        cluster.on_node(victim, patch)
        await cluster.agreed(lambda whose: victim not in whose.values())

    met = await clients(drain)
    assert met.all("failed") == 0, met


async def test_an_update_of_all_agents_fails_no_new_connection(cluster, clients):
    cluster.revision += 1

    async def update():
        for node in cluster.nodes:
            await cluster.stopped(node)
            await cluster.settled()
            cluster.start(node)
            await cluster.until_healthy(node)
        await cluster.agreed()

    met = await clients(update)
    assert met.all("failed") == 0, met


async def test_a_restart_of_every_kube_proxy_fails_no_new_connection_and_moves_nothing(cluster, clients):
    before = holders_of(await cluster.agreed())

    async def restart():
        for node in cluster.nodes:
            cluster.end_proxy(node)
            await asyncio.sleep(3)
            cluster.start_proxy(node)
            await cluster.until_synced(node)

    met = await clients(restart)
    assert met.all("failed") == 0, met
    assert holders_of(await cluster.agreed()) == before


async def test_a_crash_while_the_api_is_away_moves_what_the_dead_node_held(cluster, clients):
    holders = holders_of(await cluster.agreed())
    victim = holds_most(holders)
    others = [node for node in cluster.nodes if node != victim]

    async def crash():
        for node in cluster.nodes:
            await cluster.do(cut, node, MANAGEMENT)
        await cluster.dies(victim)
        await cluster.settled(lambda whose: victim not in whose.values())
        await asyncio.sleep(10)

    met = await clients(crash)
    whose = {eip: node for eip, (node,) in cluster.holders().items()}
    assert {eip: whose[eip] for eip in holders if holders[eip] in others} == {
        eip: node for eip, node in holders.items() if node in others
    }, met


async def test_a_kube_proxy_that_answers_arp_for_every_eip_is_a_problem(cluster):
    """With ``strictARP`` off, which is its default."""
    node = cluster.nodes[0]
    place = cluster.lan.namespace(node)
    place.sysctl("net.ipv4.conf.all.arp_ignore", 0)
    try:
        said = lambda: [line for line in cluster.agents[node].said() if "strictARP: true" in line.get("message", "")]  # noqa: E731
        await until(said)
    finally:
        place.sysctl("net.ipv4.conf.all.arp_ignore", 1)


RANGES = ("192.0.2.200/29", "2001:db8:0:1::200/120")
"""The pool."""


async def test_agents_of_the_overlay_ipvs_forward_beside_it(cluster, clients):
    """In the order of a `kubectl apply`: the agents node by node, and the controller. The last of this file."""
    cluster.excluded = RANGES

    async def change():
        for node in cluster.nodes:
            cluster.end_proxy(node)
            cluster.start_proxy(node)
            await cluster.until_synced(node)
        for node in cluster.nodes:
            await cluster.stopped(node)
            cluster.start(node, "--forwarder", "ipvs")
            await cluster.until_healthy(node)
        await cluster.control("--forwarder=ipvs")
        await until(lambda: cluster.modes() == {"Proxy"})

    met = await clients(change)
    assert met.all("failed") == 0, met
    await asyncio.sleep(35)  # kube-proxy sweeps every 30 s
    for place in ("client", "node1", "pod1"):
        met = await clients(nothing, place)
        assert met.all("failed") == 0, met
