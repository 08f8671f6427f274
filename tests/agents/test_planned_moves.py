"""A node or its agent is about to go: it hands over what it holds, and nobody notices."""

import re
from collections import Counter

import pytest
from agent_cluster import broken_promises, holders_of
from agent_objects import DRAIN, EXCLUDED, OUT_OF_SERVICE

from speaker.lab.speakers import holds_most

pytestmark = [pytest.mark.netns, pytest.mark.apiserver]


def let_go(metrics):
    """Why, and how many EIPs, since the agent began."""
    found = re.findall(r'eip_speaker_claim_changes_total\{change="(?!claimed)(\w+)"\} (\d+)', metrics)
    return Counter({why: int(count) for why, count in found})


@pytest.mark.parametrize(
    "patch",
    [
        pytest.param({"metadata": {"annotations": {DRAIN: "true"}}}, id="drain annotation"),
        pytest.param({"spec": {"taints": [OUT_OF_SERVICE]}}, id="out-of-service taint"),
        pytest.param({"metadata": {"labels": {EXCLUDED: ""}}}, id="excluded from external load balancers"),
    ],
)
async def test_a_node_that_is_drained_in_the_api_hands_over_without_a_lost_probe(cluster, patch):
    holders = holders_of(await cluster.agreed())
    victim = holds_most(holders)
    before = let_go(cluster.metrics(victim))
    async with cluster.watching(holders) as watch:
        cluster.on_node(victim, patch)
        await cluster.agreed(lambda whose: victim not in whose.values())
    assert broken_promises(cluster.views(watch), victim, lossless=True) == []
    mine = sum(holder == victim for holder in holders.values())
    assert let_go(cluster.metrics(victim)) - before == {"better_claim": mine}, "each was claimed before it was let go"


async def test_an_agent_that_is_asked_to_stop_hands_over_without_a_lost_probe(cluster):
    holders = holders_of(await cluster.agreed())
    victim = holds_most(holders)
    async with cluster.watching(holders) as watch:
        await cluster.stopped(victim)
        await cluster.agreed()
    assert broken_promises(cluster.views(watch), victim, lossless=True) == []


async def test_in_a_rolling_upgrade_each_eip_of_a_node_that_is_not_the_first_moves_once(cluster):
    holders = holders_of(await cluster.agreed())
    cluster.revision += 1
    # By score alone the EIPs of the second would go to the third, whose name most of them prefer, and move again.
    order = cluster.nodes[::-1]
    async with cluster.watching(holders) as watch:
        for done, node in enumerate(order):
            await cluster.stopped(node)
            handed_over = await cluster.settled()
            if done:
                moved = {eip: handed_over[eip] for eip, holder in holders.items() if holder == node}
                assert set(moved.values()) <= set(order[:done]), moved
            cluster.start(node)
            await cluster.until_healthy(node)
        await cluster.agreed()
    seen = cluster.views(watch)
    assert {view.address: view.outage.lost for view in seen if view.outage.lost} == {}
    moves = {view.address: view.moves for view in seen if view.before != order[0]}
    # Make before break: while both answer they may be seen in any order, which adds an even number.
    assert [eip for eip, count in moves.items() if count % 2 == 0] == []
