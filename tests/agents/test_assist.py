"""Kube-proxy forwards, and agents lead past the endpoints of a node that died until Kubernetes knows."""

import subprocess
from collections.abc import AsyncIterator

import pytest
from agent_cluster import LEASES, SERVICES, Cluster, pause, until

from speaker.api.records import FORWARDER
from speaker.lab.switch import cut, mend

pytestmark = [pytest.mark.netns, pytest.mark.apiserver, pytest.mark.long(part="agents")]


def assisted_by(cluster: Cluster) -> set[str]:
    """Nodes whose kernel leads past somebody's endpoints."""
    found = set()
    for node in cluster.nodes:
        with cluster.lan.namespace(node).entered():
            tables = subprocess.run(["nft", "list", "tables"], capture_output=True, text=True, check=True).stdout
        if "inet eip-speaker-assist" in tables:
            found.add(node)
    return found


def told(cluster: Cluster, node: str) -> list[str]:
    return [each["node"] for each in cluster.agents[node].status().get("assisting", [])]


@pytest.fixture
async def assisting(cluster) -> AsyncIterator[Cluster]:
    """All agents assist; the next test finds agents without a forwarder, and all endpoints ready."""
    try:
        for node in cluster.nodes:
            await cluster.stopped(node)
            cluster.start(node, "--forwarder=assist")
        await cluster.until_healthy(*cluster.nodes)
        await cluster.agreed()
        yield cluster
    finally:
        for node in set(cluster.agents):
            await cluster.stopped(node)
        for eip in cluster.eips:
            cluster.ready_endpoints(eip, cluster.nodes)
    assert assisted_by(cluster) == set(), "a stopped agent takes it away"


async def test_kube_proxy_forwards_as_ever(assisting):
    leases = assisting.done("GET", LEASES)["items"]
    assert {each["metadata"]["labels"][FORWARDER] for each in leases} == {"none"}
    services = assisting.done("GET", SERVICES)["items"]
    assert {each["ipMode"] for service in services for each in service["status"]["loadBalancer"]["ingress"]} == {"VIP"}
    assert assisted_by(assisting) == set()


async def test_the_others_lead_past_a_dead_nodes_endpoints_until_kubernetes_knows_or_it_is_back(assisting):
    cluster = assisting
    dead, *others = cluster.nodes
    await cluster.do(cut, dead)
    await until(lambda: assisted_by(cluster) == set(others))
    await until(lambda: all(told(cluster, node) == [dead] for node in others))
    assert "kube-proxy is assisted" in cluster.agents[others[0]].ask("status")
    await pause(2.0)
    assert assisted_by(cluster) == set(others), "who is cut off misses everybody, and changes nothing"
    for eip in cluster.eips:
        cluster.ready_endpoints(eip, others)
    await until(lambda: not assisted_by(cluster))
    await until(lambda: not any(told(cluster, node) for node in others))


async def test_it_ends_when_the_node_is_back_though_kubernetes_never_knew(assisting):
    dead, *others = assisting.nodes
    await assisting.do(cut, dead)
    await until(lambda: assisted_by(assisting) == set(others))
    await assisting.do(mend, dead)
    await until(lambda: not assisted_by(assisting))
