"""What one tenant writes costs no pod of the speaker its life, and no client of others a connection.

Real pods, with the manifests' limits, that a kubelet put into memory cgroups. tests/agents has many more attacks.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from heavy import SEEN, TENANT
from serving import Serving, restarts, unharmed

pytestmark = [pytest.mark.cluster, pytest.mark.long(part="disasters")]
AT_ONCE = 4
"""Objects that kubectl is given together."""
FLAT = 40
"""MB that an agent may grow by, as in tests/agents."""
KINDS = {
    "slices of no Service": {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice"},
    "Services of another class with many source ranges": {"apiVersion": "v1", "kind": "Service"},
}


def resident(cluster: Serving, node: str) -> int:
    """MB of the largest process of the speaker there."""
    sizes = cluster.in_node(node, "ps", "-C", "python3,speaker,python", "-o", "rss=", check=False).split()
    return max(map(int, sizes)) // 1024


@contextmanager
def tenant(cluster: Serving) -> Iterator[None]:
    cluster.kubectl("create", "namespace", TENANT)
    try:
        yield
    finally:
        cluster.kubectl("delete", "namespace", TENANT)


@pytest.mark.parametrize("name", KINDS)
def test_a_tenants_weight_ends_no_pod_and_fails_no_new_connection(cluster: Serving, during, tell, name):
    before = restarts(cluster)
    sizes = {node: resident(cluster, node) for node in cluster.nodes}
    written = 0

    def write() -> None:
        nonlocal written
        bodies = [{**(request.body or {}), **KINDS[name]} for request in SEEN[name]()]
        for at in range(0, len(bodies), AT_ONCE):
            some = {"apiVersion": "v1", "kind": "List", "items": bodies[at : at + AT_ONCE]}
            cluster.kubectl("-n", TENANT, "create", "-f", "-", stdin=json.dumps(some))
        written = len(bodies)

    with tenant(cluster):
        met = during(cluster, write)
        after = {node: resident(cluster, node) for node in cluster.nodes}
    tell(f"{name}: {written} written, agents {sizes} → {after} MB")
    assert restarts(cluster) == before
    assert {node: size for node, size in after.items() if size > sizes[node] + FLAT} == {}
    unharmed(met)
