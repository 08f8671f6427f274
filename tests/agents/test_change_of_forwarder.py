"""From kube-proxy to the agents and back, node by node: kube-proxy is told to leave the EIPs alone once the last agent
forwards, and to carry them before one that does not holds any."""

from collections.abc import AsyncIterator

import pytest
from agent_cluster import LEASES, SERVICES, Cluster, until

from speaker.api.records import FORWARDER

pytestmark = [pytest.mark.netns, pytest.mark.apiserver, pytest.mark.long(part="agents")]

FORWARDS = "--forwarder=nftables"


def modes(cluster: Cluster) -> set[str]:
    services = cluster.done("GET", SERVICES)["items"]
    return {each["ipMode"] for service in services for each in service["status"]["loadBalancer"]["ingress"]}


def said(cluster: Cluster) -> dict[str, str]:
    leases = cluster.done("GET", LEASES)["items"]
    return {each["metadata"]["name"]: each["metadata"]["labels"][FORWARDER] for each in leases}


@pytest.fixture
async def changed(cluster) -> AsyncIterator[Cluster]:
    """Whatever becomes of the test, the next one finds agents and a controller without a forwarder."""
    try:
        yield cluster
    finally:
        for node in set(cluster.agents):
            cluster.killed(node)
        await cluster.control()


async def test_there_and_back_somebody_carries_what_is_held_at_every_step(changed):
    cluster = changed
    await cluster.agreed()
    assert said(cluster) == dict.fromkeys(cluster.nodes, "none")
    await cluster.control(FORWARDS)
    for node in cluster.nodes:
        assert modes(cluster) == {"VIP"}
        await cluster.stopped(node)
        cluster.start(node, FORWARDS)
        await until(lambda node=node: said(cluster)[node] == "nftables")
    await until(lambda: modes(cluster) == {"Proxy"})
    await cluster.agreed()

    first = cluster.nodes[0]
    await cluster.stopped(first)
    cluster.start(first)

    def carried() -> bool:
        holds = cluster.agents[first].holds()
        found = modes(cluster)
        assert not (holds and "Proxy" in found)
        return found == {"VIP"}

    await until(carried)
    for node in cluster.nodes[1:]:
        await cluster.stopped(node)
        cluster.start(node)
        await cluster.until_healthy(node)
    await cluster.agreed()
    assert modes(cluster) == {"VIP"}
