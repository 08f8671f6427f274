"""A node that dies with everything on it, and an API that is away meanwhile."""

import time

import pytest
from cluster_story import url
from serving import SOON, Serving, booted_again, moved

pytestmark = pytest.mark.cluster
MOVE = pytest.mark.long(part="moves")
OUTAGE = 60.0
"""Seconds."""


def test_a_crashed_nodes_eips_are_answered_by_another(cluster: Serving, eips, during):
    node = cluster.holder(eips["local"][0])
    with booted_again(cluster, node):
        met = during(cluster, lambda: cluster.crash(node), avoid=node)
        moved(cluster, eips, node)
        assert met.longest("LAN", "Local") <= SOON, str(met)
        assert cluster.ask(url(eips["local"][0]))
    assert cluster.holder(eips["local"][0]) not in ("", node), "it took back what had moved"


@MOVE
def test_a_node_that_crashes_while_the_api_is_away_is_replaced_as_soon(cluster: Serving, eips, during):
    node = cluster.holder(eips["local"][0])

    def outage():
        back = time.monotonic() + OUTAGE
        cluster.stop("kube-apiserver")
        time.sleep(15)
        cluster.crash(node)
        time.sleep(15)
        moved(cluster, eips, node)
        time.sleep(max(0.0, back - time.monotonic()))
        cluster.start("kube-apiserver")

    with booted_again(cluster, node):
        met = during(cluster, outage, avoid=node)
        assert met.longest("LAN", "Local") <= SOON, str(met)
        moved(cluster, eips, node)
