"""The overlay `assist` on a real cluster, in each of kube-proxy's modes that the kernel has: kube-proxy forwards, and
while a node is dead and Kubernetes does not know, the agents lead past its pods.
"""

from collections.abc import Iterator

import pytest
from cluster_rights import BPF, NET_ADMIN, NET_RAW, agents_have
from cluster_story import drain, update, url
from real_cluster import MODES, PACE, missing
from serving import Serving, booted_again, ended, let_in_by_ranges, moved, one_pod_for_one_client, unharmed

pytestmark = [pytest.mark.cluster, pytest.mark.long(part="forwarder")]
SOON = 0.5 if PACE == 1 else 3.0
"""Seconds that new connections fail for after a crash; on a slow machine everything takes so much longer."""
TABLE = "inet eip-speaker-assist"


@pytest.fixture(scope="module", params=MODES)
def cluster(request: pytest.FixtureRequest) -> Iterator[Serving]:
    if why := missing(request.param):
        pytest.skip(why)
    with Serving(request.param, "assist") as cluster:
        cluster.forwards_by = f"{request.param}, forwarder assist"
        yield cluster


def assisted(cluster: Serving) -> set[str]:
    """Nodes that lead past somebody's pods, by their kernel."""
    return {
        node
        for node, here in cluster.nodes.items()
        if here.first and TABLE in cluster.in_node(node, "nft", "list", "tables")
    }


def test_an_agent_may_change_the_network_too_and_has_no_other_right(cluster):
    agents_have(cluster, NET_RAW | NET_ADMIN | BPF)


def test_kube_proxy_forwards_and_nothing_of_ours_is_in_the_kernel(cluster):
    modes = {
        entry.get("ipMode")
        for service in ("web", "local", "first", "second")
        for entry in cluster.get("service", service)["status"]["loadBalancer"]["ingress"]
    }
    assert modes == {"VIP"}
    assert assisted(cluster) == set()


def test_a_drain_fails_no_new_connection(cluster, eips, during):
    node = cluster.holder(eips["web"][0])
    with ended(cluster, node):
        unharmed(during(cluster, lambda: drain(cluster, node), avoid=node))
    assert assisted(cluster) == set()


def test_a_rolling_update_fails_no_new_connection(cluster, during):
    unharmed(during(cluster, lambda: update(cluster)))
    assert assisted(cluster) == set()


@pytest.mark.parametrize("who", ["the holder", "another"])
def test_after_a_crash_new_connections_fail_for_half_a_second_whatever_the_policy(cluster, eips, during, stranger, who):
    """Kubernetes takes its pods for ready until the node is NotReady; the agents know better, and kube-proxy's rules go
    on. What it costs is told by Service."""
    eip = eips["web"][0]
    holder = cluster.holder(eip)
    node = holder if who == "the holder" else next(each for each in cluster.nodes if each != holder)
    others = set(cluster.nodes) - {node}
    with booted_again(cluster, node):

        def crash():
            cluster.crash(node)
            cluster.until("the others lead past its pods", lambda: assisted(cluster) == others)
            assert cluster.get("node", node)["status"]["conditions"][-1]["status"] == "True", "Kubernetes knows"
            let_in_by_ranges(cluster, stranger)
            one_pod_for_one_client(cluster)
            assert "assisted" in cluster.in_agent(next(iter(others)), "speaker", "status")

        met = during(cluster, crash, avoid=node)
        for policy in met.targets:
            assert met.longest("LAN", policy) <= SOON, str(met)
        moved(cluster, eips, node)
        cluster.until("kube-proxy knows, and nothing of ours is left", lambda: not assisted(cluster), 90)
        assert cluster.ask(url(eip))
    assert assisted(cluster) == set()
