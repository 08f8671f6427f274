"""The API is gone, frozen, forgetful, crowded or far away: nothing that is held stops, and failover goes on."""

import time

import pytest
from agent_cluster import AFTERMATH, HELLO_MS, REMEMBERED, broken_promises, holders_of, pause, until
from agent_objects import ANNOUNCEMENTS, DRAIN, SERVICES

from speaker.agent.last_known import RECALL_SECONDS
from speaker.api.records import announcement_name
from speaker.lab.capture import relapses
from speaker.lab.speakers import holds_most, service_of
from speaker.ownership.parameters import Parameters

pytestmark = [pytest.mark.netns, pytest.mark.apiserver, pytest.mark.long(part="agents")]

ANSWERED_AGAIN = 10.0
"""Seconds, of which an agent waits for the API for RECALL_SECONDS."""
NOTICED = Parameters().record_timeout + 1
"""Seconds after which an agent takes an API server that does not answer for gone. No lease says who holds what."""
WRITES_OF_A_START = 500
"""More than an API server makes when it starts."""
DRAINED = {"metadata": {"annotations": {DRAIN: "true"}}}


def has_started(agent):
    return any(line.get("event") == "started" for line in agent.said())


def assert_no_term_went_down(before, after):
    assert {
        eip: (record.term, after[eip].term) for eip, record in before.items() if after[eip].term < record.term
    } == {}


async def test_a_node_that_dies_while_the_api_server_is_gone_is_followed_and_recorded_when_it_is_back(cluster):
    before = await cluster.agreed()
    holders = holders_of(before)
    victim = holds_most(holders)
    async with cluster.watching(holders) as watch:
        cluster.api.stop()
        await pause(NOTICED)
        await cluster.dies(victim)
        after = await cluster.settled()
        cluster.api.start()
        records = await cluster.agreed()
    assert holders_of(records) == after
    assert broken_promises(cluster.views(watch), victim) == []
    assert_no_term_went_down(before, records)


async def test_a_node_that_dies_while_the_api_server_is_frozen_is_followed_and_recorded_when_it_goes_on(cluster):
    before = await cluster.agreed()
    holders = holders_of(before)
    victim = holds_most(holders)
    async with cluster.watching(holders) as watch:
        cluster.api.freeze()
        await pause(1.0)
        await cluster.dies(victim)
        after = await cluster.settled()
        await pause(1.0)
        cluster.api.thaw()
        records = await cluster.agreed()
    assert holders_of(records) == after
    assert broken_promises(cluster.views(watch), victim) == []
    assert_no_term_went_down(before, records)


async def test_a_record_that_is_deleted_while_nobody_watches_for_its_holder_is_written_again(cluster):
    """No list tells a main process of what was there before it; and the wire process goes by what it was told."""
    before = await cluster.agreed()
    holders = holders_of(before)
    node = holds_most(holders)
    eip = next(eip for eip, holder in holders.items() if holder == node)
    async with cluster.watching(holders) as watch:
        cluster.agents[node].kill_main()
        cluster.ask("DELETE", f"{ANNOUNCEMENTS}/{announcement_name(eip)}")
        after = await cluster.agreed()
    assert holders_of(after) == holders
    assert broken_promises(cluster.views(watch), lossless=True) == []


async def test_after_an_older_backup_was_restored_the_records_say_who_holds_what(cluster):
    """Its versions begin again below those that agents know: at none of these could anything be written."""
    await cluster.agreed()
    cluster.api.back_up()
    cluster.api.start()
    victim = cluster.nodes[0]
    before = holders_of(await cluster.agreed())
    cluster.on_node(victim, DRAINED)
    moved = await cluster.agreed(lambda whose: victim not in whose.values())
    for number in range(WRITES_OF_A_START):
        cluster.on_node(victim, {"metadata": {"annotations": {"example.com/later": str(number)}}})
    async with cluster.watching(holders_of(moved)) as watch:
        cluster.api.restore()
        cluster.api.start()
        cluster.on_node(victim, DRAINED)  # as it was not yet when the backup was made
        after = await cluster.agreed()
    assert holders_of(after) == holders_of(moved) != before
    assert broken_promises(cluster.views(watch), lossless=True) == []
    assert_no_term_went_down(moved, after)


