"""What the API says of nodes and endpoints decides who may hold an EIP; and never that nobody does."""

import pytest
from agent_cluster import broken_promises, holders_of
from agent_objects import EXCLUDED, POOL, POOLS, SERVES

from speaker.lab.speakers import holds_most

pytestmark = [pytest.mark.netns, pytest.mark.apiserver]


@pytest.mark.parametrize(
    "labels",
    [
        pytest.param({SERVES: None}, id="not one of the pool's nodes any more"),
        pytest.param({EXCLUDED: ""}, id="excluded from external load balancers"),
    ],
)
async def test_a_node_whose_labels_forbid_it_gives_up_what_it_held(cluster, labels):
    holders = holders_of(await cluster.agreed())
    victim = holds_most(holders)
    async with cluster.watching(holders) as watch:
        cluster.on_node(victim, {"metadata": {"labels": labels}})
        await cluster.agreed(lambda whose: victim not in whose.values())
    assert broken_promises(cluster.views(watch), victim) == []


async def test_the_holder_follows_a_ready_endpoint_where_the_policy_is_local(cluster):
    holders = holders_of(await cluster.agreed())
    eip = cluster.local[0]
    others = [node for node in cluster.nodes if node != holders[eip]]
    async with cluster.watching(holders) as watch:
        cluster.ready_endpoints(eip, others[:1])
        await cluster.agreed(lambda whose: whose[eip] == others[0])
    assert broken_promises(cluster.views(watch), holders[eip], of=[eip]) == []


async def test_with_every_node_not_ready_every_eip_has_a_holder_and_a_lost_one_another(cluster):
    holders = holders_of(await cluster.agreed())
    victim = holds_most(holders)
    cluster.ready(cluster.nodes, ready=False)
    async with cluster.watching(holders) as watch:
        await cluster.dies(victim)
        await cluster.agreed()
    assert broken_promises(cluster.views(watch), victim) == []


FAST = "example.com/fast"


async def test_eips_move_to_a_node_that_becomes_preferred_and_every_client_is_served(cluster):
    holders = holders_of(await cluster.agreed())
    chosen, *others = cluster.nodes
    preferring = {"nodePreference": [{"weight": 80, "matchLabels": {FAST: "yes"}}], "failback": "preferred-after 2s"}
    cluster.done("PATCH", f"{POOLS}/{POOL}", {"spec": preferring})
    try:
        async with cluster.watching(holders) as watch:
            cluster.on_node(chosen, {"metadata": {"labels": {FAST: "yes"}}})
            await cluster.agreed(lambda whose: set(whose.values()) == {chosen})
        views = cluster.views(watch)
        for node in others:
            moved = [view for view in views if holders[view.address] == node]
            assert broken_promises(moved, node, lossless=True) == []
        stayed = [view for view in views if holders[view.address] == chosen]
        assert broken_promises(stayed, lossless=True) == []
    finally:
        cluster.on_node(chosen, {"metadata": {"labels": {FAST: None}}})
        cluster.done("PATCH", f"{POOLS}/{POOL}", {"spec": dict.fromkeys(preferring)})
