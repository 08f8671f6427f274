"""A node that dies with everything on it."""

import pytest
from cluster_story import clients_during, url

pytestmark = pytest.mark.cluster


def test_a_crashed_nodes_eips_are_answered_by_another(cluster, eips, count):
    node = cluster.holder(eips["local"][0])
    count(clients_during(cluster, lambda: cluster.crash(node)))
    for addresses in eips.values():
        for eip in addresses:
            assert cluster.holder(eip) not in ("", node)
    assert cluster.ask(url(eips["local"][0]))
    cluster.boot(node)
    cluster.await_speaker()
    assert cluster.holder(eips["local"][0]) not in ("", node), "it took back what had moved"
