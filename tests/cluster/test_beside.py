"""The static pod that holds the address of the control plane, and the cluster's own agents: neither notices the other.

`make test-cluster PART=beside` has the pod on every node, and `BESIDE=1` in all tests of the cluster: what is planned
may fail no connection to its address either.
"""

import json

import pytest
from beside import ADDRESS, GROUP, TARGET
from cluster_parts import DEV, NEXT
from cluster_story import holders
from serving import BESIDE, Met, Serving, restarts, unharmed

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.long(part="beside"),
    pytest.mark.skipif(not BESIDE, reason="needs BESIDE=1"),
]


def failed(met: Met, *targets: str) -> int:
    return sum(int(each.targets[t]["failed"]) for each in met.by_place.values() for t in targets if t in each.targets)


def agents_targets(met: Met) -> list[str]:
    return [target for policy, targets in met.targets.items() if policy != "control plane" for target in targets]


def killed(cluster: Serving, node: str, processes: list[str]) -> None:
    assert processes
    cluster.in_node(node, "kill", "-KILL", *processes, check=False)  # the second one ends with the first


def test_a_static_pod_that_is_killed_costs_the_agents_nothing(cluster: Serving, eips, during):
    node, before = cluster.holder(ADDRESS), (holders(cluster), restarts(cluster))
    met = during(cluster, lambda: killed(cluster, node, cluster.control_plane.processes(node)))
    assert failed(met, *agents_targets(met)) == 0, str(met)
    assert (holders(cluster), restarts(cluster)) == before
    cluster.until("it is answered again", lambda: cluster.holder(ADDRESS))


def test_agents_that_are_killed_cost_the_address_of_the_control_plane_nothing(cluster: Serving, during):
    node = cluster.holder(ADDRESS)
    ours = set(cluster.control_plane.processes(node))

    def kill():
        killed(cluster, node, sorted(set(cluster.processes(node, "speaker")) - ours))

    met = during(cluster, kill)
    assert failed(met, TARGET) == 0, str(met)
    assert cluster.holder(ADDRESS) == node
    assert set(cluster.control_plane.processes(node)) == ours
    cluster.settle()


def test_the_static_pods_are_drained_and_updated_and_no_connection_fails(cluster: Serving, during):
    before, node = holders(cluster), cluster.holder(ADDRESS)

    def update():
        cluster.control_plane.told(node, "drain")
        cluster.until("another holds it", lambda: cluster.holder(ADDRESS) not in ("", node))
        cluster.control_plane.told(node, "undrain")
        for image in (NEXT, DEV):
            for each in cluster.nodes:
                cluster.control_plane.write(each, image)

    unharmed(during(cluster, update))
    assert holders(cluster) == before


def test_a_static_pod_that_is_removed_leaves_what_is_the_agents(cluster: Serving, during):
    node = cluster.holder(ADDRESS)
    before = cluster.in_node(node, "nft", "list", "tables").splitlines()
    try:
        met = during(cluster, lambda: cluster.control_plane.remove(node))
        assert failed(met, *agents_targets(met)) == 0, str(met)
        left = cluster.in_node(node, "nft", "list", "tables").splitlines()
        assert left == [table for table in before if f"/{GROUP}" not in table]
        assert cluster.holder(ADDRESS) not in ("", node)
    finally:
        cluster.control_plane.write(node)


def test_neither_takes_the_other_for_a_stranger(cluster: Serving):
    for node in cluster.nodes:
        for told in (
            cluster.in_agent(node, "speaker", "status", "--json"),
            cluster.control_plane.told(node, "status", "--json"),
        ):
            problems = json.dumps(json.loads(told)["problems"])
            assert not any(word in problems for word in ("conflict", "stranger", "mismatch", "peers_address")), problems
