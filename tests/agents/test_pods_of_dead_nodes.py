"""What agents put on record about a node that fell silent, and what the controller makes of it."""

import pytest
from agent_cluster import LEASES, holders_of, until
from real_api import MANIFESTS

from speaker.api.records import MISSES
from speaker.lab.speakers import holds_most

pytestmark = [pytest.mark.netns, pytest.mark.apiserver, pytest.mark.long(part="agents")]

RIGHTS = str(MANIFESTS.parent / "components" / "mark-pods-not-ready" / "pod-rights.yaml")
KUBELETS, PODS = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", "/api/v1/namespaces/default/pods"


def missed(cluster):
    """Agent → whom it misses."""
    found = {each["metadata"]["name"]: each["metadata"] for each in cluster.done("GET", LEASES)["items"]}
    assert {node for node, said in found.items() if MISSES in said.get("labels", {})} == {
        node for node, said in found.items() if MISSES in said.get("annotations", {})
    }
    return {node: said["annotations"][MISSES] for node, said in found.items() if MISSES in said.get("annotations", {})}


def readiness(cluster, node):
    conditions = cluster.done("GET", f"{PODS}/on-{node}")["status"]["conditions"]
    return {each["type"]: each for each in conditions}["Ready"]


@pytest.fixture
async def marking(cluster):
    """Every node has a pod, and a kubelet that renewed its Lease once and never again."""
    cluster.api.kubectl("apply", "--filename", RIGHTS)
    for node in cluster.nodes:
        cluster.done("POST", KUBELETS, {"metadata": {"name": node}, "spec": {"holderIdentity": node}})
        spec = {"nodeName": node, "containers": [{"name": "web", "image": "web"}]}
        cluster.done("POST", PODS, {"metadata": {"name": f"on-{node}"}, "spec": spec})
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        cluster.done("PATCH", f"{PODS}/on-{node}/status", {"status": status})
    await cluster.control("--mark-pods-not-ready")
    yield cluster
    await cluster.control()
    for node in cluster.nodes:
        cluster.done("DELETE", f"{PODS}/on-{node}?gracePeriodSeconds=0")
        cluster.done("DELETE", f"{KUBELETS}/{node}")
    cluster.api.kubectl("delete", "--filename", RIGHTS)


async def test_all_others_say_that_a_node_died_and_its_pods_are_marked_and_all_unsay_it_when_it_is_back(marking):
    cluster = marking
    victim = holds_most(holders_of(await cluster.agreed()))
    others = [node for node in cluster.nodes if node != victim]
    assert missed(cluster) == {}
    await cluster.dies(victim)
    await until(lambda: missed(cluster) == dict.fromkeys(others, victim))
    await until(lambda: readiness(cluster, victim)["status"] == "False")
    assert readiness(cluster, victim)["reason"] == "NodeSilent"
    assert readiness(cluster, victim)["message"].startswith(f"{', '.join(others)} do not hear {victim}")
    assert {readiness(cluster, node)["status"] for node in others} == {"True"}
    await cluster.whole()
    await until(lambda: missed(cluster) == {})


async def test_nobody_misses_one_that_is_stopped(cluster):
    victim = holds_most(holders_of(await cluster.agreed()))
    await cluster.stopped(victim)
    await cluster.agreed(lambda whose: victim not in whose.values())
    assert missed(cluster) == {}