async def test_agents_that_all_start_while_the_api_server_is_frozen_go_by_what_it_said_last(cluster):
    before = await cluster.agreed()
    await pause(REMEMBERED)  # what earlier tests asked for is forgotten
    cluster.api.freeze()
    for node in cluster.nodes:
        cluster.killed(node)
    async with cluster.asking() as asks:
        for node in cluster.nodes:
            cluster.start(node)
        await until(lambda: all(map(has_started, cluster.agents.values())))  # a busy machine takes its time for that
        started = time.monotonic()
        alone = await cluster.settled()
        await pause(AFTERMATH)
        replies = [reply for reply in asks.replies() if reply.at >= started]
        for eip in {eip for eip in before if eip.version == 4}:
            assert min(reply.at for reply in replies if reply.address == eip) - started <= ANSWERED_AGAIN, eip
        cluster.api.thaw()
        records = await cluster.agreed()
        await pause(AFTERMATH)
        assert relapses(asks.replies(), HELLO_MS / 1000) == ()
    assert holders_of(records) == alone
    assert_no_term_went_down(before, records)


async def test_an_agent_that_starts_without_an_api_takes_nothing_from_those_who_may_read_it(cluster):
    holders = holders_of(await cluster.agreed())
    victim = holds_most(holders)
    await pause(REMEMBERED)
    cluster.killed(victim)
    after = holders_of(await cluster.agreed())
    await cluster.cut_off(victim)
    cluster.start(victim)
    await pause(2 * RECALL_SECONDS)
    assert await cluster.settled() == after
    assert not any(line.get("event") == "claimed" for line in cluster.agents[victim].said())


async def test_a_holder_that_cannot_reach_the_api_keeps_what_it_holds_as_long_as_the_others_hear_it(cluster):
    before = await cluster.agreed()
    holders = holders_of(before)
    async with cluster.watching(holders) as watch:
        await cluster.cut_off(holds_most(holders))
        await pause(NOTICED)
    assert broken_promises(cluster.views(watch), lossless=True) == []
    assert cluster.records() == before


async def test_agents_whose_history_etcd_has_forgotten_list_again_and_do_what_is_asked_next(cluster):
    holders = holders_of(await cluster.agreed())
    victim = holds_most(holders)
    async with cluster.watching(holders) as watch:
        cluster.api.stop()
        cluster.api.compact()
        cluster.api.start()
        cluster.on_node(victim, DRAINED)
        await cluster.agreed(lambda whose: victim not in whose.values())
    assert broken_promises(cluster.views(watch), victim, lossless=True) == []


async def test_while_somebody_writes_to_the_records_all_the_time_nothing_flaps_and_a_dead_node_is_followed(cluster):
    holders = holders_of(await cluster.agreed())
    victim = holds_most(holders)
    async with cluster.watching(holders) as watch:
        with cluster.storm() as written:
            await until(lambda: len(written) > 20 * len(holders))
            assert await cluster.settled() == holders
            await cluster.dies(victim)
            await cluster.agreed()
    assert broken_promises(cluster.views(watch), victim) == []


async def test_an_agent_whose_watch_is_cut_within_an_object_goes_on_and_does_what_is_asked_next(cluster, way):
    node, api = cluster.nodes[-1], way()
    await cluster.stopped(node)
    cluster.start(node, "--server", api.url)
    await cluster.whole()
    holders = holders_of(await cluster.agreed())
    ballast = {"metadata": {"annotations": {"example.com/ballast": "x" * 100_000}}}
    async with cluster.watching(holders) as watch:
        connections = api.connections
        api.cut_after(50_000)
        cluster.done("PATCH", f"{SERVICES}/{service_of(cluster.eips[0])}", ballast)
        await until(lambda: api.connections > connections)
        assert await cluster.settled() == holders
        cluster.on_node(node, DRAINED)
        await cluster.agreed(lambda whose: node not in whose.values())
    assert broken_promises(cluster.views(watch), node, lossless=True) == []
    await cluster.stopped(node)  # before the way is closed


async def test_a_record_that_somebody_deletes_is_made_again_and_its_term_does_not_go_back(cluster):
    before = await cluster.agreed()
    holders = holders_of(before)
    async with cluster.watching(holders) as watch:
        for eip in holders:
            cluster.done("DELETE", f"{ANNOUNCEMENTS}/{announcement_name(eip)}")
        records = await cluster.agreed(lambda whose: whose == holders)
    assert broken_promises(cluster.views(watch), lossless=True) == []
    assert_no_term_went_down(before, records)


async def test_kubectl_says_at_a_glance_which_node_has_an_eip(cluster):
    holders = holders_of(await cluster.agreed())
    lines = cluster.api.kubectl("get", "announcements").splitlines()
    assert lines[0].split() == ["NAME", "HOLDER", "LINK", "MAC", "SERVICES", "SINCE", "CONFLICT", "REASON"]
    assert {line.split()[0]: line.split()[1] for line in lines[1:]} == {
        announcement_name(eip): node for eip, node in holders.items()
    }
