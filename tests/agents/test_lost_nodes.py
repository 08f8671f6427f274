"""A node or its agent is gone without a word: what it held moves, once, and the records say where to."""

import pytest
from agent_cluster import AFTERMATH, HELLO_MS, broken_promises, holders_of, pause, until

from speaker.lab.capture import relapses
from speaker.lab.speakers import holds_most
from speaker.lab.switch import cut, mend
from speaker.ownership.parameters import Parameters

pytestmark = [pytest.mark.netns, pytest.mark.apiserver, pytest.mark.long(part="agents")]

AN_HOUR = 3600
A_LEASE_RENEWED = Parameters().renew + 1
"""Seconds; who is not heard is believed once it has renewed its Lease (rule 23)."""


def assert_terms_went_up_where_the_holder_changed(before, after):
    for eip, record in before.items():
        if after[eip].holder == record.holder:
            assert after[eip].term == record.term, eip
        else:
            assert after[eip].term > record.term, eip


async def test_what_a_dead_node_held_moves_once_and_its_records_name_the_new_holders(cluster):
    before = await cluster.agreed()
    victim = holds_most(holders_of(before))
    async with cluster.watching(holders_of(before)) as watch:
        await cluster.dies(victim)
        after = await cluster.agreed()
    assert broken_promises(cluster.views(watch), victim) == []
    assert_terms_went_up_where_the_holder_changed(before, after)


async def test_an_agent_killed_and_started_again_waits_for_no_lease_of_its_own_and_takes_nothing_back(cluster):
    before, sessions = await cluster.agreed(), cluster.sessions()
    victim = holds_most(holders_of(before))
    async with cluster.watching(holders_of(before)) as watch:
        cluster.killed(victim)
        cluster.prolong(victim, AN_HOUR)
        await cluster.settled()
        cluster.start(victim)
        await until(lambda: cluster.sessions()[victim].incarnation > sessions[victim].incarnation)
        await cluster.until_healthy(victim)
        after = await cluster.agreed()
    assert broken_promises(cluster.views(watch), victim) == []
    assert victim not in holders_of(after).values()
    assert_terms_went_up_where_the_holder_changed(before, after)


async def test_a_node_cut_off_from_the_lan_with_the_api_in_reach_loses_what_it_held_and_takes_nothing(cluster):
    before = holders_of(await cluster.agreed())
    victim = holds_most(before)
    await cluster.do(cut, victim)
    await pause(A_LEASE_RENEWED)
    apart = await cluster.agreed()
    await pause(AFTERMATH)
    assert await cluster.agreed() == apart, "nobody takes over again and again"
    moved = {eip for eip, holder in holders_of(apart).items() if holder != before[eip]}
    assert moved == {eip for eip, holder in before.items() if holder == victim}
    async with cluster.asking() as asks:
        await cluster.do(mend, victim)
        await pause(AFTERMATH)
    assert relapses(asks.replies(), HELLO_MS / 1000) == ()
    assert holders_of(await cluster.agreed()) == holders_of(apart)
