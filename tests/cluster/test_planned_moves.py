"""What an operator does on purpose costs no new connection."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from cluster_story import DRAIN, drain, end_drain, holders, update
from real_cluster import SPEAKER_NAMESPACE
from serving import Serving, ended, unharmed

pytestmark = pytest.mark.cluster
MOVE = pytest.mark.long(part="moves")
OTHER = {"iptables": "nftables", "nftables": "iptables", "ipvs": "iptables"}


def test_a_drain_fails_no_new_connection(cluster, eips, during):
    node = cluster.holder(eips["web"][0])
    with ended(cluster, node):
        met = during(cluster, lambda: drain(cluster, node), avoid=node)
    unharmed(met)


@MOVE
def test_a_cordon_moves_nothing_and_fails_no_new_connection(cluster, eips, during):
    node = cluster.holder(eips["web"][0])
    before = holders(cluster)
    with ended(cluster, node):
        met = during(cluster, lambda: cluster.kubectl("cordon", node), avoid=node)
    assert holders(cluster) == before
    unharmed(met)


@MOVE
def test_a_node_that_is_drained_and_emptied_of_its_pods_fails_no_new_connection(cluster, eips, during):
    node = cluster.holder(eips["local"][0])
    with ended(cluster, node):
        met = during(cluster, lambda: cluster.empty(node), avoid=node)
    unharmed(met)


@MOVE
def test_new_pods_for_old_ones_fail_no_new_connection(cluster, during):
    def replace():
        cluster.kubectl("rollout", "restart", "deployment/web")
        cluster.rolled_out("deployment/web")

    unharmed(during(cluster, replace, places=("LAN", "node")))


@contextmanager
def slow_proxy(cluster: Serving, node: str) -> Iterator[None]:
    """Its kube-proxy takes ten seconds for its rules, as it may on a busy node."""
    cluster.set_proxy(node, {"minSyncPeriod": "10s"})
    try:
        yield
    finally:
        cluster.set_proxy(node)


@contextmanager
def emptied(cluster: Serving, node: str) -> Iterator[None]:
    """It has no pod of ours, and gets the next one."""
    others = [each for each in cluster.nodes if each != node]
    cluster.kubectl("cordon", node)
    cluster.kubectl("delete", "pod", "--selector=app=web", f"--field-selector=spec.nodeName={node}")
    cluster.rolled_out("deployment/web")
    cluster.kubectl("uncordon", node)
    cluster.kubectl("cordon", *others)
    try:
        yield
    finally:
        cluster.kubectl("uncordon", *others)
        for each in others:
            end_drain(cluster, each)
        cluster.kubectl("scale", "deployment/web", f"--replicas={len(cluster.nodes)}")
        cluster.settle()


@MOVE
def test_a_first_endpoint_on_a_node_with_a_slow_kube_proxy_fails_no_new_connection(cluster: Serving, eips, during):
    """All other nodes wait to give their EIPs away: this one takes those of the policy Local once its kube-proxy sends
    to its pod, not as soon as that is ready."""
    node = next(each for each in cluster.nodes if each != cluster.holder(eips["local"][0]))

    def come():
        cluster.kubectl("scale", "deployment/web", f"--replicas={len(cluster.nodes) + 1}")
        for other in cluster.nodes:
            if other != node:
                cluster.kubectl("annotate", "node", other, f"{DRAIN}=true")
        for eip in eips["local"]:
            cluster.until(f"{node} holds {eip}", lambda eip=eip: cluster.holder(eip) == node)

    with emptied(cluster, node), slow_proxy(cluster, node):
        met = during(cluster, come, places=("LAN",))
    unharmed(met)


@MOVE
def test_an_agent_that_is_deleted_fails_no_new_connection(cluster, eips, during):
    node = cluster.holder(eips["web"][0])

    def delete():
        cluster.kubectl("-n", SPEAKER_NAMESPACE, "delete", "pod", cluster.agent_on(node))
        cluster.await_speaker()

    unharmed(during(cluster, delete, avoid=node))


def test_a_rolling_update_fails_no_new_connection(cluster, during):
    unharmed(during(cluster, lambda: update(cluster)))
    versions = {node: cluster.in_agent(node, "speaker", "--version").strip() for node in cluster.nodes}
    assert all(version.endswith("+next") for version in versions.values()), versions


@MOVE
def test_a_controller_that_is_replaced_fails_no_new_connection(cluster, during):
    def replace():
        cluster.kubectl("-n", "eip-speaker", "rollout", "restart", "deployment/eip-speaker-controller")
        cluster.rolled_out("deployment/eip-speaker-controller", "eip-speaker")

    unharmed(during(cluster, replace))


@MOVE
def test_kube_proxy_that_is_restarted_fails_no_new_connection(cluster: Serving, during):
    unharmed(during(cluster, lambda: cluster.restart_everywhere("kube-proxy")))


@MOVE
def test_kube_proxy_in_another_mode_fails_no_new_connection_where_the_node_is_drained_before(cluster: Serving, during):
    """There and back. On the node itself kube-proxy removes its old rules before it writes new ones: clients there and
    in pods see that, whoever announces, and are on a node that is not changed."""
    (*_, node) = (node for node in cluster.nodes if cluster.processes(node, "web"))

    def change():
        for mode in (OTHER[cluster.proxy], cluster.proxy):
            with ended(cluster, node):
                drain(cluster, node)
                cluster.change_proxy(node, mode)

    unharmed(during(cluster, change, avoid=node))


@MOVE
def test_a_kubelet_that_is_frozen_fails_no_new_connection(cluster: Serving, eips, during):
    """Kubernetes takes its node for NotReady, and its pods for unready; they and the agent go on."""
    node = cluster.holder(eips["local"][0])
    before = holders(cluster)

    def freeze():
        cluster.signal(node, "kubelet", "STOP")
        cluster.until(f"{node} is not Ready", lambda: node not in cluster.ready())

    met = during(cluster, freeze, avoid=node)
    cluster.signal(node, "kubelet", "CONT")
    cluster.until(f"{node} is Ready", lambda: node in cluster.ready())
    unharmed(met)
    web = cluster.eips("web")[0]
    assert holders(cluster)[web] == before[web], "readiness takes no EIP away"
